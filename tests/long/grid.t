#!/usr/bin/env bash
# Grids of three dimensions: 2 parts x 2 stages x 2 replicas, and parts of both kinds, killed with -9 and gone
# on with by other grids of the same parts. 3 minutes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
for parts in tensor=2 spatial=2x1 "tensor=2 spatial=1x2"; do
    read -ra words <<< "$parts"
    alone parts "${words[@]}" clip_norm=0.5 ema=0.9
    same 8 "${words[@]}" clip_norm=0.5 ema=0.9 stages=2 pipeline=1f1b
    rm -rf "$first"
done
killed 8 4 tensor=2 stages=2
killed 8 4 spatial=1x2 stages=2 pipeline=zero_bubble
killed 8 4 tensor=2 spatial=2x1 stages=2 optimizer=lamb lr=0.01
done_testing
