#!/usr/bin/env bash
# kolo-pack killed with SIGKILL at random moments, resumed, killed again: in the end the bytes of a packing
# that nobody disturbed.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
sums() { (cd "$1" && sha256sum -- *); }
kolo-pack --source shapes --count 60 --out "$ROOM/shapes" > "$ROOM/log" 2>&1
mkdir -p "$ROOM/photos/a" "$ROOM/photos/b"
for i in $(seq 0 59); do kolo-shards show "$ROOM/shapes" --index "$i" --out "$ROOM/photo-$i.jpg" > \
    /dev/null; done
for i in $(seq 0 5999); do echo "$ROOM/photo-$((i % 60)).jpg $ROOM/photos/$([ \
    $((i % 3)) = 0 ] && echo a || echo b)/$i.jpg"; done |
    while read -r from to; do ln "$from" "$to"; done
RANDOM=20
# CASE COUNT ARGUMENTS...: COUNT kills, by one, two or three ranks in turn
disturbed() {
    local name=$1 kills=$2 done_=0 killed=0 start=1 ranks pid took
    shift 2
    local begin=$EPOCHREALTIME
    kolo-pack "$@" --shards 3 --out "$ROOM/$name" > "$ROOM/log" 2>&1
    ok $? "$name: undisturbed"
    took=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { print int((b - a) * 1000) }')
    while [ $start -le $((kills * 5)) ]; do
        ranks=$((start % 3 + 1))
        ranks_start || ranks=1
        local run=(kolo-pack)
        [ $ranks -gt 1 ] && run=(mpiexec -n "$ranks" kolo-pack)
        "${run[@]}" "$@" --shards 3 --out "$ROOM/$name-killed" --resume > "$ROOM/log" 2>&1 &
        pid=$!
        if [ $killed -lt "$kills" ]; then
            sleep "$(awk -v most="$took" -v part=$RANDOM \
                'BEGIN { printf "%.3f", (50 + most * .5 * part / 32767) / 1000 }')"
            local victim=$pid
            [ $ranks -gt 1 ] && victim=$(pgrep -f "$ROOM/$name-killed" |
                while read -r one; do [ "$(cat "/proc/$one/comm" 2> /dev/null)" = kolo-pack ] &&
                echo "$one"; done | head -n 1)
            [ -n "$victim" ] && kill -KILL "$victim" 2> /dev/null && killed=$((killed + 1))
        fi
        wait $pid 2> /dev/null
        done_=$?
        [ $done_ = 0 ] && [ $killed = "$kills" ] && break
        if [ $done_ = 0 ]; then # sooner than it was killed as often as that: from the beginning
            [ "$(sums "$ROOM/$name-killed")" = "$(sums "$ROOM/$name")" ] || break
            rm -rf "$ROOM/$name-killed"
        fi
        start=$((start + 1))
    done
    is "$done_ $killed" "0 $kills" "$name: complete after $kills kills"
    is "$(sums "$ROOM/$name-killed")" "$(sums "$ROOM/$name")" "$name: the same bytes"
    is "$(find "$ROOM/$name-killed" -name '.pack*')" "" "$name: nothing else is left"
}
disturbed raw 7 --source imagefolder --in "$ROOM/photos" --size 96
disturbed kept 7 --source imagefolder --in "$ROOM/photos"
disturbed boxes 6 --source scenes --count 1500 --resize letterbox --size 128
done_testing
