#include "exec/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "plan/price.h"

/* Of GPUs of these years: bytes and arithmetic a second that operations reach. Good for shares of stages; a
 * step that is simulated by them is a rough guess. */
static const double DEVICE_BYTES = 2e12, DEVICE_FLOPS = 3e14;

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

/* Numbers that are no special case of the arithmetic; whatever is not f32 stays zero. */
static void fill_operands(const kolo_plan *p, int64_t node, void *const *args)
{
    const kolo_node *n = &p->graph->node[node];
    for (int k = 0; k < n->n_in; k++) {
        const int t = n->in[k];
        if (t < 0) continue;
        memset(args[k], 0, bytes_of(p, t));
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
    for (int i = 0; i < times; i++) {
        if (cold) evict_weights(p, node, args);
        const double begin = kolo_time();
        KOLO_TRY(kolo_kernel_run(p->kernel[node], args, workspace, &step, 0));
        const double took = kolo_time() - begin;
        if (i == 0 || took < *seconds) *seconds = took;
    }
    return 0;
}

static int clock_host(const kolo_plan *p, kolo_backend *backend, int times, double *seconds)
{
    size_t most = 0, scratch = 0;
    for (int64_t i = 0; i < p->graph->nodes; i++) {
        const size_t bytes = lay_operands(p, i, NULL, NULL);
        if (bytes > most) most = bytes;
        if (p->scratch[i] > scratch) scratch = p->scratch[i];
    }
    char *memory = kolo_backend_alloc(backend, most + KOLO_ALIGN),
         *workspace = kolo_backend_alloc(backend, scratch + KOLO_ALIGN);
    int rc = memory && workspace ? 0 : kolo_error_status();
    for (int64_t i = 0; rc == 0 && i < p->graph->nodes; i++)
        if (seconds[i] <= 0) rc = clock_node(p, i, times, memory, workspace, &seconds[i]);
    kolo_backend_free(backend, (void **)&memory, most + KOLO_ALIGN);
    kolo_backend_free(backend, (void **)&workspace, scratch + KOLO_ALIGN);
    return rc;
}

static int estimate(const kolo_plan *p, double *seconds)
{
    kolo_cost *cost = kolo_alloc((size_t)(p->actions + 1) * sizeof *cost);
    const int rc = cost ? kolo_plan_costs(p, cost) : KOLO_ENOMEM;
    for (int64_t i = 0; rc == 0 && i < p->actions; i++) {
        if (p->action[i].kind != KOLO_ACTION_RUN || seconds[p->action[i].node] > 0) continue;
        const double memory = (cost[i].read + cost[i].written) / DEVICE_BYTES,
                     work = cost[i].flops / DEVICE_FLOPS;
        seconds[p->action[i].node] = memory > work ? memory : work;
    }
    free(cost);
    return rc;
}

int kolo_exec_clock(const kolo_plan *plan, kolo_backend *backend, int times, double *seconds)
{
    memset(seconds, 0, (size_t)plan->graph->nodes * sizeof *seconds);
    return kolo_exec_clock_rest(plan, backend, times, seconds);
}

int kolo_exec_clock_rest(const kolo_plan *plan, kolo_backend *backend, int times, double *seconds)
{
    return times > 0 && kolo_backend_is_host(backend) ? clock_host(plan, backend, times, seconds)
                                                      : estimate(plan, seconds);
}

double kolo_exec_memory_rate(kolo_backend *backend, int times)
{
    const int64_t count = 8 << 20;
    const size_t bytes = (size_t)count * sizeof(float);
    float *from = NULL, *to = NULL;
    double best = 0;
    if (times > 0 && kolo_backend_is_host(backend)) {
        from = kolo_backend_alloc(backend, bytes);
        to = kolo_backend_alloc(backend, bytes);
    }
    for (int i = 0; from && to && i < times; i++) {
        const double begin = kolo_time();
#pragma omp parallel for simd schedule(static)
        for (int64_t k = 0; k < count; k++) to[k] += from[k];
        const double rate = 3 * (double)bytes / (kolo_time() - begin);
        if (rate > best) best = rate;
    }
    kolo_backend_free(backend, (void **)&from, bytes);
    kolo_backend_free(backend, (void **)&to, bytes);
    return best > 0 ? best : DEVICE_BYTES;
}

/* ---- waking ---- */

enum { WAKES = 200 };

typedef struct pingpong {
    _Atomic uint32_t turn[2];
} pingpong;

static void *answer(void *argument)
{
    pingpong *p = argument;
    for (uint32_t i = 1; i <= WAKES; i++) {
        while (atomic_load(&p->turn[0]) < i) kolo_futex_wait(&p->turn[0], i - 1, 1, 0);
        atomic_store(&p->turn[1], i);
        kolo_futex_wake(&p->turn[1]);
    }
    return NULL;
}

double kolo_exec_wake_seconds(void)
{
    pingpong p = {{0}};
    pthread_t other;
    if (kolo_thread_start(&other, answer, &p, "a clock of wakings") < 0) return 0;
    const double begin = kolo_time();
    for (uint32_t i = 1; i <= WAKES; i++) {
        atomic_store(&p.turn[0], i);
        kolo_futex_wake(&p.turn[0]);
        while (atomic_load(&p.turn[1]) < i) kolo_futex_wait(&p.turn[1], i - 1, 1, 0);
    }
    const double seconds = (kolo_time() - begin) / (2 * WAKES);
    pthread_join(other, NULL);
    return seconds;
}
