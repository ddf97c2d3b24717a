/* Attention within shifted windows, of plain operations: biases and masks are constants. */
#include "ckpt/onnx.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

#if KOLO_ONNX

typedef struct map {
    int64_t heads, depth, rows, columns; /* of the map */
    int64_t window[2], shift[2], tokens; /* tokens: of a window */
} map;

/* What was `by` further along the axis comes to its beginning, and the beginning to the end; of (N,H,W,C). */
static const char *roll(onnx_writer *w, const char *x, int64_t axis, int64_t by)
{
    if (by == 0) return x;
    const char *part[] = {
        onnx_slice(w, NULL, x, 1, &axis, &by, (int64_t[]){INT64_MAX}, (int64_t[]){1}),
        onnx_slice(w, NULL, x, 1, &axis, (int64_t[]){0}, &by, (int64_t[]){1}),
    };
    const char *y = onnx_node(w, "Concat", NULL, 2, part);
    onnx_int(w, "axis", axis);
    return y;
}

/* (1, 1, heads, tokens, tokens) */
static const char *biases(onnx_writer *w, const map *m, int table)
{
    float *row = onnx_values(w, table),
          *bias = kolo_alloc((size_t)(m->heads * m->tokens * m->tokens) * sizeof *bias);
    const int64_t across = m->window[1], dim[] = {1, 1, m->heads, m->tokens, m->tokens};
    for (int64_t h = 0, k = 0; row && bias && h < m->heads; h++)
        for (int64_t i = 0; i < m->tokens; i++)
            for (int64_t j = 0; j < m->tokens; j++) {
                const int64_t y = i / across - j / across + m->window[0] - 1,
                              x = i % across - j % across + across - 1;
                bias[k++] = row[(y * (2 * across - 1) + x) * m->heads + h];
            }
    const char *name = row && bias ? onnx_floats(w, 5, dim, bias) : NULL;
    free(bias);
    free(row);
    return name;
}

/* Which of the parts that the shift has put beside each other a place is in. */
static int64_t region(int64_t place, int64_t size, int64_t window, int64_t shift)
{
    return shift == 0 || place < size - window ? 0 : place < size - shift ? 1 : 2;
}

/* (1, windows, 1, tokens, tokens): -100 between parts that are not neighbours in the image */
static const char *masks(onnx_writer *w, const map *m)
{
    const int64_t across = m->columns / m->window[1], windows = m->rows / m->window[0] * across;
    const int64_t dim[] = {1, windows, 1, m->tokens, m->tokens};
    float *mask = kolo_alloc((size_t)(windows * m->tokens * m->tokens) * sizeof *mask);
    int64_t *part = kolo_alloc((size_t)m->tokens * sizeof *part);
    for (int64_t n = 0, k = 0; mask && part && n < windows; n++) {
        for (int64_t i = 0; i < m->tokens; i++) {
            const int64_t y = n / across * m->window[0] + i / m->window[1],
                          x = n % across * m->window[1] + i % m->window[1];
            part[i] = 3 * region(y, m->rows, m->window[0], m->shift[0]) +
                      region(x, m->columns, m->window[1], m->shift[1]);
        }
        for (int64_t i = 0; i < m->tokens; i++)
            for (int64_t j = 0; j < m->tokens; j++) mask[k++] = part[i] == part[j] ? 0 : -100;
    }
    const char *name = mask && part ? onnx_floats(w, 5, dim, mask) : NULL;
    free(part);
    free(mask);
    return name;
}

/* 0 queries, 1 keys, 2 values: (N, windows, heads, tokens, depth) */
static const char *part_of(onnx_writer *w, const char *qkv, int64_t which)
{
    const char *x = onnx_two(w, "Gather", NULL, qkv, onnx_index(w, which));
    onnx_int(w, "axis", 0);
    return x;
}

const char *onnx_window_attention(onnx_writer *w, const onnx_operation *o)
{
    const kolo_attributes *a = &o->node->a;
    const kolo_tensor *t = &onnx_graph(w)->tensor[o->node->out[0]];
    const map m = {a->groups,
                   t->dim[1] / a->groups,
                   t->dim[2],
                   t->dim[3],
                   {a->kernel[0], a->kernel[1]},
                   {a->pad[0], a->pad[1]},
                   a->kernel[0] * a->kernel[1]};
    const int64_t down = m.rows / m.window[0], across = m.columns / m.window[1];
    const char *x = onnx_transpose(w, NULL, o->in[0], 4, (int64_t[]){0, 2, 3, 1});
    x = roll(w, roll(w, x, 1, m.shift[0]), 2, m.shift[1]);
    x = onnx_reshape(w, NULL, x, 8,
                     (int64_t[]){-1, down, m.window[0], across, m.window[1], 3, m.heads, m.depth});
    x = onnx_transpose(w, NULL, x, 8, (int64_t[]){5, 0, 1, 3, 6, 2, 4, 7});
    x = onnx_reshape(w, NULL, x, 6, (int64_t[]){3, -1, down * across, m.heads, m.tokens, m.depth});
    const float scale = (float)(1 / sqrt((double)m.depth));
    const char *q = onnx_two(w, "Mul", NULL, part_of(w, x, 0), onnx_floats(w, 0, NULL, &scale));
    const char *k = onnx_transpose(w, NULL, part_of(w, x, 1), 5, (int64_t[]){0, 1, 2, 4, 3}),
               *v = part_of(w, x, 2);
    const char *s = onnx_two(w, "MatMul", NULL, q, k);
    if (o->n_in > 1) s = onnx_two(w, "Add", NULL, s, biases(w, &m, o->node->in[1]));
    if (m.shift[0] || m.shift[1]) s = onnx_two(w, "Add", NULL, s, masks(w, &m));
    s = onnx_one(w, "Softmax", NULL, s);
    onnx_int(w, "axis", -1);
    x = onnx_two(w, "MatMul", NULL, s, v);
    x = onnx_reshape(w, NULL, x, 7,
                     (int64_t[]){-1, down, across, m.heads, m.window[0], m.window[1], m.depth});
    x = onnx_transpose(w, NULL, x, 7, (int64_t[]){0, 1, 4, 2, 5, 3, 6});
    x = onnx_reshape(w, NULL, x, 4, (int64_t[]){-1, m.rows, m.columns, m.heads * m.depth});
    x = roll(w, x, 1, m.shift[0] ? m.rows - m.shift[0] : 0);
    x = roll(w, x, 2, m.shift[1] ? m.columns - m.shift[1] : 0);
    return onnx_transpose(w, o->out, x, 4, (int64_t[]){0, 3, 1, 2});
}

#endif
