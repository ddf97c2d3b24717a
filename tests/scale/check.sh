#!/usr/bin/env bash
# Algorithms on simulated clusters of 512 and 1,024 ranks, 8 a node, by SimGrid (`make check-scale`): right
# sums and moves of real data, TAP, and simulated times of allreduce beside MPICH's algorithms, as comments.
# Ranks in blocks or dealt to the nodes in turn.
#   check.sh [RANKS...]    512 and 1024, or others that are 8 times a number of nodes known below
. "$(dirname "$0")/../lib.sh"
COMM=$BUILD/lib/room/comm.a BASE=$BUILD/lib/room/base.a
command -v smpicc > /dev/null || skip_all "no SimGrid (smpicc): libsimgrid-dev"
[ -e "$COMM" ] || skip_all "no $COMM: make programs"

smpicc -std=gnu11 -O2 -D_GNU_SOURCE -Iinclude -Isrc -Itests tests/scale/scale.c -o "$ROOM/scale" -fopenmp \
    -Wl,--start-group "$COMM" "$BASE" -Wl,--end-group -lm > "$ROOM/cc.log" 2>&1
ok $? "the library's schedules and the loop that runs them, under the simulator's MPI"
[ -e "$ROOM/scale" ] || { sed 's/^/# /' "$ROOM/cc.log" && done_testing; }

shape() { # TOPOLOGY NODES: its parameters; fat trees have full bisection
    case $1-$2 in
    FAT_TREE-8) echo '2;4,2;1,4;1,1' ;;
    FAT_TREE-64) echo '2;8,8;1,8;1,1' ;;
    FAT_TREE-128) echo '2;16,8;1,16;1,1' ;;
    DRAGONFLY-8) echo '2,1;2,1;2,1;1' ;;
    DRAGONFLY-64) echo '4,2;2,1;4,1;2' ;;
    DRAGONFLY-128) echo '4,2;2,2;4,1;4' ;;
    esac
}

platform() { # TOPOLOGY NODES: 200 Gb/s a node, which its ranks share; 0.5 us a link
    cat << END
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><cluster id="c" prefix="n" suffix="" radical="0-$(($2 - 1))" speed="10Gf" core="8"
 bw="25GBps" lat="500ns" loopback_bw="200GBps" loopback_lat="200ns" sharing_policy="SPLITDUPLEX"
 topology="$1" topo_parameters="$(shape "$1" "$2")"/></platform>
END
}

hosts() { # block|cyclic NODES
    local i k
    for ((i = 0; i < $2; i++)); do
        for ((k = 0; k < ($1 == 0 ? 8 : 1); k++)); do echo "n$i"; done
    done
}

# The simulator's factors are calibrated for Gigabit Ethernet, and its collectives naive, unless told
# otherwise; ranks share globals, of which there are none.
simulate() { # RANKS WORDS...
    local ranks=$1
    shift
    smpirun -np "$ranks" -platform "$ROOM/platform.xml" -hostfile "$ROOM/hosts" \
        --cfg=smpi/simulate-computation:no \
        --cfg=smpi/bw-factor:0:1.0 --cfg=smpi/lat-factor:0:1.0 --cfg=smpi/host-speed:10Gf \
        --cfg=network/crosstraffic:no \
        --cfg=smpi/privatization:no --cfg=contexts/stack-size:256 --cfg=smpi/async-small-thresh:65536 \
        --cfg=smpi/send-is-detached-thresh:65536 --cfg=smpi/shared-malloc-blocksize:67108864 \
        --cfg=smpi/coll-selector:mpich \
        --log=root.thresh:error "$ROOM/scale" "$@"
}

on() { # WHAT TOPOLOGY PLACEMENT RANKS SIZES...; what: check, chosen, time
    local what=$1 topology=$2 placement=$3 ranks=$4 nodes=$(($4 / 8))
    shift 4
    [ -n "$(shape "$topology" "$nodes")" ] || { ok 1 "$ranks ranks: no such cluster in this script" &&
        return; }
    platform "$topology" "$nodes" > "$ROOM/platform.xml"
    hosts "$([ "$placement" = block ]; echo $?)" "$nodes" > "$ROOM/hosts"
    if [ "$what" = chosen ]; then
        simulate "$ranks" chosen "$@" > "$ROOM/chosen.$placement" 2>&1
    elif [ "$what" = check ]; then
        simulate "$ranks" check > "$ROOM/log" 2>&1
        ok $? "$topology, $ranks ranks, $placement: $(grep -c '^ok' \
            "$ROOM/log") algorithms give what they should"
        grep -q '^not ok\|^1\.\.' "$ROOM/log" || tail -n 5 "$ROOM/log" | sed 's/^/# /'
        grep -A 3 '^not ok' "$ROOM/log" | sed 's/^/# /'
    else
        echo "# $topology, $ranks ranks on $nodes nodes, $placement"
        simulate "$ranks" time "$@" 2>&1
    fi
}

# However the ranks are dealt to the nodes, what is chosen takes the same time: within a seventh, as the
# parts of a reduce_scatter go to their owners through other switches.
same() { # TOPOLOGY RANKS
    paste -d ' ' "$ROOM/chosen.block" "$ROOM/chosen.cyclic" | awk '
        $2 == "chosen" && $8 == "chosen" && $3 == $9 && $4 == $10 { n++
            printf "#   %s of %s bytes: %s %s us in blocks, %s %s us in turn\n", $3, $4, $5, $6, $11, $12
            ratio = $12 / $6; if ($6 <= 0 || ratio > 1.15 || ratio < 1 / 1.15) bad = 1 }
        END { exit bad || n < 12 }' > "$ROOM/same"
    ok $? "$1, $2 ranks: in blocks or in turn, the algorithm that is chosen takes the same time"
    cat "$ROOM/same"
}

sizes=(4096 65536 1048576)
[ $# -gt 0 ] || set -- 512 1024
for ranks; do
    for topology in FAT_TREE DRAGONFLY; do
        for placement in block cyclic; do
            on check "$topology" "$placement" "$ranks"
            on chosen "$topology" "$placement" "$ranks" "${sizes[@]}"
        done
        same "$topology" "$ranks"
        for placement in block cyclic; do on time "$topology" "$placement" "$ranks" "${sizes[@]}"; done
    done
done
done_testing
