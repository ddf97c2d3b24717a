#!/usr/bin/env bash
# What `kolo plan` predicts against what `kolo bench train` measures, over 63 plans: steps, memory, and which
# of the plans of one training is the fastest. In each of RUNS rounds over all of them the kernels of a plan
# are measured, its step is played and carried out, one right after the other; the least predicted step of all
# rounds is held against the least median of measured ones, so that what else a machine does is in neither.
# PLANS: other plans. ONLY=FIRST-LAST with TABLE=FILE: some of them, added to a table that is judged as far as
# it goes. FRONT: a command in front of every rank, such as `chrt -r 1` on a machine with other work, or,
# where the kernel does not group processes by session (sched_autogroup_enabled=0), `nice -n -15`.
# Times count only where QUIET=1 says that nothing disturbs them.
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
2 model=efficientnet_b0 size=64 batch=16 recompute=blocks
2 model=lenet5 batch=256
1 model=mlp batch=128 threads=1
2 model=mlp batch=512 optimizer=lamb lr=0.001
2 model=mobilenet_v3_large size=96 batch=24 shard=parameters
2 model=yolov3_tiny size=160 batch=8
2 model=yolox_tiny size=128 batch=4 micro_batch=1 stages=2
2 model=vit_s_16 size=64 batch=8
2 model=vit_s_16 size=64 batch=16 micro_batch=4 stages=2 pipeline=gpipe
2 model=resnet50d size=96 batch=8 optimizer=lars lr=0.1
2 model=wide_resnet50_2 size=64 batch=8 recompute=blocks
2 model=resnet56 batch=48 micro_batch=6 stages=2 pipeline=interleaved chunks=2
2 model=resnet110 batch=32 precision=bf16
2 model=resnet50 size=64 batch=16 precision=bf16 shard=gradients optimizer=adamw lr=0.001
2 model=resnet18 size=96 batch=8 tensor=2
2 model=resnet18 size=96 batch=8 spatial=1x2
2 model=swin_t size=64 batch=8 recompute=all
2 model=swin_t size=64 batch=12 micro_batch=2 stages=2
2 model=convnext_tiny size=64 batch=8 optimizer=lamb ema=0.999 lr=0.001
2 model=efficientnet_b1 size=64 batch=8
2 model=resnet34 size=64 batch=24 micro_batch=2
2 model=resnet18 size=64 batch=16 compression=topk
2 model=resnet18 size=64 batch=16 local_steps=4
2 model=resnet18 size=64 batch=16 reduce=adasum
2 model=resnet18 size=64 batch=16 clip_norm=1 bn=sync
2 model=resnet20 batch=64 micro_batch=8 reduce=canonical
3 model=mobilenet_v2 size=64 batch=24 shard=optimizer
3 model=swin_t size=64 batch=12
5 model=resnet20 batch=80
4 model=resnet18 size=64 batch=16 micro_batch=2 stages=4}"
read -r -a FRONT <<< "${FRONT:-}"
TABLE=${TABLE:-$ROOM/table}
ONLY=${ONLY:-1-${#PLANS[@]}}

alone() { setsid -w "${FRONT[@]}" kolo "$@"; } # a session of its own, as ranks have

# Appends what was predicted, took (ms), the peak and what was planned (MiB) to TABLE.
run_once() { # LINE
    local ranks rest words
    read -r ranks rest <<< "$1"
    read -r -a words <<< "$rest data=synthetic val=none lr=0.001"
    : > "$ROOM/log"
    alone bench --tune kernels "${words[@]}" ranks="$ranks" >> "$ROOM/log" 2>&1 || return
    alone plan "${words[@]}" ranks="$ranks" --json > "$ROOM/plan" 2>> "$ROOM/log" || return
    mpiexec -n "$ranks" "${FRONT[@]}" kolo bench train "${words[@]}" steps="${STEPS:-20}" \
        >> "$ROOM/log" 2>&1 || return
    python3 - "$ROOM/plan" "$ROOM/log" "$1" << 'PY' >> "$TABLE"
import json, re, sys
predicted = json.load(open(sys.argv[1]))["step_seconds"] * 1e3
took = re.search(r"median ([\d.]+)\).*peak (\d+) MiB \(planned (\d+)", open(sys.argv[2]).read())
print(sys.argv[3], predicted, *took.groups(), sep="\t")
PY
}

printf '# %-78s %9s %9s %7s %6s %8s\n' plan predicted measured error peak planned
for run in $(seq "${RUNS:-3}"); do
    for number in $(seq "${ONLY%-*}" "${ONLY#*-}"); do
        line=${PLANS[number - 1]}
        carried=0
        run_once "$line" || carried=1
        ok $carried "$line: measured, played, carried out, run $run" "$ROOM/log" || continue
        tail -1 "$TABLE" |
            awk -F '\t' '{printf "# %-78s %9.2f %9.2f %+6.1f%% %6d %8d\n",
                $1, $2, $3, 100 * ($2 / $3 - 1), $4, $5}'
    done
done
python3 - "$TABLE" > "$ROOM/verdict" << 'PY'
import collections, statistics, sys
runs = collections.defaultdict(list)
for line in open(sys.argv[1]):
    plan, *figures = line.rstrip().split("\t")
    runs[plan].append(list(map(float, figures)))
rows = [[plan, *map(min, zip(*figures))] for plan, figures in runs.items()]
predicted, took, peak, planned = ([float(row[i]) for row in rows] for i in range(1, 5))
errors = [abs(p / t - 1) for p, t in zip(predicted, took)]
# pages of libraries' code that the first steps bring in are in no plan: some MiB
memory = [row[0] for row, a, b in zip(rows, peak, planned) if abs(a - b) > max(.02 * b, 8)]
for row, e in zip(rows, errors):
    if e > .10: print("%s: %.2f of %.2f ms" % tuple(row[:3]))
placement = ("threads=", "micro_batch=", "stages=", "pipeline=", "chunks=", "shard=", "recompute=",
             "spatial=", "tensor=")
same = collections.defaultdict(list)
for row, p, t in zip(rows, predicted, took):
    words = row[0].split()
    training = [w for w in words[1:] if not w.startswith(placement)]
    same[" ".join(words[:1] + training)].append((p, t))
lost = [min(plans)[1] / min(t for p, t in plans) - 1 for plans in same.values() if len(plans) > 1]
print("steps of %d plans: median %.1f %%, worst %.1f %%, %d further off than 10 %%" %
      (len(rows), 100 * statistics.median(errors), 100 * max(errors), sum(e > .10 for e in errors)))
print("memory: %d further off than 2 %%: %s" % (len(memory), "; ".join(memory) or "none"))
print("the predicted best of %d trainings: at most %.1f %% slower than the measured best" %
      (len(lost), 100 * max(lost + [0])))
good = statistics.median(errors) <= .05 and max(errors) <= .10 and max(lost + [0]) <= .03 and not memory
print("within" if good else "beyond")
PY
diag < "$ROOM/verdict"
[ "${QUIET:-0}" = 0 ] || is "$(tail -1 "$ROOM/verdict")" within \
    "all steps within 10 %, their median within 5 %, memory within 2 %, the best within 3 %"
done_testing
