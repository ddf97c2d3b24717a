#include "comm/cuda/nccl_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "kolo/error.h"

enum { LEAST = NCCL_VERSION(2, 18, 0) }; /* non-blocking communicators that are fit for use */

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static comm_nccl_calls calls;
static char failure[512];

/* This library itself, with all that is linked to it. */
static void *open_own(void)
{
    Dl_info info;
    void *own = dladdr(failure, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return own && dlsym(own, "ncclGetVersion") ? own : NULL;
}

static bool cuda_nccl_calls_fill(void *library)
{
    static const struct {
        const char *name;
        size_t offset;
        bool needed;
    } entry[] = {
#define CALL(call) {"nccl" #call, offsetof(comm_nccl_calls, call), true},
        COMM_NCCL_CALLS(CALL)
#undef CALL
#define CALL(call) {"nccl" #call, offsetof(comm_nccl_calls, call), false},
            COMM_NCCL_OPTIONAL(CALL)
#undef CALL
    };
    for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
        void *call = dlsym(library, entry[i].name);
        *(void **)((char *)&calls + entry[i].offset) = call;
        if (call || !entry[i].needed) continue;
        snprintf(failure, sizeof failure, "this libnccl has no %s", entry[i].name);
        return false;
    }
    return true;
}

static void open_library(void)
{
    const char *named = getenv("KOLO_NCCL_LIBRARY");
    void *library = named && *named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : open_own();
    if (!library && !(named && *named)) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *words = dlerror();
        snprintf(failure, sizeof failure, "no NCCL: %s",
                 words ? words : "the dynamic linker gives no reason");
    } else if (cuda_nccl_calls_fill(library) &&
               (calls.GetVersion(&calls.version) != ncclSuccess || calls.version < LEAST)) {
        snprintf(failure, sizeof failure, "NCCL %d.%d is too old: 2.18 is needed", calls.version / 10000,
                 calls.version / 100 % 100);
    }
}

const comm_nccl_calls *comm_nccl_open(void)
{
    pthread_once(&opened, open_library);
    if (!*failure) return &calls;
    kolo_fail(KOLO_ELAUNCH, "%s", failure);
    return NULL;
}
