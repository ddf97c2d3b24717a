#!/usr/bin/env bash
# Every golden case that there is; nothing may be left out but K-FAC, late weights (delayed/), which no mode
# has, and what needs real images where none are here. Three minutes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
[ -x "$BUILD/tests/golden" ] || skip_all "build/tests/golden is not built"
"$BUILD/tests/golden" tests/golden > "$ROOM/out" 2>&1
none "every check passes ($(grep -c '^ok' "$ROOM/out"))" "$(grep -A 1 '^not ok' "$ROOM/out")"
like "$ROOM/out" '^1\.\.[1-9][0-9]+$' "the program comes to its end"
allowed='optim/kfac: |delayed/|[a-z/]+: tests/unit/(data_golden|data_mix|comm_adasum) checks it'
allowed+='|ops/(log_)?softmax: '
[ -d "$KOLO_SHARED/data" ] || allowed+='|detect/coco_'
none "nothing is left out, but K-FAC, late weights and what unit tests check" \
    "$(grep '# SKIP' "$ROOM/out" | grep -vE "SKIP ($allowed)")"
for unit in data_golden data_mix comm_adasum; do
    "$BUILD/tests/unit/$unit" > "$ROOM/$unit" 2>&1
    ok $? "$unit" "$ROOM/$unit"
    [ $unit != data_golden ] || [ -d "$KOLO_SHARED/data" ] || continue # it needs the photos
    none "$unit: nothing is left out" "$(grep SKIP "$ROOM/$unit")"
done
middle=$(sed -n 's/^# \([0-9.]*\) of the reference.s own distance in the middle one of [0-9]* cases$/\1/p' \
    "$ROOM/out")
awk -v m="$middle" 'BEGIN { exit !(m > 0 && m <= 1.5) }'
ok $? "the middle case lies $middle of the reference's own distance between f32 and f64 from f64, at most 1.5"
done_testing
