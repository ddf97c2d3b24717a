#!/usr/bin/env bash
# make bench-data: Kolo's loader beside what bounds it (a plain pread loop, libjpeg's decode) and beside other loaders, in one run, hot.
# Prints samples/s and ratios to the bars that are aimed at. Other loaders are taken where $PYTHON has them: torch with torchvision,
# h5py, ffcv, nvidia.dali; nothing is installed here.
#
#   tests/peers/data.sh            ROUNDS=2  PYTHON=python3  PHOTOS=DIR (classes of JPEG files;
#                                  without them other loaders have no JPEG to read, and ours those that kolo-pack makes)
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${KOLO_BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
PATH=$BUILD/bin:$PATH
ROUNDS=${ROUNDS:-2}
PYTHON=${PYTHON:-python3}
[ -x "$BUILD/peers/bin/python" ] && [ "$PYTHON" = python3 ] && PYTHON=$BUILD/peers/bin/python
${MAKE:-make} "$BUILD/tests/data_bench" > /dev/null || exit 1
room=$(mktemp -d "${TMPDIR:-/tmp}/kolo-bench-XXXXXX") || exit 1
trap 'rm -rf "$room"' EXIT

pack() { # FOLDER OPTION...
    local folder=$1
    shift
    kolo-pack "$@" --out "$room/$folder" > "$room/pack.log" 2>&1 || { cat "$room/pack.log" && exit 1; }
}
echo "packing ..."
pack small --source shapes --encoding raw --size 32 --count 20000
pack large --source shapes --encoding raw --size 256 --count 1500
real=${KOLO_SHARED:-../shared}/data/imagenette224/train
PHOTOS=${PHOTOS:-$([ -d "$real" ] && echo "$real")}
if [ -n "$PHOTOS" ]; then
    pack photos --source imagefolder --in "$PHOTOS" --split train --encoding jpeg
else
    pack photos --source shapes --encoding jpeg --count 1500
fi

one() { taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$@"; } # on the first core that this shell may use
ours() { "$BUILD/tests/data_bench" "$@"; }
peer() { "$PYTHON" tests/peers/data.py "$@" 2> "$room/peer.log"; }
larger() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {print (a + 0 > b + 0) ? a : b}'; }
# Both in turn, so that a machine that others use slows both: CASE, BAR, then two commands (words split) of one number each.
compare() { # TEXT BAR COMMAND COMMAND
    local a=0 b=0 i
    for ((i = 0; i < ROUNDS; i++)); do
        a=$(larger "$a" "$($3)")
        b=$(larger "$b" "$($4)")
    done
    [ "${b:-0}" != 0 ] || { printf '%-52s %10s %10s\n' "$1" "$a" "absent" && return; }
    awk -v t="$1" -v bar="$2" -v a="$a" -v b="$b" 'BEGIN {printf "%-52s %10d %10d %7.2f  (aim %s)\n", t, a, b, a / b, bar}'
}

printf '%-52s %10s %10s %7s\n' "case" "kolo /s" "other /s" "ratio"
rrc="size=224 crop=resized flip=true normalise=1"
compare "raw 256 px, 1 reader | pread loop" ">= 0.85" "ours loader $room/large 1" "ours pread $room/large 1"
compare "raw 32 px (3 KiB), 1 reader | pread loop" ">= 0.80" "ours loader $room/small 1" "ours pread $room/small 1"
compare "raw 256 px from the RAM cache | pread loop" "> 1" "ours loader $room/large 1 cache=ram" "ours pread $room/large 1"
compare "raw 256 px, 2 readers | 1 reader" ">= 1.8" "ours loader $room/large 2" "ours loader $room/large 1"
compare "raw 32 px, block order | full order" ">= 1" "ours loader $room/small 1 shuffle=block:64" "ours loader $room/small 1"
compare "the same, not in the page cache" "> 2" "ours loader $room/small 1 shuffle=block:64 cold=1" "ours loader $room/small 1 cold=1"
compare "JPEG, crop, flip, normalise, 1 core | bare decode" "1" "one $BUILD/tests/data_bench loader $room/photos 1 $rrc" \
    "one $BUILD/tests/data_bench decode $room/photos 1"
compare "raw 256 px, 1 reader | h5py" "> 1" "ours loader $room/large 1" "peer h5py raw $room/large 0"
compare "raw 256 px, 2 readers | PyTorch, 2 workers" "> 1" "ours loader $room/large 2" "peer torch raw $room/large 2"
[ -n "$PHOTOS" ] && for name in torch ffcv dali; do
    compare "JPEG, crop, flip, normalise, 1 core | $name" ">= 1.5" "one $BUILD/tests/data_bench loader $room/photos 1 $rrc" \
        "one $PYTHON tests/peers/data.py $name jpeg $PHOTOS 0"
done 2> /dev/null
