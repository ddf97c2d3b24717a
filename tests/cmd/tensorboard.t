#!/usr/bin/env bash
# tensorboard=true: records with right sums, every number of events.jsonl, histograms whose squares add up to
# the gradient's norm; a run that goes on has a file each start. TensorBoard itself: tests/long/tensorboard.t.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack python3
export PYTHONPATH=$TOP/tests PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
cd "$ROOM" || exit 1
shapes_data 128 32
train() { # WORDS...
    timeout 100 kolo train shapes data=data/train val=data/val run=run epochs=2 batch=32 threads=1 \
        clip_norm=1000 tensorboard=true tensorboard_steps=3 "$@" > log 2>&1
}
train stop_step=5
is $? 75 "a run that is stopped" log
train
ok $? "  and goes on" log
is "$(find run/tensorboard -name 'events.out.tfevents.*' | wc -l)" 2 "a file for each start"
none "every number of every event is there, as an f32, and no other; histograms, images where they are due" \
    "$(python3 - << 'END'
import glob, json, math, struct, tfevents
f32 = lambda v: struct.unpack("<f", struct.pack("<f", v))[0]
want, norm = {}, {}
for line in open("run/events.jsonl"):
    e = json.loads(line)
    name = {"step": "train"}.get(e["event"], e["event"])
    if name == "train": norm[e["step"]] = e["grad_norm"]
    for key, value in e.items() if name in ("train", "data", "eval") else ():
        if isinstance(value, (int, float)) and key not in ("step", "epoch", "time"):
            want[name + "/" + key, e["step"]] = f32(value)
got, squares, images, others = {}, {}, set(), []
for path in sorted(glob.glob("run/tensorboard/*")):
    for step, tag, kind, value in tfevents.values(path):
        if kind == 2: got[tag, step] = value
        elif kind == 5:
            h = dict(tfevents.fields(value))
            limit, count = (struct.unpack("<%dd" % (len(h[k]) // 8), h[k]) for k in (6, 7))
            if sum(count) != h[3] or list(limit) != sorted(limit) or not h[1] <= h[2] < limit[-1]:
                print("histogram", tag, step)
            if tag.startswith("gradients/"): squares[step] = squares.get(step, 0) + h[5]
        elif kind == 4: images.add((step, tag, dict(tfevents.fields(value))[4][:2]))
        else: others.append(tag)
for key in sorted(set(want) | set(got)):
    if want.get(key) != got.get(key): print(key, want.get(key), got.get(key))
if len(norm) != 8 or sorted(squares) != [1, 3, 6]: print("steps", sorted(norm), sorted(squares))
for step in squares:
    if not math.isclose(squares[step] ** 0.5, norm[step], rel_tol=1e-5):
        print("norm", step, squares[step] ** 0.5, norm[step])
if images != {(s, "images/%d" % i, b"\xff\xd8") for s in (1, 3, 6) for i in range(4)}: print(images)
ends = ["_hparams_/session_end_info"] * 2 # of both starts
if others != ["_hparams_/session_start_info"] + ends: print(others)
END
)"
kolo train shapes data=data/train val=data/val run=without steps=1 batch=32 threads=1 > log 2>&1
[ ! -e without/tensorboard ]
ok $? "without the option there is no such folder" log
done_testing
