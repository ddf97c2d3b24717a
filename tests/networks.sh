# shellcheck shell=bash
# Networks of all kinds, and what ranks of them take: source it behind lib.sh. It packs shapes and scenes. The
# options of a network stand in words_of; $title is what is being tested.
need mpiexec kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
STEPS=${STEPS:-10}
shapes_data 160 20
kolo-pack --source scenes --split train --count 160 --out "$ROOM/scenes" > "$ROOM/pack.log" 2>&1
is $? 0 "images with boxes" "$ROOM/pack.log"
common=(val=none reduce=canonical bn=ghost deterministic=true threads=1 stop_step="$STEPS")
shapes=(data="$ROOM/data/train" crop=resized flip=true epochs=100 warmup=1)

words_of() { # NET: rows of a micro-batch, then options
    case $1 in
    resnet20) echo 4 model=resnet20 size=32 "${shapes[@]}" lr=0.1 momentum=0.9 weight_decay=5e-4 ;;
    resnet50) echo 2 model=resnet50 size=64 "${shapes[@]}" lr=0.02 momentum=0.9 ema=0.99 nesterov=true ;;
    convnext) echo 2 model=convnext_tiny size=64 "${shapes[@]}" optimizer=adamw lr=1e-3 weight_decay=0.05 \
        decay_norms=false ema=0.99 drop_path=0.1 label_smoothing=0.1 ;;
    swin) echo 2 model=swin_t size=64 "${shapes[@]}" optimizer=adamw lr=1e-3 weight_decay=0.05 \
        decay_norms=false clip_norm=5 drop_path=0.2 label_smoothing=0.1 mixup=0.8 cutmix=1.0 ;;
    yolox) echo 2 yolox_nano_small size=64 multi_scale= data="$ROOM/scenes" epochs=100 ;;
    esac
}
train() { # RANKS RUN OPTIONS...
    local start=(mpiexec -n "$1")
    [ "$1" = 1 ] && start=()
    timeout 900 "${start[@]}" kolo train "${@:3}" "${common[@]}" run="$2" > "$ROOM/log" 2>&1
    is $? 75 "$title: stops after $STEPS steps" "$ROOM/log"
}
numbers_of() { sed -n "s/.*\"$2\": *\[*\([0-9][0-9, ]*\).*/\1/p" "$1/summary.json" | tr -d ' ' | tr , ' '; }

# What a process takes beside what it foresaw: pages of the program that the first steps read, heap.
memory() { # RUN
    local planned peak rank over=0
    read -ra planned <<< "$(numbers_of "$1" planned_bytes_by_rank)"
    read -ra peak <<< "$(numbers_of "$1" peak_bytes_by_rank)"
    for rank in "${!planned[@]}"; do
        echo "# $title: rank $rank: planned ${planned[rank]}, taken ${peak[rank]:-0}"
        ((peak[rank] > 0 && peak[rank] <= planned[rank] * 102 / 100 + (1 << 20))) || over=1
    done
    [ ${#planned[@]} -gt 1 ] && [ $over = 0 ]
    ok $? "$title: no rank takes more than planned, 2 % and 1 MiB"
}
