/* Wide halos: what a part reads of a map beyond its own border is made there again, of a wider halo of a map
 * further up, instead of being sent (MPI4DL's D2). So one exchange serves several layers:
 *
 *   narrow   a part sends 1 row of x, then of y = relu(norm(conv(x))), then of z ...
 *   wide     it sends 3 rows of x; the part beside it makes 2 rows of y of them, and 1 row of z of these
 *
 * What is made again are strips beside a part's own map, which stays as it was: sums of norms, gradients of
 * weights and of maps are formed of its own pixels alone, and gradients of halos go back as ever. A pixel of
 * a strip has the bits that the part it belongs to has made of it, where the kernel adds up a window in one
 * order whatever the map's size. Kolo's own do (tests/unit/ops_strips.c), oneDNN's convolutions most often;
 * so a run's last bits depend on halo=.
 *
 * Gradients of halos are not made again: that takes the maps in front of every norm and relu in strips that
 * grow in the other direction, so that the forward halos would be twice as wide.
 *
 * The pass works on the graph that is cut and differentiated. It knows of a tensor beside another part than
 * its own only a rectangle (strip): walking back from what is read, every operation says which pixels of its
 * inputs it needs. Which maps' halos are made (the others' are sent) is decided map by map, in the network's
 * order: where fewer messages are needed, or fewer bytes in as many. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/split.h"
#include "kolo/error.h"

/* What a part reads of a tensor of another one, in the tensor's own rows and columns; at = end: nothing. */
typedef struct strip {
    kolo_area area;
    int tensor; /* that has it, once it is made */
} strip;

/* What of a map is sent beyond borders: a tile of one input that only tiles of another part read. */
typedef struct halo {
    int node, home; /* home: of what reads it */
    int map;        /* number of the map */
} halo;

typedef struct widen {
    kolo_graph *g;
    int64_t nodes; /* that there were */
    int64_t tensors;
    int homes;
    double share;
    halo *halo;
    int halos;
    int *halo_of;    /* [nodes] its halo; -1: it is none */
    int *border;     /* [tensors] number of the map that a halo is of; -1 */
    int maps;        /* such maps, */
    bool *made;      /* [maps] whose halos are made */
    uint32_t *who;   /* [tensors] parts that read it, a bit each */
    int *copy;       /* [tensors] of a parameter: what other parts read in its place; -1 */
    strip *strip;    /* [tensors * homes] */
    int64_t *behind; /* [new nodes] the node that each belongs behind; -1: in front of all */
    int64_t made_nodes, room;
} widen;

/* What a choice of maps comes to, of all parts. */
typedef struct traffic {
    int messages;
    double bytes, flops; /* flops: computed again */
    bool fits;           /* no strip is more than the share of its part */
} traffic;

static strip *strip_of(const widen *w, int t, int home) { return &w->strip[(int64_t)t * w->homes + home]; }
static bool is_wanted(const strip *s) { return s->area.end[0] > s->area.at[0]; }

static int home_of(const kolo_graph *g, int t)
{
    const kolo_tensor *x = &g->tensor[t];
    return x->producer >= 0 ? g->node[x->producer].part : x->part;
}

static kolo_area whole_of(const kolo_tensor *t)
{
    const int axis = kolo_split_axis(t);
    return (kolo_area){{0, 0}, {t->dim[axis], t->dim[axis + 1]}};
}

static int64_t pixels_of(const kolo_area *a) { return (a->end[0] - a->at[0]) * (a->end[1] - a->at[1]); }
static bool equal(const kolo_area *a, const kolo_area *b) { return !memcmp(a, b, sizeof *a); }

/* Moved by `by`, what lies in `within`; false: nothing. */
static bool common(const kolo_area *a, const int64_t by[2], const kolo_area *within, kolo_area *both)
{
    for (int i = 0; i < 2; i++) {
        both->at[i] = a->at[i] + by[i] > within->at[i] ? a->at[i] + by[i] : within->at[i];
        both->end[i] = a->end[i] + by[i] < within->end[i] ? a->end[i] + by[i] : within->end[i];
        if (both->at[i] >= both->end[i]) return false;
    }
    return true;
}

static void want(widen *w, int t, int home, const kolo_area *a)
{
    kolo_area *have = &strip_of(w, t, home)->area;
    const bool first = !is_wanted(strip_of(w, t, home));
    for (int i = 0; i < 2; i++) {
        have->at[i] = first || a->at[i] < have->at[i] ? a->at[i] : have->at[i];
        have->end[i] = first || a->end[i] > have->end[i] ? a->end[i] : have->end[i];
    }
}

/* ---- what there is ------------------------------------------------------------------------------------- */

static void find_readers(widen *w)
{
    for (int64_t i = 0; i < w->nodes; i++) {
        const kolo_node *n = &w->g->node[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0) w->who[n->in[k]] |= 1u << n->part;
        if (n->op == KOLO_OP_share) w->copy[n->in[0]] = n->out[0];
    }
}

/* Whether each tensor is read by other operations than tiles. */
static void find_others(const widen *w, bool *other)
{
    for (int64_t i = 0; i < w->nodes; i++) {
        const kolo_node *n = &w->g->node[i];
        for (int k = 0; n->op != KOLO_OP_tile && k < n->n_in; k++)
            if (n->in[k] >= 0) other[n->in[k]] = true;
    }
}

/* The number of the map that tensor t is a part of, by its name. */
static int map_of(widen *w, int t)
{
    const char *name = w->g->tensor[t].name, *tail = strrchr(name, ':');
    const size_t length = tail && !strncmp(tail, ":part", 5) ? (size_t)(tail - name) : strlen(name);
    for (int h = w->halos; h-- > 0;) {
        const char *other = w->g->tensor[w->g->node[w->halo[h].node].in[0]].name;
        if (!strncmp(other, name, length) && (!other[length] || !strncmp(other + length, ":part", 5)))
            return w->halo[h].map;
    }
    return w->maps++;
}

static void find_halos(widen *w, const bool *other)
{
    const kolo_graph *g = w->g;
    for (int64_t i = 0; i < w->nodes; i++) {
        const kolo_node *n = &g->node[i];
        if (n->op != KOLO_OP_tile || n->backward || n->n_in != 1 || other[n->out[0]]) continue;
        const uint32_t who = w->who[n->out[0]];
        int home = 0;
        while (home < w->homes && who != 1u << home) home++;
        if (home == w->homes || home == n->part || home_of(g, n->in[0]) != n->part) continue;
        const int map = w->border[n->in[0]] >= 0 ? w->border[n->in[0]] : map_of(w, n->in[0]);
        w->border[n->in[0]] = map;
        w->halo_of[i] = w->halos;
        w->halo[w->halos++] = (halo){.node = (int)i, .home = home, .map = map};
    }
}

/* Input k of a tile: the tensor that it is cut out of, whose first pixel is at `from` of the tile's map. */
static int source_of(const widen *w, const kolo_node *tile, int k, int64_t from[2])
{
    const int t = tile->in[k], maker = w->g->tensor[t].producer;
    memcpy(from, tile->a.from[k], 2 * sizeof *from);
    if (maker < 0 || maker >= w->nodes || w->halo_of[maker] < 0) return t;
    const kolo_node *cut = &w->g->node[maker];
    for (int i = 0; i < 2; i++) from[i] += cut->a.from[0][i] - cut->a.at[i];
    return cut->in[0];
}

/* ---- what can be made again ---------------------------------------------------------------------------- */

/* What part `home` reads in the place of an input that is no map; -1: it does not. */
static int read_at(const widen *w, int t, int home)
{
    const kolo_tensor *x = &w->g->tensor[t];
    const int stored = x->role == KOLO_ROLE_TERM && x->of >= 0 ? x->of : t,
              copy = x->role == KOLO_ROLE_ACTIVATION ? -1 : w->copy[stored];
    if (w->who[stored] >> home & 1) return stored;
    return copy >= 0 && w->who[copy] >> home & 1 ? copy : -1;
}

static bool can_repeat(const widen *w, const kolo_node *n, int home)
{
    const enum kolo_cut cut = kolo_op_table[n->op].cut;
    const kolo_graph *g = w->g;
    if (n->backward || !kolo_split_is_map(&g->tensor[n->out[0]]) || n->op == KOLO_OP_total) return false;
    if (n->op == KOLO_OP_tile) return true;
    if (cut != KOLO_CUT_PIXEL && cut != KOLO_CUT_CONV && cut != KOLO_CUT_POOL && cut != KOLO_CUT_STRIDE &&
        cut != KOLO_CUT_SQUARE)
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0 && !kolo_split_is_map(&g->tensor[n->in[k]]) && read_at(w, n->in[k], home) < 0)
            return false;
    return true;
}

/* Whether a strip of t is sent. */
static bool is_sent(const widen *w, int t, int home)
{
    const int maker = w->g->tensor[t].producer;
    return maker < 0 || (w->border[t] >= 0 && !w->made[w->border[t]]) ||
           !can_repeat(w, &w->g->node[maker], home);
}

/* Borders of zeros stay as they are: then a convolution makes all along that axis. */
static void round_up(const kolo_graph *g, const kolo_node *n, kolo_area *a)
{
    const kolo_area all = whole_of(&g->tensor[n->out[0]]);
    for (int i = 0; i < 2; i++)
        if (kolo_op_table[n->op].cut == KOLO_CUT_CONV && n->a.pad[i] != 0)
            a->at[i] = all.at[i], a->end[i] = all.end[i];
}

/* The pixels of map x that `made` of the operation's result is made of; a: becomes the attributes for it. */
static kolo_area needed_of(const kolo_graph *g, const kolo_node *n, int x, const kolo_area *made,
                           kolo_attributes *a)
{
    const kolo_area all = whole_of(&g->tensor[x]), result = whole_of(&g->tensor[n->out[0]]);
    const enum kolo_cut cut = kolo_op_table[n->op].cut;
    kolo_area need = all;
    for (int i = 0; i < 2; i++) {
        const kolo_window v = kolo_split_window(n, i);
        const int64_t first = made->at[i] * v.stride - v.pad,
                      last = (made->end[i] - 1) * v.stride - v.pad + v.reach;
        if (made->at[i] == 0 && made->end[i] == result.end[i]) continue;
        need.at[i] = first > 0 ? first : 0;
        need.end[i] = last < all.end[i] ? last : all.end[i];
        if (cut != KOLO_CUT_POOL) continue;
        a->pad[i] = need.at[i] - first;
        a->beyond[i] = last - need.end[i] - a->pad[i];
    }
    return need;
}

/* ---- what is wanted ------------------------------------------------------------------------------------ */

static void want_of_tile(widen *w, const kolo_node *n, int home, const kolo_area *made)
{
    for (int k = 0; k < n->n_in; k++) {
        int64_t from[2];
        const int x = source_of(w, n, k, from);
        const kolo_area all = whole_of(&w->g->tensor[x]);
        kolo_area need;
        for (int i = 0; i < 2; i++) from[i] -= n->a.at[i];
        if (!common(&all, from, made, &need) || home_of(w->g, x) == home) continue;
        for (int i = 0; i < 2; i++) need.at[i] -= from[i], need.end[i] -= from[i];
        want(w, x, home, &need);
    }
}

static void want_inputs(widen *w, const kolo_node *n, int home, const kolo_area *made)
{
    kolo_attributes a = n->a;
    if (n->op == KOLO_OP_tile) {
        want_of_tile(w, n, home, made);
        return;
    }
    for (int k = 0; k < n->n_in; k++) {
        const int x = n->in[k];
        if (x < 0 || !kolo_split_is_map(&w->g->tensor[x]) || home_of(w->g, x) == home) continue;
        const kolo_area need = needed_of(w->g, n, x, made, &a);
        want(w, x, home, &need);
    }
}

/* What halo h has of the tensor that it is cut out of. */
static kolo_area area_of(const widen *w, const halo *h)
{
    const kolo_node *n = &w->g->node[h->node];
    kolo_area a = whole_of(&w->g->tensor[n->out[0]]);
    for (int i = 0; i < 2; i++) {
        a.at[i] += n->a.at[i] - n->a.from[0][i];
        a.end[i] += n->a.at[i] - n->a.from[0][i];
    }
    return a;
}

/* Of the maps that are chosen: all strips. A halo that is sent goes with the strip of its map, where there is
 * one. */
static void find_strips(widen *w)
{
    const kolo_graph *g = w->g;
    memset(w->strip, 0, (size_t)(w->tensors * w->homes) * sizeof *w->strip);
    for (int h = 0; h < w->halos; h++) {
        const kolo_area a = area_of(w, &w->halo[h]);
        if (w->made[w->halo[h].map]) want(w, g->node[w->halo[h].node].in[0], w->halo[h].home, &a);
    }
    for (int64_t i = w->nodes; i-- > 0;) {
        const kolo_node *n = &g->node[i];
        for (int home = 0; home < w->homes && n->out[0] >= 0; home++) {
            strip *s = strip_of(w, n->out[0], home);
            if (!is_wanted(s) || is_sent(w, n->out[0], home)) continue;
            round_up(g, n, &s->area);
            want_inputs(w, n, home, &s->area);
        }
    }
    for (int h = 0; h < w->halos; h++) {
        const int x = g->node[w->halo[h].node].in[0];
        const kolo_area a = area_of(w, &w->halo[h]);
        if (is_wanted(strip_of(w, x, w->halo[h].home))) want(w, x, w->halo[h].home, &a);
    }
}

static double bytes_of(const kolo_tensor *t)
{
    return (double)kolo_tensor_count(t) * (double)kolo_dtype_size(t->dtype);
}

static void count_strip(const widen *w, int t, int home, traffic *c)
{
    const kolo_graph *g = w->g;
    const strip *s = strip_of(w, t, home);
    const kolo_area all = whole_of(&g->tensor[t]);
    const double of_all = (double)pixels_of(&s->area) / (double)pixels_of(&all);
    c->fits &= of_all <= w->share;
    if (is_sent(w, t, home)) {
        c->messages++;
        c->bytes += bytes_of(&g->tensor[t]) * of_all;
    } else {
        const kolo_node *n = &g->node[g->tensor[t].producer];
        if (kolo_op_table[n->op].flops) c->flops += kolo_op_table[n->op].flops(g, n) * of_all;
    }
}

static traffic count_traffic(const widen *w)
{
    traffic c = {.fits = true};
    for (int h = 0; h < w->halos; h++) {
        const kolo_node *n = &w->g->node[w->halo[h].node];
        if (is_wanted(strip_of(w, n->in[0], w->halo[h].home))) continue;
        c.messages++;
        c.bytes += bytes_of(&w->g->tensor[n->out[0]]);
    }
    for (int64_t t = 0; t < w->tensors; t++)
        for (int home = 0; home < w->homes; home++)
            if (is_wanted(strip_of(w, (int)t, home))) count_strip(w, (int)t, home, &c);
    return c;
}

/* One map after the other, as long as it spares something and strips stay narrow enough. */
static void choose(widen *w, traffic *narrow, traffic *wide)
{
    find_strips(w);
    *wide = *narrow = count_traffic(w);
    for (int m = 0; m < w->maps; m++) {
        w->made[m] = true;
        find_strips(w);
        const traffic c = count_traffic(w);
        const bool fewer =
            c.messages < wide->messages || (c.messages == wide->messages && c.bytes < wide->bytes);
        if (c.fits && fewer) *wide = c;
        else w->made[m] = false;
    }
    find_strips(w);
}

/* ---- the strips ---------------------------------------------------------------------------------------- */

static int add_node(widen *w, const kolo_node *node, int part, int64_t behind)
{
    w->g->part = part;
    KOLO_TRY(kolo_graph_node_as(w->g, node));
    KOLO_TRY(kolo_grow(&w->behind, &w->room, w->made_nodes, sizeof *w->behind));
    w->behind[w->made_nodes++] = behind;
    return node->out[0];
}

/* A tensor like t, but of the pixels of `a`. */
static int add_map(kolo_graph *g, int t, int home, const char *what, const kolo_area *a)
{
    const kolo_tensor x = g->tensor[t];
    int64_t dim[KOLO_MAX_DIM];
    char name[400];
    memcpy(dim, x.dim, sizeof dim);
    for (int i = 0; i < 2; i++) dim[kolo_split_axis(&x) + i] = a->end[i] - a->at[i];
    snprintf(name, sizeof name, "%.300s:%s%d", x.name, what, home);
    return kolo_graph_tensor(g, name, x.role, x.dtype, x.rank, dim);
}

/* The tensor that has pixels of t beside part `home`, and which. */
static int seen(const widen *w, int t, int home, kolo_area *area)
{
    if (home_of(w->g, t) == home) {
        *area = whole_of(&w->g->tensor[t]);
        return t;
    }
    *area = strip_of(w, t, home)->area;
    return strip_of(w, t, home)->tensor;
}

/* `need` of tensor t, of which `from` has `area`. */
static int cut_out(widen *w, int from, const kolo_area *area, const kolo_area *need, int t, int part,
                   const char *what, int home, int64_t behind)
{
    kolo_node tile = {.op = KOLO_OP_tile, .n_in = 1, .n_out = 1, .in = {from}};
    memcpy(tile.a.from[0], area->at, sizeof tile.a.from[0]);
    memcpy(tile.a.at, need->at, sizeof tile.a.at);
    KOLO_TRY(tile.out[0] = add_map(w->g, t, home, what, need));
    return add_node(w, &tile, part, behind);
}

static int send_strip(widen *w, int t, int home, int64_t behind)
{
    const kolo_area all = whole_of(&w->g->tensor[t]);
    return cut_out(w, t, &all, &strip_of(w, t, home)->area, t, home_of(w->g, t), "to", home, behind);
}

static int repeat_tile(widen *w, const kolo_node *n, int home, const kolo_area *made, int64_t behind)
{
    kolo_node own = {.op = KOLO_OP_tile, .n_out = 1};
    kolo_area area, both;
    for (int i = 0; i < 2; i++) own.a.at[i] = n->a.at[i] + made->at[i];
    for (int k = 0; k < n->n_in; k++) {
        int64_t from[2];
        const int x = source_of(w, n, k, from);
        for (int i = 0; i < 2; i++) from[i] -= n->a.at[i];
        const int t = seen(w, x, home, &area);
        if (!common(&area, from, made, &both)) continue;
        own.in[own.n_in] = t;
        for (int i = 0; i < 2; i++) own.a.from[own.n_in][i] = n->a.at[i] + from[i] + area.at[i];
        own.n_in++;
        for (int i = 0; i < 2; i++) area.at[i] += from[i], area.end[i] += from[i];
        if (equal(&area, made)) return t; /* it is there as it is */
    }
    if (own.n_in == 0)
        return kolo_fail(KOLO_EINTERNAL, "%s: a strip beside part %d is made of nothing",
                         w->g->tensor[n->out[0]].name, home);
    KOLO_TRY(own.out[0] = add_map(w->g, n->out[0], home, "at", made));
    return add_node(w, &own, home, behind);
}

/* Output k beside part `home`; what is no map nobody reads there. */
static int add_output(kolo_graph *g, const kolo_node *n, int k, int home, const kolo_area *made)
{
    const kolo_tensor x = g->tensor[n->out[k]];
    char name[400];
    if (kolo_split_is_map(&x)) return add_map(g, n->out[k], home, "at", made);
    snprintf(name, sizeof name, "%.300s:at%d", x.name, home);
    return kolo_graph_tensor(g, name, KOLO_ROLE_TERM, x.dtype, x.rank, x.dim);
}

static int repeat_node(widen *w, const kolo_node *n, int home, const kolo_area *made, int64_t behind)
{
    kolo_node own = *n;
    for (int k = 0; k < n->n_in; k++) {
        const int x = n->in[k];
        if (x < 0) continue;
        if (!kolo_split_is_map(&w->g->tensor[x])) {
            own.in[k] = read_at(w, x, home);
            continue;
        }
        kolo_area area;
        const kolo_area need = needed_of(w->g, n, x, made, &own.a);
        own.in[k] = seen(w, x, home, &area);
        char what[32];
        snprintf(what, sizeof what, "of%" PRId64 "in%d:at", behind, k);
        if (!equal(&area, &need))
            KOLO_TRY(own.in[k] = cut_out(w, own.in[k], &area, &need, x, home, what, home, behind));
    }
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) KOLO_TRY(own.out[k] = add_output(w->g, n, k, home, made));
    return add_node(w, &own, home, behind);
}

/* All strips of tensor t, which node `behind` makes. */
static int make_strips(widen *w, int t, int64_t behind)
{
    for (int home = 0; home < w->homes; home++) {
        strip *s = strip_of(w, t, home);
        if (!is_wanted(s)) continue;
        if (is_sent(w, t, home)) {
            s->tensor = send_strip(w, t, home, behind);
        } else {
            const kolo_node n = w->g->node[behind];
            const kolo_area made = s->area;
            s->tensor = (n.op == KOLO_OP_tile ? repeat_tile : repeat_node)(w, &n, home, &made, behind);
        }
        KOLO_TRY(s->tensor);
    }
    return 0;
}

static int make_all(widen *w)
{
    for (int64_t t = 0; t < w->tensors; t++)
        if (w->g->tensor[t].producer < 0) KOLO_TRY(make_strips(w, (int)t, -1));
    for (int64_t i = 0; i < w->nodes; i++)
        if (w->g->node[i].out[0] >= 0) KOLO_TRY(make_strips(w, w->g->node[i].out[0], i));
    w->g->part = 0;
    return 0;
}

/* ---- the graph ----------------------------------------------------------------------------------------- */

/* Tiles read strips in the place of halos. dead: halos that nobody reads any more. */
static void read_strips(widen *w, bool *dead)
{
    kolo_graph *g = w->g;
    for (int h = 0; h < w->halos; h++)
        dead[w->halo[h].node] = is_wanted(strip_of(w, g->node[w->halo[h].node].in[0], w->halo[h].home));
    for (int64_t i = 0; i < w->nodes; i++) {
        kolo_node *n = &g->node[i];
        for (int k = 0; n->op == KOLO_OP_tile && k < n->n_in; k++) {
            const int maker = g->tensor[n->in[k]].producer;
            if (maker < 0 || maker >= w->nodes || !dead[maker]) continue;
            int64_t from[2];
            const strip *s = strip_of(w, source_of(w, n, k, from), w->halo[w->halo_of[maker]].home);
            for (int j = 0; j < 2; j++) n->a.from[k][j] = from[j] + s->area.at[j];
            n->in[k] = s->tensor;
        }
    }
}

/* Every new node goes to its place; to: [nodes] where each then is. */
static int order_nodes(widen *w, bool *dead)
{
    kolo_graph *g = w->g;
    const int64_t n = g->nodes;
    int rc = KOLO_ENOMEM;
    int64_t *to = kolo_alloc((size_t)(n + 1) * sizeof *to),
            *count = kolo_alloc((size_t)(n + 2) * sizeof *count);
    kolo_node *node = kolo_alloc((size_t)(n + 1) * sizeof *node);
    bool *gone = kolo_alloc((size_t)n + 1);
    if (!to || !count || !node || !gone) goto fail;
    for (int64_t j = 0; j < w->made_nodes; j++) count[w->behind[j] + 2]++; /* [i + 1]: in front of node i */
    for (int64_t i = 0; i <= w->nodes; i++) count[i + 1] += count[i];
    for (int64_t i = 0; i < w->nodes; i++) to[i] = i + count[i + 1];
    for (int64_t j = 0; j < w->made_nodes; j++) {
        const int64_t behind = w->behind[j];
        to[w->nodes + j] = behind + 1 + count[behind + 1]++;
    }
    for (int64_t i = 0; i < n; i++) {
        node[to[i]] = g->node[i];
        gone[to[i]] = i < w->nodes && dead[i];
    }
    for (int64_t i = 0; i < n; i++) {
        if (node[i].of >= 0) node[i].of = (int)to[node[i].of];
        for (int k = 0; k < node[i].n_out; k++)
            if (node[i].out[k] >= 0) g->tensor[node[i].out[k]].producer = (int)i;
    }
    memcpy(g->node, node, (size_t)n * sizeof *node);
    rc = kolo_graph_compact(g, gone);
fail:
    free(to);
    free(count);
    free(node);
    free(gone);
    return rc;
}

/* New tensors have no gradients. */
static int widen_grad(const widen *w)
{
    kolo_graph *g = w->g;
    if (!g->grad) return 0;
    int *grad = kolo_alloc((size_t)(g->tensors + 1) * sizeof *grad);
    if (!grad) return KOLO_ENOMEM;
    for (int64_t t = 0; t < g->tensors; t++) grad[t] = t < w->tensors ? g->grad[t] : -1;
    free(g->grad);
    g->grad = grad;
    return 0;
}

static int open_widen(widen *w, bool **dead)
{
    const size_t nodes = (size_t)w->nodes + 1, tensors = (size_t)w->tensors + 1;
    bool *other = *dead = kolo_alloc(tensors > nodes ? tensors : nodes);
    w->halo = kolo_alloc(nodes * sizeof *w->halo);
    w->halo_of = kolo_alloc(nodes * sizeof *w->halo_of);
    w->border = kolo_alloc(tensors * sizeof *w->border);
    w->made = kolo_alloc(nodes * sizeof *w->made);
    w->who = kolo_alloc(tensors * sizeof *w->who);
    w->copy = kolo_alloc(tensors * sizeof *w->copy);
    w->strip = kolo_alloc(tensors * (size_t)w->homes * sizeof *w->strip);
    if (!other || !w->halo || !w->halo_of || !w->border || !w->made || !w->who || !w->copy || !w->strip)
        return KOLO_ENOMEM;
    for (int64_t i = 0; i < w->nodes; i++) w->halo_of[i] = -1;
    for (int64_t t = 0; t < w->tensors; t++) w->border[t] = w->copy[t] = -1;
    find_readers(w);
    find_others(w, other);
    find_halos(w, other);
    memset(other, 0, tensors > nodes ? tensors : nodes);
    return 0;
}

static void close_widen(widen *w)
{
    free(w->halo);
    free(w->halo_of);
    free(w->border);
    free(w->made);
    free(w->who);
    free(w->copy);
    free(w->strip);
    free(w->behind);
}

int kolo_graph_widen(kolo_graph *g, double share)
{
    widen w = {
        .g = g, .nodes = g->nodes, .tensors = g->tensors, .homes = kolo_graph_parts(g), .share = share};
    traffic narrow, wide;
    bool *dead = NULL;
    int rc = open_widen(&w, &dead);
    if (rc == 0) {
        choose(&w, &narrow, &wide);
        for (int m = 0; m < w.maps; m++) g->halo.made += w.made[m];
        g->halo.maps = w.maps;
        g->halo.messages[0] = narrow.messages, g->halo.messages[1] = wide.messages;
        g->halo.bytes[0] = narrow.bytes, g->halo.bytes[1] = wide.bytes;
        g->halo.flops = wide.flops;
    }
    if (rc == 0) rc = make_all(&w);
    if (rc == 0) rc = widen_grad(&w);
    if (rc == 0) {
        read_strips(&w, dead);
        rc = order_nodes(&w, dead);
    }
    free(dead);
    close_widen(&w);
    return rc;
}
