# what is recomputed, stored smaller or moved to the host: the bits of the plain run, and what it costs
# shellcheck shell=bash
need_data
fixed=(deterministic=true schedule=constant warmup=0 seed=5 device=cuda)
# of the log of a run: "N MiB" that it took at most, and its last images a second
cost() { # RUN
    local took
    took=$(sed -n 's/.*"peak_bytes": *\([0-9]*\).*/\1/p' "$ROOM/$1/summary.json" 2> /dev/null)
    echo "${took:+$((took >> 20)) MiB, }$(grep -o '[0-9.]* img/s' "$LOGS/$part.$1" | tail -n 1)"
}
plans() { # NAME TEXT ARGS
    local name=$1 text=$2 each
    shift 2
    train "$name.plain" 40 "$@" "${fixed[@]}" || return
    [ -n "$SHOW" ] || note "$text: $(cost "$name.plain")"
    for each in recompute=all recompute=blocks stash=lossless offload=activations; do
        train "$name.$each" 40 "$@" "${fixed[@]}" $each && [ -z "$SHOW" ] &&
            same_bits "$name.plain" "$name.$each" "$text, $each ($(cost "$name.$each"))"
    done
}
if [ -n "$DRY" ]; then
    plans small "ResNet-20" resnet20_cifar data="$DATA/small/train" batch=8 steps=3 precision=bf16
else
    plans small "ResNet-20, bf16" resnet20_cifar data="$DATA/small/train" batch=128 steps=10 precision=bf16
    plans photos "ResNet-50 at 128 pixels, bf16" resnet50_imagenet data="$DATA/photos/train" batch=64 \
        size=128 steps=8 precision=bf16
fi
