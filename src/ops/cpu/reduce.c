/* Vector arithmetic over arenas. */
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

enum { PIECE = 16384 };

KOLO_BODY fold_body(float *sum, const float *part, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += part[i];
}
KOLO_WIDE(fold, (float *sum, const float *part, int64_t n), (sum, part, n))

int kolo_cpu_fold(kolo_backend *b, float *sum, const float *part, int64_t count)
{
#pragma omp parallel for schedule(static) num_threads(kolo_cpu_threads(b, count))
    for (int64_t i = 0; i < count; i += PIECE) fold(sum + i, part + i, count - i < PIECE ? count - i : PIECE);
    return 0;
}

int kolo_cpu_divide(kolo_backend *b, float *to, const float *from, float by, int64_t count)
{
#pragma omp parallel for schedule(static) num_threads(kolo_cpu_threads(b, count))
    for (int64_t i = 0; i < count; i++) to[i] = from[i] / by;
    return 0;
}

static void narrow_f16(uint16_t *half, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) half[i] = kolo_to_f16(from[i]);
}

int kolo_cpu_narrow_arena(kolo_backend *b, void *half, enum kolo_dtype dtype, const float *from,
                          int64_t count)
{
    if (dtype == KOLO_BF16) {
        kolo_cpu_narrow(half, from, count, kolo_cpu_threads(b, count));
        return 0;
    }
#pragma omp parallel for schedule(static) num_threads(kolo_cpu_threads(b, count))
    for (int64_t i = 0; i < count; i += PIECE)
        narrow_f16((uint16_t *)half + i, from + i, count - i < PIECE ? count - i : PIECE);
    return 0;
}
