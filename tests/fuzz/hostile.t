#!/usr/bin/env bash
# The readers of untrusted files take or refuse whatever they get: a few hundred changed inputs each, the
# same ones every time.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
tests/fuzz/seeds.sh "$ROOM/seeds" > "$ROOM/log" 2>&1
ok $? "small inputs are made for every reader"
sed 's/^/# /' "$ROOM/log"
# files of inputs are best written to memory
export TMPDIR=$ROOM
[ ! -w /dev/shm ] || { TMPDIR=$(mktemp -d /dev/shm/kolo-test-XXXXXX) && at_end "rm -rf '$TMPDIR'"; }
for source in tests/fuzz/*.c; do
    name=$(basename "$source" .c)
    case $name in input | mutate) continue ;; esac
    [ "$name" != voc ] || ! built_without XML || { skip "voc: built without XML" && continue; }
    "$BUILD/tests/fuzz/$name" "$BUILD/tests/fuzz" "${KOLO_HOSTILE_INPUTS:-300}" "$ROOM/seeds/$name"/* > \
        "$ROOM/log" 2>&1
    status=$?
    ok $status "$name: $(grep -m 1 'seeds taken' "$ROOM/log" || echo "ended with status $status")"
    [ $status = 0 ] || tail -n 15 "$ROOM/log" | sed 's/^/#   /'
done
done_testing
