#!/usr/bin/env bash
# Before the first step: what is wrong is said before anything is planned or timed; a signal ends the program at once, but for SIGUSR1, which waits for the loop.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 64 16
kolo train data=synthetic val=none run="$ROOM/endless" > "$ROOM/log" 2>&1
is $? 78 "no end given: exit 78"
like "$ROOM/log" 'set epochs= or steps=' "and how to give one"
! grep -q 'timed\|plan' "$ROOM/log" && [ ! -e "$ROOM/cache/choices" ]
ok $? "before an algorithm is timed"
kolo train shapes data="$ROOM/data/train" val=none run="$ROOM/noise" noise_scale=true > "$ROOM/log" 2>&1
is $? 78 "no two batch sizes for noise_scale: exit 78"
[ ! -e "$ROOM/cache/choices" ]
ok $? "before an algorithm is timed, too"

# a fifo that nobody writes to stands for whatever takes long before the first step
mkfifo "$ROOM/slow.yaml"
early() { # SIGNAL: of a train that has begun and reads its recipe; its status
    exec 3<> "$ROOM/slow.yaml" # so that neither side waits for the other to open it
    kolo train "$ROOM/slow.yaml" data="$ROOM/data/train" val=none run="$ROOM/$1" > "$ROOM/$1.log" 2>&1 3>&- &
    local pid=$! i
    for ((i = 0; i < 400; i++)); do
        [ -n "$(find "/proc/$pid/fd" -lname "$ROOM/slow.yaml" 2> /dev/null)" ] && break
        sleep 0.05
    done
    kill -"$1" "$pid"
    [ "$1" = USR1 ] && printf 'model: mlp\nsize: 8\nsteps: 50\nbatch: 16\nthreads: 1\ndeterministic: true\n' >&3
    exec 3>&-
    wait "$pid"
}
for signal in INT TERM; do
    early $signal
    is $? 75 "SIG$signal: exit 75"
    like "$ROOM/$signal.log" 'before the first step: nothing was begun' "at once, with a sentence"
done
early USR1
is $? 75 "SIGUSR1, which may come early: exit 75"
like "$ROOM/USR1.log" 'stopped on request after step 0 of 50' "where the loop begins"
done_testing
