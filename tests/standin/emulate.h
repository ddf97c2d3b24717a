/* CUDA's device language, as far as our kernels use it, for an ordinary C++ compiler: the same .cu files run
 * on the host. The threads of a block are fibers that change places at barriers and shuffles (kernel.c);
 * blocks follow one another; both in an order that chance decides.
 *
 * What is checked while a kernel runs: every thread reaches the same barriers, all lanes of a warp the same
 * shuffles, and, when compiled with -fsanitize=alignment,bounds (kernel.c takes the reports; no library is
 * needed), that every access is aligned for its type and stays in its array. What was not written is NaN:
 * shared memory before a block begins, device memory when it is allocated. */
#ifndef TESTS_STANDIN_EMULATE_H
#define TESTS_STANDIN_EMULATE_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef __cplusplus
#error "emulate.h is for .cu files compiled as C++"
#endif

#undef __shared__
#if defined(__SANITIZE_ADDRESS__)
#define __shared__ static /* with red zones; not blank at a block's begin */
#else
/* the device thread's own, all in one place: blank at a block's begin */
#define __shared__ static thread_local
#endif
#undef __launch_bounds__
#define __launch_bounds__(...)

/* ---- kernel.c ---- */
extern "C" {
typedef struct kolo_emulate_thread {
    uint3 thread, block;
    dim3 threads, blocks;
} kolo_emulate_thread;
extern kolo_emulate_thread *kolo_emulate_now; /* the thread whose fiber runs */

typedef struct kolo_emulate_config {
    const char *name, *file;
    int line;
    int64_t grid, block;
    size_t shared;
    cudaStream_t stream;
    const void *kernel;
} kolo_emulate_config;
/* 0, or sets CUDA's last error. body: called once for every thread, then released. */
void kolo_emulate_launch(const kolo_emulate_config *config, void *body, void (*call)(void *),
                         void (*release)(void *));
void kolo_emulate_barrier(int line);
/* of all 32 lanes; valid until the next one */
const uint64_t *kolo_emulate_exchange(uint64_t mine, unsigned mask, int line);
void *kolo_emulate_shared(void);
int kolo_cuda_check(cudaError_t rc, const char *call, const char *file, int line);
}

#define threadIdx (kolo_emulate_now->thread)
#define blockIdx (kolo_emulate_now->block)
#define blockDim (kolo_emulate_now->threads)
#define gridDim (kolo_emulate_now->blocks)

/* ---- launch ---- */

/* Takes a call's arguments as the kernel's parameters, by value, when the launch is made. */
template <typename... P> struct kolo_emulated {
    void (*kernel)(P...);
    kolo_emulate_config config;
    void operator()(P... argument) const
    {
        static_assert((sizeof(P) + ... + 0) <= 4096, "a kernel's parameters are 4 KiB at most");
        auto call = [kernel = kernel, argument...] { kernel(argument...); };
        typedef decltype(call) body;
        kolo_emulate_launch(
            &config, new body(call), [](void *b) { (*(const body *)b)(); },
            [](void *b) { delete (body *)b; });
    }
};
template <typename... P>
static inline kolo_emulated<P...> kolo_emulate(void (*kernel)(P...), kolo_emulate_config config)
{
    config.kernel = (const void *)kernel;
    return kolo_emulated<P...>{kernel, config};
}

#define KOLO_LAUNCH(kernel, grid, block, shared, stream, ...)                                              \
    (kolo_emulate((kernel), kolo_emulate_config{#kernel, __FILE__, __LINE__, (int64_t)(grid),              \
                                                (int64_t)(block), (shared), (stream), NULL})(__VA_ARGS__), \
     kolo_cuda_check(cudaGetLastError(), "launch of " #kernel, __FILE__, __LINE__))
#define KOLO_SHARED(type, name) type *name = (type *)kolo_emulate_shared()

/* As cuda_runtime.h has them for C++. */
template <typename T>
static inline cudaError_t cudaFuncSetAttribute(T *kernel, enum cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}
/* ---- threads together ---- */

static inline void __syncthreads(int line = __builtin_LINE()) { kolo_emulate_barrier(line); }
static inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
    kolo_emulate_exchange(0, mask, line);
}
static inline void __threadfence(void) { __asm__ volatile("" ::: "memory"); }
static inline int kolo_emulate_lane(void) { return (int)(threadIdx.x & 31u); }

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int line = __builtin_LINE())
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    const uint64_t *all = kolo_emulate_exchange(word, mask, line);
    memcpy(&value, &all[kolo_emulate_lane() ^ lanes], sizeof value);
    return value;
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
    const uint64_t *all = kolo_emulate_exchange(predicate != 0, mask, line);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) bits |= (unsigned)all[i] << i;
    return bits;
}

/* Whole numbers only: sums of values in the order of arrival are not allowed here. One fiber runs at a
 * time. */
static inline int32_t atomicAdd(int32_t *at, int32_t value) { return (*at += value) - value; }
static inline uint32_t atomicInc(uint32_t *at, uint32_t most)
{
    uint32_t was = *at;
    *at = was >= most ? 0 : was + 1;
    return was;
}
static inline int32_t atomicMax(int32_t *at, int32_t value)
{
    int32_t was = *at;
    *at = was > value ? was : value;
    return was;
}

/* ---- arithmetic ---- */

template <typename T> static inline T __ldcg(const T *at) { return *at; }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline float __fdividef(float a, float b) { return a / b; }
#define __expf(x) expf(x) /* the C library has a function of this name for itself */

#endif
