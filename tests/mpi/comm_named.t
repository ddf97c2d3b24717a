#!/usr/bin/env bash
# Named requests with 2, 3, 4 and 7 ranks, a stalled name, timelines: whole, of killed ranks, merged.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/mpi/comm_named
[ -x "$program" ] || skip_all "$program is not built (make tests, with MPI=1)"
need mpiexec
run() { # NAME RANKS WORDS...
    local name=$1 ranks=$2
    shift 2
    timeout 60 mpiexec -n "$ranks" "$program" "$@" > "$ROOM/$name.out" 2>&1
}
for n in 2 3 4 7; do
    run "$n" "$n"
    is $? 0 "$n ranks: $(grep -c '^ok' "$ROOM/$n.out") behaviours"
    grep '^not ok\|^# ' "$ROOM/$n.out" | sed 's/^/#   /'
done
for nodes in 2 5; do
    run "nodes$nodes" 5 nodes $nodes
    is $? 0 "5 ranks on $nodes simulated nodes: $(grep -c '^ok' "$ROOM/nodes$nodes.out") behaviours"
    grep '^not ok\|^# ' "$ROOM/nodes$nodes.out" | sed 's/^/#   /'
done

KOLO_COMM_STALL_WARNING=0.4 KOLO_COMM_STALL_END=1 run stall 3 stall
is $? 0 "a name that one rank submits late is an error on all, and the world is whole"
like "$ROOM/stall.out" 'warning: comm: group 0 waits for names that some ranks have not submitted' \
    "it is reported"
like "$ROOM/stall.out" '"late", for [0-9]+ s: missing on rank 2' "with name and rank"
like "$ROOM/stall.out" 'rank 2 \(.+\) finished "before" last, [0-9]+ s ago, and has submitted nothing' \
    "and what that rank did last"

timeout 60 mpiexec -n 3 "$program" forget > "$ROOM/forget.out" 2>&1
is "$? $(cat "$ROOM/forget.out")" "0 " "a program that ends on all ranks without closing the world ends well"
if hydra; then
    KOLO_COMM_HEARTBEAT_TIMEOUT=1 timeout 60 mpiexec -disable-auto-cleanup -n 3 "$program" forget 1 > \
        "$ROOM/forget.out" 2>&1
    is "$(grep -cE \
        '^rank [02] after [0-9]{1,2} s: status -69: rank 1 on host .* gave up: its program ended without kolo_world_close' \
        "$ROOM/forget.out")" 2 \
        "where one rank does, the others are told soon" || sed 's/^/#   /' "$ROOM/forget.out"
else
    skip "mpiexec ends all ranks where one ends"
fi

KOLO_COMM_PATIENCE=20 run old 2 forget
is "$(grep -c 'warning: comm: KOLO_COMM_PATIENCE is an old name; write KOLO_COMM_HEARTBEAT_TIMEOUT' \
    "$ROOM/old.out")" 1 "an old name of a variable: accepted, with one warning"

KOLO_COMM_TIMELINE=$ROOM/line run line 3 steps 20
is $? 0 "steps with a timeline"
is "$(cd "$ROOM/line" && echo rank-*.json)" "rank-0.json rank-1.json rank-2.json" "a file for every rank"
kolo timeline merge "$ROOM/line" > "$ROOM/merge.out" 2>&1
is $? 0 "kolo timeline merge"
like "$ROOM/merge.out" 'timeline.json: [0-9]+ events of 3 ranks, clocks known to [0-9.]+ us$' \
    "says what it has read"
"$program" read "$ROOM/line/timeline.json" 3 allreduce negotiate > "$ROOM/read.out" 2>&1
is $? 0 "all ranks' events are in one JSON array, within the time of the job"
sed 's/^/#   /' "$ROOM/read.out"
truncate -s -30 "$ROOM/line/rank-1.json"
kolo timeline merge "$ROOM/line" > "$ROOM/merge.out" 2>&1
like "$ROOM/merge.out" '^1 lines that are no whole event were left out' \
    "a torn file is read as far as it goes"
mv "$ROOM/line" "$ROOM/line[1]*"
kolo timeline merge "$ROOM/line[1]*" > "$ROOM/merge.out" 2>&1
is $? 0 "a folder's name is no pattern"
KOLO_COMM_TIMELINE_BYTES=200K KOLO_COMM_TIMELINE=$ROOM/short run short 2 steps 60
is "$(cd "$ROOM/short" && echo rank-*.json)" "rank-0.json rank-0.older.json rank-1.json rank-1.older.json" \
    "KOLO_COMM_TIMELINE_BYTES: the older half stands apart"
kolo timeline merge "$ROOM/short" > "$ROOM/merge.out" 2>&1
like "$ROOM/merge.out" 'timeline.json: [0-9]+ events of 2 ranks, clocks known to [0-9.]+ us$' \
    "and is merged with the newer one"
is "$(grep -c '"ph":"X"' "$ROOM/short/timeline.json")" "$(cat "$ROOM"/short/rank-*.json |
    grep -c '"ph":"X"')" "without losing events"
kolo timeline merge "$ROOM" > "$ROOM/merge.out" 2>&1
is $? 2 "a folder without timelines is refused"
kolo timeline > "$ROOM/merge.out" 2>&1
is $? 78 "so are other words"

# KOLO_COMM_AUTOTUNE settles and says so
KOLO_COMM_AUTOTUNE=1 run tune 2 tune
like "$ROOM/tune.out" 'group 0 settled on KOLO_COMM_FUSION=[0-9]+ KOLO_COMM_CYCLE=[0-9.e-]+: steps of' \
    "settings are tuned"
for fixed in 0 1; do KOLO_COMM_FIXED_ORDER=$fixed KOLO_COMM_CACHE=$((fixed ? 8 : -1)) run "fixed$fixed" 3 \
    steps 12 && is $? 0 "fixed_order=$fixed, small or no cache"; done
done_testing
