/* Backends: how an operation is carried out. A backend is a table {layout, prepare, run, release} per operation of
 * graph/ops.def; a row that is missing is a clear refusal when the plan is made, never a silent fallback.
 *
 * Life: layouts are chosen once for a whole graph (kolo_backend_layout), then every distinct operation is prepared
 * (algorithms chosen, by a clock or a fixed rule), then run any number of times with any binding. run() neither allocates nor decides. */
#ifndef KOLO_OPS_BACKEND_H
#define KOLO_OPS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/graph.h"

/* What changes from step to step; one small block, in the backend's memory. No operation takes a per-step argument otherwise. */
#define KOLO_MAX_SLOTS 1024
typedef struct kolo_step {
    int64_t step, epoch;
    int64_t valid_global;                   /* valid rows of the global batch: the loss is their mean */
    int32_t valid[KOLO_MAX_SLOTS];          /* valid rows of each micro-batch slot of this rank: a prefix of its rows */
    float lr, momentum, weight_decay, clip; /* of this step; clip: factor on the gradients, 1 = none */
    float ema_decay;                        /* of this step (ramp applied) */
    bool first;                             /* first update of the run: momentum starts */
} kolo_step;

/* Memory layout of a tensor.
 *   block: channel block B of an activation (N,C,H,W), stored (N, ceil(C/B), H, W, B): 1 is NCHW, 8 or 16 the blocked layouts of
 *          wide vectors, C itself NHWC. Channels beyond C in the last block are zero, always. 1 for all other tensors
 *          ((N,F), u8 pictures (N,H,W,C), vectors) which are plain row-major.
 *   opaque: a parameter's layout in the backend's own description (oneDNN's memory descriptor), or NULL: plain. Its gradient and
 *          its optimizer state have the same one. Padding is zero and stays zero under any elementwise update. */
typedef struct kolo_layout {
    int64_t block;
    const void *opaque; /* owned by the backend, lives as long as it */
    uint64_t hash;      /* of opaque's content; equal on all ranks of a job (part of the plan's hash) */
    size_t bytes;       /* physical size, multiple of the element */
} kolo_layout;

typedef struct kolo_backend kolo_backend;
typedef struct kolo_kernel
    kolo_kernel; /* one prepared operation; shared by all nodes of equal shape, layout and attributes */

typedef struct kolo_backend_config {
    int threads;         /* compute threads */
    bool direct;         /* conv=direct */
    bool deterministic;  /* fixed rule instead of a clock */
    const char *cache;   /* file of timed choices, read and appended (by rank 0); NULL: none */
    const char *choices; /* text of choices made by rank 0 for all (kolo_backend_choices); NULL: choose here */
} kolo_backend_config;

/* name: "cpu" (later "cuda"). */
int kolo_backend_create(kolo_backend **backend, const char *name, const kolo_backend_config *config);
void kolo_backend_destroy(kolo_backend **backend);
const char *kolo_backend_version(const char *name); /* of its library: "oneDNN 2.6.3"; static text */

/* Chooses the layout of every tensor of `graph`: one channel block for all its activations, parameters in the layout of
 * their weight gradient. `like` (may be NULL): another graph's tensors and layouts whose parameters, found by name, keep their layout (an
 * evaluation graph shares the training graph's parameters). layout: [graph->tensors], filled. */
int kolo_backend_layout(kolo_backend *backend, const kolo_graph *graph, const kolo_graph *like,
                        const kolo_layout *like_layout, kolo_layout *layout);

/* Prepares node `node` for these layouts ([graph->tensors]). The kernel belongs to the backend and is shared. *workspace: bytes it needs while it runs. */
int kolo_backend_prepare(kolo_backend *backend, const kolo_graph *graph, int node, const kolo_layout *layout,
                         kolo_kernel **kernel, size_t *workspace);

/* args: pointers of in[0..n_in), then out[0..n_out); NULL for tensors that are not there. slot: which micro-batch (for step->valid). */
int kolo_kernel_run(kolo_kernel *kernel, void *const *args, void *workspace, const kolo_step *step, int slot);

/* One line that names the choice ("jit_avx512 nChw16c winograd"), for `kolo plan`. */
const char *kolo_kernel_name(const kolo_kernel *kernel);
/* All choices made so far as text; with it another process (or a later run) prepares the same kernels. Caller frees. */
char *kolo_backend_choices(const kolo_backend *backend);

/* Canonical (logical row-major f32, (O,I,KH,KW) for weights) <-> a tensor in `layout`. `elements` as kolo_tensor_count. */
int kolo_backend_to_canonical(kolo_backend *backend, const kolo_tensor *tensor, const kolo_layout *layout,
                              const void *from, float *to);
int kolo_backend_from_canonical(kolo_backend *backend, const kolo_tensor *tensor, const kolo_layout *layout,
                                const float *from, void *to);

/* Vector arithmetic over arenas for the plan's actions, in `threads` threads, the same bits for any number of them. */
void kolo_backend_fold(kolo_backend *backend, float *sum, const float *part, int64_t count); /* sum += part */
double kolo_backend_norm2(kolo_backend *backend, const float *x, int64_t count);             /* sum of squares */
/* True if any element is not finite. */
bool kolo_backend_not_finite(kolo_backend *backend, const float *x, int64_t count);

#endif
