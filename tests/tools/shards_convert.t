#!/usr/bin/env bash
# kolo-shards convert: images in files of others.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards h5dump
kolo-pack --source shapes --count 60 --size 12 --no-shuffle --shards 1 --name a --out "$ROOM/a" > \
    "$ROOM/log" 2>&1 || exit 1
FROM=$(echo "$ROOM/a"/*.h5)
dump() { h5dump -d "$2" -y -w 100 "$1" | grep -v '^HDF5'; }
same() { dump "$FROM" "$2" | cmp -s - <(dump "$(echo "$1"/*.h5)" "$2"); }

kolo-shards convert "$FROM" --images images --labels label --out "$ROOM/b" > "$ROOM/log" 2>&1
ok $? "an array of bytes"
same "$ROOM/b" /images && same "$ROOM/b" /label && same "$ROOM/b" /crc32c && same "$ROOM/b" /stats/mean
ok $? "an array of bytes: the same images, labels, checksums and mean"
kolo-shards verify "$ROOM/b" > "$ROOM/log" 2>&1
ok $? "converted shards: verify exits 0"
if command -v h5repack > /dev/null; then
    h5repack -l images:CHUNK=7x12x12x3 -f images:GZIP=4 "$FROM" "$ROOM/packed.h5" > "$ROOM/log" 2>&1
    kolo-shards convert "$ROOM/packed.h5" --images images --labels label --out "$ROOM/c" --threads 3 > \
        "$ROOM/log" 2>&1 && same "$ROOM/c" /images
    ok $? "chunked and compressed"
else
    skip "no h5repack"
fi
kolo-shards convert "$FROM" --images images --labels label --out "$ROOM/d" --shards 3 --reshuffle 2 \
    --classes a,b,c,d,e,f,g,h,i,j > "$ROOM/log" 2>&1
kolo-shards info "$ROOM/d" > "$ROOM/log"
like "$ROOM/log" ' 9 +j +6 ' "class names, an order, more shards"
kolo-shards convert "$FROM" --images images --labels label --classes a,b --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "a label beyond the names: exit 2"
like "$ROOM/log" '/label\[[0-9]+\] is [2-9], but --classes names 2' \
    "a label beyond the names: the message names it"
kolo-shards convert "$FROM" --images images --labels crc32c --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "numbers that are no labels: exit 2"
like "$ROOM/log" '/crc32c\[[0-9]+\] is [0-9]+; labels go from 0 to 999999' \
    "numbers that are no labels: the message names one"
kolo-shards convert "$FROM" --images image --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "no such array: exit 2"
kolo-shards convert "$FROM" --images stats/mean --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "an array of another shape: exit 2"
kolo-shards convert "$FROM" --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 78 "which array? exit 78"
kolo-shards convert "$ROOM/nowhere.h5" --out "$ROOM/no" > "$ROOM/log" 2>&1
is "$? $(grep -c 'nowhere.h5: there is no such file' "$ROOM/log")" "2 1" "no such file: exit 2"
echo "no images" > "$ROOM/text.h5"
kolo-shards convert "$ROOM/text.h5" --images x --out "$ROOM/no" > "$ROOM/log" 2>&1
is $? 2 "not HDF5: exit 2"

if python3 -c 'import h5py' 2> /dev/null; then
    python3 - "$ROOM" << 'END'
import h5py, numpy as np, sys
room = sys.argv[1]
r = np.random.default_rng(1)
x, y = r.integers(0, 256, (50, 20, 24, 3), dtype=np.uint8), r.integers(0, 7, 50)
with h5py.File(room + "/x.h5", "w") as f:
    f["nchw"] = np.transpose(x, (0, 3, 1, 2)).astype(np.float32) / 255
    f["onehot"] = np.eye(7, dtype=np.float32)[y]
    f["gray"], f["flat"], f["y"] = x[..., 0].astype(np.int16), x.reshape(50, -1), y
    f["big"] = np.full((5, 4, 4), 300, np.int32)
np.savez(room + "/x.npz", x=x, y=y)
END
    kolo-shards convert "$ROOM/x.h5" --images nchw --labels onehot --scale 255 --reshuffle 3 --out \
        "$ROOM/o1" > "$ROOM/log" 2>&1
    kolo-shards convert "$ROOM/x.h5" --images gray --labels y --out "$ROOM/o2" > "$ROOM/log" 2>&1
    kolo-shards convert "$ROOM/x.h5" --images flat --shape 20x24x3 --labels y --out "$ROOM/o3" > "$ROOM/log" \
        2>&1
    is "$(python3 - "$ROOM" << 'END'
import glob, h5py, numpy as np, sys
room = sys.argv[1]
d = np.load(room + "/x.npz")
for n in ("o1", "o2", "o3"):
    f = h5py.File(glob.glob(f"{room}/{n}/*.h5")[0])
    i, a = f["id"][:], f["images"][:]
    print((a == d["x"][i][..., : a.shape[-1]]).all() and (f["label"][:] == d["y"][i]).all(), end=" ")
END
    )" "True True True " "planes of fractions with rows of ones, 16-bit gray, flat rows: as h5py reads them"
    kolo-shards convert "$ROOM/x.h5" --images big --out "$ROOM/no" > "$ROOM/log" 2>&1
    is $? 2 "a value that is no byte: exit 2"
    kolo-shards convert "$ROOM/x.h5" --images nchw --out "$ROOM/no" > "$ROOM/log" 2>&1
    is $? 78 "fractions without --scale: exit 78"
else
    skip "no h5py"
fi
# FFCV's format, written with numpy by its own definitions: FILE jpeg|raw|mixed
kolo-pack --source shapes --count 12 --no-shuffle --shards 1 --out "$ROOM/jpeg" > "$ROOM/log" 2>&1
for i in 0 1 2 3 4 5; do kolo-shards show "$ROOM/jpeg" --index $i --plain --out "$ROOM/$i.jpg" &&
    kolo-shards show "$ROOM/jpeg" --index $i --out "$ROOM/$i.png"; done > "$ROOM/sizes" 2>&1
if python3 -c 'import numpy' 2> /dev/null; then
    cat > "$ROOM/beton.py" << 'END'
import numpy as np, re, sys
room, mode = sys.argv[1:]
r = np.random.default_rng(2)
header = np.dtype([("version", "<u2"), ("num_fields", "<u2"), ("page_size", "<u4"), ("num_samples", "<u8"),
                   ("alloc_table_ptr", "<u8")], align=True)
alloc = np.dtype([("sample_id", "<u8"), ("ptr", "<u8"), ("size", "<u8")])
field = np.dtype([("type_id", "<u1"), ("name", ("<u1", 16)), ("arguments", ("<u1", (1024,)))], align=True)
image = np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("data_ptr", "<u8")])
record = np.dtype([("", np.dtype("<f8")), ("", image), ("", np.dtype("<i8"))], align=True)
sizes = re.findall(r"(\d+) x (\d+), \d+ bytes", open(room + "/sizes").read())
sizes = [tuple(map(int, m)) for m in sizes][::2]
n = len(sizes)
h, d, m, a = np.zeros(1, header), np.zeros(3, field), np.zeros(n, record), np.zeros(n, alloc)
h["version"], h["num_fields"], h["page_size"], h["num_samples"] = 2, 3, 1 << 21, n
for i, (t, name) in enumerate([(0, b"weight"), (2, b"image"), (1, b"label")]):
    d[i]["type_id"] = t
    d[i]["name"][: len(name)] = np.frombuffer(name, "<u1")
start = 1 << 21
blob = b""
for i in range(n):
    jpeg = mode == "jpeg" or (mode == "mixed" and i % 2)
    width, height = sizes[i] if jpeg or mode == "mixed" else (8, 6)
    data = open(f"{room}/{i}.jpg", "rb").read() if jpeg else \
        r.integers(0, 256, (height, width, 3), dtype=np.uint8).tobytes()
    m["f1"][i] = (0 if jpeg else 1, width, height, start + len(blob))
    m["f0"][i], m["f2"][i] = i / 2, (3 * i) % 4
    a[n - 1 - i] = (i, start + len(blob), len(data))
    open(f"{room}/{mode}.{i}", "wb").write(data)
    blob += data + bytes(7)
h["alloc_table_ptr"] = start + len(blob)
top = h.tobytes() + d.tobytes() + m.tobytes()
open(f"{room}/{mode}.beton", "wb").write(top + bytes(start - len(top)) + blob + a.tobytes())
END
    for mode in jpeg raw mixed; do
        python3 "$ROOM/beton.py" "$ROOM" $mode > "$ROOM/log" 2>&1
        kolo-shards convert "$ROOM/$mode.beton" --out "$ROOM/$mode.split" > "$ROOM/log" 2>&1
        ok $? ".beton of $mode"
        kolo-shards verify "$ROOM/$mode.split" --decode > "$ROOM/log" 2>&1
        ok $? "verifies"
        kolo-shards info "$ROOM/$mode.split" > "$ROOM/log"
        like "$ROOM/log" "^encoding +$mode" "keeps its encoding"
        FILE=$(echo "$ROOM/$mode.split"/*.h5)
        key=$([ $mode = raw ] && echo images || echo bytes)
        h5dump -d /$key -b LE -o "$ROOM/stored" "$FILE" > "$ROOM/log" 2>&1
        cat "$ROOM/$mode".[0-5] | cmp -s - "$ROOM/stored"
        ok $? "every way of reading: the stored bytes"
        is "$(h5dump -d /label -y "$FILE" | sed -n '/DATA {/,/}/p' |
            tr -dc '0-9,')" "0,3,2,1,0,3" "and the labels"
    done
    kolo-shards convert "$ROOM/raw.beton" --images label --out "$ROOM/no" > "$ROOM/log" 2>&1
    is $? 2 "a field that holds no images: exit 2"
    head -c -30 "$ROOM/raw.beton" > "$ROOM/short.beton"
    kolo-shards convert "$ROOM/short.beton" --out "$ROOM/no" > "$ROOM/log" 2>&1
    is $? 2 "a .beton that is cut off: exit 2"
    like "$ROOM/log" 'truncated or damaged' "says so"
else
    skip "no numpy"
fi
done_testing
