#include "data/image/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "kolo/error.h"

#define BITS 22 /* fraction bits of a weight: 255 * 2^22 still fits an int32 */
#define HALF (1 << (BITS - 1))

/* Which inputs make output i, and how much: first[i] .. first[i] + count[i] - 1, weights[i * stride ...]. */
typedef struct taps {
    int *first, *count;
    int32_t *weights;
    int stride;
    bool clip;              /* sums may leave 0..255 */
    int64_t spans, numbers; /* allocated */
} taps;

struct kolo_resampler {
    taps across, down;
    double *kernel;
    int64_t kernel_size;
    uint8_t *rows; /* result of the horizontal pass */
    size_t rows_bytes;
};

int kolo_resampler_create(kolo_resampler **resampler)
{
    *resampler = kolo_alloc(sizeof **resampler);
    return *resampler ? 0 : KOLO_ENOMEM;
}

static void free_taps(taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weights);
}

void kolo_resampler_destroy(kolo_resampler **resampler)
{
    kolo_resampler *r = *resampler;
    if (!r) return;
    free_taps(&r->across);
    free_taps(&r->down);
    free(r->kernel);
    free(r->rows);
    free(r);
    *resampler = NULL;
}

static int grow_taps(kolo_resampler *r, taps *t, int n)
{
    const int64_t numbers = (int64_t)n * t->stride;
    if (n > t->spans) {
        free(t->first);
        free(t->count);
        t->first = kolo_alloc(sizeof *t->first * (size_t)n);
        t->count = kolo_alloc(sizeof *t->count * (size_t)n);
        t->spans = t->first && t->count ? n : 0;
        if (!t->spans) return KOLO_ENOMEM;
    }
    if (numbers > t->numbers) {
        free(t->weights);
        t->weights = kolo_alloc(sizeof *t->weights * (size_t)numbers);
        t->numbers = t->weights ? numbers : 0;
        if (!t->numbers) return KOLO_ENOMEM;
    }
    if (t->stride > r->kernel_size) {
        free(r->kernel);
        r->kernel = kolo_alloc(sizeof *r->kernel * (size_t)t->stride);
        r->kernel_size = r->kernel ? t->stride : 0;
        if (!r->kernel) return KOLO_ENOMEM;
    }
    return 0;
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys' cubic, a = -1/2 */
static double cubic(double x)
{
    x = fabs(x);
    if (x < 1) return ((-0.5 + 2) * x - (-0.5 + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

static double sinc(double x) { return x == 0 ? 1 : sin(x * M_PI) / (x * M_PI); }
static double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }
static double box(double x) { return x > -0.5 && x <= 0.5 ? 1 : 0; }

static const struct filter {
    double (*weight)(double x);
    double support;
    bool negative; /* has negative weights */
    bool narrow;   /* does not widen where the image becomes smaller */
} filters[] = {
    [KOLO_interpolation_bilinear] = {triangle, 1, false, false},
    [KOLO_interpolation_bicubic] = {cubic, 2, true, false},
    [KOLO_interpolation_lanczos] = {lanczos, 3, true, false},
    [KOLO_interpolation_box] = {box, 0.5, false, false},
    [KOLO_interpolation_plain] = {triangle, 1, false, true},
};

double kolo_resample_support(int filter) { return filters[filter].support; }

static int32_t to_integer(double weight)
{
    return (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << BITS));
}

/* Inputs are [low, high) of the image's axis; the box starts at `start` >= low and has length `length`;
 * it becomes `full` outputs, of which n from `from` are wanted. Coordinates count from `low`, as if the
 * box had been cut out. */
static int make_taps(kolo_resampler *r, taps *t, const struct filter *filter, double start, double length,
                     int full, int from, int n, bool flip)
{
    const double scale = length / full, coarse = scale > 1 && !filter->narrow ? scale : 1,
                 inverse = 1 / coarse;
    const double support = coarse * filter->support;
    const int low = (int)floor(start), size = (int)ceil(start + length - 1e-9) - low;
    const double offset = start - low;
    t->stride = (int)ceil(support) * 2 + 1;
    t->clip = filter->negative;
    KOLO_TRY(grow_taps(r, t, n));
    for (int i = 0; i < n; i++) {
        const double center = offset + (from + i + 0.5) * scale;
        int first = (int)(center - support + 0.5), last = (int)(center + support + 0.5);
        double sum = 0;
        if (first < 0) first = 0;
        if (first >= size) first = size - 1;
        if (last > size) last = size;
        if (last <= first) last = first + 1;
        for (int k = first; k < last; k++)
            sum += r->kernel[k - first] = filter->weight((k - center + 0.5) * inverse);
        const int at = flip ? n - 1 - i : i;
        int32_t *weights = t->weights + (int64_t)at * t->stride;
        for (int k = 0; k < last - first; k++) weights[k] = to_integer(sum != 0 ? r->kernel[k] / sum : 1);
        t->first[at] = low + first;
        t->count[at] = last - first;
    }
    return 0;
}

/* Range of inputs that any output needs. */
static void needed(const taps *t, int n, int *low, int *high)
{
    *low = t->first[0];
    *high = *low;
    for (int i = 0; i < n; i++) {
        if (t->first[i] < *low) *low = t->first[i];
        if (t->first[i] + t->count[i] > *high) *high = t->first[i] + t->count[i];
    }
}

typedef int32_t lanes4 __attribute__((vector_size(16)));
typedef uint8_t bytes4 __attribute__((vector_size(4)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));

#define ALWAYS static inline __attribute__((always_inline))

/* To 0..255, without a branch. */
ALWAYS void clip4(lanes4 *v)
{
    const lanes4 low = *v & ~(*v >> 31), over = (255 - low) >> 31;
    *v = (low & ~over) | (over & 255);
}

/* Bytes to lanes and back. As shuffles, because compilers take a conversion of vectors of
 * different sizes lane by lane. */
#if defined __has_builtin && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES 1
#endif
#endif

#ifdef SHUFFLES
#define WIDEN(v, k)                                                                                 \
    ((lanes4)__builtin_shufflevector(v, (bytes16){0}, 4 * (k), 16, 16, 16, 4 * (k) + 1, 16, 16, 16, \
                                     4 * (k) + 2, 16, 16, 16, 4 * (k) + 3, 16, 16, 16))
ALWAYS void widen4(const uint8_t *p, lanes4 *to)
{
    int32_t four;
    memcpy(&four, p, 4);
    *to = WIDEN((bytes16)((lanes4){four, 0, 0, 0}), 0);
}

ALWAYS void widen16(const uint8_t *p, lanes4 to[4])
{
    bytes16 v;
    memcpy(&v, p, 16);
    to[0] = WIDEN(v, 0);
    to[1] = WIDEN(v, 1);
    to[2] = WIDEN(v, 2);
    to[3] = WIDEN(v, 3);
}

/* Of values 0 to 255. */
ALWAYS void narrow16(const lanes4 from[4], bytes16 *to)
{
    const bytes16 a = __builtin_shufflevector((bytes16)from[0], (bytes16)from[1], 0, 4, 8, 12, 16, 20, 24, 28,
                                              0, 4, 8, 12, 16, 20, 24, 28);
    const bytes16 b = __builtin_shufflevector((bytes16)from[2], (bytes16)from[3], 0, 4, 8, 12, 16, 20, 24, 28,
                                              0, 4, 8, 12, 16, 20, 24, 28);
    *to = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
}
#else
ALWAYS void widen4(const uint8_t *p, lanes4 *to)
{
    bytes4 v;
    memcpy(&v, p, 4);
    *to = __builtin_convertvector(v, lanes4);
}

ALWAYS void widen16(const uint8_t *p, lanes4 to[4])
{
    for (int i = 0; i < 4; i++) widen4(p + 4 * i, &to[i]);
}

ALWAYS void narrow16(const lanes4 from[4], bytes16 *to)
{
    for (int i = 0; i < 16; i++) (*to)[i] = (uint8_t)from[i / 4][i % 4];
}
#endif

/* One row of RGB: the fourth lane computes on the next pixel's red and is dropped. */
ALWAYS void across_rgb(const taps *t, const uint8_t *row, uint8_t *to, int n, bool clip)
{
    for (int i = 0; i < n; i++, to += 3) {
        const uint8_t *p = row + 3 * (size_t)t->first[i];
        const int32_t *weights = t->weights + (int64_t)i * t->stride;
        const int count = t->count[i];
        lanes4 sum = {HALF, HALF, HALF, HALF};
        for (int k = 0; k < count; k++, p += 3) {
            lanes4 pixel;
            widen4(p, &pixel);
            sum += pixel * weights[k];
        }
        sum >>= BITS;
        if (clip) clip4(&sum);
        to[0] = (uint8_t)sum[0];
        to[1] = (uint8_t)sum[1];
        to[2] = (uint8_t)sum[2];
    }
}

ALWAYS void across_gray(const taps *t, const uint8_t *row, uint8_t *to, int n)
{
    for (int i = 0; i < n; i++) {
        const uint8_t *p = row + t->first[i];
        const int32_t *weights = t->weights + (int64_t)i * t->stride;
        int32_t sum = HALF;
        for (int k = 0; k < t->count[i]; k++) sum += p[k] * weights[k];
        sum >>= BITS;
        to[i] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
    }
}

/* One output row of `bytes` bytes out of `count` input rows. Reads up to 15 bytes past a row's end. */
ALWAYS void down_row(const uint8_t *rows, size_t stride, const int32_t *weights, int count, uint8_t *to,
                     size_t bytes, bool clip)
{
    for (size_t x = 0; x < bytes; x += 16) {
        const lanes4 half = {HALF, HALF, HALF, HALF};
        lanes4 sum[4] = {half, half, half, half};
        const uint8_t *p = rows + x;
        for (int k = 0; k < count; k++, p += stride) {
            lanes4 in[4];
            widen16(p, in);
            for (int i = 0; i < 4; i++) sum[i] += in[i] * weights[k];
        }
        for (int i = 0; i < 4; i++) {
            sum[i] >>= BITS;
            if (clip) clip4(&sum[i]);
        }
        bytes16 out;
        narrow16(sum, &out);
        memcpy(to + x, &out, bytes - x < 16 ? bytes - x : 16);
    }
}

/* The two passes for one instruction set. */
#define PASSES(suffix, attribute)                                                                            \
    attribute static void across_##suffix(const taps *t, const kolo_image *p, int low, int high,             \
                                          uint8_t *to, int n)                                                \
    {                                                                                                        \
        const size_t from_stride = (size_t)p->width * (size_t)p->channels,                                   \
                     to_stride = (size_t)n * (size_t)p->channels;                                            \
        for (int y = low; y < high; y++, to += to_stride) {                                                  \
            const uint8_t *row = p->pixels + (size_t)y * from_stride;                                        \
            if (p->channels != 3) across_gray(t, row, to, n);                                                \
            else if (t->clip) across_rgb(t, row, to, n, true);                                               \
            else across_rgb(t, row, to, n, false);                                                           \
        }                                                                                                    \
    }                                                                                                        \
    attribute static void down_##suffix(const taps *t, const uint8_t *rows, int low, size_t bytes,           \
                                        uint8_t *to, size_t stride, int n)                                   \
    {                                                                                                        \
        for (int y = 0; y < n; y++) {                                                                        \
            const uint8_t *first = rows + (size_t)(t->first[y] - low) * bytes;                               \
            const int32_t *weights = t->weights + (int64_t)y * t->stride;                                    \
            if (t->clip) down_row(first, bytes, weights, t->count[y], to + (size_t)y * stride, bytes, true); \
            else down_row(first, bytes, weights, t->count[y], to + (size_t)y * stride, bytes, false);        \
        }                                                                                                    \
    }

PASSES(base, )
#ifdef __x86_64__
PASSES(avx2, __attribute__((target("avx2"))))
#define WIDE __builtin_cpu_supports("avx2")
#else
#define WIDE 0
#define across_avx2 across_base
#define down_avx2 down_base
#endif

static int grow_rows(kolo_resampler *r, size_t bytes)
{
    if (bytes + KOLO_IMAGE_SLACK <= r->rows_bytes) return 0;
    free(r->rows);
    r->rows = kolo_alloc(bytes + KOLO_IMAGE_SLACK);
    r->rows_bytes = r->rows ? bytes + KOLO_IMAGE_SLACK : 0;
    return r->rows ? 0 : KOLO_ENOMEM;
}

int kolo_resample(kolo_resampler *r, const kolo_image *p, const kolo_resize *q, uint8_t *to, size_t stride)
{
    int low, high;
    if (q->rows < 1 || q->columns < 1) return 0;
    const struct filter *f = &filters[q->filter];
    KOLO_TRY(make_taps(r, &r->down, f, q->top, q->height, q->full_height, q->row, q->rows, false));
    KOLO_TRY(make_taps(r, &r->across, f, q->left, q->width, q->full_width, q->column, q->columns, q->flip));
    needed(&r->down, q->rows, &low, &high);
    const size_t bytes = (size_t)q->columns * (size_t)p->channels;
    KOLO_TRY(grow_rows(r, bytes * (size_t)(high - low)));
    if (WIDE) {
        across_avx2(&r->across, p, low, high, r->rows, q->columns);
        down_avx2(&r->down, r->rows, low, bytes, to, stride, q->rows);
    } else {
        across_base(&r->across, p, low, high, r->rows, q->columns);
        down_base(&r->down, r->rows, low, bytes, to, stride, q->rows);
    }
    return 0;
}
