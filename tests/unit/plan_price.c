/* What a step costs: bytes and FLOP by class against counts made here by hand, times against rates;
 * the tables of rates. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "models/models.h"
#include "plan/price.h"
#include "tap.h"

static const kolo_gpu gpu = {.name = "a GPU", .memory = (size_t)1 << 40};
static kolo_backend *backend;

typedef struct priced {
    kolo_graph *g;
    kolo_plan *p;
    kolo_price price;
} priced;

static priced price_model(const char *model, int64_t rows, int64_t side, enum kolo_dtype dtype,
                          const kolo_plan_config *c, const kolo_rates *rates)
{
    const kolo_model_config m = {.rows = rows,
                                 .height = side,
                                 .width = side,
                                 .channels = 3,
                                 .classes = 1000,
                                 .train = true,
                                 .dtype = dtype,
                                 .std = {.25f, .25f, .25f}};
    priced r = {NULL, NULL, {.step = 0}};
    if (kolo_model_graph(&r.g, model, &m) < 0 || kolo_plan_create(&r.p, r.g, backend, c, NULL) < 0 ||
        kolo_plan_price(r.p, rates, false, &r.price) < 0) {
        printf("Bail out! %s: %s\n", model, kolo_error_text());
        exit(1);
    }
    return r;
}

static void drop(priced *r)
{
    kolo_plan_destroy(&r->p);
    kolo_graph_destroy(&r->g);
}

static kolo_plan_config usual(int ranks)
{
    return (kolo_plan_config){
        .ranks = ranks, .slots = 1, .bucket_bytes = 25e6, .optimizer = kolo_optimizer_find("sgd")};
}

static bool near(double got, double want, double part)
{
    const bool is = fabs(got - want) <= part * fabs(want);
    if (!is) diag("got %.6g, want %.6g", got, want);
    return is;
}

/* ---- ResNet-50, from its paper's table ---- */

typedef struct convolution {
    int64_t in, out, kernel, stride, side; /* side: of y */
} convolution;

/* Its 53 convolutions; *n: how many. */
static const convolution *resnet50(int *n)
{
    static convolution c[64];
    static const int blocks[] = {3, 4, 6, 3};
    int64_t in = 64, side = 56;
    *n = 0;
    c[(*n)++] = (convolution){3, 64, 7, 2, 112};
    for (int s = 0; s < 4; s++)
        for (int b = 0; b < blocks[s]; b++) {
            const int64_t planes = INT64_C(64) << s, stride = s && !b ? 2 : 1;
            c[(*n)++] = (convolution){in, planes, 1, 1, side};
            side /= stride;
            c[(*n)++] = (convolution){planes, planes, 3, stride, side};
            c[(*n)++] = (convolution){planes, 4 * planes, 1, 1, side};
            if (!b) c[(*n)++] = (convolution){in, 4 * planes, 1, stride, side};
            in = 4 * planes;
        }
    return c;
}

static void test_resnet50(void)
{
    int n;
    const int64_t rows = 256;
    const convolution *c = resnet50(&n);
    double y = 0, x = 0, read = 0, w = 0, wide = 0, macs = 0;
    for (int i = 0; i < n; i++) {
        const convolution *k = &c[i];
        const double out = (double)(rows * k->out * k->side * k->side);
        const double in = (double)(rows * (i ? k->in : 8) * k->side * k->side * k->stride *
                                   k->stride); /* 3 channels are 8 */
        const double weights = (double)(k->out * (i ? k->in : 8) * k->kernel * k->kernel);
        y += 2 * out;
        if (i) x += 2 * in;
        read += 2 * (k->kernel < k->stride ? in / 4 : in); /* 1 x 1 with stride 2 */
        w += 2 * weights;
        if (i) wide += 2 * weights;
        macs += out * (double)(k->in * k->kernel * k->kernel);
    }
    const kolo_plan_config config = usual(1);
    priced r = price_model("resnet50", rows, 224, KOLO_BF16, &config, NULL);
    const kolo_cost *of = r.price.of;
    is_int(n, 53, "ResNet-50 has 53 convolutions");
    ok(near(2 * macs, 2 * 4.0872e9 * 256, .001),
       "of 4.09e9 multiply-accumulates an image, with the classifier's 2e6");
    ok(near(of[KOLO_CLASS_CONV].flops, 2 * macs, 1e-9), "forward: two FLOP each");
    ok(near(of[KOLO_CLASS_CONV_WEIGHT].flops, 2 * macs, 1e-9), "the weights' gradients: as many");
    ok(near(of[KOLO_CLASS_CONV_DATA].flops, 2 * (macs - (double)rows * 64 * 112 * 112 * 147), 1e-9),
       "the data's gradients: but the first's, whose input has none");
    ok(near(of[KOLO_CLASS_CONV].read, read + w, 1e-9) && near(of[KOLO_CLASS_CONV].written, y, 1e-9),
       "forward bytes: x where a filter touches it, the 16-bit weights, y (%.2f GB)", (read + w + y) / 1e9);
    ok(near(of[KOLO_CLASS_CONV_WEIGHT].read, read + y + w, 1e-9) &&
           near(of[KOLO_CLASS_CONV_WEIGHT].written, 3 * w, 1e-9),
       "bytes of the weights' gradients: x, dy; 16 bits of it, widened to 32");
    const double data = of[KOLO_CLASS_CONV_DATA].read - (y - 2 * (double)rows * 64 * 112 * 112 + wide);
    ok(data > -1 && near(of[KOLO_CLASS_CONV_DATA].written, x, 1e-9),
       "bytes of the data's gradients: dy and the weights read, dx written (and %.2f GB of what it is added "
       "to read)",
       data / 1e9);
    ok(near(of[KOLO_CLASS_NORM_STATS].read, y, 1e-9),
       "norm statistics read what the convolutions wrote (%.2f GB)", y / 1e9);
    ok(near(of[KOLO_CLASS_UPDATE].read, (3 * 4 + .05) * (double)r.p->arena_bytes[KOLO_ARENA_PARAM] / 4,
            .01) &&
           near(of[KOLO_CLASS_UPDATE].written,
                (2 * 4 + 2 + .02) * (double)r.p->arena_bytes[KOLO_ARENA_PARAM] / 4, .01),
       "SGD: gradient, weight and momentum read, the latter two and 16 bits written");
    is_int(of[KOLO_CLASS_SEND].calls, 0, "one rank sends nothing");
    int64_t calls = 0;
    double bytes = 0;
    for (int k = 0; k < KOLO_CLASSES; k++) calls += of[k].calls, bytes += of[k].read + of[k].written;
    is_int(calls, r.p->actions, "every action is counted once");
    ok(near(bytes, r.price.all.read + r.price.all.written, 1e-12),
       "and the sum is that of the classes: %.2f GB", bytes / 1e9);
    drop(&r);
}

/* ---- special rules, on graphs of one operation ---- */

static kolo_traffic traffic(const kolo_graph *g, int node, bool device, bool half)
{
    size_t *bytes = kolo_alloc((size_t)g->tensors * sizeof *bytes);
    for (int t = 0; t < g->tensors; t++) {
        bytes[t] = (size_t)kolo_tensor_count(&g->tensor[t]) * kolo_dtype_size(g->tensor[t].dtype);
        if (half && g->tensor[t].role == KOLO_ROLE_PARAM) bytes[t] /= 2;
    }
    const kolo_traffic t =
        kolo_op_table[g->node[node].op].bytes(g, &g->node[node], &(kolo_stored){bytes, device});
    free(bytes);
    return t;
}

static void test_rules(void)
{
    kolo_graph *g = NULL;
    const kolo_init zero = {KOLO_INIT_CONSTANT, 0};
    const kolo_conv_spec spec = {.out = 16,
                                 .kernel = {1, 1},
                                 .stride = {2, 2},
                                 .groups = 1,
                                 .bias = true,
                                 .weight = zero,
                                 .bias_init = zero};
    if (kolo_graph_create(&g, "rules", true, KOLO_BF16) < 0) return;
    const int x =
        kolo_graph_tensor(g, "x", KOLO_ROLE_ACTIVATION, KOLO_BF16, 4, (const int64_t[]){2, 8, 6, 6});
    kolo_conv(g, "c", x, &spec);
    kolo_crop(g, "crop", x, 3, 0);
    kolo_slice_channels(g, "slice", x, 2, 2);
    const int sum = kolo_add(g, "add", x, x);
    const double in = 2 * 8 * 36 * 2, y = 2 * 16 * 9 * 2, w = 16 * 8 * 4, b = 16 * 4;
    kolo_traffic t = traffic(g, 0, false, false);
    ok(near(t.read, in / 4 + w + b, 1e-9) && near(t.written, y, 1e-9),
       "1 x 1 with stride 2 reads a quarter of x");
    t = traffic(g, 0, true, true);
    ok(near(t.read, in / 4 + (w + b) / 2 + y, 1e-9) && near(t.written, 2 * y, 1e-9),
       "on a GPU its bias is a pass over y of its own");
    t = traffic(g, 1, true, false);
    ok(near(t.read, in / 2, 1e-9) && near(t.written, in / 2, 1e-9), "a crop reads what it keeps");
    t = traffic(g, 2, true, false);
    ok(near(t.read, in / 4, 1e-9) && near(t.written, in / 4, 1e-9), "so does a slice");
    is_int(kolo_node_class(g, &g->node[3]), KOLO_CLASS_ELEMENT, "an addition forward is one");
    g->node[3].backward = true;
    is_int(sum >= 0 ? (int)kolo_node_class(g, &g->node[3]) : -1, KOLO_CLASS_JOIN,
           "backward it joins gradients");
    int lacking = 0;
    for (int op = 0; op < KOLO_OP_COUNT; op++)
        lacking += !kolo_op_table[op].bytes || (int)kolo_op_table[op].class_of >= KOLO_CLASSES;
    is_int(lacking, 0, "every operation says its bytes and its class");
    kolo_graph_destroy(&g);
}

/* A data gradient with the sums of the norm in front: at once on a GPU in fp16, else one after another. */
static void test_masked(void)
{
    static const float mean[4] = {0}, one[4] = {1, 1, 1, 1};
    const kolo_conv_spec spec = {
        .out = 16, .kernel = {1, 1}, .stride = {1, 1}, .weight = {KOLO_INIT_CONSTANT, 0}};
    kolo_graph *g = NULL;
    int at = -1;
    if (kolo_graph_create(&g, "masked", true, KOLO_F16) < 0) return;
    int x = kolo_normalize(g, kolo_input(g, 2, 6, 6, 3, 1), mean, one);
    x = kolo_relu(g, "r", kolo_batch_norm(g, "n", kolo_conv(g, "a", x, &spec), 1e-5, 0.1, 1));
    kolo_cross_entropy(g, kolo_global_avg_pool(g, "p", kolo_conv(g, "b", x, &spec)), 0);
    ok(kolo_graph_fuse(g) == 0 && kolo_graph_backward(g) == 0 && kolo_graph_fuse_grad(g) == 0,
       "a fused gradient");
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op == KOLO_OP_conv_grad_norm) at = i;
    const double map = 2 * 16 * 36 * 2, w = 16 * 16 * 2, vectors = 2 * 16 * 2, sums = 33 * 8;
    const double made = 32 * 8 + 2 * 16 * 4;
    kolo_traffic t = traffic(g, at, true, true);
    ok(near(t.read, 2 * map + w + vectors + sums, 1e-9) && near(t.written, map + made, 1e-9),
       "reads dy and what is normed, and writes g");
    t = traffic(g, at, false, true);
    ok(near(t.read, 5 * map + w + vectors + sums, 1e-9) && near(t.written, 2 * map + made, 1e-9),
       "without a library for it g is made, masked, and read with what is normed for its sums");
    is_int(kolo_node_class(g, &g->node[at]), KOLO_CLASS_CONV_NORM, "it counts as a convolution with a norm");
    kolo_graph_destroy(&g);
}

/* ---- times ---- */

static kolo_rates simple(void)
{
    return (kolo_rates){.memory = 1e12,
                        .bandwidth = 1000,
                        .f32 = 1e6,
                        .tf32 = 1e6,
                        .bf16 = 1e6,
                        .fp16 = 1e6,
                        .gpus = 2,
                        .link = 100,
                        .network = 10,
                        .link_share = 1,
                        .bytes = .5,
                        .flops = 1};
}

static void test_times(void)
{
    kolo_rates rates = simple();
    const kolo_plan_config one = usual(1), two = usual(2), four = usual(4);
    priced r = price_model("resnet50", 32, 64, KOLO_BF16, &one, &rates);
    const double bytes = r.price.all.read + r.price.all.written;
    ok(near(r.price.step, bytes / 500e9, 1e-3), "bound by memory: the bytes at the share of the bandwidth");
    drop(&r);
    rates.bytes_of[KOLO_CLASS_NORM_STATS] = .25;
    r = price_model("resnet50", 32, 64, KOLO_BF16, &one, &rates);
    ok(near(r.price.step, (bytes + r.price.of[KOLO_CLASS_NORM_STATS].read) / 500e9, 1e-3),
       "a class with a share of its own takes it");
    drop(&r);
    rates = simple();
    rates.bf16 = 1e-3;
    r = price_model("resnet50", 32, 64, KOLO_BF16, &one, &rates);
    ok(near(r.price.of[KOLO_CLASS_CONV].seconds, r.price.of[KOLO_CLASS_CONV].flops / 1e9, 1e-6),
       "bound by arithmetic: FLOP at the rate");
    ok(r.price.of[KOLO_CLASS_NORM_STATS].memory > 0, "the others stay bound by memory");
    drop(&r);
    rates = simple();
    rates.launch = 1e3;
    r = price_model("resnet50", 32, 64, KOLO_BF16, &one, &rates);
    ok(near(r.price.step, bytes / 500e9 + 1e-3 * (double)r.price.all.calls, 1e-3),
       "every launch takes its time");
    drop(&r);
    rates = simple();
    rates.launch_of[KOLO_CLASS_CONV] = 1e3;
    r = price_model("resnet50", 32, 64, KOLO_BF16, &one, &rates);
    ok(near(r.price.step, bytes / 500e9 + 1e-3 * (double)r.price.of[KOLO_CLASS_CONV].calls, 1e-3),
       "a class may have a launch of its own");
    drop(&r);

    rates = simple();
    rates.link = 10;
    r = price_model("resnet50", 32, 64, KOLO_BF16, &two, &rates);
    const double gradients = (double)r.p->arena_bytes[KOLO_ARENA_GRADIENT], alone = r.price.all.seconds;
    ok(near(r.price.of[KOLO_CLASS_SEND].sent, gradients, 1e-3), "two ranks: each sends the gradients once");
    ok(near(r.price.of[KOLO_CLASS_SEND].seconds, gradients / 10e9, 1e-3), "at the link's rate");
    ok(r.price.waited > 0 && near(r.price.step, alone + r.price.waited, 1e-9),
       "and waits for what backward did not hide");
    ok(r.price.waited < r.price.of[KOLO_CLASS_SEND].seconds, "which is not all of it");
    drop(&r);
    rates.link = 100;
    r = price_model("resnet50", 32, 64, KOLO_BF16, &four, &rates);
    ok(near(r.price.of[KOLO_CLASS_SEND].seconds, 1.5 * gradients / 20e9, 1e-3),
       "two nodes of two GPUs: both ports of the network together");
    drop(&r);
}

/* VGG-11 in f32, arithmetic far above memory: all its convolutions are 3x3 of stride 1, so tiles of 2 x 2
 * take 16 products of 36, and of 4 x 4 36 of 144; where memory is slow the larger ones do not pay. */
static void test_winograd(void)
{
    const kolo_plan_config one = usual(1);
    const struct {
        double tile, bandwidth, times;
        const char *text;
    } row[] = {{2, 1e6, 36. / 16, "in tiles of 2 x 2 they take 16 of 36 products"},
               {4, 1e6, 144. / 36, "of 4 x 4 a quarter"},
               {4, 100, 36. / 16, "which have to be written first, where memory is slow"}};
    for (int i = 0; i < 3; i++) {
        kolo_rates rates = simple();
        rates.f32 = i < 2 ? 1e-3 : 1;
        rates.bandwidth = row[i].bandwidth;
        priced direct = price_model("vgg11", 2, 64, KOLO_F32, &one, &rates);
        rates.winograd = row[i].tile;
        priced tiled = price_model("vgg11", 2, 64, KOLO_F32, &one, &rates);
        const double was = direct.price.of[KOLO_CLASS_CONV].seconds,
                     is = tiled.price.of[KOLO_CLASS_CONV].seconds;
        ok(i < 2 ? near(was / is, row[i].times, .02) : was / is > 1 && was / is < row[i].times,
           "Winograd's convolutions: %s", row[i].text);
        drop(&direct);
        drop(&tiled);
    }
}

/* ---- tables ---- */

static char folder[] = "/tmp/kolo-rates-XXXXXX", path[64];

static int read_text(const char *text, kolo_rates *rates)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) printf("Bail out! %s\n", path);
    const int rc = kolo_rates_read(rates, path);
    return rc < 0 ? rc : kolo_rates_check(rates, path);
}

#define ALL                                                                                                  \
    "memory: 1e9\nbandwidth: 100\nf32: 1\ntf32: 1\nbf16: 1\nfp16: 1\nlaunch: 0\ngpus: 8\nlink: 1\nnetwork: " \
    "1\nlatency: 0\n"
#define SHARES "link_share: 1\nbytes: .9\nflops: .5\n"

static void test_tables(void)
{
    static const struct {
        const char *text, *says, *what;
    } bad[] = {{ALL SHARES "bandwith: 3\n", "bandwith\"; is \"bandwidth\" meant", "a misspelt key"},
               {ALL "link_share: 1\nflops: .5\n", "bytes is missing", "a key that is not there"},
               {ALL SHARES "bytes_conv: -0.5\n", "bytes_conv: -0.5 is out of range", "a negative share"},
               {ALL SHARES "bytes_conv: 0\n", "bytes_conv: 0 is out of range", "a share of nothing"},
               {ALL "link_share: 1\nbytes: .9\nflops: 1.5\n", "flops: 1.5 is out of range", "more than all"},
               {ALL SHARES "flops_conv: nan\n", "flops_conv: nan is out of range", "no number at all"},
               {ALL SHARES "flops_conv: inf\n", "flops_conv: inf is out of range", "infinity"},
               {ALL SHARES "flops_conv: .5x\n", "flops_conv: \".5x\" is not a number",
                "a number with more behind it"},
               {ALL SHARES "flops_conv:\n", "is not a number", "an empty value"},
               {ALL SHARES "bytes: .8\n", "set twice", "a key twice"},
               {"- 1\n", "a table of a GPU is a mapping", "a list"},
               {"", "memory is missing", "an empty file"}};
    kolo_rates rates;
    kolo_rates_begin(&rates);
    ok(read_text(ALL SHARES "flops_conv: .4\n", &rates) == 0 && rates.bandwidth == 100 &&
           rates.flops_of[KOLO_CLASS_CONV] == .4,
       "a table is read");
    ok(kolo_rates_read(&rates, path) == 0 && read_text("bandwidth: 90\nbytes: 1\n", &rates) == 0 &&
           rates.bandwidth == 90 && rates.bytes == 1 && rates.link == 1,
       "what was measured overwrites what it names");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kolo_rates_begin(&rates);
        const int rc = read_text(bad[i].text, &rates);
        ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), bad[i].says) && strstr(kolo_error_text(), path),
           "%s: refused with file and key", bad[i].what);
        if (rc != KOLO_ECONFIG || !strstr(kolo_error_text(), bad[i].says))
            diag("%d: %s", rc, kolo_error_text());
    }
}

int main(void)
{
    const kolo_backend_config config = {.threads = 1, .gpu = &gpu};
    unsetenv("KOLO_CUDA_LIBRARY"); /* what is known without it */
    if (!mkdtemp(folder) || kolo_backend_create(&backend, "cuda", &config) < 0) {
        printf("Bail out! %s\n", kolo_error_text());
        return 1;
    }
    snprintf(path, sizeof path, "%s/gpu.yaml", folder);
    test_resnet50();
    test_rules();
    test_masked();
    test_times();
    test_winograd();
    test_tables();
    kolo_backend_destroy(&backend);
    unlink(path);
    rmdir(folder);
    return done_testing();
}
