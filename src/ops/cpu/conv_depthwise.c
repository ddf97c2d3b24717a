#include "ops/cpu/conv_depthwise.h"

#include <omp.h>
#include <string.h>

#include "base/memory.h"
#include "ops/cpu/access.h"
#include "ops/cpu/columns.h"

/* channels of a vector, pixels computed at once, most partial sums of a weight */
enum { LANES = 16, TILE = 8, PARTS = 32 };

/* ---- rows of maps -------------------------------------------------------------------------------------- */

/* 16 channels of a map of one row of the batch: they lie in one block or in two, `lanes` in each. */
typedef struct group {
    const char *at[2];
    int segments, lanes[2];
    int64_t step; /* elements from pixel to pixel */
    bool bf16;
} group;

static group group_of(const kolo_view *v, const void *base, int64_t row, int64_t chunk)
{
    group g = {.step = v->block, .bf16 = v->bf16};
    for (int64_t c = chunk * LANES; c < (chunk + 1) * LANES && c < v->blocks * v->block;
         c += g.lanes[g.segments++]) {
        int64_t block = c / v->block, lane = c % v->block, rest = v->block - lane,
                left = (chunk + 1) * LANES - c;
        g.at[g.segments] = kolo_at(base, (row * v->blocks + block) * kolo_view_plane(v) + lane, v->bf16);
        g.lanes[g.segments] = (int)(rest < left ? rest : left);
    }
    return g;
}

/* Pixels first .. first + count - 1 of a group to `to`, whose pixels lie `spread` vectors apart. */
KOLO_ALWAYS void load_pixels(float *to, const group *g, int64_t first, int64_t count, int64_t spread,
                             bool bf16)
{
    for (int s = 0, lane = 0; s < g->segments; lane += g->lanes[s++]) {
        const void *from = kolo_at(g->at[s], first * g->step, bf16);
        const int64_t step = g->step, n = g->lanes[s];
        if (n == LANES) {
            for (int64_t i = 0; i < count; i++)
                kolo_load16((kolo_v16 *)(to + i * spread * LANES), from, i * step, bf16);
            continue;
        }
        for (int64_t i = 0; i < count; i++)
            for (int64_t l = 0; l < n; l++)
                to[i * spread * LANES + lane + l] = kolo_load(from, i * step + l, bf16);
    }
}

KOLO_ALWAYS void store_pixels(const group *g, const float *from, int64_t first, int64_t count, bool bf16)
{
    for (int s = 0, lane = 0; s < g->segments; lane += g->lanes[s++]) {
        void *to = (void *)kolo_at(g->at[s], first * g->step, bf16);
        const int64_t step = g->step, n = g->lanes[s];
        if (n == LANES)
            for (int64_t i = 0; i < count; i++) {
#pragma omp simd
                for (int64_t l = 0; l < LANES; l++) kolo_store(to, i * step + l, from[i * LANES + l], bf16);
            }
        else
            for (int64_t i = 0; i < count; i++)
                for (int64_t l = 0; l < n; l++)
                    kolo_store(to, i * step + l, from[i * LANES + lane + l], bf16);
    }
}

KOLO_BODY load_body(float *to, const group *g, int64_t first, int64_t count, int64_t spread)
{
    KOLO_FOR_TYPE(g->bf16, load_pixels(to, g, first, count, spread, bf16_));
}
KOLO_BODY store_body(const group *g, const float *from, int64_t first, int64_t count)
{
    KOLO_FOR_TYPE(g->bf16, store_pixels(g, from, first, count, bf16_));
}
KOLO_WIDE(load, (float *to, const group *g, int64_t first, int64_t count, int64_t spread),
          (to, g, first, count, spread))
KOLO_WIDE(store, (const group *g, const float *from, int64_t first, int64_t count), (g, from, first, count))

/* ---- one output row ------------------------------------------------------------------------------------ */

/* A pass as a convolution of `in` by rows; the gradient of the data is one of stride 1 over dy,
 * spread by the stride. */
typedef struct pass {
    const kolo_view *in, *out;
    int64_t kernel[2], dilation[2], stride[2], pad[2], spread[2];
    int64_t span, width, tiles; /* rows of the ring; pixels of one; tiles of an output row */
    int64_t chunks, taps;
    int threads;
} pass;

typedef struct row_job {
    const float *const *row; /* [KH] */
    const float *w;          /* [taps][LANES] */
    float *out;              /* forward: the row; weight: sums [taps + 1][LANES] */
    const float *bias, *dy;
    int64_t tiles, kernel[2], stride, dilation;
} row_job;

KOLO_ALWAYS void forward_row(const row_job *j, int64_t kw_count, int64_t stride, int64_t dilation)
{
    const kolo_v16 bias = *(const kolo_v16 *)j->bias;
    for (int64_t tile = 0; tile < j->tiles; tile++) {
        kolo_v16 sum[TILE];
        for (int t = 0; t < TILE; t++) sum[t] = bias;
        const float *w = j->w;
        for (int64_t kh = 0; kh < j->kernel[0]; kh++) {
            const float *x = j->row[kh] + tile * TILE * stride * LANES;
            for (int64_t kw = 0; kw < kw_count; kw++, w += LANES) {
                const kolo_v16 weight = *(const kolo_v16 *)w;
                for (int t = 0; t < TILE; t++)
                    sum[t] += weight * *(const kolo_v16 *)(x + (t * stride + kw * dilation) * LANES);
            }
        }
        for (int t = 0; t < TILE; t++) *(kolo_v16 *)(j->out + (tile * TILE + t) * LANES) = sum[t];
    }
}

KOLO_BODY forward_body(const row_job *j)
{
    const int64_t kw = j->kernel[1], unit = j->stride == 1 && j->dilation == 1;
    if (unit && kw == 3) forward_row(j, 3, 1, 1);
    else if (unit && kw == 5) forward_row(j, 5, 1, 1);
    else if (unit && kw == 7) forward_row(j, 7, 1, 1);
    else forward_row(j, kw, j->stride, j->dilation);
}
KOLO_WIDE(forward, (const row_job *j), (j))

/* Taps kw .. kw + n - 1 of one row of the kernel, two pixels at a time; the sums of this row are
 * added to those before. */
KOLO_ALWAYS void weight_taps(const row_job *j, const float *x, float *out, int64_t n, int64_t stride,
                             int64_t dilation)
{
    kolo_v16 sum[2][7];
    for (int64_t k = 0; k < n; k++) sum[0][k] = sum[1][k] = (kolo_v16){0};
    for (int64_t i = 0; i < j->tiles * TILE; i += 2)
        for (int u = 0; u < 2; u++) {
            const kolo_v16 d = *(const kolo_v16 *)(j->dy + (i + u) * LANES);
            const float *at = x + (i + u) * stride * LANES;
            for (int64_t k = 0; k < n; k++) sum[u][k] += d * *(const kolo_v16 *)(at + k * dilation * LANES);
        }
    for (int64_t k = 0; k < n; k++) *(kolo_v16 *)(out + k * LANES) += sum[0][k] + sum[1][k];
}

KOLO_ALWAYS void weight_row(const row_job *j, int64_t taps, int64_t stride, int64_t dilation)
{
    for (int64_t kh = 0; kh < j->kernel[0]; kh++)
        weight_taps(j, j->row[kh], j->out + kh * taps * LANES, taps, stride, dilation);
}

KOLO_BODY weight_body(const row_job *j)
{
    const int64_t kw = j->kernel[1], unit = j->stride == 1 && j->dilation == 1;
    if (unit && kw == 3) weight_row(j, 3, 1, 1);
    else if (unit && kw == 5) weight_row(j, 5, 1, 1);
    else if (unit && kw == 7) weight_row(j, 7, 1, 1);
    else
        for (int64_t kh = 0; kh < j->kernel[0]; kh++)
            for (int64_t k = 0; k < kw; k++)
                weight_taps(j, j->row[kh] + k * j->dilation * LANES, j->out + (kh * kw + k) * LANES, 1,
                            j->stride, 1);
    kolo_v16 sum = {0};
    for (int64_t i = 0; i < j->tiles * TILE; i++) sum += *(const kolo_v16 *)(j->dy + i * LANES);
    *(kolo_v16 *)(j->out + j->kernel[0] * kw * LANES) += sum;
}
KOLO_WIDE(weight, (const row_job *j), (j))

/* ---- passes -------------------------------------------------------------------------------------------- */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static pass pass_of(const kolo_conv_depthwise *s, bool data)
{
    pass p = {.in = data ? &s->y : &s->x, .out = data ? &s->x : &s->y, .threads = s->threads};
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = s->kernel[i];
        p.dilation[i] = s->dilation[i];
        p.stride[i] = data ? 1 : s->stride[i];
        p.spread[i] = data ? s->stride[i] : 1;
        p.pad[i] = data ? s->dilation[i] * (s->kernel[i] - 1) - s->pad[i] : s->pad[i];
    }
    p.span = (p.kernel[0] - 1) * p.dilation[0] + 1;
    p.tiles = (p.out->width + TILE - 1) / TILE;
    p.width = larger((p.tiles * TILE - 1) * p.stride[1] + (p.kernel[1] - 1) * p.dilation[1] + 1,
                     p.pad[1] + (p.in->width - 1) * p.spread[1] + 1);
    p.chunks = (s->x.channels + LANES - 1) / LANES;
    p.taps = p.kernel[0] * p.kernel[1];
    return p;
}

bool kolo_conv_depthwise_fits(const kolo_conv_depthwise *s)
{
    for (int i = 0; i < 2; i++)
        if (s->dilation[i] * (s->kernel[i] - 1) < s->pad[i]) return false;
    int64_t b = s->x.block;
    return s->kernel[0] <= 64 && s->x.channels == s->y.channels && b == s->y.block && b >= 8 &&
           (b == 8 || b == 16 || b == s->x.channels);
}

/* Rows of maps as a thread sees them: the ring, a row of zeros, one of dy or of the result. */
typedef struct rows {
    float *ring, *zero, *line;
    const float *row[64]; /* of the window; greatest kernel */
    int64_t next;         /* first row of the map that has not been loaded */
} rows;

static int64_t rows_floats(const pass *p) { return ((p->span + 1) * p->width + p->tiles * TILE) * LANES; }

static rows rows_at(const pass *p, float *space)
{
    memset(space, 0, (size_t)rows_floats(p) * sizeof *space);
    rows r = {.ring = space, .zero = space + p->span * p->width * LANES};
    r.line = r.zero + p->width * LANES;
    return r;
}

/* Makes the window of output row `oh` whole: loads the rows that were not there yet. */
static void enter_row(const pass *p, rows *r, const group *in, int64_t oh)
{
    int64_t first = oh * p->stride[0] - p->pad[0];
    if (oh == 0) r->next = first;
    if (r->next < first) r->next = first; /* a stride greater than the kernel */
    for (; r->next < first + p->span; r->next++) {
        int64_t source = r->next / p->spread[0];
        if (r->next < 0 || r->next % p->spread[0] || source >= p->in->height) continue;
        float *to = r->ring + (r->next % p->span * p->width + p->pad[1]) * LANES;
        load(to, in, source * p->in->width, p->in->width, p->spread[1]);
    }
    for (int64_t k = 0; k < p->kernel[0]; k++) {
        int64_t ih = first + k * p->dilation[0], source = ih / p->spread[0];
        bool real = ih >= 0 && ih % p->spread[0] == 0 && source < p->in->height;
        r->row[k] = real ? r->ring + ih % p->span * p->width * LANES : r->zero;
    }
}

static row_job job_of(const pass *p, const rows *r)
{
    row_job j = {.row = r->row, .tiles = p->tiles, .stride = p->stride[1], .dilation = p->dilation[1]};
    memcpy(j.kernel, p->kernel, sizeof j.kernel);
    return j;
}

/* w (C, taps) as [chunk][taps + 1][LANES], behind the taps the bias; flip: taps in reverse order. */
static void spread_weights(const pass *p, float *to, const float *w, const float *bias, int64_t channels,
                           bool flip)
{
    memset(to, 0, (size_t)(p->chunks * (p->taps + 1) * LANES) * sizeof *to);
    for (int64_t c = 0; c < channels; c++) {
        float *at = to + c / LANES * (p->taps + 1) * LANES + c % LANES;
        for (int64_t t = 0; t < p->taps; t++) at[t * LANES] = w[c * p->taps + (flip ? p->taps - 1 - t : t)];
        if (bias) at[p->taps * LANES] = bias[c];
    }
}

static int64_t weights_floats(const pass *p) { return p->chunks * (p->taps + 1) * LANES; }

static void convolve(const pass *p, const void *in, const float *w, const float *bias, void *out, bool flip,
                     float *space)
{
    const float *weights = space;
    spread_weights(p, space, w, bias, p->in->channels, flip);
    space += weights_floats(p);
#pragma omp parallel num_threads(p->threads)
    {
        rows r = rows_at(p, space + omp_get_thread_num() * rows_floats(p));
#pragma omp for schedule(static)
        for (int64_t t = 0; t < p->in->rows * p->chunks; t++) {
            int64_t n = t / p->chunks, chunk = t % p->chunks;
            group from = group_of(p->in, in, n, chunk), to = group_of(p->out, out, n, chunk);
            row_job j = job_of(p, &r);
            j.w = weights + chunk * (p->taps + 1) * LANES;
            j.bias = j.w + p->taps * LANES;
            j.out = r.line;
            for (int64_t oh = 0; oh < p->out->height; oh++) {
                enter_row(p, &r, &from, oh);
                forward(&j);
                store(&to, r.line, oh * p->out->width, p->out->width);
            }
        }
    }
}

void kolo_conv_depthwise_forward(const kolo_conv_depthwise *s, const void *x, const float *w,
                                 const float *bias, void *y, void *workspace)
{
    pass p = pass_of(s, false);
    convolve(&p, x, w, bias, y, false, workspace);
}

void kolo_conv_depthwise_data(const kolo_conv_depthwise *s, void *dx, const float *w, const void *dy,
                              void *workspace)
{
    pass p = pass_of(s, true);
    convolve(&p, dy, w, NULL, dx, true, workspace);
}

/* Rows of the batch that share a partial sum: by shape alone. */
static int64_t rows_of_part(const pass *p) { return (p->in->rows + PARTS - 1) / PARTS; }
static int64_t parts_of(const pass *p) { return (p->in->rows + rows_of_part(p) - 1) / rows_of_part(p); }

/* Sums of part `part`, chunk `chunk`: [taps + 1][LANES], behind the taps the bias. */
static void sum_part(const pass *p, rows *r, const void *x, const void *dy, int64_t part, int64_t chunk,
                     float *sums)
{
    int64_t first = part * rows_of_part(p), end = first + rows_of_part(p);
    row_job j = job_of(p, r);
    j.dy = r->line;
    j.out = sums;
    memset(sums, 0, (size_t)((p->taps + 1) * LANES) * sizeof *sums);
    for (int64_t n = first; n < end && n < p->in->rows; n++) {
        group from = group_of(p->in, x, n, chunk), slope = group_of(p->out, dy, n, chunk);
        for (int64_t oh = 0; oh < p->out->height; oh++) {
            enter_row(p, r, &from, oh);
            load(r->line, &slope, oh * p->out->width, p->out->width, 1);
            weight(&j);
        }
    }
}

void kolo_conv_depthwise_weight(const kolo_conv_depthwise *s, const void *x, float *dw, float *dbias,
                                const void *dy, void *workspace)
{
    pass p = pass_of(s, false);
    int64_t parts = parts_of(&p), channels = s->x.channels, size = weights_floats(&p);
    float *sums = workspace, *all = sums + size, *space = all + parts * size;
#pragma omp parallel num_threads(p.threads)
    {
        rows r = rows_at(&p, space + omp_get_thread_num() * rows_floats(&p));
#pragma omp for schedule(static)
        for (int64_t t = 0; t < parts * p.chunks; t++)
            sum_part(&p, &r, x, dy, t / p.chunks, t % p.chunks, all + t * (p.taps + 1) * LANES);
    }
    kolo_columns_fold(sums, all, parts, size, size, p.threads);
    for (int64_t c = 0; c < channels; c++) {
        const float *from = sums + c / LANES * (p.taps + 1) * LANES + c % LANES;
        for (int64_t t = 0; t < p.taps; t++) dw[c * p.taps + t] = from[t * LANES];
        if (dbias) dbias[c] = from[p.taps * LANES];
    }
}

size_t kolo_conv_depthwise_bytes(const kolo_conv_depthwise *s, enum kolo_dnnl_pass kind)
{
    pass p = pass_of(s, kind == KOLO_DNNL_DATA);
    int64_t weights = kind == KOLO_DNNL_WEIGHT ? 1 + parts_of(&p) : 1;
    return (size_t)(weights * weights_floats(&p) + s->threads * rows_floats(&p)) * sizeof(float);
}
