# shellcheck shell=bash
# What the parts of tests/gpu/run share: where things are, headings, TAP lines, limits of time, results.
# DRY is empty, or 1 for the rehearsal without a GPU. ROOM: scratch, removed at the end. OUT: logs and results.
BUDGET=540 # seconds of the whole run: the parts' together, so that each is sure of its own; what one leaves is the next one's. What does not fit is left out, and said
declare -A PART_BUDGET=([facts]=15 [ops]=90 [golden]=40 [bench]=140 [peer]=120 [train]=40 [graph]=25 [determinism]=25 [share]=20 [sanitizer]=25)

run_begin() { # OUT DRY ONLY
    DRY=$2 ONLY=$3
    BEGIN=$SECONDS
    OUT=${1:-$(mktemp -d "${TMPDIR:-/tmp}/kolo-gpu-XXXXXX")}
    mkdir -p "$OUT/logs" || exit 3
    OUT=$(cd "$OUT" && pwd)
    : > "$OUT/results.jsonl"
    ROOM=$(mktemp -d "${TMPDIR:-/tmp}/kolo-gpu-room-XXXXXX") || exit 3
    trap 'rm -rf "$ROOM"' EXIT
    count=0 failed=0 part=start part_start=$SECONDS table='' doctor=1
    export KOLO_CACHE=$ROOM/cache # choices of this run only
    TOP=$(cd "$HERE/../.." && pwd)
    if [ -x "$TOP/bin/with" ]; then # a bundle
        WITH=("$TOP/bin/with")
        DATA=$TOP/share/data GOLDEN=$TOP/share/golden RECIPES=$TOP/share/kolo/recipes
        UNITS=$("${WITH[@]}" sh -c 'ls "$(dirname "$(command -v parity)")"' | grep -E '^(ops|optim|comm|exec|launch)_')
    else
        local build=${KOLO_BUILD:-$TOP/build}
        WITH=(env "PATH=$build/bin:$build/tests:$build/tests/cuda:$build/tests/gpu:$PATH")
        DATA=$ROOM/data GOLDEN=${KOLO_SHARED:-$TOP/../shared}/golden RECIPES=$TOP/share/recipes
        UNITS=$(cd "$build/tests/cuda" 2> /dev/null && find . -maxdepth 1 -type f -perm -u+x -printf '%f\n' | sort)
        LIBRARY=$build/lib/libkolo_cuda.so
        [ -z "$DRY" ] || LIBRARY=$build/standin/libkolo_cuda.so
    fi
    LIBRARY=${KOLO_CUDA_LIBRARY:-${LIBRARY:-$TOP/lib/libkolo_cuda.so}}
    export KOLO_CUDA_LIBRARY=$LIBRARY
    echo "results and logs: $OUT"
}

# Pictures: the bundle's, or drawn here. photos: of many sizes, JPEG; small: 32 x 32, raw.
need_data() {
    [ -d "$DATA/small" ] && return
    local photos=400 small=1024
    [ -z "$DRY" ] || photos=48 small=96
    with kolo-pack --source shapes --split train --count $photos --out "$DATA/photos/train" > "$OUT/logs/pack" 2>&1 &&
        with kolo-pack --source shapes --split train --count $small --size 32 --encoding raw --out "$DATA/small/train" >> "$OUT/logs/pack" 2>&1
}

# Programs of ours, with the libraries that they need.
with() { LD_LIBRARY_PATH=${CUDA_PATHS:+$CUDA_PATHS:}${LD_LIBRARY_PATH:-} "${WITH[@]}" "$@"; }

elapsed() { echo $((SECONDS - BEGIN)); }
left() { # [SECONDS]: these, or what is left of the part, of those before it, and of the whole
    local rest=$((BUDGET - SECONDS + BEGIN)) of_part=$((BEGIN - SECONDS)) most=${1:-$BUDGET} each
    for each in "${PARTS[@]}"; do
        of_part=$((of_part + PART_BUDGET[$each]))
        [ "$each" != "$part" ] || break
    done
    [ -n "$DRY$ONLY" ] && of_part=$rest
    rest=$((of_part < rest ? of_part : rest))
    echo $((rest < 1 ? 1 : rest < most ? rest : most))
}
enough() { # NAME: is there time for it?
    [ "$(left)" -gt 4 ] && return 0
    skip "$1: left out, the time is over (--only $part has more)"
    return 1
}
# limited SECONDS COMMAND...: exit status 124 after so many
limited() {
    local seconds
    seconds=$(left "$1")
    shift
    LD_LIBRARY_PATH=${CUDA_PATHS:+$CUDA_PATHS:}${LD_LIBRARY_PATH:-} timeout -k 10 "$seconds" "${WITH[@]}" "$@"
}

# ---- lines ----------------------------------------------------------------------------------------------------------------
part_begin() { # NAME TEXT
    part=$1 part_start=$SECONDS part_failed=$failed part_count=$count
    printf '\n=== %s: %s\n' "$1" "$2"
}
part_end() {
    local bad=$((failed - part_failed)) n=$((count - part_count)) word=PASS
    [ $bad = 0 ] || word=FAIL
    printf -- '--- %s: %s, %d of %d, %d s (%d s in all)\n' "$part" $word $((n - bad)) $n $((SECONDS - part_start)) "$(elapsed)"
    table+=$(printf '  %-12s %-4s %3d of %3d  %4d s' "$part" $word $((n - bad)) $n $((SECONDS - part_start)))$'\n'
    record part "name=$part" "passed=$((n - bad))" "failed=$bad" "seconds=$((SECONDS - part_start))"
}
pass() { count=$((count + 1)) && echo "ok $count - $part: $*"; }
fail() {
    count=$((count + 1)) failed=$((failed + 1))
    echo "not ok $count - $part: $*"
    failures+="  $part: $(cut -c 1-140 <<< "$*")"$'\n'
}
skip() { count=$((count + 1)) && echo "ok $count - $part: # SKIP $*"; }
ok() { # STATUS TEXT
    if [ "$1" = 0 ]; then pass "$2"; else fail "$2"; fi
}
note() { echo "# $*"; }
tail_of() { # LOG [LINES]: its last lines as remarks
    tail -n "${2:-8}" "$1" 2> /dev/null | cut -c 1-300 | sed 's/^/#   /'
}
failures=''

# record WHAT KEY=VALUE...: a line of results.jsonl; numbers stay numbers
record() {
    local word key value line="{\"what\": \"$1\""
    shift
    for word; do
        key=${word%%=*} value=${word#*=}
        if [[ $value =~ ^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$ ]]; then line+=", \"$key\": $value"; else line+=", \"$key\": \"${value//\"/}\""; fi
    done
    echo "$line}" >> "$OUT/results.jsonl"
}

# tap NAME SECONDS COMMAND...: a program that speaks TAP becomes one line here; what failed in it is shown
tap() {
    local name=$1 seconds=$2 log=$OUT/logs/$part.${1//[^A-Za-z0-9.]/_} status good bad skipped
    shift 2
    enough "$name" || return 1
    limited "$seconds" "$@" > "$log" 2>&1
    status=$?
    good=$(grep -cE '^ok ' "$log") bad=$(grep -cE '^not ok |^Bail out' "$log") skipped=$(grep -cE '^(ok [0-9]+|1\.\.0) # SKIP' "$log")
    record tap "part=$part" "name=$name" "passed=$((good - skipped))" "failed=$bad" "status=$status"
    if [ $status = 124 ] || [ $status = 137 ]; then fail "$name did not end in its time ($good passed until then)" && tail_of "$log" 3
    elif [ "$bad" -gt 0 ]; then fail "$name: $bad of $((good + bad)) failed" && grep -E '^(not ok|#|Bail out)' "$log" | head -n 12 | cut -c 1-240 | sed 's/^/#   /'
    elif [ $status != 0 ]; then fail "$name: exit status $status" && tail_of "$log"
    elif [ "$good" = 0 ] || [ "$good" = "$skipped" ]; then skip "$name: $(grep -m 1 -o 'SKIP.*' "$log" | cut -c 6-)"
    else pass "$name: $((good - skipped)) passed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"; fi
}

# train NAME SECONDS RECIPE ARGS...: kolo train into $ROOM/NAME; true if it ended well
train() {
    local name=$1 seconds=$2 recipe=$RECIPES/$3.yaml status
    shift 3
    enough "$name" || return 1
    limited "$seconds" kolo train "$recipe" ${DRY:+size=8} "$@" val=none run="$ROOM/$name" > "$OUT/logs/$part.$name" 2>&1
    status=$?
    [ $status = 0 ] || { fail "$name: kolo train ended with status $status" && tail_of "$OUT/logs/$part.$name" 5; }
    return $status
}
losses() { sed -n 's/.*"event":"step".*"step":\([0-9]*\).*"loss":\([^,}]*\).*/\1 \2/p' "$ROOM/$1/events.jsonl"; } # RUN
weights() { # RUN: checksum of its newest checkpoint
    local newest
    newest=$(find "$ROOM/$1/checkpoints" -maxdepth 1 -name 'step-*' ! -name '*.tmp*' | sort | tail -n 1)
    cksum < "$newest/tensors.safetensors"
}
same_bits() { # RUN RUN TEXT
    local a b
    a=$(losses "$1") b=$(losses "$2")
    if [ -z "$a" ]; then fail "$3: no losses were written"
    elif [ "$a" != "$b" ]; then fail "$3: other losses, first at step $(diff <(echo "$a") <(echo "$b") | sed -n '2s/^< \([0-9]*\).*/\1/p')"
    elif [ "$(weights "$1")" != "$(weights "$2")" ]; then fail "$3: the same $(wc -l <<< "$a") losses, but other weights"
    else pass "$3: the same $(wc -l <<< "$a") losses and weights"; fi
}

ratio() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {printf "%.3f", (b > 0) ? a / b : 0}'; }
at_least() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {exit !(a + 0 >= b + 0)}'; } # A B

# goal TEXT VALUE WANTED: at least WANTED; at most, where it is negative. A goal that is missed is told, it is no failure.
goal() {
    [ -z "$DRY" ] || return 0
    local word=missed
    if [[ $3 == -* ]]; then at_least "${3#-}" "$2" && word=reached; else at_least "$2" "$3" && word=reached; fi
    printf '  %-46s %10s   goal %s %-6s %s\n' "$1" "$2" "$([[ $3 == -* ]] && echo '<=' || echo '>=')" "${3#-}" $word | tee -a "$OUT/goals" | sed 's/^/# /'
    record goal "name=$1" "value=$2" "wanted=${3#-}" "state=$word"
}

run_end() {
    local seconds
    seconds=$(elapsed)
    printf '\n=== summary\n%s' "$table"
    [ -z "$failures" ] || printf 'failed:\n%s' "$failures"
    [ ! -s "$OUT/goals" ] || cat "$OUT/goals"
    [ -n "$DRY" ] && note "a rehearsal: nothing was measured"
    echo "1..$count"
    echo "$((count - failed)) passed, $failed failed, $seconds s; $OUT/results.jsonl"
    record run "passed=$((count - failed))" "failed=$failed" "seconds=$seconds"
    exit $((failed > 99 ? 99 : failed))
}
