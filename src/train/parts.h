/* The parts in which a session is opened; each file is one. */
#ifndef KOLO_TRAIN_PARTS_H
#define KOLO_TRAIN_PARTS_H

#include "ckpt/ckpt.h"
#include "train/session.h"

/* session_check.c: what each option allows but their combination does not; and what is of another kind of
 * network. detector: the model's. */
int session_check_options(const kolo_options *options);
int session_check_task(const kolo_options *options, const char *detector);

/* session_shape.c: classes, channels, sizes and pixel statistics, with the data open: to the session and its
 * options. */
int session_resolve_shape(kolo_session *session, const kolo_model *model);

/* device.c: fills cuda, device, device_index, gpu_ranks; refuses what the device cannot compute.
 * Collective. */
int session_choose_device(kolo_session *session);
enum kolo_dtype session_dtype(const kolo_session *session); /* of activations */
void session_report_device(const kolo_session *session);

/* memory.c: KOLO_ECONFIG with the shortfall where this node, or this rank's GPU, cannot hold the job. */
int session_check_least(
    kolo_session *session); /* by lower bounds, once there are graphs: before anything is timed */
int session_check_memory(kolo_session *session); /* by the plans, before any arena is allocated */
/* Bytes that a rank of that stage needs where it computes: on CPUs all that its process holds; how many each
 * rank can have: of this rank's GPU, or its share of the node. And what of it is beside the plan. */
size_t session_rank_bytes(const kolo_session *session, int stage);
size_t session_rank_limit(const kolo_session *session);
size_t session_beside_bytes(const kolo_session *session, const kolo_plan *plan);
/* What the process will hold beside those, to process_bytes: before the plans are made, and when they are. */
void session_weigh_process(kolo_session *session, bool planned);
/* Does rank 0 copy what it saves, or is there no room: to plan->config.in_place. */
int session_choose_copy(kolo_session *session);

/* No gradients, no optimizer: the evaluation's own parameters are the only ones. */
static inline bool session_evaluates_only(const kolo_session *s)
{
    return (s->parts & KOLO_SESSION_EVAL) && !(s->parts & KOLO_SESSION_TRAIN);
}
/* session_graph.c: shapes of all phases and their graphs. */
int session_make_graphs(kolo_session *s);
/* session_plan.c: backend and plans. */
/* lower bounds for all plans together, by the graphs alone */
int session_least_arenas(const kolo_session *s, size_t arena_bytes[KOLO_ARENAS]);
int session_make_plans(kolo_session *s); /* collective */
int session_plan_trial(kolo_session *s); /* the same by this rank alone */
void session_free_plans(kolo_session *s);
/* session_exec.c: comm, once its arena's bytes are known, and executors. Collective. */
int session_make_executors(kolo_session *s);
/* A communicator of `launch`'s ranks, as the options say; transfers: of one replica. Collective over them. */
int session_open_comm(kolo_session *session, kolo_launch *launch, size_t arena_bytes, size_t used_bytes,
                      int64_t transfers, kolo_comm **comm);

/* KOLO_CACHE/NAME, in a folder that is there; NULL: there is none. Caller frees. */
char *session_cache_file(const char *name);

/* session_phase.c */
/* with the data known: phases, steps, where the run stands */
int session_lay_phases(kolo_session *s);
/* a rank's part of a batch into micro-batches */
int session_cut(const kolo_session *s, int phase, int64_t *rows, int *slots);
/* rows and slots of the phase that s->now says */
int session_resolve_batch(kolo_session *s);
/* 1: the run folder has a checkpoint, and *position is its; 0: none, or no run. Collective. */
int session_position(const kolo_session *s, kolo_position *position);
int session_largest(const kolo_session *s); /* the largest side of all phases; 0: none states any */

/* auto_batch.c, collective: the largest batch that should fit, to options->batch, and its unit; nothing where
 * it is given. Then the plans, within the memory there is: a batch that was chosen goes down until all ranks
 * can hold theirs, one that was given is refused. */
int session_choose_batch(kolo_session *s);
int session_fit_plans(kolo_session *s);
/* session_data.c */
int session_open_data(kolo_session *s, int parts);
/* targets=auto and unverified=auto are resolved; image labels are read where they are learnt */
int session_read_targets(kolo_session *s);
/* class_weight.c: does class_weight= go with the loss and the labels; to s->class_weight or s->pos_weight */
int session_check_class_weight(const kolo_session *s);
int session_weigh_classes(kolo_session *s);
int session_make_loaders(kolo_session *s);
/* Calls `visit` with every batch of this rank's part of the validation data, from the first on. An error of
 * `visit` ends it and is returned. The batch belongs to the loader again when `visit` returns. */
int session_each_val_batch(kolo_session *s, int (*visit)(void *argument, const kolo_batch *batch),
                           void *argument);
/* The same of a loader that gives every image once. */
int session_each_batch(kolo_loader *loader, int (*visit)(void *argument, const kolo_batch *batch),
                       void *argument);
int session_renew_loader(kolo_session *s); /* of training, for the phase that s->now says */
void session_close_loaders(kolo_session *s);
void session_close_data(kolo_session *s);
int session_parse_spatial(kolo_session *s); /* spatial.c: spatial=, to spatial and cut_range */
/* class_names.c: of validation data, against what is or was trained on */
int session_check_classes(const kolo_session *s);

#endif
