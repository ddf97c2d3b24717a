/* Networks whose channels are cut into parts beside the same networks in one piece: on whole numbers, which
 * f32 adds exactly in any order, every activation and every gradient has the same bits. */
#include "graph/channels.h"
#include "parts_rig.h"

static int relu(kolo_graph *g, const char *name, int x) { return kolo_relu(g, name, x); }

/* Two convolutions with everything between them that works channel by channel, past which the map goes. */
static int pair(kolo_graph *g, int x)
{
    x = conv(g, "first", x, 16, 3, 1, 1);
    int y = relu(g, "relu", conv(g, "col", x, 16, 3, 1, 1));
    y = kolo_max_pool(g, "max", conv(g, "depth", y, 16, 7, 1, 16), 3, 2, 1);
    y = kolo_upsample(g, "up", kolo_pad(g, "pad", kolo_avg_pool(g, "avg", y, 2, 1, 0, true), 1, 1), 2);
    y = conv(g, "row", kolo_residual(g, "kept", y, y, -1, 0), 16, 3, 1, 1);
    return kolo_add(g, "sum", y, x);
}

/* Groups of channels, and two readers. */
static int groups(kolo_graph *g, int x)
{
    x = conv(g, "first", x, 16, 1, 1, 1);
    int y = relu(g, "relu", conv(g, "group", conv(g, "col", x, 32, 1, 1, 1), 16, 3, 2, 8));
    return kolo_add(g, "sum", conv(g, "row", y, 8, 1, 1, 1), conv(g, "other", y, 8, 3, 1, 1));
}

/* Squeeze and excitation inside a block. */
static int gated(kolo_graph *g, int x)
{
    x = conv(g, "first", x, 8, 1, 1, 1);
    int y = relu(g, "relu", conv(g, "col", x, 16, 1, 1, 1)), s = kolo_global_avg_pool(g, "squeeze", y);
    s = relu(g, "relu2", kolo_pointwise(g, "down", s, 4, true, rig_init, rig_init));
    s = kolo_pointwise(g, "up", s, 16, true, rig_init, rig_init);
    return conv(g, "row", kolo_gate(g, "gate", y, s), 8, 1, 1, 1);
}

/* Maps behind each other, and pixels as channels: runs. */
static int joined(kolo_graph *g, int x)
{
    x = conv(g, "first", x, 8, 1, 1, 1);
    const int both[] = {relu(g, "relu", conv(g, "a", x, 16, 1, 1, 1)),
                        conv(g, "depth", conv(g, "b", x, 16, 3, 1, 1), 16, 3, 1, 16)};
    int y = kolo_space_to_depth(g, "square", kolo_concat(g, "both", 2, both));
    return kolo_linear(g, "row", y, 8, true, rig_init, rig_init);
}

static int flat(kolo_graph *g, int x)
{
    x = relu(g, "relu", conv(g, "col", x, 16, 3, 2, 1));
    x = kolo_flatten(g, "flat", kolo_adaptive_avg_pool(g, "adaptive", x, 2, 2));
    x = kolo_linear(g, "row", x, 8, true, rig_init, rig_init);
    x = relu(g, "relu2", kolo_linear(g, "col2", x, 32, true, rig_init, rig_init));
    return kolo_linear(g, "row2", x, 5, true, rig_init, rig_init);
}

typedef int builder(kolo_graph *g, int x);
static const struct {
    const char *name;
    builder *build;
    int regions; /* that are cut */
} network[] = {
    {"pair", pair, 1}, {"groups", groups, 1}, {"gated", gated, 1}, {"joined", joined, 1}, {"flat", flat, 2}};

typedef struct net {
    rig r;
    int y;
} net;

static net open_net(kolo_backend *b, builder *build, int64_t block, int channels)
{
    net n = {.r = rig_open(b, KOLO_F32, block)};
    kolo_graph *g = n.r.g;
    g->input = rig_input(&n.r, "x", 4, (const int64_t[]){2, 3, 8, 8});
    g->logits = build(g, g->input);
    rig_check(g->logits, "network");
    if (channels) rig_check(kolo_graph_split_channels(g, channels), "channels");
    n.y = g->logits;
    rig_backward(&n.r, n.y);
    rig_layout(&n.r);
    rig_fill_whole(&n.r);
    return n;
}

static int tensor_of(const kolo_graph *g, const char *name, int part)
{
    char text[300];
    snprintf(text, sizeof text, "%s:part%d", name, part);
    return kolo_graph_find(g, text);
}

/* What parts have of tensor t of the whole network (gradient: of its gradient), put together; NULL: it has no
 * such part. runs: of a map. */
static float *put_together(net *cut, const kolo_tensor *t, int parts, int runs, bool gradient)
{
    float *whole = malloc((size_t)kolo_tensor_count(t) * sizeof *whole);
    const kolo_graph *g = cut->r.g;
    for (int p = 0; p < parts; p++) {
        int u = tensor_of(g, t->name, p);
        if (u < 0) u = parts == 1 ? kolo_graph_find(g, t->name) : -1;
        kolo_tensor piece = u < 0 ? *t : g->tensor[u];
        if (u >= 0 && gradient) u = g->grad[u];
        if (u < 0) return free(whole), NULL;
        float *v = values_of(&cut->r, u);
        if (parts == 1) return free(whole), v;
        if (!piece.slab.runs)
            piece.slab = (kolo_slab){.runs = runs,
                                     .axis = 1,
                                     .whole = t->dim[1],
                                     .first = kolo_part_start(t->dim[1] / runs, parts, p)};
        kolo_slab_put(&piece, v, whole);
        free(v);
    }
    return whole;
}

typedef struct tally {
    int whole, parts, gradients, parameters;
    int64_t wrong;
    char where[200];
} tally;

static void compare_one(tally *sum, net *whole, net *cut, int t, int parts, int runs, bool gradient)
{
    kolo_graph *g = whole->r.g;
    const kolo_tensor *x = &g->tensor[t];
    const int from = gradient ? g->grad[t] : t;
    const bool there = kolo_graph_find(cut->r.g, x->name) >= 0;
    if (from < 0 || (!there && tensor_of(cut->r.g, x->name, 0) < 0)) return;
    float *want = values_of(&whole->r, from), *got = put_together(cut, x, there ? 1 : parts, runs, gradient);
    int64_t wrong = 0;
    for (int64_t i = 0; got && i < kolo_tensor_count(x); i++) wrong += want[i] != got[i];
    if (!got || wrong) {
        sum->wrong++;
        snprintf(sum->where, sizeof sum->where, "; %s%s: %ld", gradient ? "grad:" : "", x->name, (long)wrong);
    }
    if (x->role == KOLO_ROLE_PARAM) sum->parameters++;
    else if (gradient) sum->gradients++;
    else if (there) sum->whole++;
    else sum->parts++;
    free(want);
    free(got);
}

static void compare(kolo_backend *b, int which, int64_t block, int parts)
{
    net whole = open_net(b, network[which].build, block, 0),
        cut = open_net(b, network[which].build, block, parts);
    kolo_graph *plain = NULL;
    rig_check(kolo_graph_create(&plain, "plain", true, KOLO_F32), "graph");
    const int x =
        kolo_graph_tensor(plain, "x", KOLO_ROLE_ACTIVATION, KOLO_F32, 4, (const int64_t[]){2, 3, 8, 8});
    plain->logits = network[which].build(plain, x);
    kolo_channel_plan plan;
    rig_check(kolo_channel_plan_create(&plan, plain, parts, 0, plain->nodes), "plan");
    tally sum = {0};
    rig_run(&whole.r);
    rig_run(&cut.r);
    for (int t = 0; t < (int)plain->tensors; t++) {
        const kolo_tensor *o = &plain->tensor[t];
        const int own = kolo_graph_find(whole.r.g, o->name);
        if (o->dtype != KOLO_F32 || own < 0) continue;
        const bool param = o->role == KOLO_ROLE_PARAM;
        if (!param) compare_one(&sum, &whole, &cut, own, parts, plan.runs[t] ? plan.runs[t] : 1, false);
        compare_one(&sum, &whole, &cut, own, parts, plan.runs[t] ? plan.runs[t] : 1, true);
    }
    ok(sum.wrong == 0 && sum.whole > 0 && sum.parts > 1 && sum.gradients > 2 && sum.parameters > 3 &&
           plan.regions == network[which].regions,
       "%s in %d parts, blocks of %ld: %d maps in parts, %d whole, %d of their gradients, %d parameters' "
       "have the "
       "same bits%s",
       network[which].name, parts, (long)block, sum.parts, sum.whole, sum.gradients, sum.parameters,
       sum.where);
    kolo_channel_plan_free(&plan);
    kolo_graph_destroy(&plain);
    rig_close(&whole.r);
    rig_close(&cut.r);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

static int split_of(builder *build, int parts, char uncut[256])
{
    kolo_graph *g;
    if (kolo_graph_create(&g, "small", true, KOLO_F32) < 0) return 0;
    const int x = kolo_graph_tensor(g, "x", KOLO_ROLE_ACTIVATION, KOLO_F32, 4, (const int64_t[]){2, 3, 8, 8});
    g->logits = build(g, x);
    const int rc = kolo_graph_split_channels(g, parts);
    snprintf(uncut, 256, "%s", g->uncut);
    kolo_graph_destroy(&g);
    return rc;
}

/* One pair of 12 channels, one of 16. */
static int unlike(kolo_graph *g, int x)
{
    x = conv(g, "first", x, 8, 1, 1, 1);
    x = conv(g, "row", relu(g, "relu", conv(g, "twelve", x, 12, 1, 1, 1)), 8, 1, 1, 1);
    x = kolo_layer_norm(g, "norm", x, 1e-5);
    return conv(g, "row2", relu(g, "relu2", conv(g, "sixteen", x, 16, 1, 1, 1)), 8, 1, 1, 1);
}

static void refused(void)
{
    char uncut[256];
    is_int(split_of(pair, 3, uncut), KOLO_ECONFIG, "sixteen channels in three parts");
    ok(strstr(kolo_error_text(), "possible: 1, 2, 4, 8"), "the numbers that are possible are listed: %s",
       kolo_error_text());
    is_int(split_of(unlike, 3, uncut), 0, "a network with one pair that has three parts");
    ok(!strcmp(uncut, "first (8), sixteen (16)") || !strcmp(uncut, "sixteen (16)"),
       "the other is named, with its number of channels: %s", uncut);
}

/* A row of the table without a word on channels is WHOLE: it is never cut. Of those that are cut every one
 * that has parameters, or makes anything of several channels, is known to channels.c. */
static void table(void)
{
    int cut = 0, made = 0;
    for (int op = 0; op < KOLO_OP_COUNT; op++) {
        const kolo_op_info *o = &kolo_op_table[op];
        const bool backward = o->cut == KOLO_CUT_MADE || op == KOLO_OP_total;
        if (backward != (o->channels == KOLO_CHANNELS_MADE)) diag("%s: cut and channels disagree", o->name);
        made += backward == (o->channels == KOLO_CHANNELS_MADE);
        if (o->channels != KOLO_CHANNELS_WHOLE && o->channels != KOLO_CHANNELS_MADE) {
            cut++;
            if (o->min_in < 1 || (!o->gradient && op != KOLO_OP_norm_infer))
                diag("%s has no gradient", o->name);
        }
    }
    is_int(made, KOLO_OP_COUNT, "what only comes about by cutting or differentiation is in no network");
    ok(cut == 25, "%d operations are cut by channel; the others take whole maps", cut);
}

int main(void)
{
    static const int64_t blocks[] = {1, 8, 16, RIG_NHWC};
    kolo_backend *b = rig_backend(2);
    for (int i = 0; i < 4; i++) {
        for (int n = 0; n < (int)(sizeof network / sizeof *network); n++)
            for (int parts = 2; parts <= 4; parts += 2) compare(b, n, blocks[i], parts);
    }
    compare(b, 0, 16, 8);
    kolo_backend_destroy(&b);
    refused();
    table();
    return done_testing();
}
