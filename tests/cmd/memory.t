#!/usr/bin/env bash
# A job that cannot fit is refused by lower bounds before any algorithm is timed (nothing is in the cache of
# choices then), wherever a session is opened; what those let pass is refused to the byte. `kolo plan` says
# what a rank needs, and for machines elsewhere prints the plan all the same.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
shapes_data 48 8
export KOLO_CACHE=$ROOM/cache SLURM_MEM_PER_NODE=200
small=(share/recipes/shapes.yaml data=synthetic val=none threads=1 progress=0 steps=1)
train=(kolo train "${small[@]}" run="$ROOM/run")
kolo export shapes "$ROOM/w.safetensors" classes=4 channels=3 size=24 > "$ROOM/log" 2>&1
refused() { # TEXT COMMAND...: 78, by the bound, in seconds, and nothing was timed
    rm -rf "$ROOM/cache"
    timeout 20 "${@:2}" > "$ROOM/log" 2>&1
    is $? 78 "$1: refused" "$ROOM/log"
    like "$ROOM/log" \
        "the job: [12] ranks? needs? at least [0-9.]+ GiB, Slurm's .* allows 0.20 GiB, [0-9]+ bytes short; lower" \
        "a job beyond its memory: the message has need, limit and shortfall"
    ok "$([ -e "$ROOM/cache/choices" ] && echo 1 || echo 0)" "a job beyond its memory: nothing was timed"
}
refused "training" "${train[@]}" batch=4096 size=64
refused "a plan" kolo plan "${small[@]}" batch=4096 size=64
refused "a larger image later on" "${train[@]}" \
    steps=0 epochs=2 batch=16 data="$ROOM/data/train" size=32 size_ramp=0:32,1:1024
refused "one of the sides that are drawn" "${train[@]}" batch=16 size=32 multi_scale=32-1024:32
refused "a detector" kolo train model=yolox_nano run="$ROOM/run" \
    data=synthetic val=none batch=512 size=416 threads=1 steps=1 progress=0
refused "an evaluation at a larger size" kolo eval shapes weights="$ROOM/w.safetensors" \
    val="$ROOM/data/val" batch=8 val_size=4096 threads=1
if ranks_start; then
    refused "two ranks together" mpiexec -n 2 "${train[@]}" batch=2048 size=64
else
    skip "no mpiexec"
fi
rm -rf "$ROOM/cache"
timeout 20 "${train[@]}" batch=auto size=1024 > "$ROOM/log" 2>&1
is $? 78 "batch=auto of images of which not even the least batch fits"
like "$ROOM/log" 'not even [0-9]+ images' \
    "batch=auto and memory for less than one image each: the message says so"
ok "$([ -e "$ROOM/cache/choices" ] && echo 1 || echo 0)" "batch=auto that cannot fit: nothing was timed"

kolo plan "${small[@]}" batch=64 size=32 deterministic=true > "$ROOM/plan" 2>&1
is $? 0 "a plan that fits"
like "$ROOM/plan" \
    "^memory of a rank: [0-9]+ bytes \([0-9.]+ GiB\) of its node; Slurm's memory request allows 0.20 GiB" \
    "says what it needs and what there is"
kolo plan "${small[@]}" batch=4096 size=64 ranks=2 > "$ROOM/plan" 2>&1
is $? 0 "a plan for ranks elsewhere is printed"
like "$ROOM/plan" "^checked" "whole"
like "$ROOM/plan" "^It does not fit on this machine, but was asked for 2 ranks.*bytes short" \
    "kolo plan ranks=2 beyond this machine: the plan says so"
kolo plan "${small[@]}" batch=4096 size=64 ranks=2 memory_limit=64 > "$ROOM/plan" 2>&1
is $? 0 "where a node has more memory"
like "$ROOM/plan" "memory_limit= allows 64.00 GiB" "memory_limit=64: the plan is checked against it"
kolo plan "${small[@]}" batch=4096 size=64 ranks=2 memory_limit=0.5 > "$ROOM/plan" 2>&1
is $? 78 "memory_limit=0.5 of a large plan: exit 78"

# What the bounds let pass is known to the byte.
need_mib=$(kolo plan "${small[@]}" batch=64 size=32 memory_limit=64 deterministic=true |
    awk '/^memory of a rank/ { print int($5 / 1048576) + 1 }')
SLURM_MEM_PER_NODE=$need_mib "${train[@]}" batch=64 size=32 deterministic=true > "$ROOM/log" 2>&1
is $? 0 "a job that fits to the MiB (${need_mib}) is trained"
number_of() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$ROOM/run/summary.json"; }
planned=$(number_of planned_bytes) peak=$(number_of peak_bytes)
apart=$((peak > planned ? peak - planned : planned - peak))
ok $((peak > 0 && apart <= planned / 50 + (2 << 20) ? 0 : 1)) \
    "planned $planned bytes, taken $peak: within 2 % and 2 MiB"
SLURM_MEM_PER_NODE=$((need_mib - 1)) "${train[@]}" batch=64 size=32 deterministic=true > "$ROOM/log" 2>&1
is $? 78 "one MiB less than the plan needs: exit 78"

# a checkpoint has a tensor whole whose channels are cut, and so has the rank that writes or reads it
large=(shapes data=synthetic val=none model=mlp size=32 batch=8 threads=1 deterministic=true)
tensor_of() {
    kolo plan "${large[@]}" "$@" 2> /dev/null | sed -n 's/.* \([0-9]*\) of a tensor as files have it.*/\1/p'
}
whole=$(tensor_of) parts=$(tensor_of tensor=4)
is "$parts" $((whole + whole / 4)) "tensor=4: room for the largest tensor whole, and for a part of it"
done_testing
