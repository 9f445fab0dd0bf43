# Completions of levada for bash. They ask the program, which knows the names of its home.
_levada() {
    local line text last head
    local -a words
    # The words up to the cursor: COMP_WORDS is divided at = : and @, too.
    text=${COMP_LINE:0:COMP_POINT}
    read -ra words <<<"$text"
    [[ $text == *[[:space:]] ]] && words+=("")
    last=${words[${#words[@]} - 1]}
    # Readline replaces only what follows such a character.
    head=${last%"${last##*["$COMP_WORDBREAKS"]}"}
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\t'*}
        COMPREPLY+=("${line#"$head"}")
    done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F _levada levada
