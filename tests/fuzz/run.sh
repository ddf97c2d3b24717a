#!/usr/bin/env bash
# Runs fuzzers one after the other (make fuzz): run.sh NAME... Each for FUZZ_SECONDS. What they find worth
# keeping stays in $BUILD/fuzz/corpus/NAME and is where the next run goes on; inputs that end a reader stay
# in $BUILD/fuzz/crashes.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${KOLO_BUILD:-$PWD/build}
SECONDS_EACH=${FUZZ_SECONDS:-600}
export KOLO_SHARED=${KOLO_SHARED:-$PWD/../shared}
PATH=$BUILD/bin:$PATH
MEMORY=/dev/shm
[ -w "$MEMORY" ] || MEMORY=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$MEMORY/kolo-fuzzing-XXXXXX") || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
tests/fuzz/seeds.sh "$BUILD/fuzz/seeds" real || exit 1
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:quarantine_size_mb=32 \
    UBSAN_OPTIONS=print_stacktrace=1
LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
export LSAN_OPTIONS
failed=0
for name; do
    program=$BUILD/fuzz/tests/fuzz/$name crashes=$BUILD/fuzz/crashes/$name
    mkdir -p "$BUILD/fuzz/corpus/$name" "$crashes"
    words=(-max_total_time="$SECONDS_EACH" -timeout=25 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$crashes/")
    log=$BUILD/fuzz/$name.log
    nice -n 10 "$program" "${words[@]}" "$BUILD/fuzz/corpus/$name" "$BUILD/fuzz/seeds/$name" > "$log" 2>&1
    status=$?
    inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    if [ $status = 0 ]; then
        printf '%-12s %9s inputs in %s s, %s edges, nothing found\n' "$name" "${inputs:-?}" "$SECONDS_EACH" \
            "${edges:-?}"
    else
        failed=1
        printf '%-12s %9s inputs, ended with status %d: %s\n' "$name" "${inputs:-?}" $status \
            "$(grep -m 1 -E 'SUMMARY|violated|ERROR|runtime error' "$log")"
        crash=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        [ -z "$crash" ] || printf '             again: %s %s\n' "$program" "$crash"
        printf '             log:   %s\n' "$log"
    fi
done
exit $failed
