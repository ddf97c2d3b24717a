# speed: ResNet-50 on synthetic pictures, batch 256, bf16 and fp16, every operation beside this GPU's ceilings
# shellcheck shell=bash
if bench_big synthetic.256 256 precision=bf16; then
    best_host=$host best_peak=$peak best_planned=$planned
fi
measure_ceilings
if bench_big profile 256 precision=bf16 --profile && [ -z "$SHOW" ]; then
    note "by operation, measured ceilings $(ceiling copy) GB/s, $(ceiling 'bf16 product') TFLOP/s:"
    grep -vE '^(train|arenas)' "$LOGS/bench.profile" | head -n 60 | sed 's/^/#   /'
    record_profile "$LOGS/bench.profile"
fi
[ -n "$DRY$SHOW" ] || gpu_table "$LOGS/bench.profile"
bench_big fp16.256 256 precision=fp16 && [ -z "$DRY$SHOW" ] && bench_big profile.fp16 256 precision=fp16 --profile && record_profile "$LOGS/bench.profile.fp16"
if bench_big deterministic 256 precision=bf16 deterministic=true; then
    free=$(cat "$ROOM/rate.synthetic.256" 2> /dev/null || echo 0)
    note "deterministic=true runs at $(ratio "$rate" "$free") of the free speed"
    goal "deterministic mode, share of the free speed" "$(ratio "$rate" "$free")" 0.90
fi
best=$(cat "$ROOM/rate.synthetic.256" "$ROOM/rate.fp16.256" 2> /dev/null | sort -g | tail -n 1)
goal "ResNet-50 bf16, img/s: good" "$(cat "$ROOM/rate.synthetic.256" 2> /dev/null || echo 0)" 3400
goal "ResNet-50, img/s: the aim" "${best:-0}" 7100
goal "host's share of a step, us" "$(awk -v h="${best_host:-0}" 'BEGIN {print 1000 * h}')" -50
goal "memory taken beyond the plan, percent" "$(awk -v p="${best_planned:-0}" -v m="${best_peak:-0}" 'BEGIN {d = p > 0 ? 100 * (m - p) / p : 100; print d < 0 ? -d : d}')" -1
