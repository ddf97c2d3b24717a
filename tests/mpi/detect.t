#!/usr/bin/env bash
# A detector on two ranks, and one whose batches are served: the numbers of one rank alone. Boxes in VOC's
# form are judged by its rules too.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/tools/sources.sh
. "$(dirname "$0")/../tools/sources.sh"
need mpiexec kolo kolo-pack kolo-shards
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
small_images 4
object() { printf \
    '<object><name>%s</name><bndbox><xmin>%s</xmin><ymin>%s</ymin><xmax>%s</xmax><ymax>%s</ymax></bndbox></object>' \
    "$@"; }
mkdir -p "$ROOM/set/Annotations" "$ROOM/set/JPEGImages"
for i in {0..3}; do
    cp "$ROOM/images/$i.jpg" "$ROOM/set/JPEGImages/p$i.jpg"
    echo "<annotation><filename>p$i.jpg</filename>$(object ant 1 2 $((8 + i)) $((9 + i)))$(object bee \
        $((i + 1)) 3 16 17)</annotation>" > "$ROOM/set/Annotations/p$i.xml"
done
packs "four images, two boxes each" --source voc-xml --in "$ROOM/set"
args=(model=yolox_nano size=64 batch=4 lr=.01 mosaic=1 hsv=1 flip=true close_mosaic=1 deterministic=true \
    conv=direct threads=1 readers=2
    bn=ghost micro_batch=2 reduce=canonical epochs=2 eval_epochs=0 data="$ROOM/out" val="$ROOM/out")
kolo train "${args[@]}" run="$ROOM/one" > "$ROOM/log" 2>&1
is $? 0 "a detector on one rank: exit 0"
mpiexec -n 2 kolo train "${args[@]}" run="$ROOM/two" > "$ROOM/log" 2>&1
is $? 0 "two ranks"
is "$(losses "$ROOM/two" | wc -l)" 2 "two epochs of a step"
is "$(losses "$ROOM/two") $(weights_sum "$ROOM/two")" "$(losses "$ROOM/one") $(weights_sum "$ROOM/one")" \
    "learn the same, bit for bit"
figures() { grep -E 'maxDets|VOC' "$1" && tr '{' '\n' < "$2" | sort; }
kolo eval run="$ROOM/one" threads=1 conf=0 results="$ROOM/one.json" > "$ROOM/one.txt" 2> "$ROOM/log"
is $? 0 "evaluation by one"
mpiexec -n 2 kolo eval run="$ROOM/one" threads=1 conf=0 results="$ROOM/two.json" > "$ROOM/two.txt" 2> \
    "$ROOM/log"
is $? 0 "a detector evaluated by two ranks: exit 0"
is "$(figures "$ROOM/two.txt" "$ROOM/two.json" | sed 's/},*$//;s/}]*$//' |
    cksum)" "$(figures "$ROOM/one.txt" "$ROOM/one.json" | sed 's/},*$//;s/}]*$//' | cksum)" \
    "finds the same boxes and comes to the same figures"
is "$(grep -cE '^ VOC mean AP by the rule of (2007|2010).* = 0\.[0-9]{4}$' "$ROOM/one.txt")" 2 \
    "VOC's, too, by both rules"

kolo serve-data "${args[@]}" data_server="$ROOM/socket" > "$ROOM/serve" 2>&1 &
server=$!
at_end 'kill "$server" 2> /dev/null'
for _ in {1..200}; do
    kolo serve-data --status data_server="$ROOM/socket" > "$ROOM/status" 2> /dev/null && break
    sleep 0.05
done
kolo train "${args[@]}" run="$ROOM/served" data_server="$ROOM/socket" > "$ROOM/log" 2>&1
is "$(losses "$ROOM/served") $(weights_sum "$ROOM/served")" "$(losses "$ROOM/one") $(weights_sum \
    "$ROOM/one")" "a served detector learns the same"
like "$ROOM/log" ' ([2-9]|1[0-9]) of [0-9]+ batches came from the server' \
    "a served detector: several batches came from the server"
kill "$server" && wait "$server"
is $? 0 "kolo serve-data after SIGTERM: exit 0"
done_testing
