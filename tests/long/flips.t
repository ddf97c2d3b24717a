#!/usr/bin/env bash
# 5,000 single flipped bits in each kind of shard: none changes a result unseen. Two minutes.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
export KOLO_FLIP_SEED=${KOLO_FLIP_SEED:-$RANDOM}
LIMIT=3000 KOLO_FLIPS=${KOLO_FLIPS:-5000} ran "shards" "$BUILD/tests/unit/data_flips"
done_testing
