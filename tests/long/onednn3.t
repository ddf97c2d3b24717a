#!/usr/bin/env bash
# Kolo built on oneDNN 3 instead of the system's: the programs are linked with it, and its unit tests of
# operations, networks and plans and the golden figures pass as they do on the other. A build of its own,
# about ten minutes.
#   DNNL3=FOLDER with include/ and lib/ of one, instead of the packages of PyPI
#   DNNL3_BUILD=FOLDER keeps the build between runs
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
# shellcheck source=tests/peers/onednn3.sh
. tests/peers/onednn3.sh
need kolo make
home=${DNNL3:-$ROOM/onednn3} own=${DNNL3_BUILD:-$ROOM/build}
onednn3_home "$home" "$ROOM/log" || skip_all "no oneDNN 3: $(tail -n 1 "$ROOM/log")"
units=()
for unit in tests/unit/{ops,models,exec,plan,graph}_*.c; do
    units+=("$own/tests/unit/$(basename "$unit" .c)")
done
onednn3_build "$home" "$own" "$ROOM/log" programs "$own/tests/golden" "${units[@]}"
ok $? "Kolo is built on it" "$ROOM/log" || done_testing
warnings=$(grep -E 'warning:' "$ROOM/log")
none "  without a warning" "$warnings"
ldd "$own/bin/kolo" > "$ROOM/loaded"
like "$ROOM/loaded" "libdnnl\\.so\\.3 => $home/lib/" "its program loads it"
for unit in "${units[@]}"; do
    timeout 600 "$unit" > "$ROOM/out" 2>&1
    status=$?
    ok $status "${unit##*/}: $(grep -c '^ok' "$ROOM/out") checks pass" || grep -A 2 '^not ok' "$ROOM/out" |
    diag
done
for group in ops optim train models; do
    timeout 1800 "$own/tests/golden" "tests/golden/$group" > "$ROOM/out" 2>&1
    status=$?
    ok $status "golden figures of $group/: $(grep -c '^ok' "$ROOM/out") checks pass" ||
        grep -A 2 '^not ok' "$ROOM/out" | diag
done
done_testing
