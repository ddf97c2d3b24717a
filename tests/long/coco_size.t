#!/usr/bin/env bash
# A file of annotations as large as COCO's: 470 MB are read in less than 10 seconds and 200 MB of memory.
. "$(dirname "$0")/../lib.sh"
need kolo-pack perl
[ -x /usr/bin/time ] || skip_all "no /usr/bin/time"
mkdir -p "$ROOM/coco/annotations" "$ROOM/coco/train2017"
FILE=$ROOM/coco/annotations/instances_train2017.json
[ "$(df -k --output=avail "$ROOM" | tail -n 1)" -gt 1000000 ] || skip_all "no 1 GB free in $ROOM"

# as many images, annotations and bytes as the published file, in its order: categories come last
perl > "$FILE" << 'END'
my ($images, $annotations) = (118287, 860001);
print '{"info": {"description": "made by a test"}, "licenses": [{"id": 1, "name": "none"}], "images": [';
for my $i (0 .. $images - 1) {
    my $name = sprintf "%012d.jpg", 3 * $i + 9;
    printf '%s{"license": 3, "file_name": "%s", '
        . '"coco_url": "http://images.cocodataset.org/train2017/%s", "height": 480, "width": 640, '
        . '"date_captured": "2013-11-14 11:18:45", '
        . '"flickr_url": "http://farm9.staticflickr.com/8186/8119368305_4e622c8349_z.jpg", "id": %d}',
        $i ? ', ' : '', $name, $name, 3 * $i + 9;
}
print '], "annotations": [';
my $state = 1;
my $next = sub { $state = ($state * 1103515245 + 12345) % 2147483648; return $state / 2147483648 * $_[0] };
# polygons of several lengths, made once: their text is passed over
my @polygon = map { join ', ', map { sprintf '%.2f', $next->(640) } 1 .. 2 * (6 + $_) } 0 .. 34;
for my $a (0 .. $annotations - 1) {
    my $image = 3 * int($next->($images)) + 9;
    printf '%s{"segmentation": [[%s]], "area": %.4f, "iscrowd": 0, "image_id": %d, '
        . '"bbox": [%.2f, %.2f, %.2f, %.2f], "category_id": %d, "id": %d}',
        $a ? ', ' : '', $polygon[$a % 35], $next->(90000), $image,
        $next->(300), $next->(200), $next->(300), $next->(200),
        1 + $a % 11, $a + 1;
}
print '], "categories": [',
    join(', ', map { qq({"supercategory": "thing", "id": $_, "name": "class $_"}) } 1 .. 11), ']}';
END
: > "$ROOM/coco/train2017/000000000009.jpg"
bytes=$(stat -c %s "$FILE")
[ "$bytes" -gt 460000000 ] && [ "$bytes" -lt 520000000 ]
ok $? "the file has $((bytes / 1000000)) MB"
cat "$FILE" > /dev/null
/usr/bin/time -f '%e %U %S %M' -o "$ROOM/time" kolo-pack --source coco-json --in "$ROOM/coco" --dry-run > \
    "$ROOM/log" 2>&1
ok $? "--dry-run of the COCO-sized split: exit 0"
like "$ROOM/log" '^118287 images, 11 classes' "images are counted"
like "$ROOM/log" '^860001 boxes' "boxes are counted"
read -r seconds user system kilobytes < "$ROOM/time"
echo "# $seconds s, of which $user + $system s of a core; $((kilobytes / 1024)) MB resident"
# of a core, as other work may share it
awk -v s="$user" -v t="$system" 'BEGIN { exit !(s + t < 10) }'
ok $? "less than 10 s of CPU time"
[ "$kilobytes" -lt 200000 ]
ok $? "less than 200 MB of memory"
done_testing
