#!/usr/bin/env bash
# `kolo plan --export-strategy`: a plan as a table of operations, degrees and ranks; read by plan=FILE it is
# the same plan, to the byte. Mistakes are named by their line.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo
export KOLO_CACHE=$ROOM/cache
cd "$ROOM" || exit
small=(model=resnet20 data=synthetic val=none size=16 batch=16 micro_batch=4 conv=direct)
plan() { # WORD...: to log
    timeout 60 kolo plan "${small[@]}" "$@" > log 2>&1
}
hash() { sed -n 's/.*actions, .* hash //p' log; }
for grid in "ranks=4 spatial=2x1 stages=2" "ranks=4 tensor=2" \
    "ranks=4 stages=2 pipeline=interleaved chunks=2" "ranks=4 stages=2"; do
    read -r -a words <<< "$grid"
    plan "${words[@]}" --export-strategy table.yaml
    ok $? "$grid: written" log
    was=$(hash)
    plan "${words[0]}" plan=table.yaml
    is "$? $(hash)" "0 $was" "... read it is the same plan" || sed 's/^/#     /' log
done
like table.yaml '^conv1: \[2, 1, 1, 1,  [0-3], [0-3]\]$' "a line has four degrees and the ranks"
at() { grep -n "^$1:" table.yaml | cut -d: -f1; }
refuse() { # TEXT PATTERN SED-SCRIPT WORD...: the table, edited
    sed "$3" table.yaml > edited.yaml
    plan ranks=4 plan=edited.yaml "${@:4}"
    is $? 78 "$1: exit 78" || sed 's/^/#     /' log
    like log "$2" "... named by its line"
}
line=edited.yaml:$(at conv1)
refuse "another version" "edited.yaml:$(at kolo_strategy):.*version 7" 's/^kolo_strategy:.*/kolo_strategy: 7/'
refuse "another number of ranks" "edited.yaml:$(at ranks):.*plan for 8 ranks, and 4" 's/^ranks:.*/ranks: 8/'
refuse "no such operation" "$line:.*no operation conw1; is conv1 meant" 's/^conv1:/conw1:/'
refuse "an operation twice" "edited.yaml:[0-9]+:.*conv1" 's/^\(conv1:.*\)/\1\n\1/'
refuse "no line for an operation" "edited.yaml: no line for conv1" '/^conv1:/d'
refuse "a degree of 0" "$line:.*\"0,1,.*no degree" 's/^conv1: \[2/conv1: [0/'
refuse "a rank that there is not" "$line:.*rank 9, and there are 4" 's/^\(conv1:.*\), [0-3]\]/\1, 9]/'
refuse "no ranks" "$line:.*4 numbers; four degrees .* and the ranks" 's/^conv1:.*/conv1: [2, 1, 1, 1]/'
refuse "no number" "$line:.*\"x\" is no" 's/^conv1:.*/conv1: [2, 1, 1, 1, x]/'
refuse "stages of unequally many ranks" "$line:.*samples are divided by 1.*unequally many" \
    's/^conv1:.*/conv1: [1, 1, 1, 1, 0]/'
refuse "ranks that are of two stages" "edited.yaml:[0-9]+:.*does not go with the other lines" \
    's/^conv1:.*/conv1: [2, 1, 1, 1, 0, 3]/'
refuse "an option that says otherwise" "edited.yaml:[0-9]+:.*stages=4 is given" '' stages=4
done_testing
