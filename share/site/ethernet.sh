# shellcheck shell=bash
# Ethernet (TCP) alone, and first tries on a new system. KOLO_SITE_ENV=ethernet; KOLO_INTERFACE=eth0 names
# the interface, which must have one name on all nodes; else the one that leads out of the batch node is
# taken. What is set already stays.

: "${NCCL_DEBUG:=WARN}"
: "${NCCL_IB_DISABLE:=1}"
export NCCL_DEBUG NCCL_IB_DISABLE

interface=${KOLO_INTERFACE:-$(awk '$2 == "00000000" && $8 == "00000000" { print $1; exit }' /proc/net/route \
    2> /dev/null)}
if [ -n "$interface" ]; then
    : "${NCCL_SOCKET_IFNAME:==$interface}"
    export NCCL_SOCKET_IFNAME
else
    echo "ethernet: no default route here: set KOLO_INTERFACE, else NCCL chooses an interface by itself" >&2
fi
unset interface
