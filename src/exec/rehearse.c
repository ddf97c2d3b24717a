#include "exec/rehearse.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "exec/exec.h"
#include "exec/parts.h"
#include "kolo/error.h"

/* Steps in front, and at least; seconds for as many steps as they take, and for those that are asked for. */
enum { WARM_UP = 2, FEWEST = 3, SECONDS = 2, PATIENCE = 6 };

/* One rank. */
typedef struct rank {
    const kolo_rehearsal *of;
    kolo_backend *backend;
    kolo_plan *plan;
    kolo_exec *exec;
    char *pixels;
    int32_t *labels;
    kolo_batch batch;
    int64_t step;
} rank;

/* Others at the same work: they go on until they are told to stop. */
typedef struct beside {
    rank rank;
    pthread_t thread;
    bool runs;
    atomic_bool *stop;
    atomic_int *ready;
    int rc;
} beside;

/* Any image of any class: black ones would be zero everywhere behind the first norm. */
static int make_batch(rank *r)
{
    const kolo_graph *g = r->plan->graph;
    const int64_t slots = r->plan->config.slots;
    const kolo_tensor *image = &g->tensor[g->input], *label = g->label >= 0 ? &g->tensor[g->label] : NULL;
    const int64_t *side = g->input_grid[0] ? g->image : &image->dim[1];
    size_t pixels = 0;
    for (int i = 0; i < kolo_graph_inputs(g); i++)
        pixels += (size_t)(kolo_tensor_count(&g->tensor[kolo_graph_input(g, i)]) * slots) * sizeof(float);
    r->pixels = kolo_alloc(pixels);
    r->labels = kolo_alloc((size_t)((label ? kolo_tensor_count(label) : 1) * slots) * sizeof(float));
    if (!r->pixels || !r->labels) return KOLO_ENOMEM;
    if (image->dtype == KOLO_U8)
        for (size_t i = 0; i < pixels / sizeof(float); i++) r->pixels[i] = (char)(i * 2654435761u >> 13);
    r->batch = (kolo_batch){.pixels = (const uint8_t *)r->pixels,
                            .height = (int)side[0],
                            .width = (int)side[1],
                            .labels = r->labels,
                            .rows = g->rows * slots,
                            .valid = g->rows * slots,
                            .valid_global = g->rows * slots};
    return 0;
}

static int open_rank(rank *r, const kolo_rehearsal *of, kolo_backend *backend)
{
    kolo_plan *plans[1];
    *r = (rank){.of = of, .backend = backend};
    KOLO_TRY(kolo_plan_create(&r->plan, of->graph, backend, &of->config, NULL));
    plans[0] = r->plan;
    KOLO_TRY(make_batch(r));
    KOLO_TRY(kolo_exec_create(&r->exec, plans, 1, backend, NULL, of->options, NULL));
    return kolo_exec_initialise(r->exec, 0);
}

static void close_rank(rank *r)
{
    kolo_exec_destroy(&r->exec);
    free(r->pixels);
    free(r->labels);
}

/* The rate is 0: whatever the batch, the weights stay what they are. Momentum is what a training has: without
 * it an update reads and writes less. */
static int do_step(rank *r)
{
    kolo_metrics metrics;
    const kolo_step step = {.step = r->step++, .momentum = (float)r->of->options->momentum};
    return kolo_exec_step(r->exec, &r->batch, &step, &metrics);
}

static void *beside_main(void *argument)
{
    beside *b = argument;
    const kolo_rehearsal *of = b->rank.of;
    kolo_backend *backend = NULL;
    b->rc = kolo_backend_create(&backend, "cpu", &of->how);
    if (b->rc == 0) b->rc = open_rank(&b->rank, of, backend);
    for (int i = 0; b->rc == 0 && i < WARM_UP; i++) b->rc = do_step(&b->rank);
    atomic_fetch_add(b->ready, 1);
    while (b->rc == 0 && !atomic_load(b->stop)) b->rc = do_step(&b->rank);
    close_rank(&b->rank);
    kolo_plan_destroy(&b->rank.plan);
    kolo_backend_destroy(&backend);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quartile(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 4];
}

/* Others at work on the machine make actions longer, and none shorter (of ranks of one thread what it
 * computes is counted, which they hardly change), and of a busy machine hardly a step is spared: of each
 * action the lower quartile counts. Steps that take hardly more than all of these together were spared. What
 * they take more is in every action by the same share, and by how much they differ is how much steps do;
 * where there are too few of them neither is known. each: [steps][actions] */
static int summarise(const double *each, int steps, int64_t n, double *seconds, double *varies)
{
    enum { FEW = 4 };
    const double most = 1.15;
    double *column = kolo_alloc((size_t)steps * sizeof *column), sum = 0, mean = 0, differ = 0;
    int spared = 0;
    if (!column) return KOLO_ENOMEM;
    for (int64_t i = 0; i < n; i++) {
        for (int s = 0; s < steps; s++) column[s] = each[s * n + i];
        sum += seconds[i] = quartile(column, steps);
    }
    for (int s = 0; s < steps; s++) {
        double whole = 0;
        for (int64_t i = 0; i < n; i++) whole += each[s * n + i];
        if (whole <= most * sum) column[spared++] = whole;
    }
    for (int s = 0; s < spared; s++) mean += column[s] / spared;
    for (int s = 0; s < spared; s++) differ += fabs(column[s] - mean) / spared;
    for (int64_t i = 0; spared >= FEW && i < n; i++) seconds[i] *= mean / sum;
    *varies = spared >= FEW ? differ / mean : 0;
    free(column);
    return 0;
}

static int measure(rank *r, int least, double *seconds, double *varies)
{
    const int64_t n = r->plan->actions;
    const int most = 4 * least;
    kolo_exec_profile *profile = kolo_alloc((size_t)n * sizeof *profile);
    double *each = kolo_alloc((size_t)(most * n) * sizeof *each);
    const double until = kolo_time() + SECONDS, late = until + PATIENCE;
    int rc = profile && each ? kolo_exec_set_profile(r->exec, profile) : KOLO_ENOMEM, steps = 0;
    if (rc == 0 && r->of->how.threads == 1) rc = exec_profile_used(r->exec);
    while (rc == 0 && steps < most &&
           (steps < FEWEST || kolo_time() < until || (steps < least && kolo_time() < late))) {
        for (int64_t i = 0; i < n; i++) each[steps * n + i] = -profile[i].seconds;
        rc = do_step(r);
        for (int64_t i = 0; i < n; i++) each[steps * n + i] += profile[i].seconds;
        steps++;
    }
    if (rc == 0) rc = summarise(each, steps, n, seconds, varies);
    if (rc == 0) rc = kolo_exec_set_profile(r->exec, NULL);
    free(profile);
    free(each);
    return rc;
}

static int rehearse(const kolo_rehearsal *of, rank *r, double **seconds, double *varies, atomic_int *ready)
{
    KOLO_TRY(open_rank(r, of, of->backend));
    for (int i = 0; i < WARM_UP; i++) KOLO_TRY(do_step(r));
    while (atomic_load(ready) < of->beside) KOLO_TRY(do_step(r));
    *seconds = kolo_alloc((size_t)r->plan->actions * sizeof **seconds);
    return *seconds ? measure(r, of->steps, *seconds, varies) : KOLO_ENOMEM;
}

int kolo_exec_rehearse(const kolo_rehearsal *of, kolo_plan **plan, double **seconds, double *varies)
{
    atomic_bool stop = false;
    atomic_int ready = 0;
    rank own = {0};
    beside *others = kolo_alloc((size_t)(of->beside + 1) * sizeof *others);
    *plan = NULL;
    *seconds = NULL;
    *varies = 0;
    int rc = others ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < of->beside; i++) {
        others[i] = (beside){.rank.of = of, .stop = &stop, .ready = &ready};
        rc = kolo_thread_start(&others[i].thread, beside_main, &others[i], "a rehearsal");
        others[i].runs = rc == 0;
    }
    if (rc == 0) rc = rehearse(of, &own, seconds, varies, &ready);
    atomic_store(&stop, true);
    for (int i = 0; others && i < of->beside; i++) {
        if (!others[i].runs) continue;
        pthread_join(others[i].thread, NULL);
        if (rc == 0 && others[i].rc < 0)
            rc = kolo_fail(others[i].rc, "a rank beside the one that was measured failed");
    }
    free(others);
    close_rank(&own);
    *plan = own.plan;
    if (rc < 0) {
        kolo_plan_destroy(plan);
        free(*seconds);
        *seconds = NULL;
    }
    return rc;
}
