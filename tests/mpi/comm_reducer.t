#!/usr/bin/env bash
# Sums, groups and transfers in GPU memory between ranks of several simulated nodes, with the stand-in for a
# GPU: one TAP stream. SEED=N runs other programs of groups.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
program=$BUILD/tests/cuda/comm_reducer
if [ ! -x "$program" ] || [ ! -e "$BUILD/standin/libkolo_cuda.so" ]; then
    skip_all "$program or the stand-in is not built (make tests, with CUDA's headers)"
fi
need mpiexec
unset KOLO_CUDA_LIBRARY
for ranks in 2 3 4; do ran "$ranks ranks" mpiexec -n $ranks "$program" apart; done
SEED=${SEED:-$(($(date +%s) % 100000))}
echo "# seed $SEED"
for ranks in 2 3 4 7; do
    ran "$ranks ranks, groups" mpiexec -n $ranks "$BUILD/tests/cuda/comm_groups" apart "$SEED"
done
done_testing
