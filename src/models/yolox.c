/* YOLOX nano, tiny, s, m, l, x: a backbone of cross-stage partial blocks, a pyramid that goes down and up
 * again, three decoupled heads. All have the form of l; width_factor and depth_factor are factors on its
 * channels and blocks. Names and initialisation as in the package of the authors (module backbone.backbone,
 * backbone, head). Images are BGR, 0 to 255. */
#include "models/yolox.h"

/* Cross-stage partial block: half of the channels through n bottlenecks, the other half past them. */
static int csp(const kolo_yolox *y, const char *name, int x, int64_t out, int n, bool residual)
{
    const int64_t half = out / 2;
    int a = kolo_yolox_unit(y, kolo_part_of(name, "conv1").text, x, half, 1, 1),
        b = kolo_yolox_unit(y, kolo_part_of(name, "conv2").text, x, half, 1, 1);
    for (int i = 0; i < n; i++) {
        const kolo_part inner = kolo_numbered(kolo_part_of(name, "m").text, i);
        int z = kolo_yolox_unit(y, kolo_part_of(inner.text, "conv1").text, a, half, 1, 1);
        z = kolo_yolox_spatial(y, kolo_part_of(inner.text, "conv2").text, z, half, 1);
        a = residual ? kolo_add(y->g, kolo_part_of(inner.text, "add").text, z, a) : z;
    }
    const int both[] = {a, b};
    x = kolo_concat(y->g, kolo_part_of(name, "concat").text, 2, both);
    return kolo_yolox_unit(y, kolo_part_of(name, "conv3").text, x, out, 1, 1);
}

/* dark3, dark4, dark5: 1/8, 1/16, 1/32 of the image. c: channels of the stem; n:
 * bottlenecks of the first block */
static void backbone(const kolo_yolox *y, int x, int64_t c, int n, int map[3])
{
    x = kolo_space_to_depth(y->g, "backbone.backbone.stem.focus", x);
    x = kolo_yolox_unit(y, "backbone.backbone.stem.conv", x, c, 3, 1);
    for (int s = 2; s <= 5; s++) {
        char dark[48];
        snprintf(dark, sizeof dark, "backbone.backbone.dark%d", s);
        int64_t out = c << (s - 1);
        int part = 0;
        x = kolo_yolox_spatial(y, kolo_numbered(dark, part++).text, x, out, 2);
        if (s == 5) x = kolo_yolox_spp(y, kolo_numbered(dark, part++).text, x, out / 2, out);
        x = csp(y, kolo_numbered(dark, part).text, x, out, s == 3 || s == 4 ? 3 * n : n, s < 5);
        if (s > 2) map[s - 3] = x;
    }
}

/* Concatenates a, first upsampled by 2 if `up`, and b along the channels. name: of the module that made a */
static int concat_with(const kolo_yolox *y, const char *name, int a, int b, bool up)
{
    if (up) a = kolo_upsample(y->g, kolo_part_of(name, "upsample").text, a, 2);
    const int both[] = {a, b};
    return kolo_concat(y->g, kolo_part_of(name, "concat").text, 2, both);
}

/* Path aggregation: from the coarsest map down to the finest, and back. */
static void pyramid(const kolo_yolox *y, int64_t c, int n, int map[3])
{
    int top = kolo_yolox_unit(y, "backbone.lateral_conv0", map[2], 8 * c, 1, 1);
    int x = csp(y, "backbone.C3_p4", concat_with(y, "backbone.lateral_conv0", top, map[1], true), 8 * c, n,
                false);
    int middle = kolo_yolox_unit(y, "backbone.reduce_conv1", x, 4 * c, 1, 1);
    map[0] = csp(y, "backbone.C3_p3", concat_with(y, "backbone.reduce_conv1", middle, map[0], true), 4 * c, n,
                 false);
    x = kolo_yolox_spatial(y, "backbone.bu_conv2", map[0], 4 * c, 2);
    map[1] = csp(y, "backbone.C3_n3", concat_with(y, "backbone.bu_conv2", x, middle, false), 8 * c, n, false);
    x = kolo_yolox_spatial(y, "backbone.bu_conv1", map[1], 8 * c, 2);
    map[2] = csp(y, "backbone.C3_n4", concat_with(y, "backbone.bu_conv1", x, top, false), 16 * c, n, false);
}

int kolo_build_yolox(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    const kolo_yolox y = {g, KOLO_SILU, kolo_is_variant(model, "depthwise")};
    const int64_t c = (int64_t)(64 * model->width_factor);
    const int n = (int)fmax(round(3 * model->depth_factor), 1);
    int map[3] = {x, x, x};
    backbone(&y, x, c, n, map);
    pyramid(&y, c, n, map);
    return kolo_yolox_heads(&y, map, 4 * c, config);
}
