/* Convolution and its gradients, by oneDNN or by own loops (conv_own.h). Activations lie as the plan says.
 * The weight lies as its gradient is produced; a pass that wants it otherwise (or in bf16) rearranges it into
 * its workspace first. A data gradient that something is added to is made a few rows of the batch at a time,
 * which are still in the caches when they are added, where own loops do not add them themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/failure.h"
#include "ops/cpu/conv_own.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/trial.h"

enum { X, W, Y, BIAS, SCRATCH };

typedef struct conv {
    enum kolo_dnnl_pass pass;
    kolo_conv_own own;
    bool x_bf16, widened; /* widened: bf16 outside, f32 inside */
    /* reorder: of the weight, before (of its gradient: after) the main part; or NULL */
    kolo_dnnl_primitive *main, *reorder;
    int at[4]; /* args of X, W, Y, BIAS; -1: not there */
    /* in the workspace: the rearranged weight, widened x and y, scratch memory of both parts */
    size_t wide_at, scratch_at, workspace;
    int64_t x_count, y_count; /* elements, padding included */
    int addend;               /* arg of what is added to x; -1: nothing */
    int64_t parts;            /* of the batch; all above is for one of them. 1 without addend */
    size_t part_at;           /* in the workspace: a part of x before it is added */
    int threads;
    size_t bytes[KOLO_TRIAL_BUFFERS]; /* of X, W, Y, BIAS and the workspace */
} conv;

static void conv_release(void *state)
{
    conv *c = state;
    if (!c) return;
    kolo_dnnl_destroy(&c->main);
    kolo_dnnl_destroy(&c->reorder);
    free(c);
}

static int run_main(const conv *c, void *const *pointer, void *scratch, bool arranged)
{
    if (!c->own.kind) return kolo_dnnl_run(c->main, pointer, scratch);
    kolo_conv_own_run(&c->own, pointer, scratch, arranged);
    return 0;
}

/* The weight is rearranged around the main part. pointer: X, W, Y, BIAS; arranged: it has
 * been, for an earlier part */
static int execute_main(const conv *c, void *const *pointer, void *workspace, bool arranged)
{
    void *inner[4] = {pointer[X], pointer[W], pointer[Y], pointer[BIAS]},
         *scratch = (char *)workspace + c->scratch_at;
    if (!c->reorder) return run_main(c, inner, scratch, arranged);
    inner[W] = workspace;
    if (c->pass == KOLO_DNNL_WEIGHT) {
        void *copy[2] = {workspace, pointer[W]};
        KOLO_TRY(run_main(c, inner, scratch, arranged));
        return kolo_dnnl_run(c->reorder, copy, scratch);
    }
    void *copy[2] = {pointer[W], workspace};
    if (!arranged) KOLO_TRY(kolo_dnnl_run(c->reorder, copy, scratch));
    return run_main(c, inner, scratch, arranged);
}

static int execute(const conv *c, void *const *pointer, void *workspace, bool arranged)
{
    if (!c->widened) return execute_main(c, pointer, workspace, arranged);
    float *x = (float *)((char *)workspace + c->wide_at), *y = x + kolo_round_up((size_t)c->x_count, 16);
    void *inner[4] = {x, pointer[W], y, pointer[BIAS]};
    if (c->pass != KOLO_DNNL_DATA) kolo_cpu_widen(x, pointer[X], c->x_count, c->threads);
    if (c->pass != KOLO_DNNL_FORWARD) kolo_cpu_widen(y, pointer[Y], c->y_count, c->threads);
    KOLO_TRY(execute_main(c, inner, workspace, arranged));
    if (c->pass == KOLO_DNNL_FORWARD) kolo_cpu_narrow(pointer[Y], y, c->y_count, c->threads);
    if (c->pass == KOLO_DNNL_DATA) kolo_cpu_narrow(pointer[X], x, c->x_count, c->threads);
    return 0;
}

/* Where something is added to x, which then stands in place of the bias. */
static int execute_added(const conv *c, void *const *pointer, void *workspace, bool arranged)
{
    if (c->addend < 0 || kolo_conv_own_adds(c->own.kind)) return execute(c, pointer, workspace, arranged);
    void *part[4] = {(char *)workspace + c->part_at, pointer[W], pointer[Y], NULL};
    KOLO_TRY(execute(c, part, workspace, arranged));
    kolo_cpu_sum(pointer[X], pointer[BIAS], part[X], c->x_count, c->x_bf16, c->threads);
    return 0;
}

static int execute_parts(const conv *c, void *const *pointer, void *workspace)
{
    const int64_t x = c->x_count << (c->x_bf16 ? 1 : 2), y = c->y_count << (c->x_bf16 ? 1 : 2);
    void *part[4] = {pointer[X], pointer[W], pointer[Y], pointer[BIAS]};
    for (int64_t i = 0; i < c->parts; i++) {
        KOLO_TRY(execute_added(c, part, workspace, i > 0));
        part[X] = (char *)part[X] + x;
        part[Y] = (char *)part[Y] + y;
        if (c->addend >= 0) part[BIAS] = (char *)part[BIAS] + x;
    }
    return 0;
}

/* ---- what is asked ------------------------------------------------------------------------------------- */

/* The tensors of a convolution or of one of its gradients, by their part in it. Of a gradient that is added,
 * x and y of some rows of the batch. */
typedef struct parts {
    enum kolo_dnnl_pass pass;
    kolo_tensor x, w, y;
    const kolo_tensor *bias;
    kolo_layout lx, lw, ly;
    int addend; /* tensor, or -1 */
    int64_t count;
} parts;

enum { PART_BYTES = 4 << 20 }; /* of x: stays in the second or third level of caches */

/* The fewest parts of equal rows that are not larger. */
static int64_t parts_of_batch(int64_t rows, size_t bytes)
{
    for (int64_t n = 1; n < rows; n++)
        if (rows % n == 0 && bytes / (size_t)n <= PART_BYTES) return n;
    return rows > 0 ? rows : 1;
}

static void shrink_to_part(kolo_tensor *t, kolo_layout *l, int64_t count)
{
    t->dim[0] /= count;
    l->bytes /= (size_t)count;
}

static parts parts_of(const kolo_kernel_request *r)
{
    const kolo_node *n = r->node;
    parts p = {.pass = KOLO_DNNL_FORWARD, .addend = -1, .count = 1};
    int x = n->in[0], w = n->in[1], y = n->out[0], bias = n->n_in > 2 ? n->in[2] : -1;
    if (n->op == KOLO_OP_conv_grad_data) {
        p.pass = KOLO_DNNL_DATA;
        p.addend = bias;
        x = n->out[0], y = n->in[0], bias = -1;
    } else if (n->op == KOLO_OP_conv_grad_weight) {
        p.pass = KOLO_DNNL_WEIGHT;
        w = n->out[0], y = n->in[1], bias = n->n_out > 1 ? n->out[1] : -1;
    }
    const kolo_tensor *t = r->graph->tensor;
    p.x = t[x], p.w = t[w], p.y = t[y], p.bias = bias >= 0 ? &t[bias] : NULL;
    p.lx = r->layout[x], p.lw = r->layout[w], p.ly = r->layout[y];
    if (p.addend < 0) return p;
    p.count = parts_of_batch(p.x.dim[0], p.lx.bytes);
    shrink_to_part(&p.x, &p.lx, p.count);
    shrink_to_part(&p.y, &p.ly, p.count);
    return p;
}

/* oneDNN keeps groups as an axis of their own; in memory (O, I/g, KH, KW) is the same. */
static int weight_dims(const parts *p, int64_t groups, int64_t dim[5])
{
    const int64_t *w = p->w.dim;
    int64_t grouped[5] = {groups, w[0] / groups, w[1], w[2], w[3]};
    int skip = groups == 1;
    memcpy(dim, grouped + skip, (size_t)(5 - skip) * sizeof *dim);
    return 5 - skip;
}

/* A block of 8 or 16 that is also the number of channels may be taken as either layout; the
 * other tensor decides. */
static bool blocked(const parts *p)
{
    int64_t bx = p->lx.block, by = p->ly.block;
    if (bx != 1 && bx != p->x.dim[1]) return true;
    if (by != 1 && by != p->y.dim[1]) return true;
    return (by == 8 || by == 16) && (bx == by || bx == 1);
}

static const kolo_dnnl_desc *map_desc(kolo_dnnl *d, const kolo_tensor *t, enum kolo_dtype dtype,
                                      const kolo_layout *l, bool blocks)
{
    bool block = blocks && (l->block == 8 || l->block == 16);
    return kolo_dnnl_map(d, dtype, t->dim, l->block, l->block != 1 && !block);
}

/* dtype: of the activations inside the primitive */
static int conv_spec(const kolo_kernel_request *r, const parts *p, bool winograd, enum kolo_dtype dtype,
                     kolo_dnnl_conv *c)
{
    kolo_dnnl *d = kolo_cpu_dnnl(r->backend);
    const kolo_attributes *a = &r->node->a;
    bool blocks = blocked(p);
    int64_t dim[5];
    int rank = weight_dims(p, a->groups, dim);
    *c = (kolo_dnnl_conv){.pass = p->pass, .winograd = winograd};
    c->x = map_desc(d, &p->x, dtype, &p->lx, blocks);
    c->y = map_desc(d, &p->y, dtype, &p->ly, blocks);
    c->w = kolo_dnnl_any(d, p->pass == KOLO_DNNL_WEIGHT ? KOLO_F32 : dtype, rank, dim);
    if (p->bias) c->bias = kolo_dnnl_plain(d, KOLO_F32, 1, p->bias->dim);
    memcpy(c->stride, a->stride, sizeof c->stride);
    memcpy(c->pad, a->pad, sizeof c->pad);
    memcpy(c->dilation, a->dilation, sizeof c->dilation);
    return c->x && c->y && c->w && (c->bias || !p->bias) ? 0 : kolo_error_status();
}

/* How the parameter (or its gradient) lies. */
static const kolo_dnnl_desc *param_desc(const kolo_kernel_request *r, const parts *p)
{
    int64_t dim[5];
    int rank = weight_dims(p, r->node->a.groups, dim);
    return p->lw.opaque ? p->lw.opaque : kolo_dnnl_plain(kolo_cpu_dnnl(r->backend), KOLO_F32, rank, dim);
}

/* ---- candidates ---------------------------------------------------------------------------------------- */

/* own: which own loops; keep: the weight stays as the parameter lies; wide: bf16 tensors are computed with in
 * f32, which is faster on CPUs whose bf16 instructions are slow. The first that is available is the
 * rule's. */
typedef struct candidate {
    const char *name;
    enum kolo_conv_own_kind own;
    bool winograd, keep, wide;
} candidate;
static const candidate candidates[] = {{"small", KOLO_CONV_SMALL, false, false, false},
                                       {"depthwise", KOLO_CONV_DEPTHWISE, false, false, false},
                                       {"direct", KOLO_CONV_LIBRARY, false, false, false},
                                       {"direct in place", KOLO_CONV_LIBRARY, false, true, false},
                                       {"winograd", KOLO_CONV_LIBRARY, true, false, false},
                                       {"winograd in place", KOLO_CONV_LIBRARY, true, true, false},
                                       {"own winograd", KOLO_CONV_WINOGRAD, true, false, false},
                                       {"own pointwise", KOLO_CONV_POINTWISE, false, false, false},
                                       {"own direct", KOLO_CONV_DIRECT, false, false, false},
                                       {"widened", KOLO_CONV_LIBRARY, false, true, true},
                                       {"widened winograd", KOLO_CONV_LIBRARY, true, true, true}};
#define CANDIDATES ((int)(sizeof candidates / sizeof *candidates))

/* Of the bias, or of what is added. */
static size_t bias_bytes(const parts *p)
{
    if (p->addend >= 0) return p->lx.bytes;
    return p->bias ? (size_t)p->bias->dim[0] * sizeof(float) : 0;
}

static kolo_conv_shape shape_of(const kolo_kernel_request *r, const parts *p)
{
    return (kolo_conv_shape){p->pass, &p->x, &p->w, &p->y, &p->lx, &p->ly, &r->node->a, r->backend->threads};
}

static void conv_describe(conv *c, const kolo_kernel_request *r, const parts *p)
{
    c->pass = p->pass;
    c->addend = p->addend < 0 ? -1 : kolo_op_addend(r->node->op);
    c->parts = p->count;
    c->x_bf16 = p->x.dtype == KOLO_BF16;
    c->x_count = (int64_t)(p->lx.bytes / kolo_dtype_size(p->x.dtype));
    c->y_count = (int64_t)(p->ly.bytes / kolo_dtype_size(p->y.dtype));
    c->threads = r->backend->threads;
}

/* Its workspace is known: the place of a part behind it, and what a trial gives it. */
static void conv_finish(conv *c, const parts *p, const kolo_dnnl_desc *param)
{
    if (c->addend >= 0 && !kolo_conv_own_adds(c->own.kind)) {
        c->part_at = kolo_round_up(c->workspace, KOLO_ALIGN);
        c->workspace = c->part_at + p->lx.bytes;
    }
    size_t bytes[] = {p->lx.bytes, kolo_dnnl_bytes(param), p->ly.bytes, bias_bytes(p), c->workspace};
    memcpy(c->bytes, bytes, sizeof bytes);
}

/* What rearranges the parameter for the main part, which has its weight as w, and the places in the
 * workspace; scratch: of the main part. */
static int place_parts(const kolo_kernel_request *r, const kolo_dnnl_desc *param, const kolo_dnnl_desc *w,
                       size_t scratch, conv *c)
{
    kolo_dnnl *d = kolo_cpu_dnnl(r->backend);
    if (w != param) {
        if (c->pass == KOLO_DNNL_WEIGHT) KOLO_TRY(kolo_dnnl_make_reorder(d, w, param, &c->reorder));
        else KOLO_TRY(kolo_dnnl_make_reorder(d, param, w, &c->reorder));
        c->wide_at = kolo_round_up(kolo_dnnl_bytes(w), KOLO_ALIGN);
    }
    size_t wide =
        c->widened ? kolo_round_up((size_t)c->x_count, 16) + kolo_round_up((size_t)c->y_count, 16) : 0;
    size_t other = c->reorder ? kolo_dnnl_scratch(c->reorder) : 0;
    c->scratch_at = c->wide_at + wide * sizeof(float);
    c->workspace = c->scratch_at + (scratch > other ? scratch : other);
    return 0;
}

/* Own loops want the weight as it is in the file, row-major, or in blocks. */
static int build_own(const kolo_kernel_request *r, const parts *p, enum kolo_conv_own_kind kind,
                     const kolo_dnnl_desc *param, conv **out)
{
    int64_t dim[5];
    kolo_conv_shape shape = shape_of(r, p);
    kolo_conv_own own = {0};
    kolo_dnnl *d = kolo_cpu_dnnl(r->backend);
    int rank = weight_dims(p, r->node->a.groups, dim);
    if (!kolo_conv_own_fits(&shape, kind, &own)) return 1;
    const bool blocks = kolo_conv_own_blocks(kind);
    const kolo_dnnl_desc *w =
        blocks ? kolo_dnnl_blocked_weight(d, dim) : kolo_dnnl_plain(d, KOLO_F32, rank, dim);
    if (!w) return kolo_error_status();
    if (param != w && !blocks) return 1;
    conv *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    conv_describe(c, r, p);
    c->own = own;
    int rc = place_parts(r, param, w, kolo_conv_own_bytes(&own), c);
    if (rc) {
        conv_release(c);
        return rc;
    }
    conv_finish(c, p, param);
    *out = c;
    return 0;
}

/* 0; 1: not available, or the same as an earlier candidate; negative: error */
static int conv_build(const kolo_kernel_request *r, const candidate *choice, conv **out)
{
    parts p = parts_of(r);
    kolo_dnnl_conv spec;
    const kolo_dnnl_desc *param = param_desc(r, &p);
    const bool half = p.x.dtype == KOLO_BF16;
    *out = NULL;
    if (!param) return kolo_error_status();
    if (choice->own) return build_own(r, &p, choice->own, param, out);
    if (choice->wide != half && (choice->wide || (choice->keep && half && p.pass != KOLO_DNNL_WEIGHT)))
        return 1;
    KOLO_TRY(conv_spec(r, &p, choice->winograd, choice->wide ? KOLO_F32 : p.x.dtype, &spec));
    if (choice->keep && !choice->wide) spec.w = param;
    conv *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    conv_describe(c, r, &p);
    c->widened = choice->wide;
    int rc = kolo_dnnl_make_conv(kolo_cpu_dnnl(r->backend), &spec, &c->main);
    if (rc == 0) rc = place_parts(r, param, kolo_dnnl_weight_of(c->main), kolo_dnnl_scratch(c->main), c);
    if (rc) {
        conv_release(c);
        return rc;
    }
    conv_finish(c, &p, param);
    *out = c;
    return 0;
}

typedef struct timed {
    const conv *c;
    const kolo_trial *trial;
} timed;
static int run_trial(void *context)
{
    const timed *t = context;
    return execute_added(t->c, t->trial->buffer, t->trial->buffer[SCRATCH], false);
}

/* oneDNN's reference code is for comparison: a hundred times slower, not worth a trial. */
static bool is_reference(const conv *c) { return c->main && !strncmp(kolo_dnnl_name(c->main), "ref", 3); }

static double seconds_of(const conv *c, double best)
{
    if (is_reference(c) || !kolo_trial_fits(c->bytes)) return 1e6;
    kolo_trial trial;
    int rc = kolo_trial_open(&trial, c->bytes);
    if (rc < 0) return rc;
    timed t = {c, &trial};
    double s = kolo_trial_seconds(run_trial, &t, best);
    kolo_trial_close(&trial);
    return s;
}

static void shape_text(const kolo_kernel_request *r, const parts *p, char *text, size_t size)
{
    const int64_t *x = p->x.dim, *w = p->w.dim;
    const kolo_attributes *a = &r->node->a;
    snprintf(text, size,
             "%s%s %s x %ld %ld %ld %ld w %ld %ld %ld %ld s %ld %ld p %ld %ld d %ld %ld g %ld b %ld %ld%s%s",
             kolo_op_table[r->node->op].name, r->backend->direct ? " direct" : "",
             kolo_dtype_name(p->x.dtype), (long)x[0], (long)x[1], (long)x[2], (long)x[3], (long)w[0],
             (long)w[1], (long)w[2], (long)w[3], (long)a->stride[0], (long)a->stride[1], (long)a->pad[0],
             (long)a->pad[1], (long)a->dilation[0], (long)a->dilation[1], (long)a->groups, (long)p->lx.block,
             (long)p->ly.block, p->bias ? " bias" : "", p->count > 1 ? " part" : "");
}

/* The fastest by the clock, or the first. */
static int conv_choose(const kolo_kernel_request *r, conv *made[CANDIDATES], bool clock, int *best)
{
    double least = 0;
    *best = -1;
    for (int i = 0; i < CANDIDATES; i++) {
        if (!made[i]) continue;
        double s = clock ? seconds_of(made[i], least) : 0;
        if (s < 0) return (int)s;
        if (*best < 0 || s < least) {
            *best = i;
            least = s;
        }
    }
    if (*best >= 0) return 0;
    parts p = parts_of(r);
    char shape[256];
    shape_text(r, &p, shape, sizeof shape);
    return kolo_fail(KOLO_ECONFIG, "oneDNN %s cannot compute %s on this CPU%s", kolo_dnnl_version(), shape,
                     p.x.dtype == KOLO_BF16 ? "; use precision=f32" : "");
}

static int build_all(const kolo_kernel_request *r, conv *made[CANDIDATES], int *count)
{
    *count = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        if (candidates[i].winograd && r->backend->direct) continue;
        int rc = conv_build(r, &candidates[i], &made[i]);
        if (rc < 0) return rc;
        bool same =
            rc == 0 && candidates[i].keep && !candidates[i].wide && made[i - 1] && !made[i - 1]->reorder;
        if (same) {
            conv_release(made[i]);
            made[i] = NULL;
        }
        *count += made[i] != NULL;
    }
    return 0;
}

static int select_by_rule(const kolo_kernel_request *r, conv **out)
{
    for (int i = 0; i < CANDIDATES; i++) {
        int rc = conv_build(r, &candidates[i], out);
        if (rc <= 0) return rc;
    }
    conv *none[CANDIDATES] = {NULL};
    int best;
    return conv_choose(r, none, false, &best);
}

static int select_by_clock(const kolo_kernel_request *r, const char *key, conv **out)
{
    conv *made[CANDIDATES] = {NULL};
    int count, best = -1, rc = build_all(r, made, &count);
    if (rc >= 0) rc = conv_choose(r, made, count > 1, &best);
    if (rc >= 0 && count > 1) rc = kolo_choices_add(&r->backend->choices, key, candidates[best].name);
    for (int i = 0; i < CANDIDATES; i++) {
        if (i == best && rc >= 0) *out = made[i];
        else conv_release(made[i]);
    }
    return rc;
}

/* As chosen before, here or by rank 0; else by the clock, or by rule where there is none. */
static int select_conv(const kolo_kernel_request *r, conv **out)
{
    parts p = parts_of(r);
    char key[256];
    shape_text(r, &p, key, sizeof key);
    const char *known = r->backend->deterministic ? NULL : kolo_choices_find(&r->backend->choices, key);
    for (int i = 0; known && i < CANDIDATES; i++)
        if (!strcmp(known, candidates[i].name)) {
            int rc = conv_build(r, &candidates[i], out);
            if (rc <= 0) return rc;
        }
    if (known) kolo_choices_doubt(&r->backend->choices, key, known);
    if (r->backend->deterministic || r->backend->choices.given) return select_by_rule(r, out);
    return select_by_clock(r, key, out);
}

double kolo_cpu_conv_seconds(const kolo_kernel_request *r)
{
    conv *c = NULL;
    int rc = select_conv(r, &c);
    if (rc < 0) return rc;
    double s = seconds_of(c, 0);
    if (s > 0) s *= (double)c->parts;
    conv_release(c);
    return s;
}

double kolo_cpu_conv_reference(const kolo_kernel_request *r)
{
    conv *c = NULL;
    int rc = select_by_rule(r, &c);
    if (rc < 0) return rc;
    const bool reference = is_reference(c);
    conv_release(c);
    return reference ? kolo_op_table[r->node->op].flops(r->graph, r->node) : 0;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static int conv_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)step;
    (void)slot;
    const conv *c = k->state;
    void *pointer[4];
    for (int i = 0; i < 4; i++) pointer[i] = c->at[i] >= 0 ? args[c->at[i]] : NULL;
    if (c->addend >= 0) pointer[BIAS] = args[c->addend];
    return execute_parts(c, pointer, workspace);
}

static int conv_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    conv *c = NULL;
    KOLO_TRY(select_conv(r, &c));
    const kolo_node *n = r->node;
    int forward[4] = {0, 1, n->n_in, n->n_in > 2 && n->in[2] >= 0 ? 2 : -1}, data[4] = {n->n_in, 1, 0, -1};
    int weight[4] = {0, 2, 1, n->n_out > 1 && n->out[1] >= 0 ? 3 : -1};
    memcpy(c->at,
           c->pass == KOLO_DNNL_FORWARD ? forward
           : c->pass == KOLO_DNNL_DATA  ? data
                                        : weight,
           sizeof c->at);
    k->state = c;
    k->release = conv_release;
    k->run = conv_run;
    k->workspace = c->workspace;
    if (c->own.kind) snprintf(k->name, sizeof k->name, "%s", kolo_conv_own_name(c->own.kind));
    else
        snprintf(k->name, sizeof k->name, "oneDNN %s%s%s", kolo_dnnl_name(c->main),
                 c->reorder ? " + weight reorder" : "", c->widened ? ", widened" : "");
    if (c->addend >= 0) strncat(k->name, ", added", sizeof k->name - strlen(k->name) - 1);
    return c->main ? kolo_dnnl_warm(c->main, c->x_bf16 && !c->widened ? KOLO_BF16 : KOLO_F32) : 0;
}

/* The parameter gets the layout that this pass writes or reads best. */
static int choose_layout(const kolo_kernel_request *r, int param, kolo_layout *layout)
{
    if (param < 0 || layout[param].opaque) return 0;
    parts p = parts_of(r);
    kolo_conv_shape shape = shape_of(r, &p);
    kolo_conv_own own;
    if (kolo_conv_own_fits(&shape, KOLO_CONV_DEPTHWISE, &own)) return 0; /* plain */
    kolo_dnnl_conv spec;
    KOLO_TRY(conv_spec(r, &p, false, p.x.dtype, &spec));
    int64_t dim[5];
    int rank = weight_dims(&p, r->node->a.groups, dim);
    kolo_dnnl_primitive *primitive = NULL;
    int rc = kolo_dnnl_make_conv(kolo_cpu_dnnl(r->backend), &spec, &primitive);
    if (rc) return rc < 0 ? rc : 0;
    const kolo_dnnl_desc *w = kolo_dnnl_weight_of(primitive);
    if (kolo_dnnl_is_plain_memory(w)) w = kolo_dnnl_as(kolo_cpu_dnnl(r->backend), w, KOLO_F32);
    else w = kolo_dnnl_plain(kolo_cpu_dnnl(r->backend), KOLO_F32, rank, dim);
    kolo_dnnl_destroy(&primitive);
    if (!w) return kolo_error_status();
    layout[param] =
        (kolo_layout){.block = 1, .opaque = w, .hash = kolo_dnnl_hash(w), .bytes = kolo_dnnl_bytes(w)};
    return 0;
}

static int layout_forward(const kolo_kernel_request *r, kolo_layout *layout)
{
    return choose_layout(r, r->node->in[1], layout);
}
static int layout_gradient(const kolo_kernel_request *r, kolo_layout *layout)
{
    int gradient = r->node->out[0], param = r->graph->tensor[gradient].of;
    KOLO_TRY(choose_layout(r, param, layout));
    if (param >= 0) layout[gradient] = layout[param];
    return 0;
}

const kolo_op_row kolo_cpu_conv = {layout_forward, conv_prepare};
const kolo_op_row kolo_cpu_conv_grad_data = {NULL, conv_prepare};
const kolo_op_row kolo_cpu_conv_grad_weight = {layout_gradient, conv_prepare};
