#!/usr/bin/env bash
# make run: images in, a trained ResNet out, by sbatch on a private two-node Slurm of this machine. Pack
# -> sbatch jobs/resnet_imagenet.sh -> follow the log -> result. Works below build/demo; run again: goes on
# or shows the result.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
top=$PWD
work=${KOLO_DEMO:-$top/${BUILD:-build}/demo}
bin=$top/${BUILD:-build}/bin
export PATH=$bin:$PATH
say() { printf '\n== %s\n' "$*"; }

if [ "${1:-}" != --inside ] && [ -z "${KOLO_SUBMIT:-}" ] && command -v scontrol > /dev/null &&
    timeout 5 scontrol ping 2> /dev/null | grep -q UP; then
    echo \
        "This machine belongs to a Slurm cluster (scontrol ping answers): nothing is submitted without your word."
    echo \
        "Try it there:   kolo-pack --source shapes --out data/train && kolo-pack --source shapes --split val --out data/val --stats-from data/train"
    echo "                KOLO_RECIPE=shapes KOLO_DATASET=data sbatch jobs/resnet_imagenet.sh"
    echo "or let this script start its private cluster all the same:   KOLO_SUBMIT=1 make run"
    exit 0
fi

mkdir -p "$work" || exit 3
cd "$work" || exit 3
for split in train val; do
    [ -d "data/$split" ] && continue
    say "packing procedural images into HDF5 shards ($split)"
    count=4000
    more=()
    [ $split = val ] && count=1000 && more=(--stats-from data/train)
    kolo-pack --source shapes --split $split --count $count --out data/$split "${more[@]}" || exit
done

cores=$(nproc)
cpus=$((cores >= 2 ? cores / 2 : 1))
[ "$cpus" -gt 8 ] && cpus=8
run_on_cluster() {
    say "sbatch jobs/resnet_imagenet.sh on two nodes with $cpus cores each"
    local log=kolo-demo.out id tail_pid status
    rm -f "$log"
    : > "$log"
    id=$(KOLO_RECIPE=shapes KOLO_DATASET=$work/data KOLO_RUN=$work/run sbatch --parsable --nodes=2 \
        --cpus-per-task="$cpus" \
        --time=00:30:00 --output="$log" "$top/jobs/resnet_imagenet.sh") || return
    echo "job $id; log $work/$log"
    tail -n +1 -f "$log" &
    tail_pid=$!
    while squeue -h -j "$id" 2> /dev/null | grep -q .; do sleep 0.5; done
    sleep 0.5
    kill "$tail_pid" 2> /dev/null
    wait "$tail_pid" 2> /dev/null
    status=$(scontrol show job "$id" | sed -n 's/.*ExitCode=\([0-9]*\):.*/\1/p' | head -n 1)
    return "${status:-1}"
}
if [ "${1:-}" = --inside ]; then
    run_on_cluster
    exit
fi
say "a private two-node Slurm on this machine"
"$top/share/minislurm" run --nodes 2 --cpus "$cpus" -- "$top/share/demo.sh" --inside
status=$?
[ $status = 0 ] || { echo "make run: the job ended with status $status; its log: $work/kolo-demo.out" >&2;
    exit $status; }
say "result"
top1=$(sed -n 's/.*"top1": *\([0-9.]*\).*/\1/p' run/summary.json | head -n 1)
echo "top-1 on 1,000 images never trained on: ${top1:-unknown}"
echo "log $work/kolo-demo.out   run folder $work/run (events.jsonl, summary.json, checkpoints)"
echo "next: docs/pack.md and docs/train.md, for data of your own and a cluster"
