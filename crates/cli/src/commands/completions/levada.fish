# Completions of levada for fish. They ask the program, which knows the names of its home.
function __levada_complete
    set -l current (commandline -ct)
    set -l words (commandline -opc)
    set -l found ($words[1] complete -- $words[2..-1] "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c levada -f -a '(__levada_complete)'
