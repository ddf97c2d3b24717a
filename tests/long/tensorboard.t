#!/usr/bin/env bash
# tensorboard=true as TensorBoard's own reader has it: of a run that was killed and went on every scalar once,
# equal to events.jsonl; of ranks with parts of the network or of its gradients the histograms of one rank.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack python3 mpiexec
. "$TOP/tests/peers/python.sh"
peers_install tensorboard > "$ROOM/log" 2>&1 || skip_all "no tensorboard from PyPI: $(tail -n 1 "$ROOM/log")"
case $PYTHON in /*) ;; *) PYTHON=$TOP/$PYTHON ;; esac
export OMP_NUM_THREADS=1
cd "$ROOM" || exit 1
shapes_data 256 64
train() { # RUN RANKS WORDS...
    local run=$1 ranks=$2
    shift 2
    timeout 300 mpiexec -n "$ranks" kolo train shapes data=data/train val=data/val run="$run" epochs=3 \
        batch=32 threads=1 clip_norm=1000 micro_batch=16 tensorboard=true tensorboard_steps=5 "$@" > log 2>&1
}
cat > read.py << 'END'
import glob, json, math, struct, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tb_logging
tb_logging.get_logger().setLevel("ERROR") # it tells that it leaves out what was done again
def read(run):
    sizes = dict.fromkeys(("scalars", "histograms", "images", "tensors"), 0)
    board = EventAccumulator(run + "/tensorboard", size_guidance=sizes)
    board.Reload()
    return board
END
same="$(cat << 'END'
from read import *
board, want = read(sys.argv[1]), {}
f32 = lambda v: struct.unpack("<f", struct.pack("<f", v))[0]
for line in open(sys.argv[1] + "/events.jsonl"):
    e = json.loads(line)
    name = {"step": "train"}.get(e["event"], e["event"])
    for key, value in e.items() if name in ("train", "data", "eval") else ():
        if isinstance(value, (int, float)) and key not in ("step", "epoch", "time"):
            want.setdefault(name + "/" + key, []).append((e["step"], f32(value)))
got = {tag: [(s.step, s.value) for s in board.Scalars(tag)] for tag in board.Tags()["scalars"]}
for tag in sorted(set(want) | set(got)):
    if want.get(tag) != got.get(tag): print(tag, set(want.get(tag, [])) ^ set(got.get(tag, [])))
if len(want.get("train/loss", [])) != 24: print("steps")
if len(board.Images("images/0")) != 5: print("images", [i.step for i in board.Images("images/0")])
END
)"
kolo train shapes data=data/train val=data/val run=killed epochs=3 batch=32 threads=1 \
    micro_batch=16 clip_norm=1000 tensorboard=true tensorboard_steps=5 checkpoint_steps=7 > killed.log 2>&1 &
pid=$!
until grep -qs '"step":12,' killed/events.jsonl || ! kill -0 $pid 2> /dev/null; do sleep 0.02; done
kill -KILL $pid
wait $pid 2> /dev/null
train killed 1 checkpoint_steps=7
ok $? "a run that was killed goes on" log
none "EventAccumulator has every scalar once, equal to events.jsonl" \
    "$(PYTHONPATH=. "$PYTHON" -c "$same" killed 2>&1)"

train one 1
ok $? "one rank" log
none "  its scalars" "$(PYTHONPATH=. "$PYTHON" -c "$same" one 2>&1)"
for words in stages=2 shard=optimizer shard=gradients shard=parameters; do
    train "$words" 2 "$words"
    ok $? "two ranks, $words" log
    none "  its scalars" "$(PYTHONPATH=. "$PYTHON" -c "$same" "$words" 2>&1)"
    none "  its histograms are those of one rank, and square to the norm" "$(PYTHONPATH=. "$PYTHON" -c '
from read import *
one, other = read("one"), read(sys.argv[1])
tags = one.Tags()["histograms"]
if sorted(tags) != sorted(other.Tags()["histograms"]) or len(tags) < 50: print("tags")
norm = {s.step: s.value for s in other.Scalars("train/grad_norm")}
squares = {}
for tag in tags:
    for a, b in zip(one.Histograms(tag), other.Histograms(tag), strict=True):
        x, y = a.histogram_value, b.histogram_value
        if a.step != b.step or x.num != y.num: print(tag, "count")
        if a.step == 1 and not math.isclose(x.sum_squares, y.sum_squares, rel_tol=1e-3, abs_tol=1e-9):
            print(tag, a.step, x.sum_squares, y.sum_squares)
        if tag.startswith("gradients/"): squares[b.step] = squares.get(b.step, 0) + y.sum_squares
for step in squares:
    root = squares[step] ** 0.5
    if not math.isclose(root, norm[step], rel_tol=1e-4): print(step, root, norm[step])
' "$words" 2>&1)"
done
none "hparams: the options of the run, by the plugin's own parser" "$(PYTHONPATH=. "$PYTHON" -c '
from read import *
from tensorboard.plugins.hparams import plugin_data_pb2, metadata
board = read("one")
meta = board.SummaryMetadata("_hparams_/session_start_info")
start = metadata.parse_session_start_info_plugin_data(meta.plugin_data.content)
h = start.hparams
if h["batch"].number_value != 32 or h["clip_norm"].number_value != 1000: print(h)
if h["model"].string_value != "resnet20": print(h["model"])
end = board.SummaryMetadata("_hparams_/session_end_info").plugin_data.content
if metadata.parse_session_end_info_plugin_data(end).status != 1: print("status")
' 2>&1)"
done_testing
