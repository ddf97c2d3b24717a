#!/usr/bin/env bash
# tests/gpu/run without a GPU: it counts failures, refuses what it cannot run on, leaves two files however it
# ends, and rehearses every part with the stand-in.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
mkdir "$ROOM/tmp" && export TMPDIR=$ROOM/tmp # what is left behind is seen there, whoever else is at work
PARTS="facts ops bench golden train share peer parity speed graph determinism memory sanitizer"
tests/gpu/run --list > "$ROOM/list"
is "$(awk '{print $1}' "$ROOM/list" | paste -sd ' ')" "$PARTS" "its parts, in their order"
[ "$(awk '{sum += $2} END {print sum}' "$ROOM/list")" -le 540 ]
ok $? "all of them have nine minutes"
[ "$(awk '/^(facts|ops|bench) / {sum += $2} END {print sum}' "$ROOM/list")" -lt 300 ]
ok $? "facts, ops and bench less than five"
for words in "--only nothing" "--seconds soon" "--seconds 0"; do
    # shellcheck disable=SC2086 # words
    tests/gpu/run $words > "$ROOM/log" 2>&1
    is $? 78 "$words: exit 78"
done
KOLO_CUDA_LIBRARY=$ROOM/absent.so tests/gpu/run --only facts --out "$ROOM/out" > "$ROOM/log" 2>&1
is $? 69 "no CUDA library of ours: exit 69"
like "$ROOM/log" "absent.so is not here: build with make CUDA=1" \
    "no CUDA library: the message has the make line"

# a bundle of programs that say what this test wants
fake=$ROOM/fake
mkdir -p "$fake"/{bin,tree/bin,tree/lib,tree/share/kolo,lib,tests/golden/models,share/data/small}
cp -r tests/gpu "$fake/tests/"
cp -r share/recipes share/gpus "$fake/tree/share/kolo/"
touch "$fake/tree/lib/libkolo_cuda.so"
program() { cat > "$1" && chmod +x "$1"; }
program "$fake/bin/with" << END
#!/bin/sh
export BUNDLE_TREE=$fake/tree
PATH=$fake/tree/bin:\$PATH exec "\$@"
END
program "$fake/tree/bin/kolo" << 'END'
#!/bin/sh
case $1 in
doctor) [ -e "$NO_GPU" ] && echo "FAIL gpu        no NVIDIA driver here" && exit 69 ;;
*) exit 0 ;;
esac
END
program "$fake/tree/bin/ops_good" << 'END'
#!/bin/sh
echo "ok 1 - one" && echo 1..1
END
program "$fake/tree/bin/ops_bad" << 'END'
#!/bin/sh
echo "ok 1 - one" && echo "not ok 2 - relu: worst at 900 %" && echo "# where it is" && echo 1..2 && exit 1
END
program "$fake/tree/bin/ops_dead" << 'END'
#!/bin/sh
echo "ok 1 - one" && kill -SEGV $$
END
run() { # ARGS: status to $status, text to $ROOM/log
    env -u KOLO_CUDA_LIBRARY -u CUDA_HOME -u CUDA_PATH PYTHON=none NO_GPU="$ROOM/no-gpu" \
        "$fake/tests/gpu/run" --out "$ROOM/out" "$@" > "$ROOM/log" 2>&1
    status=$?
}
results() { tar -xzOf "$ROOM/out/results.tar.gz" results/results.jsonl; }
echo library libcudart.so.777 > "$fake/lib/requires"
run --only facts
is $status 69 "a CUDA that is not here: exit 69"
like "$ROOM/log" "^missing: libcudart.so.777" "a CUDA that is missing: its library is named"
: > "$fake/lib/requires"
touch "$ROOM/no-gpu"
run --only facts,ops
is $status 69 "no driver: exit 69"
like "$ROOM/log" "^FAIL gpu +no NVIDIA driver here" "no driver: kolo doctor's message is printed"
like "$ROOM/log" "^ok [0-9]+ - ops: would run: ops_good" "a dry run lists the programs"
rm "$ROOM/no-gpu"
run --only ops
is $status 2 "two programs that fail: exit 2"
like "$ROOM/log" "^ok [0-9]+ - ops: ops_good: 1 passed" "the other passed"
like "$ROOM/log" "^#   not ok 2 - relu: worst at 900 %" "what failed in them is shown"
like "$ROOM/log" "^not ok [0-9]+ - ops: ops_dead: exit status 139" \
    "a program that crashes: its status 139 is printed"
like "$ROOM/log" "^  ops +FAIL +1 of   3" "the summary"
is "$(results | tail -n 1 | sed 's/"seconds": [0-9]*/"seconds": N/')" \
    '{"what": "run", "passed": 1, "failed": 2, "seconds": N}' "the results as JSON"
is "$(cmp "$ROOM/log" "$ROOM/out/report.txt" && ls -A "$ROOM/out" |
    paste -sd ' ')" "report.txt results.tar.gz" "two files, the report is what was printed"

# stopped at its limit: by TERM to its group, as timeout does, and killed at once
program "$fake/tree/bin/ops_slow" << END
#!/bin/sh
echo "ok 1 - begun"; echo \$\$ > $ROOM/slow; exec sleep 600
END
started() { # waits until the slow one runs
    local i
    for ((i = 0; i < 300; i++)); do
        [ -s "$ROOM/slow" ] && return 0; sleep 0.1; done
    return 1
}
slow() { # SIGNAL: of the run, once its slow program runs; its exit status to $status
    rm -rf "$ROOM/slow" "$ROOM/out"
    setsid --wait env -u KOLO_CUDA_LIBRARY -u CUDA_HOME PYTHON=none NO_GPU="$ROOM/no-gpu" bash -c \
        'echo $$ > "$1"; shift; exec "$@"' - "$ROOM/pid" \
        "$fake/tests/gpu/run" --only facts,ops --out "$ROOM/out" > "$ROOM/log" 2>&1 &
    started && kill -"$1" -- -"$(cat "$ROOM/pid")"
    wait $!
    status=$?
}
slow TERM
is $status 143 "told to stop by TERM: exit 143"
like "$ROOM/out/report.txt" "^# told to stop in the part ops" "the report says where"
like "$ROOM/out/report.txt" "^  facts +" "the report has the summary of a stopped run"
like <(results) '"what": "stopped", "part": "ops"' "the results have the part in which it stopped"
is "$(ls -A "$ROOM/out" | paste -sd ' ')" "report.txt results.tar.gz" "two files"
for ((i = 0; i < 50; i++)); do kill -0 "$(cat "$ROOM/slow")" 2> /dev/null || break; sleep 0.1; done
kill -0 "$(cat "$ROOM/slow")" 2> /dev/null
is $? 1 "what it was running is stopped too"
slow KILL
kill "$(cat "$ROOM/slow")" # of another group, by timeout
like "$ROOM/out/report.txt" "^ok [0-9]+ - ops: ops_good: 1 passed" \
    "killed at once: the report has what was known"
like <(results) '"what": "part", "name": "facts"' "the results the parts that had ended"
is "$(ls -A "$ROOM/out" | paste -sd ' ')" "report.txt results.tar.gz" "two files"
rm -rf "${TMPDIR:?}"/*

# shares of classes from a profile: by the bandwidth (1000 GB/s) or the rate (100 TFLOP/s),
# whichever bounds a kernel
cat > "$ROOM/profile" << 'END'
kernel                    ms/step    calls     GB/s  TFLOP/s  first input, first output; how
conv                       2.0000      1.0    100.0    80.00  1x1x1x1 1x1x1x1; cuDNN
conv                       2.0000      1.0    100.0    40.00  1x1x1x1 1x1x1x1; cuDNN
conv                       1.0000      1.0    900.0    10.00  1x1x1x1 1x1x1x1; own depthwise bf16
norm_grad_apply            1.0000      1.0    500.0     0.00  1x1x1x1 1x1x1x1; own
END
. tests/gpu/measure.sh
is "$(class_shares "$ROOM/profile" 1000 100 10 |
    paste -sd ' ')" "bytes_norm_grad 0.500 flops_conv 0.600 flops_depthwise 1.000" \
        "shares of what bounds a class"
printf '%s: 250\n' launch_conv launch_norm_grad > "$ROOM/launches"
is "$(class_shares "$ROOM/profile" 1000 100 10 "$ROOM/launches" |
    paste -sd ' ')" "bytes_norm_grad 0.667 flops_conv 0.686 flops_depthwise 1.000" \
        "in the time beside what it takes to begin"
# what stands in the table of operations is what this takes an operation for
sed -E '/^OP\(/ { /\)$/! { N; s/\n */ /; }; }' src/graph/ops.def |
    sed -nE 's/^OP\(([a-z0-9_]+),.*, ([A-Z_]+), [a-z_]+, [A-Z_]+, [A-Z_]+\)$/\1 \2/p' > "$ROOM/ops"
is "$(wc -l < "$ROOM/ops")" "$(grep -c '^OP(' src/graph/ops.def)" "the operations and their classes are read"
others=''
while read -r op class; do
    key=$(class_shares <(printf 'kernel\n%s 1.0 1.0 1.0 - x\n' "$op") 1 1 1)
    [ -z "$key" ] || [ "$(sed 's/^[a-z]*_//; s/ .*//' <<< "$key" | tr a-z A-Z)" = "$class" ] ||
        others+="$op: ${key% *}, not $class"$'\n'
done < "$ROOM/ops"
none "classes are those of src/graph/ops.def" "$others"
# the whole table, in the form that share/gpus has
LOGS=$ROOM/logs RESULTS=$ROOM/results SHARE=share DRY='' SHOW=''
mkdir -p "$LOGS" "$RESULTS"
{
    echo \
        '{"what": "gpu", "name": "NVIDIA H200", "capability": "9.0", "processors": 132, "l2_mib": 60, "memory_mib": 143000, "free_mib": 142000}'
    for each in "copy gb_s 4300" "bf16 product.tflop_s 790" "fp16 product.tflop_s 780" \
        "tf32 product.tflop_s 400" "launch in a graph.us 1.3"; do
        case $each in *.*" "*) name=${each%%.*} rest=${each#*.} ;; *) name=copy rest="gb_s 4300" ;; esac
        echo "{\"what\": \"ceiling\", \"name\": \"$name\", \"${rest% *}\": ${rest#* }}"
    done
} > "$LOGS/ceilings"
pass() { :; }
gpu_table "$ROOM/profile" > "$ROOM/log"
like "$ROOM/log" "nothing was measured of f32" "a rate that is missing is told"
table=$RESULTS/gpus/h200.yaml
is "$(grep -cE \
    '^(memory: 1.499e\+11|bandwidth: 4300|bf16: 790|fp16: 780|tf32: 400|launch: 1.3|bytes: 1|flops: 1)$' \
    "$table")" 8 "the table has what was measured"
unknown=$(sed -nE 's/^([a-z0-9_]+):.*/\1/p' "$table" | sed -E 's/^(bytes|flops)_.*/\1/' |
    while read -r key; do grep -q "^$key:" share/gpus/h200.yaml || echo "$key"; done)
none "under the keys of share/gpus" "$unknown"

# the rehearsal
library=${KOLO_CUDA_LIBRARY:-$BUILD/standin/libkolo_cuda.so}
if [ ! -e "$library" ] || [ ! -x "$BUILD/tests/parity" ]; then
    skip "$library is not built"
    done_testing
fi
STANDIN_DRIVER=12040 KOLO_CUDA_LIBRARY=$library KOLO_BUILD=$BUILD tests/gpu/run --only facts --out \
    "$ROOM/dry" > "$ROOM/log" 2>&1
is $? 69 "an older driver: exit 69"
like "$ROOM/log" \
    "^FAIL gpu .*the NVIDIA driver knows CUDA up to 12.4, and kolo was built with CUDA [0-9.]+: update the driver" \
    "an older driver: the message has both versions of CUDA"
KOLO_BUILD=$BUILD PYTHON=${PYTHON:-python3} tests/gpu/run --dry --out "$ROOM/dry" > "$ROOM/log" 2>&1
is $? 0 "the rehearsal passes"
grep -A 5 -E '^not ok' "$ROOM/log" | sed 's/^/#   /'
for part in $PARTS; do like "$ROOM/log" "^--- $part: PASS" "rehearsed: $part"; done
tar -xzf "$ROOM/dry/results.tar.gz" -C "$ROOM"
is "$(grep -vcE '^\{"what": "[a-z_]+"(, "[a-z0-9_]+": ("[^"]*"|-?[0-9.e+-]+|null))*\}$' \
    "$ROOM/results/results.jsonl")" 0 "every result is an object"
is "$(find "$TMPDIR" -maxdepth 1 -name 'kolo-gpu-room-*' | wc -l)" 0 "no temporary folder is left"
done_testing
