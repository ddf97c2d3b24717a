/* Inside the library half: the table of entries, the turns, and what carries batches. */
#ifndef COMM_LIBRARY_PARTS_H
#define COMM_LIBRARY_PARTS_H

#include "comm/kernel.h"
#include "comm/library/library.h"

enum {
    LIB_TRACKS = 2,   /* batches of one stream under way at a time; batch number i is carried by track i mod LIB_TRACKS on every member */
    LIB_CHANNELS = 16, /* lanes of a group */
    LIB_TEXT = 256,   /* of one rank in a message about requests that do not match */
};

/* ---- entries.c ---------------------------------------------------------------------------------------------------------- */

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

/* ---- submit.c ----------------------------------------------------------------------------------------------------------- */

/* What is wrong with a request in itself, in a few words; text[0] = 0: nothing. */
void lib_check(const kolo_group *group, const kolo_request *request, char *text, size_t bytes);
int64_t lib_elements(const kolo_request *request, int from); /* product of the dimensions from `from` on */
/* Submits one that the library itself made or that lib_check has seen; world->lock is not held. */
int lib_submit(kolo_group *group, const kolo_request *request, lib_entry **entry);
/* Submits, takes turns until it is complete, releases: what every blocking call does. */
int lib_do(kolo_group *group, const kolo_request *request);

/* ---- engine.c: turns ------------------------------------------------------------------------------------------------------ */

int lib_engine_start(kolo_world *world);
void lib_engine_stop(kolo_world *world);
/* Whoever holds the turn makes all calls of the router, of lanes and of the negotiators. */
void lib_turn_take(kolo_world *world);
void lib_turn_give(kolo_world *world);
/* Something was submitted: its own thread sees to it unless somebody takes turns already. */
void lib_engine_wake(kolo_world *world);
/* Takes turns until the entry is complete. */
void lib_wait(kolo_world *world, lib_entry *entry);
bool lib_broken(kolo_world *world); /* error text set */

/* ---- streams: execute.c ---------------------------------------------------------------------------------------------------- */

typedef struct lib_track {
    lib_lane *lane;
    comm_push *push; /* of groups on one node; else NULL */
    lib_execution *execution; /* under way, or NULL */
    bool claimed;    /* by a caller that reduces by itself (world->lock) */
    char *stage;     /* packed vectors, f32 copies of 16-bit ones, packets */
    size_t stage_bytes;
} lib_track;

typedef struct lib_stream {
    kolo_group *group;
    lib_track track[LIB_TRACKS];
    uint64_t begun; /* batches handed to a track so far: of the named stream; an unnamed one's number is its sequence */
    lib_execution *first, *last, *spare; /* named batches that wait for their track; executions to be used again */
    struct lib_cache *cache;
} lib_stream;

int lib_stream_open(lib_stream **stream, kolo_group *group, int number);
void lib_stream_close(lib_stream **stream);
/* Begins what can begin and carries on what is under way. *work: something is. Returns whether anything moved, or negative: broken. */
int lib_stream_turn(lib_stream *stream, bool *work);
/* An unnamed request begins on the track of its sequence number. met: its ranks' signatures are known to differ. */
int lib_execute_unnamed(lib_stream *stream, lib_entry *entry);

int lib_track_stage(lib_track *track, kolo_world *world, size_t bytes, char **stage);
void lib_track_unstage(lib_track *track, kolo_world *world);

/* ---- schedules.c ----------------------------------------------------------------------------------------------------------- */

/* The schedule of a problem, made once. Memory of the cache, good until LIB_SCHEDULES others were asked for. */
int lib_schedule(struct lib_cache **cache, kolo_world *world, const comm_problem *problem, const comm_schedule **schedule);
void lib_schedules_free(struct lib_cache **cache);

/* ---- world.c, group.c ------------------------------------------------------------------------------------------------------- */

/* On a launch of the caller's, which outlives the world. */
int lib_world_start(kolo_world **world, kolo_launch *launch, const kolo_world_config *config);
int lib_group_open(kolo_world *world, const int *rank, int count, int id, kolo_group **group);
void lib_group_close(kolo_group **group);
int lib_config_resolve(kolo_world_config *config, const kolo_world_config *asked);
void lib_config_free(kolo_world_config *config);

#endif
