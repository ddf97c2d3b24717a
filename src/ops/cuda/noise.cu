/* Normal random numbers for candidates to be timed on. */
#include "base/philox.h"
#include "ops/cuda/vector.cuh"

enum { THREADS = 256 };

/* Two of mean 0 and deviation 1 from two words (Box and Muller). */
static __device__ void normal_pair(const uint32_t *word, float *to)
{
    const float radius = sqrtf(-2 * logf(1 - kolo_uniform(word[0]))),
                angle = 6.2831853f * kolo_uniform(word[1]);
    to[0] = radius * cosf(angle);
    to[1] = radius * sinf(angle);
}

/* A thread makes 8; count: a multiple of 8 */
template <typename T> __global__ void __launch_bounds__(THREADS) noise_kernel(T *to, int64_t count)
{
    const int N = kolo_vector<T>::N;
    const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float x[8];
    if (thread * 8 >= count) return;
    for (int i = 0; i < 8; i += 4) {
        const kolo_philox4 draws = kolo_philox(0, 0, (uint64_t)(thread * 2 + i / 4));
        normal_pair(&draws.v[0], x + i);
        normal_pair(&draws.v[2], x + i + 2);
    }
    for (int i = 0; i < 8; i += N) {
        float part[N];
        for (int k = 0; k < N; k++) part[k] = x[i + k];
        kolo_store16(to + thread * 8 + i, part);
    }
}

int kolo_cuda_noise(kolo_backend *backend, void *to, enum kolo_dtype dtype, int64_t count)
{
    const int64_t grid = (count / 8 + THREADS - 1) / THREADS;
    cudaStream_t stream = kolo_cuda_of(backend)->stream[KOLO_LANE_COMPUTE];
    KOLO_FOR_DTYPE(dtype, T, return KOLO_LAUNCH(noise_kernel<T>, grid, THREADS, 0, stream, (T *)to, count));
}
