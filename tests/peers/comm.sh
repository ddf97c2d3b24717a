#!/usr/bin/env bash
# make bench-comm: the communication library beside MPICH, PyTorch's gloo and one memcpy, in one run
# on this machine. f32, sums, in place; prints microseconds of the slowest rank and ratios to the
# bars that are aimed at.
#
#   tests/peers/comm.sh [SECTION ...]   sizes, crowded, named, start, traced, overlap, allocations; default:
#                                       all. crowded: twice as many ranks as cores
#
#   ROUNDS=2        every figure is the best of so many, all sides in turn
#   TIME=0.3        seconds for each of them
#   RANKS=2         of all but crowded
#   FIGURE=median   or least: of the repeats within a round; default: median, or least where others keep this
#                   machine's cores busy
#   PYTHON=python   one that has torch. Without it torch is installed into build/peers (a virtual environment;
#                   some GB, once)
set -u
cd "$(dirname "$0")/../.." || exit 1
[ "${1:-}" = --help ] && sed -n 's/^# \{0,1\}//; 2,11p' "$0" && exit 0
BUILD=${KOLO_BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
ROUNDS=${ROUNDS:-2} TIME=${TIME:-0.3} RANKS=${RANKS:-2} CORES=$(nproc)
SECTIONS=" ${*:-sizes crowded named start traced overlap allocations} "
program=$BUILD/tests/mpi/comm_library_bench
command -v mpiexec > /dev/null || { echo "bench-comm: no mpiexec: the library is measured beside an MPI" &&
    exit 1; }
${MAKE:-make} BUILD="$BUILD" "$program" > /dev/null || exit 1
room=$(mktemp -d "${TMPDIR:-/tmp}/kolo-bench-XXXXXX") || exit 1
trap 'rm -rf "$room"' EXIT
wanted() { [[ $SECTIONS == *" $1 "* ]]; }
load() { cut -d ' ' -f 1 /proc/loadavg; }

gloo=1
# shellcheck source=tests/peers/python.sh
. tests/peers/python.sh
if (wanted sizes || wanted crowded) && ! peers_install torch; then gloo=0 &&
    echo "gloo is left out: $PYTHON has no torch"; fi
before=$(load)
busy=$(awk -v l="$before" -v c="$CORES" 'BEGIN {print (l > c / 2)}')
FIGURE=${FIGURE:-$([ "$busy" = 1 ] && echo least || echo median)}

ours() { # RANKS SECTION
    timeout 500 mpiexec -n "$1" "$program" "$2" seconds="$TIME" folder="$room/trace" ||
        { echo "bench-comm: $2 with $1 ranks failed" >&2 && exit 1; }
}
of_gloo() { # RANKS: the rows that ours printed, by processes of Python
    local rank pids=()
    [ $gloo = 1 ] || return
    rm -f "$room/meet"
    for ((rank = 0; rank < $1; rank++)); do
        # shellcheck disable=SC2046 # words
        timeout 300 "$PYTHON" tests/peers/comm.py "$room/meet" $rank "$1" "$TIME" $(awk \
            '$2 == "mpi" {print $3}' "$room/round") 2> "$room/gloo.$rank" &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do
        wait "${pids[rank]}" || { echo "gloo: $(tail -n 1 "$room/gloo.$rank")" >&2 && gloo=0; }
    done
}
# The best of all rounds, for rows and peers alike: FILE RANKS SECTION
gather() {
    local round
    : > "$1"
    for ((round = 0; round < ROUNDS; round++)); do
        ours "$2" "$3" > "$room/round" || exit 1
        cat "$room/round" >> "$1"
        if [ "$3" = sizes ]; then of_gloo "$2" >> "$1"; fi
    done
}
table() { # FILE AIMED: sizes as rows
    awk -v f="$FIGURE" -v aims="$2" '
        function over(a, b) { return b > 0 && a > 0 ? sprintf("%.2f", a / b) : "-" }
        function less(a, b) { return b < a ? b : a }
        function aim(n, ours, ordinary, mpi, gloo, copy,   text) {
            if (aims == "equal") return (ours > ordinary ? ours : ordinary) <= mpi ? "met" : "missed: MPI"
            if (n == 8 && ours > mpi) text = text " MPI"
            if (n >= 65536 && n <= 4194304 && mpi / ours < 3) text = text " MPI(3)"
            if (n == 67108864 && mpi / ours < 5) text = text " MPI(5)"
            if (n == 67108864 && ours > copy) text = text " memcpy"
            if (gloo && gloo / ordinary < 3) text = text " gloo(3)"
            return text == "" ? "met" : "missed:" text
        }
        { v = f == "least" ? $5 : $4; key = $3 SUBSEP $2; if (!(key in t) || v < t[key]) t[key] = v;
            if (!seen[$3]++) order[++n] = $3 }
        END {
            printf "%9s | %10s %10s %10s | %10s %10s %10s | %7s %7s %7s | %8s | %s\n", "bytes", "bucket",
                "shared", "ordinary", "MPI", "gloo", "memcpy",
                "MPI/bkt", "MPI/shd", "MPI/ord", "gloo/ord", "aim"
            for (i = 1; i <= n; i++) {
                b = order[i]; k = t[b, "bucket"]; s = t[b, "shared"]; o = t[b, "ordinary"]
                m = t[b, "mpi"]; g = t[b, "gloo"] + 0; c = t[b, "memcpy"]
                printf "%9d | %10.2f %10.2f %10.2f | %10.2f %10s %10.2f | %7s %7s %7s | %8s | %s\n", b, k, s,
                    o, m, g ? sprintf("%.2f", g) : "-", c,
                    over(m, k), over(m, s), over(m, o), over(g, o), aim(b, less(k, s), o, m, g, c)
            }
        }' "$1"
}
# VALUE-EXPRESSION of v["kind"], best of rounds: FILE UNITS BAR TEXT EXPRESSION
figure() {
    awk -v f="$FIGURE" -v text="$4" -v unit="$2" -v bar="$3" '
        { v = f == "least" ? $5 : $4; if (!($2 in t) || (greater ? v > t[$2] : v < t[$2])) t[$2] = v }
        END { printf "%-66s %10.2f %-3s  %s\n", text, '"$5"', unit, bar }' greater="${6:-0}" "$1"
}

printf \
    '%s cores, load %s when this began; %s of the repeats, the best of %s rounds, us of the slowest rank\n' \
    "$CORES" "$before" "$FIGURE" "$ROUNDS"
if wanted sizes; then
    printf \
        '\n%s ranks. Aims, of the better of bucket and shared: as fast as MPI at 8 B, 3 x from 64 KiB to 4 MiB, 5 x at 64 MiB and there no slower than memcpy;\nof ordinary memory: 3 x gloo\n' \
        "$RANKS"
    gather "$room/sizes" "$RANKS" sizes
    table "$room/sizes" ratios
fi
if wanted crowded; then
    printf '\n%s ranks on %s cores (aim: none slower than MPI)\n' $((2 * CORES)) "$CORES"
    gather "$room/crowded" $((2 * CORES)) sizes
    table "$room/crowded" equal
fi
if wanted named || wanted start || wanted traced || wanted overlap || wanted allocations; then
    printf '\n%s ranks\n' "$RANKS"
fi
if wanted named; then
    gather "$room/named" "$RANKS" named
    figure "$room/named" us "<= 20" "a cached name of 1 KiB alone, from submit to the end of wait" \
        't["alone"]'
    figure "$room/named" us "" "  MPI_Allreduce of 1 KiB" 't["mpi"]'
    figure "$room/named" us "<= 20" "of 1,000 names of 1 KiB in one cycle: a name" 't["loose"] / 1000'
    figure "$room/named" us "" "  the same, submitted as a group" 't["grouped"] / 1000'
    # the bar of 20 stands on the line where nothing is joined, neither agreements nor sums: what a program
    # without fusion pays a name. Where a thousand names are agreed on at once and only their sums are apart
    # (the last line), sums of 1 KiB cost too little for any such factor
    figure "$room/named" x ">= 20" "  fused, as a group : in turn, an agreement and a sum for each" \
        't["in-turn"] / t["grouped"]'
    figure "$room/named" x "" "  as they come : the same" 't["in-turn"] / t["loose"]'
    figure "$room/named" x "no bar" "  fused, as a group : agreed on at once, a sum for each" \
        't["unfused"] / t["grouped"]'
fi
if wanted start; then
    gather "$room/start" "$RANKS" start
    figure "$room/start" us "" "a model's 160 tensors (24 MB) from rank 0, as a group" 't["grouped"]'
    figure "$room/start" us "" "  one name after the other" 't["in-turn"]'
    figure "$room/start" us "" "  160 MPI_Bcast" 't["mpi"]'
fi
if wanted traced; then
    gather "$room/traced" "$RANKS" traced
    figure "$room/traced" us "" "with a timeline: a cached name of 1 KiB, one after the other" 't["alone"]'
    figure "$room/traced" x "<= 1.5" "  with : without" 't["alone-times"]'
    figure "$room/traced" us "" "with a timeline: a step of 160 names behind 16 ms of work" 't["step"]'
    figure "$room/traced" x "<= 1.05" "  with : without" 't["step-times"]'
fi
if wanted overlap; then
    gather "$room/overlap" "$RANKS" overlap
    figure "$room/overlap" % ">= 90" "bucket of 16 MiB behind a device's work: hidden" \
        't["bucket-sleeping"]' 1
    figure "$room/overlap" % ">= 90" "request of 16 MiB behind a device's work: hidden" \
        't["request-sleeping"]' 1
    note=">= 90"
    [ "$CORES" -ge $((2 * RANKS)) ] || note="(no core is free)"
    figure "$room/overlap" % "$note" "bucket of 16 MiB behind this core's work: hidden" \
        't["bucket-computing"]' 1
    figure "$room/overlap" % "$note" "request of 16 MiB behind this core's work: hidden" \
        't["request-computing"]' 1
fi
if wanted allocations; then
    ours "$RANKS" allocations > "$room/allocations" || exit 1
    [ -s "$room/allocations" ] || echo "allocations are not counted in this build"
    while read -r _ kind bytes made _; do
        printf '%-66s %10.2f %-3s  %s\n' "allocations a call: $kind, $bytes bytes" "$made" "" "0"
    done < "$room/allocations"
fi
printf '\nload %s at the end\n' "$(load)"
