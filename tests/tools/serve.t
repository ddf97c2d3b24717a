#!/usr/bin/env bash
# kolo serve-data: jobs of a sweep get their batches from one loader, and the numbers they would get alone.
. "$(dirname "$0")/../lib.sh"
shapes_data 256 32
common=(model=lenet5 size=32 data="$ROOM/data/train" crop=resized flip=true augment=trivialaugment batch=32 \
    seed=3 data_cache=ram prefetch=2)
socket=data_server="$ROOM/socket"
train() { # RUN OPTION...
    kolo train "${common[@]}" val=none run="$ROOM/$1" epochs=2 eval_epochs=0 threads=1 bn=ghost \
        micro_batch=16 reduce=canonical conv=direct "${@:2}" \
        > "$ROOM/$1.log" 2>&1
}
serve() { # LOG OPTION...
    kolo serve-data "${common[@]}" "$socket" "${@:2}" > "$ROOM/$1" 2>&1 &
    server=$!
    for _ in {1..200}; do
        kolo serve-data --status "$socket" > "$ROOM/status" 2> /dev/null && return
        sleep 0.05
    done
}
end() { kill "$server" && wait "$server"; }
at_end 'kill "$server" 2> /dev/null'

train plain lr=0.02
train other lr=0.01
is "$(losses "$ROOM/plain" | wc -l)" 16 "two epochs alone"

serve log serve_jobs=3
like "$ROOM/status" 'ring of 3 batches' "a server says how deep its ring is"
like "$ROOM/status" 'nobody has joined' "--status of a new server: nobody has joined"
train a lr=0.02 "$socket" &
a=$!
train b lr=0.01 "$socket" &
b=$!
if ranks_start; then
    mpiexec -n 2 kolo train "${common[@]}" val=none run="$ROOM/c" epochs=2 eval_epochs=0 threads=1 bn=ghost \
        micro_batch=16 reduce=canonical conv=direct \
        lr=0.02 "$socket" > "$ROOM/c.log" 2>&1
else
    train c lr=0.02 "$socket"
fi
wait $a $b
is "$(losses "$ROOM/a")" "$(losses "$ROOM/plain")" "a served job learns the same"
is "$(losses "$ROOM/b")" "$(losses "$ROOM/other")" "another job of the sweep too"
is "$(losses "$ROOM/c")" "$(losses "$ROOM/plain")" "a served job of two ranks: the losses without a server"
like "$ROOM/a.log" '(1[6-9]|2[0-9]) of (1[6-9]|2[0-9]) batches came from the server' \
    "all batches came from the server"
kolo serve-data --status "$socket" > "$ROOM/status" 2>&1
made=$(sed -n 's/^\([0-9]*\) images made.*/\1/p' "$ROOM/status") given=$(sed -n \
    's/.* made, \([0-9]*\) given/\1/p' "$ROOM/status")
[ "$given" -ge 1536 ] && [ "$made" -lt $((given / 2)) ]
ok $? "three jobs: each image is made once ($made made, $given given)"
train wrong seed=4 "$socket"
is $? 78 "a job with another order is refused"
like "$ROOM/wrong.log" 'seed=3 there, seed=4 here' "a job with another order: the message names the option"
kolo serve-data "${common[@]}" "$socket" > "$ROOM/second" 2>&1
is $? 78 "a second server of the name is refused"
end
is $? 0 "a server ends when it is told to"
train late lr=0.02 "$socket"
is "$(losses "$ROOM/late")" "$(losses "$ROOM/plain")" "no server: the losses with one"
like "$ROOM/late.log" 'warning: data_server=.*no server is running' "no server: a warning"
kolo serve-data --status "$socket" > "$ROOM/status" 2>&1
is $? 3 "no server to ask"
kolo serve-data data=synthetic "$socket" > "$ROOM/second" 2>&1
is $? 78 "serve-data with data=synthetic: exit 78"
if ranks_start; then
    mpiexec -n 2 kolo serve-data "${common[@]}" "$socket" > "$ROOM/second" 2>&1
    like "$ROOM/second" '2 ranks on 1 nodes' "one server a node"
else
    skip "no mpiexec"
fi

serve log serve_jobs=2 # so that the job waits for another
train killed lr=0.02 "$socket" &
a=$!
for _ in {1..200}; do
    grep -q 'takes rows' "$ROOM/log" && break
    sleep 0.02
done
kolo serve-data --status "$socket" > "$ROOM/status" 2>&1
like "$ROOM/status" 'rank 0 of 1, rows 0 to 31: epoch 0, step [0-3], .* img/s, waits [0-9]+ %' \
    "--status: rank, rows and rate of each client"
like "$ROOM/status" 'jobs with 32 of 64 rows have joined' "--status: the rows that are still waited for"
kill -KILL "$server"
wait "$server" 2> /dev/null
wait $a
is "$(losses "$ROOM/killed")" "$(losses "$ROOM/plain")" "a job whose server is killed learns the same"

if unshare -rm mount -t tmpfs tmpfs "$ROOM" 2> /dev/null; then
    mkdir "$ROOM/full"
    unshare -rm bash -c 'mount -t tmpfs -o nr_inodes=1 tmpfs "$0" && shift && exec "$@"' "$ROOM/full" x kolo \
        serve-data "${common[@]}" \
        data_cache=none data_server="$ROOM/full/socket" > "$ROOM/second" 2>&1
    is $? 3 "a full file system is told"
    like "$ROOM/second" 'full/socket.*No space left' "a full file system: the message names the path"
    mkdir -p "$ROOM/77/.77/_tmp" "$ROOM/tmp" # as Slurm's job_container/tmpfs does it
    unshare -rm bash -c 'mount --bind "$0/77/.77/_tmp" "$0/tmp" && shift && exec "$@"' "$ROOM" x env \
        SLURM_JOB_ID=77 kolo train "${common[@]}" \
        val=none run="$ROOM/apart" steps=1 launch=single data_server=nobody > "$ROOM/apart.log" 2>&1
    is $? 0 "where jobs have a /dev/shm of their own a job goes on"
    like "$ROOM/apart.log" 'a /dev/shm of their own here .*each job keeps its own cache' \
        "a /dev/shm for each job: a warning"
else
    for _ in 1 2 3 4; do skip "no private mounts here"; done
fi
is "$(find "$ROOM" -maxdepth 1 -name 'socket*' | wc -l)" 2 "the killed server has left its name"
serve log
end
is "$(find "$ROOM" -maxdepth 1 -name 'socket*' | wc -l)" 0 "the next one takes it over and leaves nothing"
done_testing
