#include "ops/cpu/conv_pointwise.h"

#include <omp.h>

#include "ops/cpu/access.h"

enum { LANES = 16, BLOCK = LANES * LANES };

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

bool kolo_conv_pointwise_fits(const kolo_conv_pointwise *s, enum kolo_dnnl_pass pass)
{
    const kolo_view *made = pass == KOLO_DNNL_DATA ? &s->x : &s->y;
    const bool whole = s->x.block == LANES && s->y.block == LANES && s->x.channels % LANES == 0 &&
                       s->y.channels % LANES == 0;
    return whole && made->blocks % 2 == 0 && !s->x.bf16 && !s->y.bf16 && s->x.rows > 0;
}

/* ---- forward, and the gradient of x -------------------------------------------------------------------- */

/* A tile of a few pixels x 2 blocks of 16 channels is kept in registers. Tiles are made of at most IN blocks
 * of channels at a time, so that what they are made of stays in the first level of caches, and of at most
 * BLOCKS blocks of the weight, which stay in the second while all pixels pass by. */
enum { TILE = 14, IN = 32, BLOCKS = 512 };

/* from (rows, in, pixels, 16) by w [out][in][16 in][16 out] to (rows, out, pixels, 16) */
typedef struct product {
    const float *from, *w, *bias, *other; /* bias [out][16] or other, as `to`, is added; or NULL */
    float *to;
    int64_t in, out, pixels;
} product;

/* What a tile starts with: its rows lie `row` apart, its blocks `block`. */
typedef struct start {
    const float *at;
    int64_t row, block;
} start;

/* rows <= TILE. What it starts with and the pixels that come next are fetched meanwhile. */
KOLO_ALWAYS void tile(const product *p, const float *a, const float *w, float *to, const start *s,
                      int64_t blocks, int rows)
{
    const int64_t plane = p->pixels * LANES;
    kolo_v16 sum[TILE][2];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < 2; j++) {
            sum[r][j] = (kolo_v16){0};
            __builtin_prefetch(s->at + r * s->row + j * s->block);
        }
    for (int64_t i = 0; i < blocks; i++, a += plane)
        for (int k = 0; k < LANES; k++, w += LANES) {
            const kolo_v16 left = *(const kolo_v16 *)w, right = *(const kolo_v16 *)(w + p->in * BLOCK);
            if (k < rows) __builtin_prefetch(a + (rows + k) * LANES, 0, 2);
            for (int r = 0; r < rows; r++) {
                sum[r][0] += a[r * LANES + k] * left;
                sum[r][1] += a[r * LANES + k] * right;
            }
        }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < 2; j++)
            *(kolo_v16 *)(to + j * plane + r * LANES) =
                sum[r][j] + *(const kolo_v16 *)(s->at + r * s->row + j * s->block);
}

/* What tiles of block o that are made of blocks from i on are added to. */
KOLO_ALWAYS start start_of(const product *p, int64_t i, int64_t o, int64_t at)
{
    static const float zeros[LANES];
    const int64_t plane = p->pixels * LANES;
    if (i > 0) return (start){p->to + at, LANES, plane};
    if (p->other) return (start){p->other + at, LANES, plane};
    if (p->bias) return (start){p->bias + o * LANES, 0, LANES};
    return (start){zeros, 0, 0};
}

/* All blocks out of [o, o_end) of `rows` pixels of an image, by blocks in of [i, i_end). */
KOLO_ALWAYS void tiles(const product *p, int64_t row, int64_t pixel, int64_t i, int64_t i_end, int64_t o,
                       int64_t o_end, int rows)
{
    const float *a = p->from + ((row * p->in + i) * p->pixels + pixel) * LANES;
    for (; o < o_end; o += 2) {
        const int64_t at = ((row * p->out + o) * p->pixels + pixel) * LANES;
        const start s = start_of(p, i, o, at);
        tile(p, a, p->w + (o * p->in + i) * BLOCK, p->to + at, &s, i_end - i, rows);
    }
}

/* As above, of a piece of pixels [pixel, end) of an image. */
KOLO_BODY pixels_body(const product *p, int64_t row, int64_t pixel, int64_t end, int64_t i, int64_t i_end,
                      int64_t o, int64_t o_end)
{
    for (; pixel + 14 <= end; pixel += 14) tiles(p, row, pixel, i, i_end, o, o_end, 14);
    if (pixel + 7 <= end) tiles(p, row, pixel, i, i_end, o, o_end, 7), pixel += 7;
    if (pixel + 4 <= end) tiles(p, row, pixel, i, i_end, o, o_end, 4), pixel += 4;
    if (pixel + 2 <= end) tiles(p, row, pixel, i, i_end, o, o_end, 2), pixel += 2;
    if (pixel + 1 <= end) tiles(p, row, pixel, i, i_end, o, o_end, 1);
}
KOLO_WIDE(pixels,
          (const product *p, int64_t row, int64_t pixel, int64_t end, int64_t i, int64_t i_end, int64_t o,
           int64_t o_end),
          (p, row, pixel, end, i, i_end, o, o_end))

/* Pieces [piece, end) of the batch, `each` pixels of an image at most. */
static void pieces(const product *p, int64_t piece, int64_t end, int64_t per_image, int64_t each)
{
    const int64_t in = least_of(p->in, IN), out = BLOCKS / in / 2 * 2;
    for (int64_t o = 0; o < p->out; o += out)
        for (int64_t i = 0; i < p->in; i += in)
            for (int64_t n = piece; n < end; n++) {
                const int64_t pixel = n % per_image * each;
                pixels(p, n / per_image, pixel, least_of(pixel + each, p->pixels), i, least_of(i + in, p->in),
                       o, least_of(o + out, p->out));
            }
}

static void run(const product *p, int64_t rows, int threads)
{
    const int64_t each = 4 * TILE, per_image = (p->pixels + each - 1) / each, all = rows * per_image;
#pragma omp parallel num_threads(threads)
    {
        const int64_t n = omp_get_num_threads(), t = omp_get_thread_num();
        pieces(p, all * t / n, all * (t + 1) / n, per_image, each);
    }
}

void kolo_conv_pointwise_forward(const kolo_conv_pointwise *s, const float *x, const float *w,
                                 const float *bias, float *y)
{
    const product p = {x, w, bias, NULL, y, s->x.blocks, s->y.blocks, s->x.pixels};
    run(&p, s->x.rows, s->threads);
}

KOLO_BODY turn_body(const float *w, float *to, int64_t in, int64_t out, int64_t taps, int64_t i)
{
    for (int64_t o = 0; o < out; o++)
        for (int64_t t = 0; t < taps; t++)
            kolo_transpose16((kolo_v16 *)(to + ((i * out + o) * taps + t) * BLOCK),
                             (const kolo_v16 *)(w + ((o * in + i) * taps + t) * BLOCK));
}
KOLO_WIDE(turn, (const float *w, float *to, int64_t in, int64_t out, int64_t taps, int64_t i),
          (w, to, in, out, taps, i))

void kolo_conv_turn(const float *w, float *to, int64_t in, int64_t out, int64_t taps, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < in; i++) turn(w, to, in, out, taps, i);
}

void kolo_conv_pointwise_data(const kolo_conv_pointwise *s, float *dx, const float *w, const float *dy,
                              const float *other, void *workspace, bool arranged)
{
    const product p = {dy, workspace, NULL, other, dx, s->y.blocks, s->x.blocks, s->x.pixels};
    if (!arranged) kolo_conv_turn(w, workspace, s->x.blocks, s->y.blocks, 1, s->threads);
    run(&p, s->x.rows, s->threads);
}

size_t kolo_conv_pointwise_bytes(const kolo_conv_pointwise *s, enum kolo_dnnl_pass pass)
{
    return pass == KOLO_DNNL_DATA ? (size_t)(s->x.channels * s->y.channels) * sizeof(float) : 0;
}

/* ---- the gradient of the weight ------------------------------------------------------------------------ */

/* Sums over pixels are made of PIXELS or fewer of them at a time, of one image or of several; those of 8 x 2
 * x 16 numbers of dw are kept in registers. */
enum { ROWS = 8, PIXELS = 392 };
typedef struct gradient {
    const kolo_conv_pointwise *s;
    const float *x, *dy;
    float *dw;
} gradient;

/* Pixels [pixel, pixel + pixels) of images [row, row + rows) */
typedef struct piece {
    int64_t row, rows, pixel, pixels;
} piece;

/* 8 rows of dw of 2 blocks out; meanwhile what lies `ahead` of each pixel of x is fetched */
KOLO_ALWAYS void sums(const gradient *g, const piece *c, const float *x, const float *dy, float *dw,
                      const float *ahead, bool add)
{
    const kolo_view *vx = &g->s->x, *vy = &g->s->y;
    const int64_t plane = kolo_view_plane(vy), next = vx->blocks * BLOCK;
    kolo_v16 sum[ROWS][2];
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < 2; j++) {
            sum[r][j] = (kolo_v16){0};
            __builtin_prefetch(dw + j * next + r * LANES, 1);
        }
    for (int64_t n = 0; n < c->rows; n++) {
        for (int64_t i = 0; i < c->pixels * LANES; i += LANES) {
            const kolo_v16 left = *(const kolo_v16 *)(dy + i), right = *(const kolo_v16 *)(dy + plane + i);
            __builtin_prefetch(ahead + i);
            for (int r = 0; r < ROWS; r++) {
                sum[r][0] += x[i + r] * left;
                sum[r][1] += x[i + r] * right;
            }
        }
        x += vx->blocks * kolo_view_plane(vx);
        dy += vy->blocks * plane;
        ahead += vx->blocks * kolo_view_plane(vx);
    }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < 2; j++) {
            kolo_v16 *to = (kolo_v16 *)(dw + j * next + r * LANES);
            if (add) sum[r][j] += *to;
            *to = sum[r][j];
        }
}

/* Blocks out o and o + 1 by block in i. Fetched ahead are the next block of x and, with the first two of x,
 * the next two of dy. */
KOLO_BODY block_body(const gradient *g, const piece *c, int64_t o, int64_t i, bool add)
{
    const kolo_view *vx = &g->s->x, *vy = &g->s->y;
    const int64_t plane = kolo_view_plane(vx);
    const float *x = g->x + (c->row * vx->blocks + i) * plane + c->pixel * LANES;
    const float *dy = g->dy + (c->row * vy->blocks + o) * plane + c->pixel * LANES;
    float *dw = g->dw + (o * vx->blocks + i) * BLOCK;
    const bool more = c->rows == 1 && i < 2 && o + 2 < vy->blocks;
    sums(g, c, x, dy, dw, i + 1 < vx->blocks ? x + plane : x, add);
    sums(g, c, x + ROWS, dy, dw + ROWS * LANES, more ? dy + (2 + i) * plane : x, add);
}
KOLO_WIDE(block, (const gradient *g, const piece *c, int64_t o, int64_t i, bool add), (g, c, o, i, add))

KOLO_BODY bias_body(const kolo_view *v, const float *dy, float *dbias, int64_t o)
{
    kolo_v16 sum = {0};
    for (int64_t n = 0; n < v->rows; n++)
        for (int64_t i = 0; i < v->pixels; i++)
            sum += *(const kolo_v16 *)(dy + ((n * v->blocks + o) * v->pixels + i) * LANES);
    *(kolo_v16 *)(dbias + o * LANES) = sum;
}
KOLO_WIDE(bias, (const kolo_view *v, const float *dy, float *dbias, int64_t o), (v, dy, dbias, o))

void kolo_conv_bias_gradient(const kolo_view *y, const float *dy, float *dbias, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t o = 0; o < y->blocks; o++) bias(y, dy, dbias, o);
}

/* Block pairs [from, end) of dw, of all pixels */
static void blocks(const gradient *g, int64_t from, int64_t end)
{
    const kolo_view *v = &g->s->x;
    const int64_t parts = (v->pixels + PIXELS - 1) / PIXELS, each = (v->pixels + parts - 1) / parts;
    const int64_t images = v->pixels < PIXELS ? PIXELS / v->pixels : 1;
    for (int64_t n = 0; n < v->rows; n += images)
        for (int64_t i = 0; i < v->pixels; i += each) {
            const piece c = {n, least_of(images, v->rows - n), i, least_of(each, v->pixels - i)};
            for (int64_t b = from; b < end; b++)
                block(g, &c, b / v->blocks * 2, b % v->blocks, n > 0 || i > 0);
        }
}

void kolo_conv_pointwise_weight(const kolo_conv_pointwise *s, const float *x, float *dw, float *dbias,
                                const float *dy)
{
    const gradient g = {s, x, dy, dw};
    const int64_t all = s->y.blocks / 2 * s->x.blocks;
#pragma omp parallel num_threads(s->threads)
    {
        const int64_t n = omp_get_num_threads(), t = omp_get_thread_num();
        blocks(&g, all * t / n, all * (t + 1) / n);
    }
    if (dbias) kolo_conv_bias_gradient(&s->y, dy, dbias, s->threads);
}
