#!/usr/bin/env bash
# Checkpoints written from place, as memory= leaves no room for rank 0's copy, in every mode in which ranks
# have something of their own: the bytes are those of a run that copies, also of what ranks carry; a run goes
# on from them to the same bytes; and SIGKILL in the middle of one leaves the checkpoint before it.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
# shellcheck source=tests/kills.sh
. tests/kills.sh
need mpiexec kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 192 10
args=(shapes model=resnet20 size=32 data="$ROOM/data/train" val=none batch=64 epochs=0 steps=4 warmup=0
    lr=0.02 conv=direct deterministic=true threads=1 checkpoint_steps=2 comm_timeout=10 heartbeat_timeout=5)
train() { # RANKS RUN OPTIONS...
    timeout 100 mpiexec -n "$1" kolo train "${args[@]}" run="$ROOM/$2" "${@:3}" > "$ROOM/log" 2>&1
}
# what there is for a rank is 4 MiB less than it needs with all its activations: recompute=auto makes up for
# that, and nothing is left for a copy
within() { # RANKS OPTIONS...: words of such a budget
    local need
    need=$(kolo plan "${args[@]}" ranks="$1" "${@:2}" 2> "$ROOM/log" |
        sed -n 's/^memory of a rank: \([0-9]*\) bytes.*/\1/p')
    echo "recompute=auto memory=$((${need:-0} - (4 << 20)))"
}
newest() { find "$ROOM/$1/checkpoints" -maxdepth 1 -regex '.*/step-[0-9]*' | sort | tail -n 1; }
alike() { # RUN RUN TEXT: tensors, and what ranks carry, where they do
    local a b
    a=$(newest "$1") b=$(newest "$2")
    cmp "$a/tensors.safetensors" "$b/tensors.safetensors" > "$ROOM/cmp" 2>&1
    local bad=$?
    if [ -e "$a/carried" ] || [ -e "$b/carried" ]; then
        cmp "$a/carried" "$b/carried" >> "$ROOM/cmp" 2>&1 || bad=1
    fi
    ok $bad "$3" "$ROOM/cmp"
}
resumes() { # NAME RANKS OPTIONS...
    local run=$1-in
    rm -rf "${ROOM:?}/$run"
    train "$2" "$run" "${@:3}" stop_step=2
    is $? 75 "  stopped after 2 steps"
    train "$2" "$run" "${@:3}"
    is $? 0 "  and taken up again" "$ROOM/log"
    is "$(grep -c 'another rank layout' "$ROOM/log")" 0 "  with what its ranks carry" "$ROOM/log"
    alike "$1" "$run" "  to the same bytes"
}
mode() { # NAME RANKS CARRIES OPTIONS...
    local name=$1 ranks=$2 carries=$3 budget
    shift 3
    read -ra budget <<< "$(within "$ranks" "$@")"
    train "$ranks" "$name" "$@"
    is $? 0 "$*: a run that copies what it saves" "$ROOM/log"
    is "$(grep -c 'training waits while' "$ROOM/log")" 0 "  it does" "$ROOM/log"
    [ "$name" = backup ] && set -- "$@" backup_replay="$ROOM/backup"
    train "$ranks" "$name-in" "$@" "${budget[@]}"
    is $? 0 "  the same within ${budget[*]}" "$ROOM/log"
    like "$ROOM/log" 'a copy of what is saved does not fit: training waits' "  has no room for a copy"
    is "$([ -e "$(newest "$name-in")/carried" ] && echo carried)" "$carries" "  what ranks have of their own"
    alike "$name" "$name-in" "  the checkpoint: byte for byte"
    resumes "$name" "$ranks" "$@" "${budget[@]}"
}
mode local 2 carried local_steps=3
mode outer 2 carried local_steps=3 local_outer=slowmo
mode adasum 2 carried reduce=adasum optimizer=adamw lr=1e-3
mode topk 2 carried compression=topk compression_density=0.1 compression_within=true
mode powersgd 2 carried compression=powersgd compression_within=true
mode bf16 2 carried compression=bf16 compression_within=true
mode stale 2 carried sync=stale staleness=2 lr=0.005
mode backup 3 "" sync=backup backup=1 batch=96
mode async 2 "" sync=async servers=1 lr=0.005
# what is planned says so
kolo plan "${args[@]}" ranks=2 local_steps=3 > "$ROOM/plan" 2>&1
like "$ROOM/plan" "^  of its own: 0 bytes for sums between nodes, [1-9][0-9]* for a checkpoint's copy" \
    "kolo plan local_steps=3: bytes of the copy of a rank's own state"
kolo plan "${args[@]}" ranks=2 compression=topk compression_within=true > "$ROOM/plan" 2>&1
like "$ROOM/plan" "^  of its own: [1-9][0-9]* bytes for sums .*, [1-9][0-9]* for a checkpoint's copy" \
    "kolo plan compression=topk: bytes of its sums, too"
kolo plan "${args[@]}" ranks=2 > "$ROOM/plan" 2>&1
is "$(grep -c 'of its own' "$ROOM/plan")" 0 "kolo plan of ranks that have nothing of their own: no such line"

# stages always write so; what replicas carry is in all their stages
train 4 stages reduce=adasum stages=2 micro_batch=16
is $? 0 "reduce=adasum stages=2" "$ROOM/log"
resumes stages 4 reduce=adasum stages=2 micro_batch=16

# --- SIGKILL of either rank in the middle of a save
killed() { # RANK OPTIONS...
    local rank=$1 want=$2 job pid budget
    shift 2
    read -ra budget <<< "$(within 2 "$@")"
    rm -rf "$ROOM/killed" && mkdir -p "$ROOM/killed"
    train 2 killed "$@" "${budget[@]}" stop_step=2
    train 2 killed "$@" "${budget[@]}" &
    job=$!
    until pid=$(kills_rank "$rank" "$ROOM/killed") || ! kill -0 $job 2> /dev/null; do sleep 0.02; done
    until compgen -G "$ROOM/killed/checkpoints/*tmp*/tensors.safetensors" > "$ROOM/tmp" ||
        ! kill -0 $job 2> /dev/null; do :; done
    kill -KILL "$pid"
    wait $job
    ok $(($? == 0)) "$*: rank $rank killed in a save: the job fails" "$ROOM/log"
    kolo export "$ROOM/killed" "$ROOM/whole.safetensors" > "$ROOM/log" 2>&1
    ok $? "  the newest checkpoint is whole: $(basename "$(newest killed)")" "$ROOM/log"
    train 2 killed "$@" "${budget[@]}"
    is $? 0 "  the run goes on" "$ROOM/log"
    alike "$want" killed "  to the bytes of one that nothing befell"
}
killed 0 local local_steps=3
killed 1 local local_steps=3
killed 1 topk compression=topk compression_density=0.1 compression_within=true
done_testing
