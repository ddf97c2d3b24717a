#!/usr/bin/env bash
# The launcher without Slurm: alone, and under mpiexec.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
HELLO=$BUILD/tests/mpi/launch_hello OUT=$ROOM/out
need mpiexec
[ -x "$HELLO" ] || skip_all "$HELLO is not built"
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done

"$HELLO" --exchange 100 --bind >"$OUT" 2>&1
grep -q '^single rank 0 size 1 node 0 nodes 1 local 0 of 1 host [^ ]* mpi 0$' "$OUT" && grep -q '^exchanged$' "$OUT"
ok $? "alone" "$OUT"
"$HELLO" --method dance >"$OUT" 2>&1
[[ $? == 78 ]] && grep -q '"dance" is not known' "$OUT"
ok $? "an unknown method exits 78" "$OUT"
"$HELLO" --method slurm >"$OUT" 2>&1
[[ $? == 69 ]] && grep -q 'no task of srun' "$OUT"
ok $? "method slurm without Slurm exits 69" "$OUT"
PMI_RANK=2 PMI_SIZE=4 timeout 60 "$HELLO" >"$OUT" 2>&1
[[ $? == 69 ]] && grep -q 'started 4 ranks but MPI says rank 0 of 1' "$OUT"
ok $? "an MPI that does not hear its launcher exits 69" "$OUT"

for size in 1 2 3 4 7; do
    timeout 60 mpiexec -n $size "$HELLO" --mpi-sum --exchange 3000 >"$OUT" 2>&1
    code=$?
    [[ $code == 0 && $(grep -c "^mpi rank [0-9]* size $size node 0 nodes 1 local" "$OUT") == "$size" ]] &&
        awk -v size=$size '$2 == "rank" { if ($3 != $11) bad = 1; seen[$3] = 1 } $1 == "sum" { sum = $2 }
            END { for (r = 0; r < size; r++) if (!(r in seen)) bad = 1; if (size > 1 && sum != size * (size + 1) / 2) bad = 1; exit bad }' "$OUT"
    ok $? "mpiexec: $size ranks" "$OUT"
done
env SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=9 SLURM_PROCID=0 SLURMD_NODENAME=elsewhere PMIX_NAMESPACE=x PMIX_RANK=0 \
    timeout 60 mpiexec -bootstrap fork -hosts localhost -n 2 "$HELLO" >"$OUT" 2>&1
[[ $(grep -c '^mpi rank [01] size 2 node 0 nodes 1 ' "$OUT") == 2 ]] && ! grep -q elsewhere "$OUT"
ok $? "mpiexec inside a job: Slurm's and PMIx's variables are of something outer" "$OUT"

for how in --fail --fail-busy; do
    began=$(now)
    timeout 30 mpiexec -n 3 "$HELLO" $how 1 >"$OUT" 2>&1
    code=$?
    echo "# ended after $(($(now) - began)) ms with $code"
    [[ $code == 3 &&  $(grep -c 'error: rank 1 on .*: broken on purpose' "$OUT") == 1 ]] && ! grep -q MPI_Abort "$OUT"
    ok $? "mpiexec $how: all ranks end, with that rank's message and exit code" "$OUT"
done
if unshare -m mount -t tmpfs -o size=1m none /dev/shm 2> /dev/null; then
    timeout 60 unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && exec mpiexec -n 2 "$0"' "$HELLO" > "$OUT" 2>&1
    grep -q 'warning: /dev/shm has 1.0 MiB free, MPI needs' "$OUT"
    ok $? "what MPI will not find is said before it is started" "$OUT"
else
    skip "mounting needs root"
fi
done_testing
