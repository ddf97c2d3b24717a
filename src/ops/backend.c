#include "ops/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "ops/nhwc.h"

static const kolo_backend_type *cpu_type(void) { return &kolo_cpu_backend; }
static const kolo_backend_type *cuda_type(void) { return kolo_cuda_symbol("kolo_cuda_backend"); }

/* Where each backend's table is found; NULL: error text set. */
static const struct {
    const char *name;
    const kolo_backend_type *(*type)(void);
} backends[] = {{"cpu", cpu_type}, {"cuda", cuda_type}};

static const kolo_backend_type *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (!strcmp(backends[i].name, name)) return backends[i].type();
    kolo_fail(KOLO_ECONFIG, "no backend called \"%s\"; there are \"cpu\" and \"cuda\"", name);
    return NULL;
}

const char *kolo_backend_version(const char *name)
{
    const kolo_backend_type *type = find_type(name);
    return type ? type->version() : "none";
}

static int create(kolo_backend **backend, const kolo_backend_type *type, const kolo_backend_config *config)
{
    *backend = NULL;
    if (config->threads < 1)
        return kolo_fail(KOLO_ECONFIG, "threads=%d: at least one compute thread is needed", config->threads);
    kolo_backend *b = kolo_alloc(sizeof *b);
    if (!b) return KOLO_ENOMEM;
    b->type = type;
    b->threads = config->threads;
    b->direct = config->direct;
    b->deterministic = config->deterministic;
    b->tf32 = config->tf32;
    b->device = config->device;
    b->gpu = config->gpu;
    b->trial_seconds = config->trial_seconds;
    int rc = type->open(b);
    if (rc >= 0) rc = kolo_choices_open(&b->choices, type->machine(b), config->cache, config->choices);
    if (rc < 0) kolo_backend_destroy(&b);
    *backend = b;
    return rc;
}

/* By the CUDA half, whose libraries plan without a device, if they can be had here; else by what is known
 * without them. */
static int create_described(kolo_backend **backend, const kolo_backend_config *config)
{
    const kolo_backend_type *type = cuda_type();
    if (type && create(backend, type, config) >= 0) {
        snprintf((*backend)->note, sizeof(*backend)->note,
                 "planned by %s without a device: algorithms as kept of such a GPU, else as the heuristics "
                 "put them first (a clock on the GPU may take others); of workspaces, products of linear "
                 "layers are counted with 32 MiB, the most that they may have",
                 type->version());
        return 0;
    }
    kolo_failure why;
    kolo_error_keep(&why);
    const int rc = create(backend, &kolo_described_backend, config);
    if (rc >= 0)
        snprintf((*backend)->note, sizeof(*backend)->note,
                 "workspaces (at most about 1 GiB) are not counted: %.600s", why.text);
    return rc;
}

const char *kolo_backend_note(const kolo_backend *b) { return b->note; }

int kolo_backend_create(kolo_backend **backend, const char *name, const kolo_backend_config *config)
{
    *backend = NULL;
    if (config->gpu) return create_described(backend, config);
    const kolo_backend_type *type = find_type(name);
    if (!type) return strcmp(name, "cuda") ? KOLO_ECONFIG : KOLO_ELAUNCH;
    return create(backend, type, config);
}

static void kernel_destroy(kolo_kernel *k)
{
    if (!k) return;
    if (k->release) k->release(k->state);
    free(k->key);
    free(k);
}

void kolo_backend_destroy(kolo_backend **backend)
{
    kolo_backend *b = *backend;
    if (!b) return;
    for (int64_t i = 0; i < b->kernels; i++) kernel_destroy(b->kernel[i]);
    free(b->kernel);
    b->type->close(b);
    kolo_nhwc_free(b);
    kolo_choices_close(&b->choices);
    free(b);
    *backend = NULL;
}

bool kolo_tensor_is_map(const kolo_tensor *t)
{
    return t->rank == 4 &&
           (t->role == KOLO_ROLE_ACTIVATION || (t->role == KOLO_ROLE_INPUT && t->dtype != KOLO_U8));
}

kolo_layout kolo_layout_plain(const kolo_tensor *t)
{
    return (kolo_layout){.block = 1, .bytes = (size_t)kolo_tensor_count(t) * kolo_dtype_size(t->dtype)};
}

kolo_layout kolo_layout_blocked(const kolo_tensor *t, int64_t block)
{
    int64_t blocks = (t->dim[1] + block - 1) / block;
    int64_t count = t->dim[0] * blocks * block * t->dim[2] * t->dim[3];
    return (kolo_layout){.block = block, .bytes = (size_t)count * kolo_dtype_size(t->dtype)};
}

/* A parameter that `like` knows by name keeps its layout there; a gradient follows its parameter. */
static int inherit(const kolo_graph *g, const kolo_graph *like, const kolo_layout *like_layout,
                   kolo_layout *layout)
{
    for (int64_t t = 0; t < g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        if (x->role != KOLO_ROLE_PARAM && x->role != KOLO_ROLE_BUFFER) continue;
        int other = kolo_graph_find(like, x->name);
        if (other < 0) continue;
        const kolo_tensor *y = &like->tensor[other];
        if (x->rank != y->rank || memcmp(x->dim, y->dim, (size_t)x->rank * sizeof x->dim[0]))
            return kolo_fail(KOLO_EINTERNAL, "%s has another shape in graph %s than in %s", x->name, g->name,
                             like->name);
        layout[t] = like_layout[other];
    }
    return 0;
}

int kolo_backend_layout_parameters(kolo_backend *backend, const kolo_graph *g, const kolo_graph *like,
                                   const kolo_layout *like_layout, kolo_layout *layout)
{
    const kolo_backend_type *type = backend->type;
    if (like) KOLO_TRY(inherit(g, like, like_layout, layout));
    for (int backward = 1; backward >= 0; backward--) /* the weight gradient speaks first */
        for (int64_t n = 0; n < g->nodes; n++) {
            const kolo_op_row *row = type->rows[g->node[n].op];
            kolo_kernel_request request = {backend, g, &g->node[n], layout};
            if (row && row->layout && g->node[n].backward == !!backward)
                KOLO_TRY(row->layout(&request, layout));
        }
    for (int64_t t = 0; t < g->tensors; t++)
        if (kolo_tensor_is_gradient(&g->tensor[t])) {
            layout[t] = layout[g->tensor[t].of];
            const int maker = g->tensor[t].producer; /* terms of gradients are read as they are */
            if (maker >= 0 && g->node[maker].op != KOLO_OP_share && g->tensor[t].role == KOLO_ROLE_TERM)
                layout[t].half = false;
        }
    return 0;
}

int kolo_backend_layout(kolo_backend *backend, const kolo_graph *g, const kolo_graph *like,
                        const kolo_layout *like_layout, kolo_layout *layout)
{
    if (backend->type->enter) backend->type->enter(backend);
    for (int64_t t = 0; t < g->tensors; t++) layout[t] = kolo_layout_plain(&g->tensor[t]);
    KOLO_TRY(backend->type->blocks(backend, g, like, like_layout, layout));
    return kolo_backend_layout_parameters(backend, g, like, like_layout, layout);
}

/* ---- kernels ------------------------------------------------------------------------------------------- */

static void write_tensor(FILE *f, const kolo_kernel_request *r, int t)
{
    if (t < 0) {
        fputs(" -", f);
        return;
    }
    const kolo_tensor *x = &r->graph->tensor[t];
    fprintf(f, " %d", x->dtype);
    for (int d = 0; d < x->rank; d++) fprintf(f, ",%ld", (long)x->dim[d]);
    fprintf(f, "/%ld/%lx", (long)r->layout[t].block, (unsigned long)r->layout[t].hash);
}

/* Everything that decides what a kernel does. Caller frees. */
static char *make_key(const kolo_kernel_request *r)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) {
        kolo_fail(KOLO_ENOMEM, "out of memory for a kernel's key");
        return NULL;
    }
    const kolo_node *n = r->node;
    const kolo_attributes *a = &n->a;
    fputs(kolo_op_table[n->op].name, f);
    for (int i = 0; i < n->n_in; i++) write_tensor(f, r, n->in[i]);
    fputs(" ->", f);
    for (int i = 0; i < n->n_out; i++) write_tensor(f, r, n->out[i]);
    for (int i = 0; i < 2; i++)
        fprintf(f, " %ld,%ld,%ld,%ld", (long)a->kernel[i], (long)a->stride[i], (long)a->pad[i],
                (long)a->dilation[i]);
    fprintf(f, " g%ld e%a m%a s%a %d%d", (long)a->groups, a->epsilon, a->momentum, a->smoothing, a->relu,
            a->count_pad);
    for (int i = 0; i < 4; i++) fprintf(f, " %a,%a", (double)a->mean[i], (double)a->std[i]);
    fprintf(f, " %ld+%ld b%ld f%d,%a d%a,%d", (long)a->first, (long)a->count, (long)a->beyond[0],
            a->activation, a->slope, a->drop, a->draw);
    fprintf(f, " %a,%a %d %s%d%d%d", a->margin, a->scale, a->reverse, a->detector ? a->detector : "-", a->l1,
            a->centre, a->overlap);
    for (int i = 0; i < 9; i++) fprintf(f, " %a,%a", (double)a->anchor[i][0], (double)a->anchor[i][1]);
    if (a->weight > 0) fprintf(f, " w%a", a->weight);
    if (a->beyond[1] != a->beyond[0]) fprintf(f, " b%ld", (long)a->beyond[1]);
    if (n->op == KOLO_OP_tile || n->op == KOLO_OP_tile_grad) {
        fprintf(f, " at %ld,%ld", (long)a->at[0], (long)a->at[1]);
        for (int i = 0; i < n->n_in; i++) fprintf(f, " %ld,%ld", (long)a->from[i][0], (long)a->from[i][1]);
    }
    for (int i = 0; i < KOLO_MAX_HEADS; i++)
        fprintf(f, " %d,%d,%d", a->mask[i][0], a->mask[i][1], a->mask[i][2]);
    if (fclose(f) || !text) {
        free(text);
        kolo_fail(KOLO_ENOMEM, "out of memory for a kernel's key");
        return NULL;
    }
    return text;
}

static int prepare_new(const kolo_kernel_request *r, const kolo_op_row *row, char **key, kolo_kernel **out)
{
    kolo_backend *b = r->backend;
    KOLO_TRY(kolo_grow(&b->kernel, &b->kernel_capacity, b->kernels, sizeof *b->kernel));
    kolo_kernel *k = kolo_alloc(sizeof *k);
    if (!k) return KOLO_ENOMEM;
    k->backend = b;
    k->key = *key;
    *key = NULL;
    int rc = row->prepare(r, k);
    if (rc < 0) {
        kernel_destroy(k);
        return rc;
    }
    b->kernel[b->kernels++] = *out = k;
    return 0;
}

int kolo_backend_prepare(kolo_backend *backend, const kolo_graph *g, int node, const kolo_layout *layout,
                         kolo_kernel **kernel, size_t *workspace)
{
    *kernel = NULL;
    if (backend->type->enter) backend->type->enter(backend);
    kolo_kernel_request r = {backend, g, &g->node[node], layout};
    const kolo_op_row *row = backend->type->rows[r.node->op];
    const char *name = kolo_op_table[r.node->op].name;
    if (!row || !row->prepare)
        return kolo_fail(KOLO_ECONFIG, "the %s backend has no %s operation; choose another device or network",
                         backend->type->name, name);
    char *key = make_key(&r);
    if (!key) return KOLO_ENOMEM;
    for (int64_t i = 0; i < backend->kernels && !*kernel; i++)
        if (!strcmp(backend->kernel[i]->key, key)) *kernel = backend->kernel[i];
    int rc = *kernel ? 0 : prepare_new(&r, row, &key, kernel);
    free(key);
    if (rc < 0) return kolo_fail_in(rc, "graph %s, node %d (%s): ", g->name, node, name);
    *workspace = (*kernel)->workspace;
    return 0;
}

int kolo_kernel_run(kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    if (k->backend->type->enter) k->backend->type->enter(k->backend);
    return k->run(k, args, workspace, step, slot);
}

const char *kolo_backend_machine(kolo_backend *b) { return b->type->machine(b); }
const char *kolo_kernel_name(const kolo_kernel *k) { return k->name; }
const char *kolo_kernel_key(const kolo_kernel *k) { return k->key; }
char *kolo_backend_choices(const kolo_backend *b) { return kolo_choices_text(&b->choices); }

int64_t kolo_backend_unasked(const kolo_backend *b, char **first)
{
    int64_t count;
    const kolo_choice *c = kolo_choices_unasked(&b->choices, &count);
    *first = c ? kolo_format("%s = %s", c->key, c->value) : NULL;
    return count;
}

int kolo_backend_to_canonical(kolo_backend *b, const kolo_tensor *tensor, const kolo_layout *layout,
                              const void *from, float *to)
{
    return b->type->to_canonical(b, tensor, layout, from, to);
}

int kolo_backend_from_canonical(kolo_backend *b, const kolo_tensor *tensor, const kolo_layout *layout,
                                const float *from, void *to)
{
    return b->type->from_canonical(b, tensor, layout, from, to);
}
