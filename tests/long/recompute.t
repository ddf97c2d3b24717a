#!/usr/bin/env bash
# Recomputation of whole networks: ten steps to the bytes of the plain run; and processes of ResNet-50 and
# Swin-T within 100 to 40 % of what the plain one took, with the time that it takes. 15 minutes; NETS= and
# MEASURED= (NETWORK:BATCH) are some of them.
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
    resnet20) echo model=resnet20 size=32 "${shapes[@]}" batch=64 micro_batch=32 lr=0.1 momentum=0.9 ;;
    resnet50) echo model=resnet50 size=64 "${shapes[@]}" lr=0.02 momentum=0.9 ema=0.99 ;;
    swin_t) echo model=swin_t size=64 "${shapes[@]}" optimizer=adamw lr=1e-3 clip_norm=5 drop_path=0.2 \
        mixup=0.8 cutmix=1.0 ;;
    convnext_tiny) echo model=convnext_tiny size=64 "${shapes[@]}" optimizer=adamw lr=1e-3 drop_path=0.1 ;;
    yolox_nano) echo yolox_nano_small size=64 multi_scale= data="$ROOM/scenes" epochs=100 batch=8 \
        micro_batch=4 ;;
    esac
}
train() { # RUN OPTIONS...
    timeout 600 kolo train "${@:2}" run="$1" > "$ROOM/log" 2>&1
    is $? 75 "$title: stops after its steps" "$ROOM/log"
}
bytes_of() { kolo plan "$@" 2> "$ROOM/log" | awk '/^memory of a rank/ { print $5 }'; }
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

# --- memory and time: seconds of the processor, as others may work beside it
number_of() { sed -n "s/.*\"$2\": *\([0-9.]*\).*/\1/p" "$1/summary.json"; }
TIMEFORMAT=%U
measure() { # STEPS OPTIONS...: to $run, and $user seconds
    run=$ROOM/run
    rm -rf "$run"
    { time timeout 900 kolo train "${words[@]}" run="$run" stop_step="$1" "${@:2}" > "$ROOM/log" 2>&1; } \
        2> "$ROOM/user"
    user=$(tail -n 1 "$ROOM/user")
    [ "$(number_of "$run" peak_bytes)" -gt 0 ]
    ok $? "$title: $1 steps" "$ROOM/log"
}
step_seconds() { # OPTIONS...: of one, from runs of 2 and of 10
    local short
    measure 2 "$@" && short=$user
    measure 10 "$@"
    step=$(awk "BEGIN { printf \"%.3f\", ($user - $short) / 8 }")
}
# Activations are what can be less: so many images that they are 70 % of the plain process or more. 40 % of it
# then has room for the rest, of which parameters, gradients and momentum stay whole.
for measured in ${MEASURED-resnet50:24 swin_t:16}; do
    IFS=: read -r net batch <<< "$measured"
    words=(model="$net" data=synthetic val=none batch="$batch" size=224 threads=1 steps=100 progress=0)
    title="$net, plain" && step_seconds
    plain=$(number_of "$run" peak_bytes) plain_step=$step
    for share in 100 80 60 50 40; do
        title="$net, $share % of the plain process"
        budget=$((plain / 100 * share))
        again=(recompute=auto memory="$budget")
        if [ $share = 50 ]; then step_seconds "${again[@]}"; else measure 2 "${again[@]}"; fi
        peak=$(number_of "$run" peak_bytes)
        ok $((peak > 0 && peak <= budget ? 0 : 1)) \
            "$title: resident $peak bytes of $budget, planned $(number_of "$run" planned_bytes)"
        echo "# $title: $(grep -o 'recompute=auto.*' "$ROOM/log")"
        [ $share = 50 ] || continue
        lost=$(awk "BEGIN { printf \"%.1f\", 100 * ($step / $plain_step - 1) }")
        ok "$(awk "BEGIN { print !($lost <= 30) }")" "$title: a step $step s, $lost % more than $plain_step"
    done
done
done_testing
