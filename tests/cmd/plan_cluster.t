#!/usr/bin/env bash
# `kolo plan cluster=`: a step on a cluster that is not there: its figures, against each other and by hand;
# its files; every table of share/clusters; nonsense in tables and words.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo
export KOLO_CUDA_LIBRARY=$ROOM/none
export KOLO_CACHE=$ROOM/cache
plan() { # WORD...: the plan in $ROOM/plan, what was said beside it in $ROOM/said
    timeout 60 kolo plan resnet50 data=synthetic size=224 precision=bf16 micro_batch=64 "$@" \
        > "$ROOM/plan" 2> "$ROOM/said"
}
json() { # EXPRESSION: of the plan, in Python
    python3 -c "import json; p = json.load(open('$ROOM/plan')); print($1)"
}
table() { # SED-SCRIPT: $ROOM/own.yaml is perlmutter's, edited
    sed "$1" share/clusters/perlmutter.yaml > "$ROOM/own.yaml"
}
refuse() { # TEXT PATTERN WORD...: 78, and the words say it
    local text=$1 pattern=$2
    plan "${@:3}"
    is $? 78 "$text" || sed 's/^/#     /' "$ROOM/said"
    like "$ROOM/said" "$pattern" "... and it says so"
}

plan batch=64 micro_batch=4 ranks=16 stages=2 spatial=2x2 cluster=selene --json
is "$(json '[p["grid"][k] for k in ("stage", "data", "space")]')" "[2, 2, 4]" \
    "spatial=2x2 and stages=2: the grid's parts are no stages"
is "$(json '[(r["stage"], r["part"]) for r in p["ranks"]][2:6]')" "[(0, 2), (0, 3), (1, 0), (1, 1)]" \
    "and ranks of a stage have theirs"
plan batch=64 micro_batch=16 ranks=8 tensor=2 spatial=2x1 cluster=selene --json
is "$(json '[p["grid"][k] for k in ("stage", "data", "space", "tensor")]')" "[1, 2, 2, 2]" \
    "tensor=2 and spatial=2x1: two by two"
plan batch=32768 ranks=512 cluster=perlmutter --json
ok $? "ResNet-50 on 512 GPUs" "$ROOM/said"
is "$(json 'len(p["ranks"]), p["nodes"], len({r["bytes"] for r in p["ranks"]})')" "512 128 1" \
    "they are 128 nodes, and all ranks hold the same"
# every rank sends 2 (n-1)/n of 25.6 M gradients in f32, and a few statistics
is "$(json '0.99 < p["communication"]["bytes"] / (512 * 2 * 511 / 512 * 4 * 25.557e6) < 1.01')" True \
    "what is sent is twice the gradients of every rank"
fast=$(json 'p["step_seconds"]')
table 's/^network: .*/network: 3.125/'
plan batch=32768 ranks=512 cluster="$ROOM/own.yaml" --json
ok $? "the same over 25 Gb/s a node, from a file" "$ROOM/said"
is "$(json 'p["step_seconds"] - p["communication"]["exposed_seconds"] - '"$fast"' < 1e-3')" True \
    "its step is longer by what is exposed"
# 204.6 MB a rank over 3.125 GB/s x 0.75: 87 ms, behind which the backward half of 20 ms cannot hide
is "$(json '0.068 < p["communication"]["exposed_seconds"] < 0.10')" True "which is most of 87 ms"

plan batch=16384 ranks=64 stages=4 cluster=jupiter --json --svg "$ROOM/step.svg" --timeline "$ROOM/step.json"
ok $? "four stages on 64 GPUs" "$ROOM/said"
is "$(json 'sorted({r["stage"] for r in p["ranks"]})')" "[0, 1, 2, 3]" "every rank has its stage"
is "$(json '[r["stage"] for r in p["ranks"]][:8]')" "[0, 1, 2, 3, 0, 1, 2, 3]" \
    "pipelines stay in nodes of four"
is "$(json '0 < p["bubble"] < 0.8')" True "there is a bubble"
python3 - "$ROOM" << 'PY'
import json, sys, xml.dom.minidom
room = sys.argv[1]
plan = json.load(open(room + "/plan"))
events = [e for e in json.load(open(room + "/step.json"))["traceEvents"] if e["ph"] == "X"]
last = max(e["ts"] + e["dur"] for e in events) / 1e6
assert abs(last / plan["step_seconds"] - 1) < 1e-3, (last, plan["step_seconds"])
lanes = {}
for e in sorted(events, key=lambda e: e["ts"]):
    if e["tid"] == 2: continue # links to several stages
    key = e["pid"], e["tid"]
    assert e["ts"] >= lanes.get(key, 0) - 1e-3, e
    lanes[key] = e["ts"] + e["dur"]
uses = xml.dom.minidom.parse(room + "/step.svg").getElementsByTagName("use")
assert len(uses) == 64, len(uses)
PY
ok $? "the trace ends with the step, no lane does two things at once, and the picture has every rank"

start=$SECONDS
plan batch=262144 ranks=4096 stages=8 cluster=eos
ok $? "4,096 GPUs in eight stages" "$ROOM/said"
ok $((SECONDS - start > 10)) "take seconds"
like "$ROOM/plan" '^communication: [0-9.]+ GB a step, [0-9.]+ ms exposed' "what is exposed is printed"
for file in share/clusters/*.yaml; do
    name=${file##*/}
    plan batch=1024 ranks=8 cluster="${name%.yaml}" || break
    grep -q 'Source of .*: ' "$file" || break
    name=
done
is "$name" "" "every table of share/clusters is read, and says where it is from"
timeout 60 kolo plan resnet50_imagenet ranks=64 cluster=selene > "$ROOM/plan" 2> "$ROOM/said"
like "$ROOM/plan" "^run: $((90 * (1281167 / 256))) steps, .* node hours, at most [0-9.]+ kWh" \
    "a recipe's run has its steps, hours and energy"
timeout 60 kolo plan resnet50_imagenet ranks=64 cluster=selene images=0 > "$ROOM/plan" 2> "$ROOM/said"
like "$ROOM/plan" '^run: give data=DIR or images=N' "without the number of images it has none, and says so"

refuse "a misspelt cluster" 'is perlmutter meant' ranks=8 batch=512 cluster=perlmuter
refuse "no number of ranks" 'for how many GPUs.*ranks=N' batch=512 cluster=eos
refuse "more GPUs than there are" 'has 6144 GPUs' ranks=8192 batch=524288 cluster=perlmutter
refuse "a GPU beside the cluster's" 'leave gpu= out' ranks=8 batch=512 cluster=eos gpu=h200
refuse "CPUs" 'device=cpu' ranks=8 batch=512 cluster=eos device=cpu
refuse "lists beside it" "leave one of them out" ranks=8 batch=512 cluster=eos --all
refuse "a batch that its GPUs cannot hold" 'a rank needs [0-9]+ bytes, [0-9]+ more than its h100' \
    ranks=8 batch=32768 micro_batch=4096 cluster=eos
refuse "more than memory= allows" 'more than memory=1000000' ranks=8 batch=512 memory=1000000 cluster=eos
own=(ranks=8 batch=512 cluster="$ROOM/own.yaml")
at=$(grep -n '^link:' share/clusters/perlmutter.yaml | cut -d: -f1)
table 's/^link:.*/lnk: 300/'
refuse "an unknown key" "own.yaml:$at:.*no key \"lnk\"; is \"link\" meant" "${own[@]}"
table 's/^link:.*/link: -3/'
refuse "a rate below nothing" "own.yaml:$at:.*link: -3 is out of range" "${own[@]}"
table 's/^link:.*/link: fast/'
refuse "a rate in words" "own.yaml:$at:.*\"fast\" is not a number" "${own[@]}"
table '/^link:/d'
refuse "a rate that is missing" 'own.yaml: link is missing' "${own[@]}"
table 's/^gpus:.*/gpus: 2.5/'
refuse "half a GPU" 'own.yaml:[0-9]+:.*2.5 is no whole number' "${own[@]}"
table 's/^gpu:.*/gpu: a1000/'
refuse "a GPU that is not known" 'own.yaml.*a1000.*is a100 meant' "${own[@]}"
done_testing
