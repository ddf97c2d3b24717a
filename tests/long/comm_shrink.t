#!/usr/bin/env bash
# Ranks that die while the survivors of others agree, 40 times for every case, each time 2 ms later.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/unit/comm_shrink LIMIT=300
[ -x "$program" ] || skip_all "$program is not built (make tests)"
ran "drills" "$program" 40
done_testing
