#!/usr/bin/env bash
# kolo report: its figures are those of events.jsonl, recounted; its page is whole, safe and small; runs that
# are cut off, killed or failed are read, too.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack python3
cd "$ROOM" || exit 1
shapes_data 256 96
export OMP_NUM_THREADS=1
train() { # RUN WORDS...
    local run=$1
    shift
    timeout 100 kolo train shapes data=data/train val=data/val run="$run" epochs=3 batch=32 size=16 \
        threads=1 "$@" > train.log 2>&1
}
train runs/a
ok $? "a run to report" train.log
train runs/b lr=0.02 noise_scale=true micro_batch=16
ok $? "a second one, with another learning rate" train.log

# ---- figures ----
kolo report runs/a --csv > a.csv
is $? 0 "--csv: exit 0"
kolo report runs/a --json > a.json
is $? 0 "--json: exit 0"
none "--csv and --json: every number of every step and evaluation is that of events.jsonl" \
    "$(python3 - << 'EOF'
import csv, json
def digits(key, value): return float(("%.13g" if key.endswith("time") else "%.9g") % value)
events = [json.loads(line) for line in open("runs/a/events.jsonl")]
steps = {e["step"]: e for e in events if e["event"] == "step"}
evals = {e["step"]: e for e in events if e["event"] == "eval"}
rows = list(csv.DictReader(open("a.csv")))
if [int(r["step"]) for r in rows] != sorted(steps): print("steps of --csv")
if len(steps) != 24 or len(evals) != 3: print("the run has other steps than this test thinks")
for r in rows:
    at = int(r["step"])
    for kind, of in (("", steps[at]), ("eval_", evals.get(at, {}))):
        for key in r:
            if key in ("run", "step") or key.startswith("eval_") != bool(kind): continue
            want = of.get(key[len(kind):])
            if (r[key] == "") != (want is None) or (want is not None and float(r[key]) != digits(key, want)):
                print("csv", at, key, r[key], want)
run = json.load(open("a.json"))["runs"][0]
for kind, of in (("step", steps), ("eval", evals)):
    for key, column in run[kind].items():
        for at, value in zip(run[kind]["step"], column):
            want = of[at].get(key)
            if value != (None if want is None else digits(key, want)):
                print("json", kind, key, at, value, want)
    seen = set().union(*of.values()) - {"event"}
    if seen - set(run[kind]): print("json lacks", seen - set(run[kind]))
if run["classes"] != [e for e in events if e["event"] == "classes"][-1]: print("classes")
last = evals[max(evals)]
c = run["classes"]
if sum(c["images"]) != last["rows"] or abs(sum(c["right"]) / last["rows"] - last["top1"]) > 1e-8:
    print("top-1 by class")
wrong = [sum(n for label, answer, n in c["confused"] if label == k) for k in range(10)]
if [i - r for i, r in zip(c["images"], c["right"])] != wrong: print("confusions by class")
seconds = sum(e["seconds"] for e in steps.values())
if abs(run["img_per_s"] / (32 * 24 / seconds) - 1) > 1e-6: print("images a second")
if abs(run["wait_share"] - sum(e["wait"] for e in steps.values()) / seconds) > 1e-6: print("share of waiting")
worst = min(range(10), key=lambda k: (c["right"][k] / c["images"][k], k))
name = open("runs/a/classes.txt").read().split("\n")[worst]
if not run["answers"]["worst"].startswith(name + ": "): print("worst class", run["answers"]["worst"], name)
EOF
)"
kolo report runs/b --json > b.json
like b.json 'Against .*/runs/a: .*micro_batch: 16, was 0; lr: 0.02, was 0.1' \
    "what was changed against the run before"
none "the command of --json makes the same losses once more" "$(python3 - << 'EOF'
import json, subprocess
command = json.load(open("b.json"))["runs"][0]["command"].replace("NEW-FOLDER", "again/b")
subprocess.run(command, shell=True, check=True, stderr=subprocess.DEVNULL, timeout=100)
def losses(run): return [json.loads(l).get("loss") for l in open(run + "/events.jsonl")]
if losses("runs/b") != losses("again/b"): print(command)
EOF
)"

# ---- the page ----
kolo report runs/a > log 2>&1
is "$? $(wc -c < runs/a/report.html)" \
    "0 $(sed -n 's/^runs.a.report.html: \([0-9]*\) bytes, 1 run$/\1/p' log)" \
    "the page goes into the run"
(ulimit -f 1 && kolo report runs/a) > log 2>&1
is $? 3 "the run folder cannot be written: exit 3" || diag < log
like log 'runs/a/report.html: cannot write: .*; out=FILE.html writes the page elsewhere$' \
    "  and out= is the cure"
cat > page.py << 'EOF'
# FILE: complains where the page is not well formed, or needs anything but itself; prints its figures
import sys, json, re
from html.parser import HTMLParser
text = open(sys.argv[1], encoding="utf-8").read()
void = {"meta", "path", "circle", "br", "link", "img"}
class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.figures = [], {}
    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if tag == "figure": self.figures[a.get("id", "example")] = {"lines": [], "rects": 0}
        if "data-points" in a: self.figures[list(self.figures)[-1]]["lines"].append(int(a["data-points"]))
        if tag == "rect": self.figures[list(self.figures)[-1]]["rects"] += 1
        names = [a[k] for k in ("src", "href") if k in a]
        if tag in ("link", "iframe") or any(not name.startswith("data:") for name in names):
            print("not of its own:", tag, attrs)
        if any(k.startswith("on") for k in a): print("handler:", tag, attrs)
        if tag not in void: self.open.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in void: self.open.pop()
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: print("closes what is not open:", tag, self.getpos())
    def handle_data(self, data):
        if self.open and self.open[-1] == "script" and data.startswith("{"):
            plot = json.loads(data)
            f = self.figures[list(self.figures)[-1]]
            if [len(s["x"]) for s in plot["series"]] != f["lines"]: print("points of the script", f)
page = Page()
page.feed(text)
if page.open: print("never closed:", page.open)
rest = re.sub(r"(?s)<script.*?</script>|<pre>.*?</pre>|data:[^\"]*", "", text)
if re.search(r"(https?:)?//[a-z]", rest): print("an address")
for name, f in page.figures.items(): print("#", name, *f["lines"], f["rects"])
EOF
python3 page.py runs/a/report.html > figures
none "it is well formed, and needs nothing but itself" "$(grep -v '^#' figures)"
like figures '^# loss 24 3 0$' "loss: a point a step, and an evaluation"
like figures '^# accuracy 24 3 3 0$' "accuracy: of training, top-1, top-5"
like figures '^# classes 10$' "a bar a class"
like figures '^# confusion 100$' "a cell a pair of classes"
like figures '^# memory 2$' "memory planned and resident"
kolo report runs/b runs/a out=both.html > log 2>&1
is $? 0 "two runs" log
python3 page.py both.html > figures
none "their page is well formed" "$(grep -v '^#' figures)"
like figures '^# loss 24 3 24 3 0$' "two runs: their curves are in one figure"
best=$(python3 -c '
import json
evals = {r: [json.loads(l) for l in open(f"runs/{r}/events.jsonl") if "\"eval\"" in l] for r in "ab"}
best = {r: max(e["top1"] for e in evals[r]) for r in "ab"}
print(max("ab", key=best.get) if best["a"] != best["b"] else "")')
is "$(grep -o '<h2>[^<]*, the best of them' both.html)" "<h2>${best:-$(grep -o '<h2>., the best' both.html |
    cut -c 5)}, the best of them" "two runs: the best comes first"
like both.html '<button type="button">lr</button>' "two runs: what differs is a column"
kolo report runs/a --svg loss > loss.svg
is "$? $(python3 -c '
import xml.dom.minidom
print(len(xml.dom.minidom.parse("loss.svg").getElementsByTagName("path")) > 3)')" "0 True" \
    "--svg NAME: one plot as a file of XML"
LC_ALL=C kolo report runs/a --text > text
is "$? $(grep -c 'Which epoch overfits' text) $(LC_ALL=C grep -c '[^ -~]' text)" "0 1 0" \
    "--text without UTF-8: answers and plots in ASCII"
like text '^Loss \(loss\)$' "--text: its plots"

# ---- files that are damaged ----
cp -r runs/a cut && sed -i '3s/.*/{"event":"step","step":/; $s/.$//' cut/events.jsonl
kolo report cut --text > text
is "$? $(grep -c 'lines of events.jsonl are no whole events' text)" "0 1" "torn lines: --text says how many"
kolo report cut --json > cut.json
is "$(python3 -c 'import json; print(json.load(open("cut.json"))["runs"][0]["torn_lines"])')" 2 "  and --json"
ln -sf events.jsonl cut/events.jsonl
kolo report cut > log 2>&1
is $? 3 "events.jsonl is there and cannot be opened: exit 3" || diag < log
like log 'cut/events.jsonl: cannot open: ' "  by its name"
kolo runs . --json > rows.json
is "$(python3 -c '
import json
rows = [r for r in json.load(open("rows.json"))["runs"] if r["folder"] == "cut"]
print(*[(r["state"], r["why"][:31]) for r in rows])')" "('unread', 'cut/events.jsonl: cannot open: ')" \
    "kolo runs: its state is unread, and why"

# ---- names that are code ----
evil="runs/<script>alert(1)<!--'\"&"
mkdir "$evil" && cp runs/a/*.* "$evil/"
sed -i "1s|.*|</script><img src=x onerror=alert(2)>|" "$evil/classes.txt"
printf '\xff\x1b[31m"torn' > "$evil/bad" && sed -i "2s|.*|$(cat "$evil/bad")|" "$evil/classes.txt"
kolo report "$evil" out=evil.html > log 2>&1
is $? 0 "a run and classes with markup for names" log
none "they stand as text in the page" "$(python3 page.py evil.html | grep -v '^#'; grep -nF '<img' evil.html
    grep -nF '<script>alert' evil.html)"
kolo report "$evil" --text > text
none "and without escape sequences in a terminal" "$(grep -c $'\x1b' text | grep -v '^0$')"
kolo report "$evil" --svg classes > classes.svg
python3 -c 'import xml.dom.minidom as x; x.parse("classes.svg")' 2> log
ok $? "and as text in an SVG file" log
kolo report "$evil" --json | python3 -c 'import json, sys; json.load(sys.stdin)' 2> log
ok $? "and as text in JSON" log

# ---- answers, of events that are known ----
# RUN [WAIT COMM]: a run folder of six epochs of four steps; validation loss is least after the third
made() {
    mkdir -p "$1"
    python3 - "${2:-0}" "${3:-0}" > "$1/events.jsonl" << 'EOF'
import json, sys
wait, comm = (float(part) / 2 for part in sys.argv[1:])
def say(event, **members): print(json.dumps({"event": event, **members}, separators=(",", ":")))
say("start", step=0, ranks=2, batch=8, steps=24, epoch_steps=4, time=1e9)
for s in range(1, 25):
    say("step", step=s, epoch=(s - 1) // 4, loss=3 - s / 10, lr=.1, seconds=.5, wait=wait, comm=comm)
    if s % 4 == 0: say("eval", step=s, loss=1 + (s / 4 - 3) ** 2 / 10, top1=.5 + s / 100, rows=10)
say("classes", step=24, images=[5, 5], right=[4, 1], confused=[[1, 0, 4], [0, 1, 1]])
EOF
}
answer() { kolo report "$1" --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["runs"][0]["answers"][sys.argv[1]])' "$2" > log; }
made known/a && answer known/a overfits
like log '^From epoch 4 on: .* best after epoch 3 \(1\) and is 1.9 now, 90 % worse' \
    "the epoch that overfits is named"
answer known/a worst
like log '^class 1: 20.0 % of its 5 images .* taken for class 0 \(4\)' \
    "so is the worst class, and what it is taken for"
answer known/a limits
like log '^Computing: 100 %.* or threads, a GPU, precision=bf16 or smaller' "what limits speed: computing"
echo 'precision: bf16' >> known/a/recipe.yaml && answer known/a limits
like log '^Computing: 100 %.* or threads, a GPU or smaller' "  bf16 is not advised to a run that has it"
made known/b 0.4 0.1 && answer known/b limits
like log '^Reading the data: 40 %' "what limits speed: 40 % of a step waits for data"
made known/c 0.1 0.3 && answer known/c limits
like log "^The ranks' sums: 30 %" "what limits speed: 30 % of a step waits for other ranks"
mkdir -p known/d && python3 -c '
print("{\"event\":\"start\",\"step\":0,\"ranks\":1,\"batch\":8,\"steps\":80,\"epoch_steps\":10,\"time\":1e9}")
for s in range(1, 81):
    print("{\"event\":\"step\",\"step\":%d,\"epoch\":%d,\"loss\":1,\"lr\":0.1,\"seconds\":%g,\"wait\":0}" %
          (s, (s - 1) // 10, 0.5 if s <= 40 else 0.1))' > known/d/events.jsonl
answer known/d limits
like log 'uneven, from 16 to 80 images a second' "and that the speed changed on the way"
kolo report known/a known/d out=pair.html > log 2>&1
is "$(grep -c 'Accuracy <small>Of the run a\. ' pair.html)" 1 "a curve that one of two runs has names it"

# ---- runs that did not end ----
made torn && printf '{"event":"step","step":25,"epo' >> torn/events.jsonl
kolo report torn --json > torn.json
is "$? $(grep -c '"torn_lines": 1,' torn.json)" "0 1" "a line that is cut off is left out"
kolo report torn > log 2>&1
is $? 0 "its page is written" log
like torn/report.html '1 of 3[0-9] lines of events.jsonl' "and says so"
mkdir begun && cp runs/a/recipe.yaml runs/a/run_id begun/
kolo report begun > log 2>&1
is $? 0 "a run without a step" log
sed -i 's/^lr:.*/learning_speed: 3/' begun/recipe.yaml
kolo report begun > log 2>&1
is "$? $(grep -c 'learning_speed' begun/report.html)" "0 1" \
    "a recipe of another version: the page says why it is not shown"

# ---- what is no run, no flag ----
refused() { # STATUS PATTERN WORDS...
    local status=$1 pattern=$2
    shift 2
    kolo report "$@" > log 2>&1
    is "$? $(grep -cE -- "$pattern" log)" "$status 1" "kolo report $*: exit $status" || diag < log
}
refused 2 'nowhere: there is no such run folder' nowhere
refused 2 'data is no run folder' data
refused 78 'which run\?'
refused 78 'one form at a time' runs/a --csv --json
refused 78 'no such plot; .* did you mean loss\?' runs/a --svg los
refused 78 'csw' runs/a --csw
refused 78 'lr= would be ignored' runs/a lr=3
refused 2 '--svg roc: .* has reported nothing of that' runs/a --svg roc

# ---- files beside the events ----
printf '{"points":[[0,0],[0.1,0.7],[0.5,0.9],[1,1]]}' > runs/a/roc.json
kolo plan resnet20_cifar data=synthetic val=none stages=2 ranks=2 batch=16 micro_batch=4 deterministic=true \
    conv=direct threads=1 timeline=runs/a/timeline.json > log 2>&1
ok $? "a simulated step of a pipeline" log
kolo report runs/a > log 2>&1
python3 page.py runs/a/report.html > figures
like figures '^# roc 4 0$' "RUN/roc.json: the curve"
is "$(sed -n 's/^# timeline //p' figures)" "$(grep -c '"ph":"X"' runs/a/timeline.json)" \
    "RUN/timeline.json: a span each"

# ---- a detector ----
kolo-pack --source scenes --split train --count 12 --out boxes > log 2>&1
timeout 100 kolo train model=yolox_nano size=64 batch=4 epochs=1 data=boxes val=boxes run=runs/boxes \
    threads=1 deterministic=true conv=direct conf=0.0001 > log 2>&1
ok $? "a run of a detector" log
none "its events have every class, and boxes of every other image" "$(python3 - << 'EOF'
import json
events = {e["event"]: e for e in map(json.loads, open("runs/boxes/events.jsonl"))}
classes = len(open("runs/boxes/classes.txt").read().split())
if [len(events["classes"][k]) for k in ("ap", "images")] != [classes] * 2: print(events["classes"])
found = events["examples"]["found"]
if events["examples"]["apart"] != 2 or any(f[0] % 2 for f in found): print(events["examples"])
# what is surely found needs a longer training: one box by hand
box = '"found":[[2,0,0.75,3,4,20,30]' + "," * bool(found)
lines = open("runs/boxes/events.jsonl").read().replace('"found":[', box)
open("runs/boxes/events.jsonl", "w").write(lines)
EOF
)"
kolo report runs/boxes > log 2>&1
is "$? $(grep -c 'class="example"' runs/boxes/report.html)" "0 6" "its page shows six images" log
like runs/boxes/report.html 'class="box found" x="3.0" y="4.0" width="17.0" height="26.0"><title>.* 75 %<' \
    "and a box that was found"
python3 -c '
import base64, re
for data in re.findall(r"data:image/jpeg;base64,([^\"]*)", open("runs/boxes/report.html").read()):
    image = base64.b64decode(data, validate=True)
    print(image[:2] == b"\xff\xd8" and image[-2:] == b"\xff\xd9")' > log
is "$(sort log | uniq -c | xargs)" "6 True" "which are JPEG files"
python3 page.py runs/boxes/report.html > figures
none "and is well formed" "$(grep -v '^#' figures)"
rm -r boxes && kolo report runs/boxes > log 2>&1
is "$? $(grep -c 'class="example"' runs/boxes/report.html)" "0 0" "without its data: a page without them"

# ---- what is documented ----
none "docs/reports.md names every member of an event that is read" "$(sed -n \
    '/^ \*/d; s/MEMBER(\([a-z_]*\), \([a-z0-9_]*\))/\n&\n/gp' "$TOP/src/report/tables.def" |
    sed -n 's/^MEMBER([a-z_]*, \([a-z0-9_]*\))$/\1/p' | sort -u | while IFS= read -r member; do
    grep -q "\`$member\`" "$TOP/docs/reports.md" || echo "$member"
done)"
none "and every member that these runs have written" "$(cat runs/*/events.jsonl | python3 -c '
import json, sys
text = open(sys.argv[1]).read()
print(*{k for l in sys.stdin if l[0] == "{" for k in json.loads(l) if f"`{k}`" not in text})' \
    "$TOP/docs/reports.md" | grep -v '^event$')"
refused 3 'nowhere/page.html' runs/a out=nowhere/page.html

# ---- ninety epochs ----
python3 - > events << 'EOF'
import json, random
random.seed(1)
some = random.random
def say(event, **members): print(json.dumps({"event": event, **members}))
say("start", step=0, ranks=8, batch=256, steps=27000, epoch_steps=300)
for s in range(1, 27001):
    say("step", step=s, epoch=(s - 1) // 300, loss=some() + 7 - s / 5000, lr=some(), top1=some(),
        grad_norm=some(), seconds=.3 + some() / 9, wait=some() / 9, comm=some() / 9, useful_batch=s)
    if s % 300 == 0:
        say("eval", step=s, loss=some(), top1=some(), top5=some(), rows=50000)
        say("classes", step=s, images=[50] * 1000, right=[int(50 * some()) for c in range(1000)],
            confused=[[int(999 * some()), int(999 * some()), 9] for c in range(1000)])
EOF
mkdir ninety && mv events ninety/events.jsonl
begin=$(now)
kolo report ninety > log 2>&1
status=$?
took=$(($(now) - begin)) size=$(wc -c < ninety/report.html)
[ $status = 0 ] && [ "$size" -lt 1048576 ]
ok $? "90 epochs, 27000 steps, 1000 classes: a page below 1 MiB ($size bytes, $took ms)" log
done_testing
