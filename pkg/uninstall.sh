#!/bin/sh
# Removes the files that install.sh has installed, and the folders that it made, if they are empty:
#   FOLDER/share/levada/uninstall.sh      those below FOLDER
#   ./uninstall.sh --prefix FOLDER        the same, from the folder of the unpacked archive
# The homes of identities are kept.
set -eu

usage() {
    echo "usage: $0 [--prefix FOLDER]" >&2
    exit 2
}

prefix=$(dirname "$0")/../..
while [ $# -gt 0 ]; do
    case "$1" in
    --prefix=?*) prefix=${1#--prefix=} ;;
    --prefix) prefix=${2:?"$0: --prefix needs a folder"} && shift ;;
    *) usage ;;
    esac
    shift
done
prefix=$(cd "$prefix" && pwd)
record=$prefix/share/levada/installed
if [ ! -e "$record" ]; then
    echo "$0: install.sh has installed nothing below $prefix: there is no $record" >&2
    exit 1
fi

list=$(cat "$record")
rm -f "$record"
for path in $list; do
    case "$path" in */) ;; *) rm -f "$prefix/$path" ;; esac
done
# In this order a folder follows those below it.
for path in $(printf '%s\n' $list | LC_ALL=C sort -r); do
    case "$path" in */) rmdir "$prefix/$path" 2>/dev/null || true ;; esac
done

echo "removed Levada from $prefix"
echo "The homes of identities are kept: LEVADA_HOME, or ~/.config/levada and ~/.local/state/levada."
