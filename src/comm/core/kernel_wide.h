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

/* Of one type: functions sum_SUFFIX, min_SUFFIX, ..., by reduction; an average is a sum first. */
#define COMM_COMBINES(suffix)                                                                \
    {                                                                                        \
        [KOLO_SUM] = sum_##suffix, [KOLO_AVERAGE] = sum_##suffix, [KOLO_MIN] = min_##suffix, \
        [KOLO_MAX] = max_##suffix, [KOLO_PRODUCT] = product_##suffix                         \
    }

/* kernel_16.c */
comm_combine comm_combine_16(enum kolo_dtype type, enum kolo_reduce op);

#endif
