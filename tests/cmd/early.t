#!/usr/bin/env bash
# Before the first step: what is wrong is said before anything is planned or timed; a signal ends the program
# at once, but for SIGUSR1, which waits for the loop. STARTS=N: how often one is sent at a random moment.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack
export OMP_NUM_THREADS=1 KOLO_CACHE=$ROOM/cache
shapes_data 64 16
kolo train data=synthetic val=none run="$ROOM/endless" > "$ROOM/log" 2>&1
is $? 78 "no end given: exit 78"
like "$ROOM/log" 'set epochs= or steps=' "no end given: the message names epochs= and steps="
! grep -q 'timed\|plan' "$ROOM/log" && [ ! -e "$ROOM/cache/choices" ]
ok $? "no end given: nothing was timed or planned"
kolo train shapes data="$ROOM/data/train" val=none run="$ROOM/noise" noise_scale=true > "$ROOM/log" 2>&1
is $? 78 "no two batch sizes for noise_scale: exit 78"
[ ! -e "$ROOM/cache/choices" ]
ok $? "noise_scale without two batch sizes: nothing was timed"

KOLO=$(readlink -f "$(command -v kolo)")
# a fifo that nobody writes to stands for whatever takes long before the first step
mkfifo "$ROOM/slow.yaml"
early() { # SIGNAL: of a train that has begun and reads its recipe; its status
    exec 3<> "$ROOM/slow.yaml" # so that neither side waits for the other to open it
    kolo train "$ROOM/slow.yaml" data="$ROOM/data/train" val=none run="$ROOM/$1" > "$ROOM/$1.log" 2>&1 3>&- &
    local pid=$! i
    # the shell that becomes kolo holds the fifo, too
    for ((i = 0; i < 400; i++)); do
        [ "$(readlink "/proc/$pid/exe")" = "$KOLO" ] &&
            [ -n "$(find "/proc/$pid/fd" -lname "$ROOM/slow.yaml" 2> /dev/null)" ] && break
        sleep 0.05
    done
    kill -"$1" "$pid"
    [ "$1" = USR1 ] && printf 'model: mlp\nsize: 8\nsteps: 50\nbatch: 16\nthreads: 1\ndeterministic: true\n' \
        >&3
    exec 3>&-
    wait "$pid"
}
for signal in INT TERM; do
    early $signal
    is $? 75 "SIG$signal: exit 75"
    like "$ROOM/$signal.log" 'stopped by a signal before the first step: nothing is lost' \
        "SIG$signal before the first step: a sentence says so"
done
early USR1
is $? 75 "SIGUSR1, which may come early: exit 75"
like "$ROOM/USR1.log" 'stopped on request after step 0 of 50' "where the loop begins"

# Before main, and again before main of the second start, where an initialiser of this library sends them.
cat > "$ROOM/sender.c" << 'END'
#include <signal.h>
#include <stdlib.h>
__attribute__((constructor)) static void send_signal(void) { raise(atoi(getenv("EARLY_SIGNAL"))); }
END
if "${CC:-cc}" -shared -fPIC -o "$ROOM/sender.so" "$ROOM/sender.c" 2> /dev/null; then
    for signal in USR1:78 TERM:75 INT:75; do
        EARLY_SIGNAL=$(kill -l ${signal%:*}) LD_PRELOAD=$ROOM/sender.so kolo train "$ROOM/absent.yaml" > \
            "$ROOM/log" 2>&1
        is $? ${signal#*:} "SIG${signal%:*} before main of train: exit ${signal#*:}"
    done
    EARLY_SIGNAL=$(kill -l USR1) LD_PRELOAD=$ROOM/sender.so kolo-pack --source shapes --count 8 --out \
        "$ROOM/never" > "$ROOM/log" 2>&1
    is $? 75 "SIGUSR1 before main of kolo-pack: exit 75"
    EARLY_SIGNAL=$(kill -l TERM) LD_PRELOAD=$ROOM/sender.so kolo version > "$ROOM/log" 2>&1
    is $? 143 "SIGTERM before main of a command without an orderly end: it ends by the signal"
else
    for _ in 1 2 3 4 5; do skip "no shared library can be made"; done
fi

# A run folder that another host's job holds, and a queue that tells which signals of its own are blocked.
mkdir "$ROOM/held" "$ROOM/path"
echo \
    '{"pid": 1, "start": "1", "host": "node99", "boot": "0", "job": "77", "restart": "", "step": "", "since": ""}' \
    > \
    "$ROOM/held/lock"
printf '#!/bin/sh\ngrep SigBlk: /proc/self/status > %s\n' "$ROOM/blocked" > "$ROOM/path/squeue" &&
    chmod +x "$ROOM/path/squeue"
PATH=$ROOM/path:$PATH kolo train model=mlp data=synthetic val=none size=8 steps=1 batch=16 run="$ROOM/held" \
    > "$ROOM/log" 2>&1
is "$(tr -s '\t' ' ' < "$ROOM/blocked")" "SigBlk: 0000000000000000" \
    "a program that kolo starts has no signal blocked" "$ROOM/log"

# At random moments from the one on when signals wait, while others use the processors.
cat > "$ROOM/starts.pl" << 'END'
use strict;
use Time::HiRes qw(sleep);
my ($starts, @command) = @ARGV;
my @load = map { my $pid = fork // die; if (!$pid) { 1 while getppid() != 1; exit } $pid } 1, 2;
my %ended;
srand 7;
for my $start (1 .. $starts) {
    my $name = qw(USR1 TERM INT)[$start % 3];
    my $pid = fork // die;
    if (!$pid) { open STDOUT, '>', '/dev/null'; open STDERR, '>&', \*STDOUT; exec @command; exit 127 }
    my $bits = 0;
    while (!$bits) {
        next if (readlink("/proc/$pid/exe") // 'kolo') !~ /kolo$/; # perl's own fork
        open my $status, '<', "/proc/$pid/status" or last;
        while (<$status>) {
            last if /^State:\s+Z/ and $bits = -1;
            $bits |= hex($1) & 0x200 if /^Sig(?:Blk|Cgt):\s+[0-9a-f]*([0-9a-f]{8})$/; # SIGUSR1
        }
    }
    sleep(rand 0.03);
    kill $name, $pid;
    waitpid $pid, 0;
    my $end = $? & 127 ? "$name: ended by signal " . ($? & 127) :
        ($? >> 8) =~ /^7[58]$/ ? 'in order' : "$name: exit " . ($? >> 8);
    $ended{$end}++;
}
kill 'KILL', @load;
print join(', ', map { "$_ ($ended{$_})" } sort keys %ended), "\n";
END
STARTS=${STARTS:-45}
perl "$ROOM/starts.pl" "$STARTS" kolo train "$ROOM/absent.yaml" > "$ROOM/log"
is "$(cat "$ROOM/log")" "in order ($STARTS)" \
    "$STARTS starts, a signal at a random moment of each: none is ended by it"
done_testing
