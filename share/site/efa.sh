# shellcheck shell=bash
# AWS Elastic Fabric Adapter. KOLO_SITE_ENV=efa. Needs the EFA installer's libfabric and the plugin that ties
# NCCL to it (aws-ofi-nccl). What is set already stays.

: "${NCCL_DEBUG:=WARN}"
: "${NCCL_SOCKET_IFNAME:=^lo,docker,veth}" # ranks find each other over these; the data goes over EFA
: "${FI_PROVIDER:=efa}"
export NCCL_DEBUG NCCL_SOCKET_IFNAME FI_PROVIDER

# the plugin, where the installers of AWS put it
for plugin in /opt/amazon/ofi-nccl/lib /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu /opt/amazon/ofi-nccl/lib64 \
    /opt/aws-ofi-nccl/lib; do
    if [ -e "$plugin/libnccl-net.so" ]; then
        case :${LD_LIBRARY_PATH:-}: in *":$plugin:"*) ;; *) export \
            LD_LIBRARY_PATH=$plugin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ;; esac
        break
    fi
done
unset plugin
