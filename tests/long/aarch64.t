#!/usr/bin/env bash
# Kolo for aarch64: cross-built against Debian's packages, which lie in a folder of the test, and run by
# qemu: unit tests of most rooms and golden figures of small networks, by the very sources that x86 has. A
# build, and a machine that is imitated: an hour.
#   AARCH64=FOLDER keeps the packages and the build between runs; UNITS="ops_golden base_json": these alone
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
# shellcheck source=tests/peers/aarch64.sh
. tests/peers/aarch64.sh
need make
arm=${AARCH64:-$ROOM/aarch64}
mkdir -p "$arm"
aarch64_root "$arm" "$ROOM/log" || skip_all "no packages for aarch64: $(tail -n 1 "$ROOM/log")"
if [ -n "${UNITS:-}" ]; then
    read -r -a units <<< "$UNITS"
else
    units=()
    for unit in tests/unit/{base,data,graph,ops,models,plan,optim,metrics,report,ckpt}_*.c; do
        case $unit in
        */data_soak.c | */ops_algorithms.c) ;; # many minutes on a machine that is imitated
        */base_memory.c) ;; # qemu's madvise reports pages as touched that it does not touch
        *) units+=("$(basename "$unit" .c)") ;;
        esac
    done
fi
aarch64_build "$arm" "$arm/build" "$ROOM/log" programs "$arm/build/tests/golden" \
    "${units[@]/#/$arm/build/tests/unit/}"
ok $? "Kolo is cross-built for aarch64" "$ROOM/log" || done_testing
none "  without a warning" "$(grep -E 'warning:' "$ROOM/log")"
is "$(od -An -tx2 -j18 -N2 "$arm/build/bin/kolo" | tr -d ' ')" 00b7 "  its programs are for that machine"
export OMP_NUM_THREADS=2 KOLO_BUILD=$arm/build KOLO_CACHE=$ROOM/cache
"$arm/run" "$arm/build/bin/kolo" models resnet50 > "$ROOM/out" 2>&1
like "$ROOM/out" '25557032 parameters' "kolo models runs"
# what an imitated machine is too slow for, and tests that start themselves anew, which it cannot
machine='(less than a second|at once|killed [0-9]+ times while saving: .*|it can be loaded .*)$'
for unit in "${units[@]}"; do
    timeout 1800 "$arm/run" "$arm/build/tests/unit/$unit" > "$ROOM/out" 2>&1
    status=$?
    if [ $status = 1 ] && grep -q '^1\.\.' "$ROOM/out"; then
        status=$(grep '^not ok' "$ROOM/out" | grep -cvE "$machine")
        grep -E "^not ok.*$machine" "$ROOM/out" | diag
    fi
    ok "$status" "$unit: $(grep -c '^ok' "$ROOM/out") checks pass" || grep -A 2 '^not ok' "$ROOM/out" | diag
done
for case in ops optim train/lenet5_sgd_momentum.json models/lenet5.json models/mlp.json \
    models/resnet20_cifar_a_16.json models/resnet18_64.json models/vit_s_16_64.json \
    models/mobilenet_v3_small_96.json; do
    timeout 1800 "$arm/run" "$arm/build/tests/golden" "tests/golden/$case" > "$ROOM/out" 2>&1
    status=$?
    ok $status "golden figures, $case: $(grep -c '^ok' "$ROOM/out") checks pass" ||
        grep -A 2 '^not ok' "$ROOM/out" | diag
done
done_testing
