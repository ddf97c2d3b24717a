/* YOLOv3, its small form, and the classifier Darknet-53, layer by layer as in darknet's cfg files, so that
 * the numbers of layers are theirs. Images are RGB, 0 to 1. The published yolov3-tiny.weights were trained
 * with anchors 1, 2, 3 in the finer head where today's cfg, and this file, has 0, 1, 2: to use those weights,
 * say mask = 1,2,3 in a copy of the cfg (model=FILE.cfg). */
#include "models/darknet.h"

/* Same size before the stride, batch norm, leaky ReLU. */
static int conv(kolo_darknet *d, int64_t out, int64_t kernel, int64_t stride)
{
    return kolo_darknet_convolution(d, &(kolo_darknet_conv){.out = out,
                                                            .kernel = kernel,
                                                            .stride = stride,
                                                            .pad = kernel / 2,
                                                            .norm = true,
                                                            .activation = KOLO_LEAKY_RELU});
}

/* 1x1, with a bias instead of a norm: numbers that are predicted */
static int plain(kolo_darknet *d, int64_t out)
{
    return kolo_darknet_convolution(
        d, &(kolo_darknet_conv){.out = out, .kernel = 1, .stride = 1, .linear = true});
}

/* 52 convolutions; ends[s]: last layer of stage s */
static void backbone(kolo_darknet *d, const int blocks[5], int ends[5])
{
    conv(d, 32, 3, 1);
    for (int s = 0; s < 5; s++) {
        conv(d, INT64_C(64) << s, 3, 2);
        for (int b = 0; b < blocks[s]; b++) {
            conv(d, INT64_C(32) << s, 1, 1);
            conv(d, INT64_C(64) << s, 3, 1);
            kolo_darknet_shortcut(d, -3);
        }
        ends[s] = d->layers - 1;
    }
}

int kolo_build_darknet53(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    kolo_darknet d = {.g = g, .classes = config->classes, .input = x};
    int ends[5];
    backbone(&d, model->blocks, ends);
    kolo_darknet_avgpool(&d);
    plain(&d, config->classes);
    kolo_darknet_softmax(&d);
    return kolo_darknet_finish(&d);
}

static void route(kolo_darknet *d, int from) { kolo_darknet_route(d, 1, &from, 1, 0); }

/* To fewer channels, twice as large, beside a finer map. */
static void descend(kolo_darknet *d, int from, int64_t channels, int finer)
{
    route(d, from);
    conv(d, channels, 1, 1);
    kolo_darknet_upsample(d, 2);
    kolo_darknet_route(d, 2, (int[]){-1, finer}, 1, 0);
}

static void predict(kolo_darknet *d, const kolo_model_config *config, const int32_t mask[3])
{
    plain(d, 3 * (5 + config->classes));
    kolo_darknet_yolo(d, mask);
}

int kolo_build_yolov3(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    static const int32_t mask[3][3] = {{6, 7, 8}, {3, 4, 5}, {0, 1, 2}};
    kolo_darknet d = {
        .g = g,
        .classes = config->classes,
        .input = x,
        .anchor = {
            {10, 13}, {16, 30}, {33, 23}, {30, 61}, {62, 45}, {59, 119}, {116, 90}, {156, 198}, {373, 326}}};
    int ends[5];
    backbone(&d, model->blocks, ends);
    for (int level = 0; level < 3; level++) {
        const int64_t half = 512 >> level;
        if (level > 0) descend(&d, -4, half, ends[4 - level]);
        for (int i = 0; i < 3; i++) {
            conv(&d, half, 1, 1);
            conv(&d, 2 * half, 3, 1);
        }
        predict(&d, config, mask[level]);
    }
    return kolo_darknet_finish(&d);
}

int kolo_build_yolov3_tiny(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    (void)model;
    kolo_darknet d = {.g = g,
                      .classes = config->classes,
                      .input = x,
                      .anchor = {{10, 14}, {23, 27}, {37, 58}, {81, 82}, {135, 169}, {344, 319}}};
    for (int64_t out = 16; out <= 512; out *= 2) {
        conv(&d, out, 3, 1);
        kolo_darknet_maxpool(&d, 2, out < 512 ? 2 : 1);
    }
    conv(&d, 1024, 3, 1);
    conv(&d, 256, 1, 1);
    conv(&d, 512, 3, 1);
    predict(&d, config, (int32_t[]){3, 4, 5});
    descend(&d, -4, 128, 8);
    conv(&d, 256, 3, 1);
    predict(&d, config, (int32_t[]){0, 1, 2});
    return kolo_darknet_finish(&d);
}
