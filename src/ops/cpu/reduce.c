/* Vector arithmetic over arenas. Sums are formed in a fixed number of parts, so they do not depend on the threads. */
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

enum { PIECE = 16384, PARTS = 256, LANES = 16 };

KOLO_BODY fold_body(float *sum, const float *part, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += part[i];
}
KOLO_WIDE(fold, (float *sum, const float *part, int64_t n), (sum, part, n))

void kolo_cpu_fold(kolo_backend *b, float *sum, const float *part, int64_t count)
{
#pragma omp parallel for schedule(static) num_threads(kolo_cpu_threads(b, count))
    for (int64_t i = 0; i < count; i += PIECE) fold(sum + i, part + i, count - i < PIECE ? count - i : PIECE);
}

KOLO_BODY squares_body(const float *x, int64_t n, double *out)
{
    double lane[LANES] = {0}, s = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    }
    for (; i < n; i++) s += (double)x[i] * (double)x[i];
    for (int l = 0; l < LANES; l++) s += lane[l];
    *out = s;
}
KOLO_WIDE(squares, (const float *x, int64_t n, double *out), (x, n, out))

static int64_t part_size(int64_t count) { return ((count + PARTS - 1) / PARTS + LANES - 1) / LANES * LANES; }

double kolo_cpu_norm2(kolo_backend *b, const float *x, int64_t count)
{
    double part[PARTS] = {0}, sum = 0;
    int64_t size = part_size(count);
#pragma omp parallel for schedule(static) num_threads(kolo_cpu_threads(b, count))
    for (int64_t p = 0; p < PARTS; p++) {
        int64_t first = p * size, n = count - first < size ? count - first : size;
        if (n > 0) squares(x + first, n, &part[p]);
    }
    for (int p = 0; p < PARTS; p++) sum += part[p];
    return sum;
}

KOLO_BODY infinite_body(const float *x, int64_t n, int *found)
{
    int any = 0;
#pragma omp simd reduction(| : any)
    for (int64_t i = 0; i < n; i++) any |= (kolo_float_bits(x[i]) & 0x7F800000u) == 0x7F800000u;
    *found |= any;
}
KOLO_WIDE(infinite, (const float *x, int64_t n, int *found), (x, n, found))

bool kolo_cpu_not_finite(kolo_backend *b, const float *x, int64_t count)
{
    int found = 0;
#pragma omp parallel for schedule(static) num_threads(kolo_cpu_threads(b, count)) reduction(| : found)
    for (int64_t i = 0; i < count; i += PIECE) infinite(x + i, count - i < PIECE ? count - i : PIECE, &found);
    return found;
}
