#include "ops/cpu/columns.h"

#include "ops/cpu/access.h"

enum { GROUP = 64 }; /* channels of one task */

KOLO_BODY fold_body(float *sum, const float *part, int64_t parts, int64_t stride, int64_t n)
{
    double s[GROUP] = {0};
    for (int64_t p = 0; p < parts; p++) {
        const float *row = part + p * stride;
#pragma omp simd
        for (int64_t c = 0; c < n; c++) s[c] += (double)row[c];
    }
    for (int64_t c = 0; c < n; c++) sum[c] = (float)s[c];
}
KOLO_WIDE(fold, (float *sum, const float *part, int64_t parts, int64_t stride, int64_t n),
          (sum, part, parts, stride, n))

void kolo_columns_fold(float *sum, const float *part, int64_t parts, int64_t stride, int64_t channels,
                       int threads)
{
    if (!sum) return;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t c = 0; c < channels; c += GROUP)
        fold(sum + c, part + c, parts, stride, channels - c < GROUP ? channels - c : GROUP);
}
