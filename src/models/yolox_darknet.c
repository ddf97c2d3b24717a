/* YOLOX-Darknet53: the backbone and pyramid of YOLOv3, with spatial pyramid pooling, under the heads of
 * YOLOX. Names as in the package of the authors. */
#include "models/yolox.h"

/* Units of 1x1 to `half` and 3x3 to twice that, in turn: modules at, ... of `name` */
static int in_turn(const kolo_yolox *y, const char *name, int at, int x, int64_t half, int n)
{
    for (int i = 0; i < n; i++)
        x = kolo_yolox_unit(y, kolo_numbered(name, at + i).text, x, i % 2 ? 2 * half : half, i % 2 ? 3 : 1,
                            1);
    return x;
}

/* A unit that halves the map, then residual blocks: modules at, ... of `name` */
static int group(const kolo_yolox *y, const char *name, int at, int x, int64_t out, int blocks)
{
    x = kolo_yolox_unit(y, kolo_numbered(name, at).text, x, out, 3, 2);
    for (int b = 1; b <= blocks; b++) {
        const kolo_part block = kolo_numbered(name, at + b);
        int z = kolo_yolox_unit(y, kolo_part_of(block.text, "layer1").text, x, out / 2, 1, 1);
        z = kolo_yolox_unit(y, kolo_part_of(block.text, "layer2").text, z, out, 3, 1);
        x = kolo_add(y->g, kolo_part_of(block.text, "add").text, x, z);
    }
    return x;
}

/* The coarser map, in fewer channels and twice as large, beside the finer one. */
static int descend(const kolo_yolox *y, const char *name, int coarse, int fine, int64_t half)
{
    char cbl[48];
    snprintf(cbl, sizeof cbl, "%s_cbl", name);
    int part[] = {kolo_yolox_unit(y, cbl, coarse, half, 1, 1), fine};
    part[0] = kolo_upsample(y->g, kolo_part_of(cbl, "upsample").text, part[0], 2);
    int x = kolo_concat(y->g, kolo_part_of(name, "concat").text, 2, part);
    return in_turn(y, name, 0, x, half, 5);
}

int kolo_build_yolox_darknet(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    const kolo_yolox y = {g, KOLO_LEAKY_RELU, false};
    int map[3] = {x, x, x};
    x = kolo_yolox_unit(&y, "backbone.backbone.stem.0", x, 32, 3, 1);
    x = group(&y, "backbone.backbone.stem", 1, x, 64, model->blocks[0]);
    for (int s = 2; s <= 5; s++) {
        char dark[48];
        snprintf(dark, sizeof dark, "backbone.backbone.dark%d", s);
        x = group(&y, dark, 0, x, INT64_C(32) << s, model->blocks[s - 1]);
        if (s > 2) map[s - 3] = x;
    }
    const char *const top = "backbone.backbone.dark5";
    int at = model->blocks[4] + 1;
    x = in_turn(&y, top, at, x, 512, 2);
    x = kolo_yolox_spp(&y, kolo_numbered(top, at + 2).text, x, 512, 512);
    x = kolo_yolox_unit(&y, kolo_numbered(top, at + 3).text, x, 1024, 3, 1);
    map[2] = kolo_yolox_unit(&y, kolo_numbered(top, at + 4).text, x, 512, 1, 1);
    map[1] = descend(&y, "backbone.out1", map[2], map[1], 256);
    map[0] = descend(&y, "backbone.out2", map[1], map[0], 128);
    return kolo_yolox_heads(&y, map, 256, config);
}
