/* Counts the allocations of a program that includes it, of all its threads and libraries, or of the callers
 * that ALLOCATION_COUNTS(caller) says. Not where a sanitizer has its own malloc: then COUNTING is 0. */
#ifndef TESTS_ALLOCATIONS_H
#define TESTS_ALLOCATIONS_H

#include <stdatomic.h>
#include <stddef.h>

#ifndef ALLOCATION_COUNTS
#define ALLOCATION_COUNTS(caller) 1
#endif

static _Atomic long allocations;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ALLOCATIONS_WATCHED 1
#endif
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(ALLOCATIONS_WATCHED)
#define COUNTING 1
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t n);
void *aligned_alloc(size_t align, size_t n);
int posix_memalign(void **p, size_t align, size_t n);

static void allocations_count(const void *caller)
{
    (void)caller;
    if (ALLOCATION_COUNTS(caller)) atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
}
void *malloc(size_t n)
{
    allocations_count(__builtin_return_address(0));
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    allocations_count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    allocations_count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n)
{
    allocations_count(__builtin_return_address(0));
    return __libc_memalign(align, n);
}
int posix_memalign(void **p, size_t align, size_t n)
{
    allocations_count(__builtin_return_address(0));
    *p = __libc_memalign(align, n);
    return *p ? 0 : 12; /* ENOMEM */
}
#else
#define COUNTING 0
#endif

#endif
