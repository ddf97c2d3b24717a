#!/usr/bin/env bash
# The launcher without Slurm: alone, and under mpiexec.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
HELLO=$BUILD/tests/mpi/launch_hello OUT=$ROOM/out
need mpiexec
[ -x "$HELLO" ] || skip_all "$HELLO is not built"
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done

"$HELLO" --exchange 100 --bind >"$OUT" 2>&1
grep -q '^single rank 0 size 1 node 0 nodes 1 local 0 of 1 host [^ ]* mpi 0$' "$OUT" &&
    grep -q '^exchanged$' "$OUT"
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
    timeout -k 5 60 mpiexec -n $size "$HELLO" --mpi-sum --exchange 3000 >"$OUT" 2>&1
    code=$?
    [[ $code == 0 && $(grep -cE "^(mpi|pmix) rank [0-9]* size $size node 0 nodes 1 local" "$OUT") == "$size" \
        ]] &&
        awk -v size=$size '$2 == "rank" { if ($3 != $11) bad = 1; seen[$3] = 1 } $1 == "sum" { sum = $2 }
            END { for (r = 0; r < size; r++) if (!(r in seen)) bad = 1;
                if (size > 1 && sum != size * (size + 1) / 2) bad = 1; exit bad }' \
                "$OUT"
    ok $? "mpiexec: $size ranks" "$OUT"
done
if hydra; then
    env SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=9 SLURM_PROCID=0 SLURMD_NODENAME=elsewhere \
        PMIX_NAMESPACE=x PMIX_RANK=0 timeout -k 5 60 mpiexec -bootstrap fork -hosts localhost -n 2 "$HELLO" \
        >"$OUT" 2>&1
    [[ $(grep -c '^mpi rank [01] size 2 node 0 nodes 1 ' "$OUT") == 2 ]] && ! grep -q elsewhere "$OUT"
    ok $? "mpiexec inside a job: Slurm's and PMIx's variables are of something outer" "$OUT"
else
    skip "mpiexec is not MPICH's: no options to start ranks as if in a job"
fi

for how in --fail --fail-busy; do
    began=$(now)
    timeout -k 2 25 mpiexec -n 3 "$HELLO" $how 1 >"$OUT" 2>&1
    code=$?
    echo "# ended after $(($(now) - began)) ms with $code"
    [[ $code == 3 &&  $(grep -c 'error: rank 1 on .*: broken on purpose' "$OUT") == 1 ]] &&
        ! grep -q MPI_Abort "$OUT"
    ok $? "mpiexec $how: all ranks end, with that rank's message and exit code" "$OUT"
done
if hydra; then # which does not end the others where one ends before MPI begins
    timeout -k 2 25 mpiexec -n 3 kolo train shapes lrr=3 >"$OUT" 2>&1
    code=$?
    [[ $code == 78 && $(grep -c 'unknown option "lrr"' "$OUT") == 1 ]]
    ok $? "mpiexec, a misspelt option: reported once, exit 78 ($code)" "$OUT"
    timeout -k 2 25 mpiexec -n 1 kolo train shapes data=synthetic run="$ROOM/run" : \
        -n 1 kolo train shapes lrr=3 >"$OUT" 2>&1
    code=$?
    [[ $code == 78 && $(grep -c 'unknown option "lrr"' "$OUT") == 1 ]]
    ok $? "a misspelt option of rank 1 alone ends the job, exit 78 ($code)" "$OUT"
else
    skip "mpiexec is not MPICH's"
    skip "mpiexec is not MPICH's"
fi
# --- ranks that do not come, or stop: the others report them; side by side, since all of them wait
hello() { # NAME OPTIONS...: three ranks
    local began
    began=$(now)
    timeout -k 2 25 mpiexec -n 3 "$HELLO" "${@:2}" > "$ROOM/$1.out" 2>&1
    echo "$? $(($(now) - began))" > "$ROOM/$1.status"
}
pids=()
hello late --within 2 --late 1 & pids+=($!)
hello stop --within 30 --heartbeat-timeout 2 --stop 2 & pids+=($!)
hello stop-later --within 30 --heartbeat-timeout 2 --stop-later 0 --exchange 10 & pids+=($!)
hello busy --within 2 --busy-later 1 --exchange 10 & pids+=($!)
hello paused --within 4 --heartbeat-timeout 0.5 --busy-later 1 --exchange 10 & pids+=($!)
hello stop-end --within 30 --heartbeat-timeout 2 --stop-end 1 & pids+=($!)
# all ranks of the node stand still for longer than a short heartbeat_timeout, as in a suspended job
(sleep 1.5 && list=$(pgrep -f "^$HELLO --within 4 ") && for signal in STOP CONT; do
    kill -$signal $list # word by word
    sleep 0.9
done) &
wait "${pids[@]}"
named() { # NAME PATTERN TEXT: exit 69 within 17 s
    local code took
    read -r code took < "$ROOM/$1.status"
    echo "# ended after $took ms with $code"
    hydra || code=69 took=0 # Open MPI's mpiexec may crash, or hang, where its ranks are killed
    [[ $code == 69 && $took -lt 17000 ]] && grep -qE "error: launch: no progress in $2" "$ROOM/$1.out"
    ok $? "$3, exit 69" "$ROOM/$1.out"
}
named late '(MPI_Init|the exchange of names) for [0-9]+ s: rank 1 on host [^ ]+ has not begun' \
    "a rank that never reaches MPI_Init is named"
named stop '[^:]* for [0-9]+ s: rank 2 on host [^ ]+ \(pid [0-9]+\) was stopped' \
    "a rank that stops within the launch is named"
named stop-later 'an exchange for [0-9]+ s: rank 0 on host [^ ]+ \(pid [0-9]+\) was stopped' \
    "rank 0 stops before an exchange: the others name it"
named busy 'an exchange for [0-9]+ s: rank 1 on host [^ ]+ \(pid [0-9]+\) has not come there' \
    "a rank that lives, but does not come to an exchange, is named"
named paused 'an exchange for [0-9]+ s: rank 1 on host [^ ]+ \(pid [0-9]+\) has not come there' \
    "a pause of the whole node, longer than the heartbeat_timeout, is held against nobody: the late rank is named"
named stop-end 'the end for [0-9]+ s: rank 1 on host [^ ]+ \(pid [0-9]+\) was stopped' \
    "a rank that stops at the end, while MPI_Finalize waits for it, is named"
left() { # of launchers that are gone
    local file pid
    for file in /dev/shm/kolo-launch-"$(id -u)"-*; do
        pid=${file#*kolo-launch-*-}
        [ ! -e "$file" ] || [ -e "/proc/${pid%-*}" ] || echo "$file"
    done
}
timeout -k 5 60 mpiexec -n 2 "$HELLO" --within 20 >"$OUT" 2>&1 # sweeps
none "what launches leave in /dev/shm when they are killed is removed by the next one" "$(left)"
if unshare -m mount -t tmpfs -o size=1m none /dev/shm 2> /dev/null; then
    timeout -k 5 60 unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm &&
        exec mpiexec -n 2 "$0"' "$HELLO" > "$OUT" 2>&1
    grep -q 'warning: /dev/shm has 1.0 MiB free, MPI needs' "$OUT"
    ok $? "what MPI will not find is said before it is started" "$OUT"
    if hydra; then
        timeout -k 5 60 unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm &&
            exec mpiexec -n 2 "$0" --within 20' "$HELLO" > "$OUT" 2>&1
        code=$?
        [[ $code == 69 ]] && grep -q 'error: launch: MPI could not start on host .*df /dev/shm' "$OUT"
        ok $? "where MPI cannot start, the job ends with 69 and a cure ($code)" "$OUT"
    else
        skip "Open MPI does without /dev/shm"
    fi
else
    skip "mounting needs root"
    skip "mounting needs root"
fi
done_testing
