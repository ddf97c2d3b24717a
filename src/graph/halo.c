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
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/halo.h"
#include "kolo/error.h"

/* What a choice of maps comes to, of all parts. */
typedef struct traffic {
    int messages;
    double bytes, flops; /* flops: computed again */
    bool fits;           /* no strip is more than the share of its part */
} traffic;

static int64_t pixels_of(const kolo_area *a) { return (a->end[0] - a->at[0]) * (a->end[1] - a->at[1]); }

/* Moved by `by`, what lies in `within`; false: nothing. */
bool halo_common(const kolo_area *a, const int64_t by[2], const kolo_area *within, kolo_area *both)
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
    kolo_area *have = &halo_strip(w, t, home)->area;
    const bool first = !halo_is_wanted(halo_strip(w, t, home));
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
        if (home == w->homes || home == n->part || halo_home(g, n->in[0]) != n->part) continue;
        const int map = w->border[n->in[0]] >= 0 ? w->border[n->in[0]] : map_of(w, n->in[0]);
        w->border[n->in[0]] = map;
        w->halo_of[i] = w->halos;
        w->halo[w->halos++] = (halo){.node = (int)i, .home = home, .map = map};
    }
}

/* Input k of a tile: the tensor that it is cut out of, whose first pixel is at `from` of the tile's map. */
int halo_source(const widen *w, const kolo_node *tile, int k, int64_t from[2])
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
int halo_read_at(const widen *w, int t, int home)
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
        if (n->in[k] >= 0 && !kolo_split_is_map(&g->tensor[n->in[k]]) && halo_read_at(w, n->in[k], home) < 0)
            return false;
    return true;
}

/* Whether a strip of t is sent. */
bool halo_is_sent(const widen *w, int t, int home)
{
    const int maker = w->g->tensor[t].producer;
    return maker < 0 || (w->border[t] >= 0 && !w->made[w->border[t]]) ||
           !can_repeat(w, &w->g->node[maker], home);
}

/* Borders of zeros stay as they are: then a convolution makes all along that axis. */
static void round_up(const kolo_graph *g, const kolo_node *n, kolo_area *a)
{
    const kolo_area all = halo_whole(&g->tensor[n->out[0]]);
    for (int i = 0; i < 2; i++)
        if (kolo_op_table[n->op].cut == KOLO_CUT_CONV && n->a.pad[i] != 0)
            a->at[i] = all.at[i], a->end[i] = all.end[i];
}

/* The pixels of map x that `made` of the operation's result is made of; a: becomes the attributes for it. */
kolo_area halo_needed(const kolo_graph *g, const kolo_node *n, int x, const kolo_area *made,
                      kolo_attributes *a)
{
    const kolo_area all = halo_whole(&g->tensor[x]), result = halo_whole(&g->tensor[n->out[0]]);
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
        const int x = halo_source(w, n, k, from);
        const kolo_area all = halo_whole(&w->g->tensor[x]);
        kolo_area need;
        for (int i = 0; i < 2; i++) from[i] -= n->a.at[i];
        if (!halo_common(&all, from, made, &need) || halo_home(w->g, x) == home) continue;
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
        if (x < 0 || !kolo_split_is_map(&w->g->tensor[x]) || halo_home(w->g, x) == home) continue;
        const kolo_area need = halo_needed(w->g, n, x, made, &a);
        want(w, x, home, &need);
    }
}

/* What halo h has of the tensor that it is cut out of. */
static kolo_area area_of(const widen *w, const halo *h)
{
    const kolo_node *n = &w->g->node[h->node];
    kolo_area a = halo_whole(&w->g->tensor[n->out[0]]);
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
            strip *s = halo_strip(w, n->out[0], home);
            if (!halo_is_wanted(s) || halo_is_sent(w, n->out[0], home)) continue;
            round_up(g, n, &s->area);
            want_inputs(w, n, home, &s->area);
        }
    }
    for (int h = 0; h < w->halos; h++) {
        const int x = g->node[w->halo[h].node].in[0];
        const kolo_area a = area_of(w, &w->halo[h]);
        if (halo_is_wanted(halo_strip(w, x, w->halo[h].home))) want(w, x, w->halo[h].home, &a);
    }
}

static double bytes_of(const kolo_tensor *t)
{
    return (double)kolo_tensor_count(t) * (double)kolo_dtype_size(t->dtype);
}

static void count_strip(const widen *w, int t, int home, traffic *c)
{
    const kolo_graph *g = w->g;
    const strip *s = halo_strip(w, t, home);
    const kolo_area all = halo_whole(&g->tensor[t]);
    const double of_all = (double)pixels_of(&s->area) / (double)pixels_of(&all);
    c->fits &= of_all <= w->share;
    if (halo_is_sent(w, t, home)) {
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
        if (halo_is_wanted(halo_strip(w, n->in[0], w->halo[h].home))) continue;
        c.messages++;
        c.bytes += bytes_of(&w->g->tensor[n->out[0]]);
    }
    for (int64_t t = 0; t < w->tensors; t++)
        for (int home = 0; home < w->homes; home++)
            if (halo_is_wanted(halo_strip(w, (int)t, home))) count_strip(w, (int)t, home, &c);
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

static int open_widen(widen *w)
{
    const size_t nodes = (size_t)w->nodes + 1, tensors = (size_t)w->tensors + 1;
    bool *other = kolo_alloc(tensors);
    w->halo = kolo_alloc(nodes * sizeof *w->halo);
    w->halo_of = kolo_alloc(nodes * sizeof *w->halo_of);
    w->border = kolo_alloc(tensors * sizeof *w->border);
    w->made = kolo_alloc(nodes * sizeof *w->made);
    w->who = kolo_alloc(tensors * sizeof *w->who);
    w->copy = kolo_alloc(tensors * sizeof *w->copy);
    w->strip = kolo_alloc(tensors * (size_t)w->homes * sizeof *w->strip);
    const bool all = other && w->halo && w->halo_of && w->border && w->made && w->who && w->copy && w->strip;
    for (int64_t i = 0; all && i < w->nodes; i++) w->halo_of[i] = -1;
    for (int64_t t = 0; all && t < w->tensors; t++) w->border[t] = w->copy[t] = -1;
    if (all) {
        find_readers(w);
        find_others(w, other);
        find_halos(w, other);
    }
    free(other);
    return all ? 0 : KOLO_ENOMEM;
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
    bool *dead = kolo_alloc((size_t)g->nodes + 1);
    int rc = dead ? open_widen(&w) : KOLO_ENOMEM;
    if (rc == 0) {
        choose(&w, &narrow, &wide);
        for (int m = 0; m < w.maps; m++) g->halo.made += w.made[m];
        g->halo.maps = w.maps;
        g->halo.messages[0] = narrow.messages, g->halo.messages[1] = wide.messages;
        g->halo.bytes[0] = narrow.bytes, g->halo.bytes[1] = wide.bytes;
        g->halo.flops = wide.flops;
    }
    if (rc == 0) rc = halo_make_strips(&w);
    if (rc == 0) {
        halo_read_strips(&w, dead);
        rc = halo_order_nodes(&w, dead);
    }
    free(dead);
    close_widen(&w);
    return rc;
}
