/* A GPU's memory for tests of libkolo_comm's requests: the CUDA calls of the library under test
 * (tests/cuda_rig.h), and a driver that knows whose memory is whose. */
#ifndef TESTS_CUDA_MEMORY_H
#define TESTS_CUDA_MEMORY_H

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "base/plugin.h"
#include "cuda_rig.h"
#include "standin/ask.h"

static struct {
    __typeof__(cudaSetDevice) *set_device;
    __typeof__(cudaMalloc) *alloc;
    __typeof__(cudaFree) *release;
    __typeof__(cudaStreamCreateWithFlags) *stream_create;
    __typeof__(cudaStreamDestroy) *stream_destroy;
    __typeof__(cudaStreamSynchronize) *stream_wait;
    __typeof__(cudaMemcpyAsync) *copy;
    cudaStream_t stream;
} gpu;

/* Loads the driver as CUDA's own would be, by the program, and takes a GPU. NULL, or what is missing. */
static inline const char *gpu_begin(bool standin, int number)
{
    static const struct {
        const char *name;
        void *call;
    } entry[] = {{"cudaSetDevice", &gpu.set_device},
                 {"cudaMalloc", &gpu.alloc},
                 {"cudaFree", &gpu.release},
                 {"cudaStreamCreateWithFlags", &gpu.stream_create},
                 {"cudaStreamDestroy", &gpu.stream_destroy},
                 {"cudaStreamSynchronize", &gpu.stream_wait},
                 {"cudaMemcpyAsync", &gpu.copy}};
    char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    while (n > 0 && path[n - 1] != '/') n--;
    snprintf(path + (n > 0 ? n : 0), 64, "../driver/libcuda.so.1");
    if (standin && !dlopen(path, RTLD_NOW | RTLD_LOCAL)) return dlerror();
    for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
        void *call = kolo_cuda_symbol(entry[i].name);
        if (!call) return kolo_error_text();
        memcpy(entry[i].call, &call, sizeof call);
    }
    if (gpu.set_device(number) != cudaSuccess) return "cudaSetDevice";
    return gpu.stream_create(&gpu.stream, cudaStreamNonBlocking) == cudaSuccess ? NULL
                                                                                : "cudaStreamCreateWithFlags";
}

static inline void *gpu_alloc(size_t bytes)
{
    void *p = NULL;
    return gpu.alloc(&p, bytes ? bytes : 1) == cudaSuccess ? p : NULL;
}
static inline void gpu_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (bytes && (gpu.copy(to, from, bytes, kind, gpu.stream) != cudaSuccess ||
                  gpu.stream_wait(gpu.stream) != cudaSuccess))
        abort();
}
static inline void gpu_put(void *to, const void *from, size_t bytes)
{
    gpu_copy(to, from, bytes, cudaMemcpyHostToDevice);
}
static inline void gpu_get(void *to, const void *from, size_t bytes)
{
    gpu_copy(to, from, bytes, cudaMemcpyDeviceToHost);
}
static inline void gpu_free(void *p) { gpu.release(p); }
static inline void gpu_end(void) { gpu.stream_destroy(gpu.stream); }

/* Of a GPU for which this process lacks the plug-in: from the driver itself (tests/driver). */
static inline void *gpu_blind(void)
{
    char path[512];
    unsigned long long at = 0;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    while (n > 0 && path[n - 1] != '/') n--;
    snprintf(path + (n > 0 ? n : 0), 64, "../driver/libcuda.so.1");
    void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*alloc)(unsigned long long *, size_t) =
        driver ? (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2") : NULL;
    return alloc && alloc(&at, 1 << 20) == 0 ? (void *)(uintptr_t)at : NULL;
}

/* What the stand-in has against this process: 0, or it is said. */
static inline int gpu_misused(void)
{
    if (!ask_count("alive") && !ask_defect(0)) return 0;
    fprintf(stderr, "# %ld objects alive; %s\n", (long)ask_count("alive"),
            ask_defect(0) ? ask_defect(0) : "no defect");
    return 1;
}

#endif
