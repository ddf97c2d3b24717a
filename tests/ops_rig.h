/* A rig for operations: a small graph whose inputs are activations, run on a backend in a layout of the test's choice. Every buffer
 * starts as NaN, so that what an operation leaves unwritten shows. */
#ifndef TESTS_OPS_RIG_H
#define TESTS_OPS_RIG_H

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/element.h"
#include "ops/kernel.h"
#include "tap.h"

#pragma GCC diagnostic ignored "-Wunused-function"

enum { RIG_NHWC = -1 };

typedef struct rig {
    kolo_graph *g;
    kolo_backend *backend;
    kolo_layout *layout;
    void **buffer; /* [tensors] */
    kolo_step step;
    bool in_place; /* out[0] takes the memory of the input that it may overwrite */
    int64_t block; /* of maps; RIG_NHWC */
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

/* An activation of the graph's type that the test fills. */
static int rig_input(rig *r, const char *name, int rank, const int64_t *dim)
{
    int t = kolo_graph_tensor(r->g, name, KOLO_ROLE_ACTIVATION, r->g->dtype, rank, dim);
    rig_check(t, name);
    return t;
}

/* Appends the gradients of everything, given the gradient `dy` of tensor y (made here; filled by the test). */
static int rig_backward(rig *r, int y)
{
    kolo_graph *g = r->g;
    int dy = kolo_graph_tensor(g, "dy", KOLO_ROLE_ACTIVATION, g->tensor[y].dtype, g->tensor[y].rank, g->tensor[y].dim);
    rig_check(dy, "dy");
    g->grad = malloc(1024 * sizeof *g->grad);
    for (int i = 0; i < 1024; i++) g->grad[i] = -1;
    g->grad[y] = dy;
    for (int i = (int)g->nodes - 1; i >= 0; i--)
        if (g->grad[g->node[i].out[0]] >= 0 && kolo_op_table[g->node[i].op].gradient)
            rig_check(kolo_op_table[g->node[i].op].gradient(g, i), "gradient rule");
    return dy;
}

static void rig_layout(rig *r)
{
    kolo_graph *g = r->g;
    for (int64_t i = 0; i < g->nodes; i++) g->node[i].backward = kolo_op_table[g->node[i].op].shape == NULL;
    r->layout = calloc((size_t)g->tensors, sizeof *r->layout);
    for (int64_t t = 0; t < g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        r->layout[t] = kolo_layout_plain(x);
        if (kolo_tensor_is_map(x)) r->layout[t] = kolo_layout_blocked(x, r->block == RIG_NHWC ? x->dim[1] : r->block);
    }
    rig_check(kolo_backend_layout_parameters(r->backend, g, NULL, NULL, r->layout), "layout");
    r->buffer = calloc((size_t)g->tensors, sizeof *r->buffer);
    for (int64_t t = 0; t < g->tensors; t++) {
        size_t bytes = kolo_round_up(r->layout[t].bytes + 64, 64);
        r->buffer[t] = aligned_alloc(64, bytes);
        memset(r->buffer[t], 0xFF, bytes);
    }
}

static void rig_set(rig *r, int tensor, const float *values)
{
    rig_check(
        kolo_backend_from_canonical(r->backend, &r->g->tensor[tensor], &r->layout[tensor], values, r->buffer[tensor]),
        "from canonical");
}

static void rig_get(rig *r, int tensor, float *values)
{
    rig_check(
        kolo_backend_to_canonical(r->backend, &r->g->tensor[tensor], &r->layout[tensor], r->buffer[tensor], values),
        "to canonical");
}

/* Runs one node; the status of its run. */
static int rig_run_node(rig *r, int i)
{
    const kolo_node *n = &r->g->node[i];
    kolo_kernel *kernel;
    size_t bytes;
    void *args[2 * KOLO_MAX_ARGS] = {NULL};
    rig_check(kolo_backend_prepare(r->backend, r->g, i, r->layout, &kernel, &bytes), "prepare");
    for (int k = 0; k < n->n_in; k++) args[k] = n->in[k] >= 0 ? r->buffer[n->in[k]] : NULL;
    for (int k = 0; k < n->n_out; k++) args[n->n_in + k] = n->out[k] >= 0 ? r->buffer[n->out[k]] : NULL;
    int over = kolo_op_table[n->op].overwrite;
    if (r->in_place && over >= 0) { /* a copy of the input stands in for both */
        memcpy(args[n->n_in], args[over], r->layout[n->in[over]].bytes);
        args[over] = args[n->n_in];
    }
    void *workspace = aligned_alloc(64, kolo_round_up(bytes + 64, 64));
    memset(workspace, 0xFF, bytes + 64);
    int rc = kolo_kernel_run(kernel, args, workspace, &r->step, 0);
    for (size_t k = 0; k < 64; k++)
        if (((unsigned char *)workspace)[bytes + k] != 0xFF)
            rc = kolo_fail(KOLO_EINTERNAL, "%s wrote beyond its workspace", kolo_op_table[n->op].name);
    for (int k = 0; k < n->n_out; k++)
        for (size_t j = 0; n->out[k] >= 0 && j < 64; j++)
            if (((unsigned char *)r->buffer[n->out[k]])[r->layout[n->out[k]].bytes + j] != 0xFF)
                rc = kolo_fail(KOLO_EINTERNAL, "%s wrote beyond output %d", kolo_op_table[n->op].name, k);
    free(workspace);
    return rc;
}

static void rig_run(rig *r)
{
    for (int i = 0; i < (int)r->g->nodes; i++) rig_check(rig_run_node(r, i), kolo_op_table[r->g->node[i].op].name);
}

/* Whether the lanes beyond the last channel of every map are zero. */
static bool rig_padding_is_zero(const rig *r)
{
    for (int64_t t = 0; t < r->g->tensors; t++) {
        const kolo_tensor *x = &r->g->tensor[t];
        if (!kolo_tensor_is_map(x) || x->dtype == KOLO_U8) continue;
        int64_t block = r->layout[t].block, blocks = (x->dim[1] + block - 1) / block, pixels = x->dim[2] * x->dim[3];
        for (int64_t i = 0; i < x->dim[0] * blocks * pixels * block; i++) {
            int64_t c = i / (pixels * block) % blocks * block + i % block;
            if (c < x->dim[1]) continue;
            if (x->dtype == KOLO_F32 ? ((float *)r->buffer[t])[i] != 0 : ((uint16_t *)r->buffer[t])[i] != 0)
                return false;
        }
    }
    return true;
}

static void rig_close(rig *r)
{
    for (int64_t t = 0; r->buffer && t < r->g->tensors; t++) free(r->buffer[t]);
    free(r->buffer);
    free(r->layout);
    kolo_graph_destroy(&r->g);
}

#endif
