/* From layers to a cut and its price (chain.h finds the cut), and what is said where there is none. */
#include "plan/partition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/chain.h"

enum { MOST_STAGES = 256 };

static const char *layer_name(const kolo_partition_input *in, int layer)
{
    return in->layer[layer].name ? in->layer[layer].name : "(no name)";
}

/* No sum of times or bytes may leave 64 bits. */
static int input_check(const kolo_partition_input *in)
{
    const double most = 0x1p62;
    double ticks = 0, bytes = (double)in->fixed, crossing = 0;
    if (in->layers < 1 || in->fixed < 0 || in->limit < 0)
        return kolo_fail(KOLO_EINTERNAL, "partition: %d layers, %lld fixed bytes, a limit of %lld",
                         in->layers, (long long)in->fixed, (long long)in->limit);
    if (in->stages < 1 || in->chunks < 1 || in->slots < 1)
        return kolo_fail(KOLO_ECONFIG,
                         "stages=%d chunks=%d with %d micro-batches: there is at least one of each",
                         in->stages, in->chunks, in->slots);
    for (int i = 0; i < in->layers; i++) {
        const kolo_chain_layer *l = &in->layer[i];
        if (!(l->forward >= 0) || !(l->backward >= 0) || l->weights < 0 || l->activations < 0 ||
            l->crossing < 0)
            return kolo_fail(KOLO_EINTERNAL,
                             "partition: layer %d, %s: %g + %g seconds, %lld + %lld bytes, %lld crossing", i,
                             layer_name(in, i), l->forward, l->backward, (long long)l->weights,
                             (long long)l->activations, (long long)l->crossing);
        ticks += (l->forward + l->backward) * KOLO_CHAIN_TICKS;
        bytes += (double)l->weights + (double)l->activations * in->slots;
        crossing += (double)l->crossing;
    }
    for (int s = 0; in->link && s < in->stages; s++) {
        const kolo_link *l = &in->link[s];
        if (!(l->latency >= 0) || !(l->bandwidth >= 0))
            return kolo_fail(KOLO_EINTERNAL, "partition: the link of stage %d: %g seconds, %g bytes a second",
                             s, l->latency, l->bandwidth);
        ticks = fmax(ticks,
                     (2 * l->latency + (l->bandwidth > 0 ? crossing / l->bandwidth : 0)) * KOLO_CHAIN_TICKS);
    }
    if (ticks > most || bytes > most || crossing > most)
        return kolo_fail(KOLO_ECONFIG,
                         "partition: %g seconds, %g bytes, %g crossing: more than can be counted",
                         ticks / KOLO_CHAIN_TICKS, bytes, crossing);
    return 0;
}

/* ---- what would fit ----------------------------------------------------------------------------------- */

/* How many stages are looked at. */
static int most_stages(const kolo_partition_input *in)
{
    const int most = in->most_stages > 0 ? in->most_stages : MOST_STAGES;
    return most < in->layers / in->chunks ? most : in->layers / in->chunks;
}
static int fewest_stages(const kolo_partition_input *in, int *stages)
{
    *stages = 0;
    for (int p = 1; p <= most_stages(in) && !*stages; p++) {
        kolo_chain c;
        int rc = kolo_chain_open(&c, in, p, false);
        if (rc == 0) rc = kolo_chain_fits(&c, in->limit - in->fixed);
        kolo_chain_close(&c);
        if (rc < 0) return rc;
        if (rc) *stages = p;
    }
    return 0;
}

/* What a stage may hold beside `fixed`. */
static int64_t room_of(const kolo_partition_input *in)
{
    return in->limit > 0 ? in->limit - in->fixed : KOLO_CHAIN_OVERFULL - 1;
}

/* Fails with what is missing. who: what does not fit. */
static int misfit_fail(const kolo_chain *c, int64_t shortfall, const char *who, kolo_misfit *misfit)
{
    const kolo_partition_input *in = c->in;
    char cure[96];
    kolo_misfit m = {.shortfall = shortfall};
    KOLO_TRY(fewest_stages(in, &m.stages));
    const int others = kolo_chain_fits(c, room_of(in));
    if (others < 0) return others;
    if (misfit) *misfit = m;
    if (others) snprintf(cure, sizeof cure, "leave out cut=, other cuts fit");
    else if (m.stages) snprintf(cure, sizeof cure, "use stages=%d, the fewest that fit", m.stages);
    else
        snprintf(cure, sizeof cure, "no number of stages up to %d fits; use a smaller micro_batch",
                 most_stages(in));
    return kolo_fail(
        KOLO_ECONFIG,
        "stages=%d pipeline=%s: %s needs %lld bytes more than the %lld that a stage may hold; %s", in->stages,
        kolo_pipeline[in->order].name, who, (long long)shortfall, (long long)in->limit, cure);
}

/* ---- what a cut costs --------------------------------------------------------------------------------- */

static int partition_open(kolo_partition **partition, const kolo_chain *c, const int *at)
{
    const size_t parts = (size_t)c->parts;
    kolo_partition *p = *partition = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->stages = c->stages;
    p->parts = c->parts;
    p->first = kolo_alloc((parts + 1) * sizeof *p->first);
    p->seconds = kolo_alloc(parts * sizeof *p->seconds);
    p->link_seconds = kolo_alloc(parts * sizeof *p->link_seconds);
    p->crossing = kolo_alloc(parts * sizeof *p->crossing);
    p->in_flight = kolo_alloc(parts * sizeof *p->in_flight);
    p->bytes = kolo_alloc((size_t)c->stages * sizeof *p->bytes);
    if (!p->first || !p->seconds || !p->link_seconds || !p->crossing || !p->in_flight || !p->bytes)
        return KOLO_ENOMEM;
    for (int s = 0; s < c->stages; s++) p->bytes[s] = c->in->fixed;
    for (int k = 0; k < c->parts; k++) {
        p->first[k + 1] = c->layer[at[k + 1]];
        p->seconds[k] = (double)kolo_chain_ticks(c, at[k], at[k + 1]) / KOLO_CHAIN_TICKS;
        p->in_flight[k] = c->in_flight[k];
        p->bytes[k % c->stages] += kolo_chain_bytes(c, k, at[k], at[k + 1]);
        if (k + 1 < c->parts) {
            p->link_seconds[k] = (double)kolo_chain_link(c, k, at[k + 1]) / KOLO_CHAIN_TICKS;
            p->crossing[k] = c->crossing[at[k + 1]];
            p->all_crossing += p->crossing[k];
        }
        p->bottleneck = fmax(p->bottleneck, fmax(p->seconds[k], p->link_seconds[k]));
    }
    return 0;
}
void kolo_partition_destroy(kolo_partition **partition)
{
    kolo_partition *p = *partition;
    if (!p) return;
    free(p->first);
    free(p->seconds);
    free(p->link_seconds);
    free(p->crossing);
    free(p->in_flight);
    free(p->bytes);
    free(p);
    *partition = NULL;
}

/* The chain of an input, which can be cut into so many parts. */
static int start(kolo_chain *c, const kolo_partition_input *in, kolo_misfit *misfit)
{
    *c = (kolo_chain){0};
    if (misfit) *misfit = (kolo_misfit){0};
    KOLO_TRY(input_check(in));
    if ((int64_t)in->stages * in->chunks > in->layers)
        return kolo_fail(KOLO_ECONFIG,
                         "stages=%d chunks=%d: more parts than the network's %d layers; use fewer",
                         in->stages, in->chunks, in->layers);
    KOLO_TRY(kolo_chain_open(c, in, in->stages, true));
    if (c->parts > c->blocks)
        return kolo_fail(KOLO_ECONFIG,
                         "stages=%d chunks=%d: the network can be cut into %d parts at most; use "
                         "fewer",
                         in->stages, in->chunks, c->blocks);
    return 0;
}

int kolo_partition_create(kolo_partition **partition, const kolo_partition_input *input, kolo_misfit *misfit)
{
    kolo_chain c;
    kolo_chain_cut best = {0};
    int64_t room;
    int rc;
    *partition = NULL;
    KOLO_TRY_GOTO(rc, start(&c, input, misfit));
    best.at = kolo_alloc(((size_t)c.parts + 1) * sizeof *best.at);
    KOLO_TRY_GOTO(rc, best.at ? kolo_chain_solve(&c, room_of(input), &best) : KOLO_ENOMEM);
    if (rc == KOLO_CHAIN_FOUND) KOLO_TRY_GOTO(rc, partition_open(partition, &c, best.at));
    else if (input->overfulls) {
        rc = 1;
    } else {
        const char *who = rc == KOLO_CHAIN_GAVE_UP ? "the best cut found" : "the best cut";
        KOLO_TRY_GOTO(rc, kolo_chain_least_room(&c, room_of(input), &room));
        rc = misfit_fail(&c, room + input->fixed - input->limit, who, misfit);
    }
fail:
    if (rc < 0) kolo_partition_destroy(partition);
    free(best.at);
    kolo_chain_close(&c);
    return rc;
}

/* at[parts + 1]: the places of stated cuts */
static int stated_places(const kolo_chain *c, const int *first, int *at)
{
    const kolo_partition_input *in = c->in;
    at[c->parts] = c->blocks;
    for (int k = 1; k < c->parts; k++) {
        const int layer = first[k - 1], before = k > 1 ? first[k - 2] : 0;
        if (layer <= before || layer >= in->layers)
            return kolo_fail(KOLO_ECONFIG,
                             "cut %d, in front of layer %d: a cut comes behind layer %d and in "
                             "front of layer %d, the last",
                             k, layer, before, in->layers - 1);
        int place = at[k - 1] + 1;
        while (c->layer[place] < layer) place++;
        at[k] = place;
        if (c->layer[place] == layer) continue;
        const int below = c->layer[place - 1], above = c->layer[place];
        const bool up = below <= before || (above < in->layers && above - layer < layer - below);
        if (below <= before && above >= in->layers)
            return kolo_fail(KOLO_ECONFIG, "cut %d: no cut can be in front of %s, nor near it", k,
                             layer_name(in, layer));
        return kolo_fail(KOLO_ECONFIG, "cut %d: no cut can be in front of %s; the nearest is in front of %s",
                         k, layer_name(in, layer), layer_name(in, up ? above : below));
    }
    return 0;
}

int kolo_partition_create_at(kolo_partition **partition, const kolo_partition_input *input, const int *first,
                             kolo_misfit *misfit)
{
    kolo_chain c;
    int *at = NULL, rc, worst = 0;
    char who[32];
    *partition = NULL;
    KOLO_TRY_GOTO(rc, start(&c, input, misfit));
    at = kolo_alloc(((size_t)c.parts + 1) * sizeof *at);
    KOLO_TRY_GOTO(rc, at ? stated_places(&c, first, at) : KOLO_ENOMEM);
    KOLO_TRY_GOTO(rc, partition_open(partition, &c, at));
    for (int s = 1; s < c.stages; s++)
        if ((*partition)->bytes[s] > (*partition)->bytes[worst]) worst = s;
    const int64_t over = (*partition)->bytes[worst] - input->limit;
    snprintf(who, sizeof who, "stage %d", worst);
    if (input->limit > 0 && over > 0) rc = misfit_fail(&c, over, who, misfit);
fail:
    if (rc < 0) kolo_partition_destroy(partition);
    free(at);
    kolo_chain_close(&c);
    return rc;
}
