#!/usr/bin/env bash
# The traces that Kolo writes as Perfetto's trace processor reads them (the package perfetto of PyPI, which
# fetches the program; PERFETTO=FILE is one), and by the rules of the format where that cannot be had: a step
# of a pipeline, a step played on a cluster and on this node, exchanges of ranks merged by `kolo timeline`.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo python3 mpiexec
. "$TOP/tests/peers/python.sh"
peers_install perfetto > "$ROOM/log" 2>&1
case $PYTHON in /*) ;; *) PYTHON=$TOP/$PYTHON ;; esac
export OMP_NUM_THREADS=1
cd "$ROOM" || exit 1
plan() { kolo plan "$@" data=synthetic val=none conv=direct deterministic=true threads=1 > log 2>&1; }
small="model=resnet20 size=32 classes=10 batch=32"
# shellcheck disable=SC2086 # words
for order in gpipe 1f1b interleaved zero_bubble; do
    more=
    [ $order != interleaved ] || more=chunks=2
    plan resnet20 $small micro_batch=4 stages=2 ranks=2 pipeline=$order $more timeline=$order.json
    ok $? "a step of a pipeline, $order" log
done
# shellcheck disable=SC2086
plan resnet20 $small ranks=2 --timeline node.json
ok $? "a step played on this node" log
plan resnet50 model=resnet50 size=224 batch=2048 ranks=32 stages=4 cluster=jupiter --timeline cluster.json
ok $? "and on a cluster" log
KOLO_COMM_TIMELINE=$ROOM/line timeout 100 mpiexec -n 3 "$BUILD/tests/mpi/comm_named" steps 20 > log 2>&1 &&
    kolo timeline merge line > log 2>&1
ok $? "the exchanges of three ranks, merged" log
cp line/timeline.json ranks.json

# Google's "Trace Event Format": what each event must have; spans of a thread lie in each other or apart, in
# whole nanoseconds, else Perfetto leaves one out (its figure slice_drop_overlapping_complete_event).
cat > rules.py << 'END'
import json, sys
from collections import defaultdict
data = json.load(open(sys.argv[1]))
events = data["traceEvents"] if isinstance(data, dict) else data
number = lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and v == v
rows, processes, threads = defaultdict(list), set(), set()
for e in events:
    if e.get("ph") not in ("X", "M", "i"): print("phase", e)
    if not isinstance(e.get("pid"), int): print("pid", e)
    if not isinstance(e.get("name"), str): print("name", e)
    if e.get("ph") == "M":
        if e["name"] in ("process_name", "thread_name"):
            if not isinstance(e["args"]["name"], str): print("name of a row", e)
            (processes if e["name"] == "process_name" else threads).add((e["pid"], e.get("tid")))
        continue
    if not isinstance(e.get("tid"), int) or not number(e.get("ts")) or e["ts"] < 0: print("tid or ts", e)
    if e["ph"] == "i" and e.get("s") not in ("g", "p", "t"): print("scope", e)
    if e["ph"] != "X": continue
    if not number(e.get("dur")) or e["dur"] < 0: print("dur", e)
    begin = round(e["ts"] * 1e3)
    rows[e["pid"], e["tid"]].append((begin, -(begin + round(e["dur"] * 1e3)), e["name"]))
for row, spans in rows.items():
    if row[0] not in {p for p, _ in processes} or row not in threads: print("a row without a name", row)
    open_until = []
    for begin, end, name in sorted(spans):
        while open_until and open_until[-1] <= begin: open_until.pop()
        if open_until and -end > open_until[-1]: print("overlap", row, name, begin, -end, open_until)
        open_until.append(-end)
if sum(map(len, rows.values())) < 4: print("hardly a span")
END
for trace in *.json; do none "$trace keeps the rules of the format" "$(python3 rules.py "$trace" 2>&1)"; done

cat > processor.py << 'END'
import json, os, sys
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
program = TraceProcessorConfig(bin_path=os.environ.get("PERFETTO") or None)
with TraceProcessor(trace=sys.argv[1], config=program) as p:
    data = json.load(open(sys.argv[1]))
    events = data["traceEvents"] if isinstance(data, dict) else data
    want = sum(e["ph"] in "Xi" for e in events)
    got = [r.n for r in p.query("select count(*) as n from slice")][0]
    if got != want: print(got, "slices of", want, "events")
    wrong = "severity in ('error', 'data_loss') and value > 0"
    for r in p.query("select name, value from stats where " + wrong): print(r.name, r.value)
    names = {r.name for r in p.query("select name from process where name is not null")}
    if not names: print("no process has a name")
END
if PERFETTO=${PERFETTO:-} timeout 100 "$PYTHON" processor.py node.json > log 2>&1 || grep -q slices log; then
    for trace in *.json; do
        none "$trace, by Perfetto's trace processor" "$("$PYTHON" processor.py "$trace" 2>&1)"
    done
else
    skip "no trace processor of Perfetto: $(tail -n 1 log | cut -c 1-80)"
fi
done_testing
