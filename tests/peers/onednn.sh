#!/usr/bin/env bash
# make bench-onednn, and the last row of make bench-peers: ResNet-50 on the oneDNN that this build has and on
# oneDNN 3 (tests/peers/onednn3.sh), which gets a build of its own in build/onednn3; images a second of both,
# best of rounds that alternate, and their ratio.
#   ROUNDS=2 THREADS=2 CASES="resnet50:16:224:f32:4"   MODEL:BATCH:SIZE:PRECISION:STEPS, several
#   DNNL3=FOLDER with include/ and lib/ of one, instead of the packages of PyPI
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${KOLO_BUILD:-$PWD/build}
ROUNDS=${ROUNDS:-2}
THREADS=${THREADS:-$(nproc)}
read -r -a cases <<< "${CASES:-resnet50:16:224:f32:4 resnet50:16:224:bf16:4}"
# shellcheck source=tests/peers/onednn3.sh
. tests/peers/onednn3.sh
home=${DNNL3:-$BUILD/onednn3/home}
mkdir -p "$BUILD/onednn3"
onednn3_home "$home" "$BUILD/onednn3/log" ||
    { echo "no oneDNN 3 here: $(tail -n 1 "$BUILD/onednn3/log")" && exit 1; }
onednn3_build "$home" "$BUILD/onednn3" "$BUILD/onednn3/log" ||
    { echo "no build on oneDNN 3: $BUILD/onednn3/log" && exit 1; }
version() { ldd "$1/bin/kolo" | sed -n 's/.*libdnnl\.so\.\([0-9.]*\) .*/\1/p'; }
rate() { # BUILD CASE
    local model batch size precision steps
    IFS=: read -r model batch size precision steps <<< "$2"
    KOLO_CACHE=$1/cache "$1/bin/kolo" bench train model="$model" batch="$batch" size="$size" \
        precision="$precision" steps="$steps" threads="$THREADS" |
        sed -n 's/.*: \([0-9.]*\) img\/s$/\1/p' | tail -n 1
}
best() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {print (a + 0 > b + 0) ? a : b}'; }
for case in "${cases[@]}"; do
    a=0 b=0
    for ((round = 0; round < ROUNDS; round++)); do
        a=$(best "$a" "$(rate "$BUILD" "$case")")
        b=$(best "$b" "$(rate "$BUILD/onednn3" "$case")")
    done
    v=$(version "$BUILD") w=$(version "$BUILD/onednn3")
    awk -v c="$case" -v v="$v" -v w="$w" -v a="$a" -v b="$b" 'BEGIN {
        split(c, p, ":")
        printf "%s b%s %spx %s, oneDNN %s: %.1f img/s, oneDNN %s: %.1f img/s, ratio %.2f\n", p[1], p[2], p[3],
            p[4], v, a, w, b, (a > 0) ? b / a : 0}'
done
