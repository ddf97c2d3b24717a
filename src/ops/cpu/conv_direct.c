#include "ops/cpu/conv_direct.h"

#include <omp.h>
#include <string.h>

#include "ops/cpu/access.h"
#include "ops/cpu/conv_pointwise.h"

enum { LANES = 16, BLOCK = LANES * LANES, TAPS = 9 };

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most_of(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t taps_of(const kolo_conv_direct *s) { return s->kernel[0] * s->kernel[1]; }

bool kolo_conv_direct_fits(const kolo_conv_direct *s, enum kolo_dnnl_pass pass)
{
    const kolo_view *made = pass == KOLO_DNNL_DATA ? &s->x : &s->y;
    const bool whole = s->x.block == LANES && s->y.block == LANES && s->x.channels % LANES == 0 &&
                       s->y.channels % LANES == 0;
    const bool small = taps_of(s) > 1 && taps_of(s) <= TAPS && s->stride <= 2 && s->pad[0] < s->kernel[0] &&
                       s->pad[1] < s->kernel[1];
    return whole && small && made->blocks % 2 == 0 && !s->x.bf16 && !s->y.bf16 && s->x.rows > 0;
}

/* ---- bands --------------------------------------------------------------------------------------------- */

/* What results are made of is copied, with zeros around the map, a band at a time: rows [top, top + rows) of
 * results of images [image, image + images). It stays in the second level of caches. */
typedef struct band {
    int64_t image, images, top, rows;
} band;

/* How a grid of (height, width) results lies over a map: result (0, 0) begins `before` the first pixel, the
 * next ones `step` pixels on; each reaches over `reach` rows and columns. A band has `rows` rows of results
 * of `images` images at most. */
typedef struct grid {
    const kolo_view *from;
    int64_t height, width, step, before[2], reach[2];
    int64_t rows, images;
} grid;

static int64_t pitch_of(const grid *g) { return (g->width - 1) * g->step + g->reach[1]; }
static int64_t high_of(const grid *g, int64_t rows) { return (rows - 1) * g->step + g->reach[0]; }
static int64_t bands_per_image(const grid *g) { return up(g->height, g->rows); }
static int64_t bands_of(const grid *g) { return up(g->from->rows, g->images) * bands_per_image(g); }
static int64_t floats_of(const grid *g, int64_t blocks)
{
    return g->images * high_of(g, g->rows) * pitch_of(g) * blocks * LANES;
}

/* As many rows as `bytes` hold of so many blocks, or several images */
static void cut(grid *g, int64_t blocks, int64_t bytes)
{
    const int64_t row = pitch_of(g) * blocks * LANES * (int64_t)sizeof(float);
    const int64_t rows = (bytes / row - g->reach[0]) / g->step + 1, parts = up(g->height, most_of(rows, 1));
    g->rows = up(g->height, parts);
    g->images = parts > 1 ? 1 : least_of(most_of(bytes / (row * high_of(g, g->rows)), 1), g->from->rows);
}

static band band_of(const grid *g, int64_t n)
{
    const int64_t each = bands_per_image(g), image = n / each * g->images, top = n % each * g->rows;
    return (band){image, least_of(g->images, g->from->rows - image), top, least_of(g->rows, g->height - top)};
}

static void copy_row(const grid *g, const float *map, int64_t row, float *to)
{
    const int64_t left = g->before[1], pitch = pitch_of(g), width = least_of(g->from->width, pitch - left);
    const bool there = row >= 0 && row < g->from->height;
    const int64_t count = there ? width : 0, begin = there ? left : 0;
    memset(to, 0, (size_t)(begin * LANES) * sizeof *to);
    if (there) memcpy(to + begin * LANES, map + row * g->from->width * LANES, (size_t)(count * LANES) * 4);
    memset(to + (begin + count) * LANES, 0, (size_t)((pitch - begin - count) * LANES) * sizeof *to);
}

/* Blocks [i, i_end) of a band to (blocks, images, rows, columns, 16) */
static void copy_band(const grid *g, const band *b, const float *map, int64_t i, int64_t i_end, float *to)
{
    const int64_t high = high_of(g, b->rows), row = pitch_of(g) * LANES, plane = kolo_view_plane(g->from);
    for (; i < i_end; i++)
        for (int64_t n = b->image; n < b->image + b->images; n++)
            for (int64_t r = 0; r < high; r++, to += row)
                copy_row(g, map + (n * g->from->blocks + i) * plane, b->top * g->step - g->before[0] + r, to);
}

/* ---- forward, and the gradient of x -------------------------------------------------------------------- */

/* A tile of two runs of 7 pixels x 2 blocks of 16 channels is kept in registers. Tiles are made of at most
 * IN blocks of channels at a time, so that what they are made of stays in the first level of caches, and of
 * at most BLOCKS blocks of the weight, which stay in the second while all pixels pass by: with a band of at
 * most BAND bytes. */
enum { RUN = 7, TILE = 2 * RUN, IN = 8, BLOCKS = 576, BAND = 192 << 10 };

/* Where a tap's pixel lies in a band, from a result's first, and where its block of the weight does. */
typedef struct tap {
    int64_t pixel, weight;
} tap;

/* Results that have the same taps: `apart` pixels from each other, from (row, column) on */
typedef struct phase {
    int64_t row, column, height, width;
    int taps;
    tap tap[TAPS];
} phase;

/* to (rows, out, height, width, 16) by w [out][in][all taps][16 in][16 out] */
typedef struct product {
    const kolo_view *to;
    const float *from, *w, *bias, *other; /* bias [out][16] or other, as `to`, is added; or NULL */
    float *result;
    int64_t in, out, all, apart;
    int phases;
    grid grid;
    phase phase[4];
} product;

/* What tiles are made of: blocks [i, i_end) of a band, `plane` floats apart */
typedef struct source {
    const product *p;
    const phase *phase;
    int64_t i, i_end, plane;
} source;

/* A run's first pixel in the band, and in block 0 of the results; and from there to the next run */
typedef struct place {
    const float *from;
    int64_t to, next_from, next_to;
} place;

/* What a tile is added to: from pixel to pixel, run to run and block to block */
typedef struct start {
    const float *at;
    int64_t pixel, run, block;
} start;

KOLO_ALWAYS start start_of(const source *s, const place *at, int64_t o)
{
    static const float zeros[LANES];
    const product *p = s->p;
    const int64_t plane = kolo_view_plane(p->to), pixel = p->apart * LANES, to = at->to + o * plane;
    if (s->i > 0) return (start){p->result + to, pixel, at->next_to, plane};
    if (p->other) return (start){p->other + to, pixel, at->next_to, plane};
    if (p->bias) return (start){p->bias + o * LANES, 0, 0, LANES};
    return (start){zeros, 0, 0, 0};
}

KOLO_ALWAYS int64_t offset_of(const start *s, int pixel, int block)
{
    return pixel / RUN * s->run + pixel % RUN * s->pixel + block * s->block;
}

/* 16 channels of a tap: w and w + other are rows of the weight of two blocks out */
KOLO_ALWAYS void multiply(kolo_v16 sum[TILE][2], const float *run[2], const float *w, int64_t other,
                          int pixels, int step)
{
    for (int k = 0; k < LANES; k++, w += LANES) {
        const kolo_v16 left = *(const kolo_v16 *)w, right = *(const kolo_v16 *)(w + other);
        for (int r = 0; r < pixels; r++) {
            const float x = run[r / RUN][r % RUN * step * LANES + k];
            sum[r][0] += x * left;
            sum[r][1] += x * right;
        }
    }
}

/* pixels: a run or less, or two runs; step: from pixel to pixel in the band */
KOLO_ALWAYS void tile(const source *s, const place *at, int64_t o, int pixels, int step)
{
    const product *p = s->p;
    const int64_t other = p->in * p->all * BLOCK, plane = kolo_view_plane(p->to);
    const start more = start_of(s, at, o), end = {NULL, p->apart * LANES, at->next_to, plane};
    const float *w = p->w + (o * p->in + s->i) * p->all * BLOCK, *from = at->from;
    float *to = p->result + at->to + o * plane;
    kolo_v16 sum[TILE][2];
    for (int r = 0; r < pixels; r++)
        for (int j = 0; j < 2; j++) {
            sum[r][j] = (kolo_v16){0};
            __builtin_prefetch(to + offset_of(&end, r, j), 1);
        }
    for (int64_t i = s->i; i < s->i_end; i++, from += s->plane, w += p->all * BLOCK)
        for (int t = 0; t < s->phase->taps; t++) {
            const tap *c = &s->phase->tap[t];
            const float *run[2] = {from + c->pixel, from + c->pixel + at->next_from};
            multiply(sum, run, w + c->weight, other, pixels, step);
        }
    for (int r = 0; r < pixels; r++)
        for (int j = 0; j < 2; j++) {
            const kolo_v16 before = *(const kolo_v16 *)(more.at + offset_of(&more, r, j));
            *(kolo_v16 *)(to + offset_of(&end, r, j)) = sum[r][j] + before;
        }
}

/* Blocks out [o, o_end) of so many pixels from `pixel` of a row on, and if these are two runs from rows, of
 * the row after it; returns the next pixel. */
KOLO_ALWAYS int64_t tiles(const source *s, const place *row, int64_t pixel, int64_t o, int64_t o_end,
                          int pixels, int step)
{
    place at = *row;
    at.from += pixel * step * LANES;
    at.to += pixel * s->p->apart * LANES;
    for (; o < o_end; o += 2) tile(s, &at, o, pixels, step);
    return pixel + pixels;
}

/* A row of results, or two: where `next_to` is not 0. */
KOLO_ALWAYS void row_or_two(const source *s, const place *rows, int64_t o, int64_t o_end, int step)
{
    const int64_t width = s->phase->width, whole = width / TILE * TILE, next = RUN * s->p->apart * LANES;
    const bool two = rows->next_to, runs = width - whole >= RUN;
    if (runs && two) tiles(s, rows, whole, o, o_end, TILE, step);
    for (int n = 0; n <= two; n++) {
        const place row = {rows->from + n * rows->next_from, rows->to + n * rows->next_to,
                           (int64_t)RUN * step * LANES, next};
        int64_t pixel = 0;
        while (pixel < whole) pixel = tiles(s, &row, pixel, o, o_end, TILE, step);
        if (runs && !two) tiles(s, &row, pixel, o, o_end, RUN, step);
        if (runs) pixel += RUN;
        if (pixel + 4 <= width) pixel = tiles(s, &row, pixel, o, o_end, 4, step);
        if (pixel + 2 <= width) pixel = tiles(s, &row, pixel, o, o_end, 2, step);
        if (pixel + 1 <= width) tiles(s, &row, pixel, o, o_end, 1, step);
    }
}
KOLO_BODY rows_body(const source *s, const place *rows, int64_t o, int64_t o_end)
{
    if (s->p->grid.step == 1) row_or_two(s, rows, o, o_end, 1);
    else row_or_two(s, rows, o, o_end, 2);
}
KOLO_WIDE(rows, (const source *s, const place *rows, int64_t o, int64_t o_end), (s, rows, o, o_end))

/* Row q of the results of a phase in a band, which has `count` of an image */
static place place_of(const source *s, const band *b, const float *from, int64_t q, int64_t count)
{
    const product *p = s->p;
    const grid *g = &p->grid;
    const int64_t image = q / count, row = q % count, y = (b->top + row) * p->apart + s->phase->row;
    const int64_t to = (b->image + image) * p->out * p->to->pixels + y * p->to->width + s->phase->column;
    return (place){from + (image * high_of(g, b->rows) + row * g->step) * pitch_of(g) * LANES, to * LANES, 0,
                   0};
}

static void phase_of_band(const source *s, const band *b, const float *from, int64_t o, int64_t o_end)
{
    const int64_t count = least_of(b->rows, s->phase->height - b->top);
    for (int64_t q = 0; q < b->images * count; q += 2) {
        place at = place_of(s, b, from, q, count);
        if (q + 1 < b->images * count) {
            const place next = place_of(s, b, from, q + 1, count);
            at.next_from = next.from - at.from;
            at.next_to = next.to - at.to;
        }
        rows(s, &at, o, o_end);
    }
}

static void bands(const product *p, int64_t from, int64_t end, float *copy)
{
    const grid *g = &p->grid;
    const int64_t in = least_of(p->in, IN), out = most_of(BLOCKS / (in * p->all) / 2, 1) * 2;
    for (int64_t o = 0; o < p->out; o += out)
        for (int64_t i = 0; i < p->in; i += in)
            for (int64_t n = from; n < end; n++) {
                const band b = band_of(g, n);
                source s = {p, p->phase, i, least_of(i + in, p->in), 0};
                s.plane = b.images * high_of(g, b.rows) * pitch_of(g) * LANES;
                copy_band(g, &b, p->from, i, s.i_end, copy);
                for (; s.phase < p->phase + p->phases; s.phase++)
                    phase_of_band(&s, &b, copy, o, least_of(o + out, p->out));
            }
}

/* copies: of a band, for each thread */
static void run(const product *p, float *copies, int threads)
{
    const int64_t all = bands_of(&p->grid), each = floats_of(&p->grid, least_of(p->in, IN));
#pragma omp parallel num_threads(threads)
    {
        const int64_t n = omp_get_num_threads(), t = omp_get_thread_num();
        bands(p, all * t / n, all * (t + 1) / n, copies + t * each);
    }
}

static grid grid_of_y(const kolo_conv_direct *s)
{
    return (grid){.from = &s->x,
                  .height = s->y.height,
                  .width = s->y.width,
                  .step = s->stride,
                  .before = {s->pad[0], s->pad[1]},
                  .reach = {s->kernel[0], s->kernel[1]}};
}

/* Pixel stride * i + phase of x is made of the pixels i + d of y, with the taps for which
 * stride * (i + d) + tap = stride * i + phase + pad. */
static grid grid_of_x(const kolo_conv_direct *s)
{
    grid g = {
        .from = &s->y, .height = up(s->x.height, s->stride), .width = up(s->x.width, s->stride), .step = 1};
    for (int i = 0; i < 2; i++) {
        g.before[i] = (s->kernel[i] - 1 - s->pad[i]) / s->stride;
        g.reach[i] = g.before[i] + (s->stride - 1 + s->pad[i]) / s->stride + 1;
    }
    return g;
}

static phase phase_of_x(const kolo_conv_direct *s, const grid *g, int64_t row, int64_t column)
{
    phase f = {row, column, up(s->x.height - row, s->stride), up(s->x.width - column, s->stride), 0, {{0}}};
    for (int64_t h = 0; h < s->kernel[0]; h++)
        for (int64_t w = 0; w < s->kernel[1]; w++) {
            const int64_t down = row + s->pad[0] - h, right = column + s->pad[1] - w;
            if (down % s->stride || right % s->stride) continue;
            const int64_t y = down / s->stride + g->before[0], x = right / s->stride + g->before[1];
            f.tap[f.taps++] = (tap){(y * pitch_of(g) + x) * LANES, (h * s->kernel[1] + w) * BLOCK};
        }
    return f;
}

static grid grid_of(const kolo_conv_direct *s, enum kolo_dnnl_pass pass)
{
    grid g = pass == KOLO_DNNL_DATA ? grid_of_x(s) : grid_of_y(s);
    cut(&g, least_of(g.from->blocks, IN), BAND);
    return g;
}

void kolo_conv_direct_forward(const kolo_conv_direct *s, const float *x, const float *w, const float *bias,
                              float *y, void *workspace)
{
    product p = {.to = &s->y, .from = x, .w = w, .bias = bias, .result = y};
    p.in = s->x.blocks, p.out = s->y.blocks, p.all = taps_of(s), p.apart = 1, p.phases = 1;
    p.grid = grid_of(s, KOLO_DNNL_FORWARD);
    p.phase[0] = (phase){0, 0, s->y.height, s->y.width, (int)p.all, {{0}}};
    for (int64_t t = 0; t < p.all; t++)
        p.phase[0].tap[t] =
            (tap){(t / s->kernel[1] * pitch_of(&p.grid) + t % s->kernel[1]) * LANES, t * BLOCK};
    run(&p, workspace, s->threads);
}

static int64_t weight_floats(const kolo_conv_direct *s) { return s->x.channels * s->y.channels * taps_of(s); }

void kolo_conv_direct_data(const kolo_conv_direct *s, float *dx, const float *w, const float *dy,
                           const float *other, void *workspace, bool arranged)
{
    product p = {.to = &s->x, .from = dy, .w = workspace, .other = other, .result = dx};
    p.in = s->y.blocks, p.out = s->x.blocks, p.all = taps_of(s), p.apart = s->stride;
    p.grid = grid_of(s, KOLO_DNNL_DATA);
    for (int64_t i = 0; i < s->stride * s->stride; i++)
        p.phase[p.phases++] = phase_of_x(s, &p.grid, i / s->stride, i % s->stride);
    if (!arranged) kolo_conv_turn(w, workspace, s->x.blocks, s->y.blocks, p.all, s->threads);
    run(&p, (float *)workspace + weight_floats(s), s->threads);
}

/* ---- the gradient of the weight ------------------------------------------------------------------------ */

/* Sums are made of PIXELS results or fewer at a time; those of 8 x 2 x 16 numbers of dw are kept in
 * registers. */
enum { ROWS = 8, PIXELS = 392 };
typedef struct gradient {
    const kolo_conv_direct *s;
    grid grid;
    const float *x, *dy;
    float *dw;
} gradient;

static grid grid_of_sums(const kolo_conv_direct *s)
{
    grid g = grid_of_y(s);
    g.rows = up(g.height, up(g.height * g.width, PIXELS));
    g.images = least_of(most_of(PIXELS / (g.height * g.width), 1), s->x.rows);
    return g;
}

/* 8 rows of a tap of dw of 2 blocks out, of a band of which x is a copy */
KOLO_ALWAYS void sums(const gradient *g, const band *b, const float *x, const float *dy, float *dw, bool add)
{
    const kolo_view *v = &g->s->y;
    const int64_t plane = kolo_view_plane(v), next = g->s->x.blocks * taps_of(g->s) * BLOCK;
    const int64_t pitch = pitch_of(&g->grid) * LANES, step = g->s->stride * LANES,
                  high = high_of(&g->grid, b->rows);
    kolo_v16 sum[ROWS][2];
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < 2; j++) {
            sum[r][j] = (kolo_v16){0};
            __builtin_prefetch(dw + j * next + r * LANES, 1);
        }
    for (int64_t n = 0; n < b->images; n++, x += high * pitch, dy += v->blocks * plane) {
        const float *from = dy;
        for (int64_t h = 0; h < b->rows; h++) {
            const float *at = x + h * g->s->stride * pitch;
            for (int64_t w = 0; w < v->width; w++, at += step, from += LANES) {
                const kolo_v16 left = *(const kolo_v16 *)from, right = *(const kolo_v16 *)(from + plane);
                for (int r = 0; r < ROWS; r++) {
                    sum[r][0] += at[r] * left;
                    sum[r][1] += at[r] * right;
                }
            }
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < 2; j++) {
            kolo_v16 *to = (kolo_v16 *)(dw + j * next + r * LANES);
            if (add) sum[r][j] += *to;
            *to = sum[r][j];
        }
}

/* All taps of blocks out o and o + 1 by block in i, of which x is a copy of the band */
KOLO_BODY block_body(const gradient *g, const band *b, const float *x, int64_t o, int64_t i, bool add)
{
    const kolo_view *v = &g->s->y;
    const float *dy = g->dy + (b->image * v->blocks + o) * kolo_view_plane(v) + b->top * v->width * LANES;
    float *dw = g->dw + (o * g->s->x.blocks + i) * taps_of(g->s) * BLOCK;
    for (int64_t t = 0; t < taps_of(g->s); t++, dw += BLOCK) {
        const int64_t row = t / g->s->kernel[1], column = t % g->s->kernel[1];
        const float *at = x + (row * pitch_of(&g->grid) + column) * LANES;
        sums(g, b, at, dy, dw, add);
        sums(g, b, at + ROWS, dy, dw + ROWS * LANES, add);
    }
}
KOLO_WIDE(block, (const gradient *g, const band *b, const float *x, int64_t o, int64_t i, bool add),
          (g, b, x, o, i, add))

/* Block pairs [from, end) of dw, of all pixels */
static void blocks(const gradient *g, int64_t from, int64_t end, float *copy)
{
    const int64_t pairs = g->s->y.blocks / 2;
    for (int64_t n = 0; n < bands_of(&g->grid); n++) {
        const band b = band_of(&g->grid, n);
        for (int64_t at = from; at < end; at++) {
            const int64_t i = at / pairs;
            if (at == from || at % pairs == 0) copy_band(&g->grid, &b, g->x, i, i + 1, copy);
            block(g, &b, copy, at % pairs * 2, i, n > 0);
        }
    }
}

void kolo_conv_direct_weight(const kolo_conv_direct *s, const float *x, float *dw, float *dbias,
                             const float *dy, void *workspace)
{
    const gradient g = {s, grid_of_sums(s), x, dy, dw};
    const int64_t all = s->y.blocks / 2 * s->x.blocks, each = floats_of(&g.grid, 1);
#pragma omp parallel num_threads(s->threads)
    {
        const int64_t n = omp_get_num_threads(), t = omp_get_thread_num();
        blocks(&g, all * t / n, all * (t + 1) / n, (float *)workspace + t * each);
    }
    if (dbias) kolo_conv_bias_gradient(&s->y, dy, dbias, s->threads);
}

size_t kolo_conv_direct_bytes(const kolo_conv_direct *s, enum kolo_dnnl_pass pass)
{
    const grid g = pass == KOLO_DNNL_WEIGHT ? grid_of_sums(s) : grid_of(s, pass);
    const int64_t copy = floats_of(&g, pass == KOLO_DNNL_WEIGHT ? 1 : least_of(g.from->blocks, IN));
    return (size_t)(copy * s->threads + (pass == KOLO_DNNL_DATA ? weight_floats(s) : 0)) * sizeof(float);
}
