#!/usr/bin/env bash
# kolo-pack --source lfw: people and their images, and pairs of them.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sources.sh"
need kolo-pack kolo-shards h5dump
small_images 6
people() {
    rm -rf "$ROOM/lfw" && mkdir -p "$ROOM/lfw/Al_Gore" "$ROOM/lfw/Bo" "$ROOM/lfw/Cher"
    cp "$ROOM/images/0.jpg" "$ROOM/lfw/Al_Gore/Al_Gore_0001.jpg"
    cp "$ROOM/images/1.jpg" "$ROOM/lfw/Al_Gore/Al_Gore_0002.jpg"
    cp "$ROOM/images/2.jpg" "$ROOM/lfw/Bo/Bo_0001.jpg"
    cp "$ROOM/images/3.jpg" "$ROOM/lfw/Bo/Bo_0002.jpg"
    cp "$ROOM/images/4.jpg" "$ROOM/lfw/Cher/Cher_0011.jpg"
}
pairs() { printf "$1" > "$ROOM/pairsDevTest.txt"; }
LFW=(--source lfw --in "$ROOM/lfw")
PAIRS=("${LFW[@]}" --annotations "$ROOM/pairsDevTest.txt")

people
pairs '1\nBo\t1\t2\nAl_Gore\t2\tCher\t11\n'
packs "people and pairs" "${PAIRS[@]}" --shuffle-seed 0
is "$(classes)" "Al_Gore Bo Cher" "people are classes"
is "$(table label)" "0 0 1 1 2" "their images have their labels"
is "$(table pair_set_dev_test) $(table pair_same_dev_test) $(table pair_fold_dev_test)" "2 3 1 4 1 0 0 0" \
    "pairs name samples"
is "$(attribute task)" "classification,pairs" "the task says so"
packs "the same, shuffled" "${PAIRS[@]}" --shuffle-seed 3
read -r -a at <<< "$(paths)"
read -r -a pair <<< "$(table pair_set_dev_test)"
is "${at[pair[0]]} ${at[pair[1]]} ${at[pair[2]]} ${at[pair[3]]}" \
    "Bo/Bo_0001.jpg Bo/Bo_0002.jpg Al_Gore/Al_Gore_0002.jpg Cher/Cher_0011.jpg" "pairs follow their images"
mkdir "$ROOM/home" && cp -r "$ROOM/lfw" "$ROOM/home/lfw_funneled" && cp "$ROOM/pairsDevTest.txt" "$ROOM/home"
packs "pairs are found beside the people" --source lfw --in "$ROOM/home"
is "$(table pair_same_dev_test)" "1 0" "pairs found beside the people: the same pairs"
cp -r "$ROOM/lfw" "$ROOM/home/lfw"
fails 2 'both .* are there' "two alignments in one folder" --source lfw --in "$ROOM/home"
packs "people without pairs" "${LFW[@]}"
like "$ROOM/log" 'no pairs' "people without pairs: a warning"

pairs '1\nBo\t1\t3\nAl_Gore\t2\tCher\t11\n'
fails 2 'DevTest.txt:2: there is no image Bo_0003' "a pair of an image that is not there" "${PAIRS[@]}"
left_out 1 "such a pair is left out with --on-error skip" "${PAIRS[@]}"
is "$(table pair_same_dev_test)" "0" "the other stays"
pairs '1\nBo\t1\tAl_Gore\t2\nAl_Gore\t2\tCher\t11\n'
fails 2 'DevTest.txt:2: 4 columns, a pair of one person has 3' "a pair of two people where one is expected" \
    "${PAIRS[@]}"
pairs '1\nBo\t1\t2\nBo\t2\tBo\t1\n'
fails 2 'DevTest.txt:3: a pair of two people names Bo twice' "two people who are one" "${PAIRS[@]}"
pairs '1\nBo\t1\tx\nBo\t2\tCher\t11\n'
fails 2 'DevTest.txt:2: `x` is no number' "an image without number" "${PAIRS[@]}"
pairs '2\nBo\t1\t2\nAl_Gore\t2\tCher\t11\n'
fails 2 'DevTest.txt' "fewer pairs than promised" "${PAIRS[@]}"
pairs '2\nBo\t1\t2\nBo\t1\t2\n'
fails 2 '2 pairs, the first line promises 4; it is cut off' "a file that is cut off" "${PAIRS[@]}"
pairs '1\nBo\t1\t2\nBo\t1\tCher\t11\nBo\t1\t2\n'
fails 2 'DevTest.txt:4: more pairs' "more pairs than promised" "${PAIRS[@]}"
pairs 'Bo\t1\t2\n'
fails 2 'DevTest.txt:1: the first line' "no first line" "${PAIRS[@]}"
printf '2 1\nBo\t1\t2\nBo\t1\tCher\t11\nBo\t1\t2\nBo\t2\tCher\t11\n' > "$ROOM/other.txt"
packs "folds" "${LFW[@]}" --annotations "$ROOM/other.txt"
is "$(table pair_fold_view2)" "0 0 1 1" "folds: are kept"
fails 2 'pairs view2 are given twice' "one set twice" "${LFW[@]}" --annotations "$ROOM/other.txt" \
    --annotations "$ROOM/other.txt"
cp "$ROOM/images/5.jpg" "$ROOM/lfw/Bo/Cher_0012.jpg"
fails 2 'Bo/Cher_0012.jpg: the name is not Bo_NNNN.jpg' "an image in another one's folder" "${LFW[@]}"
left_out 1 "such an image is left out with --on-error skip" "${LFW[@]}"
people && mkdir "$ROOM/lfw/Dan"
fails 2 'Dan: a person without images' "an empty folder" "${LFW[@]}"
mkdir "$ROOM/void"
fails 2 'no folders of people' "no people" --source lfw --in "$ROOM/void"
people && perl -e \
    'for (0 .. 5739) { mkdir "$ARGV[1]/P$_" or die; link $ARGV[0], "$ARGV[1]/P$_/P${_}_0001.jpg" or die }' \
    "$ROOM/images/0.jpg" "$ROOM/lfw"
fails 2 '5745 images of 5743 people, the published set has 13233 of 5749' "nearly the published set" \
    "${LFW[@]}"

FACES=$KOLO_SHARED/data/lfw
if [ -d "$FACES" ]; then
    packs "1,583 faces" --source lfw --in "$FACES/crop150" --annotations "$FACES/pairs_folds1-2.txt"
    kolo-shards info "$ROOM/out" > "$ROOM/info"
    like "$ROOM/info" '^samples +1583 ' "the whole of LFW: all its images"
    like "$ROOM/info" '^classes +844' "the whole of LFW: all its people"
    # back to the lines of the file: names and numbers from the paths of the samples
    paths | tr ' ' '\n' > "$ROOM/paths"
    table pair_set_view2 | tr ' ' '\n' | paste - - | perl -e 'open my $p, "<", $ARGV[0]; chomp(my @p = <$p>);
        while (<STDIN>) { my @w = map { $p[$_] =~ m{/(.*)_0*(\d+)\.jpg$}; [$1, $2] } split;
            print join("\t", @{$w[0]}, $w[0][0] eq $w[1][0] ? () : $w[1][0], $w[1][1]), "\n" }' \
                "$ROOM/paths" > "$ROOM/back"
    tail -n +2 "$FACES/pairs_folds1-2.txt" | cmp -s - "$ROOM/back"
    ok $? "1,200 pairs in the shards are those of the file, in its order"
    is "$(table pair_same_view2 | tr ' ' '\n' | uniq -c |
        tr -s ' \n' ' ')" " 300 1 300 0 300 1 300 0 " "300 of one person, 300 of two, in each fold"
    is "$(table pair_fold_view2 | tr ' ' '\n' | uniq -c | tr -s ' \n' ' ')" " 600 0 600 1 " "two folds"
    kolo-shards verify "$ROOM/out" > "$ROOM/log"
    ok $? "the shard verifies"
else
    skip "no faces here"
fi
done_testing
