# shellcheck shell=bash
# HPE Slingshot (Cray EX, Alps, Frontier, Perlmutter and the like), as HPE and the centres state it.
# KOLO_SITE_ENV=slingshot. Load the site's module with the plugin that ties NCCL to libfabric first
# (aws-ofi-nccl). What is set already stays.

: "${NCCL_DEBUG:=WARN}"
: "${NCCL_SOCKET_IFNAME:=hsn}" # all of hsn0, hsn1, ...; where starting hangs: =hsn0
: "${NCCL_CROSS_NIC:=1}"
: "${NCCL_NET_GDR_LEVEL:=PHB}"
: "${NCCL_PROTO:=^LL128}" # it relies on an order of writes that this network does not keep
export NCCL_DEBUG NCCL_SOCKET_IFNAME NCCL_CROSS_NIC NCCL_NET_GDR_LEVEL NCCL_PROTO

# Without the plugin a job of several nodes must fail rather than crawl over TCP. A job on one node has no
# network of its own (VNI), and would fail with it.
if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
    : "${NCCL_NET:=AWS Libfabric}"
    export NCCL_NET
fi

: "${FI_CXI_DISABLE_HOST_REGISTER:=1}"
: "${FI_MR_CACHE_MONITOR:=userfaultfd}" # the usual memhooks can deadlock; kdreg2 where the kernel has it
: "${FI_CXI_DEFAULT_CQ_SIZE:=131072}"
: "${FI_CXI_DEFAULT_TX_SIZE:=2048}"
: "${FI_CXI_RX_MATCH_MODE:=hybrid}"
: "${FI_CXI_RDZV_EAGER_SIZE:=0}"
: "${FI_CXI_RDZV_GET_MIN:=0}"
: "${FI_CXI_RDZV_THRESHOLD:=0}"
export FI_CXI_DISABLE_HOST_REGISTER FI_MR_CACHE_MONITOR FI_CXI_DEFAULT_CQ_SIZE FI_CXI_DEFAULT_TX_SIZE \
    FI_CXI_RX_MATCH_MODE \
    FI_CXI_RDZV_EAGER_SIZE FI_CXI_RDZV_GET_MIN FI_CXI_RDZV_THRESHOLD

# Large jobs: sbatch --network=disable_rdzv_get goes together with this.
case ${SLURM_NETWORK:-} in *disable_rdzv_get*)
    : "${FI_CXI_RDZV_PROTO:=alt_read}"
    export FI_CXI_RDZV_PROTO
    ;;
esac
