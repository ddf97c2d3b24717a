/* Late pipelines played on a clock: once they are full a step takes what the slowest stage takes, and of
 * those that are drained longer. Times of operations are drawn; messages take next to nothing. */
#include "plan/play.h"
#include "program_rig.h"

enum { TRIALS = 60 };

/* Clipping and the like: all stages wait for one another in every step. */
static bool meets(const kolo_program *p)
{
    for (int64_t i = 0; i < p->plan[0]->actions; i++)
        if (kolo_plan_meets(p->plan[0], p->plan[0]->action[i].kind)) return true;
    return false;
}

/* Seconds of every action of a stage, whole numbers; returns their sum. */
static double draw_times(const kolo_plan *plan, kolo_play_time *time)
{
    double all = 0;
    for (int64_t i = 0; i < plan->actions; i++) {
        const enum kolo_action_kind kind = plan->action[i].kind;
        const double t = kind == KOLO_ACTION_RUN || kind == KOLO_ACTION_UPDATE ? draw(9) : 0;
        time[i] = (kolo_play_time){t, t};
        all += t;
    }
    return all;
}

/* Seconds: a step, and what the slowest stage and all of them compute in it. */
typedef struct seconds {
    double step, slowest, work;
} seconds;

static seconds play(const kolo_program *p, const kolo_fabric *fabric)
{
    kolo_play_time *time[MOST_STAGES];
    kolo_play *played = NULL;
    seconds all = {0};
    for (int s = 0; s < p->grid->stages; s++) {
        time[s] = calloc((size_t)p->plan[s]->actions + 1, sizeof **time);
        const double own = draw_times(p->plan[s], time[s]);
        all.work += own;
        if (own > all.slowest) all.slowest = own;
    }
    const kolo_play_input in = {.program = p, .ranks = p->grid->stages, .fabric = fabric, .time = time};
    if (kolo_play_create(&played, &in) == 0) all.step = played->step;
    else diag("%s", kolo_error_text());
    for (int s = 0; s < p->grid->stages; s++) free(time[s]);
    kolo_play_destroy(&played);
    return all;
}

static void test(enum kolo_pipeline order, int stages, int slots, bool full)
{
    const kolo_fabric fabric = {.gpus = 8, .link = 1e9, .link_latency = 1e-9, .network = 1e9, .share = 1};
    int n = 0, equal = 0;
    double most = 0, least = 1e9;
    for (int i = 0; i < TRIALS; i++) {
        rig r;
        const trial t = {.stages = stages,
                         .slots = slots,
                         .chunks = 1,
                         .replicas = 1,
                         .blocks = 3 + draw(MOST_BLOCKS - 2),
                         .order = order};
        drawn = (uint64_t)(100000 * (order + 1) + 1000 * i + 10 * stages + slots) * 1000;
        if (rig_open(&r, &t) == 0 && r.program && !meets(r.program)) {
            const seconds all = play(r.program, &fabric);
            const double by = all.slowest > 0 ? all.step / all.slowest : 1;
            n++;
            equal += fabs(by - 1) < 1e-6;
            if (by > most) most = by;
            if (by < least) least = by;
        }
        rig_close(&r);
    }
    if (full)
        ok(n > TRIALS / 10 && equal == n,
           "%s, %d stages, %d micro-batches: %d of %d steps are the slowest stage's (%.7f to %.7f)",
           kolo_pipeline[order].name, stages, slots, equal, n, least, most);
    else
        ok(n > TRIALS / 10 && equal < n && least > 1 - 1e-6,
           "%s, %d stages, %d micro-batches: steps take %.3f to %.3f times as long",
           kolo_pipeline[order].name, stages, slots, least, most);
}

/* A pipeline that is drawn, on so few cores, and on one for each stage. False: none was drawn. */
static bool play_pair(int number, const trial *t, const kolo_fabric *few, seconds *on_few, seconds *on_enough)
{
    kolo_fabric enough = *few;
    rig r;
    enough.cores = t->stages;
    drawn = (uint64_t)(number + 1) * 7919;
    const bool there = rig_open(&r, t) == 0 && r.program && !meets(r.program);
    if (there) {
        const uint64_t start = drawn;
        *on_enough = play(r.program, &enough);
        drawn = start;
        *on_few = play(r.program, few);
    }
    rig_close(&r);
    return there;
}

/* Three stages on two cores, which they share evenly. */
static void test_sharing(void)
{
    const kolo_fabric two = {.gpus = 8, .share = 1, .cores = 2, .threads = 1};
    const trial t = {.stages = 3,
                     .slots = 2,
                     .chunks = 1,
                     .replicas = 1,
                     .blocks = 4,
                     .order = KOLO_PIPELINE_PIPEDREAM};
    int n = 0, longer = 0, wrong = 0;
    for (int i = 0; i < TRIALS; i++) {
        seconds few, enough;
        if (!play_pair(i, &t, &two, &few, &enough)) continue;
        const double more = few.step / enough.step;
        n++;
        longer += more > 1.01;
        wrong += more < 1 - 1e-9 || more > 1.5 + 1e-9;
    }
    ok(n > TRIALS / 10 && longer > n / 2 && wrong == 0,
       "three stages on two cores: up to 1.5 times as long as on three (%d of %d longer, %d wrong)", longer,
       n, wrong);
}

/* Stages on fewer cores, in turns: no core is idle while a stage wants one, so a step is no longer than its
 * work by the cores, and of the longest chain in it what the other cores may miss meanwhile (Graham 1966,
 * "Bounds for certain multiprocessing anomalies"); and no shorter than either. */
static void test_turns(int stages, int cores, double turn)
{
    const kolo_fabric fabric = {.gpus = 8, .share = 1, .cores = cores, .threads = 1, .turn = turn};
    int n = 0, longer = 0, wrong = 0;
    for (int i = 0; i < TRIALS; i++) {
        const trial t = {.stages = stages,
                         .slots = 4,
                         .chunks = 1,
                         .replicas = 1,
                         .blocks = 4,
                         .order = i % 2 ? KOLO_PIPELINE_1F1B : KOLO_PIPELINE_GPIPE};
        seconds few, enough;
        if (!play_pair(i, &t, &fabric, &few, &enough)) continue;
        const double least = few.work / cores, most = least + enough.step * (cores - 1) / cores;
        n++;
        longer += few.step > 1.01 * enough.step;
        wrong += few.step < fmax(least, enough.step) - 1e-9 || few.step > most + 1e-9;
    }
    ok(n > TRIALS / 10 && longer > 0 && wrong == 0,
       "%d stages on %d cores, turns of %g s: as long as list scheduling allows (%d of %d longer than on a "
       "core each, %d wrong)",
       stages, cores, turn, longer, n, wrong);
}

int main(void)
{
    const kolo_backend_config config = {.threads = 1, .direct = true, .deterministic = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) return 1;
    for (int stages = 2; stages <= 4; stages++)
        for (int slots = 1; slots <= 3; slots++) {
            test(KOLO_PIPELINE_PIPEDREAM, stages, slots, true);
            test(KOLO_PIPELINE_PIPELINED, stages, slots, true);
        }
    test(KOLO_PIPELINE_TWO_BUFFERED, 2, 2, true);
    test(KOLO_PIPELINE_1F1B, 2, 2, false);
    test(KOLO_PIPELINE_1F1B, 4, 3, false);
    test_sharing();
    test_turns(3, 2, 10);
    test_turns(4, 2, 1e-3);
    test_turns(4, 3, 1e6);
    test_turns(2, 1, 25);
    kolo_backend_destroy(&backend);
    return done_testing();
}
