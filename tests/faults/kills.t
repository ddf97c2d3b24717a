#!/usr/bin/env bash
# A few ranks killed and stopped at random moments; tests/long/kills.t has more of them.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/kills.sh
. tests/kills.sh
need mpiexec kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
kills_prepare
kills 3 "${SEED:-$(($(date +%s) % 32768))}" mpiexec -n 2
done_testing
