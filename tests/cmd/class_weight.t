#!/usr/bin/env bash
# class_weight=balanced of a classifier: the weighted mean of the loss over the global batch, as torch
# forms it (the formula itself is held against torch's figures in tests/unit/ops_losses.c).
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack kolo-shards
export OMP_NUM_THREADS=1
shapes_data 120 16
# of the first class two images are left, of the others twelve each
kolo-shards extract "$ROOM/data/train" --out "$ROOM/files" > "$ROOM/log" 2>&1 || diag < "$ROOM/log"
rare=$(find "$ROOM/files" -name '*.jpg' -printf '%h\n' | sort | head -n 1)
find "$rare" -name '*.jpg' | sort | tail -n +3 | xargs rm
kolo-pack --source imagefolder --in "$(dirname "$rare")" --out "$ROOM/odd" > "$ROOM/log" 2>&1 ||
    diag < "$ROOM/log"
T=(kolo train shapes val=none model=mlp size=16 crop=none flip=false threads=1 deterministic=true batch=22)
losses() { sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$1/events.jsonl"; }
near() { # FILE FILE: numbers, in pairs, equal to a hundred thousandth
    paste "$1" "$2" | awk 'function abs(x) { return x < 0 ? -x : x }
        NF != 2 || abs($1 - $2) > 1e-5 * abs($2) { bad = 1 } END { exit bad || !NR }'
}

"${T[@]}" data="$ROOM/odd" class_weight=balanced head_init_scale=0 lr=0 epochs=2 run="$ROOM/zero" \
    > "$ROOM/log" 2>&1
ok $? "class_weight=balanced on unbalanced classes: exit 0" "$ROOM/log"
losses "$ROOM/zero" > "$ROOM/zero.loss"
awk '{ print log(10) }' "$ROOM/zero.loss" > "$ROOM/log10"
near "$ROOM/zero.loss" "$ROOM/log10"
ok $? "where all logits are alike every batch has the loss log 10" "$ROOM/zero.loss"

"${T[@]}" data="$ROOM/odd" class_weight=balanced lr=0.02 epochs=2 run="$ROOM/one" > "$ROOM/log" 2>&1
ok $? "one rank: exit 0" "$ROOM/log"
"${T[@]}" data="$ROOM/odd" lr=0.02 epochs=2 run="$ROOM/plain" > "$ROOM/log" 2>&1
losses "$ROOM/one" > "$ROOM/one.loss" && losses "$ROOM/plain" > "$ROOM/plain.loss"
near "$ROOM/one.loss" "$ROOM/plain.loss"
is $? 1 "its losses are others than without weights"
# 110 images, 2 of the first class: 110 / (10 x 2) and 110 / (10 x 12), three times that is no other mean
"${T[@]}" data="$ROOM/odd" class_weight=16.5,2.75,2.75,2.75,2.75,2.75,2.75,2.75,2.75,2.75 lr=0.02 epochs=2 \
    run="$ROOM/listed" > "$ROOM/log" 2>&1
ok $? "class_weight= a number for each class: exit 0" "$ROOM/log"
losses "$ROOM/listed" > "$ROOM/listed.loss"
near "$ROOM/listed.loss" "$ROOM/one.loss"
ok $? "  three times what balanced gives: its losses" "$ROOM/listed.loss"
"${T[@]}" data="$ROOM/odd" class_weight=0,1,1,1,1,1,1,1,1,1 lr=0.02 epochs=1 run="$ROOM/nine" \
    > "$ROOM/log" 2>&1
is "$? $(losses "$ROOM/nine" | grep -c '^[0-9]')" "0 5" \
    "  a class that counts nothing: every loss is a number"
for wrong in 1,2,3 1,2,x,4,5,6,7,8,9,10 -1,2,3,4,5,6,7,8,9,10 0,0,0,0,0,0,0,0,0,0 often; do
    "${T[@]}" data="$ROOM/odd" class_weight=$wrong epochs=1 run="$ROOM/no" > "$ROOM/log" 2>&1
    is "$? $(grep -c 'error: .*class_weight' "$ROOM/log")" "78 1" "class_weight=$wrong: 78, by name"
done
if ranks_start; then
    mpiexec -n 2 "${T[@]}" data="$ROOM/odd" class_weight=balanced lr=0.02 epochs=2 run="$ROOM/two" \
        > "$ROOM/log" 2>&1
    ok $? "two ranks: exit 0" "$ROOM/log"
    losses "$ROOM/two" > "$ROOM/two.loss"
    near "$ROOM/two.loss" "$ROOM/one.loss"
    ok $? "  the same losses: weights are divided by those of the global batch" "$ROOM/two.loss"
else
    skip "built without MPI"
fi
for weight in none balanced; do
    "${T[@]}" data="$ROOM/data/train" class_weight=$weight lr=0.02 epochs=1 run="$ROOM/even-$weight" \
        > "$ROOM/log" 2>&1
    losses "$ROOM/even-$weight" > "$ROOM/$weight.loss"
done
cmp -s "$ROOM/none.loss" "$ROOM/balanced.loss"
ok $? "classes of one size: the same losses to the last digit" "$ROOM/log"
for wrong in mixup=0.2 label_smoothing=0.1 loss=bce model=yolox_nano data=synthetic; do
    "${T[@]}" data="$ROOM/odd" class_weight=balanced epochs=1 run="$ROOM/no" $wrong > "$ROOM/log" 2>&1
    is $? 78 "class_weight=balanced $wrong: 78"
    like "$ROOM/log" 'class_weight' "  by name"
done
standin_gpu
"${T[@]}" data="$ROOM/odd" class_weight=balanced lr=0.02 epochs=2 device=cuda run="$ROOM/gpu" \
    > "$ROOM/log" 2>&1
ok $? "on a GPU (a stand-in): exit 0" "$ROOM/log"
losses "$ROOM/gpu" > "$ROOM/gpu.loss"
near "$ROOM/gpu.loss" "$ROOM/one.loss"
ok $? "  the same losses" "$ROOM/gpu.loss"
done_testing
