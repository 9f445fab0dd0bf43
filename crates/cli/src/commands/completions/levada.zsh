#compdef levada
# Completions of levada for zsh. They ask the program, which knows the names of its home.
_levada() {
    local line
    local -a found shown folders
    for line in "${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        case ${line%%$'\t'*} in
        '') ;;
        */) folders+=("${line%%$'\t'*}") ;;
        *)
            found+=("${line%%$'\t'*}")
            shown+=("${line//$'\t'/  -- }")
            ;;
        esac
    done
    if (( ! $#found && ! $#folders )); then
        _files
        return
    fi
    (( $#folders )) && compadd -S '' -a folders
    (( $#found )) && compadd -l -d shown -a found
}
if [ "$funcstack[1]" = "_levada" ]; then
    _levada "$@"
else
    compdef _levada levada
fi
