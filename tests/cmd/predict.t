#!/usr/bin/env bash
# kolo predict --csv and --json: of every image of a folder, and a line for each that cannot be read; names of
# classes in exports; what a run is told that is to go on for longer than it was begun for; kolo recipes.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack kolo-shards python3
export OMP_NUM_THREADS=1
cd "$ROOM" || exit 1
shapes_data 64 32
kolo train shapes data=data/train val=data/val run=run epochs=1 batch=32 threads=1 size=32 > log 2>&1
ok $? "a run" log
kolo-shards extract data/val --out files > log 2>&1
mkdir "a,b"
find files -name '*.jpg' | sort | head -n 11 | while read -r file; do cp "$file" "a,b/${file##*/}"; done
echo "no image" > "a,b/000000000.jpg"
echo "no image" > "a,b/zzz.jpg"
kolo predict run=run "a,b" top=3 > text 2> log
is $? 2 "two images cannot be read: exit 2"
kolo predict run=run "a,b" top=3 --csv > csv 2> log
is $? 2 "  --csv: likewise"
kolo predict run=run "a,b" top=3 --json > json 2> log
is $? 2 "  --json: likewise"
kolo predict run=run "a,b" logits=nowhere/l.json > early 2> log
is "$? $(wc -c < early) $(grep -c 'logits=nowhere/l.json: cannot write there: No such' log)" "3 0 1" \
    "logits= where no file can be: exit 3, before any image" log
none "text, CSV, JSON agree; every image is there once, in order, those that cannot be read with the cause" \
    "$(python3 - << 'END'
import csv, json, os, re
names = open("run/classes.txt").read().split("\n")
files = ["a,b/" + f for f in sorted(os.listdir("a,b"))]
said, path = {}, None
for line in open("text"):
    line = line.rstrip("\n")
    if not line.startswith(" "): path = line; said[path] = []
    else: said[path].append(re.fullmatch(r" +([\d.]+) % +(\d+)  (.*)", line).groups())
rows, data = list(csv.DictReader(open("csv"))), json.load(open("json"))
if [d["path"] for d in data] != files: print("order of JSON", [d["path"] for d in data])
if list(dict.fromkeys(r["path"] for r in rows)) != files: print("order of CSV")
for d in data:
    of = [r for r in rows if r["path"] == d["path"]]
    if d["path"] not in said:
        if len(of) != 1 or of[0]["error"] != d["error"] or "not an image" not in d["error"]: print(d, of)
        continue
    if [r["rank"] for r in of] != ["1", "2", "3"] or any(r["error"] for r in of): print(of)
    for r, c, s in zip(of, d["classes"], said[d["path"]], strict=True):
        same = r["class"] == str(c["class"]) == s[1] and r["name"] == c["name"] == s[2] == names[c["class"]]
        if not same or float(r["score"]) != c["score"] or abs(100 * c["score"] - float(s[0])) > 0.006:
            print(r, c, s)
if len(said) != 11: print(len(said), "images")
END
)"
kolo predict run "a,b" top=3 --csv 2> log | cmp - csv
ok $? "the run may be the first word, as of kolo eval" log
kolo train shapes weights=balanced > log 2>&1
is "$? $(grep -c 'init=FILE.*class_weight=balanced' log)" "78 1" \
    "weights= of a training: 78, and what is meant"
kolo predict run=run "a,b" --csv --json > log 2>&1
is $? 78 "--csv and --json together are refused"

kolo predict nowhere run > log 2>&1
is $? 2 "the first word is no folder: exit 2"
like log 'nowhere: there is no such run folder' "  and it is named"
kolo predict "$ROOM" > log 2>&1
is $? 78 "the first word is a folder without a recipe: exit 78"
like log 'is no run folder: it holds no recipe.yaml' "  and why it is no run"

kolo export run run.safetensors > log 2>&1 && python3 - > names << 'END'
import json, struct
data = open("run.safetensors", "rb").read()
head = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
print("\n".join(json.loads(head["__metadata__"]["classes"])))
END
cmp names run/classes.txt
ok $? "an export has the names of the classes" log
kolo train shapes data=data/train val=data/val run=run epochs=3 batch=32 threads=1 size=32 > log 2>&1
is $? 78 "more epochs than a run was begun for: exit 78"
like log 'epochs: was 1, now 3.*init= this one' "  and the way to go on is named"
kolo train shapes data=data/train val=data/val run=on init=run epochs=1 lr=0.01 batch=32 threads=1 size=32 \
    > log 2>&1
ok $? "  which works" log

kolo recipes > table
is "$(tail -n +2 table | grep -c '^[a-z]')" \
    "$(($(find "$TOP/share/recipes" -name '*.yaml' | wc -l) + 1))" "kolo recipes: a row for each"
like table '^resnet50_imagenet +resnet50 +0.761 top-1 after 90 epochs ' "  what it reaches"
none "  columns as wide as what stands in them" "$(awk '/^kolo / {next}
    NR == 1 {n = index($0, "network"); r = index($0, "reaches")}
    substr($0, n - 2, 2) != "  " || substr($0, n, 1) == " " || substr($0, r - 2, 2) != "  "' table)"
kolo recipes shapes | cmp - "$TOP/share/recipes/shapes.yaml"
ok $? "kolo recipes NAME: the recipe as it stands"
kolo recipes shape > log 2>&1
is "$? $(grep -c 'did you mean shapes' log)" "78 1" "  a name that is none: the nearest"
done_testing
