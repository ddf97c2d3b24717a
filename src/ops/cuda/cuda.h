/* Inside ops/cuda: the backend's state and what its operations share. C and CUDA C both include it.
 *
 * Every sum is formed in an order that the shape alone decides (no atomics on values): the
 * same bits in every run. */
#ifndef KOLO_OPS_CUDA_CUDA_H
#define KOLO_OPS_CUDA_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "kolo/error.h"
#include "ops/nhwc.h"

enum kolo_trial_piece { KOLO_TRIAL_DATA, KOLO_TRIAL_SCRATCH, KOLO_TRIAL_PIECES };

typedef struct kolo_cuda {
    int device;
    int processors;   /* multiprocessors */
    int shared;       /* bytes of shared memory that a block may have */
    int major, minor; /* compute capability */
    cudaStream_t stream[KOLO_LANES];
    cudnnHandle_t dnn;
    /* where dnn is NULL: the GPU that plans are made for, which is not there (dnn.h) */
    cudnnBackendDescriptor_t dnn_profile;
    cublasLtHandle_t blas;
    char name[64];     /* "NVIDIA H200" */
    char place[128];   /* "GPU 0 (NVIDIA H200, 0000:1b:00.0)" */
    char machine[192]; /* GPU, capability, cuDNN, cuBLASLt, driver: what timed choices depend on */
    /* Memory of timing at plan time: freed when a choice is made, so that none is held beside the
     * arenas. Not used in a step. */
    struct {
        void *memory;
        size_t bytes;
    } trial[KOLO_TRIAL_PIECES];
    double compile_seconds; /* left for trials of engines that are compiled when their plan is made */
    double trial_seconds;   /* most that a choice may take; the candidate under way then is finished */
    /* order.c: what is being captured, and host memory that is page-locked */
    bool capturing;
    uint64_t captures; /* so far: the number of the one that goes on */
    struct kolo_cuda_pin *pin;
    int64_t pins, pin_capacity;
    struct kolo_cuda_tickets *tickets; /* ticket.c */
} kolo_cuda;

static inline kolo_cuda *kolo_cuda_of(const kolo_backend *backend) { return (kolo_cuda *)backend->state; }
static inline cudaStream_t kolo_cuda_stream(const kolo_kernel *kernel)
{
    return kolo_cuda_of(kernel->backend)->stream[KOLO_LANE_COMPUTE];
}

/* A failed call: its words, the library's name for the error, file and line. Device errors are KOLO_ELAUNCH
 * (exit 69), out of memory KOLO_ENOMEM. All evaluate to 0 or the negative status; `return` or KOLO_TRY
 * them. */
int kolo_cuda_check(cudaError_t rc, const char *call, const char *file, int line);
int kolo_cuda_dnn_check(cudnnStatus_t rc, const char *call, const char *file, int line);
int kolo_cuda_blas_check(cublasStatus_t rc, const char *call, const char *file, int line);
void kolo_cuda_check_name(const char *text); /* what these call the GPU of this process */
#define KOLO_CUDA(call) kolo_cuda_check((call), #call, __FILE__, __LINE__)
#define KOLO_DNN(call) kolo_cuda_dnn_check((call), #call, __FILE__, __LINE__)
#define KOLO_BLAS(call) kolo_cuda_blas_check((call), #call, __FILE__, __LINE__)

/* The rows, one for each operation of ops.def: a missing one does not link. */
#define OP(name, ...) extern const kolo_op_row kolo_cuda_##name;
#include "graph/ops.def"
#undef OP
/* prepare of detect_loss and detect_loss_grad for each detector */
#define DETECTOR(name, ...) \
    int kolo_cuda_##name##_loss(const kolo_kernel_request *request, kolo_kernel *kernel);
#include "ops/detectors.def"
#undef DETECTOR

/* How tensors lie: ops/nhwc.h. */
typedef kolo_nhwc_view kolo_cuda_view;
static inline int64_t kolo_cuda_padded(int64_t channels, enum kolo_dtype dtype)
{
    return kolo_nhwc_padded(channels, dtype);
}
static inline kolo_cuda_view kolo_cuda_view_of(const kolo_tensor *t, const kolo_layout *layout)
{
    return kolo_nhwc_view_of(t, layout);
}
static inline kolo_cuda_view kolo_cuda_view_in(const kolo_kernel_request *r, int i)
{
    return kolo_nhwc_view_of(kolo_request_in(r, i), &r->layout[r->node->in[i]]);
}
static inline kolo_cuda_view kolo_cuda_view_out(const kolo_kernel_request *r, int i)
{
    return kolo_nhwc_view_of(kolo_request_out(r, i), &r->layout[r->node->out[i]]);
}

/* order.c: streams, events, copies; ready.cu: a first kernel, run and read back when the backend opens */
extern const kolo_device_table kolo_cuda_device;
/* makes the calling thread's CUDA calls go to this backend's GPU */
void kolo_cuda_enter(kolo_backend *backend);
void kolo_cuda_order_close(kolo_cuda *cuda);
int kolo_cuda_ready(kolo_cuda *cuda);

/* ticket.c: `count` counters of ticket.cuh, all 0, for a kernel that is being prepared. The backend owns
 * them. NULL: the GPU is only described. Allocates: never called in a step. */
int kolo_cuda_tickets_take(kolo_backend *backend, int64_t count, uint32_t **tickets);
void kolo_cuda_tickets_close(kolo_cuda *cuda);

/* vector.cu */
int kolo_cuda_fold(kolo_backend *backend, float *sum, const float *part, int64_t count);
int kolo_cuda_divide(kolo_backend *backend, float *to, const float *from, float by, int64_t count);
int kolo_cuda_narrow(kolo_backend *backend, void *half, enum kolo_dtype dtype, const float *from,
                     int64_t count);
/* bias.cu: y (rows, stored) += bias (channels f32) in place; dbias[c] = sum over rows of dy, in a fixed
 * order; rows = N * pixels */
int kolo_cuda_bias_add(kolo_backend *backend, void *y, enum kolo_dtype dtype, const float *bias, int64_t rows,
                       int64_t stored, int64_t channels);
size_t kolo_cuda_bias_workspace(int64_t rows, int64_t stored);
int kolo_cuda_bias_grad(kolo_backend *backend, float *dbias, const void *dy, enum kolo_dtype dtype,
                        int64_t rows, int64_t stored, int64_t channels, void *workspace);

/* norm_stats.cu: what norm_stats (`kernel`) makes of x. formed: the sums over all rows of x and x^2, f32 (2,
 * stored channels), which are taken where all rows are valid; else x is read. workspace: norm_stats' */
int kolo_cuda_norm_take(const kolo_kernel *kernel, const float *formed, const void *x, double *sums,
                        void *workspace, const kolo_step *step, int slot);
/* norm_mask.cu, k: a kernel of norm_mask. What cuDNN reads of a norm: mean, inverse of the deviation, weight,
 * bias, f32 (4, stored channels); and what norm_grad_stats writes, from the gradients of weight and bias, f32
 * (2, stored channels), that it forms. */
int kolo_cuda_norm_values(const kolo_kernel *k, void *const sums_w_b[3], float *to);
int kolo_cuda_norm_formed(const kolo_kernel *k, const float *formed, void *const dsums_dw_db[3]);
/* norm_apply.cu: what norm_apply (`kernel`) does to x, as relu(scale x + bias): both (stored channels) of the
 * kernel's type, one behind the other. sums_w_b: as norm_apply reads them; statistic: NULL: not wanted */
int kolo_cuda_norm_affine(const kolo_kernel *kernel, void *const *sums_w_b, float *statistic, void *affine,
                          const kolo_step *step, int slot);
/* depthwise.cu: prepares a convolution of every channel with its own filter, or a gradient of it. 1: not one,
 * or not for these kernels. */
int kolo_cuda_depthwise(const kolo_kernel_request *request, kolo_kernel *kernel);

/* ---- trial.c: the clock that chooses between candidates when a plan is made ---- */

/* Candidates 0 .. count-1, the most promising first. */
typedef struct kolo_trial {
    int64_t count;
    /* makes it ready to run: 0; 1: it is not to be had (error text); negative: an error */
    int (*open)(void *argument, int64_t i);
    int (*run)(void *argument, int64_t i); /* enqueues it */
    void (*close)(void *argument, int64_t i);
    void *argument;
} kolo_trial;
/* *best: the fastest, which stays open; -1: none is to be had. clock false: the first that opens. Every
 * candidate has one quick run, in order, until half of trial_seconds is gone; the best of these are then
 * timed in turns. One that does not run is passed over; if none runs, the last error. */
int kolo_cuda_trial_choose(kolo_backend *backend, const kolo_trial *trial, bool clock, int64_t *best);
/* Memory for candidates, at least `bytes`, until kolo_cuda_trial_end. Data: normal random numbers of `dtype`
 * (constant bytes draw so little power that the GPU's clock rises and another candidate wins). Scratch: what
 * was in it may be lost when it grows; where it cannot, it stays for the other candidates. */
int kolo_cuda_trial_data(kolo_backend *backend, size_t bytes, enum kolo_dtype dtype, void **memory);
int kolo_cuda_trial_scratch(kolo_backend *backend, size_t bytes, void **memory);
void kolo_cuda_trial_end(kolo_backend *backend);
/* noise.cu: to[i] = a normal number that i alone decides; count: a multiple of 8; 16 byte aligned */
int kolo_cuda_noise(kolo_backend *backend, void *to, enum kolo_dtype dtype, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
