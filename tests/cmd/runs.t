#!/usr/bin/env bash
# kolo runs: the states that a run can be in, each made by a run that is in it.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
need kolo kolo-pack python3
cd "$ROOM" || exit 1
shapes_data 128 48
export OMP_NUM_THREADS=1
train() { # RUN WORDS...
    local run=$1
    shift
    timeout 100 kolo train shapes data=data/train val=data/val run="$run" epochs=2 batch=32 threads=1 "$@"
}
of() { # RUN MEMBER: by --json
    kolo runs --json | python3 -c '
import json, sys
rows = [r for r in json.load(sys.stdin)["runs"] if r["folder"] == sys.argv[1]]
print(rows[0][sys.argv[2]] if len(rows) == 1 else f"{len(rows)} rows")' "$1" "$2"
}
kolo runs > log 2>&1
is "$? $(grep -c '^no run below \.: ' log)" "0 1" "no run: it says what one is"
is "$(kolo runs --json | tr -d ' \n')" '{"runs":[]}' "--json of no run"

train one/done > log 2>&1
ok $? "a run" log
train stopped stop_step=3 > log 2>&1
is $? 75 "one that is stopped"
train failed lr=1e6 warmup=0 > log 2>&1
[ $? -ne 0 ]
ok $? "one that fails"
KOLO_SITE='' train going epochs=100000 progress=1 > going.log 2>&1 &
pid=$!
at_end "kill -9 $pid 2> /dev/null"
for ((i = 0; i < 300; i++)); do grep -qs '"event":"eval"' going/events.jsonl && break; sleep 0.1; done

kolo runs > table
is "$? $(sed -n 's/^\(running\|failed\|stopped\|done\)  *\([^ ]*\) .*/\1 \2/p' table | tr '\n' ,)" \
    "0 running going,failed failed,stopped stopped,done one/done," "each in its state, what runs first"
like table '^done +one/done +8/8 +0:00:00 +[0-9.]+ % top-1 +[0-9.]+ +-$' "the row of a run that is done"
like table 'nothing: the run is complete' "and what to do next"
is "$(of one/done step) $(of one/done steps_total)" "8 8" "steps"
is "$(of one/done best)" "$(python3 -c '
import json
print(max(json.loads(l)["top1"] for l in open("one/done/events.jsonl") if "\"eval\"" in l))')" \
    "the best evaluation is that of events.jsonl"
is "$(of stopped state) $(of stopped why) $(of stopped step)" "stopped on request 3" "one that was stopped"
like <(of stopped next) 'run the same command' "  and what to do"
is "$(of failed state)" failed "one that failed"
like <(of failed why) 'loss is not a number' "  and why"
python3 -c 'import sys; sys.exit(not 0 < float(sys.argv[1]) < 1e7)' "$(of going eta_seconds)"
ok $? "one that runs: the time left ($(of going eta_seconds) s)"
ran=$(of going state)
kill -9 "$(python3 -c 'import json; print(json.load(open("going/lock"))["pid"])')"
wait $pid 2> /dev/null
is "$ran $(of going state)" "running failed" "one that is killed: failed"
like <(of going why) 'without a word .*process [0-9]+ on' "  and which process it was"
like <(of going next) 'run the same command' "  and what to do"
train going epochs=100000 stop_step=4 > log 2>&1
kolo report going --json > log
is "$(python3 -c '
import json
starts = json.load(open("log"))["runs"][0]["starts"]
print(starts[-1]["after"], len(starts))')" "killed 2" "its next start says that the one before was killed" ||
    tail -n 3 going.log
mkdir -p begun && cp one/done/recipe.yaml one/done/run_id begun/
is "$(of begun state)" begun "a run without a step"
printf '' > begun/events.jsonl && printf '{"pid": 1' > begun/lock
is "$(of begun state)" begun "a damaged lock is nobody's"
ln -s ../one one/loop
is "$(kolo runs one | grep -c '^done ')" 1 "a link back is not followed"
is "$(kolo runs one/done --json | grep -o '"folder": "[^"]*"')" '"folder": "one/done"' \
    "a folder that is a run"
mkdir -p wide && cp -r one/done wide/done && cp -r one/done wide/dönä
is "$(kolo runs wide | python3 -c '
import sys
rows = sys.stdin.buffer.read().decode().split("\n")
print(*{r.index("8/8") for r in rows if r.startswith("done")}, sep=",")')" 31 \
    "columns stand below each other whatever the letters of a name"
mkdir "$ROOM/"$'bad\e[31m' && cp one/done/{events.jsonl,summary.json} "$ROOM/"$'bad\e[31m/'
is "$(kolo runs | grep -c $'\e')" 0 "no escape sequence of a name comes to a terminal"
kolo runs --json | python3 -c 'import json, sys; json.load(sys.stdin)' 2> log
ok $? "and its JSON can be read" log

kolo runs --watch < /dev/null > screen
is "$? $(grep -c 'state  ' screen)" "0 1" "--watch: a screen; it ends where there is no input"
seen() { for ((i = 0; i < 200; i++)); do grep -q "$1" screen && return; sleep 0.05; done; }
: > screen
{
    seen again
    echo '{"event":"eval","step":8,"loss":1,"top1":0.9871,"rows":48}' >> wide/done/events.jsonl
    seen '98.71 %'
    echo q
} | kolo runs --watch wide > screen
is "$? $(grep -c ' wide/done .* 98.71 %' screen) $(grep -c ' wide/dönä .* 98.71 %' screen)" "0 1 0" \
    "--watch: what a run that had ended writes is on the next screen; the rows of others stay"
refused() { # STATUS PATTERN WORDS...
    local status=$1 pattern=$2
    shift 2
    kolo runs "$@" > log 2>&1
    is "$? $(grep -cE -- "$pattern" log)" "$status 1" "kolo runs $*: exit $status" || diag < log
}
refused 2 'nowhere: there is no such folder' nowhere
refused 78 'one form at a time' --watch --json
refused 78 'unexpected word `two`' one two
refused 78 'watsch' --watsch
done_testing
