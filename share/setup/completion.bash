# bash completion of @NAME@, made by share/setup/completion.sh
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
@FUNCTION@() {
    # words as the shell will see them: readline breaks them at = and : too
    local line=${COMP_LINE:0:COMP_POINT} typed=() reply='' command='' before='' sign
    local word=${line##*[[:space:]]}
    read -ra typed <<< "${line%"$word"}"
    @FUNCTION@_words ''
    local first=$reply
    [[ $first == -* || ${#typed[@]} -lt 2 ]] || command=${typed[1]}
    [[ ${#typed[@]} -lt 2 ]] || before=${typed[${#typed[@]} - 1]}
    COMPREPLY=()
    if [[ $word == *=* ]]; then
        before=${word%%=*}=
        before=${before#--}
        word=${word#*=}
    elif [[ $before != -* ]]; then
        before=
    fi
    if [[ -n $before ]]; then
        @FUNCTION@_values "$command $before"
        [[ -n $reply || $before != --* ]] || @FUNCTION@_values "$command ${before#--}="
    fi
    if [[ -n $before && ( -n $reply || $before == *= ) ]]; then
        local listed=" $reply "
        listed=${listed/ FILE / }
        mapfile -t COMPREPLY < <(compgen -W "${listed/ ANY / }" -- "$word")
        if [[ $reply == *FILE* && ${#COMPREPLY[@]} -eq 0 ]]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            compopt -o filenames 2> /dev/null
        fi
        # readline replaces what follows the last sign that breaks words
        for sign in = :; do
            [[ $COMP_WORDBREAKS == *"$sign"* ]] || continue
            [[ $word != *"$sign"* ]] || COMPREPLY=("${COMPREPLY[@]#"${word%"$sign"*}$sign"}")
        done
        [[ $before != *= || $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/$before}")
        return
    fi
    @FUNCTION@_words "$command"
    [[ $word == -* && $reply != *" --"* && $reply != --* ]] && reply=" $reply" && reply=${reply// / --}
    mapfile -t COMPREPLY < <(compgen -W "$reply" -- "$word")
    if [[ ${#COMPREPLY[@]} -eq 0 && ( -n $command || $first == -* ) ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2> /dev/null
    elif [[ ${COMPREPLY[0]-} == *= ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
complete -F @FUNCTION@ @NAME@
