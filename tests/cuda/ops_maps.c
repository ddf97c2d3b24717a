/* The CUDA backend's operations on maps, except products and norms, against the CPU backend's. */
#include "cuda_pair.h"

/* ---- element ------------------------------------------------------------------------------------------- */

static void element(enum kolo_dtype dtype, int rank, const int64_t *dim, bool in_place, enum fill fill)
{
    pair p = pair_open(dtype, "element");
    int a = 0, b = 0, dy = 0;
    for (int i = 0; i < 2; i++) {
        rig *r = &p.side[i];
        a = rig_input(r, "a", rank, dim);
        b = rig_input(r, "b", rank, dim);
        dy = rig_input(r, "dy", rank, dim);
        int y = kolo_relu(r->g, "relu", a), dx = rig_input(r, "dx", rank, dim);
        rig_check(kolo_add(r->g, "add", a, b), "add");
        const int in[] = {dy, y};
        rig_check(kolo_graph_node_with(r->g, KOLO_OP_relu_grad, 2, in, 1, &dx, NULL), "relu_grad");
        r->in_place = in_place;
        rig_layout(r);
    }
    snprintf(p.shape, sizeof p.shape, "%ldx%ld of rank %d%s", (long)dim[0], (long)dim[1], rank,
             in_place ? " in place" : "");
    pair_fill(&p, a, fill);
    pair_fill(&p, b, fill);
    pair_fill(&p, dy, fill);
    pair_check(&p, 0);
}

static void elements(enum kolo_dtype dtype)
{
    static const int64_t flat[][2] = {{1, 1}, {3, 17}, {5, 8}, {5, 10}, {3, 4099}, {1, 8192}};
    static const int64_t map[][4] = {{1, 1, 1, 1}, {3, 10, 7, 7}, {2, 17, 13, 9}, {3, 64, 13, 9}};
    failures = 0;
    for (int in_place = 0; in_place < 2; in_place++) {
        for (int i = 0; i < 6; i++) element(dtype, 2, flat[i], in_place, STRANGE);
        for (int i = 0; i < 4; i++) element(dtype, 4, map[i], in_place, SMOOTH);
    }
    is_int(failures, 0, "%s: relu, add, relu_grad have the CPU's bits, in place too", kolo_dtype_name(dtype));
}

/* ---- images ------------------------------------------------------------------------------------------ */

static void normalize(enum kolo_dtype dtype)
{
    static const float mean[4] = {0.485f, 0.456f, 0.406f, 0.5f},
                       deviation[4] = {0.229f, 0.224f, 0.225f, 0.25f};
    static const int64_t side[][3] = {{1, 1, 1}, {3, 13, 9}, {5, 64, 65}};
    failures = 0;
    for (int64_t c = 1; c <= 4; c++)
        for (int s = 0; s < 3; s++) {
            pair p = pair_open(dtype, "normalize");
            snprintf(p.shape, sizeof p.shape, "%ld images %ldx%ldx%ld", (long)side[s][0], (long)side[s][1],
                     (long)side[s][2], (long)c);
            int x = 0;
            for (int i = 0; i < 2; i++) {
                x = kolo_input(p.side[i].g, side[s][0], side[s][1], side[s][2], c, 1);
                rig_check(kolo_normalize(p.side[i].g, x, mean, deviation), "normalize");
                p.side[i].g->node[0].a.reverse = s == 1;
                rig_layout(&p.side[i]);
            }
            enum kolo_dtype type = p.dtype;
            p.dtype = KOLO_F32; /* bytes are not rounded */
            pair_fill(&p, x, BYTES);
            p.dtype = type;
            pair_check(&p, 0);
        }
    is_int(failures, 0, "%s: normalize has the CPU's bits for 1 to 4 channels, also in reverse order",
           kolo_dtype_name(dtype));
}

/* ---- pooling ------------------------------------------------------------------------------------------- */

typedef struct window {
    int64_t kernel, stride, pad;
} window;

enum kind { MAX, AVERAGE, AVERAGE_PAD };

static void pool(enum kolo_dtype dtype, enum kind kind, const window *w, const int64_t *dim, enum fill fill)
{
    pair p = pair_open(dtype, kind == MAX       ? "max_pool"
                              : kind == AVERAGE ? "avg_pool"
                                                : "avg_pool with padding");
    int x = 0, dy = 0;
    for (int i = 0; i < 2; i++) {
        rig *r = &p.side[i];
        x = rig_input(r, "x", 4, dim);
        int y = kind == MAX ? kolo_max_pool(r->g, "y", x, w->kernel, w->stride, w->pad)
                            : kolo_avg_pool(r->g, "y", x, w->kernel, w->stride, w->pad, kind == AVERAGE_PAD);
        rig_check(y, "pool");
        dy = rig_backward(r, y);
        rig_layout(r);
    }
    snprintf(p.shape, sizeof p.shape, "%ldx%ldx%ldx%ld, window %ld stride %ld pad %ld", (long)dim[0],
             (long)dim[1], (long)dim[2], (long)dim[3], (long)w->kernel, (long)w->stride, (long)w->pad);
    pair_fill(&p, x, fill);
    pair_fill(&p, dy, SMOOTH);
    /* the CPU may join a product and a sum in one rounding; so may the GPU */
    pair_check_above(&p, kind == MAX ? 0 : ulp(dtype), 1);
}

static void pools(enum kolo_dtype dtype, enum kind kind)
{
    static const window windows[] = {{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {5, 2, 2}, {1, 2, 0},
                                     {3, 4, 1}, {2, 1, 1}, {4, 3, 2}, {7, 7, 3}};
    static const int64_t dims[][4] = {{1, 1, 1, 1},  {3, 3, 7, 7},   {2, 8, 13, 9},
                                      {5, 10, 4, 6}, {1, 17, 13, 9}, {1, 64, 9, 16}};
    int64_t cases = 0;
    failures = 0;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (size_t k = 0; k < sizeof dims / sizeof *dims; k++) {
            const window *w = &windows[i];
            if (dims[k][2] + 2 * w->pad < w->kernel || dims[k][3] + 2 * w->pad < w->kernel) continue;
            pool(dtype, kind, w, dims[k], SMOOTH);
            cases++;
            if (kind != MAX) continue;
            pool(dtype, kind, w, dims[k], LEVELS);
            pool(dtype, kind, w, dims[k], STRANGE);
        }
    ok(!failures && cases > 30, "%s: %s and its gradient, %ld windows and shapes%s", kolo_dtype_name(dtype),
       kind == MAX       ? "max_pool"
       : kind == AVERAGE ? "avg_pool"
                         : "avg_pool that counts padding",
       (long)cases, kind == MAX ? ", with ties, NaN and infinities: the CPU's bits and indices" : "");
}

/* A window whose sides differ. */
static void oblong(enum kolo_dtype dtype)
{
    failures = 0;
    for (int maximum = 0; maximum < 2; maximum++) {
        pair p = pair_open(dtype, maximum ? "oblong max_pool" : "oblong avg_pool");
        const kolo_attributes a = {
            .kernel = {3, 2}, .stride = {1, 3}, .pad = {1, 0}, .dilation = {1, 1}, .groups = 1};
        int x = 0, dy = 0;
        for (int i = 0; i < 2; i++) {
            rig *r = &p.side[i];
            x = rig_input(r, "x", 4, (const int64_t[]){2, 10, 5, 11});
            int node = kolo_graph_node(r->g, maximum ? KOLO_OP_max_pool : KOLO_OP_avg_pool, 1, &x,
                                       maximum ? 2 : 1, &a, "y");
            rig_check(node, "pool");
            dy = rig_backward(r, r->g->node[node].out[0]);
            rig_layout(r);
        }
        pair_fill(&p, x, SMOOTH);
        pair_fill(&p, dy, SMOOTH);
        pair_check_above(&p, maximum ? 0 : ulp(dtype), 1);
    }
    is_int(failures, 0, "%s: windows of 3 x 2, stride 1 x 3", kolo_dtype_name(dtype));
}

/* ---- whole maps ---------------------------------------------------------------------------------------- */

static void whole(enum kolo_dtype dtype, const char *what, int (*make)(rig *, int), const int64_t (*dims)[4],
                  int count, double tolerance)
{
    failures = 0;
    for (int k = 0; k < count; k++) {
        pair p = pair_open(dtype, what);
        int x = 0, dy = 0;
        for (int i = 0; i < 2; i++) {
            x = rig_input(&p.side[i], "x", 4, dims[k]);
            int y = make(&p.side[i], x);
            rig_check(y, what);
            dy = rig_backward(&p.side[i], y);
            rig_layout(&p.side[i]);
        }
        snprintf(p.shape, sizeof p.shape, "%ldx%ldx%ldx%ld", (long)dims[k][0], (long)dims[k][1],
                 (long)dims[k][2], (long)dims[k][3]);
        pair_fill(&p, x, SMOOTH);
        pair_fill(&p, dy, SMOOTH);
        pair_check(&p, tolerance);
    }
    is_int(failures, 0, "%s: %s and its gradient, %d shapes%s", kolo_dtype_name(dtype), what, count,
           tolerance > 0 ? "" : ": the CPU's bits");
}

static int make_global(rig *r, int x) { return kolo_global_avg_pool(r->g, "y", x); }
static int make_adaptive(rig *r, int x) { return kolo_adaptive_avg_pool(r->g, "y", x, 7, 7); }
static int make_oblong(rig *r, int x) { return kolo_adaptive_avg_pool(r->g, "y", x, 3, 11); }
static int make_max_same(rig *r, int x) { return kolo_max_pool_same(r->g, "y", x, 2, 1); }
static int make_max_half(rig *r, int x) { return kolo_max_pool_same(r->g, "y", x, 2, 2); }
static int make_avg_half(rig *r, int x) { return kolo_avg_pool_same(r->g, "y", x, 2, 2); }
static int make_flatten(rig *r, int x) { return kolo_flatten(r->g, "y", x); }
static int make_wider(rig *r, int x) { return kolo_shortcut_a(r->g, "y", x, 2 * r->g->tensor[x].dim[1]); }
static int make_wider_by_6(rig *r, int x)
{
    return kolo_shortcut_a(r->g, "y", x, r->g->tensor[x].dim[1] + 6);
}

static void wholes(enum kolo_dtype dtype)
{
    static const int64_t any[][4] = {{1, 1, 1, 1},    {3, 3, 7, 7},  {2, 8, 13, 9},  {5, 10, 4, 6},
                                     {1, 17, 13, 9},  {2, 64, 7, 7}, {2, 300, 7, 7}, {1, 1, 28, 28},
                                     {1, 40, 40, 41}, {3, 520, 1, 1}};
    static const int64_t even[][4] = {{1, 2, 1, 1}, {3, 16, 8, 8}, {2, 10, 13, 9}, {2, 64, 7, 4}};
    whole(dtype, "global_avg_pool", make_global, any, 10, ulp(dtype));
    whole(dtype, "adaptive_avg_pool to 7x7", make_adaptive, any, 10, dtype == KOLO_F32 ? 5e-4 : ulp(dtype));
    whole(dtype, "adaptive_avg_pool to 3x11", make_oblong, any, 6, dtype == KOLO_F32 ? 5e-4 : ulp(dtype));
    whole(dtype, "max_pool_same", make_max_same, any, 6, 0);
    whole(dtype, "max_pool_same of stride 2", make_max_half, any, 6, 0);
    whole(dtype, "avg_pool_same of stride 2", make_avg_half, any, 6, dtype == KOLO_F32 ? 5e-4 : ulp(dtype));
    whole(dtype, "flatten", make_flatten, any, 10, 0);
    whole(dtype, "shortcut_a to twice the channels", make_wider, even, 4, 0);
    whole(dtype, "shortcut_a with 3 channels on each side", make_wider_by_6, any, 6, 0);
}

/* ---- loss ---------------------------------------------------------------------------------------------- */

typedef struct entropy {
    int64_t rows, classes;
    int32_t valid;
    double smoothing;
    enum fill fill;
} entropy;

typedef struct loss {
    pair p;
    int x, dx, label, metrics;
} loss;

static loss loss_open(enum kolo_dtype dtype, const entropy *e)
{
    loss l = {.p = pair_open(dtype, "cross_entropy")};
    snprintf(l.p.shape, sizeof l.p.shape, "%ld rows of %ld classes, %d valid, smoothing %g", (long)e->rows,
             (long)e->classes, e->valid, e->smoothing);
    for (int i = 0; i < 2; i++) {
        rig *r = &l.p.side[i];
        kolo_graph *g = r->g;
        rig_check(kolo_input(g, e->rows, 1, 1, 1, 1), "input");
        l.label = g->label;
        l.x = rig_input(r, "logits", 2, (const int64_t[]){e->rows, e->classes});
        l.dx = rig_input(r, "dlogits", 2, (const int64_t[]){e->rows, e->classes});
        l.metrics = kolo_cross_entropy(g, l.x, e->smoothing);
        rig_check(l.metrics, "cross entropy");
        const int in[] = {l.x, l.label};
        rig_check(kolo_graph_node_with(g, KOLO_OP_cross_entropy_grad, 2, in, 1, &l.dx, &g->node[0].a),
                  "gradient");
        r->step.valid[0] = e->valid;
        r->step.valid_global = 3 * e->rows;
        rig_layout(r);
    }
    pair_fill(&l.p, l.x, e->fill);
    return l;
}

static void set_labels(loss *l, int64_t classes, const int32_t *label)
{
    int64_t rows = l->p.side[0].g->tensor[l->label].dim[0];
    float *v = malloc((size_t)rows * sizeof *v);
    for (int64_t i = 0; i < rows; i++) v[i] = label ? (float)label[i] : (float)(next(&l->p.seed) % classes);
    for (int i = 0; i < 2; i++) rig_set(&l->p.side[i], l->label, v);
    free(v);
}

static void cross_entropy(enum kolo_dtype dtype)
{
    static const entropy cases[] = {
        {1, 2, INT32_MAX, 0, SMOOTH}, {5, 10, 5, 0.1, SMOOTH},   {5, 10, 3, 0, SMOOTH},
        {5, 17, 0, 0.1, SMOOTH},      {3, 1000, 2, 0.1, SMOOTH}, {600, 10, 599, 0, SMOOTH},
        {2, 65536, 2, 0.1, SMOOTH},   {4, 129, 4, 0, LEVELS},    {5, 1000, INT32_MAX, 0, LEVELS},
        {300, 7, 290, 0.5, LEVELS},   {40, 10, 40, 0, STRANGE},  {40, 33, 39, 0.1, STRANGE},
    };
    failures = 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const entropy *e = &cases[k];
        loss l = loss_open(dtype, e);
        set_labels(&l, e->classes, NULL);
        for (int i = 0; i < 2; i++) rig_run(&l.p.side[i]);
        failures += unlike(&l.p, l.metrics, 2e-6, 1) > 0;
        failures += unlike(&l.p, l.dx, 2 * ulp(dtype), 1e-4) > 0;
        pair_close(&l.p);
    }
    is_int(failures, 0,
           "%s: loss, top-1, top-5, rows and the gradient of %ld cases: rows that do not count, ties, NaN, "
           "65536 classes",
           kolo_dtype_name(dtype), (long)(sizeof cases / sizeof *cases));
}

static void loss_scale(void)
{
    const entropy e = {5, 10, 4, 0.1, SMOOTH};
    loss l = loss_open(KOLO_F16, &e);
    float one[50], many[50];
    bool scaled = true;
    set_labels(&l, e.classes, NULL);
    rig_run(&l.p.side[1]);
    rig_get(&l.p.side[1], l.dx, one);
    l.p.side[1].step.scaler.scale = 1024;
    rig_run(&l.p.side[1]);
    rig_get(&l.p.side[1], l.dx, many);
    for (int i = 0; i < 50; i++)
        scaled &= fabsf(many[i] - 1024 * one[i]) <= 0x1p-9f * fabsf(many[i]) + 1024 * 0x1p-24f;
    ok(scaled && many[0] != 0 && many[49] == 0, "the gradient is multiplied by the loss scale");
    pair_close(&l.p);
}

static void bad_labels(void)
{
    static const int32_t none[] = {0, 9, 5, 1, -1}, two[] = {0, 1, 10, -3, 4};
    const entropy e = {5, 10, 4, 0, SMOOTH};
    loss l = loss_open(KOLO_BF16, &e);
    kolo_step *step = &l.p.side[1].step;
    float metric[4], dx[50];
    set_labels(&l, e.classes, none);
    rig_run(&l.p.side[1]);
    ok(!step->bad.kind, "a label out of range in a row that does not count is not reported");
    set_labels(&l, e.classes, two);
    rig_run(&l.p.side[1]);
    ok(step->bad.kind == KOLO_BAD_CLASS && step->bad.slot == 0 && step->bad.row == 2 && step->bad.value == 10,
       "the first label out of range is reported: slot %d, row %d, label %d", step->bad.slot, step->bad.row,
       step->bad.value);
    rig_get(&l.p.side[1], l.metrics, metric);
    rig_get(&l.p.side[1], l.dx, dx);
    bool zero = true;
    for (int i = 20; i < 50; i++) zero &= dx[i] == 0;
    ok(isfinite(metric[0]) && metric[3] == 4 && zero && dx[0] != 0, "its row has no loss and no gradient");
    step->bad.slot = 7;
    rig_run(&l.p.side[1]);
    is_int(step->bad.slot, 7, "an earlier one is kept");
    is_int(rig_run_node(&l.p.side[0], 0), KOLO_EINPUT, "the CPU refuses the same rows");
    pair_close(&l.p);
}

/* Kernels count a map's pixels in 32 bits: larger ones are refused when the plan is made.
 * Nothing is allocated here. */
static void too_large(void)
{
    kolo_graph *g = NULL;
    rig_check(kolo_graph_create(&g, "large", true, KOLO_BF16), "graph");
    int x = kolo_graph_tensor(g, "x", KOLO_ROLE_ACTIVATION, KOLO_BF16, 4,
                              (const int64_t[]){16384, 64, 1024, 1024});
    rig_check(kolo_relu(g, "relu", x), "relu"); /* node 0: has no such limit */
    rig_check(kolo_max_pool(g, "max", x, 2, 2, 0), "max_pool");
    rig_check(kolo_avg_pool(g, "avg", x, 2, 2, 0, false), "avg_pool");
    rig_check(kolo_adaptive_avg_pool(g, "even", x, 7, 7), "adaptive_avg_pool");
    rig_check(kolo_flatten(g, "flat", x), "flatten");
    rig_check(kolo_shortcut_a(g, "short", x, 128), "shortcut");
    kolo_layout *layout = calloc((size_t)g->tensors, sizeof *layout);
    rig_check(kolo_backend_layout(gpu, g, NULL, NULL, layout), "layout");
    kolo_kernel *kernel;
    size_t bytes;
    int refused = 0;
    for (int i = 1; i < (int)g->nodes; i++)
        refused += kolo_backend_prepare(gpu, g, i, layout, &kernel, &bytes) == KOLO_ECONFIG;
    is_int(refused, g->nodes - 1, "maps of 2^31 vectors are refused: %s", kolo_error_text());
    is_int(kolo_backend_prepare(gpu, g, 0, layout, &kernel, &bytes), 0, "relu takes them");
    free(layout);
    kolo_graph_destroy(&g);
}

int main(void)
{
    cuda_rig();
    pair_backends();
    for (int i = 0; i < 3; i++) {
        elements(types[i]);
        normalize(types[i]);
        for (int kind = MAX; kind <= AVERAGE_PAD; kind++) pools(types[i], (enum kind)kind);
        oblong(types[i]);
        wholes(types[i]);
        cross_entropy(types[i]);
    }
    loss_scale();
    bad_labels();
    too_large();
    pair_backends_close();
    return done_testing();
}
