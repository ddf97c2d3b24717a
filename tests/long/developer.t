#!/usr/bin/env bash
# docs/developer.md: its changes apply to a copy of the sources, the copy compiles, what was added is there
# and works, and the tests of its module pass.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo git make patch perl
COPY=$ROOM/copy
mkdir "$COPY" && sources . | grep -v '^shared/' | tr '\n' '\0' | xargs -0 tar -cf - | tar -xf - -C "$COPY"
ok $? "the sources are copied"
[ -d "$COPY/docs" ] || { done_testing; }
# the objects too, so that only what changes is compiled
cp -a "$BUILD" "$COPY/build" && find "$COPY/build" -name '*.d' -exec sed -i "s|$BUILD|build|g" {} +
perl -ne 'if (/^```diff$/) { $in = 1; next } $in = 0 if /^```$/; print if $in' docs/developer.md > \
    "$ROOM/changes"
[ "$(grep -c '^+++ ' "$ROOM/changes")" -ge 7 ]
ok $? "the changes of docs/developer.md are found ($(grep -c '^+++ ' "$ROOM/changes") files)"
patch -d "$COPY" -p1 < "$ROOM/changes" > "$ROOM/log" 2>&1
is $? 0 "they apply to these sources" || diag < "$ROOM/log"
UNIT=build/tests/unit/comm_algorithms
nice make -C "$COPY" -j2 programs "$UNIT" > "$ROOM/log" 2>&1
is $? 0 "the copy compiles" || tail -n 20 "$ROOM/log" | diag
PATH=$COPY/build/bin:$PATH
is "$(command -v kolo)" "$COPY/build/bin/kolo" "the copy's kolo is taken"
shapes_data 256 64
cd "$ROOM" || exit 1
try() { # TEXT COMMAND...
    local text=$1
    shift
    timeout 120 "$@" > "$ROOM/log" 2>&1
    is $? 0 "$text: exit 0" || tail -n 5 "$ROOM/log" | diag
}
try "the network is listed" kolo models tiny
try "and trained" kolo train shapes model=tiny data=data/train val=none run=runs/tiny epochs=1
try "the option is explained" kolo help cautious
try "the optimizer is explained" kolo help lion
try "and trains, with the option" \
    kolo train shapes optimizer=lion cautious=true lr=0.001 data=data/train val=none run=runs/lion epochs=1
kolo train shapes cautious=true data=data/train val=none run=runs/refused epochs=1 > "$ROOM/log" 2>&1
is $? 78 "the option is refused with another optimizer: exit 78"
kolo bench --algorithms | grep -q 'broadcast *flat'
ok $? "the algorithm is listed"
if ranks_start && hydra; then
    try "and its results are right" mpiexec -n 3 kolo bench broadcast comm_algorithm=flat max=64K check=1
    like "$ROOM/log" 'Out of bounds values : 0 OK' "the new algorithm: the bench counts no wrong value"
else
    skip "no mpiexec"
fi
ran "${UNIT##*/} with it" "$COPY/$UNIT"
# what the rules of the sources say of it
KOLO_BUILD=$COPY/build prove "$COPY/tests/lint/rooms.t" "$COPY/tests/lint/text.t" > "$ROOM/log" 2>&1
is $? 0 "the rules of the sources hold" || tail -n 30 "$ROOM/log" | diag
done_testing
