/* What the networks of the YOLOX family share: their convolution and their heads. */
#ifndef KOLO_MODELS_YOLOX_H
#define KOLO_MODELS_YOLOX_H

#include "models/layers.h"

typedef struct kolo_yolox {
    kolo_graph *g;
    enum kolo_activation activation; /* slope 0.1 where it has one */
    bool depthwise;                  /* the 3x3 convolutions of kolo_yolox_spatial */
} kolo_yolox;

/* NAME.conv (no bias, same size before the stride), NAME.bn (epsilon 1e-3, momentum 0.03), NAME.act */
int kolo_yolox_unit(const kolo_yolox *y, const char *name, int x, int64_t out, int64_t kernel,
                    int64_t stride);
/* The same with 3x3 pixels, or depthwise as NAME.dconv and over channels as NAME.pconv. */
int kolo_yolox_spatial(const kolo_yolox *y, const char *name, int x, int64_t out, int64_t stride);
/* Spatial pyramid pooling (He et al., arXiv:1406.4729): the map beside its maxima within 5, 9 and 13
 * pixels. */
int kolo_yolox_spp(const kolo_yolox *y, const char *name, int x, int64_t inside, int64_t out);
/* Decoupled heads of `inside` channels on three maps, finest first, then the loss. */
int kolo_yolox_heads(const kolo_yolox *y, const int map[3], int64_t inside, const kolo_model_config *config);

#endif
