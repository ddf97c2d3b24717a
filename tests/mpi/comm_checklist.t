#!/bin/sh
# The checklist of the library half at 2, 3, 4 and 7 ranks, a start of mpiexec each; one TAP stream.
program=${BUILD:-${KOLO_BUILD:-build}}/tests/mpi/comm_checklist
if [ ! -x "$program" ]; then echo "1..0 # SKIP $program is not built (make tests, with MPI=1)"; exit 0; fi
if ! command -v mpiexec >/dev/null; then echo "1..0 # SKIP no mpiexec"; exit 0; fi
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
count=0
for ranks in ${RANKS:-2 3 4 7}; do
    planned=no
    timeout "${LIMIT:-120}" mpiexec -n "$ranks" "$program" ${ROUNDS:+"$ROUNDS"} >"$out" 2>&1
    status=$?
    while IFS= read -r line; do
        case $line in
        "ok "* | "not ok "*)
            count=$((count + 1))
            echo "${line%%ok *}ok $count - ${line#* - }"
            ;;
        "#"* | "  "*) echo "$line" ;;
        "1.."*) planned=yes ;;
        *) [ -n "$line" ] && echo "# $line" ;;
        esac
    done <"$out"
    count=$((count + 1))
    if [ "$planned" = yes ]; then echo "ok $count - $ranks ranks ran to the end"; else echo "not ok $count - $ranks ranks ran to the end (status $status)"; fi
done
echo "1..$count"
