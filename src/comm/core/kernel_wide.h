/* Inside the kernels: loops for several widths of vector (base/wide.h). */
#ifndef KOLO_COMM_KERNEL_WIDE_H
#define KOLO_COMM_KERNEL_WIDE_H

#include "base/wide.h"
#include "comm/core/kernel.h"

/* out may equal an input exactly, which hinders no vector code, but the compiler cannot know it. */
#if defined(__clang__)
#define COMM_FREE_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define COMM_FREE_LOOP _Pragma("GCC ivdep")
#endif

/* kernel_16.c */
comm_combine comm_combine_16(enum kolo_dtype type, enum kolo_reduce op);

#endif
