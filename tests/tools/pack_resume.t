#!/usr/bin/env bash
# kolo-pack stopped in every way, and resumed: the bytes of a run that was never stopped.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
ARGS=(--source shapes --count 1400 --shards 2 --encoding raw --size 64)
sums() { (cd "$1" && sha256sum -- *); }
kolo-pack "${ARGS[@]}" --out "$ROOM/whole" > "$ROOM/log" 2>&1 || { sed 's/^/# /' "$ROOM/log" && exit 1; }
want=$(sums "$ROOM/whole")
begin() { # DIR [COMMAND...]: a slow packing goes on in the background, $pid, and has noted something
    local dir=$1
    shift
    "$@" kolo-pack "${ARGS[@]}" --threads 1 --out "$dir" > "$ROOM/log" 2>&1 &
    pid=$!
    journalled "$dir" $pid || ok 1 "$dir: something is noted before the end" "$ROOM/log"
}

begin "$ROOM/killed"
kill -KILL $pid
wait $pid 2> /dev/null
is $? 137 "killed while writing"
kolo-shards info "$ROOM/killed" > "$ROOM/log" 2>&1
is $? 2 "what it left is no split yet"
kolo-pack "${ARGS[@]}" --out "$ROOM/killed" > "$ROOM/log" 2>&1
is $? 78 "an unfinished packing without --resume: exit 78"
like "$ROOM/log" '--resume goes on with it, --force starts again' "the two ways on are named"
kolo-pack "${ARGS[@]}" --out "$ROOM/killed" --quality 80 --resume > "$ROOM/log" 2>&1
is $? 78 "--resume with other options is refused"
like "$ROOM/log" 'quality=80' "both plans are shown"
kolo-pack "${ARGS[@]}" --out "$ROOM/killed" --resume > "$ROOM/log" 2>&1
is $? 0 "--resume goes on"
like "$ROOM/log" '[1-9][0-9]* kept' "finished samples are kept"
is "$(sums "$ROOM/killed")" "$want" "after kill -9: the same bytes"
[ ! -e "$ROOM/killed/.pack" ]
ok $? "a finished packing: no work folder is left"

for signal in TERM USR1; do
    begin "$ROOM/$signal"
    kill -$signal $pid
    wait $pid
    is $? 75 "SIG$signal: exit 75"
    like "$ROOM/log" '--resume' "SIG$signal: the message names the way on"
    kolo-pack "${ARGS[@]}" --out "$ROOM/$signal" --resume > "$ROOM/log" 2>&1
    like "$ROOM/log" '[1-9][0-9]* kept' "what was finished is kept"
    is "$(sums "$ROOM/$signal")" "$want" "SIG$signal, --resume: the same bytes"
done

# damage in a finished sample of an unfinished packing is found by its checksum and made good
begin "$ROOM/rot"
kill -KILL $pid
wait $pid 2> /dev/null
printf '\252\125\252\125' | dd of="$ROOM/rot/.pack/shapes-train-00000-of-00002.h5" bs=1 \
    seek=$((1048576 + 100)) conv=notrunc 2> /dev/null
kolo-pack "${ARGS[@]}" --out "$ROOM/rot" --resume > "$ROOM/log" 2>&1
is "$(sums "$ROOM/rot")" "$want" "a sample that was damaged in between is made again"

if ranks_start; then
    begin "$ROOM/ranks" mpiexec -n 2
    for one in $(pgrep -x kolo-pack); do
        # at once: the packing may soon be over
        mapfile -d '' words < "/proc/$one/cmdline"
        [[ " ${words[*]} " != *" $ROOM/ranks "* ]] || { kill -TERM "$one" && break; }
    done
    wait $pid
    is $? 75 "SIGTERM to one of two ranks stops both"
    mpiexec -n 3 kolo-pack "${ARGS[@]}" --out "$ROOM/ranks" --resume > "$ROOM/log" 2>&1
    is "$(sums "$ROOM/ranks")" "$want" "resumed by three ranks: the same bytes"
    KOLO_HEARTBEAT_TIMEOUT=2 begin "$ROOM/stopped" mpiexec -n 2
    for one in $(pgrep -x kolo-pack); do
        tr '\0' '\n' < "/proc/$one/cmdline" | grep -qxF "$ROOM/stopped" || continue
        tr '\0' '\n' < "/proc/$one/environ" | grep -qxE '(PMI|OMPI_COMM_WORLD)_RANK=1' && kill -STOP "$one"
    done
    wait $pid
    is $? 69 "one of two ranks is stopped: exit 69"
    like "$ROOM/log" 'kolo-pack: launch: no progress in .*: rank 1 on host .* was stopped' \
        "the other names it"
    kolo-pack "${ARGS[@]}" --out "$ROOM/stopped" --resume > "$ROOM/log" 2>&1
    is "$(sums "$ROOM/stopped")" "$want" "--resume: the same bytes"
else
    for _ in 1 2 3 4 5; do skip "no mpiexec"; done
fi

kolo-pack "${ARGS[@]}" --out "$ROOM/whole" > "$ROOM/log" 2>&1
is $? 78 "a finished split is not packed over"
kolo-pack "${ARGS[@]}" --out "$ROOM/whole" --resume > "$ROOM/log" 2>&1
is $? 0 "--resume of what is complete has nothing to do"
kolo-pack "${ARGS[@]}" --out "$ROOM/whole" --resume --quality 70 > "$ROOM/log" 2>&1
is $? 78 "--resume with other options: exit 78"
kolo-pack "${ARGS[@]}" --out "$ROOM/whole" --force > "$ROOM/log" 2>&1
is "$(sums "$ROOM/whole")" "$want" "--force packs again"
done_testing
