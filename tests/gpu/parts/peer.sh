# the same networks in PyTorch here, and the ratio
# shellcheck shell=bash
# The slowest to get ready comes last: what its tuning cannot finish in the time that is left is left out, and said.
python=${PYTHON:-python3}
if ! command -v "$python" > /dev/null || ! "$python" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("torch") and u.find_spec("torchvision")))' 2> /dev/null; then
    skip "no PyTorch here (PYTHON=$python)"
else
    peer() { # NAME SECONDS MODEL BATCH SIZE MODE PRECISION ARGS
        local name=$1 seconds status log=$OUT/logs/peer.$1
        seconds=$(left "$2")
        shift 2
        img=0
        enough "PyTorch $name" || return
        # what it has compiled once is kept for a second run
        TORCHINDUCTOR_CACHE_DIR=${TMPDIR:-/tmp}/kolo-inductor-$(id -u) timeout -k 10 "$seconds" "$python" "$HERE/peer.py" "$@" > "$log" 2> "$log.err"
        status=$?
        img=$(sed -n 's/.*"best_img_s": \([0-9.]*\).*/\1/p' "$log")
        if [ $status = 0 ] && [ -n "$img" ]; then
            grep -h '"peer"' "$log" >> "$OUT/results.jsonl"
            pass "PyTorch $name: $img img/s, ready after $(sed -n 's/.*"ready_s": \([0-9.]*\).*/\1/p' "$log") s, $(sed -n 's/.*"peak_mib": \([0-9]*\).*/\1/p' "$log") MiB"
        elif [ $status = 124 ] || [ $status = 137 ]; then
            img=0
            skip "PyTorch $name was not ready in $seconds s"
        else
            img=0
            skip "PyTorch $name: $(tail -n 1 "$log.err" | cut -c 1-200)"
        fi
    }
    top=0 top_mode=none top20=0
    better() { at_least "$top" "$img" || top=$img top_mode=$1; }
    if [ -n "$DRY" ]; then
        peer resnet20.eager 120 resnet20 4 32 eager bf16 --device cpu --warmup 1 --steps 1 --rounds 1
    else
        declare -A their_best=()
        beside() { # NAME MODE SECONDS: a network of bench's beside ours
            peer "$1.$2" "$3" "$1" 128 224 "$2" bf16 --warmup 5 --steps 15 --rounds 2
            at_least "${their_best[$1]:-0}" "$img" || their_best[$1]=$img
        }
        for batch in 256 512; do peer resnet50.eager.$batch 40 resnet50 $batch 224 eager bf16 --warmup 8 --steps 20 --rounds 2 && better "eager, batch $batch"; done
        for network in convnext_tiny swin_t; do beside $network eager 30; done
        peer resnet20.eager 30 resnet20 1024 32 eager bf16
        eager20=$img
        at_least $top20 "$img" || top20=$img
        peer resnet20.compile 60 resnet20 1024 32 reduce-overhead bf16
        at_least $top20 "$img" || top20=$img
        peer resnet50.graphs.256 100 resnet50 256 224 reduce-overhead bf16 --warmup 8 --steps 20 --rounds 2
        better "compiled with CUDA graphs, batch 256"
        for network in convnext_tiny swin_t; do beside $network reduce-overhead 100; done
        peer resnet50.tuned.256 200 resnet50 256 224 compile bf16 --warmup 8 --steps 20 --rounds 2
        better "max-autotune with CUDA graphs, batch 256"
        for network in convnext_tiny swin_t; do
            ours=$(cat "$OUT/best.$network" 2> /dev/null || echo 0) theirs=${their_best[$network]:-0}
            note "$network: ours $ours img/s, PyTorch's best $theirs: ratio $(ratio "$ours" "$theirs")"
            record ratio "name=$network" "ours=$ours" "peer=$theirs" "ratio=$(ratio "$ours" "$theirs")"
        done
        ours=$(cat "$OUT/best" 2> /dev/null || echo 0) ours20=$(cat "$OUT/best20" 2> /dev/null || echo 0)
        note "ResNet-50: ours $ours img/s, PyTorch's best $top img/s ($top_mode): ratio $(ratio "$ours" "$top")"
        note "ResNet-20: ours $ours20 img/s, PyTorch eager $eager20: ratio $(ratio "$ours20" "$eager20"); its best $top20: $(ratio "$ours20" "$top20")"
        record ratio "name=resnet50" "ours=$ours" "peer=$top" "mode=$top_mode" "ratio=$(ratio "$ours" "$top")"
        record ratio "name=resnet20" "ours=$ours20" "peer=$eager20" "ratio=$(ratio "$ours20" "$eager20")"
        if [ "$ours" != 0 ] && [ "$top" != 0 ]; then goal "ResNet-50, ratio to PyTorch's best" "$(ratio "$ours" "$top")" 1.10; fi
        if [ "$ours20" != 0 ] && [ "$eager20" != 0 ]; then goal "ResNet-20, ratio to PyTorch eager" "$(ratio "$ours20" "$eager20")" 3; fi
    fi
fi
