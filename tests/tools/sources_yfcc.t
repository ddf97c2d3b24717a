#!/usr/bin/env bash
# kolo-pack --source yfcc100m: rows of metadata, and the photos of them that are there.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump
small_images 3
# of the edition with row number and hash: 25 columns
row() { # NUMBER ID HASH TAGS MARKER
    printf \
        '%s\t%s\t%s\t1@N00\tsomebody\t2012-02-16 09:56:37.0\t1331840483\tCanon\tIMG\tMy+photo\t%s\t\t-81.8\t24.5\t12\thttp://flickr.com/p\thttp://farm8.staticflickr.com/7205/%s_abc.jpg\tAttribution License\thttp://creativecommons.org\t7205\t8\tabc\tdef\tjpg\t%s\n' \
        "$1" "$2" "$3" "$4" "$2" "$5"
}
rows() { row 0 11 aaabbbccc new+york,sky,,sky 0 && row 1 12 dddeeefff sky,caf%C3%A9%2C+bar 0 &&
    row 2 13 000111222 film 1 && row 3 14 333444555 gone 0 && row 4 15 666777888 '' 0; }
tree() {
    rm -rf "$ROOM/set" && mkdir -p "$ROOM/set/aaa/bbb" "$ROOM/set/ddd/eee" "$ROOM/set/666/777"
    cp "$ROOM/images/0.jpg" "$ROOM/set/aaa/bbb/aaabbbccc.jpg"
    cp "$ROOM/images/1.jpg" "$ROOM/set/ddd/eee/dddeeefff.jpg"
    cp "$ROOM/images/2.jpg" "$ROOM/set/666/777/666777888.jpg"
    rows > "$ROOM/meta"
}
FLICKR=(--source yfcc100m --in "$ROOM/set" --annotations "$ROOM/meta" --shuffle-seed 0)

tree
packs "photos by hash" "${FLICKR[@]}"
is "$(paths) $(table id)" "aaa/bbb/aaabbbccc.jpg ddd/eee/dddeeefff.jpg 666/777/666777888.jpg 11 12 15" \
    "those that are there, with their numbers"
is "$(table tag_offset) $(table tag) $(table tag_value)" "0 2 4 4 1 2 2 0 1 1 1 1" \
    "those that are there, with their numbers: with their tags, each once"
kolo-shards info "$ROOM/out" > "$ROOM/info"
like "$ROOM/info" 'café, bar' "tags: percent codes are decoded"
is "$(attribute task)" "multilabel" "the task says so"
like "$ROOM/log" '1 photos of the metadata are not in .*; 1 videos' "others are counted"
gzip -k "$ROOM/meta"
packs "metadata packed by gzip" --source yfcc100m --in "$ROOM/set" --annotations "$ROOM/meta.gz"
printf 'sky\nnew york\n' > "$ROOM/names"
packs "some tags" "${FLICKR[@]}" --classes "$ROOM/names"
is "$(table tag_offset) $(table tag)" "0 2 3 3 1 0 0" "some tags: are classes in their order"
printf '11\tperson:0.875,indoor:0.5\n12\t\n14\tcat:0.75\n15\tindoor:1\n' > "$ROOM/auto"
packs "autotags" "${FLICKR[@]}" --annotations "$ROOM/auto"
is "$(classes) $(table tag_offset) $(table tag) $(table tag_value)" \
    "indoor person 0 2 2 3 1 0 0 0.875 0.5 1" "autotags: are taken instead, with their scores"
cut -f 2,4- "$ROOM/meta" > "$ROOM/short" && mv "$ROOM/short" "$ROOM/meta"
rm -rf "$ROOM/set" && mkdir "$ROOM/set" && cp "$ROOM/images/0.jpg" "$ROOM/set/12.jpg"
packs "the first edition's 23 columns, photos by number" "${FLICKR[@]}"
is "$(paths) $(table tag | wc -w)" "12.jpg 2" "the first edition's 23 columns, photos by number: are read"
mv "$ROOM/set/12.jpg" "$ROOM/set/12_abc.jpg"
packs "photos by the name in their URL" "${FLICKR[@]}"
is "$(paths)" "12_abc.jpg" "photos by the name in their URL: are found"

wrong() { # PATTERN TEXT ROW
    tree && printf '%b\n' "$3" >> "$ROOM/meta"
    fails 2 "meta:6: $1" "$2" "${FLICKR[@]}"
}
wrong '3 columns; metadata has 23 or 25' "three columns" 'a\tb\tc'
left_out 1 "is left out with --on-error skip" "${FLICKR[@]}"
wrong '26 columns' "a column too many" "$(row 5 11 a b 0)\tx"
wrong '`x` in the last column' "no marker" "$(row 5 16 a b x)"
wrong '`1x` is no number of a photo' "no number" "$(row 5 1x a b 0)"
wrong 'photo 11 for the second time' "a photo twice" "$(row 5 11 aaabbbccc b 0)"
tree && printf '11\tperson:0.875,indoor\n' > "$ROOM/auto"
fails 2 'auto:1: `indoor` where tag:score' "an autotag without score" "${FLICKR[@]}" --annotations \
    "$ROOM/auto"
printf '11\tperson:nan\n' > "$ROOM/auto"
fails 2 'auto:1: `person:nan`' "an autotag with NaN" "${FLICKR[@]}" --annotations "$ROOM/auto"
rm -rf "$ROOM/set" && mkdir "$ROOM/set"
fails 2 'none of 4 photos of the metadata is there' "no photos" "${FLICKR[@]}"
fails 78 'takes one --in folder of photos, and --annotations' "no metadata" --source yfcc100m --in "$ROOM/set"
tree && row 5 16 "$(printf 'x%.0s' {1..9})" "$(seq -s , 100001)" 0 > "$ROOM/meta" &&
    cp "$ROOM/images/0.jpg" "$ROOM/set/16.jpg"
fails 2 '100001 different tags; --classes FILE' "too many tags" "${FLICKR[@]}"
packs "too many tags, of which a few are chosen" "${FLICKR[@]}" --classes <(echo 77)
is "$(table tag)" "0" "too many tags, of which a few are chosen: are read all the same"
done_testing
