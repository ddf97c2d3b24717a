/* Simulated steps of a pipeline against closed forms, against a second simulation that knows nothing but the
 * constraints, and against sums done by hand. SEED repeats a campaign of random cases. */
#include "plan/timeline.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/philox.h"
#include "kolo/error.h"
#include "tap.h"

enum { MAX_STAGES = 8, MAX_PARTS = 32, MAX_EDGES = 64, MAX_SLOTS = 40 };

/* A case: an input and what it points to. */
typedef struct trial {
    kolo_timeline_input in;
    kolo_turn *turn[MAX_STAGES];
    int turns[MAX_STAGES];
    double seconds[MAX_PARTS][KOLO_PASSES];
    kolo_edge edge[MAX_EDGES];
} trial;

/* Equal parts, an edge between neighbours that costs nothing. */
static void trial_open(trial *c, enum kolo_pipeline order, int stages, int chunks, int slots, double f,
                       double b, double w)
{
    const int parts = stages * chunks;
    memset(c, 0, sizeof *c);
    for (int i = 0; i < parts; i++) {
        c->seconds[i][KOLO_PASS_FORWARD] = f;
        c->seconds[i][KOLO_PASS_BACKWARD] = b;
        c->seconds[i][KOLO_PASS_WEIGHT] = w;
        if (i > 0) c->edge[i - 1] = (kolo_edge){.from = i - 1, .to = i};
    }
    for (int i = 0; i < stages; i++)
        if (kolo_turns_create(order, stages, i, chunks, slots, &c->turn[i], &c->turns[i]) < 0)
            printf("Bail out! %s\n", kolo_error_text()), exit(1);
    c->in = (kolo_timeline_input){.stages = stages,
                                  .chunks = chunks,
                                  .slots = slots,
                                  .turn = c->turn,
                                  .turns = c->turns,
                                  .seconds = (const double(*)[KOLO_PASSES])c->seconds,
                                  .edge = c->edge,
                                  .edges = parts - 1};
}
static void trial_close(trial *c)
{
    for (int i = 0; i < c->in.stages; i++) free(c->turn[i]);
}
static kolo_timeline *simulate(const trial *c)
{
    kolo_timeline *t = NULL;
    if (kolo_timeline_create(&t, &c->in) < 0) diag("%s", kolo_error_text());
    return t;
}
/* Makespan of equal parts; -1: there is none. */
static double makespan_of(enum kolo_pipeline order, int stages, int chunks, int slots, double f, double b,
                          double w, double latency)
{
    trial c;
    trial_open(&c, order, stages, chunks, slots, f, b, w);
    for (int i = 0; i < c.in.edges; i++) c.edge[i].latency = latency;
    kolo_timeline *t = simulate(&c);
    const double makespan = t ? t->makespan : -1;
    kolo_timeline_destroy(&t);
    trial_close(&c);
    return makespan;
}

/* ---- closed forms of equal parts (small whole numbers: sums are exact) --------------------------------- */

static void filled(enum kolo_pipeline order)
{
    int cases = 0, equal = 0, bubbles = 0, busy = 0;
    for (int p = 1; p <= MAX_STAGES; p++)
        for (int m = 1; m <= 32; m++)
            for (int f = 1; f <= 3; f++) {
                trial c;
                trial_open(&c, order, p, 1, m, f, 2, 1);
                kolo_timeline *t = simulate(&c);
                cases++;
                equal += t->makespan == (m + p - 1) * (f + 3);
                bubbles += fabs(t->bubble - (p - 1.) / (m + p - 1)) < 1e-12;
                int good = 0;
                for (int s = 0; s < p; s++)
                    good += t->busy[s] == m * (f + 3) && fabs(t->idle[s] - t->bubble) < 1e-12;
                busy += good == p;
                kolo_timeline_destroy(&t);
                trial_close(&c);
            }
    const char *name = kolo_pipeline[order].name;
    ok(cases == 768 && equal == cases, "%s: makespan (m+p-1)(tF+tB) in %d cases", name, cases);
    is_int(bubbles, cases, "%s: bubble (p-1)/(m+p-1)", name);
    is_int(busy, cases, "%s: every stage is busy m(tF+tB) and idle the bubble's share", name);
}

static void interleaved(void)
{
    int cases = 0, equal = 0, eager = 0, between = 0, ragged = 0, longer = 0;
    double against = 0;
    for (int p = 1; p <= MAX_STAGES; p++)
        for (int v = 1; v <= 4; v++)
            for (int m = 1; m <= 32; m++) {
                /* a stage's forward takes v, its backward 2 v */
                const double got = makespan_of(KOLO_PIPELINE_INTERLEAVED, p, v, m, 1, 2, 0, 0);
                const int full = (m + p - 1) / p * p;
                if (v == 1) eager += got == (m + p - 1) * 3;
                if (m % p == 0) {
                    cases++;
                    equal += got == 3. * m * v + (p - 1) * 3;
                } else {
                    ragged++;
                    between += got >= 3. * m * v + (p - 1) * 3 && got <= 3. * full * v + (p - 1) * 3;
                    const double plain = 3. * v * (m + p - 1);
                    against += got / plain;
                    longer += got > plain;
                }
            }
    ok(cases > 300 && equal == cases, "interleaved: m(tF+tB) + (p-1)(tF+tB)/v in %d cases of full groups",
       cases);
    is_int(eager, MAX_STAGES * 32,
           "interleaved with one chunk: 1f1b's makespan, also where groups are not full");
    ok(ragged > 300 && between == ragged,
       "interleaved: between the formula for m and that for full groups in %d other cases", ragged);
    is_int(longer, 0, "interleaved: in none of them longer than 1f1b");
    diag("mean of their makespans over 1f1b's: %.3f", against / ragged);
}

static void zero_bubble(void)
{
    int cases = 0, equal = 0, held = 0;
    for (int p = 1; p <= MAX_STAGES; p++)
        for (int m = p; m <= 32; m++)
            for (int f = 1; f <= 3; f++)
                for (int w = 1; w <= f; w++) {
                    trial c;
                    trial_open(&c, KOLO_PIPELINE_ZERO_BUBBLE, p, 1, m, f, f, w);
                    kolo_timeline *t = simulate(&c);
                    cases++;
                    equal += t->makespan == m * (2 * f + w) + (p - 1) * (2 * f - w);
                    int good = 0;
                    for (int s = 0; s < p; s++) good += t->in_flight[s] == p;
                    held += good == p;
                    kolo_timeline_destroy(&t);
                    trial_close(&c);
                }
    ok(cases > 1000 && equal == cases, "zero_bubble: m(tF+tB+tW) + (p-1)(tF+tB-tW) in %d cases", cases);
    is_int(held, cases, "zero_bubble: p slots in flight on all stages");
}
/* Whatever passes take, and fewer slots than stages: weights apart cost nothing. */
static void zero_bubble_bound(void)
{
    int cases = 0, longer = 0;
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 12; m++)
            for (int k = 0; k < 64; k++) {
                const int f = 1 + k % 4, b = 1 + k / 4 % 4, w = 1 + k / 16;
                cases++;
                longer += makespan_of(KOLO_PIPELINE_ZERO_BUBBLE, p, 1, m, f, b, w, 0) >
                          makespan_of(KOLO_PIPELINE_1F1B, p, 1, m, f, b, w, 0);
            }
    ok(cases == 4608 && longer == 0, "zero_bubble: never longer than 1f1b (%d of %d cases)", longer, cases);
}

/* Published for p = 8, m = 32, tF = 1, tB = 2: gpipe and 1f1b with twice the lead pay 2 (p - 1) c once, 1f1b
 * about 2 c for every slot. */
static void latencies(void)
{
    static const double of[][3] = {{.1, 118.4, 123.8}, {.25, 120.5, 134}, {1, 131, 185}};
    for (int i = 0; i < 3; i++) {
        const double c = of[i][0];
        is_near(makespan_of(KOLO_PIPELINE_GPIPE, 8, 1, 32, 1, 2, 0, c), of[i][1], 1e-9,
                "latency %g: gpipe takes %g", c, of[i][1]);
        is_near(makespan_of(KOLO_PIPELINE_INTERLEAVED, 8, 1, 32, 1, 2, 0, c), of[i][1], 1e-9,
                "latency %g: interleaved with one chunk takes %g", c, of[i][1]);
        is_near(makespan_of(KOLO_PIPELINE_1F1B, 8, 1, 32, 1, 2, 0, c), of[i][2], 1e-9,
                "latency %g: 1f1b takes %g", c, of[i][2]);
    }
}

/* ---- random cases -------------------------------------------------------------------------------------- */

static double whole(kolo_random *r, uint32_t below) { return kolo_random_below(r, below); }

/* 1f1b's bound needs backward passes in one ratio to forward passes: three stages with forward 5, 1, 1 and
 * backward 1, 5, 1 take 22 for two slots, not 20, as the second forward turn of the middle stage comes before
 * its first backward turn. */
static void uneven(kolo_random *r)
{
    enum { CASES = 3000 };
    int gpipe = 0, in_ratio = 0, bounded = 0;
    for (int i = 0; i < CASES; i++) {
        const int p = 1 + (int)kolo_random_below(r, MAX_STAGES), m = 1 + (int)kolo_random_below(r, 32);
        const double ratio = 1 + whole(r, 4);
        trial c[3];
        for (int k = 0; k < 3; k++)
            trial_open(&c[k], k ? KOLO_PIPELINE_1F1B : KOLO_PIPELINE_GPIPE, p, 1, m, 0, 0, 0);
        double f_sum = 0, b_sum = 0, f_most = 0, b_most = 0;
        for (int s = 0; s < p; s++) {
            const double f = 1 + whole(r, 100), b = 1 + whole(r, 100);
            for (int k = 0; k < 3; k++) {
                c[k].seconds[s][KOLO_PASS_FORWARD] = f;
                c[k].seconds[s][KOLO_PASS_BACKWARD] = k < 2 ? b : ratio * f;
            }
            f_sum += f;
            b_sum += b;
            f_most = fmax(f_most, f);
            b_most = fmax(b_most, b);
        }
        kolo_timeline *t[3] = {simulate(&c[0]), simulate(&c[1]), simulate(&c[2])};
        const double filled_drained = f_sum + b_sum + (m - 1) * (f_most + b_most);
        gpipe += t[0]->makespan == filled_drained;
        bounded += t[1]->makespan <= filled_drained;
        in_ratio += t[2]->makespan <= (f_sum + (m - 1) * f_most) * (1 + ratio);
        for (int k = 0; k < 3; k++) {
            kolo_timeline_destroy(&t[k]);
            trial_close(&c[k]);
        }
    }
    is_int(gpipe, CASES, "uneven stages: gpipe takes sum F + sum B + (m-1)(max F + max B) in %d cases",
           CASES);
    is_int(bounded, CASES, "uneven stages: 1f1b takes no longer than gpipe");
    is_int(in_ratio, CASES, "stages uneven in one ratio: 1f1b at most sum F + sum B + (m-1) max (F + B)");
    trial c;
    trial_open(&c, KOLO_PIPELINE_1F1B, 3, 1, 2, 1, 1, 0);
    c.seconds[0][KOLO_PASS_FORWARD] = c.seconds[1][KOLO_PASS_BACKWARD] = 5;
    kolo_timeline *t = simulate(&c);
    is_int(t->makespan, 22, "stages uneven in no ratio: 1f1b above that bound, by hand");
    kolo_timeline_destroy(&t);
    trial_close(&c);
}

/* The second simulation: every turn and every transfer as early as the constraints on it allow, taken round
 * after round from the last round's times, until no time changes. */
typedef struct relaxation {
    double end[MAX_STAGES][KOLO_PASSES * 4 * MAX_SLOTS], there[2][MAX_EDGES][MAX_SLOTS];
} relaxation;

static double relaxed_ready(const trial *c, const relaxation *x, int stage, const kolo_turn *turn)
{
    const int part = turn->chunk * c->in.stages + stage;
    double ready = 0;
    for (int i = 0; i < c->in.edges && turn->pass != KOLO_PASS_WEIGHT; i++)
        if ((turn->pass == KOLO_PASS_FORWARD ? c->edge[i].to : c->edge[i].from) == part)
            ready = fmax(ready, x->there[turn->pass][i][turn->slot]);
    return ready;
}
static void relaxed_send(const trial *c, relaxation *x, int stage, int t, double (*link)[MAX_STAGES])
{
    const kolo_turn *turn = &c->turn[stage][t];
    const int part = turn->chunk * c->in.stages + stage;
    for (int i = 0; i < c->in.edges && turn->pass != KOLO_PASS_WEIGHT; i++) {
        const kolo_edge *e = &c->edge[i];
        const bool back = turn->pass == KOLO_PASS_BACKWARD;
        if ((back ? e->to : e->from) != part) continue;
        const int to = (back ? e->from : e->to) % c->in.stages;
        double *there = &x->there[turn->pass][i][turn->slot];
        if (to == stage) {
            *there = x->end[stage][t];
        } else {
            link[stage][to] = fmax(link[stage][to], x->end[stage][t]) + (back ? e->backward : e->forward);
            *there = link[stage][to] + e->latency;
        }
    }
}
static void relax(const trial *c, relaxation *x)
{
    static relaxation before;
    memset(x, 0, sizeof *x);
    do {
        double link[MAX_STAGES][MAX_STAGES] = {{0}};
        before = *x;
        for (int s = 0; s < c->in.stages; s++) {
            bool apart = false;
            for (int t = 0; t < c->turns[s]; t++) apart = apart || c->turn[s][t].pass == KOLO_PASS_WEIGHT;
            for (int t = 0; t < c->turns[s]; t++) {
                const kolo_turn *turn = &c->turn[s][t];
                const double *seconds = c->seconds[turn->chunk * c->in.stages + s];
                double takes = seconds[turn->pass];
                if (turn->pass == KOLO_PASS_BACKWARD && !apart) takes += seconds[KOLO_PASS_WEIGHT];
                x->end[s][t] = fmax(t ? x->end[s][t - 1] : 0, relaxed_ready(c, &before, s, turn)) + takes;
            }
            for (int t = 0; t < c->turns[s]; t++) relaxed_send(c, x, s, t, link);
        }
    } while (memcmp(&before, x, sizeof *x) != 0);
}

static void random_links(kolo_random *r, trial *c)
{
    const int parts = c->in.stages * c->in.chunks;
    for (int i = 0; i < parts; i++)
        for (int pass = 0; pass < KOLO_PASSES; pass++) c->seconds[i][pass] = whole(r, 10);
    const int skips = parts > 1 ? (int)kolo_random_below(r, 8) : 0;
    for (int i = 0; i < skips; i++) {
        const int from = (int)kolo_random_below(r, (uint32_t)parts - 1);
        const int to = from + 1 + (int)kolo_random_below(r, (uint32_t)(parts - from - 1));
        c->edge[c->in.edges++] = (kolo_edge){.from = from, .to = to};
    }
    for (int i = 0; i < c->in.edges; i++) {
        c->edge[i].latency = whole(r, 5);
        c->edge[i].forward = whole(r, 8);
        c->edge[i].backward = whole(r, 8);
    }
}
static bool same_times(const trial *c, const kolo_timeline *t, const relaxation *x)
{
    double makespan = 0;
    int64_t crossing = 0;
    for (int s = 0; s < c->in.stages; s++)
        for (int i = 0; i < c->turns[s]; i++) {
            if (t->turn[s][i].end != x->end[s][i]) return false;
            makespan = fmax(makespan, x->end[s][i]);
        }
    for (int64_t i = 0; i < t->hops; i++)
        if (t->hop[i].arrival != x->there[t->hop[i].pass][t->hop[i].edge][t->hop[i].slot]) return false;
    for (int i = 0; i < c->in.edges; i++)
        crossing += c->edge[i].from % c->in.stages != c->edge[i].to % c->in.stages;
    return t->makespan == makespan && t->hops == 2 * crossing * c->in.slots;
}
static void second_simulation(kolo_random *r)
{
    enum { CASES = 1000 };
    static relaxation x;
    int same = 0, waits = 0;
    for (int i = 0; i < CASES; i++) {
        const int order = i % KOLO_PIPELINE_PIPEDREAM, p = 1 + (int)kolo_random_below(r, 6);
        const int v = kolo_pipeline[order].takes_chunks ? 1 + (int)kolo_random_below(r, 3) : 1;
        trial c;
        trial_open(&c, (enum kolo_pipeline)order, p, v, 1 + (int)kolo_random_below(r, 12), 0, 0, 0);
        random_links(r, &c);
        kolo_timeline *t = simulate(&c);
        relax(&c, &x);
        same += t && same_times(&c, t, &x);
        for (int64_t h = 0; t && h < t->hops; h++) /* a link in use delayed it */
            waits += t->hop[h].arrival > t->hop[h].link.end && t->hop[h].link.start > 0;
        kolo_timeline_destroy(&t);
        trial_close(&c);
    }
    ok(same == CASES && waits > CASES,
       "links, skips, uneven parts: all times as by relaxation in %d of %d cases", same, CASES);
}

/* ---- by hand ------------------------------------------------------------------------------------------- */

static void links_by_hand(void)
{
    trial c;
    trial_open(&c, KOLO_PIPELINE_GPIPE, 2, 1, 3, 1, 1, 0);
    c.edge[0].latency = 2;
    c.edge[0].forward = 3;
    c.edge[0].backward = 1;
    kolo_timeline *t = simulate(&c);
    ok(t->turn[0][2].start == 2 && t->turn[0][2].end == 3, "a stage computes while its link is in use");
    is_int(t->turn[1][0].start, 6, "1 to compute, 3 on the link, 2 until it is there");
    is_int(t->turn[1][2].start, 12, "the link carries one after the other: sent at 1, 4 and 7");
    is_int(t->turn[0][3].start, 17, "the gradient's way back is a link of its own: at 14 + 1 + 2");
    is_int(t->makespan, 20, "the last gradient arrives at 19");
    is_near(t->bubble, 1 - 12. / 40, 1e-12, "12 of 40 seconds are busy");
    kolo_timeline_destroy(&t);
    trial_close(&c);

    trial_open(&c, KOLO_PIPELINE_1F1B, 3, 1, 1, 1, 1, 0);
    c.edge[c.in.edges++] = (kolo_edge){.from = 0, .to = 2, .latency = 10};
    t = simulate(&c);
    is_int(t->turn[2][0].start, 11, "a skip goes straight to its consumer, which waits for it");
    is_int(t->turn[1][0].start, 1, "the stage between does not");
    is_int(t->makespan, 24, "its gradient goes straight back");
    is_int(t->hops, 6, "3 edges, one transfer each way");
    kolo_timeline_destroy(&t);
    trial_close(&c);

    const double plain = makespan_of(KOLO_PIPELINE_INTERLEAVED, 2, 2, 4, 1, 1, 0, 0);
    trial_open(&c, KOLO_PIPELINE_INTERLEAVED, 2, 2, 4, 1, 1, 0);
    c.edge[c.in.edges++] = (kolo_edge){.from = 0, .to = 2, .latency = 100, .forward = 100, .backward = 100};
    t = simulate(&c);
    ok(t->makespan == plain && t->hops == 2 * 3 * 4, "a skip between chunks of a stage crosses no link");
    kolo_timeline_destroy(&t);
    trial_close(&c);
}

static void refused(trial *c, int status, const char *words, const char *what)
{
    kolo_timeline here, *t = &here;
    const int rc = kolo_timeline_create(&t, &c->in);
    ok(rc == status && !t && strstr(kolo_error_text(), words), "%s: refused (%s)", what, kolo_error_text());
    trial_close(c);
}
static void impossible(void)
{
    trial c;
    trial_open(&c, KOLO_PIPELINE_1F1B, 2, 1, 2, 1, 1, 0);
    c.turn[1][0].pass = KOLO_PASS_BACKWARD;
    c.turn[1][1].pass = KOLO_PASS_FORWARD;
    refused(&c, KOLO_EINTERNAL, "turn 0 of stage 1, backward of chunk 0 on slot 0, can never start",
            "backward before its forward");
    trial_open(&c, KOLO_PIPELINE_1F1B, 3, 1, 3, 1, 1, 0);
    memmove(&c.turn[2][3], &c.turn[2][4], 2 * sizeof(kolo_turn));
    c.turns[2]--;
    c.seconds[1][KOLO_PASS_FORWARD] = 10; /* stage 0 stands longer, for stage 1 */
    refused(&c, KOLO_EINTERNAL,
            "backward of chunk 0 on slot 1, can never start: it waits for backward of "
            "chunk 0 on the same slot, which stage 2 does not do",
            "a backward turn that is not there");
    trial_open(&c, KOLO_PIPELINE_1F1B, 3, 1, 3, 1, 1, 0);
    memmove(&c.turn[0][1], &c.turn[0][2], 4 * sizeof(kolo_turn));
    c.turns[0]--;
    refused(&c, KOLO_EINTERNAL,
            "turn 1 of stage 1, forward of chunk 0 on slot 1, can never start: it waits for forward of "
            "chunk 0 on the same slot, which stage 0 does not do",
            "a forward turn that is not there, for which others wait too");
    trial_open(&c, KOLO_PIPELINE_GPIPE, 2, 1, 2, 1, 1, 0);
    c.turn[0][1] = (kolo_turn){KOLO_PASS_BACKWARD, 0, 0, 0};
    c.turn[0][2] = (kolo_turn){KOLO_PASS_FORWARD, 0, 1, 0};
    refused(&c, KOLO_EINTERNAL, "turn 1 of stage 0, backward of chunk 0 on slot 0, can never start",
            "two stages that wait for each other");
    trial_open(&c, KOLO_PIPELINE_GPIPE, 2, 1, 2, 1, 1, 0);
    c.turn[1][3].slot = 0;
    refused(&c, KOLO_EINTERNAL, "twice, again at turn 3", "a turn that is there twice");
    trial_open(&c, KOLO_PIPELINE_GPIPE, 2, 1, 2, 1, 1, 0);
    c.turn[1][3].slot = 2;
    refused(&c, KOLO_EINTERNAL, "on slot 2", "a slot too many");
    trial_open(&c, KOLO_PIPELINE_GPIPE, 2, 1, 2, 1, NAN, 0);
    refused(&c, KOLO_ECONFIG, "backward pass of part 0", "seconds that are none");
    trial_open(&c, KOLO_PIPELINE_GPIPE, 2, 1, 2, 1, 1, 0);
    c.edge[0].latency = -1;
    refused(&c, KOLO_ECONFIG, "link from part 0 to part 1", "a link that is there before it is sent");
    trial_open(&c, KOLO_PIPELINE_GPIPE, 2, 1, 2, 1, 1, 0);
    c.edge[0].to = 2;
    refused(&c, KOLO_EINTERNAL, "edge 0 goes from part 0 to part 2 of 2", "an edge to no part");
}

/* ---- the trace ----------------------------------------------------------------------------------------- */

static double number(const cJSON *event, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}
static void trace(void)
{
    enum { ROWS = MAX_STAGES * MAX_STAGES };
    trial c;
    char *text = NULL;
    size_t bytes = 0;
    trial_open(&c, KOLO_PIPELINE_ZERO_BUBBLE, 3, 1, 5, .25, .5, .125);
    c.edge[0].forward = c.edge[1].backward = .5;
    c.edge[c.in.edges++] = (kolo_edge){.from = 0, .to = 2, .forward = 1, .backward = 1};
    kolo_timeline *t = simulate(&c);
    FILE *file = open_memstream(&text, &bytes);
    is_int(kolo_timeline_write(t, &c.in, file), 0, "a trace is written");
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(json, "traceEvents"), *e;
    double until[2][ROWS] = {{0}}, busy[2][ROWS] = {{0}}, last = 0;
    int turns = 0, hops = 0, names = 0, overlaps = 0;
    cJSON_ArrayForEach(e, events)
    {
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(e, "ph"));
        const int rows = (int)number(e, "pid"), row = (int)number(e, "tid");
        names += !strcmp(kind, "M");
        if (strcmp(kind, "X")) continue;
        turns += rows == 0;
        hops += rows == 1;
        overlaps += number(e, "ts") < until[rows][row];
        until[rows][row] = number(e, "ts") + number(e, "dur");
        busy[rows][row] += number(e, "dur");
        if (rows == 0) last = fmax(last, until[rows][row]);
    }
    is_int(turns, 3 * 5 * 3, "it is JSON, with an event for every turn");
    is_int(hops, t->hops, "and for every transfer (%lld)", (long long)t->hops);
    is_int(names, 2 + 3 + 6, "rows are named: 3 stages, 6 links, and both kinds");
    is_int(overlaps, 0, "no row does two things at once");
    is_near(last, t->makespan * 1e6, 1e-3, "it ends with the step");
    ok(busy[0][1] == t->busy[1] * 1e6 && busy[1][0 * 3 + 2] == 5e6,
       "times are microseconds: of stage 1, and of the link from stage 0 to stage 2");
    cJSON_Delete(json);
    free(text);
    FILE *full = fopen("/dev/full", "w");
    is_int(full ? kolo_timeline_write(t, &c.in, full) : KOLO_EIO, KOLO_EIO, "a full disk is said");
    if (full) fclose(full);
    kolo_timeline_destroy(&t);
    trial_close(&c);
}

/* Late orders are never drained: once the pipeline is full a step takes what the slowest stage takes. Uneven
 * stages, several micro-batches; two_buffered of two stages, as more of them wait for each other. */
static void late_bubble(kolo_random *r)
{
    enum { CASES = 300, STEPS = 40 };
    for (int order = KOLO_PIPELINE_PIPEDREAM; order < KOLO_PIPELINES; order++) {
        int good = 0;
        for (int i = 0; i < CASES; i++) {
            const bool two = order == KOLO_PIPELINE_TWO_BUFFERED;
            const int p = 1 + (int)kolo_random_below(r, two ? 2 : MAX_STAGES),
                      m = 1 + (int)kolo_random_below(r, 3);
            double makespan[2] = {0}, slowest = 0;
            for (int k = 0; k < 2; k++) {
                trial c;
                trial_open(&c, KOLO_PIPELINE_GPIPE, p, 1, m, 1, 1, 0);
                c.in.slots = m * STEPS * (k + 1);
                for (int s = 0; s < p; s++) {
                    free(c.turn[s]);
                    kolo_turns_create_run((enum kolo_pipeline)order, p, s, m, STEPS * (k + 1), &c.turn[s],
                                          &c.turns[s]);
                    c.seconds[s][KOLO_PASS_FORWARD] = 1 + (i * 7 + s * 3) % 5;
                    c.seconds[s][KOLO_PASS_BACKWARD] = 2 * c.seconds[s][KOLO_PASS_FORWARD];
                    slowest = fmax(slowest, 3 * m * c.seconds[s][KOLO_PASS_FORWARD]);
                }
                kolo_timeline *t = simulate(&c);
                makespan[k] = t ? t->makespan : 0;
                kolo_timeline_destroy(&t);
                trial_close(&c);
            }
            good += (makespan[1] - makespan[0]) / STEPS == slowest;
            if ((makespan[1] - makespan[0]) / STEPS != slowest && i < 4)
                diag("%s, %d stages, %d micro-batches: %g a step, slowest stage %g",
                     kolo_pipeline[order].name, p, m, (makespan[1] - makespan[0]) / STEPS, slowest);
        }
        is_int(good, CASES, "%s: a step in the steady state takes as long as the slowest stage",
               kolo_pipeline[order].name);
    }
}

int main(void)
{
    const char *given = getenv("SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    diag("SEED=%llu", (unsigned long long)seed);
    kolo_random r = kolo_random_at(seed, 0, 0);
    filled(KOLO_PIPELINE_GPIPE);
    filled(KOLO_PIPELINE_1F1B);
    interleaved();
    zero_bubble();
    zero_bubble_bound();
    latencies();
    uneven(&r);
    second_simulation(&r);
    late_bubble(&r);
    links_by_hand();
    impossible();
    trace();
    return done_testing();
}
