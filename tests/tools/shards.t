#!/usr/bin/env bash
# kolo-shards: info, verify, show.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
kolo-pack --source shapes --count 60 --shards 3 --out "$ROOM/s" > "$ROOM/log" 2>&1 || exit 1
kolo-shards verify "$ROOM/s" > "$ROOM/log" 2>&1
is $? 0 "a fresh split verifies"
like "$ROOM/log" '60 samples in 3 shards are whole' "a fresh split verifies: samples and shards are printed"
kolo-shards info "$ROOM/s" --json > "$ROOM/info.json"
if command -v python3 > /dev/null; then
    is "$(python3 -c \
        'import json, sys; d = json.load(open(sys.argv[1]));
print(d["samples"], d["encoding"], len(d["classes"]), d["classes"][1]["count"])' \
        "$ROOM/info.json")" \
        "60 jpeg 10 6" "info --json is JSON"
else
    skip "no python3"
fi
kolo-shards show "$ROOM/s" --index 7 --out "$ROOM/a.png" > "$ROOM/log" && [ "$(head -c 4 "$ROOM/a.png" |
    tail -c 3)" = PNG ]
ok $? "show writes a PNG"
like "$ROOM/log" \
    '^sample 7: [a-z]+ \(label [0-9]\), [0-9]+ x [0-9]+, [0-9]+ bytes, from [a-z]+/[0-9]+\.jpg$' \
    "show writes a PNG: prints class, size and source"
kolo-shards show "$ROOM/s" --count 20 --out "$ROOM/sheet.png"
ok $? "a contact sheet"
kolo-shards show "$ROOM/s" --index 3 > "$ROOM/log"
[ "$(wc -l < "$ROOM/log")" -gt 20 ]
ok $? "an image in characters"
kolo-shards show "$ROOM/s" --index 60 > "$ROOM/log" 2>&1
is $? 78 "a sample beyond the end: exit 78"
kolo-shards inof "$ROOM/s" > "$ROOM/log" 2>&1
is $? 78 "an unknown command: exit 78"
like "$ROOM/log" 'did you mean info' "the nearest is offered"
kolo-shards info "$ROOM" > "$ROOM/log" 2>&1
is $? 2 "a folder without split: exit 2"

# one byte in the images of the second shard
FILE=$ROOM/s/shapes-train-00001-of-00003.h5
at=$(h5dump -H -p -d /bytes "$FILE" 2> /dev/null | sed -n 's/.*OFFSET \([0-9]*\).*/\1/p')
: "${at:=$(grep -abo -m 1 JFIF "$FILE" | head -n 1 | cut -d: -f 1)}"
printf '\377' | dd of="$FILE" bs=1 seek=$((at + 40000)) conv=notrunc 2> /dev/null
kolo-shards verify "$ROOM/s" > "$ROOM/log" 2>&1
is $? 2 "one changed byte: verify exits 2"
like "$ROOM/log" '00001-of-00003.h5: sample [0-9]+ .*checksum' \
    "one changed byte: verify exits 2: names shard and sample"
truncate -s 3000 "$ROOM/s/shapes-train-00002-of-00003.h5"
kolo-shards verify "$ROOM/s" > "$ROOM/log" 2>&1
is $? 2 "a truncated shard: verify exits 2"
like "$ROOM/log" '00002-of-00003.h5' "a truncated shard: verify exits 2: the message names it"
rm "$ROOM/s/shapes-train-00002-of-00003.h5"
kolo-shards verify "$ROOM/s" > "$ROOM/log" 2>&1
is $? 2 "a missing shard: verify exits 2"
done_testing
