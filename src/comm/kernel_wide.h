/* Inside the kernels: how a loop is compiled several times, for wider vectors, and chosen at load time. */
#ifndef KOLO_COMM_KERNEL_WIDE_H
#define KOLO_COMM_KERNEL_WIDE_H

#include "comm/kernel.h"

/* The thread sanitizer does not survive the resolvers that choose. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COMM_NO_CLONES 1
#endif
#endif
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(COMM_NO_CLONES)
#define COMM_WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define COMM_WIDE
#endif

/* out may equal an input exactly, which hinders no vector code, but the compiler cannot know it. */
#if defined(__clang__)
#define COMM_FREE_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define COMM_FREE_LOOP _Pragma("GCC ivdep")
#endif

/* kernel_16.c */
comm_combine comm_combine_16(enum kolo_dtype type, enum kolo_reduce op);

#endif
