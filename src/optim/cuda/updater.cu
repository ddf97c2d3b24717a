/* Updates on a GPU: any number of slices in one launch. When the updater is made its slices are cut into
 * pieces, whose table lies in the GPU's memory; a block updates a piece: reads weights, gradient, state and
 * average, writes them, and rounds the 16-bit copy, all in one pass (SGD with momentum and copy: 22 bytes an
 * element). The arithmetic is that of optim/rules.h; this file is compiled without contraction to fused
 * multiply-adds (-fmad=false), as the C loops are, so that the bits are theirs.
 *
 * An optimizer is one struct of rules.cuh and one row of `optimizers`. */
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/vector.cuh"
#include "optim/cuda/rules.cuh"

extern "C" {
#include "base/memory.h"
#include "optim/grad_scaler.h"
#include "optim/optim.h"
#include "optim/rules.h"
extern const kolo_updater_type kolo_cuda_updater; /* asked for by name: base/plugin.h */
}

enum {
    THREADS = 256,
    BATCH = 2, /* groups of 4 elements that a thread has under way */
};
static const int64_t PIECE = KOLO_LEAF; /* elements of a block */

/* A part of a norm's running statistics: mean or variance of at most THREADS channels. */
typedef struct running_piece {
    const float *statistic, *weight;
    float *running, *ema;
    int count;
    float momentum;
} running_piece;

/* Which leaves are of a tensor. */
typedef struct layer_leaves {
    kolo_leaf_run leaf;
    bool decay;
    float rate;
} layer_leaves;

/* The sum of squares: as many blocks, however long the vector. */
enum { SQUARE_BLOCKS = 1024 };

typedef struct optimizer {
    const char *name;
    int (*launch)(const kolo_updater *updater, const kolo_slice *piece, int pieces, bool delta,
                  const kolo_step *step);
    /* layer-wise: writes two sums of every piece, which is a leaf */
    int (*measure)(const kolo_updater *updater, const kolo_step *step, double *sum);
} optimizer;

typedef struct updater {
    const optimizer *rule;
    void *memory; /* the GPU's: all below but first_piece */
    size_t bytes;
    kolo_slice *piece; /* of all slices, in their order */
    running_piece *running;
    double *square;          /* [SQUARE_BLOCKS] */
    layer_leaves *layers;    /* [layers] */
    kolo_measured *measured; /* [measures] */
    int *first_piece;        /* [slices + 1] */
    int running_pieces;
} updater;

/* ---- the update ---- */

/* N elements, 4 or 1, as they are between load and store. */
template <typename RULE, int N> struct few {
    float w[N], g[N], state[RULE::STATES][N], ema[N], slow[N];
};

template <int N> static __device__ void few_load(float (&to)[N], const float *from)
{
    if constexpr (N == 4) kolo_load16(from, to);
    else to[0] = *from;
}
template <int N> static __device__ void few_store(float *to, const float (&from)[N])
{
    if constexpr (N == 4) kolo_store16(to, from);
    else *to = from[0];
}
struct __attribute__((may_alias)) __align__(8) half_words { uint32_t at[2]; };
template <typename T, int N> static __device__ void few_narrow(T *to, const float (&from)[N])
{
    if constexpr (N == 4) *(half_words *)to = {{kolo_repack(to, from), kolo_repack(to, from + 2)}};
    else kolo_round(from[0], to);
}

template <typename RULE, int N>
static __device__ void cuda_updater_begin(few<RULE, N> *f, const kolo_slice &s, int64_t i, int used)
{
    few_load(f->w, s.param + i);
    few_load(f->g, s.grad + i);
#pragma unroll
    for (int j = 0; j < RULE::STATES; j++)
        if (j < used) few_load(f->state[j], s.state[j] + i);
    if (s.ema) few_load(f->ema, s.ema + i);
    if (s.slow) few_load(f->slow, s.slow + i);
}

template <typename RULE, int N>
static __device__ void cuda_updater_finish(few<RULE, N> *f, const RULE &rule, const kolo_slice &s, bool delta,
                                           int64_t i, float ema_decay)
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        float state[RULE::STATES];
        for (int j = 0; j < RULE::STATES; j++) state[j] = f->state[j][k];
        const float old = f->w[k];
        f->w[k] = rule.element(old, f->g[k], state);
        if (delta) {
            f->g[k] = f->w[k] - old;
            for (int j = 0; j < RULE::STATES; j++) f->state[j][k] = state[j];
            continue;
        }
        if (s.slow)
            f->slow[k] =
                kolo_rule_slow(rule.slow_begin ? old : f->slow[k], &f->w[k], rule.slow_rate, rule.slow_now);
        for (int j = 0; j < RULE::STATES; j++) f->state[j][k] = state[j];
        if (s.ema) f->ema[k] = kolo_rule_ema(f->ema[k], f->w[k], ema_decay);
    }
    few_store(delta ? s.grad + i : s.param + i, delta ? f->g : f->w);
#pragma unroll
    for (int j = 0; j < RULE::STATES; j++)
        if (j < rule.used) few_store(s.state[j] + i, f->state[j]);
    if (delta) return;
    if (s.ema) few_store(s.ema + i, f->ema);
    if (s.slow) few_store(s.slow + i, f->slow);
    if (s.half && s.half_type == KOLO_BF16) few_narrow((kolo_bf16 *)s.half + i, f->w);
    else if (s.half) few_narrow((kolo_f16 *)s.half + i, f->w);
}

template <typename RULE>
__global__ void __launch_bounds__(THREADS)
    update_kernel(const kolo_slice *piece, RULE rule, bool delta, const kolo_step *step)
{
    if (step->skip) return;
    const kolo_slice s = piece[blockIdx.x];
    const int64_t fours = s.count & ~(int64_t)3;
    const float ema_decay = step->ema_decay;
    rule.begin(step, s);
    for (int64_t first = 4 * (int64_t)threadIdx.x; first < fours; first += 4 * THREADS * BATCH) {
        few<RULE, 4> f[BATCH];
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (first + u * 4 * THREADS < fours)
                cuda_updater_begin(&f[u], s, first + u * 4 * THREADS, rule.used);
#pragma unroll
        for (int u = 0; u < BATCH; u++)
            if (first + u * 4 * THREADS < fours)
                cuda_updater_finish(&f[u], rule, s, delta, first + u * 4 * THREADS, ema_decay);
    }
    if (fours + threadIdx.x < s.count) { /* what does not fill 16 bytes */
        few<RULE, 1> f;
        cuda_updater_begin(&f, s, fours + threadIdx.x, rule.used);
        cuda_updater_finish(&f, rule, s, delta, fours + threadIdx.x, ema_decay);
    }
}

static cudaStream_t stream_of(const kolo_updater *u)
{
    return kolo_cuda_of(u->config.backend)->stream[KOLO_LANE_COMPUTE];
}

template <typename RULE>
static int update_launch(const kolo_updater *u, const kolo_slice *piece, int pieces, bool delta,
                         const kolo_step *step)
{
    return KOLO_LAUNCH(update_kernel<RULE>, pieces, THREADS, 0, stream_of(u), piece,
                       RULE::of(u->config.optimizer, u->config.options), delta, step);
}

/* ---- the first pass of rules with a factor for every tensor ---- */

/* The sum over the block's threads, in a fixed tree, given to all of them. */
static __device__ double block_sum(double mine)
{
    __shared__ double lane[THREADS];
    lane[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned left = THREADS / 2; left; left /= 2) {
        if (threadIdx.x < left) lane[threadIdx.x] += lane[threadIdx.x + left];
        __syncthreads();
    }
    const double all = lane[0];
    __syncthreads();
    return all;
}

template <typename RULE, int N>
static __device__ void cuda_updater_measure(const RULE &rule, const kolo_slice &s, int64_t i,
                                            double (&sum)[2])
{
    float w[N], g[N], state[RULE::STATES][N] = {};
    few_load(w, s.param + i);
    few_load(g, s.grad + i);
#pragma unroll
    for (int j = 0; j < RULE::MEASURED; j++) few_load(state[j], s.state[j] + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float one[RULE::STATES], x, y;
        for (int j = 0; j < RULE::STATES; j++) one[j] = state[j][k];
        rule.squares(w[k], g[k], one, &x, &y);
        for (int j = 0; j < RULE::STATES; j++) state[j][k] = one[j];
        sum[0] += (double)x * (double)x;
        sum[1] += (double)y * (double)y;
    }
#pragma unroll
    for (int j = 0; j < RULE::MEASURED; j++) few_store(s.state[j] + i, state[j]);
}

template <typename RULE>
__global__ void __launch_bounds__(THREADS)
    measure_kernel(const kolo_slice *piece, RULE rule, const kolo_step *step, double *sums)
{
    if (step->skip) return;
    const kolo_slice s = piece[blockIdx.x];
    const int64_t fours = s.count & ~(int64_t)3;
    double sum[2] = {0, 0};
    rule.begin(step, s);
    for (int64_t at = 4 * (int64_t)threadIdx.x; at < fours; at += 4 * THREADS)
        cuda_updater_measure<RULE, 4>(rule, s, at, sum);
    if (fours + threadIdx.x < s.count) cuda_updater_measure<RULE, 1>(rule, s, fours + threadIdx.x, sum);
    for (int j = 0; j < 2; j++) {
        const double all = block_sum(sum[j]);
        if (threadIdx.x == 0) sums[2 * s.leaf + j] = all;
    }
}

static __global__ void __launch_bounds__(THREADS)
    decide_kernel(const layer_leaves *layers, const double *sums, kolo_rule_layer rule, const kolo_step *step,
                  kolo_layer *layer)
{
    if (step->skip) return;
    const layer_leaves l = layers[blockIdx.x];
    double sum[2] = {0, 0};
    for (int64_t i = (int64_t)threadIdx.x; i < l.leaf.count; i += THREADS)
        for (int j = 0; j < 2; j++) sum[j] += sums[2 * (l.leaf.first + i) + j];
    for (int j = 0; j < 2; j++) sum[j] = block_sum(sum[j]);
    if (threadIdx.x != 0) return;
    kolo_layer *of = &layer[blockIdx.x];
    of->sum[0] = sum[0];
    of->sum[1] = sum[1];
    kolo_layer_decide(&rule, l.decay ? step->weight_decay : 0, step->lr * l.rate, of);
}

template <typename RULE> static int measure_launch(const kolo_updater *u, const kolo_step *step, double *sum)
{
    const updater *own = (const updater *)u->state;
    const int pieces = own->first_piece[u->config.slices];
    if (!pieces) return 0;
    return KOLO_LAUNCH(measure_kernel<RULE>, pieces, THREADS, 0, stream_of(u), (const kolo_slice *)own->piece,
                       RULE::of(u->config.optimizer, u->config.options), step, sum);
}

static int layers_measure(kolo_updater *u, const kolo_step *step, double *sum)
{
    return ((const updater *)u->state)->rule->measure(u, step, sum);
}

static int layers_decide(kolo_updater *u, const kolo_step *step, const double *sum)
{
    const updater *own = (const updater *)u->state;
    const kolo_updater_config *c = &u->config;
    if (!c->layers) return 0;
    return KOLO_LAUNCH(decide_kernel, c->layers, THREADS, 0, stream_of(u), (const layer_leaves *)own->layers,
                       sum, kolo_layer_rule(c->optimizer, c->options), step, c->layer);
}

static const optimizer optimizers[] = {
    {"sgd", update_launch<sgd>, NULL},
    {"adam", update_launch<adam>, NULL},
    {"adamw", update_launch<adam>, NULL},
    {"rmsprop", update_launch<rmsprop<2>>, NULL},
    {"rmsprop_tf", update_launch<rmsprop<2>>, NULL},
    {"rmsprop_centered", update_launch<rmsprop<3>>, NULL},
    {"lars", update_launch<lars>, measure_launch<lars>},
    {"lars_tf", update_launch<lars>, measure_launch<lars>},
    {"lamb", update_launch<lamb>, measure_launch<lamb>},
    {"novograd", update_launch<novograd>, measure_launch<novograd>},
};

static int update(kolo_updater *u, int first, int count, enum kolo_update how, const kolo_step *step)
{
    const updater *own = (const updater *)u->state;
    int begin = own->first_piece[first], pieces = own->first_piece[first + count] - begin;
    if (!pieces) return 0;
    return (how == KOLO_UPDATE_APPLY ? update_launch<apply> : own->rule->launch)(
        u, own->piece + begin, pieces, how == KOLO_UPDATE_DELTA, step);
}

/* ---- running statistics ---- */

/* Also in a step that is skipped: the forward half was sound, or its statistics show that it was not. */
static __global__ void __launch_bounds__(THREADS)
    running_kernel(const running_piece *piece, const kolo_step *step)
{
    const running_piece p = piece[blockIdx.x];
    const int c = (int)threadIdx.x;
    if (c >= p.count) return;
    kolo_running_add(&p.running[c], p.ema ? &p.ema[c] : NULL, p.statistic[c], *p.weight, p.momentum, step);
}

static int running(kolo_updater *u, const kolo_step *step)
{
    const updater *own = (const updater *)u->state;
    if (!own->running_pieces) return 0;
    return KOLO_LAUNCH(running_kernel, own->running_pieces, THREADS, 0, stream_of(u), own->running, step);
}

/* ---- the norm ---- */

/* Of x[begin .. end) by a block, begin a multiple of 4; each thread adds in four sums. Thread 0 has it. */
static __device__ double block_squares(const float *x, int64_t begin, int64_t end)
{
    enum { LOADS = 4 };
    const int64_t fours = end & ~(int64_t)3;
    double sum[4] = {0, 0, 0, 0};
    for (int64_t first = begin + 4 * (int64_t)threadIdx.x; first < fours; first += 4 * THREADS * LOADS) {
        float v[LOADS][4];
#pragma unroll
        for (int u = 0; u < LOADS; u++)
            if (first + u * 4 * THREADS < fours) kolo_load16(x + first + u * 4 * THREADS, v[u]);
#pragma unroll
        for (int u = 0; u < LOADS; u++)
            if (first + u * 4 * THREADS < fours)
                for (int k = 0; k < 4; k++) sum[k] += (double)v[u][k] * (double)v[u][k];
    }
    if (fours + threadIdx.x < end) sum[0] += (double)x[fours + threadIdx.x] * (double)x[fours + threadIdx.x];
    return block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* A block takes `size` elements, a multiple of 4 THREADS. */
static __global__ void __launch_bounds__(THREADS)
    square_kernel(double *partial, const float *x, int64_t count, int64_t size)
{
    const int64_t begin = size * blockIdx.x, end = begin + size < count ? begin + size : count;
    const double all = block_squares(x, begin, end);
    if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

/* A block takes a leaf. */
static __global__ void __launch_bounds__(THREADS) leaf_kernel(double *sum, const kolo_measured *leaf)
{
    const kolo_measured of = leaf[blockIdx.x];
    const double all = block_squares(of.value, 0, of.count);
    if (threadIdx.x == 0) sum[of.sum] = all;
}

static __global__ void __launch_bounds__(THREADS)
    judge_kernel(const double *partial, int64_t partials, kolo_grad_scaler_rule rule, kolo_step *step)
{
    double sum = 0;
#pragma unroll 8
    for (int64_t i = (int64_t)threadIdx.x; i < partials; i += THREADS) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) kolo_grad_scaler(&rule, sum, step);
}

static __global__ void __launch_bounds__(THREADS)
    square_add_kernel(const double *partial, int partials, bool more, kolo_step *step)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < partials; i += THREADS) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) step->square = (more ? step->square : 0) + sum;
}

/* Partial sums to own->square; *blocks: of them. */
static int squares(const kolo_updater *u, const float *grad, int64_t count, int *blocks)
{
    const updater *own = (const updater *)u->state;
    if ((uintptr_t)grad % 16)
        return kolo_fail(KOLO_EINTERNAL, "updater: the gradients do not begin at a multiple of 16 bytes");
    int64_t line = 4 * THREADS, lines = (count + line - 1) / line,
            size = (lines + SQUARE_BLOCKS - 1) / SQUARE_BLOCKS * line;
    *blocks = count > 0 ? (int)((count + size - 1) / size) : 0;
    return *blocks
               ? KOLO_LAUNCH(square_kernel, *blocks, THREADS, 0, stream_of(u), own->square, grad, count, size)
               : 0;
}

static int measure(kolo_updater *u, double *sum)
{
    const updater *own = (const updater *)u->state;
    const int leaves = (int)u->config.measures;
    if (!leaves) return 0;
    return KOLO_LAUNCH(leaf_kernel, leaves, THREADS, 0, stream_of(u), sum,
                       (const kolo_measured *)own->measured);
}

static int decide(kolo_updater *u, const double *sum, int64_t sums, kolo_step *step)
{
    const kolo_grad_scaler_rule rule = {(float)u->config.options->clip_norm, u->config.dynamic_scale};
    return KOLO_LAUNCH(judge_kernel, 1, THREADS, 0, stream_of(u), sum, sums, rule, step);
}

static int square(kolo_updater *u, const float *grad, int64_t count, bool more, kolo_step *step)
{
    int blocks = 0;
    KOLO_TRY(squares(u, grad, count, &blocks));
    return KOLO_LAUNCH(square_add_kernel, 1, THREADS, 0, stream_of(u),
                       (const double *)((const updater *)u->state)->square, blocks, more, step);
}

/* ---- tables ---- */

static int slice_check(const kolo_slice *s, int states)
{
    const void *all[9] = {s->param, s->grad, s->ema, s->half, s->slow};
    for (int i = 0; i < states; i++) all[5 + i] = s->state[i];
    for (int i = 0; i < 9; i++)
        if ((uintptr_t)all[i] % 16)
            return kolo_fail(KOLO_EINTERNAL, "updater: a slice does not begin at a multiple of 16 bytes");
    return 0;
}

/* The slices cut into pieces, to `piece` unless it is NULL, and which piece is the first of
 * each; the number of all. */
static int pieces_cut(const kolo_updater_config *c, int *first, kolo_slice *piece)
{
    int n = 0;
    for (int i = 0; i < c->slices; i++) {
        first[i] = n;
        for (int64_t at = 0; at < c->slice[i].count; at += PIECE, n++) {
            if (!piece) continue;
            kolo_slice s = c->slice[i];
            s.param += at;
            s.grad += at;
            for (int j = 0; j < c->optimizer->states; j++) s.state[j] += at;
            if (s.ema) s.ema += at;
            if (s.slow) s.slow += at;
            if (s.half) s.half = (uint16_t *)s.half + at;
            s.leaf += at / KOLO_LEAF;
            s.count = s.count - at < PIECE ? s.count - at : PIECE;
            piece[n] = s;
        }
    }
    first[c->slices] = n;
    return n;
}

static int running_cut(const kolo_updater_config *c, running_piece *piece)
{
    int n = 0;
    for (int i = 0; i < c->runnings; i++) {
        const kolo_running *r = &c->running[i];
        for (int j = 0; j < 2; j++)
            for (int64_t at = 0; at < r->channels; at += THREADS, n++) {
                if (!piece) continue;
                piece[n] = {r->statistic + j * r->channels + at,
                            r->statistic + 2 * r->channels,
                            r->running[j] + at,
                            r->ema[j] ? r->ema[j] + at : NULL,
                            (int)(r->channels - at < (int64_t)THREADS ? r->channels - at : (int64_t)THREADS),
                            r->momentum};
            }
    }
    return n;
}

static void layers_list(const kolo_updater_config *c, layer_leaves *to)
{
    for (int i = 0; i < c->layers; i++) to[i] = {c->leaf[i], c->segment[i].decay, c->segment[i].rate};
}

/* Memory of the GPU, and the tables in it. */
static int tables_write(kolo_updater *u, updater *own)
{
    const kolo_updater_config *c = &u->config;
    int count = pieces_cut(c, own->first_piece, NULL);
    size_t pieces = (size_t)count * sizeof(kolo_slice), layered = (size_t)c->layers * sizeof(layer_leaves);
    own->running_pieces = running_cut(c, NULL);
    size_t runnings = (size_t)own->running_pieces * sizeof(running_piece),
           squares = SQUARE_BLOCKS * sizeof(double);
    size_t measured = (size_t)c->measures * sizeof(kolo_measured),
           before = squares + pieces + runnings + layered; /* all sizes are multiples of 8 */
    own->bytes = before + measured;
    own->memory = kolo_backend_alloc(c->backend, own->bytes);
    char *host = own->memory ? (char *)kolo_alloc(own->bytes) : NULL;
    if (!host) return KOLO_ENOMEM;
    own->square = (double *)own->memory;
    own->piece = (kolo_slice *)((char *)own->memory + squares);
    own->running = (running_piece *)((char *)own->piece + pieces);
    pieces_cut(c, own->first_piece, (kolo_slice *)(host + squares));
    running_cut(c, (running_piece *)(host + squares + pieces));
    own->layers = (layer_leaves *)((char *)own->running + runnings);
    layers_list(c, (layer_leaves *)(host + squares + pieces + runnings));
    own->measured = (kolo_measured *)((char *)own->memory + before);
    if (measured) memcpy(host + before, c->measured, measured);
    int rc = kolo_backend_write(c->backend, own->memory, host, own->bytes);
    free(host);
    return rc;
}

static int create(kolo_updater *u)
{
    const kolo_updater_config *c = &u->config;
    updater *own = (updater *)kolo_alloc(sizeof *own);
    u->state = own; /* destroy releases what there is */
    if (!own || !(own->first_piece = (int *)kolo_alloc((size_t)(c->slices + 1) * sizeof(int))))
        return KOLO_ENOMEM;
    for (const optimizer &o : optimizers)
        if (!strcmp(o.name, c->optimizer->name)) own->rule = &o;
    if (!own->rule)
        return kolo_fail(KOLO_ECONFIG, "optimizer=%s has no CUDA kernel; use device=cpu, or optimizer=%s",
                         c->optimizer->name, optimizers[0].name);
    for (int i = 0; i < c->slices; i++) KOLO_TRY(slice_check(&c->slice[i], c->optimizer->states));
    for (int64_t i = 0; i < c->measures; i++)
        if ((uintptr_t)c->measured[i].value % 16)
            return kolo_fail(KOLO_EINTERNAL, "updater: a gradient does not begin at a multiple of 16 bytes");
    return tables_write(u, own);
}

static void destroy(kolo_updater *u)
{
    updater *own = (updater *)u->state;
    if (!own) return;
    kolo_backend_free(u->config.backend, &own->memory, own->bytes);
    free(own->first_piece);
    free(own);
    u->state = NULL;
}

const kolo_updater_type kolo_cuda_updater = {create, destroy,        update,        running, measure,
                                             decide, layers_measure, layers_decide, square};
