/* One loop, compiled for several widths of vector, chosen at run time.
 *
 *   static inline void scale_body(float *x, int64_t n) { ... plain loops ... } KOLO_WIDE(scale, (float
 *   *x, int64_t n), (x, n))
 *
 * makes `static void scale(float *, int64_t)`, which calls the widest version that this CPU has. The body
 * holds no OpenMP region (an outlined region would not inherit the target); threads are started around it. */
#ifndef KOLO_OPS_CPU_SIMD_H
#define KOLO_OPS_CPU_SIMD_H

#include <stdint.h>

/* 0: the build's baseline; 1: AVX2 and FMA; 2: AVX-512. */
int kolo_cpu_level(void);

#define KOLO_BODY static inline __attribute__((always_inline)) void

#if defined(__x86_64__)
#if defined(__clang__)
#define KOLO_TARGET_V4 __attribute__((target("arch=x86-64-v4"), min_vector_width(512)))
#else
#define KOLO_TARGET_V4 __attribute__((target("arch=x86-64-v4,prefer-vector-width=512")))
#endif
#define KOLO_TARGET_V3 __attribute__((target("arch=x86-64-v3")))
#define KOLO_WIDE(name, parameters, arguments)                                 \
    KOLO_TARGET_V4 static void name##_v4 parameters { name##_body arguments; } \
    KOLO_TARGET_V3 static void name##_v3 parameters { name##_body arguments; } \
    static void name##_v2 parameters { name##_body arguments; }                \
    static void name parameters                                                \
    {                                                                          \
        int level = kolo_cpu_level();                                          \
        if (level == 2) name##_v4 arguments;                                   \
        else if (level == 1) name##_v3 arguments;                              \
        else name##_v2 arguments;                                              \
    }
#else
#define KOLO_WIDE(name, parameters, arguments) \
    static void name parameters { name##_body arguments; }
#endif

/* Sixteen lanes; narrower CPUs use several registers. */
typedef float kolo_v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t kolo_u16x32 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t kolo_u16x16 __attribute__((vector_size(32), aligned(2), may_alias));

#endif
