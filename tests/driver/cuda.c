/* libcuda.so.1 as far as the library half asks it, for tests: which memory is whose. What lies "on the GPU"
 * is closed: a processor that reaches for it is ended. Memory of the stand-in for the CUDA runtime is known,
 * too, where KOLO_CUDA_LIBRARY names one that is loaded. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "standin/ask.h"

enum { HOST = 1, DEVICE = 2, MEMORY_TYPE = 2, IS_MANAGED = 8, ORDINAL = 9, INVALID = 1, MOST = 16 };

static struct piece {
    char *at;
    size_t bytes;
    unsigned type, managed;
} piece[MOST];
static int pieces;
static long asked;

static int give(unsigned long long *at, size_t bytes, unsigned type, unsigned managed)
{
    void *p = mmap(NULL, bytes, type == DEVICE && !managed ? PROT_NONE : PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || pieces == MOST) return 2;
    piece[pieces++] = (struct piece){p, bytes, type, managed};
    *at = (unsigned long long)p;
    return 0;
}

int cuMemAlloc_v2(unsigned long long *at, size_t bytes);
int cuMemAlloc_v2(unsigned long long *at, size_t bytes) { return give(at, bytes, DEVICE, 0); }
int cuMemAllocManaged(unsigned long long *at, size_t bytes, unsigned flags);
int cuMemAllocManaged(unsigned long long *at, size_t bytes, unsigned flags)
{
    (void)flags;
    return give(at, bytes, DEVICE, 1);
}
int cuMemAllocHost_v2(void **at, size_t bytes);
int cuMemAllocHost_v2(void **at, size_t bytes)
{
    unsigned long long p = 0;
    int rc = give(&p, bytes, HOST, 0);
    *at = (void *)p;
    return rc;
}

static int ask_standin(unsigned *data, int attribute, unsigned long long pointer)
{
    static int (*gpu_of)(const void *);
    if (!gpu_of) *(void **)&gpu_of = ask_symbol("standin_gpu_of");
    const int gpu = gpu_of ? gpu_of((const void *)(uintptr_t)pointer) : -1;
    if (gpu < 0) return INVALID;
    *data = attribute == MEMORY_TYPE ? DEVICE : attribute == ORDINAL ? (unsigned)gpu : 0;
    return 0;
}

/* As documented: what it does not know is an invalid value. */
int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer);
int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer)
{
    asked++;
    for (int i = 0; i < pieces; i++) {
        const unsigned long long from = (unsigned long long)piece[i].at;
        if (pointer < from || pointer >= from + piece[i].bytes) continue;
        if (attribute == MEMORY_TYPE) *(unsigned *)data = piece[i].type;
        else if (attribute == IS_MANAGED) *(unsigned *)data = piece[i].managed;
        else if (attribute == ORDINAL) *(unsigned *)data = 0;
        else return INVALID;
        return 0;
    }
    return ask_standin(data, attribute, pointer);
}

long driver_asked(void);
long driver_asked(void) { return asked; }
