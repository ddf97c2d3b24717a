/* Networks whose maps are cut into parts up to a module, and whose channels from there on, beside the same
 * networks in one piece: on whole numbers, which f32 adds exactly in any order, results and gradients have
 * the same bits. What crosses the switch is what is read of each part by another one, and no more. */
#include "parts_rig.h"

/* What works channel by channel, then a product: each part reads its channels of the map in front. */
static int channels_first(kolo_graph *g, int x)
{
    x = kolo_relu(g, "front", conv(g, "front.conv", x, 16, 3, 1, 1));
    x = kolo_max_pool(g, "late.pool", conv(g, "late.depth", x, 16, 3, 1, 16), 2, 2, 0);
    x = kolo_relu(g, "late.relu", conv(g, "late.row", x, 16, 3, 1, 1));
    x = kolo_relu(g, "late.relu1", conv(g, "late.col", x, 32, 1, 1, 1));
    return conv(g, "last.row", x, 8, 1, 1, 1);
}

/* The first operations want whole channels: they stay in parts of the pixels, and products put together what
 * they make. */
static int pixels_first(kolo_graph *g, int x)
{
    x = kolo_relu(g, "front", conv(g, "front.conv", x, 16, 3, 1, 1));
    int y = kolo_slice_channels(g, "late.some", conv(g, "late.depth", x, 16, 3, 1, 16), 2, 12);
    y = kolo_relu(g, "late.relu", conv(g, "late.col", y, 32, 1, 1, 1));
    return kolo_residual(g, "late.sum", x, conv(g, "late.row", y, 16, 1, 1, 1), -1, 0);
}

/* Two pairs, which may be in unlike parts. */
static int two_pairs(kolo_graph *g, int x)
{
    x = kolo_relu(g, "front", conv(g, "front.conv", x, 8, 3, 1, 1));
    int y = kolo_relu(g, "late.relu", conv(g, "late.col", x, 12, 3, 1, 1));
    x = kolo_residual(g, "late.sum", x, conv(g, "late.row", y, 8, 1, 1, 1), -1, 0);
    y = kolo_relu(g, "last.relu", conv(g, "last.col", x, 16, 1, 1, 1));
    return kolo_residual(g, "last.sum", x, conv(g, "last.row", y, 8, 1, 1, 1), -1, 0);
}

typedef int builder(kolo_graph *g, int x);
typedef struct net {
    rig r;
    int y;
} net;

static net open_net(kolo_backend *b, builder *build, int64_t block, const kolo_cuts *cuts)
{
    net n = {.r = rig_open(b, KOLO_F32, block)};
    kolo_graph *g = n.r.g;
    g->input = rig_input(&n.r, "x", 4, (const int64_t[]){2, 3, 13, 18});
    g->logits = build(g, g->input);
    rig_check(g->logits, "network");
    if (cuts) rig_check(kolo_graph_split_late(g, cuts), "channels");
    if (cuts) rig_check(kolo_graph_split(g, cuts), "maps");
    n.y = g->logits;
    rig_backward(&n.r, n.y);
    rig_layout(&n.r);
    rig_fill_whole(&n.r);
    return n;
}

/* The gradient of a parameter of the whole network, from the slabs that there are of it, or NULL. */
static float *gradient_of(net *cut, const kolo_tensor *param, int *slabs)
{
    const kolo_graph *g = cut->r.g;
    float *whole = malloc((size_t)kolo_tensor_count(param) * sizeof *whole);
    *slabs = 0;
    for (int t = 0; t < (int)g->tensors; t++) {
        char name[256];
        if (g->tensor[t].role != KOLO_ROLE_PARAM) continue;
        kolo_tensor_whole(&g->tensor[t], name);
        if (strcmp(name, param->name)) continue;
        float *v = g->grad[t] < 0 ? NULL : values_of(&cut->r, g->grad[t]);
        if (!v) return free(whole), NULL;
        if (g->tensor[t].slab.runs) kolo_slab_put(&g->tensor[t], v, whole);
        else memcpy(whole, v, (size_t)kolo_tensor_count(param) * sizeof *v);
        free(v);
        ++*slabs;
    }
    return *slabs ? whole : (free(whole), NULL);
}

/* Elements of each tensor whose name begins so that one part makes and others read, once for each of these;
 * most: the most channels x pixels that any such tensor has. */
static int64_t crossing(const kolo_graph *g, const char *named, int64_t *most)
{
    int64_t sum = 0;
    *most = 0;
    for (int t = 0; t < (int)g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        bool reads[KOLO_MAX_ARGS] = {false};
        if (x->producer < 0 || strncmp(x->name, named, strlen(named))) continue;
        for (int64_t i = 0; i < g->nodes; i++)
            for (int k = 0; k < g->node[i].n_in; k++) reads[g->node[i].part] |= g->node[i].in[k] == t;
        reads[g->node[x->producer].part] = false;
        for (int p = 0; p < KOLO_MAX_ARGS; p++) sum += reads[p] ? kolo_tensor_count(x) : 0;
        if (kolo_tensor_count(x) > *most) *most = kolo_tensor_count(x);
    }
    return sum;
}

/* What goes of a map of 16 channels from each part of its pixels to each part of its channels that is of
 * another part of the graph. */
static int64_t all_to_all(const kolo_cuts *c, int channels)
{
    const int parts = c->parts[0] * c->parts[1], all = kolo_cuts_parts(c);
    int64_t sum = 0;
    for (int i = 0; i < parts; i++)
        for (int j = 0; j < channels; j++) {
            const int row = i / c->parts[1], column = i % c->parts[1];
            const int64_t rows =
                kolo_part_start(13, c->parts[0], row + 1) - kolo_part_start(13, c->parts[0], row);
            const int64_t columns =
                kolo_part_start(18, c->parts[1], column + 1) - kolo_part_start(18, c->parts[1], column);
            if (kolo_part_start(all, parts, i) != kolo_part_start(all, channels, j))
                sum += 2 * rows * columns * 16 / channels;
        }
    return sum;
}

static void compare(kolo_backend *b, const char *what, builder *build, int64_t block, const kolo_cuts *cuts)
{
    net whole = open_net(b, build, block, NULL), cut = open_net(b, build, block, cuts);
    const kolo_graph *g = whole.r.g;
    int64_t wrong = 0;
    int parameters = 0, in_slabs = 0;
    rig_run(&whole.r);
    rig_run(&cut.r);
    float *want = values_of(&whole.r, whole.y), *got = values_of(&cut.r, cut.y);
    for (int64_t i = 0; i < kolo_tensor_count(&g->tensor[whole.y]); i++) wrong += want[i] != got[i];
    free(want);
    free(got);
    for (int t = 0; t < (int)g->tensors; t++) {
        int slabs;
        if (g->tensor[t].role != KOLO_ROLE_PARAM) continue;
        want = values_of(&whole.r, g->grad[t]), got = gradient_of(&cut, &g->tensor[t], &slabs);
        for (int64_t i = 0; got && i < kolo_tensor_count(&g->tensor[t]); i++) wrong += want[i] != got[i];
        wrong += !got;
        parameters++;
        in_slabs += slabs > 1;
        free(want);
        free(got);
    }
    ok(wrong == 0 && parameters > 7 && in_slabs > 2,
       "%s, %dx%d and %s in %d, blocks of %ld: the result and %d parameters' gradients have the same bits, "
       "%d "
       "in slabs (%ld differ)",
       what, cuts->parts[0], cuts->parts[1], cuts->range[0].from, cuts->range[0].channels, (long)block,
       parameters, in_slabs, (long)wrong);
    rig_close(&whole.r);
    rig_close(&cut.r);
}

/* Where the layers behind the switch begin channel by channel, that is all that is sent, either way. */
static void counts(int rows, int columns, int channels)
{
    const kolo_cut_range late[] = {{"late", {1, 1}, channels}};
    const kolo_cuts cuts = {.parts = {rows, columns}, .range = late, .ranges = 1, .apart = true};
    kolo_graph *g = NULL;
    int64_t most;
    rig_check(kolo_graph_create(&g, "counts", true, KOLO_F32), "graph");
    g->input = kolo_graph_tensor(g, "x", KOLO_ROLE_INPUT, KOLO_F32, 4, (const int64_t[]){2, 3, 13, 18});
    g->logits = channels_first(g, g->input);
    rig_check(kolo_graph_split_late(g, &cuts), "channels");
    rig_check(kolo_graph_split(g, &cuts), "maps");
    const int dy = kolo_graph_tensor(g, "dy", KOLO_ROLE_ACTIVATION, KOLO_F32, 4, g->tensor[g->logits].dim);
    g->grad = malloc(8192 * sizeof *g->grad);
    for (int i = 0; i < 8192; i++) g->grad[i] = -1;
    g->grad[g->logits] = dy;
    rig_check(kolo_gradient_walk(g), "gradients");
    const int64_t formula = all_to_all(&cuts, channels), there = crossing(g, "front:channels", &most),
                  back = crossing(g, "grad:front:channels", &(int64_t){0});
    ok(there == formula && back == formula && most * rows * columns < 2 * 16 * 13 * 18 * 2 &&
           most * channels <= 2 * 16 * 9 * 13 * 6,
       "%dx%d, then %d parts of channels: %ld elements go over, %ld come back, the formula is %ld; the "
       "largest "
       "tensor there has %ld of %d",
       rows, columns, channels, (long)there, (long)back, (long)formula, (long)most, 2 * 16 * 13 * 18);
    kolo_graph_destroy(&g);
}

static void pairs(kolo_backend *b)
{
    static const kolo_cut_range late[][2] = {{{"late", {1, 1}, 2}, {"last", {1, 1}, 4}},
                                             {{"late", {1, 1}, 4}, {"last", {1, 1}, 2}},
                                             {{"late", {1, 2}, 0}, {"last", {1, 1}, 4}}};
    for (int i = 0; i < 3; i++)
        for (int rows = 1; rows <= 2; rows++)
            if (late[i][0].channels || rows == 2)
                compare(b, "two pairs in unlike parts", two_pairs, 8,
                        &(kolo_cuts){.parts = {rows, rows}, .range = late[i], .ranges = 2, .apart = true});
}

static void refused(void)
{
    static const kolo_cut_range late[][2] = {{{"last", {1, 1}, 2}, {"late", {1, 1}, 4}},
                                             {{"late", {1, 1}, 5}, {"last", {1, 1}, 4}}};
    static const char *const why[] = {
        "late is not behind the module in front of it",
        "late:tensor=5: no layers of small from there to last can be cut into 5 "
        "parts"};
    for (int i = 0; i < 2; i++) {
        kolo_graph *g = NULL;
        rig_check(kolo_graph_create(&g, "small", true, KOLO_F32), "graph");
        const int x =
            kolo_graph_tensor(g, "x", KOLO_ROLE_ACTIVATION, KOLO_F32, 4, (const int64_t[]){2, 3, 8, 8});
        g->logits = two_pairs(g, x);
        is_int(kolo_graph_split_late(g, &(kolo_cuts){.parts = {1, 1}, .range = late[i], .ranges = 2}),
               KOLO_ECONFIG, "channels that cannot be cut so");
        ok(strstr(kolo_error_text(), why[i]), "  and why: %s", kolo_error_text());
        kolo_graph_destroy(&g);
    }
}

/* What no part of the channels can do alone in front of a product stays in parts of the pixels: each sends
 * its own to all that multiply. */
static void stays(void)
{
    static const kolo_cut_range late[] = {{"late", {1, 1}, 4}};
    const kolo_cuts cuts = {.parts = {2, 2}, .range = late, .ranges = 1, .apart = true};
    kolo_graph *g = NULL;
    int64_t most;
    rig_check(kolo_graph_create(&g, "stays", true, KOLO_F32), "graph");
    g->input = kolo_graph_tensor(g, "x", KOLO_ROLE_INPUT, KOLO_F32, 4, (const int64_t[]){2, 3, 13, 18});
    g->logits = pixels_first(g, g->input);
    rig_check(kolo_graph_split_late(g, &cuts), "channels");
    rig_check(kolo_graph_split(g, &cuts), "maps");
    const int64_t there = crossing(g, "late.some:part", &most);
    ok(there == 3 * 2 * 12 * 13 * 18 && most < 2 * 12 * 13 * 18 / 3 && kolo_graph_find(g, "late.some") < 0,
       "a map of %d elements, whole channels at a time, is made in parts of at most %ld: three of four parts "
       "are sent each: %ld",
       2 * 12 * 13 * 18, (long)most, (long)there);
    kolo_graph_destroy(&g);
}

int main(void)
{
    static const int64_t blocks[] = {1, 8, 16, RIG_NHWC};
    static const int degree[][3] = {{2, 2, 4}, {2, 2, 2}, {1, 2, 4}, {3, 1, 2}, {2, 2, 8}, {1, 1, 4}};
    kolo_backend *b = rig_backend(2);
    for (int i = 0; i < 6; i++) {
        const kolo_cut_range late[] = {{"late", {1, 1}, degree[i][2]}};
        const kolo_cuts cuts = {
            .parts = {degree[i][0], degree[i][1]}, .range = late, .ranges = 1, .apart = i != 1};
        for (int k = 0; k < (i == 0 ? 4 : 1); k++) {
            compare(b, "channels first", channels_first, blocks[k + i % 4 * (i > 0)], &cuts);
            compare(b, "pixels first", pixels_first, blocks[k + i % 4 * (i > 0)], &cuts);
        }
        if (degree[i][0] * degree[i][1] > 1) counts(degree[i][0], degree[i][1], degree[i][2]);
    }
    pairs(b);
    stays();
    kolo_backend_destroy(&b);
    refused();
    return done_testing();
}
