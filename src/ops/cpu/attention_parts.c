#include <math.h>
#include <string.h>

#include "ops/cpu/attention.h"
#include "ops/cpu/exp.h"

/* ---- matrices ------------------------------------------------------------------------------------------ */

enum { TALL = 7 }; /* rows of a tile: seven times seven are the tokens of a usual window */

/* rows x 16 vectors of c; both are constants where this is inlined. */
KOLO_ALWAYS void tile(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_column,
                      const float *b, int64_t b_row, int64_t k, const int rows, const int vectors)
{
    kolo_v16 sum[TALL][2] = {0};
    for (int64_t i = 0; i < k; i++) {
        kolo_v16 wide[2] = {0};
        for (int v = 0; v < vectors; v++) wide[v] = *(const kolo_v16 *)(b + i * b_row + 16 * v);
        for (int r = 0; r < rows; r++) {
            const float one = a[r * a_row + i * a_column];
            for (int v = 0; v < vectors; v++) sum[r][v] += one * wide[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(kolo_v16 *)(c + r * c_row + 16 * v) = sum[r][v];
}

KOLO_ALWAYS void panel(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_column,
                       const float *b, int64_t b_row, int64_t m, int64_t k, const int vectors)
{
    int64_t i = 0;
    for (; i + TALL <= m; i += TALL)
        tile(c + i * c_row, c_row, a + i * a_row, a_row, a_column, b, b_row, k, TALL, vectors);
    for (; i + 2 <= m; i += 2)
        tile(c + i * c_row, c_row, a + i * a_row, a_row, a_column, b, b_row, k, 2, vectors);
    for (; i < m; i++) tile(c + i * c_row, c_row, a + i * a_row, a_row, a_column, b, b_row, k, 1, vectors);
}

KOLO_BODY multiply_body(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_column,
                        const float *b, int64_t b_row, int64_t m, int64_t n, int64_t k)
{
    int64_t j = 0;
    for (; j + 32 <= n; j += 32) panel(c + j, c_row, a, a_row, a_column, b + j, b_row, m, k, 2);
    for (; j < n; j += 16) panel(c + j, c_row, a, a_row, a_column, b + j, b_row, m, k, 1);
}
KOLO_WIDE(multiply,
          (float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_column, const float *b,
           int64_t b_row, int64_t m, int64_t n, int64_t k),
          (c, c_row, a, a_row, a_column, b, b_row, m, n, k))

void kolo_attention_multiply(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_column,
                             const float *b, int64_t b_row, int64_t m, int64_t n, int64_t k)
{
    multiply(c, c_row, a, a_row, a_column, b, b_row, m, n, k);
}

/* One row; part: of the tokens, or NULL without a mask; own: this row's. */
KOLO_BODY softmax_row_body(float *s, const float *bias, const int32_t *part, int32_t own, int64_t tokens,
                           int64_t wide)
{
    float most = -INFINITY, sum = 0;
    for (int64_t j = 0; part && j < tokens; j++) s[j] -= part[j] != own ? 100.0f : 0.0f;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < wide; j++) {
        s[j] += bias[j];
        most = s[j] > most ? s[j] : most;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < wide; j++) sum += s[j] = kolo_exp_zero1(s[j] - most);
    const float inverse = 1 / sum;
    for (int64_t j = 0; j < wide; j++) s[j] *= inverse;
}
KOLO_WIDE(softmax_row,
          (float *s, const float *bias, const int32_t *part, int32_t own, int64_t tokens, int64_t wide),
          (s, bias, part, own, tokens, wide))

void kolo_attention_softmax(const kolo_attention *a, const kolo_attention_window *w, const float *bias,
                            float *s)
{
    for (int64_t i = 0; i < a->tokens; i++)
        softmax_row(s + i * a->wide, bias + i * a->bias_row, w->masked ? w->part : NULL, w->part[i],
                    a->tokens, a->wide);
}

KOLO_BODY softmax_row_backward_body(const float *p, float *ds, float *sum, int64_t wide)
{
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < wide; j++) dot += p[j] * ds[j];
    for (int64_t j = 0; j < wide; j++) {
        ds[j] = p[j] * (ds[j] - dot);
        sum[j] += ds[j];
    }
}
KOLO_WIDE(softmax_row_backward, (const float *p, float *ds, float *sum, int64_t wide), (p, ds, sum, wide))

void kolo_attention_softmax_backward(const kolo_attention *a, const float *p, float *ds, float *sum)
{
    for (int64_t i = 0; i < a->tokens; i++)
        softmax_row_backward(p + i * a->wide, ds + i * a->wide, sum + i * a->bias_row, a->wide);
}

/* ---- windows of maps ----------------------------------------------------------------------------------- */

kolo_attention_window kolo_attention_find(const kolo_attention *a, int64_t number, int32_t *memory)
{
    const int64_t at = number % a->windows, height = a->qkv.height, width = a->qkv.width;
    const int64_t top = at / a->across * a->window[0], left = at % a->across * a->window[1];
    const bool last[2] = {a->round[0] && top + a->window[0] == height,
                          a->round[1] && left + a->window[1] == width};
    kolo_attention_window w = {number / a->windows, last[0] || last[1], memory, memory + a->tokens};
    for (int64_t r = 0, t = 0; r < a->window[0]; r++)
        for (int64_t c = 0; c < a->window[1]; c++, t++) {
            memory[t] =
                (int32_t)((top + r + a->shift[0]) % height * width + (left + c + a->shift[1]) % width);
            memory[a->tokens + t] = (last[0] && r >= a->window[0] - a->round[0] ? 2 : 0) +
                                    (last[1] && c >= a->window[1] - a->round[1] ? 1 : 0);
        }
    return w;
}

/* n lanes of the tokens, side by side in the map from `map` on; to: column by column if `turned`. */
KOLO_ALWAYS void take_lanes(float *to, int64_t stride, const void *map, const int32_t *pixel, int64_t block,
                            int64_t tokens, int64_t n, float scale, bool turned, bool bf16)
{
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t from = pixel[t] * block;
        if (turned)
            for (int64_t l = 0; l < n; l++) to[l * stride + t] = kolo_load(map, from + l, bf16) * scale;
        else
            for (int64_t l = 0; l < n; l++) to[t * stride + l] = kolo_load(map, from + l, bf16) * scale;
    }
}
KOLO_BODY take_body(float *to, int64_t stride, const void *map, const int32_t *pixel, int64_t block,
                    int64_t tokens, int64_t n, float scale, bool turned, bool bf16)
{
    KOLO_FOR_TYPE(bf16, take_lanes(to, stride, map, pixel, block, tokens, n, scale, turned, bf16_));
}
KOLO_WIDE(take,
          (float *to, int64_t stride, const void *map, const int32_t *pixel, int64_t block, int64_t tokens,
           int64_t n, float scale, bool turned, bool bf16),
          (to, stride, map, pixel, block, tokens, n, scale, turned, bf16))

KOLO_ALWAYS void put_lanes(void *map, const float *from, int64_t stride, const int32_t *pixel, int64_t block,
                           int64_t tokens, int64_t n, float scale, bool bf16)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t l = 0; l < n; l++)
            kolo_store(map, pixel[t] * block + l, from[t * stride + l] * scale, bf16);
}
KOLO_BODY put_body(void *map, const float *from, int64_t stride, const int32_t *pixel, int64_t block,
                   int64_t tokens, int64_t n, float scale, bool bf16)
{
    KOLO_FOR_TYPE(bf16, put_lanes(map, from, stride, pixel, block, tokens, n, scale, bf16_));
}
KOLO_WIDE(put,
          (void *map, const float *from, int64_t stride, const int32_t *pixel, int64_t block, int64_t tokens,
           int64_t n, float scale, bool bf16),
          (map, from, stride, pixel, block, tokens, n, scale, bf16))

/* Lanes of channel c and those behind it in its block, at most `most`; *at: pixel 0 of it. */
static int64_t lanes_at(const kolo_view *v, int64_t row, int64_t c, int64_t most, int64_t *at)
{
    const int64_t lane = c % v->block, n = v->block - lane;
    *at = (row * v->blocks + c / v->block) * kolo_view_plane(v) + lane;
    return n < most ? n : most;
}

void kolo_attention_take(const kolo_attention *a, const kolo_attention_window *w, const void *map,
                         const kolo_view *v, int64_t first, float scale, bool turned, float *to)
{
    const int64_t stride = turned ? a->wide : a->deep;
    for (int64_t i = 0, n, at; i < a->depth; i += n) {
        n = lanes_at(v, w->row, first + i, a->depth - i, &at);
        take(to + i * (turned ? stride : 1), stride, kolo_at(map, at, v->bf16), w->pixel, v->block, a->tokens,
             n, scale, turned, v->bf16);
    }
    const int64_t rows = turned ? a->depth : a->tokens, used = turned ? a->tokens : a->depth;
    for (int64_t i = 0; used < stride && i < rows; i++)
        memset(to + i * stride + used, 0, (size_t)(stride - used) * sizeof *to);
}

void kolo_attention_put(const kolo_attention *a, const kolo_attention_window *w, const float *from,
                        float scale, const kolo_view *v, int64_t first, void *map)
{
    for (int64_t i = 0, n, at; i < a->depth; i += n) {
        n = lanes_at(v, w->row, first + i, a->depth - i, &at);
        put(kolo_at_out(map, at, v->bf16), from + i, a->deep, w->pixel, v->block, a->tokens, n, scale,
            v->bf16);
    }
}

void kolo_attention_zero_padding(const kolo_attention *a, const kolo_view *v, void *map)
{
    const int64_t used = v->channels - (v->blocks - 1) * v->block;
    if (used == v->block) return;
#pragma omp parallel for schedule(static) num_threads(a->threads)
    for (int64_t n = 0; n < v->rows; n++)
        for (int64_t p = 0; p < v->pixels; p++) {
            const int64_t at = ((n * v->blocks + v->blocks - 1) * v->pixels + p) * v->block + used;
            memset(kolo_at_out(map, at, v->bf16), 0, (size_t)(v->block - used) * (v->bf16 ? 2 : 4));
        }
}

/* ---- relative positions -------------------------------------------------------------------------------- */

static int64_t entry(const kolo_attention *a, int64_t i, int64_t j)
{
    const int64_t high = a->window[0], wide = a->window[1];
    return (i / wide - j / wide + high - 1) * (2 * wide - 1) + i % wide - j % wide + wide - 1;
}

void kolo_attention_spread(const kolo_attention *a, const float *table, float *bias)
{
#pragma omp parallel for schedule(static) num_threads(a->threads)
    for (int64_t t = 0; t < a->heads * (a->bias_one / a->wide); t++) {
        const int64_t rows = a->bias_one / a->wide, head = t / rows, i = t % rows;
        for (int64_t j = 0; j < a->wide; j++)
            bias[t * a->wide + j] = j >= a->tokens ? -INFINITY
                                    : table        ? table[entry(a, i, j) * a->heads + head]
                                                   : 0;
    }
}

void kolo_attention_gather(const kolo_attention *a, const float *dbias, double *sum, float *dtable)
{
    const int64_t entries = (2 * a->window[0] - 1) * (2 * a->window[1] - 1), one = a->tokens * a->wide;
#pragma omp parallel for schedule(static) num_threads(a->threads)
    for (int64_t head = 0; head < a->heads; head++) {
        double *mine = sum + head * entries;
        for (int64_t e = 0; e < entries; e++) mine[e] = 0;
        for (int64_t c = 0; c < a->chunks; c++) {
            const float *from = dbias + (c * a->heads + head) * one;
            for (int64_t i = 0; i < a->tokens; i++)
                for (int64_t j = 0; j < a->tokens; j++) mine[entry(a, i, j)] += (double)from[i * a->wide + j];
        }
        for (int64_t e = 0; e < entries; e++) dtable[e * a->heads + head] = (float)mine[e];
    }
}
