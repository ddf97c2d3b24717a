/* For tests of the CUDA half: which libkolo_cuda.so they open. KOLO_CUDA_LIBRARY if it is set (on a machine
 * with a GPU: the real one), else the one with the stand-in for CUDA's libraries that lies in the same build
 * folder. Call it first. */
#ifndef TESTS_CUDA_RIG_H
#define TESTS_CUDA_RIG_H

#include <stdlib.h>
#include <unistd.h>

#include "tap.h"

/* True: the stand-in, which counts, records and fails on demand; false: a real GPU. */
static inline int cuda_rig(void)
{
    char path[4096 + 64];
    const char *named = getenv("KOLO_CUDA_LIBRARY");
    if (named && *named) return strstr(named, "standin/") != NULL;
    ssize_t n = readlink("/proc/self/exe", path, 4096);
    path[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 3; up++) { /* BUILD/tests/cuda/NAME */
        char *slash = strrchr(path, '/');
        if (slash) *slash = 0;
    }
    strcat(path, "/standin/libkolo_cuda.so");
    if (access(path, R_OK) != 0)
        skip_all("%s is not built (it needs the headers of CUDA, cuDNN and NCCL)", path);
    setenv("KOLO_CUDA_LIBRARY", path, 1);
    return 1;
}

#endif
