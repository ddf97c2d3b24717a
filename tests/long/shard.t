#!/usr/bin/env bash
# Networks of all kinds with sharded optimizer, gradients and parameters: each optimizer, 2, 3 and 4 ranks,
# groups, stages, ten steps to the bytes of one rank; and the memory of every rank beside its plan.
# NETS="resnet20 yolox" are some of them, OPTIMIZERS="own lamb" some of those (own: the network's), STEPS=2 is
# a quick look.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/networks.sh
. tests/networks.sh

batch=() # of the network: 8 micro-batches, or for 3 ranks 12
same() { # RANKS SHARD OPTIONS...: with $net, $how, $one
    local run=$ROOM/sharded
    title="$net, ${how[*]}: $1 ranks, shard=$2 ${*:3}"
    rm -rf "$run"
    train "$1" "$run" "${words[@]:1}" "${batch[@]}" "${how[@]}" shard="$2" "${@:3}" || return
    cmp "$(tensors_of "$one")" "$(tensors_of "$run")" > "$ROOM/log" 2>&1
    ok $? "$title: weights, running statistics, optimizer's state byte for byte" "$ROOM/log"
    is "$(losses "$run")" "$(losses "$one")" "$title: losses"
    memory "$run"
}
alone() { # MICRO-BATCHES: one rank, which has everything
    one=$ROOM/one title="$net, ${how[*]}, one rank, $1 micro-batches"
    batch=(batch=$(($1 * words[0])) micro_batch="${words[0]}")
    rm -rf "$one"
    train 1 "$one" "${words[@]:1}" "${batch[@]}" "${how[@]}"
}
declare -A rates=([own]="" [sgd]="optimizer=sgd lr=0.01" [adamw]="optimizer=adamw lr=1e-3 nesterov=false"
    [lars]="optimizer=lars lr=0.1" [lamb]="optimizer=lamb lr=1e-3 nesterov=false")
network() { # NET
    local shard each
    net=$1
    read -ra words <<< "$(words_of "$net")"
    for each in ${OPTIMIZERS-own sgd adamw lars lamb}; do
        read -ra how <<< "${rates[$each]}"
        alone 8 || continue
        for shard in optimizer gradients parameters; do
            same 2 $shard
            same 4 $shard
            same 4 $shard stages=2
        done
        same 4 parameters shard_group=2
        same 2 parameters reshard=false
        alone 12 || continue
        for shard in optimizer gradients parameters; do same 3 $shard; done
    done
}
for each in ${NETS:-resnet20 resnet50 convnext swin yolox}; do network "$each"; done
done_testing
