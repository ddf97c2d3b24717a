/* The gradient of the weight of a small convolution: sums over samples and pixels of dy x. Two ways to
 * fill a vector: with pixels of a row of dy, or with sixteen outputs of one pixel; the shape decides
 * which wastes fewer lanes. */
#include <omp.h>
#include <string.h>

#include "ops/cpu/access.h"
#include "ops/cpu/conv_small.h"

enum { LANES = KOLO_SMALL_LANES, GROUPS = 8 };

typedef struct product {
    kolo_bordered x, dy;                    /* dy by rows: its columns beyond its own are zero */
    int64_t in, out, height, width, kh, kw; /* of dy */
    bool by_outputs;                        /* dy as [pixel][16 outputs] */
} product;

/* ---- vectors of pixels: lane[(o, c, kh, kw)][16] ------------------------------------------------------- */

KOLO_ALWAYS void row_taps(const product *p, const float *x, const float *dy, float *lane, int outputs,
                          int taps, int64_t out_step)
{
    kolo_v16 acc[4][KOLO_SMALL_KERNEL];
    for (int o = 0; o < outputs; o++)
        for (int k = 0; k < taps; k++) acc[o][k] = *(const kolo_v16 *)(lane + o * out_step + k * LANES);
    for (int64_t i = 0; i < p->height; i++)
        for (int64_t j = 0; j < p->width; j += LANES) {
            kolo_v16 d[4];
            for (int o = 0; o < outputs; o++)
                d[o] = *(const kolo_v16 *)(dy + o * p->dy.plane + i * p->dy.stride + j);
            for (int k = 0; k < taps; k++) {
                const kolo_v16 v = *(const kolo_v16 *)(x + i * p->x.stride + j + k);
                for (int o = 0; o < outputs; o++) acc[o][k] += v * d[o];
            }
        }
    for (int o = 0; o < outputs; o++)
        for (int k = 0; k < taps; k++) *(kolo_v16 *)(lane + o * out_step + k * LANES) = acc[o][k];
}

#define FOR_TAPS(taps, call) \
    switch (taps) {          \
    case 1: call(1); break;  \
    case 2: call(2); break;  \
    case 3: call(3); break;  \
    case 4: call(4); break;  \
    case 5: call(5); break;  \
    case 6: call(6); break;  \
    default: call(7); break; \
    }

KOLO_ALWAYS void row_outputs(const product *p, const float *x, const float *dy, float *lane, int outputs,
                             int64_t out_step){
#define CALL(n) row_taps(p, x, dy, lane, outputs, n, out_step)
    FOR_TAPS(p->kw, CALL)
#undef CALL
}

KOLO_BODY by_rows_body(const product *p, const float *x, const float *dy, float *lane)
{
    int64_t row = p->kw * LANES, out_step = p->in * p->kh * row;
    for (int64_t o = 0; o < p->out; o += 4)
        for (int64_t c = 0; c < p->in; c++)
            for (int64_t kh = 0; kh < p->kh; kh++) {
                const float *xr = x + c * p->x.plane + kh * p->x.stride, *d = dy + o * p->dy.plane;
                float *to = lane + o * out_step + (c * p->kh + kh) * row;
                if (p->out - o >= 4) row_outputs(p, xr, d, to, 4, out_step);
                else
                    for (int64_t k = o; k < p->out; k++, d += p->dy.plane, to += out_step)
                        row_outputs(p, xr, d, to, 1, out_step);
            }
}
KOLO_WIDE(by_rows, (const product *p, const float *x, const float *dy, float *lane), (p, x, dy, lane))

KOLO_BODY fold_rows_body(const float *lane, float *sum, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float s = 0;
#pragma omp simd reduction(+ : s)
        for (int l = 0; l < LANES; l++) s += lane[i * LANES + l];
        sum[i] = s;
    }
}
KOLO_WIDE(fold_rows, (const float *lane, float *sum, int64_t n), (lane, sum, n))

/* ---- vectors of outputs: lane[(16 outputs), c, kh, kw][16] --------------------------------------------- */

KOLO_ALWAYS void output_taps(const product *p, const float *x, const float *dy, float *lane, int high,
                             int taps)
{
    kolo_v16 acc[3][KOLO_SMALL_KERNEL];
    for (int h = 0; h < high; h++)
        for (int k = 0; k < taps; k++) acc[h][k] = *(const kolo_v16 *)(lane + (h * taps + k) * LANES);
    for (int64_t i = 0; i < p->height; i++)
        for (int64_t j = 0; j < p->width; j++) {
            const kolo_v16 d = *(const kolo_v16 *)(dy + (i * p->width + j) * LANES);
            const float *at = x + i * p->x.stride + j;
            for (int h = 0; h < high; h++)
                for (int k = 0; k < taps; k++) acc[h][k] += d * at[h * p->x.stride + k];
        }
    for (int h = 0; h < high; h++)
        for (int k = 0; k < taps; k++) *(kolo_v16 *)(lane + (h * taps + k) * LANES) = acc[h][k];
}

KOLO_ALWAYS void output_rows(const product *p, const float *x, const float *dy, float *lane, int high){
#define CALL(n) output_taps(p, x, dy, lane, high, n)
    FOR_TAPS(p->kw, CALL)
#undef CALL
}

KOLO_BODY by_outputs_body(const product *p, const float *x, const float *dy, float *lane)
{
    int64_t row = p->kw * LANES;
    for (int64_t o = 0; o < p->out; o += LANES, dy += p->height * p->width * LANES)
        for (int64_t c = 0; c < p->in; c++)
            for (int64_t kh = 0; kh < p->kh;) {
                const float *xr = x + c * p->x.plane + kh * p->x.stride;
                int64_t high = p->kh - kh < 3 ? p->kh - kh : 3;
                if (high == 3) output_rows(p, xr, dy, lane, 3);
                else if (high == 2) output_rows(p, xr, dy, lane, 2);
                else output_rows(p, xr, dy, lane, 1);
                lane += high * row;
                kh += high;
            }
}
KOLO_WIDE(by_outputs, (const product *p, const float *x, const float *dy, float *lane), (p, x, dy, lane))

/* (O, pixels) -> [16 outputs][pixel][16]; lanes beyond O are zero. */
static void gather_outputs(const product *p, float *to, const float *dy)
{
    int64_t pixels = p->height * p->width;
    for (int64_t o = 0; o < p->out; o++)
        for (int64_t i = 0; i < pixels; i++)
            to[(o / LANES * pixels + i) * LANES + o % LANES] = dy[o * pixels + i];
}

/* ---- all ----------------------------------------------------------------------------------------------- */

KOLO_BODY total_body(const float *x, int64_t n, float *sum)
{
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += x[i];
    *sum = s;
}
KOLO_WIDE(total, (const float *x, int64_t n, float *sum), (x, n, sum))

static product product_of(const kolo_conv_small *s)
{
    product p = {.in = s->in,
                 .out = s->out,
                 .height = s->out_height,
                 .width = s->out_width,
                 .kh = s->kernel[0],
                 .kw = s->kernel[1]};
    p.x = kolo_border(s->in, s->out_height + s->kernel[0] - 1, kolo_round16(s->out_width) + s->kernel[1]);
    p.dy = kolo_border(s->out, s->out_height, s->out_width);
    int64_t rows = s->out * kolo_round16(s->out_width), outputs = kolo_round16(s->out) * s->out_width;
    p.by_outputs = outputs < 2 * rows; /* rows pay for reads that cross cache lines */
    return p;
}

static int64_t taps_of(const product *p) { return p->in * p->kh * p->kw; }
static int64_t lanes_floats(const product *p)
{
    return (p->by_outputs ? kolo_round16(p->out) : p->out * LANES) * taps_of(p);
}
static int64_t dy_floats(const product *p)
{
    return p->by_outputs ? kolo_round16(p->out) * p->height * p->width : kolo_bordered_floats(&p->dy);
}
static int64_t thread_floats(const product *p)
{
    return kolo_bordered_floats(&p->x) + dy_floats(p) + lanes_floats(p);
}
static int64_t group_floats(const product *p) { return kolo_round16(p->out * taps_of(p) + p->out); }

static void fold_lanes(const product *p, const float *lane, float *sum)
{
    int64_t taps = taps_of(p);
    if (!p->by_outputs) fold_rows(lane, sum, p->out * taps);
    for (int64_t o = 0; p->by_outputs && o < p->out; o++)
        for (int64_t i = 0; i < taps; i++)
            sum[o * taps + i] = lane[(o / LANES * taps + i) * LANES + o % LANES];
}

/* Samples [begin, end): their part of dw into sum, of dbias behind it. own: this thread's space, zeroed
 * once. */
static void multiply_group(const kolo_conv_small *s, const product *p, const float *x, const float *dy,
                           int64_t begin, int64_t end, float *own, float *sum)
{
    float *xs = own, *ds = xs + kolo_bordered_floats(&p->x), *lane = ds + dy_floats(p),
          *bias = sum + p->out * taps_of(p);
    int64_t pixels = p->height * p->width;
    memset(lane, 0, (size_t)lanes_floats(p) * sizeof *lane);
    memset(bias, 0, (size_t)p->out * sizeof *bias);
    for (int64_t n = begin; n < end; n++) {
        const float *d = dy + n * p->out * pixels;
        kolo_bordered_copy(&p->x, xs, x + n * s->in * s->height * s->width, s->height, s->width, s->pad[0],
                           s->pad[1]);
        if (p->by_outputs) {
            gather_outputs(p, ds, d);
            by_outputs(p, xs, ds, lane);
        } else {
            kolo_bordered_copy(&p->dy, ds, d, p->height, p->width, 0, 0);
            by_rows(p, xs, ds, lane);
        }
        for (int64_t o = 0; o < p->out; o++) {
            float t;
            total(d + o * pixels, pixels, &t);
            bias[o] += t;
        }
    }
    fold_lanes(p, lane, sum);
}

void kolo_conv_small_weight(const kolo_conv_small *s, const float *x, float *dw, float *dbias,
                            const float *dy, void *workspace)
{
    product p = product_of(s);
    int64_t each = group_floats(&p), size = thread_floats(&p), weights = p.out * taps_of(&p);
    float *sums = workspace, *space = sums + GROUPS * each;
#pragma omp parallel num_threads(s->threads)
    {
        float *own = space + omp_get_thread_num() * size;
        memset(own, 0, (size_t)(kolo_bordered_floats(&p.x) + dy_floats(&p)) * sizeof *own);
#pragma omp for schedule(static)
        for (int64_t g = 0; g < GROUPS; g++) /* fixed groups: the sum does not depend on the threads */
            multiply_group(s, &p, x, dy, s->rows * g / GROUPS, s->rows * (g + 1) / GROUPS, own,
                           sums + g * each);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < weights + p.out; i++) {
            float t = 0;
            for (int g = 0; g < GROUPS; g++) t += sums[g * each + i];
            if (i < weights) dw[i] = t;
            else if (dbias) dbias[i - weights] = t;
        }
    }
}

size_t kolo_conv_small_weight_bytes(const kolo_conv_small *s)
{
    product p = product_of(s);
    return (size_t)(GROUPS * group_floats(&p) + s->threads * thread_floats(&p)) * sizeof(float);
}
