# shellcheck shell=bash
# Runs whose activations are kept in other ways, held against those of a plain one byte for byte: source it
# behind lib.sh. It packs shapes; $args is the training that all runs have in common.
need kolo kolo-pack
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 96 50
args=(shapes model=resnet20 size=16 data="$ROOM/data/train" val="$ROOM/data/val" batch=32 micro_batch=16
    epochs=1 warmup=0 reduce=canonical bn=ghost conv=direct deterministic=true threads=1)
# how ranks are started; the run that others are held against; what its plan says of them, a pattern
start=() plain='' forms=''
run() { # NAME OPTIONS...
    timeout 60 "${start[@]}" kolo train "${args[@]}" run="$ROOM/$1" "${@:2}" > "$ROOM/log" 2>&1
}
plainly() { # NAME OPTIONS...: what the runs that follow are held against
    plain=$ROOM/$1
    run "$@"
    is $? 0 "plain: ${start[*]:2:1} ${*:2}" "$ROOM/log"
}
same() { # OPTIONS...: the plain run's bytes; its plan says so by a line that matches $forms
    rm -rf "$ROOM/again"
    run again "$@"
    is $? 0 "${start[*]:2:1} ${*}" "$ROOM/log" || return
    cmp "$(tensors_of "$plain")" "$(tensors_of "$ROOM/again")" > "$ROOM/cmp" 2>&1
    ok $? "$*: weights, running statistics, optimizer's state byte for byte" "$ROOM/cmp"
    is "$(losses "$ROOM/again")" "$(losses "$plain")" "$*: losses"
    like "$ROOM/log" "$forms" "$*: says how activations wait"
}
refused() { # PATTERN OPTIONS...
    run refused "${@:2}"
    is "$? $(grep -cE -- "$1" "$ROOM/log")" "78 1" "${*:2}: exit 78, and why" || diag < "$ROOM/log"
}
