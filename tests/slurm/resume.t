#!/usr/bin/env bash
# A killed rank, a signal before the time limit, a second submission: nothing is lost, nothing is done twice,
# the bits are the same.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 1
shapes_data 512 96
export KOLO_RECIPE=shapes KOLO_DATASET=$ROOM/data
export KOLO_ARGS="batch=32 epochs=4 checkpoint_steps=7 threads=1 eval_epochs=2"
submit() { # RUN [SBATCH ARGS...]: job id
    local run=$1
    shift
    KOLO_RUN=$ROOM/$run sbatch --parsable --nodes=2 --time=00:20:00 --output="$ROOM/$run.out" "$@" \
        "$TOP/jobs/resnet_imagenet.sh"
}
await_step() { # RUN STEP: until that step's event is there
    local i
    for ((i = 0; i < 600; i++)); do
        [ "$(losses "$ROOM/$1" 2> /dev/null | tail -n 1 | cut -d' ' -f1)0" -ge "${2}0" ] 2> /dev/null &&
            return 0
        sleep 0.1
    done
    return 1
}
result() { echo "$(losses "$ROOM/$1" | cksum) $(weights_sum "$ROOM/$1")"; }

is "$(await "$(submit whole)")" COMPLETED "a run that is left alone completes"
is "$(losses "$ROOM/whole" | cut -d' ' -f1 | tr '\n' ' ')" "$(seq -s ' ' 1 64) " "every step once"
like "$ROOM/whole/summary.json" '"state": *"done"' "the summary says done"

# --- SIGKILL of one rank at a random step, then the same sbatch again
job=$(submit killed)
step=$((15 + RANDOM % 30))
echo "# killed after step $step"
await_step killed $step
victim=$(pgrep -f "kolo train.*run=$ROOM/killed" | while read -r pid; do
    [ "$(readlink "/proc/$pid/exe")" = "$BUILD/bin/kolo" ] && echo "$pid"
done | tail -n 1)
began=$SECONDS
kill -KILL "$victim"
is "$(await "$job")" FAILED "a killed rank ends the job"
echo "# after $((SECONDS - began)) s"
is "$(await "$(submit killed)")" COMPLETED "a killed job submitted again: COMPLETED"
is "$(result killed)" "$(result whole)" "losses and weights are those of the run that was never killed"

# --- the signal before the time limit
job=$(submit signalled)
await_step signalled 20
scancel --batch --signal=USR1 "$job"
state=$(await "$job")
is "$state" COMPLETED "signalled, requeued by Slurm, completed"
like "$ROOM/signalled.out" "requeued" "the log says so, and was appended to"
is "$(grep -c 'start [01],' "$ROOM/signalled.out")" 2 "the log holds both starts"
is "$(result signalled)" "$(result whole)" "no step lost, none repeated: the same losses and weights"
is "$(sed -n 's/.*"repeated_steps": *\([0-9]*\).*/\1/p' "$ROOM/signalled/summary.json")" 0 \
    "the summary counts no repeated step"

# --- a finished run
is "$(await "$(submit whole)")" COMPLETED "a finished run submitted again ends well at once"
like "$ROOM/whole.out" "nothing to do" "a finished run submitted again: prints nothing to do"
srun --mpi=pmix -N 1 -n 1 kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/whole" \
    batch=32 epochs=4 lr=0.2 > "$ROOM/changed.log" 2>&1
is $? 78 "a changed recipe is refused"
like "$ROOM/changed.log" "lr: was 0.1, now 0.2" "a changed recipe: the message has both values"
done_testing
