#!/usr/bin/env bash
# What `kolo plan` predicts against what `kolo bench train` measures: steps and memory. The kernels of every
# plan are measured here first; networks and grids are whatever PLANS names. Prints the table; times count
# only where QUIET=1 says that nothing else runs.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo mpiexec
export KOLO_CACHE=$ROOM/cache
# RANKS OPTIONS...
mapfile -t PLANS <<< "${PLANS:-1 model=resnet20 batch=64 threads=1
2 model=resnet20 batch=64
4 model=resnet20 batch=128
2 model=resnet20 batch=64 shard=gradients
2 model=resnet20 batch=64 stages=2 micro_batch=16
2 model=resnet20 batch=64 micro_batch=8
2 model=resnet18 size=64 batch=16
2 model=resnet18 size=64 batch=16 micro_batch=4 recompute=all
3 model=resnet18 size=64 batch=24 micro_batch=4 stages=3 pipeline=gpipe
2 model=convnext_tiny size=64 batch=8
2 model=yolox_nano size=128 batch=8
2 model=resnet18 size=64 batch=8 spatial=2x1}"
STEPS=${STEPS:-10}
printf '# %-70s %10s %10s %7s %10s %10s\n' plan predicted measured error peak planned
for line in "${PLANS[@]}"; do
    read -r ranks rest <<< "$line"
    read -r -a words <<< "$rest"
    words+=(data=synthetic val=none)
    kolo bench --tune kernels "${words[@]}" ranks="$ranks" > "$ROOM/log" 2>&1
    ok $? "$line: its kernels are measured" "$ROOM/log"
    kolo plan "${words[@]}" ranks="$ranks" --json > "$ROOM/plan" 2> "$ROOM/log"
    ok $? "... its step is played" "$ROOM/log"
    mpiexec -n "$ranks" kolo bench train "${words[@]}" steps="$STEPS" > "$ROOM/log" 2>&1
    ok $? "... it is carried out" "$ROOM/log"
    python3 - "$ROOM" "$line" << 'PY' >> "$ROOM/table"
import json, re, sys
room, line = sys.argv[1:]
plan = json.load(open(room + "/plan"))
said = re.search(r"([0-9.]+) ms/step.*peak ([0-9]+) MiB \(planned ([0-9]+)", open(room + "/log").read())
took, peak, planned = map(float, said.groups())
print(line, plan["step_seconds"] * 1e3, took, peak, planned, sep="\t")
PY
    tail -1 "$ROOM/table" |
        awk -F '\t' '{printf "# %-70s %10.2f %10.2f %+6.1f%% %10d %10d\n",
            $1, $2, $3, 100 * ($2 / $3 - 1), $4, $5}'
done
python3 - "$ROOM/table" > "$ROOM/verdict" << 'PY'
import statistics, sys
rows = [line.rstrip().split("\t") for line in open(sys.argv[1])]
errors = [abs(float(r[1]) / float(r[2]) - 1) for r in rows]
print("median %.1f %%, worst %.1f %%" % (100 * statistics.median(errors), 100 * max(errors)))
print("within" if statistics.median(errors) <= .05 and max(errors) <= .10 else "beyond")
PY
diag < "$ROOM/verdict"
[ "${QUIET:-0}" = 0 ] || is "$(tail -1 "$ROOM/verdict")" within "all within 10 %, their median within 5 %"
done_testing
