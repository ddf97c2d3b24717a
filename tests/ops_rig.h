/* A rig for operations: a small graph whose inputs are activations, run on a backend in a layout of the
 * test's choice. Every buffer starts as NaN, so that what an operation leaves unwritten shows. On a device
 * the buffers lie in its memory, and operations read the 16-bit copy of the parameters that have one. */
#ifndef TESTS_OPS_RIG_H
#define TESTS_OPS_RIG_H

#include "base/memory.h"
#include "graph/rules.h"
#include "kolo/error.h"
#include "ops/cpu/cpu.h"
#include "ops/element.h"
#include "ops/kernel.h"
#include "tap.h"

#pragma GCC diagnostic ignored "-Wunused-function"

enum { RIG_NHWC = -1, RIG_OWN = 0 /* the layout that the backend chooses */, RIG_GUARD = 64 };

typedef struct rig {
    kolo_graph *g;
    kolo_backend *backend;
    kolo_layout *layout;
    void **buffer, **half; /* [tensors] */
    kolo_step *there;      /* the step in a device's memory */
    kolo_step step;
    bool in_place; /* out[0] takes the memory of the input that it may overwrite */
    int64_t block; /* of maps; RIG_NHWC, RIG_OWN; RIG_NHWC after rig_layout where an operation wants it */
} rig;

static const kolo_init rig_init = {KOLO_INIT_CONSTANT, 0};

static void rig_check(int rc, const char *what)
{
    if (rc >= 0) return;
    printf("Bail out! %s: %s\n", what, kolo_error_text());
    exit(1);
}

static kolo_backend *rig_backend(int threads)
{
    kolo_backend_config config = {.threads = threads, .direct = true, .deterministic = true};
    kolo_backend *b = NULL;
    rig_check(kolo_backend_create(&b, "cpu", &config), "backend");
    return b;
}

static rig rig_open(kolo_backend *backend, enum kolo_dtype dtype, int64_t block)
{
    rig r = {.backend = backend, .block = block};
    rig_check(kolo_graph_create(&r.g, "rig", true, dtype), "graph");
    for (int i = 0; i < KOLO_MAX_SLOTS; i++) r.step.valid[i] = INT32_MAX;
    r.step.scaler.scale = 1;
    return r;
}

/* Memory of the backend, filled with `byte`, and a guard of 0xFF behind it. */
static void *rig_memory(const rig *r, size_t bytes, int byte)
{
    size_t all = kolo_round_up(bytes + RIG_GUARD, KOLO_ALIGN);
    bool host = kolo_backend_is_host(r->backend);
    void *m = host ? aligned_alloc(KOLO_ALIGN, all) : kolo_backend_alloc(r->backend, all);
    rig_check(m ? 0 : KOLO_ECONFIG, "memory");
    rig_check(kolo_backend_fill(r->backend, KOLO_LANE_COMPUTE, m, byte, bytes), "fill");
    rig_check(kolo_backend_fill(r->backend, KOLO_LANE_COMPUTE, (char *)m + bytes, 0xFF, all - bytes), "fill");
    return m;
}

static void rig_free(const rig *r, void *m, size_t bytes)
{
    if (kolo_backend_is_host(r->backend)) free(m);
    else kolo_backend_free(r->backend, &m, kolo_round_up(bytes + RIG_GUARD, KOLO_ALIGN));
}

static bool rig_guard_is_whole(const rig *r, const void *m, size_t bytes)
{
    unsigned char guard[RIG_GUARD];
    rig_check(kolo_backend_read(r->backend, guard, (const char *)m + bytes, sizeof guard), "read");
    for (int k = 0; k < RIG_GUARD; k++)
        if (guard[k] != 0xFF) return false;
    return true;
}

/* An activation of the graph's type that the test fills. */
static int rig_input(rig *r, const char *name, int rank, const int64_t *dim)
{
    int t = kolo_graph_tensor(r->g, name, KOLO_ROLE_ACTIVATION, r->g->dtype, rank, dim);
    rig_check(t, name);
    return t;
}

/* Appends the gradients of everything, given the gradient `dy` of tensor y (made here; filled by the
 * test). */
static int rig_backward(rig *r, int y)
{
    kolo_graph *g = r->g;
    int dy = kolo_graph_tensor(g, "dy", KOLO_ROLE_ACTIVATION, g->tensor[y].dtype, g->tensor[y].rank,
                               g->tensor[y].dim);
    rig_check(dy, "dy");
    enum { MOST = 8192 };
    g->grad = malloc(MOST * sizeof *g->grad);
    for (int i = 0; i < MOST; i++) g->grad[i] = -1;
    g->grad[y] = dy;
    rig_check(kolo_gradient_walk(g), "gradient rules");
    rig_check(kolo_gradient_accumulate(g), "sums of gradients");
    return dy;
}

static void rig_layout(rig *r)
{
    kolo_graph *g = r->g;
    for (int64_t i = 0; i < g->nodes; i++) g->node[i].backward = kolo_op_table[g->node[i].op].shape == NULL;
    r->layout = calloc((size_t)g->tensors, sizeof *r->layout);
    if (r->block != RIG_OWN && kolo_cpu_wants_channels_last(g)) r->block = RIG_NHWC;
    for (int64_t t = 0; t < g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        r->layout[t] = kolo_layout_plain(x);
        if (kolo_tensor_is_map(x) && r->block != RIG_OWN)
            r->layout[t] = kolo_layout_blocked(x, r->block == RIG_NHWC ? x->dim[1] : r->block);
    }
    if (r->block == RIG_OWN) rig_check(kolo_backend_layout(r->backend, g, NULL, NULL, r->layout), "layout");
    else rig_check(kolo_backend_layout_parameters(r->backend, g, NULL, NULL, r->layout), "layout");
    r->buffer = calloc((size_t)g->tensors, sizeof *r->buffer);
    r->half = calloc((size_t)g->tensors, sizeof *r->half);
    if (!kolo_backend_is_host(r->backend)) r->there = rig_memory(r, sizeof *r->there, 0);
    for (int64_t t = 0; t < g->tensors; t++) {
        r->buffer[t] = rig_memory(r, r->layout[t].bytes, 0xFF);
        if (r->layout[t].half) r->half[t] = rig_memory(r, r->layout[t].bytes / 2, 0xFF);
    }
}

static void rig_set(rig *r, int tensor, const float *values)
{
    const kolo_layout *layout = &r->layout[tensor];
    void *host = malloc(layout->bytes);
    rig_check(kolo_backend_from_canonical(r->backend, &r->g->tensor[tensor], layout, values, host),
              "from canonical");
    rig_check(kolo_backend_write(r->backend, r->buffer[tensor], host, layout->bytes), "write");
    free(host);
    if (r->half[tensor])
        rig_check(kolo_backend_narrow(r->backend, r->half[tensor], r->g->dtype, r->buffer[tensor],
                                      (int64_t)(layout->bytes / 4)),
                  "narrow");
}

/* Tensor as it lies in memory. Caller frees. */
static void *rig_raw(const rig *r, int64_t tensor)
{
    void *host = malloc(r->layout[tensor].bytes + 1);
    rig_check(kolo_backend_read(r->backend, host, r->buffer[tensor], r->layout[tensor].bytes), "read");
    return host;
}

static void rig_get(rig *r, int tensor, float *values)
{
    void *host = rig_raw(r, tensor);
    rig_check(kolo_backend_to_canonical(r->backend, &r->g->tensor[tensor], &r->layout[tensor], host, values),
              "to canonical");
    free(host);
}

/* A tensor's 16-bit copy becomes what it is a copy of. */
static void rig_widen(rig *r, int tensor)
{
    const size_t count = r->layout[tensor].bytes / sizeof(float);
    uint16_t *half = malloc(count * sizeof *half + 1);
    float *wide = malloc(count * sizeof *wide + 1);
    rig_check(kolo_backend_read(r->backend, half, r->half[tensor], count * sizeof *half), "read");
    for (size_t i = 0; i < count; i++)
        wide[i] = r->g->dtype == KOLO_BF16 ? kolo_from_bf16(half[i]) : kolo_from_f16(half[i]);
    rig_check(kolo_backend_write(r->backend, r->buffer[tensor], wide, count * sizeof *wide), "write");
    free(half);
    free(wide);
}

/* Runs one node; the status of its run. */
static int rig_run_node(rig *r, int i)
{
    const kolo_node *n = &r->g->node[i];
    kolo_kernel *kernel;
    size_t bytes;
    void *args[2 * KOLO_MAX_ARGS] = {NULL};
    rig_check(kolo_backend_prepare(r->backend, r->g, i, r->layout, &kernel, &bytes), "prepare");
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0) args[k] = r->half[n->in[k]] ? r->half[n->in[k]] : r->buffer[n->in[k]];
    for (int k = 0; k < n->n_out; k++) args[n->n_in + k] = n->out[k] >= 0 ? r->buffer[n->out[k]] : NULL;
    /* a copy of a parameter is one of what operations read of it */
    const bool halves = n->op == KOLO_OP_share && r->half[n->out[0]];
    if (halves) args[1] = r->half[n->out[0]];
    int over = kolo_op_table[n->op].overwrite;
    /* a copy of the input stands in for both */
    if (r->in_place && over >= 0 && over < n->n_in && n->in[over] >= 0) {
        rig_check(kolo_backend_copy(r->backend, KOLO_LANE_COMPUTE, args[n->n_in], args[over],
                                    r->layout[n->in[over]].bytes),
                  "copy");
        args[over] = args[n->n_in];
    }
    if (r->there) rig_check(kolo_backend_write(r->backend, r->there, &r->step, sizeof r->step), "step");
    void *workspace = rig_memory(r, bytes, 0xFF);
    int rc = kolo_kernel_run(kernel, args, workspace, r->there ? r->there : &r->step, 0);
    if (rc >= 0) rc = kolo_backend_finish(r->backend);
    if (r->there) rig_check(kolo_backend_read(r->backend, &r->step, r->there, sizeof r->step), "step");
    if (halves) rig_widen(r, n->out[0]);
    if (!rig_guard_is_whole(r, workspace, bytes))
        rc = kolo_fail(KOLO_EINTERNAL, "%s wrote beyond its workspace", kolo_op_table[n->op].name);
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0 && !rig_guard_is_whole(r, r->buffer[n->out[k]], r->layout[n->out[k]].bytes))
            rc = kolo_fail(KOLO_EINTERNAL, "%s wrote beyond output %d", kolo_op_table[n->op].name, k);
    rig_free(r, workspace, bytes);
    return rc;
}

static void rig_run(rig *r)
{
    for (int i = 0; i < (int)r->g->nodes; i++)
        rig_check(rig_run_node(r, i), kolo_op_table[r->g->node[i].op].name);
}

/* Whether the lanes beyond the last channel of every map are zero. */
static bool rig_padding_is_zero(const rig *r)
{
    for (int64_t t = 0; t < r->g->tensors; t++) {
        const kolo_tensor *x = &r->g->tensor[t];
        if (!kolo_tensor_is_map(x) || x->dtype == KOLO_U8) continue;
        int64_t block = r->layout[t].block, blocks = (x->dim[1] + block - 1) / block,
                pixels = x->dim[2] * x->dim[3];
        void *raw = rig_raw(r, t);
        bool zero = true;
        for (int64_t i = 0; i < x->dim[0] * blocks * pixels * block; i++) {
            int64_t c = i / (pixels * block) % blocks * block + i % block;
            if (c >= x->dim[1])
                zero &= x->dtype == KOLO_F32 ? ((float *)raw)[i] == 0 : ((uint16_t *)raw)[i] == 0;
        }
        free(raw);
        if (!zero) return false;
    }
    return true;
}

/* Of two rigs of one graph: whether all tensors have the same bytes, else the name of one that has not. */
static bool rig_same_bits(const rig *a, const rig *b, const char **which)
{
    for (int64_t t = 0; t < a->g->tensors; t++)
        if (memcmp(a->buffer[t], b->buffer[t], a->layout[t].bytes)) {
            *which = a->g->tensor[t].name;
            return false;
        }
    return true;
}

static void rig_close(rig *r)
{
    for (int64_t t = 0; r->buffer && t < r->g->tensors; t++) {
        rig_free(r, r->buffer[t], r->layout[t].bytes);
        if (r->half[t]) rig_free(r, r->half[t], r->layout[t].bytes / 2);
    }
    if (r->there) rig_free(r, r->there, sizeof *r->there);
    free(r->buffer);
    free(r->half);
    free(r->layout);
    kolo_graph_destroy(&r->g);
}

#endif
