#!/usr/bin/env bash
# Every recipe of share/recipes: its options are known and fit together, its network is built and planned. A
# full one has a reduced twin, and names its target.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
tiny="batch_ramp= size_ramp= multi_scale= data=synthetic val=none deterministic=true conv=direct threads=1"
for recipe in share/recipes/*.yaml; do
    name=$(basename "$recipe" .yaml)
    least=size=32
    [[ $name != inception_* ]] || least="size=75 auxiliary=0"
    # shellcheck disable=SC2086
    kolo plan "$recipe" $tiny batch=4 micro_batch=2 ranks=2 $least val_size=0 > "$ROOM/plan" 2>&1
    status=$?
    ok $status "$name: a plan for two ranks passes the checker"
    [ $status = 0 ] || sed 's/^/# /' "$ROOM/plan" | tail -n 3
    # its own batches and sizes, in all phases, on as many ranks as the smallest batch has micro-batches
    least=$(sed -n 's/^batch: *//p; s/^batch_ramp: *//p' "$recipe" | tr , '\n' | sed 's/.*://' | sort -n |
        head -n 1)
    micro=$(sed -n 's/^micro_batch: *//p' "$recipe")
    kolo plan "$recipe" data=synthetic val=none ranks=$((least / ${micro:-1})) deterministic=true \
        conv=direct threads=1 > "$ROOM/plan" 2>&1
    like "$ROOM/plan" '^checked: ' \
        "$name: so does every plan of its own batches and sizes, on $((least / ${micro:-1})) ranks"
    small=$(sed -n 's/^# small: *//p' "$recipe")
    is "$(sed -n 's/^# small: *//p' "share/recipes/$small.yaml")" "$small" \
        "$name: $small is what runs on a desk"
    [ "$small" = "$name" ] && case $name in *_small) continue ;; esac
    like "$recipe" '^# target: .*[0-9]' "$name: its comment names what it reaches"
done
# synthetic data takes no augmentation, so what recipes name is tried on images
shapes_data 32 16
while read -r rules; do
    kolo bench train model=lenet5 data="$ROOM/data/train" size=32 crop=resized batch=16 steps=1 threads=1 \
        augment="$rules" > "$ROOM/log" 2>&1
    ok $? "augment=$rules of a recipe is taken by the loader" "$ROOM/log"
done < <(sed -n 's/^augment: *//p' share/recipes/*.yaml | sort -u)
done_testing
