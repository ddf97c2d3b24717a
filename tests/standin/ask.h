/* For tests: what the stand-in for a GPU has seen (tell.h says what may be asked). On a
 * real GPU all of it is 0. */
#ifndef TESTS_STANDIN_ASK_H
#define TESTS_STANDIN_ASK_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static inline void *ask_symbol(const char *name)
{
    const char *path = getenv("KOLO_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL; /* it stays open */
    return library ? dlsym(library, name) : NULL;
}

static inline int64_t ask_count(const char *what)
{
    int64_t (*count)(const char *) = 0;
    *(void **)&count = ask_symbol("standin_count");
    return count ? count(what) : 0;
}

static inline const char *ask_defect(int i)
{
    const char *(*text)(int) = 0;
    *(void **)&text = ask_symbol("standin_defect_text");
    return text ? text(i) : NULL;
}

/* What was provoked is not held against the program. */
static inline void ask_forgive(void)
{
    void (*forgive)(void) = 0;
    *(void **)&forgive = ask_symbol("standin_forgive");
    if (forgive) forgive();
}

#endif
