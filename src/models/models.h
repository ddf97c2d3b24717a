/* Models: functions that build a graph, each readable beside its paper. */
#ifndef KOLO_MODELS_H
#define KOLO_MODELS_H

#include "graph/graph.h"

typedef struct kolo_model_config {
    int64_t rows, height, width, channels; /* micro-batch and picture */
    int64_t classes;
    int64_t words; /* of a row's label (kolo_input); 0: 1 */
    const char *shortcut; /* CIFAR ResNet: "a", "b" */
    bool zero_init_residual;
    double smoothing; /* label smoothing of the loss */
    float mean[4], std[4];
    bool train;
    enum kolo_dtype dtype;
} kolo_model_config;

typedef struct kolo_model {
    const char *name, *source;                /* "resnet50"; the paper or code that defines it */
    int64_t height, width, channels, classes; /* usual input */
    int argument;                             /* depth */
    int (*build)(kolo_graph *g, int x, const struct kolo_model *model,
                 const kolo_model_config *config); /* x: (N,C,H,W); returns logits */
} kolo_model;

extern const kolo_model kolo_model_table[];
extern const int kolo_model_count;
const kolo_model *kolo_model_find(const char *name); /* NULL: error text set, nearest name offered (KOLO_ECONFIG) */

/* Input, normalize, network, loss; fused; with backward nodes if config->train. */
int kolo_model_graph(kolo_graph **graph, const char *name, const kolo_model_config *config);

#endif
