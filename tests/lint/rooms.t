#!/usr/bin/env bash
# The order of the rooms, and that its check can fail.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
none "every room includes only rooms before it" "$(tests/lint/rooms.sh . 2>&1)"

# a network is a file of models/: what computes, plans and trains knows none
networks=$(sed -n 's/^MODEL([a-z0-9_]*, *\([a-z]*\).*/\1/p' src/models/models.def | sort -u | paste -sd'|')
is "$(echo "|$networks|" | grep -oE '\|(swin|yolox|resnet)' | wc -l)" 3 "the networks are known"
none "no network's name in metrics/, train/, plan/, exec/" "$(grep -rniE "$networks" src/metrics src/train \
    src/plan src/exec)"

tree=$ROOM/tree
mkdir -p "$tree"/{src/{base,data,graph,ops/cpu,models,comm,plan},include/kolo,hdf5_tools/{readers,pack}}
touch "$tree/include/kolo/error.h" "$tree/hdf5_tools/pack/pack.h"
offends() { # FILE INCLUDE WORDS
    printf '#include <stdio.h>\n# include "%s"\n' "$2" >"$tree/$1"
    rows=$(tests/lint/rooms.sh "$tree")
    [[ $? -eq 1 && $rows == "$1:2: "*"$3"* ]]
    ok $? "$1 must not include $2"
    rm "$tree/$1"
}
offends src/base/a.c plan/plan.h "stands after it"
offends src/graph/a.h data/shard/shard.h "do not know each other"
offends src/models/a.c ops/backend.h "do not know each other"
offends src/comm/a.c graph/graph.h "do not know each other"
mkdir -p "$tree"/src/comm/{algorithm,buckets,core/transport,library}
printf '#include "comm/core/list.h"\n' >"$tree/src/comm/algorithm/ring.c"
touch "$tree/src/comm/core/list.h"
offends src/comm/core/list.c comm/algorithm/build.h "built on comm/core/list"
rm "$tree/src/comm/core/list.h" "$tree/src/comm/algorithm/ring.c"
offends src/comm/core/a.c comm/buckets/node.h "does not know comm/buckets"
offends src/comm/core/transport/a.c comm/library/parts.h "does not know comm/library"
offends src/comm/algorithm/a.c comm/buckets/node.h "does not know comm/buckets"
offends src/comm/buckets/a.c comm/library/parts.h "does not know comm/library"
offends src/comm/library/a.c comm/buckets/node.h "does not know comm/buckets"
offends src/ops/cpu/a.c plan/plan.h "stands after it"
offends src/base/a.c ../plan/plan.h "relative path"
offends src/base/a.c error.h "has no room"
offends src/base/a.c kolo/nothing.h "no include/kolo/nothing.h"
offends src/base/a.c lobby/door.h "not a room"
offends include/kolo/a.h base/file.h "an installed header"
offends hdf5_tools/a.c graph/graph.h "stands after data"
offends hdf5_tools/pack/a.c pack.h "no hdf5_tools/pack.h"
offends hdf5_tools/readers/a.c pack/pack.h "stands after it"
printf '#include "base/file.h"\n#include "kolo/error.h"\n#include "data/shard/shard.h"\n' \
    >"$tree/src/plan/a.c"
none "what is allowed passes" "$(tests/lint/rooms.sh "$tree" 2>&1)"
done_testing
