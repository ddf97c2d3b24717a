#!/usr/bin/env bash
# make bundle: small enough to carry, and it runs where there is nothing but the C library.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need xz strip objdump unshare
[ -x "$BUILD/bundle/bin/kolo" ] || skip_all "the programs of the bundle are not built"
library=$BUILD/standin/libkolo_cuda.so # in the place of what nvcc makes: the bundle is another only in this
[ -e "$library" ] || library=''
XZ_OPT=-0 share/setup/bundle.sh "$BUILD" 9.8.7 "$ROOM" ${library:+"$library"} > "$ROOM/log" 2>&1
ok $? "the bundle is written" "$ROOM/log" || exit
diag < "$ROOM/log"
made=$(find "$ROOM" -maxdepth 1 -type d -name 'kolo-bundle-9.8.7-*')
like "$ROOM/log" "^  bundle .*$(basename "$made"), [0-9.]+ MiB" "its size is printed"
is "$(tar -tzf "$made.tar.gz" | grep -vc '/$')" "$(find "$made" -type f |
    wc -l)" "the archive of it holds the same files"
is "$(grep -rlF -e "$ROOM" -e "$TOP" "$made" --exclude-dir=lib)" "" \
    "no file names the place where it was made"
# what a full archive of the programs leaves for the rest (tests/long/cuda.t: all of it)
[ "$(du -sb --exclude=tree.tar.xz "$made" | cut -f 1)" -lt $((15 << 20)) ]
ok $? "all but the programs is under 15 MiB"

# where the folder cannot be written the programs go elsewhere; twice the same, and two at once do
# not disturb one another
mkdir "$ROOM/tmp"
cat > "$ROOM/start.sh" << 'END'
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 9
export TMPDIR=$2
"$1/bin/kolo" version > "$2/one" & "$1/bin/kolo" version > "$2/two"
wait $! && cmp "$2/one" "$2/two" && [ -s "$2/one" ] && [ ! -d "$1/lib/tree" ] &&
    [ "$(ls -d "$2"/kolo-bundle-*/* | wc -l)" = 1 ]
END
if unshare -rm true 2> /dev/null; then
    unshare -rm bash "$ROOM/start.sh" "$made" "$ROOM/tmp" > "$ROOM/log" 2>&1
    ok $? "it starts from a folder that cannot be written" "$ROOM/log"
else
    skip "no private name spaces here"
fi
rm -rf "$ROOM/tmp"
mv "$made" "$ROOM/moved" && made=$ROOM/moved

# a machine that it is not for is refused before anything is unpacked
mkdir "$ROOM/old"
printf '#!/bin/sh\necho glibc 2.17\n' > "$ROOM/old/getconf"
printf '#!/bin/sh\necho sparc64\n' > "$ROOM/old/uname"
chmod +x "$ROOM/old"/*
PATH=$ROOM/old:$PATH "$made/bin/kolo" version > "$ROOM/log" 2>&1
is $? 69 "another kind of machine: exit 69"
like "$ROOM/log" "this machine is of the kind sparc64, and the bundle was built for $(uname -m)" \
    "both are named"
rm "$ROOM/old/uname"
PATH=$ROOM/old:$PATH "$made/tests/gpu/run" --only facts --out "$ROOM/out" > "$ROOM/log" 2>&1
is $? 69 "an older C library: exit 69"
like "$ROOM/log" "glibc 2.17 is here, and the bundle needs $(sed -n 's/^glibc //p' \
    "$made/lib/requires") or newer" "an older C library: the message has its version and the one needed"
[ ! -d "$made/lib/tree" ]
ok $? "an older C library: nothing is unpacked"

env -i PATH=/usr/bin:/bin "$made/bin/kolo" version > "$ROOM/log" 2>&1 && [ -d "$made/lib/tree" ]
ok $? "moved, it starts and unpacks its programs" "$ROOM/log"
env -i PATH=/usr/bin:/bin "$made/bin/kolo" help recipes > "$ROOM/log" 2>&1
like "$ROOM/log" resnet50_imagenet "kolo of the bundle lists its recipes"

# every script of Python imports what it needs, with packages of others that hold nothing
cp -r tests/build/torch_standin "$ROOM/python"
python=$(command -v "${PYTHON:-python3}" || true)
if [ -n "$python" ]; then
    for file in "$made"/tests/*/*.py; do
        (cd / && env -i PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$ROOM/python" "$python" \
            "$file" --help) > "$ROOM/log" 2>&1
        ok $? "$(basename "$file") finds its modules" "$ROOM/log"
    done
else
    skip "no python3"
fi
# the run says what it would run on a GPU, and misses no file; on the stand-in it passes
bare=(env -i PATH=/usr/bin:/bin HOME="$ROOM" PYTHON="${python:-none}" OMP_WAIT_POLICY=passive)
(cd / && "${bare[@]}" KOLO_CUDA_LIBRARY="$ROOM/absent.so" "$made/tests/gpu/run" --out "$ROOM/out") > \
    "$ROOM/log" 2>&1
is $? 69 "tests/gpu/run where nothing can be run: exit 69"
# the one program that nvcc alone makes is here only with CUDA=1 (tests/long/cuda.t), those of tests/cuda
# only with CUDA's headers
absent='missing: ceilings$' ops='would run: '
[ -n "$library" ] || absent+='|missing: ops_[a-z]+$|the programs of tests/cuda are not here$' \
    ops='the programs of tests/cuda are not here'
none "no part misses a file" "$(grep '^not ok' "$ROOM/log" | grep -vE "$absent")"
for part in $(tests/gpu/run --list | awk '{print $1}'); do
    case $part in ops) said=$ops ;; *) said='would run: ' ;; esac
    like "$ROOM/log" "^(not )?ok [0-9]+ - $part: $said" "what $part would run"
done
is "$(find "$ROOM/out" -type f -printf '%f\n' | sort |
    paste -sd ' ')" "report.txt results.tar.gz" "it writes two files"
if [ -n "$library" ]; then
    (cd / && "${bare[@]}" "$made/tests/gpu/run" --dry --only facts,ops,bench,golden,train --out "$ROOM/out") \
        > "$ROOM/log" 2>&1
    ok $? "its first parts pass on the stand-in" "$ROOM/log"
    is "$(grep -cE '^--- (facts|ops|bench|golden|train): PASS' "$ROOM/log")" 5 "all five"
else
    skip "no stand-in for a GPU"
fi

# the dynamic linker itself says where each library comes from
loader=$(readelf -l "$made/lib/tree/bin/kolo" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
for file in "$made"/lib/tree/bin/*; do env -i LD_LIBRARY_PATH="$made/lib/tree/lib" "$loader" --list "$file";
    done > "$ROOM/list"
outside=$(awk '$2 == "=>" {print $1, $3}' "$ROOM/list" | grep -v " $made/" |
    grep -vE '^(ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv|util)\.so\.[0-9]+) ' | sort -u)
is "$outside" "" "every library is the bundle's or the C library's ($(grep -c '=>' "$ROOM/list") looked up)"

# a root of its own with the C library, /proc, /sys and /dev in it
if ! unshare -rm true 2> /dev/null; then
    skip "no private name spaces here"
    done_testing
fi
root=$ROOM/root
mkdir -p "$root"/{proc,sys,dev,tmp,kolo} "$root$(dirname "$loader")"
cp -L "$loader" "$root$loader"
awk '$2 == "=>" && $1 ~ /^lib(c|m|mvec|dl|rt|pthread|resolv|util)\.so/ {print $3}' "$ROOM/list" | sort -u |
    while read -r file; do
    mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"
done
cat > "$ROOM/bare.sh" << 'END'
root=$1
mount --rbind /proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
    mount --bind "$2" "$root/kolo" || exit 9
shift 2
cd / && exec /usr/bin/env -i LD_LIBRARY_PATH=/kolo/lib/tree/lib OMP_NUM_THREADS=1 \
    "$(command -v chroot)" "$root" "$@"
END
bare() { unshare -rm bash "$ROOM/bare.sh" "$root" "$made" "$@" > "$ROOM/log" 2>&1; }
bare /kolo/lib/tree/bin/kolo --help
ok $? "kolo --help in a root that has only the C library" "$ROOM/log"
is "$(find "$root" -type f | wc -l)" "$(find "$root" -name '*.so*' | wc -l)" \
    "the bare root holds shared libraries and nothing else"
short=(resnet20_cifar data=/kolo/share/data/small/train val=none run=/tmp/run batch=32 steps=3 device=cpu)
if [ -x "$made/lib/tree/bin/mpiexec" ] && hydra; then
    bare /kolo/lib/tree/bin/mpiexec -launcher fork -n 2 /kolo/lib/tree/bin/kolo train "${short[@]}"
    ok $? "two ranks train there" "$ROOM/log"
    like "$root/tmp/run/summary.json" '"ranks": *2' "mpiexec -n 2 of the bundle: the summary has 2 ranks"
else
    bare /kolo/lib/tree/bin/kolo train "${short[@]}"
    ok $? "it trains there" "$ROOM/log"
    skip "this MPI has no Hydra"
fi
is "$(losses "$root/tmp/run" | wc -l)" 3 "three steps"
done_testing
