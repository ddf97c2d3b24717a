/* Checkpoints: written under a temporary name, synced, renamed, manifest last; asynchronous to the step; the
 * same bytes whatever the grid.
 *
 *   RUN/lock                          which job owns this folder
 *   RUN/recipe.yaml                   all options of the first start (kolo_options_write all)
 *   RUN/run_id                        which run this is, and checksums of recipe.yaml and classes.txt
 *                                     (identity.h)
 *   RUN/checkpoints/step-0000000500/
 *     tensors.safetensors             canonical f32 under state-dict names; before others "momentum:", "ema:"
 *     carried                         where ranks have something of their own (carried.h)
 *     manifest.json                   written last: step, epoch, position, options, data uuid, seed, plan
 *                                     hash, versions, metrics, loss scale, the run; crc32c and size of every
 *                                     other file, and at its end of itself
 *   RUN/best                          name of the checkpoint with the best validation so far
 *                                     (position.best_step), if it is there; for people: this program goes
 *                                     by the newest manifest
 *   RUN/.alive                        heartbeats of ranks on several nodes while they end (launch/far.h)
 *
 * The last two checkpoints and the best are kept. */
#ifndef KOLO_CKPT_H
#define KOLO_CKPT_H

#include "ckpt/identity.h"
#include "ckpt/weights.h"
#include "exec/exec.h"

/* Where a run stands. Everything needed to go on beside the tensors. */
typedef struct kolo_position {
    int64_t step;              /* optimizer steps done */
    int64_t epoch, epoch_step; /* next batch */
    int64_t batch;             /* global batch */
    int64_t samples;           /* of the training set */
    int64_t restarts;          /* starts of this run before this one */
    uint64_t seed;
    double wall_seconds; /* trained so far, over all starts */
    char metric[8];    /* what the best is chosen by: top1, ap, map; as a manifest's best_top1, best_ap ... */
    double best;       /* -1: none yet */
    int64_t best_step; /* 0: none */
    char data_uuid[40];
    char model[64];
    uint64_t plan_hash;
    char late[2048];  /* of weights that are late, how (kolo_plan_late_text); "": they are not */
    char run[RUN_ID]; /* "": of a version that did not note it */
} kolo_position;

/* The run folder. open: makes it, takes the lock (KOLO_ECONFIG naming the job and host that hold it; a stale
 * lock, i.e. a dead process of this host, or a job that squeue no longer knows, is taken over with a word),
 * checks that it can be written (KOLO_EIO: read-only, full). Rank 0 only. */
typedef struct kolo_run kolo_run;
int kolo_run_open(kolo_run **run, const char *folder);
void kolo_run_close(kolo_run **run); /* waits for a checkpoint in flight, releases the lock */
const char *kolo_run_folder(const kolo_run *run);

/* The recipe of record: written as long as there is no checkpoint; then compared: a differing MATH option is
 * KOLO_ECONFIG with the difference; it or classes.txt changed since: KOLO_EINPUT (identity.h). */
int kolo_run_record(kolo_run *run, const kolo_options *options);

/* Rank 0, once it is known where the run stands: a run that begins gets a new identity, one that goes on
 * keeps that of its folder, or of its checkpoint where the folder has lost it. It stands in position->run
 * then. After the recipe and classes.txt, whose checksums it notes. */
int kolo_run_identify(kolo_run *run, bool begins, kolo_position *position);

/* Newest whole checkpoint: 1 found (position filled, `path` its folder), 0 none, negative: error. Those that
 * are not whole (no manifest, a file missing, wrong size or crc) and those of another run are passed over
 * with a warning each, and the one before is taken. */
int kolo_checkpoint_find(const char *run_folder, kolo_position *position, char *path, size_t size);
/* Where the run stands, if its newest checkpoint is whole: tensors, which may be many gigabytes, are not
 * read. For what is planned before the run is opened. */
int kolo_checkpoint_position(const char *run_folder, kolo_position *position);
/* The same for checkpoint=: newest, best (by validation), or the number of a step. KOLO_EINPUT: it is not
 * there, or damaged; KOLO_ECONFIG: none of these words. */
int kolo_checkpoint_pick(const char *run_folder, const char *which, kolo_position *position, char *path,
                         size_t size);
/* Reads the tensors, and the loss scale, of a checkpoint that was found into exec. Every rank reads, and
 * compares what it reads with the manifest's checksum. KOLO_ECONFIG: another model (missing, extra, wrongly
 * shaped tensors are listed). */
int kolo_checkpoint_load(const char *path, kolo_exec *exec, const kolo_plan *plan);

/* Bytes beside the copy that a rank writes by: a tensor (the largest: so many bytes) in canonical order and,
 * where one rank writes it all, what gathers small pieces. */
size_t kolo_checkpoint_scratch(size_t largest, bool in_place);

/* Ranks write what they hold from where it is, together, and train on when all have: those of stages, of
 * parts (shards), those that have less in memory than they hold, and where the plan says so. Else rank 0
 * copies it and writes while training goes on. */
bool kolo_checkpoint_in_place(const kolo_plan *plan);

/* Reserves the memory of the copy (the arenas' size) before step 1; else the first save does, and
 * waits for its pages. */
int kolo_checkpoint_prepare(kolo_run *run, const kolo_plan *plan, kolo_backend *backend);
/* Ranks other than 0, when that saves: they take part where checkpoints are written in place. parts: what
 * they carry (carried.h); read by this call only. */
struct kolo_rank_parts;
int kolo_checkpoint_take_part(kolo_exec *exec, const kolo_plan *plan, kolo_backend *backend,
                              const struct kolo_rank_parts *parts);
/* Rank 0. Copies the arenas at once (a memcpy; waits first if the previous checkpoint is still being written)
 * and writes in a thread of its own; in place, collectively with the one above, every stage's first rank
 * writes its tensors into their places of the one file, no rank holds more than one of another, and the
 * checkpoint is there when it returns. An error of the thread (disk full: KOLO_EIO; the older checkpoints
 * stay) is returned by the next save or wait. */
int kolo_checkpoint_save(kolo_run *run, kolo_exec *exec, const kolo_plan *plan, kolo_backend *backend,
                         const kolo_options *options, const kolo_position *position);
int kolo_checkpoint_wait(kolo_run *run);

enum kolo_export_form { KOLO_FORM_SAFETENSORS, KOLO_FORM_DARKNET, KOLO_FORM_ONNX };
/* What a file is to be, by the end of its name: .safetensors, .weights, .onnx; KOLO_ECONFIG: another. */
int kolo_export_form(const char *path, enum kolo_export_form *form);

/* How weights are written and read for other programs. */
typedef struct kolo_export {
    enum kolo_export_form form; /* of the first two */
    /* names of the classes, a JSON list, which goes into the metadata as "classes" (darknet's form has none);
     * NULL: not known */
    const char *classes;
    bool ema;        /* the averaged ones */
    int64_t batches; /* that batch norms have seen (num_batches_tracked) */
    int names;       /* KOLO_names_* */
    int dtype;       /* KOLO_export_dtype_* */
} kolo_export;
/* Parameters and buffers of exec to FILE: in darknet's form, or as safetensors that load_state_dict of the
 * program whose names they are takes strictly (counters of batch norms and index tables of windows are
 * written too). KOLO_ECONFIG: that program's names of this network are not known, or the network is none that
 * darknet's form can hold. */
int kolo_weights_export(const char *path, kolo_exec *exec, const kolo_plan *plan, const kolo_export *how);
/* The graph of an evaluation with its weights as ONNX (opset 20), from normalised images "input"
 * (N,C,H,W), any N, to the network's outputs. KOLO_ECONFIG: an operation has no form there, or this program
 * was built without it. */
int kolo_onnx_export(const char *path, kolo_exec *exec, const kolo_plan *plan, const kolo_export *how);
/* From a file of any kind, under any known names, which are recognised. `head` (KOLO_init_head_*) says what
 * becomes of the layers that make the result: new: they stay as they are; auto: they do where only their
 * number of classes differs; load: they must fit. All else must fit: KOLO_ECONFIG lists what is missing,
 * unknown, or of another shape. */
int kolo_weights_import(const char *path, kolo_exec *exec, const kolo_plan *plan, int head);

#endif
