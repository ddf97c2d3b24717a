/* Softmax cross entropy with label smoothing in torch's form: loss = (1 - eps) nll + eps mean over classes of -log p. A block takes a
 * row of logits; sums over classes and rows are f64, in an order that the shape decides. */
#include "ops/cuda/vector.cuh"

extern "C" {
#include "base/memory.h"
}

enum { MOST_THREADS = 512, MOST_WARPS = MOST_THREADS / 32, FINISH_THREADS = 256 };

typedef struct entropy {
    int rows, classes;
    double smoothing;
    int threads; /* of a row's block */
    enum kolo_dtype dtype;
} entropy;
typedef struct row_result {
    double sum, total;  /* of exp(logit - largest), of the logits */
    float largest, own; /* logit; the label's */
    int32_t rank, bad;  /* classes before the label; label out of range */
} row_result;

/* The sum of all threads' values, for every thread. */
template <typename V> static __device__ V block_sum(V v)
{
    __shared__ V warp[MOST_WARPS];
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(KOLO_FULL_WARP, v, d);
    __syncthreads(); /* what was here before has been read */
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = v;
    __syncthreads();
    V sum = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) sum += warp[w];
    return sum;
}

/* The largest; a NaN does not count. */
template <typename V> static __device__ V block_max(V v)
{
    __shared__ V warp[MOST_WARPS];
    for (int d = 16; d; d /= 2) {
        const V other = __shfl_xor_sync(KOLO_FULL_WARP, v, d);
        v = other > v ? other : v;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) warp[threadIdx.x / 32] = v;
    __syncthreads();
    V most = warp[0];
    for (int w = 1; w < (int)blockDim.x / 32; w++) most = warp[w] > most ? warp[w] : most;
    return most;
}

template <typename T> static __device__ float row_largest(const T *x, int classes)
{
    float most = kolo_bits_float(0xFF800000u); /* -infinity */
    for (int i = (int)threadIdx.x; i < classes; i += (int)blockDim.x) {
        const float v = kolo_widen(x[i]);
        most = v > most ? v : most;
    }
    return block_max(most);
}

static __device__ int valid_rows(const entropy &p, const kolo_step *step, int slot)
{
    return step->valid[slot] < p.rows ? step->valid[slot] : p.rows;
}

/* Block n: row n. */
template <typename T>
__global__ void __launch_bounds__(MOST_THREADS)
    row_kernel(row_result *result, const T *logits, const int32_t *labels, entropy p, const kolo_step *step, int slot)
{
    const int n = (int)blockIdx.x;
    if (n >= valid_rows(p, step, slot)) return;
    const T *x = logits + (int64_t)n * p.classes;
    const int label = labels[n];
    const bool bad = label < 0 || label >= p.classes;
    const float own = bad ? 0 : kolo_widen(x[label]), largest = row_largest(x, p.classes);
    double sum = 0, total = 0;
    int rank = 0;
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) {
        const float v = kolo_widen(x[i]);
        sum += (double)expf(v - largest);
        total += (double)v;
        rank += v > own || (v == own && i < label);
    }
    sum = block_sum(sum);
    total = block_sum(total);
    rank = block_sum(rank);
    if (threadIdx.x) return;
    row_result r = {sum, total, largest, own, own != own ? p.classes : rank, bad};
    result[n] = r;
}

static __device__ double row_loss(const entropy &p, const row_result &r)
{
    const double log_sum = log(r.sum) + (double)r.largest, nll = log_sum - (double)r.own;
    return (1 - p.smoothing) * nll + p.smoothing * (log_sum - r.total / (double)p.classes);
}

/* One block: the metrics of all valid rows, and the first label out of range, unless an earlier slot had one. */
__global__ void __launch_bounds__(FINISH_THREADS)
    finish_kernel(float *metric, const row_result *result, const int32_t *labels, entropy p, const kolo_step *step,
                  int slot)
{
    const int rows = valid_rows(p, step, slot);
    double loss = 0;
    int top1 = 0, top5 = 0, bad = 0; /* bad: rows - number of the first such row */
    for (int n = (int)threadIdx.x; n < rows; n += FINISH_THREADS) {
        const row_result r = result[n];
        loss += r.bad ? 0 : row_loss(p, r);
        top1 += !r.bad && r.rank < 1;
        top5 += !r.bad && r.rank < 5;
        if (r.bad && rows - n > bad) bad = rows - n;
    }
    loss = block_sum(loss);
    top1 = block_sum(top1);
    top5 = block_sum(top5);
    bad = block_max(bad);
    if (threadIdx.x) return;
    metric[0] = (float)loss;
    metric[1] = (float)top1;
    metric[2] = (float)top5;
    metric[3] = (float)(rows > 0 ? rows : 0);
    kolo_step *report = (kolo_step *)step; /* const for operations, but these fields are the backend's to write */
    if (!bad || report->bad_slot) return;
    report->bad_slot = slot + 1;
    report->bad_row = rows - bad;
    report->bad_label = labels[rows - bad];
}

/* Block n: row n; zeros beyond the valid rows, and for a bad label, which ends the run. */
template <typename T>
__global__ void __launch_bounds__(MOST_THREADS)
    grad_kernel(T *gradient, const T *logits, const int32_t *labels, entropy p, const kolo_step *step, int slot)
{
    const int n = (int)blockIdx.x, label = labels[n];
    const T *x = logits + (int64_t)n * p.classes;
    T *dx = gradient + (int64_t)n * p.classes;
    if (n >= valid_rows(p, step, slot) || label < 0 || label >= p.classes) {
        for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) kolo_round(0.0f, dx + i);
        return;
    }
    const float largest = row_largest(x, p.classes), eps = (float)p.smoothing;
    double sum = 0;
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x) sum += (double)expf(kolo_widen(x[i]) - largest);
    const float scale = (float)(1 / block_sum(sum));
    const float inverse = step->valid_global > 0 ? (float)((double)step->scaler.scale / (double)step->valid_global) : 0;
    for (int i = (int)threadIdx.x; i < p.classes; i += (int)blockDim.x)
        kolo_round(kolo_cross_entropy_grad1(expf(kolo_widen(x[i]) - largest) * scale, i == label, eps, (float)p.classes,
                                            inverse),
                   dx + i);
}

/* in: logits, labels; out: metrics */
static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const entropy *p = (const entropy *)k->state;
    const int32_t *labels = (const int32_t *)args[1];
    row_result *result = (row_result *)workspace;
    cudaStream_t stream = kolo_cuda_stream(k);
    KOLO_FOR_DTYPE(p->dtype, T,
                   KOLO_TRY(KOLO_LAUNCH(row_kernel<T>, p->rows, p->threads, 0, stream, result, (const T *)args[0],
                                        labels, *p, step, slot)));
    return KOLO_LAUNCH(finish_kernel, 1, FINISH_THREADS, 0, stream, (float *)args[2], (const row_result *)result,
                       labels, *p, step, slot);
}

/* in: logits, labels; out: dlogits */
static int run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *step, int slot)
{
    const entropy *p = (const entropy *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(grad_kernel<T>, p->rows, p->threads, 0, kolo_cuda_stream(k), (T *)args[2],
                                      (const T *)args[0], (const int32_t *)args[1], *p, step, slot));
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_tensor *x = kolo_request_in(r, 0);
    if (x->dim[0] > INT32_MAX || x->dim[1] > INT32_MAX / 2)
        return kolo_fail(KOLO_ECONFIG, "%ld rows of %ld classes are too many; use a smaller micro_batch",
                         (long)x->dim[0], (long)x->dim[1]);
    entropy *p = (entropy *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ECONFIG;
    p->rows = (int)x->dim[0];
    p->classes = (int)x->dim[1];
    p->smoothing = r->node->a.smoothing;
    for (p->threads = 32; p->threads < MOST_THREADS && p->threads * 4 < p->classes;) p->threads *= 2;
    p->dtype = x->dtype;
    const bool backward = r->node->op == KOLO_OP_cross_entropy_grad;
    k->state = p;
    k->release = free;
    k->run = backward ? run_grad : run;
    k->workspace = backward ? 0 : (size_t)p->rows * sizeof(row_result);
    snprintf(k->name, sizeof k->name, "own %s, %d threads a row", kolo_dtype_name(p->dtype), p->threads);
    return 0;
}

const kolo_op_row kolo_cuda_cross_entropy = {NULL, prepare};
const kolo_op_row kolo_cuda_cross_entropy_grad = {NULL, prepare};
