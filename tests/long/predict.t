#!/usr/bin/env bash
# What `kolo plan` predicts against what `kolo bench train` measures, over 34 plans: steps, memory, and which
# of the plans of one training is the fastest. The kernels of every plan are measured here first; networks and
# grids are whatever PLANS names. Of RUNS runs the smallest median counts. Prints the table; times count only
# where QUIET=1 says that nothing else runs.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo mpiexec
export KOLO_CACHE=$ROOM/cache
# RANKS OPTIONS...
mapfile -t PLANS <<< "${PLANS:-1 model=resnet20 batch=64 threads=1
2 model=resnet20 batch=64
2 model=resnet20 batch=64 shard=gradients
2 model=resnet20 batch=64 micro_batch=8
2 model=resnet20 batch=64 micro_batch=16 recompute=all
2 model=resnet20 batch=64 micro_batch=16 stages=2
2 model=resnet20 batch=64 micro_batch=16 stages=2 pipeline=gpipe
2 model=resnet20 batch=64 micro_batch=16 stages=2 pipeline=zero_bubble
2 model=resnet20 batch=64 micro_batch=16 stages=2 pipeline=interleaved chunks=2
2 model=resnet20 batch=64 micro_batch=16 stages=2 pipeline=pipedream
2 model=resnet20 batch=64 micro_batch=16 stages=2 pipeline=two_buffered
3 model=resnet20 batch=96 micro_batch=16 stages=3
3 model=resnet32 batch=96
4 model=resnet20 batch=128
4 model=resnet20 batch=128 shard=parameters
4 model=resnet20 batch=128 micro_batch=16 stages=2
2 model=resnet18 size=64 batch=16
2 model=resnet18 size=64 batch=16 shard=optimizer
2 model=resnet18 size=64 batch=16 micro_batch=4 recompute=all
2 model=resnet18 size=64 batch=16 spatial=2x1
2 model=resnet18 size=64 batch=32 micro_batch=8 stages=2 pipeline=pipedream
3 model=resnet18 size=64 batch=24 micro_batch=4 stages=3 pipeline=gpipe
2 model=resnet34 size=64 batch=16 micro_batch=4 stages=2 recompute=auto
3 model=resnext50_32x4d size=64 batch=12 micro_batch=4 stages=3
2 model=convnext_tiny size=64 batch=8
2 model=convnext_tiny size=64 batch=16 micro_batch=4 stages=2
2 model=yolox_nano size=128 batch=8
2 model=yolox_nano size=128 batch=8 micro_batch=2 stages=2
2 model=mobilenet_v2 size=64 batch=32 micro_batch=8 stages=2 pipeline=zero_bubble
4 model=mobilenet_v2 size=64 batch=64
2 model=vgg11_bn size=32 batch=32 shard=gradients
2 model=vgg11_bn size=32 batch=32 micro_batch=8 stages=2
2 model=swin_t size=64 batch=8
2 model=efficientnet_b0 size=64 batch=16 recompute=blocks}"
STEPS=${STEPS:-12}
measure() { # to the file runs: median, peak and planned MiB
    mpiexec -n "$ranks" kolo bench train "${words[@]}" steps="$STEPS" > "$ROOM/log" 2>&1 || return
    sed -nE 's/.*median ([0-9.]+).*peak ([0-9]+) MiB \(planned ([0-9]+).*/\1 \2 \3/p' "$ROOM/log" \
        >> "$ROOM/runs"
}
printf '# %-80s %10s %10s %7s %10s %10s\n' plan predicted measured error peak planned
for line in "${PLANS[@]}"; do
    read -r ranks rest <<< "$line"
    read -r -a words <<< "$rest"
    words+=(data=synthetic val=none lr=0.001)
    kolo bench --tune kernels "${words[@]}" ranks="$ranks" > "$ROOM/log" 2>&1
    ok $? "$line: its kernels are measured" "$ROOM/log"
    kolo plan "${words[@]}" ranks="$ranks" --json > "$ROOM/plan" 2> "$ROOM/log"
    ok $? "... its step is played" "$ROOM/log"
    : > "$ROOM/runs"
    for _ in $(seq "${RUNS:-2}"); do measure || break; done
    ok $? "... it is carried out" "$ROOM/log"
    python3 - "$ROOM" "$line" << 'PY' >> "$ROOM/table"
import json, sys
room, line = sys.argv[1:]
runs = [list(map(float, run.split())) for run in open(room + "/runs")]
took, peak, planned = min(runs)
print(line, json.load(open(room + "/plan"))["step_seconds"] * 1e3, took, peak, planned, sep="\t")
PY
    tail -1 "$ROOM/table" |
        awk -F '\t' '{printf "# %-80s %10.2f %10.2f %+6.1f%% %10d %10d\n",
            $1, $2, $3, 100 * ($2 / $3 - 1), $4, $5}'
done
python3 - "$ROOM/table" > "$ROOM/verdict" << 'PY'
import collections, statistics, sys
rows = [line.rstrip().split("\t") for line in open(sys.argv[1])]
predicted, took, peak, planned = ([float(row[i]) for row in rows] for i in range(1, 5))
errors = [abs(p / t - 1) for p, t in zip(predicted, took)]
# pages of libraries' code that the first steps bring in are in no plan: some MiB
memory = [abs(a - b) > max(.02 * b, 8) for a, b in zip(peak, planned)]
same = collections.defaultdict(list)
for row, p, t in zip(rows, predicted, took):
    words = row[0].split()
    training = [w for w in words[1:] if w.startswith(("model=", "size=", "batch="))]
    same[" ".join(words[:1] + training)].append((p, t))
lost = [min(plans)[1] / min(t for p, t in plans) - 1 for plans in same.values() if len(plans) > 1]
print("steps: median %.1f %%, worst %.1f %%" % (100 * statistics.median(errors), 100 * max(errors)))
print("memory: %d of %d further off than 2 %%" % (sum(memory), len(rows)))
print("the predicted best of %d trainings: at most %.1f %% slower than the measured best" %
      (len(lost), 100 * max(lost + [0])))
good = statistics.median(errors) <= .05 and max(errors) <= .10 and max(lost + [0]) <= .03 and not any(memory)
print("within" if good else "beyond")
PY
diag < "$ROOM/verdict"
[ "${QUIET:-0}" = 0 ] || is "$(tail -1 "$ROOM/verdict")" within \
    "all steps within 10 %, their median within 5 %, memory within 2 %, the best within 3 %"
done_testing
