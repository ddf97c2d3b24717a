#!/usr/bin/env bash
# 200 ranks killed and stopped at random moments, half of them under mpiexec, half on two nodes of a Slurm.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/kills.sh
. tests/kills.sh
need mpiexec kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
COUNT=${COUNT:-100} SEED=${SEED:-$(($(date +%s) % 32768))}
kills_prepare
kills "$COUNT" "$SEED" mpiexec -n 2
for KOLO_SHARD in gradients parameters; do # which write their checkpoints together
    export KOLO_SHARD
    kills $((COUNT / 4)) "$SEED" mpiexec -n 2
done
unset KOLO_SHARD
cluster 2 2
if srun --mpi=list 2>&1 | grep -q pmix; then
    kills "$COUNT" "$SEED" srun -Q -K1 --mpi=pmix -N 2 -n 2
else
    skip "this Slurm has no PMIx"
fi
done_testing
