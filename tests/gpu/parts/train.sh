# ten steps of training on the GPU beside the CPU's
# shellcheck shell=bash
# Step 1 must agree as closely as the precision allows; after that training amplifies rounding. The small rate
# keeps runs of ResNet-20 together. A deep network drifts on any processor (one sign of 600,000 in its last
# block moves the gradient by a percent), so its GPU run may be three times as far from the CPU's as the CPU's
# own run with another order of sums is.
need_data
steps=10
[ -z "$DRY" ] || steps=3
# NAME FIRST LATER TEXT: the losses of NAME.cuda lie within FIRST (step 1) and LATER (all) of those of
# NAME.cpu, relative
beside() {
    [ -z "$SHOW" ] || return 0
    paste -d ' ' <(losses "$1.cpu") <(losses "$1.cuda") > "$LOGS/train.$1.losses"
    awk -v first="$2" -v later="$3" -v steps="$steps" '
        {d = ($2 - $4) / $2; if (d < 0) d = -d; if (NR == 1) one = d; if (d > most) most = d;
            if ($1 == $3 && d == d) n++}
        END {printf "step 1 apart by %.2g (of %s), all %d by %.2g (of %s)", one, first, n, most, later;
            exit !(n == steps && one <= first && most <= later)}' \
        "$LOGS/train.$1.losses" > "$ROOM/beside"
    ok $? "$4: $(cat "$ROOM/beside")"
    record beside "name=$1" "text=$(cat "$ROOM/beside")"
}
run_both() { # NAME FIRST LATER TEXT ARGS-ON-CPU -- ARGS
    local name=$1 first=$2 later=$3 text=$4 cpu=$5
    shift 5
    # shellcheck disable=SC2086 # the words of $cpu
    train "$name.cpu" 100 "$@" $cpu device=cpu steps=$steps &&
        train "$name.cuda" 60 "$@" device=cuda steps=$steps &&
        beside "$name" "$first" "$later" "$text"
}
# otherwise NAME ARGS: how far apart, at most, the losses of NAME.cpu and of the CPU's run in parts are
otherwise() {
    local name=$1
    shift
    train "$name.order" 100 "$@" device=cpu precision=f32 spatial=2x1 steps=$steps || return
    paste -d ' ' <(losses "$name.cpu") <(losses "$name.order") | awk '
        {d = ($2 - $4) / $2; if (d < 0) d = -d; if (d > most) most = d} END {printf "%.3g", 3 * most}'
}
common=(data="$DATA/small/train" lr=0.01 schedule=constant warmup=0 seed=1)
batch=128
# of 8 x 8 pixels few are left at the end, and rounding counts
[ -z "$DRY" ] || { batch=4 && common+=(size=16); }
# engines by rule: they start at once
common+=(deterministic=true)
run_both small.f32 1e-5 1e-3 "ResNet-20, f32" "" resnet20_cifar "${common[@]}" batch=$batch precision=f32
run_both small.bf16 2e-2 5e-2 "ResNet-20, bf16 beside f32 on the CPU" "precision=f32" resnet20_cifar \
    "${common[@]}" batch=$batch precision=bf16
if [ -z "$DRY" ]; then
    run_both small.tf32 2e-3 1e-2 "ResNet-20, TF32 beside f32 on the CPU" "precision=f32" resnet20_cifar \
        "${common[@]}" batch=$batch precision=tf32
    run_both small.fp16 5e-3 2e-2 "ResNet-20, fp16 with a scaled loss beside f32 on the CPU" "precision=f32" \
        resnet20_cifar "${common[@]}" batch=$batch precision=fp16 loss_scale=1024
    common[0]=data=$DATA/photos/train
    common[1]=lr=0.001
    common+=(batch=32 size=96)
    train photos.cpu 100 resnet50_imagenet "${common[@]}" device=cpu precision=f32 steps=$steps &&
        drift=$(otherwise photos resnet50_imagenet "${common[@]}") && for precision in f32:1e-4 bf16:2e-2; do
        train photos.cuda 60 resnet50_imagenet "${common[@]}" device=cuda precision=${precision%:*} \
            steps=$steps && beside photos ${precision#*:} "$drift" \
            "ResNet-50 at 96 pixels, ${precision%:*} beside f32 on the CPU"
        rm -rf "$ROOM/photos.cuda"
    done
fi
