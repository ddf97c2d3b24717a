#!/usr/bin/env bash
# Random networks, hyper-parameters and placements: whatever ranks, stages, orders, shards, recomputation and
# forms of activations a run has, its weights, state and losses are those of one rank with nothing of these
# (and as many threads), byte for byte; or it is refused (78), before it starts, in one line that names an
# option of it.
# SEED=N COUNT=N: other ones, more of them. NETWORKS='resnet20:16': only these.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/pipeline.sh
. tests/pipeline.sh
RANDOM=${SEED:=$(($(date +%s) % 32768))}
COUNT=${COUNT:-12} # plain runs; three others are held against each
echo "# SEED=$SEED COUNT=$COUNT"
drawn=
draw() { local of=("$@") && drawn=${of[RANDOM % $#]}; } # one of these words
chance() { ((RANDOM % 100 < $1)); }                     # PERCENT

read -r -a networks <<< "${NETWORKS:-lenet5:28 resnet20:16 resnet20:21 resnet18:32 vgg11:32 \
    mobilenet_v2:32 mobilenet_v3_small:32 efficientnet_b0:32 convnext_tiny:32 swin_t:32 vit_s_16:32 mlp:28}"
plain() { # what the mathematics is: into `math`
    draw "${networks[@]}"
    math=(model="${drawn%:*}" size="${drawn#*:}")
    draw 4 6 8 && batch=$drawn
    draw 1 2 && micro=$drawn
    math+=(batch="$batch" micro_batch="$micro")
    draw sgd sgd adamw lars lamb novograd rmsprop adam && math+=(optimizer="$drawn")
    chance 30 && math+=(clip_norm=0.5)
    chance 20 && math+=(ema=0.9)
    chance 15 && math+=(lookahead=2)
    chance 20 && math+=(precision=bf16)
    chance 15 && math+=(tail=pad)
    chance 15 && math+=(nesterov=true)
    chance 15 && math+=(label_smoothing=0.1)
    chance 15 && draw mixup=0.3 cutmix=1 && math+=("$drawn")
    chance 15 && draw dropout=0.3 drop_path=0.2 && math+=("$drawn")
    chance 10 && math+=(swa=1)
    chance 10 && math+=(layer_decay=0.8)
    chance 10 && math+=(blur_pool=true)
    chance 10 && math+=(clip_value=0.01)
    chance 10 && math+=(class_weight=balanced)
    chance 30 && draw 1x2 2x1 2x2 && math+=(spatial="$drawn")
    [[ ${math[*]} == *spatial* ]] && chance 20 && math+=(halo=wide)
    chance 30 && draw 2 4 && math+=(tensor="$drawn")
}
placed() { # where it is computed, and how it is kept: into `ranks` and `place`
    place=()
    ranks=1
    chance 50 && draw 2 3 && ranks=$drawn && place+=(stages="$drawn")
    ((ranks > 1)) && chance 60 && draw gpipe 1f1b zero_bubble interleaved && place+=(pipeline="$drawn")
    [[ ${place[*]} == *interleaved* ]] && place+=(chunks=2)
    chance 60 && draw 2 2 3 4 && ((ranks * drawn <= 6)) && ranks=$((ranks * drawn))
    chance 40 && draw optimizer gradients parameters && place+=(shard="$drawn")
    [[ ${place[*]} == *shard* ]] && chance 20 && place+=(shard_group=2)
    [[ ${place[*]} == *shard=parameters* ]] && chance 30 && place+=(reshard=false)
    chance 25 && draw blocks all && place+=(recompute="$drawn")
    chance 25 && place+=(stash=lossless)
    chance 20 && draw optimizer parameters activations all && place+=(offload="$drawn" offload_path="$ROOM")
}
common=(shapes data="$ROOM/data/train" val="$ROOM/data/val" steps=3 warmup=0 reduce=canonical bn=ghost \
    conv=direct deterministic=true threads=1 lr=0.001)
trained() { # RANKS OPTIONS...: in $ROOM/placed
    timeout 300 mpiexec -n "$1" kolo train "${common[@]}" "${math[@]}" "${@:2}" run="$ROOM/placed" > \
        "$ROOM/log" 2>&1
}
refused() { # LOG OPTIONS...: in one line, which names one of the options
    local word
    [ "$(grep -c . "$1")" -le 3 ] || return
    for word in "${@:2}"; do grep -qE "\b${word%%=*}\b" "$1" && return; done
    return 1
}
compared=0
for ((i = 0; i < COUNT; i++)); do
    plain
    rm -rf "$ROOM/plain"
    timeout 300 kolo train "${common[@]}" "${math[@]}" run="$ROOM/plain" > "$ROOM/log" 2>&1
    status=$?
    if [ $status = 78 ]; then
        refused "$ROOM/log" "${math[@]}"
        ok $? "refused: ${math[*]}" "$ROOM/log"
        continue
    fi
    # deep networks with norms over two values have gradients of 1e8: then all placements say so
    ends=0
    [ $status = 2 ] && grep -q 'loss is not a number' "$ROOM/log" && ends=2
    is $status $ends "1 rank, ${math[*]}" || { diag < "$ROOM/log" && continue; }
    want="$(losses "$ROOM/plain") $(figures "$ROOM/plain")"
    for ((k = 0; k < 3; k++)); do
        rm -rf "$ROOM/placed"
        before=
        if chance 30; then # the first steps are made elsewhere
            placed
            draw 1 2
            trained "$ranks" "${place[@]}" stop_step="$drawn"
            [ $? != 75 ] || before="$drawn of 3 steps on $ranks ranks ${place[*]}, then "
        fi
        placed
        trained "$ranks" "${place[@]}"
        status=$?
        text="$before$ranks ranks, ${math[*]} ${place[*]}"
        if [ $status = 78 ]; then
            refused "$ROOM/log" "${math[@]}" "${place[@]}" ranks
            ok $? "refused: $text" "$ROOM/log"
            grep . "$ROOM/log" | head -n 1 | cut -c 1-200 | diag
            continue
        fi
        is $status $ends "$text" || { diag < "$ROOM/log" && continue; }
        [ $ends = 0 ] || continue
        cmp "$(tensors_of "$ROOM/plain")" "$(tensors_of "$ROOM/placed")" > "$ROOM/log" 2>&1
        ok $? "the bytes of one rank: $text" "$ROOM/log"
        is "$(losses "$ROOM/placed") $(figures "$ROOM/placed")" "$want" "its losses and figures: $text"
        compared=$((compared + 1))
    done
done
((compared * 3 >= COUNT))
ok $? "$compared runs were compared"
done_testing
