#!/usr/bin/env bash
# make bundle: small enough to carry, and it runs where there is nothing but the C library.
. "$(dirname "$0")/../lib.sh"
need xz strip objdump unshare
for program in kolo kolo-pack kolo-shards; do [ -x "$BUILD/bin/$program" ] || skip_all "$program is not built"; done
tests=()
[ ! -x "$BUILD/tests/golden" ] || tests+=("$BUILD/tests/golden")
XZ_OPT=-0 share/setup/bundle.sh "$BUILD" 9.8.7 "$ROOM" "${tests[@]}" > "$ROOM/log" 2>&1
ok $? "the bundle is written" || exit
sed 's/^/# /' "$ROOM/log" | tail -n 12
made=$(find "$ROOM" -maxdepth 1 -type d -name 'kolo-bundle-9.8.7-*')
[ "$(du -sb "$made" | cut -f 1)" -lt $((60 << 20)) ]
ok $? "the folder is under 60 MiB"
[ "$(stat -c %s "$made.tar.gz")" -lt $((60 << 20)) ]
ok $? "and so is the archive of it"
is "$(tar -tzf "$made.tar.gz" | grep -vc '/$')" "$(find "$made" -type f | wc -l)" "which holds the same files"
is "$(grep -rlF -e "$ROOM" -e "$TOP" "$made" --exclude-dir=libexec --exclude-dir=lib)" "" "no file names the place where it was made"

# where the folder cannot be written the libraries go elsewhere; twice the same, and two at once do not disturb one another
mkdir "$ROOM/tmp"
cat > "$ROOM/start.sh" << 'END'
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 9
export TMPDIR=$2
"$1/bin/kolo" version > "$2/one" & "$1/bin/kolo" version > "$2/two"
wait $! && cmp "$2/one" "$2/two" && [ -s "$2/one" ] && [ ! -d "$1/lib/system" ] && [ "$(ls -d "$2"/kolo-bundle-*/* | wc -l)" = 1 ]
END
if unshare -rm true 2> /dev/null; then
    unshare -rm bash "$ROOM/start.sh" "$made" "$ROOM/tmp" > "$ROOM/log" 2>&1
    ok $? "it starts from a folder that cannot be written" || sed 's/^/#   /' "$ROOM/log"
else
    skip "no private name spaces here"
fi
mv "$made" "$ROOM/moved" && made=$ROOM/moved
env -i PATH=/usr/bin:/bin "$made/bin/kolo" version > "$ROOM/log" 2>&1 && [ -d "$made/lib/system" ]
ok $? "moved, it starts and unpacks its libraries" || sed 's/^/#   /' "$ROOM/log"

# the dynamic linker itself says where each library comes from
loader=$(readelf -l "$made/libexec/kolo" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
for file in "$made"/libexec/*; do env -i LD_LIBRARY_PATH="$made/lib/system" "$loader" --list "$file"; done > "$ROOM/list"
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
awk '$2 == "=>" && $1 ~ /^lib(c|m|mvec|dl|rt|pthread|resolv|util)\.so/ {print $3}' "$ROOM/list" | sort -u | while read -r file; do
    mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"
done
cat > "$ROOM/bare.sh" << 'END'
root=$1
mount --rbind /proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" && mount --bind "$2" "$root/kolo" || exit 9
shift 2
cd / && exec /usr/bin/env -i LD_LIBRARY_PATH=/kolo/lib/system OMP_NUM_THREADS=1 "$(command -v chroot)" "$root" "$@"
END
bare() { unshare -rm bash "$ROOM/bare.sh" "$root" "$made" "$@" > "$ROOM/log" 2>&1; }
bare /kolo/libexec/kolo --help
ok $? "bin/kolo --help in a root that has only the C library" || sed 's/^/#   /' "$ROOM/log"
is "$(find "$root" -type f | wc -l)" "$(find "$root" -name '*.so*' | wc -l)" "which is really so"
short=(resnet20_cifar data=/kolo/share/data/small/train val=none run=/tmp/run batch=32 steps=3 device=cpu)
if [ -x "$made/libexec/mpiexec" ]; then
    bare /kolo/libexec/mpiexec -launcher fork -n 2 /kolo/libexec/kolo train "${short[@]}"
    ok $? "two ranks train there" || sed 's/^/#   /' "$ROOM/log"
    like "$root/tmp/run/summary.json" '"ranks": *2' "and were two"
else
    bare /kolo/libexec/kolo train "${short[@]}"
    ok $? "it trains there" || sed 's/^/#   /' "$ROOM/log"
    skip "this MPI has no Hydra"
fi
is "$(losses "$root/tmp/run" | wc -l)" 3 "three steps"
done_testing
