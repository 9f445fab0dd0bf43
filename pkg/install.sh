#!/bin/sh
# Installs Levada from the folder of this script, or upgrades it:
#   ./install.sh                  below /usr/local for root, below ~/.local for others
#   ./install.sh --prefix FOLDER  below FOLDER
# FOLDER/share/levada/uninstall.sh removes it.
set -eu

usage() {
    echo "usage: $0 [--prefix FOLDER]" >&2
    exit 2
}

prefix=
while [ $# -gt 0 ]; do
    case "$1" in
    --prefix=?*) prefix=${1#--prefix=} ;;
    --prefix) prefix=${2:?"$0: --prefix needs a folder"} && shift ;;
    *) usage ;;
    esac
    shift
done
if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
fi
case "$prefix" in /*) ;; *) prefix=$PWD/$prefix ;; esac

umask 022
from=$(cd "$(dirname "$0")" && pwd)
record=$prefix/share/levada/installed
files=$(cd "$from" && find bin lib share -type f | LC_ALL=C sort)

# Folders that an earlier version made are still removed with this one.
folders=
[ ! -e "$record" ] || folders=$(grep '/$' "$record" || true)

# Makes the folder of $1 and the missing ones above it, and adds them to the list.
make_folder() {
    [ ! -d "$prefix/$1" ] || return 0
    case "$1" in */*) make_folder "${1%/*}" ;; esac
    mkdir "$prefix/$1"
    folders="$folders
$1/"
}

mkdir -p "$prefix"
make_folder share/levada
for file in $files; do
    make_folder "${file%/*}"
    # A running program is replaced, not overwritten.
    cp "$from/$file" "$prefix/$file.new"
    mv -f "$prefix/$file.new" "$prefix/$file"
done

# What only an earlier version had is removed.
if [ -e "$record" ]; then
    grep -v '/$' "$record" | while read -r file; do
        printf '%s\n' $files | grep -qxF "$file" || rm -f "$prefix/$file"
    done
fi
{
    printf '%s\n' $files
    printf '%s\n' "$folders" | sed '/^$/d'
} >"$record.new"
mv -f "$record.new" "$record"

echo "installed $("$prefix/bin/levada" --version) below $prefix"
case ":$PATH:" in
*":$prefix/bin:"*) ;;
*) echo "note: $prefix/bin is not in PATH" ;;
esac
echo "A node that starts with the machine: levada service install"
echo "Remove it: $prefix/share/levada/uninstall.sh"
