# what this machine is, and what it says of itself
# shellcheck shell=bash
if [ -z "$DRY" ] && command -v nvidia-smi > /dev/null; then
    nvidia-smi --query-gpu=index,name,uuid,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu,ecc.mode.current,compute_mode \
        --format=csv,noheader > "$OUT/logs/nvidia-smi" 2>&1
    ok $? "nvidia-smi answers"
    sed 's/^/# /' "$OUT/logs/nvidia-smi"
    record gpu_state "text=$(head -n 1 "$OUT/logs/nvidia-smi")"
    used=$(nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader 2> /dev/null)
    [ -z "$used" ] || note "others compute here: ${used//$'\n'/; }"
else
    skip "no nvidia-smi"
fi
note "processor: $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(awk '/MemAvailable/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo) free; $(uname -sr)"
note "C library: $( (ldd --version || true) 2>&1 | head -n 1)"
if [ -z "$DRY" ]; then
    if limited 30 ceilings --versions > "$OUT/logs/versions" 2>&1; then
        pass "versions: $(tr -d '{}"' < "$OUT/logs/versions" | sed 's/what: versions, //')"
        cat "$OUT/logs/versions" >> "$OUT/results.jsonl"
    else
        skip "ceilings is not built: $(tail -n 1 "$OUT/logs/versions")"
    fi
fi
limited 60 kolo version > "$OUT/logs/version" 2>&1
ok $? "kolo version: $(paste -sd ' ' "$OUT/logs/version" | cut -c 1-200)"
ok "${doctor:-1}" "kolo doctor device=cuda"
sed 's/^/#   /' "$OUT/logs/doctor" | cut -c 1-220
