/* What emulate.h declares for kernels, seen from C. */
#ifndef TESTS_STANDIN_KERNEL_H
#define TESTS_STANDIN_KERNEL_H

#include <cuda_runtime_api.h>
#include <stdint.h>

typedef struct kolo_emulate_thread {
    uint3 thread, block;
    dim3 threads, blocks;
} kolo_emulate_thread;
typedef struct kolo_emulate_config {
    const char *name, *file;
    int line;
    int64_t grid, block;
    size_t shared;
    cudaStream_t stream;
    const void *kernel;
} kolo_emulate_config;
extern kolo_emulate_thread *kolo_emulate_now;
void kolo_emulate_launch(const kolo_emulate_config *config, void *body, void (*call)(void *),
                         void (*release)(void *));
void kolo_emulate_barrier(int line);
const uint64_t *kolo_emulate_exchange(uint64_t mine, unsigned mask, int line);
void *kolo_emulate_shared(void);

#endif
