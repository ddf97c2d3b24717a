#!/usr/bin/env bash
# Networks of all kinds as pipelines: 2, 3 and 4 stages, 1 to 8 micro-batches, every order, and 2 x 2 ranks,
# ten steps each to the bytes of one rank; and the memory of every rank beside the plan of its stage. An hour;
# NETS="resnet20 yolox" are some of them, STEPS=2 is a quick look.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/networks.sh
. tests/networks.sh
# Parts of YOLOX are cut by hand: its first convolution is so slow without a choice of algorithms by a clock
# that cuts by time would leave a stage two operations.
yolox_modules=(backbone.backbone.dark2 backbone.backbone.dark3 backbone.backbone.dark4
    backbone.backbone.dark5 backbone.C3_p4 backbone.bu_conv2 head.stems.0)
cut_of() { # NET PARTS
    local i cut=
    [ "$1" = yolox ] || return
    for ((i = 1; i < $2; i++)); do cut+=${cut:+,}${yolox_modules[7 * i / $2]}; done
    echo "cut=$cut"
}
same() { # RANKS STAGES ORDER OPTIONS...: with $net, $m, $one
    local run=$ROOM/staged chunks=1
    title="$net, $m micro-batches, $1 ranks, $2 stages, $3"
    [ "$3" = interleaved ] && chunks=2
    rm -rf "$run"
    # shellcheck disable=SC2046 # no word where there is nothing to cut by hand
    train "$1" "$run" "${@:4}" stages="$2" pipeline="$3" chunks=$chunks $(cut_of "$net" $(($2 * chunks))) ||
        return
    cmp "$(tensors_of "$one")" "$(tensors_of "$run")" > "$ROOM/log" 2>&1
    ok $? "$title: weights, running statistics, optimizer's state byte for byte" "$ROOM/log"
    is "$(losses "$run")" "$(losses "$one")" "$title: losses"
    if [ "$m" = 8 ] && [ "$3" = 1f1b ]; then memory "$run"; fi
}
network() { # NET
    local words order stages rows
    net=$1
    read -ra words <<< "$(words_of "$net")"
    rows=${words[0]}
    for m in 1 2 5 8; do
        one=$ROOM/one title="$net, $m micro-batches, one rank"
        local run=("${words[@]:1}" batch=$((m * rows)) micro_batch="$rows")
        rm -rf "$one"
        train 1 "$one" "${run[@]}" || continue
        is "$(losses "$one" | wc -l)" "$STEPS" "$title: that many losses"
        for order in gpipe 1f1b interleaved zero_bubble; do
            for stages in 2 3 4; do same $stages $stages $order "${run[@]}"; done
            # each replica has a power of two of them, as reduce=canonical asks
            ((m % 2)) || same 4 2 $order "${run[@]}"
        done
    done
}
for each in ${NETS:-resnet20 resnet50 swin yolox}; do network "$each"; done
done_testing
