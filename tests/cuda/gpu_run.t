#!/usr/bin/env bash
# tests/gpu/run without a GPU: it counts failures, refuses what it cannot run on, and rehearses every part with the stand-in.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
mkdir "$ROOM/tmp" && export TMPDIR=$ROOM/tmp # what is left behind is seen there, whoever else is at work
is "$(tests/gpu/run --list | awk '{print $1}' | paste -sd ' ')" "facts ops golden bench peer train graph determinism share sanitizer" "its parts, in their order"
is "$(sed -n '/^declare -A PART_BUDGET/s/[^0-9]\+/ /gp' tests/gpu/lib.sh | tr ' ' '\n' | awk '{sum += $1} END {print sum}')" "$(sed -n 's/^BUDGET=\([0-9]*\).*/\1/p' tests/gpu/lib.sh)" "whose times are the whole run's"
tests/gpu/run --only nothing > "$ROOM/log" 2>&1
is $? 78 "a part that does not exist: exit 78"
KOLO_CUDA_LIBRARY=$ROOM/absent.so tests/gpu/run --only facts --out "$ROOM/out" > "$ROOM/log" 2>&1
is $? 69 "no CUDA library of ours: exit 69"
like "$ROOM/log" "absent.so is not there: build with make CUDA=1" "and what to do"

# a bundle of programs that say what this test wants
fake=$ROOM/fake
mkdir -p "$fake"/{bin,progs,lib,tests,share/golden/models}
cp -r tests/gpu "$fake/tests/"
touch "$fake/lib/libkolo_cuda.so"
program() { cat > "$1" && chmod +x "$1"; }
program "$fake/bin/with" << END
#!/bin/sh
PATH=$fake/progs:\$PATH exec "\$@"
END
program "$fake/progs/kolo" << 'END'
#!/bin/sh
case $1 in doctor) [ -e "$NO_GPU" ] && echo "FAIL gpu        no NVIDIA driver here" && exit 69 ;; *) exit 0 ;; esac
END
program "$fake/progs/parity" << 'END'
#!/bin/sh
echo "ok 1 - $1 conv"
case $1 in
    lenet5) echo "not ok 2 - $1 relu: worst at 900 %" && echo "# where it is" && echo 1..2 && exit 1 ;;
    mlp) kill -SEGV $$ ;;
esac
echo 1..1
END
run() { # ARGS: status to $status, text to $ROOM/log
    env -u KOLO_CUDA_LIBRARY -u CUDA_HOME -u CUDA_PATH PYTHON=none NO_GPU="$ROOM/no-gpu" "$fake/tests/gpu/run" --out "$ROOM/out" "$@" > "$ROOM/log" 2>&1
    status=$?
}
echo libcudart.so.777 > "$fake/lib/nvidia.needed"
run --only facts
is $status 69 "a CUDA that is not here: exit 69"
like "$ROOM/log" "^missing: libcudart.so.777" "and its name"
: > "$fake/lib/nvidia.needed"
touch "$ROOM/no-gpu"
run --only facts
is $status 69 "no driver: exit 69"
like "$ROOM/log" "^FAIL gpu +no NVIDIA driver here" "in the program's own words"
rm "$ROOM/no-gpu"
run --only ops
is $status 7 "as many failures as programs that failed: four of lenet5, three that died"
is "$(grep -c '^ok' "$ROOM/log")" 37 "the others passed"
like "$ROOM/log" "^#   not ok 2 - lenet5 relu: worst at 900 %" "what failed in them is shown"
like "$ROOM/log" "^not ok [0-9]+ - ops: mlp.5.28.13.bf16.deterministic=true: exit status 139" "and how one died"
like "$ROOM/log" "^  ops +FAIL +37 of  44" "the summary"
is "$(tail -n 1 "$ROOM/out/results.jsonl" | sed 's/"seconds": [0-9]*/"seconds": N/')" '{"what": "run", "passed": 37, "failed": 7, "seconds": N}' "the results as JSON"

# the rehearsal
library=${KOLO_CUDA_LIBRARY:-$BUILD/standin/libkolo_cuda.so}
if [ ! -e "$library" ] || [ ! -x "$BUILD/tests/parity" ]; then
    skip "$library is not built"
    done_testing
fi
KOLO_BUILD=$BUILD PYTHON=${PYTHON:-python3} tests/gpu/run --dry --out "$ROOM/dry" > "$ROOM/log" 2>&1
is $? 0 "the rehearsal passes"
grep -A 5 -E '^not ok' "$ROOM/log" | sed 's/^/#   /'
for part in $(tests/gpu/run --list | awk '{print $1}'); do like "$ROOM/log" "^--- $part: PASS" "rehearsed: $part"; done
is "$(grep -vcE '^\{"what": "[a-z_]+"(, "[a-z0-9_]+": ("[^"]*"|-?[0-9.e+-]+|null))*\}$' "$ROOM/dry/results.jsonl")" 0 "every result is an object"
is "$(find "$TMPDIR" -maxdepth 1 -name 'kolo-gpu-room-*' | wc -l)" 0 "nothing is left behind"
done_testing
