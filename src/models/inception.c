/* Inception-v3: modules of several branches side by side, whose maps stand one behind the other. Names and
 * initialisation as in torchvision, with its auxiliary head on the last map of 17x17 in training. Every
 * convolution has a norm and a ReLU; unless it says so, it takes only pixels inside the map. */
#include "models/layers.h"

#include "kolo/error.h"

/* NAME.conv, NAME.bn, then a ReLU called NAME. side: of the map's border, pixels of zeros */
static int unit(kolo_graph *g, const char *name, int x, int64_t out, const int64_t kernel[2], int64_t stride,
                bool side)
{
    const kolo_conv_spec spec = {.out = out,
                                 .kernel = {kernel[0], kernel[1]},
                                 .stride = {stride, stride},
                                 .pad = {side ? kernel[0] / 2 : 0, side ? kernel[1] / 2 : 0},
                                 .weight = kolo_normal(0.1)};
    x = kolo_conv(g, kolo_part_of(name, "conv").text, x, &spec);
    x = kolo_batch_norm(g, kolo_part_of(name, "bn").text, x, 1e-3, 0.1, 1);
    return kolo_relu(g, name, x);
}

/* ---- branches ------------------------------------------------------------------------------------------ */

enum { MAX = -1, AVERAGE = -2 };

/* One operation of a branch. name NULL: a pool, whose kind `out` says. */
typedef struct step {
    const char *name;
    int out, kernel[2], stride;
    bool side; /* zeros around the map, so that it keeps its size */
} step;
#define ONE(name, out)              \
    {                               \
        name, out, {1, 1}, 1, false \
    }
#define SAME(name, out, height, width)      \
    {                                       \
        name, out, {height, width}, 1, true \
    }
#define POOL(kind)                   \
    {                                \
        NULL, kind, {3, 3}, 0, false \
    }
#define HALF(name, out)             \
    {                               \
        name, out, {3, 3}, 2, false \
    }
enum { STEPS = 5, BRANCHES = 4 };

/* What a branch ends with: of these the module's map is put together. A fork's last two steps read the same,
 * and both are of the result. */
typedef struct branch {
    step step[STEPS + 1];
    bool fork;
} branch;

static int one_step(kolo_graph *g, const char *module, const step *s, int x)
{
    if (s->name)
        return unit(g, kolo_part_of(module, s->name).text, x, s->out, (int64_t[]){s->kernel[0], s->kernel[1]},
                    s->stride, s->side);
    if (s->out == MAX) return kolo_max_pool(g, kolo_part_of(module, "max_pool").text, x, 3, 2, 0);
    return kolo_avg_pool(g, kolo_part_of(module, "avg_pool").text, x, 3, 1, 1, true);
}

static bool is_end(const step *s) { return !s->name && !s->out; }

static int one_branch(kolo_graph *g, const char *module, const branch *b, int x)
{
    const step *s = b->step;
    for (; !is_end(s) && !(b->fork && is_end(s + 2)); s++) x = one_step(g, module, s, x);
    if (!b->fork) return x;
    const int two[] = {one_step(g, module, s, x), one_step(g, module, s + 1, x)};
    return kolo_concat(g, kolo_part_of(module, strstr(s->name, "dbl") ? "dbl" : "fork").text, 2, two);
}

static int module_of(kolo_graph *g, const char *name, int x, int branches, const branch *b)
{
    int y[BRANCHES];
    for (int i = 0; i < branches; i++) y[i] = one_branch(g, name, &b[i], x);
    return kolo_concat(g, name, branches, y);
}

/* ---- modules: figures 5, 10, 6, 10 and 7 of the paper, as torchvision has them ------------------------- */

static int module_a(kolo_graph *g, const char *name, int x, int pool)
{
    const branch b[] = {
        {{ONE("branch1x1", 64)}, false},
        {{ONE("branch5x5_1", 48), SAME("branch5x5_2", 64, 5, 5)}, false},
        {{ONE("branch3x3dbl_1", 64), SAME("branch3x3dbl_2", 96, 3, 3), SAME("branch3x3dbl_3", 96, 3, 3)},
         false},
        {{POOL(AVERAGE), ONE("branch_pool", pool)}, false},
    };
    return module_of(g, name, x, 4, b);
}

static int module_b(kolo_graph *g, const char *name, int x)
{
    static const branch b[] = {
        {{HALF("branch3x3", 384)}, false},
        {{ONE("branch3x3dbl_1", 64), SAME("branch3x3dbl_2", 96, 3, 3), HALF("branch3x3dbl_3", 96)}, false},
        {{POOL(MAX)}, false},
    };
    return module_of(g, name, x, 3, b);
}

static int module_c(kolo_graph *g, const char *name, int x, int c)
{
    const branch b[] = {
        {{ONE("branch1x1", 192)}, false},
        {{ONE("branch7x7_1", c), SAME("branch7x7_2", c, 1, 7), SAME("branch7x7_3", 192, 7, 1)}, false},
        {{ONE("branch7x7dbl_1", c), SAME("branch7x7dbl_2", c, 7, 1), SAME("branch7x7dbl_3", c, 1, 7),
          SAME("branch7x7dbl_4", c, 7, 1), SAME("branch7x7dbl_5", 192, 1, 7)},
         false},
        {{POOL(AVERAGE), ONE("branch_pool", 192)}, false},
    };
    return module_of(g, name, x, 4, b);
}

static int module_d(kolo_graph *g, const char *name, int x)
{
    static const branch b[] = {
        {{ONE("branch3x3_1", 192), HALF("branch3x3_2", 320)}, false},
        {{ONE("branch7x7x3_1", 192), SAME("branch7x7x3_2", 192, 1, 7), SAME("branch7x7x3_3", 192, 7, 1),
          HALF("branch7x7x3_4", 192)},
         false},
        {{POOL(MAX)}, false},
    };
    return module_of(g, name, x, 3, b);
}

static int module_e(kolo_graph *g, const char *name, int x)
{
    static const branch b[] = {
        {{ONE("branch1x1", 320)}, false},
        {{ONE("branch3x3_1", 384), SAME("branch3x3_2a", 384, 1, 3), SAME("branch3x3_2b", 384, 3, 1)}, true},
        {{ONE("branch3x3dbl_1", 448), SAME("branch3x3dbl_2", 384, 3, 3), SAME("branch3x3dbl_3a", 384, 1, 3),
          SAME("branch3x3dbl_3b", 384, 3, 1)},
         true},
        {{POOL(AVERAGE), ONE("branch_pool", 192)}, false},
    };
    return module_of(g, name, x, 4, b);
}

/* ---- the network --------------------------------------------------------------------------------------- */

enum { AUXILIARY_LEAST = 17 /* pixels of the map that the auxiliary head reads, so that its 5x5 fits */ };

static int last(kolo_graph *g, const char *name, int x, int64_t classes, double deviation)
{
    return kolo_linear(g, name, x, classes, true, kolo_normal(deviation),
                       kolo_uniform_fan_in(kolo_features(g, x)));
}

/* Of an evaluation only its parameters are kept, whatever the size of the map. */
static int auxiliary_head(kolo_graph *g, int x, const kolo_model_config *config)
{
    if (x < 0) return x;
    const int64_t *dim = g->tensor[x].dim, least = dim[2] < dim[3] ? dim[2] : dim[3];
    if (config->train && least < AUXILIARY_LEAST)
        return kolo_fail(
            KOLO_ECONFIG,
            "images of %ldx%ld leave its auxiliary head a map of %ldx%ld pixels, of at least 17x17 "
            "that it needs; set size=299 or more, or auxiliary=0 for a training without that head",
            (long)config->height, (long)config->width, (long)dim[2], (long)dim[3]);
    x = config->train ? kolo_avg_pool(g, "AuxLogits.pool", x, 5, 3, 0, true)
                      : kolo_adaptive_avg_pool(g, "AuxLogits.pool", x, 5, 5);
    x = unit(g, "AuxLogits.conv0", x, 128, (int64_t[]){1, 1}, 1, false);
    x = unit(g, "AuxLogits.conv1", x, 768, (int64_t[]){5, 5}, 1, false);
    x = kolo_global_avg_pool(g, "AuxLogits.avgpool", x);
    return last(g, "AuxLogits.fc", x, config->classes, 0.001);
}

static int stem(kolo_graph *g, int x)
{
    static const int64_t one[] = {1, 1}, three[] = {3, 3};
    x = unit(g, "Conv2d_1a_3x3", x, 32, three, 2, false);
    x = unit(g, "Conv2d_2a_3x3", x, 32, three, 1, false);
    x = unit(g, "Conv2d_2b_3x3", x, 64, three, 1, true);
    x = kolo_max_pool(g, "maxpool1", x, 3, 2, 0);
    x = unit(g, "Conv2d_3b_1x1", x, 80, one, 1, false);
    x = unit(g, "Conv2d_4a_3x3", x, 192, three, 1, false);
    return kolo_max_pool(g, "maxpool2", x, 3, 2, 0);
}

int kolo_build_inception_v3(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    (void)model;
    if (config->height < 75 || config->width < 75)
        return kolo_fail(KOLO_ECONFIG, "images of %ldx%ld are too small for it; set size=75 or more",
                         (long)config->height, (long)config->width);
    x = stem(g, x);
    x = module_a(g, "Mixed_5b", x, 32);
    x = module_a(g, "Mixed_5c", x, 64);
    x = module_a(g, "Mixed_5d", x, 64);
    x = module_b(g, "Mixed_6a", x);
    x = module_c(g, "Mixed_6b", x, 128);
    x = module_c(g, "Mixed_6c", x, 160);
    x = module_c(g, "Mixed_6d", x, 160);
    x = module_c(g, "Mixed_6e", x, 192);
    const int auxiliary = config->auxiliary > 0 ? auxiliary_head(g, x, config) : -1;
    if (config->auxiliary > 0) KOLO_TRY(auxiliary);
    g->auxiliary = auxiliary;
    g->auxiliary_weight = config->auxiliary;
    x = module_d(g, "Mixed_7a", x);
    x = module_e(g, "Mixed_7b", x);
    x = module_e(g, "Mixed_7c", x);
    x = kolo_dropout(g, "dropout", kolo_global_avg_pool(g, "avgpool", x), config->dropout);
    return last(g, "fc", x, config->classes, 0.1);
}
