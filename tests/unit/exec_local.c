/* Ranks that step by themselves: what is sent, what is averaged, and that looking changes nothing. Ranks are
 * forked processes. */
#include "exec_rig.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "exec_forks.h"

enum { ROWS = 2, STEPS = 16, RANKS = 3, MOST = 4, PARAMS = 269722 };

typedef struct result {
    _Atomic int done;
    int64_t bytes;
    float param[PARAMS], average[PARAMS], momentum[PARAMS];
    float running[64], averaged[64];
    char text[1024];
} result;
static result *results; /* [MOST], shared */

typedef struct task {
    int every;    /* weights are averaged behind so many steps; 0: gradients are summed */
    int node;     /* and within the node behind so many; 0: never */
    int steps;    /* of which */
    int looks;    /* behind every so many the mean of all ranks is formed; 0: never */
    bool plain;   /* SGD without momentum */
    bool state;   /* momentum is averaged */
    bool forgets; /* before the last step */
    /* what becomes of averages: KOLO_local_outer_*, by these or its own rates */
    int outer;
    double rate, momentum;
    bool alone; /* nothing is exchanged in the last step */
    int ranks;  /* 0: RANKS */
    int group;  /* gradients are summed among so many of them; 0: among all */
    int first;  /* rank r has the images of rank first + r */
    int lacks;  /* so many rows are missing in the batch of the last step */
} task;

static kolo_plan *plans[KOLO_EXCHANGES];

static int open_plans(rig *r, kolo_backend *backend, kolo_comm **comm, const task *t, world *w)
{
    const kolo_model_config m = {.rows = ROWS,
                                 .height = 16,
                                 .width = 16,
                                 .channels = 3,
                                 .classes = 10,
                                 .train = true,
                                 .std = {1, 1, 1}};
    const kolo_plan_config c = {.ranks = w->launch.size,
                                .slots = 1,
                                .bucket_bytes = 1 << 17,
                                .ema = true,
                                .local = true,
                                .average_state = t->state,
                                .outer = t->outer,
                                .group = t->group,
                                .optimizer = kolo_optimizer_find("sgd")};
    memset(r, 0, sizeof *r);
    kolo_options_default(&r->options);
    r->options.local_outer = t->outer;
    r->options.local_outer_rate = t->rate;
    r->options.local_outer_momentum = t->momentum;
    KOLO_TRY(kolo_model_graph(&r->graph, "resnet20", &m));
    KOLO_TRY(kolo_plan_create(&r->plan, r->graph, backend, &c, NULL));
    plans[0] = r->plan;
    for (int x = 1; x < KOLO_EXCHANGES; x++)
        KOLO_TRY(kolo_plan_create_exchange(&plans[x], r->plan, (enum kolo_exchange)x));
    KOLO_TRY(kolo_plan_share(plans, KOLO_EXCHANGES));
    const kolo_comm_config k = {.size = sizeof(kolo_comm_config),
                                .arena_bytes = r->plan->arena_bytes[KOLO_ARENA_GRADIENT],
                                .timeout = 30,
                                .spin = -1};
    KOLO_TRY(kolo_comm_create(comm, &w->launch, &k));
    KOLO_TRY(kolo_exec_create(&r->exec, plans, KOLO_EXCHANGES, backend, *comm, &r->options, NULL));
    r->rows = ROWS;
    r->image = 16 * 16 * 3;
    r->pixels = calloc((size_t)r->rows, (size_t)r->image);
    r->labels = calloc((size_t)r->rows, sizeof *r->labels);
    return kolo_exec_initialise(r->exec, 1);
}

static enum kolo_exchange exchange_of(const task *t, int step)
{
    return !t->every                              ? KOLO_EXCHANGE_GRADIENTS
           : t->alone && step == t->steps - 1     ? KOLO_EXCHANGE_NOTHING
           : (step + 1) % t->every == 0           ? KOLO_EXCHANGE_WEIGHTS
           : t->node && (step + 1) % t->node == 0 ? KOLO_EXCHANGE_NODE
                                                  : KOLO_EXCHANGE_NOTHING;
}

static void keep(rig *r, const char *which, float *to)
{
    int64_t n;
    float *all = rig_all(r, which, &n);
    memcpy(to, all, PARAMS * sizeof *to);
    free(all);
}

static int train(result *to, const task *t, world *w)
{
    kolo_backend *backend = rig_backend(1, true);
    kolo_comm *comm = NULL;
    kolo_comm_stats before, after;
    rig r;
    int rc;
    KOLO_TRY_GOTO(rc, open_plans(&r, backend, &comm, t, w));
    kolo_batch b = rig_batch(&r);
    b.valid_global = ROWS * w->launch.size;
    KOLO_TRY_GOTO(rc, kolo_exec_anchor(r.exec));
    kolo_comm_get_stats(comm, &before);
    for (int s = 0; s < t->steps; s++) {
        kolo_metrics m;
        kolo_step step = rig_step(s, .05);
        if (t->plain) step.momentum = 0;
        rig_fill(&r, (s * RANKS + t->first + w->launch.rank) * ROWS);
        if (t->lacks && s == t->steps - 1) {
            const int64_t left = (b.valid_global -= t->lacks) - w->launch.rank * ROWS;
            b.valid = left < 0 ? 0 : left > ROWS ? ROWS : left;
        }
        if (t->forgets && s == t->steps - 1) KOLO_TRY_GOTO(rc, kolo_exec_reset_optimizer(r.exec));
        kolo_exec_exchange(r.exec, exchange_of(t, s));
        KOLO_TRY_GOTO(rc, kolo_exec_step(r.exec, &b, &step, &m));
        if (t->looks && (s + 1) % t->looks == 0) KOLO_TRY_GOTO(rc, kolo_exec_average(r.exec));
    }
    kolo_comm_get_stats(comm, &after);
    to->bytes = after.bytes - before.bytes;
    keep(&r, "param", to->param);
    keep(&r, "momentum", to->momentum);
    KOLO_TRY_GOTO(rc, kolo_exec_average(r.exec));
    keep(&r, "ema", to->average);
    const int norm = kolo_graph_find(r.graph, "layer3.2.bn2.running_var");
    KOLO_TRY_GOTO(rc, kolo_exec_get(r.exec, "param", norm, to->running));
    rc = kolo_exec_get(r.exec, "ema", norm, to->averaged);
fail:
    if (rc < 0) snprintf(to->text, sizeof to->text, "%s", kolo_error_text());
    return rc;
}

/* 0, or how many ranks failed. */
static int run(const task *t)
{
    pid_t child[MOST] = {0};
    const int ranks = t->ranks ? t->ranks : RANKS;
    int failed = 0;
    world w;
    memset((void *)results, 0, (size_t)ranks * sizeof *results);
    const int me = exec_fork(child, ranks, "exec-local", &w);
    if (me >= 0) {
        results[me].done = train(&results[me], t, &w) == 0;
        _exit(0);
    }
    for (int r = 0; r < ranks; r++) waitpid(child[r], NULL, 0);
    for (int r = 0; r < ranks; r++) {
        failed += !results[r].done;
        if (!results[r].done) diag("rank %d of %d: %s", r, ranks, results[r].text);
    }
    return failed;
}

static bool same(size_t at, size_t bytes)
{
    bool all = true;
    for (int r = 1; r < RANKS; r++) all &= !memcmp((char *)&results[r] + at, (char *)&results[0] + at, bytes);
    return all;
}
#define SAME(what) same(offsetof(result, what), sizeof results[0].what)

/* The mean of the ranks' numbers, by hand. */
static double apart_from_mean(const float *got, size_t at, int n)
{
    double far = 0, size = 0;
    for (int i = 0; i < n; i++) {
        double mean = 0;
        for (int r = 0; r < RANKS; r++) mean += (double)((float *)((char *)&results[r] + at))[i] / RANKS;
        far += ((double)got[i] - mean) * ((double)got[i] - mean);
        size += mean * mean;
    }
    return sqrt(far / size);
}

static void test_bytes(void)
{
    task t = {.steps = STEPS};
    int failed = run(&t);
    const int64_t each_step = results[0].bytes;
    ok(!failed && each_step > (int64_t)(STEPS * PARAMS * sizeof(float)) && SAME(param),
       "gradients summed in each of %d steps: %lld bytes", STEPS, (long long)each_step);
    t.every = STEPS;
    failed = run(&t);
    ok(!failed && results[0].bytes * STEPS == each_step,
       "weights averaged once in %d steps: %lld bytes, a sixteenth", STEPS, (long long)results[0].bytes);
    ok(SAME(param) && SAME(running), "then all ranks have the same weights and running statistics");
    ok(!SAME(momentum), "and a momentum of their own");
    t.state = true;
    failed = run(&t);
    ok(!failed && SAME(param) && SAME(momentum), "the momentum too, where it is averaged");
    ok(results[0].bytes * STEPS > each_step, "which sends more: %lld bytes", (long long)results[0].bytes);
}

static void test_mean(void)
{
    static float mean[PARAMS], kept[PARAMS], momentum[PARAMS];
    task t = {.every = STEPS, .steps = 5};
    int failed = run(&t);
    memcpy(mean, results[0].average, sizeof mean);
    memcpy(kept, results[1].param, sizeof kept);
    memcpy(momentum, results[1].momentum, sizeof momentum);
    double apart = apart_from_mean(mean, offsetof(result, param), PARAMS);
    ok(!failed && !SAME(param) && SAME(average) && apart < 1e-6,
       "ranks apart: their mean, by hand, on all ranks; apart by %.2g", apart);
    apart = apart_from_mean(results[0].averaged, offsetof(result, running), 64);
    ok(!SAME(running) && SAME(averaged) && apart < 1e-6, "of running statistics, too; apart by %.2g", apart);
    t.looks = 1;
    failed = run(&t);
    ok(!failed && !memcmp(kept, results[1].param, sizeof kept) &&
           !memcmp(momentum, results[1].momentum, sizeof momentum),
       "a mean formed behind every step changes no weight and no momentum");
    t = (task){.every = STEPS, .node = 5, .steps = 5};
    failed = run(&t);
    ok(!failed && SAME(param) && !memcmp(results[0].param, mean, sizeof mean),
       "an average within a node of all ranks is that of all");
}

/* Without momentum the mean of weights that each rank moved by its own gradient is moved by the mean. */
static void test_one(void)
{
    static float summed[PARAMS];
    task t = {.steps = 1, .plain = true};
    int failed = run(&t);
    memcpy(summed, results[0].param, sizeof summed);
    t.every = 1;
    failed += run(&t);
    const double apart = rig_apart(results[0].param, summed, PARAMS);
    ok(!failed && apart < 1e-6, "averages behind a step of SGD are steps by the mean; apart by %.2g", apart);
}

/* The rules in f64 of an element, by the papers: anchor, momentum and, with easgd, the centre. */
static void outer_rule(int kind, double rate, double momentum, double lr, double mean, double *anchor,
                       double *kept)
{
    const double away = *anchor - mean;
    if (kind == KOLO_local_outer_easgd) {
        *anchor += RANKS * rate * (mean - *anchor);
    } else if (kind == KOLO_local_outer_slowmo) {
        *kept = momentum * *kept + away / lr;
        *anchor -= rate * lr * *kept;
    } else {
        *kept = momentum * *kept + away;
        *anchor -= rate * (away + momentum * *kept);
    }
}

/* Root of the mean of squares of (a - b), by that of (b - from). */
static double apart_by(const float *a, const double *b, const float *from)
{
    double far = 0, size = 0;
    for (int i = 0; i < PARAMS; i++) {
        far += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (b[i] - (double)from[i]) * (b[i] - (double)from[i]);
    }
    return sqrt(far / size);
}

static double mean_of(int i)
{
    double mean = 0;
    for (int r = 0; r < RANKS; r++) mean += (double)results[r].param[i] / RANKS;
    return mean;
}

/* Two averages, the ranks' own steps taken from runs whose last step exchanges nothing. */
static void test_outer(int kind, const char *name, double rate, double momentum)
{
    enum { EVERY = 3 };
    static float begin[PARAMS], own[RANKS][PARAMS];
    static double anchor[PARAMS], kept[PARAMS];
    const bool keeps = kind == KOLO_local_outer_easgd;
    task t = {.every = EVERY, .outer = kind, .rate = rate, .momentum = momentum};
    int failed = run(&t);
    memcpy(begin, results[0].param, sizeof begin);
    for (int i = 0; i < PARAMS; i++) anchor[i] = (double)begin[i], kept[i] = 0;
    for (int round = 1; round <= 2; round++) {
        t.steps = EVERY * round;
        t.alone = true;
        failed += run(&t);
        for (int r = 0; r < RANKS; r++)
            for (int i = 0; i < PARAMS; i++)
                own[r][i] = (float)((double)results[r].param[i] -
                                    (keeps ? rate * ((double)results[r].param[i] - anchor[i]) : 0));
        for (int i = 0; i < PARAMS; i++)
            outer_rule(kind, rate, momentum, .05, mean_of(i), &anchor[i], &kept[i]);
        t.alone = false;
        failed += run(&t);
        double apart = keeps ? 0 : apart_by(results[0].param, anchor, begin);
        for (int r = 0; keeps && r < RANKS; r++)
            apart = fmax(apart, rig_apart(results[r].param, own[r], PARAMS));
        ok(!failed && apart < 1e-5 && SAME(param) == !keeps,
           "%s, average %d: as a computation in f64 says; apart by %.2g", name, round, apart);
    }
}

static void test_outer_is_mean(void)
{
    static float mean[PARAMS];
    task t = {.every = 3, .steps = 6};
    int failed = run(&t), same = 0;
    memcpy(mean, results[0].param, sizeof mean);
    for (t.outer = KOLO_local_outer_slowmo, t.rate = 1; t.outer <= KOLO_local_outer_nesterov; t.outer++) {
        failed += run(&t);
        same += !memcmp(mean, results[0].param, sizeof mean);
    }
    ok(!failed && same == 2, "slowmo and nesterov with rate 1 and momentum 0 make the mean, to the bit");
}

static void test_forget(void)
{
    task t = {.every = STEPS, .steps = 3, .forgets = true};
    int failed = run(&t);
    static float momentum[PARAMS];
    memcpy(momentum, results[2].momentum, sizeof momentum);
    t.forgets = false;
    failed += run(&t);
    ok(!failed && memcmp(momentum, results[2].momentum, sizeof momentum) != 0,
       "an optimizer that forgets before a step goes on from nothing");
}

/* Each of two groups of two ranks is what two ranks by themselves are. */
static void test_groups(void)
{
    static float param[MOST][PARAMS];
    task t = {.ranks = 4, .group = 2, .steps = 4, .lacks = 3};
    int failed = run(&t);
    for (int r = 0; r < MOST; r++) memcpy(param[r], results[r].param, sizeof param[r]);
    const int64_t bytes = results[0].bytes;
    ok(!failed && memcmp(param[0], param[2], sizeof param[0]) != 0, "groups of two ranks go apart");
    for (int g = 0; g < 2; g++) {
        t = (task){.ranks = 2, .first = 2 * g, .steps = 4, .lacks = g ? 3 : 0};
        failed = run(&t);
        ok(!failed && !memcmp(param[2 * g], results[0].param, sizeof param[0]) &&
               !memcmp(param[2 * g + 1], results[1].param, sizeof param[0]),
           "group %d: the bytes of two ranks that have its images", g);
        ok(results[0].bytes == bytes, "  and its messages: %lld bytes", (long long)bytes);
    }
}

int main(void)
{
    results = mmap(NULL, MOST * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED) skip_all("no shared memory");
    setenv("OMP_NUM_THREADS", "1", 1);
    test_bytes();
    test_mean();
    test_one();
    test_forget();
    test_outer(KOLO_local_outer_slowmo, "slowmo", .9, .6);
    test_outer(KOLO_local_outer_nesterov, "nesterov", .7, .8);
    test_outer(KOLO_local_outer_easgd, "easgd", .2, -1);
    test_outer_is_mean();
    test_groups();
    return done_testing();
}
