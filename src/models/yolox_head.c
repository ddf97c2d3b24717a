/* YOLOX: the convolution unit, spatial pyramid pooling, the decoupled head. Ge et al., arXiv:2107.08430,
 * figure 2; names as in the package of the authors. */
#include "models/yolox.h"

static int unit(const kolo_yolox *y, const char *name, int x, int64_t out, int64_t kernel, int64_t stride,
                int64_t groups)
{
    const int64_t fan_in = kernel * kernel * kolo_channels(y->g, x) / groups;
    kolo_conv_spec spec = {.out = out,
                           .kernel = {kernel, kernel},
                           .stride = {stride, stride},
                           .pad = {kernel / 2, kernel / 2},
                           .groups = groups,
                           .weight = kolo_uniform_fan_in(fan_in)};
    x = kolo_conv(y->g, kolo_part_of(name, "conv").text, x, &spec);
    x = kolo_batch_norm(y->g, kolo_part_of(name, "bn").text, x, 1e-3, 0.03, 1);
    return kolo_activate(y->g, kolo_part_of(name, "act").text, x, y->activation, 0.1);
}

int kolo_yolox_unit(const kolo_yolox *y, const char *name, int x, int64_t out, int64_t kernel, int64_t stride)
{
    return unit(y, name, x, out, kernel, stride, 1);
}

int kolo_yolox_spatial(const kolo_yolox *y, const char *name, int x, int64_t out, int64_t stride)
{
    if (!y->depthwise) return unit(y, name, x, out, 3, stride, 1);
    const int64_t channels = kolo_channels(y->g, x);
    x = unit(y, kolo_part_of(name, "dconv").text, x, channels, 3, stride, channels);
    return unit(y, kolo_part_of(name, "pconv").text, x, out, 1, 1, 1);
}

int kolo_yolox_spp(const kolo_yolox *y, const char *name, int x, int64_t inside, int64_t out)
{
    int part[4] = {kolo_yolox_unit(y, kolo_part_of(name, "conv1").text, x, inside, 1, 1)};
    const kolo_part pools = kolo_part_of(name, "m");
    for (int i = 0; i < 3; i++)
        part[1 + i] =
            kolo_max_pool(y->g, kolo_numbered(pools.text, i).text, part[0], 5 + 4 * i, 1, 2 + 2 * i);
    x = kolo_concat(y->g, kolo_part_of(name, "concat").text, 4, part);
    return kolo_yolox_unit(y, kolo_part_of(name, "conv2").text, x, out, 1, 1);
}

/* What a level predicts: `kind` of `out` channels. bias: initial one, 0: PyTorch's default */
static int predict(const kolo_yolox *y, const char *kind, int level, int x, int64_t out, double bias)
{
    const kolo_init init = kolo_uniform_fan_in(kolo_channels(y->g, x));
    kolo_conv_spec spec = {.out = out,
                           .kernel = {1, 1},
                           .stride = {1, 1},
                           .bias = true,
                           .weight = init,
                           .bias_init = bias < 0 ? kolo_constant(bias) : init};
    return kolo_conv(y->g, kolo_numbered(kind, level).text, x, &spec);
}

static int two_units(const kolo_yolox *y, const char *kind, int level, int x, int64_t inside)
{
    const kolo_part name = kolo_numbered(kind, level);
    for (int i = 0; i < 2; i++) x = kolo_yolox_spatial(y, kolo_numbered(name.text, i).text, x, inside, 1);
    return x;
}

int kolo_yolox_heads(const kolo_yolox *y, const int map[3], int64_t inside, const kolo_model_config *config)
{
    const double rare = -log(99); /* objects and classes begin at a probability of 1 in 100 */
    int head[3];
    for (int level = 0; level < 3; level++) {
        int x = kolo_yolox_unit(y, kolo_numbered("head.stems", level).text, map[level], inside, 1, 1);
        int cls = two_units(y, "head.cls_convs", level, x, inside),
            reg = two_units(y, "head.reg_convs", level, x, inside);
        int part[] = {predict(y, "head.reg_preds", level, reg, 4, 0),
                      predict(y, "head.obj_preds", level, reg, 1, rare),
                      predict(y, "head.cls_preds", level, cls, config->classes, rare)};
        head[level] = kolo_concat(y->g, kolo_numbered("head", level).text, 3, part);
    }
    return kolo_detect_loss(
        y->g, "yolox", 3, head, 1, true,
        &(kolo_attributes){.overlap = config->overlap, .centre = config->centre, .l1 = config->l1});
}
