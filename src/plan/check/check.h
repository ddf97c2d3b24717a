/* What the files of the checker share: what bytes hold as the list of actions is played (check.c). */
#ifndef KOLO_PLAN_CHECK_H
#define KOLO_PLAN_CHECK_H

#include "plan/parts.h"

typedef struct region {
    int arena;
    size_t offset, bytes;
    int tensor, slot;
    bool again;               /* made by an operation that ran a second time */
    enum kolo_form_kind form; /* not the values but what they are kept as */
    bool only_signs;          /* values that came back from their signs */
    bool summed;
    bool incoming; /* a transfer writes there */
    int outgoing;  /* transfers under way that read it */
} region;

/* What a level of a bucket holds: the sum of slots [begin, end), of `written` of its
 * tensors. Empty: end == 0. */
typedef struct content {
    int begin, end, written;
} content;

enum { UNTOUCHED, STARTED, DONE };

typedef struct check {
    const kolo_plan *plan;
    const kolo_graph *graph;
    int64_t at; /* action */
    /* late pipelines are played for so many steps, one otherwise: which one, and of the action its batch
     * and its micro-batch, counted through all */
    int64_t steps, step, batch, micro;
    kolo_binding bound[2 * KOLO_MAX_ARGS]; /* of the action, at the places of its micro-batch */
    int64_t *version;                      /* [buckets][versions] updates before a copy */
    char *stashed, *predicted;             /* [buckets] in this step */
    region *region;
    int64_t regions, capacity;
    int levels;
    content *content;                           /* [buckets][levels] */
    int *tensors;                               /* [buckets] reduced tensors in it */
    int *written;                               /* [tensors] 1 + slot that wrote it last */
    char *started, *waited, *updated, *stepped; /* [buckets] stepped: holds steps instead of gradients */
    char *shared;    /* [buckets] holds what ranks average, in the place of gradients */
    char *averaged;  /* [buckets] how much of its own was: weights, then each state; of statistics 1 */
    char *collected; /* [buckets] sharded gradients: this rank's part is in SUM */
    char *fetched;   /* [units] UNTOUCHED, STARTED: its state is here, DONE */
    char *here;      /* [units] of a file: its parameters are, or were asked for */
    char *unclear;   /* [buckets] gaps of its window are not zero */
    char *gathered;  /* [units] UNTOUCHED, STARTED, DONE */
    bool windows;    /* the last of the levels is a bucket's window */
    char *transfer;  /* [transfers][steps] UNTOUCHED, STARTED, DONE */
    char *ran;       /* [steps][slots][nodes] */
    char *squared;   /* [slots][buckets] */
    int squares;     /* of buckets and micro-batches */
    int norms, layers, buffers, noises;
} check;

/* KOLO_EINTERNAL, with the action, what is wrong of it and, unless below 0, the tensor. */
int check_breach(const check *c, const char *what, int tensor, int slot);
/* Of an action, at the places of its micro-batch. */
const kolo_binding *check_bindings(check *c, const kolo_action *a);
bool check_overlap(size_t a, size_t a_bytes, size_t b, size_t b_bytes);

/* values.c */
bool check_must_sum(const check *c);
/* What stands at a place; else, if the tensor stands anywhere, *elsewhere. */
region *check_find(check *c, const kolo_binding *b, int tensor, int slot, bool *elsewhere);
/* What stood in these bytes is there no longer; then `tensor` stands there. */
int check_place(check *c, const kolo_binding *b, int tensor, int slot, size_t bytes);
int check_forget(check *c, const kolo_binding *b, int tensor, int slot, size_t bytes);
int check_write_bytes(check *c, const kolo_binding *b, int tensor, int slot, size_t bytes);
int check_write(check *c, const kolo_binding *b, int tensor, int slot, bool again);
int check_read(check *c, const kolo_binding *b, int tensor, int slot);

/* gradients.c. in_window: sharded; whole: all its tensors are written there; finished: and all micro-batches
 * summed on this rank; ready: and over ranks. level: by its number in the list of actions. */
content *check_content(check *c, int bucket, int level);
bool check_in_window(const check *c, int bucket);
bool check_whole(check *c, int bucket, int level);
bool check_finished(check *c, int bucket);
bool check_ready(check *c, int bucket);
int check_level(const check *c, int bucket, int level);
int check_write_reduced(check *c, const kolo_binding *b, int tensor, int slot);
/* A term in the place of the gradient `sum`, to which it is added. */
int check_write_term(check *c, const kolo_binding *b, int tensor, int sum, int slot);

/* parameters.c */
bool check_is_away(const check *c, int unit);
int check_read_binding(check *c, const kolo_binding *b, int tensor, int slot);
int check_read_version(check *c, const kolo_node *n, const kolo_binding *b, int tensor);

/* buckets.c: how often something of a bucket is averaged over ranks, weights and each of the optimizer's
 * states. */
int check_averages(const check *c, int bucket);

/* What an action of a kind must find, and what it leaves. */
int check_on_load(check *c, const kolo_action *a);
int check_on_copy(check *c, const kolo_action *a);
int check_on_run(check *c, const kolo_action *a);
int check_on_sum(check *c, const kolo_action *a);
int check_on_fold(check *c, const kolo_action *a);
int check_on_gather(check *c, const kolo_action *a);
int check_on_state(check *c, const kolo_action *a);
int check_on_file_param(check *c, const kolo_action *a);
int check_on_stash(check *c, int b);
int check_on_predict(check *c, int b);
int check_on_transfer(check *c, const kolo_action *a);
int check_on_form(check *c, const kolo_action *a);
int check_on_share(check *c, const kolo_action *a);
int check_on_bucket(check *c, const kolo_action *a);
int check_on_all(check *c, const kolo_action *a);

#endif
