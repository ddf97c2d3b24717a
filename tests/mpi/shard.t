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
done_testing
