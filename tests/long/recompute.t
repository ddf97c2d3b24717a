#!/usr/bin/env bash
# Recomputation of whole networks: ten steps to the bytes of the plain run; and ResNet-50 and Swin-T within
# 100 to 40 % of their activations, as planned and as resident, with the time that it takes. 15 minutes; NETS=
# and MEASURED= are some of them.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 160 20
kolo-pack --source scenes --split train --count 160 --out "$ROOM/scenes" > "$ROOM/pack.log" 2>&1
is $? 0 "images with boxes" "$ROOM/pack.log"
common=(val=none deterministic=true threads=1 stop_step=10)
shapes=(data="$ROOM/data/train" crop=resized flip=true epochs=100 warmup=1 batch=16 micro_batch=8)
words_of() { # NET
    case $1 in
    resnet20) echo model=resnet20 size=32 "${shapes[@]}" lr=0.1 momentum=0.9 ;;
    resnet50) echo model=resnet50 size=64 "${shapes[@]}" lr=0.02 momentum=0.9 ema=0.99 ;;
    swin_t) echo model=swin_t size=64 "${shapes[@]}" optimizer=adamw lr=1e-3 clip_norm=5 drop_path=0.2 \
        mixup=0.8 cutmix=1.0 ;;
    convnext_tiny) echo model=convnext_tiny size=64 "${shapes[@]}" optimizer=adamw lr=1e-3 drop_path=0.1 ;;
    yolox_nano) echo yolox_nano_small size=64 multi_scale= data="$ROOM/scenes" epochs=100 batch=8 micro_batch=4 ;;
    esac
}
tensors_of() { find "$1/checkpoints" -name tensors.safetensors | sort | tail -n 1; }
train() { # RUN OPTIONS...
    timeout 600 kolo train "${@:2}" run="$1" > "$ROOM/log" 2>&1
    is $? 75 "$title: stops after its steps" "$ROOM/log"
}
bytes_of() { kolo plan "$@" 2> "$ROOM/log" | awk '/^  peak/ { print $2 }'; }
for net in ${NETS-resnet20 resnet50 swin_t convnext_tiny yolox_nano}; do
    read -ra words <<< "$(words_of "$net")"
    title="$net, plain" && train "$ROOM/plain" "${words[@]}" "${common[@]}"
    whole=$(bytes_of "${words[@]}" val=none deterministic=true threads=1)
    least=$(bytes_of "${words[@]}" val=none deterministic=true threads=1 recompute=all)
    for how in recompute=blocks recompute=all "recompute=auto memory=$(((whole + least) / 2))"; do
        title="$net, $how"
        rm -rf "$ROOM/again"
        # shellcheck disable=SC2086 # two words
        train "$ROOM/again" "${words[@]}" "${common[@]}" $how
        like "$ROOM/log" '[1-9][0-9]* operations run again' "$title: operations run again"
        cmp "$(tensors_of "$ROOM/plain")" "$(tensors_of "$ROOM/again")" > "$ROOM/log" 2>&1
        ok $? "$title: weights, running statistics, optimizer's state byte for byte" "$ROOM/log"
    done
    rm -rf "$ROOM/plain" "$ROOM/again"
done

# --- memory and time
number_of() { sed -n "s/.*\"$2\": *\([0-9.]*\).*/\1/p" "$1/summary.json"; }
seconds_of() { # RUN: the fastest step's, as others may work beside it
    sed -n 's/.*"event":"step".*"seconds":\([0-9.e-]*\).*/\1/p' "$1/events.jsonl" | sort -g | head -n 1
}
measure() { # RUN OPTIONS...
    rm -rf "$1"
    timeout 900 kolo train "${words[@]}" run="$1" stop_step=12 "${@:2}" > "$ROOM/log" 2>&1
    is $? 75 "$title: stops after its steps" "$ROOM/log"
}
for net in ${MEASURED-resnet50 swin_t}; do
    words=(model="$net" data=synthetic val=none batch=8 size=224 threads=1 steps=100 progress=0)
    kolo plan "${words[@]}" > "$ROOM/plan" 2> "$ROOM/log"
    whole=$(awk '/^  peak/ { print $2 }' "$ROOM/plan")
    activations=$(awk '$1 == "activations" && $2 > 0 { print $2 }' "$ROOM/plan")
    title="$net, plain" && measure "$ROOM/run"
    plain=$(number_of "$ROOM/run" peak_bytes) second=$(seconds_of "$ROOM/run")
    for share in 100 80 60 50 40; do
        title="$net, $share % of its activations"
        budget=$((whole - activations * (100 - share) / 100))
        measure "$ROOM/run" recompute=auto memory=$budget
        planned=$(number_of "$ROOM/run" planned_bytes) peak=$(number_of "$ROOM/run" peak_bytes)
        ok $((planned <= budget ? 0 : 1)) "$title: plan $planned bytes of $budget"
        ok $((plain - peak >= (whole - budget) * 98 / 100 - (8 << 20) ? 0 : 1)) \
            "$title: resident $peak bytes of $plain"
        took=$(seconds_of "$ROOM/run")
        lost=$(awk "BEGIN { printf \"%.1f\", 100 * ($took / $second - 1) }")
        echo "# $title: $(grep -o 'recompute=auto.*' "$ROOM/log")"
        ok "$(awk "BEGIN { print !($share < 50 || $lost <= 30) }")" "$title: a step $took s, $lost % more"
    done
done
done_testing
