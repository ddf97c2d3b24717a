/* The channel block of a graph's activations: one for all, so that nothing is ever rearranged between
 * operations. All channels together where an operation asks for it; else chosen by the time of the graph's
 * convolutions, or by a fixed rule. The image itself may have its own: only first convolutions read it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/simd.h"

enum { NHWC = -1 };

static bool is_conv(enum kolo_op op)
{
    return op == KOLO_OP_conv || op == KOLO_OP_conv_grad_data || op == KOLO_OP_conv_grad_weight;
}

/* Whether t is an image, normalised here or given so, or a tile of some, that only convolutions read. */
static bool *find_images(const kolo_graph *g)
{
    bool *image = kolo_alloc((size_t)(g->tensors + 1) * sizeof *image);
    if (!image) return NULL;
    if (g->input >= 0 && g->tensor[g->input].dtype != KOLO_U8) image[g->input] = true;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        if (n->op == KOLO_OP_normalize || (n->op == KOLO_OP_tile && image[n->in[0]])) image[n->out[0]] = true;
    }
    bool others = false; /* one block for all of them */
    for (int64_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            others |= g->node[i].in[k] >= 0 && image[g->node[i].in[k]] && !is_conv(g->node[i].op) &&
                      g->node[i].op != KOLO_OP_tile;
    for (int64_t t = 0; t < g->tensors && others; t++) image[t] = false;
    return image;
}

int kolo_cpu_channels_last(const kolo_kernel_request *r, kolo_layout *layout)
{
    const kolo_node *n = r->node;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        int t = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        if (t < 0 || !kolo_tensor_is_map(&r->graph->tensor[t]) ||
            layout[t].block == r->graph->tensor[t].dim[1])
            continue;
        return kolo_fail(KOLO_EINTERNAL,
                         "%s wants all channels of a pixel together, but %s lies in blocks of %ld",
                         kolo_op_table[n->op].name, r->graph->tensor[t].name, (long)layout[t].block);
    }
    return 0;
}

bool kolo_cpu_wants_channels_last(const kolo_graph *g)
{
    for (int64_t i = 0; i < g->nodes; i++)
        if (kolo_cpu_backend.rows[g->node[i].op]->layout == kolo_cpu_channels_last && g->node[i].in[0] >= 0 &&
            kolo_tensor_is_map(&g->tensor[g->node[i].in[0]]))
            return true;
    return false;
}

static void set_block(const kolo_graph *g, int64_t t, int64_t block, kolo_layout *layout)
{
    layout[t] = kolo_layout_blocked(&g->tensor[t], block == NHWC ? g->tensor[t].dim[1] : block);
}

/* Images have too few channels to fill a block: beside blocks they stay plain, which oneDNN's
 * first convolutions read. */
static void set_blocks(const kolo_graph *g, int64_t block, const bool *image, kolo_layout *layout)
{
    for (int64_t t = 0; t < g->tensors; t++)
        if (kolo_tensor_is_map(&g->tensor[t])) set_block(g, t, image[t] && block != NHWC ? 1 : block, layout);
}

/* Widest blocks that this CPU computes with. */
static int64_t wide_block(void) { return kolo_cpu_level() == 2 ? 16 : 8; }

typedef struct census {
    int64_t convs, most_channels;
    double flops;
} census;

static census count(const kolo_graph *g)
{
    census c = {0, 0, 0};
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        if (!is_conv(n->op)) continue;
        c.convs++;
        c.flops += kolo_op_table[n->op].flops(g, n);
        for (int k = 0; k < 2; k++) {
            const kolo_tensor *t = &g->tensor[n->in[k]];
            if (kolo_tensor_is_map(t) && t->dim[1] > c.most_channels) c.most_channels = t->dim[1];
        }
    }
    return c;
}

static int64_t usual_block(const kolo_graph *g, const census *c)
{
    if (!c->convs || c->most_channels < 32) return 1; /* lanes would be wasted on padding */
    return g->dtype == KOLO_BF16 && kolo_dnnl_has_tiles() ? NHWC : wide_block();
}

/* ---- what all convolutions cost ------------------------------------------------------------------------ */

static bool same_conv(const kolo_graph *g, const kolo_node *a, const kolo_node *b)
{
    if (a->op != b->op || memcmp(a->a.kernel, b->a.kernel, sizeof a->a.kernel) ||
        memcmp(a->a.stride, b->a.stride, sizeof a->a.stride) || memcmp(a->a.pad, b->a.pad, sizeof a->a.pad) ||
        memcmp(a->a.dilation, b->a.dilation, sizeof a->a.dilation) || a->a.groups != b->a.groups)
        return false;
    for (int k = 0; k < 2; k++)
        if (memcmp(g->tensor[a->in[k]].dim, g->tensor[b->in[k]].dim, sizeof g->tensor[0].dim)) return false;
    return a->n_in == b->n_in && a->n_out == b->n_out;
}

/* Of one convolution: kolo_cpu_conv_seconds, kolo_cpu_conv_reference. */
typedef double cost(const kolo_kernel_request *r);

/* Of all convolutions under `layout`, each distinct one looked at once; weights get their layouts on the way.
 * Gives up at `most`. */
static double cost_of(kolo_backend *b, const kolo_graph *g, cost *of_one, kolo_layout *layout, double most)
{
    double total = 0;
    double *took = kolo_alloc((size_t)(g->nodes + 1) * sizeof *took);
    if (!took) return KOLO_ENOMEM;
    for (int64_t i = 0; i < g->nodes; i++) took[i] = -1;
    /* the weight gradients, which decide the weights' layout, come last in a graph */
    for (int64_t i = g->nodes - 1; i >= 0; i--) {
        const kolo_node *n = &g->node[i];
        const kolo_op_row *row = b->type->rows[n->op];
        kolo_kernel_request r = {b, g, n, layout};
        if (!is_conv(n->op)) continue;
        int rc = row->layout ? row->layout(&r, layout) : 0;
        for (int64_t j = g->nodes - 1; j > i && took[i] < 0; j--)
            if (took[j] >= 0 && same_conv(g, n, &g->node[j])) took[i] = took[j];
        if (rc >= 0 && took[i] < 0) took[i] = of_one(&r);
        if (rc < 0 || took[i] < 0) total = rc < 0 ? rc : took[i];
        if (total < 0 || total >= most) break;
        total += took[i];
    }
    free(took);
    return total;
}

static double try_block(kolo_backend *b, const kolo_graph *g, cost *of_one, int64_t block, const bool *image,
                        double most)
{
    kolo_layout *trial = kolo_alloc((size_t)g->tensors * sizeof *trial);
    if (!trial) return KOLO_ENOMEM;
    for (int64_t t = 0; t < g->tensors; t++) trial[t] = kolo_layout_plain(&g->tensor[t]);
    set_blocks(g, block, image, trial);
    double s = cost_of(b, g, of_one, trial, most);
    free(trial);
    return s;
}

/* Of some layouts the first one that costs least. */
static void cheapest(kolo_backend *b, const kolo_graph *g, cost *of_one, const bool *image, double most,
                     int n, const int64_t *candidate, int64_t *best)
{
    double least = most;
    for (int i = 0; i < n; i++) {
        double s = try_block(b, g, of_one, candidate[i], image, least);
        if (s < 0 || s >= least) continue; /* below 0: oneDNN has nothing for this layout */
        least = s;
        *best = candidate[i];
    }
}

/* ---- by a fixed rule ----------------------------------------------------------------------------------- */

/* Some convolution reads, or makes, fewer channels than a block, beside images, or has groups of fewer. */
static bool is_narrow(const kolo_graph *g, const bool *image, int64_t block)
{
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        for (int k = 0; k < n->n_in + n->n_out && is_conv(n->op); k++) {
            const int t = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
            if (t < 0 || image[t] || !kolo_tensor_is_map(&g->tensor[t])) continue;
            const int64_t channels = g->tensor[t].dim[1], groups = n->a.groups;
            if (channels < block || (groups < channels && channels / groups < block)) return true;
        }
    }
    return false;
}

/* Where channels do not fill a block oneDNN may have no fast code: the layout that leaves least to the slow
 * one. */
static int64_t block_by_rule(kolo_backend *b, const kolo_graph *g, const bool *image, const census *c)
{
    int64_t best = usual_block(g, c);
    const int64_t candidate[] = {best, NHWC, 1};
    if (best > 1 && is_narrow(g, image, best))
        cheapest(b, g, kolo_cpu_conv_reference, image, HUGE_VAL, 3, candidate, &best);
    return best;
}

/* ---- by the clock -------------------------------------------------------------------------------------- */

/* What the choice depends on, as text: the shapes of all convolutions, hashed. */
static void key_of(const kolo_graph *g, const kolo_backend *b, char *text, size_t size)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        if (!is_conv(n->op)) continue;
        int64_t v[12] = {n->op, n->a.stride[0], n->a.stride[1], n->a.groups};
        for (int k = 0; k < 2; k++) memcpy(v + 4 + 4 * k, g->tensor[n->in[k]].dim, 4 * sizeof *v);
        for (int k = 0; k < 12; k++) h = (h ^ (uint64_t)v[k]) * 0x100000001b3ull;
    }
    snprintf(text, size, "layout %s%s %016lx", kolo_dtype_name(g->dtype), b->direct ? " direct" : "",
             (unsigned long)h);
}

/* Layouts of large networks differ by a few per cent only, which is not worth some seconds of every first
 * start; small networks differ by factors. */
static const double clock_flops = 1e10;

static int block_by_clock(kolo_backend *b, const kolo_graph *g, const bool *image, const char *key,
                          int64_t *best)
{
    const int64_t candidate[] = {wide_block(), NHWC, 1};
    char value[32];
    cheapest(b, g, kolo_cpu_conv_seconds, image, 1e5, 3, candidate, best);
    snprintf(value, sizeof value, "%ld", (long)*best);
    return kolo_choices_add(&b->choices, key, value);
}

/* The block that `g` has been laid out with; 0 if it has no maps. */
static int64_t block_of(const kolo_graph *g, const kolo_layout *layout)
{
    int64_t block = 0;
    bool *image = find_images(g);
    if (!image) return 0;
    for (int64_t t = 0; t < g->tensors; t++) {
        if (!kolo_tensor_is_map(&g->tensor[t]) || image[t]) continue;
        if (block && block != layout[t].block) block = NHWC;
        else if (!block) block = layout[t].block;
    }
    free(image);
    return block;
}

static bool is_block(int64_t block) { return block == NHWC || block == 16 || block == 8 || block == 1; }

static int choose_block(kolo_backend *b, const kolo_graph *g, const bool *image, int64_t *block)
{
    char key[96];
    census c = count(g);
    key_of(g, b, key, sizeof key);
    const char *known = b->deterministic || !c.convs ? NULL : kolo_choices_find(&b->choices, key);
    if (known && !is_block(atol(known))) {
        kolo_choices_doubt(&b->choices, key, known);
        known = NULL;
    }
    *block = known ? atol(known) : block_by_rule(b, g, image, &c);
    if (known || b->deterministic || !c.convs || b->choices.given || c.flops > clock_flops) return 0;
    return block_by_clock(b, g, image, key, block);
}

int kolo_cpu_blocks(kolo_backend *b, const kolo_graph *g, const kolo_graph *like,
                    const kolo_layout *like_layout, kolo_layout *layout)
{
    if (g->dtype == KOLO_F16)
        return kolo_fail(KOLO_ECONFIG, "fp16 is for GPUs: on CPUs set precision=bf16 or precision=f32");
    int64_t block = kolo_cpu_wants_channels_last(g) ? NHWC : like ? block_of(like, like_layout) : 0;
    bool *image = find_images(g);
    if (!image) return KOLO_ENOMEM;
    int rc = block ? 0 : choose_block(b, g, image, &block);
    if (!is_block(block)) block = 1;
    set_blocks(g, block, image, layout);
    free(image);
    return rc;
}
