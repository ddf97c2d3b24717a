/* Convolution and its gradients, by cuDNN, except of every channel with its own filter (depthwise.cu). The engine and its
 * knobs are chosen when the plan is made: by a clock among all that cuDNN's heuristics propose and that the precision
 * asked for admits, or the first of them where the choice has to be the same every time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ops/cuda/dnn.h"

enum { X, W, Y, BIAS };

typedef struct conv {
    enum kolo_dnn_pass pass;
    kolo_dnn_graph *graph; /* lives as long as its plan: cuDNN does not say that the plan holds a copy */
    kolo_dnn_plan *plan;
    int at[4];     /* args of X, W, Y, BIAS; -1: not there */
    int addend;    /* arg of what is added to x; -1: nothing */
    size_t x_bytes;
    /* The workspace: the weight's gradient as cuDNN writes it (16-bit types); the plan's, or the bias gradient's. */
    size_t scratch_at;
    int64_t weights; /* elements of w as stored; 0: its gradient is f32 and needs no second place */
    kolo_cuda_view y;
} conv;

static void release(void *state)
{
    conv *c = state;
    if (!c) return;
    kolo_dnn_plan_destroy(&c->plan);
    kolo_dnn_graph_destroy(&c->graph);
    free(c);
}

static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)step;
    (void)slot;
    const conv *c = k->state;
    void *p[4], *scratch = (char *)workspace + c->scratch_at;
    const int64_t rows = c->y.rows * c->y.pixels;
    for (int i = 0; i < 4; i++) p[i] = c->at[i] >= 0 ? args[c->at[i]] : NULL;
    if (c->addend >= 0 && args[c->addend] != p[X])
        KOLO_TRY(KOLO_CUDA(cudaMemcpyAsync(p[X], args[c->addend], c->x_bytes, cudaMemcpyDeviceToDevice, kolo_cuda_stream(k))));
    KOLO_TRY(kolo_dnn_plan_run(c->plan, p[X], c->weights ? workspace : p[W], p[Y], scratch));
    if (c->weights) KOLO_TRY(kolo_dnn_widen(kolo_cuda_of(k->backend), p[W], workspace, c->y.dtype, c->weights));
    if (!p[BIAS]) return 0;
    if (c->pass == KOLO_DNN_FORWARD) return kolo_cuda_bias_add(k->backend, p[Y], c->y.dtype, p[BIAS], rows, c->y.stored, c->y.channels);
    return kolo_cuda_bias_grad(k->backend, p[BIAS], p[Y], c->y.dtype, rows, c->y.stored, c->y.channels, scratch);
}

/* ---- what is asked ---------------------------------------------------------------------------------------------- */

/* The tensors of a convolution or of one of its gradients, by their part in it; -1: not there. */
typedef struct parts {
    enum kolo_dnn_pass pass;
    int tensor[4], at[4];
    int addend; /* arg */
} parts;

static parts parts_of(const kolo_node *n)
{
    const int out = n->n_in, bias_in = n->n_in > 2 ? 2 : -1, bias_out = n->n_out > 1 ? out + 1 : -1;
    parts p = {KOLO_DNN_FORWARD, {0}, {0, 1, out, bias_in}, -1};
    if (n->op == KOLO_OP_conv_grad_data) p = (parts){KOLO_DNN_DATA, {0}, {out, 1, 0, -1}, kolo_node_addend(n)};
    if (n->op == KOLO_OP_conv_grad_weight) p = (parts){KOLO_DNN_WEIGHT, {0}, {0, out, 1, bias_out}, -1};
    for (int i = 0; i < 4; i++) {
        const int at = p.at[i];
        p.tensor[i] = at < 0 ? -1 : at < n->n_in ? n->in[at] : n->out[at - n->n_in];
        if (p.tensor[i] < 0) p.at[i] = -1;
    }
    return p;
}

static int describe(const kolo_kernel_request *r, const parts *p, kolo_dnn_conv *c)
{
    const kolo_attributes *a = &r->node->a;
    const kolo_tensor *t = r->graph->tensor;
    kolo_cuda_view x = kolo_cuda_view_of(&t[p->tensor[X]], &r->layout[p->tensor[X]]);
    kolo_cuda_view y = kolo_cuda_view_of(&t[p->tensor[Y]], &r->layout[p->tensor[Y]]);
    if (a->groups > 1 && (x.stored != x.channels || y.stored != y.channels))
        return kolo_fail(KOLO_ECONFIG,
                         "a convolution of %ld groups from %ld to %ld channels: on a GPU both must be multiples of %ld, because "
                         "padding would fall into one group; use device=cpu or other widths",
                         (long)a->groups, (long)x.channels, (long)y.channels, (long)kolo_cuda_padded(1, x.dtype));
    *c = (kolo_dnn_conv){.pass = p->pass,
                         .add = p->addend >= 0,
                         .dtype = x.dtype,
                         .rows = x.rows,
                         .in = x.stored,
                         .out = y.stored,
                         .group = a->groups,
                         .x = {x.height, x.width},
                         .y = {y.height, y.width},
                         .kernel = {t[p->tensor[W]].dim[2], t[p->tensor[W]].dim[3]}};
    memcpy(c->stride, a->stride, sizeof c->stride);
    memcpy(c->pad, a->pad, sizeof c->pad);
    memcpy(c->dilation, a->dilation, sizeof c->dilation);
    return 0;
}

/* An engine may work in as much memory as its tensors take, and a little more, up to 1 GiB: all operations share one
 * workspace, and the largest counts. */
static kolo_dnn_rules rules_of(const kolo_backend *b, const kolo_dnn_conv *c)
{
    const uint32_t winograd = 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                              1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    const size_t most = (size_t)1 << 30, more = (size_t)64 << 20;
    const int64_t count = c->rows * (c->in * c->x[0] * c->x[1] + c->out * c->y[0] * c->y[1]);
    const size_t bytes = (size_t)count * kolo_dtype_size(c->dtype) + more;
    kolo_dnn_rules rules = {.notes = 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                            .behaviours = 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, /* seconds for each shape */
                            .workspace = bytes < most ? bytes : most};
    if (b->direct) rules.notes |= winograd | 1u << CUDNN_NUMERICAL_NOTE_FFT;
    if (b->deterministic) rules.notes |= 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    if (c->dtype == KOLO_F32 && !b->tf32) rules.notes |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    return rules;
}

static char *key_of(const kolo_kernel_request *r, const kolo_dnn_conv *c, const kolo_dnn_rules *rules)
{
    return kolo_format("%s %s n %ld x %ld %ld %ld y %ld %ld %ld k %ld %ld s %ld %ld p %ld %ld d %ld %ld g %ld%s not %x", kolo_op_table[r->node->op].name,
                       kolo_dtype_name(c->dtype), (long)c->rows, (long)c->in, (long)c->x[0], (long)c->x[1], (long)c->out, (long)c->y[0], (long)c->y[1],
                       (long)c->kernel[0], (long)c->kernel[1], (long)c->stride[0], (long)c->stride[1], (long)c->pad[0], (long)c->pad[1], (long)c->dilation[0],
                       (long)c->dilation[1], (long)c->group, c->add ? " add" : "", rules->notes);
}

/* ---- which engine ----------------------------------------------------------------------------------------------- */

/* What cuDNN proposes, as candidates of a trial. */
typedef struct candidates {
    const kolo_kernel_request *request;
    const kolo_dnn_graph *graph;
    const kolo_dnn_rules *rules;
    kolo_dnn_choice *choice; /* [count] */
    kolo_dnn_plan **plan;    /* [count]; NULL: not open */
    bool clock;
    char *x, *w, *y; /* of the trial's memory */
    void *scratch;
} candidates;

static int open_candidate(void *argument, int64_t i)
{
    candidates *c = argument;
    int rc = kolo_dnn_plan_create(&c->plan[i], c->graph, &c->choice[i], c->rules);
    if (rc || !c->clock || !c->plan[i]->workspace) return rc;
    if (kolo_cuda_trial_scratch(c->request->backend, c->plan[i]->workspace, &c->scratch) >= 0) return 0;
    kolo_dnn_plan_destroy(&c->plan[i]);
    return 1;
}

static int run_candidate(void *argument, int64_t i)
{
    const candidates *c = argument;
    return kolo_dnn_plan_run(c->plan[i], c->x, c->w, c->y, c->scratch);
}

static void close_candidate(void *argument, int64_t i) { kolo_dnn_plan_destroy(&((candidates *)argument)->plan[i]); }

/* Without memory for a trial there is none. */
static void open_trial(kolo_backend *b, const kolo_dnn_conv *c, candidates *all)
{
    const size_t size = kolo_dtype_size(c->dtype), page = 4096;
    const size_t x = kolo_round_up((size_t)(c->rows * c->in * c->x[0] * c->x[1]) * size, page);
    const size_t y = kolo_round_up((size_t)(c->rows * c->out * c->y[0] * c->y[1]) * size, page);
    const size_t w = kolo_round_up((size_t)(c->out * (c->in / c->group) * c->kernel[0] * c->kernel[1]) * size, page);
    void *memory;
    if (kolo_cuda_trial_data(b, x + y + w, c->dtype, &memory) < 0) {
        kolo_info("an engine is taken as cuDNN's heuristics say, untimed: %s", kolo_error_text());
        all->clock = false;
        return;
    }
    all->x = memory;
    all->y = all->x + x;
    all->w = all->y + y;
}

static int choose_among(const kolo_dnn_conv *c, const char *key, int64_t count, candidates *all, int64_t *best)
{
    kolo_backend *b = all->request->backend;
    const kolo_trial trial = {count, open_candidate, run_candidate, close_candidate, all};
    if (all->clock) open_trial(b, c, all);
    KOLO_TRY(kolo_cuda_trial_choose(b, &trial, all->clock, best));
    if (*best >= 0) return 0;
    return kolo_fail_in(KOLO_ECONFIG, "cuDNN %d has no engine for %s among %ld; the last one: ", (int)cudnnGetVersion(), key, (long)count);
}

static int choose(const kolo_kernel_request *r, const kolo_dnn_graph *g, const kolo_dnn_conv *c, const kolo_dnn_rules *rules, const char *key,
                  kolo_dnn_plan **out)
{
    kolo_backend *b = r->backend;
    const bool clock = !b->deterministic && !b->choices.given && kolo_cuda_of(b)->dnn;
    candidates all = {.request = r, .graph = g, .rules = rules, .clock = clock};
    char text[KOLO_DNN_TEXT];
    int64_t count = 0, best = -1;
    int rc = kolo_dnn_proposals(g, &all.choice, &count);
    if (rc >= 0 && !(all.plan = kolo_alloc((size_t)(count + 1) * sizeof *all.plan))) rc = KOLO_ECONFIG;
    if (rc >= 0) rc = choose_among(c, key, count, &all, &best);
    if (clock) kolo_cuda_trial_end(b);
    if (rc >= 0 && clock) {
        kolo_dnn_choice_write(&all.choice[best], text);
        rc = kolo_choices_add(&b->choices, key, text);
    }
    if (rc >= 0) *out = all.plan[best];
    else if (best >= 0) kolo_dnn_plan_destroy(&all.plan[best]);
    free(all.plan);
    free(all.choice);
    return rc;
}

/* As chosen before, here or by rank 0. 1: nothing is known, or it is not to be had any more. */
static int recall(const kolo_kernel_request *r, const kolo_dnn_graph *g, const kolo_dnn_rules *rules, const char *key, kolo_dnn_plan **out)
{
    kolo_dnn_choice choice;
    const char *known = r->backend->deterministic ? NULL : kolo_choices_find(&r->backend->choices, key);
    if (!known) return 1;
    int rc = kolo_dnn_choice_read(&choice, known) ? kolo_dnn_plan_create(out, g, &choice, rules) : 1;
    if (rc <= 0) return rc;
    kolo_info("%s: the engine kept for it, %s, is not to be had any more; choosing another", key, known);
    return 1;
}

static int select_plan(const kolo_kernel_request *r, const kolo_dnn_conv *c, kolo_dnn_graph **g, kolo_dnn_plan **out)
{
    const kolo_dnn_rules rules = rules_of(r->backend, c);
    char *key = key_of(r, c, &rules);
    int rc = key ? kolo_dnn_graph_create(g, kolo_cuda_of(r->backend), c) : KOLO_ECONFIG;
    if (rc >= 0) rc = recall(r, *g, &rules, key, out);
    if (rc > 0) rc = choose(r, *g, c, &rules, key, out);
    free(key);
    return rc;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const parts p = parts_of(r->node);
    kolo_dnn_conv shape;
    const int own = kolo_cuda_depthwise(r, k);
    if (own <= 0) return own;
    KOLO_TRY(describe(r, &p, &shape));
    conv *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ECONFIG;
    k->state = c;
    k->release = release;
    k->run = run;
    c->pass = p.pass;
    memcpy(c->at, p.at, sizeof c->at);
    c->addend = p.addend;
    c->x_bytes = r->layout[p.tensor[X]].bytes;
    c->y = kolo_cuda_view_of(&r->graph->tensor[p.tensor[Y]], &r->layout[p.tensor[Y]]);
    KOLO_TRY(select_plan(r, &shape, &c->graph, &c->plan));
    size_t scratch = c->plan->workspace, bias = 0;
    if (p.pass == KOLO_DNN_WEIGHT) {
        if (p.tensor[BIAS] >= 0) bias = kolo_cuda_bias_workspace(c->y.rows * c->y.pixels, c->y.stored);
        if (shape.dtype != KOLO_F32) c->weights = (int64_t)(r->layout[p.tensor[W]].bytes / sizeof(float));
        c->scratch_at = kolo_round_up((size_t)c->weights * kolo_dtype_size(shape.dtype), 256);
    }
    k->workspace = c->scratch_at + (scratch > bias ? scratch : bias);
    kolo_dnn_plan_name(c->plan, k->name, sizeof k->name);
    if (c->addend >= 0) strncat(k->name, ", added", sizeof k->name - strlen(k->name) - 1);
    return 0;
}

const kolo_op_row kolo_cuda_conv = {kolo_nhwc_layout, prepare};
const kolo_op_row kolo_cuda_conv_grad_data = {NULL, prepare};
const kolo_op_row kolo_cuda_conv_grad_weight = {kolo_nhwc_layout, prepare};
