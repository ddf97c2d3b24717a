#!/usr/bin/env bash
# make bench-auto: what plan=auto chooses beside stages=1, for five networks on 2, 3 and 4 ranks of this node.
# It chooses once; then both are carried out in turns, PAIRS of them, and the least medians of their steps are
# compared: above 1, plan=auto is the faster one. RANKS, NETWORKS: others. FRONT: a command in front of every
# rank, such as `chrt -r 1` on a machine with other work.
set -u
BUILD=${KOLO_BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
PATH=$BUILD/bin:$PATH
command -v mpiexec > /dev/null || { echo "bench-auto: no mpiexec: ranks are started by an MPI" && exit 0; }
ROOM=$(mktemp -d) && trap 'rm -rf "$ROOM"' EXIT
export KOLO_CACHE=${CACHE:-$ROOM/cache}
mkdir -p "$KOLO_CACHE"
read -r -a FRONT <<< "${FRONT:-}"
mapfile -t NETWORKS <<< "${NETWORKS:-model=resnet20 batch=96
model=resnet18 size=64 batch=24
model=mobilenet_v2 size=64 batch=48
model=convnext_tiny size=64 batch=24
model=vgg11_bn size=32 batch=48}"

run() { # RANKS OPTIONS...
    local ranks=$1
    shift
    mpiexec -n "$ranks" "${FRONT[@]}" kolo bench train "$@" data=synthetic val=none lr=0.001 steps=12 \
        > "$ROOM/log" 2>&1 || { tail -n 5 "$ROOM/log" >&2 && return 1; }
}
steps() { # FILE RANKS OPTIONS...: appends the median, ms
    run "${@:2}" && sed -nE 's/.*median ([0-9.]+)\).*/\1/p' "$ROOM/log" >> "$1"
}
least() { sort -g "$1" | head -n 1; }

printf '%-5s %-36s %10s %10s %6s  %s\n' ranks network 'stages=1' plan=auto ratio 'what it chose'
for ranks in ${RANKS:-2 3 4}; do
    for network in "${NETWORKS[@]}"; do
        read -r -a words <<< "$network"
        run "$ranks" "${words[@]}" plan=auto || exit 1
        chosen=$(sed -nE 's/.*plan=auto: ([^;]*); .*/\1/p' "$ROOM/log" | head -n 1)
        read -r -a choice <<< "$chosen"
        if [ "$chosen" = "plain data parallel" ]; then
            printf '%-5s %-36s %10s %10s %6s  %s\n' "$ranks" "$network" - - 1 "$chosen: the same plan"
            continue
        fi
        : > "$ROOM/plain" && : > "$ROOM/auto"
        for _ in $(seq "${PAIRS:-3}"); do
            steps "$ROOM/plain" "$ranks" "${words[@]}" stages=1 || exit 1
            steps "$ROOM/auto" "$ranks" "${words[@]}" "${choice[@]}" || exit 1
        done
        plain=$(least "$ROOM/plain") auto=$(least "$ROOM/auto")
        printf '%-5s %-36s %10s %10s %6.3f  %s\n' "$ranks" "$network" "$plain" "$auto" \
            "$(awk "BEGIN { print $plain / $auto }")" "$chosen"
    done
done
