/* Session: everything that one run holds, made in the order of the data flow: data, graph, backend, plan,
 * comm, exec, loaders. Training, evaluation, export, plan and bench open the parts they need. */
#ifndef KOLO_TRAIN_SESSION_H
#define KOLO_TRAIN_SESSION_H

#include "base/option.h"
#include "comm/buckets/trainer.h"
#include "data/cache.h"
#include "data/loader.h"
#include "data/order.h"
#include "data/stage.h"
#include "exec/exec.h"
#include "launch/device.h"
#include "launch/launch.h"
#include "models/models.h"
#include "plan/program.h"
#include "train/phase.h"

/* What one shape of a training step's batch needs: a rank's micro-batches of rows x height x width. */
typedef struct kolo_shape {
    int64_t rows;
    int slots;
    int64_t height, width;
    kolo_graph *graph;
    kolo_plan *plan;                     /* all are laid in one memory, and take turns in one executor */
    kolo_plan *exchange[KOLO_EXCHANGES]; /* with local steps those in which ranks exchange that; else NULL */
    /* with stages: the plan is of this rank's, of these */
    kolo_placement *placement;
    kolo_program *program;
    size_t scratch;   /* bytes of it that this one needs beside what all have */
    kolo_form *form;  /* [graph->tensors] how its plan keeps activations; NULL: as they are (forms.h) */
    size_t encodable; /* stash=auto: bytes that it could encode of a micro-batch; 0: nothing */
} kolo_shape;

enum kolo_session_part {
    KOLO_SESSION_TRAIN = 1, /* training graph, plan; executor and loader unless PLAN_ONLY */
    /* evaluation graph, plan, executor, validation loader; without TRAIN they are graph, plan and
     * exec, else the eval_ ones */
    KOLO_SESSION_EVAL = 2,
    /* no data set is opened and no loader made: shapes come from options and the model's usual input */
    KOLO_SESSION_NO_DATA = 4,
    KOLO_SESSION_PLAN_ONLY = 8,  /* no memory, no comm, no executor */
    KOLO_SESSION_DATA_ONLY = 16, /* data sets alone: kolo_session_loader is all that one can ask for */
    KOLO_SESSION_QUIET = 32,     /* with PLAN_ONLY: what was chosen is not printed */
};

enum { SESSION_CUT_RANGES = 16 };
typedef struct kolo_session {
    /* borrowed; resolved here: classes, channels, size, val_size, micro_batch, threads, mean, std */
    kolo_options *options;
    kolo_launch *launch; /* borrowed */
    int ranks;           /* planned for */
    kolo_grid grid;      /* of them; one stage: every rank is a replica */
    int replicas;        /* grid.replicas: a batch is divided among so many */
    int shards;          /* parts that they have of what shard= names; 1: all have all */
    int shard_groups;    /* of them that have copies of all parts */
    bool elsewhere;      /* PLAN_ONLY: for other machines, as ranks= says */
    bool forms_given;    /* shape[].form are what rank 0 chose */
    bool trial;          /* of batch=auto: one batch that may be too large, of which nothing is reported */
    bool untimed;        /* with it: too little memory here to time anything, algorithms are chosen by rule */
    /* computes on `device`, number device_index among those that this rank sees; else on the CPU */
    bool cuda;
    kolo_device device;
    /* PLAN_ONLY, or NULL: the GPU that is planned for, which is not there */
    const kolo_gpu *gpu;
    int device_index, gpu_ranks; /* gpu_ranks: of this node on this GPU */
    size_t device_bytes;         /* that were free on it before this session took any */
    bool staged;                 /* GPUs' gradients travel through host memory */
    const char *detector;        /* the model's; NULL: a classifier */
    int64_t plain_epoch;         /* detectors: the first without mosaic, and with L1 */
    int64_t rows;                /* micro-batch, in the phase that is open */
    int slots;                   /* micro-batches a rank and step, likewise */
    /* a rank's part of an evaluation's batch: the smallest micro-batch of the run */
    int64_t eval_rows;
    int spatial[2]; /* rows, columns of parts that images and maps are cut into */
    kolo_cut_range cut_range[SESSION_CUT_RANGES]; /* layers that are cut otherwise */
    int cut_ranges;
    int across; /* ranks of a stage among which these parts are divided; each is a stage of the grid */
    int64_t height, width; /* of images, where neither phases nor val_size say otherwise */
    float mean[4], std[4];
    kolo_dataset *train_set, *val_set;
    kolo_stage *stage[2]; /* of training, validation; NULL: read where they are */
    kolo_cache *cache[2]; /* likewise */
    int parts;            /* as opened */
    kolo_phase *phase;    /* [phases]; the training loader is of the one that is open now */
    int phases, now;
    /* batch=auto: the batch was chosen, as a multiple of this; 0: it was given */
    int64_t unit;
    int64_t samples, val_samples, steps; /* steps: of the whole run */
    /* [shapes] of all phases, known from the start; what takes most memory is first */
    kolo_shape *shape;
    int shapes;
    kolo_graph *graph, *eval_graph; /* graph, plan: of shape[0] */
    kolo_backend *backend;
    kolo_plan *plan, *eval_plan;
    kolo_placement *placement, *eval_placement; /* with stages; placement, program: of shape[0] */
    /* resident beside arenas and batches before the first step: libraries, kernels, heap, stacks; the most
     * until the first arena was made; and what was shared then (the launcher's; later it is comm's,
     * planned) */
    size_t held_bytes, highest_bytes, shared_bytes;
    size_t unshared_peak; /* the most that was held before the first step, which reads others' memory */
    /* before that: what is planned with, of rank 0's process for all */
    size_t process_bytes;
    double *node_seconds; /* [graph->nodes] where this rank chose the cut: of every operation; else NULL */
    kolo_program *program, *eval_program;
    kolo_comm *eval_comm; /* of them: what an evaluation sends from stage to stage */
    kolo_launch flat;     /* compression_within: as comm sees the job */
    kolo_comm *comm;
    kolo_exec *exec, *eval_exec;
    kolo_loader *loader, *val_loader;
    /* of training, validation, where the network learns them; else NULL */
    kolo_image_labels *image_labels[2];
    float *pos_weight;               /* [classes] of them in training, or NULL */
    float *class_weight;             /* [classes of train_set] of a classifier's loss, or NULL: all alike */
    struct kolo_detect_truth *truth; /* of val_set, once a detector was judged by it */
    struct kolo_tournament *tournament; /* NULL: none (tournament.h) */
    struct kolo_plan_file *plan_file;   /* plan=FILE, or NULL (plan_file.h) */
    char data_uuid[40];
} kolo_session;

/* Collective over the launch unless PLAN_ONLY. On error everything is closed. */
int kolo_session_open(kolo_session *session, kolo_options *options, kolo_launch *launch, int parts);
/* The same, PLAN_ONLY, for a GPU that is not there; borrowed. NULL: kolo_session_open. */
int kolo_session_open_for(kolo_session *session, kolo_options *options, kolo_launch *launch, int parts,
                          const kolo_gpu *gpu);
/* Leaves the phase that is open for another: from here on the training loader is that one's. All
 * steps are done and reported. */
int kolo_session_enter(kolo_session *session, int phase);
/* This rank takes images from the loader: it is of the first stage. Others know of a batch how large it
 * is. */
static inline bool kolo_session_loads(const kolo_session *session) { return session->grid.stage == 0; }
/* session->steps are those of the run: given, or of a training set whose images are counted (images= where
 * nothing is read); else of so many batches an epoch as synthetic data has. */
static inline bool kolo_session_length_known(const kolo_session *s)
{
    return s->steps > 0 && (s->options->steps || s->train_set || s->options->images);
}
/* What an evaluation computes with, and of what. */
static inline kolo_exec *kolo_session_eval_exec(const kolo_session *s)
{
    return s->eval_exec ? s->eval_exec : s->exec;
}
static inline const kolo_graph *kolo_session_eval_graph(const kolo_session *s)
{
    return s->eval_graph ? s->eval_graph : s->graph;
}
/* Of a pipeline the stage that reads and counts what an evaluation says by `tensor`, an output of its graph:
 * that which computes it; of a detector's heads the last one, which has all of them. */
int kolo_session_answer_stage(const kolo_session *session, int tensor);
static inline bool kolo_session_answers(const kolo_session *s, int tensor)
{
    return kolo_session_answer_stage(s, tensor) == s->grid.stage;
}
static inline int64_t kolo_session_batch(const kolo_session *session)
{
    return session->phase[session->now].batch;
}
/* The epoch of step number `step` (0, 1, ...) and how many steps of it come before. Returns its phase. */
static inline int kolo_session_at(const kolo_session *s, int64_t step, int64_t *epoch, int64_t *within)
{
    return kolo_phase_at(s->phase, s->phases, step, epoch, within);
}
/* The name of the figure by which the best checkpoint is chosen: "top1", of detectors "ap", of image
 * labels "map". */
const char *kolo_session_metric(const kolo_session *session);
/* A classifier of image labels, any number of classes a sample. */
static inline bool kolo_session_tags(const kolo_session *s)
{
    return !s->detector && s->options->targets > KOLO_targets_label;
}
/* What a loader of this session is made with; texts are the options'. */
kolo_loader_config kolo_session_loader(const kolo_session *session, bool train);
/* Bytes that the largest rank needs where it computes, on CPUs with all else of its process; what memory=
 * allows each (without it: what there is). */
size_t kolo_session_rank_bytes(const kolo_session *session);
/* The same of a rank of one stage. */
size_t kolo_session_stage_bytes(const kolo_session *session, int stage);
int kolo_session_memory(const kolo_session *session, size_t *bytes);
/* Prints what a rank of the plan that was made needs, and whether that fits into memory_limit= or this
 * machine's memory. file: FILE *. KOLO_ECONFIG: it does not; but 0 where it was planned for other
 * machines. */
int kolo_session_print_memory(kolo_session *session, void *file);
/* Of this rank's process, in bytes, once it is open: what it will take at most (held before the first arena,
 * arenas in host memory, batches and, where it saves, a checkpoint's copy), as known before the first arena;
 * and what it has taken, without pages that belong to other ranks of its node. */
size_t kolo_session_planned_bytes(const kolo_session *session, bool saves);
/* What is beside arenas and batches now belongs to the plan, too: once all is ready for the first step. */
void kolo_session_settle(kolo_session *session);
/* Where there is no room for a copy of what is saved. */
void kolo_session_report_copy(const kolo_session *session);
size_t kolo_session_peak_bytes(const kolo_session *session);
/* Bytes of its GPU that were taken since the session chose its plans; 0 on a CPU. */
size_t kolo_session_taken(const kolo_session *session);
void kolo_session_close(kolo_session *session);

#endif
