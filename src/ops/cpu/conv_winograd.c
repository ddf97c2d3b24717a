#include "ops/cpu/conv_winograd.h"

#include <omp.h>
#include <string.h>

#include "ops/cpu/winograd.h"

enum { LANES = 16, ROWS = KOLO_WINOGRAD_ROWS, POINTS = KOLO_WINOGRAD_POINTS, TILE = KOLO_WINOGRAD_TILE };

/* Bytes of transformed weights, or of their gradients, that are made and used at a time: BLOCK. Of tiles
 * that are transformed: where weights are more, all of a thread if they are not more than weights, or MOST;
 * else as many as fit the second level of caches, or as weights. Of those that threads share, for the
 * gradient of the weight: from SHARED to MOST. */
enum { BLOCK = 2 << 20, LEAST = 512 << 10, SHARED = 2 << 20, MOST = 12 << 20 };

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t between(int64_t least, int64_t n, int64_t most)
{
    return n < least ? least : least_of(n, most);
}
static int64_t round8(int64_t n) { return (n + ROWS - 1) / ROWS * ROWS; }
static int64_t vectors(const kolo_view *v) { return v->channels / LANES; }
static int64_t bytes_of(int64_t floats) { return floats * (int64_t)sizeof(float); }

/* Floats from the matrix of one of 36 points to that of the next: one vector more than it has, for else the
 * numbers of a tile, which are written together, would compete for one place of a cache. */
static int64_t apart(int64_t count) { return (count + 1) * LANES; }

/* Vectors of channels out whose weights, from `in`, are a BLOCK: an even number. */
static int64_t block_of(int64_t in, int64_t out)
{
    return least_of(BLOCK / bytes_of(POINTS * in * LANES * LANES) / 2 * 2 + 2, out);
}

bool kolo_conv_winograd_fits(const kolo_conv_winograd *s)
{
    const bool whole = s->x.block % LANES == 0 && s->y.block % LANES == 0 && s->x.channels % LANES == 0 &&
                       s->y.channels % LANES == 0;
    return whole && !s->x.bf16 && !s->y.bf16 && s->pad[0] <= 2 && s->pad[1] <= 2 && s->x.rows > 0;
}

/* ---- maps ---------------------------------------------------------------------------------------------- */

/* A side of a map: tiles of 4 results, then tiles of 3. */
typedef struct side {
    int64_t fours, threes;
} side;

/* The tiles of a batch: those of `group` images after the other, row by row; the pixels that a tile is made
 * of begin `pad` before. Of a group come first all tiles of 3 x 4 results, then those of 4 x 4, 4 x 3 and 3
 * x 3, so that those which have a point of interpolation follow one another. */
typedef struct tiles {
    side high, wide;
    int64_t rows, group, per_image, count;
} tiles;

enum { KINDS = 4, SMALL = 64 };
static const int64_t HIGH[KINDS] = {3, 4, 4, 3}, WIDE[KINDS] = {4, 4, 3, 3};

static int64_t of_kind(const side *s, int64_t results) { return results == TILE ? s->fours : s->threes; }
static int64_t tiles_of_kind(const tiles *t, int kind)
{
    return of_kind(&t->high, HIGH[kind]) * of_kind(&t->wide, WIDE[kind]);
}

static int64_t tiles_before(const tiles *t, int kind)
{
    int64_t n = 0;
    for (int k = 0; k < kind; k++) n += tiles_of_kind(t, k);
    return n;
}

/* So many tiles of 3 that none reaches over the end of n results, if there are as many. */
static side side_of(int64_t n, bool threes)
{
    const int64_t all = (n + TILE - 1) / TILE, three = all * TILE - n;
    return threes && three <= all ? (side){all - three, three} : (side){all, 0};
}

/* Of maps of few tiles, which come in whole images. */
static tiles tiles_of(const kolo_view *results)
{
    tiles t = {
        side_of(results->height, true), side_of(results->width, true), results->rows, results->rows, 0, 0};
    t.per_image = (t.high.fours + t.high.threes) * (t.wide.fours + t.wide.threes);
    if (t.per_image > SMALL) {
        t.high = side_of(results->height, false);
        t.wide = side_of(results->width, false);
    }
    t.count = results->rows * t.per_image;
    return t;
}

static bool is_mixed(const tiles *t) { return t->high.threes || t->wide.threes; }

/* Where so many tiles are done at a time: whole images of maps whose tiles are unlike. */
static int64_t cut_groups(tiles *t, int64_t chunk)
{
    if (!is_mixed(t)) return chunk;
    t->group = between(1, (chunk + t->per_image / 2) / t->per_image, t->rows);
    return t->group * t->per_image;
}

/* Of the tiles of the group that begins with tile `first`, those that have point (row, column) of the 6 x 6
 * are [begin, end). */
typedef struct range {
    int64_t begin, end;
} range;

static range range_of(const tiles *t, int64_t first, int64_t count, int64_t point)
{
    if (!is_mixed(t)) return (range){0, count};
    const int64_t images = least_of(t->group, t->rows - first / t->per_image);
    const bool high = point / KOLO_WINOGRAD_SIDE == 4, wide = point % KOLO_WINOGRAD_SIDE == 4;
    const int begin = high ? 1 : 0, end = wide ? 2 : high ? 3 : KINDS;
    return (range){images * tiles_before(t, begin), images * tiles_before(t, end)};
}

/* Of 16 channels of an image: its first pixel, floats from pixel to pixel, where a tile begins, and its
 * results. */
typedef struct patch {
    int64_t at, step, top, left, high, wide;
} patch;

static int64_t plane_at(const kolo_view *v, int64_t row, int64_t vector)
{
    const int64_t channel = vector * LANES;
    return (row * v->blocks + channel / v->block) * kolo_view_plane(v) + channel % v->block;
}

static inline patch patch_of(const kolo_view *v, const tiles *t, const int64_t pad[2], int64_t tile,
                             int64_t vector)
{
    const int64_t each = t->group * t->per_image, group = tile / each * t->group,
                  images = least_of(t->group, t->rows - group);
    int64_t in_group = tile % each;
    int kind = 0;
    for (; in_group >= images * tiles_of_kind(t, kind); kind++) in_group -= images * tiles_of_kind(t, kind);
    const int64_t in_image = in_group % tiles_of_kind(t, kind), wide = of_kind(&t->wide, WIDE[kind]);
    const int64_t row = in_image / wide, column = in_image % wide;
    return (patch){plane_at(v, group + in_group / tiles_of_kind(t, kind), vector),
                   v->block,
                   row * HIGH[kind] + (HIGH[kind] == TILE ? 0 : t->high.fours * TILE) - pad[0],
                   column * WIDE[kind] + (WIDE[kind] == TILE ? 0 : t->wide.fours * TILE) - pad[1],
                   HIGH[kind],
                   WIDE[kind]};
}

/* high x wide pixels, which are constants; those outside of the image are 0. What the tile after the next
 * has more is fetched meanwhile. */
KOLO_ALWAYS void read_patch(kolo_v16 *to, const kolo_view *v, const float *map, const patch *p, int high,
                            int wide)
{
    const float *at = map + p->at + (p->top * v->width + p->left) * p->step;
    const bool inside =
        p->top >= 0 && p->left >= 0 && p->top + high <= v->height && p->left + wide <= v->width;
    for (int i = 0; i < high; i++)
        for (int j = 0; j < TILE; j++) __builtin_prefetch(at + (i * v->width + wide + TILE + j) * p->step);
    for (int i = 0; i < high; i++)
        for (int j = 0; j < wide; j++) {
            const int64_t h = p->top + i, w = p->left + j;
            const bool there = inside || (h >= 0 && h < v->height && w >= 0 && w < v->width);
            to[i * KOLO_WINOGRAD_SIDE + j] =
                there ? *(const kolo_v16 *)(at + (i * v->width + j) * p->step) : (kolo_v16){0};
        }
}

KOLO_ALWAYS void write_patch(const kolo_view *v, float *map, const patch *p, const kolo_v16 *from, int high,
                             int wide)
{
    float *at = map + p->at + (p->top * v->width + p->left) * p->step;
    for (int i = 0; i < high && i < v->height - p->top; i++)
        for (int j = 0; j < wide && j < v->width - p->left; j++)
            *(kolo_v16 *)(at + (i * v->width + j) * p->step) = from[i * KOLO_WINOGRAD_SIDE + j];
}

/* A call for a tile of the patch p, with constants for its results. */
#define FOR_KIND(p, call)                       \
    do {                                        \
        if ((p)->high == 4 && (p)->wide == 4) { \
            enum { high = 4, wide = 4 };        \
            call;                               \
        } else if ((p)->high == 4) {            \
            enum { high = 4, wide = 3 };        \
            call;                               \
        } else if ((p)->wide == 4) {            \
            enum { high = 3, wide = 4 };        \
            call;                               \
        } else {                                \
            enum { high = 3, wide = 3 };        \
            call;                               \
        }                                       \
    } while (0)

/* ---- passes as products -------------------------------------------------------------------------------- */

/* Forward, or the gradient of x: maps `from` and `to`, their vectors of channels, and the transformed weight
 * [36][out][16 in][16]. Tiles are done `chunk` at a time: transformed [36][in][chunk][16], multiplied
 * [36][out][chunk][16], transformed back. Where a thread has one chunk only, that is done for `each` vectors
 * out after the other. */
typedef struct correlation {
    const kolo_view *from, *to;
    const float *x, *bias;
    float *y, *u;
    int64_t pad[2], in, out, each, chunk;
    tiles tiles;
} correlation;

static int64_t weight_floats(const kolo_conv_winograd *s) { return POINTS * s->x.channels * s->y.channels; }

static int64_t tile_floats(const kolo_conv_winograd *s) { return POINTS * (s->x.channels + s->y.channels); }

/* Chunks of a multiple of 8 tiles, all alike. */
static int64_t chunk_of(const kolo_conv_winograd *s, int64_t count, int64_t threads, int64_t bytes)
{
    const int64_t most = bytes / bytes_of(tile_floats(s)) + 1;
    const int64_t rounds = (count + most * threads - 1) / (most * threads);
    return round8((count + rounds * threads - 1) / (rounds * threads));
}

static correlation correlation_of(const kolo_conv_winograd *s, bool forward)
{
    correlation c = {.from = forward ? &s->x : &s->y, .to = forward ? &s->y : &s->x};
    for (int i = 0; i < 2; i++) c.pad[i] = forward ? s->pad[i] : 2 - s->pad[i];
    c.in = vectors(c.from);
    c.out = vectors(c.to);
    c.tiles = tiles_of(c.to);
    const int64_t weights = bytes_of(weight_floats(s)),
                  all = round8((c.tiles.count + s->threads - 1) / s->threads);
    const int64_t most = weights > BLOCK ? least_of(weights, MOST) : 0;
    if (bytes_of(POINTS * c.in * all * LANES) <= most) c.chunk = all;
    else c.chunk = chunk_of(s, c.tiles.count, s->threads, between(LEAST, weights, MOST));
    c.chunk = cut_groups(&c.tiles, c.chunk);
    c.each = c.chunk * s->threads < c.tiles.count ? c.out : block_of(c.in, c.out);
    return c;
}

/* Of 16 places of sums `in` and 16 channels `out`; forward the weight lies so, for the gradient of x it is
 * turned around: [16 out][16 in], its taps backwards. */
KOLO_ALWAYS void weight_block(const correlation *c, const float *w, int64_t in, int64_t out, bool forward)
{
    const int64_t stride = apart(c->each * c->in * LANES);
    const kolo_v16 *from = (const kolo_v16 *)w + (forward ? out * c->in + in : in * c->out + out) * 9 * LANES;
    kolo_v16 turned[9 * LANES];
    float *to = c->u + (out % c->each * c->in + in) * LANES * LANES;
    for (int t = 0; t < 9 && !forward; t++) kolo_transpose16(turned + t * LANES, from + (8 - t) * LANES);
    if (!forward) from = turned;
    for (int k = 0; k < LANES; k++) {
        kolo_v16 taps[9], u[POINTS];
        for (int t = 0; t < 9; t++) taps[t] = from[t * LANES + k];
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

/* A tile of pixels, or of gradients of results, to its points, which lie `stride` apart. */
KOLO_ALWAYS void transform_patch(const kolo_view *v, const float *map, const patch *p, bool pixels, float *to,
                                 int64_t stride, int high, int wide)
{
    kolo_v16 from[POINTS], points[POINTS];
    const int more = pixels ? 2 : 0;
    read_patch(from, v, map, p, high + more, wide + more);
    if (pixels) kolo_winograd_pixels_2d(points, from, high, wide);
    else kolo_winograd_gradients_2d(points, from, high, wide);
    for (int i = 0; i < POINTS; i++)
        if (kolo_winograd_point(i / 6, high) && kolo_winograd_point(i % 6, wide))
            *(kolo_v16 *)(to + i * stride) = points[i];
}

/* The same, or zeros beyond the last tile. */
KOLO_ALWAYS void transform_tile(const kolo_view *v, const tiles *t, const int64_t pad[2], const float *map,
                                int64_t tile, int64_t vector, bool pixels, float *to, int64_t stride)
{
    if (tile >= t->count) {
        for (int i = 0; i < POINTS; i++) *(kolo_v16 *)(to + i * stride) = (kolo_v16){0};
        return;
    }
    const patch p = patch_of(v, t, pad, tile, vector);
    FOR_KIND(&p, transform_patch(v, map, &p, pixels, to, stride, high, wide));
}

/* To `out` vectors, with the weights that are there, of the chunk of tiles that begins with `first`. */
KOLO_ALWAYS void chunk_products(const correlation *c, int64_t first, int64_t count, int64_t out,
                                const float *v, float *m)
{
    const kolo_winograd_product product = {c->in, LANES, count * LANES, c->in * LANES * LANES, count * LANES};
    for (int64_t p = 0; p < POINTS; p++) {
        const range r = range_of(&c->tiles, first, count, p);
        for (int64_t o = 0; o < out; o += 2) {
            const float *u = c->u + p * apart(c->each * c->in * LANES) + o * c->in * LANES * LANES;
            for (int64_t t = r.begin / ROWS * ROWS; t < r.end; t += ROWS) {
                const float *a = v + p * apart(c->in * count) + t * LANES;
                float *to = m + p * apart(c->each * count) + (o * count + t) * LANES;
                if (o + 1 < out) kolo_winograd_multiply(&product, a, LANES, 1, u, to, 2, false);
                else kolo_winograd_multiply(&product, a, LANES, 1, u, to, 1, false);
            }
        }
    }
}

KOLO_ALWAYS void result_patch(const correlation *c, const patch *p, int64_t vector, const float *m,
                              int64_t stride, int high, int wide)
{
    kolo_v16 points[POINTS], results[POINTS];
    for (int i = 0; i < POINTS; i++)
        if (kolo_winograd_point(i / 6, high) && kolo_winograd_point(i % 6, wide))
            points[i] = *(const kolo_v16 *)(m + i * stride);
    kolo_winograd_results_2d(results, points, high, wide);
    if (c->bias) {
        const kolo_v16 bias = *(const kolo_v16 *)(c->bias + vector * LANES);
        for (int i = 0; i < high; i++)
            for (int j = 0; j < wide; j++) results[i * KOLO_WINOGRAD_SIDE + j] += bias;
    }
    write_patch(c->to, c->y, p, results, high, wide);
}

KOLO_ALWAYS void result_tile(const correlation *c, int64_t tile, int64_t vector, const float *m,
                             int64_t stride)
{
    const patch p = patch_of(c->to, &c->tiles, (const int64_t[2]){0, 0}, tile, vector);
    FOR_KIND(&p, result_patch(c, &p, vector, m, stride, high, wide));
}

/* Vectors out [o, o + each) of a chunk of tiles */
KOLO_BODY correlate_body(const correlation *c, int64_t first, int64_t o, float *own)
{
    const int64_t left = least_of(c->chunk, c->tiles.count - first), count = round8(left);
    const int64_t out = least_of(c->each, c->out - o);
    float *v = own, *m = own + POINTS * apart(c->in * count);
    for (int64_t i = 0; i < c->in && o == 0; i++)
        for (int64_t t = 0; t < count; t++) {
            const int64_t tile = t < left ? first + t : c->tiles.count;
            transform_tile(c->from, &c->tiles, c->pad, c->x, tile, i, true, v + (i * count + t) * LANES,
                           apart(c->in * count));
        }
    chunk_products(c, first, count, out, v, m);
    for (int64_t i = 0; i < out; i++)
        for (int64_t t = 0; t < left; t++)
            result_tile(c, first + t, o + i, m + (i * count + t) * LANES, apart(c->each * count));
}
KOLO_WIDE(correlate, (const correlation *c, int64_t first, int64_t o, float *own), (c, first, o, own))

static int64_t own_floats(const correlation *c)
{
    const int64_t count = round8(c->chunk);
    return POINTS * (apart(c->in * count) + apart(c->each * count));
}

static void run(correlation *c, const kolo_conv_winograd *s, const float *w, bool forward, void *workspace,
                bool arranged)
{
    c->u = workspace;
#pragma omp parallel num_threads(s->threads)
    {
        float *own = c->u + POINTS * apart(c->each * c->in * LANES) + omp_get_thread_num() * own_floats(c);
        for (int64_t o = 0; o < c->out; o += c->each) {
            const int64_t blocks = arranged && c->each == c->out ? 0 : c->in * least_of(c->each, c->out - o);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < blocks; i++) arrange(c, w, i % c->in, o + i / c->in, forward);
#pragma omp for schedule(static)
            for (int64_t first = 0; first < c->tiles.count; first += c->chunk) correlate(c, first, o, own);
        }
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
 * each has its share of their products du [36][out][16 in][16], which grow from chunk to chunk. Where there
 * is one chunk only, those are made of `each` vectors out after the other. */
typedef struct gradient {
    const kolo_conv_winograd *s;
    const float *x, *dy;
    float *dw, *dbias, *du, *v, *z;
    int64_t in, out, each, chunk, count; /* count: the chunk and what makes it a multiple of 8 */
    tiles tiles;
} gradient;

static gradient gradient_of(const kolo_conv_winograd *s, void *workspace)
{
    gradient g = {.s = s, .in = vectors(&s->x), .out = vectors(&s->y), .tiles = tiles_of(&s->y)};
    g.chunk = chunk_of(s, g.tiles.count, 1, between(SHARED, bytes_of(weight_floats(s)), MOST));
    g.chunk = cut_groups(&g.tiles, g.chunk);
    g.count = round8(g.chunk);
    g.each = g.chunk < g.tiles.count ? g.out : block_of(g.in, g.out);
    g.du = workspace;
    g.v = g.du + POINTS * apart(g.each * g.in * LANES);
    g.z = g.v + POINTS * apart(g.in * g.count);
    return g;
}

/* Eight tiles of a vector of channels, first of x, then of dy. */
KOLO_BODY transform_body(const gradient *g, int64_t first, int64_t at, int64_t vector)
{
    const kolo_conv_winograd *s = g->s;
    const bool of_x = vector < g->in;
    const int64_t own = of_x ? vector : vector - g->in, none[2] = {0, 0};
    const int64_t stride = apart((of_x ? g->in : g->out) * g->count);
    float *to = (of_x ? g->v : g->z) + (own * g->count + at) * LANES;
    for (int64_t t = at; t < at + ROWS; t++, to += LANES) {
        const int64_t tile = t < g->chunk ? first + t : g->tiles.count;
        if (of_x) transform_tile(&s->x, &g->tiles, s->pad, g->x, tile, own, true, to, stride);
        else transform_tile(&s->y, &g->tiles, none, g->dy, tile, own, false, to, stride);
    }
}
KOLO_WIDE(transform, (const gradient *g, int64_t first, int64_t at, int64_t vector), (g, first, at, vector))

KOLO_ALWAYS void gradient_products(const gradient *g, int64_t first, int64_t point, int64_t o, int wide,
                                   bool add)
{
    const range r = range_of(&g->tiles, first, g->count, point);
    const kolo_winograd_product product = {1, r.end - r.begin, 0, g->count * LANES, g->in * LANES * LANES};
    const float *z = g->z + point * apart(g->out * g->count) + (o * g->count + r.begin) * LANES;
    float *to = g->du + point * apart(g->each * g->in * LANES) + o % g->each * g->in * LANES * LANES;
    for (int64_t i = 0; i < g->in * LANES; i += ROWS) {
        const float *a = g->v + point * apart(g->in * g->count) + (i / LANES * g->count + r.begin) * LANES;
        kolo_winograd_multiply(&product, a + i % LANES, 1, LANES, z, to + i * LANES, wide, add);
    }
}

KOLO_BODY multiply_body(const gradient *g, int64_t first, int64_t point, int64_t o)
{
    const int wide = o + 1 < g->out ? 2 : 1;
    const bool add = first > 0;
    if (wide == 2 && add) gradient_products(g, first, point, o, 2, true);
    else if (wide == 2) gradient_products(g, first, point, o, 2, false);
    else if (add) gradient_products(g, first, point, o, 1, true);
    else gradient_products(g, first, point, o, 1, false);
}
KOLO_WIDE(multiply, (const gradient *g, int64_t first, int64_t point, int64_t o), (g, first, point, o))

KOLO_BODY taps_body(const gradient *g, int64_t in, int64_t out)
{
    const int64_t stride = apart(g->each * g->in * LANES);
    const float *from = g->du + (out % g->each * g->in + in) * LANES * LANES;
    float *to = g->dw + (out * g->in + in) * 9 * LANES * LANES;
    for (int k = 0; k < LANES; k++) {
        kolo_v16 points[POINTS], taps[9];
        for (int p = 0; p < POINTS; p++) points[p] = *(const kolo_v16 *)(from + p * stride + k * LANES);
        kolo_winograd_tap_gradients_2d(taps, points);
        for (int t = 0; t < 9; t++) *(kolo_v16 *)(to + (t * LANES + k) * LANES) = taps[t];
    }
}
KOLO_WIDE(taps, (const gradient *g, int64_t in, int64_t out), (g, in, out))

KOLO_BODY bias_gradient_body(const gradient *g, int64_t vector)
{
    const kolo_view *y = &g->s->y;
    kolo_v16 sum = {0};
    for (int64_t row = 0; row < y->rows; row++) {
        const float *at = g->dy + plane_at(y, row, vector);
        for (int64_t i = 0; i < y->pixels; i++) sum += *(const kolo_v16 *)(at + i * y->block);
    }
    *(kolo_v16 *)(g->dbias + vector * LANES) = sum;
}
KOLO_WIDE(bias_gradient, (const gradient *g, int64_t vector), (g, vector))

/* By all threads together: the transformed tiles from `first` on, and what they add to vectors out [o, o +
 * out). */
static void gradient_chunk(const gradient *g, int64_t first, int64_t o, int64_t out)
{
    const int64_t groups = g->count / ROWS, pairs = (out + 1) / 2;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < (o ? 0 : (g->in + g->out) * groups); i++)
        transform(g, first, i % groups * ROWS, i / groups);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < POINTS * pairs; i++) multiply(g, first, i / pairs, o + i % pairs * 2);
}

void kolo_conv_winograd_weight(const kolo_conv_winograd *s, const float *x, float *dw, float *dbias,
                               const float *dy, void *workspace)
{
    gradient g = gradient_of(s, workspace);
    g.x = x;
    g.dy = dy;
    g.dw = dw;
    g.dbias = dbias;
#pragma omp parallel num_threads(s->threads)
    {
        for (int64_t o = 0; o < g.out; o += g.each) {
            const int64_t out = least_of(g.each, g.out - o);
            for (int64_t first = 0; first < g.tiles.count; first += g.chunk)
                gradient_chunk(&g, first, o, out);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < g.in * out; i++) taps(&g, i % g.in, o + i / g.in);
        }
#pragma omp for schedule(static)
        for (int64_t o = 0; o < (dbias ? g.out : 0); o++) bias_gradient(&g, o);
    }
}

/* ---- memory -------------------------------------------------------------------------------------------- */

size_t kolo_conv_winograd_bytes(const kolo_conv_winograd *s, enum kolo_dnnl_pass pass)
{
    if (pass == KOLO_DNNL_WEIGHT) {
        const gradient g = gradient_of(s, NULL);
        return (size_t)bytes_of(
            POINTS * (apart(g.each * g.in * LANES) + apart(g.in * g.count) + apart(g.out * g.count)));
    }
    const correlation c = correlation_of(s, pass == KOLO_DNNL_FORWARD);
    return (size_t)bytes_of(POINTS * apart(c.each * c.in * LANES) + s->threads * own_floats(&c));
}
