#!/usr/bin/env bash
# What others put into /tmp and /dev/shm neither has a file of ours written nor keeps us; what killed
# runs leave there goes.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need kolo kolo-pack flock
shapes_data 64 32
args=(model=lenet5 classes=4 size=32 channels=3 threads=1)
echo mine > "$ROOM/secret"

# the number of the process is known here, as it could be guessed by whoever looks at the numbers given out
(cd "$ROOM" && sh -c 'ln -s secret "w.safetensors.tmp-$$"; exec kolo export "$@"' - "${args[@]}" \
    w.safetensors) > "$ROOM/log" 2>&1
is "$? $(cat "$ROOM/secret")" "0 mine" "export: a link planted at OUT.tmp-PID is not written through"
[ -s "$ROOM/w.safetensors" ] && [ ! -L "$ROOM/w.safetensors" ]
ok $? "a link beside OUT: OUT itself is written as a file"
(cd "$ROOM" && sh -c 'ln secret "v.safetensors.tmp-$$"; exec kolo export "$@"' - "${args[@]}" v.safetensors) \
    > "$ROOM/log" 2>&1
is "$? $(cat "$ROOM/secret")" "0 mine" \
    "a temporary name that is a hard link: exit 0, the other file unchanged"
mkdir -m 777 "$ROOM/run" && ln -s "$ROOM/secret" "$ROOM/run/lock"
kolo train shapes model=lenet5 data="$ROOM/data/train" val=none run="$ROOM/run" batch=32 epochs=1 warmup=0 \
    threads=1 > "$ROOM/log" 2>&1
is "$? $(cat "$ROOM/secret")" "3 mine" "a run whose lock is a link to a file: exit 3, the file stays"
like "$ROOM/log" "run/lock: a link where a file of this program is expected; remove it" \
    "a run lock that is a link: the message says why"
mkdir "$ROOM/cache" && ln -s "$ROOM/secret" "$ROOM/cache/choices"
KOLO_CACHE=$ROOM/cache kolo train shapes model=lenet5 data="$ROOM/data/train" val=none run="$ROOM/run2" \
    batch=32 epochs=1 warmup=0 threads=1 > "$ROOM/log" 2>&1
is "$? $(cat "$ROOM/secret")" "0 mine" "choices of algorithms are not appended to what a link leads to"
mkdir "$ROOM/victim" && touch "$ROOM/victim/lock" "$ROOM/victim/precious" &&
    ln -s "$ROOM/victim" "$ROOM/copied.partial"
kolo-shards reshard "$ROOM/data/val" --shards 2 --out "$ROOM/copied" > "$ROOM/log" 2>&1
is "$? $(ls "$ROOM/victim" | tr '\n' ' ')" "78 lock precious " "a link at OUT.partial is not emptied: exit 78"

# files of fixed names: staged shards, a timeline, a checkpoint's folder
staged() { # RUN: with the shards copied to $ROOM/disk
    kolo train shapes model=lenet5 data="$ROOM/data/train" val=none run="$ROOM/$1" batch=32 epochs=1 \
        warmup=0 \
        threads=1 staging="$ROOM/disk" > "$ROOM/log" 2>&1
}
mkdir "$ROOM/disk" && staged staged
shard=$(find "$ROOM/disk" -name '*.h5' | head -n 1)
rm "$shard" "$shard.stamp" && ln -s "$ROOM/secret" "$shard.part" && ln -s "$ROOM/secret" "$shard.stamp"
mkdir "${shard%/*}.gone-77" && touch "${shard%/*}.gone-77/users" "${shard%/*}.gone-77/left.h5"
staged staged2
is "$? $(cat "$ROOM/secret")" "0 mine" \
    "a shard is staged neither through a link at SHARD.part nor through one at SHARD.stamp"
cmp -s "$shard" "$ROOM/data/train/${shard##*/}" && [ ! -L "$shard" ]
ok $? "a link at the name of a shard: the shard is written as a file"
[ ! -e "${shard%/*}.gone-77" ]
ok $? "a folder that a killed run had begun to remove goes"
source=$ROOM/data/train/${shard##*/}
sum=$(cksum < "$source"; stat -c %i "$source")
rm "$shard" "$shard.stamp" && ln -s "$source" "$shard" # as it is where the disk was full
staged staged3
is "$? $(cksum < "$source"; stat -c %i "$source")" "0 $sum" \
    "a link that stood for a shard gives way to the copy; its source stays"
[ -f "$shard" ] && [ ! -L "$shard" ]
ok $? "a link at the temporary name of a shard: the shard is a file"
if ranks_start; then
    mkdir "$ROOM/trace" && ln -s "$ROOM/secret" "$ROOM/trace/rank-0.json"
    KOLO_COMM_TIMELINE=$ROOM/trace timeout 60 mpiexec -n 2 kolo bench allreduce memory=ordinary min=4K \
        max=4K > "$ROOM/log" 2>&1
    is "$? $(head -c 40 "$ROOM/secret")" "0 mine" "a timeline is not written through a link at rank-0.json"
    [ -s "$ROOM/trace/rank-0.json" ] && [ ! -L "$ROOM/trace/rank-0.json" ]
    ok $? "a link at the name of a timeline: the timeline is a file"
else
    skip "built without MPI" && skip "built without MPI"
fi

# what killed runs leave in a run folder
names=(recipe.yaml.tmp-kolo-00000000000000aa classes.txt.tmp-00000000000000ab summary.json.tmp-4194305)
for name in "${names[@]}" recipe.yaml.tmp-kolo-00000000000000ac; do echo left > "$ROOM/staged/$name"; done
touch -d '2 days ago' "$ROOM/staged/summary.json.tmp-4194305"
mkdir "$ROOM"/staged/checkpoints/step-000000000{7.tmp,8.tmp-kolo-00000000000000aa,9.tmp-kolo-00000000000000ab}
exec 9< "$ROOM/staged/recipe.yaml.tmp-kolo-00000000000000ac" 8< \
    "$ROOM/staged/checkpoints/step-0000000009.tmp-kolo-00000000000000ab"
flock -n 9 && flock -n 8
staged staged
is "$? $(cd "$ROOM/staged" && echo *.tmp-* checkpoints/*.tmp*)" \
    "0 recipe.yaml.tmp-kolo-00000000000000ac checkpoints/step-0000000009.tmp-kolo-00000000000000ab" \
    "the next run there removes what killed ones have left, and nothing that a process holds"
exec 9<&- 8<&-

ln -s "$ROOM/secret" "$ROOM/0.png"
kolo-shards show "$ROOM/data/val" --index 0 --out "$ROOM/0.png" > "$ROOM/log" 2>&1
is "$? $(cat "$ROOM/secret")" "3 mine" "nor is an image drawn into what a link leads to: exit 3"

# what is left in /dev/shm
name=kolo-data-$(id -u)-test$$
head -c 100000 /dev/zero > "/dev/shm/$name-left" && head -c 100000 /dev/zero > "/dev/shm/$name-used"
exec 9< "/dev/shm/$name-used"
flock -s 9
kolo doctor --offline > "$ROOM/log" 2>&1
like "$ROOM/log" "^warn shared +removed /dev/shm/$name-left, 0.1 MiB" "doctor lists what it removes"
like "$ROOM/log" "^ok +shared +/dev/shm/$name-used, 0.1 MiB, is in use.* and stays" \
    "doctor lists a segment in use"
is "$(cd /dev/shm && echo "$name"-*)" "$name-used" \
    "doctor removes unlocked segments and leaves the locked one"
met=kolo-launch-$(id -u)-4194305 # where the ranks of a launch meet, by a launcher that is gone
echo left > "/dev/shm/$met-1" && echo used > "/dev/shm/$met-2"
exec 8< "/dev/shm/$met-2"
flock -s 8
kolo doctor --offline > "$ROOM/log" 2>&1
like "$ROOM/log" "^warn shared +removed /dev/shm/$met-1, " \
    "what a killed launch has left is listed and removed"
like "$ROOM/log" "^ok +shared +/dev/shm/$met-2, .* is in use.* and stays" \
    "doctor lists the segment of a running launch"
is "$(cd /dev/shm && echo "$met"-*)" "$met-2" "doctor leaves the locked segment of a launch"
exec 8<&-
rm -f "/dev/shm/$met"-*
head -c 100000 /dev/zero > "/dev/shm/$name-left"
kolo train shapes model=lenet5 data="$ROOM/data/train" val=none run="$ROOM/run3" batch=32 epochs=1 warmup=0 \
    threads=1 > "$ROOM/log" 2>&1
is "$? $(cd /dev/shm && echo "$name"-*)" "0 $name-used" "the next run removes it too"
exec 9<&-
rm -f "/dev/shm/$name"-*

cached() { # RUN: with the samples in memory
    timeout 60 kolo train shapes model=lenet5 data="$ROOM/data/train" val=none run="$ROOM/$1" batch=32 \
        epochs=1 warmup=0 threads=1 data_cache=ram > "$ROOM/log" 2>&1
}
cached ram
is $? 0 "samples in memory" || diag < "$ROOM/log"
segment=$(grep -oE '/dev/shm/kolo-data-[^,]*' "$ROOM/log")
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
    setpriv --reuid 65534 --clear-groups sh -c 'umask 0; exec 9> "$0"; flock 9; exec sleep 60' "$segment" &
    other=$!
    until [ -e "$segment" ]; do sleep .02; done
    begin=$(now)
    cached occupied
    is $? 0 "another user has a locked file of the segment's name: the run does its work"
    [ $(($(now) - begin)) -lt 20000 ]
    ok $? "a segment locked by another user: training does not wait 20 s"
    like "$ROOM/log" "one copy a node: ${segment}-1," "the cache takes the next free name"
    kill "$other" 2> /dev/null
    wait "$other" 2> /dev/null
    rm -f "$segment"
    chmod 711 "$ROOM" && mkdir -m 1777 "$ROOM/open"
    setpriv --reuid 65534 --clear-groups ln -s "$ROOM/secret" "$ROOM/open/w.safetensors"
    kolo export "${args[@]}" "$ROOM/open/w.safetensors" > "$ROOM/log" 2>&1
    is "$? $(cat "$ROOM/secret")" "3 mine" \
        "another user's link at OUT in a folder of everybody's: exit 3, the file stays"
    # in a run folder that all may write to, root is the other user
    mkdir -m 1777 "$ROOM/open/run" "$ROOM/open/run/checkpoints" && chmod -R a+rX "$ROOM/data"
    mkdir "$ROOM/open/run/checkpoints/step-0000000002.tmp" &&
        echo root > "$ROOM/open/run/checkpoints/step-0000000002.tmp/tensors.safetensors"
    echo root > "$ROOM/open/run/recipe.yaml.tmp-kolo-00000000000000aa"
    KOLO_CACHE=$ROOM/open/cache setpriv --reuid 65534 --clear-groups "$(command -v kolo)" train shapes \
        model=lenet5 data="$ROOM/data/train" \
        val=none run="$ROOM/open/run" batch=32 epochs=1 warmup=0 threads=1 > "$ROOM/log" 2>&1
    is "$? $(cd "$ROOM/open/run" && cat checkpoints/step-0000000002.tmp/* *.tmp-* | xargs)" "0 root root" \
        "another user's folder at step-N.tmp: the checkpoint is written beside it; what is not ours stays" \
        "$ROOM/log"
    [ -s "$ROOM/open/run/checkpoints/step-0000000002/manifest.json" ]
    ok $? "and is there" "$ROOM/log"
else
    for _ in 1 2 3 4 5 6; do skip "only root can be two users"; done
fi
done_testing
