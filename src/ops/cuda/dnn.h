/* Inside ops/cuda: cuDNN's graph API (cudnn_backend.h) behind one thin file. A pass of a convolution is a
 * graph of one operation, or of several that cuDNN does at once; cuDNN proposes engines with settings (knobs)
 * for it; an engine with its knobs makes a plan, which runs. A choice, engine and knobs, is a short text, so
 * that another process can make the same plan again (ops/choices.h).
 *
 * Plans are made for the GPU of cuda->dnn or, where there is no handle, for the one that
 * cuda->dnn_profile describes: what cuDNN would do on a GPU can be known, and tested, on a machine
 * without one. Such plans do not run.
 *
 * Tensors are NHWC, channels as they are stored, 16 byte aligned; sums are formed in f32.
 * Source: NVIDIA cuDNN backend API reference, 9.x. */
#ifndef KOLO_OPS_CUDA_DNN_H
#define KOLO_OPS_CUDA_DNN_H

#include "ops/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A GPU in cuDNN's own description (JSON), for plans without a handle. The caller's to destroy
 * (cudnnBackendDestroyDescriptor). */
int kolo_dnn_profile(cudnnBackendDescriptor_t *profile, const char *json);

enum kolo_dnn_pass { KOLO_DNN_FORWARD, KOLO_DNN_DATA, KOLO_DNN_WEIGHT };

/* y = conv(x, w), or the gradient of x or of w. All three tensors have `dtype`: no engine that is not
 * compiled first writes the gradient of 16-bit weights as f32 (cuDNN 9.19, sm_80 and sm_90). add: the result
 * is added to what stands in its place. */
enum kolo_dnn_mask { KOLO_DNN_NO_MASK, KOLO_DNN_MASK_NORM, KOLO_DNN_MASK_RESIDUAL, KOLO_DNN_MASK_NORMS };
typedef struct kolo_dnn_conv {
    enum kolo_dnn_pass pass;
    bool add;
    enum kolo_dtype dtype;        /* F32, BF16, F16 */
    int64_t rows, in, out, group; /* N, C, K; x (N, C, H, W), w (K, C / group, KH, KW) */
    int64_t x[2], y[2];           /* height and width */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    bool statistics; /* FORWARD: the sums of y and of y^2 over each channel too, as f32 */
    /* FORWARD, WEIGHT: the convolution is of relu(scale x + bias); scale, bias (C) of `dtype` */
    bool prologue;
    /* DATA: where relu(norm [+ residual, or a second norm]) let something through, and 0 elsewhere; the
     * gradients of the norms' weights and biases too. With `add` the other tensor, OTHER, lies apart. */
    enum kolo_dnn_mask mask;
} kolo_dnn_conv;

/* The tensors of a pass that lie in memory. */
enum kolo_dnn_part {
    KOLO_DNN_X,
    KOLO_DNN_W,
    KOLO_DNN_Y,
    KOLO_DNN_SUM,
    KOLO_DNN_SQUARE,
    KOLO_DNN_SCALE,
    KOLO_DNN_BIAS,
    KOLO_DNN_OTHER,
    KOLO_DNN_RESIDUAL,
    KOLO_DNN_NORM, /* and so on: enum kolo_dnn_norm */
    KOLO_DNN_SECOND = KOLO_DNN_NORM + 10,
    KOLO_DNN_PARTS = KOLO_DNN_SECOND + 10
};
/* Of a norm whose gradients are formed: what it normalises; f32 (C) its values, its weight's and bias's
 * gradients, and three factors that cuDNN makes besides. */
enum kolo_dnn_norm {
    KOLO_DNN_NORM_X,
    KOLO_DNN_NORM_MEAN,
    KOLO_DNN_NORM_INVERSE,
    KOLO_DNN_NORM_W,
    KOLO_DNN_NORM_B,
    KOLO_DNN_NORM_DW,
    KOLO_DNN_NORM_DB,
    KOLO_DNN_NORM_FACTORS,
    KOLO_DNN_NORM_TENSORS = KOLO_DNN_SECOND - KOLO_DNN_NORM
};

typedef struct kolo_dnn_graph kolo_dnn_graph;
int kolo_dnn_graph_create(kolo_dnn_graph **graph, const kolo_cuda *cuda, const kolo_dnn_conv *conv);
void kolo_dnn_graph_destroy(kolo_dnn_graph **graph); /* after its plans */

enum { KOLO_DNN_KNOBS = CUDNN_KNOB_TYPE_COUNTS, KOLO_DNN_TEXT = 512 };
typedef struct kolo_dnn_choice {
    int64_t engine;
    int knobs; /* settings that differ from the engine's own; each type at most once */
    struct {
        cudnnBackendKnobType_t type;
        int64_t value;
    } knob[KOLO_DNN_KNOBS];
} kolo_dnn_choice;
/* "62 2:4 13:0": engine, then knob type and value. */
void kolo_dnn_choice_write(const kolo_dnn_choice *choice, char text[KOLO_DNN_TEXT]);
bool kolo_dnn_choice_read(kolo_dnn_choice *choice, const char *text); /* false: not such a text */

/* What cuDNN's heuristics propose (mode B, then A, then what always works), best first, each once. *list is
 * the caller's to free. */
int kolo_dnn_proposals(const kolo_dnn_graph *graph, kolo_dnn_choice **list, int64_t *count);

/* What a plan must not be. */
typedef struct kolo_dnn_rules {
    uint32_t notes;      /* forbidden: 1 << CUDNN_NUMERICAL_NOTE_… */
    uint32_t behaviours; /* forbidden: 1 << CUDNN_BEHAVIOR_NOTE_… */
    size_t workspace;    /* most bytes */
} kolo_dnn_rules;

typedef struct kolo_dnn_plan {
    kolo_dnn_choice choice;
    uint32_t notes, behaviours; /* of the engine, as bits */
    size_t workspace;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t engine, config, plan;
} kolo_dnn_plan;

/* 0; 1: not with this library, GPU and shape, or against the rules (the error text says
 * why); negative: an error. */
int kolo_dnn_plan_create(kolo_dnn_plan **plan, const kolo_dnn_graph *graph, const kolo_dnn_choice *choice,
                         const kolo_dnn_rules *rules);
void kolo_dnn_plan_destroy(kolo_dnn_plan **plan);
/* Enqueues it on the handle's stream. The pass reads two of x, w and y and writes the third. part: NULL
 * where there is none. */
int kolo_dnn_plan_run(const kolo_dnn_plan *plan, void *const part[KOLO_DNN_PARTS], void *workspace);
/* "cuDNN 62 2:4 13:0, tensor cores" */
void kolo_dnn_plan_name(const kolo_dnn_plan *plan, char *text, size_t size);

/* to[i] = half[i], BF16 or F16, on the compute stream; count: a multiple of 8; both 16 byte aligned.
 * widen.cu */
int kolo_dnn_widen(const kolo_cuda *cuda, float *to, const void *half, enum kolo_dtype dtype, int64_t count);

#ifdef __cplusplus
}
#endif

#endif
