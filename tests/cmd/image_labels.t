#!/usr/bin/env bash
# A classifier of image labels: Open Images' verified ones, and the classes of boxes; trained, evaluated,
# asked, served; what does not go together.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack kolo-shards mpiexec python3
export OMP_NUM_THREADS=1
shapes_data 96 48
O=$ROOM/open
mkdir -p "$O/train" "$O/validation" "$O/annotations"

# Real files of Open Images' form: images by ImageID; of every image its own class verified as there, and
# two others as not there, of ten.
for split in train val; do
    long=${split/val/validation}
    kolo-shards extract "$ROOM/data/$split" --out "$ROOM/files/$split" > "$ROOM/log" 2>&1 ||
        sed 's/^/# /' "$ROOM/log"
    echo ImageID,Source,LabelName,Confidence > \
        "$O/annotations/$long-annotations-human-imagelabels-boxable.csv"
    n=0
    find "$ROOM/files/$split" -name '*.jpg' -o -name '*.png' | LC_ALL=C sort > "$ROOM/list"
    ls -d "$ROOM/files/$split"/*/ > "$ROOM/classes" 2> "$ROOM/log" || ls "$ROOM/files/$split"
    while read -r file; do
        id=$(printf %016x $((n + (${#split} << 20))))
        own=$(grep -nx "$(dirname "$file")/" "$ROOM/classes" | cut -d: -f1)
        cp "$file" "$O/$long/$id.${file##*.}"
        printf '%s,verification,/m/%02d,%d\n' "$id" "$own" 1 "$id" $((own % 10 + 1)) 0 "$id" \
            $(((own + n % 8 + 1) % 10 + 1)) 0 \
            >> "$O/annotations/$long-annotations-human-imagelabels-boxable.csv"
        n=$((n + 1))
    done < "$ROOM/list"
done
n=0
while read -r class; do printf '/m/%02d,%s\n' $((n += 1)) "$(basename "$class")"; done < "$ROOM/classes" > \
    "$O/annotations/class-descriptions-boxable.csv"
for split in train val; do
    stats=()
    [ "$split" = train ] || stats=(--stats-from "$ROOM/train")
    kolo-pack --source openimages-csv --in "$O" --split "$split" --out "$ROOM/$split" "${stats[@]}" > \
        "$ROOM/log" 2>&1
    ok $? "$split is packed with its image labels" "$ROOM/log"
done
D=(data="$ROOM/train" val="$ROOM/val" model=resnet20 size=32 threads=1 progress=0 deterministic=true)

fails() { # CODE PATTERN TEXT WORDS...
    local want=$1 pattern=$2 text=$3
    shift 3
    "$@" > "$ROOM/log" 2>&1
    is $? "$want" "$text: exit $want"
    like "$ROOM/log" "$pattern" "  and it says why"
}
train() { kolo train "${D[@]}" epochs=1 batch=16 "$@"; }
fails 2 'has no class for each sample, which loss=cross_entropy needs; loss=bce learns the tags' \
    "image labels with softmax" train run="$ROOM/no"
fails 78 'of which loss=cross_entropy wants one' "targets=tags with softmax" train targets=tags run="$ROOM/no"
fails 2 'has no boxes; it is packed for multilabel' "targets=boxes where there are none" train targets=boxes \
    loss=bce run="$ROOM/no"
fails 2 'has no class for each sample' "targets=label where there is none" train targets=label loss=bce \
    run="$ROOM/no"
fails 78 'head=arcface has a margin for the one class' "a margin" train loss=bce head=arcface run="$ROOM/no"
fails 78 'weighs image labels, but targets=label' "weights of positives of single classes" kolo train \
    data="$ROOM/data/train" model=resnet20 size=32 epochs=1 pos_weight=2 run="$ROOM/no"

# The same bits on 1, 2 and 4 ranks, with mixed labels, weights and smoothing.
S=(loss=bce reduce=canonical bn=ghost micro_batch=4 batch=16 crop=pad flip=true mixup=.2 cutmix=1 mix=pair \
    class_weight=balanced pos_weight=1.5 label_smoothing=.1 epochs=2 lr=.05 precision=bf16)
for ranks in 1 2 4; do
    mpiexec -n $ranks kolo train "${D[@]}" "${S[@]}" run="$ROOM/r$ranks" > "$ROOM/log" 2>&1
    ok $? "$ranks ranks train on image labels in bf16, mixed, weighed and smoothed" "$ROOM/log"
done
for ranks in 2 4; do
    is "$(losses "$ROOM/r$ranks")" "$(losses "$ROOM/r1")" "$ranks ranks: the losses of one, bit by bit"
    is "$(grep -o '"map":[^,]*,"ap_micro":[^,]*' "$ROOM/r$ranks/events.jsonl")" "$(grep -o \
        '"map":[^,]*,"ap_micro":[^,]*' "$ROOM/r1/events.jsonl")" "  and its average precisions"
done
is "$(grep -E '^(targets|unverified):' "$ROOM/r1/recipe.yaml" |
    xargs)" "targets: tags unverified: ignore" "what auto stood for is kept with the run"

# Average precision beside a computation of its own, of the logits that predict gives and
# the labels as written.
kolo eval run="$ROOM/r1" threads=1 results="$ROOM/results.json" > "$ROOM/eval" 2> "$ROOM/log"
ok $? "it is evaluated" "$ROOM/log"
kolo predict run="$ROOM/r1" threads=1 logits="$ROOM/logits.json" "$O/validation"/* > "$ROOM/predicted" 2> \
    "$ROOM/log"
ok $? "it is asked" "$ROOM/log"
python3 - "$ROOM/logits.json" "$O/annotations/validation-annotations-human-imagelabels-boxable.csv" > \
    "$ROOM/expected" << 'END'
import csv, json, os, sys
logits = {os.path.basename(x["path"]).split(".")[0]: x["logits"] for x in json.load(open(sys.argv[1]))}
truth = {}
for row in csv.DictReader(open(sys.argv[2])):
    key = (row["ImageID"], int(row["LabelName"][3:]) - 1)
    truth[key] = max(truth.get(key, 0), int(row["Confidence"]))
def ap(pairs):  # every threshold counted anew
    total, last, area = sum(y for _, y in pairs), 0, 0.0
    for t in sorted({s for s, _ in pairs}, reverse=True):
        taken = [y for s, y in pairs if s >= t]
        area += (sum(taken) - last) / total * sum(taken) / len(taken)
        last = sum(taken)
    return area
rows = {k: (logits[k[0]][k[1]], y) for k, y in truth.items()}
own = [[v for k, v in rows.items() if k[1] == c] for c in range(10)]
shown = [p for p in own if any(y for _, y in p)]
print("mAP %.4f  micro AP %.4f" % (sum(map(ap, shown)) / len(shown), ap(list(rows.values()))))
END
like "$ROOM/eval" "^loss [0-9.]+  $(cat "$ROOM/expected")  \(48 images, .* of 10 classes shown" \
    "mean and micro AP are those of the verified labels alone"
is "$(python3 -c \
    'import json,sys; r = json.load(open(sys.argv[1])); print(len(r["classes"]), "%.4f" % r["map"])' \
    "$ROOM/results.json")" \
    "10 $(sed 's/mAP \([0-9.]*\).*/\1/' "$ROOM/expected")" "results= has the average precision of every class"
is "$(grep -c % "$ROOM/predicted")" $((48 * 5)) "predict prints five labels an image"
is "$(sed -n 2p "$ROOM/predicted" | awk '{ print $1 }')" \
    "$(python3 -c \
    'import json,math,sys; print("%.2f" % (100 / (1 + math.exp(-max(json.load(open(sys.argv[1]))[0]["logits"])))))' \
    "$ROOM/logits.json")" "  each with the sigmoid of its logit"
is "$(kolo predict run="$ROOM/r1" threads=1 threshold=.3 "$O/validation"/* 2> "$ROOM/log" | grep -c %)" \
    "$(python3 -c \
    'import json,math,sys; print(sum(1 / (1 + math.exp(-v)) >= .3 for x in json.load(open(sys.argv[1])) for v in x["logits"]))' \
    "$ROOM/logits.json")" \
    "threshold= prints all labels that reach it"
mpiexec -n 3 kolo eval run="$ROOM/r1" threads=1 2> "$ROOM/log" | sed 's/ (.*//' > "$ROOM/three"
is "$(cat "$ROOM/three")" "$(sed 's/ (.*//' "$ROOM/eval")" "three ranks evaluate to the same figures"
kolo train "${D[@]}" loss=bce batch=16 epochs=1 unverified=negative val_flip=true run="$ROOM/negative" > \
    "$ROOM/log" 2>&1
ok $? "unverified=negative, validated with mirror images" "$ROOM/log"
kolo export model=resnet20 seed=3 "$ROOM/first.safetensors" > "$ROOM/log" 2>&1
fails 78 'threshold= is for networks of image labels' "a threshold of single classes" kolo predict \
    model=resnet20 weights="$ROOM/first.safetensors" size=32 threshold=.5 "$O/validation"/000*0.*

# Served batches are those that a job makes itself.
kolo serve-data "${D[@]}" "${S[@]}" data_server="$ROOM/socket" > "$ROOM/server" 2>&1 &
server=$!
for _ in $(seq 100); do
    kolo serve-data --status data_server="$ROOM/socket" > /dev/null 2>&1 && break
    sleep .1
done
kolo train "${D[@]}" "${S[@]}" data_server="$ROOM/socket" run="$ROOM/served" > "$ROOM/log" 2>&1
is "$(losses "$ROOM/served")" "$(losses "$ROOM/r1")" \
    "served image labels: the losses of a run that reads by itself"
kolo train "${D[@]}" "${S[@]}" class_weight=none data_server="$ROOM/socket" run="$ROOM/other" \
    > "$ROOM/log" 2>&1
is $? 78 "another weight than the server's is refused"
like "$ROOM/log" 'class_weight' "  by name"
kill $server
wait $server 2> /dev/null
done_testing
