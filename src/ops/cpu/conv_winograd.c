#include "ops/cpu/conv_winograd.h"

#include <omp.h>
#include <string.h>

#include "ops/cpu/winograd.h"

enum { LANES = 16, ROWS = KOLO_WINOGRAD_ROWS, POINTS = KOLO_WINOGRAD_POINTS, TILE = KOLO_WINOGRAD_TILE };

/* Bytes of transformed tiles: of a thread's in the second level of caches, or as many as of weights, but not
 * more than MOST; of those that threads share, for the gradient of the weight. */
enum { LEAST = 512 << 10, MOST = 8 << 20, SHARED = 8 << 20 };

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t round8(int64_t n) { return (n + ROWS - 1) / ROWS * ROWS; }
static int64_t vectors(const kolo_view *v) { return v->channels / LANES; }

bool kolo_conv_winograd_fits(const kolo_conv_winograd *s)
{
    const bool whole = s->x.block % LANES == 0 && s->y.block % LANES == 0 && s->x.channels % LANES == 0 &&
                       s->y.channels % LANES == 0;
    return whole && !s->x.bf16 && !s->y.bf16 && s->pad[0] <= 2 && s->pad[1] <= 2 && s->x.rows > 0;
}

/* ---- maps ---------------------------------------------------------------------------------------------- */

/* The tiles of 4 x 4 results of a batch, row by row; the pixels that they are made of begin `pad` before. */
typedef struct tiles {
    int64_t wide, per_image, count;
} tiles;

static tiles tiles_of(const kolo_view *results)
{
    const int64_t wide = (results->width + TILE - 1) / TILE, high = (results->height + TILE - 1) / TILE;
    return (tiles){wide, high * wide, results->rows * high * wide};
}

/* Of 16 channels of an image: its first pixel, floats from pixel to pixel, and where a tile begins. */
typedef struct patch {
    int64_t at, step, top, left;
} patch;

static inline patch patch_of(const kolo_view *v, const tiles *t, const int64_t pad[2], int64_t tile,
                             int64_t vector)
{
    const int64_t row = tile / t->per_image, in_image = tile % t->per_image, channel = vector * LANES;
    return (patch){(row * v->blocks + channel / v->block) * kolo_view_plane(v) + channel % v->block, v->block,
                   in_image / t->wide * TILE - pad[0], in_image % t->wide * TILE - pad[1]};
}

/* side x side pixels; those outside of the image are 0. */
KOLO_ALWAYS void read_patch(kolo_v16 *to, const kolo_view *v, const float *map, const patch *p, int side)
{
    const float *at = map + p->at + (p->top * v->width + p->left) * p->step;
    const bool inside =
        p->top >= 0 && p->left >= 0 && p->top + side <= v->height && p->left + side <= v->width;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            const int64_t h = p->top + i, w = p->left + j;
            const bool there = inside || (h >= 0 && h < v->height && w >= 0 && w < v->width);
            to[i * side + j] = there ? *(const kolo_v16 *)(at + (i * v->width + j) * p->step) : (kolo_v16){0};
        }
}

KOLO_ALWAYS void write_patch(const kolo_view *v, float *map, const patch *p, const kolo_v16 *from)
{
    float *at = map + p->at + (p->top * v->width + p->left) * p->step;
    const int64_t high = v->height - p->top, wide = v->width - p->left;
    for (int i = 0; i < TILE && i < high; i++)
        for (int j = 0; j < TILE && j < wide; j++)
            *(kolo_v16 *)(at + (i * v->width + j) * p->step) = from[i * TILE + j];
}

/* ---- passes as products -------------------------------------------------------------------------------- */

/* Forward, or the gradient of x: maps `from` and `to`, their vectors of channels, and the transformed weight
 * [36][out][16 in][16]. Tiles are done `chunk` at a time: transformed [36][in][chunk][16], multiplied
 * [36][out][chunk][16], transformed back. */
typedef struct correlation {
    const kolo_view *from, *to;
    const float *x, *bias;
    float *y, *u;
    int64_t pad[2], in, out, chunk;
    tiles tiles;
} correlation;

static int64_t weight_floats(const kolo_conv_winograd *s) { return POINTS * s->x.channels * s->y.channels; }

static int64_t tile_floats(const kolo_conv_winograd *s) { return POINTS * (s->x.channels + s->y.channels); }

/* As many chunks for each thread, of a multiple of 8 tiles. */
static int64_t chunk_of(const kolo_conv_winograd *s, int64_t count)
{
    int64_t bytes = weight_floats(s) * (int64_t)sizeof(float);
    bytes = bytes < LEAST ? LEAST : least_of(bytes, MOST);
    const int64_t most = bytes / (tile_floats(s) * (int64_t)sizeof(float)) + 1;
    const int64_t rounds = (count + most * s->threads - 1) / (most * s->threads);
    return round8((count + rounds * s->threads - 1) / (rounds * s->threads));
}

static correlation correlation_of(const kolo_conv_winograd *s, bool forward)
{
    correlation c = {.from = forward ? &s->x : &s->y, .to = forward ? &s->y : &s->x};
    for (int i = 0; i < 2; i++) c.pad[i] = forward ? s->pad[i] : 2 - s->pad[i];
    c.in = vectors(c.from);
    c.out = vectors(c.to);
    c.tiles = tiles_of(c.to);
    c.chunk = chunk_of(s, c.tiles.count);
    return c;
}

/* Of 16 places of sums `in` and 16 channels `out`; forward the weight lies so, for the gradient of x it is
 * turned around: [16 out][16 in], its taps backwards. */
KOLO_ALWAYS void weight_block(const correlation *c, const float *w, int64_t in, int64_t out, bool forward)
{
    const int64_t stride = c->out * c->in * LANES * LANES;
    const float *from = w + (forward ? out * c->in + in : in * c->out + out) * 9 * LANES * LANES;
    float *to = c->u + (out * c->in + in) * LANES * LANES;
    for (int k = 0; k < LANES; k++) {
        kolo_v16 taps[9], u[POINTS];
        for (int t = 0; t < 9 && forward; t++) taps[t] = *(const kolo_v16 *)(from + (t * LANES + k) * LANES);
        for (int t = 0; t < 9 && !forward; t++)
            for (int l = 0; l < LANES; l++) taps[t][l] = from[((8 - t) * LANES + l) * LANES + k];
        kolo_winograd_taps_2d(u, taps);
        for (int p = 0; p < POINTS; p++) *(kolo_v16 *)(to + p * stride + k * LANES) = u[p];
    }
}

KOLO_BODY arrange_body(const correlation *c, const float *w, int64_t in, int64_t out, bool forward)
{
    if (forward) weight_block(c, w, in, out, true);
    else weight_block(c, w, in, out, false);
}
KOLO_WIDE(arrange, (const correlation *c, const float *w, int64_t in, int64_t out, bool forward),
          (c, w, in, out, forward))

/* One tile of a map to 36 vectors that lie `stride` apart, or zeros beyond the last tile. */
KOLO_ALWAYS void transform_tile(const kolo_view *v, const tiles *t, const int64_t pad[2], const float *map,
                                int64_t tile, int64_t vector, int side, float *to, int64_t stride)
{
    kolo_v16 pixels[POINTS], points[POINTS];
    if (tile >= t->count) {
        for (int i = 0; i < POINTS; i++) *(kolo_v16 *)(to + i * stride) = (kolo_v16){0};
        return;
    }
    const patch p = patch_of(v, t, pad, tile, vector);
    read_patch(pixels, v, map, &p, side);
    if (side == TILE) kolo_winograd_gradients_2d(points, pixels);
    else kolo_winograd_pixels_2d(points, pixels);
    for (int i = 0; i < POINTS; i++) *(kolo_v16 *)(to + i * stride) = points[i];
}

KOLO_ALWAYS void chunk_products(const correlation *c, int64_t count, const float *v, float *m)
{
    const kolo_winograd_product product = {c->in, LANES, count * LANES, c->in * LANES * LANES, count * LANES};
    for (int64_t p = 0; p < POINTS; p++)
        for (int64_t o = 0; o < c->out; o += 2) {
            const float *u = c->u + (p * c->out + o) * c->in * LANES * LANES;
            for (int64_t t = 0; t < count; t += ROWS) {
                const float *a = v + (p * c->in * count + t) * LANES;
                float *to = m + ((p * c->out + o) * count + t) * LANES;
                if (o + 1 < c->out) kolo_winograd_multiply(&product, a, LANES, 1, u, to, 2, false);
                else kolo_winograd_multiply(&product, a, LANES, 1, u, to, 1, false);
            }
        }
}

KOLO_ALWAYS void result_tile(const correlation *c, int64_t tile, int64_t vector, const float *m,
                             int64_t stride)
{
    const patch p = patch_of(c->to, &c->tiles, (const int64_t[2]){0, 0}, tile, vector);
    kolo_v16 points[POINTS], results[TILE * TILE];
    for (int i = 0; i < POINTS; i++) points[i] = *(const kolo_v16 *)(m + i * stride);
    kolo_winograd_results_2d(results, points);
    if (c->bias) {
        const kolo_v16 bias = *(const kolo_v16 *)(c->bias + vector * LANES);
        for (int i = 0; i < TILE * TILE; i++) results[i] += bias;
    }
    write_patch(c->to, c->y, &p, results);
}

KOLO_BODY correlate_body(const correlation *c, int64_t first, float *own)
{
    const int64_t left = least_of(c->chunk, c->tiles.count - first), count = round8(left);
    float *v = own, *m = own + POINTS * c->in * count * LANES;
    for (int64_t i = 0; i < c->in; i++)
        for (int64_t t = 0; t < count; t++)
            transform_tile(c->from, &c->tiles, c->pad, c->x, first + t, i, KOLO_WINOGRAD_SIDE,
                           v + (i * count + t) * LANES, c->in * count * LANES);
    chunk_products(c, count, v, m);
    for (int64_t o = 0; o < c->out; o++)
        for (int64_t t = 0; t < left; t++)
            result_tile(c, first + t, o, m + (o * count + t) * LANES, c->out * count * LANES);
}
KOLO_WIDE(correlate, (const correlation *c, int64_t first, float *own), (c, first, own))

static void run(correlation *c, const kolo_conv_winograd *s, const float *w, bool forward, void *workspace,
                bool arranged)
{
    const int64_t size = tile_floats(s) * c->chunk;
    c->u = workspace;
#pragma omp parallel num_threads(s->threads)
    {
        float *own = c->u + weight_floats(s) + omp_get_thread_num() * size;
        if (!arranged) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < c->in * c->out; i++) arrange(c, w, i % c->in, i / c->in, forward);
        }
#pragma omp for schedule(static)
        for (int64_t first = 0; first < c->tiles.count; first += c->chunk) correlate(c, first, own);
    }
}

void kolo_conv_winograd_forward(const kolo_conv_winograd *s, const float *x, const float *w,
                                const float *bias, float *y, void *workspace, bool arranged)
{
    correlation c = correlation_of(s, true);
    c.x = x;
    c.y = y;
    c.bias = bias;
    run(&c, s, w, true, workspace, arranged);
}

void kolo_conv_winograd_data(const kolo_conv_winograd *s, float *dx, const float *w, const float *dy,
                             void *workspace, bool arranged)
{
    correlation c = correlation_of(s, false);
    c.x = dy;
    c.y = dx;
    run(&c, s, w, false, workspace, arranged);
}

/* ---- the gradient of the weight ------------------------------------------------------------------------ */

/* Tiles of x and of dy, `chunk` at a time, transformed [36][vectors][chunk][16] by all threads together; then
 * each has its share of their products du [36][out][16 in][16], which grow from chunk to chunk. */
typedef struct gradient {
    const kolo_conv_winograd *s;
    const float *x, *dy;
    float *dw, *dbias, *du, *v, *z;
    int64_t in, out, chunk;
    tiles tiles;
} gradient;

static gradient gradient_of(const kolo_conv_winograd *s, void *workspace)
{
    gradient g = {.s = s, .in = vectors(&s->x), .out = vectors(&s->y), .tiles = tiles_of(&s->y)};
    const int64_t most = round8(SHARED / (tile_floats(s) * (int64_t)sizeof(float)) + 1);
    g.chunk = least_of(most, round8(g.tiles.count));
    g.du = workspace;
    g.v = g.du + weight_floats(s);
    g.z = g.v + POINTS * g.in * g.chunk * LANES;
    return g;
}

/* Eight tiles of a vector of channels, first of x, then of dy. */
KOLO_BODY transform_body(const gradient *g, int64_t first, int64_t at, int64_t vector)
{
    const kolo_conv_winograd *s = g->s;
    const bool of_x = vector < g->in;
    const int64_t own = of_x ? vector : vector - g->in, none[2] = {0, 0};
    const int64_t stride = (of_x ? g->in : g->out) * g->chunk * LANES;
    float *to = (of_x ? g->v : g->z) + (own * g->chunk + at) * LANES;
    for (int64_t t = 0; t < ROWS; t++, to += LANES) {
        if (of_x)
            transform_tile(&s->x, &g->tiles, s->pad, g->x, first + at + t, own, KOLO_WINOGRAD_SIDE, to,
                           stride);
        else transform_tile(&s->y, &g->tiles, none, g->dy, first + at + t, own, TILE, to, stride);
    }
}
KOLO_WIDE(transform, (const gradient *g, int64_t first, int64_t at, int64_t vector), (g, first, at, vector))

KOLO_ALWAYS void gradient_products(const gradient *g, int64_t point, int64_t o, int wide, bool add)
{
    const kolo_winograd_product product = {1, g->chunk, 0, g->chunk * LANES, g->in * LANES * LANES};
    const float *z = g->z + (point * g->out + o) * g->chunk * LANES;
    float *to = g->du + (point * g->out + o) * g->in * LANES * LANES;
    for (int64_t i = 0; i < g->in * LANES; i += ROWS) {
        const float *a = g->v + (point * g->in + i / LANES) * g->chunk * LANES + i % LANES;
        kolo_winograd_multiply(&product, a, 1, LANES, z, to + i * LANES, wide, add);
    }
}

KOLO_BODY multiply_body(const gradient *g, int64_t point, int64_t o, bool add)
{
    const int wide = o + 1 < g->out ? 2 : 1;
    if (wide == 2 && add) gradient_products(g, point, o, 2, true);
    else if (wide == 2) gradient_products(g, point, o, 2, false);
    else if (add) gradient_products(g, point, o, 1, true);
    else gradient_products(g, point, o, 1, false);
}
KOLO_WIDE(multiply, (const gradient *g, int64_t point, int64_t o, bool add), (g, point, o, add))

KOLO_BODY taps_body(const gradient *g, int64_t block)
{
    const int64_t stride = g->out * g->in * LANES * LANES;
    const float *from = g->du + block * LANES * LANES;
    float *to = g->dw + block * 9 * LANES * LANES;
    for (int k = 0; k < LANES; k++) {
        kolo_v16 points[POINTS], taps[9];
        for (int p = 0; p < POINTS; p++) points[p] = *(const kolo_v16 *)(from + p * stride + k * LANES);
        kolo_winograd_tap_gradients_2d(taps, points);
        for (int t = 0; t < 9; t++) *(kolo_v16 *)(to + (t * LANES + k) * LANES) = taps[t];
    }
}
KOLO_WIDE(taps, (const gradient *g, int64_t block), (g, block))

KOLO_BODY bias_gradient_body(const gradient *g, int64_t vector)
{
    const kolo_view *y = &g->s->y;
    kolo_v16 sum = {0};
    for (int64_t row = 0; row < y->rows; row++) {
        const patch p = patch_of(y, &g->tiles, (const int64_t[2]){0, 0}, row * g->tiles.per_image, vector);
        for (int64_t i = 0; i < y->pixels; i++) sum += *(const kolo_v16 *)(g->dy + p.at + i * p.step);
    }
    *(kolo_v16 *)(g->dbias + vector * LANES) = sum;
}
KOLO_WIDE(bias_gradient, (const gradient *g, int64_t vector), (g, vector))

void kolo_conv_winograd_weight(const kolo_conv_winograd *s, const float *x, float *dw, float *dbias,
                               const float *dy, void *workspace)
{
    gradient g = gradient_of(s, workspace);
    g.x = x;
    g.dy = dy;
    g.dw = dw;
    g.dbias = dbias;
    const int64_t groups = g.chunk / ROWS, pairs = (g.out + 1) / 2;
#pragma omp parallel num_threads(s->threads)
    {
        for (int64_t first = 0; first < g.tiles.count; first += g.chunk) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < (g.in + g.out) * groups; i++)
                transform(&g, first, i % groups * ROWS, i / groups);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < POINTS * pairs; i++) multiply(&g, i / pairs, i % pairs * 2, first > 0);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < g.in * g.out; i++) taps(&g, i);
#pragma omp for schedule(static)
        for (int64_t o = 0; o < (dbias ? g.out : 0); o++) bias_gradient(&g, o);
    }
}

/* ---- memory -------------------------------------------------------------------------------------------- */

size_t kolo_conv_winograd_bytes(const kolo_conv_winograd *s, enum kolo_dnnl_pass pass)
{
    int64_t count = gradient_of(s, NULL).chunk;
    if (pass != KOLO_DNNL_WEIGHT) count = correlation_of(s, pass == KOLO_DNNL_FORWARD).chunk * s->threads;
    return (size_t)(weight_floats(s) + tile_floats(s) * count) * sizeof(float);
}
