#!/usr/bin/env bash
# make bench-data: Kolo's loader and packer beside what bounds them (a plain pread loop, libjpeg's decode)
# and beside other programs, in one run, hot. Prints samples/s and ratios to the bars that are aimed at.
#
#   tests/peers/data.sh [SECTION ...]   read, decode, pack, times; default: all
#
#   ROUNDS=2        every figure is the best of so many, both sides in turn
#   PYTHON=python   one that has the other programs: torch with torchvision, h5py, Pillow, nvidia.dali, ffcv.
#                   Without it they are installed into build/peers (a virtual environment; some GB, once);
#                   ffcv only where the headers of OpenCV and TurboJPEG are (libopencv-dev,
#                   libturbojpeg0-dev). What cannot be installed is left out, and said
#   PHOTOS=DIR, SMALL=DIR   classes of photographs of about 500 x 375, and of some 10 KB: default from
#                           ../shared/data, else made here
set -u
cd "$(dirname "$0")/../.." || exit 1
[ "${1:-}" = --help ] && sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 0
BUILD=${KOLO_BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
PATH=$BUILD/bin:$PATH
ROUNDS=${ROUNDS:-2}
SECTIONS=" ${*:-read decode pack times} "
${MAKE:-make} BUILD="$BUILD" "$BUILD/tests/data_bench" > /dev/null || exit 1
room=$(mktemp -d "${TMPDIR:-/tmp}/kolo-bench-XXXXXX") || exit 1
trap 'rm -rf "$room"' EXIT
export TMPDIR=$room # of the other programs too
wanted() { [[ $SECTIONS == *" $1 "* ]]; }

# shellcheck source=tests/peers/python.sh
. tests/peers/python.sh
peers_install h5py PIL torchvision nvidia.dali
pkg-config --exists opencv4 libturbojpeg 2> /dev/null && peers_install ffcv

pack() { # FOLDER OPTION...
    local folder=$1
    shift
    kolo-pack "$@" --out "$room/$folder" > "$room/pack.log" 2>&1 || { cat "$room/pack.log" && exit 1; }
}
# TREE TIMES: every file of a tree of classes so many times, as files of their own; flat
# folders become ten classes
copies() { # FROM TREE TIMES
    local n=0 file class time
    while read -r file; do
        class=$(basename "$(dirname "$file")")
        [ "$(dirname "$file")" = "$1" ] && class=class$((n % 10))
        mkdir -p "$room/$2/$class"
        for ((time = 0; time < $3; time++)); do cp "$file" "$room/$2/$class/$time-$n.jpg"; done
        n=$((n + 1))
    done < <(find "$1" -name '*.[jJ][pP]*[gG]' | sort)
}
made() { # TREE SIDE COUNT: images of shapes as JPEG files
    pack "$1-jpeg" --source shapes --encoding jpeg --size "$2" --count "$3"
    kolo-shards extract "$room/$1-jpeg" --out "$room/$1" > "$room/pack.log" 2>&1 || { cat "$room/pack.log" &&
        exit 1; }
}
data=${KOLO_SHARED:-../shared}/data
echo "preparing ..."
if wanted read; then
    pack small --source shapes --encoding raw --size 32 --count 20000
    pack large --source shapes --encoding raw --size 256 --count 1500
fi
if wanted decode || wanted pack; then
    if [ -n "${PHOTOS:-}" ]; then ln -s "$(realpath "$PHOTOS")" "$room/photos"
    elif [ -d "$data/imagenet-sample" ]; then copies "$data/imagenet-sample" photos 8
    else made photos 375 1000; fi
    if [ -n "${SMALL:-}" ]; then ln -s "$(realpath "$SMALL")" "$room/files"
    elif [ -d "$data/imagenette224" ]; then copies "$data/imagenette224/train" files 8
    else made files 224 10000; fi
fi

# on the first core that this shell may use
one() { taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$@"; }
ours() { "$BUILD/tests/data_bench" "$@"; }
peer() { timeout 300 "$PYTHON" tests/peers/data.py "$@" 2> "$room/peer.log"; }
one_ours() { one "$BUILD/tests/data_bench" "$@"; }
one_peer() { one timeout 300 "$PYTHON" tests/peers/data.py "$@" 2> "$room/peer.log"; }
# Samples a second of kolo-pack, from its start to its end, the best of three: TREE OPTION...; of
# one core with PIN=one
packing() {
    local tree=$1 begin i rate=0
    shift
    for ((i = 0; i < 3; i++)); do
        rm -rf "$room/packed"
        begin=$EPOCHREALTIME
        ${PIN:-} kolo-pack --source imagefolder --in "$room/$tree" --out "$room/packed" "$@" > \
            "$room/pack.log" 2>&1 || return
        rate=$(larger "$rate" "$(awk -v a="$begin" -v b="$EPOCHREALTIME" -v n="$(find -L "$room/$tree" -type \
            f | wc -l)" \
            'BEGIN {printf "%.0f\n", n / (b - a)}')")
    done
    echo "$rate"
}
one_packing() { PIN=one packing "$@"; }
larger() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {print (a + 0 > b + 0) ? a : b}'; }
line() { # TEXT BAR OURS OTHER
    [ "${4:-0}" != 0 ] || { printf '%-58s %10s %10s\n' "$1" "$3" "absent" && return; }
    awk -v t="$1" -v bar="$2" -v a="$3" -v b="$4" \
        'BEGIN {printf "%-58s %10.0f %10.0f %7.2f  %s\n", t, a, b, a / b, bar}'
}
# Both in turn, so that a machine that others use slows both: TEXT, BAR, then two commands (words
# split) of one number each.
compare() {
    local a=0 b=0 i
    for ((i = 0; i < ROUNDS; i++)); do
        a=$(larger "$a" "$($3)")
        b=$(larger "$b" "$($4)")
    done
    line "$1" "$2" "$a" "$b"
}
least() { # TEXT BAR UNIT COMMAND
    local best i value
    for ((i = 0; i < ROUNDS; i++)); do
        value=$($4)
        best=$(awk -v a="${best:-$value}" -v b="$value" 'BEGIN {print (a < b) ? a : b}')
    done
    printf '%-58s %10s %-10s %7s  %s\n' "$1" "$best" "$3" "" "$2"
}
seconds() { # COMMAND: how long it takes, alone
    local begin=$EPOCHREALTIME
    "$@" > "$room/pack.log" 2>&1 || { echo failed && return; }
    awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.2f\n", b - a}'
}

printf '%-58s %10s %10s %7s  %s\n' "case" "kolo /s" "other /s" "ratio" "aim"
if wanted read; then
    compare "raw 256 px, 1 reader | pread loop" ">= 0.85" "ours loader $room/large 1" \
        "ours pread $room/large 1"
    compare "raw 32 px (3 KiB), 1 reader | pread loop" ">= 0.80" "ours loader $room/small 1" \
        "ours pread $room/small 1"
    compare "raw 256 px from the RAM cache | pread loop" "> 1" "ours loader $room/large 1 data_cache=ram" \
        "ours pread $room/large 1"
    compare "raw 256 px, 2 readers | 1 reader" ">= 1.8" "ours loader $room/large 2" \
        "ours loader $room/large 1"
    compare "  what this machine gives: 2 pread loops | 1" "" "ours pread $room/large 2" \
        "ours pread $room/large 1"
    compare "  raw 256 px, 2 readers | 2 pread loops" ">= 0.85" "ours loader $room/large 2" \
        "ours pread $room/large 2"
    compare "raw 32 px, 2 readers | 1 reader" ">= 1.8" "ours loader $room/small 2" "ours loader $room/small 1"
    compare "  what this machine gives: 2 pread loops | 1" "" "ours pread $room/small 2" \
        "ours pread $room/small 1"
    every=$(sed -n 's/.*KOLO_DATASET_CHECK_EVERY = \([0-9]*\).*/\1/p' src/data/shard/dataset.h)
    for size in large small; do # samples a second of the pread loop, and microseconds of a checksum
        rate=$(ours pread "$room/$size" 1)
        took=$(ours crc "$room/$size")
        printf '%-58s %10s %-10s %7s  %s\n' "checksum of a raw sample ($size), of its pread" "$took" "us" \
            "$(awk -v r="$rate" -v us="$took" 'BEGIN {printf "%.1f %%", r * us / 1e4}')" ""
        printf '%-58s %10s %-10s %7s  %s\n' "  compared at every ${every}th read, after the first" "" "" \
            "$(awk -v r="$rate" -v us="$took" -v n="$every" 'BEGIN {printf "%.1f %%", r * us / 1e4 / n}')" \
            "< 2 %"
    done
    compare "raw 32 px, block order | full order" ">= 1" "ours loader $room/small 1 shuffle=block:64" \
        "ours loader $room/small 1"
    compare "the same, not in the page cache" "> 2" "ours loader $room/small 1 shuffle=block:64 cold=1" \
        "ours loader $room/small 1 cold=1"
    compare "raw 256 px, 1 reader | h5py" "> 1" "ours loader $room/large 1" "peer h5py raw $room/large 0"
    compare "raw 256 px, 2 readers | PyTorch, 2 workers" "> 1" "ours loader $room/large 2" \
        "peer torch raw $room/large 2"
fi
if wanted decode; then
    work="size=224 crop=resized flip=true normalise=1"
    for tree in photos files; do
        pack "$tree-kept" --source imagefolder --in "$room/$tree" --encoding jpeg
        compare "JPEG ($tree), crop, flip, normalise, 1 core | bare decode" "" \
            "one_ours loader $room/$tree-kept 1 $work" \
            "one_ours decode $room/$tree-kept 1"
        for name in torch dali ffcv; do
            compare "JPEG ($tree), crop, flip, normalise, 1 core | $name" ">= 1.5" \
                "one_ours loader $room/$tree-kept 1 $work" \
                "one_peer $name jpeg $room/$tree 0"
        done
    done
fi
if wanted pack; then
    raw="photos --encoding raw --size 256"
    compare "pack photos to raw 256 | h5py and Pillow" ">= 3" "packing $raw" \
        "peer h5py pack-pixels $room/photos $room/other.h5"
    compare "  the same, 1 core" "" "one_packing $raw --threads 1" \
        "one_peer h5py pack-pixels $room/photos $room/other.h5"
    compare "pack JPEG files | h5py, bytes joined in memory" ">= 1" "packing files --encoding jpeg" \
        "peer h5py pack-bytes $room/files $room/other.h5"
    compare "pack JPEG files | h5py, variable length" "> 1" "packing files --encoding jpeg" \
        "peer h5py pack-vlen $room/files $room/other.h5"
fi
if wanted times; then
    pack many --source shapes --encoding raw --size 8 --count 1280 --shards 128
    least "open 128 shards" "< 100" ms "ours open $room/many"
    least "order of an epoch of 1,281,167" "< 50" ms "ours order 1281167"
    [ -d "$room/large" ] || pack large --source shapes --encoding raw --size 256 --count 1500
    bytes=$(cat "$room"/large/*.h5 | wc -c)
    rate=0
    for ((i = 0; i < ROUNDS; i++)); do
        took=$(seconds one kolo-shards verify "$room/large" --threads 1)
        rate=$(larger "$rate" "$(awk -v b="$bytes" -v s="$took" 'BEGIN {printf "%.2f", b / s / 1e9}')")
    done
    printf '%-58s %10s %-10s %7s  %s\n' "verify of $((bytes / 1000000)) MB, 1 core, from start to end" \
        "$rate" GB/s "" ">= 2"
    if [ -e "$data/mnist/train-images-idx3-ubyte.gz" ]; then
        mnist() {
            kolo-pack --source mnist-idx --in "$data/mnist" --split train --out "$room/mnist" --force &&
                kolo-pack --source mnist-idx --in "$data/mnist" --split val --stats-from "$room/mnist" --out \
                "$room/mnist-val" --force
        }
        least "pack MNIST, 60,000 + 10,000 (.gz)" "< 1" s "seconds mnist"
    fi
    # the same records again and again: 60,000 in six files
    if [ -e "$data/cifar10/data_batch_1_first4000.bin" ]; then
        mkdir "$room/cifar"
        head -c $((2000 * 3073)) "$data/cifar10/data_batch_1_first4000.bin" > "$room/half"
        for name in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
            cat "$data/cifar10/data_batch_1_first4000.bin"{,} "$room/half" > "$room/cifar/$name.bin"
        done
        cifar() {
            kolo-pack --source cifar-bin --in "$room/cifar" --split train --out "$room/cifar-train" --force &&
                kolo-pack --source cifar-bin --in "$room/cifar" --split val --stats-from "$room/cifar-train" \
                --out "$room/cifar-val" --force
        }
        least "pack CIFAR, 50,000 + 10,000" "< 1" s "seconds cifar"
    fi
fi
