#!/usr/bin/env bash
# How a template's job is stopped: scancel ends it, the warning before the time limit and pre-emption send
# it back to the queue.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 1 0 "PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=grace Nodes=ALL PriorityTier=1 GraceTime=60
PartitionName=abrupt Nodes=ALL PriorityTier=1 GraceTime=0
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF"
shapes_data 256 32
export KOLO_RECIPE=shapes KOLO_DATASET=$ROOM/data
export KOLO_ARGS="batch=16 epochs=40 checkpoint_steps=1000 threads=1 eval_epochs=0"
submit() { # RUN [SBATCH ARGS...]: job id
    local run=$1
    shift
    KOLO_RUN=$ROOM/$run sbatch --parsable --nodes=1 --time=00:20:00 --output="$ROOM/$run.out" "$@" \
        "$TOP/jobs/resnet_imagenet.sh"
}
steps() { losses "$ROOM/$1" 2> /dev/null | tail -n 1 | cut -d' ' -f1; }
await_step() { # RUN STEP: until that step's event is there
    local i
    for ((i = 0; i < 600; i++)); do
        [ "$(steps "$1")0" -ge "${2}0" ] 2> /dev/null && return 0
        sleep 0.1
    done
    return 1
}
field() { sed -n "s/.*\"$2\": *\"\\{0,1\\}\\([a-z0-9]*\\).*/\\1/p" "$ROOM/$1/summary.json"; }
starts() { grep -c 'start [0-9]*, ' "$ROOM/$1.out"; }
checkpoint() { # RUN: step of its newest one
    local name
    name=$(find "$ROOM/$1/checkpoints" -maxdepth 1 -name 'step-*' -printf '%f\n' | sort | tail -n 1)
    echo "$((10#${name#step-}))"
}
drop() { scancel "$1" && await "$1" 60 > /dev/null; } # a job that is not needed any more

# --- scancel
job=$(submit cancelled)
await_step cancelled 10
scancel "$job"
is "$(await "$job")" CANCELLED "scancel: the job is cancelled"
gone=$job
like "$ROOM/cancelled.out" "cancelled, so not requeued; submitted again, it goes on from step" \
    "its log says so"
is "$(field cancelled state)" stopped "the summary says stopped"
[ "$(checkpoint cancelled)" -ge 10 ]
ok $? "a checkpoint of the last step was written (step $(checkpoint cancelled))"
is "$(checkpoint cancelled)" "$(field cancelled steps)" "scancel: the checkpoint has all steps that were done"

# --- scancel in the moment when the warning has come
job=$(submit both)
await_step both 10
scancel --batch --signal=USR1 "$job" && scancel "$job"
is "$(await "$job")" CANCELLED "the warning and then scancel: the job ends"
gone="$gone $job"

# --- packing, on the other node meanwhile
packing=$(KOLO_SOURCE=shapes KOLO_DATASET=$ROOM/packed KOLO_SPLITS=train KOLO_ARGS="--count 8000" sbatch \
    --parsable --nodes=1 \
    --time=00:20:00 --output="$ROOM/packing.out" "$TOP/jobs/pack_dataset.sh")
for ((i = 0; i < 600; i++)); do [ -e "$ROOM/packed/train/.pack/journal" ] && break; sleep 0.05; done
scancel --batch --signal=USR1 "$packing"

# --- a signal for the ranks alone, as of sbatch --signal=USR1@300, or of a user
job=$(submit ranks)
await_step ranks 10
scancel --signal=USR1 "$job"
for ((i = 0; i < 200; i++)); do grep -q 'start 1, ' "$ROOM/ranks.out" && break; sleep 0.1; done
is "$(starts ranks)" 2 "SIGUSR1 to the ranks alone: requeued"
like "$ROOM/ranks.out" 'requeued \(warned\); it goes on from step' \
    "SIGUSR1 to the ranks alone: the log says warned"
await_step ranks $(($(checkpoint ranks) + 5))
scancel --signal=TERM "$job"
is "$(await "$job")" FAILED "SIGTERM to the ranks alone: the job ends"
like "$ROOM/ranks.out" 'signalled, so not requeued' "SIGTERM to the ranks alone: the log says not requeued"

is "$(await "$packing")" COMPLETED "packing that was warned of the time limit ends well"
like "$ROOM/packing.out" 'requeued \(warned\); packing goes on where it stopped' \
    "packing near its time limit: the log says requeued"
is "$(starts packing)" 2 "packing near its time limit: two starts"

# --- pre-emption with a time of grace: the ranks have SIGTERM, the job runs on
job=$(submit grace --partition=grace)
await_step grace 10
high=$(sbatch --parsable --partition=high --nodes=2 --output=/dev/null --wrap true)
is "$(await "$high")" COMPLETED "a job of a higher partition gets the nodes within the time of grace"
like "$ROOM/grace.out" 'requeued \(preempted\); it goes on from step [1-9]' \
    "the pre-empted one wrote a checkpoint and went back to the queue"
for ((i = 0; i < 300; i++)); do grep -q 'start 1, ' "$ROOM/grace.out" && break; sleep 0.1; done
await_step grace $(($(checkpoint grace) + 5))
like "$ROOM/grace.out" 'resuming .* after step [1-9]' "pre-empted with grace: resumed from the checkpoint"
drop "$job"

# --- pre-emption without: Slurm requeues by itself
job=$(submit abrupt --partition=abrupt)
await_step abrupt 10
high=$(sbatch --parsable --partition=high --nodes=2 --output=/dev/null --wrap true)
is "$(await "$high")" COMPLETED "pre-emption at once: the other job runs"
like "$ROOM/abrupt.out" 'Slurm has requeued this job; it goes on from step [1-9]' \
    "the pre-empted one leaves the requeue to Slurm"
for ((i = 0; i < 300; i++)); do grep -q 'start 1, ' "$ROOM/abrupt.out" && break; sleep 0.1; done
is "$(starts abrupt)" 2 "pre-empted without grace: requeued once"
drop "$job"

# a requeued job is back after the 5 s that a credential lives
for job in $gone; do is "$(state_of "$job")" CANCELLED "a cancelled job did not come back meanwhile"; done
is "$(starts cancelled) $(starts both)" "1 1" "each was started once"
done_testing
