/* sync=async: parts of the weights are served by ranks, gradients are applied in one order, of weights
 * that lack as many updates as is told. Where one rank computes everything: the bytes of a plain program,
 * for every optimizer. Where all do, as they come: what plain arithmetic makes of the gradients at the
 * weights that each had, found by a program of one rank. Ranks are forked processes. */
#include "base/thread.h"
#include "exec_rig.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec_forks.h"

#ifdef __SANITIZE_THREAD__
enum { SLEEP = 400000 }; /* microseconds, many times what a block takes */
#else
enum { SLEEP = 20000 };
#endif
enum { STEPS = 6, RANKS = 4, BLOCKS = STEPS * RANKS, PARAMS = 269722, FIRST = 650, ROWS = 4, FEW = 400 };

typedef struct result {
    _Atomic int done;
    double ended; /* when it was killed, or knew that it goes on no more */
    int pushes;
    int64_t block[BLOCKS], update[BLOCKS], staleness[BLOCKS];
    float param[PARAMS], ema[FIRST], running[64], state[PARAMS];
    int64_t known; /* steps that rank 0 has been told of */
    double rows, loss;
    int64_t stale[BLOCKS];
    char text[1024];
} result;
static result *results; /* [RANKS], shared */

typedef struct task {
    const char *model, *optimizer;
    int64_t bound;
    bool clip, lookahead;
    bool alone;     /* rank 0 computes all, the others only serve */
    int apart;      /* so many ranks, the last, are servers and do not compute */
    int slow, dies; /* 1 + the rank that sleeps before each block, and that is killed; 0: none */
    int meets;      /* every so many steps all meet */
} task;

static const char *const first_tensor[] = {"fc.weight", "fc3.weight"};

static int keep(result *to, rig *r, bool state)
{
    const bool residual = r->graph->rows && kolo_graph_find(r->graph, "layer1.0.bn1.running_var") >= 0;
    const int first = kolo_graph_find(r->graph, first_tensor[!residual]);
    int64_t n;
    float *all = rig_all(r, "param", &n);
    memcpy(to->param, all, (size_t)n * sizeof *all);
    free(all);
    if (first >= 0 && kolo_tensor_count(&r->graph->tensor[first]) <= FIRST)
        KOLO_TRY(kolo_exec_get(r->exec, "ema", first, to->ema));
    if (residual)
        KOLO_TRY(kolo_exec_get(r->exec, "param", kolo_graph_find(r->graph, "layer3.2.bn2.running_var"),
                               to->running));
    if (!state || kolo_exec_state_count(r->exec) > PARAMS) return 0;
    return kolo_exec_state_read(r->exec, 0, to->state);
}

static rig_config config_of(const task *t, int ranks)
{
    return (rig_config){.model = t->model,
                        .rows = ROWS,
                        .side = strcmp(t->model, "lenet5") ? 16 : 28,
                        .channels = strcmp(t->model, "lenet5") ? 3 : 1,
                        .servers = ranks && t->apart ? t->apart : ranks,
                        .first_server = ranks && t->apart ? ranks - t->apart : 0,
                        .bound = ranks ? t->bound : 0,
                        .optimizer = t->optimizer,
                        .lookahead = t->lookahead,
                        .clip = t->clip,
                        .ema = true};
}

static int workers_of(const task *t, int ranks) { return ranks - t->apart; }

static void die(result *to)
{
    to->ended = kolo_time();
    raise(SIGKILL);
}

static int one_block(result *to, const task *t, rig *r, const world *w, int64_t block, kolo_blocks *blocks)
{
    kolo_metrics m;
    const int workers = workers_of(t, w->launch.size);
    const kolo_step step = rig_step(block / workers, .05);
    /* who is to be killed is the fastest, so that blocks are given to it */
    const bool slow = t->dies ? t->dies != w->launch.rank + 1 : t->slow == w->launch.rank + 1;
    if (slow) usleep(SLEEP);
    if (t->dies == w->launch.rank + 1 && to->pushes == 2) die(to);
    rig_fill(r, block * r->rows);
    kolo_batch b = rig_batch(r);
    b.valid_global = r->rows * workers; /* a block's mean is its own all the same */
    KOLO_TRY(kolo_exec_step(r->exec, &b, &step, &m));
    KOLO_TRY(kolo_exec_push(r->exec, block, &m, blocks));
    to->block[to->pushes] = block;
    to->update[to->pushes] = blocks->update;
    to->staleness[to->pushes++] = blocks->staleness;
    return 0;
}

static int do_blocks(result *to, const task *t, rig *r, const world *w, int64_t first, int64_t end)
{
    kolo_blocks blocks = {0};
    kolo_metrics m;
    const int64_t *stale;
    const int workers = workers_of(t, w->launch.size);
    int64_t queue[BLOCKS], at = 0, n = 0;
    /* blocks behind the end are never given: until then a rank waits, and serves */
    const bool serves = t->alone && w->launch.rank;
    KOLO_TRY(kolo_exec_open_blocks(r->exec, first, serves ? end + w->launch.size : end, &blocks));
    if (t->dies == w->launch.rank + 1 && w->launch.rank >= workers) { /* while it serves */
        usleep(5000);
        die(to);
    }
    for (int i = 0; i < blocks.given; i++) queue[n++] = blocks.block[i];
    while (blocks.held > 0) {
        KOLO_TRY(one_block(to, t, r, w, queue[at++], &blocks));
        for (int i = 0; i < blocks.given; i++) queue[n++] = blocks.block[i];
    }
    if (t->alone) return 0;
    KOLO_TRY(kolo_exec_close_blocks(r->exec));
    while (kolo_exec_pushed(r->exec, &m, &stale)) {
        if (m.step != to->known++) return kolo_fail(KOLO_EINTERNAL, "step %d is told", (int)m.step);
        to->rows += m.rows;
        to->loss += m.loss;
        memcpy(to->stale + m.step * workers, stale, (size_t)workers * sizeof *stale);
    }
    return 0;
}

static int train(result *to, const task *t, world *w)
{
    const rig_config c = config_of(t, w->launch.size);
    const int workers = workers_of(t, w->launch.size);
    kolo_backend *backend = rig_backend(1, true);
    kolo_comm *comm = NULL;
    rig r;
    KOLO_TRY(rig_open(&r, &c, backend, NULL, NULL));
    const kolo_comm_config k = {.size = sizeof(kolo_comm_config),
                                .arena_bytes = kolo_plan_comm_bytes(r.plan),
                                .timeout = 30,
                                .spin = -1};
    KOLO_TRY(kolo_comm_create(&comm, &w->launch, &k));
    KOLO_TRY(kolo_exec_create(&r.exec, &r.plan, 1, backend, comm, &r.options, NULL));
    KOLO_TRY(kolo_exec_initialise(r.exec, 1));
    for (int s = 0; s < STEPS; s += t->meets) {
        const int end = s + t->meets < STEPS ? s + t->meets : STEPS;
        KOLO_TRY(do_blocks(to, t, &r, w, s * workers, end * workers));
    }
    KOLO_TRY(keep(to, &r, !t->alone));
    if (t->alone) return 0;
    KOLO_TRY(kolo_exec_finish(r.exec));
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
    const int me = exec_fork(child, ranks, "exec-async", &w);
    if (me >= 0) {
        results[me].done = train(&results[me], t, &w) == 0;
        if (!results[me].done) results[me].ended = kolo_time();
        if (!results[me].done) snprintf(results[me].text, sizeof results[me].text, "%s", kolo_error_text());
        _exit(0);
    }
    waitpid(child[0], NULL, 0);
    for (int r = 1; r < ranks; r++) {
        if (t->alone) kill(child[r], SIGKILL); /* it serves to the end */
        waitpid(child[r], NULL, 0);
    }
    for (int r = 0; r < (t->alone ? 1 : ranks); r++) {
        failed += !results[r].done;
        if (!results[r].done && !t->dies) diag("rank %d of %d: %s", r, ranks, results[r].text);
    }
    return failed;
}

/* The same blocks by a program of one rank, one after the other. */
static int plain(result *to, const task *t, int ranks)
{
    const rig_config c = config_of(t, 0);
    kolo_backend *backend = rig_backend(1, true);
    rig r;
    memset((void *)to, 0, sizeof *to);
    KOLO_TRY(rig_open(&r, &c, backend, NULL, NULL));
    for (int64_t b = 0; b < STEPS * ranks; b++) {
        kolo_metrics m;
        kolo_step step = rig_step(b / ranks, .05);
        const kolo_batch batch = rig_batch(&r);
        step.step = b; /* as many updates */
        rig_fill(&r, b * r.rows);
        KOLO_TRY(kolo_exec_step(r.exec, &batch, &step, &m));
    }
    KOLO_TRY(keep(to, &r, false));
    rig_close(&r);
    kolo_backend_destroy(&backend);
    return 0;
}

static void test_apart(const char *optimizer, int servers)
{
    static result want;
    const task t = {.model = "resnet20", .optimizer = optimizer, .apart = servers, .meets = 4, .clip = true};
    is_int(plain(&want, &t, 1), 0, "resnet20 by %s on one rank", optimizer);
    is_int(run(&t, 1 + servers), 0, "a rank computes, %d others serve", servers);
    const result *r = &results[0];
    bool same = true;
    for (int i = 0; i <= servers; i++)
        same = same && !memcmp(results[i].param, want.param, sizeof want.param) &&
               !memcmp(results[i].running, want.running, sizeof want.running) &&
               !memcmp(results[i].ema, want.ema, sizeof want.ema);
    ok(same && r->pushes == STEPS && r->known == STEPS, "the same bytes on all (%.1e apart)",
       rig_apart(r->param, want.param, PARAMS));
    for (int i = 1; i <= servers; i++) is_int(results[i].pushes, 0, "rank %d computes nothing", i);
}

static void test_alone(const char *model, const char *optimizer, int ranks, bool clip, bool lookahead)
{
    static result want;
    const task t = {.model = model,
                    .optimizer = optimizer,
                    .alone = true,
                    .meets = STEPS,
                    .clip = clip,
                    .lookahead = lookahead};
    is_int(plain(&want, &t, ranks), 0, "%s by %s on one rank%s%s", model, optimizer, clip ? ", clipped" : "",
           lookahead ? ", lookahead" : "");
    is_int(run(&t, ranks), 0, "one of %d ranks computes, all serve", ranks);
    const result *r = &results[0];
    ok(r->pushes == STEPS * ranks && !memcmp(r->param, want.param, sizeof r->param) &&
           !memcmp(r->running, want.running, sizeof r->running) && !memcmp(r->ema, want.ema, sizeof r->ema),
       "the same bytes (%.1e apart)", rig_apart(r->param, want.param, PARAMS));
}

/* ---- all ranks compute ---- */

/* Which block update number u was, and how stale; false: not every block and update is there once. */
static bool collect(int ranks, int64_t *block, int64_t *staleness, int64_t *most)
{
    bool seen[BLOCKS] = {0};
    int n = 0;
    for (int64_t u = 0; u < STEPS * ranks; u++) block[u] = -1;
    *most = 0;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < results[r].pushes; i++, n++) {
            const int64_t u = results[r].update[i], b = results[r].block[i];
            if (u < 0 || u >= STEPS * ranks || b < 0 || b >= STEPS * ranks || block[u] >= 0 || seen[b])
                return false;
            seen[b] = true;
            block[u] = b;
            staleness[u] = results[r].staleness[i];
            if (staleness[u] > *most) *most = staleness[u];
            if (results[0].stale[b] != staleness[u]) return false;
        }
    return n == STEPS * ranks;
}

static int set_all(rig *r, const float *param)
{
    for (int t = 0; t < r->graph->tensors; t++) {
        if (r->graph->tensor[t].role != KOLO_ROLE_PARAM) continue;
        KOLO_TRY(kolo_exec_set(r->exec, "param", t, param));
        param += kolo_tensor_count(&r->graph->tensor[t]);
    }
    return 0;
}

/* SGD with momentum in plain arithmetic, each gradient at the weights before so many updates. Weight decay
 * goes for all tensors alike but norms and biases, as the graph says. */
static int replay(const task *t, int ranks, const int64_t *block, const int64_t *staleness, float *param)
{
    const rig_config c = config_of(t, 0);
    kolo_backend *backend = rig_backend(1, true);
    rig r;
    int64_t n;
    KOLO_TRY(rig_open(&r, &c, backend, NULL, NULL));
    float *first = rig_all(&r, "param", &n);
    float *at = malloc((size_t)(n * (STEPS * ranks + 1)) * sizeof *at);
    double *momentum = calloc((size_t)n, sizeof *momentum);
    memcpy(at, first, (size_t)n * sizeof *at);
    for (int64_t u = 0; u < STEPS * ranks; u++) {
        kolo_metrics m;
        kolo_step step = rig_step(block[u] / ranks, 0);
        const kolo_batch batch = rig_batch(&r);
        rig_fill(&r, block[u] * r.rows);
        KOLO_TRY(set_all(&r, at + n * (u - staleness[u])));
        KOLO_TRY(kolo_exec_step(r.exec, &batch, &step, &m));
        float *gradient = rig_all(&r, "gradient", &n), *new = at + n *(u + 1), *old = new - n;
        int64_t i = 0;
        for (int k = 0; k < r.graph->tensors; k++) {
            const kolo_tensor *x = &r.graph->tensor[k];
            if (x->role != KOLO_ROLE_PARAM) continue;
            for (const int64_t end = i + kolo_tensor_count(x); i < end; i++) {
                momentum[i] = .9 * momentum[i] + (double)gradient[i] + (x->decay ? 1e-4 * (double)old[i] : 0);
                new[i] = (float)((double)old[i] - .05 * momentum[i]);
            }
        }
        free(gradient);
    }
    memcpy(param, at + n * STEPS * ranks, (size_t)n * sizeof *param);
    free(first);
    free(at);
    free(momentum);
    rig_close(&r);
    kolo_backend_destroy(&backend);
    return 0;
}

static bool all_alike(int ranks)
{
    const result *a = &results[0];
    for (int r = 1; r < ranks; r++) {
        const result *b = &results[r];
        if (memcmp(a->param, b->param, sizeof a->param) || memcmp(a->ema, b->ema, sizeof a->ema) ||
            memcmp(a->running, b->running, sizeof a->running) || memcmp(a->state, b->state, sizeof a->state))
            return false;
    }
    return true;
}

static int64_t count_far(const float *a, const float *b)
{
    int64_t n = 0;
    for (int64_t i = 0; i < PARAMS; i++) n += fabsf(a[i] - b[i]) > 1e-5f;
    return n;
}

static void test_all(const char *model, int ranks, int apart, int64_t bound, int slow, int meets)
{
    static float want[PARAMS];
    int64_t block[BLOCKS], staleness[BLOCKS], most;
    const task t = {
        .model = model, .optimizer = "sgd", .apart = apart, .bound = bound, .slow = slow, .meets = meets};
    const int workers = workers_of(&t, ranks);
    is_int(run(&t, ranks), 0, "%s on %d ranks, %d only serve, bound %ld%s, all meet every %d steps", model,
           ranks, apart, (long)bound, slow ? ", one sleeps" : "", meets);
    const bool whole = collect(workers, block, staleness, &most);
    ok(whole, "every block is pushed once, updates are in a row, and rank 0 knows their staleness");
    ok(!bound || most <= bound, "none is staler than it may be: %ld", (long)most);
    ok(results[0].known == STEPS && results[0].rows == STEPS * workers * ROWS, "rank 0 is told of all steps");
    ok(all_alike(ranks), "all ranks have the same weights, averages, statistics and state");
    if (slow && !bound)
        ok(results[slow - 1].pushes < STEPS, "the slow one did %d of %d blocks", results[slow - 1].pushes,
           STEPS * workers);
    if (!whole) return;
    is_int(replay(&t, workers, block, staleness, want), 0, "the same gradients by plain arithmetic");
    /* of two values of a max pool that are alike but for rounding replay may take the other: the gradients of
     * one channel differ then, and what is in front of it, but no other weight */
    const double apart_by = rig_apart(results[0].param, want, PARAMS);
    const int64_t far = count_far(results[0].param, want);
    ok(apart_by < 1e-5 || far < FEW, "%.1e apart, %ld weights by more than 1e-5", apart_by, (long)far);
}

static void test_death(int ranks, int apart, int rank)
{
    const task t = {.model = "lenet5", .optimizer = "sgd", .apart = apart, .meets = STEPS, .dies = 1 + rank};
    char name[32];
    double longest = 0;
    snprintf(name, sizeof name, "rank %d on host", rank);
    is_int(run(&t, ranks), ranks, "rank %d of %d, %d only serve, is killed: all fail", rank, ranks, apart);
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
    test_alone("resnet20", "sgd", 3, true, true);
    for (int i = 0; i < kolo_optimizer_count; i++)
        test_alone("lenet5", kolo_optimizer_table[i].name, i % 2 ? 2 : 4, false, false);
    test_apart("sgd", 2);
    test_apart("lamb", 3);
    test_all("lenet5", 2, 0, 0, 0, STEPS);
    test_all("lenet5", 4, 0, 0, 2, 4);
    test_all("lenet5", 3, 0, 1, 0, 2);
    test_all("lenet5", 3, 0, 2, 1, STEPS);
    test_all("lenet5", 2, 0, 1, 0, STEPS);
    test_all("lenet5", 4, 1, 0, 1, 4);
    test_all("lenet5", 4, 2, 1, 0, 2);
    test_death(3, 0, 0);
    test_death(3, 0, 2);
    test_death(3, 1, 2);
    test_death(3, 2, 0);
    return done_testing();
}
