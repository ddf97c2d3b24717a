/* Backends: how an operation is carried out. A backend is a table {layout, prepare, run, release}
 * per operation of graph/ops.def; a row that is missing is a clear refusal when the plan is made,
 * never a silent fallback.
 *
 * Life: layouts are chosen once for a whole graph (kolo_backend_layout), then every distinct operation is
 * prepared (algorithms chosen, by a clock or a fixed rule), then run any number of times with any binding.
 * run() neither allocates nor decides. */
#ifndef KOLO_OPS_BACKEND_H
#define KOLO_OPS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/graph.h"
#include "ops/form.h"
#include "ops/target.h"

/* Loss scaling (fp16): the factor on the loss, and how it came about. Kept by the backend from step to
 * step. */
typedef struct kolo_scaler {
    float scale;     /* 1: none */
    int32_t good;    /* steps since it last changed */
    int64_t skipped; /* updates left out so far because a gradient was not finite */
} kolo_scaler;

/* What changes from step to step; one small block, in the backend's memory. No operation takes a per-step
 * argument otherwise. The host writes the first part before every step (KOLO_STEP_HOST_BYTES); the second
 * belongs to the backend and stays. */
#define KOLO_MAX_SLOTS 1024
typedef struct kolo_step {
    int64_t step, epoch;
    int64_t origin;                   /* the step with which the optimizer's state began */
    int64_t valid_global;             /* valid rows of the global batch: the loss is their mean */
    float lr, momentum, weight_decay; /* of this step */
    float ema_decay;                  /* of this step (ramp applied) */
    /* valid rows of each micro-batch slot of this rank: a prefix of its rows */
    int32_t valid[KOLO_MAX_SLOTS];
    /* number in the global batch of the first row of each slot: what draws depend on */
    int32_t row[KOLO_MAX_SLOTS];
    uint64_t seed; /* of the run */
    int32_t l1;    /* detectors: the L1 term of the last epochs is on */
    /* 0; else this step only forms the average's running statistics (kolo_exec_statistics): its
     * batch's weight */
    float swa;
    /* written by NORM (optim/grad_scaler.h), read by the updates */
    float clip;   /* factor on the gradients: 1 / loss scale, times that of clip_norm */
    int32_t skip; /* not finite: no update in this step */
    double norm;  /* of the unscaled gradients; 0: not computed */
    /* written by SQUARE, summed by NOISE, unscaled by NORM: squares of every micro-batch's gradients */
    double square;
    kolo_scaler scaler;
    kolo_bad_label bad; /* the first of this step; written by losses on devices (the host's fail at once) */
} kolo_step;
#define KOLO_STEP_HOST_BYTES offsetof(kolo_step, clip)

/* The error that a label is; 0 where none is bad. */
int kolo_bad_label_fail(const kolo_bad_label *bad, int64_t classes);

/* Memory layout of a tensor. */
typedef struct kolo_layout {
    /* channel block B of an activation (N,C,H,W), stored (N, ceil(C/B), H, W, B): 1 is NCHW, 8 or 16 the
     * blocked layouts of wide vectors, C itself NHWC. Channels beyond C in the last block are zero, always.
     * 1 for all other tensors ((N,F), u8 images (N,H,W,C), vectors), which are plain row-major */
    int64_t block;
    /* of a parameter in the backend's own description (oneDNN's memory descriptor), or NULL: plain. Its
     * gradient and its optimizer state have the same one. Padding is zero and stays zero under any
     * elementwise update. Owned by the backend, lives as long as it */
    const void *opaque;
    uint64_t hash; /* of opaque's content; equal on all ranks of a job (part of the plan's hash) */
    size_t bytes;  /* physical size, multiple of the element */
    /* a parameter whose operations read a copy of it in the graph's 16-bit type (the
     * SHADOW arena), same layout */
    bool half;
} kolo_layout;

/* Layout of a tensor that is stored plainly in row-major order: no other takes fewer bytes. */
kolo_layout kolo_layout_plain(const kolo_tensor *tensor);

typedef struct kolo_backend kolo_backend;
/* one prepared operation; shared by all nodes of equal shape, layout and attributes */
typedef struct kolo_kernel kolo_kernel;

/* A GPU that is not there. Plans can be made for it; nothing can be allocated or run. */
typedef struct kolo_gpu {
    const char *name; /* for messages */
    size_t memory;    /* bytes */
    /* of a cluster that is planned for (plan/fabric.h, plan/rates.h): its links, what its GPUs do; or NULL */
    const struct kolo_fabric *fabric;
    const struct kolo_rates *rates;
    /* cuDNN's own description of it (share/gpus/NAME.json); NULL: there is none, nor what follows,
     * which is read from it */
    const char *json;
    char device[64]; /* "NVIDIA H200" */
    int capability;  /* 90 */
    int driver;      /* 1000 major + 10 minor */
    int processors;  /* multiprocessors */
    int shared;      /* bytes of shared memory that a block may have */
} kolo_gpu;

typedef struct kolo_backend_config {
    int threads; /* compute threads */
    bool direct; /* conv=direct */
    /* fixed rule instead of a clock; cuda: only engines whose bits are the same every time */
    bool deterministic;
    bool tf32;            /* cuda: f32 convolutions and products may round their inputs to TF32 */
    int device;           /* cuda: index among the visible GPUs (launch/device.h) */
    double trial_seconds; /* cuda: most that timing the algorithms of one shape may take; 0: 2 */
    const kolo_gpu *gpu; /* cuda: plan for this one, without a device; outlives the backend; NULL: `device` */
    const char *cache;   /* file of timed choices, read and appended (by rank 0); NULL: none */
    /* text of choices made by rank 0 for all (kolo_backend_choices); NULL: choose here */
    const char *choices;
} kolo_backend_config;

/* name: "cpu", or "cuda" (opens libkolo_cuda.so: base/plugin.h). */
int kolo_backend_create(kolo_backend **backend, const char *name, const kolo_backend_config *config);
void kolo_backend_destroy(kolo_backend **backend);
/* Of a backend for a GPU that is not there: who planned, and what is not counted, a sentence. Else "". */
const char *kolo_backend_note(const kolo_backend *backend);
/* Processor, library and threads, on which times depend; static as long as it is. */
const char *kolo_backend_machine(kolo_backend *backend);
const char *kolo_backend_version(const char *name); /* of its library: "oneDNN 2.6.3"; static text */

/* Chooses the layout of every tensor of `graph`: one channel block for all its activations, parameters in the
 * layout of their weight gradient. `like` (may be NULL): another graph's tensors and layouts whose
 * parameters, found by name, keep their layout (an evaluation graph shares the training graph's parameters).
 * layout: [graph->tensors], filled. */
int kolo_backend_layout(kolo_backend *backend, const kolo_graph *graph, const kolo_graph *like,
                        const kolo_layout *like_layout, kolo_layout *layout);

/* Prepares node `node` for these layouts ([graph->tensors]). The kernel belongs to the backend and is shared.
 * *workspace: bytes it needs while it runs. */
int kolo_backend_prepare(kolo_backend *backend, const kolo_graph *graph, int node, const kolo_layout *layout,
                         kolo_kernel **kernel, size_t *workspace);

/* args: pointers of in[0..n_in), then out[0..n_out); NULL for tensors that are not there. slot: which
 * micro-batch (for step->valid). */
int kolo_kernel_run(kolo_kernel *kernel, void *const *args, void *workspace, const kolo_step *step, int slot);

/* One line that names the choice ("jit_avx512 nChw16c winograd"), for `kolo plan`. */
const char *kolo_kernel_name(const kolo_kernel *kernel);
/* Everything that decides what it computes: operation, shapes, layouts, attributes. */
const char *kolo_kernel_key(const kolo_kernel *kernel);
/* All choices made so far as text; with it another process (or a later run) prepares the same
 * kernels. Caller frees. */
char *kolo_backend_choices(const kolo_backend *backend);
/* Of choices that it was given those that are for no operation prepared so far: their number; *first: "key =
 * value" of the first, which the caller frees; NULL: there is none, or no memory. */
int64_t kolo_backend_unasked(const kolo_backend *backend, char **first);

/* Canonical (logical row-major f32, (O,I,KH,KW) for weights) <-> a tensor in `layout`, kolo_tensor_count
 * elements. Both are in HOST memory, whatever the backend; padding is written as zero. */
int kolo_backend_to_canonical(kolo_backend *backend, const kolo_tensor *tensor, const kolo_layout *layout,
                              const void *from, float *to);
int kolo_backend_from_canonical(kolo_backend *backend, const kolo_tensor *tensor, const kolo_layout *layout,
                                const float *from, void *to);

/* ---- memory and order of work ---- */

/* "cpu" lives in host memory and does at once what it is given. "cuda" has its own memory and four streams
 * (lanes); everything below and kolo_kernel_run only enqueues, on COMPUTE unless a lane is named. So one
 * executor serves both. */
enum kolo_lane { KOLO_LANE_COMPUTE, KOLO_LANE_UPLOAD, KOLO_LANE_COMM, KOLO_LANE_ASIDE, KOLO_LANES };
bool kolo_backend_is_host(const kolo_backend *backend); /* its memory is the host's */
/* Arenas: zeroed, KOLO_ALIGN aligned. NULL: error text with the bytes asked for. Never called in a step. */
void *kolo_backend_alloc(kolo_backend *backend, size_t bytes);
void kolo_backend_free(kolo_backend *backend, void **memory, size_t bytes);
/* Bytes that may still be allocated, and of what ("GPU 0 (NVIDIA H200)"). */
size_t kolo_backend_memory(kolo_backend *backend, const char **source);
/* Host memory that copies read or write while the host goes on (cuda: page-locked and mapped;
 * cpu: nothing to do). */
int kolo_backend_pin(kolo_backend *backend, void *host, size_t bytes);
void kolo_backend_unpin(kolo_backend *backend, void *host);
/* to, from: backend memory or pinned host memory, in any combination. */
int kolo_backend_copy(kolo_backend *backend, enum kolo_lane lane, void *to, const void *from, size_t bytes);
int kolo_backend_fill(kolo_backend *backend, enum kolo_lane lane, void *to, int byte, size_t bytes);
/* Outside of steps: any host memory; returns when done, after everything enqueued before. */
int kolo_backend_read(kolo_backend *backend, void *host, const void *from, size_t bytes);
int kolo_backend_write(kolo_backend *backend, void *to, const void *host, size_t bytes);
/* waits for all lanes; reports what failed since, naming the call */
int kolo_backend_finish(kolo_backend *backend);
void *kolo_backend_stream(kolo_backend *backend, enum kolo_lane lane); /* cudaStream_t; NULL on "cpu" */

typedef struct kolo_event kolo_event;
int kolo_event_create(kolo_backend *backend, kolo_event **event, bool timed);
void kolo_event_destroy(kolo_event **event);
int kolo_event_record(kolo_event *event, enum kolo_lane lane);
/* the lane goes on when the last record is reached */
int kolo_event_after(kolo_event *event, enum kolo_lane lane);
/* 1; 0 not yet; negative: the device failed */
int kolo_event_done(kolo_event *event);
/* the host waits; KOLO_ELAUNCH after `timeout` seconds */
int kolo_event_wait(kolo_event *event, double timeout);
double kolo_event_seconds(const kolo_event *from, const kolo_event *to); /* both timed and done */

/* A step as one replayable piece. begin .. end: what is enqueued meanwhile by this thread on COMPUTE, and on
 * COMM and ASIDE between events, is recorded instead of done. Events recorded inside may be waited for
 * outside. cpu: begin returns 1, "not here": go on eagerly. */
typedef struct kolo_replay kolo_replay;
int kolo_backend_capture(kolo_backend *backend);
int kolo_backend_capture_end(kolo_backend *backend, kolo_replay **replay);
int kolo_replay_run(kolo_replay *replay); /* on COMPUTE */
void kolo_replay_destroy(kolo_replay **replay);

/* ---- vector arithmetic over arenas, for the plan's actions: the same bits on any number of threads ---- */

int kolo_backend_fold(kolo_backend *backend, float *sum, const float *part, int64_t count); /* sum += part */
/* to[i] = from[i] / by: the mean of what was summed over so many ranks */
int kolo_backend_divide(kolo_backend *backend, float *to, const float *from, float by, int64_t count);
/* half[i] = from[i] rounded to dtype (BF16 or F16): the SHADOW of an arena. */
int kolo_backend_narrow(kolo_backend *backend, void *half, enum kolo_dtype dtype, const float *from,
                        int64_t count);
/* `count` elements of an activation to an encoded form and back (kolo_form_takes); only on backends that
 * encode. */
bool kolo_backend_encodes(const kolo_backend *backend);
int kolo_backend_encode(kolo_backend *backend, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                        const void *from, int64_t count);
int kolo_backend_decode(kolo_backend *backend, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                        const void *from, int64_t count);

#endif
