# speed: ResNet-50 and ResNet-20, ConvNeXt, Swin and EfficientNet, by operation, memory, the host's share
# shellcheck shell=bash
# trying candidates takes long on the stand-in: a rehearsal does it once
free=()
if [ -n "$DRY" ]; then batches=(2) big=(model=resnet20 size=8 steps=2) small=(model=resnet20 size=8 batch=2 steps=2) free=(deterministic=true)
else batches=(256 512) big=(model=resnet50 size=224 steps=40) small=(model=resnet20 size=32 batch=1024 steps=200); fi
if [ -z "$DRY" ]; then
    if limited 60 ceilings > "$OUT/logs/ceilings" 2>&1; then
        grep -h '"ceiling"\|"gpu"' "$OUT/logs/ceilings" | tee -a "$OUT/results.jsonl" | sed 's/[{}"]//g; s/^what: /# /'
        pass "ceilings measured"
    else
        fail "ceilings: $(tail -n 1 "$OUT/logs/ceilings")"
    fi
fi
ceiling() { sed -n "s/.*\"name\": \"$1\", \"[a-z_]*\": \([0-9.e+]*\)}.*/\1/p" "$OUT/logs/ceilings" 2> /dev/null | head -n 1; } # NAME
field() { sed -n "s|^train .*$2.*|\1|p" "$OUT/logs/bench.$1" | tail -n 1; } # NAME PATTERN
# bench NAME ARGS...: one run of kolo bench train; figures to $rate $ms $host $peak $planned. The first of a shape tries candidates and takes long.
bench() {
    local name=$1 start=$SECONDS
    shift
    rate=0 ms=0 host=0 peak=0 planned=0
    enough "$name" || return 1
    limited 120 kolo bench train device=cuda "$@" > "$OUT/logs/bench.$name" 2>&1 || { fail "$name: status $?, $(tail -n 1 "$OUT/logs/bench.$name" | cut -c 1-200)" && return 1; }
    rate=$(field "$name" ': \([0-9.]*\) img/s') ms=$(field "$name" ' \([0-9.]*\) ms/step')
    host=$(field "$name" 'host \([0-9.]*\)') peak=$(field "$name" 'peak \([0-9.]*\) MiB') planned=$(field "$name" 'planned \([0-9.]*\) MiB')
    [ -n "$rate" ] || { fail "$name: no figure in $OUT/logs/bench.$name" && return 1; }
    record bench "name=$name" "img_s=$rate" "ms=$ms" "host_us=$(awk -v h="$host" 'BEGIN {print 1000 * h}')" "peak_mib=$peak" "planned_mib=$planned" "seconds=$((SECONDS - start))" "args=$*"
    pass "$name: $rate img/s, $ms ms a step, host $host ms, memory $peak MiB of $planned planned (run: $((SECONDS - start)) s)"
}
best=0 best_batch=${batches[0]}
for batch in "${batches[@]}"; do
    bench "synthetic.$batch" "${big[@]}" precision=bf16 batch="$batch" || continue
    at_least "$best" "$rate" || best=$rate best_batch=$batch best_host=$host best_peak=$peak best_planned=$planned
done
echo "$best" > "$OUT/best"
networks=(convnext_tiny swin_t efficientnet_b0)
[ -z "$DRY" ] || networks=()
for model in "${networks[@]}"; do bench "$model.bf16" model="$model" size=224 steps=20 precision=bf16 batch=128 && echo "$rate" > "$OUT/best.$model"; done
# depthwise LOG: the rates of its 7 x 7 depthwise convolutions, of the bytes that they cannot but move, as shares of what a copy moves
depthwise() {
    local copy
    copy=$(ceiling copy)
    awk -v copy="${copy:-0}" '/; own depthwise/ && $4 ~ /^[0-9.]+$/ {ms[$1] += $2; bytes[$1] += $2 * $4}
        END {for (op in ms) printf "%s %.1f %.3f\n", op, bytes[op] / ms[op], copy > 0 ? bytes[op] / ms[op] / copy : 0}' "$1" | sort |
        while read -r op rate share; do
            note "depthwise $op: $rate GB/s, $share of a copy"
            record depthwise "name=$op" "gb_s=$rate" "of_copy=$share"
            goal "depthwise $op, share of a copy" "$share" 0.6
        done
}
if [ -z "$DRY" ] && bench convnext_tiny.profile model=convnext_tiny size=224 steps=20 precision=bf16 batch=128 --profile; then depthwise "$OUT/logs/bench.convnext_tiny.profile"; fi
if bench deterministic "${big[@]}" precision=bf16 batch="$best_batch" deterministic=true; then
    note "deterministic=true runs at $(ratio "$rate" "$best") of the free speed"
    goal "deterministic mode, share of the free speed" "$(ratio "$rate" "$best")" 0.90
fi
if bench eager "${big[@]}" "${free[@]}" precision=bf16 batch="$best_batch" replay=false; then note "launched kernel by kernel: $(ratio "$rate" "$best") of the replayed speed"; fi
if bench profile "${big[@]}" "${free[@]}" precision=bf16 batch="$best_batch" --profile; then
    note "by operation at batch $best_batch, measured ceilings $(ceiling copy) GB/s, $(ceiling 'bf16 product') TFLOP/s:"
    grep -vE '^(train|arenas)' "$OUT/logs/bench.profile" | head -n 30 | sed 's/^/#   /'
    awk 'function rate(x) {return x ~ /^[0-9.]+$/ ? x : "null"}
        $1 == "action" || $1 == "kernel" {kind = $1; next}
        kind != "" && $2 ~ /^[0-9.]+$/ {
            printf "{\"what\": \"%s\", \"name\": \"%s\", \"ms\": %s, \"calls\": %s, \"gb_s\": %s, \"tflop_s\": %s", kind, $1, $2, $3, rate($4), rate($5)
            if (kind == "kernel") {shape = $0; sub(/^([^ ]+ +)([^ ]+ +)([^ ]+ +)([^ ]+ +)([^ ]+ +)/, "", shape); gsub(/["\\]/, "", shape); printf ", \"shape\": \"%s\"", shape}
            print "}"}' "$OUT/logs/bench.profile" >> "$OUT/results.jsonl"
fi
need_data
if bench packed "${big[@]}" "${free[@]}" precision=bf16 batch="$best_batch" data="$DATA/photos/train"; then note "packed pictures: $(ratio "$rate" "$best") of the synthetic speed"; fi
bench resnet20.f32 "${small[@]}" "${free[@]}" precision=f32
bench resnet20.bf16 "${small[@]}" "${free[@]}" precision=bf16 && echo "$rate" > "$OUT/best20"
if [ -z "$DRY" ] && bench synthetic.128 "${big[@]}" precision=bf16 batch=128; then
    at_least "$best" "$rate" || best=$rate best_host=$host best_peak=$peak best_planned=$planned
    echo "$best" > "$OUT/best"
fi
if [ -z "$DRY" ]; then bench resnet50.fp16 "${big[@]}" precision=fp16 batch="$best_batch" && bench resnet50.tf32 "${big[@]}" precision=tf32 batch=128; fi
goal "ResNet-50 bf16, img/s: the floor" "$best" 2470
goal "ResNet-50 bf16, img/s: good" "$best" 3400
goal "ResNet-50 bf16, img/s: the aim" "$best" 7100
goal "host's share of a step, us" "$(awk -v h="${best_host:-0}" 'BEGIN {print 1000 * h}')" -50
goal "memory taken beyond the plan, percent" "$(awk -v p="${best_planned:-0}" -v m="${best_peak:-0}" 'BEGIN {d = p > 0 ? 100 * (m - p) / p : 100; print d < 0 ? -d : d}')" -1
