/* Inside ops/cuda: which of cuDNN's engines does a pass of a convolution, and with which knobs. Chosen when
 * the plan is made: by a clock among all that cuDNN's heuristics propose and that the precision asked for
 * admits, or the first of them where the choice has to be the same every time. */
#ifndef KOLO_OPS_CUDA_ENGINE_H
#define KOLO_OPS_CUDA_ENGINE_H

#include "ops/cuda/dnn.h"

typedef struct kolo_cuda_engine {
    kolo_dnn_graph *graph; /* lives as long as its plan: cuDNN does not say that the plan holds a copy */
    kolo_dnn_plan *plan;   /* NULL: the split form is done */
} kolo_cuda_engine;

/* A fused operation can also be done as several, by kernels that are there already. `part` as
 * kolo_dnn_plan_run has it; memory: so many bytes of its own (a step, sums); every one is 0x7F when a trial
 * begins, so that all rows of such a step are valid. */
typedef struct kolo_cuda_split {
    size_t memory, workspace;
    int (*run)(void *argument, void *const *part, void *memory, void *workspace);
    int (*finish)(void *argument, void *const *part, void *memory,
                  void *workspace); /* what follows a fused engine */
    /* before a trial: what `memory` should hold instead; NULL: nothing */
    int (*fill)(void *argument, void *memory);
    void *argument;
} kolo_cuda_split;

/* split: NULL where there is none. *engine is for kolo_cuda_engine_close in any case. */
int kolo_cuda_engine_choose(const kolo_kernel_request *request, const kolo_dnn_conv *conv,
                            const kolo_cuda_split *split, kolo_cuda_engine *engine);
void kolo_cuda_engine_close(kolo_cuda_engine *engine);

/* conv.c: x, w and y (tensors of the graph) of a convolution with the node's attributes. */
int kolo_cuda_conv_describe(const kolo_kernel_request *request, enum kolo_dnn_pass pass, const int tensor[3],
                            kolo_dnn_conv *conv);

#endif
