#!/usr/bin/env bash
# kolo eval and kolo predict stages=N: the figures and the text of one rank that holds the whole network,
# from a run of any grid, for classes, boxes, image labels and pairs; what cannot be is refused; a stage that
# dies or stands still is named.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/kills.sh
. tests/kills.sh
# shellcheck source=tests/tools/sources.sh
. tests/tools/sources.sh
need mpiexec kolo kolo-pack kolo-shards
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 64 50
fixed=(conv=direct deterministic=true threads=1)
args=(shapes model=resnet20 size=16 data="$ROOM/data/train" val="$ROOM/data/val" batch=32 micro_batch=8
    epochs=1 warmup=0 reduce=canonical bn=ghost "${fixed[@]}")

on() { # RANKS OPTIONS...: a command, its output without times in $ROOM/staged
    timeout 60 mpiexec -n "$1" kolo "${@:2}" 2> "$ROOM/log" > "$ROOM/said"
    local status=$?
    without_times < "$ROOM/said" > "$ROOM/staged"
    return $status
}
without_times() { sed -E 's/, [0-9.]+ s, [0-9]+ img\/s\)/)/'; }
want=()
alone() { # TEXT COMMAND...: one rank, which the next are held against
    want=("${@:2}")
    kolo "${want[@]}" 2> "$ROOM/log" > "$ROOM/said"
    is $? 0 "$1, one rank" "$ROOM/log"
    without_times < "$ROOM/said" > "$ROOM/whole"
}
same() { # RANKS OPTIONS...
    on "$1" "${want[@]}" "${@:2}"
    is $? 0 "  $1 ranks, ${*:2}: exit 0" || diag < "$ROOM/log"
    cmp "$ROOM/whole" "$ROOM/staged" > "$ROOM/log" 2>&1
    ok $? "  $1 ranks, ${*:2}: the same text" "$ROOM/log"
}

# --- a run trained by 2 stages x 2 replicas
mpiexec -n 4 kolo train "${args[@]}" run="$ROOM/run" stages=2 ema=0.5 > "$ROOM/log" 2>&1
is $? 0 "two stages of two replicas train" "$ROOM/log"
alone "kolo eval" eval "$ROOM/run" "${fixed[@]}"
like "$ROOM/whole" '^loss [0-9.]+  top-1 [0-9.]+  top-5 [0-9.]+  \(50 images' "  it has a loss and two rates"
same 4 stages=2
same 3 stages=3 stages_in_node=false cut=conv1,layer3.2 # a stage of almost nothing
alone "its mirror images too, batches of 3, a short last one" eval "$ROOM/run" val_flip=true micro_batch=3 \
    "${fixed[@]}"
same 2 stages=2
mpiexec -n 1 kolo train "${args[@]}" run="$ROOM/one" ema=0.5 > "$ROOM/log" 2>&1
for run in run one; do kolo export "$ROOM/$run" "$ROOM/$run.safetensors" > "$ROOM/log" 2>&1; done
cmp "$ROOM/run.safetensors" "$ROOM/one.safetensors" > "$ROOM/log" 2>&1
ok $? "kolo export of it: the file of a run by one rank"
weights=(model=resnet20 size=16 classes=10 val="$ROOM/data/val" weights="$ROOM/run.safetensors" batch=8)
alone "a file of weights" eval "${weights[@]}" "${fixed[@]}"
same 3 stages=3

# --- images of no data set: more than a wave of batches, one of them broken
small_images 33
alone "kolo predict" predict run="$ROOM/run" "${fixed[@]}" logits="$ROOM/logits.json" "$ROOM/images"
is "$(grep -c '^/' "$ROOM/whole")" 33 "  it prints every image"
mv "$ROOM/logits.json" "$ROOM/whole.json"
same 3 stages=3
cmp "$ROOM/whole.json" "$ROOM/logits.json" > "$ROOM/log" 2>&1
ok $? "  and writes the same logits" "$ROOM/log"
alone "kolo predict of mirror images" predict run="$ROOM/run" val_flip=true "${fixed[@]}" "$ROOM/images"
same 2 stages=2
cp -r "$ROOM/images" "$ROOM/broken"
echo no image > "$ROOM/broken/5.jpg"
kolo predict run="$ROOM/run" "${fixed[@]}" "$ROOM/broken" > "$ROOM/whole" 2> "$ROOM/log"
is $? 2 "an image that cannot be read, one rank: exit 2"
on 3 predict run="$ROOM/run" "${fixed[@]}" stages=3 "$ROOM/broken"
is $? 2 "  3 ranks, stages=3: exit 2"
cmp "$ROOM/whole" "$ROOM/staged" > "$ROOM/log"
ok $? "  the same text of the others" "$ROOM/log"

# --- boxes: of heads that are made in several stages, too
coco_of_four '{"id": 1, "image_id": 30, "category_id": 9, "bbox": [2, 2, 12, 14], "area": 168, "iscrowd": 0},
     {"id": 2, "image_id": 10, "category_id": 20, "bbox": [4, 3, 15, 10.5], "area": 150, "iscrowd": 0},
     {"id": 3, "image_id": 20, "category_id": 9, "bbox": [1, 1, 18, 18], "area": 300, "iscrowd": 1}' 30 10 \
         20 5
packs "four images with boxes" --source coco-json --in "$ROOM/set"
for model in yolox_nano yolov3_tiny; do
    kolo export model=$model classes=2 seed=3 "$ROOM/$model.safetensors" > "$ROOM/log" 2>&1
    boxes=(model="$model" classes=2 size=64 weights="$ROOM/$model.safetensors" "${fixed[@]}")
    alone "boxes of $model" eval "${boxes[@]}" val="$ROOM/out" batch=1 conf=0 results="$ROOM/results.json"
    like "$ROOM/whole" '^AP ' "  it has an average precision"
    mv "$ROOM/results.json" "$ROOM/whole.json"
    cut=()
    [ $model = yolox_nano ] || cut=("cut=module_list.4,module_list.18") # the first head is 15
    same 3 stages=3 "${cut[@]}"
    cmp "$ROOM/whole.json" "$ROOM/results.json" > "$ROOM/log" 2>&1
    ok $? "  and the same boxes" "$ROOM/log"
    [ $model = yolov3_tiny ] || parts=spatial=2x1
    [ $model = yolox_nano ] || parts=tensor=2
    alone "boxes of $model, $parts" eval "${boxes[@]}" val="$ROOM/out" batch=1 conf=0 $parts
    same 2 # a head goes from the first part's rank to the last one's
    same 4 stages=2
    [ $model = yolox_nano ] || continue
    alone "$model draws" predict "${boxes[@]}" box_threshold=0 out="$ROOM/drawn" "$ROOM/set/train2017"
    like "$ROOM/whole" '^  [01]\.[0-9]+  [01]  [0-9.]+ ' "  it finds boxes"
    mv "$ROOM/drawn" "$ROOM/drawn.whole"
    same 3 stages=3
    diff -r "$ROOM/drawn.whole" "$ROOM/drawn" > "$ROOM/log" 2>&1
    ok $? "  and draws them" "$ROOM/log"
done

# --- image labels
labels=(model=resnet20 size=32 classes=2 loss=bce targets=boxes val="$ROOM/out" batch=1)
kolo export model=resnet20 classes=2 seed=3 "$ROOM/labels.safetensors" > "$ROOM/log" 2>&1
for flip in false true; do
    alone "image labels, val_flip=$flip" eval "${labels[@]}" weights="$ROOM/labels.safetensors" \
        val_flip=$flip results="$ROOM/results.json" "${fixed[@]}"
    like "$ROOM/whole" 'mAP [0-9.]+ ' "  it has a mean average precision"
    mv "$ROOM/results.json" "$ROOM/whole.json"
    same 2 stages=2
    cmp "$ROOM/whole.json" "$ROOM/results.json" > "$ROOM/log" 2>&1
    ok $? "  and the same of every class" "$ROOM/log"
done

# --- pairs: features, which may be made in a stage before the last
mkdir -p "$ROOM/lfw/Al" "$ROOM/lfw/Bo" "$ROOM/lfw/Cher"
i=0
for name in Al Bo Cher; do
    for k in 1 2 3; do cp "$ROOM/images/$((i++)).jpg" "$ROOM/lfw/$name/${name}_000$k.jpg"; done
done
printf '3\nBo\t1\t2\nAl\t1\t3\nCher\t2\t3\nAl\t2\tCher\t1\nAl\t1\tBo\t3\nBo\t1\tCher\t3\n' |
    tee "$ROOM/pairsDevTest.txt" > "$ROOM/pairsDevTrain.txt"
packs "pairs of people" --source lfw --in "$ROOM/lfw" --annotations "$ROOM/pairsDevTest.txt" \
    --annotations "$ROOM/pairsDevTrain.txt"
alone "pairs" eval model=resnet20 classes=10 size=16 weights="$ROOM/run.safetensors" val="$ROOM/out" batch=2 \
    pairs=dev_test roc="$ROOM/roc.svg" "${fixed[@]}"
like "$ROOM/whole" '^dev_test: accuracy [0-9.]+ .* EER ' "  it has an accuracy"
mv "$ROOM/roc.svg" "$ROOM/whole.svg"
for grid in "3 stages=3 cut=layer2.0,linear" "4 stages=2"; do
    # shellcheck disable=SC2086
    same $grid
    cmp "$ROOM/whole.svg" "$ROOM/roc.svg" > "$ROOM/log" 2>&1
    ok $? "  and the same curve" "$ROOM/log"
done

# --- a stage dies, or stands still, beside the next part
strike_one() { # SIGNAL: from another process, its results in files
    local run=$ROOM/$1 job began
    mpiexec -n 3 kolo eval run="$run" "${fixed[@]}" stages=3 micro_batch=1 size=448 comm_timeout=6 \
        heartbeat_timeout=3 > "$run.log" 2>&1 &
    job=$!
    while kill -0 $job 2> /dev/null && ! grep -q 'computing on' "$run.log"; do sleep 0.05; done
    kills_strike "$1" 200 1 "$run" $job || echo "not struck" >> "$run.log"
    began=$(now)
    kills_end $job $((KILLS_SOON + KILLS_TIMEOUT)) && wait $job
    echo "$? $(($(now) - began))" > "$run.status"
    kill -KILL "$(kills_rank 1 "$run")" $job 2> /dev/null
    wait
}
for signal in KILL STOP; do cp -r "$ROOM/run" "$ROOM/$signal"; done
pids=()
for signal in STOP KILL; do strike_one $signal & pids+=($!); done

# --- what cannot be
refused() { # RANKS PATTERN COMMAND...
    on "$1" "${@:3}"
    is "$? $(grep -cE -- "$2" "$ROOM/log")" "78 1" "$1 ranks, ${*:3}: exit 78, and why" || diag < "$ROOM/log"
}
staged=(eval "$ROOM/run" "${fixed[@]}")
refused 2 'stages=3 does not divide 2 ranks; start a multiple of 3' "${staged[@]}" stages=3
refused 9 "stages=9 chunks=1: more parts than the network's [0-8] layers; use fewer" eval model=mlp \
    weights="$ROOM/run.safetensors" val="$ROOM/data/val" size=16 stages=9
refused 2 'no module layr3\.1; did you mean layer3\.1' "${staged[@]}" stages=2 cut=layr3.1
refused 2 'names 2 modules; 2 parts .* need 1' "${staged[@]}" stages=2 cut=layer1.0,layer2.0
refused 2 'cut= is of pipelines, and stages=1 is none' "${staged[@]}" cut=layer2.0
refused 2 'its tensors are not those of resnet32 \(give the model and' eval "${weights[@]}" model=resnet32 \
    stages=2
refused 1 'pipeline= would be ignored here; it is an option of kolo new, train' "${staged[@]}" stages=1 \
    pipeline=gpipe
refused 4 'kolo predict is one pipeline; start 2 ranks' predict run="$ROOM/run" stages=2 "$ROOM/images"
refused 3 'stages=2 does not divide 3 ranks; start a multiple of 2' predict run="$ROOM/run" stages=2 \
    "$ROOM/images"

# --- the stage that was struck
wait "${pids[@]}"
for signal in KILL STOP; do
    read -r status took < "$ROOM/$signal.status"
    [ "$status" != 0 ] && [ "$took" -le $((1000 * KILLS_SOON)) ]
    ok $? "SIG$signal to the stage in the middle: kolo eval ends (status $status, after $took ms)" \
        "$ROOM/$signal.log"
    kills_named 1 "$ROOM/$signal.log"
    ok $? "SIG$signal: the rank is named" "$ROOM/$signal.log"
done
like "$ROOM/STOP.log" 'rank 1 on host .*stage 1, micro-batch 0: ' "SIGSTOP: with its stage and what it did"
done_testing
