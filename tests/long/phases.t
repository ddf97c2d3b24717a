#!/usr/bin/env bash
# Runs whose batch and image size change, and what goes with large batches, through `kolo train`: stopped
# and resumed in any phase they have the bytes of one that was not; batches from the memory there is;
# Adasum on several ranks.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
shapes_data 96 32
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
common=(share/recipes/shapes.yaml "data=$ROOM/data/train" "val=$ROOM/data/val" threads=1 deterministic=true \
    progress=0 warmup=0 lr=0.02)
train() { # RUN KEY=VALUE...
    kolo train "${common[@]}" run="$ROOM/$1" "${@:2}" > "$ROOM/$1.log" 2>&1
}
ranks() { # N RUN KEY=VALUE...
    mpiexec -n "$1" kolo train "${common[@]}" run="$ROOM/$2" "${@:3}" > "$ROOM/$2.log" 2>&1
}
same() { [ "$(weights_sum "$ROOM/$1")" = "$(weights_sum "$ROOM/$2")" ]; }
field() { sed -n "s/.*\"event\":\"step\",\"step\":$2,.*\"$3\":\([^,}]*\).*/\1/p" "$ROOM/$1/events.jsonl"; }

ramps=(epochs=4 "batch_ramp=0:16,2:32,3:48" "size_ramp=1:24,2:32" size=16 val_size=32 ema=0.9 \
    lr_scaling=linear lr_batch=16 schedule=constant)
train whole "${ramps[@]}"
is $? 0 "batch and size ramps train"
is "$(grep -c '"event":"phase"' "$ROOM/whole/events.jsonl")" 3 "four phases: three changes among the events"
like "$ROOM/whole/events.jsonl" '"event":"phase","step":12,"epoch":2,"batch":32,"width":32,"height":32' \
    "each change is an event at the start of its epoch"
is "$(grep -c '"event":"step"' "$ROOM/whole/events.jsonl")" 17 "four phases of 6 + 6 + 3 + 2 steps: 17"
is "$(field whole 6 lr) $(field whole 14 lr) $(field whole 16 lr)" "0.0199999996 0.0399999991 0.0599999987" \
    "the rate follows the batch"
is "$(grep '"event":"eval"' "$ROOM/whole/events.jsonl" |
    grep -c '"rows":32')" 4 "validation is the same throughout"
for stop in 6 14; do
    train "cut$stop" "${ramps[@]}" stop_step=$stop
    train "cut$stop" "${ramps[@]}"
    same whole "cut$stop"
    ok $? "stopped after step $stop and resumed: the same bytes"
done
if ranks_start; then
    canonical=(epochs=3 "batch_ramp=0:16,1:32" "size_ramp=0:16,2:24" size=24 bn=ghost micro_batch=8 \
        reduce=canonical noise_scale=true val=none)
    train one "${canonical[@]}"
    ranks 2 two "${canonical[@]}"
    same one two
    ok $? "canonical sums: two ranks have the bytes of one across phases"
    [ -n "$(field one 5 useful_batch)" ] && [ "$(field one 5 useful_batch)" = "$(field two 5 useful_batch)" ]
    ok $? "one rank and two: the same useful batch, $(field one 5 useful_batch)"
    swa=(epochs=3 swa=1 batch=16 multi_scale=16-32:8:2 bn=ghost micro_batch=8 reduce=canonical val=none)
    train mean "${swa[@]}"
    is $? 0 "swa beside sizes that are drawn" "$ROOM/mean.log"
    ranks 2 means "${swa[@]}"
    same mean means
    ok $? "has the bytes of one rank on two, statistics of the average among them" "$ROOM/means.log"
    for rule in "sgd momentum=0.9" "lamb momentum=0 clip_norm=1"; do
        read -ra words <<< "$rule"
        adasum=(epochs=2 batch=24 reduce=adasum "optimizer=${words[0]}" "${words[@]:1}" val=none size=16)
        ranks 3 "adasum-${words[0]}" "${adasum[@]}"
        is $? 0 "Adasum of three ranks' steps of ${words[0]}"
        ranks 3 "adasum-${words[0]}-cut" "${adasum[@]}" stop_step=5
        ranks 3 "adasum-${words[0]}-cut" "${adasum[@]}"
        same "adasum-${words[0]}" "adasum-${words[0]}-cut"
        ok $? "stopped and resumed: the same bytes, so every rank has its own state again"
    done
else
    skip "no mpiexec"
fi

train auto batch=auto epochs=1 size=16
is $? 0 "batch=auto trains"
like "$ROOM/auto.log" 'batch=auto: 24 images a step, the largest' "batch=auto: at most a quarter of the data"
train auto batch=auto epochs=1 size=16
like "$ROOM/auto.log" 'batch=auto: 24 images a step, as this run began' \
    "batch=auto resumed: the batch it started with"
like "$ROOM/auto/recipe.yaml" '^batch: 24' "batch=auto: recipe.yaml has the number"
synthetic=(share/recipes/shapes.yaml data=synthetic val=none threads=1 progress=0 steps=1)
fitting() { # MEGABYTES that Slurm gave, KEY=VALUE...
    SLURM_MEM_PER_NODE=$1 kolo plan "${synthetic[@]}" batch=auto "${@:2}" 2>&1 |
        sed -n 's/.*batch=auto: \([0-9]*\) images.*/\1/p'
}
given() { # STATUS TEXT MEGABYTES KEY=VALUE...
    rm -rf "$ROOM/given"
    SLURM_MEM_PER_NODE=$3 kolo train "${synthetic[@]}" run="$ROOM/given" "${@:4}" > "$ROOM/given.log" 2>&1
    is $? "$1" "$2" || tail -n 3 "$ROOM/given.log"
}
little=$(fitting 64 deterministic=true) more=$(fitting 256 deterministic=true)
[ "${little:-0}" -gt 0 ] && [ "${more:-0}" -gt "$little" ]
ok $? "what fits depends on the memory: $little images in 64 MB, $more in 256"
given 0 "$more images are taken" 256 deterministic=true "batch=$more"
given 78 "a quarter more, $((more + more / 4)), are refused: it was the largest" 256 deterministic=true \
    "batch=$((more + more / 4))"
like "$ROOM/given.log" 'this node cannot hold the job' "a larger batch: refused for memory"
clock=$(fitting 256)
given 0 "by a clock $clock fit" 256 "batch=$clock"
given 78 "and a quarter more do not" 256 "batch=$((clock + clock / 4))"
given 0 "batch=auto is not refused what it chose by itself" 256 batch=auto
like "$ROOM/given.log" "batch=auto: $clock images" "batch=auto: the batch that kolo plan chose"
if ranks_start; then
    SLURM_MEM_PER_NODE=96 mpiexec -n 2 kolo train "${synthetic[@]}" batch=auto run="$ROOM/pair" > \
        "$ROOM/pair.log" 2>&1
    is $? 0 "nor are two ranks" || tail -n 3 "$ROOM/pair.log"
fi

grown=$(fitting 256 size_ramp=0:32,1:64 deterministic=true steps=0)
[ "${grown:-0}" -gt 0 ] && [ "$grown" -lt "$more" ]
ok $? "batch=auto with size_ramp: planned on the largest image: $grown"

refused() { # STATUS PATTERN TEXT KEY=VALUE...
    train refused "${@:4}"
    is $? "$1" "$3"
    like "$ROOM/refused.log" "$2" "$3: the message says why"
    rm -rf "$ROOM/refused"
}
refused 78 'is not a list of EPOCH:NUMBER' "a ramp that is none" batch_ramp=16,32 epochs=1
refused 78 'counts epochs' "a ramp in a run of steps" size_ramp=0:16,1:32 steps=5
refused 78 'micro_batch=16 does not divide the 33' "a later batch that cannot be cut" batch_ramp=0:16,1:33 \
    micro_batch=16 epochs=2
refused 78 'names epoch 7' "a border behind the end" batch_ramp=0:16,7:32 epochs=3
refused 78 'whose number depends on the image' "a network that cannot grow" model=lenet5 \
    "size_ramp=0:24,1:32" epochs=2
refused 78 'two batch sizes' "noise where there is one batch size" noise_scale=true epochs=1
refused 78 'take one of them' "Adasum of synchronous norms" reduce=adasum bn=sync epochs=1
done_testing
