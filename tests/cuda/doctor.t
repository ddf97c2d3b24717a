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
