#!/usr/bin/env bash
# The launcher without Slurm: alone, and under mpiexec.
set -u
cd "$(dirname "$0")/../.." || exit 1
HELLO=$PWD/${BUILD:-build}/tests/mpi/launch_hello
command -v mpiexec >/dev/null || { echo "1..0 # SKIP no mpiexec"; exit 0; }
[[ -x $HELLO ]] || { echo "1..0 # SKIP $HELLO is not built"; exit 0; }
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
COUNT=0 FAILED=0
OUT=$(mktemp)
trap 'rm -f "$OUT"' EXIT
ok() { # exit code, text
    COUNT=$((COUNT + 1))
    if (($1 == 0)); then
        echo "ok $COUNT - $2"
    else
        FAILED=1
        echo "not ok $COUNT - $2"
        sed 's/^/#   /' "$OUT"
    fi
}
now() { date +%s%N; }

"$HELLO" --exchange 100 --bind >"$OUT" 2>&1
grep -q '^single rank 0 size 1 node 0 nodes 1 local 0 of 1 host [^ ]* mpi 0$' "$OUT" && grep -q '^exchanged$' "$OUT"
ok $? "alone"
"$HELLO" --method dance >"$OUT" 2>&1
[[ $? == 78 ]] && grep -q '"dance" is not known' "$OUT"
ok $? "an unknown method exits 78"
"$HELLO" --method slurm >"$OUT" 2>&1
[[ $? == 69 ]] && grep -q 'no task of srun' "$OUT"
ok $? "method slurm without Slurm exits 69"
PMI_RANK=2 PMI_SIZE=4 timeout 60 "$HELLO" >"$OUT" 2>&1
[[ $? == 69 ]] && grep -q 'started 4 ranks but MPI says rank 0 of 1' "$OUT"
ok $? "an MPI that does not hear its launcher exits 69"

for size in 1 2 3 4 7; do
    timeout 60 mpiexec -n $size "$HELLO" --mpi-sum --exchange 3000 >"$OUT" 2>&1
    code=$?
    [[ $code == 0 && $(grep -c "^mpi rank [0-9]* size $size node 0 nodes 1 local" "$OUT") == "$size" ]] &&
        awk -v size=$size '$2 == "rank" { if ($3 != $11) bad = 1; seen[$3] = 1 } $1 == "sum" { sum = $2 }
            END { for (r = 0; r < size; r++) if (!(r in seen)) bad = 1; if (size > 1 && sum != size * (size + 1) / 2) bad = 1; exit bad }' "$OUT"
    ok $? "mpiexec: $size ranks"
done
env SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=9 SLURM_PROCID=0 SLURMD_NODENAME=elsewhere PMIX_NAMESPACE=x PMIX_RANK=0 \
    timeout 60 mpiexec -bootstrap fork -hosts localhost -n 2 "$HELLO" >"$OUT" 2>&1
[[ $(grep -c '^mpi rank [01] size 2 node 0 nodes 1 ' "$OUT") == 2 ]] && ! grep -q elsewhere "$OUT"
ok $? "mpiexec inside a job: Slurm's and PMIx's variables are of something outer"

for how in --fail --fail-busy; do
    began=$(now)
    timeout 30 mpiexec -n 3 "$HELLO" $how 1 >"$OUT" 2>&1
    code=$?
    took=$((($(now) - began) / 1000000))
    echo "# ended after $took ms with $code"
    ((code == 3 && took < 5000)) && [[ $(grep -c 'error: rank 1 on .*: broken on purpose' "$OUT") == 1 ]] && ! grep -q MPI_Abort "$OUT"
    ok $? "mpiexec $how: all ranks end within 5 s, with that rank's message and exit code"
done
echo "1..$COUNT"
exit $FAILED
