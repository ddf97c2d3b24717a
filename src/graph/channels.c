/* Which channels can be cut into parts, and which are.
 *
 * Maps hang together through the operations that work channel by channel: a region. Where a region is made of
 * nothing but products (convolutions, linear layers) and read by nothing but products, its channels can be
 * cut: those that make it give every part its own output channels (column-parallel), those that read it add
 * up what the parts make of theirs (row-parallel), and nothing is sent in between (Shoeybi et al.,
 * arXiv:1909.08053, of a transformer's two pairs). A convolution between two such regions serves one of them.
 * Classes are such channels, too: what reads them is the softmax's loss, a sum over the parts.
 *
 * Where the layers that may be cut begin further on, the maps that they read of those in front are a border:
 * of such a map, too, each part may read its own channels, as if a product had made them.
 *
 * Regions are chosen in this order: those in which no maps are added before residual trunks; those with at
 * least as many channels as what is sent for them, before narrow ones; those read by fewer products; those
 * that come first. But none all of whose products another one has as well (squeeze and excitation inside an
 * expanded block). The choice depends on numbers of channels alone, not on sizes of
 * images, so that all graphs of a network have the same. */
#include "graph/channels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

typedef struct region {
    bool possible; /* for some number of parts */
    bool fits;     /* for this one */
    bool adds;
    int rows, columns; /* products that read, and make, it */
    int first;         /* of these that make it */
    /* most channels of its maps, and of what its products read, or make, outside */
    int64_t width, outside;
    int64_t units; /* channels, groups or heads that do not fit */
    bool seen;
} region;

typedef struct survey {
    const kolo_graph *g;
    int parts;
    int64_t first, last; /* nodes; those in front of the first, and from the last on, stay as they are */
    int answer;     /* tensor that a loss of classes reads, and so may be put out in parts; -1: none such */
    int *root;      /* [tensors] a tensor of the same region: a forest */
    int *runs;      /* [tensors] */
    int *readers;   /* [tensors] */
    region *region; /* [tensors] at roots */
    bool *used;     /* [nodes] products of a region that is cut */
    bool borders;   /* regions may begin with maps that layers in front made */
} survey;

static int region_of(const survey *s, int t)
{
    while (s->root[t] != t) t = s->root[t];
    return t;
}

static bool is_stored(const kolo_tensor *t)
{
    return t->role == KOLO_ROLE_PARAM || t->role == KOLO_ROLE_BUFFER;
}

/* A loss that adds that of auxiliary logits reads both whole. */
static enum kolo_channels kind_of(const kolo_node *n)
{
    const enum kolo_channels c = kolo_op_table[n->op].channels;
    return c == KOLO_CHANNELS_CLASSES && n->n_in > 2 ? KOLO_CHANNELS_WHOLE : c;
}

static bool is_product(const kolo_node *n)
{
    return (kind_of(n) == KOLO_CHANNELS_PRODUCT || kind_of(n) == KOLO_CHANNELS_COLUMNS) && n->a.groups <= 1;
}

static bool is_inside(const kolo_node *n)
{
    const enum kolo_channels c = kind_of(n);
    return c != KOLO_CHANNELS_WHOLE && c != KOLO_CHANNELS_MADE && c != KOLO_CHANNELS_CLASSES &&
           !is_product(n);
}

/* An input that is a map, or what was made of one. */
static bool is_map_input(const survey *s, const kolo_node *n, int k)
{
    const kolo_tensor *t = n->in[k] < 0 ? NULL : &s->g->tensor[n->in[k]];
    return t && !is_stored(t) && t->role != KOLO_ROLE_LABEL;
}

/* ---- regions ------------------------------------------------------------------------------------------- */

static void join(const survey *s, int a, int b)
{
    const int x = region_of(s, a), y = region_of(s, b);
    if (x < y) s->root[y] = x;
    else s->root[x] = y;
}

static bool is_in_range(const survey *s, int64_t node) { return node >= s->first && node < s->last; }

static void find_regions(const survey *s)
{
    for (int64_t i = 0; i < s->g->nodes; i++) {
        const kolo_node *n = &s->g->node[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0) s->readers[n->in[k]]++;
        if (!is_inside(n) || !is_in_range(s, i)) continue;
        for (int k = 0; k < n->n_in; k++)
            if (is_map_input(s, n, k)) join(s, n->out[0], n->in[k]);
        for (int k = 1; k < n->n_out; k++)
            if (n->out[k] >= 0) join(s, n->out[0], n->out[k]);
    }
}

static region *made_region(const survey *s, const kolo_node *n)
{
    return &s->region[region_of(s, n->out[0])];
}

/* Runs of the channels that a node inside a region makes; false: it takes none such. */
static bool find_runs(const survey *s, const kolo_node *n)
{
    const kolo_graph *g = s->g;
    const int from = s->runs[n->in[0]];
    const int64_t channels = g->tensor[n->in[0]].dim[1];
    int runs = from;
    switch (kind_of(n)) {
    case KOLO_CHANNELS_HEADS: { /* of what makes it: queries, keys, values */
        const int maker = g->tensor[n->in[0]].producer;
        if (maker < s->first || maker < 0 || !is_product(&g->node[maker]) || s->readers[n->in[0]] != 1)
            return false;
        s->runs[n->in[0]] = 3;
        runs = 1;
        break;
    }
    case KOLO_CHANNELS_SQUARE: runs = 4 * from; break;
    case KOLO_CHANNELS_FLAT:
    case KOLO_CHANNELS_PRODUCT:
        if (from != 1) return false;
        break;
    case KOLO_CHANNELS_JOIN:
        runs = 0;
        for (int k = 0; k < n->n_in; k++) {
            if (s->runs[n->in[k]] != from || g->tensor[n->in[k]].dim[1] != channels) return false;
            runs += from;
        }
        break;
    default:
        if (n->op == KOLO_OP_dropout && from != 1) return false;
        for (int k = 0; k < n->n_in; k++)
            if (is_map_input(s, n, k) && s->runs[n->in[k]] != from) return false;
    }
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) s->runs[n->out[k]] = runs;
    return true;
}

/* Whether the operation adds maps. */
static bool adds(const kolo_node *n)
{
    switch (n->op) {
    case KOLO_OP_add: return true;
    case KOLO_OP_residual: return n->n_in > 2 && n->in[2] >= 0;
    case KOLO_OP_norm_apply: return n->n_in > 4 && n->in[4] >= 0;
    case KOLO_OP_norm_infer: return n->n_in > 5 && n->in[5] >= 0;
    default: return false;
    }
}

/* The region cannot be cut (fits = false) unless `units` (channels, groups, heads) divide into the parts. */
static void require_multiple(const survey *s, region *r, int64_t units)
{
    if (units % s->parts == 0) return;
    r->fits = false;
    if (!r->units || units < r->units) r->units = units;
}

/* The same of the channels of tensor t; an output of the graph, or an input, cannot be cut at all. */
static void require_map(const survey *s, int t)
{
    const kolo_tensor *x = &s->g->tensor[t];
    region *r = &s->region[region_of(s, t)];
    if ((kolo_graph_is_output(s->g, t) && t != s->answer) || x->producer < 0) r->possible = false;
    if (x->role == KOLO_ROLE_ACTIVATION && x->dtype != KOLO_U8 && x->rank > 1)
        require_multiple(s, r, x->dim[1] / s->runs[t]);
}

/* Parameters of a product, or of an operation inside a region, are its own. */
static bool has_own_parameters(const survey *s, const kolo_node *n)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0 && is_stored(&s->g->tensor[n->in[k]]) && s->readers[n->in[k]] > 1) return false;
    return true;
}

static void widen(region *r, int64_t width, int64_t outside)
{
    if (width > r->width) r->width = width;
    if (outside > r->outside) r->outside = outside;
}

static void survey_product(const survey *s, int node)
{
    const kolo_graph *g = s->g;
    const kolo_node *n = &g->node[node];
    const int in = region_of(s, n->in[0]), out = region_of(s, n->out[0]);
    region *from = &s->region[in], *to = &s->region[out];
    if (in == out || !has_own_parameters(s, n)) from->possible = to->possible = false;
    if (kind_of(n) == KOLO_CHANNELS_COLUMNS) from->possible = false;
    require_map(s, n->in[0]);
    require_map(s, n->out[0]);
    widen(from, g->tensor[n->in[0]].dim[1], g->tensor[n->out[0]].dim[1]);
    widen(to, g->tensor[n->out[0]].dim[1], g->tensor[n->in[0]].dim[1]);
    from->rows++;
    if (to->columns++ == 0) to->first = node;
}

static void survey_inside(const survey *s, const kolo_node *n)
{
    region *r = made_region(s, n);
    if (!has_own_parameters(s, n)) r->possible = false;
    r->adds |= adds(n);
    for (int k = 0; k < n->n_in; k++)
        if (is_map_input(s, n, k)) require_map(s, n->in[k]);
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) require_map(s, n->out[k]);
    if (n->op == KOLO_OP_conv || n->op == KOLO_OP_window_attention) require_multiple(s, r, n->a.groups);
}

/* A loss reads the region; what stands behind it are metrics. */
static void survey_classes(const survey *s, const kolo_node *n)
{
    const int64_t classes = s->g->tensor[n->in[0]].dim[1];
    region *r = &s->region[region_of(s, n->in[0])];
    require_map(s, n->in[0]);
    widen(r, classes, 0);
    if (s->runs[n->in[0]] != 1 || s->readers[n->in[0]] > 1) r->possible = false;
    r->rows++;
}

static void survey_whole(const survey *s, const kolo_node *n)
{
    for (int k = 0; k < n->n_in; k++)
        if (is_map_input(s, n, k)) s->region[region_of(s, n->in[k])].possible = false;
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) s->region[region_of(s, n->out[k])].possible = false;
}

/* Tensor t is made in front of all that may be cut: a region may begin with a map, but with no sums. */
static void survey_border(const survey *s, int t)
{
    const kolo_tensor *x = &s->g->tensor[t];
    region *r = &s->region[region_of(s, t)];
    if (x->role != KOLO_ROLE_ACTIVATION || x->rank != 4) r->possible = false;
    require_map(s, t);
    widen(r, x->dim[1], 0);
    if (!r->columns || x->producer < r->first) r->first = x->producer;
    r->columns++;
}

static void survey_borders(const survey *s)
{
    for (int64_t i = s->first; i < s->last; i++) {
        const kolo_node *n = &s->g->node[i];
        for (int k = 0; k < n->n_in; k++) {
            const int maker = n->in[k] < 0 ? -1 : s->g->tensor[n->in[k]].producer;
            if (maker >= 0 && maker < s->first) survey_border(s, n->in[k]);
        }
    }
}

static void survey_nodes(const survey *s)
{
    const kolo_graph *g = s->g;
    for (int64_t t = 0; t < g->tensors; t++) {
        s->runs[t] = 1;
        s->region[t] = (region){.possible = true, .fits = true};
    }
    for (int64_t i = s->first; i < s->last; i++)
        if (is_inside(&g->node[i]) && !find_runs(s, &g->node[i]))
            made_region(s, &g->node[i])->possible = false;
    survey_borders(s);
    for (int64_t i = s->first; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        if (i >= s->last) survey_whole(s, n);
        else if (is_product(n)) survey_product(s, (int)i);
        else if (is_inside(n)) survey_inside(s, n);
        else if (kind_of(n) == KOLO_CHANNELS_CLASSES) survey_classes(s, n);
        else survey_whole(s, n);
    }
}

/* ---- choice -------------------------------------------------------------------------------------------- */

static bool touches(const survey *s, const kolo_node *n, int r)
{
    return is_product(n) && (region_of(s, n->in[0]) == r || region_of(s, n->out[0]) == r);
}

static bool has_border(const survey *s, int r) { return s->region[r].first < s->first; }

static bool is_candidate(const survey *s, int t)
{
    const region *r = &s->region[t];
    return s->root[t] == t && r->possible && r->rows && r->columns && (s->borders || !has_border(s, t));
}

/* Whether region `other` has all products of region `r`, and more. */
static bool contains(const survey *s, int other, int r)
{
    bool more = false;
    if (has_border(s, r)) return false;
    for (int64_t i = s->first; i < s->last; i++) {
        const bool own = touches(s, &s->g->node[i], r), also = touches(s, &s->g->node[i], other);
        if (own && !also) return false;
        more |= also && !own;
    }
    return more;
}

static bool is_contained(const survey *s, int r)
{
    for (int t = 0; t < s->g->tensors; t++)
        if (t != r && is_candidate(s, t) && s->region[t].fits && !s->region[t].adds && contains(s, t, r))
            return true;
    return false;
}

static bool comes_before(const region *a, const region *b)
{
    if (a->adds != b->adds) return b->adds;
    const bool narrow = a->width < a->outside;
    if (narrow != (b->width < b->outside)) return !narrow;
    if (a->rows != b->rows) return a->rows < b->rows;
    return a->first < b->first;
}

/* The next one to be looked at; -1: there is none. */
static int next_region(const survey *s)
{
    int best = -1;
    for (int t = 0; t < s->g->tensors; t++)
        if (is_candidate(s, t) && !s->region[t].seen &&
            (best < 0 || comes_before(&s->region[t], &s->region[best])))
            best = t;
    return best;
}

static bool is_free(const survey *s, int r)
{
    for (int64_t i = s->first; i < s->last; i++)
        if (s->used[i] && touches(s, &s->g->node[i], r)) return false;
    return true;
}

static void take_region(const survey *s, int r, kolo_channel_plan *plan)
{
    const kolo_graph *g = s->g;
    plan->regions++;
    for (int64_t t = 0; t < g->tensors; t++)
        if (region_of(s, (int)t) == r) plan->runs[t] = s->runs[t];
    for (int64_t i = s->first; i < s->last; i++) {
        const kolo_node *n = &g->node[i];
        if (touches(s, n, r)) {
            s->used[i] = true;
            plan->role[i] = region_of(s, n->out[0]) == r ? KOLO_CHANNEL_COLUMNS : KOLO_CHANNEL_ROWS;
        } else if (is_inside(n) && region_of(s, n->out[0]) == r) {
            plan->role[i] = KOLO_CHANNEL_INSIDE;
        } else if (kind_of(n) == KOLO_CHANNELS_CLASSES && region_of(s, n->in[0]) == r) {
            plan->role[i] = KOLO_CHANNEL_CLASSES;
        }
    }
}

/* "layer1.0.conv1 (16)" */
static void note_uncut(const survey *s, int r, kolo_channel_plan *plan)
{
    const size_t used = strlen(plan->uncut), room = sizeof plan->uncut - used;
    const kolo_tensor *t = &s->g->tensor[s->g->node[s->region[r].first].out[0]];
    if (strlen(t->name) + 24 > room) {
        if (room > 5 && !strstr(plan->uncut, " ...")) snprintf(plan->uncut + used, room, " ...");
        return;
    }
    snprintf(plan->uncut + used, room, "%s%s (%" PRId64 ")", used ? ", " : "", t->name, s->region[r].units);
}

static void choose(const survey *s, kolo_channel_plan *plan)
{
    plan->regions = 0;
    *plan->uncut = 0;
    memset(plan->runs, 0, (size_t)s->g->tensors * sizeof *plan->runs);
    memset(plan->role, 0, (size_t)s->g->nodes);
    memset(s->used, 0, (size_t)s->g->nodes * sizeof *s->used);
    for (int64_t t = 0; t < s->g->tensors; t++) s->region[t].seen = false;
    for (int r; (r = next_region(s)) >= 0;) {
        s->region[r].seen = true;
        if (s->region[r].fits && is_free(s, r) && !is_contained(s, r)) take_region(s, r, plan);
    }
    for (int t = 0; t < s->g->tensors; t++)
        if (is_candidate(s, t) && !s->region[t].fits && !has_border(s, t) && is_free(s, t))
            note_uncut(s, t, plan);
}

/* Weights of products that are left whole. */
static double left_whole(const survey *s)
{
    double sum = 0;
    for (int64_t i = s->first; i < s->last; i++) {
        const kolo_node *n = &s->g->node[i];
        if (is_product(n) && !s->used[i]) sum += (double)kolo_tensor_count(&s->g->tensor[n->in[1]]);
    }
    return sum;
}

/* What begins at the border has another pairing behind it. It is taken unless that leaves more weights
 * whole. */
static void choose_border(survey *s, kolo_channel_plan *plan)
{
    choose(s, plan);
    if (s->first == 0) return;
    const double without = left_whole(s);
    s->borders = true;
    choose(s, plan);
    if (left_whole(s) <= without) return;
    s->borders = false;
    choose(s, plan);
}

/* ---- the plan ------------------------------------------------------------------------------------------ */

void kolo_channel_plan_free(kolo_channel_plan *plan)
{
    free(plan->runs);
    free(plan->role);
    *plan = (kolo_channel_plan){0};
}

int kolo_channel_plan_create(kolo_channel_plan *plan, const kolo_graph *g, int parts, int64_t first,
                             int64_t last)
{
    const size_t tensors = (size_t)g->tensors + 1, nodes = (size_t)g->nodes + 1;
    survey s = {.g = g, .parts = parts, .first = first, .last = last, .answer = -1};
    *plan = (kolo_channel_plan){
        .parts = parts, .runs = kolo_alloc(tensors * sizeof *plan->runs), .role = kolo_alloc(nodes)};
    s.root = kolo_alloc(tensors * sizeof *s.root);
    s.runs = kolo_alloc(tensors * sizeof *s.runs);
    s.readers = kolo_alloc(tensors * sizeof *s.readers);
    s.region = kolo_alloc(tensors * sizeof *s.region);
    s.used = kolo_alloc(nodes * sizeof *s.used);
    const bool there = plan->runs && plan->role && s.root && s.runs && s.readers && s.region && s.used;
    for (int t = 0; there && t < g->tensors; t++) s.root[t] = t;
    for (int64_t i = first; i < last; i++)
        if (kind_of(&g->node[i]) == KOLO_CHANNELS_CLASSES) s.answer = g->node[i].in[0];
    if (there) {
        find_regions(&s);
        survey_nodes(&s);
        choose_border(&s, plan);
    } else kolo_channel_plan_free(plan);
    free(s.root);
    free(s.runs);
    free(s.readers);
    free(s.region);
    free(s.used);
    return there ? 0 : KOLO_ENOMEM;
}
