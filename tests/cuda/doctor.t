#!/usr/bin/env bash
# kolo doctor on GPUs: what it tells of them, which one each rank takes, and what it finds wrong.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
standin_gpu
unset CUDA_VISIBLE_DEVICES "${!SLURM_@}"
doctor() { "$@" kolo doctor device=cuda > "$ROOM/out" 2>&1; }
uuid='GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'

doctor env
is $? 0 "one GPU: exit 0"
like "$ROOM/out" '^ok +cuda +CUDA [0-9.]+, cuDNN [0-9.]+, cuBLASLt [0-9.]+; driver for CUDA' \
    "the versions of driver, CUDA and cuDNN are printed"
like "$ROOM/out" '^ok +reducer .*nccl [0-9]' "NCCL's version is printed"
like "$ROOM/out" "^ok +gpu +0: Stand-in GPU, 16.0 GiB, capability 9.0, 0000:10:00.0, $uuid" "what it is"
like "$ROOM/out" "^ok +gpu +this rank's is GPU 0 .*15.0 of 16.0 GiB may be used" \
    "the GPU is opened: its memory is printed"
doctor env STANDIN_DRIVER=0
is $? 69 "no driver"
like "$ROOM/out" "^FAIL +gpu +node $(hostname): no NVIDIA driver" "no driver: the failure names the node"
doctor env STANDIN_DRIVER=11080
is $? 69 "a driver too old"
like "$ROOM/out" '^FAIL +gpu .*up to 11.8.*update the driver' \
    "a driver too old: the failure asks for an update"
doctor env STANDIN_CAPABILITY=75
is $? 69 "a GPU too old"
like "$ROOM/out" '^FAIL +gpu .*compute capability 7.5' "a GPU too old: the failure has its compute capability"
doctor env STANDIN_DEVICES=4 CUDA_VISIBLE_DEVICES=2
is $? 0 "CUDA_VISIBLE_DEVICES=2 of four GPUs: exit 0"
like "$ROOM/out" "^ok +gpu +this rank's is GPU 0 .*0000:12:00.0" \
    "CUDA_VISIBLE_DEVICES=2 of four GPUs: it is GPU 0, on the third's bus"

# --- what holds clocks down, by a stand-in for NVML
nvml() { doctor env LD_LIBRARY_PATH="$BUILD/tests/driver:${LD_LIBRARY_PATH:-}" "$@"; }
nvml
like "$ROOM/out" '^ok +power +GPU 0: 67 degrees Celsius, 350 W of at most 700 W$' \
    "temperature and power are printed"
nvml NVML_REASONS=0x40
like "$ROOM/out" '^warn thermal .*slowed by its heat: see the node.s cooling' \
    "thermal slowdown: warned, with a cure"
nvml NVML_REASONS=0x80
like "$ROOM/out" '^warn power .*slowed by its supply: ' "power brake: warned"
nvml NVML_LIMIT=400
like "$ROOM/out" '^warn power +GPU 0 is limited to 400 W, its default is 700 W' \
    "a lowered power limit is named"
doctor env
like "$ROOM/out" '^ok +thermal +limits of GPUs are not readable: no libnvidia-ml' \
    "without NVML that is printed"

env KOLO_DEVICE=auto SLURM_JOB_GPUS=0 STANDIN_DEVICES=0 kolo doctor > "$ROOM/out" 2>&1
is $? 69 "device=auto in a job that was given GPUs which are not there"
like "$ROOM/out" '^FAIL +gpu .*sees no GPU' "a job with GPUs that sees none: FAIL gpu"
env STANDIN_DEVICES=2 kolo doctor > "$ROOM/out" 2>&1
is $? 0 "device=auto in a job that was given none"
like "$ROOM/out" '^ok +gpu .*given none.*device=cuda would use those above' "shows them and takes none"

if ranks_start; then
    doctor env STANDIN_DEVICES=2 mpiexec -n 2
    is $? 0 "two ranks, two GPUs"
    like "$ROOM/out" '^ok +gpu .*2 ranks use 2 GPUs' "each has its own"
    like "$ROOM/out" '^ok +p2p +.*all 2 GPUs read each other.s memory directly' "peer access is printed"
    like "$ROOM/out" '^ok +nccl +.*nccl [0-9.]+ connects this rank by P2P/CUMEM; network: Socket' \
        "what NCCL chose is read from its log"
    none "and its log is removed" \
        "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'kolo-nccl-*' -newer "$ROOM" 2> /dev/null)"
    doctor env STANDIN_DEVICES=2 STANDIN_PEERS=0 STANDIN_NCCL_VIA=SHM/direct/direct mpiexec -n 2
    like "$ROOM/out" '^warn p2p +.*GPUs 0-1, 1-0 cannot read each other.s memory' \
        "no peer access: pairs are named"
    like "$ROOM/out" '^warn nccl +\[rank 1 .*exchange through host memory' \
        "NCCL over host memory: every rank warns"
    mpiexec -n 2 env STANDIN_DEVICES=2 kolo doctor device=cuda --all-pairs > "$ROOM/out" 2>&1
    is $? 0 "--all-pairs on GPUs"
    like "$ROOM/out" '^ok +pairs +.*2 ranks of node .* GB/s between two' \
        "--all-pairs on GPUs: the bandwidth is printed"
    doctor mpiexec -n 2
    is $? 78 "two ranks, one GPU"
    like "$ROOM/out" "^FAIL +gpu +\[rank 1 .*\] $uuid is rank 0's too.*share_gpu=true" \
        "two ranks on one GPU: the failure names share_gpu=true"
    mpiexec -n 2 kolo doctor device=cuda share_gpu=true > "$ROOM/out" 2>&1
    is $? 0 "share_gpu=true allows it"
    like "$ROOM/out" '^ok +gpu .*2 ranks use 1 GPUs' "share_gpu=true: the number of ranks and GPUs is printed"
else
    skip "no mpiexec"
fi
done_testing
