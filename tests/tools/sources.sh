# shellcheck shell=bash
# For the tests of kolo-pack's sources, after lib.sh. What is packed lies in $ROOM/out.
small_images() { # COUNT: $ROOM/images/0.jpg ..., of several small sizes
    kolo-pack --source shapes --count "$1" --shuffle-seed 0 --out "$ROOM/shapes" > "$ROOM/log" 2>&1
    mkdir -p "$ROOM/images"
    local i
    for ((i = 0; i < $1; i++)); do
        kolo-shards show "$ROOM/shapes" --index $i --out "$ROOM/images/$i.jpg" > /dev/null
    done
}
packs() { # TEXT ARGUMENTS...
    local text=$1 status
    shift
    rm -rf "$ROOM/out"
    kolo-pack "$@" --out "$ROOM/out" > "$ROOM/log" 2>&1
    status=$?
    ok $status "$text"
    [ $status = 0 ] || sed 's/^/#     /' "$ROOM/log"
}
fails() { # STATUS PATTERN TEXT ARGUMENTS...
    local status=$1 pattern=$2 text=$3
    shift 3
    rm -rf "$ROOM/out"
    kolo-pack "$@" --out "$ROOM/out" > "$ROOM/log" 2>&1
    is $? "$status" "$text: exit $status"
    like "$ROOM/log" "$pattern" "$text: the message"
}
left_out() { # COUNT TEXT ARGUMENTS...
    local count=$1 text=$2
    shift 2
    packs "$text" "$@" --on-error skip
    like "$ROOM/log" "$count wrong annotations? w" "and told"
    is "$(grep -c '^[^	]*	[^	]*$' "$ROOM"/out/*.rejects)" "$count" "and listed"
}
# what is in the only shard, in words: all numbers of a table; all strings
h5() { h5dump -w 0 -y -o "$ROOM/values" "$@" "$ROOM"/out/*.h5 > "$ROOM/dump.log" 2>&1 &&
    tr -s ' ,\n\t' ' ' < "$ROOM/values" | sed 's/^ //; s/ $//'; }
table() { h5 -d "/$1"; }
classes() { h5 -d /classes/name | tr -d '"' | sed 's/\\000//g'; }
attribute() { h5dump -a "/$1" "$ROOM"/out/*.h5 | sed -n 's/.*(0): "\{0,1\}\([^"\\]*\).*/\1/p'; }
# paths of the samples, in their order
paths() {
    h5dump -b -d /source -o "$ROOM/blob" "$ROOM"/out/*.h5 > /dev/null
    table source_offset > "$ROOM/offsets"
    perl -e \
        'local $/; my ($blob, $at) = map { open my $f, "<", $_ or die; <$f> } @ARGV; my @at = split " ", $at;
        print join " ", map { substr $blob, $at[$_], $at[$_ + 1] - $at[$_] } 0 .. $#at - 1' "$ROOM/blob" \
            "$ROOM/offsets"
}
# a line for each box, in the order of the samples: path class flags and the four numbers of the source
boxes() {
    local name
    paths | tr ' ' '\n' > "$ROOM/t.paths"
    for name in box_offset box_class box_flags; do table $name | tr ' ' '\n' > "$ROOM/t.$name"; done
    h5dump -w 0 -y -m '%.17g' -o "$ROOM/t.box_source" -d /box_source "$ROOM"/out/*.h5 > "$ROOM/dump.log" 2>&1
    perl -e \
        'sub column { open my $f, "<", "$ARGV[0]/t.$_[0]" or die; local $/;
          split /[\s,]+/, <$f> =~ s/^\s+//r }
        my ($p, $o, $c, $f, $n) = map { [column($_)] } qw(paths box_offset box_class box_flags box_source);
        for my $i (0 .. $#$p) { for my $b ($o->[$i] .. $o->[$i + 1] - 1) {
            print join(" ", $p->[$i], $c->[$b], $f->[$b], map { 0 + $n->[4 * $b + $_] } 0 .. 3), "\n" } }' \
                "$ROOM"
}

# Four images as COCO has them: $ROOM/set; categories 9, ant, and 20, bee. IMAGE: its
# number; ANNOTATIONS: JSON
coco_of_four() { # ANNOTATIONS IMAGE IMAGE IMAGE IMAGE
    local i images=()
    small_images 4
    mkdir -p "$ROOM/set/annotations" "$ROOM/set/train2017"
    for i in 0 1 2 3; do
        cp "$ROOM/images/$i.jpg" "$ROOM/set/train2017/$i.jpg"
        images+=("{\"id\": ${*:i+2:1}, \"file_name\": \"$i.jpg\"}")
    done
    printf \
        '{"images": [%s], "categories": [{"id": 9, "name": "ant"}, {"id": 20, "name": "bee"}], "annotations": [%s]}' \
        "$(IFS=, && echo "${images[*]}")" "$1" > "$ROOM/set/annotations/instances_train2017.json"
}
