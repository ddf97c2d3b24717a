# shellcheck shell=bash
# What the parts of tests/gpu/run share: where things are, headings, TAP lines, limits of time, results. DRY
# is empty, or 1 for the rehearsal without a GPU. SHOW is empty, or 1 where nothing can be run: what would be
# is said. ROOM: scratch, removed at the end. RESULTS, in it: what OUT/results.tar.gz is made of. LOGS:
# RESULTS/logs. The shares, in seconds of a whole run: the parts are sure of them, and what one leaves is the
# next one's. What does not fit is left out, and said.
declare -A PART_BUDGET=([facts]=10 [ops]=100 [bench]=75 [golden]=60 [train]=30 [share]=30 [peer]=110 \
    [parity]=40 [speed]=30 [graph]=15 [determinism]=15 [memory]=15 [sanitizer]=10)

about() { sed -n '1s/^# *//p' "$HERE/parts/$1.sh"; } # PART

run_begin() { # OUT DRY ONLY SECONDS
    local each
    DRY=$2 SHOW=''
    BEGIN=$SECONDS
    OUT=${1:-$(mktemp -d "${TMPDIR:-/tmp}/kolo-gpu-XXXXXX")}
    mkdir -p "$OUT" || exit 3
    OUT=$(cd "$OUT" && pwd)
    ROOM=$(mktemp -d "${TMPDIR:-/tmp}/kolo-gpu-room-XXXXXX") || exit 3
    trap 'rm -rf "$ROOM"' EXIT
    RESULTS=$ROOM/results LOGS=$ROOM/results/logs
    mkdir -p "$LOGS"
    rm -f "$OUT/report.txt" "$OUT/results.tar.gz" "$OUT/.results.tar.gz"
    # the report is written to its last line also when everybody here is told to stop
    exec > >(trap '' TERM INT HUP PIPE && exec tee "$OUT/report.txt") 2>&1
    TEE=$!
    exec {REPORT}>&1
    trap interrupted TERM INT HUP
    count=0 failed=0 part=start part_start=$SECONDS table='' failures='' doctor=1 child='' kept=-60 short='' \
        shares=0 BUDGET=0
    CHOSEN=()
    for each in "${PARTS[@]}"; do
        case ",${3:-$each}," in *",$each,"*) CHOSEN+=("$each") &&
            BUDGET=$((BUDGET + PART_BUDGET[$each])) ;; esac
    done
    shares=$BUDGET BUDGET=${4:-$BUDGET}
    export KOLO_CACHE=$RESULTS/cache # choices of this run only, told with its results
    find_programs
    echo "report and results: $OUT"
}

# Where programs, data and figures are: WITH puts the programs and their libraries before a command.
find_programs() {
    TOP=$(cd "$HERE/../.." && pwd)
    GOLDEN=$TOP/tests/golden
    if [ -x "$TOP/bin/with" ]; then # a bundle
        WITH=("$TOP/bin/with")
        local tree
        tree=$("${WITH[@]}" sh -c 'echo "$BUNDLE_TREE"') || { table='' && run_end 69; }
        DATA=$TOP/share/data SHARE=$tree/share/kolo
        UNITS=$(cd "$tree/bin" && find . -maxdepth 1 -type f -printf '%f\n')
        LIBRARY=$tree/lib/libkolo_cuda.so
    else
        local build=${KOLO_BUILD:-$TOP/build}
        WITH=(env "PATH=$build/bin:$build/tests:$build/tests/cuda:$build/tests/gpu:$PATH")
        DATA=$ROOM/data SHARE=$TOP/share
        UNITS=$(cd "$build/tests/cuda" 2> /dev/null && find . -maxdepth 1 -type f -perm -u+x -printf '%f\n')
        LIBRARY=$build/lib/libkolo_cuda.so
        [ -z "$DRY" ] || LIBRARY=$build/standin/libkolo_cuda.so
    fi
    UNITS=$(grep -E '^(ops|optim|comm|exec|launch)_' <<< "$UNITS" | sort) RECIPES=$SHARE/recipes
    LIBRARY=${KOLO_CUDA_LIBRARY:-$LIBRARY}
    export KOLO_CUDA_LIBRARY=$LIBRARY
}

# Nothing can be run here: the parts say what they would run, the run ends with 69.
show_only() {
    SHOW=1
    note "nothing can be run here; what each part would run:"
}

# Images: the bundle's, or drawn here. photos: of many sizes, JPEG; small: 32 x 32, raw.
need_data() {
    [ -d "$DATA/small" ] && return
    local photos=260 small=512
    [ -z "$DRY$SHOW" ] || photos=48 small=96
    { with kolo-pack --source shapes --split train --count $photos --out "$DATA/photos/train" > "$LOGS/pack" \
        2>&1 &&
        with kolo-pack --source shapes --split train --count $small --size 32 --encoding raw --out \
        "$DATA/small/train" >> "$LOGS/pack" 2>&1; } ||
        fail "packing: $(tail -n 1 "$LOGS/pack")"
}

# ---- time --------------------------------------------------------------------------------------------------
elapsed() { echo $((SECONDS - BEGIN)); }
left() { # [SECONDS]: these, or what is left of the part, of those before it, and of the whole
    local upto=0 rest most=${1:-999999} each
    [ -z "$DRY" ] || { echo 600 && return; } # a rehearsal is not in a hurry
    for each in "${CHOSEN[@]}"; do
        upto=$((upto + PART_BUDGET[$each]))
        [ "$each" != "$part" ] || break
    done
    rest=$((upto * BUDGET / shares - SECONDS + BEGIN))
    echo $((rest < 1 ? 1 : rest < most ? rest : most))
}
enough() { # NAME: is there time for it?
    [ "$(left)" -gt 4 ] && return 0
    skip "$1: left out, the time is over"
    case ",$short," in *",$part,"*) ;; *) short+=,$part ;; esac
    return 1
}

# ---- commands ----------------------------------------------------------------------------------------------
# Programs of ours, with the libraries that they need.
with() { LD_LIBRARY_PATH=${CUDA_PATHS:+$CUDA_PATHS:}${LD_LIBRARY_PATH:-} "${WITH[@]}" "$@"; }

# timed SECONDS COMMAND...: exit status 124 after so many. It runs beside this shell, which so learns at
# once that it is to stop.
timed() {
    local seconds status
    seconds=$(left "$1")
    shift
    timeout -k 10 "$seconds" "$@" &
    child=$!
    wait $child
    status=$?
    child=''
    return $status
}
limited() { # SECONDS COMMAND...: of ours
    local seconds=$1
    shift
    timed "$seconds" env LD_LIBRARY_PATH="${CUDA_PATHS:+$CUDA_PATHS:}${LD_LIBRARY_PATH:-}" "${WITH[@]}" "$@"
}

# shown COMMAND...: where nothing can be run, says it, fails if a program or a file of it is
# missing, and is true
declare -A SEEN=()
shown() {
    [ -n "$SHOW" ] || return 1
    local word file absent=''
    [ -n "${SEEN[$1]:-}" ] || "${WITH[@]}" sh -c 'command -v "$1"' - "$1" > /dev/null || absent=" $1"
    SEEN[$1]=1
    for word; do
        file=${word#*=}
        case $file in /*) case $word in run=* | PYTHON=*) ;; *) [ -e "$file" ] ||
            absent+=" $file" ;; esac ;; esac
    done
    if [ -z "$absent" ]; then pass "would run: ${*//"$TOP/"/}"; else fail \
        "would run: ${*//"$TOP/"/}; missing:$absent"; fi
}

# ---- lines -------------------------------------------------------------------------------------------------
part_begin() { # NAME
    part=$1 part_start=$SECONDS part_failed=$failed part_count=$count
    printf '\n=== %s: %s\n' "$1" "$(about "$1")"
}
part_end() {
    local bad=$((failed - part_failed)) n=$((count - part_count)) word=PASS
    [ $bad = 0 ] || word=FAIL
    printf -- '--- %s: %s, %d of %d, %d s (%d s in all)\n' "$part" $word $((n - bad)) $n \
        $((SECONDS - part_start)) "$(elapsed)"
    table+=$(printf '  %-12s %-4s %3d of %3d  %4d s' "$part" $word $((n - bad)) $n \
        $((SECONDS - part_start)))$'\n'
    record part "name=$part" "passed=$((n - bad))" "failed=$bad" "seconds=$((SECONDS - part_start))"
    keep now
}
pass() { count=$((count + 1)) && echo "ok $count - $part: $*" && keep; }
fail() {
    count=$((count + 1)) failed=$((failed + 1))
    echo "not ok $count - $part: $*"
    failures+="  $part: $(cut -c 1-140 <<< "$*")"$'\n'
    keep
}
skip() { count=$((count + 1)) && echo "ok $count - $part: # SKIP $*"; }
ok() { # STATUS TEXT
    if [ "$1" = 0 ]; then pass "$2"; else fail "$2"; fi
}
note() { echo "# $*"; }
tail_of() { # LOG [LINES]: its last lines as remarks
    tail -n "${2:-8}" "$1" 2> /dev/null | cut -c 1-300 | sed 's/^/#   /'
}

# ---- results -----------------------------------------------------------------------------------------------
# record WHAT KEY=VALUE...: a line of results.jsonl; numbers stay numbers
record() {
    local word key value line="{\"what\": \"$1\""
    shift
    for word; do
        key=${word%%=*} value=${word#*=}
        if [[ $value =~ ^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$ ]]; then line+=", \"$key\": $value"; else \
            line+=", \"$key\": \"${value//[\"\\]/}\""; fi
    done
    echo "$line}" >> "$RESULTS/results.jsonl"
}

# keep [now]: the archive anew, whole or not at all; at most every five seconds unless now. Of a long
# log its end is kept.
keep() {
    [ "${1:-}" = now ] || [ $((SECONDS - kept)) -ge 5 ] || return 0
    kept=$SECONDS
    local log
    find "$LOGS" -type f -size +1024k -print0 |
        while IFS= read -r -d '' log; do tail -c 1000000 "$log" > "$ROOM/end" && mv "$ROOM/end" "$log"; done
    tar -C "$ROOM" -czf "$OUT/.results.tar.gz" results && mv -f "$OUT/.results.tar.gz" "$OUT/results.tar.gz"
}

# tap NAME SECONDS COMMAND...: a program that speaks TAP becomes one line here; what failed in it is shown
tap() {
    local name=$1 seconds=$2 log=$LOGS/$part.${1//[^A-Za-z0-9.]/_} status good bad skipped begin=$SECONDS
    shift 2
    shown "$@" && return
    enough "$name" || return 1
    limited "$seconds" "$@" > "$log" 2>&1
    status=$?
    good=$(grep -cE '^ok ' "$log") bad=$(grep -cE '^not ok |^Bail out' "$log") skipped=$(grep -cE \
        '^(ok [0-9]+|1\.\.0) # SKIP' "$log")
    record tap "part=$part" "name=$name" "passed=$((good - skipped))" "failed=$bad" "status=$status" \
        "seconds=$((SECONDS - begin))"
    if [ $status = 124 ] || [ $status = 137 ]; then fail \
        "$name did not end in its time ($good passed until then)" && tail_of "$log" 3
    elif [ "$bad" -gt 0 ]; then fail "$name: $bad of $((good + bad)) failed" &&
        grep -E '^(not ok|#|Bail out)' "$log" | head -n 12 | cut -c 1-240 | sed 's/^/#   /'
    elif [ $status != 0 ]; then fail "$name: exit status $status" && tail_of "$log"
    elif [ "$good" = 0 ] || [ "$good" = "$skipped" ]; then skip "$name: $(grep -m 1 -o 'SKIP.*' "$log" |
        cut -c 6-)"
    else pass "$name: $((good - skipped)) passed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"; fi
}

# ---- trainings ---------------------------------------------------------------------------------------------
# train NAME SECONDS RECIPE ARGS...: kolo train into $ROOM/NAME; true if it ended well
train() {
    local name=$1 seconds=$2 recipe=$RECIPES/$3.yaml status
    shift 3
    shown kolo train "$recipe" "$@" val=none run="$name" && return
    enough "$name" || return 1
    limited "$seconds" kolo train "$recipe" ${DRY:+size=8} "$@" val=none run="$ROOM/$name" > \
        "$LOGS/$part.$name" 2>&1
    status=$?
    [ $status = 0 ] || { fail "$name: kolo train ended with status $status" &&
        tail_of "$LOGS/$part.$name" 5; }
    return $status
}
# RUN
losses() { sed -n 's/.*"event":"step".*"step":\([0-9]*\).*"loss":\([^,}]*\).*/\1 \2/p' \
    "$ROOM/$1/events.jsonl"; }
weights() { # RUN: checksum of its newest checkpoint
    local newest
    newest=$(find "$ROOM/$1/checkpoints" -maxdepth 1 -name 'step-*' ! -name '*.tmp*' | sort | tail -n 1)
    cksum < "$newest/tensors.safetensors"
}
same_bits() { # RUN RUN TEXT
    [ -z "$SHOW" ] || return 0
    local a b
    a=$(losses "$1") b=$(losses "$2")
    if [ -z "$a" ]; then fail "$3: no losses were written"
    elif [ "$a" != "$b" ]; then fail "$3: other losses, first at step $(diff <(echo \
        "$a") <(echo "$b") | sed -n '2s/^< \([0-9]*\).*/\1/p')"
    elif [ "$(weights "$1")" != "$(weights "$2")" ]; then fail "$3: the same $(wc -l <<< \
        "$a") losses, but other weights"
    else pass "$3: the same $(wc -l <<< "$a") losses and weights"; fi
}

# ---- the end -----------------------------------------------------------------------------------------------
# Told to stop: what runs is told so too, what is known is written at once.
interrupted() {
    trap '' TERM INT HUP
    exec >&"$REPORT" 2>&1 # whatever was being written to a log
    [ -z "$child" ] || kill -TERM -- "-$child" "$child" 2> /dev/null
    note "told to stop in the part $part, after $(elapsed) s"
    record stopped "part=$part" "seconds=$(elapsed)"
    keep now
    [ -z "$child" ] || { sleep 1 && kill -KILL -- "-$child" 2> /dev/null; }
    failures+="  $part: told to stop"$'\n'
    run_end 143
}

run_end() { # [STATUS]
    local seconds
    seconds=$(elapsed)
    printf '\n=== summary\n%s' "$table"
    [ -z "$failures" ] || printf 'failed:\n%s' "$failures"
    [ ! -s "$ROOM/goals" ] || cat "$ROOM/goals"
    [ -z "$short" ] || note "time was short: again with --only ${short#,}"
    [ -z "$DRY" ] || note "a rehearsal: nothing was measured"
    [ -z "$SHOW" ] || note "nothing was run"
    echo "1..$count"
    echo "$((count - failed)) passed, $failed failed, $seconds s; $OUT/report.txt, $OUT/results.tar.gz"
    record run "passed=$((count - failed))" "failed=$failed" "seconds=$seconds"
    keep now
    exec >&- 2>&- {REPORT}>&-
    # it ends with its last writer, which a signal may have stopped amid a redirection
    for _ in {1..20}; do kill -0 "$TEE" 2> /dev/null && sleep 0.1; done
    kill -KILL "$TEE" 2> /dev/null
    [ -z "$SHOW" ] || exit 69
    exit "${1:-$((failed > 60 ? 60 : failed))}"
}
