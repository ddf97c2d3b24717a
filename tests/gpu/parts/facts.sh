# what this machine is, and what it says of itself
# shellcheck shell=bash
if [ -z "$DRY$SHOW" ] && command -v nvidia-smi > /dev/null; then
    query=index,name,uuid,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.mem
    query+=,power.draw,power.limit,temperature.gpu,ecc.mode.current,compute_mode
    nvidia-smi "--query-gpu=$query" \
        --format=csv,noheader > "$LOGS/nvidia-smi" 2>&1
    ok $? "nvidia-smi answers"
    sed 's/^/# /' "$LOGS/nvidia-smi"
    record gpu_state "text=$(head -n 1 "$LOGS/nvidia-smi")"
    used=$(nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader 2> /dev/null)
    [ -z "$used" ] || note "others compute here: ${used//$'\n'/; }"
else
    skip "no nvidia-smi"
fi
note "processor: $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo |
    head -n 1), $(nproc) CPUs, $(awk '/MemAvailable/ {printf "%.0f GiB", $2 / 1048576}' \
    /proc/meminfo) free; $(uname -sr)"
note "C library: $( (ldd --version || true) 2>&1 | head -n 1)"
if [ -z "$DRY" ] && ! shown ceilings --versions; then
    if limited 30 ceilings --versions > "$LOGS/versions" 2>&1; then
        pass "versions: $(tr -d '{}"' < "$LOGS/versions" | sed 's/what: versions, //')"
        cat "$LOGS/versions" >> "$RESULTS/results.jsonl"
    else
        skip "ceilings is not built: $(tail -n 1 "$LOGS/versions")"
    fi
fi
limited 60 kolo version > "$LOGS/version" 2>&1
ok $? "kolo version: $(paste -sd ' ' "$LOGS/version" | cut -c 1-200)"
if ! shown kolo doctor device=cuda; then
    ok "${doctor:-1}" "kolo doctor device=cuda"
    sed 's/^/#   /' "$LOGS/doctor" | cut -c 1-220
fi
