#!/usr/bin/env bash
# What the TAB key completes, typed at the prompt of real shells: bash and zsh at a terminal, fish by
# its own `complete -C`.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack kolo-shards
export TOP BUILD
mkdir -p "$ROOM/c" "$ROOM/here/data/train" && touch "$ROOM/here/a.yaml"
for shell in bash zsh fish; do
    for program in kolo kolo-pack kolo-shards; do
        share/setup/completion.sh $shell "$BUILD/bin/$program" > "$ROOM/c/$shell-$program" || exit 1
    done
done

# SHELL "LINE", with <TAB> keys: what the command is then called with, a word in <> each
press() {
    local line=$2 start ready i
    case $1 in
    bash) start="TERM=dumb INPUTRC=/dev/null bash --norc --noprofile -i" \
        ready="for p in kolo kolo-pack kolo-shards; do . $ROOM/c/bash-\$p; done" ;;
    zsh) start="TERM=dumb zsh -f -i" \
        ready="fpath=($ROOM/zfunc \$fpath); autoload -Uz compinit; compinit -u -d $ROOM/zdump"
        ready+="; setopt no_beep" \
        ;;
    esac
    {
        echo "PS1=; cd $ROOM/here; $ready"
        echo \
            "kolo() { printf '<%s>' \"\$@\" > $ROOM/called; }; kolo-pack() { kolo \"\$@\"; }; kolo-shards() { kolo \"\$@\"; }"
        echo "touch $ROOM/prompt"
        for ((i = 0; i < 400; i++)); do if [ -e "$ROOM/prompt" ]; then break; else sleep 0.05; fi; done
        sleep 0.3
        printf '%s\n' "${line//<TAB>/$'\t'}"
        for ((i = 0; i < 400; i++)); do if [ -e "$ROOM/called" ]; then break; else sleep 0.05; fi; done
        echo exit
    } | timeout 60 script -qec "$start" /dev/null > "$ROOM/terminal" 2>&1
    sed 's|/>|>|g' "$ROOM/called" 2> /dev/null # zsh removes the slash of a folder when the line ends
    rm -f "$ROOM/called" "$ROOM/prompt"
}
typed() { # SHELL LINE RESULT
    is "$(press "$1" "$2")" "$3" "$1: $2" || tail -n 5 "$ROOM/terminal" | tr -c '[:print:]\n' ' ' | diag
}
mkdir "$ROOM/zfunc"
for program in kolo kolo-pack kolo-shards; do cp "$ROOM/c/zsh-$program" "$ROOM/zfunc/_$program"; done
for shell in bash zsh; do
    if ! command -v $shell > /dev/null ||
        ! command -v script > /dev/null; then skip "no $shell, or no script(1) to make a terminal" &&
        continue; fi
    typed $shell 'kolo tra<TAB>' '<train>'
    typed $shell 'kolo train preci<TAB>b<TAB>' '<train><precision=bf16>'
    typed $shell 'kolo train shap<TAB>optimizer=adamw data=data/tr<TAB>' \
        '<train><shapes><optimizer=adamw><data=data/train>'
    typed $shell 'kolo train a.y<TAB>reduce=can<TAB>' '<train><a.yaml><reduce=canonical>'
    typed $shell 'kolo eval run=x model=convnext_b<TAB>' '<eval><run=x><model=convnext_base>'
    typed $shell 'kolo-pack --sou<TAB>webd<TAB>--split v<TAB>' '<--source><webdataset-tar><--split><val>'
    typed $shell 'kolo-pack --in da<TAB>' '<--in><data>'
    typed $shell 'kolo-shards resh<TAB>da<TAB>' '<reshard><data>'
    typed $shell 'kolo-shards reshard data --shar<TAB>4' '<reshard><data><--shards><4>'
done
if command -v fish > /dev/null; then
    offers() { # LINE RESULT
        is "$(cd "$ROOM/here" && HOME=$ROOM XDG_CONFIG_HOME=$ROOM fish --no-config -c \
            "for p in kolo kolo-pack kolo-shards; source $ROOM/c/fish-\$p; end
            complete -C '$1'" | cut -f 1 | tr '\n' ' ')" "$2 " "fish: $1<TAB>"
    }
    offers 'kolo tra' train
    offers 'kolo train preci' precision=
    offers 'kolo train precision=' 'precision=bf16 precision=f32 precision=fp16 precision=tf32'
    offers 'kolo train data=data/tr' data=data/train/
    offers 'kolo-pack --source webd' webdataset-tar
    offers 'kolo-shards resh' reshard
    offers 'kolo-shards reshard data --shar' --shards
else
    skip "no fish"
fi

# nothing drifts: all that a program reads is offered
for program in kolo-pack kolo-shards; do
    missing=
    for option in $("$program" --help |
        grep -oE '^  --[a-z-]+'); do grep -q -- "$option\b" "$ROOM/c/bash-$program" ||
        missing="$missing $option"; done
    is "$missing" "" "every option of $program --help is offered"
done
missing=
# shellcheck disable=SC2013 # keys are single words
for key in $(sed -nE 's/^(INT|AUTO|REAL|BOOL|TEXT|CHOICE)\(([a-z_0-9]*),.*/\2/p' src/base/options.def); do
    grep -q "[ ']$key=[ ']" "$ROOM/c/bash-kolo" || missing="$missing $key"
done
is "$missing" "" "every option of the option table is offered"
done_testing
