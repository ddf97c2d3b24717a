#!/usr/bin/env bash
# kolo compare: what runs took and reached is what their events say, recounted; runs that grew, went on
# elsewhere or were never evaluated are among them.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo python3
cd "$ROOM" || exit 1

# grew: another batch from step 21 on. moved: from 2 nodes to 4 after step 15. blind: never evaluated.
python3 - << 'EOF'
import json, os, random
random.seed(4)
def write(run, events):
    os.makedirs(run)
    with open(run + "/events.jsonl", "w") as f:
        for kind, members in events: f.write(json.dumps({"event": kind, **members}) + "\n")
def run(name, steps, best, nodes, batches, moves={}, evaluated=True, figure="top1"):
    events = [("start", dict(step=0, nodes=nodes, batch=batches[0], steps=steps, epoch_steps=10))]
    for s in range(1, steps + 1):
        if s - 1 in moves:
            events.append(("start", dict(step=s - 1, nodes=moves[s - 1], batch=batches[0], steps=steps)))
        if s - 1 in batches and s > 1: events.append(("phase", dict(step=s - 1, batch=batches[s - 1])))
        events.append(("step", dict(step=s, epoch=(s - 1) // 10, loss=4 / s + random.random(),
                                    seconds=.5 + random.random())))
        if s % 10 == 0 and evaluated:
            events.append(("eval", {"step": s, "loss": 9 / s, figure: best * (s / steps) ** .5}))
    write(name, events)
run("grew", 40, .9, 1, {0: 32, 20: 64})
run("moved", 30, .7, 2, {0: 100}, {15: 4})
run("blind", 20, 0, 1, {0: 8}, evaluated=False)
run("boxes", 20, .3, 1, {0: 8}, figure="ap")
EOF
kolo compare moved grew out=both.svg > both
is $? 0 "exit 0" both
none "images, steps, seconds, node seconds, in all and until both were as good, are those of the events" \
    "$(python3 - << 'EOF'
import json
def recount(name, goal):
    images = seconds = node = 0
    batch = nodes = best = at_best = last = None
    until = None
    for e in map(json.loads, open(name + "/events.jsonl")):
        if e["event"] in ("start", "phase"): batch, nodes = e.get("batch", batch), e.get("nodes", nodes)
        elif e["event"] == "step":
            images, seconds, node = images + batch, seconds + e["seconds"], node + nodes * e["seconds"]
            step, last = e["step"], e["loss"]
        elif e["event"] == "eval":
            if best is None or e["top1"] > best: best, at_best = e["top1"], e["loss"]
            if until is None and e["top1"] >= goal: until = [images, step, seconds, node]
    return [100 * best, at_best, last, images, step, seconds, node], until
rows = {}
for words in map(str.split, open("both")):
    if words and words[-1] in ("grew", "moved"):
        rows.setdefault(words[-1], []).append([float(w) for w in words[:-1] if w != "%"])
if list(rows) != ["grew", "moved"]: print("the best first", list(rows))
near = lambda got, want: len(got) == len(want) and all(abs(g - w) < .0051 for g, w in zip(got, want))
for name in rows:
    whole, until = recount(name, .7)
    if len(rows[name]) != 2: print(name, "is in", len(rows[name]), "tables")
    elif not near(rows[name][0], whole): print(name, rows[name][0], whole)
    elif not near(rows[name][1], until): print(name, rows[name][1], until)
EOF
)"
none "out=: an SVG with both runs' losses and evaluations over all four" "$(python3 - << 'EOF'
import xml.etree.ElementTree as tree
text = [t.text for t in tree.parse("both.svg").iter() if t.tag.endswith("text")]
for title in ("images", "steps", "seconds of steps", "node seconds of steps"):
    if text.count(title) != 2: print(title, text.count(title))
for name in ("grew", "moved"):
    if text.count(name) != 8: print(name, text.count(name))
EOF
)"
kolo compare grew blind > with_blind
is $? 0 "a run that was never evaluated is in the table" with_blind
like with_blind '^ +- +- .* 160 +20 .* blind$' "its images and steps are there, its accuracy is not"
none "and nothing is said of what all reached" "$(grep until with_blind)"
kolo compare grew boxes 2> log
is $? 78 "top-1 beside AP: exit 78"
like log 'grew is judged by top-1, .*boxes by AP|boxes is judged by AP, .*grew by top-1' \
    "and which of them is which"
kolo compare 2> log
is $? 78 "no run: exit 78"
kolo compare grew nowhere 2> log
is $? 2 "no such run: exit 2"
like log 'nowhere: there is no such run' "and its name"
done_testing
