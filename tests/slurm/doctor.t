#!/usr/bin/env bash
# kolo doctor on the nodes of a private Slurm, of which one is slow and one has a wrong clock: both are named,
# and no other.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 4 1
cd "$ROOM" || exit 1
shapes_data 256
doctor() { # NAME WORDS OF sbatch...: its exit status
    local name=$1 job
    shift
    job=$(sbatch --parsable --nodes=4 --output="$ROOM/$name.out" "$@" "$TOP/jobs/doctor.sh") || return
    await "$job" > /dev/null
    return "$(scontrol show job "$job" | sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p')"
}
export KOLO_WORK=$ROOM/work KOLO_DATASET=$ROOM/data
LD_PRELOAD=$BUILD/tests/preload/slow_node.so SLOW_NODE=n3 WRONG_CLOCK=n2 doctor slow
is $? 69 "a slow node: exit 69"
like "$ROOM/slow.out" \
    '^FAIL pairs +\[rank 0 n1\] node n3 sends and gets [0-9.]+ GB/s with the others.*--exclude=n3' \
    "the node whose messages are slow is named, with the cure"
like "$ROOM/slow.out" '^FAIL compute +.* node n3 computes' "the node that computes slowly is named"
like "$ROOM/slow.out" '^FAIL exclude .*sbatch --exclude=n3 ' "all slow nodes: the words for sbatch"
none "no other node is called slow" "$(grep -E '^FAIL .*node n[124] ' "$ROOM/slow.out")"
like "$ROOM/slow.out" \
    '^warn clock .*the clock of node n2 is [45]\.[0-9]+ s ahead of that of node n1: start chronyd' \
    "the clock that is ahead by 5 s is named"
none "no other clock is" "$(grep -E '^warn clock .*node n[34] ' "$ROOM/slow.out")"
like "$ROOM/slow.out" '^ok +pairs .*4 nodes: [0-9.]+ GB/s between two' "the usual bandwidth is printed"
like "$ROOM/slow.out" '^ok +data .* reads [0-9]+ MB/s, [0-9]+ images/s' \
    "the data folder's read rate is printed"
like "$ROOM/slow.out" '^ok +data .*data/train lies on [a-z0-9]+ \(' "the data folder's file system is printed"
like "$ROOM/slow.out" '^ok +PMIx .*the launcher.s server is [0-9]' "PMIx's versions: of library and server"

# of two nodes, which share this machine's cores with whatever else runs here, none can be called slow
KOLO_ARGS=--json doctor well --nodes=2
is $? 0 "nodes that are well: exit 0"
python3 - "$ROOM/well.out" << 'END'
import json, sys
rows = [json.loads(l) for l in open(sys.argv[1]) if l.startswith("{")]
keys = {"verdict", "check", "rank", "host", "text", "cure"}
assert len(rows) > 15 and all(set(r) == keys for r in rows)
assert {r["verdict"] for r in rows} <= {"ok", "warn"}, [r for r in rows if r["verdict"] == "fail"]
told = ("limits", "environ", "run")
assert all(r["cure"] for r in rows if r["verdict"] == "warn" and r["check"] in told)
assert any(r["check"] == "clock" and "2 nodes agree" in r["text"] for r in rows)
END
ok $? "--json: one object a line, with verdict, check, rank, host, text and cure; clocks agree" \
    "$ROOM/well.out"
KOLO_SITE=$ROOM/work/site.yaml kolo plan shapes > "$ROOM/plan" 2>&1
ok $? "the site's file that it wrote is one for KOLO_SITE" "$ROOM/plan"
done_testing
