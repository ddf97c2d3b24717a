/* Networks as darknet describes them: a list of layers, each of which reads the one before it or others by
 * their number. Layer N is module_list.N: its parameters are module_list.N.conv.{weight,bias} and
 * module_list.N.bn.{weight,bias,running_mean,running_var}, so a darknet .weights file holds them in ascending
 * order of N (bn.bias, bn.weight, bn.running_mean, bn.running_var, conv.weight; without norm conv.bias,
 * conv.weight). Redmon & Farhadi, arXiv:1804.02767 */
#ifndef KOLO_MODELS_DARKNET_H
#define KOLO_MODELS_DARKNET_H

#include "models/layers.h"

#define KOLO_DARKNET_LAYERS 512

typedef struct kolo_darknet {
    kolo_graph *g;
    int64_t classes;
    int input, layers;
    int out[KOLO_DARKNET_LAYERS]; /* of each layer so far: a tensor, or a status */
    int heads, head[KOLO_MAX_HEADS];
    int32_t mask[KOLO_MAX_HEADS][3];
    float anchor[9][2]; /* pixels, smallest first */
} kolo_darknet;

typedef struct kolo_darknet_conv {
    int64_t out, kernel, stride, pad, groups;
    bool norm;   /* else a bias */
    bool linear; /* no activation */
    enum kolo_activation activation;
} kolo_darknet_conv;

/* Each adds a layer and returns its output; `from`: layers, negative ones counted from this layer back. */
int kolo_darknet_convolution(kolo_darknet *d, const kolo_darknet_conv *c);
int kolo_darknet_shortcut(kolo_darknet *d, int from);
int kolo_darknet_route(kolo_darknet *d, int n, const int *from, int groups, int group);
int kolo_darknet_maxpool(kolo_darknet *d, int64_t size, int64_t stride);
int kolo_darknet_upsample(kolo_darknet *d, int64_t times);
int kolo_darknet_avgpool(kolo_darknet *d);
int kolo_darknet_softmax(kolo_darknet *d);                     /* a part of the loss here */
int kolo_darknet_yolo(kolo_darknet *d, const int32_t mask[3]); /* the layer before it is a head */
/* The loss of the heads, finest first; without heads the last output, logits. */
int kolo_darknet_finish(kolo_darknet *d);

/* What FILE.cfg says of itself, as a row of the table; NULL: error text set. Valid until the next
 * call for another file. */
const kolo_model *kolo_darknet_model(const char *path);

#endif
