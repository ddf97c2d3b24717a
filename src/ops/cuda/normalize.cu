/* u8 images (N, H, W, C), C at most 4, -> normalised maps: a pixel becomes one vector of 16 bytes, whose
 * other channels are zero. */
#include "ops/cuda/vector.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256 /* a value of a pixel each */, UNROLL = 4, RESIDENT = 8 };

typedef struct normalize {
    int64_t pixels;
    int channels, first, step; /* channel c of y is the pixel's first + step c */
    float mean[4], std[4];     /* of y's channels */
    enum kolo_dtype dtype;
} normalize;

/* A block first makes a table of the normalised values, for two divisions a value would cost more
 * than the memory takes. */
template <typename T>
__global__ void __launch_bounds__(THREADS) normalize_kernel(T *y, const uint8_t *x, normalize p)
{
    const int N = kolo_vector<T>::N;
    __shared__ float table[4][THREADS];
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (c < p.channels) table[c][threadIdx.x] = kolo_pixel1((uint8_t)threadIdx.x, p.mean[c], p.std[c]);
    __syncthreads();
    const int64_t tile = THREADS * UNROLL;
    for (int64_t begin = blockIdx.x * tile + threadIdx.x; begin < p.pixels; begin += gridDim.x * tile) {
        uint8_t pixel[UNROLL][4];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int64_t i = begin + u * THREADS;
#pragma unroll
            for (int c = 0; c < 4; c++)
                pixel[u][c] = i < p.pixels && c < p.channels ? x[i * p.channels + p.first + p.step * c] : 0;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const int64_t i = begin + u * THREADS;
            float v[N] = {};
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (c < p.channels) v[c] = table[c][pixel[u][c]];
            if (i < p.pixels) kolo_store16(y + i * N, v);
        }
    }
}

static int cuda_normalize_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const normalize *p = (const normalize *)k->state;
    unsigned grid = kolo_cuda_grid(kolo_cuda_of(k->backend), p->pixels, THREADS * UNROLL, RESIDENT);
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(normalize_kernel<T>, grid, THREADS, 0, kolo_cuda_stream(k),
                                      (T *)args[1], (const uint8_t *)args[0], *p));
}

static int cuda_normalize_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    kolo_cuda_view y = kolo_cuda_view_out(r, 0);
    if (y.channels > 4 || y.stored != kolo_cuda_padded(y.channels, y.dtype))
        return kolo_fail(KOLO_EINTERNAL, "normalize: %ld channels stored as %ld", (long)y.channels,
                         (long)y.stored);
    normalize *p = (normalize *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->pixels = y.rows * y.pixels;
    p->channels = (int)y.channels;
    p->first = r->node->a.reverse ? p->channels - 1 : 0;
    p->step = r->node->a.reverse ? -1 : 1;
    for (int c = 0; c < p->channels; c++) {
        p->mean[c] = r->node->a.mean[p->first + p->step * c];
        p->std[c] = r->node->a.std[p->first + p->step * c];
    }
    p->dtype = y.dtype;
    k->state = p;
    k->release = free;
    k->run = cuda_normalize_run;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(y.dtype));
    return 0;
}

const kolo_op_row kolo_cuda_normalize = {NULL, cuda_normalize_prepare};
