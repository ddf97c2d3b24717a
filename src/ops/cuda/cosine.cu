/* Cosines between rows of x (N, F) and of w (K, F), and their gradients: products by cuBLASLt of rows that
 * are divided by their lengths, in the type of x. With u = x / |x|: dx = (du - u (u . du)) / |x|. */
#include "ops/cuda/rows.cuh"

extern "C" {
#include "base/memory.h"
#include "ops/cuda/product.h"
}

typedef struct cosine {
    int rows, out, width, threads;
    enum kolo_dtype dtype;
    kolo_product product[2]; /* forward, or of data and weight */
    /* places in the workspace: normalize_rows of x and w, one over their lengths, gradient of the
     * normalize_rows, scratch of products */
    size_t unit[2], inverse[2], du, scratch;
} cosine;

/* Block n: row n. */
template <typename T, typename F>
__global__ void __launch_bounds__(KOLO_ROW_THREADS) unit_kernel(T *u, float *inverse, const F *x, int width)
{
    const int64_t at = (int64_t)blockIdx.x * width;
    double square = 0;
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x) {
        const double v = (double)kolo_widen(x[at + i]);
        square += v * v;
    }
    const float length = (float)sqrt(kolo_row_sum(square)), by = 1 / (length > 1e-12f ? length : 1e-12f);
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x)
        kolo_round(kolo_widen(x[at + i]) * by, u + at + i);
    if (threadIdx.x == 0) inverse[blockIdx.x] = by;
}

template <typename D, typename T>
__global__ void __launch_bounds__(KOLO_ROW_THREADS)
    across_kernel(D *dx, const D *du, const T *u, const float *inverse, int width)
{
    const int64_t at = (int64_t)blockIdx.x * width;
    double dot = 0;
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x)
        dot += (double)kolo_widen(du[at + i]) * (double)kolo_widen(u[at + i]);
    const float along = (float)kolo_row_sum(dot), by = inverse[blockIdx.x];
    for (int i = (int)threadIdx.x; i < width; i += (int)blockDim.x)
        kolo_round((kolo_widen(du[at + i]) - kolo_widen(u[at + i]) * along) * by, dx + at + i);
}

typedef struct places {
    char *unit[2], *du;
    float *inverse[2];
    void *scratch;
} places;

static places places_of(const cosine *c, void *workspace)
{
    char *base = (char *)workspace;
    places p = {{base + c->unit[0], base + c->unit[1]},
                base + c->du,
                {(float *)(base + c->inverse[0]), (float *)(base + c->inverse[1])},
                base + c->scratch};
    return p;
}

template <typename T>
static int normalize_rows(const kolo_kernel *k, const cosine *c, const places *p, const void *x,
                          const void *w)
{
    KOLO_TRY(KOLO_LAUNCH((unit_kernel<T, T>), c->rows, c->threads, 0, kolo_cuda_stream(k), (T *)p->unit[0],
                         p->inverse[0], (const T *)x, c->width));
    return KOLO_LAUNCH((unit_kernel<T, float>), c->out, c->threads, 0, kolo_cuda_stream(k), (T *)p->unit[1],
                       p->inverse[1], (const float *)w, c->width);
}

/* in: x, w; out: y */
static int cuda_cosine_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *, int)
{
    const cosine *c = (const cosine *)k->state;
    const places p = places_of(c, workspace);
    void *const part[KOLO_PRODUCT_PARTS] = {p.unit[0], p.unit[1], args[2], NULL};
    KOLO_FOR_DTYPE(c->dtype, T, KOLO_TRY(normalize_rows<T>(k, c, &p, args[0], args[1])));
    return kolo_product_run(&c->product[0], k->backend, part, p.scratch);
}

template <typename T>
static int gradients(const kolo_kernel *k, const cosine *c, const places *p, void *const *args)
{
    KOLO_TRY(normalize_rows<T>(k, c, p, args[2], args[3]));
    if (args[4]) {
        void *const part[KOLO_PRODUCT_PARTS] = {p->du, p->unit[1], args[0], NULL};
        KOLO_TRY(kolo_product_run(&c->product[0], k->backend, part, p->scratch));
        KOLO_TRY(KOLO_LAUNCH((across_kernel<T, T>), c->rows, c->threads, 0, kolo_cuda_stream(k), (T *)args[4],
                             (const T *)p->du, (const T *)p->unit[0], (const float *)p->inverse[0],
                             c->width));
    }
    if (!args[5]) return 0;
    void *const part[KOLO_PRODUCT_PARTS] = {p->unit[0], p->du, args[0], NULL};
    KOLO_TRY(kolo_product_run(&c->product[1], k->backend, part, p->scratch));
    return KOLO_LAUNCH((across_kernel<float, T>), c->out, c->threads, 0, kolo_cuda_stream(k),
                       (float *)args[5], (const float *)p->du, (const T *)p->unit[1],
                       (const float *)p->inverse[1], c->width);
}

/* in: dy, y, x, w; out: dx, dw */
static int cuda_cosine_run_grad(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *,
                                int)
{
    const cosine *c = (const cosine *)k->state;
    const places p = places_of(c, workspace);
    KOLO_FOR_DTYPE(c->dtype, T, return gradients<T>(k, c, &p, args));
}

static void cuda_cosine_release(void *state)
{
    cosine *c = (cosine *)state;
    for (int i = 0; c && i < 2; i++) kolo_product_close(&c->product[i]);
    free(c);
}

static int open_products(const kolo_kernel_request *r, cosine *c, bool backward)
{
    for (int i = 0; i < (backward ? 2 : 1); i++) {
        kolo_product *p = &c->product[i];
        p->pass = !backward ? KOLO_PRODUCT_FORWARD : i ? KOLO_PRODUCT_WEIGHT : KOLO_PRODUCT_DATA;
        p->rows = c->rows;
        p->in = c->width;
        p->out = c->out;
        p->dtype = c->dtype;
        KOLO_TRY(kolo_product_open(p, r->backend));
    }
    return 0;
}

static int cuda_cosine_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_cosine_grad;
    const kolo_tensor *x = kolo_request_in(r, backward ? 2 : 0), *w = kolo_request_in(r, backward ? 3 : 1);
    if (x->dim[0] > INT32_MAX || w->dim[0] > INT32_MAX || x->dim[1] > INT32_MAX / 2)
        return kolo_fail(KOLO_ECONFIG, "cosines of %ld by %ld rows are too many", (long)x->dim[0],
                         (long)w->dim[0]);
    cosine *c = (cosine *)kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    k->state = c;
    k->release = cuda_cosine_release;
    k->run = backward ? cuda_cosine_run_grad : cuda_cosine_run;
    c->rows = (int)x->dim[0], c->out = (int)w->dim[0], c->width = (int)x->dim[1];
    c->threads = kolo_row_threads(c->width);
    c->dtype = x->dtype;
    KOLO_TRY(open_products(r, c, backward));
    const size_t most = (size_t)(c->rows > c->out ? c->rows : c->out), width = (size_t)c->width,
                 size[] = {(size_t)c->rows * width * kolo_dtype_size(c->dtype),
                           (size_t)c->out * width * kolo_dtype_size(c->dtype),
                           (size_t)c->rows * sizeof(float), (size_t)c->out * sizeof(float),
                           backward ? most * width * sizeof(float) : 0};
    size_t *const place[] = {&c->unit[0], &c->unit[1], &c->inverse[0], &c->inverse[1], &c->du};
    for (int i = 0; i < 5; i++) {
        *place[i] = c->scratch;
        c->scratch += kolo_round_up(size[i], 256);
    }
    const size_t a = c->product[0].workspace, b = c->product[1].workspace;
    k->workspace = c->scratch + (a > b ? a : b);
    kolo_product_name(&c->product[0], k->name, sizeof k->name);
    return 0;
}

const kolo_op_row kolo_cuda_cosine = {NULL, cuda_cosine_prepare};
const kolo_op_row kolo_cuda_cosine_grad = {NULL, cuda_cosine_prepare};
