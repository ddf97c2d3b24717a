#!/usr/bin/env bash
# kolo-pack --source list: a text file of paths and labels.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump
small_images 6
list() { printf "$1" > "$ROOM/list.tsv"; }
LIST=(--source list --in "$ROOM/list.tsv")

list 'images/0.jpg\tdog\nimages/1.jpg\tcat\n\nimages/2.jpg\tdog\n'
packs "names as labels" "${LIST[@]}" --shuffle-seed 0
is "$(table label)" "1 0 1" "names become classes in byte order"
is "$(classes)" "cat dog" "names become classes in byte order: their names"
is "$(paths)" "images/0.jpg images/1.jpg images/2.jpg" "paths stay as they are in the list"
list 'images/0.jpg\t3\r\nimages/1.jpg\t0\r\n'
packs "numbers as labels" "${LIST[@]}" --shuffle-seed 0
is "$(table label)" "3 0" "numbers are the labels"
is "$(classes)" "0 1 2 3" "classes are all numbers up to the largest"
printf 'ant\nbee\n\ncow\ndog\nelk\n' > "$ROOM/names"
packs "names for numbers" "${LIST[@]}" --shuffle-seed 0 --annotations "$ROOM/names"
is "$(classes)" "ant bee cow dog elk" "come from --annotations"
printf 'ant\nbee\n' > "$ROOM/names"
fails 2 'names 2 classes, but there is a label 3' "a name too few" "${LIST[@]}" --annotations "$ROOM/names"
list "$ROOM/images/0.jpg\ta\nimages/1.jpg\tb\n"
packs "absolute and relative paths in one list" "${LIST[@]}"

list 'images/0.jpg\ta\nimages/1.jpg b\n'
fails 2 'list.tsv:2: 2 columns .* has 1' "a blank in place of the tab" "${LIST[@]}"
left_out 1 "a wrong line is left out with --on-error skip" "${LIST[@]}"
list 'images/0.jpg\ta\tb\n'
fails 2 'list.tsv:1: 2 columns .* has 3' "three columns" "${LIST[@]}"
list 'images/0.jpg\t\n'
fails 2 'list.tsv:1: the path or the label is empty' "a label that is empty" "${LIST[@]}"
list 'images/0.jpg\t-1\n'
fails 2 'label -1: labels that are numbers go from 0' "a negative label" "${LIST[@]}"
list 'images/0.jpg\ta\nnowhere.jpg\ta\n'
fails 2 "$ROOM/nowhere.jpg: no such file" "an image that is not there" "${LIST[@]}"
list 'images/0.jpg\ta\0\n'
fails 2 'list.tsv:1: a zero byte' "a file that is not text" "${LIST[@]}"
list '\n'
fails 2 'no lines' "an empty list" "${LIST[@]}"
fails 2 'nothing.tsv: no such file' "no list" --source list --in "$ROOM/nothing.tsv"
gzip "$ROOM/list.tsv"
list 'images/0.jpg\ta\n' && gzip -f "$ROOM/list.tsv"
packs "a list packed by gzip" --source list --in "$ROOM/list.tsv.gz"
head -c 25 "$ROOM/list.tsv.gz" > "$ROOM/cut.gz"
fails 2 'cut.gz: .*fetch the file again' "a .gz that is cut off" --source list --in "$ROOM/cut.gz"
done_testing
