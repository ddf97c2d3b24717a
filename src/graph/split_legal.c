/* Which parts of an image, and of the maps of a range of layers, are possible. */
#include <inttypes.h>
#include <stdio.h>

#include "graph/split.h"
#include "kolo/error.h"

kolo_window kolo_split_window(const kolo_node *n, int axis)
{
    const kolo_attributes *a = &n->a;
    switch (kolo_op_table[n->op].cut) {
    case KOLO_CUT_CONV:
    case KOLO_CUT_POOL:
        return (kolo_window){a->dilation[axis] * (a->kernel[axis] - 1) + 1, a->stride[axis], a->pad[axis]};
    case KOLO_CUT_STRIDE: return (kolo_window){1, a->stride[axis], 0};
    case KOLO_CUT_SQUARE: return (kolo_window){2, 2, 0};
    default: return (kolo_window){1, 1, 0};
    }
}

bool kolo_split_can_cut(const kolo_graph *g, const kolo_node *n, int axis, int parts)
{
    const enum kolo_cut cut = kolo_op_table[n->op].cut;
    const int64_t *x = g->tensor[n->in[0]].dim, *y = cut == KOLO_CUT_SUMS ? x : g->tensor[n->out[0]].dim;
    const int64_t size = y[2 + axis];
    if (parts == 1) return true;
    if (size < parts) return false;
    if (cut == KOLO_CUT_TIMES) return size / n->a.stride[axis] % parts == 0;
    if (cut == KOLO_CUT_WINDOWS) return size / n->a.kernel[axis] >= parts;
    if (cut == KOLO_CUT_PLACE) return kolo_part_start(size, parts, parts - 1) < x[2 + axis];
    return true;
}

/* ---- the image ----------------------------------------------------------------------------------------- */

/* The first operation whose windows reach beyond their own pixel. */
static const kolo_node *first_window(const kolo_graph *g)
{
    for (int64_t i = 0; i < g->nodes; i++) {
        const enum kolo_cut cut = kolo_op_table[g->node[i].op].cut;
        if (cut == KOLO_CUT_CONV || cut == KOLO_CUT_POOL || cut == KOLO_CUT_SQUARE) return &g->node[i];
        if (cut == KOLO_CUT_WHOLE) return NULL;
    }
    return NULL;
}

/* Every part of the image has pixels to make, and its halo lies in the parts beside it. */
static bool image_is_legal(const kolo_graph *g, const kolo_node *n, int axis, int parts)
{
    const int64_t x = g->tensor[n->in[0]].dim[2 + axis], y = g->tensor[n->out[0]].dim[2 + axis];
    const kolo_window w = kolo_split_window(n, axis);
    if (parts == 1) return true;
    if (x < parts || y < parts) return false;
    for (int p = 0; p < parts; p++) {
        const int64_t first = kolo_part_start(y, parts, p) * w.stride - w.pad,
                      last = (kolo_part_start(y, parts, p + 1) - 1) * w.stride - w.pad + w.reach;
        if (p > 0 && first < kolo_part_start(x, parts, p - 1)) return false;
        if (p + 1 < parts && last > kolo_part_start(x, parts, p + 2 < parts ? p + 2 : parts)) return false;
    }
    return true;
}

typedef bool (*legal)(const kolo_graph *g, const kolo_node *n, int axis, int parts);

/* The numbers up to `most`, as "1, 2, 4". */
static void list_legal(legal is_legal, const kolo_graph *g, const kolo_node *n, int axis, int most,
                       char text[64])
{
    int length = 0;
    for (int parts = 1; parts <= most && length < 56; parts++)
        if (is_legal(g, n, axis, parts))
            length += snprintf(text + length, 64 - (size_t)length, "%s%d", parts > 1 ? ", " : "", parts);
}

static int check_image(const kolo_split *s)
{
    const kolo_graph *g = s->from;
    const int *parts = s->cuts->parts, channels = kolo_split_channel_parts(s);
    const kolo_node *n = first_window(g);
    if (parts[0] * parts[1] * channels > KOLO_MAX_ARGS)
        return channels > 1
                   ? kolo_fail(KOLO_ECONFIG,
                               "spatial=%dx%d with tensor=%d are %d parts; up to %d are possible in all",
                               parts[0], parts[1], channels, parts[0] * parts[1] * channels, KOLO_MAX_ARGS)
                   : kolo_fail(KOLO_ECONFIG, "spatial=%dx%d are %d parts; up to %d are possible", parts[0],
                               parts[1], parts[0] * parts[1], KOLO_MAX_ARGS);
    if (!n)
        return kolo_fail(KOLO_ECONFIG,
                         "spatial=%dx%d: %s begins with no operation that works on parts of an image; use "
                         "spatial=1x1",
                         parts[0], parts[1], g->name);
    if (image_is_legal(g, n, 0, parts[0]) && image_is_legal(g, n, 1, parts[1])) return 0;
    char rows[64] = "", columns[64] = "";
    list_legal(image_is_legal, g, n, 0, KOLO_MAX_ARGS / channels, rows);
    list_legal(image_is_legal, g, n, 1, KOLO_MAX_ARGS / channels, columns);
    const int64_t *dim = g->tensor[n->in[0]].dim;
    return kolo_fail(KOLO_ECONFIG,
                     "spatial=%dx%d: images of %" PRId64 " x %" PRId64
                     " pixels are too small for so many parts of %s; rows: %s; columns: %s; or use larger "
                     "images (size=)",
                     parts[0], parts[1], dim[2], dim[3], g->tensor[n->out[0]].name, rows, columns);
}

/* ---- ranges -------------------------------------------------------------------------------------------- */

/* Whether operation `node`, of a range whose channels are cut, has to do with parts of them: it works on one,
 * or on what comes of one. What does not stays in parts of its pixels: the maps that products take whole go
 * from each part that has pixels of them to each that multiplies. */
static bool follows_channels(const kolo_split *s, int64_t node)
{
    const kolo_node *n = &s->from->node[node];
    for (int k = 0; k < n->n_in; k++) {
        const int maker = n->in[k] < 0 ? -1 : s->from->tensor[n->in[k]].producer;
        if (maker >= 0 && s->range[maker] >= 0 && s->cuts->range[s->range[maker]].channels) return true;
    }
    return n->channels;
}

/* Fills s->range. */
static int find_ranges(kolo_split *s)
{
    const kolo_graph *g = s->from;
    const kolo_cuts *c = s->cuts;
    int64_t at = 0;
    s->late = g->nodes;
    for (int64_t i = 0; i < g->nodes; i++) s->range[i] = -1;
    for (int r = 0; r < c->ranges; r++) {
        const kolo_cut_range *range = &c->range[r];
        const int64_t first = kolo_graph_module(g, g->nodes, range->from);
        if (first < 0) return kolo_graph_module_unknown(g, g->nodes, "spatial", range->from);
        if (first <= at)
            return kolo_fail(KOLO_ECONFIG,
                             "spatial=: %s is not behind the module in front of it; name them in the "
                             "network's order",
                             range->from);
        if (range->parts[0] > c->parts[0] || range->parts[1] > c->parts[1])
            return kolo_fail(KOLO_ECONFIG,
                             "spatial=: %s:%dx%d is finer than the image's %dx%d; give no more rows and "
                             "columns than that",
                             range->from, range->parts[0], range->parts[1], c->parts[0], c->parts[1]);
        at = first;
        if (range->channels && first < s->late) s->late = first;
        for (int64_t i = first; i < g->nodes; i++)
            if (!range->channels || follows_channels(s, i)) s->range[i] = r;
    }
    return 0;
}

static bool is_cut_by_pixels(const kolo_node *n)
{
    const enum kolo_cut cut = kolo_op_table[n->op].cut;
    return cut != KOLO_CUT_WHOLE && cut != KOLO_CUT_MADE;
}

/* What the user asks for by the name of a range must be possible for all of it. */
static int check_range(const kolo_split *s, int64_t node)
{
    const kolo_graph *g = s->from;
    const kolo_node *n = &g->node[node];
    const int *parts = kolo_split_grid(s, node);
    const kolo_tensor *y = &g->tensor[n->out[0]];
    char rows[64] = "", columns[64] = "", windows[80] = "";
    if (s->range[node] < 0 || node >= s->late || !is_cut_by_pixels(n) ||
        !kolo_split_is_map(&g->tensor[n->in[0]]))
        return 0;
    if (kolo_split_can_cut(g, n, 0, parts[0]) && kolo_split_can_cut(g, n, 1, parts[1])) return 0;
    list_legal(kolo_split_can_cut, g, n, 0, s->cuts->parts[0], rows);
    list_legal(kolo_split_can_cut, g, n, 1, s->cuts->parts[1], columns);
    if (kolo_op_table[n->op].cut == KOLO_CUT_WINDOWS)
        snprintf(windows, sizeof windows, " in %" PRId64 " x %" PRId64 " windows", y->dim[2] / n->a.kernel[0],
                 y->dim[3] / n->a.kernel[1]);
    return kolo_fail(KOLO_ECONFIG,
                     "spatial=: %s:%dx%d: the %" PRId64 " x %" PRId64
                     " pixels of %s%s cannot be cut so; rows: %s; columns: %s",
                     s->cuts->range[s->range[node]].from, parts[0], parts[1], y->dim[2], y->dim[3], y->name,
                     windows, rows, columns);
}

/* Where attention cannot be cut, all maps of that size stay whole, so that they do not go back and forth. */
static void find_whole(kolo_split *s)
{
    for (int64_t i = 0; i < s->from->nodes; i++) {
        const kolo_node *n = &s->from->node[i];
        const int *parts = kolo_split_grid(s, i);
        if (kolo_op_table[n->op].cut != KOLO_CUT_WINDOWS || s->range[i] >= 0) continue;
        if (kolo_split_can_cut(s->from, n, 0, parts[0]) && kolo_split_can_cut(s->from, n, 1, parts[1]))
            continue;
        const int64_t *dim = s->from->tensor[n->out[0]].dim;
        for (int k = 0; k < 2; k++)
            if (dim[2 + k] > s->whole[k]) s->whole[k] = dim[2 + k];
    }
}

int kolo_split_check(kolo_split *s)
{
    KOLO_TRY(check_image(s));
    KOLO_TRY(find_ranges(s));
    for (int64_t i = 0; i < s->from->nodes; i++) KOLO_TRY(check_range(s, i));
    find_whole(s);
    return 0;
}
