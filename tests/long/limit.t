#!/usr/bin/env bash
# Slurm's own signal before the time limit: as many starts as it takes, no step lost, none repeated.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
cluster 2 1
shapes_data 512 96
KOLO_RECIPE=shapes KOLO_DATASET=$ROOM/data KOLO_RUN=$ROOM/run \
    KOLO_ARGS="batch=32 epochs=94 checkpoint_steps=1000 threads=1 eval_epochs=0" \
    sbatch --parsable --nodes=2 --time=1 --signal=B:USR1@20 --output="$ROOM/run.out" \
    "$TOP/jobs/resnet_imagenet.sh" > "$ROOM/job"
is "$(await "$(cat "$ROOM/job")" 600)" COMPLETED "a run that is longer than its time limit completes"
starts=$(grep -c '" on n\[1-2\], start ' "$ROOM/run.out")
[ "$starts" -ge 2 ]
ok $? "the job took several starts: $starts"
is "$(losses "$ROOM/run" | cut -d' ' -f1 | tr '\n' ' ')" "$(seq -s ' ' 1 1504) " "every step once"
like "$ROOM/run/summary.json" '"repeated_steps": *0' "the summary counts no repeated step"
like "$ROOM/run/summary.json" "\"restarts\": *$((starts - 1))" "the summary counts the restarts"
done_testing
