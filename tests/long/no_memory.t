#!/usr/bin/env bash
# Every allocation of kolo-pack, kolo train, eval and export and of the comm library fails once, in a run of
# its own, and once together with all that follow.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/no_memory.sh
. tests/no_memory.sh
need kolo kolo-pack
for variable in $(compgen -e | grep -E '^(SLURM|PMI|PMIX)_'); do unset "$variable"; done
no_memory_prepare
commands=(pack train eval export)
built_without ONNX || commands+=(onnx)
[ ! -x "$NO_MEMORY_PROGRAM" ] || commands+=(comm)
[ ! -x "$NO_MEMORY_PROGRAM" ] || ! command -v mpiexec > /dev/null || commands+=(comm2)
for command in ${ONLY:-"${commands[@]}"}; do
    count=$(no_memory_count "$command")
    ok $? "$command: ${count:-0} allocations are counted" "$ROOM/log" || continue
    mapfile -t list < <(seq 1 "${STEP:-1}" "$count")
    no_memory "$command" "${list[@]}"
    mapfile -t list < <(seq 1 "${STEP:-1}" "$count" | sed 's/$/+/')
    no_memory "$command" "${list[@]}"
done
done_testing
