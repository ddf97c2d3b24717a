#compdef @NAME@
# zsh completion of @NAME@, made by share/setup/completion.sh
@FUNCTION@_words() { # COMMAND: what may follow it
    reply=
    case "$1" in
@WORDS@
    esac
}
@FUNCTION@_values() { # "COMMAND WORD": what may follow the word
    reply=
    case "$1" in
@VALUES@
    esac
}
@FUNCTION@_help() { # WORD
    reply=
    case "$1" in
@HELP@
    esac
}
@FUNCTION@() {
    local reply command= before= word first
    local -a keys plain
    @FUNCTION@_words ''
    first=$reply
    [[ $first == -* ]] || (( CURRENT < 3 )) || command=${words[2]}
    if [[ $PREFIX == *=* ]]; then
        before=${PREFIX%%=*}=
        before=${before#--}
        compset -P '*='
    elif (( CURRENT > 2 )) && [[ ${words[CURRENT - 1]} == --* ]]; then
        before=${words[CURRENT - 1]}
    fi
    if [[ -n $before ]]; then
        @FUNCTION@_values "$command $before"
        [[ -n $reply || $before != --* ]] || @FUNCTION@_values "$command ${before#--}="
    fi
    if [[ -n $before && ( -n $reply || $before == *= ) ]]; then
        plain=(${(s: :)reply})
        plain=(${plain:#(FILE|ANY)})
        (( ! $#plain )) || compadd -a plain
        [[ $reply != *FILE* ]] || _files
        return
    fi
    @FUNCTION@_words "$command"
    for word in ${(s: :)reply}; do
        @FUNCTION@_help "$word"
        if [[ $word == *= ]]; then keys+=("$word:$reply"); else plain+=("$word:$reply"); fi
    done
    (( ! $#plain )) || _describe word plain
    (( ! $#keys )) || _describe option keys -S ''
    [[ -z $command && $first != -* ]] || _files
}
@FUNCTION@ "$@"
