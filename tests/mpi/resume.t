#!/usr/bin/env bash
# Ranks that go on with a run begin from one checkpoint with the same options, or not at all.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need mpiexec kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 128 50
args=(shapes model=lenet5 data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/run" batch=32 epochs=2 \
    warmup=0 conv=direct deterministic=true threads=1)
mpiexec -n 2 kolo train "${args[@]}" stop_step=3 > "$ROOM/log" 2>&1
is $? 75 "two ranks stop after three steps"
mpiexec -n 1 kolo train "${args[@]}" : -n 1 kolo train "${args[@]}" lr=0.3 > "$ROOM/log" 2>&1
is $? 78 "a rank with another learning rate: exit 78"
like "$ROOM/log" 'ranks were started with different options' \
    "a rank with another learning rate: the message says so"
kolo-pack --source shapes --split train --count 128 --shuffle-seed 9 --out "$ROOM/other" > "$ROOM/pack.log" \
    2>&1
mpiexec -n 1 kolo train "${args[@]}" : -n 1 kolo train "${args[@]}" data="$ROOM/other" > "$ROOM/log" 2>&1
is $? 78 "a rank with another data set: exit 78"
like "$ROOM/log" 'is another data set on some of the nodes' \
    "a rank with another data set: the message says so"
kolo-pack --source shapes --split val --count 50 --shuffle-seed 9 --stats-from "$ROOM/data/train" --out \
    "$ROOM/other_val" > "$ROOM/pack.log" 2>&1
for words in eval_epochs=5 checkpoint_steps=2 stop_step=5 val=none val_flip=true "val=$ROOM/other_val"; do
    timeout 20 mpiexec -n 1 kolo train "${args[@]}" : -n 1 kolo train "${args[@]}" "$words" > "$ROOM/log" 2>&1
    is "$? $(grep -oE -m1 "different ${words%%=*}:|${words%%=*}=.*another data set" "$ROOM/log" |
        wc -l)" "78 1" "a rank with another ${words%%=*} (${words##*/}): exit 78, and which option it is"
done
if unshare -rm true 2> /dev/null; then
    mkdir "$ROOM/empty" # as a node sees a folder of this name that is its own
    apart=(unshare -m sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' "$ROOM/empty" "$ROOM/run")
    unshare -rm mpiexec -n 1 kolo train "${args[@]}" : -n 1 "${apart[@]}" kolo train "${args[@]}" > \
        "$ROOM/log" 2>&1
    is $? 78 "a rank that has another folder of this name: exit 78"
    like "$ROOM/log" 'run= must be on a file system that all nodes share' \
        "a rank with another run folder: the message has the cure"
    unshare -rm mpiexec -n 1 "${apart[@]}" kolo train "${args[@]}" : -n 1 kolo train "${args[@]}" > \
        "$ROOM/log" 2>&1
    is $? 78 "rank 0 alone without the run folder: exit 78"
else
    for _ in 1 2 3; do skip "no private mounts here"; done
fi
mkdir "$ROOM/here" "$ROOM/there" # as two nodes see one path
kolo export model=lenet5 classes=4 size=32 channels=3 seed=1 "$ROOM/here/w.safetensors" > "$ROOM/log" 2>&1 &&
    kolo export model=lenet5 classes=4 size=32 channels=3 seed=2 "$ROOM/there/w.safetensors" > "$ROOM/log" \
    2>&1
begin() { # FOLDERS of ranks 0 and 1
    rm -rf "$ROOM/fresh"
    timeout 30 mpiexec -n 1 -wdir "$ROOM/$1" kolo train "${args[@]}" run="$ROOM/fresh" init=w.safetensors \
        init_head=new stop_step=1 : \
        -n 1 -wdir "$ROOM/$2" kolo train "${args[@]}" run="$ROOM/fresh" init=w.safetensors init_head=new \
        stop_step=1 > "$ROOM/log" 2>&1
}
begin here there
is $? 78 "init= that is another file on rank 1: exit 78"
like "$ROOM/log" "init=w.safetensors is not the same file on all ranks; it differs from rank 0's on: 1\." \
    "init= differs on rank 1: the message names it"
begin here here
is $? 75 "the same file: they begin" "$ROOM/log"
rm "$ROOM/there/w.safetensors"
begin here there
like "$ROOM/log" "differs from rank 0's on: 1 .unreadable" "no such file on rank 1"
is "$(losses "$ROOM/run" | wc -l)" 3 "ranks with different init=: no step was done"
mpiexec -n 2 kolo train "${args[@]}" > "$ROOM/log" 2>&1
is $? 0 "two ranks that see the same go on"
is "$(losses "$ROOM/run" | wc -l)" 8 "two ranks resumed: all 8 steps"
mpiexec -n 2 kolo eval run="$ROOM/run" threads=1 > "$ROOM/two" 2> "$ROOM/log"
kolo eval run="$ROOM/run" threads=1 > "$ROOM/one" 2> "$ROOM/log"
mpiexec -n 3 kolo eval run="$ROOM/run" threads=1 > "$ROOM/three" 2> "$ROOM/log"
line() { cut -d'(' -f1 "$ROOM/$1"; }
like "$ROOM/one" '^loss [0-9.]+  top-1 [0-9.]+' "kolo eval on one rank: loss and top-1"
is "$(line two)" "$(line one)" "two say the same"
is "$(line three)" "$(line one)" "kolo eval on three ranks that do not divide the batch: the same figures"
done_testing
