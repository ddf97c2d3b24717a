#include "ops/cpu/conv_small.h"

#include <omp.h>
#include <string.h>

#include "ops/cpu/access.h"

enum { LANES = KOLO_SMALL_LANES, MOST_CHANNELS = 32 };

kolo_bordered kolo_border(int64_t channels, int64_t height, int64_t reach)
{
    kolo_bordered b = {channels, height, kolo_round16(reach), 0};
    b.plane = b.height * b.stride;
    return b;
}

int64_t kolo_bordered_floats(const kolo_bordered *b) { return kolo_round16(b->channels * b->plane + LANES); }

void kolo_bordered_copy(const kolo_bordered *b, float *to, const float *from, int64_t h, int64_t w,
                        int64_t top, int64_t left)
{
    for (int64_t c = 0; c < b->channels; c++)
        for (int64_t i = 0; i < h; i++)
            memcpy(to + c * b->plane + (i + top) * b->stride + left, from + (c * h + i) * w,
                   (size_t)w * sizeof *to);
}

bool kolo_conv_small_fits(const kolo_conv_small *s)
{
    return s->in <= MOST_CHANNELS && s->out <= MOST_CHANNELS && s->kernel[0] <= KOLO_SMALL_KERNEL &&
           s->kernel[1] <= KOLO_SMALL_KERNEL && s->pad[0] < s->kernel[0] && s->pad[1] < s->kernel[1] &&
           s->width <= 256 && s->height <= 256;
}

/* ---- a correlation: forward, and the gradient of x ----------------------------------------------------- */

/* y (out, oh, ow) = sum over channels and taps of w x; x bordered, w packed as [group of
 * outputs][channel][kh][kw][member]. */
typedef struct correlation {
    kolo_bordered x;
    int64_t out, oh, ow, kh, kw;
    int group; /* outputs computed together: 4, 6 or 8 */
} correlation;

static int group_for(int64_t out)
{
    static const int size[] = {8, 6, 4};
    int best = 8;
    for (int i = 1; i < 3; i++)
        if ((out + size[i] - 1) / size[i] * size[i] < (out + best - 1) / best * best) best = size[i];
    return best;
}

/* Two vectors of pixels, `apart` elements of x from each other, of `group` outputs. */
KOLO_ALWAYS void tile_of(const correlation *c, const float *x, const float *w, const float *bias, float *tile,
                         int group, int64_t apart)
{
    kolo_v16 acc[8][2];
    for (int g = 0; g < group; g++)
        for (int v = 0; v < 2; v++) acc[g][v] = (kolo_v16){0} + bias[g];
    for (int64_t ch = 0; ch < c->x.channels; ch++)
        for (int64_t kh = 0; kh < c->kh; kh++) {
            const float *row = x + ch * c->x.plane + kh * c->x.stride;
            for (int64_t kw = 0; kw < c->kw; kw++, w += group)
                for (int v = 0; v < 2; v++) {
                    const kolo_v16 pixels = *(const kolo_v16 *)(row + kw + v * apart);
                    for (int g = 0; g < group; g++) acc[g][v] += pixels * w[g];
                }
        }
    for (int g = 0; g < group; g++)
        for (int v = 0; v < 2; v++) *(kolo_v16 *)(tile + (g * 2 + v) * LANES) = acc[g][v];
}

/* A vector may run over the end of its row, whose successor is written later, but not over
 * the end of the plane. */
KOLO_ALWAYS void put(float *plane, int64_t to, int64_t size, const float *vector)
{
    if (size - to >= LANES) *(kolo_v16 *)(plane + to) = *(const kolo_v16 *)vector;
    else if (size > to) memcpy(plane + to, vector, (size_t)(size - to) * sizeof *plane);
}

/* Wide images: a tile is 32 pixels of a row; narrow ones: 16 pixels of two rows. */
KOLO_ALWAYS void group_of(const correlation *c, const float *x, const float *w, const float *bias, float *y,
                          int members, int group)
{
    float tile[8 * 2 * LANES];
    int64_t size = c->oh * c->ow, rows = c->ow > LANES ? 1 : 2, apart = rows == 2 ? c->x.stride : LANES;
    int64_t next = rows == 2 ? c->ow : LANES;
    for (int64_t i = 0; i < c->oh; i += rows)
        for (int64_t j = 0; j < c->ow; j += 2 * LANES) {
            int64_t at = i * c->ow + j;
            bool second = rows == 2 || c->ow - j > LANES;
            tile_of(c, x + i * c->x.stride + j, w, bias, tile, group, apart);
            for (int g = 0; g < members; g++) {
                put(y + g * size, at, size, tile + g * 2 * LANES);
                if (second) put(y + g * size, at + next, size, tile + (g * 2 + 1) * LANES);
            }
        }
}

KOLO_BODY correlate_body(const correlation *c, const float *x, const float *w, const float *bias, float *y)
{
    int64_t taps = c->x.channels * c->kh * c->kw;
    for (int64_t o = 0; o < c->out; o += c->group) {
        int members = (int)(c->out - o < c->group ? c->out - o : c->group);
        const float *wg = w + o * taps, *b = bias + o;
        float *to = y + o * c->oh * c->ow;
        if (c->group == 8) group_of(c, x, wg, b, to, members, 8);
        else if (c->group == 6) group_of(c, x, wg, b, to, members, 6);
        else group_of(c, x, wg, b, to, members, 4);
    }
}
KOLO_WIDE(correlate, (const correlation *c, const float *x, const float *w, const float *bias, float *y),
          (c, x, w, bias, y))

static int64_t padded_outputs(const correlation *c) { return (c->out + c->group - 1) / c->group * c->group; }
static int64_t packed_floats(const correlation *c)
{
    return kolo_round16(padded_outputs(c) * (c->x.channels * c->kh * c->kw + 1));
}
static int64_t correlation_floats(const correlation *c, int threads)
{
    return packed_floats(c) + threads * kolo_bordered_floats(&c->x);
}

/* Weights in the order of their use, then the biases. `flip`: channels change parts and taps run
 * backwards (gradient of x). */
static void pack(const correlation *c, const float *w, const float *bias, bool flip, float *packed)
{
    int64_t taps = c->kh * c->kw, in = c->x.channels, members = padded_outputs(c);
    for (int64_t o = 0; o < members; o++)
        for (int64_t i = 0; i < in * taps; i++) {
            int64_t ch = i / taps, tap = i % taps,
                    from = flip ? (ch * c->out + o) * taps + taps - 1 - tap : (o * in + ch) * taps + tap;
            packed[(o / c->group * in * taps + i) * c->group + o % c->group] = o < c->out ? w[from] : 0;
        }
    for (int64_t o = 0; o < members; o++) packed[members * in * taps + o] = bias && o < c->out ? bias[o] : 0;
}

/* h, w: of one channel of x, which gets a border of top and left zeros. */
static void run_correlation(const correlation *c, int64_t rows, const float *x, int64_t h, int64_t w,
                            int64_t top, int64_t left, const float *packed, float *y, float *space,
                            int threads)
{
    const float *bias = packed + padded_outputs(c) * c->x.channels * c->kh * c->kw;
    int64_t size = kolo_bordered_floats(&c->x);
#pragma omp parallel num_threads(threads)
    {
        float *own = space + omp_get_thread_num() * size;
        memset(own, 0, (size_t)size * sizeof *own);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < rows; n++) {
            kolo_bordered_copy(&c->x, own, x + n * c->x.channels * h * w, h, w, top, left);
            correlate(c, own, packed, bias, y + n * c->out * c->oh * c->ow);
        }
    }
}

/* Columns that vectors of outputs read: those of the last whole vector and the taps right of it. */
static int64_t reach(int64_t columns, int64_t taps)
{
    return (columns > LANES ? (columns + 2 * LANES - 1) / (2 * LANES) * 2 * LANES : LANES) + taps;
}

static int64_t even(int64_t n) { return n + n % 2; }

static correlation forward_of(const kolo_conv_small *s)
{
    correlation c = {
        kolo_border(s->in, even(s->out_height) + s->kernel[0] - 1, reach(s->out_width, s->kernel[1])),
        s->out,
        s->out_height,
        s->out_width,
        s->kernel[0],
        s->kernel[1],
        group_for(s->out)};
    return c;
}

static correlation data_of(const kolo_conv_small *s)
{
    correlation c = {kolo_border(s->out, even(s->height) + s->kernel[0] - 1, reach(s->width, s->kernel[1])),
                     s->in,
                     s->height,
                     s->width,
                     s->kernel[0],
                     s->kernel[1],
                     group_for(s->in)};
    return c;
}

void kolo_conv_small_forward(const kolo_conv_small *s, const float *x, const float *w, const float *bias,
                             float *y, void *workspace)
{
    correlation c = forward_of(s);
    pack(&c, w, bias, false, workspace);
    run_correlation(&c, s->rows, x, s->height, s->width, s->pad[0], s->pad[1], workspace, y,
                    (float *)workspace + packed_floats(&c), s->threads);
}

void kolo_conv_small_data(const kolo_conv_small *s, float *dx, const float *w, const float *dy,
                          void *workspace)
{
    correlation c = data_of(s);
    pack(&c, w, NULL, true, workspace);
    run_correlation(&c, s->rows, dy, s->out_height, s->out_width, s->kernel[0] - 1 - s->pad[0],
                    s->kernel[1] - 1 - s->pad[1], workspace, dx, (float *)workspace + packed_floats(&c),
                    s->threads);
}

size_t kolo_conv_small_forward_bytes(const kolo_conv_small *s)
{
    correlation c = forward_of(s);
    return (size_t)correlation_floats(&c, s->threads) * sizeof(float);
}

size_t kolo_conv_small_data_bytes(const kolo_conv_small *s)
{
    correlation c = data_of(s);
    return (size_t)correlation_floats(&c, s->threads) * sizeof(float);
}
