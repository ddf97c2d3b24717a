#!/bin/sh
# Several simulated nodes on this machine: runs comm_nodes with 2, 3, 4 and 7 ranks and with a late peer; one TAP stream.
program=${BUILD:-build}/tests/mpi/comm_nodes
if [ ! -x "$program" ]; then echo "1..0 # SKIP $program is not built (make tests, with MPI=1)"; exit 0; fi
if ! command -v mpiexec >/dev/null; then echo "1..0 # SKIP no mpiexec"; exit 0; fi
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
count=0
run() { # ranks, arguments: renumbers the lines; a run that ends without a plan is a failure of its own
    ranks=$1
    shift
    timeout 60 mpiexec -n "$ranks" "$program" "$@" >"$out" 2>&1
    while IFS= read -r line; do
        case $line in
        "ok "* | "not ok "*)
            count=$((count + 1))
            echo "${line%%ok *}ok $count - ${line#* - }"
            ;;
        "#"* | "  "*) echo "$line" ;;
        "1..0 "*) ;;
        "1.."*) planned=yes ;;
        *) [ -n "$line" ] && echo "# $line" ;;
        esac
    done <"$out"
    count=$((count + 1))
    if [ "$planned" = yes ]; then echo "ok $count - $ranks ranks${*:+ $*} ran to the end"; else echo "not ok $count - $ranks ranks${*:+ $*} ran to the end"; fi
    planned=no
}
planned=no
for n in 2 3 4 7; do run "$n"; done
run 2 late
echo "1..$count"
