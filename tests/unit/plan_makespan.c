/* How long a step takes in each order of a pipeline, against closed forms: each turn starts as soon as its
 * stage is free and what it reads is there. SEED repeats a campaign of random cases. */
#include "base/philox.h"
#include "kolo/error.h"
#include "turns_run.h"

enum { MAX_STAGES = 8, MAX_PARTS = 32, STEPS = 40, MAX_SLOTS = 3 * 2 * STEPS };

/* Part c * stages + s is chunk c of stage s, which reads what the part before it makes. */
typedef struct trial {
    int stages, chunks, slots;
    kolo_turn *turn[MAX_STAGES];
    int turns[MAX_STAGES];
    double seconds[MAX_PARTS][KOLO_PASSES];
    double latency; /* seconds from one stage to another */
} trial;

static void trial_open(trial *c, enum kolo_pipeline order, int stages, int chunks, int slots, double f,
                       double b, double w)
{
    *c = (trial){.stages = stages, .chunks = chunks, .slots = slots};
    for (int i = 0; i < stages * chunks; i++) {
        c->seconds[i][KOLO_PASS_FORWARD] = f;
        c->seconds[i][KOLO_PASS_BACKWARD] = b;
        c->seconds[i][KOLO_PASS_WEIGHT] = w;
    }
    for (int i = 0; i < stages; i++)
        if (kolo_turns_create(order, stages, i, chunks, slots, &c->turn[i], &c->turns[i]) < 0)
            printf("Bail out! %s\n", kolo_error_text()), exit(1);
}
static void trial_close(trial *c)
{
    for (int i = 0; i < c->stages; i++) free(c->turn[i]);
}

static double ends[KOLO_PASSES][MAX_PARTS][MAX_SLOTS]; /* of turns; -1: not yet done */

/* When what a turn reads is there; -1: not yet. */
static double ready(const trial *c, int stage, const kolo_turn *turn)
{
    const int part = turn->chunk * c->stages + stage, slot = turn->slot;
    const int from = part + (turn->pass == KOLO_PASS_FORWARD ? -1 : 1);
    const double own = turn->pass == KOLO_PASS_FORWARD ? 0 : ends[turn->pass - 1][part][slot];
    if (own < 0 || turn->pass == KOLO_PASS_WEIGHT || from < 0 || from == c->stages * c->chunks) return own;
    const double there = ends[turn->pass][from][slot];
    return there < 0 ? -1 : fmax(own, there + (c->stages > 1 ? c->latency : 0));
}

/* Seconds until the last turn of all has ended; -1: some never start. Closes the trial. */
static double makespan(trial *c)
{
    int next[MAX_STAGES] = {0};
    double free_at[MAX_STAGES] = {0}, last = 0;
    for (int pass = 0; pass < KOLO_PASSES; pass++)
        for (int part = 0; part < c->stages * c->chunks; part++)
            for (int slot = 0; slot < c->slots; slot++) ends[pass][part][slot] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < c->stages; s++)
            for (; next[s] < c->turns[s]; next[s]++) {
                const kolo_turn *turn = &c->turn[s][next[s]];
                const double start = ready(c, s, turn), *seconds = c->seconds[turn->chunk * c->stages + s];
                if (start < 0) break;
                free_at[s] = fmax(free_at[s], start) + seconds[turn->pass];
                ends[turn->pass][turn->chunk * c->stages + s][turn->slot] = free_at[s];
                moved = true;
            }
    }
    for (int s = 0; s < c->stages; s++) last = next[s] < c->turns[s] ? INFINITY : fmax(last, free_at[s]);
    trial_close(c);
    return isfinite(last) ? last : -1;
}

/* Of equal parts. */
static double makespan_of(enum kolo_pipeline order, int stages, int chunks, int slots, double f, double b,
                          double w, double latency)
{
    trial c;
    trial_open(&c, order, stages, chunks, slots, f, b, w);
    c.latency = latency;
    return makespan(&c);
}

/* ---- closed forms of equal parts (small whole numbers: sums are exact) --------------------------------- */

static void filled(enum kolo_pipeline order)
{
    int cases = 0, equal = 0;
    for (int p = 1; p <= MAX_STAGES; p++)
        for (int m = 1; m <= 32; m++)
            for (int f = 1; f <= 3; f++) {
                cases++;
                equal += makespan_of(order, p, 1, m, f, 3, 0, 0) == (m + p - 1) * (f + 3);
            }
    ok(cases == 768 && equal == cases, "%s: makespan (m+p-1)(tF+tB) in %d cases", kolo_pipeline[order].name,
       cases);
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
    int cases = 0, equal = 0;
    for (int p = 1; p <= MAX_STAGES; p++)
        for (int m = p; m <= 32; m++)
            for (int f = 1; f <= 3; f++)
                for (int w = 1; w <= f; w++) {
                    cases++;
                    equal += makespan_of(KOLO_PIPELINE_ZERO_BUBBLE, p, 1, m, f, f, w, 0) ==
                             m * (2 * f + w) + (p - 1) * (2 * f - w);
                }
    ok(cases > 1000 && equal == cases, "zero_bubble: m(tF+tB+tW) + (p-1)(tF+tB-tW) in %d cases", cases);
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
                          makespan_of(KOLO_PIPELINE_1F1B, p, 1, m, f, b + w, 0, 0);
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
        const double filled_drained = f_sum + b_sum + (m - 1) * (f_most + b_most);
        gpipe += makespan(&c[0]) == filled_drained;
        bounded += makespan(&c[1]) <= filled_drained;
        in_ratio += makespan(&c[2]) <= (f_sum + (m - 1) * f_most) * (1 + ratio);
    }
    is_int(gpipe, CASES, "uneven stages: gpipe takes sum F + sum B + (m-1)(max F + max B) in %d cases",
           CASES);
    is_int(bounded, CASES, "uneven stages: 1f1b takes no longer than gpipe");
    is_int(in_ratio, CASES, "stages uneven in one ratio: 1f1b at most sum F + sum B + (m-1) max (F + B)");
    trial c;
    trial_open(&c, KOLO_PIPELINE_1F1B, 3, 1, 2, 1, 1, 0);
    c.seconds[0][KOLO_PASS_FORWARD] = c.seconds[1][KOLO_PASS_BACKWARD] = 5;
    is_int(makespan(&c), 22, "stages uneven in no ratio: 1f1b above that bound, by hand");
}

/* Late orders are never drained: once the pipeline is full a step takes what the slowest stage takes. Uneven
 * stages, several micro-batches; two_buffered of two stages, as more of them wait for each other. */
static void late_bubble(kolo_random *r)
{
    enum { CASES = 300 };
    for (int order = KOLO_PIPELINE_PIPEDREAM; order < KOLO_PIPELINES; order++) {
        int good = 0;
        for (int i = 0; i < CASES; i++) {
            const bool two = order == KOLO_PIPELINE_TWO_BUFFERED;
            const int p = 1 + (int)kolo_random_below(r, two ? 2 : MAX_STAGES),
                      m = 1 + (int)kolo_random_below(r, 3);
            double takes[2] = {0}, slowest = 0;
            for (int k = 0; k < 2; k++) {
                trial c = {.stages = p, .chunks = 1, .slots = m * STEPS * (k + 1)};
                for (int s = 0; s < p; s++) {
                    c.turns[s] =
                        turns_of_run((enum kolo_pipeline)order, p, s, m, STEPS * (k + 1), &c.turn[s]);
                    c.seconds[s][KOLO_PASS_FORWARD] = 1 + (i * 7 + s * 3) % 5;
                    c.seconds[s][KOLO_PASS_BACKWARD] = 2 * c.seconds[s][KOLO_PASS_FORWARD];
                    slowest = fmax(slowest, 3 * m * c.seconds[s][KOLO_PASS_FORWARD]);
                }
                takes[k] = makespan(&c);
            }
            good += (takes[1] - takes[0]) / STEPS == slowest;
            if ((takes[1] - takes[0]) / STEPS != slowest && i < 4)
                diag("%s, %d stages, %d micro-batches: %g a step, slowest stage %g",
                     kolo_pipeline[order].name, p, m, (takes[1] - takes[0]) / STEPS, slowest);
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
    late_bubble(&r);
    return done_testing();
}
