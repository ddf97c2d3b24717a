#!/usr/bin/env bash
# kolo-shards stats and bench.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards python3
value() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" \
    "$2"; }
kolo-pack --source scenes --count 50 --shards 2 --out "$ROOM/s" > "$ROOM/log" 2>&1 || exit 1
kolo-pack --source shapes --count 30 --size 8 --color gray --no-shuffle --out "$ROOM/raw" > "$ROOM/log" 2>&1 \
    || exit 1

kolo-shards stats "$ROOM/s" --json --threads 3 > "$ROOM/json" 2> "$ROOM/log"
ok $? "stats"
is "$(value "$ROOM/json" \
    'd["mean"] == d["stored_mean"] and d["std"] == d["stored_std"] and len(d["mean"])')" 3 \
    "counts what kolo-pack counted, to the last bit"
is "$(value "$ROOM/json" \
    '[sum(n for _, n in h["bars"]) for h in d["histograms"]
      if "pixels" in h["title"] or h["title"].startswith("boxes")]')" \
    "[50, 50, 50]" "every image is in every histogram"
is "$(value "$ROOM/json" \
    '[sum(n for _, n in h["bars"]) == d["pixels"] for h in d["histograms"]
      if h["title"].startswith("values")]')" \
    "[True, True, True]" "and every pixel"
kolo-shards stats "$ROOM/s" --json --threads 1 | cmp -s - "$ROOM/json"
ok $? "one thread counts the same as three"
# gray pixels counted by somebody else
if command -v h5dump > /dev/null; then
    kolo-shards stats "$ROOM/raw" --json > "$ROOM/json"
    h5dump -d /images -b LE -o "$ROOM/pixels" "$ROOM/raw"/*.h5 > "$ROOM/log" 2>&1
    is "$(python3 -c \
        'import statistics, sys; b = open(sys.argv[1], "rb").read();
print(len(b), "%.12f %.12f" % (statistics.fmean(b) / 255, statistics.pstdev(b) / 255))' \
        "$ROOM/pixels")" \
        "$(value "$ROOM/json" '"%d %.12f %.12f" % (d["pixels"], d["mean"][0], d["std"][0])')" \
        "mean and deviation are those of the pixels"
else
    skip "no h5dump"
fi
kolo-shards stats "$ROOM/s" --out "$ROOM/chart.png" > "$ROOM/log" && [ "$(head -c 4 "$ROOM/chart.png" |
    tail -c 3)" = PNG ]
ok $? "histograms as an image"
like "$ROOM/log" '^  circle +[0-9]+  #+$' "histograms as an image: as bars of text"
kolo-shards stats "$ROOM/s" --sample 10 > "$ROOM/log"
like "$ROOM/log" ': 10 of 50 images' "--sample"
kolo-shards stats "$ROOM/s" --out "$ROOM/chart.gif" > "$ROOM/log" 2>&1
is $? 78 "an image of another kind: exit 78"

kolo-shards bench "$ROOM/s" --threads 1,2 --json > "$ROOM/json" 2> "$ROOM/log"
ok $? "bench"
is "$(value "$ROOM/json" '[(c["io"], c["threads"]) for c in d["cells"]]')" \
    "[('pread', 1), ('pread', 2), ('mmap', 1), ('mmap', 2), ('h5', 1), ('h5', 2), ('ram', 1), ('ram', 2)]" \
    "a row a way and number of threads"
is "$(value "$ROOM/json" \
    'all(c["samples"] > 0 and
         abs(c["mb_per_s"] * c["seconds"] * 1e6 / c["samples"] * 50 / d["bytes"] - 1) < .3
         for c in d["cells"])')" \
    True \
    "bytes and samples belong together"
kolo-shards bench "$ROOM/raw" --io pread --threads 2 --cold > "$ROOM/log" 2>&1
like "$ROOM/log" '^pread +2 +[1-9][0-9]* ' "--cold"
kolo-shards bench "$ROOM/s" --io prad > "$ROOM/log" 2>&1
is $? 78 "an unknown way: exit 78"
like "$ROOM/log" 'did you mean pread' "the nearest is offered"
kolo-shards bench "$ROOM/s" --threads 0 > "$ROOM/log" 2>&1
is $? 78 "no threads: exit 78"
done_testing
