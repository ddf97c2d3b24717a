# speed: ResNet-50 on synthetic images, batch 256, bf16 and fp16, every operation beside this GPU's ceilings
# shellcheck shell=bash
measure_ceilings
# by_operation LOG TEXT: the profile of a run
by_operation() {
    note "by operation, $2, measured ceilings $(ceiling copy) GB/s, $(ceiling 'bf16 product') TFLOP/s:"
    grep -vE '^(train|arenas)' "$1" | head -n 60 | sed 's/^/#   /'
    record_profile "$1"
    [ -n "$DRY" ] || gpu_table "$1"
}
# engines by rule start at once: a figure is there before the seconds go that choosing takes, two at most
# for each of 70 shapes
if bench_big deterministic 256 precision=bf16 deterministic=true --profile &&
    [ -z "$SHOW" ]; then by_operation "$LOGS/bench.deterministic" "engines by rule"; fi
by_rule=$rate
if bench_big synthetic.256 256 precision=bf16; then
    best_host=$host best_peak=$peak best_planned=$planned
    note "deterministic=true runs, with its clock, at $(ratio "$by_rule" "$rate") of the free speed"
    goal "deterministic mode, share of the free speed" "$(ratio "$by_rule" "$rate")" 0.90
fi
if bench_big profile 256 precision=bf16 --profile &&
    [ -z "$SHOW" ]; then by_operation "$LOGS/bench.profile" "engines by the clock"; fi
bench_big fp16.256 256 precision=fp16 && [ -z "$DRY$SHOW" ] &&
    bench_big profile.fp16 256 precision=fp16 --profile && record_profile "$LOGS/bench.profile.fp16"
best=$(cat "$ROOM/rate.synthetic.256" "$ROOM/rate.fp16.256" 2> /dev/null | sort -g | tail -n 1)
goal "ResNet-50 bf16, img/s: good" "$(cat "$ROOM/rate.synthetic.256" 2> /dev/null || echo 0)" 3400
goal "ResNet-50, img/s: the aim" "${best:-0}" 7100
goal "host's share of a step, us" "$(awk -v h="${best_host:-0}" 'BEGIN {print 1000 * h}')" -50
goal "memory taken beyond the plan, percent" "$(awk -v p="${best_planned:-0}" -v m="${best_peak:-0}" \
    'BEGIN {d = p > 0 ? 100 * (m - p) / p : 100; print d < 0 ? -d : d}')" -1
