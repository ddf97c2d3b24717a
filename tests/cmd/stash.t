#!/usr/bin/env bash
# stash= and offload=: exact forms give the bytes of the run that keeps its activations as they are, in every
# mode; rounded ones a loss near it, the same on any grid; and what contradicts itself is refused.
# shellcheck source=tests/lib.sh
. "${BASH_SOURCE[0]%/*}/../lib.sh"
# shellcheck source=tests/forms.sh
. tests/forms.sh
forms='made again|as signs|in 4 bits| offloaded'
planned() { # OPTIONS...: bytes of the arena of activations
    kolo plan "${args[@]}" val=none "$@" 2> "$ROOM/log" | awk '$1 == "activations" && $2 > 0 { print $2 }'
}

# --- exact
plainly all
same stash=lossless
same offload=activations offload_path="$ROOM"
forms=. same offload=parameters offload_path="$ROOM" bucket_mb=0.02
same stash=lossless offload=all offload_path="$ROOM"
plainly pools model=lenet5 size=28
forms='[0-9] as signs' same stash=lossless model=lenet5 size=28
plainly scales multi_scale=16-48:16:1 steps=4 epochs=0 micro_batch=8
same stash=lossless multi_scale=16-48:16:1 steps=4 epochs=0 micro_batch=8
same offload=activations multi_scale=16-48:16:1 steps=4 epochs=0 micro_batch=8
plainly rounded stash=fp8
if ranks_start; then
    start=(mpiexec -n 2)
    forms='in fp8' same stash=fp8
    forms='in fp8' same stash=fp8 stages=2
    plain=$ROOM/all
    same stash=lossless
    same stash=lossless shard=parameters
    same stash=lossless stages=2
    same stash=lossless stages=2 pipeline=interleaved chunks=2
    same offload=activations
    same offload=activations stages=2
    start=()
else
    skip "no mpiexec"
fi

# --- rounded: the first loss is that of the plain run, the tenth is near it; and bytes
loss_of() { losses "$1" | awk -v step="$2" '$1 == step { print $2 }'; }
ten=(epochs=0 steps=10 val=none lr=0.02)
plainly plain10 "${ten[@]}"
whole=$(planned stash=none)
for form in fp16:0.02 bf16:0.05 fp8:0.1; do
    key=stash=${form%:*} most=${form#*:} one=$ROOM/${form%:*}
    run "${form%:*}" "$key" "${ten[@]}"
    is "$? $(loss_of "$one" 1)" "0 $(loss_of "$plain" 1)" "$key: the first loss"
    near=$(awk -v a="$(loss_of "$one" 10)" -v b="$(loss_of "$plain" 10)" -v most="$most" \
        'BEGIN { d = a / b - 1; print !(a > 0 && b > 0 && d * d > 0 && d * d < most * most) }')
    ok "$near" "$key: tenth loss $(loss_of "$one" 10), not $(loss_of "$plain" 10) but within $most"
    bytes=$(planned "$key")
    ok $((${bytes:-0} > 0 && bytes < whole * 3 / 4 ? 0 : 1)) "$key: $bytes bytes of $whole"
done

# --- plans
kolo plan "${args[@]}" val=none stash=lossless > "$ROOM/plan" 2>&1
is $? 0 "kolo plan stash=lossless" "$ROOM/plan"
like "$ROOM/plan" '^stash=lossless: of [0-9]+ activations .* activations [0-9]+ bytes of [0-9]+ \(0\.' \
    "says which forms, and the arena"
like "$ROOM/plan" '^checked' "and is checked"
says() { # OPTIONS...: of `kolo plan`, what stash= has to say
    kolo plan model=vgg11 size=32 batch=8 data=synthetic val=none deterministic=true threads=1 "$@" 2>&1 |
        grep -E '^(stash|error)' > "$ROOM/says"
}
says
like "$ROOM/says" '^stash=auto: signs and 4 bits spare [1-9][0-9.]+ % of the arena' \
    "a VGG, by default: signs are taken, with what they spare and take"
like "$ROOM/says" '^stash=auto: of [0-9]+ activations .* as signs.*; 0 operations run again' \
    "  and nothing is made again"
says stash=none
is "$(cat "$ROOM/says")" "" "stash=none: a VGG keeps its activations as they are"
says recompute=blocks
is "$(cat "$ROOM/says")" "" "recompute=blocks: likewise, but for what it drops"
says offload=activations
is "$(grep -c 'as signs' "$ROOM/says")" 0 "offload=activations: what goes, goes as it is"
says stages=2 ranks=2
is "$(grep -cE '^stash=auto, stage [01]: .* as signs' "$ROOM/says")" 2 "stages=2: each says what it encodes"
says model=lenet5 size=28
like "$ROOM/says" 'kept as they are: signs and 4 bits would spare .* [1-9][0-9.]+ % of a step' \
    "a LeNet: it would take more than a hundredth of a step"
says model=convnext_tiny
like "$ROOM/says" 'kept as they are: no gradient reads signs or places of maxima alone' \
    "a ConvNeXt: there is nothing to encode"
large=(size=32 batch=64 micro_batch=32 val=none)
some=$(kolo plan "${args[@]}" "${large[@]}" 2> /dev/null | awk '/^memory of a rank/ { print $5 - 6000000 }')
kolo plan "${args[@]}" "${large[@]}" offload=activations memory="$some" > "$ROOM/plan" 2>&1
is $? 0 "offload=activations memory=$some: a plan that fits" "$ROOM/plan"
like "$ROOM/plan" ' [1-9][0-9]* kept, [1-9][0-9]* offloaded' "of which only as much is offloaded as must"
like "$ROOM/plan" '^  offloaded +[1-9]' "and the arena is listed"

# --- bits that are the same: a run goes on in the other form
for forms in "lossless none" "none lossless" "none auto" "auto lossless"; do
    rm -rf "$ROOM/again"
    run again stash="${forms% *}" stop_step=2
    is $? 75 "stash=${forms% *} until step 2" "$ROOM/log"
    run again stash="${forms#* }"
    is $? 0 "  then stash=${forms#* }" "$ROOM/log"
    cmp "$(tensors_of "$ROOM/all")" "$(tensors_of "$ROOM/again")" > "$ROOM/cmp" 2>&1
    ok $? "  byte for byte" "$ROOM/cmp"
done

# --- refusals
refused 'stash=lossless and recompute=all both' stash=lossless recompute=all
refused 'stash=bf16 and precision=bf16' stash=bf16 precision=bf16
refused 'offload=activations and stash=fp8 both' stash=fp8 offload=activations
refused 'offload=all and recompute=auto both' recompute=auto offload=all
refused "offload=parameters and optimizer: what ranks share" offload=parameters shard=optimizer
(
    ulimit -t 60 # seconds of processor time: ten times what it takes
    kolo plan model=yolox_nano classes=10 data=synthetic size=96 batch=1 threads=1 deterministic=true \
        spatial=2x2 stash=lossless
) > "$ROOM/log" 2>&1
is $? 0 "a large plan, 1,506 activations in 2x2 parts: chosen within a minute" "$ROOM/log"
like "$ROOM/log" '^stash=lossless: .* operations run again' "  what runs again"

run refused offload=activations offload_path="$ROOM/nowhere"
is "$? $(grep -c "$ROOM/nowhere" "$ROOM/log")" "3 1" "offload_path= that is not there: exit 3" "$ROOM/log"
done_testing
