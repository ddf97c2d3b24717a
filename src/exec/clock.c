#include "exec/clock.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "exec/parts.h"
#include "kolo/error.h"
#include "plan/price.h"

/* Of GPUs of these years: bytes and arithmetic a second that operations reach. Good for shares of stages; a
 * step that is simulated by them is a rough guess. */
static const double DEVICE_BYTES = 2e12, DEVICE_FLOPS = 3e14;
/* Of a core: only their ratio counts, in which of two estimates is the longer. */
static const double CORE_BYTES = 1e10, CORE_FLOPS = 5e10;
/* Seconds after which nothing more is timed; of one kernel no third time, no second one. */
static const double BUDGET = 2, LONG_ENOUGH = .05, MOST_TWICE = .5;

static size_t bytes_of(const kolo_plan *p, int tensor)
{
    return tensor < 0 ? 0 : kolo_round_up(p->layout[tensor].bytes, KOLO_ALIGN);
}

/* Operands of an operation, one behind the other. args: NULL for those that are not there. */
static size_t lay_operands(const kolo_plan *p, int64_t node, char *memory, void **args)
{
    const kolo_node *n = &p->graph->node[node];
    size_t at = 0;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const int t = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        if (args) args[k] = t < 0 ? NULL : memory + at;
        at += bytes_of(p, t);
    }
    return at;
}

/* The place in a window that lies within the map wherever the window stands; -1: none does, or there is no
 * window. */
static int centre_of(const kolo_node *n)
{
    const kolo_attributes *a = &n->a;
    if (!a->kernel[0] || a->pad[0] > (a->kernel[0] - 1) / 2 || a->pad[1] > (a->kernel[1] - 1) / 2) return -1;
    return a->kernel[0] / 2 * a->kernel[1] + a->kernel[1] / 2;
}

/* Bytes are signs, or the places of maxima in their windows: one that is not there would be written to. */
static bool is_place(const kolo_tensor *t) { return t->dtype == KOLO_U8 && t->role == KOLO_ROLE_ACTIVATION; }

/* Numbers that are no special case of the arithmetic, places that are there; whatever else is not f32 is
 * zero. */
static void fill_operands(const kolo_plan *p, int64_t node, void *const *args)
{
    const kolo_node *n = &p->graph->node[node];
    for (int k = 0; k < n->n_in; k++) {
        const int t = n->in[k];
        if (t < 0) continue;
        memset(args[k], is_place(&p->graph->tensor[t]) ? centre_of(n) : 0, bytes_of(p, t));
        if (p->graph->tensor[t].dtype != KOLO_F32 || p->graph->tensor[t].role == KOLO_ROLE_LABEL) continue;
        float *x = args[k];
        for (size_t i = 0; i < p->layout[t].bytes / sizeof(float); i++) x[i] = 0.125f * (float)(1 + i % 7);
    }
}

/* Weights and their gradients come from memory at every micro-batch, unless all of them fit a cache. */
static bool weights_are_cold(const kolo_plan *p)
{
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return cache > 0 && p->arena_bytes[KOLO_ARENA_PARAM] > (size_t)cache;
}

static void evict_weights(const kolo_plan *p, int64_t node, void *const *args)
{
#if defined(__x86_64__)
    const kolo_node *n = &p->graph->node[node];
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const int t = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        const kolo_tensor *x = t < 0 ? NULL : &p->graph->tensor[t];
        if (!x || (x->role != KOLO_ROLE_PARAM && !kolo_tensor_is_gradient(x))) continue;
        for (size_t at = 0; at < p->layout[t].bytes; at += 64) __builtin_ia32_clflush((char *)args[k] + at);
    }
    __builtin_ia32_mfence();
#else
    (void)p, (void)node, (void)args;
#endif
}

/* Of one thread what it computes, whatever else the machine does meanwhile. */
static double seconds_now(void) { return omp_get_max_threads() > 1 ? kolo_time() : exec_used_seconds(); }

static int clock_node(const kolo_plan *p, int64_t node, int times, char *memory, char *workspace,
                      double *seconds)
{
    void *args[2 * KOLO_MAX_ARGS];
    kolo_step step = {.clip = 1, .scaler = {.scale = 1}};
    step.valid[0] = (int32_t)p->graph->rows;
    step.valid_global = p->graph->rows;
    lay_operands(p, node, memory, args);
    fill_operands(p, node, args);
    const bool cold = weights_are_cold(p);
    const double asking = omp_get_max_threads() > 1 ? 0 : exec_used_cost();
    for (int i = 0; i < times && (i == 0 || *seconds < (i == 1 ? MOST_TWICE : LONG_ENOUGH)); i++) {
        if (cold) evict_weights(p, node, args);
        const double begin = seconds_now();
        KOLO_TRY(kolo_kernel_run(p->kernel[node], args, workspace, &step, 0));
        const double took = fmax(seconds_now() - begin - asking, 1e-9);
        if (i == 0 || took < *seconds) *seconds = took;
    }
    return 0;
}

/* ---- what was not timed ---- */

/* At rates, each node's. */
static int estimate(const kolo_plan *p, double bytes, double flops, double *guess)
{
    kolo_cost *cost = kolo_alloc((size_t)(p->actions + 1) * sizeof *cost);
    const int rc = cost ? kolo_plan_costs(p, cost) : KOLO_ENOMEM;
    for (int64_t i = 0; i < p->graph->nodes; i++) guess[i] = 0;
    for (int64_t i = 0; rc == 0 && i < p->actions; i++) {
        if (p->action[i].kind != KOLO_ACTION_RUN) continue;
        const double memory = (cost[i].read + cost[i].written) / bytes, work = cost[i].flops / flops;
        guess[p->action[i].node] = memory > work ? memory : work;
    }
    free(cost);
    return rc;
}

/* Seconds of the longest that was timed of a class, or of all, and what had been guessed of it. What is
 * shorter tells of beginning rather than of work: of an operation of few bytes a million times its guess. */
typedef struct known {
    double took[KOLO_CLASSES + 1], guessed[KOLO_CLASSES + 1];
} known;

static void learn(known *k, enum kolo_class class, double took, double guessed)
{
    const int of[] = {(int)class, KOLO_CLASSES};
    for (int i = 0; i < 2; i++)
        if (guessed >= k->guessed[of[i]]) k->took[of[i]] = took, k->guessed[of[i]] = guessed;
}

static double expect(const known *k, enum kolo_class class, double guess)
{
    const int of = k->guessed[class] > 0 ? (int)class : KOLO_CLASSES;
    return k->guessed[of] > 0 ? guess * k->took[of] / k->guessed[of] : guess;
}

/* ---- the clock ---- */

typedef struct timing {
    const kolo_plan *plan;
    kolo_backend *backend;
    int times;
    double *seconds, *guess; /* [nodes] */
    bool *timed;             /* [nodes] */
    int64_t *order;          /* [nodes] the shortest first: most of them tell of the others of their class */
    known known;
    double until;
} timing;

static enum kolo_class class_of(const timing *t, int64_t node)
{
    return kolo_node_class(t->plan->graph, &t->plan->graph->node[node]);
}

static int sort_nodes(timing *t)
{
    const int64_t n = t->plan->graph->nodes;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;
        for (; at > 0 && t->guess[t->order[at - 1]] > t->guess[i]; at--) t->order[at] = t->order[at - 1];
        t->order[at] = i;
    }
    return 0;
}

/* A window of which no place is always there has none that could be made up. */
static bool can_be_timed(const kolo_plan *p, int64_t node)
{
    const kolo_node *n = &p->graph->node[node];
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0 && is_place(&p->graph->tensor[n->in[k]]) && n->a.kernel[0] && centre_of(n) < 0)
            return false;
    return true;
}

/* The node, if there is time for it, and all whose kernel is the same. */
static int clock_kernel(timing *t, int64_t node)
{
    const kolo_plan *p = t->plan;
    if (!can_be_timed(p, node)) return 0;
    const enum kolo_class class = class_of(t, node);
    double took = 0;
    if (kolo_time() + expect(&t->known, class, t->guess[node]) > t->until && t->known.took[KOLO_CLASSES] > 0)
        return 0;
    const size_t bytes = lay_operands(p, node, NULL, NULL) + KOLO_ALIGN,
                 scratch = p->scratch[node] + KOLO_ALIGN;
    char *memory = kolo_backend_alloc(t->backend, bytes),
         *workspace = kolo_backend_alloc(t->backend, scratch);
    int rc =
        memory && workspace ? clock_node(p, node, t->times, memory, workspace, &took) : kolo_error_status();
    kolo_backend_free(t->backend, (void **)&memory, bytes);
    kolo_backend_free(t->backend, (void **)&workspace, scratch);
    for (int64_t i = 0; rc == 0 && i < p->graph->nodes; i++) {
        if (t->seconds[i] > 0 || p->kernel[i] != p->kernel[node]) continue;
        t->seconds[i] = took;
        t->timed[i] = true;
        learn(&t->known, class, took, t->guess[i]);
    }
    return rc;
}

static int clock_host(timing *t)
{
    const int64_t n = t->plan->graph->nodes;
    KOLO_TRY(estimate(t->plan, CORE_BYTES, CORE_FLOPS, t->guess));
    KOLO_TRY(sort_nodes(t));
    for (int64_t i = 0; i < n; i++)
        if (t->seconds[i] > 0) learn(&t->known, class_of(t, i), t->seconds[i], t->guess[i]);
    t->until = kolo_time() + BUDGET;
    for (int64_t i = 0; i < n; i++)
        if (t->seconds[t->order[i]] <= 0) KOLO_TRY(clock_kernel(t, t->order[i]));
    for (int64_t i = 0; i < n; i++)
        if (t->seconds[i] <= 0) t->seconds[i] = expect(&t->known, class_of(t, i), t->guess[i]);
    return 0;
}

int kolo_exec_clock(const kolo_plan *plan, kolo_backend *backend, int times, double *seconds, bool *timed)
{
    const size_t n = (size_t)plan->graph->nodes + 1;
    timing t = {.plan = plan,
                .backend = backend,
                .times = times,
                .seconds = seconds,
                .guess = kolo_alloc(n * sizeof *t.guess),
                .timed = kolo_alloc(n * sizeof *t.timed),
                .order = kolo_alloc(n * sizeof *t.order)};
    int rc = t.guess && t.timed && t.order ? 0 : KOLO_ENOMEM;
    if (rc == 0 && times > 0 && kolo_backend_is_host(backend)) rc = clock_host(&t);
    else if (rc == 0) {
        rc = estimate(plan, DEVICE_BYTES, DEVICE_FLOPS, t.guess);
        for (int64_t i = 0; i < plan->graph->nodes; i++)
            if (seconds[i] <= 0) seconds[i] = t.guess[i];
    }
    if (rc == 0 && timed) memcpy(timed, t.timed, (size_t)plan->graph->nodes * sizeof *timed);
    free(t.guess);
    free(t.timed);
    free(t.order);
    return rc;
}
