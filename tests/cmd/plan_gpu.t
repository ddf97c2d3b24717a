#!/usr/bin/env bash
# `kolo plan gpu=`: a plan for a GPU that is not there, on a machine without one: bytes and FLOP by
# class, the roofline, memory, whatever of CUDA is installed here; tables of rates, what was measured,
# and nonsense in them.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo
export KOLO_CUDA_LIBRARY=$ROOM/none # what is known without it, in every build; with it below
export KOLO_CACHE=$ROOM/cache
plan() { # WORD...: the plan in $ROOM/plan, what was said beside it in $ROOM/said
    timeout 60 kolo plan data=synthetic device=cuda "$@" > "$ROOM/plan" 2> "$ROOM/said"
}
class() { # NAME COLUMN-FROM-THE-CLASS'S-NAME-ON: of the table
    sed -n "s/^  $1  *//p" "$ROOM/plan" | awk -v k="$2" '{ print $k }'
}
within() { awk -v v="$1" -v low="$2" -v high="$3" 'BEGIN { exit !(v >= low && v <= high) }'; }

bar=(resnet50 batch=256 size=224)
start=$SECONDS
plan "${bar[@]}" precision=bf16 gpu=h200
ok $? "ResNet-50 for an H200" "$ROOM/said"
ok $((SECONDS - start > 20)) "a plan for gpu= takes at most 20 s"
[ -z "$(class 'norm statistics' 4)" ]
ok $? "its convolutions form the sums of its norms: no pass of their own reads for them"
within "$(class 'convolution, forward' 5)" 2090 2095
ok $? "its convolutions take 2,093 GFLOP forward (256 times twice 4.09 GMAC)"
gb=$(class 'in all' 4)
within "$gb" 50 85
ok $? "a step moves at most 85 GB: $gb"
more=$(sed -n 's/.*two passes: \([0-9.]*\) GB more$/\1/p' "$ROOM/plan")
within "${more:-0}" 5 5.7
ok $? "the plan names the GB that engines compiled at the start may save: $more GB"
sum=$(awk \
    '/^a step of one rank/ { on = 1 }
      on && NF > 6 && / (memory|arithmetic)$/ && !/^  in all/ { s += $(NF - 5) } END { print s }' \
    "$ROOM/plan")
within "$sum" "$(awk -v g="$gb" 'BEGIN { print g - .1 }')" "$(awk -v g="$gb" 'BEGIN { print g + .1 }')"
ok $? "its GB are the sum over the classes: $sum"
like "$ROOM/plan" 'roofline of the step: [0-9.]+ ms, [0-9]+ img/s .*nothing was timed' \
    "the roofline of the step is printed"
like "$ROOM/plan" '^memory of a rank: [0-9]+ bytes .* h200 has 139.79 GiB' \
    "the memory of a rank is printed beside the GPU's"
like "$ROOM/plan" '^h200: workspaces .* are not counted: .*no such file' \
    "workspaces that are not counted are named, with the reason"
roofline() { awk '/roofline of the step/ { print $5 }' "$ROOM/plan"; }
h200=$(roofline)
plan "${bar[@]}" precision=bf16 gpu=H100
within "$(roofline)" "$h200" 1000
ok $? "an H100, by capitals, takes longer: $(roofline) ms"
plan "${bar[@]}" precision=bf16 gpu=b200
within "$(roofline)" 1 "$h200"
ok $? "a B200 less: $(roofline) ms"
plan "${bar[@]}" precision=fp16 gpu=a100
ok $? "an A100 in fp16" "$ROOM/said"
plan "${bar[@]}" precision=bf16 gpu=h200 ranks=8
ok $? "eight ranks" "$ROOM/said"
like "$ROOM/plan" \
    'communication between ranks +[0-9]+ +[0-9.]+ GB leave this rank, [0-9.]+ ms beside the rest, [0-9.]+ ms waited for' \
    "what they send, and how long it is waited for"
plan "${bar[@]}" precision=fp16 gpu=h200 ranks=2 bn=sync
like "$ROOM/plan" '106 batch-norm sums of' \
    "fp16, bn=sync, 2 ranks: 106 batch-norm sums"
for network in convnext_tiny swin_t vgg16_bn efficientnet_b0 yolox_s; do
    plan model=$network batch=32 precision=bf16 gpu=h200
    ok $? "$network" "$ROOM/said"
done
like "$ROOM/plan" '^  loss +2 ' "a detector's loss too"

plan "${bar[@]}" batch=16384 precision=bf16 gpu=h200
is $? 78 "what does not fit is printed and refused" "$ROOM/said"
like "$ROOM/said" \
    'h200: the plan needs [0-9]+ bytes .*150100000000 are there, [0-9]+ bytes short; lower micro_batch' \
    "a batch beyond gpu= memory: the message has the shortfall"
plan "${bar[@]}" batch=auto precision=bf16 gpu=h200
ok $? "batch=auto" "$ROOM/said"
auto=$(sed -n 's/.*micro-batch of \([0-9]*\) rows.*/\1/p' "$ROOM/plan")
within "$auto" 1024 8192
ok $? "finds what fits into an H200: $auto"

mkdir -p "$ROOM/cache/gpus"
printf 'bandwidth: 2400\n' > "$ROOM/cache/gpus/h200.yaml"
plan "${bar[@]}" precision=bf16 gpu=h200
within "$(roofline)" "$(awk -v h="$h200" 'BEGIN { print h * 1.2 }')" "$(awk -v h="$h200" \
    'BEGIN { print h * 2 }')"
ok $? "half the bandwidth, as measured: $(roofline) ms"
like "$ROOM/plan" "measured: $ROOM/cache/gpus/h200.yaml" "a measured table: the plan names its file"
printf 'bandwidth: -1\n' > "$ROOM/cache/gpus/h200.yaml"
plan "${bar[@]}" precision=bf16 gpu=h200
is $? 78 "nonsense that was measured"
like "$ROOM/said" "cache/gpus/h200.yaml:1:1: bandwidth: -1 is out of range" "file and key are named"
rm "$ROOM/cache/gpus/h200.yaml"
sed 's/^bandwidth:.*/bandwidth: 1000/' share/gpus/h200.yaml > "$ROOM/own.yaml"
plan "${bar[@]}" precision=bf16 "gpu=$ROOM/own.yaml"
ok $? "a site's own table" "$ROOM/said"
sed '/^link:/d' share/gpus/h200.yaml > "$ROOM/own.yaml"
plan "${bar[@]}" precision=bf16 "gpu=$ROOM/own.yaml"
is $? 78 "gpu=FILE without the key link: exit 78"
like "$ROOM/said" "own.yaml: link is missing" "gpu=FILE without the key link: the message names it"
plan "${bar[@]}" gpu=h20
is $? 78 "an unknown GPU"
like "$ROOM/said" 'gpu=h20: .*is h200 meant' "offers the nearest"
plan "${bar[@]}" gpu=h200 device=cpu
is $? 78 "gpu= with device=cpu"
like "$ROOM/said" 'give one of them' "gpu= with device=cpu: the message asks for one of them"
kolo train shapes data=synthetic run="$ROOM/run" gpu=h200 > "$ROOM/said" 2>&1
is $? 78 "gpu= in training"
like "$ROOM/said" 'gpu= .*option of kolo plan' "gpu= in kolo train: the message names kolo plan"

if [ -e "$BUILD/lib/libkolo_cuda.so" ]; then # the real libraries, no device
    need_without=$(plan "${bar[@]}" gpu=h200 && awk '/^memory of a rank/ { print $5 }' "$ROOM/plan")
    unset KOLO_CUDA_LIBRARY
    plan "${bar[@]}" gpu=h200
    ok $? "cuDNN's own planner" "$ROOM/said"
    like "$ROOM/plan" '^h200: planned by CUDA [0-9.]+, cuDNN [0-9.]+' \
        "with cuDNN: the plan names the versions of CUDA and cuDNN"
    like "$ROOM/plan" '^ +[0-9]+ x conv_stats +cuDNN [0-9]+' "its engines are named"
    workspace=$(awk '$1 == "workspace" { print $2 }' "$ROOM/plan")
    is "$(awk '/^memory of a rank/ { print $5 }' "$ROOM/plan")" $((need_without + workspace)) \
        "with cuDNN: memory is that without it and the workspace"
else
    skip "no libkolo_cuda.so in this build (make CUDA=1)"
fi

kolo plan shapes data=synthetic batch=32 size=32 deterministic=true > "$ROOM/plan" 2> "$ROOM/said"
ok $? "a plan for CPUs" "$ROOM/said"
like "$ROOM/plan" '^  convolution, forward +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$' \
    "a plan without a GPU: bytes and FLOP by class, no times"
done_testing
