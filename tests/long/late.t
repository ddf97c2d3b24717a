#!/usr/bin/env bash
# Late and averaged weights on real ranks: PyTorch's trajectories with a rank that sleeps at random and with
# micro-batches, and on two nodes of Slurm; what a wrong program makes of them; averages within nodes; ranks
# that are killed or stopped. Five minutes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/kills.sh
. tests/kills.sh
need kolo kolo-pack mpiexec
export OMP_NUM_THREADS=1
golden=$KOLO_SHARED/golden all='local_sgd|swap|stale'
passed() { # TEXT WORDS...: cases of ranks that share a batch
    "$BUILD/tests/delayed" "${@:2}" "$golden" > "$ROOM/log" 2>&1
    is "$(grep -cE "^not ok .*($all)" "$ROOM/log") $(grep -cE "^ok .*($all).*quantities" "$ROOM/log")" \
        "0 $cases" "$1" || grep -E '^not ok' "$ROOM/log" | sed 's/^/# /'
}
failed() { # PATTERN MISTAKE
    "$BUILD/tests/delayed" wrong="$2" "$golden" > "$ROOM/log" 2>&1
    is "$(grep -cE "^ok .*($1).*quantities" "$ROOM/log")" 0 "wrong=$2: no case of $1 passes"
}
if [ -d "$golden/delayed" ]; then
    cases=$(find "$golden/delayed" -name '*local_sgd*' -o -name '*swap*' -o -name '*stale*' | wc -l)
    passed "all cases of ranks that share a batch"
    for slow in 1 2 5; do passed "with a rank that sleeps at random ($slow)" slow=$slow; done
    passed "with two micro-batches" slots=2
    failed 'local_sgd|swap' always
    failed swap remember
    failed stale drain
    failed stale newest
else
    skip "no golden cases"
fi

# ranks killed or stopped at random: named soon, and the run goes on to the same bytes
kills_prepare
common=("${KILLS_ARGS[@]}")
for mode in "local_steps=5" "swap=2" "sync=stale staleness=2"; do
    diag <<< "$mode"
    # shellcheck disable=SC2206 # words
    KILLS_ARGS=("${common[@]}" $mode)
    rm -rf "$ROOM/first"
    kills "${COUNT:-6}" "${SEED:-7}" mpiexec -n 2
done

cluster 2 2
parts() { # RUN: which of the ranks of its newest checkpoint have the same weights and state
    python3 - "$(find "$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1)/carried" << 'PY'
import struct, sys
data = open(sys.argv[1], "rb").read()
size, n = struct.unpack("<QQ", data[8:24])
part = [data[24 + i * size:24 + (i + 1) * size] for i in range(n)]
# the optimizer's state comes first, then weights and running statistics, as long or longer
half = [p[len(p) // 2:] for p in part]
print(*[half.index(h) for h in half])
PY
}
T=(srun -N 2 -n 4 --mpi=pmix kolo train shapes data="$ROOM/data/train" val=none model=lenet5 batch=32
    threads=1 lr=0.01 warmup=0 epochs=4 checkpoint_steps=1)
want=([1]="0 1 2 3" [2]="0 0 2 2" [4]="0 0 0 0")
for stop in 1 2 4; do
    "${T[@]}" run="$ROOM/nodes" local_steps=2 local_nodes=4 stop_step=$stop > "$ROOM/log" 2>&1
    is "$? $(parts "$ROOM/nodes")" "75 ${want[stop]}" \
        "two nodes, local_steps=2 local_nodes=4: which ranks have the same weights after step $stop"
done
if [ -d "$golden/delayed" ]; then
    passed "all cases on two nodes of Slurm" launch="srun -N 2 --mpi=pmix -n"
    passed "with a rank that sleeps" launch="srun -N 2 --mpi=pmix -n" slow=4
fi
done_testing
