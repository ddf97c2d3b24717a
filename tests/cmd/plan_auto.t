#!/usr/bin/env bash
# `kolo plan --write`, plan=FILE: a plan as a file, carried out, changed by hand, with mistakes; `--search`
# and plan=auto: never worse than data parallel; `--scale`; measured kernels.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo mpiexec
export KOLO_CACHE=$ROOM/cache
cd "$ROOM" || exit
small=(model=resnet20 data=synthetic val=none size=16 batch=16 conv=direct reduce=canonical bn=ghost \
    micro_batch=4)
plan() { # WORD...: to log
    timeout 60 kolo plan "${small[@]}" "$@" > log 2>&1
}
refuse() { # TEXT PATTERN SED-SCRIPT WORD...: the plan, edited
    sed "$3" plan.yaml > edited.yaml
    plan ranks=4 plan=edited.yaml "${@:4}"
    is $? 78 "$1: exit 78" || sed 's/^/#     /' log
    like log "$2" "... named by its line"
}

plan ranks=4 stages=2 pipeline=gpipe shard=gradients --write plan.yaml
ok $? "a plan is written" log
for key in kolo_plan network parameters ranks stages cut pipeline shard micro_batch; do
    grep -q "^$key: " plan.yaml || break
    key=
done
is "$key" "" "it names what is placed, and what for"
like plan.yaml '^#   turns: F0 F1' "turns stand beside it"
like log "^step, played: .* 0 of [0-9]+ operations were measured in steps here, [0-9]+ timed alone" \
    "where times are from is said"
like cache/kernels ' alone conv ' "and what was timed is kept"
hash=$(sed -n 's/.*actions, .* hash //p' log)
plan ranks=4 plan=plan.yaml
is "$(sed -n 's/.*actions, .* hash //p' log)" "$hash" "read again it is the same plan, to the byte" log
sed 's/^pipeline: .*/pipeline: 1f1b/; s/^cut: .*/cut: [layer3.0]/' plan.yaml > edited.yaml
plan ranks=4 plan=edited.yaml
ok $? "changed by hand it is taken as it is" log
like log '^ +1 .* layer3.0.conv1 .. metrics' "... its cut"
at() { grep -n "^$1:" plan.yaml | cut -d: -f1; }
refuse "parts of images that are none" "edited.yaml:$(at spatial):.*spatial=2y2: no rows and columns" \
    's/^spatial: .*/spatial: 2y2/'
refuse "a module that is not there" "edited.yaml:$(at cut):.*no module layer9" 's/^cut: .*/cut: [layer9]/'
refuse "choices that are none" 'edited.yaml:1:.*choices: "fast" is no OPERATION' \
    '1i choices: [fast]
    /^choices:/d; /^  "/d'
sed '/^choices:/s/ = [a-z ]*"/ = magic"/' plan.yaml > edited.yaml
plan ranks=4 plan=edited.yaml
ok $? "an algorithm that this machine has not is replaced" log
like log 'warning: choices: "conv.* = magic": this machine has no such algorithm' "... and said to be"
grep -q 'does not have' log
is $? 1 "of a plan as it was written every choice is for an operation that is there" log
sed 's/^choices: \["conv[a-z_ ]* f32 x 4/&4/' plan.yaml > edited.yaml
plan ranks=4 plan=edited.yaml
ok $? "choices for an operation that is not there are passed over" log
like log "warning: edited.yaml:$(at choices):.*choices: \"conv.* x 44 .*: for an operation that" \
    "... and said to be, by their line"
refuse "a misspelt key" "edited.yaml:$(at shard):.*no key \"shrd\"; is \"shard\" meant" 's/^shard:/shrd:/'
refuse "an order that there is none of" \
    "edited.yaml:$(at pipeline):.*pipeline" 's/^pipeline:.*/pipeline: 2f2b/'
refuse "stages that do not divide the ranks" "edited.yaml:$(at stages):.*3 do not divide the 4 ranks" \
    's/^stages:.*/stages: 3/'
refuse "more cuts than stages" \
    "edited.yaml:$(at cut):.*2 names.* need 1" 's/^cut:.*/cut: [layer2.0, layer3.0]/'
refuse "a cut at no module" "edited.yaml.*no module layer9" 's/^cut:.*/cut: [layer9.0]/'
sed 's/^micro_batch: .*/micro_batch: 5/' plan.yaml > edited.yaml
timeout 60 kolo plan model=resnet20 data=synthetic val=none size=16 batch=16 ranks=4 plan=edited.yaml \
    bn=ghost reduce=canonical > log 2>&1
is $? 78 "a micro-batch that does not divide the batch: exit 78"
like log "edited.yaml:$(at micro_batch):.*micro_batch=5 does not divide" "... named by its line"
refuse "a plan and a search for one" "kolo plan: --search looks for a plan, and plan=edited.yaml is one" \
    '' --search
refuse "another version" "edited.yaml:$(at kolo_plan):.*version 7" 's/^kolo_plan:.*/kolo_plan: 7/'
refuse "another network" "edited.yaml:$(at network):.*plan for resnet56, and model=resnet20" \
    's/^network:.*/network: resnet56/'
refuse "another number of ranks" "edited.yaml:$(at ranks):.*plan for 8 ranks, and 4" 's/^ranks:.*/ranks: 8/'
refuse "other classes" 'edited.yaml: .*network of [0-9]+ parameters, and this one has' '' classes=7
refuse "an option that says otherwise" "edited.yaml:$(at stages):.*stages=4 is given" '' stages=4
refuse "no network" 'edited.yaml: network is missing' '/^network:/d'

# ---- carried out ----
plan ranks=2 stages=2 --write two.yaml
for way in plan=two.yaml stages=2; do
    timeout 60 mpiexec -n 2 kolo train "${small[@]}" run="run-$way" steps=2 threads=1 "$way" > log 2>&1
    ok $? "two ranks train with $way" log
done
sum=$(weights_sum run-plan=two.yaml)
[ -n "$sum" ]
is "$? $sum" "0 $(weights_sum run-stages=2)" "and have the same weights"

# ---- searched ----
plan ranks=2 --search --json
is $? 0 "a search" || sed 's/^/#     /' log
like log '^searched: [0-9]+ of [0-9]+ plans were played' "... says how much it looked at"
like log '^the best: .*plain data parallel' "... and compares with data parallel"
timeout 60 kolo plan "${small[@]}" ranks=3 --search > log 2>&1
is $? 0 "a batch that copies on all ranks do not divide"
like log '^the best: stages=3.*plain data parallel cannot divide the batch' "... is one of stages"
timeout 60 kolo plan "${small[@]}" ranks=5 batch=4 micro_batch=3 --search > log 2>&1
is $? 78 "a batch that nothing divides: exit 78"
timeout 60 mpiexec -n 2 kolo train "${small[@]}" run=run-auto steps=2 plan=auto > log 2>&1
ok $? "two ranks train with plan=auto" log
like log 'plan=auto: .*ms a step, played' "... which says what it has chosen"

# another size of bucket is other numbers with reduce=fast
timeout 60 kolo train "${small[@]}" run=run-bucket steps=2 stop_step=1 bucket_mb=4 > log 2>&1
is $? 75 "a run with bucket_mb=4 is stopped"
timeout 60 kolo train "${small[@]}" run=run-bucket steps=2 plan=auto > log 2>&1
is "$? $(grep '^bucket_mb:' run-bucket/recipe.yaml)" "0 bucket_mb: 4" "... plan=auto goes on with it" log

# one image, which copies on two ranks cannot divide
large=(model=resnet20 data=synthetic val=none size=192 batch=1 micro_batch=1 conv=direct reduce=canonical
    bn=ghost)
timeout 100 kolo plan "${large[@]}" ranks=2 --search > log 2>&1
is $? 0 "a search for one image on two ranks of a node of CPUs" || sed 's/^/#     /' log
like log '^the best: (spatial=(2x1|1x2)|tensor=2)' "... takes parts, as copies cannot divide it"
timeout 100 kolo plan "${large[@]}" ranks=2 --search search_parts=never > log 2>&1
like log '^the best: stages=2' "... stages where no parts are to be taken"
timeout 100 mpiexec -n 2 kolo train "${large[@]}" run=run-parts steps=2 stop_step=1 plan=auto > log 2>&1
is $? 75 "... and plan=auto trains so" || sed 's/^/#     /' log
parts=$(grep -E '^(spatial|tensor):' run-parts/recipe.yaml)
like run-parts/recipe.yaml '^(spatial: "(2x1|1x2)|tensor: 2)' "... which the run's record says"
timeout 100 kolo train "${large[@]}" run=run-parts steps=2 plan=auto > log 2>&1
is "$? $(grep -E '^(spatial|tensor):' run-parts/recipe.yaml)" "0 $parts" \
    "one rank goes on with the same parts" log

timeout 60 kolo plan resnet18 data=synthetic val=none size=1024 batch=1 ranks=4 cluster=perlmutter \
    --search > log 2>&1
like log '^the best: spatial=2x2,layer[34]:tensor ' \
    "one large image, four GPUs: maps are cut into parts, late layers' channels"
played() { # PARTS...: milliseconds of the same training's step
    timeout 60 kolo plan resnet18 data=synthetic val=none size=1024 batch=1 ranks=4 cluster=perlmutter "$@" \
        2>&1 | sed -n 's/^step, played: \([0-9.]*\) ms.*/\1/p'
}
best=$(sed -nE 's/^the best: .*, ([0-9.]+) ms a step.*/\1/p' log)
for parts in spatial=2x2 tensor=4 spatial=2x2,layer2:tensor; do
    took=$(played $parts)
    awk -v best="$best" -v took="$took" 'BEGIN { exit !(best > 0 && best <= took * 1.01) }'
    ok $? "$best ms, and $parts takes $took"
done

halos() { # RANKS PARTS SIZE: what halo=auto takes, on a cluster
    timeout 60 kolo plan resnet18 data=synthetic val=none size="$3" batch=1 ranks="$1" spatial="$2" \
        cluster=polaris halo=auto 2>&1 |
        sed -nE 's/^halo=auto: (wide|narrow); .* takes ([0-9.]+) ms .* ([0-9.]+) with.*/\1 \2 \3/p'
}
for words in "2 2x1 512" "16 4x4 1024"; do
    read -ra words <<< "$words"
    said=$(halos "${words[@]}")
    awk '{ exit !($1 == ($3 < $2 ? "wide" : "narrow")) }' <<< "$said"
    ok $? "halo=auto, ${words[1]} parts of ${words[2]} pixels: what is played shorter: $said"
done

# ---- scaled ----
scaled=(resnet50 images=1000000 size=224 precision=bf16 batch=4096 micro_batch=64 epochs=1
    cluster=perlmutter --json)
timeout 60 kolo plan "${scaled[@]}" --scale 4..64 --svg scale.svg > log 2>&1
ok $? "from 4 to 64 GPUs" log
is "$(python3 -c 'import json
s = json.load(open("log"))
strong, weak = s["strong"], s["weak"]
print([r["ranks"] for r in strong], strong[0]["efficiency"], weak[-1]["batch"],
      all(a["hours"] > b["hours"] for a, b in zip(strong, strong[1:])),
      all(0.5 < r["efficiency"] <= 1 for r in weak))')" \
    "[4, 8, 16, 32, 64] 1 65536 True True" "each number of ranks, strongly and weakly"
python3 -c 'import xml.dom.minidom as x; x.parse("scale.svg")'
ok $? "and drawn"
timeout 60 kolo plan "${scaled[@]}" --scale 4..8 critical_batch=4096 > noise 2>&1
is "$(python3 -c 'import json
a, b = json.load(open("log")), json.load(open("noise"))
print([round(y["hours"] / x["hours"], 3) for w in ("strong", "weak") for x, y in zip(a[w], b[w])])' 2>&1)" \
    "[1.0, 1.0, 1.0, 1.5]" "twice the critical batch takes half as many epochs again as the critical batch"
timeout 60 kolo plan "${scaled[@]}" --scale 4..8 images=0 > log 2>&1
is "$(grep -c hours log)" 0 "hours of an unknown number of images are not made up"
plan --scale 4-8
is $? 78 "no range: exit 78"

# ---- measured ----
timeout 60 kolo bench --tune kernels "${small[@]}" ranks=2 > log 2>&1
ok $? "kernels are measured" log
plan ranks=2
like log '^step, played: .* ([0-9]+) of \1 operations were measured' "a plan then goes by them"
timeout 60 mpiexec -n 2 kolo bench train "${small[@]}" steps=3 > log 2>&1
like log '^predicted [0-9.]+ ms/step' "the benchmark prints what was predicted"
timeout 60 mpiexec -n 2 kolo train "${small[@]}" run=run-told steps=2 > log 2>&1
is "$(python3 -c 'import json
s = json.load(open("run-told/summary.json"))
print(s["step_seconds"] > 0, s["predicted_step_seconds"] > 0)')" \
    "True True" "and the summary has both"
done_testing
