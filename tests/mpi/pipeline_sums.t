#!/usr/bin/env bash
# Pipelines whose replicas sum within a step: each holds to the bytes of the same run without stages on as many
# ranks as replicas.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh

# --- batch norm over the replicas
held sync1 1 bn=sync
same 2 bn=sync stages=2
held sync2 2 bn=sync
cmp -s "$(tensors_of "$ROOM/sync1")" "$(tensors_of "$ROOM/sync2")"
is $? 1 "its statistics are of all ranks: two give other bytes than one"
same 4 bn=sync stages=2
same 4 bn=sync stages=2 pipeline=interleaved chunks=2
same 6 bn=sync stages=3 pipeline=zero_bubble
held sizes 2 bn=sync multi_scale=16-32:8:1 clip_norm=0.5
same 4 bn=sync multi_scale=16-32:8:1 clip_norm=0.5 stages=2
done_testing
