#!/usr/bin/env bash
# What a GPU, its driver, its libraries and other ranks may do to a run, on the stand-in: the
# documented exit code, a message that names the call and its place, nothing left on the GPU, and
# checkpoints that stay whole.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
standin_gpu
export KOLO_CACHE=$ROOM/cache
common=(resnet20_cifar_small data=synthetic val=none size=8 classes=10 batch=8 steps=8 checkpoint_steps=2 \
    lr=0.001 threads=1 deterministic=true device=cuda)
train() { # RUN ...
    local run=$1
    shift
    STANDIN_REPORT="$ROOM/report" timeout -k 5 100 kolo train "${common[@]}" run="$ROOM/$run" "$@" > \
        "$ROOM/log" 2>&1
}
weights() { # RUN STEP
    local file=$ROOM/$1/checkpoints/step-000000000$2/tensors.safetensors
    if [ -e "$file" ]; then cksum < "$file"; else echo "no step $2 in $1"; fi
}
train whole
is $? 0 "a run without a fault"
train begun stop_step=4
is $? 75 "stop_step=4: exit 75"
four=$(weights begun 4)

# --- calls that fail: from the first one of a run, or of a run that goes on
fails() { # FROM CALL:N STATUS PATTERN
    local from=$1 call=$2 status=$3 pattern=$4 run=${2//:/-}
    [ "$from" = new ] || cp -r "$ROOM/$from" "$ROOM/$run"
    STANDIN_FAIL=$call train "$run"
    is $? "$status" "$call fails: exit $status"
    like "$ROOM/log" "error: kolo train: .*$pattern" "$call: the message names it"
    is "$(grep -E '^(leaks|defects) ' "$ROOM/report" |
        paste -sd ' ')" "defects 0 leaks 0" "$call: nothing is left on the GPU"
    [ "$from" = new ] || is "$(weights "$run" 4)" "$four" "$call: the checkpoint stays as it was"
}
fails new cudaMalloc:4 71 "MiB of memory were asked for.*are free"
fails new cudaHostRegister:1 71 "cudaHostRegister.*src/ops/cuda/order.c:[0-9]+"
fails new cudnnCreate:1 69 "cudnnCreate.*src/ops/cuda/backend.c:[0-9]+"
fails new cublasLtCreate:1 69 "cublasLtCreate.*src/ops/cuda/backend.c:[0-9]+"
fails new cudaStreamCreateWithPriority:2 69 "cudaStreamCreateWithPriority.*src/ops/cuda/backend.c:[0-9]+"
fails new cudnnBackendExecute:5 69 \
    "step 1, action [0-9]+ \(run conv(_stats)? .*\): .*cudnnBackendExecute.*src/ops/cuda/dnn.c:[0-9]+"
fails new cublasLtMatmul:2 69 \
    "step 1, action [0-9]+ \(run linear.*\): .*cublasLtMatmul.*src/ops/cuda/product.c:[0-9]+"
fails new launch:40:700 69 "illegal memory access.*src/ops/cuda/[a-z_]+.cu?:[0-9]+"
fails begun cudaMemcpyAsync:40 69 "cudaMemcpyAsync.*src/ops/cuda/order.c:[0-9]+"
fails begun cudaEventRecord:2 69 "cudaEventRecord.*src/ops/cuda/order.c:[0-9]+"
fails begun cudaStreamBeginCapture:1 69 "cudaStreamBeginCapture.*src/ops/cuda/order.c:[0-9]+"
fails begun cudaStreamEndCapture:1 69 "cudaStreamEndCapture.*src/ops/cuda/order.c:[0-9]+"
fails begun cudaGraphInstantiate:1 69 "cudaGraphInstantiate.*src/ops/cuda/order.c:[0-9]+"
fails begun cudaGraphLaunch:2 69 "cudaGraphLaunch.*src/ops/cuda/order.c:[0-9]+"
fails begun run:250 69 "illegal memory access.*checkpoints written so far are whole"
train run-500
is $? 0 "after that the run goes on"
is "$(weights run-500 8)" "$(weights whole 8)" "resumed after a fault: the weights of a run without one"

# --- GPUs that are not to be used
refused() { # VARIABLE=VALUE PATTERN TEXT
    (export "${1?}" && train none)
    is $? 69 "$3: exit 69"
    like "$ROOM/log" "$2" "$3: what to do"
}
refused STANDIN_DRIVER=12080 "driver knows CUDA up to 12.8.*update the driver" "a driver that is too old"
refused STANDIN_CAPABILITY=70 "compute capability 7.0; kolo needs 8.0" "a GPU that is too old"
refused CUDA_VISIBLE_DEVICES= "device=cpu" "no GPU to be seen"

# --- other ranks
ranks_start || { skip "no mpiexec" && done_testing; }
export STANDIN_DEVICES=2
# segments of the stand-in's NCCL whose maker, named in them, has ended: other tests' live, and what lay there
# before is not of these
orphans() {
    local segment maker
    for segment in /dev/shm/standin-nccl-*; do
        maker=${segment##*/standin-nccl-}
        [ ! -e "$segment" ] || [ -e "/proc/${maker%%-*}" ] || echo "$segment"
    done
}
before=$(orphans)
ranks() { # FAULT ...: status in $status
    local run=${1//:/-} fault=$1 begin=$SECONDS
    shift
    cp -r "$ROOM/begun" "$ROOM/$run"
    STANDIN_NCCL=$fault timeout -k 5 60 mpiexec -n 2 kolo train "${common[@]}" run="$ROOM/$run" reducer=nccl \
        "$@" > "$ROOM/log" 2>&1
    status=$?
    [ $status != 124 ]
    ok $? "$fault: ends of its own accord, after $((SECONDS - begin)) s"
    is "$(weights "$run" 4)" "$four" "$fault: the checkpoint stays as it was"
    is "$(orphans)" "$before" "$fault: nothing is left in /dev/shm"
}
ranks absent:1 comm_timeout=3
is $status 69 "a rank that never joins NCCL: exit 69"
like "$ROOM/log" "error: kolo train: .*ncclCommInitRankConfig did not end within 3 s" \
    "the message names the call"
ranks hang:1:3 comm_timeout=3
is $status 69 "a rank whose GPU stands still: exit 69"
like "$ROOM/log" "error: kolo train: .*(has|did) not (finished|end).* within .*3 s" \
    "the message names the deadline"
ranks error:1:3
is $status 69 "NCCL fails on a rank: exit 69"
like "$ROOM/log" "error: kolo train: .*ncclAllReduce: unhandled system error" "the message names the call"
ranks error:1:9
is $status 69 "NCCL fails in a step that is replayed: exit 69"
like "$ROOM/log" "error: kolo train: .*ncclAllReduce: unhandled system error" "the message names the call"
ranks die:1:3
[ $status != 0 ]
ok $? "a rank is killed: the job ends with an error"
done_testing
