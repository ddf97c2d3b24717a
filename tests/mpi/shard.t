#!/usr/bin/env bash
# Sharded optimizer, gradients and parameters: the bytes of one rank's plain run, whatever the ranks, groups,
# optimizer, order of sums and stages.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
args+=(bucket_mb=0.1)
held() { # NAME OPTIONS...: one rank, which holds everything
    first=$ROOM/$1
    kolo train "${args[@]}" run="$first" "${@:2}" > "$ROOM/log" 2>&1
    is $? 0 "one rank, ${*:2}" "$ROOM/log"
}
levels() { # RANKS OPTIONS...
    same "$1" shard=optimizer "${@:2}"
    same "$1" shard=gradients "${@:2}"
    same "$1" shard=parameters "${@:2}"
}

held sgd
levels 2
held lamb optimizer=lamb clip_norm=1 ema=0.9
levels 4 optimizer=lamb clip_norm=1 ema=0.9
same 4 optimizer=lamb clip_norm=1 ema=0.9 shard=parameters shard_group=2
same 4 optimizer=lamb clip_norm=1 ema=0.9 shard=gradients stages=2 pipeline=zero_bubble
same 2 optimizer=lamb clip_norm=1 ema=0.9 shard=parameters reshard=false
held adam optimizer=adamw lookahead=2 swa=0.5 noise_scale=true recompute=all micro_batch=4
same 2 optimizer=adamw lookahead=2 swa=0.5 noise_scale=true recompute=all micro_batch=4 shard=parameters

# --- the optimizer's state in a file: the same bytes, of less memory
same 1 optimizer=adamw lookahead=2 swa=0.5 noise_scale=true recompute=all micro_batch=4 offload=optimizer
same 2 optimizer=adamw lookahead=2 swa=0.5 noise_scale=true recompute=all micro_batch=4 offload=optimizer \
    shard=parameters offload_path="$ROOM"
state=$(kolo plan "${args[@]}" optimizer=adamw offload=optimizer |
    sed -n 's/^ *optimizer *\([0-9]*\) .*in a file; \([0-9]*\) in memory/\1 \2/p')
ok $((${state% *} < 4 * ${state#* })) "kolo plan: a unit of its state is in memory: $state"

# --- parts are no part of a checkpoint: other ranks go on with it, with other parts
held steps optimizer=adamw clip_norm=1
step=0
for grid in "4 shard=parameters shard_group=2" "2 shard=gradients" "4 shard=optimizer stages=2" \
    "1 shard=parameters"; do
    read -ra words <<< "$grid"
    step=$((step + 1))
    timeout 60 mpiexec -n "${words[0]}" kolo train "${args[@]}" optimizer=adamw clip_norm=1 \
        run="$ROOM/grids" stop_step=$step "${words[@]:1}" > "$ROOM/log" 2>&1
    is $? $((step < 3 ? 75 : 0)) "$grid go on with it" "$ROOM/log"
done
cmp "$(tensors_of "$first")" "$(tensors_of "$ROOM/grids")" > "$ROOM/log" 2>&1
ok $? "to the same bytes" "$ROOM/log"

# --- what is wrong is named
refused() { # STATUS PATTERN RANKS OPTIONS...
    rm -rf "$ROOM/refused"
    timeout 60 mpiexec -n "$3" kolo train "${args[@]}" run="$ROOM/refused" "${@:4}" > "$ROOM/log" 2>&1
    is $? "$1" "${*:4}: exit $1" && like "$ROOM/log" "$2" "${*:4}: says why"
}
refused 78 'a number of ranks from 1 to 2' 2 shard=optimizer shard_group=3
refused 78 'neither node nor a number' 2 shard=optimizer shard_group=rack
refused 78 'leaves nothing to it: give shard=' 2 shard_group=2
refused 78 'give shard=parameters' 2 shard=gradients reshard=false
refused 78 'take one of them' 2 shard=gradients reduce=adasum bn=local
refused 78 'compression=topk' 2 shard=gradients reduce=fast compression=topk
refused 78 'give both, or leave it out' 1 offload_path=/tmp
refused 3 'missing: cannot write: No such file' 1 offload=optimizer offload_path="$ROOM/missing"
mkdir -m 500 "$ROOM/closed"
[ "$(id -u)" = 0 ] || refused 3 'Permission denied' 1 offload=optimizer offload_path="$ROOM/closed"
(ulimit -f 200 && kolo train "${args[@]}" run="$ROOM/full" optimizer=adamw offload=optimizer \
    offload_path="$ROOM") > "$ROOM/log" 2>&1
is $? 3 "no room for the file: exit 3"
like "$ROOM/log" 'no room for [0-9]* bytes of the optimizer.s state' "and says what it would be"
refused 0 'nobody to share it with' 1 shard=parameters
done_testing
