/* topk: selection with error feedback and momentum correction, then a sparse sum by recursive doubling (few
 * pairs, or two members) or by split and allgather, where each member sums one part of the numbers. */
#include <math.h>
#include <string.h>

#include "comm/compress/codec.h"
#include "comm/core/kernel_wide.h"
#include "kolo/error.h"

enum { SELECT, SIZES, MERGE, REDUCE, FINISH };
enum { DOUBLING_BYTES = 16384 }; /* of one member's pairs */

typedef struct topk {
    float *error, *velocity; /* state: [compressed]; velocity NULL without momentum */
    uint32_t *index, *spare; /* [comm_select_room] */
    bool split;
    int levels;                /* doubling: in which this member takes part */
    sparse_slot sum[2], other; /* doubling: level l adds `other` to sum[l % 2], into sum[(l + 1) % 2] */
    /* split: [members] parts of this member, of its part from the others, sums */
    sparse_slot *out, *in, *result;
    comm_place plain; /* scratch: the vector packed */
} topk;

/* ---- what is sent -------------------------------------------------------------------------------------- */

static int64_t most(double density, int64_t compressed)
{
    int64_t k = (int64_t)ceil(density * (double)compressed);
    return k < 1 ? 1 : k;
}

static bool splits(double density, int members, int64_t compressed)
{
    return members > 2 && most(density, compressed) * (int64_t)sizeof(sparse_pair) > DOUBLING_BYTES;
}

static int64_t wanted(const comm_codec *c)
{
    double density = c->config.density, stages = ceil(log(1 / density) / log(4)) - 1;
    int64_t past = (int64_t)c->round - 1 - c->config.start; /* compressed rounds before this one */
    if (past < c->config.warmup && stages >= 1) {
        double now = pow(0.25, 1 + floor((double)past * stages / (double)c->config.warmup));
        if (now > density) density = now;
    }
    return most(density, c->compressed);
}

KOLO_CLONES_512 static void accumulate(float *restrict error, float *restrict velocity,
                                       const float *restrict g, int64_t count, float momentum, float scale)
{
    if (velocity)
        for (int64_t i = 0; i < count; i++) {
            velocity[i] = momentum * velocity[i] + scale * g[i];
            error[i] += velocity[i];
        }
    else
        for (int64_t i = 0; i < count; i++) error[i] += scale * g[i];
}

static double squares(const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * x[i];
    return sum;
}

static float clipping(const comm_codec *c, const float *g)
{
    if (c->config.clip == 0) return 1;
    double limit = c->config.clip / sqrt(c->members), norm = sqrt(squares(g, c->compressed));
    return norm > limit ? (float)(limit / norm) : 1;
}

static void select_largest(const comm_codec *c, const comm_run *run)
{
    topk *t = c->own;
    float *g = codec_words(run, t->plain);
    codec_gather(c, (const float *)(const void *)run->buffer[COMM_OWN], g);
    accumulate(t->error, t->velocity, g, c->compressed, (float)c->config.momentum, clipping(c, g));
    int64_t n = comm_select(t->index, t->spare, t->error, c->compressed, wanted(c), c->round * 0x9E3779B9u);
    if (!t->split) sparse_write(run, &t->sum[0], t->index, n, t->error);
    for (int64_t m = 0, first = 0; t->split && m < c->members; m++) {
        int64_t end = first;
        while (end < n && t->index[end] < t->out[m].range.to) end++;
        sparse_write(run, &t->out[m], t->index + first, end - first, t->error);
        first = end;
    }
    for (int64_t i = 0; i < n; i++) {
        t->error[t->index[i]] = 0;
        if (t->velocity) t->velocity[t->index[i]] = 0;
    }
}

/* ---- the sum ------------------------------------------------------------------------------------------- */

static void reduce_part(const comm_codec *c, const comm_run *run)
{
    const topk *t = c->own;
    float *sum = codec_words(run, comm_shift(t->plain, t->out[c->me].range.from));
    memset(sum, 0, (size_t)comm_length(t->out[c->me].range) * sizeof *sum);
    for (int m = 0; m < c->members; m++) sparse_add(run, m == c->me ? &t->out[m] : &t->in[m], sum);
    sparse_pack(run, &t->result[c->me], sum);
}

static void topk_finish(const comm_codec *c, const comm_run *run)
{
    const topk *t = c->own;
    float *plain = codec_words(run, t->plain);
    memset(plain, 0, (size_t)c->compressed * sizeof *plain);
    if (!t->split) sparse_add(run, &t->sum[t->levels % 2], plain);
    for (int m = 0; t->split && m < c->members; m++)
        sparse_add(run, &t->result[m], plain + t->result[m].range.from);
    codec_scatter(c, (float *)(void *)run->buffer[COMM_OWN], plain);
}

static void topk_call(comm_codec *c, comm_run *run, const comm_action *action)
{
    topk *t = c->own;
    int level = (int)action->count & 31;
    bool left = action->count >> 5;
    const sparse_slot *mine = &t->sum[level % 2];
    switch (action->peer) {
    case SELECT: select_largest(c, run); break;
    case SIZES: sparse_sizes(c, run); break;
    case MERGE:
        sparse_merge(run, &t->sum[(level + 1) % 2], left ? mine : &t->other, left ? &t->other : mine);
        break;
    case REDUCE: reduce_part(c, run); break;
    case FINISH: topk_finish(c, run); break;
    }
}

/* ---- the schedule -------------------------------------------------------------------------------------- */

/* Partners at distance 1, 2, 4, ...; where the right half of a block is short, each of its members serves
 * several on the left. */
static int doubling(comm_codec *c, comm_build *b)
{
    topk *t = c->own;
    sparse_transfer *transfer = comm_build_memory(b, (size_t)(c->members + 1) * sizeof *transfer);
    if (!transfer) return KOLO_ENOMEM;
    for (int d = 1; d < c->members; d *= 2) {
        int base = c->me & ~(2 * d - 1), middle = base + d,
            end = base + 2 * d < c->members ? base + 2 * d : c->members, n = 0;
        bool left = c->me < middle;
        if (end <= middle) continue;
        int right = end - middle, i = c->me - (left ? base : middle);
        transfer[n++] = (sparse_transfer){left ? middle + i % right : base + i, &t->other, false};
        if (left && i < right) transfer[n++] = (sparse_transfer){middle + i, &t->sum[t->levels % 2], true};
        for (int to = base + i; !left && to < middle; to += right)
            transfer[n++] = (sparse_transfer){to, &t->sum[t->levels % 2], true};
        sparse_exchange(b, transfer, n, SIZES);
        comm_build_call(b, MERGE, t->levels++ | (int64_t)left << 5);
    }
    return 0;
}

static int split(comm_codec *c, comm_build *b)
{
    topk *t = c->own;
    sparse_transfer *transfer = comm_build_memory(b, 2 * (size_t)c->members * sizeof *transfer);
    t->out = comm_build_memory(b, 3 * (size_t)c->members * sizeof *t->out);
    int n = 0;
    if (!transfer || !t->out) return KOLO_ENOMEM;
    t->in = t->out + c->members;
    t->result = t->in + c->members;
    comm_range all = {0, c->compressed}, mine = comm_cut(all, c->members, c->me);
    for (int m = 0; m < c->members; m++) {
        t->out[m] = sparse_slot_make(b, comm_cut(all, c->members, m));
        t->result[m] = sparse_slot_make(b, comm_cut(all, c->members, m));
        if (m != c->me) t->in[m] = sparse_slot_make(b, mine);
    }
    for (int k = 1; k < c->members; k++) {
        int from = (c->me + c->members - k) % c->members, to = (c->me + k) % c->members;
        transfer[n++] = (sparse_transfer){from, &t->in[from], false};
        transfer[n++] = (sparse_transfer){to, &t->out[to], true};
    }
    sparse_exchange(b, transfer, n, SIZES);
    comm_build_call(b, REDUCE, 0);
    for (int i = 0; i < n; i++)
        transfer[i].slot = transfer[i].send ? &t->result[c->me] : &t->result[transfer[i].peer];
    sparse_exchange(b, transfer, n, SIZES);
    return 0;
}

static int topk_make(comm_codec *c, comm_build *b)
{
    topk *t = c->own = comm_build_memory(b, sizeof *t);
    double widest = c->config.warmup > 0 && c->config.density < 0.25 ? 0.25 : c->config.density;
    size_t room = (size_t)comm_select_room(most(widest, c->compressed)) * sizeof(uint32_t),
           bytes = (size_t)c->compressed * sizeof(float);
    comm_range all = {0, c->compressed};
    if (!t) return KOLO_ENOMEM;
    t->index = comm_build_memory(b, room);
    t->spare = comm_build_memory(b, room);
    c->spare_bytes = 2 * room;
    t->error = codec_keep(c, b, bytes);
    if (c->config.momentum > 0) t->velocity = codec_keep(c, b, bytes);
    if (!t->index || !t->spare || !t->error || (c->config.momentum > 0 && !t->velocity)) return KOLO_ENOMEM;
    t->plain = codec_scratch(b, c->compressed);
    t->split = splits(c->config.density, c->members, c->compressed);
    int64_t sum = 2 * c->members * most(widest, c->compressed); /* words, were no index in common */
    if (sum < c->compressed && !t->split) c->idle = 3 * (c->compressed - sum);
    if (!t->split) {
        t->sum[0] = sparse_slot_make(b, all);
        t->sum[1] = sparse_slot_make(b, all);
        t->other = sparse_slot_make(b, all);
    }
    comm_build_call(b, SELECT, 0);
    KOLO_TRY(t->split ? split(c, b) : doubling(c, b));
    comm_build_call(b, FINISH, 0);
    return 0;
}

/* As if no two members sent the same number. */
static double bytes(const comm_compress *config, int members, int64_t compressed, const comm_matrix *matrix,
                    int matrices)
{
    (void)matrix, (void)matrices;
    double whole = 4 * (double)compressed, pairs = 8 * (double)most(config->density, compressed), n = members;
    double sum = n * pairs < whole ? n * pairs : whole;
    if (pairs > whole) pairs = whole;
    return splits(config->density, members, compressed) ? (n - 1) / n * (pairs + sum) : (n - 1) * pairs;
}

const comm_compressor comm_topk = {NULL, topk_make, topk_call, bytes};
