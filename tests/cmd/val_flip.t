#!/usr/bin/env bash
# val_flip: images and their mirror images, on the CPU and on what stands in for a GPU.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack awk
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache

# twenty images of noise in CIFAR's form: as they are, mirrored, and made symmetric
images() { # ours|mirrored|even
    printf '%b' "$(awk -v how="$1" 'BEGIN {
        seed = 7 # own numbers: some awks take no seed
        for (i = 0; i < 20; i++) {
            printf "\\0%03o", i % 10
            for (line = 0; line < 96; line++) {
                for (x = 0; x < 32; x++) v[x] = int((seed = seed * 16807 % 2147483647) / 8388608)
                for (x = 0; x < 32; x++) printf "\\0%03o", how == "ours" ||
                    (how == "even" && x < 16) ? v[x] : v[31 - x]
            }
        }
    }')"
}
kolo export model=resnet20 seed=3 "$ROOM/first.safetensors" > "$ROOM/log" 2>&1
for how in ours mirrored even; do
    images $how > "$ROOM/$how.bin"
    kolo-pack --source cifar-bin --in "$ROOM/$how.bin" --split val --out "$ROOM/$how" > "$ROOM/log" 2>&1
    ok $? "packed: $how"
done
common=(model=resnet20 size=32 "mean=.5,.5,.5" "std=.25,.25,.25" batch=8 threads=1 deterministic=true \
    conv=direct)
kolo train "${common[@]}" data="$ROOM/even" val=none init="$ROOM/first.safetensors" lr=0.01 \
    schedule=constant epochs=2 run="$ROOM/run" > "$ROOM/log" 2>&1
ok $? "a network"
figures() { # DATA ARGUMENTS: loss, top-1, top-5
    kolo eval "${common[@]}" val="$ROOM/$1" run="$ROOM/run" "${@:2}" 2>> "$ROOM/log" |
        grep -oE '(loss|top-?[15])[^0-9]*[0-9.]+' | tr '\n' ' '
}
ours=$(figures ours val_flip=true)
is "$(figures mirrored val_flip=true)" "$ours" \
    "an image and its mirror image are the mirror image and the image: $ours"
[ "$(figures mirrored)" != "$(figures ours)" ]
ok $? "an image and its mirror image without val_flip: two results"
is "$(figures even val_flip=true)" "$(figures even)" \
    "symmetric images with val_flip=true: the figures without it"
is "$(figures even val_flip=true loss=bce)" "$(figures even loss=bce)" \
    "symmetric images with val_flip=true, loss=bce: the figures without it"
# the same of images that are in no data set
kolo-shards extract "$ROOM/ours" --out "$ROOM/files/ours" > "$ROOM/log" 2>&1 &&
    kolo-shards extract "$ROOM/mirrored" --out "$ROOM/files/mirrored" >> "$ROOM/log" 2>&1
logits() { # FOLDER RUN
    find "$ROOM/files/$1" -name '*.png' | sort | head -n 3 |
        xargs kolo predict run="$ROOM/$2" logits="$ROOM/logits.json" > "$ROOM/log" 2>&1
    grep -o ':\[[^]]*' "$ROOM/logits.json" | tr -d ':[' | tr ',\n' '  '
}
cp -r "$ROOM/run" "$ROOM/twice" && sed -i '/^val_flip:/d' "$ROOM/twice/recipe.yaml" &&
    echo 'val_flip: true' >> "$ROOM/twice/recipe.yaml"
rm "$ROOM/twice/run_id" # the change is wanted
a=$(logits ours run) b=$(logits mirrored run) both=$(logits ours twice)
awk -v a="$a" -v b="$b" -v c="$both" \
    'BEGIN { n = split(a, x); split(b, y); split(c, z); if (n != 30 || a == b) exit 1
    for (i = 1; i <= n; i++) if (((x[i] + y[i]) / 2 - z[i]) ^ 2 > 1e-8) exit 1 }'
ok $? "kolo predict of a run with val_flip: the mean of two logits" "$ROOM/log"
kolo plan model=yolox_nano size=64 data=synthetic val=none val_flip=true > "$ROOM/log" 2>&1
is $? 78 "val_flip=true of a detector: exit 78"
standin_gpu
near() { # A B: words that are numbers are equal to 1e-4
    awk -v a="$1" -v b="$2" \
        'BEGIN { n = split(a, x); if (n < 3 || split(b, y) != n) exit 1; for (i = 1; i <= n; i++)
          if ((x[i] - y[i]) ^ 2 > 1e-8) exit 1 }'
}
gpu=$(figures ours val_flip=true device=cuda)
near "$ours" "$gpu"
ok $? "on a GPU: $gpu"
done_testing
