# shellcheck shell=bash
# InfiniBand and RoCE. KOLO_SITE_ENV=infiniband uses it as it is; a copy with your site's values serves
# better. What is set already stays.

: "${NCCL_DEBUG:=WARN}"
# ranks find each other over these; the data goes over InfiniBand
: "${NCCL_SOCKET_IFNAME:=^lo,docker,virbr,veth}"
export NCCL_DEBUG NCCL_SOCKET_IFNAME

# Site values, if your centre names them:
#   NCCL_IB_HCA           the adapters that carry data (mlx5_0,mlx5_1), where others of the node serve storage
#   NCCL_IB_GID_INDEX     RoCE: usually 3
#   NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT    large or busy fabrics

limit=$(ulimit -l)
if [ "$limit" != unlimited ]; then
    echo \
        "infiniband: max locked memory is $limit KiB here; adapters need it unlimited (LimitMEMLOCK=infinity for slurmd)" \
        >&2
fi
unset limit
