#!/usr/bin/env bash
# tournament=: ranks with networks of their own, of a pair the better one replaces the other. What is
# drawn is a matter of the seed, a run that stops goes on with the bits of one that never did.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack kolo-shards mpiexec python3
cd "$ROOM" || exit 1
shapes_data 96 32
kolo-shards subset data/val --out data/held --limit 20 > log 2>&1
export OMP_NUM_THREADS=1
T=(kolo train shapes data=data/train val=data/val model=resnet20 size=16 batch=24 threads=1 deterministic=true
    steps=12 checkpoint_steps=3 eval_epochs=3 tournament=3)
O=("tournament_lr=0.05,0.002,0.2" "tournament_momentum=0.9,0.5" tournament_vary=1.25)
ranks() { # NUMBER RUN WORDS...
    timeout 100 mpiexec -n "$1" "${T[@]}" run="$2" "${@:3}" > log 2>&1
}
newest() { find "$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1; }
alike() { # RUN RUN TEXT: all that the newest checkpoints hold, and what was said of meetings
    local a b
    a=$(newest "$1") b=$(newest "$2")
    cmp -s "$a/tensors.safetensors" "$b/tensors.safetensors" && cmp -s "$a/carried" "$b/carried" &&
        [[ $(meetings "$1") == "$(meetings "$2")" ]]
    ok $? "$3"
}
meetings() { sed -n 's/^{"event":"tournament",\(.*\),"time".*/\1/p' "$1/events.jsonl"; }

ranks 3 whole "${O[@]}"
ok $? "three ranks, each with a learning rate of its own" log
is "$(meetings whole | wc -l)" 4 "they meet after every three steps"
ranks 3 again "${O[@]}"
alike again whole "once more: the same pairs, winners and bits"
ranks 3 parts "${O[@]}" stop_step=5
is $? 75 "the same, stopped between two meetings"
ranks 3 parts "${O[@]}"
ok $? "  and taken up again" log
alike parts whole "  all bits of all networks are the same, and all meetings"
ranks 3 other "${O[@]}" seed=7
[[ $(meetings other | grep -o '"pairs":[^a-z]*') != $(meetings whole | grep -o '"pairs":[^a-z]*') ]]
ok $? "another seed draws other pairs"

# What events say, against the rules: of two the lower loss goes on with its values, losers' rates are varied.
python3 - whole/events.jsonl > said << 'PY'
import json, sys
rate, momentum = [.05, .002, .2], [.9, .5, .9]
meetings = [json.loads(l) for l in open(sys.argv[1])]
meetings = [m for m in meetings if m["event"] == "tournament"]
for m in meetings[:-1]:
    seen = sum(m["pairs"], []) + [m["out"]]
    assert sorted(seen) == [0, 1, 2], seen
    for winner, loser in m["pairs"]:
        assert m["losses"][winner] <= m["losses"][loser]
        factor = m["lr"][loser] / rate[winner]
        assert min(abs(factor - 1.25), abs(factor - .8)) < 1e-6, factor
        assert m["momentum"][loser] == momentum[winner]
        rate[loser], momentum[loser] = m["lr"][loser], momentum[winner]
    assert all(abs(a - b) < 1e-9 for a, b in zip(rate, m["lr"])), (rate, m["lr"])
assert "pairs" not in meetings[-1]
for m in meetings: assert m["losses"][m["best"]] == min(m["losses"]) == m["best_loss"]
print("kept")
PY
is "$(cat said)" kept "winners, values and rates are as the rules say"

kolo report whole > log 2>&1
like whole/report.html 'Of 4 meetings of ranks rank [0-2] had the lowest loss' "kolo report says who was best"

# The best network is what the run leaves: kolo eval of it on the tournament's images has the meeting's loss.
ranks 3 held "${O[@]}" tournament_data=data/held
ok $? "compared by images of another folder" log
loss=$(meetings held | tail -n 1 | sed 's/.*"best_loss":\([0-9.]*\).*/\1/')
kolo eval run=held val=data/held threads=1 > log 2>&1
like log "$(printf 'loss %.3f' "$loss")" "kolo eval evaluates the network that was best at the end: $loss"
ranks 1 held "${O[@]}" tournament_data=data/held steps=12
like log 'is complete' "it is complete"

ranks 2 two tournament=100
ok $? "a tournament of one meeting, at the end" log
is "$(meetings two | grep -c '"pairs"')" 0 "  has no pairs"

kolo plan shapes model=resnet20 data=data/train val=data/val batch=32 ranks=4 steps=20 tournament=4 > log 2>&1
is $? 0 "kolo plan of a tournament"
like log 'tournament: .* 4 meetings' "  says how often ranks meet"
like log 'a loser is sent [0-9]* bytes in [0-9]* messages' "  and what is sent"

# --- groups of two ranks: three networks. Who has whose after a meeting, by the ranks' weights and state
G=("${O[@]}" tournament_group=2)
counted() { python3 "$TOP/tests/tournament.py" meetings "$1/events.jsonl" "$2" 0 1.25 .05,.002,.2 2>&1; }
alike_ranks() { python3 "$TOP/tests/tournament.py" ranks "$(newest "$1")/carried" 2>&1; }
is "$(counted whole 1)" "4 meetings of 3" "pairs, winners and rates of three ranks, by another program"
ranks 6 groups "${G[@]}"
is "$? $(counted groups 2)" "0 4 meetings of 3" "three groups of two ranks: likewise" log
ranks 6 meet "${G[@]}" stop_step=5
is "$? $(alike_ranks meet)" "75 0 0 2 2 4 4" "between meetings the ranks of a group have one network" log
ranks 6 meet "${G[@]}" stop_step=6
pair=$(sed -n 's/.*"step":6,.*"pairs":\[\[\([0-9],[0-9]\)\]\].*/\1/p' meet/events.jsonl)
has=(0 0 2 2 4 4) winner=${pair%,*} loser=${pair#*,}
for place in 0 1; do # who comes first of those that have it
    to=$((2 * loser + place)) from=$((2 * (winner < loser ? winner : loser)))
    has[to]=$from has[2 * winner + place]=$from
done
is "$(alike_ranks meet)" "${has[*]}" "group $winner won against $loser, and all four ranks have its network"
ranks 6 meet "${G[@]}"
alike meet groups "stopped twice and taken up: all bits of all networks, and all meetings"
loss=$(meetings groups | tail -n 1 | sed 's/.*"best_loss":\([0-9.]*\).*/\1/')
kolo eval run=groups val=data/val threads=1 > log 2>&1
like log "$(printf 'loss %.3f' "$loss")" "kolo eval evaluates the network that was best at the end: $loss"
kolo report groups > log 2>&1
like groups/report.html 'Of 4 meetings of groups group [0-2] had the lowest loss' "kolo report says who"
kolo compare groups whole > log 2>&1
like log 'groups of 2 ranks meet in pairs after every 3 steps' "and kolo compare who meets"
kolo plan shapes model=resnet20 data=data/train val=data/val batch=24 ranks=6 steps=20 tournament=4 \
    tournament_group=2 > log 2>&1
like log 'tournament: 3 groups of 2 ranks .* 4 meetings of 1 pair .* one group sits out' "kolo plan of groups"

# what travels lies in the place of gradients, whose padding counts in norms: a run that stops at a meeting
# continues from zeros there
norms=(shapes data=data/train val=data/val model=mlp size=28 batch=6 micro_batch=1 steps=5 epochs=0 lr=0.001 \
    optimizer=novograd tournament=2 deterministic=true threads=1)
mpiexec -n 2 kolo train "${norms[@]}" run=norms > log 2>&1
is $? 0 "a tournament of NovoGrad, with biases of ten numbers"
mpiexec -n 2 kolo train "${norms[@]}" run=halted stop_step=2 > log 2>&1
is $? 75 "and one that stops at a meeting"
mpiexec -n 2 kolo train "${norms[@]}" run=halted > log 2>&1
cmp "$(tensors_of norms)" "$(tensors_of halted)" >> log 2>&1
ok $? "and goes on to the same bytes" log

refused() { # PATTERN WORDS...
    kolo plan shapes data=data/train val=data/val batch=32 ranks=2 epochs=2 "${@:2}" > log 2>&1
    is "$? $(grep -cE -- "$1" log)" "78 1" "${*:2}: refused, $1" || sed 's/^/# /' log
}
refused 'tournament= does not go with reduce=canonical' tournament=4 reduce=canonical
refused 'tournament= does not go with bn=sync' tournament=4 bn=sync
refused 'tournament= does not go with stages=: replicas are single ranks' tournament=4 stages=2
refused 'tournament=4 lets the better network of two go on, local_steps=' tournament=4 local_steps=2
refused 'tournament=4: by which images are networks compared' tournament=4 val=none
refused 'tournament_vary= is of tournaments' tournament_vary=1.2
refused 'tournament_lr=0.1,x: give numbers' tournament=4 tournament_lr=0.1,x
refused 'tournament_group=2 of 2 ranks: one group has nobody to meet' tournament=4 tournament_group=2
refused 'tournament_group=3 does not divide 2 ranks' tournament=4 tournament_group=3
refused 'tournament_group= is of tournaments' tournament_group=2
done_testing
