/* Two dynamic programmes: the first finds the least bottleneck, the second, among the cuts that reach it, the
 * one with the fewest bytes crossing and the earliest cuts. (One for both would be wrong: the cheapest cut of
 * all layers need not begin with the fastest cut of the first ones.) Chunks share the memory of their stage,
 * which no such programme can see; a best-first search over bounds on the bytes of single parts adds that. */
#include "plan/chain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

/* A search tries bounds until it has looked at so many parts times blocks, and never more than MOST_TRIES
 * bounds. BEST: for the best cut; FIT: whether any fits. */
enum { MOST_TRIES = 10000, BEST_WORK = 20000000, FIT_WORK = 2000000 };
static const int64_t NONE = INT64_MAX;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void chain_links(kolo_chain *c)
{
    const kolo_partition_input *in = c->in;
    for (int s = 0; s < c->stages; s++)
        for (int i = 0; i <= c->blocks; i++) {
            const kolo_link *l = &in->link[s];
            const double sent = l->bandwidth > 0 ? (double)c->crossing[i] / l->bandwidth : 0;
            c->link[(int64_t)s * (c->blocks + 1) + i] = llround((2 * l->latency + sent) * KOLO_CHAIN_TICKS);
        }
}
/* How many slots every part holds at most. */
static int chain_in_flight(kolo_chain *c)
{
    for (int s = 0; s < c->stages; s++) {
        kolo_turn *turn;
        int turns;
        KOLO_TRY(kolo_turns_create(c->in->order, c->stages, s, c->in->chunks, c->in->slots, &turn, &turns));
        for (int k = 0; k < c->in->chunks; k++)
            c->in_flight[k * c->stages + s] = kolo_turns_in_flight(turn, turns, k);
        free(turn);
    }
    return 0;
}

int kolo_chain_open(kolo_chain *c, const kolo_partition_input *in, int stages, bool links)
{
    const size_t places = (size_t)in->layers + 1;
    *c = (kolo_chain){.in = in, .stages = stages, .parts = stages * in->chunks};
    c->layer = kolo_alloc(places * sizeof *c->layer);
    c->ticks = kolo_alloc(places * sizeof *c->ticks);
    c->weights = kolo_alloc(places * sizeof *c->weights);
    c->activations = kolo_alloc(places * sizeof *c->activations);
    c->crossing = kolo_alloc(places * sizeof *c->crossing);
    c->in_flight = kolo_alloc((size_t)c->parts * sizeof *c->in_flight);
    if (!c->layer || !c->ticks || !c->weights || !c->activations || !c->crossing || !c->in_flight)
        return KOLO_ENOMEM;
    int64_t ticks = 0, weights = 0, activations = 0;
    for (int i = 0; i < in->layers; i++) {
        const kolo_chain_layer *l = &in->layer[i];
        ticks += llround((l->forward + l->backward) * KOLO_CHAIN_TICKS);
        weights += l->weights;
        activations += l->activations;
        if (!l->cut && i + 1 < in->layers) continue;
        const int place = ++c->blocks;
        c->layer[place] = i + 1;
        c->ticks[place] = ticks;
        c->weights[place] = weights;
        c->activations[place] = activations;
        c->crossing[place] = i + 1 < in->layers ? l->crossing : 0;
    }
    c->link = kolo_alloc((size_t)stages * (size_t)(c->blocks + 1) * sizeof *c->link);
    if (!c->link) return KOLO_ENOMEM;
    /* the chunks of a single stage are in one memory */
    if (links && in->link && stages > 1) chain_links(c);
    return chain_in_flight(c);
}
void kolo_chain_close(kolo_chain *c)
{
    free(c->layer);
    free(c->ticks);
    free(c->weights);
    free(c->activations);
    free(c->crossing);
    free(c->link);
    free(c->in_flight);
}

/* ---- one bound on the bytes of every part ------------------------------------------------------------- */

/* Part k ends at `to`: the least bottleneck of parts 0..k, from that of parts 0..k-1 ending anywhere. Longer
 * parts take no less time and memory, so the first that is too long ends the search. */
static int64_t least_ending(const kolo_chain *c, const int64_t *before, int part, int to, int64_t cap)
{
    int64_t least = NONE;
    for (int from = to - 1; from >= part; from--) {
        const int64_t ticks = kolo_chain_ticks(c, from, to);
        if (ticks >= least || kolo_chain_bytes(c, part, from, to) > cap) break;
        int64_t worst = larger(ticks, before[from]);
        if (part > 0) worst = larger(worst, kolo_chain_link(c, part - 1, from));
        if (worst < least) least = worst;
    }
    return least;
}
/* Part k ends at places [k + 1, blocks - parts + k + 1]: every other part holds a block at least. */
static int part_last(const kolo_chain *c, int part) { return c->blocks - c->parts + part + 1; }

/* *least NONE: no cut keeps to cap[parts]. */
static int least_bottleneck(const kolo_chain *c, const int64_t *cap, int64_t *least)
{
    const size_t bytes = (size_t)(c->blocks + 1) * sizeof(int64_t);
    int64_t *before = kolo_alloc(bytes), *now = kolo_alloc(bytes);
    const bool made = before && now;
    for (int i = 1; made && i <= c->blocks; i++) before[i] = NONE;
    for (int k = 0; made && k < c->parts; k++) {
        for (int to = 0; to <= c->blocks; to++)
            now[to] = to > k && to <= part_last(c, k) ? least_ending(c, before, k, to, cap[k]) : NONE;
        int64_t *swap = before;
        before = now;
        now = swap;
    }
    if (made) *least = before[c->blocks];
    free(before);
    free(now);
    return made ? 0 : KOLO_ENOMEM;
}

/* Part k from `from`: the place where it ends, at which it and all behind it cross the fewest bytes (*fewest)
 * within `bottleneck`; the earliest of several. 0: there is none. behind: of parts k + 1 .. */
static int fewest_starting(const kolo_chain *c, const int64_t *behind, int part, int from, int64_t cap,
                           int64_t bottleneck, int64_t *fewest)
{
    const int last = part_last(c, part);
    int at = 0;
    *fewest = NONE;
    for (int to = from + 1; to <= last; to++) {
        if (kolo_chain_ticks(c, from, to) > bottleneck || kolo_chain_bytes(c, part, from, to) > cap) break;
        if (part == c->parts - 1 && to < c->blocks) continue;
        if (part < c->parts - 1 && kolo_chain_link(c, part, to) > bottleneck) continue;
        if (behind[to] == NONE || behind[to] + c->crossing[to] >= *fewest) continue;
        *fewest = behind[to] + c->crossing[to];
        at = to;
    }
    return at;
}
/* s->at, s->crossing of a bottleneck that can be reached. */
static int fewest_crossing(const kolo_chain *c, const int64_t *cap, kolo_chain_cut *s)
{
    const int64_t row = c->blocks + 1;
    int64_t *fewest = kolo_alloc((size_t)((c->parts + 1) * row) * sizeof *fewest);
    if (!fewest) return KOLO_ENOMEM;
    for (int i = 0; i < c->blocks; i++) fewest[c->parts * row + i] = NONE;
    for (int k = c->parts - 1; k >= 0; k--)
        for (int from = 0; from <= c->blocks; from++)
            fewest_starting(c, &fewest[(k + 1) * row], k, from, cap[k], s->bottleneck,
                            &fewest[k * row + from]);
    s->crossing = fewest[0];
    s->at[0] = 0;
    for (int k = 0; k < c->parts; k++) {
        int64_t same;
        s->at[k + 1] = fewest_starting(c, &fewest[(k + 1) * row], k, s->at[k], cap[k], s->bottleneck, &same);
    }
    free(fewest);
    return 0;
}

/* The best cut whose parts keep to cap[parts]; s->bottleneck NONE: there is none. s->at: [parts + 1]. */
static int solve_within(const kolo_chain *c, const int64_t *cap, kolo_chain_cut *s)
{
    KOLO_TRY(least_bottleneck(c, cap, &s->bottleneck));
    return s->bottleneck == NONE ? 0 : fewest_crossing(c, cap, s);
}

/* ---- chunks that share a stage's memory --------------------------------------------------------------- */

/* Bounds on the bytes of parts, and the best cut within them. Open until its cut was looked at. */
typedef struct bounded {
    int64_t *cap;
    kolo_chain_cut best;
    bool open;
} bounded;
typedef struct search {
    const kolo_chain *c;
    bounded *of;
    int64_t tries, capacity;
} search;

static int try_add(search *s, const int64_t *cap)
{
    const size_t bytes = (size_t)s->c->parts * sizeof *cap;
    for (int64_t i = 0; i < s->tries; i++)
        if (!memcmp(s->of[i].cap, cap, bytes)) return 0;
    KOLO_TRY(kolo_grow(&s->of, &s->capacity, s->tries, sizeof *s->of));
    bounded *t = &s->of[s->tries];
    *t = (bounded){.cap = kolo_alloc(bytes), .best.at = kolo_alloc(((size_t)s->c->parts + 1) * sizeof(int))};
    s->tries++;
    if (!t->cap || !t->best.at) return KOLO_ENOMEM;
    memcpy(t->cap, cap, bytes);
    KOLO_TRY(solve_within(s->c, t->cap, &t->best));
    t->open = t->best.bottleneck != NONE;
    return 0;
}
static bool is_better(const kolo_chain *c, const kolo_chain_cut *a, const kolo_chain_cut *b)
{
    if (a->bottleneck != b->bottleneck) return a->bottleneck < b->bottleneck;
    if (a->crossing != b->crossing) return a->crossing < b->crossing;
    for (int k = 1; k < c->parts; k++)
        if (a->at[k] != b->at[k]) return a->at[k] < b->at[k];
    return false;
}
static bounded *try_best(const search *s)
{
    bounded *best = NULL;
    for (int64_t i = 0; i < s->tries; i++)
        if (s->of[i].open && (!best || is_better(s->c, &s->of[i].best, &best->best))) best = &s->of[i];
    return best;
}

static int64_t stage_bytes(const kolo_chain *c, const kolo_chain_cut *s, int stage)
{
    int64_t bytes = 0;
    for (int k = stage; k < c->parts; k += c->stages) bytes += kolo_chain_bytes(c, k, s->at[k], s->at[k + 1]);
    return bytes;
}
/* A stage of the cut holds `over` bytes too many. In every cut that fits one of its chunks holds less than
 * here, by its share of them at least: a try for each. */
static int search_split(search *s, const bounded *t, int stage, int64_t over)
{
    const kolo_chain *c = s->c;
    const int64_t share = (over + c->in->chunks - 1) / c->in->chunks;
    const size_t bytes = (size_t)c->parts * sizeof(int64_t);
    int64_t *cap = kolo_alloc(bytes), *held = kolo_alloc(bytes);
    int rc = cap && held ? 0 : KOLO_ENOMEM;
    if (rc == 0) { /* t moves when tries are added */
        memcpy(cap, t->cap, bytes);
        for (int k = stage; k < c->parts; k += c->stages)
            held[k] = kolo_chain_bytes(c, k, t->best.at[k], t->best.at[k + 1]);
    }
    for (int k = stage; rc == 0 && k < c->parts; k += c->stages) {
        const int64_t was = cap[k];
        cap[k] = held[k] - share;
        if (cap[k] >= 0) rc = try_add(s, cap);
        cap[k] = was;
    }
    free(cap);
    free(held);
    return rc;
}

/* The best cut whose stages hold at most `room` bytes each: best first, so the first that fits is it. */
static int search_run(search *s, int64_t room, int64_t tries, kolo_chain_cut *best)
{
    const kolo_chain *c = s->c;
    int64_t *cap = kolo_alloc((size_t)c->parts * sizeof *cap);
    if (!cap) return KOLO_ENOMEM;
    for (int k = 0; k < c->parts; k++) cap[k] = room;
    int rc = try_add(s, cap);
    free(cap);
    while (rc == 0 && s->tries < tries) {
        bounded *t = try_best(s);
        if (!t) return KOLO_CHAIN_NONE;
        int stage = 0;
        for (int i = 1; i < c->stages; i++)
            if (stage_bytes(c, &t->best, i) > stage_bytes(c, &t->best, stage)) stage = i;
        if (stage_bytes(c, &t->best, stage) <= room) {
            best->bottleneck = t->best.bottleneck;
            best->crossing = t->best.crossing;
            memcpy(best->at, t->best.at, ((size_t)c->parts + 1) * sizeof *best->at);
            return KOLO_CHAIN_FOUND;
        }
        t->open = false;
        rc = search_split(s, t, stage, stage_bytes(c, &t->best, stage) - room);
    }
    return rc < 0 ? rc : KOLO_CHAIN_GAVE_UP;
}
static int solve(const kolo_chain *c, int64_t room, int64_t work, kolo_chain_cut *best)
{
    search s = {.c = c};
    const int64_t tries = 1 + work / ((int64_t)c->parts * c->blocks);
    const int rc = search_run(&s, room, tries < MOST_TRIES ? tries : MOST_TRIES, best);
    for (int64_t i = 0; i < s.tries; i++) {
        free(s.of[i].cap);
        free(s.of[i].best.at);
    }
    free(s.of);
    return rc;
}
int kolo_chain_solve(const kolo_chain *c, int64_t room, kolo_chain_cut *cut)
{
    return solve(c, room, BEST_WORK, cut);
}

/* ---- what would fit ----------------------------------------------------------------------------------- */

/* Whether the parts one by one, not yet those of a stage together, can keep to `room`: the places where part
 * k can end, from those where part k - 1 can. */
static bool can_end(const kolo_chain *c, int64_t room, bool *ends)
{
    memset(ends, 0, (size_t)(c->blocks + 1) * sizeof *ends);
    ends[0] = true;
    for (int k = 0; k < c->parts; k++) {
        /* a later start reaches further: from the last start in front of a place it is reached if at all */
        int from = -1;
        for (int to = 0; to <= c->blocks; to++) {
            const bool starts = ends[to];
            ends[to] = from >= 0 && kolo_chain_bytes(c, k, from, to) <= room;
            if (starts) from = to;
        }
    }
    return ends[c->blocks];
}
int kolo_chain_fits(const kolo_chain *c, int64_t room)
{
    if (c->parts > c->blocks || room < 0) return 0;
    bool *ends = kolo_alloc((size_t)(c->blocks + 1) * sizeof *ends);
    if (!ends) return KOLO_ENOMEM;
    const bool apart = can_end(c, room, ends);
    free(ends);
    if (!apart || c->in->chunks == 1) return apart;
    kolo_chain_cut s = {.at = kolo_alloc(((size_t)c->parts + 1) * sizeof(int))};
    if (!s.at) return KOLO_ENOMEM;
    const int rc = solve(c, room, FIT_WORK, &s);
    free(s.at);
    return rc < 0 ? rc : rc == KOLO_CHAIN_FOUND;
}

/* The least room that fits, by halves; in `low` none was found. */
int kolo_chain_least_room(const kolo_chain *c, int64_t low, int64_t *room)
{
    int64_t most = 0;
    for (int k = 0; k < c->parts; k++) most = larger(most, kolo_chain_bytes(c, k, 0, c->blocks));
    while (most - low > 1) {
        const int64_t middle = low + (most - low) / 2;
        const int rc = kolo_chain_fits(c, middle);
        if (rc < 0) return rc;
        if (rc) most = middle;
        else low = middle;
    }
    *room = most;
    return 0;
}
