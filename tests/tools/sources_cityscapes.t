#!/usr/bin/env bash
# kolo-pack --source cityscapes: polygons of instances to boxes.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump
kolo-pack --source shapes --count 3 --shuffle-seed 0 --size 32 --resize exact --encoding raw --out \
    "$ROOM/shapes" > "$ROOM/log" 2>&1
mkdir "$ROOM/png" && for i in 0 1 2; do kolo-shards show "$ROOM/shapes" --index $i --out "$ROOM/png/$i.png" \
    > "$ROOM/log" || sed 's/^/# /' "$ROOM/log"; done
object() { printf '{"label": "%s", "polygon": %s%s}' "$1" "$2" "${3:-}"; }
file() { # CITY NAME OBJECTS
    mkdir -p "$ROOM/set/gtFine/train/$1"
    printf '{"imgHeight": 32, "imgWidth": 32, "objects": [%s]}' "$3" > \
        "$ROOM/set/gtFine/train/$1/$2_gtFine_polygons.json"
}
tree() {
    rm -rf "$ROOM/set" && mkdir -p "$ROOM/set/leftImg8bit/train/ulm" "$ROOM/set/leftImg8bit/train/aachen"
    cp "$ROOM/png/0.png" "$ROOM/set/leftImg8bit/train/ulm/ulm_000000_000019_leftImg8bit.png"
    cp "$ROOM/png/1.png" "$ROOM/set/leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png"
    cp "$ROOM/png/2.png" "$ROOM/set/leftImg8bit/train/aachen/aachen_000001_000019_leftImg8bit.png"
    file ulm ulm_000000_000019 "$(object road '[[0,0],[31,0],[31,31]]'), $(object car \
        '[[4,5],[11,5],[11,9],[4,9]]'), $(object persongroup '[[0,0],[10,0],[0,20]]'), $(object polegroup \
        '[[0,0],[1,1],[2,0]]')"
    file aachen aachen_000000_000019 ''
    file aachen aachen_000001_000019 "$(object bicycle '[[1,1],[3,1],[3,3]]' ', "deleted": 1'), $(object \
        caravan '[[1,1],[3,1],[3,3]]'), $(object train '[[-3,30],[50,30],[50,40]]' \
        ', "deleted": 0, "draw": true')"
    touch "$ROOM/set/gtFine/train/ulm/ulm_000000_000019_gtFine_color.png"
}
one() { tree && file ulm ulm_000000_000019 "$1"; }
CITY=(--source cityscapes --in "$ROOM/set" --shuffle-seed 0)

tree
packs "three images" "${CITY[@]}"
is "$(paths | tr ' ' '\n' | cut -d _ -f 1-2 |
    tr '\n' ' ')" "aachen/aachen_000000 aachen/aachen_000001 ulm/ulm_000000 " "by city and name"
is "$(boxes | cut -d ' ' -f 2-)" "5 0 -3 30 54 11
2 0 4 5 8 5
0 8 0 0 11 21" "instances of evaluated classes; groups are flagged, deleted ones left out"
is "$(table box_area)" "265 28 100" "areas are those of the polygons"
is "$(table box | cut -d ' ' -f 1-4)" "0 30 32 32" "what is outside of the image is cut off"
is "$(classes) $(table classes/source_id)" \
    "person rider car truck bus train motorcycle bicycle 24 25 26 27 28 31 32 33" \
    "eight classes with their published ids"
is "$(attribute box_form) $(attribute task)" "xywh detection" "the shard says what they are"
mv "$ROOM/set/gtFine" "$ROOM/elsewhere"
packs "annotations elsewhere" "${CITY[@]}" --annotations "$ROOM/elsewhere"
fails 2 'no folder .*gtFine/train' "no annotations" "${CITY[@]}"
rm -r "$ROOM/elsewhere"

bad() { # PATTERN TEXT OBJECTS
    one "$3"
    fails 2 "ulm_000000_000019_gtFine_polygons.json:1, byte [0-9]+: $1" "$2" "${CITY[@]}"
}
bad 'label `tram` is not one of Cityscapes' "an unknown label" "$(object tram '[[1,1],[3,1],[3,3]]')"
left_out 1 "leaves the image out with --on-error skip" "${CITY[@]}"
is "$(table box_class)" "5" "leaves the image out with --on-error skip: no other is left out"
one "$(object car '[[40,1],[43,1],[43,3]]'), $(object bus '[[1,1],[3,1],[3,3]]')"
fails 2 'polygons.json: a car: a box from \(40, 1\) to \(44, 4\) outside of its image of 32 x 32' \
    "an object outside of its image" "${CITY[@]}"
left_out 1 "is left out with --on-error skip" "${CITY[@]}"
is "$(boxes | grep ulm | cut -d ' ' -f 2)" "4" "is left out with --on-error skip: no other is left out"
bad 'a polygon of 2 points' "a polygon of two points" "$(object car '[[1,1],[3,1]]')"
bad 'a point of 3 numbers' "a point in space" "$(object car '[[1,1,1],[3,1,1],[2,2,2]]')"
bad 'an object without label' "no label" '{"polygon": [[1,1],[3,1],[3,3]]}'
bad 'NaN' "NaN" "$(object car '[[NaN,1],[3,1],[3,3]]')"
bad '`"` where an array' "a word for a polygon" "$(object car '"x"')"
one '' && echo '{"imgHeight": 32, "objects": []}' > \
    "$ROOM/set/gtFine/train/ulm/ulm_000000_000019_gtFine_polygons.json"
fails 2 'no imgHeight, imgWidth or objects' "no width" "${CITY[@]}"
tree && sed -i 's/32/33/' "$ROOM/set/gtFine/train/ulm/"*.json
fails 2 'ulm_000000_000019_leftImg8bit.png: has 32 x 32 pixels, its annotation says 32 x 33' "another size" \
    "${CITY[@]}"
tree && rm "$ROOM/set/leftImg8bit/train/ulm/"*
fails 2 'ulm_000000_000019_leftImg8bit.png: no such file' "no image" "${CITY[@]}"
tree && file bonn bonn_0 '' &&
    perl -e 'for (1 .. 2799) { link "$ARGV[0]/bonn_0$ARGV[1]", "$ARGV[0]/bonn_$_$ARGV[1]" or die }' \
    "$ROOM/set/gtFine/train/bonn" _gtFine_polygons.json
fails 2 '2803 images, the published set has 2975' "nearly the published set" "${CITY[@]}"
done_testing
