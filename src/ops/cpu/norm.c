/* Batch norm over N, H, W, in the parts between which the sums of several ranks may be added. Only valid
 * rows count; the others come out as zeros. Work is cut into pieces by shape alone, so sums do not depend on
 * the number of threads. */
#include "ops/cpu/norm.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/stream.h"

typedef struct norm {
    kolo_view v;
    int64_t period, piece, pieces; /* elements of a piece (a multiple of the period), pieces of a plane */
    double epsilon;
    bool relu, signs;             /* signs: the gradients read them instead of y */
    int64_t words;                /* of 16 signs, of a plane */
    int threads, inputs, outputs; /* args[inputs] is the first output */
} norm;

enum { TILE = 2048 }; /* elements */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Signs: 16 elements of a plane, in their order, to a word; planes begin with one. */
static int64_t words_of(const kolo_view *v) { return (kolo_view_plane(v) + 15) / 16; }

static int layout_signs(const kolo_kernel_request *r, kolo_layout *layout)
{
    if (!kolo_request_out(r, 2)) return 0;
    const kolo_view v = kolo_cpu_view_out(r, 0);
    layout[r->node->out[2]].bytes = (size_t)(v.rows * v.blocks * words_of(&v)) * sizeof(uint16_t);
    return 0;
}

/* input: the one whose shape is normalised */
static norm *make_norm(const kolo_kernel_request *r, kolo_kernel *k, int input)
{
    norm *n = kolo_alloc(sizeof *n);
    if (!n) return NULL;
    n->v = kolo_cpu_view_in(r, input);
    n->period = kolo_norm_period(n->v.block);
    n->piece = n->period >= 65536 ? n->period : 65536 / n->period * n->period;
    n->pieces = (kolo_view_plane(&n->v) + n->piece - 1) / n->piece;
    n->epsilon = r->node->a.epsilon;
    n->relu = r->node->a.relu;
    n->signs = input == 1 && kolo_request_in(r, 2) && kolo_request_in(r, 2)->dtype == KOLO_U8;
    n->words = words_of(&n->v);
    n->inputs = r->node->n_in;
    n->outputs = r->node->n_out;
    n->threads = kolo_cpu_threads(r->backend, kolo_view_count(&n->v));
    k->state = n;
    k->release = free;
    snprintf(k->name, sizeof k->name, "own period %ld%s", (long)n->period, n->v.bf16 ? " bf16" : "");
    return n;
}

static int64_t tasks_of(const norm *n, int64_t rows) { return rows * n->v.blocks * n->pieces; }
static int64_t valid_rows(const norm *n, const kolo_step *step, int slot)
{
    return smaller(n->v.rows, step->valid[slot]);
}

typedef struct piece {
    int64_t row, block, at, count;
    int64_t word; /* of the signs */
} piece;          /* at: element of the whole tensor */

static piece piece_of(const norm *n, int64_t task)
{
    int64_t plane = task / n->pieces, first = task % n->pieces * n->piece, size = kolo_view_plane(&n->v);
    piece p = {plane / n->v.blocks, plane % n->v.blocks, plane * size + first,
               smaller(n->piece, size - first), plane * n->words + first / 16};
    return p;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* Workspace of the sums: for each thread [2][period], for each piece [2][block]. */
static size_t sum_bytes(const norm *n)
{
    return sizeof(double) * 2 *
           ((size_t)n->threads * (size_t)n->period + (size_t)tasks_of(n, n->v.rows) * (size_t)n->v.block);
}

/* Lanes of the same channel are added in their order. */
static void fold_lanes(const norm *n, const double *lane, double *part)
{
    int64_t block = n->v.block;
    for (int k = 0; k < 2; k++)
        for (int64_t c = 0; c < block; c++) {
            double s = 0;
            for (int64_t l = c; l < n->period; l += block) s += lane[k * n->period + l];
            part[k * block + c] = s;
        }
}

/* Sums of channel c over rows and pieces, in their order. */
static void fold_parts(const norm *n, const double *part, int64_t rows, int64_t c, double *first,
                       double *second)
{
    int64_t block = n->v.block, b = c / block, lane = c % block;
    double s[2] = {0, 0};
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < n->pieces; i++) {
            const double *p = part + ((row * n->v.blocks + b) * n->pieces + i) * 2 * block;
            s[0] += p[lane];
            s[1] += p[block + lane];
        }
    *first = s[0];
    *second = s[1];
}

/* in: x; out: sums */
static int run_stats(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                     int slot)
{
    const norm *n = k->state;
    int64_t rows = valid_rows(n, step, slot), tasks = tasks_of(n, rows), period = n->period,
            channels = n->v.channels;
    double *lanes = workspace, *parts = lanes + n->threads * 2 * period, *sums = args[1];
#pragma omp parallel num_threads(n->threads)
    {
        double *lane = lanes + omp_get_thread_num() * 2 * period;
#pragma omp for schedule(static)
        for (int64_t t = 0; t < tasks; t++) {
            piece p = piece_of(n, t);
            memset(lane, 0, (size_t)(2 * period) * sizeof *lane);
            kolo_norm_sum(kolo_at(args[0], p.at, n->v.bf16), p.count, period, n->v.bf16, lane);
            fold_lanes(n, lane, parts + t * 2 * n->v.block);
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < channels; c++) fold_parts(n, parts, rows, c, &sums[c], &sums[channels + c]);
    }
    sums[2 * channels] = (double)rows * (double)n->v.pixels;
    return 0;
}

static int prepare_stats(const kolo_kernel_request *r, kolo_kernel *k)
{
    norm *n = make_norm(r, k, 0);
    if (!n) return KOLO_ENOMEM;
    k->run = run_stats;
    k->workspace = sum_bytes(n);
    return 0;
}
const kolo_op_row kolo_cpu_norm_stats = {NULL, prepare_stats};

typedef struct moments {
    double mean, variance, deviation_inverse, count;
} moments;

static moments moments_of(const norm *n, const double *sums, int64_t c)
{
    int64_t channels = n->v.channels;
    moments m = {.count = sums[2 * channels]};
    if (m.count > 0) {
        m.mean = sums[c] / m.count;
        m.variance = fmax(0, sums[channels + c] / m.count - m.mean * m.mean);
    }
    m.deviation_inverse = 1 / sqrt(m.variance + n->epsilon);
    return m;
}

/* Vectors of one value per channel; forward has the first three, the sums of the gradient the first four. */
enum {
    MEAN,
    SCALE,
    BIAS,
    INVERSE,
    MEAN_G = INVERSE,
    SLOPE,
    FORWARD_VECTORS = 3,
    SUM_VECTORS = 4,
    BACKWARD_VECTORS = 5
};

/* Spread vectors: `which` of several [blocks][period]. */
static float *lanes_at(const norm *n, void *workspace, int which, int64_t block)
{
    return (float *)workspace + ((int64_t)which * n->v.blocks + block) * n->period;
}
static size_t lanes_bytes(const norm *n, int vectors)
{
    return sizeof(float) * (size_t)vectors * (size_t)(n->v.blocks * n->period);
}

/* The value of channel c at every lane that belongs to it. */
static void spread(const norm *n, void *workspace, int which, int64_t c, float value)
{
    float *lane = lanes_at(n, workspace, which, c / n->v.block);
    for (int64_t l = c % n->v.block; l < n->period; l += n->v.block) lane[l] = value;
}

static kolo_norm_lanes lanes_of(const norm *n, void *workspace, int64_t block)
{
    kolo_norm_lanes lanes = {lanes_at(n, workspace, MEAN, block),  lanes_at(n, workspace, SCALE, block),
                             lanes_at(n, workspace, BIAS, block),  lanes_at(n, workspace, MEAN_G, block),
                             lanes_at(n, workspace, SLOPE, block), lanes_at(n, workspace, INVERSE, block)};
    return lanes;
}

/* What the gradients' loops read of piece p; y may be NULL. */
static kolo_norm_source source_of(const norm *n, void *const *args, const piece *p)
{
    const bool bf16 = n->v.bf16;
    kolo_norm_source s = {
        .dy = kolo_at(args[0], p->at, bf16), .x = kolo_at(args[1], p->at, bf16), .relu = n->relu};
    if (n->signs) s.signs = (const uint16_t *)args[2] + p->word;
    else if (args[2]) s.y = kolo_at(args[2], p->at, bf16);
    return s;
}

/* Channels beyond the last one, which the last block has: scale and bias 0 make them 0. */
static int64_t padded_channels(const norm *n) { return n->v.blocks * n->v.block; }

static void spread_norm(const norm *n, void *workspace, int64_t c, const double *sums, const float *w,
                        const float *b)
{
    moments m = {0};
    bool real = c < n->v.channels;
    if (real) m = moments_of(n, sums, c);
    spread(n, workspace, MEAN, c, (float)m.mean);
    spread(n, workspace, SCALE, c, real ? (float)(m.deviation_inverse * (double)w[c]) : 0);
    spread(n, workspace, BIAS, c, real ? b[c] : 0);
}

/* in: dy, x, y, sums, w, b; out: dsums, dw, db */
static int run_grad_stats(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    const norm *n = k->state;
    const bool bf16 = n->v.bf16;
    int64_t rows = valid_rows(n, step, slot), tasks = tasks_of(n, rows), period = n->period,
            channels = n->v.channels;
    double *lanes = workspace, *parts = lanes + n->threads * 2 * period, *dsums = args[n->inputs];
    void *spread_space = (char *)workspace + sum_bytes(n);
    float *dw = args[n->inputs + 1], *db = args[n->inputs + 2];
#pragma omp parallel num_threads(n->threads)
    {
        double *lane = lanes + omp_get_thread_num() * 2 * period;
#pragma omp for schedule(static)
        for (int64_t c = 0; c < padded_channels(n); c++) {
            spread_norm(n, spread_space, c, args[3], args[4], args[5]);
            spread(n, spread_space, INVERSE, c,
                   c < channels ? (float)moments_of(n, args[3], c).deviation_inverse : 0);
        }
#pragma omp for schedule(static)
        for (int64_t t = 0; t < tasks; t++) {
            piece p = piece_of(n, t);
            kolo_norm_lanes l = lanes_of(n, spread_space, p.block);
            kolo_norm_source s = source_of(n, args, &p);
            memset(lane, 0, (size_t)(2 * period) * sizeof *lane);
            kolo_norm_grad_sum(&s, p.count, period, bf16, &l, lane);
            fold_lanes(n, lane, parts + t * 2 * n->v.block);
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < channels; c++) {
            fold_parts(n, parts, rows, c, &dsums[c], &dsums[channels + c]);
            db[c] = (float)dsums[c];
            dw[c] = (float)dsums[channels + c];
        }
    }
    return 0;
}

static int prepare_grad_stats(const kolo_kernel_request *r, kolo_kernel *k)
{
    norm *n = make_norm(r, k, 1);
    if (!n) return KOLO_ENOMEM;
    k->run = run_grad_stats;
    k->workspace = sum_bytes(n) + lanes_bytes(n, SUM_VECTORS);
    return 0;
}
const kolo_op_row kolo_cpu_norm_grad_stats = {NULL, prepare_grad_stats};

/* ---- forward ------------------------------------------------------------------------------------------- */

/* A piece of y, through a tile in the first-level cache if y is large and no memory that was just read. */
static void forward_piece(const norm *n, char *y, const char *x, const char *residual, int64_t count,
                          const kolo_norm_lanes *l, const kolo_norm_lanes *other, bool stream)
{
    const bool bf16 = n->v.bf16;
    size_t element = bf16 ? 2 : 4;
    int64_t tile = TILE / n->period * n->period;
    _Alignas(64) float space[TILE];
    if (!stream || !tile) {
        kolo_norm_forward(y, x, residual, count, n->period, bf16, n->relu, l, other);
        return;
    }
    for (int64_t i = 0; i < count; i += tile) {
        int64_t m = smaller(tile, count - i);
        size_t at = (size_t)i * element;
        kolo_norm_forward(space, x + at, residual ? residual + at : NULL, m, n->period, bf16, n->relu, l,
                          other);
        kolo_stream_copy(y + at, space, (size_t)m * element);
    }
}

/* Rows from `rows` on are zero. signs: of y, or NULL; other_space: vectors of the residual's norm, or NULL */
static void forward_pieces(const norm *n, void *y, uint16_t *signs, const void *x, const void *residual,
                           void *spread_space, void *other_space, int64_t rows)
{
    const bool bf16 = n->v.bf16,
               stream = y != x && ((size_t)kolo_view_count(&n->v) << (bf16 ? 1 : 2)) >= KOLO_STREAM_BYTES;
#pragma omp for schedule(static) nowait
    for (int64_t t = 0; t < tasks_of(n, n->v.rows); t++) {
        piece p = piece_of(n, t);
        kolo_norm_lanes l = lanes_of(n, spread_space, p.block), other = {0};
        if (other_space) other = lanes_of(n, other_space, p.block);
        if (p.row < rows)
            forward_piece(n, kolo_at_out(y, p.at, bf16), kolo_at(x, p.at, bf16),
                          residual ? kolo_at(residual, p.at, bf16) : NULL, p.count, &l,
                          other_space ? &other : NULL, stream);
        else memset(kolo_at_out(y, p.at, bf16), 0, (size_t)p.count << (bf16 ? 1 : 2));
        if (signs) kolo_norm_signs(signs + p.word, kolo_at(y, p.at, bf16), p.count, bf16);
    }
    if (stream) kolo_stream_end();
}

/* The vectors of channel c, and its statistic. */
static void apply_channel(const norm *n, void *space, int64_t c, const double *sums, const float *w,
                          const float *b, float *statistic)
{
    const int64_t channels = n->v.channels;
    spread_norm(n, space, c, sums, w, b);
    if (c >= channels || !statistic) return;
    moments m = moments_of(n, sums, c);
    statistic[c] = (float)m.mean;
    statistic[channels + c] = (float)(m.variance * (m.count / fmax(m.count - 1, 1)));
    if (c == 0) statistic[2 * channels] = m.count > 0 ? 1.0f : 0.0f;
}

/* in: x, sums, w, b[, residual[, its sums, w, b]]; out: y, statistic[, signs[, its statistic]] */
static int run_apply(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                     int slot)
{
    const norm *n = k->state;
    void *const *out = args + n->inputs;
    void *other = n->inputs > 5 ? (char *)workspace + lanes_bytes(n, FORWARD_VECTORS) : NULL;
    int64_t rows = valid_rows(n, step, slot);
#pragma omp parallel num_threads(n->threads)
    {
#pragma omp for schedule(static)
        for (int64_t c = 0; c < padded_channels(n); c++) {
            apply_channel(n, workspace, c, args[1], args[2], args[3], out[1]);
            if (other) apply_channel(n, other, c, args[5], args[6], args[7], out[3]);
        }
        forward_pieces(n, out[0], n->outputs > 2 ? out[2] : NULL, args[0], n->inputs > 4 ? args[4] : NULL,
                       workspace, other, rows);
    }
    return 0;
}

static int prepare_apply(const kolo_kernel_request *r, kolo_kernel *k)
{
    norm *n = make_norm(r, k, 0);
    if (!n) return KOLO_ENOMEM;
    k->run = run_apply;
    k->workspace = lanes_bytes(n, n->inputs > 5 ? 2 * FORWARD_VECTORS : FORWARD_VECTORS);
    return 0;
}
const kolo_op_row kolo_cpu_norm_apply = {layout_signs, prepare_apply};

/* in: x, w, b, mean, variance[, residual]; out: y */
static int run_infer(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                     int slot)
{
    const norm *n = k->state;
    const float *w = args[1], *b = args[2], *mean = args[3], *variance = args[4];
    int64_t rows = valid_rows(n, step, slot);
#pragma omp parallel num_threads(n->threads)
    {
#pragma omp for schedule(static)
        for (int64_t c = 0; c < padded_channels(n); c++) {
            bool real = c < n->v.channels;
            spread(n, workspace, MEAN, c, real ? mean[c] : 0);
            spread(n, workspace, SCALE, c,
                   real ? (float)((double)w[c] / sqrt((double)variance[c] + n->epsilon)) : 0);
            spread(n, workspace, BIAS, c, real ? b[c] : 0);
        }
        forward_pieces(n, args[n->inputs], NULL, args[0], n->inputs > 5 ? args[5] : NULL, workspace, NULL,
                       rows);
    }
    return 0;
}

static int prepare_infer(const kolo_kernel_request *r, kolo_kernel *k)
{
    norm *n = make_norm(r, k, 0);
    if (!n) return KOLO_ENOMEM;
    k->run = run_infer;
    k->workspace = lanes_bytes(n, FORWARD_VECTORS);
    return 0;
}
const kolo_op_row kolo_cpu_norm_infer = {NULL, prepare_infer};

/* ---- backward ------------------------------------------------------------------------------------------ */

/* in: dy, x, y, sums, dsums, w, b; out: dx[, dresidual] */
static int run_grad_apply(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    const norm *n = k->state;
    const bool bf16 = n->v.bf16;
    const double *sums = args[3], *dsums = args[4];
    void *dx = args[n->inputs], *dr = n->outputs > 1 ? args[n->inputs + 1] : NULL;
    int64_t rows = valid_rows(n, step, slot), channels = n->v.channels;
#pragma omp parallel num_threads(n->threads)
    {
#pragma omp for schedule(static)
        for (int64_t c = 0; c < padded_channels(n); c++) {
            double count = fmax(sums[2 * channels], 1);
            bool real = c < channels;
            spread_norm(n, workspace, c, sums, args[5], args[6]);
            spread(n, workspace, MEAN_G, c, real ? (float)(dsums[c] / count) : 0);
            spread(n, workspace, SLOPE, c,
                   real ? (float)(dsums[channels + c] / count * moments_of(n, sums, c).deviation_inverse)
                        : 0);
        }
#pragma omp for schedule(static)
        for (int64_t t = 0; t < tasks_of(n, n->v.rows); t++) {
            piece p = piece_of(n, t);
            kolo_norm_lanes l = lanes_of(n, workspace, p.block);
            kolo_norm_source s = source_of(n, args, &p);
            size_t bytes = (size_t)p.count << (bf16 ? 1 : 2);
            void *to = kolo_at_out(dx, p.at, bf16), *to_residual = dr ? kolo_at_out(dr, p.at, bf16) : NULL;
            if (p.row < rows) {
                kolo_norm_backward(to, to_residual, &s, p.count, n->period, bf16, &l);
                continue;
            }
            memset(to, 0, bytes);
            if (dr) memset(to_residual, 0, bytes);
        }
    }
    return 0;
}

static int prepare_grad_apply(const kolo_kernel_request *r, kolo_kernel *k)
{
    norm *n = make_norm(r, k, 1);
    if (!n) return KOLO_ENOMEM;
    k->run = run_grad_apply;
    k->workspace = lanes_bytes(n, BACKWARD_VECTORS);
    return 0;
}
const kolo_op_row kolo_cpu_norm_grad_apply = {NULL, prepare_grad_apply};

/* ---- a part of conv_grad_norm -------------------------------------------------------------------------- */

/* in: dy, x, sums, w, b[, residual[, its sums, w, b]]; out: dy where the relu let something through */
static int run_mask(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const norm *n = k->state;
    const bool bf16 = n->v.bf16, two = n->inputs > 6;
    const void *residual = n->inputs > 5 ? args[5] : NULL;
    void *other_space = (char *)workspace + lanes_bytes(n, FORWARD_VECTORS);
    const int64_t rows = valid_rows(n, step, slot);
#pragma omp parallel num_threads(n->threads)
    {
#pragma omp for schedule(static)
        for (int64_t c = 0; c < padded_channels(n); c++) {
            spread_norm(n, workspace, c, args[2], args[3], args[4]);
            if (two) spread_norm(n, other_space, c, args[6], args[7], args[8]);
        }
#pragma omp for schedule(static)
        for (int64_t t = 0; t < tasks_of(n, n->v.rows); t++) {
            const piece p = piece_of(n, t);
            const kolo_norm_lanes l = lanes_of(n, workspace, p.block);
            kolo_norm_lanes other = {0};
            if (two) other = lanes_of(n, other_space, p.block);
            void *to = kolo_at_out(args[n->inputs], p.at, bf16);
            if (p.row >= rows) memset(to, 0, (size_t)p.count << (bf16 ? 1 : 2));
            else
                kolo_norm_mask(to, kolo_at(args[0], p.at, bf16), kolo_at(args[1], p.at, bf16),
                               residual ? kolo_at(residual, p.at, bf16) : NULL, p.count, n->period, bf16, &l,
                               two ? &other : NULL);
        }
    }
    return 0;
}

static int prepare_mask(const kolo_kernel_request *r, kolo_kernel *k)
{
    norm *n = make_norm(r, k, 1);
    if (!n) return KOLO_ENOMEM;
    k->run = run_mask;
    k->workspace = lanes_bytes(n, 2 * FORWARD_VECTORS);
    return 0;
}
const kolo_op_row kolo_cpu_norm_mask = {NULL, prepare_mask};
