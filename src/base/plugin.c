/* Finds, opens and checks libkolo_cuda.so, once. A failure is kept: every later question gets the same answer. */
#include "base/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kolo/error.h"

/* The checksum of every header that the library shares with the program; the GNUmakefile gives both the same. */
#ifndef KOLO_CONTRACT
#define KOLO_CONTRACT "none"
#endif

static const char library_name[] = "libkolo_cuda.so";
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static void *library;
static char failure[1024];

/* What to do about the dynamic linker's words, which name the file that it misses. */
static const char *cure(const char *words)
{
    if (strstr(words, "libcudnn")) return "cuDNN 9 is missing: load its module, or put its folder into LD_LIBRARY_PATH";
    if (strstr(words, "libnccl"))
        return "NCCL is missing: load its module, put its folder into LD_LIBRARY_PATH, or build with NCCL=0";
    if (strstr(words, "libcu"))
        return "the CUDA toolkit is missing, or of another major version than the one it was built with: load its module, "
               "or put its lib64 folder into LD_LIBRARY_PATH";
    if (strstr(words, "undefined symbol"))
        return "it does not belong to this program: build and install both together (`make CUDA=1 install`)";
    return "build it again (`make CUDA=1`), or use device=cpu";
}

static bool check_version(const char *path)
{
    static const char mine[] = KOLO_VERSION "/" KOLO_CONTRACT;
    const char *its = dlsym(library, "kolo_cuda_version");
    if (its && strcmp(its, mine) == 0) return true;
    snprintf(failure, sizeof failure,
             "%s is of another build (%s) than this program (%s): build and install both together (`make CUDA=1 install`)",
             path, its ? its : "no version", mine);
    return false;
}

/* True when there is an end to the search: opened, or there and broken. */
static bool try_open(const char *path)
{
    if (strchr(path, '/') && access(path, F_OK) != 0) return false;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *words = dlerror();
        if (!words) words = "the dynamic linker gives no reason";
        /* the bare name, looked for everywhere and not found: nothing is broken, there is none */
        if (!strchr(path, '/') && strncmp(words, library_name, sizeof library_name - 1) == 0) return false;
        snprintf(failure, sizeof failure, "%s cannot be opened: %s; %s", path, words, cure(words));
    } else if (!check_version(path)) {
        dlclose(library);
        library = NULL;
    }
    return true;
}

static void open_library(void)
{
    static const char *const place[] = {"/../lib/", "/"}; /* from the program's folder */
    const char *named = getenv("KOLO_CUDA_LIBRARY");
    if (named && *named) {
        if (!try_open(named))
            snprintf(failure, sizeof failure, "KOLO_CUDA_LIBRARY=%s: there is no such file; unset it, or name %s", named,
                     library_name);
        return;
    }
    char self[3072], path[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    char *slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < sizeof place / sizeof *place; i++) {
        *slash = 0;
        snprintf(path, sizeof path, "%s%s%s", self, place[i], library_name);
        if (try_open(path)) return;
    }
    if (try_open(library_name)) return;
    snprintf(failure, sizeof failure,
             "this installation of kolo has no GPU half (%s): build it with `make CUDA=1` and install it, or use device=cpu",
             library_name);
}

void *kolo_cuda_symbol(const char *name)
{
    pthread_once(&opened, open_library);
    if (!library) {
        kolo_fail(KOLO_ELAUNCH, "%s", failure);
        return NULL;
    }
    void *symbol = dlsym(library, name);
    if (!symbol) kolo_fail(KOLO_EINTERNAL, "%s has no %s", library_name, name);
    return symbol;
}
