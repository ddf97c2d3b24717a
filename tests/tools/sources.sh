# shellcheck shell=bash
# For the tests of kolo-pack's sources, after lib.sh. What is packed lies in $ROOM/out.
small_pictures() { # COUNT: $ROOM/pictures/0.jpg ... of 32 x 32 pixels
    kolo-pack --source shapes --count "$1" --shuffle-seed 0 --out "$ROOM/shapes" > "$ROOM/log" 2>&1
    mkdir -p "$ROOM/pictures"
    local i
    for ((i = 0; i < $1; i++)); do
        kolo-shards show "$ROOM/shapes" --index $i --out "$ROOM/pictures/$i.jpg" > /dev/null
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
}
# what is in the only shard, in words: all numbers of a table; all strings
h5() { h5dump -w 0 -y -o "$ROOM/values" "$@" "$ROOM"/out/*.h5 > "$ROOM/dump.log" 2>&1 && tr -s ' ,\n\t' ' ' < "$ROOM/values" | sed 's/^ //; s/ $//'; }
table() { h5 -d "/$1"; }
classes() { h5 -d /classes/name | tr -d '"' | sed 's/\\000//g'; }
attribute() { h5dump -a "/$1" "$ROOM"/out/*.h5 | sed -n 's/.*(0): "\{0,1\}\([^"\\]*\).*/\1/p'; }
# paths of the samples, in their order
paths() {
    h5dump -b -d /source -o "$ROOM/blob" "$ROOM"/out/*.h5 > /dev/null
    local offsets i
    read -r -a offsets <<< "$(table source_offset)"
    for ((i = 0; i + 1 < ${#offsets[@]}; i++)); do
        dd if="$ROOM/blob" bs=1 skip="${offsets[i]}" count=$((offsets[i + 1] - offsets[i])) status=none
        [ $((i + 2)) -lt ${#offsets[@]} ] && printf ' '
    done
}
