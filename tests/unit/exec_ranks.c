/* The executor on several ranks of one node: the same bits in canonical mode, the same arithmetic in the
 * others, and ranks whose plans differ are told where. Ranks are forked processes. */
#include "exec_rig.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "exec_forks.h"

enum { BATCH = 16, STEPS = 10, RANKS = 4, PARAMS = 269722 };

typedef struct result {
    _Atomic int done;
    double loss[STEPS], square, norm;
    int64_t rows;
    float param[PARAMS], gradient[PARAMS];
    float running[64], averaged[64]; /* of one norm, of the weights and of their average */
    int64_t calls;                   /* of comm in the passes */
    char text[1024];
} result;
static result *results; /* [RANKS], shared */

typedef struct task {
    rig_config c;
    int steps;
    bool odd;   /* the last rank makes another plan */
    int passes; /* behind the steps, over the averages */
    int alone;  /* 1 + the rank whose rows a single one works on; 0: all ranks work on their own */
} task;

static int train(result *to, const task *t, world *w)
{
    rig_config c = t->c;
    kolo_backend *backend = rig_backend(1, true);
    kolo_comm *comm = NULL;
    rig r;
    int64_t n;
    int rc;
    c.ranks = w->launch.size;
    c.clip = t->odd && w->launch.rank == c.ranks - 1;
    KOLO_TRY_GOTO(rc, rig_open(&r, &c, backend, NULL, NULL));
    if (c.ranks > 1) {
        kolo_comm_config k = {.size = sizeof(kolo_comm_config),
                              .arena_bytes = r.plan->arena_bytes[KOLO_ARENA_GRADIENT],
                              .canonical = c.canonical,
                              .timeout = 30,
                              .spin = -1};
        KOLO_TRY_GOTO(rc, kolo_comm_create(&comm, &w->launch, &k));
        KOLO_TRY_GOTO(rc, kolo_exec_create(&r.exec, &r.plan, 1, backend, comm, &r.options, NULL));
        KOLO_TRY_GOTO(rc, kolo_exec_initialise(r.exec, 1));
    }
    kolo_batch b = rig_batch(&r);
    b.valid_global = t->alone ? r.rows : BATCH;
    to->rows = b.valid_global;
    for (int s = 0; s < t->steps; s++) {
        kolo_metrics m;
        kolo_step step = rig_step(s, .05);
        rig_fill(&r, s * BATCH + (t->alone ? t->alone - 1 : w->launch.rank) * r.rows);
        KOLO_TRY_GOTO(rc, kolo_exec_step(r.exec, &b, &step, &m));
        to->loss[s] = m.loss;
        to->square = m.square;
        to->norm = m.grad_norm;
    }
    kolo_comm_stats before, after;
    if (comm) kolo_comm_get_stats(comm, &before);
    for (int s = 0; s < t->passes; s++) {
        const kolo_step step = rig_step(s, 0);
        rig_fill(&r, (20 + s) * BATCH + w->launch.rank * r.rows);
        KOLO_TRY_GOTO(rc, kolo_exec_statistics(r.exec, &b, &step, s));
    }
    if (comm) kolo_comm_get_stats(comm, &after);
    if (comm) to->calls = after.calls - before.calls;
    float *all = rig_all(&r, "param", &n);
    memcpy(to->param, all, sizeof to->param);
    free(all);
    all = rig_all(&r, "gradient", &n);
    memcpy(to->gradient, all, sizeof to->gradient);
    free(all);
    rc = kolo_exec_get(r.exec, "param", kolo_graph_find(r.graph, "layer3.2.bn2.running_var"), to->running);
    if (c.ema && rc >= 0)
        rc = kolo_exec_get(r.exec, "ema", kolo_graph_find(r.graph, "layer3.2.bn2.running_var"), to->averaged);
fail:
    if (rc < 0) snprintf(to->text, sizeof to->text, "%s", kolo_error_text());
    return rc;
}

/* 0, or how many ranks failed. */
static int run(const task *t, int ranks)
{
    pid_t child[RANKS] = {0};
    int failed = 0;
    world w;
    memset((void *)results, 0, (size_t)ranks * sizeof *results);
    const int me = exec_fork(child, ranks, "exec-test", &w);
    if (me >= 0) {
        results[me].done = train(&results[me], t, &w) == 0;
        _exit(0);
    }
    for (int r = 0; r < ranks; r++) waitpid(child[r], NULL, 0);
    for (int r = 0; r < ranks; r++) {
        failed += !results[r].done;
        if (!results[r].done && !t->odd) diag("rank %d of %d: %s", r, ranks, results[r].text);
    }
    return failed;
}

static task task_of(int rows, int slots, int bn, bool canonical, int steps)
{
    return (task){{.model = "resnet20",
                   .rows = rows,
                   .side = 16,
                   .channels = 3,
                   .slots = slots,
                   .bn = bn,
                   .canonical = canonical},
                  .steps = steps};
}

static void test_canonical(void)
{
    static result one;
    task t = task_of(2, 8, KOLO_bn_ghost, true, STEPS);
    is_int(run(&t, 1), 0, "canonical: one rank, 8 blocks of 2 rows");
    one = results[0];
    ok(one.loss[STEPS - 1] != one.loss[0], "which trains: %.4f to %.4f", one.loss[0] / BATCH,
       one.loss[STEPS - 1] / BATCH);
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        t = task_of(2, 8 / ranks, KOLO_bn_ghost, true, STEPS);
        int failed = run(&t, ranks), same = 1;
        for (int r = 0; r < ranks; r++)
            same &= !memcmp(results[r].loss, one.loss, sizeof one.loss) &&
                    !memcmp(results[r].param, one.param, sizeof one.param) &&
                    !memcmp(results[r].running, one.running, sizeof one.running);
        ok(!failed && same,
           "%d ranks: the same bits in %d losses, all weights, running statistics, on every rank", ranks,
           STEPS);
    }
    t = task_of(2, 8, KOLO_bn_ghost, false, STEPS);
    run(&t, 1);
    ok(memcmp(results[0].param, one.param, sizeof one.param) != 0,
       "the fast order gives other bits, so the comparison can fail");
}

/* Step 1 of ranks against one rank with the same arithmetic. */
static void compare(int bn, const char *what)
{
    static result one;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        int rows = BATCH / ranks;
        task t =
            bn == KOLO_bn_sync ? task_of(rows, 1, bn, false, 1) : task_of(BATCH / 4, 4 / ranks, bn, false, 1);
        int failed = run(&t, ranks);
        if (ranks == 1) {
            one = results[0];
            ok(!failed, "%s on one rank", what);
            continue;
        }
        double apart = rig_apart(results[ranks - 1].gradient, one.gradient, PARAMS),
               moved = rig_apart(results[0].param, one.param, PARAMS);
        ok(!failed && fabs(results[0].loss[0] - one.loss[0]) < 1e-5 * one.loss[0] && apart < 1e-5 &&
               moved < 1e-6 && rig_apart(results[0].running, one.running, 64) < 1e-5,
           "%s on %d ranks: step 1 agrees with one rank, gradients apart by %.2g", what, ranks, apart);
        ok(!memcmp(results[0].param, results[ranks - 1].param, sizeof one.param),
           "and the ranks have the same weights");
    }
}

static void test_different_plans(void)
{
    task t = task_of(4, 1, KOLO_bn_local, false, 1);
    t.odd = true;
    int failed = run(&t, 2);
    ok(failed == 2 && strstr(results[0].text, "update bucket 0") &&
           strstr(results[1].text, "wait for bucket 1"),
       "ranks with other plans are told where: %s", results[1].text);
}

/* ---- statistics of averaged weights ---- */

/* Gradients that a step left are nobody's in passes that form statistics: no rank may sum them again. */
static void test_statistics(int slots)
{
    static float left[PARAMS], running[64];
    task t = task_of(BATCH / 2 / slots, slots, KOLO_bn_local, false, 1);
    t.c.ema = t.c.swa = true;
    int failed = run(&t, 2);
    memcpy(left, results[0].gradient, sizeof left);
    memcpy(running, results[0].averaged, sizeof running);
    t.passes = 3;
    failed += run(&t, 2);
    int same = 1;
    for (int r = 0; r < 2; r++)
        same &= !memcmp(results[r].gradient, left, sizeof left) && results[r].calls == results[0].calls;
    ok(!failed && same, "%d micro-batches: gradients stay what the last step made them", slots);
    ok(!failed && memcmp(results[0].averaged, running, sizeof running) != 0 &&
           !memcmp(results[0].averaged, results[1].averaged, sizeof running),
       "statistics of the average are formed, the same on both ranks");
    is_int(results[0].calls, 3, "one sum a pass");
}

/* ---- Adasum ---- */

static void combine(double *a, const double *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    for (int64_t i = 0; i < n; i++)
        a[i] = (aa > 0 ? 1 - ab / (2 * aa) : 1) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 1) * b[i];
}

static int64_t tensors[256];
static int tensor_count(void) /* elements of every parameter, in the order of rig_all */
{
    kolo_graph *g = NULL;
    kolo_model_config m = {
        .rows = 2, .height = 16, .width = 16, .channels = 3, .classes = 10, .train = true, .std = {1, 1, 1}};
    int n = 0;
    if (kolo_model_graph(&g, "resnet20", &m) < 0) return 0;
    for (int t = 0; t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_PARAM) tensors[n++] = kolo_tensor_count(&g->tensor[t]);
    kolo_graph_destroy(&g);
    return n;
}

/* A step of each rank by itself, put together by hand in f64, against the ranks' common step. Two slots a
 * rank, so that its own gradients are folded first. */
static void test_adasum(int ranks, int n)
{
    static float start[PARAMS];
    static double change[RANKS][PARAMS];
    task t = task_of(2, 2, KOLO_bn_local, false, 0);
    run(&t, 1);
    memcpy(start, results[0].param, sizeof start);
    t.steps = 1;
    for (int r = 0; r < ranks; r++) {
        t.alone = r + 1;
        run(&t, 1);
        for (int i = 0; i < PARAMS; i++) change[r][i] = (double)results[0].param[i] - (double)start[i];
    }
    /* neighbours first; of three, the pair before the last */
    for (int k = 0, at = 0; k < n; at += tensors[k++]) {
        combine(change[0] + at, change[1] + at, tensors[k]);
        if (ranks == 4) combine(change[2] + at, change[3] + at, tensors[k]);
        if (ranks > 2) combine(change[0] + at, change[2] + at, tensors[k]);
    }
    t = task_of(2, 2, KOLO_bn_local, false, 1);
    t.c.adasum = true;
    int failed = run(&t, ranks);
    double far = 0, size = 0;
    for (int i = 0; i < PARAMS; i++) {
        double d = (double)results[0].param[i] - (double)start[i] - change[0][i];
        far += d * d;
        size += change[0][i] * change[0][i];
    }
    ok(!failed && n == 59 && size > 0 && sqrt(far / size) < 2e-6,
       "Adasum of %d ranks: the combined steps of each, by hand; apart by %.2g", ranks, sqrt(far / size));
    t.steps = STEPS;
    failed = run(&t, ranks);
    int same = 1;
    for (int r = 1; r < ranks; r++)
        same &= !memcmp(results[r].param, results[0].param, sizeof start) &&
                !memcmp(results[r].running, results[0].running, sizeof results[r].running);
    ok(!failed && same && results[0].loss[STEPS - 1] != results[0].loss[0],
       "and after %d steps the same bits on all", STEPS);
}

/* ---- squares for the noise scale ---- */

static void test_squares(void)
{
    double parts = 0;
    task t = task_of(2, 1, KOLO_bn_ghost, false, 1);
    for (int r = 0; r < 4; r++) { /* each micro-batch by itself */
        t.alone = r + 1;
        run(&t, 1);
        double square = 0;
        for (int i = 0; i < PARAMS; i++)
            square += (double)results[0].gradient[i] * (double)results[0].gradient[i];
        parts += square;
    }
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int canonical = 0; canonical < 2; canonical++) {
            t = task_of(2, 4 / ranks, KOLO_bn_ghost, canonical, 1);
            t.c.noise = true;
            int failed = run(&t, ranks);
            /* gradients are divided by what the caller calls the global batch */
            double norm2 = 0, scale = (double)BATCH / 2;
            for (int i = 0; i < PARAMS; i++)
                norm2 += (double)results[0].gradient[i] * (double)results[0].gradient[i];
            ok(!failed && fabs(results[0].square * scale * scale / parts - 1) < 1e-5 &&
                   fabs(results[0].norm / sqrt(norm2) - 1) < 1e-6,
               "%d ranks, %d micro-batches each%s: squares of all of them, norm of their sum", ranks,
               4 / ranks, canonical ? ", canonical" : "");
        }
}

int main(void)
{
    results = mmap(NULL, RANKS * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED) skip_all("no shared memory");
    setenv("OMP_NUM_THREADS", "1", 1);
    test_canonical();
    compare(KOLO_bn_sync, "bn=sync");
    compare(KOLO_bn_local, "bn=local");
    test_different_plans();
    const int n = tensor_count();
    for (int ranks = 2; ranks <= 4; ranks++) test_adasum(ranks, n);
    test_squares();
    for (int slots = 1; slots <= 2; slots++) test_statistics(slots);
    return done_testing();
}
