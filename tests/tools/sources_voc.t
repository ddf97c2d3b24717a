#!/usr/bin/env bash
# kolo-pack --source voc-xml: lists of images, and a file of XML for each.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump
small_images 3
if built_without XML; then
    mkdir -p "$ROOM/set/Annotations"
    fails 78 'XML: this program was built without libxml2; install libxml2-dev' "a build without libxml2" \
        --source voc-xml --in "$ROOM/set"
    skip_all "built without XML"
fi
object() { printf \
    '<object><name>%s</name><pose>Left</pose>%s<bndbox><xmin>%s</xmin><ymin>%s</ymin><xmax>%s</xmax><ymax>%s</ymax></bndbox></object>\n' \
    "$@"; }
annotation() { printf '<annotation><filename>%s.jpg</filename>\n%s</annotation>\n' "$1" "$2" > \
    "$ROOM/set/Annotations/$1.xml"; }
tree() {
    rm -rf "$ROOM/set" && mkdir -p "$ROOM/set/Annotations" "$ROOM/set/JPEGImages" "$ROOM/set/ImageSets/Main"
    for i in 0 1 2; do cp "$ROOM/images/$i.jpg" "$ROOM/set/JPEGImages/p$i.jpg"; done
    printf 'p2\np0\n' > "$ROOM/set/ImageSets/Main/train.txt"
    annotation p0 "$(object zebra '<truncated>1</truncated><difficult>0</difficult>' 1 2 30 40.5)$(object \
        ant '<difficult>1</difficult>' 5 5 9 9)"
    annotation p1 "$(object zebra '' 1 1 2 2)"
    annotation p2 ''
}
VOC=(--source voc-xml --in "$ROOM/set" --shuffle-seed 0)

tree
packs "a small set" "${VOC[@]}"
is "$(paths)" "JPEGImages/p2.jpg JPEGImages/p0.jpg" "images of the list, in its order"
is "$(boxes)" "JPEGImages/p0.jpg 1 4 1 2 30 40.5
JPEGImages/p0.jpg 0 2 5 5 9 9" "boxes with class, difficult and truncated"
is "$(table box | cut -d ' ' -f 1-4)" "0 1 30 40.5" \
    "images of the list, in its order: in pixels from 0, the last one within"
is "$(classes) $(attribute box_form)" "ant zebra xyxy" "classes in byte order"
echo p1 > "$ROOM/list"
packs "a list of one's own" "${VOC[@]}" --annotations "$ROOM/list"
is "$(paths)" "JPEGImages/p1.jpg" "a list of one's own: is taken"
cp -r "$ROOM/set" "$ROOM/other"
packs "two folders" "${VOC[@]}" --in "$ROOM/other"
is "$(paths)" \
    "$ROOM/set/JPEGImages/p2.jpg $ROOM/set/JPEGImages/p0.jpg $ROOM/other/JPEGImages/p2.jpg $ROOM/other/JPEGImages/p0.jpg" \
    "become one split"
tree && rm -r "$ROOM/set/ImageSets"
packs "no lists" "${VOC[@]}"
is "$(paths)" "JPEGImages/p0.jpg JPEGImages/p1.jpg JPEGImages/p2.jpg" "means all annotations"
tree && annotation p0 "$(object person '' 1 2 30 40)"
packs "classes of the challenge only" "${VOC[@]}"
is "$(table box_class) $(classes | wc -w)" "14 20" "classes of the challenge only: are all its 20"
tree && mv "$ROOM/set/JPEGImages/p0.jpg" "$ROOM/set/JPEGImages/p0.jpeg"
packs "another ending than the annotation says" "${VOC[@]}"
is "$(paths)" "JPEGImages/p2.jpg JPEGImages/p0.jpeg" "another ending than the annotation says: is found"

bad() { # PATTERN TEXT XML
    tree && printf '%s' "$3" > "$ROOM/set/Annotations/p0.xml"
    fails 2 "Annotations/p0.xml:$1" "$2" "${VOC[@]}"
}
bad '2: .* a box from \(9, 5\) to \(5, 9\)' "corners the wrong way round" "<annotation>
$(object a '' 9 5 5 9)</annotation>"
left_out 1 "leaves the image out with --on-error skip" "${VOC[@]}"
is "$(paths) $(classes)" "JPEGImages/p2.jpg " "leaves the image out with --on-error skip: its class too"
tree && annotation p0 "<size><width>16</width><height>12</height></size>$(object zebra '' 1 2 3 4)$(object \
    ant '' 17 2 19 4)"
fails 2 'JPEGImages/p0.jpg: a box from \(16, 1\) to \(19, 4\) outside of its image of 16 x 12' \
    "a box outside of its image" "${VOC[@]}"
annotation p0 "<size><width>0</width><height>0</height></size>$(object zebra '' 1 2 3 4)$(object ant '' 4017 \
    2 4019 4)"
packs "is not known where the annotation does not say the size" "${VOC[@]}"
is "$(boxes | cut -d ' ' -f 3)" "0
128" "and is then flagged"
bad '1: .* a box from \(-1, 5\)' "a negative corner" "<annotation>$(object a '' -1 5 5 9)</annotation>"
bad '1: `nan` where a number' "NaN" "<annotation>$(object a '' nan 5 5 9)</annotation>"
bad '1: `` where a number' "an empty number" "<annotation>$(object a '' '' 5 5 9)</annotation>"
bad '1: 2 where 0 or 1' "a flag that is 2" "<annotation>$(object a '<difficult>2</difficult>' 1 5 5 \
    9)</annotation>"
bad '1: .* lacks its bndbox' "no box" '<annotation><object><name>a</name></object></annotation>'
bad '1: .* lacks its bndbox' "half a box" \
    '<annotation><object><name>a</name><bndbox><xmin>1</xmin></bndbox></object></annotation>'
bad '1: .* lacks a name' "no name" "<annotation>$(object '' '' 1 1 2 2)</annotation>"
bad '1: <image>, where <annotation>' "another file" '<image/>'
bad '1: an element where text is expected' "an element for a name" \
    '<annotation><object><name><b/></name></object></annotation>'
bad '2: </b> where </object>' "tags that cross" '<annotation><object>
</b></object></annotation>'
bad '1: no element' "an empty file" ''
bad '1: text outside' "a file that is not XML" '{"a": 1}'
bad '3: a document type' "a bomb of entities" '<?xml version="1.0"?>

<!DOCTYPE a [<!ENTITY b "aaaa"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><annotation>&c;</annotation>'
bad '1: a document type' "a file of the system by an entity" \
    '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]><annotation><filename>&b;</filename></annotation>'
bad '1: &c is no character' "an entity that is not declared" '<annotation>&c;</annotation>'
bad '1: elements nest deeper than 64' "deep nesting" "<annotation>$(printf '<a>%.0s' {1..100000})"
bad '1: a comment is not closed' "a comment that does not end" '<annotation><!-- </annotation>'
bad '' "UTF-16" "$(printf '\377\376<\000a\000' | tr -d '\000')"
printf '<?xml version="1.0" encoding="UTF-16"?><annotation>%s</annotation>' "$(object zebra '' 1 2 3 4)" > \
    "$ROOM/set/Annotations/p0.xml"
packs "another encoding than the bytes have" "${VOC[@]}"
is "$(boxes | cut -d ' ' -f 4-) $(classes)" "1 2 3 4 zebra" "another encoding than the bytes have: ignored"
good=$(printf \
    '<?xml version="1.0" encoding="UTF-8"?>\n<!-- a comment --><annotation x="1" y='"'&lt;'"'><folder/>
<object><part><name>b</name></part><name><![CDATA[<&]]>&amp;&#65;&#x42;</name>
<bndbox><ymax>4</ymax><xmin> 1 </xmin><ymin>2</ymin><xmax>3</xmax></bndbox></object>
<?pi?></annotation><!-- end -->')
tree && printf '%s' "$good" > "$ROOM/set/Annotations/p0.xml"
packs "what else XML has" "${VOC[@]}"
is "$(boxes | cut -d ' ' -f 4-) $(classes)" "1 2 3 4 <&&AB" "what else XML has: is read"
failed=0
for ((at = 0; at < ${#good} - 12; at += 3)); do
    printf '%s' "${good:0:at}" > "$ROOM/set/Annotations/p0.xml"
    kolo-pack "${VOC[@]}" --dry-run > "$ROOM/log" 2>&1
    [ $? = 2 ] && grep -q 'Annotations/p0.xml' "$ROOM/log" || failed=1
done
ok $failed "cut off at any byte: exit 2, and the file is named"
tree && rm "$ROOM/set/Annotations/p0.xml"
fails 2 'Annotations/p0.xml' "no annotation" "${VOC[@]}"
tree && rm "$ROOM/set/JPEGImages/p0.jpg"
fails 2 'JPEGImages/p0.jpg: no such file' "no image" "${VOC[@]}"
tree && printf 'p0  1\np1 -1\n' > "$ROOM/set/ImageSets/Main/train.txt"
fails 2 'train.txt:1: 2 columns' "a list of a class" "${VOC[@]}"
fails 2 'no such file' "no list" "${VOC[@]}" --split test
mkdir "$ROOM/void"
fails 2 'no folder Annotations' "another folder" --source voc-xml --in "$ROOM/void"
fails 78 'one --annotations list for each --in' "lists and folders" "${VOC[@]}" --annotations a \
    --annotations b

CELLS=$KOLO_SHARED/data/detection/voc-bccd
if [ -d "$CELLS" ]; then
    for part in train:205 val:87 test:72; do
        split=${part%:*}
        packs "blood cells, $split" --source voc-xml --in "$CELLS" --split "$split" --shuffle-seed 5
        cp "$ROOM/log" "$ROOM/log.$split"
        sed "s|.*|$CELLS/Annotations/&.xml|" "$CELLS/ImageSets/Main/$split.txt" | xargs -d '\n' \
            perl -0777 -ne \
            'my ($id) = $ARGV =~ m{([^/]*)\.xml$};
              my $flags = qr{<truncated>(\d)</truncated>.*?<difficult>(\d)</difficult>}s;
              my $low = qr{<xmin>(.*?)</xmin>.*?<ymin>(.*?)</ymin>}s;
              my $high = qr{<xmax>(.*?)</xmax>.*?<ymax>(.*?)</ymax>}s;
              while (m{<object>.*?<name>(.*?)</name>.*?$flags.*?$low.*?$high.*?</object>}gs) {
                print join(" ", "JPEGImages/$id.jpg", {Platelets => 0, RBC => 1, WBC => 2}->{$1},
                    4 * $2 + 2 * $3, $4, $5, $6, $7), "\n" }' |
                    sort > \
                    "$ROOM/want"
        boxes | sort > "$ROOM/got"
        cmp -s "$ROOM/want" "$ROOM/got"
        ok $? "every object is in the shard as it is in the annotations"
        is "$(paths | wc -w)" "${part#*:}" "every image too"
        cut -d ' ' -f 2 "$ROOM/got" >> "$ROOM/all"
    done
    is "$(sort "$ROOM/all" | uniq -c |
        tr -s ' \n' ' ')" " 361 0 4155 1 372 2 " "361 platelets, 4155 red and 372 white cells"
    is "$(cat "$ROOM"/log.* | grep -o 'BloodImage_[0-9]*.xml:[0-9]*: .*mere point' | cut -d . -f 1 | sort |
        tr '\n' ' ')" \
        "BloodImage_00338 BloodImage_00343 " "two boxes without area are told, with file and line"
    kolo-shards verify "$ROOM/out" > "$ROOM/log"
    ok $? "the shard verifies"
else
    skip "no blood cells here"
fi
done_testing
