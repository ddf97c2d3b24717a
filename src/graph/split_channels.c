/* Splitting channels: what channels.c chose becomes operations for each part.
 *
 *   y = conv(x)        of a region that is cut:  y_p = conv(x, w_p)      rows of the weight, the whole x
 *   z = conv(relu(y))                            z_p = conv(relu(y_p))   columns of the weight
 *                                                z   = total(z_p)        in the order of the parts
 *
 * So autodiff gives the backward half: the gradient of x is a total over the parts, that of z goes to all
 * (gradient.c), and what lies between stays with each part. The first part has what is whole. A parameter of
 * what is cut is a slab for each part, which nobody else reads: the bias of z is the first part's.
 *
 * Where only the layers from a module on are cut, a region may begin with a map that those in front made:
 *
 *   z = conv(relu(x))                            x_p = slice(x)               the channels of part p
 *                                                z_p = conv(relu(x_p))
 *
 * A slice is an operation of the layers in front. If these have x in parts of its pixels (split.c), each of
 * them slices what it has, and part p puts together the slices of all: from part i to part j of both go the
 * pixels of i of the channels of j, and nothing else; the gradients go the same way back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/channels.h"
#include "graph/rules.h"
#include "kolo/error.h"

/* Where a tensor of the graph is in the one that is made. */
typedef struct spread {
    int of[KOLO_MAX_ARGS]; /* of each part; whole: of[0] */
    int axis, runs;        /* of a parameter in slabs; runs 0: it is whole */
} spread;

typedef struct channels {
    const kolo_graph *from;
    kolo_graph *to;
    kolo_channel_plan plan;
    int64_t first, last; /* nodes that may be cut */
    int all;             /* parts of the graph: part p of these is its part p * all / parts */
    spread *spread;      /* [from->tensors] */
} channels;

static int home_of(const channels *c, int part) { return (int)kolo_part_start(c->all, c->plan.parts, part); }

/* Of `size` channels in `runs` runs those of a part, and with which of a run they begin. */
static int64_t part_channels(const channels *c, int64_t size, int runs, int part, int64_t *first)
{
    const int parts = c->plan.parts;
    *first = kolo_part_start(size / runs, parts, part);
    return (kolo_part_start(size / runs, parts, part + 1) - *first) * runs;
}

/* ---- parameters ---------------------------------------------------------------------------------------- */

static void cut_stored(const channels *c, int t, int axis, int runs)
{
    if (t < 0) return;
    const enum kolo_role role = c->from->tensor[t].role;
    if (role != KOLO_ROLE_PARAM && role != KOLO_ROLE_BUFFER) return;
    c->spread[t].axis = axis;
    c->spread[t].runs = runs;
}

/* How each parameter is cut follows from what reads it; running statistics from what makes them anew. */
static void find_slabs(const channels *c)
{
    for (int64_t i = 0; i < c->from->nodes; i++) {
        const kolo_node *n = &c->from->node[i];
        const int role = c->plan.role[i];
        if (role == KOLO_CHANNEL_CLASSES) continue;
        if (role == KOLO_CHANNEL_ROWS) cut_stored(c, n->in[1], 1, c->plan.runs[n->in[0]]);
        for (int k = 1; k < n->n_in; k++) {
            if (role == KOLO_CHANNEL_COLUMNS) cut_stored(c, n->in[k], 0, c->plan.runs[n->out[0]]);
            if (role == KOLO_CHANNEL_INSIDE)
                cut_stored(c, n->in[k], n->op == KOLO_OP_window_attention, c->plan.runs[n->out[0]]);
        }
        for (int k = 0; k < n->n_out && role == KOLO_CHANNEL_INSIDE; k++) {
            const int of = n->out[k] < 0 ? -1 : c->from->tensor[n->out[k]].of;
            cut_stored(c, of, 0, c->plan.runs[n->out[0]]);
            cut_stored(c, of < 0 ? -1 : of + 1, 0, c->plan.runs[n->out[0]]);
        }
    }
}

static int make_slab(channels *c, int t, int part)
{
    const kolo_tensor *x = &c->from->tensor[t];
    spread *s = &c->spread[t];
    char name[300];
    int64_t dim[KOLO_MAX_DIM], first;
    memcpy(dim, x->dim, sizeof dim);
    dim[s->axis] = part_channels(c, x->dim[s->axis], s->runs, part, &first);
    snprintf(name, sizeof name, "%s:part%d", x->name, part);
    const int made = kolo_graph_tensor(c->to, name, x->role, x->dtype, x->rank, dim);
    if (made < 0) return made;
    kolo_tensor *y = &c->to->tensor[made];
    y->init = x->init;
    y->decay = x->decay;
    y->frozen = x->frozen;
    y->part = home_of(c, part);
    y->slab = (kolo_slab){s->runs, s->axis, (int)strlen(x->name), x->dim[s->axis], first};
    return s->of[part] = made;
}

static int copy_whole(channels *c, int t)
{
    const kolo_tensor *x = &c->from->tensor[t];
    const int made = kolo_graph_tensor(c->to, x->name, x->role, x->dtype, x->rank, x->dim);
    if (made < 0) return made;
    c->to->tensor[made].init = x->init;
    c->to->tensor[made].decay = x->decay;
    c->to->tensor[made].frozen = x->frozen;
    c->to->tensor[made].part = x->part;
    c->to->tensor[made].slab = x->slab;
    return c->spread[t].of[0] = made;
}

/* Parameters, buffers, images and labels, in their order; but a mean and its variance, which are updated
 * together, stand side by side in every part. */
static int copy_stored(channels *c)
{
    for (int t = 0; t < c->from->tensors; t++) {
        const kolo_tensor *x = &c->from->tensor[t];
        if (x->producer >= 0) continue;
        if (!c->spread[t].runs) {
            KOLO_TRY(copy_whole(c, t));
            continue;
        }
        const bool pair = x->role == KOLO_ROLE_BUFFER;
        for (int p = 0; p < c->plan.parts; p++) {
            KOLO_TRY(make_slab(c, t, p));
            if (pair) KOLO_TRY(make_slab(c, t + 1, p));
        }
        t += pair;
    }
    return 0;
}

/* ---- nodes --------------------------------------------------------------------------------------------- */

/* Output k of a node inside a region, or of a product that makes one. */
static int make_part(channels *c, const kolo_node *n, int k, int part)
{
    const int t = n->out[k];
    const kolo_tensor *x = &c->from->tensor[t];
    int64_t dim[KOLO_MAX_DIM], first;
    char name[300];
    memcpy(dim, x->dim, sizeof dim);
    if (x->role == KOLO_ROLE_ACTIVATION) dim[1] = part_channels(c, x->dim[1], c->plan.runs[t], part, &first);
    else { /* sums and statistics: two of each channel, and one */
        dim[0] = 2 * part_channels(c, (x->dim[0] - 1) / 2, c->plan.runs[t], part, &first) + 1;
    }
    snprintf(name, sizeof name, "%s:part%d", x->name, part);
    const int made = kolo_graph_tensor(c->to, name, x->role, x->dtype, x->rank, dim);
    if (made < 0) return made;
    if (x->of >= 0) c->to->tensor[made].of = c->spread[x->of].of[part];
    return c->spread[t].of[part] = made;
}

static int copy_output(channels *c, int t)
{
    const kolo_tensor *x = &c->from->tensor[t];
    const int made = kolo_graph_tensor(c->to, x->name, x->role, x->dtype, x->rank, x->dim);
    if (made < 0) return made;
    if (x->of >= 0) c->to->tensor[made].of = c->spread[x->of].of[0];
    return c->spread[t].of[0] = made;
}

/* Input t as `part` reads it. */
static int input_of(const channels *c, int t, int part)
{
    if (t < 0) return -1;
    return c->spread[t].of[c->plan.runs[t] || c->spread[t].runs ? part : 0];
}

static void cut_attributes(const channels *c, const kolo_node *n, int part, kolo_attributes *a)
{
    const kolo_tensor *x = &c->from->tensor[n->in[0]];
    if (n->op == KOLO_OP_conv || n->op == KOLO_OP_window_attention) a->groups /= c->plan.parts;
    if (n->op == KOLO_OP_arc_margin) {
        a->count = x->dim[1];
        part_channels(c, x->dim[1], 1, part, &a->first);
    }
    if (n->op != KOLO_OP_dropout) return;
    part_channels(c, x->dim[1], 1, part, &a->first);
    for (int i = 2; i < x->rank; i++) a->first *= x->dim[i];
}

/* Of every part one; the parts follow each other. */
static int cut_node(channels *c, const kolo_node *n, bool inside)
{
    for (int p = 0; p < c->plan.parts; p++) {
        kolo_node own = *n;
        c->to->part = home_of(c, p);
        own.channels = true;
        for (int k = 0; k < n->n_in; k++) own.in[k] = input_of(c, n->in[k], p);
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] >= 0 && (own.out[k] = make_part(c, n, k, p)) < 0) return own.out[k];
        if (inside) cut_attributes(c, n, p, &own.a);
        KOLO_TRY(kolo_graph_node_as(c->to, &own));
    }
    return 0;
}

/* y_p of each part's channels of x, the bias with the first; their sum. */
static int add_products(channels *c, const kolo_node *n)
{
    const kolo_tensor *y = &c->from->tensor[n->out[0]];
    kolo_node total = {.op = KOLO_OP_total, .n_in = c->plan.parts, .n_out = 1};
    for (int p = 0; p < c->plan.parts; p++) {
        kolo_node own = *n;
        char name[300];
        snprintf(name, sizeof name, "%s:term%d", y->name, p);
        c->to->part = home_of(c, p);
        own.channels = true;
        for (int k = 0; k < n->n_in; k++) own.in[k] = input_of(c, n->in[k], p);
        if (p > 0) own.n_in = 2;
        own.out[0] = total.in[p] = kolo_graph_tensor(c->to, name, y->role, y->dtype, y->rank, y->dim);
        if (total.in[p] < 0) return total.in[p];
        KOLO_TRY(kolo_graph_node_as(c->to, &own));
    }
    c->to->part = 0;
    KOLO_TRY(total.out[0] = copy_output(c, n->out[0]));
    return kolo_graph_node_as(c->to, &total);
}

/* ---- losses of classes in parts ---- */

/* op(inputs) of `part`: a new tensor (N, width). Returns it. */
static int make_rows(channels *c, const kolo_node *n, enum kolo_op op, int part, int n_in, const int *in,
                     enum kolo_dtype dtype, int64_t width)
{
    const kolo_tensor *x = &c->from->tensor[n->in[0]];
    const int64_t dim[] = {x->dim[0], width};
    kolo_node own = {.op = op, .n_in = n_in, .n_out = 1, .a = n->a};
    char name[300], place[24] = "";
    if (part >= 0) snprintf(place, sizeof place, ":part%d", part);
    snprintf(name, sizeof name, "%.200s:%s%s", x->name, kolo_op_table[op].name, place);
    memcpy(own.in, in, (size_t)n_in * sizeof *in);
    own.a.count = x->dim[1];
    part_channels(c, x->dim[1], 1, part > 0 ? part : 0, &own.a.first);
    c->to->part = part > 0 ? home_of(c, part) : 0;
    own.out[0] = kolo_graph_tensor(c->to, name, KOLO_ROLE_TERM, dtype, 2, dim);
    if (own.out[0] < 0) return own.out[0];
    KOLO_TRY(kolo_graph_node_as(c->to, &own));
    return own.out[0];
}

/* Training: what is largest in each part, and in all; sums over each part relative to it, and over all; the
 * loss of these. No rank has the logits of all classes. */
static int sum_classes(channels *c, const kolo_node *n)
{
    const int label = input_of(c, n->in[1], 0), parts = c->plan.parts;
    int peaks[KOLO_MAX_ARGS], terms[KOLO_MAX_ARGS], all, sums;
    for (int p = 0; p < parts; p++) {
        const int in[] = {input_of(c, n->in[0], p), label};
        KOLO_TRY(peaks[p] = make_rows(c, n, KOLO_OP_class_peaks, p, 2, in, KOLO_F32, KOLO_PEAKS));
    }
    KOLO_TRY(all = make_rows(c, n, KOLO_OP_largest, -1, parts, peaks, KOLO_F32, KOLO_PEAKS));
    for (int p = 0; p < parts; p++) {
        const int in[] = {input_of(c, n->in[0], p), label, all};
        KOLO_TRY(terms[p] = make_rows(c, n, KOLO_OP_class_terms, p, 3, in, KOLO_F64, KOLO_TERMS));
    }
    KOLO_TRY(sums = make_rows(c, n, KOLO_OP_total, -1, parts, terms, KOLO_F64, KOLO_TERMS));
    kolo_node loss = {.op = KOLO_OP_class_loss, .n_in = 3, .n_out = 1, .in = {sums, all, label}, .a = n->a};
    loss.a.count = c->from->tensor[n->in[0]].dim[1];
    KOLO_TRY(loss.out[0] = copy_output(c, n->out[0]));
    return kolo_graph_node_as(c->to, &loss);
}

/* Evaluation: its answers are the logits. As few at once as concat takes. */
static int gather_classes(channels *c, const kolo_node *n)
{
    const int most = kolo_op_table[KOLO_OP_concat].max_in;
    kolo_node join = {.op = KOLO_OP_concat, .n_out = 1};
    const kolo_tensor *x = &c->from->tensor[n->in[0]];
    int64_t dim[KOLO_MAX_DIM];
    memcpy(dim, x->dim, sizeof dim);
    c->to->part = 0;
    for (int p = 0; p < c->plan.parts; p++) {
        const bool last = p + 1 == c->plan.parts;
        join.in[join.n_in++] = input_of(c, n->in[0], p);
        if (join.n_in < most && !last) continue;
        char name[300];
        snprintf(name, sizeof name, last ? "%s" : "%s:to%d", x->name, p);
        int64_t first;
        dim[1] = part_channels(c, x->dim[1], 1, p, &first) + first;
        join.out[0] = kolo_graph_tensor(c->to, name, x->role, x->dtype, x->rank, dim);
        if (join.out[0] < 0) return join.out[0];
        KOLO_TRY(kolo_graph_node_as(c->to, &join));
        join.in[0] = join.out[0];
        join.n_in = 1;
    }
    c->plan.runs[n->in[0]] = 0;
    c->spread[n->in[0]].of[0] = join.out[0];
    return 0;
}

static int copy_node(channels *c, const kolo_node *n)
{
    kolo_node own = *n;
    c->to->part = n->part;
    for (int k = 0; k < n->n_in; k++) own.in[k] = input_of(c, n->in[k], 0);
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) KOLO_TRY(own.out[k] = copy_output(c, n->out[k]));
    return kolo_graph_node_as(c->to, &own);
}

static int split_loss(channels *c, const kolo_node *n)
{
    if (c->from->train) return sum_classes(c, n);
    KOLO_TRY(gather_classes(c, n));
    return copy_node(c, n);
}

/* Of every map at the border that is cut behind it, the channels of each part. */
static int slice_borders(channels *c)
{
    for (int64_t t = 0; t < c->from->tensors; t++) {
        const kolo_tensor *x = &c->from->tensor[t];
        if (x->producer < 0 || !kolo_channel_is_border(&c->plan, c->from, c->first, t)) continue;
        kolo_node slice = {.op = KOLO_OP_slice, .n_in = 1, .n_out = 1, .in = {c->spread[t].of[0]}};
        slice.a.groups = c->plan.parts;
        c->to->part = c->from->node[x->producer].part;
        for (int p = 0; p < c->plan.parts; p++) {
            char name[300];
            int64_t dim[KOLO_MAX_DIM];
            memcpy(dim, x->dim, sizeof dim);
            slice.a.count = dim[1] = part_channels(c, x->dim[1], 1, p, &slice.a.first);
            snprintf(name, sizeof name, "%s:channels%d", x->name, p);
            slice.out[0] = kolo_graph_tensor(c->to, name, x->role, x->dtype, x->rank, dim);
            if (slice.out[0] < 0) return slice.out[0];
            KOLO_TRY(kolo_graph_node_as(c->to, &slice));
            c->spread[t].of[p] = slice.out[0];
        }
    }
    return 0;
}

static int split_nodes(channels *c)
{
    for (int64_t i = 0; i < c->from->nodes; i++) {
        if (i == c->first) KOLO_TRY(slice_borders(c));
        const kolo_node *n = &c->from->node[i];
        const int role = c->plan.role[i];
        KOLO_TRY(role == KOLO_CHANNEL_WHOLE     ? copy_node(c, n)
                 : role == KOLO_CHANNEL_CLASSES ? split_loss(c, n)
                 : role == KOLO_CHANNEL_ROWS    ? add_products(c, n)
                                                : cut_node(c, n, role == KOLO_CHANNEL_INSIDE));
    }
    return 0;
}

/* ---- the graph ----------------------------------------------------------------------------------------- */

static int list_possible(const kolo_graph *g, int64_t first, int64_t last, char text[64])
{
    int length = snprintf(text, 64, "1");
    for (int parts = 2; parts <= KOLO_MAX_ARGS && length < 56; parts++) {
        kolo_channel_plan plan;
        KOLO_TRY(kolo_channel_plan_create(&plan, g, parts, first, last));
        if (plan.regions) length += snprintf(text + length, 64 - (size_t)length, ", %d", parts);
        kolo_channel_plan_free(&plan);
    }
    return 0;
}

/* What is cut of a graph: the layers from a module on (NULL: all), up to another one (NULL: the end). */
typedef struct layers {
    const char *from, *to;
    int parts;
    int64_t first, last; /* nodes */
} layers;

static int fail_parts(const kolo_graph *g, const layers *l)
{
    char possible[64];
    KOLO_TRY(list_possible(g, l->first, l->last, possible));
    if (l->from)
        return kolo_fail(KOLO_ECONFIG,
                         "spatial=: %s:tensor=%d: no layers of %s from there %s%s can be cut into %d parts: "
                         "none whose channels, groups or heads are a multiple of it; possible: %s",
                         l->from, l->parts, g->name, l->to ? "to " : "on", l->to ? l->to : "", l->parts,
                         possible);
    return kolo_fail(
        KOLO_ECONFIG,
        "tensor=%d: no layers of %s can be cut into %d parts: none whose channels, groups or heads "
        "are a multiple of it; possible: %s",
        l->parts, g->name, l->parts, possible);
}

static void finish(channels *c, kolo_graph *g)
{
    int *const result[] = {&g->input, &g->label, &g->logits, &g->features, &g->metrics};
    for (int i = 0; i < 5; i++) /* logits that are not put together are nobody's answer */
        if (*result[i] >= 0) *result[i] = c->plan.runs[*result[i]] ? -1 : c->spread[*result[i]].of[0];
    for (int i = 0; i < g->heads; i++) g->head[i] = c->spread[g->head[i]].of[0];
    kolo_graph_exchange(g, c->to);
    g->parts[2] = c->all;
    if (!*g->uncut) memcpy(g->uncut, c->plan.uncut, sizeof g->uncut);
}

/* all: parts of the graph. */
static int split_layers(kolo_graph *g, const layers *l, int all)
{
    channels c = {.from = g, .first = l->first, .last = l->last, .all = all};
    if (g->grad) return kolo_fail(KOLO_EINTERNAL, "graph %s has gradients: it is cut before", g->name);
    if (l->parts == 1) return 0;
    if (l->parts > KOLO_MAX_ARGS) return fail_parts(g, l);
    KOLO_TRY(kolo_channel_plan_create(&c.plan, g, l->parts, l->first, l->last));
    int rc = c.plan.regions ? kolo_graph_create(&c.to, g->name, g->train, g->dtype) : fail_parts(g, l);
    if (rc == 0 && !(c.spread = kolo_alloc(((size_t)g->tensors + 1) * sizeof *c.spread))) rc = KOLO_ENOMEM;
    if (rc == 0) {
        find_slabs(&c);
        rc = copy_stored(&c);
    }
    if (rc >= 0) rc = split_nodes(&c);
    if (rc >= 0) finish(&c, g);
    free(c.spread);
    kolo_channel_plan_free(&c.plan);
    if (c.to) kolo_graph_destroy(&c.to);
    return rc < 0 ? rc : 0;
}

int kolo_graph_split_channels(kolo_graph *g, int parts)
{
    return split_layers(g, &(layers){.parts = parts, .last = g->nodes}, parts);
}

/* The last ones first: what is not cut yet stands in front of them. */
int kolo_graph_split_late(kolo_graph *g, const kolo_cuts *cuts)
{
    layers l = {.last = g->nodes};
    for (int r = cuts->ranges - 1; r >= 0 && cuts->range[r].channels; r--) {
        l.from = cuts->range[r].from;
        l.parts = cuts->range[r].channels;
        l.first = kolo_graph_module(g, g->nodes, l.from);
        if (l.first < 0) return kolo_graph_module_unknown(g, g->nodes, "spatial", l.from);
        if (l.first >= l.last)
            return kolo_fail(KOLO_ECONFIG,
                             "spatial=: %s is not behind the module in front of it; name them in the "
                             "network's order",
                             l.to);
        KOLO_TRY(split_layers(g, &l, kolo_cuts_parts(cuts)));
        l.to = l.from;
        l.last = l.first;
    }
    return 0;
}
