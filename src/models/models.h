/* Models: functions that build a graph, each readable beside its paper. */
#ifndef KOLO_MODELS_H
#define KOLO_MODELS_H

#include "graph/graph.h"

typedef struct kolo_model_config {
    int64_t rows, height, width, channels; /* micro-batch and image */
    int64_t classes;
    int64_t words;        /* of a row's label (kolo_input); 0: as the network wants */
    const char *shortcut; /* CIFAR ResNet: "a", "b" */
    bool zero_init_residual;
    bool blur;                 /* before convolutions with a stride */
    double drop_path, dropout; /* probabilities; negative: as usual for the model */
    double smoothing;          /* label smoothing of the loss */
    double auxiliary;          /* weight of an auxiliary head's loss; 0: no such head; negative: as usual */
    const char *freeze;        /* modules that keep their parameters (kolo_graph_freeze); NULL, "": none */
    bool image_labels;         /* of classifiers: labels are kolo_image_label_input's */
    int loss, head;            /* of classifiers: KOLO_loss_*, KOLO_head_* */
    double margin, scale;      /* head=arcface */
    bool l1;                   /* YOLOX: with the L1 term (the last epochs) */
    enum kolo_overlap overlap; /* YOLOX: of the loss of boxes */
    bool centre;               /* YOLOX: candidates by centre only */
    float mean[4], std[4];
    const kolo_cuts *cuts; /* maps are cut (kolo_graph_split); NULL: not */
    bool train, device;    /* device: for memory that is slow and large, a GPU's: graph.h's signs and pools */
    enum kolo_dtype dtype;
} kolo_model_config;

/* What a network was made for; others' weights want the same. */
enum kolo_pixels {
    KOLO_PIXELS_NORMAL, /* minus mean, by standard deviation, of the data set or ImageNet */
    KOLO_PIXELS_UNIT,   /* 0 to 1 */
    KOLO_PIXELS_SIGNED, /* -1 to 1 */
    KOLO_PIXELS_BGR,    /* blue, green, red, 0 to 255 */
};

/* A row of models.def. Each builder uses some of the numbers from `blocks` on, and says how. */
typedef struct kolo_model {
    const char *name, *source;                /* "resnet50"; the paper or code that defines it */
    int64_t height, width, channels, classes; /* usual input */
    /* x: (N,C,H,W). Returns logits; a detector's builder ends with its loss and returns no error. */
    int (*build)(kolo_graph *g, int x, const struct kolo_model *model, const kolo_model_config *config);
    const char *detector; /* NULL: a classifier; else a name in ops/detectors.def */
    enum kolo_pixels pixels;
    int blocks[5];      /* of each stage */
    int planes, groups; /* channels of the first stage, or of a group; groups of a convolution */
    double width_factor, depth_factor; /* factors on channels and blocks of a base network */
    const char *variant;               /* one word where a family has another form */
    double drop_path, dropout;         /* usual ones */
    double auxiliary;                  /* usual weight of its auxiliary head's loss; 0: it cannot have one */
} kolo_model;

extern const kolo_model kolo_model_table[];
extern const int kolo_model_count;
/* A row of the table or, for a name that ends in ".cfg", what that file of darknet describes (valid until the
 * next file is asked for). NULL: error text set, nearest name offered (KOLO_ECONFIG). */
const kolo_model *kolo_model_find(const char *name);
bool kolo_model_has_shortcuts(const kolo_model *model); /* shortcut= chooses among its own */

/* What the loader has to scale pixels by when nobody says otherwise; false: the data set's
 * own mean and deviation. */
bool kolo_model_pixels(const kolo_model *model, float mean[4], float std[4]);

/* Input, normalize, network, loss; fused; with backward nodes if config->train. */
int kolo_model_graph(kolo_graph **graph, const char *name, const kolo_model_config *config);

#endif
