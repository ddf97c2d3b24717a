/* Attention within windows, a window and a head at a time: what forward and backward share. The tokens of a
 * window are counted row by row. All matrices are f32 with rows of `wide` (one for each token) or `deep` (a
 * head's width) floats, multiples of 16. */
#ifndef KOLO_OPS_CPU_ATTENTION_H
#define KOLO_OPS_CPU_ATTENTION_H

#include "ops/cpu/cpu.h"

typedef struct kolo_attention {
    kolo_view qkv, y;
    int64_t heads, depth, tokens, wide, deep;
    /* windows: of one row of the batch, across: of those side by side */
    int64_t window[2], across, windows;
    /* rows and columns by which the map is rolled, and those of its last windows that came round */
    int64_t shift[2], round[2];
    /* floats from row to row of a head's bias, and of the bias of a head: `wide` and all rows; without a
     * table 0 and one row, which all share */
    int64_t bias_row, bias_one;
    /* groups of windows whose share of dtable is summed apart */
    int64_t chunks;
    int64_t scratch; /* floats of a thread */
    float scale;     /* of the queries: depth^-1/2 */
    int threads;
} kolo_attention;

/* A window's tokens: where they lie, and which of the four parts of the map, that the shift put
 * together, they come from. */
typedef struct kolo_attention_window {
    int64_t row; /* of the batch */
    bool masked;
    const int32_t *pixel, *part; /* [tokens] */
} kolo_attention_window;
/* Window `number` of the batch; memory: [2 tokens] */
kolo_attention_window kolo_attention_find(const kolo_attention *a, int64_t number, int32_t *memory);

/* bias[head][i][j] for all pairs of tokens, from the table ((2M-1)(2M'-1), heads), or NULL: 0; -infinity
 * beyond the last token. */
void kolo_attention_spread(const kolo_attention *a, const float *table, float *bias);
/* The way back: dtable from chunks x heads x tokens x wide, in one order. sum: [heads x entries] */
void kolo_attention_gather(const kolo_attention *a, const float *dbias, double *sum, float *dtable);

/* Channels first .. first + depth - 1 of the window's tokens, times `scale`: a row for
 * each token, or a column. */
void kolo_attention_take(const kolo_attention *a, const kolo_attention_window *w, const void *map,
                         const kolo_view *v, int64_t first, float scale, bool turned, float *to);
void kolo_attention_put(const kolo_attention *a, const kolo_attention_window *w, const float *from,
                        float scale, const kolo_view *v, int64_t first, void *map);
/* Lanes beyond the last channel. */
void kolo_attention_zero_padding(const kolo_attention *a, const kolo_view *v, void *map);

/* c (m, n) = a b, a (m, k) with its elements a_row and a_column apart, b (k, n); n a multiple of 16 */
void kolo_attention_multiply(float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_column,
                             const float *b, int64_t b_row, int64_t m, int64_t n, int64_t k);
/* s := softmax of the rows of s + bias + mask */
void kolo_attention_softmax(const kolo_attention *a, const kolo_attention_window *w, const float *bias,
                            float *s);
/* ds := p (dp - sum p dp) over rows, in place of dp; sum += ds, in rows like those of the bias */
void kolo_attention_softmax_backward(const kolo_attention *a, const float *p, float *ds, float *sum);

#endif
