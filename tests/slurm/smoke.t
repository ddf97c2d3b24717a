#!/usr/bin/env bash
# The site's acceptance test on nodes of one CPU, as a machine with two cores has them:
# its figures are judged.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 1
cd "$ROOM" || exit 1
smoke() { # NAME: its exit status
    local job
    job=$(sbatch --parsable --output="$ROOM/$1.out" "$TOP/jobs/cpu_smoke.sh") || return
    await "$job" > /dev/null
    return "$(scontrol show job "$job" | sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p')"
}
KOLO_MIN_BUSBW=0.001 smoke good # tests run beside it
is $? 0 "2 nodes of one CPU: exit 0"
like "$ROOM/good.out" "pmix: 2 ranks on 2 nodes" "a task on each"
like "$ROOM/good.out" "allreduce bandwidth \(GB/s\) [0-9.]+ \(bar: >= 0.001\) passed" \
    "the bandwidth is compared with its bar"
like "$ROOM/good.out" "loss of the last epoch [0-9.]+ \(bar: < 1\.[0-9]+\) passed" \
    "the loss is compared with its bar"
like "$ROOM/good.out" "top-1 0\.[0-9]+ \(bar: >= 0\.3\) passed" "top-1 is compared with its bar"
like "$ROOM/good.out" "smoke test: everything works" "all bars reached: prints that everything works"
KOLO_MIN_BUSBW=1e6 KOLO_MIN_TOP1=0.99 smoke bad
is $? 69 "bars that nobody reaches: exit 69"
like "$ROOM/bad.out" "bar missed: allreduce bandwidth \(GB/s\), top-1;" "bars missed: they are named"
! grep -q "everything works" "$ROOM/bad.out"
ok $? "bars missed: does not print that everything works"
done_testing
