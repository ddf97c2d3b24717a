/* Inside ops/: what a backend is made of. A backend is one kolo_backend_type; an operation of
 * it is one kolo_op_row. */
#ifndef KOLO_OPS_KERNEL_H
#define KOLO_OPS_KERNEL_H

#include "graph/graph.h"
#include "ops/backend.h"
#include "ops/choices.h"

/* One operation of a graph, as a row sees it while the plan is made. */
typedef struct kolo_kernel_request {
    kolo_backend *backend;
    const kolo_graph *graph;
    const kolo_node *node;
    const kolo_layout *layout;
} kolo_kernel_request;

struct kolo_kernel {
    int (*run)(const kolo_kernel *kernel, void *const *args, void *workspace, const kolo_step *step,
               int slot);
    void (*release)(void *state);
    void *state; /* the row's own; released with the kernel */
    size_t workspace;
    char name[96];
    kolo_backend *backend;
    char *key; /* operation, shapes, layouts, attributes as text */
};

typedef struct kolo_op_row {
    /* Chooses layouts of parameters (NULL: they stay plain). `layout` holds the activations' already; a
     * parameter that has an opaque layout is not to be changed. */
    int (*layout)(const kolo_kernel_request *request, kolo_layout *layout);
    /* Fills kernel->{run, release, state, workspace, name}. */
    int (*prepare)(const kolo_kernel_request *request, kolo_kernel *kernel);
} kolo_op_row;

/* Memory and order of work of a backend that has its own (backend.h says what each does). */
typedef struct kolo_device_table {
    void *(*alloc)(kolo_backend *backend, size_t bytes);
    void (*free)(kolo_backend *backend, void *memory, size_t bytes);
    size_t (*memory)(kolo_backend *backend, const char **source);
    int (*pin)(kolo_backend *backend, void *host, size_t bytes);
    void (*unpin)(kolo_backend *backend, void *host);
    int (*copy)(kolo_backend *backend, enum kolo_lane lane, void *to, const void *from, size_t bytes);
    int (*fill)(kolo_backend *backend, enum kolo_lane lane, void *to, int byte, size_t bytes);
    int (*read)(kolo_backend *backend, void *host, const void *from, size_t bytes);
    int (*write)(kolo_backend *backend, void *to, const void *host, size_t bytes);
    int (*finish)(kolo_backend *backend);
    void *(*stream)(kolo_backend *backend, enum kolo_lane lane);
    int (*event_create)(kolo_backend *backend, void **event, bool timed);
    void (*event_destroy)(void *event);
    int (*event_record)(kolo_backend *backend, void *event, enum kolo_lane lane);
    int (*event_after)(kolo_backend *backend, void *event, enum kolo_lane lane);
    int (*event_done)(void *event);
    double (*event_seconds)(void *from, void *to);
    int (*capture)(kolo_backend *backend);
    int (*capture_end)(kolo_backend *backend, void **replay);
    int (*replay_run)(kolo_backend *backend, void *replay);
    void (*replay_destroy)(void *replay);
} kolo_device_table;

typedef struct kolo_backend_type {
    const char *name;
    const char *(*version)(void);       /* of its library; static text */
    const kolo_op_row *const *rows;     /* [KOLO_OP_COUNT] */
    int (*open)(kolo_backend *backend); /* sets backend->state */
    /* processor, library, threads: what timed choices depend on */
    const char *(*machine)(kolo_backend *backend);
    void (*close)(kolo_backend *backend);
    void (*enter)(kolo_backend *backend); /* before anything runs on the calling thread; may be NULL */
    /* layouts of the activations; like (may be NULL): a graph whose layouts are chosen and whose
     * parameters this one shares */
    int (*blocks)(kolo_backend *backend, const kolo_graph *graph, const kolo_graph *like,
                  const kolo_layout *like_layout, kolo_layout *layout);
    int (*to_canonical)(kolo_backend *backend, const kolo_tensor *tensor, const kolo_layout *layout,
                        const void *from, float *to);
    int (*from_canonical)(kolo_backend *backend, const kolo_tensor *tensor, const kolo_layout *layout,
                          const float *from, void *to);
    int (*fold)(kolo_backend *backend, float *sum, const float *part, int64_t count);
    int (*divide)(kolo_backend *backend, float *to, const float *from, float by, int64_t count);
    int (*narrow)(kolo_backend *backend, void *half, enum kolo_dtype dtype, const float *from, int64_t count);
    /* ops/form.h; NULL: it has no encoded forms */
    void (*encode)(kolo_backend *backend, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                   const void *from, int64_t count);
    void (*decode)(kolo_backend *backend, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                   const void *from, int64_t count);
    const struct kolo_device_table *device; /* NULL: host memory, everything at once */
} kolo_backend_type;

struct kolo_backend {
    const kolo_backend_type *type;
    int threads;
    bool direct, deterministic, tf32;
    int device;
    const kolo_gpu *gpu; /* NULL, or what plans are made for: there is no device */
    char note[768];      /* with gpu: how it was planned */
    double trial_seconds;
    kolo_choices choices;
    kolo_kernel **kernel;
    int64_t kernels, kernel_capacity;
    /* of a GPU: what layout.opaque of convolution weights points to (nhwc.h) */
    struct kolo_nhwc_weight **weight;
    int64_t weights, weight_capacity;
    void *state; /* the type's own */
};

extern const kolo_backend_type kolo_cpu_backend, kolo_described_backend;

/* NULL for an optional tensor that is not there. */
static inline const kolo_tensor *kolo_request_in(const kolo_kernel_request *r, int i)
{
    return i < r->node->n_in && r->node->in[i] >= 0 ? &r->graph->tensor[r->node->in[i]] : NULL;
}
static inline const kolo_tensor *kolo_request_out(const kolo_kernel_request *r, int i)
{
    return i < r->node->n_out && r->node->out[i] >= 0 ? &r->graph->tensor[r->node->out[i]] : NULL;
}

/* Words of a label as the loader gives it (1, 2 or 3); 0: numbers. */
static inline int kolo_target_words(const kolo_tensor *labels)
{
    return labels->dtype == KOLO_F32 ? 0 : labels->rank == 1 ? 1 : (int)labels->dim[1];
}

/* Labels (N,2,C) of image labels: weights of both terms of every class. */
static inline bool kolo_target_weighs(const kolo_tensor *labels)
{
    return labels->dtype == KOLO_F32 && labels->rank == 3;
}

/* Layout of an activation (N, C, H, W) in channel blocks. */
kolo_layout kolo_layout_blocked(const kolo_tensor *tensor, int64_t block);
/* Second half of kolo_backend_layout: `layout` holds the activations' layouts, and plain ones for all
 * else. */
int kolo_backend_layout_parameters(kolo_backend *backend, const kolo_graph *graph, const kolo_graph *like,
                                   const kolo_layout *like_layout, kolo_layout *layout);
/* Whether a tensor is an activation, or an input of numbers instead of bytes, (N, C, H, W), that the
 * channel block applies to. */
bool kolo_tensor_is_map(const kolo_tensor *tensor);

#endif
