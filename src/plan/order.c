/* All orders are one: the forward turns of a stage in a fixed sequence, its backward turns in another, and
 * how far the first run ahead of the second. They differ in that lead alone (Huang et al. 2019, "GPipe";
 * Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters", section 2.2; Qi et
 * al. 2023, "Zero bubble pipeline parallelism", ZB-H1). */
#include "plan/order.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

const char *const kolo_pass_name[KOLO_PASSES] = {"forward", "backward", "weight"};

/* fill, then drain */
static kolo_lead gpipe_lead(int stages, int stage, int chunks, int64_t all)
{
    (void)stages, (void)stage, (void)chunks;
    return (kolo_lead){.forward = all};
}

/* No more than it takes until the first slot is back from the last stage: stages - stage slots in flight. */
static kolo_lead one_f_one_b_lead(int stages, int stage, int chunks, int64_t all)
{
    (void)chunks, (void)all;
    return (kolo_lead){.forward = stages - stage - 1};
}

/* A group of slots goes through all chunks but the last before the first is back. With one chunk this is 1f1b
 * with twice the lead, which hides the latency of links at the price of memory. */
static kolo_lead interleaved_lead(int stages, int stage, int chunks, int64_t all)
{
    (void)all;
    return (kolo_lead){.forward = 2 * (int64_t)(stages - stage - 1) + (int64_t)(chunks - 1) * stages};
}

/* 1f1b, whose later stages have memory to spare: weight turns wait until all stages hold `stages` slots, and
 * fill the time in which 1f1b drains. */
static kolo_lead zero_bubble_lead(int stages, int stage, int chunks, int64_t all)
{
    (void)chunks, (void)all;
    return (kolo_lead){.forward = stages - stage - 1, .weight = stage};
}

/* Late orders begin every step with a pair. */
static kolo_lead late_lead(int stages, int stage, int chunks, int64_t all)
{
    (void)stages, (void)stage, (void)chunks, (void)all;
    return (kolo_lead){0};
}

/* So many batches go in until the first is back, a batch a step. */
static int to_the_end(int stages, int stage) { return stages - stage - 1; }
static int as_the_first(int stages, int stage)
{
    (void)stage;
    return stages - 1;
}
static int to_the_end_and_back(int stages, int stage) { return 2 * (stages - stage - 1); }
/* As many as one older version of the weights allows. */
static int one_unless_last(int stages, int stage) { return stage < stages - 1; }
static int one(int stages, int stage)
{
    (void)stages, (void)stage;
    return 1;
}

const kolo_pipeline_order kolo_pipeline[KOLO_PIPELINES] = {
    [KOLO_PIPELINE_GPIPE] = {"gpipe", gpipe_lead, false, false, NULL, NULL, false},
    [KOLO_PIPELINE_1F1B] = {"1f1b", one_f_one_b_lead, false, false, NULL, NULL, false},
    [KOLO_PIPELINE_INTERLEAVED] = {"interleaved", interleaved_lead, true, false, NULL, NULL, false},
    [KOLO_PIPELINE_ZERO_BUBBLE] = {"zero_bubble", zero_bubble_lead, false, true, NULL, NULL, false},
    [KOLO_PIPELINE_PIPEDREAM] = {"pipedream", late_lead, false, false, to_the_end, to_the_end, true},
    [KOLO_PIPELINE_PIPEDREAM_VERTICAL] = {"pipedream_vertical", late_lead, false, false, to_the_end,
                                          as_the_first, true},
    [KOLO_PIPELINE_TWO_BUFFERED] = {"two_buffered", late_lead, false, false, one_unless_last, one, true},
    [KOLO_PIPELINE_PIPELINED] = {"pipelined", late_lead, false, false, to_the_end_and_back,
                                 to_the_end_and_back, false},
};

typedef struct list {
    kolo_turn *turn;
    int turns, stages, chunks, slots, ahead;
} list;

/* Turn `i` of a pass: groups of as many slots as there are stages, each through all chunks, forward from the
 * first, otherwise from the last. The last group may not be full. Its places stay empty rather than that the
 * next come sooner: without gaps the stages of a short group would wait for each other in a circle, and what
 * is left of an order without a circle has none. */
static void list_add(list *l, enum kolo_pass pass, int64_t i)
{
    int64_t group = (int64_t)l->stages * l->chunks, within = i % group;
    int64_t slot = i / group * l->stages + within % l->stages;
    int chunk = (int)(within / l->stages);
    if (slot >= l->slots) return;
    if (pass != KOLO_PASS_FORWARD) chunk = l->chunks - 1 - chunk;
    l->turn[l->turns++] = (kolo_turn){pass, chunk, (int)slot, pass == KOLO_PASS_FORWARD ? l->ahead : 0};
}

static int order_check(enum kolo_pipeline order, int stages, int stage, int chunks, int slots, int passes)
{
    if ((unsigned)order >= KOLO_PIPELINES)
        return kolo_fail(KOLO_EINTERNAL, "pipeline order %d: there are %d", (int)order, KOLO_PIPELINES);
    const kolo_pipeline_order *row = &kolo_pipeline[order];
    if (stages < 1 || stage < 0 || stage >= stages)
        return kolo_fail(KOLO_ECONFIG,
                         "stage %d of stages=%d: stages are numbered from 0, and there is at "
                         "least one",
                         stage, stages);
    if (slots < 1)
        return kolo_fail(KOLO_ECONFIG, "pipeline=%s: %d micro-batches a step; at least one is needed",
                         row->name, slots);
    if (chunks < 1) return kolo_fail(KOLO_ECONFIG, "chunks=%d: give at least 1", chunks);
    if (chunks > 1 && !row->takes_chunks)
        return kolo_fail(KOLO_ECONFIG,
                         "chunks=%d: pipeline=%s has one chunk a stage; use "
                         "pipeline=interleaved or chunks=1",
                         chunks, row->name);
    if ((int64_t)chunks * slots > INT_MAX / passes)
        return kolo_fail(KOLO_ECONFIG,
                         "chunks=%d with %d micro-batches: more turns a step than can be "
                         "counted; use larger micro-batches",
                         chunks, slots);
    return 0;
}

static int order_create(enum kolo_pipeline order, int stages, int stage, int chunks, int slots, bool trains,
                        kolo_turn **turn, int *turns)
{
    *turn = NULL;
    *turns = 0;
    KOLO_TRY(order_check(order, stages, stage, chunks, slots, KOLO_PASSES));
    const kolo_pipeline_order *row = &kolo_pipeline[order];
    const bool apart = trains && row->weights_apart;
    const int passes = apart ? 3 : trains ? 2 : 1;
    list l = {.stages = stages, .chunks = chunks, .slots = slots};
    l.turn = kolo_alloc((size_t)chunks * (size_t)slots * (size_t)passes * sizeof *l.turn);
    if (!l.turn) return KOLO_ENOMEM;
    const int64_t all = ((int64_t)slots + stages - 1) / stages * stages * chunks;
    const kolo_lead lead = row->lead(stages, stage, chunks, all);
    if (row->ahead && trains) l.ahead = row->ahead(stages, stage);
    for (int64_t i = 0; i < all + lead.forward + lead.weight; i++) {
        const int64_t b = i - lead.forward, w = b - lead.weight;
        if (i < all) list_add(&l, KOLO_PASS_FORWARD, i);
        if (trains && b >= 0 && b < all) list_add(&l, KOLO_PASS_BACKWARD, b);
        if (apart && w >= 0) list_add(&l, KOLO_PASS_WEIGHT, w);
    }
    *turn = l.turn;
    *turns = l.turns;
    return 0;
}

int kolo_turns_create(enum kolo_pipeline order, int stages, int stage, int chunks, int slots,
                      kolo_turn **turn, int *turns)
{
    return order_create(order, stages, stage, chunks, slots, true, turn, turns);
}

int kolo_turns_create_forward(enum kolo_pipeline order, int stages, int stage, int chunks, int slots,
                              kolo_turn **turn, int *turns)
{
    return order_create(order, stages, stage, chunks, slots, false, turn, turns);
}

int kolo_turns_in_flight(const kolo_turn *turn, int turns, int chunk)
{
    int last = KOLO_PASS_FORWARD, held = 0, most = 0;
    for (int i = 0; i < turns; i++)
        if ((int)turn[i].pass > last) last = turn[i].pass;
    for (int i = 0; i < turns; i++) /* since earlier steps */
        if (turn[i].pass == KOLO_PASS_FORWARD && (chunk < 0 || turn[i].chunk == chunk)) held += turn[i].ahead;
    for (int i = 0; i < turns; i++) {
        if (chunk >= 0 && turn[i].chunk != chunk) continue;
        if (turn[i].pass == KOLO_PASS_FORWARD) held++;
        if (held > most) most = held;
        if ((int)turn[i].pass == last) held--;
    }
    return most;
}
