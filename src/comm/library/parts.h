/* Inside the library half: the table of entries, the turns, and what carries batches. */
#ifndef COMM_LIBRARY_PARTS_H
#define COMM_LIBRARY_PARTS_H

#include "base/failure.h"
#include "comm/compress/compress.h"
#include "comm/core/gpu_channel.h"
#include "comm/core/kernel.h"
#include "comm/library/library.h"

enum {
    /* batches of one stream under way at a time; batch number i is carried by track i mod
     * LIB_TRACKS on every member */
    LIB_TRACKS = 2,
    LIB_CHANNELS = 16, /* lanes of a group */
    LIB_TEXT = 256,    /* what one rank says in a message */
};

/* ---- entries.c ----------------------------------------------------------------------------------------- */

int lib_entries_open(kolo_world *world);
void lib_entries_close(kolo_world *world);
/* world->lock is held by the caller of these. take: *out is SUBMITTED, its handle valid. */
int lib_entry_take(kolo_world *world, lib_entry **out);
void lib_entry_free(kolo_world *world, lib_entry *entry);
/* Copies name, compression and splits into the entry. */
int lib_entry_keep(lib_entry *entry, const kolo_request *request, int members);
kolo_handle lib_entry_handle(const lib_entry *entry);
/* Every entry under way ends with this. */
void lib_entries_fail(kolo_world *world, int status, const char *text);
/* The library's memory for an entry's result; kept from use to use. */
int lib_entry_memory(lib_entry *entry, size_t bytes, void **memory);

/* ---- submit.c ------------------------------------------------------------------------------------------ */

/* What is wrong with a request in itself, in a few words; text[0] = 0: nothing. Returns whether its vectors
 * lie in a GPU's memory. */
bool lib_check(const kolo_group *group, const kolo_request *request, char *text, size_t bytes);
int64_t lib_elements(const kolo_request *request, int from); /* product of the dimensions from `from` on */
/* that addresses of any machine can tell apart */
#define LIB_BYTES_MAX ((int64_t)1 << 56)
/* of a sparse one: memory for all rows may exist */
bool lib_fits_dense(const kolo_request *request);
int lib_check_group(const kolo_group *group);
/* with factors that are numbers, and no compression that is none */
kolo_request lib_plain(const kolo_request *request);
extern const int64_t lib_alike[1]; /* as `splits` of a gather: every member brings as many rows as this one */
/* Submits it with what the library itself adds: a note (or NULL), a fault that only this rank sees (NULL or
 * "": none). */
int lib_submit(kolo_group *group, const kolo_request *request, const char *note, const char *fault,
               lib_entry **entry);
/* without submitting it */
int lib_entry_make(kolo_group *group, const kolo_request *request, lib_entry **entry);
/* Submits likewise, takes turns until it is complete, releases: what every blocking call does. output may be
 * NULL; what it points to is the caller's only if the request had its own `out`. */
int lib_do(kolo_group *group, const kolo_request *request, const char *note, const char *fault,
           kolo_output *output);
/* Collective over the group: all bring the same note, and nobody has a fault; else KOLO_EINPUT on all,
 * with what each brought. */
int lib_agree(kolo_group *group, const char *note, const char *fault);
/* The same; who is not agreed with after so many seconds aborts the world, with this reason. */
int lib_agree_within(kolo_group *group, const char *note, double seconds, const char *otherwise);

/* ---- engine.c: turns ----------------------------------------------------------------------------------- */

int lib_engine_open(kolo_world *world);  /* turns can be taken */
int lib_engine_start(kolo_world *world); /* and are */
void lib_engine_stop(kolo_world *world);
void lib_engine_close(kolo_world *world);
/* The thread that holds the turn makes all calls of the router, of lanes and of the negotiators. */
void lib_turn_take(kolo_world *world);
void lib_turn_give(kolo_world *world);
/* Something was submitted: its own thread sees to it unless somebody takes turns already. */
void lib_engine_wake(kolo_world *world);
void lib_entry_wake(kolo_world *world, lib_entry *entry); /* the thread that sleeps until it is complete */
/* As kolo_test, but takes a turn, if one can be had: for who asks again and again. The library's thread
 * leaves the turns to it until it has not asked for a while. */
int lib_poll(kolo_world *world, kolo_handle handle);
/* Takes turns until the entry is complete. */
void lib_wait(kolo_world *world, lib_entry *entry);
/* Returns how it ended. output may be NULL. */
int lib_wait_and_free(kolo_world *world, lib_entry *entry, kolo_output *output);
bool lib_broken(const kolo_world *world); /* error text set */

/* ---- stream.c: what carries batches -------------------------------------------------------------------- */

typedef struct lib_track {
    comm_lane lane;           /* over the ranks of the group, by the router */
    int tag;                  /* of its messages */
    comm_push *push;          /* of groups on one node; else NULL */
    lib_execution *execution; /* under way, or NULL */
    bool claimed;             /* by a caller that reduces by itself (world->lock) */
    char *stage;              /* packed vectors, f32 copies of 16-bit ones */
    size_t stage_bytes;
    bool stage_shared;
} lib_track;

/* Batches in an order that is the same on all members. */
typedef struct lib_stream {
    kolo_group *group;
    lib_track track[LIB_TRACKS];
    uint64_t begun;                      /* batches that have got their track */
    lib_execution *first, *last, *spare; /* waiting for their track; to be used again */
    int64_t most;                        /* entries that a batch had */
    struct lib_prepared *prepared;       /* schedules and codecs */
    struct lib_gpu *gpu;                 /* NULL until a vector on a GPU comes */
    int64_t *counts;                     /* [counts_room] of Adasum's tensors */
    int64_t counts_room;
} lib_stream;

/* The turn is held; not collective. number: of the stream in its group. */
int lib_stream_open(lib_stream **stream, kolo_group *group, int number);
/* collective over the group, of which all have made theirs */
int lib_stream_join(lib_stream *stream);
void lib_stream_close(lib_stream **stream);
/* Begins what can begin and carries on what is under way. *work: something is. Returns whether anything
 * moved, or negative: broken. */
int lib_stream_turn(lib_stream *stream, bool *work);
/* x->work becomes the track's stage, of so many bytes at least, in node-shared memory where there is room. */
int lib_stage(lib_execution *x, size_t bytes);

/* ---- execute*.c, signature.c: one batch, step by step -------------------------------------------------- */

/* 1: done, execution->step says what comes; 0: not yet; negative: broken */
typedef int (*lib_step)(lib_execution *execution);

typedef struct lib_packet {
    uint64_t high, low_not; /* greatest signature, and greatest complement of one */
    int32_t type, op, count, spare;
    char data[224];
} lib_packet;

struct lib_execution {
    lib_stream *stream;
    kolo_group *group;
    lib_track *track;
    lib_batch batch; /* its arrays are the execution's own */
    int64_t entries_room, stand_ins_room, rows_room, words_room;
    int64_t *number; /* [3 members] for problems */
    lib_step step, then;
    comm_run *run;              /* what step = run waits for */
    struct comm_gpu_op *gpu_op; /* of a batch on a GPU */
    int64_t gpu_ops, gpu_op_room;
    double enqueued; /* when, on the GPU's lane, so that batches behind it may follow; 0: not yet */
    lib_packet packet;
    char *words;          /* names and compressions of stand-ins: the negotiator's are good for a turn only */
    char *work;           /* vector that is reduced: stage, or the caller's */
    enum kolo_dtype type; /* of it */
    comm_folding half;    /* how its sums of 16 bits are scaled and rounded */
    int64_t count;
    double began;
    const char *algorithm; /* that carried it last, for the timeline; or NULL */
    struct lib_execution *next;
};

static inline const kolo_request *lib_request(const lib_execution *x, int i)
{
    return x->batch.entry[i] ? &x->batch.entry[i]->r : &x->batch.stand_in[i];
}

/* Steps that wait for a run of the track's lane, or for the push; then comes `then`. */
int lib_run(lib_execution *x, const comm_problem *problem, void *own, const void *input, enum kolo_dtype type,
            enum kolo_reduce reduce, lib_step then);
int lib_run_schedule(lib_execution *x, const comm_schedule *schedule, void *own, const void *input,
                     size_t width, enum kolo_dtype type, enum kolo_reduce reduce, lib_step then);
/* An allreduce in place. */
int lib_run_sum(lib_execution *x, void *data, int64_t count, enum kolo_dtype type, enum kolo_reduce reduce,
                lib_step then);
int lib_push(lib_execution *x, const void *in, void *out, int64_t count, const comm_folding *how,
             uint64_t signature, lib_step then);
/* The end: of one entry, and of the batch. */
void lib_fail_all(lib_execution *x, int status, const char *text);
int lib_finish(lib_execution *x); /* a step: what has not failed has succeeded */
/* Where the result of entry i goes: the caller's memory or the library's, with its shape noted. rows < 0: the
 * shape of the request. */
int lib_result_memory(lib_execution *x, int i, int64_t rows, char **out);

int lib_signature_check(lib_execution *x); /* the first step of an unnamed request */
int lib_report_differences(lib_execution *x);
/* the first step of a named one, and of an unnamed one when all have brought the same */
int lib_execute_batch(lib_execution *x);
int lib_reduce_all(lib_execution *x);
int lib_reduce_scatter(lib_execution *x);
int lib_move(lib_execution *x); /* broadcast, scatter, gather, allgather */
int lib_alltoall(lib_execution *x);
int lib_sparse(lib_execution *x);
/* Rows of every member of entry i of a gather, as exchanged with the signatures, or as every member knows;
 * and they are noted in the entry. */
const int64_t *lib_rows_of(const lib_execution *x, int i);
/* Bytes of entry i that member m brings, of a scatter: gets. */
size_t lib_brought(const lib_execution *x, int i, int m);
/* As lib_result_memory, by what the collective gives this member, with whose rows they are; *out NULL: it
 * gets nothing. */
int lib_result(lib_execution *x, int i, char **out);
/* Some ranks have room for other parts than the root of a scatter deals: then the batch has
 * failed on all members. */
bool lib_scatter_unequal(lib_execution *x);
int lib_reduce_prepared(lib_execution *x); /* an allreduce that is more than a sum by elements */
/* Elements `from` .. `from + count` of a request's vector as `type`, with prescale where `scaled`; neutral
 * elements where this rank has nothing. And the way back, divided and scaled; changes `in`. */
void lib_bring(const lib_execution *x, int i, int64_t from, int64_t count, char *out, enum kolo_dtype type,
               bool scaled);
void lib_deliver(const lib_execution *x, int i, char *out, char *in, int64_t count, enum kolo_dtype type,
                 bool scaled);
/* All requests of the batch, one behind the other, as `type` on the stage (x->work), with prescale; and a
 * step that brings the sums back, divided and scaled. */
int lib_pack(lib_execution *x, enum kolo_dtype type);
int lib_unpack(lib_execution *x);
/* Reduced element by element as it is. */
static inline bool lib_pushes(const kolo_request *r)
{
    return r->what == KOLO_ALLREDUCE && r->reduce != KOLO_ADASUM && !r->compression;
}
/* An allreduce of so many elements in this group: by the push, or by a schedule? The same on all members
 * that bring the same. */
bool lib_takes_push(const kolo_group *group, const kolo_request *request, int64_t count);
comm_folding lib_folding(const kolo_request *request, int64_t contributors);
/* What a request brings, and how much. */
static inline const void *lib_input(const kolo_request *r) { return r->in ? r->in : r->out; }
static inline int64_t lib_row_elements(const kolo_request *r) { return r->dims ? lib_elements(r, 1) : 1; }
static inline size_t lib_row_bytes(const kolo_request *r)
{
    return (size_t)lib_row_elements(r) * kolo_dtype_size(r->type);
}
static inline size_t lib_request_bytes(const kolo_request *r)
{
    return (size_t)lib_elements(r, 0) * kolo_dtype_size(r->type);
}
static inline int64_t lib_total(const int64_t *rows, int members)
{
    int64_t sum = 0;
    for (int m = 0; m < members; m++) sum += rows[m];
    return sum;
}
/* A problem of this group, in bytes, out of place; the rest is the caller's. */
static inline comm_problem lib_problem(const kolo_group *g, enum kolo_collective what)
{
    return (comm_problem){.what = what, .me = g->rank, .members = g->size, .width = 1, .node_of = g->node_of};
}
/* First row of part i of `rows` cut into `parts`: the first (rows mod parts) have one more. */
static inline int64_t lib_cut(int64_t rows, int parts, int i)
{
    return rows / parts * i + (rows % parts < i ? rows % parts : i);
}
static inline int64_t lib_cut_rows(int64_t rows, int parts, int i)
{
    return rows / parts + (i < rows % parts);
}

/* ---- prepared.c ---------------------------------------------------------------------------------------- */

/* The schedule of a problem, made once; x->algorithm is its name. Memory of the stream's, good until some
 * hundred others were asked for. */
int lib_schedule(lib_execution *x, const comm_problem *problem, const comm_schedule **schedule);
void lib_prepared_free(struct lib_prepared **prepared);

/* ---- gpu.c, execute_gpu.c: vectors in a GPU's memory, which NCCL carries ------------------------------- */

/* A stream's lane over NCCL, made when its first batch of such vectors comes: that is the
 * same one on all members. */
typedef struct lib_gpu {
    const comm_gpu_channel_type *type;
    comm_gpu_channel *channel;
    comm_gpu_info *card; /* [members] */
    char id[COMM_GPU_ID];
    double began, failed; /* failed: when NCCL said `fault`, or 0 */
    kolo_failure fault;
} lib_gpu;

/* As a part of lib_check: whether the vectors lie on a GPU, and what is wrong with that (text, empty
 * before). */
bool lib_gpu_check(const kolo_group *group, const kolo_request *request, char *text, size_t bytes);
/* A step that makes the lane; then comes lib_gpu_execute_batch again, or the end of the batch on all members,
 * where one of them cannot. */
int lib_gpu_open(lib_execution *x);
/* rc: what the channel returned, with its text. Steps that wait return this: 0 as long as nothing is wrong,
 * or the one at fault is still looked for. */
int lib_gpu_excuse(lib_execution *x, int rc);
void lib_gpu_abort(lib_stream *stream); /* what is under way ends on the GPU; the turn is held */
void lib_gpu_close(lib_stream *stream, bool orderly);

int lib_gpu_execute_batch(lib_execution *x); /* the step of a batch of such vectors */

/* ---- world.c, group.c ---------------------------------------------------------------------------------- */

typedef int (*lib_exchange)(void *of, const void *mine, size_t bytes, void *all);
/* On a launch that outlives the world. exchange: as comm_router_config's; NULL: the launch's. */
int lib_world_start(kolo_world **world, kolo_launch *launch, const kolo_world_config *config,
                    lib_exchange exchange, void *of);
/* A group begins in three steps: open makes this rank's part and waits for nobody; when all members know that
 * all have, they join (collective over them; fails when the world is broken), and place it under its id. What
 * some member cannot open all drop: nothing is left of it. Members: ascending. */
int lib_group_open(kolo_world *world, const int *rank, int count, int id, kolo_group **group);
int lib_group_join(kolo_group *group);
void lib_group_place(kolo_group *group);
void lib_group_drop(kolo_group **group);
void lib_group_close(kolo_group **group);
int lib_ascending(const void *left, const void *right); /* of int, for qsort */
/* Returns when nothing of the group is under way on this rank. */
void lib_group_drain(kolo_group *group);
int lib_config_resolve(kolo_world_config *config, const kolo_world_config *asked);
/* Begins to write events, and compares clocks. Collective over the world, whose ranks have agreed on it. A
 * rank that cannot write compares all the same. */
int lib_timeline_begin(kolo_world *world, const char *folder);
/* The folder becomes one in it, if it is one: what the trace tells of a break stays. It is owned. */
void lib_timeline_next(const char **folder);
void lib_config_free(kolo_world_config *config);

#endif
