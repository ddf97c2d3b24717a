#!/usr/bin/env bash
# The commands beside train: eval, plan, export, import, bench, doctor, version, help.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
shapes_data 128 50
kolo train shapes data="$ROOM/data/train" val="$ROOM/data/val" run="$ROOM/run" batch=32 epochs=1 threads=1 > \
    "$ROOM/log" 2>&1
is $? 0 "a short run"
trained=$(sed -n 's/.*"event":"eval".*"top1":\([0-9.]*\),.*/\1/p' "$ROOM/run/events.jsonl")

# --- eval: exactly the validation set, whatever the batch
for batch in 32 7; do
    kolo eval shapes val="$ROOM/data/val" run="$ROOM/run" batch=$batch threads=1 > "$ROOM/eval" 2> "$ROOM/log"
    is $? 0 "eval with batch=$batch"
    like "$ROOM/eval" "top-1 $(printf '%.4f' "$trained") .*\(50 images" \
        "the figure of the training run, over exactly 50 images"
done

# --- weights: out, in, and out again
kolo export "$ROOM/run" "$ROOM/a.safetensors" > "$ROOM/log" 2>&1
is $? 0 "export of a run"
kolo eval shapes val="$ROOM/data/val" init="$ROOM/a.safetensors" batch=32 threads=1 2>&1 |
    grep -q "top-1 $(printf '%.4f' "$trained")"
ok $? "the exported weights give the same figure"
kolo import "$ROOM/a.safetensors" shapes data="$ROOM/data/train" run="$ROOM/new" batch=32 epochs=1 threads=1 \
    > "$ROOM/log" 2>&1
is $? 0 "import begins a run folder"
kolo export "$ROOM/new" "$ROOM/b.safetensors" > "$ROOM/log" 2>&1
data_of() { tail -c 1000000 "$1" | cksum; } # behind the header, which states the steps
is "$(data_of "$ROOM/b.safetensors")" "$(data_of "$ROOM/a.safetensors")" \
    "export, import, export: the same weights"
kolo import "$ROOM/a.safetensors" shapes data="$ROOM/data/train" run="$ROOM/new" > "$ROOM/log" 2>&1
is $? 78 "import into a run that has begun is refused"
kolo export model=resnet18 seed=3 "$ROOM/c.safetensors" > "$ROOM/log" 2>&1 &&
    kolo export model=resnet18 seed=3 "$ROOM/d.safetensors" >> "$ROOM/log" 2>&1
cmp -s "$ROOM/c.safetensors" "$ROOM/d.safetensors"
ok $? "initial weights are a function of the seed"
head -c 20000 "$ROOM/c.safetensors" > "$ROOM/cut.safetensors"
kolo eval shapes val="$ROOM/data/val" init="$ROOM/cut.safetensors" batch=32 > "$ROOM/log" 2>&1
is $? 2 "cut weights: exit 2"
kolo eval shapes val="$ROOM/data/val" init="$ROOM/c.safetensors" batch=32 > "$ROOM/log" 2>&1
is $? 78 "weights of another network: exit 78"
like "$ROOM/log" "conv1.weight|layer" "weights of another network: the tensors are named"

# --- plan
kolo plan shapes ranks=4 deterministic=true > "$ROOM/plan" 2>&1
is $? 0 "plan for four ranks on one process"
like "$ROOM/plan" "reduce bucket 0" "plan for four ranks: reductions are printed"
like "$ROOM/plan" "^ *peak +[0-9]+" "plan for four ranks: the peak is printed"
like "$ROOM/plan" "^checked" "plan for four ranks: it is checked"
kolo plan shapes ranks=3 deterministic=true > "$ROOM/plan" 2>&1
is $? 78 "a batch that three ranks do not divide: exit 78"
kolo plan model=resnet18 batch=65536 size=8192 ranks=1 > "$ROOM/plan" 2>&1
is $? 78 "more pixels than oneDNN can count: exit 78"
like "$ROOM/plan" "65536 x [0-9]+ x [0-9]+ x [0-9]+ numbers is larger than oneDNN .* micro_batch" \
    "more pixels than oneDNN can count: the message has tensor and cure"

# --- bench, doctor, version, help
kolo bench train model=lenet5 batch=32 size=28 channels=1 steps=5 threads=1 > "$ROOM/bench" 2>&1
like "$ROOM/bench" "[0-9.]+ img/s$" "bench ends its line in img/s"
kolo doctor --offline data="$ROOM/data/train" run="$ROOM/doctor" > "$ROOM/doc" 2>&1
is $? 0 "doctor --offline"
like "$ROOM/doc" "^ok +data" "doctor looked at the data"
kolo doctor --offline data="$ROOM/nowhere" > "$ROOM/doc" 2>&1
is $? 2 "doctor fails where the data is missing"
like "$ROOM/doc" "^FAIL data" "missing data: doctor prints FAIL data"
kolo doctor --offline --json data="$ROOM/nowhere" > "$ROOM/doc" 2> /dev/null
like "$ROOM/doc" '"verdict":"fail","check":"data".*"cure":"give the folder ' "  and --json its cure"
kolo timeline merge "$ROOM/nowhere" > "$ROOM/doc" 2>&1
is "$? $(grep -c 'nowhere: there is no such folder' "$ROOM/doc")" "2 1" \
    "timeline merge: no such folder, exit 2"
if ranks_start; then
    (ulimit -l 64 && timeout 60 mpiexec -n 3 kolo doctor > "$ROOM/doc" 2>&1)
    is "$(grep -c '^warn limits' "$ROOM/doc") $(grep -c \
        '^warn limits .*64 KiB may be locked on 3 of 3 ranks' \
        "$ROOM/doc")" "1 1" "what is wrong on all ranks alike is said once"
else
    skip "no mpiexec"
fi
kolo version | grep -q "^kolo $(cat VERSION)"
ok $? "version"
if [ -w /dev/full ]; then
    status=""
    for line in "kolo help" "kolo plan shapes" "kolo version" "kolo train --help" "kolo-shards --help" \
        "kolo-shards info $ROOM/data/train" "kolo-pack --help"; do
        $line > /dev/full 2> "$ROOM/log"
        status="$status $? $(grep -c 'standard output cannot be written: is its disk full' "$ROOM/log")"
    done
    is "$status" " 3 1 3 1 3 1 3 1 3 1 3 1 3 1" "what cannot be printed, as on a full disk, is an error"
else
    skip "no /dev/full"
fi
# more than a pipe holds
kolo help --man options train models recipes bench 2> "$ROOM/log" | head -n 1 > "$ROOM/head"
is "${PIPESTATUS[0]} $(wc -l < "$ROOM/head") $(wc -c < "$ROOM/log")" "0 1 0" \
    "help into head -n 1: exit 0 and no message"
missing=""
# shellcheck disable=SC2013 # names are single words
for command in $(sed -n 's/^COMMAND([a-z_]*, "\([a-z-]*\)",.*/\1/p' src/cmd/commands.def); do
    kolo "$command" --help | grep -q "^kolo $command" || missing="$missing $command"
done
is "$missing" "" "every command has --help"
sed -n 's/^\(INT\|AUTO\|REAL\|BOOL\|TEXT\|CHOICE\)(\([a-z_0-9]*\),.*/\2/p' src/base/options.def | sort > \
    "$ROOM/keys"
kolo help --man | sed -n 's/^.BR \([a-z_0-9]*\) =.*/\1/p' | sort > "$ROOM/man"
xargs kolo help < "$ROOM/keys" | sed -n 's/^  \([a-z_0-9]*\)=.*/\1/p' | sort > "$ROOM/helped"
is "$(comm -23 "$ROOM/keys" "$ROOM/helped") $(comm -23 "$ROOM/keys" "$ROOM/man")" " " \
    "every option is in help and in the manual page"
if command -v mandoc > /dev/null; then
    mandoc -T lint -W error < "$ROOM/man" > "$ROOM/log" 2>&1
    ok $? "the manual page is well formed"
else
    skip "no mandoc"
fi
done_testing
