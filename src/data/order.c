#include "data/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/philox.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "kolo/error.h"

/* A lane is a group of rows of the batch that takes its samples, in their turn, from a stretch of
 * its own of `sequence`. */
struct kolo_order {
    kolo_order_config config;
    int64_t *sequence; /* [count] */
    int64_t *pool;     /* [count] permuted blocks; exchanged samples */
    int32_t *lane;     /* [rows] */
    int64_t *start;    /* [lanes + 1] in `sequence` */
    int64_t *next;     /* [lanes] */
    int lanes;
};

static int refuse(const char *text)
{
    return kolo_fail(
        KOLO_ECONFIG,
        "shuffle=%s: it is full, block:K (K consecutive samples together, for example block:128), block:K:W "
        "(W blocks are mixed) or local:Q (Q between 0 and 1: fraction that nodes exchange)",
        text);
}

static int parse_block(const char *text, const char *numbers, kolo_order_rule *rule)
{
    long long k = 0, w = 64;
    int end = 0;
    if (sscanf(numbers, ":%lld%n", &k, &end) != 1) return refuse(text);
    if (numbers[end] && (sscanf(numbers, ":%lld:%lld%n", &k, &w, &end) != 2 || numbers[end]))
        return refuse(text);
    if (k < 1 || k > 1 << 24 || w < 1 || w > 1 << 20) return refuse(text);
    rule->kind = KOLO_ORDER_BLOCK;
    rule->block = k;
    rule->window = w;
    return 0;
}

int kolo_order_parse(const char *text, kolo_order_rule *rule)
{
    *rule = (kolo_order_rule){.kind = KOLO_ORDER_FULL};
    if (!text || !*text || !strcmp(text, "full")) return 0;
    if (!strncmp(text, "block", 5)) return parse_block(text, text + 5, rule);
    if (strncmp(text, "local", 5) != 0) return refuse(text);
    rule->kind = KOLO_ORDER_LOCAL;
    if (!text[5]) return 0;
    char *end;
    rule->exchange = text[5] == ':' ? strtod(text + 6, &end) : -1;
    return rule->exchange >= 0 && rule->exchange <= 1 && end != text + 6 && !*end ? 0 : refuse(text);
}

/* count * a / b, rounded down, where the product may not fit. */
static int64_t part(int64_t count, int64_t a, int64_t b) { return count / b * a + count % b * a / b; }

void kolo_order_share(int64_t count, int ranks, const int *node_of, int node, int64_t *first, int64_t *last)
{
    int64_t before = 0, here = 0;
    for (int r = 0; r < ranks; r++) before += node_of[r] < node, here += node_of[r] == node;
    *first = part(count, before, ranks);
    *last = part(count, before + here, ranks);
}

/* Samples that a lane mixes. */
static int64_t lane_window(const kolo_order *o)
{
    const int64_t blocks = o->config.rule.window / o->lanes;
    return o->config.rule.block * (blocks > 0 ? blocks : 1);
}

static int lay_block_lanes(kolo_order *o)
{
    const int64_t rows = o->config.rows;
    const int64_t most = o->config.rule.window;
    for (o->lanes = (int)(rows < most ? rows : most); rows % o->lanes; o->lanes--) continue;
    o->start = kolo_alloc(sizeof *o->start * (size_t)(o->lanes + 1));
    if (!o->start) return KOLO_ENOMEM;
    for (int64_t i = 0; i < rows; i++) o->lane[i] = (int32_t)(i / (rows / o->lanes));
    for (int l = 0; l <= o->lanes; l++) o->start[l] = o->config.count / o->lanes * l;
    o->start[o->lanes] = o->config.count;
    return 0;
}

static int lay_local_lanes(kolo_order *o, const int *node_of)
{
    const kolo_order_config *c = &o->config;
    if (c->rows % c->ranks)
        return kolo_fail(
            KOLO_ECONFIG,
            "shuffle=local: %lld samples a batch cannot be divided over %d ranks; make batch a multiple "
            "of ranks x repeat",
            (long long)c->rows, c->ranks);
    o->lanes = 1;
    for (int r = 0; r < c->ranks; r++)
        if (node_of[r] >= o->lanes) o->lanes = node_of[r] + 1;
    o->start = kolo_alloc(sizeof *o->start * (size_t)(o->lanes + 1));
    if (!o->start) return KOLO_ENOMEM;
    for (int64_t i = 0; i < c->rows; i++) o->lane[i] = (int32_t)node_of[i / (c->rows / c->ranks)];
    for (int l = 0; l < o->lanes; l++)
        kolo_order_share(c->count, c->ranks, node_of, l, &o->start[l], &o->start[l + 1]);
    return 0;
}

static int lay_lanes(kolo_order *o, const int *node_of)
{
    const size_t bytes = sizeof *o->sequence * (size_t)o->config.count;
    int one = 0; /* node of the only rank where no map is given */
    if (!node_of) o->config.ranks = 1;
    o->sequence = kolo_alloc(bytes);
    o->pool = kolo_alloc(bytes);
    o->lane = kolo_alloc(sizeof *o->lane * (size_t)o->config.rows);
    if (!o->sequence || !o->pool || !o->lane) return KOLO_ENOMEM;
    KOLO_TRY(o->config.rule.kind == KOLO_ORDER_BLOCK ? lay_block_lanes(o)
                                                     : lay_local_lanes(o, node_of ? node_of : &one));
    o->next = kolo_alloc(sizeof *o->next * (size_t)o->lanes);
    return o->next ? 0 : KOLO_ENOMEM;
}

int kolo_order_create(kolo_order **order, const kolo_order_config *config)
{
    kolo_order *o = *order = kolo_alloc(sizeof *o);
    if (!o) return KOLO_ENOMEM;
    o->config = *config;
    o->config.node_of = NULL;
    const int rc = config->rule.kind == KOLO_ORDER_FULL ? 0 : lay_lanes(o, config->node_of);
    if (rc < 0) kolo_order_destroy(order);
    return rc;
}

void kolo_order_destroy(kolo_order **order)
{
    kolo_order *o = *order;
    if (!o) return;
    free(o->sequence);
    free(o->pool);
    free(o->lane);
    free(o->start);
    free(o->next);
    free(o);
    *order = NULL;
}

static uint64_t stream(int64_t epoch, int64_t number) { return (uint64_t)epoch << 32 | (uint64_t)number; }

static void permute_blocks(kolo_order *o, int64_t epoch)
{
    const kolo_order_config *c = &o->config;
    const int64_t k = c->rule.block, blocks = (c->count + k - 1) / k, window = lane_window(o);
    const uint64_t key = kolo_random_key(c->seed, KOLO_RANDOM_WINDOW);
    int64_t at = 0, number = 0;
    kolo_shuffle(kolo_random_key(c->seed, KOLO_RANDOM_PERMUTE), (uint64_t)epoch, blocks, o->pool);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = o->pool[b] * k; i < (o->pool[b] + 1) * k && i < c->count; i++) o->sequence[at++] = i;
    for (int l = 0; l < o->lanes; l++)
        for (int64_t i = o->start[l]; i < o->start[l + 1]; i += window) {
            const int64_t left = o->start[l + 1] - i;
            kolo_shuffle_values(key, stream(epoch, number++), left < window ? left : window, o->sequence + i);
        }
}

/* The first samples of every permuted share go to a pool, which is permuted and dealt out again; then each
 * share is mixed once more. */
static void exchange(kolo_order *o, int64_t epoch)
{
    const kolo_order_config *c = &o->config;
    const uint64_t key = kolo_random_key(c->seed, KOLO_RANDOM_EXCHANGE);
    int64_t pooled = 0, taken = 0;
    for (int l = 0; l < o->lanes; l++) {
        const int64_t n = (int64_t)(c->rule.exchange * (double)(o->start[l + 1] - o->start[l]));
        memcpy(o->pool + pooled, o->sequence + o->start[l], sizeof *o->pool * (size_t)n);
        pooled += n;
    }
    kolo_shuffle_values(key, stream(epoch, 0), pooled, o->pool);
    for (int l = 0; l < o->lanes; l++) {
        const int64_t share = o->start[l + 1] - o->start[l], n = (int64_t)(c->rule.exchange * (double)share);
        memcpy(o->sequence + o->start[l], o->pool + taken, sizeof *o->pool * (size_t)n);
        taken += n;
        if (n) kolo_shuffle_values(key, stream(epoch, l + 1), share, o->sequence + o->start[l]);
    }
}

static void permute_shares(kolo_order *o, int64_t epoch)
{
    const uint64_t key = kolo_random_key(o->config.seed, KOLO_RANDOM_PERMUTE);
    for (int64_t i = 0; i < o->config.count; i++) o->sequence[i] = i;
    for (int l = 0; l < o->lanes; l++)
        kolo_shuffle_values(key, stream(epoch, l), o->start[l + 1] - o->start[l], o->sequence + o->start[l]);
    if (o->config.rule.exchange > 0) exchange(o, epoch);
}

void kolo_order_fill(kolo_order *o, int64_t epoch, int64_t *to)
{
    const kolo_order_config *c = &o->config;
    if (c->rule.kind == KOLO_ORDER_FULL) {
        kolo_permutation(c->seed, epoch, c->count, to);
        return;
    }
    if (c->rule.kind == KOLO_ORDER_BLOCK) permute_blocks(o, epoch);
    else permute_shares(o, epoch);
    memcpy(o->next, o->start, sizeof *o->next * (size_t)o->lanes);
    const int64_t whole = c->count / c->rows;
    for (int64_t step = 0; step < whole; step++)
        for (int64_t row = 0; row < c->rows; row++) *to++ = o->sequence[o->next[o->lane[row]]++];
    for (int l = 0; l < o->lanes; l++) /* the last, short batch */
        while (o->next[l] < o->start[l + 1]) *to++ = o->sequence[o->next[l]++];
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t kolo_order_window_most(const kolo_order *o, int64_t n)
{
    const kolo_order_config *c = &o->config;
    if (c->rule.kind != KOLO_ORDER_BLOCK) return 0;
    const int64_t per_lane = c->rows / o->lanes, lanes = (n + per_lane - 1) / per_lane + 1;
    return lanes * (lane_window(o) + per_lane);
}

int64_t kolo_order_window(const kolo_order *o, const int64_t *filled, int64_t step, int64_t first, int64_t n,
                          int64_t ahead, int64_t *samples)
{
    const kolo_order_config *c = &o->config;
    if (c->rule.kind != KOLO_ORDER_BLOCK) return 0;
    const int64_t window = lane_window(o), per_lane = c->rows / o->lanes,
                  most = c->count / c->rows * per_lane;
    int64_t from = ((step * per_lane + window - 1) / window + ahead) * window, found = 0;
    int64_t to = (((step + 1) * per_lane + window - 1) / window + ahead) * window;
    if (to > most) to = most;
    for (int64_t l = first / per_lane; l * per_lane < first + n && from < to; l++)
        for (int64_t i = from; i < to; i++)
            samples[found++] = filled[i / per_lane * c->rows + l * per_lane + i % per_lane];
    qsort(samples, (size_t)found, sizeof *samples, ascending);
    return found;
}
