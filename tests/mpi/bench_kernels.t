#!/usr/bin/env bash
# kolo bench --tune kernels of stages and parts: each is carried out by itself, receives zeros and sends
# nothing; then `kolo bench train` says what the step was played to take.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need mpiexec
export KOLO_CACHE=$ROOM/cache
common=(data=synthetic val=none size=32 steps=2)
plan() { # NAME OPTIONS...
    local name=$1
    shift
    timeout 300 kolo bench --tune kernels "$@" "${common[@]}" ranks=2 > "$ROOM/$name.tune" 2>&1
    is $? 0 "$name: kernels are measured" "$ROOM/$name.tune"
    like "$ROOM/$name.tune" '^[1-9][0-9]* operations of .* were measured: 2 ranks' "$name: all of them"
    timeout 300 mpiexec -n 2 kolo bench train "$@" "${common[@]}" > "$ROOM/$name.run" 2>&1
    is $? 0 "$name: carried out" "$ROOM/$name.run"
    like "$ROOM/$name.run" '^predicted [0-9.]* ms/step' "$name: beside what was played"
}
plan stages model=resnet20 batch=8 micro_batch=2 stages=2
plan maps model=resnet18 batch=4 spatial=2x1
plan boxes model=yolox_nano batch=4 micro_batch=1 stages=2
done_testing
