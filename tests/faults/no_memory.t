#!/usr/bin/env bash
# Allocations that fail, a few of them, others in every run; tests/long/no_memory.t lets every one fail.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/no_memory.sh
. tests/no_memory.sh
need kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
no_memory_prepare
RANDOM=${SEED:=$(($(date +%s) % 32768))}
echo "# SEED=$SEED"
sample() { # COMMAND COUNT: evenly spread, from a random start; every fourth with all that follow
    local count i list=()
    count=$(no_memory_count "$1")
    ok $? "$1: ${count:-0} allocations are counted" "$ROOM/log" || return
    for ((i = 0; i < $2; i++)); do
        list+=($(((count * i + RANDOM % count) / $2 + 1)))
        [ $((i % 4)) != 3 ] || list[i]+=+
    done
    no_memory "$1" "${list[@]}"
}
sample pack 10
sample train 10
sample eval 8
sample export 6
if [ -x "$NO_MEMORY_PROGRAM" ]; then
    sample comm 8
else
    skip "$NO_MEMORY_PROGRAM is not built"
fi
done_testing
