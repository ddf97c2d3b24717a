# shellcheck shell=bash
# Runs of pipelines, for tests that hold them against runs without stages: source it behind lib.sh. It packs
# shapes; $args is the training that all runs have in common.
need mpiexec kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 96 50
args=(shapes model=resnet20 size=16 data="$ROOM/data/train" val="$ROOM/data/val" batch=32 micro_batch=8
    epochs=1 warmup=0 reduce=canonical bn=ghost conv=direct deterministic=true threads=1)

figures() { # RUN: what its summary says of the training itself
    tr -d , < "$1/summary.json" |
        grep -E '"(state|steps|epochs|loss|top1|top5|best_top1|bad_samples|useful_batch)"'
}
first=
held() { # NAME RANKS OPTIONS...: a run without stages, which the runs that follow are held against
    first=$ROOM/$1
    timeout 300 mpiexec -n "$2" kolo train "${args[@]}" run="$first" "${@:3}" > "$ROOM/log" 2>&1
    is $? 0 "$2 ranks without stages, ${*:3}" "$ROOM/log"
}
alone() { # NAME OPTIONS...: one rank with the whole network
    first=$ROOM/$1
    kolo train "${args[@]}" run="$first" "${@:2}" > "$ROOM/log" 2>&1
    is $? 0 "one rank, ${*:2}" "$ROOM/log"
}
same() { # RANKS OPTIONS...
    local run=$ROOM/staged text="$1 ranks, ${*:2}"
    rm -rf "$run"
    timeout 300 mpiexec -n "$1" kolo train "${args[@]}" run="$run" "${@:2}" > "$ROOM/log" 2>&1
    is $? 0 "$text" "$ROOM/log" || return
    cmp "$(tensors_of "$first")" "$(tensors_of "$run")" > "$ROOM/log" 2>&1
    ok $? "$text: weights, running statistics, optimizer's state byte for byte" "$ROOM/log"
    is "$(losses "$run") $(figures "$run")" "$(losses "$first") $(figures "$first")" \
        "$text: losses, and figures of the validation"
}
# A run whose ranks end because one is killed with -9 in the middle, gone on with by other ranks: the bytes of
# one rank that is never interrupted.
killed() { # RANKS RANKS OPTIONS...
    local name=$ROOM/killed job victim status i word whole=(epochs=6) many
    for word in "${@:3}"; do [[ $word == stages=* || $word == pipeline=* ]] || whole+=("$word"); done
    many=("${args[@]}" epochs=6 checkpoint_steps=2 "${@:3}")
    rm -rf "$name" "$name.whole"
    kolo train "${args[@]}" "${whole[@]}" run="$name.whole" > "$ROOM/log" 2>&1
    is $? 0 "one rank, ${whole[*]}" "$ROOM/log"
    mpiexec -n "$1" kolo train "${many[@]}" run="$name" > "$name.log" 2>&1 &
    job=$!
    for ((i = 0; i < 6000; i++)); do
        [ "$(losses "$name" 2> /dev/null | wc -l)" -ge 5 ] && break
        sleep 0.1
    done
    victim=$(pgrep -f "kolo train .*run=$name\$" | tail -n 1)
    kill -9 "$victim"
    wait $job
    status=$?
    [ $status != 0 ]
    ok $? "$1 ranks, of which one is killed with -9, end with $status" "$name.log"
    timeout 300 mpiexec -n "$2" kolo train "${many[@]}" run="$name" > "$ROOM/log" 2>&1
    is $? 0 "$2 go on" "$ROOM/log"
    cmp "$(tensors_of "$name.whole")" "$(tensors_of "$name")" > "$ROOM/log" 2>&1
    ok $? "to the bytes of one rank that was never interrupted" "$ROOM/log"
}
