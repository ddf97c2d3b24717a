/* Orders of a pipeline: what every stage does in a step, for all orders, with fewer, as many and more slots
 * than stages, and slots that fill no group. */
#include "plan/order.h"

#include "kolo/error.h"
#include "turns_run.h"

enum { MAX_STAGES = 9, MAX_CHUNKS = 4, MAX_SLOTS = 19, TEXT = 4096 };

typedef struct step {
    int stages, chunks, slots, turns[MAX_STAGES];
    kolo_turn *turn[MAX_STAGES];
} step;
typedef int create(enum kolo_pipeline, int, int, int, int, kolo_turn **, int *);

static bool step_open(step *s, create *of, enum kolo_pipeline order, int stages, int chunks, int slots)
{
    bool good = true;
    *s = (step){.stages = stages, .chunks = chunks, .slots = slots};
    for (int i = 0; i < stages; i++)
        good = of(order, stages, i, chunks, slots, &s->turn[i], &s->turns[i]) == 0 && good;
    return good;
}
static void step_close(step *s)
{
    for (int i = 0; i < s->stages; i++) free(s->turn[i]);
}

/* Every pass of every (chunk, slot) once, ascending slots in each, forward before backward before weight. */
static bool is_complete(const step *s, int passes)
{
    for (int i = 0; i < s->stages; i++) {
        int next[KOLO_PASSES][MAX_CHUNKS] = {{0}};
        for (int t = 0; t < s->turns[i]; t++) {
            const kolo_turn *turn = &s->turn[i][t];
            const int pass = turn->pass, chunk = turn->chunk;
            if (pass < 0 || pass >= passes || chunk < 0 || chunk >= s->chunks) return false;
            if (turn->slot != next[pass][chunk]++) return false;
            if (pass > 0 && next[pass][chunk] > next[pass - 1][chunk]) return false;
        }
        if (s->turns[i] != passes * s->chunks * s->slots) return false;
    }
    return true;
}

/* What a turn needs of other stages: forward of the part before, backward of the part behind. */
static bool is_ready(const step *s, bool (*done)[MAX_STAGES * MAX_CHUNKS][MAX_SLOTS], int stage,
                     const kolo_turn *turn)
{
    const int part = turn->chunk * s->stages + stage, last = s->stages * s->chunks - 1;
    if (turn->pass == KOLO_PASS_FORWARD) return part == 0 || done[turn->pass][part - 1][turn->slot];
    if (turn->pass == KOLO_PASS_BACKWARD) return part == last || done[turn->pass][part + 1][turn->slot];
    return true;
}
/* All stages take their turns as they become ready, until none can move: whether all are through. */
static bool is_through(const step *s)
{
    static bool done[KOLO_PASSES][MAX_STAGES * MAX_CHUNKS][MAX_SLOTS];
    int at[MAX_STAGES] = {0};
    memset(done, 0, sizeof done);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < s->stages; i++)
            for (; at[i] < s->turns[i] && is_ready(s, done, i, &s->turn[i][at[i]]); at[i]++) {
                const kolo_turn *turn = &s->turn[i][at[i]];
                moved = done[turn->pass][turn->chunk * s->stages + i][turn->slot] = true;
            }
    }
    for (int i = 0; i < s->stages; i++)
        if (at[i] < s->turns[i]) return false;
    return true;
}

static int least(int a, int b) { return a < b ? a : b; }
/* The most slots in flight that the literature gives for a stage: those of all its chunks. */
static int most_in_flight(enum kolo_pipeline order, int stages, int stage, int chunks, int slots)
{
    switch (order) {
    case KOLO_PIPELINE_GPIPE: return slots;
    case KOLO_PIPELINE_1F1B: return least(stages - stage, slots);
    case KOLO_PIPELINE_INTERLEAVED:
        return least(2 * (stages - stage - 1) + (chunks - 1) * stages + 1, slots * chunks);
    default: return least(stages, slots);
    }
}

typedef struct count {
    int cases, made, complete, through, bound, exact, exact_cases, forward, chunk_sum;
} count;
static void count_one(count *c, enum kolo_pipeline order, int stages, int chunks, int slots)
{
    step s, f;
    c->cases++;
    c->made += step_open(&s, kolo_turns_create, order, stages, chunks, slots);
    c->complete += is_complete(&s, kolo_pipeline[order].weights_apart ? 3 : 2);
    c->through += is_through(&s);
    bool bound = true, exact = true, sums = true;
    for (int i = 0; i < stages; i++) {
        const int held = kolo_turns_in_flight(s.turn[i], s.turns[i], -1);
        const int most = most_in_flight(order, stages, i, chunks, slots);
        int by_chunk = 0;
        for (int k = 0; k < chunks; k++) by_chunk += kolo_turns_in_flight(s.turn[i], s.turns[i], k);
        bound = bound && held <= most;
        exact = exact && held == most;
        sums = sums && by_chunk >= held && (chunks > 1 || by_chunk == held);
    }
    c->bound += bound;
    c->chunk_sum += sums;
    if (slots % stages == 0 || chunks == 1) c->exact_cases++, c->exact += exact;
    step_open(&f, kolo_turns_create_forward, order, stages, chunks, slots);
    bool forward = is_complete(&f, 1) && is_through(&f);
    for (int i = 0; i < stages; i++) /* in the sequence of the training step's forward turns */
        for (int t = 0, u = 0; t < s.turns[i]; t++)
            if (s.turn[i][t].pass == KOLO_PASS_FORWARD)
                forward = forward && !memcmp(&s.turn[i][t], &f.turn[i][u++], sizeof(kolo_turn));
    c->forward += forward && kolo_turns_in_flight(f.turn[0], f.turns[0], -1) == 1;
    step_close(&s);
    step_close(&f);
}
static void all_sizes(void)
{
    for (int order = 0; order < KOLO_PIPELINE_PIPEDREAM; order++) {
        const char *name = kolo_pipeline[order].name;
        count c = {0};
        for (int stages = 1; stages <= MAX_STAGES; stages++)
            for (int chunks = 1; chunks <= (kolo_pipeline[order].takes_chunks ? MAX_CHUNKS : 1); chunks++)
                for (int slots = 1; slots <= MAX_SLOTS; slots++) count_one(&c, order, stages, chunks, slots);
        ok(c.cases >= MAX_STAGES * MAX_SLOTS && c.made == c.cases, "%s: turns for %d sizes", name, c.cases);
        is_int(c.complete, c.cases, "%s: every pass once, slots of a chunk ascending in each", name);
        is_int(c.through, c.cases, "%s: no stages wait for each other in a circle", name);
        is_int(c.bound, c.cases, "%s: no more slots in flight than published", name);
        ok(c.exact_cases > MAX_STAGES && c.exact == c.exact_cases,
           "%s: as many slots in flight as published where groups are full", name);
        is_int(c.chunk_sum, c.cases, "%s: chunks hold no less one by one than together", name);
        is_int(c.forward, c.cases, "%s: forward alone: the same sequence, nothing held", name);
    }
}

/* "F0.1": forward of chunk 0, slot 1 */
static const char *text_of(enum kolo_pipeline order, int stages, int stage, int chunks, int slots)
{
    static char text[TEXT];
    kolo_turn *turn;
    int turns, n = 0;
    text[0] = '\0';
    if (kolo_turns_create(order, stages, stage, chunks, slots, &turn, &turns) < 0) return kolo_error_text();
    for (int t = 0; t < turns; t++)
        n += snprintf(text + n, (size_t)(TEXT - n), "%s%c%d.%d", t ? " " : "", "FBW"[turn[t].pass],
                      turn[t].chunk, turn[t].slot);
    free(turn);
    return text;
}
static void by_hand(void)
{
    is_text(text_of(KOLO_PIPELINE_GPIPE, 2, 0, 1, 3), "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2",
            "gpipe: backward in ascending order too");
    is_text(text_of(KOLO_PIPELINE_1F1B, 3, 0, 1, 4), "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3",
            "1f1b, first of 3 stages, 4 slots");
    is_text(text_of(KOLO_PIPELINE_1F1B, 3, 2, 1, 4), "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3",
            "1f1b, last of 3 stages, 4 slots");
    is_text(text_of(KOLO_PIPELINE_1F1B, 4, 0, 1, 2), "F0.0 F0.1 B0.0 B0.1", "1f1b, fewer slots than stages");
    is_text(text_of(KOLO_PIPELINE_INTERLEAVED, 2, 0, 2, 4),
            "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3",
            "interleaved, first of 2 stages, 2 chunks, 4 slots");
    is_text(text_of(KOLO_PIPELINE_INTERLEAVED, 2, 1, 2, 4),
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3",
            "interleaved, last of 2 stages, 2 chunks, 4 slots");
    is_text(text_of(KOLO_PIPELINE_ZERO_BUBBLE, 3, 0, 1, 4),
            "F0.0 F0.1 F0.2 B0.0 W0.0 F0.3 B0.1 W0.1 B0.2 W0.2 B0.3 W0.3",
            "zero_bubble, first of 3 stages, 4 slots: weights at once");
    is_text(text_of(KOLO_PIPELINE_ZERO_BUBBLE, 3, 2, 1, 4),
            "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 W0.0 F0.3 B0.3 W0.1 W0.2 W0.3",
            "zero_bubble, last of 3 stages, 4 slots: weights two slots later");
}

static void refused(int order, int stages, int stage, int chunks, int slots, int status, const char *word)
{
    kolo_turn here, *turn = &here;
    int turns = 7;
    const int rc = kolo_turns_create((enum kolo_pipeline)order, stages, stage, chunks, slots, &turn, &turns);
    ok(rc == status && !turn && turns == 0 && strstr(kolo_error_text(), word),
       "order %d, stage %d of %d, %d chunks, %d slots: refused (%s)", order, stage, stages, chunks, slots,
       kolo_error_text());
}

/* A whole run of late orders: all passes once, none in a circle; and a batch's forward turns come behind
 * as many updates as its weights need, a stage's lists holding as many micro-batches as are ahead. */
static void late(void)
{
    for (int order = KOLO_PIPELINE_PIPEDREAM; order < KOLO_PIPELINES; order++) {
        const char *name = kolo_pipeline[order].name;
        int cases = 0, complete = 0, through = 0, fresh = 0, held = 0;
        for (int stages = 1; stages <= 6; stages++)
            for (int slots = 1; slots <= 3; slots++) {
                const int steps = MAX_SLOTS / slots;
                step s = {.stages = stages, .chunks = 1, .slots = slots * steps};
                bool good = true, holds = true;
                for (int i = 0; i < stages; i++) {
                    int updates = 0, turns;
                    kolo_turn *one;
                    const int ahead = kolo_pipeline[order].ahead(stages, i),
                              old = kolo_pipeline[order].staleness(stages, i);
                    s.turns[i] = turns_of_run((enum kolo_pipeline)order, stages, i, slots, steps, &s.turn[i]);
                    for (int t = 0; t < s.turns[i]; t++) {
                        const kolo_turn *turn = &s.turn[i][t];
                        const int batch = turn->slot / slots, want = batch > old ? batch - old : 0;
                        if (turn->pass == KOLO_PASS_FORWARD) good = good && updates >= want;
                        else updates += turn->slot % slots == slots - 1;
                        if (turn->pass == KOLO_PASS_BACKWARD) good = good && updates <= batch + 1;
                    }
                    kolo_turns_create((enum kolo_pipeline)order, stages, i, 1, slots, &one, &turns);
                    holds =
                        holds && kolo_turns_in_flight(one, turns, -1) == ahead * slots + 1 && ahead <= old;
                    free(one);
                }
                cases++;
                complete += is_complete(&s, 2);
                through += is_through(&s);
                fresh += good;
                held += holds;
                step_close(&s);
            }
        is_int(complete, cases, "%s: a run of steps has every pass of every micro-batch once", name);
        is_int(through, cases, "%s: no stages wait for each other in a circle", name);
        is_int(fresh, cases, "%s: the weights of a batch are there when it is computed", name);
        is_int(held, cases, "%s: as many micro-batches in flight as are ahead, and one", name);
    }
}

int main(void)
{
    all_sizes();
    late();
    by_hand();
    refused(KOLO_PIPELINE_1F1B, 0, 0, 1, 4, KOLO_ECONFIG, "stages=0");
    refused(KOLO_PIPELINE_1F1B, 4, 4, 1, 4, KOLO_ECONFIG, "stage 4");
    refused(KOLO_PIPELINE_1F1B, 4, -1, 1, 4, KOLO_ECONFIG, "stage -1");
    refused(KOLO_PIPELINE_GPIPE, 4, 0, 1, 0, KOLO_ECONFIG, "0 micro-batches");
    refused(KOLO_PIPELINE_INTERLEAVED, 4, 0, 0, 4, KOLO_ECONFIG, "chunks=0");
    refused(KOLO_PIPELINE_1F1B, 4, 0, 2, 4, KOLO_ECONFIG, "pipeline=interleaved");
    refused(KOLO_PIPELINE_INTERLEAVED, 4, 0, 1 << 20, 1 << 20, KOLO_ECONFIG, "micro-batches");
    refused(KOLO_PIPELINES, 4, 0, 1, 4, KOLO_EINTERNAL, "pipeline order");
    return done_testing();
}
