/* Splitting: every map of pixels is cut into rows x columns parts, and an operation on maps into an operation
 * for each part (Dryden et al., IPDPS 2019). What it needs of other parts is brought to it by operations:
 *
 *   conv(x)   becomes, for part p,   s_q = tile(x_q)             the rows and columns of part q that the
 *                                    t   = tile(x_p, s_q, ...)   windows of p reach: the halo
 *                                    y_p = conv(t)               the border is zeros of t
 *
 * and norm_stats sums over each part, then over the parts (total). So autodiff gives the backward half: the
 * gradient of a halo goes back to the part that it came from, and the gradient of a parameter is the total
 * of what the parts make. A column of ops.def says how an operation is cut; what is WHOLE reads maps that
 * are put together. Parts are cut by size alone, so maps of one size are cut alike, and layers of one range
 * need nothing of each other's parts but halos. Attention over windows is cut by windows: where the map is
 * rolled, part p reads its windows of the rolled map, and what they make is rolled back.
 *
 * Channels may have been cut before (split_channels.c): an operation on one part of them is cut like any
 * other, and what is made of part c of the channels and part p of the image is part p x channel parts + c.
 *
 * The parts are mathematics: which rank computes which is no affair of the graph, but every node says of
 * which part it is. Where parts may be on several ranks, a parameter is one part's and the others read a
 * copy (share). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/split.h"
#include "kolo/error.h"

/* ---- what a part needs --------------------------------------------------------------------------------- */

/* What `made` of the operation's result, part `place` of `parts` along an axis, needs of its input, which has
 * `have` of it in the same part and `size` pixels in all; a: becomes the attributes that make it of just
 * that, roll: rows or columns by which the input is rolled before it is cut. */
static void needed_of(const kolo_node *n, int axis, int place, int parts, int64_t size, const kolo_area *made,
                      const kolo_area *have, kolo_area *need, kolo_attributes *a, int64_t *roll)
{
    const enum kolo_cut cut = kolo_op_table[n->op].cut;
    const kolo_window w = kolo_split_window(n, axis);
    int64_t first = made->at[axis] * w.stride - w.pad,
            last = (made->end[axis] - 1) * w.stride - w.pad + w.reach;
    const bool in_place = cut == KOLO_CUT_PLACE;
    need->at[axis] = in_place ? made->at[axis] : 0;
    need->end[axis] = in_place ? made->end[axis] : size;
    if (in_place || parts == 1) return;
    if (cut == KOLO_CUT_TIMES) {
        first = made->at[axis] / n->a.stride[axis];
        last = made->end[axis] / n->a.stride[axis];
    }
    if (cut == KOLO_CUT_WINDOWS) {
        *roll = n->a.pad[axis];
        a->pad[axis] = 0;
        if (place < parts - 1) a->beyond[axis] = 0;
    } else if (cut == KOLO_CUT_CONV) {
        a->pad[axis] = 0;
    } else { /* what lies outside is no pixel */
        const int64_t before = first < 0 ? -first : 0, behind = last > size ? last - size : 0;
        if (cut == KOLO_CUT_POOL) {
            a->pad[axis] = before;
            a->beyond[axis] = behind - before;
        }
        first += before;
        last -= behind;
    }
    /* rows that no window reaches may stay: then nothing is copied */
    const int64_t spare = have->end[axis] - last;
    if (first == have->at[axis] && spare > 0 && spare < w.stride && spare <= w.stride - w.reach)
        last = have->end[axis];
    need->at[axis] = first;
    need->end[axis] = last;
}

/* ---- nodes --------------------------------------------------------------------------------------------- */

static bool is_cut(const kolo_split *s, int t) { return t >= 0 && s->spread[t].parts > 1; }

/* An operation is cut where a map that it reads is (or is the image), and every part of what it makes has a
 * pixel. */
static bool can_cut(const kolo_split *s, int64_t node)
{
    const kolo_node *n = &s->from->node[node];
    const enum kolo_cut cut = kolo_op_table[n->op].cut;
    const int *grid = kolo_split_grid(s, node);
    const int64_t *y = s->from->tensor[n->out[0]].dim;
    bool reads = false;
    if (cut == KOLO_CUT_WHOLE || cut == KOLO_CUT_MADE || grid[0] * grid[1] == 1) return false;
    for (int k = 0; k < n->n_in; k++) reads |= is_cut(s, n->in[k]) || n->in[k] == s->from->input;
    if (cut != KOLO_CUT_SUMS && y[2] <= s->whole[0] && y[3] <= s->whole[1]) return false;
    return reads && kolo_split_can_cut(s->from, n, 0, grid[0]) && kolo_split_can_cut(s->from, n, 1, grid[1]);
}

/* A node of `from` that is cut, or stays whole: the grid is 1 x 1. */
typedef struct work {
    const kolo_node *n;
    enum kolo_cut cut;
    int grid[2], parts;
    int home[KOLO_MAX_ARGS]; /* of each part */
} work;

/* The part of the image, and of the channels there, as one number. Where channels are cut only behind the
 * last map that is, one of both is 0, and parts of the channels are numbered already. */
static int home_of(const kolo_split *s, int image, int channels)
{
    if (!kolo_cuts_late(s->cuts)) return image * kolo_split_channel_parts(s) + channels;
    const int parts = s->cuts->parts[0] * s->cuts->parts[1];
    return (int)kolo_part_start(kolo_cuts_parts(s->cuts), parts, image) + channels;
}

/* Where parts of the image lie, so do the parts of a coarser grid: with the first of them; each part of the
 * channels (split_channels.c) by itself. */
static work work_of(const kolo_split *s, int64_t node)
{
    const kolo_node *n = &s->from->node[node];
    work w = {.n = n, .cut = kolo_op_table[n->op].cut, .grid = {1, 1}, .parts = 1};
    const int *grid = kolo_split_grid(s, node), *image = s->cuts->parts;
    w.home[0] = home_of(s, 0, n->part);
    if (!can_cut(s, node)) return w;
    memcpy(w.grid, grid, sizeof w.grid);
    w.parts = grid[0] * grid[1];
    for (int p = 0; p < w.parts; p++)
        w.home[p] = home_of(s,
                            (int)kolo_part_start(image[0], grid[0], p / grid[1]) * image[1] +
                                (int)kolo_part_start(image[1], grid[1], p % grid[1]),
                            n->part);
    return w;
}

/* What part `part` of the work makes of map t: whole windows, or as all maps are cut. */
static kolo_area area_of(const kolo_split *s, const work *w, int t, int part)
{
    const kolo_tensor *x = &s->from->tensor[t];
    kolo_area a = kolo_split_area(x, w->grid, part);
    if (w->cut != KOLO_CUT_WINDOWS || w->parts == 1) return a;
    for (int i = 0; i < 2; i++) {
        const int64_t window = w->n->a.kernel[i], windows = x->dim[2 + i] / window;
        const int place = i ? part % w->grid[1] : part / w->grid[1];
        a.at[i] = window * kolo_part_start(windows, w->grid[i], place);
        a.end[i] = window * kolo_part_start(windows, w->grid[i], place + 1);
    }
    return a;
}

/* Output k of part `part`. What is reduced over the batch is made once: the others' is the same, and nobody
 * reads it. */
static int make_output(kolo_split *s, const work *w, int k, int part)
{
    const kolo_tensor *t = &s->from->tensor[w->n->out[k]];
    kolo_spread *there = &s->spread[w->n->out[k]];
    char name[300];
    int made;
    snprintf(name, sizeof name, w->parts > 1 ? "%s:part%d" : "%s", t->name, part);
    there->parts = w->parts;
    there->home[part] = w->home[part];
    if (kolo_split_is_map(t)) there->area[part] = area_of(s, w, w->n->out[k], part);
    if (w->parts > 1 && kolo_split_is_map(t)) {
        made = kolo_split_map(s, name, t, &there->area[part]);
    } else {
        const bool once = t->role == KOLO_ROLE_STATISTIC && part == 0;
        made = kolo_graph_tensor(s->to, once ? t->name : name,
                                 w->parts > 1 && !once ? KOLO_ROLE_TERM : t->role, t->dtype, t->rank, t->dim);
        if (made >= 0 && t->of >= 0 && part == 0) s->to->tensor[made].of = s->spread[t->of].of[0];
    }
    return there->of[part] = made;
}

static int make_node(kolo_split *s, const work *w, kolo_node *own, int part)
{
    s->to->part = w->home[part];
    for (int k = 0; k < w->n->n_out; k++)
        if (w->n->out[k] >= 0 && (own->out[k] = make_output(s, w, k, part)) < 0) return own->out[k];
    return kolo_graph_node_as(s->to, own);
}

/* ---- parameters of parts that are apart ---- */

/* The part of the image that has parameter t, whose first reader this is. What is read whole, and buffers,
 * are the first's. */
static int part_of_parameter(kolo_split *s, int t, const work *w)
{
    const kolo_tensor *x = &s->from->tensor[t];
    const kolo_graph *like = s->cuts->like;
    const int there = like ? kolo_graph_find(like, x->name) : -1;
    int least = w->home[0];
    if (there >= 0) least = like->tensor[there].part;
    else if (x->role == KOLO_ROLE_PARAM)
        for (int p = 1; p < w->parts; p++)
            if (s->load[w->home[p]] < s->load[least]) least = w->home[p];
    s->load[least] += (double)kolo_tensor_count(x);
    return least;
}

/* The tensor in which part `part` of the work reads parameter or buffer t. */
static int read_parameter(kolo_split *s, int t, const work *w, int part)
{
    const int stored = s->spread[t].of[0];
    if (!s->cuts->apart) return stored;
    if (!s->owned[t]) s->to->tensor[stored].part = part_of_parameter(s, t, w);
    s->owned[t] = true;
    if (s->to->tensor[stored].part == w->home[part]) return stored;
    if (s->copy[t]) return s->copy[t];
    const kolo_tensor x = s->to->tensor[stored];
    char name[300];
    snprintf(name, sizeof name, "share:%s", x.name);
    const int made = kolo_graph_tensor(s->to, name, KOLO_ROLE_TERM, x.dtype, x.rank, x.dim);
    if (made < 0) return made;
    s->to->tensor[made].of = stored;
    kolo_node share = {.op = KOLO_OP_share, .n_in = 1, .n_out = 1, .in = {stored}, .out = {made}};
    s->to->part = x.part;
    KOLO_TRY(kolo_graph_node_as(s->to, &share));
    return s->copy[t] = made;
}

static bool is_stored(const kolo_tensor *t)
{
    return t->role == KOLO_ROLE_PARAM || t->role == KOLO_ROLE_BUFFER;
}

/* ---- a node ---- */

/* Input k, a map, as part `part` needs it. */
static int bring_map(kolo_split *s, const work *w, int k, int part, kolo_node *own)
{
    const int t = w->n->in[k];
    const kolo_tensor *x = &s->from->tensor[t];
    const kolo_area made = area_of(s, w, w->cut == KOLO_CUT_SUMS ? t : w->n->out[0], part),
                    have = kolo_split_area(x, w->grid, part);
    const int place[] = {part / w->grid[1], part % w->grid[1]};
    int64_t roll[2] = {0};
    kolo_area need = have;
    char name[300];
    for (int i = 0; i < 2 && w->parts > 1; i++)
        needed_of(w->n, i, place[i], w->grid[i], x->dim[kolo_split_axis(x) + i], &made, &have, &need, &own->a,
                  &roll[i]);
    snprintf(name, sizeof name, "%.200s:in%d:part%d", s->from->tensor[w->n->out[0]].name, k, part);
    return kolo_split_piece(s, t, w->home[part], &need, roll, name);
}

/* What a node reads, as part `part` needs it; own: the node with it. */
static int bring_inputs(kolo_split *s, const work *w, kolo_node *own, int part)
{
    *own = *w->n;
    for (int k = 0; k < w->n->n_in; k++) {
        const int t = w->n->in[k];
        if (t < 0) continue;
        const kolo_tensor *x = &s->from->tensor[t];
        own->in[k] = is_stored(x)           ? read_parameter(s, t, w, part)
                     : kolo_split_is_map(x) ? bring_map(s, w, k, part, own)
                                            : s->spread[t].of[0];
        KOLO_TRY(own->in[k] < 0 ? own->in[k] : 0);
    }
    return 0;
}

/* The sums of the parts become one PARTIAL. */
static int add_sums(kolo_split *s, int t)
{
    const kolo_tensor *x = &s->from->tensor[t];
    kolo_spread *there = &s->spread[t];
    kolo_node total = {.op = KOLO_OP_total, .n_in = there->parts, .n_out = 1};
    const int home = there->home[0];
    memcpy(total.in, there->of, sizeof total.in);
    s->to->part = home;
    total.out[0] = kolo_graph_tensor(s->to, x->name, x->role, x->dtype, x->rank, x->dim);
    if (total.out[0] < 0) return total.out[0];
    *there = (kolo_spread){.parts = 1, .of = {total.out[0]}, .home = {home}};
    return kolo_graph_node_as(s->to, &total);
}

/* A map in other parts than it is in: `grid`, computed at home[]. suffix: of their names, a format of the
 * part. */
static int put_together(kolo_split *s, int t, const int grid[2], const int *home, const char *suffix)
{
    const kolo_tensor *x = &s->from->tensor[t];
    kolo_spread made = {.parts = grid[0] * grid[1]};
    for (int p = 0; p < made.parts; p++) {
        char name[300], part[40];
        snprintf(part, sizeof part, ":part%d", p);
        snprintf(name, sizeof name, "%.200s%s%s", x->name, suffix, made.parts > 1 ? part : "");
        made.home[p] = home[p];
        made.area[p] = kolo_split_area(x, grid, p);
        made.of[p] = kolo_split_piece(s, t, home[p], &made.area[p], (const int64_t[]){0, 0}, name);
        KOLO_TRY(made.of[p]);
    }
    s->spread[t] = made;
    for (int64_t i = 0; i < s->pieces; i++) /* were of the other parts, or moved by another roll */
        if (s->piece[i].map == t) s->piece[i].map = -1;
    return 0;
}

/* What is in the place of a pixel of another map, or a zero: cut, that is a tile and no operation. */
static int place_pixels(kolo_split *s, const work *w)
{
    kolo_spread *there = &s->spread[w->n->out[0]];
    there->parts = w->parts;
    for (int p = 0; p < w->parts; p++) {
        kolo_node own = *w->n;
        there->home[p] = w->home[p];
        there->area[p] = area_of(s, w, w->n->out[0], p);
        KOLO_TRY(there->of[p] = bring_map(s, w, 0, p, &own));
    }
    return 0;
}

/* The nodes of all parts follow each other, behind what brings them their inputs. */
static int make_nodes(kolo_split *s, const work *w)
{
    kolo_node *own = kolo_alloc((size_t)w->parts * sizeof *own);
    int rc = own ? 0 : KOLO_ENOMEM;
    for (int p = 0; rc >= 0 && p < w->parts; p++) rc = bring_inputs(s, w, &own[p], p);
    for (int p = 0; rc >= 0 && p < w->parts; p++) rc = make_node(s, w, &own[p], p);
    free(own);
    return rc < 0 ? rc : 0;
}

static int split_node(kolo_split *s, int64_t node)
{
    static const int whole[2] = {1, 1}, first[1] = {0};
    const work w = work_of(s, node);
    const kolo_node *n = w.n;
    if (w.cut == KOLO_CUT_PLACE && w.parts > 1) KOLO_TRY(place_pixels(s, &w));
    else KOLO_TRY(make_nodes(s, &w));
    if (w.parts > 1 && w.cut == KOLO_CUT_SUMS) KOLO_TRY(add_sums(s, n->out[0]));
    if (w.parts > 1 && w.cut == KOLO_CUT_WINDOWS) { /* what was rolled goes back */
        for (int i = 0; i < 2; i++) s->spread[n->out[0]].roll[i] = w.grid[i] > 1 ? n->a.pad[i] : 0;
        KOLO_TRY(put_together(s, n->out[0], w.grid, w.home, ":back"));
    }
    for (int k = 0; k < n->n_out; k++) /* what is put out is whole */
        if (is_cut(s, n->out[k]) && kolo_graph_is_output(s->from, n->out[k]))
            KOLO_TRY(put_together(s, n->out[k], whole, first, ":whole"));
    return 0;
}

/* ---- the graph ----------------------------------------------------------------------------------------- */

/* The first operation that reads the image; -1: none. */
static int64_t reader_of_image(const kolo_split *s)
{
    const kolo_graph *g = s->from;
    for (int64_t i = 0; g->input >= 0 && i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] == g->input) return i;
    return -1;
}

/* The parts of the image as inputs, each beside what reads it; g: the graph that will have them. */
static int load_parts(kolo_split *s, kolo_graph *g)
{
    const int64_t reader = s->cuts->load_parts ? reader_of_image(s) : -1;
    if (reader < 0 || !can_cut(s, reader)) return 0;
    const work w = work_of(s, reader);
    const kolo_tensor *x = &s->from->tensor[g->input];
    kolo_spread *there = &s->spread[g->input];
    for (int p = 0; p < w.parts; p++) {
        char name[300];
        snprintf(name, sizeof name, "%s:part%d", x->name, p);
        there->area[p] = kolo_split_area(x, w.grid, p);
        there->home[p] = w.home[p];
        KOLO_TRY(there->of[p] = g->image_part[p] = kolo_split_map(s, name, x, &there->area[p]));
        s->to->tensor[there->of[p]].part = w.home[p];
    }
    there->parts = w.parts;
    memcpy(g->input_grid, w.grid, sizeof w.grid);
    return 0;
}

/* Parameters, buffers, images and labels are in the new graph as they were. */
static int copy_stored(kolo_split *s)
{
    static const int whole[2] = {1, 1};
    for (int64_t t = 0; t < s->from->tensors; t++) {
        const kolo_tensor *x = &s->from->tensor[t];
        if (x->producer >= 0 || s->spread[t].parts) continue;
        const int made = kolo_graph_tensor(s->to, x->name, x->role, x->dtype, x->rank, x->dim);
        if (made < 0) return made;
        kolo_tensor *y = &s->to->tensor[made];
        y->init = x->init;
        y->decay = x->decay;
        y->frozen = x->frozen;
        y->slab = x->slab;
        y->part = home_of(s, 0, x->part);
        s->spread[t] = (kolo_spread){.parts = 1, .of = {made}, .home = {y->part}};
        if (kolo_split_is_map(x)) s->spread[t].area[0] = kolo_split_area(x, whole, 0);
    }
    return 0;
}

static void rename_results(const kolo_split *s, kolo_graph *to)
{
    int *const result[] = {&to->input, &to->label, &to->logits, &to->features, &to->metrics};
    for (int i = 0; i < 5; i++)
        if (*result[i] >= 0) *result[i] = s->spread[*result[i]].of[0];
    for (int i = 0; i < to->heads; i++) to->head[i] = s->spread[to->head[i]].of[0];
}

static int open_split(kolo_split *s, kolo_graph *g)
{
    const size_t tensors = (size_t)s->from->tensors + 1;
    KOLO_TRY(kolo_graph_create(&s->to, s->from->name, s->from->train, s->from->dtype));
    s->range = kolo_alloc((size_t)(s->from->nodes + 1) * sizeof *s->range);
    s->spread = kolo_alloc(tensors * sizeof *s->spread);
    s->owned = kolo_alloc(tensors * sizeof *s->owned);
    s->copy = kolo_alloc(tensors * sizeof *s->copy);
    if (!s->range || !s->spread || !s->owned || !s->copy) return KOLO_ENOMEM;
    KOLO_TRY(kolo_split_check(s));
    KOLO_TRY(load_parts(s, g));
    return copy_stored(s);
}

int kolo_graph_split(kolo_graph *g, const kolo_cuts *cuts)
{
    kolo_split s = {.from = g, .cuts = cuts};
    if (g->grad) return kolo_fail(KOLO_EINTERNAL, "graph %s has gradients: it is cut before", g->name);
    if (cuts->parts[0] * cuts->parts[1] == 1) return 0;
    int rc = open_split(&s, g);
    for (int64_t i = 0; rc >= 0 && i < g->nodes; i++) rc = split_node(&s, i);
    if (rc >= 0) {
        rc = 0;
        rename_results(&s, g);
        kolo_graph_exchange(g, s.to);
        memcpy(g->parts, cuts->parts, sizeof cuts->parts);
        g->either = kolo_cuts_late(cuts) > 0;
    }
    free(s.range);
    free(s.spread);
    free(s.owned);
    free(s.copy);
    free(s.piece);
    if (s.to) kolo_graph_destroy(&s.to);
    return rc;
}
