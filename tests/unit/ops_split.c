/* A network that is cut into parts beside the same network in one piece: on whole numbers, which f32 adds
 * exactly in any order, every activation and every gradient has the same bits. */
#include "parts_rig.h"

/* All windows that networks have: kernels 1, 2, 3 and 7, strides 1 and 2, with borders and without, pools of
 * both kinds, two readers of a map, a shortcut of every second pixel, squares, channels apart and joined. */
static int network(kolo_graph *g, int x)
{
    x = kolo_relu(g, "relu1", conv(g, "c7", x, 12, 7, 2, 1));
    x = kolo_max_pool(g, "max", x, 3, 2, 1);
    int y = conv(g, "c3", kolo_relu(g, "relu2", conv(g, "c1", x, 20, 1, 1, 1)), 20, 3, 2, 1);
    x = kolo_relu(g, "relu3", kolo_add(g, "add", y, kolo_shortcut_a(g, "short", x, 20)));
    y = kolo_max_pool_same(g, "same", conv(g, "depth", x, 20, 7, 1, 20), 2, 1);
    y = kolo_concat(g, "both", 2, (const int[]){kolo_slice_channels(g, "some", y, 3, 13), x});
    y = kolo_avg_pool(g, "avg", y, 2, 1, 1, true);
    y = kolo_linear(g, "point", kolo_space_to_depth(g, "square", y), 10, true, rig_init, rig_init);
    y = kolo_max_pool(g, "half", y, 2, 2, 0);
    y = conv(g, "fine", kolo_upsample(g, "up", y, 2), 6, 3, 1, 1);
    return kolo_flatten(g, "flat", y);
}

/* Attention within windows of 7 x 7, shifted where a map has several, on maps that are padded to whole
 * windows. */
static int attentive(kolo_graph *g, int x)
{
    int64_t more[2], shift[2];
    x = conv(g, "embed", x, 6, 1, 1, 1);
    for (int i = 0; i < 2; i++) {
        const int64_t size = g->tensor[x].dim[2 + i];
        more[i] = (7 - size % 7) % 7;
        shift[i] = size > 7 ? 3 : 0;
    }
    for (int block = 0; block < 2; block++) {
        char name[2][20];
        for (int k = 0; k < 2; k++) snprintf(name[k], sizeof name[k], "%s%d", k ? "qkv" : "attention", block);
        int y = kolo_pad(g, block ? "pad1" : "pad0", x, more[0], more[1]);
        y = kolo_linear(g, name[1], y, 24, true, rig_init, rig_init);
        y = kolo_window_attention(g, name[0], y, 2, 7, block ? shift : (const int64_t[]){0, 0});
        y = kolo_crop(g, block ? "crop1" : "crop0", y, more[0], more[1]);
        x = kolo_concat(g, block ? "both1" : "both0", 2, (const int[]){x, y});
    }
    return kolo_flatten(g, "flat", kolo_relu(g, "relu", x));
}

typedef struct net {
    rig r;
    int y;
} net;
typedef int (*body)(kolo_graph *g, int x);

/* apart: for parts on several ranks; wide: of halos, the share of a part (0: narrow) */
static net open_net(kolo_backend *b, body made_of, int64_t block, int64_t height, int64_t width,
                    const int parts[2], bool apart, double wide)
{
    net n = {.r = rig_open(b, KOLO_F32, block)};
    kolo_graph *g = n.r.g;
    g->input = rig_input(&n.r, "x", 4, (const int64_t[]){2, 3, height, width});
    g->logits = made_of(g, g->input);
    rig_check(g->logits, "network");
    if (parts)
        rig_check(kolo_graph_split(g, &(kolo_cuts){.parts = {parts[0], parts[1]}, .apart = apart}), "split");
    n.y = g->logits;
    rig_backward(&n.r, n.y);
    if (wide > 0) rig_check(kolo_graph_widen(g, wide), "wide halos");
    n.y = g->logits;
    rig_layout(&n.r);
    rig_fill_whole(&n.r);
    return n;
}

/* Numbers of map t of the whole network that are not those of its parts; gradients: of their gradients. */
static int64_t map_differs(net *whole, net *cut, int t, const int parts[2], bool gradient)
{
    const kolo_graph *g = whole->r.g;
    const kolo_tensor *x = &g->tensor[t];
    const int from = gradient ? g->grad[t] : t;
    float *want = values_of(&whole->r, from);
    int64_t wrong = 0;
    for (int p = 0; p < parts[0] * parts[1]; p++) {
        char name[300];
        snprintf(name, sizeof name, "%s:part%d", x->name, p);
        int u = kolo_graph_find(cut->r.g, name);
        if (u < 0 && p == 0) break; /* it is whole there too */
        if (u >= 0 && gradient) u = cut->r.g->grad[u];
        if (u < 0) return -1;
        const int64_t top = kolo_part_start(x->dim[2], parts[0], p / parts[1]),
                      left = kolo_part_start(x->dim[3], parts[1], p % parts[1]),
                      height = cut->r.g->tensor[u].dim[2], width = cut->r.g->tensor[u].dim[3];
        float *got = values_of(&cut->r, u);
        for (int64_t i = 0; i < kolo_tensor_count(&cut->r.g->tensor[u]); i++) {
            const int64_t plane = i / width / height, row = top + i / width % height,
                          column = left + i % width;
            wrong += got[i] != want[(plane * x->dim[2] + row) * x->dim[3] + column];
        }
        free(got);
    }
    free(want);
    return wrong;
}

static int64_t parameter_differs(net *whole, net *cut, int t)
{
    const int u = cut->r.g->grad[kolo_graph_find(cut->r.g, whole->r.g->tensor[t].name)];
    const int64_t count = kolo_tensor_count(&whole->r.g->tensor[t]);
    if (u < 0 || cut->r.g->tensor[u].role != KOLO_ROLE_GRADIENT) return -1;
    float *want = values_of(&whole->r, whole->r.g->grad[t]), *got = values_of(&cut->r, u);
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; i++) wrong += got[i] != want[i];
    free(want);
    free(got);
    return wrong;
}

typedef struct tally {
    int maps, gradients, parameters;
    int64_t wrong;
    char where[100];
} tally;

static void count(tally *t, int64_t wrong, int *compared, const char *where)
{
    ++*compared;
    if (!wrong) return;
    t->wrong++;
    snprintf(t->where, sizeof t->where, "%s: %ld", where, (long)wrong);
}

static void compare(kolo_backend *b, int64_t block, int64_t height, int64_t width, int rows, int columns,
                    double wide)
{
    const int parts[] = {rows, columns};
    net whole = open_net(b, network, block, height, width, NULL, false, 0),
        cut = open_net(b, network, block, height, width, parts, width % 2 == 1, wide);
    tally sum = {0};
    rig_run(&whole.r);
    rig_run(&cut.r);
    for (int t = 0; t < (int)whole.r.g->tensors; t++) {
        const kolo_tensor *x = &whole.r.g->tensor[t];
        if (x->role == KOLO_ROLE_PARAM)
            count(&sum, parameter_differs(&whole, &cut, t), &sum.parameters, x->name);
        if (x->role != KOLO_ROLE_ACTIVATION || x->rank != 4 || x->producer < 0 || x->dtype != KOLO_F32 ||
            !strncmp(x->name, "grad:", 5))
            continue;
        count(&sum, map_differs(&whole, &cut, t, parts, false), &sum.maps, x->name);
        if (whole.r.g->grad[t] >= 0)
            count(&sum, map_differs(&whole, &cut, t, parts, true), &sum.gradients, x->name);
    }
    if (wide > 0)
        ok(cut.r.g->halo.made > 0 && cut.r.g->halo.messages[1] < cut.r.g->halo.messages[0],
           "halos of %d of %d maps are made, %d messages instead of %d", cut.r.g->halo.made,
           cut.r.g->halo.maps, cut.r.g->halo.messages[1], cut.r.g->halo.messages[0]);
    ok(sum.wrong == 0 && sum.maps == 19 && sum.gradients > 12 && sum.parameters == 12,
       "%ld x %ld pixels in %d x %d parts, blocks of %ld: %d maps, %d of their gradients, %d parameters' "
       "have the "
       "same bits (%s)",
       (long)height, (long)width, rows, columns, (long)block, sum.maps, sum.gradients, sum.parameters,
       sum.where);
    rig_close(&whole.r);
    rig_close(&cut.r);
}

/* Numbers of two tensors that are not as near as their order of sums allows. */
static int64_t apart_by(rig *a, int t, rig *b, int u)
{
    const int64_t n = kolo_tensor_count(&a->g->tensor[t]);
    if (u < 0 || kolo_tensor_count(&b->g->tensor[u]) != n) return -1;
    float *want = values_of(a, t), *got = values_of(b, u), most = 1e-30F;
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(want[i]));
    for (int64_t i = 0; i < n; i++) wrong += !(fabsf(want[i] - got[i]) <= 1e-5F * most);
    free(want);
    free(got);
    return wrong;
}

/* Windows are computed as ever, whoever has them: the result is that of the whole map. */
static void windows(kolo_backend *b, int64_t block, int64_t height, int64_t width, int rows, int columns,
                    int cut_windows, double wide)
{
    const int parts[] = {rows, columns};
    net whole = open_net(b, attentive, block, height, width, NULL, false, 0),
        cut = open_net(b, attentive, block, height, width, parts, width % 2 == 1, wide);
    int made = 0;
    rig_run(&whole.r);
    rig_run(&cut.r);
    for (int64_t i = 0; i < cut.r.g->nodes; i++) made += cut.r.g->node[i].op == KOLO_OP_window_attention;
    is_int(made, cut_windows, "%ld x %ld pixels in %d x %d parts: attention cut by windows", (long)height,
           (long)width, rows, columns);
    is_int(apart_by(&whole.r, whole.y, &cut.r, cut.y), 0, "  the map of the whole network");
    for (int t = 0; t < (int)whole.r.g->tensors; t++) {
        const kolo_tensor *x = &whole.r.g->tensor[t];
        if (x->role != KOLO_ROLE_PARAM) continue;
        const int u = kolo_graph_find(cut.r.g, x->name);
        is_int(apart_by(&whole.r, whole.r.g->grad[t], &cut.r, cut.r.g->grad[u]), 0, "  gradient of %s",
               x->name);
    }
    rig_close(&whole.r);
    rig_close(&cut.r);
}

/* ---- layers that are cut otherwise --------------------------------------------------------------------- */

static int ranges_of(const kolo_cut_range *range, int ranges)
{
    kolo_graph *g;
    static const float mean[4] = {0}, one[4] = {1, 1, 1, 1};
    if (kolo_graph_create(&g, "small", true, KOLO_F32) < 0) return 0;
    kolo_normalize(g, kolo_input(g, 1, 21, 21, 3, 1), mean, one);
    attentive(g, (int)g->tensors - 1);
    const int rc = kolo_graph_split(g, &(kolo_cuts){.parts = {2, 2}, .range = range, .ranges = ranges});
    kolo_graph_destroy(&g);
    return rc;
}

static void ranges(void)
{
    is_int(ranges_of((const kolo_cut_range[]){{"attention0", {1, 2}, 0}, {"attention1", {1, 1}, 0}}, 2), 0,
           "layers in fewer parts than the image");
    is_int(ranges_of((const kolo_cut_range[]){{"attention2", {1, 2}, 0}}, 1), KOLO_ECONFIG,
           "an unknown module");
    ok(strstr(kolo_error_text(), "did you mean attention"), "  with the nearest one: %s", kolo_error_text());
    is_int(ranges_of((const kolo_cut_range[]){{"attention1", {1, 2}, 0}, {"attention0", {1, 1}, 0}}, 2),
           KOLO_ECONFIG, "modules in another order than the network's");
    is_int(ranges_of((const kolo_cut_range[]){{"attention1", {4, 1}, 0}}, 1), KOLO_ECONFIG,
           "more rows than the image's");
    ok(strstr(kolo_error_text(), "finer than the image's 2x2"), "  says so: %s", kolo_error_text());
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

static int split_of(int64_t height, int64_t width, int64_t kernel, int rows, int columns)
{
    kolo_graph *g;
    static const float mean[4] = {0}, one[4] = {1, 1, 1, 1};
    if (kolo_graph_create(&g, "small", true, KOLO_F32) < 0) return 0;
    int x = kolo_normalize(g, kolo_input(g, 1, height, width, 3, 1), mean, one);
    if (kernel) x = conv(g, "first", x, 8, kernel, 1, 1);
    else x = kolo_flatten(g, "flat", x);
    const int rc = kolo_graph_split(g, &(kolo_cuts){.parts = {rows, columns}});
    kolo_graph_destroy(&g);
    return rc;
}

static void refused(void)
{
    is_int(split_of(8, 16, 7, 2, 4), 0, "parts of four pixels with a halo of three");
    is_int(split_of(8, 16, 7, 4, 4), KOLO_ECONFIG, "parts of two pixels are smaller than it");
    ok(strstr(kolo_error_text(), "rows: 1, 2; columns: 1, 2, 3, 4, 5"),
       "the numbers that are possible are listed: %s", kolo_error_text());
    is_int(split_of(3, 16, 1, 4, 1), KOLO_ECONFIG, "more parts than rows");
    is_int(split_of(64, 64, 3, 5, 4), KOLO_ECONFIG, "more parts than an operation has inputs");
    is_int(split_of(64, 64, 0, 2, 2), KOLO_ECONFIG, "a network that takes images whole");
}

int main(void)
{
    static const int64_t blocks[] = {1, 8, 16, RIG_NHWC};
    kolo_backend *b = rig_backend(2);
    for (int i = 0; i < 4; i++) {
        compare(b, blocks[i], 48, 64, 2, 2, 0);
        compare(b, blocks[i], 45, 61, 1, 2, 0);
    }
    compare(b, 16, 45, 61, 2, 1, 0);
    compare(b, 8, 45, 61, 3, 2, 0);
    compare(b, RIG_NHWC, 61, 45, 2, 3, 0);
    compare(b, 8, 64, 50, 4, 4, 0);
    compare(b, 16, 128, 97, 2, 3, 0); /* large enough for what is behind the last pool */
    compare(b, 8, 48, 64, 2, 2, .5);
    compare(b, 16, 45, 61, 1, 2, .5);
    compare(b, RIG_NHWC, 128, 97, 2, 3, .5);
    compare(b, 1, 109, 150, 3, 3, .5);
    windows(b, 1, 21, 28, 2, 2, 8, 0);
    windows(b, 16, 19, 25, 2, 2, 8, 0);
    windows(b, RIG_NHWC, 23, 39, 3, 1, 6, 0);
    windows(b, 8, 15, 40, 1, 5, 10, 0);
    windows(b, 8, 7, 40, 2, 2, 2, 0); /* one window a column: whole */
    windows(b, 8, 19, 25, 2, 2, 8, .5);
    kolo_backend_destroy(&b);
    ranges();
    refused();
    return done_testing();
}
