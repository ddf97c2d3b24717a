#!/usr/bin/env bash
# kolo-pack where there is no room: said before the work where the file system can tell, and after it has run
# out nothing is lost.
. "$(dirname "$0")/../lib.sh"
need kolo-pack kolo-shards
need "${CC:-cc}"
# a file system that refuses: fallocate at once, or pwrite after so many calls
cat > "$ROOM/refuse.c" << 'EOF'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>
static int cause(void) { return getenv("REFUSE_QUOTA") ? EDQUOT : ENOSPC; }
int fallocate(int fd, int mode, off_t offset, off_t length)
{
    static int (*real)(int, int, off_t, off_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fallocate");
    if (!getenv("REFUSE_ALLOCATE")) return real(fd, mode, offset, length);
    errno = cause();
    return -1;
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    static _Atomic long calls;
    const char *most = getenv("REFUSE_WRITES");
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    if (!most || bytes < 20000 || atomic_fetch_add(&calls, 1) < atol(most))
        return real(fd, data, bytes, offset);
    errno = cause();
    return -1;
}
EOF
"${CC:-cc}" -shared -fPIC -o "$ROOM/refuse.so" "$ROOM/refuse.c" -ldl 2> "$ROOM/log" ||
    skip_all "no shared library can be made: $(head -n 1 "$ROOM/log")"
LD_PRELOAD=$ROOM/refuse.so kolo-pack --version > "$ROOM/log" 2>&1 ||
    skip_all "LD_PRELOAD does not work with this build"
refused() { LD_PRELOAD=$ROOM/refuse.so kolo-pack "$@" > "$ROOM/log" 2>&1; }
ARGS=(--source shapes --count 600 --shards 2 --encoding raw --size 64)
sums() { (cd "$1" && sha256sum -- *); }
kolo-pack "${ARGS[@]}" --out "$ROOM/whole" > "$ROOM/log" 2>&1
want=$(sums "$ROOM/whole")

REFUSE_ALLOCATE=1 REFUSE_QUOTA=1 refused "${ARGS[@]}" --out "$ROOM/quota"
is $? 3 "a quota that is too small: exit 3"
like "$ROOM/log" 'refuses [0-9.]+ MB: Disk quota exceeded; .*--resume' "size, cause and cure"
is "$(grep -c 'img/s' "$ROOM/log")" 0 "no space for all: refused before any image is written"
is "$(find "$ROOM/quota" -name '*.h5*')" "" "what was reserved is given back"
kolo-pack "${ARGS[@]}" --out "$ROOM/quota" --resume > "$ROOM/log" 2>&1
is "$(sums "$ROOM/quota")" "$want" "after a quota: --resume makes the same bytes"

REFUSE_WRITES=5 refused "${ARGS[@]}" --out "$ROOM/full"
is $? 3 "a disk that fills up: exit 3"
like "$ROOM/log" 'No space left on device; free space' "the cause and the cure"
kolo-pack "${ARGS[@]}" --out "$ROOM/full" --resume > "$ROOM/log" 2>&1
is "$(sums "$ROOM/full")" "$want" "after a full disk: --resume makes the same bytes"
REFUSE_WRITES=5 REFUSE_QUOTA=1 refused "${ARGS[@]}" --out "$ROOM/used"
like "$ROOM/log" 'Disk quota exceeded; your quota' "a quota that is used up is told too"

(ulimit -f 2000 && exec kolo-pack "${ARGS[@]}" --out "$ROOM/limited") > "$ROOM/log" 2>&1
is $? 3 "files that may not grow so large: exit 3, no signal"
like "$ROOM/log" 'ulimit -f' "a limit of file size: the message names ulimit -f"

# one packing at a time in a folder
kolo-pack --source shapes --count 4000 --threads 1 --out "$ROOM/shared" > "$ROOM/first" 2>&1 &
pid=$!
for _ in $(seq 200); do [ -s "$ROOM/shared/.pack-lock" ] && break || sleep 0.02; done
kolo-pack --source shapes --count 4000 --out "$ROOM/shared" --force > "$ROOM/log" 2>&1
is $? 78 "a second packing into the same folder is refused, also with --force"
like "$ROOM/log" "in use by .*process $pid on " \
    "a second packing into one folder: the message names the process"
kill -TERM $pid
wait $pid
is $? 75 "the first was not disturbed"
kolo-pack --source shapes --count 4000 --out "$ROOM/shared" --resume > "$ROOM/log" 2>&1
is $? 0 "a killed packing of a shared folder: --resume exits 0"
is "$(find "$ROOM/shared" -name '.pack*')" "" "no lock is left"

mkdir -p "$ROOM/in/a" && kolo-shards show "$ROOM/whole" --index 0 --out "$ROOM/in/a/1.jpg" > /dev/null
for out in "$ROOM/in" "$ROOM/in/packed" "$ROOM/in/a/../deep/down"; do
    kolo-pack --source imagefolder --in "$ROOM/in" --out "$out" > "$ROOM/log" 2>&1
    is $? 78 "--out ${out#"$ROOM"/} within --in is refused"
done
like "$ROOM/log" 'lies within --in' "/} within --in is refused: the message says why"
is "$(find "$ROOM/in" -type f -o -type d | wc -l)" 3 "/} within --in is refused: nothing was made there"
kolo-pack --source imagefolder --in "$ROOM/in" --out "$ROOM/in-packed" > "$ROOM/log" 2>&1
is $? 0 "a folder whose name only begins the same is another one"
done_testing
