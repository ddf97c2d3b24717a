# the same networks in PyTorch here, and the ratio
# shellcheck shell=bash
# The slowest to get ready comes last: what its tuning cannot finish in the time that is left
# is left out, and said.
python=${PYTHON:-python3}
peer() { # NAME SECONDS MODEL BATCH SIZE MODE PRECISION ARGS: its rate to $img, and to $ROOM/peer.NAME
    local name=$1 seconds status log=$LOGS/peer.$1
    seconds=$(left "$2")
    shift 2
    img=0
    shown "$python" "$HERE/peer.py" "$@" && return
    enough "PyTorch $name" || return
    # what it has compiled once is kept for a second run
    timed "$seconds" env TORCHINDUCTOR_CACHE_DIR="${TMPDIR:-/tmp}/kolo-inductor-$(id -u)" "$python" \
        "$HERE/peer.py" "$@" > "$log" 2> "$log.err"
    status=$?
    img=$(sed -n 's/.*"best_img_s": \([0-9.]*\).*/\1/p' "$log")
    if [ $status = 0 ] && [ -n "$img" ]; then
        grep -h '"peer"' "$log" >> "$RESULTS/results.jsonl"
        echo "$img" > "$ROOM/peer.$name"
        pass "PyTorch $name: $img img/s, ready after $(sed -n 's/.*"ready_s": \([0-9.]*\).*/\1/p' \
            "$log") s, $(sed -n 's/.*"peak_mib": \([0-9]*\).*/\1/p' "$log") MiB"
    else
        img=0
        if [ $status = 124 ] || [ $status = 137 ]; then
            skip "PyTorch $name was not ready in $seconds s"
            short+=,peer
        elif grep -qE "^(ImportError|ModuleNotFoundError): " "$log.err"; then
            fail "PyTorch $name: $(grep -E '^(ImportError|ModuleNotFoundError): ' "$log.err" | tail -n 1)"
        else
            skip "PyTorch $name: $(tail -n 1 "$log.err" | cut -c 1-200)"
        fi
    fi
}
best_peer() { cat "$ROOM/peer.$1".* 2> /dev/null | sort -g | tail -n 1 | grep . || echo 0; } # MODEL
# beside MODEL OURS WANTED: the ratio of our rate to PyTorch's best
beside() {
    [ -z "$SHOW" ] || return 0
    local theirs
    theirs=$(best_peer "$1")
    note "$1: ours $2 img/s, PyTorch's best $theirs: ratio $(ratio "$2" "$theirs")"
    record ratio "name=$1" "ours=$2" "peer=$theirs" "ratio=$(ratio "$2" "$theirs")"
    if [ -n "$3" ] && [ "$2" != 0 ] &&
        [ "$theirs" != 0 ]; then goal "$1, ratio to PyTorch's best" "$(ratio "$2" "$theirs")" "$3"; fi
}
if [ -z "$SHOW" ] && ! "$python" -c \
    'import importlib.util as u, sys; sys.exit(not (u.find_spec("torch") and u.find_spec("torchvision")))' \
    2> /dev/null; then
    skip "no PyTorch here (PYTHON=$python)"
elif [ -n "$DRY" ]; then
    peer resnet20.eager 120 resnet20 4 32 eager bf16 --device cpu --warmup 1 --steps 1 --rounds 1
else
    steps=(--warmup 8 --steps 20 --rounds 2)
    peer resnet50.eager.256 40 resnet50 256 224 eager bf16 "${steps[@]}"
    peer resnet50.fp16.256 40 resnet50 256 224 eager fp16 "${steps[@]}"
    rate_of synthetic.256 bench_big synthetic.256 256 precision=bf16
    beside resnet50 "$rate" ''
    peer resnet20.eager 30 resnet20 1024 32 eager bf16
    rate_of resnet20.bf16 bench_small resnet20.bf16 precision=bf16
    beside resnet20 "$rate" 3
    for network in convnext_tiny swin_t; do
        peer $network.eager 60 $network 128 224 eager bf16 --warmup 5 --steps 15 --rounds 2
        rate_of $network.128 bench $network.128 model=$network size=224 steps=20 precision=bf16 batch=128
        beside $network "$rate" ''
    done
    peer resnet50.graphs.256 100 resnet50 256 224 reduce-overhead bf16 "${steps[@]}"
    beside resnet50 "$(best_rate synthetic)" ''
    peer resnet50.eager.512 40 resnet50 512 224 eager bf16 "${steps[@]}"
    peer resnet20.graphs 60 resnet20 1024 32 reduce-overhead bf16
    for network in convnext_tiny swin_t; do
        peer $network.graphs 100 $network 128 224 reduce-overhead bf16 --warmup 5 --steps 15 --rounds 2
        beside $network "$(best_rate $network.128)" ''
    done
    peer resnet50.tuned.256 200 resnet50 256 224 compile bf16 "${steps[@]}"
    beside resnet50 "$(best_rate synthetic)" 1.10
fi
