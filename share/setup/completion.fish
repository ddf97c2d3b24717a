# fish completion of @NAME@, made by share/setup/completion.sh
function @FUNCTION@_words # COMMAND: what may follow it
    switch "$argv[1]"
@WORDS@
    end
end
function @FUNCTION@_values # "COMMAND WORD": what may follow the word
    switch "$argv[1]"
@VALUES@
    end
end
function @FUNCTION@_help # WORD
    switch "$argv[1]"
@HELP@
    end
end
function @FUNCTION@
    set -l typed (commandline -opc)
    set -l word (commandline -ct)
    set -l first (@FUNCTION@_words '')
    set -l command ''
    set -l before ''
    set -l key ''
    if not string match -q -- '-*' $first; and test (count $typed) -ge 2
        set command $typed[2]
    end
    if string match -q -- '*=*' $word
        set key (string split -m 1 = -- $word)[1]=
        set before (string replace -r '^--' '' -- $key)
        set word (string split -m 1 = -- $word)[2]
    else if test (count $typed) -ge 2; and string match -q -- '--*' $typed[-1]
        set before $typed[-1]
    end
    set -l values
    if test -n "$before"
        set values (@FUNCTION@_values "$command $before")
        test -n "$values"; or set values (@FUNCTION@_values "$command "(string replace -r '^--' '' -- $before)=)
    end
    if test -n "$values" -o -n "$key"
        for value in (string split ' ' -- $values)
            if test "$value" = FILE
                for file in $word*
                    test -d $file; and set file $file/
                    echo $key$file
                end
            else if test "$value" != ANY
                echo $key$value
            end
        end
        return
    end
    for name in (string split ' ' -- (@FUNCTION@_words "$command"))
        printf '%s\t%s\n' $name (@FUNCTION@_help $name)
    end
    if test -n "$command"; or string match -q -- '-*' $first
        __fish_complete_path $word
    end
end
complete -c @NAME@ -f -a '(@FUNCTION@)'
