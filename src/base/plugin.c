/* Finds, opens and checks libkolo_cuda.so, once. A failure is kept: every later question
 * gets the same answer. */
#include "base/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kolo/error.h"

/* The checksum of every header that the library shares with the program; the GNUmakefile gives both the
 * same. */
#ifndef KOLO_CONTRACT
#define KOLO_CONTRACT "none"
#endif

static const char *library_name = "libkolo_cuda.so";
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static void *library;
static char failure[1024];

/* What to do about the dynamic linker's words, which name the file that it misses. */
static const char *cure(const char *words)
{
    if (strstr(words, "libcudnn"))
        return "cuDNN 9 is missing: load its module, or put its folder into LD_LIBRARY_PATH";
    if (strstr(words, "libnccl"))
        return "NCCL is missing: load its module, put its folder into LD_LIBRARY_PATH, or build with NCCL=0";
    if (strstr(words, "libcu"))
        return "the CUDA toolkit is missing, or of another major version than the one it was built with: "
               "load its module, or put its lib64 folder into LD_LIBRARY_PATH";
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
             "%.600s is of another build (%.60s) than this program (%s): build and install both together "
             "(`make CUDA=1 install`)",
             path, its ? its : "no version", mine);
    return false;
}

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static char library_path[4096];

/* The file of which this is a part: a program of ours, or a library that another program uses, which has a
 * smaller plug-in beside it. */
static void find_self(char *self, size_t bytes)
{
    Dl_info info;
    ssize_t length = readlink("/proc/self/exe", self, bytes - 1);
    self[length > 0 ? length : 0] = 0;
    const char *name = dladdr(library_path, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    if (!name || strncmp(name, "/libkolo_", 9) != 0) return;
    snprintf(self, bytes, "%s", info.dli_fname);
    library_name = "libkolo_comm_cuda.so";
}

static void look_for_library(void)
{
    static const char *const place[] = {"/../lib/", "/"}; /* from its folder */
    const char *named = getenv("KOLO_CUDA_LIBRARY");
    char self[3072];
    find_self(self, sizeof self);
    if (named && *named) {
        snprintf(library_path, sizeof library_path, "%s", named);
        return;
    }
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; slash && i < sizeof place / sizeof *place; i++) {
        snprintf(library_path, sizeof library_path, "%s%s%s", self, place[i], library_name);
        if (access(library_path, F_OK) == 0) return;
    }
    *library_path = 0;
}

const char *kolo_cuda_library(void)
{
    pthread_once(&looked, look_for_library);
    return *library_path && access(library_path, F_OK) == 0 ? library_path : NULL;
}

static void open_library(void)
{
    const char *path = kolo_cuda_library();
    if (!path) {
        if (*library_path)
            snprintf(failure, sizeof failure,
                     "KOLO_CUDA_LIBRARY=%.900s: there is no such file; unset it, or name %s", library_path,
                     library_name);
        else
            snprintf(failure, sizeof failure,
                     "this installation of kolo has no GPU half (%s): build it with `make CUDA=1` and "
                     "install it, or use device=cpu",
                     library_name);
        return;
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *words = dlerror();
        if (!words) words = "the dynamic linker gives no reason";
        if (strncmp(words, path, strlen(path)) == 0)
            snprintf(failure, sizeof failure, "%.600s; %s", words, cure(words));
        else
            snprintf(failure, sizeof failure, "%.300s cannot be opened: %.400s; %s", path, words,
                     cure(words));
    } else if (!check_version(path)) {
        dlclose(library);
        library = NULL;
    }
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
