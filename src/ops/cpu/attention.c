/* Attention within shifted windows (Liu et al., arXiv:2103.14030), and its gradient, which computes the
 * scores again: no matrix of scores leaves the cache. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/attention.h"

enum { CHUNKS = 16 };

static int64_t sixteens(int64_t n) { return (n + 15) / 16 * 16; }

static void set_up(kolo_attention *a, const kolo_kernel_request *r)
{
    const kolo_attributes *n = &r->node->a;
    const bool backward = r->node->op == KOLO_OP_window_attention_grad;
    a->qkv = kolo_cpu_view_in(r, backward ? 1 : 0);
    a->y = backward ? kolo_cpu_view_in(r, 0) : kolo_cpu_view_out(r, 0);
    memcpy(a->window, n->kernel, sizeof a->window);
    memcpy(a->shift, n->pad, sizeof a->shift);
    memcpy(a->round, n->beyond, sizeof a->round);
    a->heads = n->groups;
    a->depth = a->y.channels / a->heads;
    a->tokens = a->window[0] * a->window[1];
    a->wide = sixteens(a->tokens);
    a->deep = sixteens(a->depth);
    a->scale = (float)(1 / sqrt((double)a->depth));
    a->across = a->qkv.width / a->window[1];
    a->windows = a->qkv.height / a->window[0] * a->across;
    const bool biased = kolo_request_in(r, backward ? 2 : 1) != NULL;
    a->bias_row = biased ? a->wide : 0;
    a->bias_one = biased ? a->tokens * a->wide : a->wide;
    a->chunks = a->windows * a->qkv.rows < CHUNKS ? a->windows * a->qkv.rows : CHUNKS;
    a->threads = kolo_cpu_threads(r->backend, kolo_view_count(&a->qkv));
}

static int64_t bias_floats(const kolo_attention *a) { return a->heads * a->bias_one; }
static int64_t square(const kolo_attention *a) { return a->tokens * a->wide; }
static int64_t tall(const kolo_attention *a) { return a->tokens * a->deep; }
static int64_t turned(const kolo_attention *a) { return a->deep * a->wide; }
static int64_t places(const kolo_attention *a) { return sixteens(2 * a->tokens); }

/* The next `n` floats of a thread's scratch. */
static float *next(float **scratch, int64_t n)
{
    float *mine = *scratch;
    *scratch += n;
    return mine;
}

static void attend(const kolo_attention *a, int64_t window, int64_t head, const float *bias, const void *qkv,
                   void *y, float *scratch)
{
    const kolo_attention_window w = kolo_attention_find(a, window, (int32_t *)next(&scratch, places(a)));
    float *q = next(&scratch, tall(a)), *k = next(&scratch, turned(a)), *v = next(&scratch, tall(a)),
          *s = next(&scratch, square(a));
    const int64_t at = head * a->depth, channels = a->y.channels;
    kolo_attention_take(a, &w, qkv, &a->qkv, at, a->scale, false, q);
    kolo_attention_take(a, &w, qkv, &a->qkv, channels + at, 1, true, k);
    kolo_attention_take(a, &w, qkv, &a->qkv, 2 * channels + at, 1, false, v);
    kolo_attention_multiply(s, a->wide, q, a->deep, 1, k, a->wide, a->tokens, a->wide, a->depth);
    kolo_attention_softmax(a, &w, bias + head * a->bias_one, s);
    kolo_attention_multiply(q, a->deep, s, a->wide, 1, v, a->deep, a->tokens, a->deep, a->tokens);
    kolo_attention_put(a, &w, q, 1, &a->y, at, y);
}

/* in: qkv[, table]; out: y */
static int attention_run(const kolo_kernel *kernel, void *const *args, void *workspace, const kolo_step *step,
                         int slot)
{
    (void)step;
    (void)slot;
    const kolo_attention *a = kernel->state;
    float *bias = workspace, *scratch = bias + bias_floats(a);
    void *y = args[a->bias_row ? 2 : 1];
    kolo_attention_spread(a, a->bias_row ? args[1] : NULL, bias);
#pragma omp parallel for schedule(static) num_threads(a->threads)
    for (int64_t t = 0; t < a->qkv.rows * a->windows * a->heads; t++)
        attend(a, t / a->heads, t % a->heads, bias, args[0], y, scratch + omp_get_thread_num() * a->scratch);
    kolo_attention_zero_padding(a, &a->y, y);
    return 0;
}

/* s = q k', p = softmax(s), y = p v: dv = p' dy, dp = dy v', ds = p (dp - sum p dp), dq = ds k, dk = ds'
 * q. dqkv: may be NULL */
static void attend_back(const kolo_attention *a, int64_t window, int64_t head, const float *bias,
                        const void *dy, const void *qkv, void *dqkv, float *dbias, float *scratch)
{
    const kolo_attention_window w = kolo_attention_find(a, window, (int32_t *)next(&scratch, places(a)));
    float *q = next(&scratch, tall(a)), *k = next(&scratch, tall(a)), *across = next(&scratch, turned(a)),
          *d = next(&scratch, tall(a)), *p = next(&scratch, square(a)), *ds = next(&scratch, square(a)),
          *out = next(&scratch, tall(a));
    const int64_t at = head * a->depth, channels = a->y.channels;
    kolo_attention_take(a, &w, qkv, &a->qkv, at, a->scale, false, q);
    kolo_attention_take(a, &w, qkv, &a->qkv, channels + at, 1, true, across);
    kolo_attention_multiply(p, a->wide, q, a->deep, 1, across, a->wide, a->tokens, a->wide, a->depth);
    kolo_attention_softmax(a, &w, bias + head * a->bias_one, p);
    kolo_attention_take(a, &w, dy, &a->y, at, 1, false, d);
    kolo_attention_take(a, &w, qkv, &a->qkv, 2 * channels + at, 1, true, across);
    kolo_attention_multiply(ds, a->wide, d, a->deep, 1, across, a->wide, a->tokens, a->wide, a->depth);
    kolo_attention_softmax_backward(a, p, ds, dbias);
    if (!dqkv) return;
    kolo_attention_take(a, &w, qkv, &a->qkv, channels + at, 1, false, k);
    kolo_attention_multiply(out, a->deep, ds, a->wide, 1, k, a->deep, a->tokens, a->deep, a->tokens);
    kolo_attention_put(a, &w, out, a->scale, &a->qkv, at, dqkv);
    kolo_attention_multiply(out, a->deep, ds, 1, a->wide, q, a->deep, a->tokens, a->deep, a->tokens);
    kolo_attention_put(a, &w, out, 1, &a->qkv, channels + at, dqkv);
    kolo_attention_multiply(out, a->deep, p, 1, a->wide, d, a->deep, a->tokens, a->deep, a->tokens);
    kolo_attention_put(a, &w, out, 1, &a->qkv, 2 * channels + at, dqkv);
}

/* in: dy, qkv, table; out: dqkv, dtable. A chunk's windows are summed in their order by one thread,
 * and chunks in theirs. */
static int attention_run_grad(const kolo_kernel *kernel, void *const *args, void *workspace,
                              const kolo_step *step, int slot)
{
    (void)step;
    (void)slot;
    const kolo_attention *a = kernel->state;
    const int64_t windows = a->qkv.rows * a->windows;
    float *bias = workspace, *dbias = bias + bias_floats(a), *scratch = dbias + a->chunks * bias_floats(a);
    kolo_attention_spread(a, a->bias_row ? args[2] : NULL, bias);
#pragma omp parallel for schedule(dynamic) num_threads(a->threads)
    for (int64_t t = 0; t < a->chunks * a->heads; t++) {
        const int64_t chunk = t / a->heads, head = t % a->heads;
        float *sum = dbias + t * a->bias_one;
        memset(sum, 0, (size_t)a->bias_one * sizeof *sum);
        for (int64_t w = chunk * windows / a->chunks; w < (chunk + 1) * windows / a->chunks; w++)
            attend_back(a, w, head, bias, args[0], args[1], args[3], sum,
                        scratch + omp_get_thread_num() * a->scratch);
    }
    if (args[3]) kolo_attention_zero_padding(a, &a->qkv, args[3]);
    if (args[4]) kolo_attention_gather(a, dbias, (double *)bias, args[4]);
    return 0;
}

static int attention_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_window_attention_grad;
    kolo_attention *a = kolo_alloc(sizeof *a);
    if (!a) return KOLO_ENOMEM;
    k->state = a;
    k->release = free;
    k->run = backward ? attention_run_grad : attention_run;
    set_up(a, r);
    a->scratch = places(a) + turned(a) + (backward ? 4 * tall(a) + 2 * square(a) : 2 * tall(a) + square(a));
    /* the bias, whose place takes the sums of dtable at the end: (2M-1)^2 doubles are less than M^2 rows
     * of 16 floats or more */
    k->workspace =
        (size_t)((1 + (backward ? a->chunks : 0)) * bias_floats(a) + a->threads * a->scratch) * sizeof(float);
    snprintf(k->name, sizeof k->name, "own block %ld%s", (long)a->qkv.block, a->qkv.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_window_attention = {NULL, attention_prepare};
const kolo_op_row kolo_cpu_window_attention_grad = {NULL, attention_prepare};
