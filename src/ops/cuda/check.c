/* What a failed call means: the status that the program ends with, and what its user can do. */
#include <stdio.h>
#include <string.h>

#include "ops/cuda/cuda.h"

static char gpu[160] = "the GPU"; /* of this process; set when its backend opens */

void kolo_cuda_check_name(const char *text) { snprintf(gpu, sizeof gpu, "%s", text); }

static const char device_failed[] = "the GPU or its driver failed, and this process cannot use it any more; "
                                    "checkpoints written so far are whole. See `dmesg` (Xid) and "
                                    "`nvidia-smi -q` on that node; run again, elsewhere if it fails twice";
static const char no_code[] =
    "this library holds no code for this GPU: build it with CUDA_ARCH=... of `make help`";
static const char no_memory[] = "a smaller micro_batch= needs less memory; `kolo plan` shows what for; "
                                "others may be using this GPU (nvidia-smi)";
static const char taken[] = "another process has this GPU for itself: see `nvidia-smi -q -d COMPUTE,PIDS`";
static const char defect[] = "this is a defect of kolo, or of a library below it";

typedef struct meaning {
    cudaError_t code;
    int status;
    const char *text;
} meaning;

static const meaning meanings[] = {
    {cudaErrorMemoryAllocation, KOLO_ENOMEM, no_memory},
    {cudaErrorNoKernelImageForDevice, KOLO_ELAUNCH, no_code},
    {cudaErrorUnsupportedPtxVersion, KOLO_ELAUNCH, no_code},
    {cudaErrorInvalidPtx, KOLO_ELAUNCH, no_code},
    {cudaErrorJitCompilerNotFound, KOLO_ELAUNCH, no_code},
    {cudaErrorDevicesUnavailable, KOLO_ELAUNCH, taken},
    {cudaErrorDeviceAlreadyInUse, KOLO_ELAUNCH, taken},
    {cudaErrorInvalidValue, KOLO_EINTERNAL, defect},
    {cudaErrorInvalidConfiguration, KOLO_EINTERNAL, defect},
    {cudaErrorInvalidPitchValue, KOLO_EINTERNAL, defect},
    {cudaErrorInvalidMemcpyDirection, KOLO_EINTERNAL, defect},
    {cudaErrorInvalidDeviceFunction, KOLO_EINTERNAL, defect},
    {cudaErrorInvalidResourceHandle, KOLO_EINTERNAL, defect},
    {cudaErrorInvalidDevice, KOLO_EINTERNAL, defect},
    {cudaErrorLaunchOutOfResources, KOLO_EINTERNAL, defect},
    {cudaErrorIllegalState, KOLO_EINTERNAL, defect},
    {cudaErrorNotPermitted, KOLO_EINTERNAL, defect},
    {cudaErrorNotSupported, KOLO_EINTERNAL, defect},
    {cudaErrorStreamCaptureUnsupported, KOLO_EINTERNAL, defect},
    {cudaErrorStreamCaptureInvalidated, KOLO_EINTERNAL, defect},
    {cudaErrorStreamCaptureMerge, KOLO_EINTERNAL, defect},
    {cudaErrorStreamCaptureUnmatched, KOLO_EINTERNAL, defect},
    {cudaErrorStreamCaptureUnjoined, KOLO_EINTERNAL, defect},
    {cudaErrorStreamCaptureIsolation, KOLO_EINTERNAL, defect},
    {cudaErrorStreamCaptureImplicit, KOLO_EINTERNAL, defect},
    {cudaErrorCapturedEvent, KOLO_EINTERNAL, defect},
    {cudaErrorStreamCaptureWrongThread, KOLO_EINTERNAL, defect},
};

/* All others come from the device, or the driver, and stay. */
static const meaning *meaning_of(cudaError_t rc)
{
    static const meaning other = {cudaErrorUnknown, KOLO_ELAUNCH, device_failed};
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].code == rc) return &meanings[i];
    return &other;
}

int kolo_cuda_check(cudaError_t rc, const char *call, const char *file, int line)
{
    if (rc == cudaSuccess) return 0;
    cudaGetLastError(); /* what does not stay is not to be taken for a failure of the next call */
    const meaning *m = meaning_of(rc);
    return kolo_fail(m->status, "%s: %s failed: %s (%s), %s:%d; %s", gpu, call, cudaGetErrorString(rc),
                     cudaGetErrorName(rc), file, line, m->text);
}

int kolo_cuda_dnn_check(cudnnStatus_t rc, const char *call, const char *file, int line)
{
    char words[512] = "";
    if (rc == CUDNN_STATUS_SUCCESS) return 0;
    /* a GPU that failed says more than the library that stumbled over it */
    cudaError_t below = cudaGetLastError();
    if (below != cudaSuccess && meaning_of(below)->text == device_failed)
        return kolo_cuda_check(below, call, file, line);
    cudnnGetLastErrorString(words, sizeof words);
    int status = KOLO_EINTERNAL;
    const char *text = defect;
    switch ((int)rc) {
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED: status = KOLO_ENOMEM, text = no_memory; break;
    case CUDNN_STATUS_NOT_INITIALIZED:
    case CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
        status = KOLO_ELAUNCH, text = "the cuDNN that was found is not whole: see LD_LIBRARY_PATH, all its "
                                      "libraries must be of one version";
        break;
    default:
        if (CUDNN_STATUS_CATEGORY(rc) == CUDNN_STATUS_NOT_SUPPORTED)
            status = KOLO_ECONFIG, text = "this cuDNN cannot do it on this GPU; another version may";
        if (rc >= CUDNN_STATUS_EXECUTION_FAILED) status = KOLO_ELAUNCH, text = device_failed;
    }
    return kolo_fail(status, "%s: %s failed: %s%s%s, %s:%d; %s", gpu, call, cudnnGetErrorString(rc),
                     *words ? ": " : "", words, file, line, text);
}

int kolo_cuda_blas_check(cublasStatus_t rc, const char *call, const char *file, int line)
{
    if (rc == CUBLAS_STATUS_SUCCESS) return 0;
    cudaError_t below = cudaGetLastError();
    if (below != cudaSuccess && meaning_of(below)->text == device_failed)
        return kolo_cuda_check(below, call, file, line);
    bool memory = rc == CUBLAS_STATUS_ALLOC_FAILED;
    bool device = rc == CUBLAS_STATUS_EXECUTION_FAILED || rc == CUBLAS_STATUS_NOT_INITIALIZED ||
                  rc == CUBLAS_STATUS_ARCH_MISMATCH;
    return kolo_fail(memory   ? KOLO_ENOMEM
                     : device ? KOLO_ELAUNCH
                              : KOLO_EINTERNAL,
                     "%s: %s failed: %s, %s:%d; %s", gpu, call, cublasLtGetStatusString(rc), file, line,
                     memory   ? no_memory
                     : device ? device_failed
                              : defect);
}
