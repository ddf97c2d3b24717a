/* Backup ranks: of a step's gradients the first count. Held against a plain program of all ranks in which the
 * rows of those that do not count have no weight, which takes other ways: nothing is dropped, copied or
 * scaled there. Ranks are forked processes. */
#include "base/thread.h"
#include "exec_rig.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec_forks.h"

enum { STEPS = 12, RANKS = 5, PARAMS = 269722 };

typedef struct result {
    _Atomic int done;
    double ended; /* when it was killed, or knew that it goes on no more */
    double loss[STEPS], rows[STEPS];
    int dropped[STEPS][RANKS], drops[STEPS];
    float param[PARAMS], gradient[PARAMS], running[64];
    char text[1024];
} result;
static result *results; /* [RANKS], shared */

typedef struct task {
    int lag, backup; /* lag 0: the plain program */
    bool clip;
    bool replays; /* counted[step] has a bit for each rank that does; else whoever is first */
    uint64_t counted[STEPS];
    int steps;  /* 0: all */
    int slow;   /* 1 + the rank that sleeps before each of its steps; 0: none */
    int dies;   /* likewise: that is killed before its step 5 */
    int meets;  /* every so many steps all meet */
    int short_; /* rows that the last rank lacks */
} task;

static int64_t rows_of(const task *t, int rank, int ranks, int64_t rows)
{
    return rank == ranks - 1 ? rows - t->short_ : rows;
}

static bool counts(const task *t, int step, int rank) { return t->counted[step] >> rank & 1; }

/* What this rank brings to the step: with the plain program of what counts alone. */
static kolo_batch batch_of(const rig *r, const task *t, int step, const kolo_launch *l)
{
    kolo_batch b = rig_batch(r);
    b.first = l->rank * r->rows;
    b.valid = rows_of(t, l->rank, l->size, r->rows);
    b.valid_global = l->size * r->rows - t->short_;
    if (t->lag) return b;
    if (!counts(t, step, l->rank)) b.valid = 0;
    b.valid_global = 0;
    for (int k = 0; k < l->size; k++)
        if (counts(t, step, k)) b.valid_global += rows_of(t, k, l->size, r->rows);
    return b;
}

static int train(result *to, const task *t, world *w)
{
    const rig_config c = {.model = "resnet20",
                          .rows = 4,
                          .side = 16,
                          .channels = 3,
                          .ranks = w->launch.size,
                          .clip = t->clip,
                          .lag = t->lag,
                          .backup = t->backup};
    const int steps = t->steps ? t->steps : STEPS;
    kolo_backend *backend = rig_backend(1, true);
    kolo_comm *comm = NULL;
    rig r;
    int64_t n;
    KOLO_TRY(rig_open(&r, &c, backend, NULL, NULL));
    const kolo_comm_config k = {.size = sizeof(kolo_comm_config),
                                .arena_bytes = kolo_plan_comm_bytes(r.plan),
                                .timeout = 30,
                                .spin = -1};
    KOLO_TRY(kolo_comm_create(&comm, &w->launch, &k));
    KOLO_TRY(kolo_exec_create(&r.exec, &r.plan, 1, backend, comm, &r.options, NULL));
    KOLO_TRY(kolo_exec_initialise(r.exec, 1));
    if (t->replays && t->lag) kolo_exec_replay(r.exec, w->launch.rank ? NULL : t->counted, STEPS);
    for (int s = 0; s < steps; s++) {
        kolo_metrics m;
        const kolo_step step = rig_step(s, .05);
        const int64_t meeting = s - s % t->meets + t->meets, end = meeting < steps ? meeting : steps;
        if (s % t->meets == 0) KOLO_TRY(kolo_comm_barrier(comm));
        KOLO_TRY(kolo_exec_reach(r.exec, s, s + t->lag < end ? s + t->lag : end));
        if (t->slow == w->launch.rank + 1) usleep(20000);
        if (t->dies == w->launch.rank + 1 && s == 4) {
            to->ended = kolo_time();
            raise(SIGKILL);
        }
        rig_fill(&r, (s * w->launch.size + w->launch.rank) * r.rows);
        const kolo_batch b = batch_of(&r, t, s, &w->launch);
        KOLO_TRY(kolo_exec_step(r.exec, &b, &step, &m));
        to->loss[s] = m.loss;
        to->rows[s] = m.rows;
        to->drops[s] = kolo_exec_dropped(r.exec, s, to->dropped[s]);
    }
    KOLO_TRY(kolo_exec_finish(r.exec));
    float *all = rig_all(&r, "param", &n);
    memcpy(to->param, all, sizeof to->param);
    free(all);
    all = rig_all(&r, "gradient", &n);
    memcpy(to->gradient, all, sizeof to->gradient);
    free(all);
    KOLO_TRY(
        kolo_exec_get(r.exec, "param", kolo_graph_find(r.graph, "layer3.2.bn2.running_var"), to->running));
    rig_close(&r);
    kolo_comm_destroy(&comm);
    kolo_backend_destroy(&backend);
    return 0;
}

/* 0, or how many ranks failed. */
static int run(const task *t, int ranks)
{
    pid_t child[RANKS] = {0};
    int failed = 0;
    world w;
    memset((void *)results, 0, (size_t)ranks * sizeof *results);
    const int me = exec_fork(child, ranks, "exec-backup", &w);
    if (me >= 0) {
        results[me].done = train(&results[me], t, &w) == 0;
        if (!results[me].done) results[me].ended = kolo_time();
        if (!results[me].done) snprintf(results[me].text, sizeof results[me].text, "%s", kolo_error_text());
        _exit(0);
    }
    for (int r = 0; r < ranks; r++) waitpid(child[r], NULL, 0);
    for (int r = 0; r < ranks; r++) {
        failed += !results[r].done;
        if (!results[r].done && !t->dies) diag("rank %d of %d: %s", r, ranks, results[r].text);
    }
    return failed;
}

static bool same_weights(const result *a, const result *b)
{
    return !memcmp(a->param, b->param, sizeof a->param) && !memcmp(a->running, b->running, sizeof a->running);
}

static bool all_alike(int ranks)
{
    for (int r = 1; r < ranks; r++)
        if (!same_weights(&results[r], &results[0])) return false;
    return true;
}

static bool same_run(const result *a, const result *b)
{
    return same_weights(a, b) && !memcmp(a->loss, b->loss, sizeof a->loss) &&
           !memcmp(a->rows, b->rows, sizeof a->rows);
}

/* Ranks that count, so many of them, another choice in every step. */
static void draw(task *t, int ranks, int count, uint64_t seed)
{
    t->replays = true;
    for (int s = 0; s < STEPS; s++) {
        t->counted[s] = 0;
        for (int n = 0, i = 0; n < count; i++) {
            const int r = (int)(kolo_philox(seed, (uint64_t)s, (uint64_t)i).v[0] % (uint32_t)ranks);
            n += !counts(t, s, r);
            t->counted[s] |= (uint64_t)1 << r;
        }
    }
}

static bool recorded(const task *t, const result *r, int ranks)
{
    for (int s = 0; s < (t->steps ? t->steps : STEPS); s++) {
        uint64_t set = ((uint64_t)1 << ranks) - 1;
        for (int i = 0; i < r->drops[s]; i++) set &= ~((uint64_t)1 << r->dropped[s][i]);
        if (set != t->counted[s] || r->drops[s] != t->backup) return false;
    }
    return true;
}

/* Where half of the ranks count the two ways to form the mean, before the sum and behind it, differ by a
 * power of two, which rounds nothing: equal bits. Elsewhere they round apart, which training amplifies: two
 * steps. */
static void test_recount(int ranks, int backup, bool clip, bool exact)
{
    static result plain;
    task t = {.meets = STEPS, .clip = clip, .steps = exact ? STEPS : 2};
    draw(&t, ranks, ranks - backup, (uint64_t)(ranks + backup));
    is_int(run(&t, ranks), 0, "%d ranks, the rows of %d without weight in each step%s", ranks, backup,
           clip ? ", clipped" : "");
    plain = results[0];
    t.lag = 3;
    t.backup = backup;
    is_int(run(&t, ranks), 0, "%d ranks of which %d are dropped in each step", ranks, backup);
    ok(all_alike(ranks), "all ranks end with the same weights");
    ok(recorded(&t, &results[0], ranks) && recorded(&t, &results[ranks - 1], ranks), "and say who counted");
    const double far = rig_apart(results[0].param, plain.param, PARAMS);
    if (exact)
        ok(same_run(&results[0], &plain), "byte for byte those of the plain program (%.1e apart)", far);
    else ok(far < 1e-5, "%.1e from those of the plain program", far);
    if (!exact) return;
    t.counted[3] ^= ((uint64_t)1 << ranks) - 1;
    run(&t, ranks);
    ok(!same_weights(&results[0], &plain), "the other half in one step: other weights");
}

static void test_none(int ranks, int slots_short)
{
    static result plain;
    task t = {.meets = 5, .short_ = slots_short};
    draw(&t, ranks, ranks, 1);
    run(&t, ranks);
    plain = results[0];
    t.lag = 2;
    t.replays = false;
    is_int(run(&t, ranks), 0, "%d ranks, none is dropped%s", ranks,
           slots_short ? ", the last with fewer rows" : "");
    ok(same_run(&results[0], &plain) && all_alike(ranks), "the bits of the plain program");
}

/* Whoever comes first: which depends on the machine; the record says it, and gives the same bits. */
static void test_first(int ranks, int backup, int slow, int lag, int meets)
{
    static result free_run;
    task t = {.lag = lag, .backup = backup, .slow = slow, .meets = meets};
    is_int(run(&t, ranks), 0, "%d ranks, the last %d of a step dropped%s, at most %d steps behind", ranks,
           backup, slow ? ", one sleeps" : "", lag);
    free_run = results[0];
    ok(all_alike(ranks), "all ranks end with the same weights");
    for (int s = 0; s < STEPS; s++) {
        t.counted[s] = ((uint64_t)1 << ranks) - 1;
        for (int i = 0; i < free_run.drops[s]; i++) t.counted[s] &= ~((uint64_t)1 << free_run.dropped[s][i]);
    }
    ok(recorded(&t, &free_run, ranks), "in each step %d of them were dropped", backup);
    t.replays = true;
    t.slow = slow ? 1 + slow % ranks : 0;
    t.meets = 4;
    is_int(run(&t, ranks), 0, "replayed%s", slow ? ", another rank sleeps" : "");
    ok(same_run(&results[0], &free_run) && all_alike(ranks), "the same bits");
}

/* A rank whose gradients nobody waits for is missed as any other. */
static void test_death(int ranks, int rank)
{
    const task t = {.lag = 4, .backup = 1, .meets = STEPS, .dies = 1 + rank, .slow = 1 + rank};
    char name[32];
    double longest = 0;
    snprintf(name, sizeof name, "rank %d on host", rank);
    is_int(run(&t, ranks), ranks, "rank %d of %d is killed: all fail", rank, ranks);
    for (int r = 0; r < ranks; r++)
        if (r != rank) ok(strstr(results[r].text, name) != NULL, "rank %d names it: %s", r, results[r].text);
    for (int r = 0; r < ranks; r++)
        if (results[r].ended - results[rank].ended > longest)
            longest = results[r].ended - results[rank].ended;
    ok(longest < 10, "within 10 s (%.1f)", longest);
}

int main(void)
{
    results = mmap(NULL, RANKS * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED) return 1;
    test_none(3, 0);
    test_none(2, 3);
    test_recount(2, 1, false, true);
    test_recount(4, 2, true, true);
    test_recount(5, 1, false, false);
    test_first(3, 1, 0, 1, 5);
    test_first(4, 2, 2, 4, STEPS);
    test_first(3, 1, 1, 2, STEPS); /* the rank that decides sleeps */
    test_death(3, 2);
    test_death(3, 0);
    return done_testing();
}
