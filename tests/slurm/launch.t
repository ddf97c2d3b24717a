#!/usr/bin/env bash
# Rank, size and node map on a real Slurm, whatever starts the job; and how a job ends that cannot go on.
# shellcheck disable=SC2016 # commands for the tasks' shells expand there
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
HELLO=$BUILD/tests/mpi/launch_hello OUT=$ROOM/out
[ -x "$HELLO" ] || skip_all "$HELLO is not built"
need mpiexec
cluster 4 8
HAVE_PMIX=0
if srun --mpi=list 2>&1 | grep -q pmix; then HAVE_PMIX=1; fi

# What every rank says must be what Slurm itself told its task; rank 0's map must be that of all ranks.
agrees() { # method, size, nodes
    awk -v method="$1" -v size="$2" -v nodes="$3" '
        $1 == "slurm:" { host[$2] = $3; local[$2] = $4; tasks++ }
        $2 == "rank" {
            said++
            if ($1 != method || $5 != size || $9 != nodes || $17 != (size > 1)) bad = "line: " $0
            where[$3] = $15; place[$3] = $11; number[$3] = $7
        }
        $1 == "job" { for (i = 4; i <= NF; i++) map[i - 4] = $i; mapped = NF - 3 }
        $1 == "sum" { sum = $2 }
        END {
            if (tasks != size || said != size || mapped != size)
                bad = tasks " tasks, " said " answers, " mapped " in the map"
            for (r = 0; r < size; r++) {
                if (where[r] != host[r] || place[r] != local[r])
                    bad = "rank " r ": " where[r] ":" place[r] ", Slurm says " host[r] ":" local[r]
                if (map[r] != host[r] ":" local[r]) bad = "map of rank " r ": " map[r]
                if (!(host[r] in seen)) seen[host[r]] = next_node++
                if (number[r] != seen[host[r]]) bad = "rank " r ": node " number[r]
            }
            if (next_node != nodes) bad = next_node " nodes"
            if (size > 1 && sum != size * (size + 1) / 2) bad = "sum " sum
            if (bad) { print "#   " bad; exit 1 }
        }' "$OUT"
}
start_all() { # --mpi type, size, nodes, distribution
    timeout 60 srun --mpi="$1" -N"$3" -n"$2" -m "$4" bash -c \
        'echo "slurm: $SLURM_PROCID $SLURMD_NODENAME $SLURM_LOCALID"; exec "$0" --mpi-sum --exchange 700' \
        "$HELLO" >"$OUT" 2>&1
}

if ((HAVE_PMIX)); then
    for shape in "1 1 block" "2 2 block" "3 2 cyclic" "4 1 block" "4 4 block" "7 4 block" "7 4 cyclic"; do
        read -r size nodes how <<<"$shape"
        began=$(now)
        start_all pmix "$size" "$nodes" "$how" && agrees pmix "$size" "$nodes"
        ok $? "pmix: $size ranks on $nodes nodes, $how" "$OUT"
        echo "# $(($(now) - began)) ms"
    done
    srun --mpi=pmix -w n1,n2 --ntasks-per-node=2 "$HELLO" >"$OUT" 2>&1
    grep -q ' map n1:0 n1:1 n2:0 n2:1$' "$OUT"
    ok $? "two by two, written out" "$OUT"
else
    skip "this Slurm has no PMIx"
fi
for shape in "1 1 block" "2 2 block" "3 2 cyclic" "4 2 block" "7 4 cyclic"; do
    read -r size nodes how <<<"$shape"
    hydra || { skip "this MPI does not know PMI-2" && continue; }
    start_all pmi2 "$size" "$nodes" "$how" && agrees mpi "$size" "$nodes"
    ok $? "pmi2: $size ranks on $nodes nodes, $how" "$OUT"
done
if hydra; then
    timeout 60 salloc -Q -w n1,n2 --ntasks-per-node=2 mpiexec -n 4 "$HELLO" --mpi-sum >"$OUT" 2>&1
    grep -q ' map n1:0 n1:1 n2:0 n2:1$' "$OUT" && grep -q '^sum 10$' "$OUT" &&
        [[ $(grep -c '^mpi rank' "$OUT") == 4 ]]
    ok $? "mpiexec in an allocation: the innermost launcher counts, nodes keep their names" "$OUT"
else
    skip "mpiexec is not MPICH's"
fi
timeout 60 srun -w n1 -n1 "$HELLO" >"$OUT" 2>&1
grep -q '^slurm rank 0 size 1 .* host n1 mpi 0$' "$OUT"
ok $? "one task needs no --mpi" "$OUT"

# --- wrong launches
refused() { # number of tasks, words
    local code=$?
    [[ $code == 69 && $(grep -c "error: launch: .*$2" "$OUT") == "$1" ]]
}
timeout 60 srun -N2 -n3 "$HELLO" >"$OUT" 2>&1
refused 3 "srun --mpi="
ok $? "three tasks without --mpi: each exits 69 and names the cure" "$OUT"
timeout 60 srun --mpi=none -n2 "$HELLO" >"$OUT" 2>&1
refused 2 "given --mpi=none"
ok $? "--mpi=none is named" "$OUT"
timeout 60 srun -n2 env PMIX_NAMESPACE=slurm.pmix.1.0 PMIX_RANK=0 "$HELLO" >"$OUT" 2>&1
refused 2 "cannot find each other"
ok $? "PMIx variables of another step do not help" "$OUT"
SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0 SLURM_STEPID=0 sbatch -N1 -n1 -o "$OUT" --wrap "$HELLO; echo over" \
    >/dev/null
for ((i = 0; i < 100; i++)); do grep -q '^over$' "$OUT" && break; sleep 0.2; done
grep -q '^single rank 0 size 1' "$OUT"
ok $? "a batch script that carries the variables of an older step is one task" "$OUT"

# --- an error on one rank
ends() { # exit code wanted (- for any but 0), rank: 124 would be the limit of 30 s
    local code=$? took=$(($(now) - began))
    echo "# ended after $took ms with $code"
    if [[ $1 == - ]]; then ((code != 0 && code != 124)) || return 1; else ((code == $1)) || return 1; fi
    [[ $(grep -c "error: rank $2 on .*: reading the shard: broken on purpose" "$OUT") == 1 ]] &&
        ! grep -q 'MPI_Abort' "$OUT"
}
for how in --fail --fail-busy; do
    if ((HAVE_PMIX)); then
        began=$(now)
        timeout 30 srun --mpi=pmix -N2 -n4 "$HELLO" $how 2 >"$OUT" 2>&1
        ends - 2
        ok $? "pmix $how: the job ends with that rank's message" "$OUT"
    fi
    hydra || { skip "this MPI does not know PMI-2, nor is mpiexec MPICH's" && continue; }
    began=$(now)
    timeout 30 srun --mpi=pmi2 -N2 -n4 "$HELLO" $how 1 >"$OUT" 2>&1
    ends - 1
    ok $? "pmi2 $how: the job ends with that rank's message" "$OUT"
    began=$(now)
    timeout 30 salloc -Q -N2 --ntasks-per-node=2 mpiexec -n 4 "$HELLO" $how 3 >"$OUT" 2>&1
    ends 3 3
    ok $? "mpiexec $how: the same, with that rank's exit code" "$OUT"
done

# --- ranks that do not come, or stop: the others name them, and where they are; side by side: all wait
pids=()
hello() { # NAME WORDS-OF-SRUN... -- WORDS-OF-HELLO...
    local name=$1 words=() began
    shift
    while [ "$1" != -- ]; do words+=("$1") && shift; done
    began=$(now)
    timeout 60 srun "${words[@]}" "$HELLO" "${@:2}" > "$ROOM/$name.out" 2>&1
    echo "$? $(($(now) - began))" > "$ROOM/$name.status"
}
start() { hello "$@" & pids+=($!); }
all_ended() { wait "${pids[@]}" && pids=(); }
named() { # NAME PATTERN TEXT
    local code took
    read -r code took < "$ROOM/$1.status"
    echo "# ended after $took ms with $code"
    # with PMI-2, srun's own status is that of the tasks which it killed then
    [[ $1 == pmix-* && $1 != *-end ]] || { ((code != 0 && code != 124)) &&
        grep -q 'task 0: Exited with exit code 69' "$ROOM/$1.out" && code=69; }
    [[ $code == 69 && $took -lt 18000 ]] && grep -qE "error: launch: no progress in $2" "$ROOM/$1.out"
    ok $? "$3, exit 69" "$ROOM/$1.out"
}
two=(-w "n1,n2" -n2) four=(-w "n1,n2" --ntasks-per-node=2)
if ((HAVE_PMIX)); then
    start pmix-first --mpi=pmix "${four[@]}" -- --within 3 --late 1
    start pmix-second --mpi=pmix "${four[@]}" -- --within 3 --late 3
    start pmix-only --mpi=pmix "${two[@]}" -- --within 3 --late 1
    start pmix-stop --mpi=pmix "${two[@]}" -- --within 3 --heartbeat-timeout 2 --stop 1
    start pmix-later --mpi=pmix "${two[@]}" -- --within 3 --stop-later 0 --exchange 10
    all_ended
    named pmix-first "the exchange of names for [0-9]+ s: rank 1 on host n1 has not begun" \
        "pmix: a rank of the first node never comes: it is named"
    named pmix-second "the exchange of names for [0-9]+ s: rank 3 on host n2 has not (begun|come there)" \
        "pmix: a rank of the second node never comes: it is named"
    named pmix-only "the exchange of names for [0-9]+ s: rank 1 on host n2 has not come there" \
        "pmix: the only rank of its node never comes: it is named by the other node's"
    named pmix-stop "[^:]* for [0-9]+ s: rank 1 on host n2 has not come there, or was stopped" \
        "pmix: the only rank of its node stops in the launch: it is named"
    named pmix-later "an exchange for [0-9]+ s: rank 0 on host n1 has not come there, or was stopped" \
        "pmix: rank 0, alone on its node, stops before an exchange: it is named"
else
    for ((i = 0; i < 5; i++)); do skip "this Slurm has no PMIx"; done
fi
kinds=()
if hydra; then
    kinds=(pmi2)
    ((!HAVE_PMIX)) || kinds+=(pmix)
    start pmi2-late --mpi=pmi2 "${four[@]}" -- --within 3 --late 1
    start pmi2-only --mpi=pmi2 "${two[@]}" -- --within 3 --late 1
    for kind in "${kinds[@]}"; do
        : > "$ROOM/alive-$kind"
        start $kind-end --mpi=$kind "${two[@]}" -- --heartbeat-timeout 2 \
            --alive "$ROOM/alive-$kind" --stop-end 1
    done
    all_ended
    named pmi2-late "MPI_Init for [0-9]+ s: rank 1 on host n1 has not begun" \
        "pmi2: a rank that never comes is named by those of its node"
    named pmi2-only \
        "MPI_Init for [0-9]+ s: the ranks on host n1 are all there, so one on another node is missing" \
        "pmi2: the only rank of another node never comes: that much is said"
else
    for _ in 1 2; do skip "this MPI does not know PMI-2"; done
    skip "the other rank is through: Open MPI's end waits for nobody"
fi
for kind in "${kinds[@]}"; do
    named $kind-end "the end for [0-9]+ s: rank 1 on host n2 was stopped, or its node is lost" \
        "$kind: the only rank of its node stops at the end: it is named"
done

# --- binding
cores=$(lscpu -p=SOCKET,CORE 2>/dev/null | grep -v '^#' | sort -u | wc -l)
if ((cores >= 2 && $(nproc) >= 2 && HAVE_PMIX)); then
    srun --mpi=pmix -N1 -n2 "$HELLO" --bind >"$OUT" 2>&1
    [[ $(grep '^bind' "$OUT" | awk '{ print $6 }' | sort -u | wc -l) == 2 ]]
    ok $? "two ranks of a node have cores of their own" "$OUT"
else
    skip "one core, or no PMIx"
fi
kind=pmi2
hydra || kind=pmix
srun --mpi=$kind -N4 -n"$(($(nproc) < 8 ? 8 : 16))" "$HELLO" --bind >"$OUT" 2>&1
code=$?
if (($(nproc) < 8)); then
    [[ $code == 0 ]] && grep -q 'warning: 8 ranks share .* cores' "$OUT" && [[ $(grep '^bind' "$OUT" |
        awk '{ print $6 }' | sort -u | wc -l) == 1 ]]
    ok $? "more ranks than cores: nobody is bound, and one warning says so" "$OUT"
else
    ok $code "many ranks are bound" "$OUT"
fi
done_testing
