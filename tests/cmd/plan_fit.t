#!/usr/bin/env bash
# kolo plan memory=: the ways that fit, and the fastest of them, which then fits indeed.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
net=(model=resnet20 data=synthetic classes=10 channels=3 size=32 batch=32 micro_batch=8 optimizer=adamw
    threads=1 bucket_mb=0.1 deterministic=true)
plan() { kolo plan "${net[@]}" "$@" > "$ROOM/plan" 2> "$ROOM/log"; }
row() { sed -n "s/^  $1  *\\([0-9]*\\)  *\\(yes\\|no\\)  *\\([0-9.]*\\)\$/\\1 \\2/p" "$ROOM/plan"; }
need_of() { row "$1" | cut -d ' ' -f 1; }

plan ranks=4 memory=100GiB
is $? 0 "all fits into 100 GiB" "$ROOM/log"
is "$(grep -c ' yes ' "$ROOM/plan")" "$(grep -cE '^  (copies|[a-z]+=).* (yes|no) ' "$ROOM/plan")" \
    "every way does"
copies=$(need_of copies) parts=$(need_of shard=parameters)
ok $((parts >= copies)) "parts of parameters take less than copies: $parts, $copies"
middle=$(need_of shard=optimizer)
ok $((middle >= copies || middle <= parts)) "those of the optimizer's state something between: $middle"
plan ranks=4 shard=optimizer memory=100GiB
is "$(need_of shard=optimizer)" "$middle" "what the command says of shards is no part of the ways"

limit=$((parts + (copies - parts) / 4))
plan ranks=4 memory=$limit
is $? 78 "copies do not fit into $limit: exit 78"
like "$ROOM/log" 'use shard= or stages=' "and the cure"
is "$(row copies)" "$copies no" "the table says so"
is "$(row shard=parameters)" "$parts yes" "parts of parameters fit"
best=$(sed -n 's/^the fastest that fits: //p' "$ROOM/plan")
ok $(($(row "$best" | grep -c yes) == 0)) "the fastest that fits is one that does: $best"
read -ra words <<< "$best"
plan ranks=4 memory=$limit "${words[@]}"
is $? 0 "with $best it is planned" "$ROOM/log"

plan ranks=4 memory=1MiB
is $? 78 "nothing fits into 1 MiB: exit 78"
like "$ROOM/plan" 'none fits: lower micro_batch' "and the table says what else to do"
is "$(grep -c ' yes ' "$ROOM/plan")" 0 "no way is said to fit"
plan memory=100GiB
ok $(($(grep -cE '^  (shard|stages)=' "$ROOM/plan") > 0)) "one rank has nobody to share with"

# --- layouts: groups of 4 and 8 channels fill no block of 16, for which oneDNN has its reference code alone
if grep -q avx512f /proc/cpuinfo; then
    kolo plan model=resnext50_32x4d classes=10 data=synthetic size=64 batch=2 deterministic=true threads=1 > \
        "$ROOM/plan" 2> "$ROOM/log"
    is "$? $(grep -c ' conv .*oneDNN ref' "$ROOM/plan")" "0 0" \
        "convolutions in groups of few channels are fast ones"
else
    skip "no AVX-512"
fi
done_testing
