/* Loops of batch norm over one piece of a plane. Sums are formed in f32 over blocks that stay in the
 * first-level cache (second moments about the block's own mean) and gathered in f64, so their error does not
 * grow with the plane. */
#include "ops/cpu/norm.h"

#include "ops/cpu/access.h"
#include "ops/element.h"

int64_t kolo_norm_period(int64_t block)
{
    int64_t period = block;
    while (period % 16) period += block;
    return period;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* 16 lanes over m rows that lie `period` apart. */
KOLO_ALWAYS void sum_column(const void *x, int64_t at, int64_t period, int64_t m, bool bf16, double *s1,
                            double *s2)
{
    kolo_v16 a[4] = {{0}, {0}, {0}, {0}}, v, mean, c0 = {0}, c1 = {0}, q0 = {0}, q1 = {0};
    int64_t r = 0;
    for (; r + 4 <= m; r += 4)
        for (int k = 0; k < 4; k++) {
            kolo_load16(&v, x, at + (r + k) * period, bf16);
            a[k] += v;
        }
    for (; r < m; r++) {
        kolo_load16(&v, x, at + r * period, bf16);
        a[0] += v;
    }
    mean = ((a[0] + a[1]) + (a[2] + a[3])) * (1.0f / (float)m);
    for (r = 0; r + 2 <= m; r += 2) { /* the rows behind are fetched meanwhile */
        __builtin_prefetch(kolo_at(x, at + (r + m) * period, bf16));
        __builtin_prefetch(kolo_at(x, at + (r + 1 + m) * period, bf16));
        kolo_load16(&v, x, at + r * period, bf16);
        v -= mean;
        c0 += v;
        q0 += v * v;
        kolo_load16(&v, x, at + (r + 1) * period, bf16);
        v -= mean;
        c1 += v;
        q1 += v * v;
    }
    if (r < m) {
        kolo_load16(&v, x, at + r * period, bf16);
        v -= mean;
        c0 += v;
        q0 += v * v;
    }
    c0 += c1;
    q0 += q1;
    for (int l = 0; l < 16; l++) {
        double mu = (double)mean[l], c = (double)c0[l];
        s1[l] += mu * (double)m + c;
        s2[l] += (double)q0[l] + mu * (2 * c + mu * (double)m);
    }
}

KOLO_ALWAYS void sum_all(const void *x, int64_t count, int64_t period, bool bf16, double *sum)
{
    int64_t rows = count / period, step = period == 16 ? 256 : 32;
    for (int64_t r = 0; r < rows; r += step)
        for (int64_t j = 0; j < period; j += 16)
            sum_column(x, r * period + j, period, rows - r < step ? rows - r : step, bf16, sum + j,
                       sum + period + j);
    for (int64_t i = rows * period; i < count; i++) {
        double v = (double)kolo_load(x, i, bf16);
        sum[i - rows * period] += v;
        sum[period + i - rows * period] += v * v;
    }
}

#define FOR_PERIOD_AND_TYPE(call_16_f32, call_16_bf16, call_f32, call_bf16) \
    do {                                                                    \
        if (period == 16 && !bf16) call_16_f32;                             \
        else if (period == 16) call_16_bf16;                                \
        else if (!bf16) call_f32;                                           \
        else call_bf16;                                                     \
    } while (0)

KOLO_BODY sum_body(const void *x, int64_t count, int64_t period, bool bf16, double *sum)
{
    FOR_PERIOD_AND_TYPE(sum_all(x, count, 16, false, sum), sum_all(x, count, 16, true, sum),
                        sum_all(x, count, period, false, sum), sum_all(x, count, period, true, sum));
}
KOLO_WIDE(sum, (const void *x, int64_t count, int64_t period, bool bf16, double *out),
          (x, count, period, bf16, out))

void kolo_norm_sum(const void *x, int64_t count, int64_t period, bool bf16, double *out)
{
    sum(x, count, period, bf16, out);
}

/* How the sign of the relu is known. */
enum sign { ANY, FROM_Y, FROM_X, FROM_BITS };
static enum sign sign_of(const kolo_norm_source *s)
{
    return !s->relu ? ANY : s->signs ? FROM_BITS : s->y ? FROM_Y : FROM_X;
}

KOLO_ALWAYS float signed1(const uint16_t *signs, int64_t i, float g)
{
    return signs[i >> 4] >> (i & 15) & 1 ? g : 0.0f;
}

KOLO_BODY signs_body(uint16_t *signs, const void *y, int64_t count, bool bf16)
{
    for (int64_t i = 0; i < count; i += 16) {
        const int64_t n = count - i < 16 ? count - i : 16;
        uint32_t word = 0;
        for (int64_t j = 0; j < n; j++) word |= (uint32_t)(kolo_load(y, i + j, bf16) > 0.0f) << j;
        signs[i >> 4] = (uint16_t)word;
    }
}
KOLO_WIDE(signs, (uint16_t * to, const void *y, int64_t count, bool bf16), (to, y, count, bf16))

void kolo_norm_signs(uint16_t *to, const void *y, int64_t count, bool bf16) { signs(to, y, count, bf16); }

typedef struct sum_lanes {
    kolo_v16 mean, scale, bias;
} sum_lanes;

/* 16 lanes of one row, added to the sums of g and g (x - mean). */
KOLO_ALWAYS void add_row(const kolo_norm_source *s, int64_t i, bool bf16, enum sign sign,
                         const sum_lanes *lanes, kolo_v16 *sum_g, kolo_v16 *sum_gx)
{
    kolo_v16 g, v, y;
    kolo_load16(&g, s->dy, i, bf16);
    kolo_load16(&v, s->x, i, bf16);
    v -= lanes->mean;
    if (sign == FROM_Y) kolo_load16(&y, s->y, i, bf16);
    if (sign == FROM_X) y = v * lanes->scale + lanes->bias;
    if (sign == FROM_BITS) {
        const kolo_u16x32 bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
        g = (kolo_v16)((kolo_u16x32)g & (kolo_u16x32)((bit & s->signs[i >> 4]) != 0));
    } else if (sign != ANY) {
        g = (kolo_v16)((kolo_u16x32)g & (kolo_u16x32)(y > 0.0f));
    }
    *sum_g += g;
    *sum_gx += g * v;
}

KOLO_ALWAYS void grad_column(const kolo_norm_source *s, int64_t at, int64_t period, int64_t m, bool bf16,
                             enum sign sign, const kolo_norm_lanes *lanes, int64_t j, double *s1, double *s2)
{
    const sum_lanes l = {*(const kolo_v16 *)(lanes->mean + j), *(const kolo_v16 *)(lanes->scale + j),
                         *(const kolo_v16 *)(lanes->bias + j)};
    kolo_v16 a0 = {0}, a1 = {0}, b0 = {0}, b1 = {0};
    int64_t r = 0;
    for (; r + 2 <= m; r += 2) {
        add_row(s, at + r * period, bf16, sign, &l, &a0, &b0);
        add_row(s, at + (r + 1) * period, bf16, sign, &l, &a1, &b1);
    }
    if (r < m) add_row(s, at + r * period, bf16, sign, &l, &a0, &b0);
    a0 += a1;
    b0 += b1;
    for (int k = 0; k < 16; k++) {
        s1[k] += (double)a0[k];
        s2[k] += (double)b0[k] * (double)lanes->inverse[j + k];
    }
}

KOLO_ALWAYS void grad_sum_all(const kolo_norm_source *s, int64_t count, int64_t period, bool bf16,
                              enum sign sign, const kolo_norm_lanes *lanes, double *sum)
{
    int64_t rows = count / period, step = period == 16 ? 64 : 32;
    for (int64_t r = 0; r < rows; r += step)
        for (int64_t j = 0; j < period; j += 16)
            grad_column(s, r * period + j, period, rows - r < step ? rows - r : step, bf16, sign, lanes, j,
                        sum + j, sum + period + j);
    for (int64_t i = rows * period; i < count; i++) {
        int64_t l = i - rows * period;
        float g = kolo_load(s->dy, i, bf16), v = kolo_load(s->x, i, bf16);
        if (sign == FROM_Y) g = kolo_relu_grad1(g, kolo_load(s->y, i, bf16));
        if (sign == FROM_BITS) g = signed1(s->signs, i, g);
        if (sign == FROM_X)
            g = kolo_relu_grad1(g, kolo_norm1(v, lanes->mean[l], lanes->scale[l], lanes->bias[l]));
        sum[l] += (double)g;
        sum[period + l] += (double)g * ((double)v - (double)lanes->mean[l]) * (double)lanes->inverse[l];
    }
}

KOLO_ALWAYS void grad_sum_signed(const kolo_norm_source *s, int64_t count, int64_t period, bool bf16,
                                 enum sign sign, const kolo_norm_lanes *lanes, double *sum)
{
    FOR_PERIOD_AND_TYPE(grad_sum_all(s, count, 16, false, sign, lanes, sum),
                        grad_sum_all(s, count, 16, true, sign, lanes, sum),
                        grad_sum_all(s, count, period, false, sign, lanes, sum),
                        grad_sum_all(s, count, period, true, sign, lanes, sum));
}

KOLO_BODY grad_sum_body(const kolo_norm_source *s, int64_t count, int64_t period, bool bf16,
                        const kolo_norm_lanes *lanes, double *sum)
{
    if (sign_of(s) == ANY) grad_sum_signed(s, count, period, bf16, ANY, lanes, sum);
    else if (sign_of(s) == FROM_Y) grad_sum_signed(s, count, period, bf16, FROM_Y, lanes, sum);
    else if (sign_of(s) == FROM_BITS) grad_sum_signed(s, count, period, bf16, FROM_BITS, lanes, sum);
    else grad_sum_signed(s, count, period, bf16, FROM_X, lanes, sum);
}
KOLO_WIDE(grad_sum,
          (const kolo_norm_source *s, int64_t count, int64_t period, bool bf16, const kolo_norm_lanes *lanes,
           double *out),
          (s, count, period, bf16, lanes, out))

void kolo_norm_grad_sum(const kolo_norm_source *s, int64_t count, int64_t period, bool bf16,
                        const kolo_norm_lanes *lanes, double *out)
{
    grad_sum(s, count, period, bf16, lanes, out);
}

/* ---- element by element -------------------------------------------------------------------------------- */

/* Vectors of a period of 16 are copied to where no result can lie, so that they stay in registers. */
KOLO_ALWAYS const float *keep16(float to[16], const float *from)
{
    for (int l = 0; l < 16; l++) to[l] = from[l];
    return to;
}

typedef struct forward_job {
    void *y;
    const void *x, *residual;
    const float *mean, *scale, *bias;
    const float *mean_r, *scale_r, *bias_r; /* of the residual */
} forward_job;

/* What is added. */
enum residual { NOTHING, PLAIN, NORMED };

KOLO_ALWAYS void forward_row(const forward_job *f, int64_t at, int64_t n, bool bf16, enum residual residual,
                             bool relu)
{
    const float *mean_r = f->mean_r, *scale_r = f->scale_r, *bias_r = f->bias_r;
    const float *mean = f->mean, *scale = f->scale, *bias = f->bias;
    const void *x = f->x, *r = f->residual;
    void *y = f->y;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float v = kolo_norm1(kolo_load(x, at + j, bf16), mean[j], scale[j], bias[j]);
        if (residual == PLAIN) v += kolo_load(r, at + j, bf16);
        if (residual == NORMED) v += kolo_norm1(kolo_load(r, at + j, bf16), mean_r[j], scale_r[j], bias_r[j]);
        kolo_store(y, at + j, relu ? kolo_relu1(v) : v, bf16);
    }
}

KOLO_ALWAYS void forward_rows(const forward_job *f, int64_t count, int64_t period, bool bf16,
                              enum residual residual, bool relu)
{
    int64_t at = 0;
    if (period == 16) {
        float own[6][16];
        forward_job near = *f;
        near.mean = keep16(own[0], f->mean), near.scale = keep16(own[1], f->scale);
        near.bias = keep16(own[2], f->bias);
        if (residual == NORMED) {
            near.mean_r = keep16(own[3], f->mean_r), near.scale_r = keep16(own[4], f->scale_r);
            near.bias_r = keep16(own[5], f->bias_r);
        }
        for (; at + 16 <= count; at += 16) forward_row(&near, at, 16, bf16, residual, relu);
    }
    for (; at + period <= count; at += period) forward_row(f, at, period, bf16, residual, relu);
    forward_row(f, at, count - at, bf16, residual, relu);
}

KOLO_BODY forward_body(const forward_job *f, int64_t count, int64_t period, bool bf16, bool relu)
{
    if (f->mean_r) KOLO_FOR_TYPE(bf16, forward_rows(f, count, period, bf16_, NORMED, true));
    else if (f->residual && relu) KOLO_FOR_TYPE(bf16, forward_rows(f, count, period, bf16_, PLAIN, true));
    else if (f->residual) KOLO_FOR_TYPE(bf16, forward_rows(f, count, period, bf16_, PLAIN, false));
    else if (relu) KOLO_FOR_TYPE(bf16, forward_rows(f, count, period, bf16_, NOTHING, true));
    else KOLO_FOR_TYPE(bf16, forward_rows(f, count, period, bf16_, NOTHING, false));
}
KOLO_WIDE(forward, (const forward_job *f, int64_t count, int64_t period, bool bf16, bool relu),
          (f, count, period, bf16, relu))

void kolo_norm_forward(void *y, const void *x, const void *residual, int64_t count, int64_t period, bool bf16,
                       bool relu, const kolo_norm_lanes *lanes, const kolo_norm_lanes *other)
{
    forward_job f = {.y = y,
                     .x = x,
                     .residual = residual,
                     .mean = lanes->mean,
                     .scale = lanes->scale,
                     .bias = lanes->bias};
    if (other) f.mean_r = other->mean, f.scale_r = other->scale, f.bias_r = other->bias;
    forward(&f, count, period, bf16, relu);
}

/* No loop of a step on a CPU: the arithmetic alone counts. */
void kolo_norm_mask(void *to, const void *dy, const void *x, const void *residual, int64_t count,
                    int64_t period, bool bf16, const kolo_norm_lanes *l, const kolo_norm_lanes *other)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t j = i % period;
        const float r = residual ? kolo_load(residual, i, bf16) : 0;
        float y = kolo_norm1(kolo_load(x, i, bf16), l->mean[j], l->scale[j], l->bias[j]);
        if (other) y += kolo_norm1(r, other->mean[j], other->scale[j], other->bias[j]);
        else y += r;
        kolo_store(to, i, kolo_relu_grad1(kolo_load(dy, i, bf16), y), bf16);
    }
}

typedef struct backward_job {
    void *dx, *dr;
    const void *dy, *x, *y;
    const uint16_t *signs;
    const float *mean, *scale, *bias, *mean_g, *slope;
} backward_job;

KOLO_ALWAYS void backward_row(const backward_job *b, int64_t at, int64_t n, bool bf16, bool residual,
                              enum sign sign)
{
    const float *mean = b->mean, *scale = b->scale, *bias = b->bias, *mean_g = b->mean_g, *slope = b->slope;
    const void *dy = b->dy, *x = b->x, *y = b->y;
    const uint16_t *bits = b->signs;
    void *dx = b->dx, *dr = b->dr;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float g = kolo_load(dy, at + j, bf16), v = kolo_load(x, at + j, bf16);
        if (sign == FROM_Y) g = kolo_relu_grad1(g, kolo_load(y, at + j, bf16));
        if (sign == FROM_BITS) g = signed1(bits, at + j, g);
        if (sign == FROM_X) g = kolo_relu_grad1(g, kolo_norm1(v, mean[j], scale[j], bias[j]));
        if (residual) kolo_store(dr, at + j, g, bf16);
        kolo_store(dx, at + j, kolo_norm_grad1(g, v, mean[j], scale[j], mean_g[j], slope[j]), bf16);
    }
}

KOLO_ALWAYS void backward_rows(const backward_job *b, int64_t count, int64_t period, bool bf16, bool residual,
                               enum sign sign)
{
    int64_t at = 0;
    if (period == 16) {
        float own[5][16];
        backward_job near = *b;
        near.mean = keep16(own[0], b->mean), near.scale = keep16(own[1], b->scale);
        near.bias = keep16(own[2], b->bias), near.mean_g = keep16(own[3], b->mean_g);
        near.slope = keep16(own[4], b->slope);
        for (; at + 16 <= count; at += 16) backward_row(&near, at, 16, bf16, residual, sign);
    }
    for (; at + period <= count; at += period) backward_row(b, at, period, bf16, residual, sign);
    backward_row(b, at, count - at, bf16, residual, sign);
}

KOLO_BODY backward_body(const backward_job *b, int64_t count, int64_t period, bool bf16, enum sign sign)
{
    if (b->dr && sign == FROM_BITS)
        KOLO_FOR_TYPE(bf16, backward_rows(b, count, period, bf16_, true, FROM_BITS));
    else if (b->dr && sign == FROM_Y)
        KOLO_FOR_TYPE(bf16, backward_rows(b, count, period, bf16_, true, FROM_Y));
    else if (b->dr && sign == ANY) KOLO_FOR_TYPE(bf16, backward_rows(b, count, period, bf16_, true, ANY));
    else if (sign == FROM_BITS) KOLO_FOR_TYPE(bf16, backward_rows(b, count, period, bf16_, false, FROM_BITS));
    else if (sign == FROM_Y) KOLO_FOR_TYPE(bf16, backward_rows(b, count, period, bf16_, false, FROM_Y));
    else if (sign == FROM_X) KOLO_FOR_TYPE(bf16, backward_rows(b, count, period, bf16_, false, FROM_X));
    else KOLO_FOR_TYPE(bf16, backward_rows(b, count, period, bf16_, false, ANY));
}
KOLO_WIDE(backward, (const backward_job *b, int64_t count, int64_t period, bool bf16, enum sign sign),
          (b, count, period, bf16, sign))

void kolo_norm_backward(void *dx, void *dresidual, const kolo_norm_source *s, int64_t count, int64_t period,
                        bool bf16, const kolo_norm_lanes *lanes)
{
    backward_job b = {dx,          dresidual,    s->dy,       s->x,          s->y,        s->signs,
                      lanes->mean, lanes->scale, lanes->bias, lanes->mean_g, lanes->slope};
    backward(&b, count, period, bf16, sign_of(s));
}
