# shellcheck shell=bash
# What the parts of tests/gpu/run that measure share: rates of training, the ceilings of this GPU, goals, the
# table for share/gpus.

ratio() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {printf "%.3f", (b > 0) ? a / b : 0}'; }
at_least() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {exit !(a + 0 >= b + 0)}'; } # A B

# goal TEXT VALUE WANTED: at least WANTED; at most, where it is negative. A goal that is missed is
# told, it is no failure.
goal() {
    [ -z "$DRY$SHOW" ] || return 0
    local word=missed
    if [[ $3 == -* ]]; then at_least "${3#-}" "$2" && word=reached; else at_least "$2" "$3" &&
        word=reached; fi
    printf '  %-46s %10s   goal %s %-6s %s\n' "$1" "$2" "$([[ $3 == -* ]] && echo '<=' ||
        echo '>=')" "${3#-}" $word | tee -a "$ROOM/goals" | sed 's/^/# /'
    record goal "name=$1" "value=$2" "wanted=${3#-}" "state=$word"
}

# What this GPU can do at most, once a run.
measure_ceilings() {
    [ -z "$DRY" ] && [ ! -s "$LOGS/ceilings" ] || return 0
    shown ceilings && return
    if limited 60 ceilings > "$LOGS/ceilings" 2>&1; then
        grep -h '"ceiling"\|"gpu"' "$LOGS/ceilings" | tee -a "$RESULTS/results.jsonl" |
            sed 's/[{}"]//g; s/^what: /# /'
        pass "ceilings measured"
    else
        fail "ceilings: $(tail -n 1 "$LOGS/ceilings")"
    fi
}
# NAME
ceiling() { sed -n "s/.*\"name\": \"$1\", \"[a-z_]*\": \([0-9.e+]*\)}.*/\1/p" "$LOGS/ceilings" 2> /dev/null |
    head -n 1; }

# bench NAME ARGS...: one run of kolo bench train; figures to $rate $ms $host $peak $planned; the first rate
# of a shape is kept in $ROOM/rate.NAME. The first run of a shape tries candidates and takes long.
bench() {
    local name=$1 start=$SECONDS log=$LOGS/bench.$1
    shift
    rate=0 ms=0 host=0 peak=0 planned=0
    shown kolo bench train device=cuda "$@" && return
    enough "$name" || return 1
    limited 170 kolo bench train device=cuda "$@" > "$log" 2>&1 ||
        { fail "$name: status $?, $(tail -n 1 "$log" | cut -c 1-200)" && return 1; }
    field() { sed -n "s|^train .*$1.*|\1|p" "$log" | tail -n 1; } # PATTERN
    rate=$(field ': \([0-9.]*\) img/s') ms=$(field ' \([0-9.]*\) ms/step')
    host=$(field 'host \([0-9.]*\)') peak=$(field 'peak \([0-9.]*\) MiB') planned=$(field \
        'planned \([0-9.]*\) MiB')
    [ -n "$rate" ] || { fail "$name: no figure in $(basename "$log")" && return 1; }
    echo "$rate" > "$ROOM/rate.$name"
    record bench "name=$name" "img_s=$rate" "ms=$ms" "host_us=$(awk -v h="$host" 'BEGIN {print 1000 * h}')" \
        "peak_mib=$peak" "planned_mib=$planned" \
        "seconds=$((SECONDS - start))" "args=$*"
    pass \
        "$name: $rate img/s, $ms ms a step, host $host ms, memory $peak MiB of $planned planned (run: $((SECONDS - start)) s)"
}
# What is measured where: a rehearsal is small, and tries no candidates, which takes long on the stand-in.
if_dry() { if [ -n "$DRY" ]; then echo "$1"; else echo "$2"; fi; }
bench_big() { # NAME BATCH ARGS: ResNet-50 at 224 pixels
    local name=$1 batch=$2
    shift 2
    if [ -n "$DRY" ]; then bench "$name" model=resnet20 size=8 steps=2 batch=2 deterministic=true "$@"
    else bench "$name" model=resnet50 size=224 steps=40 batch="$batch" "$@"; fi
}
bench_small() { # NAME ARGS: ResNet-20 at 32 pixels
    local name=$1
    shift
    if [ -n "$DRY" ]; then bench "$name" model=resnet20 size=8 steps=2 batch=2 deterministic=true "$@"
    else bench "$name" model=resnet20 size=32 steps=200 batch=1024 "$@"; fi
}
# The rate of a bench by its name; one that no part has measured in this run is measured now.
rate_of() { # NAME COMMAND...
    [ -s "$ROOM/rate.$1" ] || { shift && "$@"; }
    rate=$(cat "$ROOM/rate.$1" 2> /dev/null || echo 0)
}
best_rate() { # PREFIX: of all benches whose names begin so
    cat "$ROOM/rate.$1"* 2> /dev/null | sort -g | tail -n 1 | grep . || echo 0
}

# The lines of a profile as results.
record_profile() { # LOG
    awk -v run="${1##*/bench.}" 'function rate(x) {return x ~ /^[0-9.]+$/ ? x : "null"}
        $1 == "action" || $1 == "kernel" {kind = $1; next}
        kind != "" && $2 ~ /^[0-9.]+$/ {
            printf "{\"what\": \"%s\", \"run\": \"%s\", \"name\": \"%s\", ", kind, run, $1
            printf "\"ms\": %s, \"calls\": %s, \"gb_s\": %s, \"tflop_s\": %s", $2, $3, rate($4), rate($5)
            if (kind == "kernel") {shape = $0;
                sub(/^([^ ]+ +)([^ ]+ +)([^ ]+ +)([^ ]+ +)([^ ]+ +)/, "", shape);
                    gsub(/["\\]/, "", shape); printf ", \"shape\": \"%s\"", shape}
            print "}"}' "$1" >> "$RESULTS/results.jsonl"
}

# class_shares LOG BANDWIDTH RATE VECTOR [TABLE]: "key share" of the kernels of a profile, as share/gpus has
# them: of a class of operations (src/graph/classes.def) what was reached of the bandwidth (GB/s) by the
# kernels that it bounds, of the rate (TFLOP/s; VECTOR: of f32, for what has no products) by the others, in
# the time beside the launch_CLASS of that table of a GPU.
class_shares() {
    local table=${5:-}
    awk -v bandwidth="$2" -v matrix="$3" -v vector="$4" '
        function class(op, how) {
            if (op ~ /^(norm_)?conv/) {
                if (how ~ /depthwise/) return "depthwise"
                if (op ~ /^norm_conv|conv_grad_norm$/) return "conv_norm"
                return op ~ /_data$/ ? "conv_data" : op ~ /_weight$/ ? "conv_weight" : "conv"
            }
            if (op ~ /^(linear|cosine)/) return "linear"
            if (op ~ /attention/) return "attention"
            if (op == "norm_stats") return op
            if (op ~ /norm.*_grad|^norm_(grad|mask)/) return "norm_grad"
            if (op ~ /norm_(apply|infer|max_pool)|^layer_norm$/) return "norm_apply"
            if (op ~ /_pool/) return "pool"
            if (op == "update" || op == "normalize") return op == "update" ? op : "input"
            return ""
        }
        /^launch_[a-z_]+:/ {launch[substr($1, 8, length($1) - 8)] = $2 / 1e3; next}
        $1 == "kernel" {kernels = 1; next}
        kernels && $2 ~ /^[0-9.]+$/ && $4 ~ /^[0-9.]+$/ {
            c = class($1, $0)
            if (c == "") next
            rate = c ~ /^(conv|linear|attention)/ ? matrix : vector
            of_bytes = bandwidth > 0 ? $4 / bandwidth : 0
            of_flops = $5 ~ /^[0-9.]+$/ && rate > 0 ? $5 / rate : 0
            key = (of_flops > of_bytes ? "flops_" : "bytes_") c
            ms[key] += $2 > 2 * $3 * launch[c] ? $2 - $3 * launch[c] : $2 / 2
            ideal[key] += $2 * (of_flops > of_bytes ? of_flops : of_bytes)
        }
        END {for (key in ms) printf "%s %.3f\n", key, ideal[key] / ms[key]}' ${table:+"$table"} "$1" | sort
}

# gpu_table PROFILE: what was measured here, in the form of share/gpus: RESULTS/gpus/NAME.yaml.
# $KOLO_CACHE/gpus/NAME.yaml overwrites what is assumed.
gpu_table() {
    local gpu name='' each shipped=''
    gpu=$(sed -n 's/.*"what": "gpu", "name": "\([^"]*\)".*/\1/p' "$LOGS/ceilings" 2> /dev/null | head -n 1)
    [ -n "$gpu" ] || return 0
    for each in $(tr 'A-Z -' 'a-z\n\n' <<< "$gpu"); do [ ! -r "$SHARE/gpus/$each.yaml" ] || name=$each; done
    name=${name:-$(tr 'A-Z ' 'a-z_' <<< "$gpu" | tr -dc a-z0-9_)}
    [ ! -r "$SHARE/gpus/$name.yaml" ] || shipped=$SHARE/gpus/$name.yaml
    mkdir -p "$RESULTS/gpus"
    {
        echo "# Measured by tests/gpu/run on one $gpu, $(date -u +%Y-%m-%d), $(cut -d , -f 4 \
            "$LOGS/nvidia-smi" 2> /dev/null | head -n 1 | sed 's/^ */driver /')."
        echo \
            "# Rates are what was reached: a copy, products of 8192 x 8192 matrices, one launch in a graph. Shares of classes: of these rates,"
        echo "# by the kernels of a step of ResNet-50 (bf16, batch 256, 224 pixels)."
        echo "memory: $(sed -n 's/.*"memory_mib": \([0-9]*\).*/\1/p' "$LOGS/ceilings" |
            awk '{printf "%.4g", $1 * 1048576}')"
        echo "bandwidth: $(ceiling copy)"
        for each in f32 tf32 bf16 fp16; do echo "$each: $(ceiling "$each product")"; done
        echo "launch: $(ceiling 'launch in a graph')"
        echo "bytes: 1"
        echo "flops: 1"
        [ ! -s "$1" ] || class_shares "$1" "$(ceiling copy)" "$(ceiling 'bf16 product')" "$(ceiling \
            'f32 product')" "$shipped" | sed 's/ /: /'
    } > "$RESULTS/gpus/$name.yaml"
    grep -vE ': *[0-9.e+]+$|^#' "$RESULTS/gpus/$name.yaml" | sed 's/^/#   nothing was measured of /'
    sed -i -E '/^[a-z0-9_]+: *$/d' "$RESULTS/gpus/$name.yaml"
    pass "gpus/$name.yaml: $(grep -v '^#' "$RESULTS/gpus/$name.yaml" | paste -sd ',' | sed 's/,/, /g')"
}
