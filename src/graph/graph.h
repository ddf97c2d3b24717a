/* Graph: what is computed. Tensors and operations of one model, forward and (by autodiff) backward, in the
 * order in which they may run. Knows nothing of ranks, devices, memory or steps.
 *
 * Shapes are logical: activations are (N, C, H, W) or (N, F), convolution weights (O, I/groups, KH,
 * KW), linear weights (O, I). N is the micro-batch. How a backend lays a tensor out is its own
 * affair (ops/backend.h). */
#ifndef KOLO_GRAPH_H
#define KOLO_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/part.h"
#include "kolo/dtype.h"

#define KOLO_MAX_DIM 6
#define KOLO_MAX_ARGS 16 /* inputs, or outputs, of one operation */

enum kolo_role {
    /* (N, H, W, C) u8 images, filled by the loader */
    KOLO_ROLE_INPUT,
    /* (N) or (N, words) i32, or f32 (N,2,C), filled by the loader: see kolo_input */
    KOLO_ROLE_LABEL,
    /* f32, trained */
    KOLO_ROLE_PARAM,
    /* f32, kept with the parameters but not trained: running statistics */
    KOLO_ROLE_BUFFER,
    /* lives from its producer to its last use; gradients of activations too */
    KOLO_ROLE_ACTIVATION,
    /* f32 gradient of a parameter: summed over micro-batches and ranks */
    KOLO_ROLE_GRADIENT,
    /* f32 by-product that is averaged like a gradient (batch statistics) and then updates a buffer */
    KOLO_ROLE_STATISTIC,
    /* f32 by-product summed like a gradient: loss sum, top-1, top-5, rows */
    KOLO_ROLE_METRIC,
    /* f64 sums over this rank's rows; summed over the norm's group before its first use */
    KOLO_ROLE_PARTIAL,
    /* a copy of a parameter or buffer for other parts than its own (share; of: it), or of a sum that the
     * graph forms (total): f32, a part of the gradient of a parameter that several operations read (of: the
     * parameter), or f64, what a part of a map adds to a PARTIAL; or peaks and terms of classes (of: -1) */
    KOLO_ROLE_TERM,
};

enum kolo_init_kind { KOLO_INIT_CONSTANT, KOLO_INIT_NORMAL, KOLO_INIT_UNIFORM };
typedef struct kolo_init {
    enum kolo_init_kind kind;
    double a;
} kolo_init; /* value; standard deviation; bound */

/* Which part of a tensor of the whole network one is whose channels are cut (channels.c). The whole has
 * `whole` elements along dimension `axis`, `runs` runs of equal length; of each run this has so many from
 * `first` on. */
typedef struct kolo_slab {
    int runs; /* 0: it is whole */
    int axis;
    int named; /* so many characters of the name are the whole's */
    int64_t whole, first;
} kolo_slab;

typedef struct kolo_tensor {
    /* parameters and buffers: the state-dict name; activations: their module's name; unique in the graph */
    char *name;
    enum kolo_role role;
    enum kolo_dtype dtype;
    int rank;
    int64_t dim[KOLO_MAX_DIM];
    kolo_init init; /* PARAM, BUFFER */
    bool decay;     /* PARAM: false for norm weights and all biases (subject to decay_norms=) */
    bool frozen;    /* PARAM: it has no gradient (freeze.c) */
    int producer;   /* node, or -1 */
    int part;       /* PARAM, BUFFER of a graph that is cut: the part that has it (split.c) */
    kolo_slab slab; /* PARAM, BUFFER: of a tensor whose channels are cut */
    /* GRADIENT, and TERM of one: its parameter; STATISTIC: the first of the buffers it updates (mean, then
     * var = of + 1); else -1 */
    int of;
} kolo_tensor;

enum kolo_op {
#define OP(name, ...) KOLO_OP_##name,
#include "graph/ops.def"
#undef OP
    KOLO_OP_COUNT
};

enum kolo_activation {
    KOLO_GELU,      /* x Phi(x), by erf */
    KOLO_GELU_TANH, /* its approximation by tanh (Hendrycks & Gimpel, arXiv:1606.08415) */
    KOLO_SILU,
    KOLO_LEAKY_RELU, /* a.slope below 0 */
    KOLO_HARD_SWISH,
    KOLO_HARD_SIGMOID,
    KOLO_RELU6, /* min(max(x, 0), 6) */
    KOLO_SIGMOID,
    KOLO_TANH,
};

/* How far a box lies over another: ops/boxes.h says what they are. */
enum kolo_overlap { KOLO_OVERLAP_IOU, KOLO_OVERLAP_GIOU, KOLO_OVERLAP_DIOU, KOLO_OVERLAP_CIOU };

#define KOLO_MAX_HEADS 5
#define KOLO_METRICS 8 /* largest METRIC tensor */

/* Of a row of logits whose classes are in parts (split_channels.c), what the parts tell each other.
 * Peaks, f32: the largest logit, and that of the label's class;
 * -infinity where the part has none. */
enum { KOLO_PEAKS = 2 };
/* Terms, f64: sums over the classes of e^(x - largest), y x, y and x, with y the target; classes before the
 * label's. */
enum { KOLO_TERM_POWERS, KOLO_TERM_DOT, KOLO_TERM_MASS, KOLO_TERM_TOTAL, KOLO_TERM_RANK, KOLO_TERMS };

/* How an operation is cut into parts, each of some rows and columns of what it makes (split.c). */
enum kolo_cut {
    KOLO_CUT_WHOLE,  /* it is not: it takes whole maps */
    KOLO_CUT_PIXEL,  /* a pixel is made of the pixels in its place */
    KOLO_CUT_CONV,   /* of those in its window, beyond the border zeros */
    KOLO_CUT_POOL,   /* of those in its window that lie inside */
    KOLO_CUT_STRIDE, /* of every a.stride-th one */
    KOLO_CUT_SQUARE, /* of 2 x 2 */
    KOLO_CUT_TIMES,  /* a.stride times a.stride are made of one; cut where parts of both begin together */
    /* of those of its window, all windows of a map after it is rolled by a.pad */
    KOLO_CUT_WINDOWS,
    KOLO_CUT_PLACE, /* it is the one in its place, or a zero: of a smaller or larger map */
    KOLO_CUT_SUMS,  /* sums over pixels: those of the parts are added */
    KOLO_CUT_MADE,  /* it only comes about when the graph is cut or differentiated */
};

/* How an operation is cut into parts of its maps' channels (channels.c), what it then needs and leaves. */
enum kolo_channels {
    KOLO_CHANNELS_WHOLE, /* it is not: a channel of y is made of all of x */
    KOLO_CHANNELS_EACH,  /* a channel is made of those in its place, and of parameters of its own: nothing */
    /* of all channels of x. Its own may be cut: it needs all of x, whose gradient is a sum over the parts; or
     * those of x: y is a sum over the parts. With groups: as EACH, group by group */
    KOLO_CHANNELS_PRODUCT,
    KOLO_CHANNELS_COLUMNS, /* as PRODUCT, but a channel wants all of x: only its own may be cut */
    KOLO_CHANNELS_CLASSES, /* a loss of x: its largest, then sums over the parts */
    KOLO_CHANNELS_HEADS,   /* as EACH, head by head, of queries, keys and values */
    KOLO_CHANNELS_FLAT,    /* as EACH: a channel of x becomes all its pixels */
    KOLO_CHANNELS_JOIN,    /* as EACH: maps of equally many channels stand behind each other */
    KOLO_CHANNELS_SQUARE,  /* as EACH: four pixels become four maps behind each other */
    KOLO_CHANNELS_MADE,    /* it only comes about when the graph is cut or differentiated */
};

/* All attributes of all operations; each uses some. Lengths in pixels. */
typedef struct kolo_attributes {
    /* window_attention: kernel the window, pad the rows and columns by which the map is rolled, beyond those
     * of its last windows that came round, which the others do not see, groups the heads; adaptive_avg_pool:
     * kernel the pixels of y, so tile; slice: groups, where above 1: so many, in their order, are all of a
     * map, and all are read */
    int64_t kernel[2], stride[2], pad[2], dilation[2], groups;
    int64_t first, count; /* slice: channels; dropout: first is the element of a row with which x begins;
                           * of classes in parts: a part's first, all classes */
    enum kolo_activation activation;
    double slope;
    /* residual, dropout: probability, in training; drawn from (seed, step, global row, draw) */
    double drop;
    /* residual, dropout: number of the operation among those of its graph that draw */
    int32_t draw;
    double margin, scale; /* arc_margin */
    double weight;        /* losses of classes: of the auxiliary logits; their gradients: a factor, 0: 1 */
    /* normalize: y's channels in reverse order (BGR); mean and std are in the order of the pixels */
    bool reverse;
    /* pools: so many more rows below, columns on the right that windows may reach, besides pad; below 0: less
     * than pad */
    int64_t beyond[2];
    /* tile: row and column in the whole map with which the result and each input begin; tile_grad: from[0] is
     * dy's, at is dx's */
    int64_t at[2], from[KOLO_MAX_ARGS][2];
    /* detect_loss: which, a name in ops/detectors.def; the rest as it wants: */
    const char *detector;
    /* L1 term on; candidates by centre only (the later rule), else also inside the box */
    bool l1, centre;
    enum kolo_overlap overlap;       /* what the term of boxes asks for */
    float anchor[9][2];              /* width, height in pixels, smallest first */
    int32_t mask[KOLO_MAX_HEADS][3]; /* anchors of each head */
    double epsilon, momentum;        /* norm */
    double smoothing;                /* cross entropy */
    bool relu;                       /* norm_apply, norm_infer: y = max(y, 0) */
    bool count_pad;                  /* avg_pool: divide by the whole window */
    float mean[4], std[4];           /* normalize, per channel in [0,1] */
} kolo_attributes;

typedef struct kolo_node {
    enum kolo_op op;
    int n_in, n_out;
    int in[KOLO_MAX_ARGS], out[KOLO_MAX_ARGS]; /* tensors; -1: an optional one that is not there */
    kolo_attributes a;
    bool backward;
    int of;        /* of the backward half: the forward node whose gradient rule emitted it; else -1 */
    int part;      /* of a graph that is cut: which part of the maps it works on */
    bool channels; /* it works on a part of the channels, or makes one (split_channels.c) */
} kolo_node;

typedef struct kolo_graph {
    kolo_tensor *tensor;
    kolo_node *node;
    int64_t tensors, nodes;
    int64_t tensor_capacity, node_capacity;
    /* built for training (batch statistics) or evaluation (running statistics) */
    bool train;
    enum kolo_dtype dtype;             /* of activations: F32, BF16 or F16 */
    int input, label, logits, metrics; /* tensors */
    /* of images: rows and columns. Where they are loaded in parts (kolo_cuts), input_grid[0] x input_grid[1],
     * image_part[] are the parts' tensors and `input` the first; else the grid is 0 */
    int64_t image[2];
    int input_grid[2], image_part[KOLO_MAX_ARGS];
    /* (N,C) of an auxiliary head, whose loss counts so much beside that of logits; -1: none. Set by a builder
     * that has one, read by the loss */
    int auxiliary;
    double auxiliary_weight;
    int features;                    /* (N,F) what a classifier's last layer takes; -1: none such */
    const char *detector;            /* what finds boxes, a name in ops/detectors.def; NULL: a classifier */
    int heads, head[KOLO_MAX_HEADS]; /* a detector's outputs, finest first: (N, channels, h, w) */
    float anchor[9][2];              /* of detectors that have some: in pixels; mask: those of each head */
    int32_t mask[KOLO_MAX_HEADS][3];
    bool blur, blurred; /* kolo_conv blurs before a stride; it did */
    /* a relu after a sum keeps its signs, a bit each, for its gradient, which then reads no y:
     * less moved, more kept */
    bool signs;
    bool pools;   /* a max pool norms what it reads itself (norm_max_pool): less moved, more computed */
    int draws;    /* operations that draw random numbers, so far */
    int64_t rows; /* N */
    int classes;
    int *grad;          /* [tensors] gradient tensor of each tensor, or -1; after kolo_graph_backward */
    int differentiated; /* the node whose gradient rule is at work */
    int part;           /* that new nodes are of */
    /* that maps are cut into: rows, columns (split.c), channels (channels.c); 0: not */
    int parts[3];
    bool either; /* no layer is cut both ways: parts[2] are those of the graph (kolo_cuts_parts) */
    /* [tensors * parts] while a graph with channels in parts is differentiated: what parts add to the
     * gradients of other parts' tensors */
    int *added;
    /* where halos are wide (halo.c): maps that parts read beyond their borders, those whose halos are made
     * again; of all parts, messages and bytes of halos before and after, operations computed again */
    struct {
        int maps, made, messages[2];
        double bytes[2], flops;
    } halo;
    char uncut[256]; /* layers whose channels, groups or heads are no multiple of parts[2], as text */
    char name[64];
} kolo_graph;

/* Tensors that the image is loaded to: their number, and number i of them. */
static inline int kolo_graph_inputs(const kolo_graph *g)
{
    return g->input < 0 ? 0 : g->input_grid[0] ? g->input_grid[0] * g->input_grid[1] : 1;
}
static inline int kolo_graph_input(const kolo_graph *g, int i)
{
    return g->input_grid[0] ? g->image_part[i] : g->input;
}

/* Parts that the nodes of a graph are of. */
static inline int kolo_graph_parts(const kolo_graph *g)
{
    int parts = 1;
    for (int i = g->either ? 2 : 0; i < 3; i++) parts *= g->parts[i] > 0 ? g->parts[i] : 1;
    return parts;
}

/* What a step's time is counted as: classes.def. */
enum kolo_class {
#define CLASS(id, ...) KOLO_CLASS_##id,
#include "graph/classes.def"
#undef CLASS
    KOLO_CLASSES
};
/* How the tensors of a graph are stored. */
typedef struct kolo_stored {
    const size_t *bytes; /* [tensors]; of a parameter those of the form that operations read */
    bool device;         /* on a GPU, where some parts of an operation are kernels of their own */
} kolo_stored;
typedef struct kolo_traffic {
    double read, written; /* bytes */
    /* of bytes that are not counted: those that only engines compiled for the shape spare */
    double spared;
} kolo_traffic;

/* One row of the operation table. */
typedef struct kolo_op_info {
    const char *name;
    int min_in, max_in, min_out, max_out;
    /* input that out[0] may overwrite when it dies there, or -1; an optional one is added */
    int overwrite;
    /* checks inputs, makes the output tensors; NULL: backward */
    int (*shape)(kolo_graph *graph, kolo_node *node, const char *name);
    /* emits backward nodes; NULL: no gradient flows */
    int (*gradient)(kolo_graph *graph, int node);
    /* multiply and add counted as 2; NULL: none */
    double (*flops)(const kolo_graph *graph, const kolo_node *node);
    enum kolo_class class_of;
    kolo_traffic (*bytes)(const kolo_graph *graph, const kolo_node *node, const kolo_stored *stored);
    enum kolo_cut cut;
    enum kolo_channels channels;
} kolo_op_info;
extern const kolo_op_info kolo_op_table[KOLO_OP_COUNT];
/* Input `input` of such an operation is asked only whether its elements are above 0. */
bool kolo_op_reads_sign(enum kolo_op op, int input);
enum kolo_class kolo_node_class(const kolo_graph *graph, const kolo_node *node);
/* The input of such operations that may be added to out[0], or -1; and of this one that is. */
static inline int kolo_op_addend(enum kolo_op op)
{
    const kolo_op_info *info = &kolo_op_table[op];
    return info->overwrite >= info->min_in ? info->overwrite : -1;
}
static inline int kolo_node_addend(const kolo_node *node)
{
    const int i = kolo_op_addend(node->op);
    return i >= 0 && i < node->n_in && node->in[i] >= 0 ? i : -1;
}

int kolo_graph_create(kolo_graph **graph, const char *name, bool train, enum kolo_dtype dtype);
void kolo_graph_destroy(kolo_graph **graph);

/* Building. Each returns a tensor (>= 0) or a negative status; `name` is the module's name
 * ("layer1.0.conv1"): parameters are made as NAME.weight and so on. A negative argument tensor makes the call
 * fail with the same status, so models may be written without a check on every line and end with one. */
/* u8 (N,H,W,C); also the label, `words` i32 a row:
 *   1: class
 *   2: class, factor on the loss of the row (bits of an f32): class weights
 *   3: class, class of the image mixed into it, weight of the first (bits of an f32): mixup, CutMix
 *   1 + 5 M: a detector's boxes: how many (at most M), then for each class, centre x, y, width, height in
 *     pixels (bits of f32). Objects come first; behind them regions of class -1, crowds and groups: what lies
 *     mostly in one is no background */
int kolo_input(kolo_graph *g, int64_t rows, int64_t height, int64_t width, int64_t channels, int64_t words);
/* After kolo_input: its label is f32 (N,2,C) instead, what the positive term of each class weighs in the loss
 * of a row, then what the negative one does. For kolo_bce: several classes, or none, may be a row's, and of
 * classes with 0 and 0 nothing is known. */
int kolo_image_label_input(kolo_graph *g, int64_t classes);
int kolo_param(kolo_graph *g, const char *name, int rank, const int64_t *dim, kolo_init init, bool decay);
int kolo_normalize(kolo_graph *g, int x, const float *mean, const float *std); /* -> (N,C,H,W) of g->dtype */
typedef struct kolo_conv_spec {
    int64_t out, kernel[2], stride[2], pad[2], groups; /* groups 0: 1 */
    bool bias;
    kolo_init weight, bias_init;
} kolo_conv_spec;
/* With g->blur, and a stride on 16 channels or more: of x blurred (Zhang, arXiv:1904.11486). */
int kolo_conv(kolo_graph *g, const char *name, int x, const kolo_conv_spec *spec);
/* Batch norm over N,H,W: parameters NAME.weight, NAME.bias, buffers NAME.running_mean, NAME.running_var.
 * Training: norm_stats + norm_apply (the sums are a PARTIAL); evaluation: norm_infer. */
int kolo_batch_norm(kolo_graph *g, const char *name, int x, double epsilon, double momentum,
                    double weight_init);
int kolo_relu(kolo_graph *g, const char *name, int x);
int kolo_add(kolo_graph *g, const char *name, int a, int b);
int kolo_max_pool(kolo_graph *g, const char *name, int x, int64_t kernel, int64_t stride, int64_t pad);
int kolo_avg_pool(kolo_graph *g, const char *name, int x, int64_t kernel, int64_t stride, int64_t pad,
                  bool count_pad);
/* A window around every stride-th pixel, ceil(H / stride) rows of them; an even window reaches one
 * pixel further down and right than up and left, and what lies outside is left out: darknet's pooling,
 * and that of ResNet-D. */
int kolo_max_pool_same(kolo_graph *g, const char *name, int x, int64_t kernel, int64_t stride);
int kolo_avg_pool_same(kolo_graph *g, const char *name, int x, int64_t kernel, int64_t stride);
int kolo_global_avg_pool(kolo_graph *g, const char *name, int x); /* (N,C,H,W) -> (N,C) */
/* To height x width pixels, whatever x has: each is the mean of a window, which may overlap
 * others (ops/adaptive.h). */
int kolo_adaptive_avg_pool(kolo_graph *g, const char *name, int x, int64_t height, int64_t width);
int kolo_flatten(kolo_graph *g, const char *name, int x); /* (N,C,H,W) -> (N,C*H*W) */
int kolo_linear(kolo_graph *g, const char *name, int x, int64_t out, bool bias, kolo_init weight,
                kolo_init bias_init);
/* With parameters that are made already: weight (out, F), bias (out) or -1. */
int kolo_linear_of(kolo_graph *g, const char *name, int x, int weight, int bias);
/* every second pixel, zero channels on both sides */
int kolo_shortcut_a(kolo_graph *g, const char *name, int x, int64_t channels);
/* (N,F) -> (N,out), or each pixel's channels (N,C,H,W) -> (N,out,H,W): kolo_linear. The same with a weight
 * that is stored as a convolution's, (out,C,1,1): */
int kolo_pointwise(kolo_graph *g, const char *name, int x, int64_t out, bool bias, kolo_init weight,
                   kolo_init bias_init);
int kolo_layer_norm(kolo_graph *g, const char *name, int x, double epsilon);
int kolo_activate(kolo_graph *g, const char *name, int x, enum kolo_activation activation, double slope);
/* x + kept(row) scale branch. scale: -1, or a parameter of C elements. drop: probability that a
 * row's branch is left out in training; the others are divided by 1 - drop (stochastic depth, Huang
 * et al., arXiv:1603.09382). */
int kolo_residual(kolo_graph *g, const char *name, int x, int branch, int scale, double drop);
int kolo_dropout(kolo_graph *g, const char *name, int x, double drop);
/* Attention within windows of window x window pixels, after shifting the map up and left by `shift`, with
 * relative bias (parameter NAME.relative_position_bias_table) and mask (Liu et al., arXiv:2103.14030). H and
 * W are multiples of the window. qkv: (N,3C,H,W): queries, keys, values, each heads x C/heads */
int kolo_window_attention(kolo_graph *g, const char *name, int qkv, int64_t heads, int64_t window,
                          const int64_t shift[2]);
/* The same of all pixels of a map, as one window without a bias. */
int kolo_attention_of_all(kolo_graph *g, const char *name, int qkv, int64_t heads);
/* (N,C,H,W) -> tokens (N,C,1+H*W,1): the parameter `first` (1,1,C), then the pixels row by row, and to each
 * its row of `position` (1,1+H*W,C) is added. */
int kolo_embed(kolo_graph *g, const char *name, int x, int first, int position);
int kolo_pad(kolo_graph *g, const char *name, int x, int64_t rows, int64_t columns);
int kolo_crop(kolo_graph *g, const char *name, int x, int64_t rows, int64_t columns);
int kolo_space_to_depth(kolo_graph *g, const char *name, int x);
int kolo_upsample(kolo_graph *g, const char *name, int x, int64_t times);
int kolo_concat(kolo_graph *g, const char *name, int n, const int *x);
int kolo_slice_channels(kolo_graph *g, const char *name, int x, int64_t first, int64_t count);
int kolo_gate(kolo_graph *g, const char *name, int x, int s); /* x (N,C,H,W) times s (N,C) */
/* Cosines between rows of x and of the parameter NAME.weight (out, F). */
int kolo_cosine(kolo_graph *g, const char *name, int x, int64_t out, kolo_init weight);
/* needs the label */
int kolo_arc_margin(kolo_graph *g, const char *name, int cosines, double margin, double scale);

/* Last, one of these: sets g->metrics, sums over rows, and the outputs. Classes: 4: loss (in training with
 * that of g->auxiliary, times its weight), top-1, top-5 hits, rows; boxes: 8: loss, foreground anchors,
 * boxes, rows, then the parts of the loss:
 * overlap, object, class, L1. */
int kolo_cross_entropy(kolo_graph *g, int logits, double smoothing);
int kolo_bce(kolo_graph *g, int logits, double smoothing);
/* head: (N, anchors (5 + classes), h, w), finest first: x, y, w, h, object, classes, raw, for each anchor of
 * a cell. found: the loss tells its gradient which box each cell has. a: what `detector` reads; its text and
 * that of a stay the caller's and outlive the graph. */
int kolo_detect_loss(kolo_graph *g, const char *detector, int heads, const int *head, int anchors, bool found,
                     const kolo_attributes *a);

/* After building, before fusion: operations of which nothing that is wanted is made go; their parameters
 * stay, so that a graph for evaluation has those of the training's. */
int kolo_graph_prune(kolo_graph *g);
/* After building, before fusion: the parameters of these modules (comma separated) and of all that comes
 * before them stay as they are, and what reads them computes as in an evaluation: batch norm by its running
 * statistics, without dropping anything. KOLO_ECONFIG: there is no such module, or nothing is left to
 * train. */
int kolo_graph_freeze(kolo_graph *g, const char *modules);
/* After building, before backward: norm + (add) + relu become one norm_apply / norm_infer where nothing else
 * reads between, with g->pools norm + relu + max pool one norm_max_pool. */
int kolo_graph_fuse(kolo_graph *g);
/* Layers that are cut otherwise than the image: from the first operation of a module on. */
typedef struct kolo_cut_range {
    char from[64];
    int parts[2]; /* no more rows and columns than the image's */
    /* the last ones: instead of their maps, which are whole, channels are cut into so many parts; 0: maps */
    int channels;
} kolo_cut_range;
typedef struct kolo_cuts {
    int parts[2];                /* rows, columns of the image: up to KOLO_MAX_ARGS parts */
    const kolo_cut_range *range; /* [ranges], in the network's order */
    int ranges;
    int channels; /* parts of channels (kolo_graph_split_channels); 0: as 1 */
    /* parts may be on several ranks: each parameter is one part's, which shares it with the others */
    bool apart;
    /* the image is loaded in parts, as its first reader is cut: each is an input of its own */
    bool load_parts;
    double wide;            /* kolo_graph_widen's share; 0: halos are narrow */
    const kolo_graph *like; /* with it: whose parts have the parameters; NULL: as even as can be */
} kolo_cuts;
/* The most parts that channels of a range are cut into; 0: of none. */
static inline int kolo_cuts_late(const kolo_cuts *c)
{
    int most = 0;
    for (int r = 0; r < c->ranges; r++)
        if (c->range[r].channels > most) most = c->range[r].channels;
    return most;
}
/* Parts of a graph that is cut by maps, then by channels: as many as its most finely cut layer has. Part p
 * of a layer of n parts is number p * kolo_cuts_parts / n. */
static inline int kolo_cuts_parts(const kolo_cuts *c)
{
    const int image = c->parts[0] * c->parts[1], late = kolo_cuts_late(c);
    return image > late ? image : late;
}
/* After fusion, before backward: maps are cut into parts, and every operation into one for each (split.c).
 * KOLO_ECONFIG: this network and image cannot be cut so; the message lists the numbers that are possible. */
int kolo_graph_split(kolo_graph *g, const kolo_cuts *cuts);
/* After the gradients, where there are any: parts make what they read beyond their borders themselves, of
 * wider halos of maps further up, where that spares messages and no strip is more than `share` of a part
 * (halo.c). */
int kolo_graph_widen(kolo_graph *g, double share);
/* Before kolo_graph_split: channels are cut into so many parts (channels.c), parameters with them. What is
 * left whole for its number of channels stands in g->uncut. KOLO_ECONFIG: nothing can be cut so; the message
 * lists the numbers that are possible. */
int kolo_graph_split_channels(kolo_graph *g, int parts);
/* Likewise, of the ranges that say so. */
int kolo_graph_split_late(kolo_graph *g, const kolo_cuts *cuts);
/* Slabs (slab.c) of parameters and buffers. Shape of the tensor in the whole network; its name in `name`: */
kolo_tensor kolo_tensor_whole(const kolo_tensor *tensor, char name[256]);
/* The next slab of the tensor that `tensor` is the first slab of, or a later one; -1: there is none. */
int kolo_graph_next_slab(const kolo_graph *g, int tensor);
int64_t kolo_graph_largest_slab(const kolo_graph *g, int tensor); /* of them; elements */
/* Slabs are counted once, by their first. */
static inline bool kolo_tensor_is_later_slab(const kolo_tensor *t) { return t->slab.runs && t->slab.first; }
/* Number in the whole of the slab's element i; i where it is whole. */
int64_t kolo_slab_element(const kolo_tensor *tensor, int64_t i);
/* Between canonical values of the slab and of the whole. */
void kolo_slab_take(const kolo_tensor *tensor, float *slab, const float *whole);
void kolo_slab_put(const kolo_tensor *tensor, const float *slab, float *whole);
/* After the gradients, for devices (fuse_conv.c): conv + norm_stats become conv_stats, the gradients of two
 * norms whose results were added norms_grad_apply. norms: a norm with relu that only convolutions read is
 * done by them, forward and in the weight's gradient. */
int kolo_graph_fuse_conv(kolo_graph *g, bool norms);
/* The same, in fp16, before it: data gradients of convolutions with what the norm in front of them
 * begins with (fuse_grad.c). */
int kolo_graph_fuse_grad(kolo_graph *g);
/* Appends the backward nodes. Gradients of parameters are tensors of role GRADIENT named "grad:" + parameter.
 * Where a tensor has several readers its gradients are added, by the operations that make them where these
 * can (kolo_op_addend), else by additions. */
int kolo_graph_backward(kolo_graph *g);

/* For op implementations, gradient rules and passes. */
int kolo_graph_tensor(kolo_graph *g, const char *name, enum kolo_role role, enum kolo_dtype dtype, int rank,
                      const int64_t *dim);
int kolo_graph_node(kolo_graph *g, enum kolo_op op, int n_in, const int *in, int n_out,
                    const kolo_attributes *a,
                    /* runs the shape rule; the new node's index; outputs are named NAME, NAME:1, ... */
                    const char *name);
int kolo_graph_node_with(kolo_graph *g, enum kolo_op op, int n_in, const int *in, int n_out, const int *out,
                         const kolo_attributes *a); /* outputs already made (backward) */
/* For passes: such a node as it stands, of the forward half and of g->part. */
int kolo_graph_node_as(kolo_graph *g, const kolo_node *node);
/* Likewise: g takes the tensors and nodes of `made`, and `made` those that g had. */
void kolo_graph_exchange(kolo_graph *g, kolo_graph *made);
int kolo_graph_find(const kolo_graph *g, const char *name); /* tensor or -1 */
/* Of the first `nodes` operations the first one of a module: what makes a tensor of it, or reads a parameter
 * of it. -1: none is; then KOLO_ECONFIG with the nearest name, key: of the option that asks for it. */
int64_t kolo_graph_module(const kolo_graph *g, int64_t nodes, const char *module);
int kolo_graph_module_unknown(const kolo_graph *g, int64_t nodes, const char *key, const char *module);
const char *kolo_graph_node_name(const kolo_graph *g, int64_t node); /* its first output's, or "" */
int64_t kolo_tensor_count(const kolo_tensor *tensor);                /* elements */
/* A parameter's gradient, or a term of it: laid out as the parameter is. */
static inline bool kolo_tensor_is_gradient(const kolo_tensor *t)
{
    return (t->role == KOLO_ROLE_GRADIENT || t->role == KOLO_ROLE_TERM) && t->of >= 0;
}

bool kolo_graph_is_output(const kolo_graph *g, int tensor); /* logits, features, or a head */
/* Drops the nodes that are marked and the tensors that no node makes any more; all indices
 * follow. dead: [nodes] */
int kolo_graph_compact(kolo_graph *g, const bool *dead);
/* Removes the node added last, its outputs and the parameters that were added for it. */
int kolo_graph_undo_node(kolo_graph *g);
int64_t kolo_graph_parameters(const kolo_graph *g); /* elements of PARAM tensors */
int64_t kolo_graph_buffers(const kolo_graph *g);    /* BUFFER tensors: running statistics */
double kolo_graph_macs(const kolo_graph *g);        /* multiply-accumulates of the forward part, one row */

/* Initial values of elements first .. first + count - 1 (canonical order) of a parameter or buffer: each a
 * pure function of seed, name and number. Any thread. */
void kolo_initial_values(const kolo_tensor *tensor, uint64_t seed, int64_t first, int64_t count,
                         float *values);
float kolo_initial_value(const kolo_tensor *tensor, uint64_t seed, int64_t i); /* of one */

#endif
