/* Streams: the batches of a group in an order that all members share, each carried by the
 * track of its number. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/parts.h"

int lib_stream_open(lib_stream **out, kolo_group *g, int number)
{
    comm_router *router = g->world->router;
    lib_stream *s = *out = kolo_alloc(sizeof *s);
    if (!s) return KOLO_ENOMEM;
    s->group = g;
    for (int i = 0; i < LIB_TRACKS; i++) {
        lib_track *t = &s->track[i];
        KOLO_TRY(t->tag = lib_group_tag(g));
        KOLO_TRY(comm_lane_open(&t->lane, router, 1));
        KOLO_TRY(comm_lane_reserve(&t->lane, 64, 4096));
        if (!g->one_node || g->size == 1) continue;
        const int id = (g->id * 2 + number) * LIB_TRACKS + i;
        KOLO_TRY(comm_push_make(&t->push, router, id, g->rank_of, g->size));
    }
    return 0;
}

int lib_stream_join(lib_stream *s)
{
    for (int i = 0; i < LIB_TRACKS; i++)
        if (s->track[i].push) KOLO_TRY(comm_push_join(s->track[i].push));
    return 0;
}

static void unstage(lib_track *track, kolo_world *world)
{
    if (track->stage_shared) comm_router_free(world->router, track->stage);
    else free(track->stage);
    track->stage = NULL;
    track->stage_bytes = 0;
}

int lib_stage(lib_execution *x, size_t bytes)
{
    lib_track *track = x->track;
    kolo_world *world = x->group->world;
    if (track->stage_bytes < bytes || !track->stage) {
        void *memory = NULL;
        size_t room = kolo_round_up(bytes + bytes / 4 + 1, 4096);
        unstage(track, world);
        track->stage_shared = comm_router_alloc(world->router, room, &memory) == 0;
        if (!track->stage_shared && posix_memalign(&memory, KOLO_ALIGN, room) != 0)
            return kolo_fail(KOLO_ENOMEM,
                             "comm: out of memory for %zu bytes of packed requests; lower KOLO_COMM_FUSION",
                             room);
        track->stage = memory;
        track->stage_bytes = room;
    }
    x->work = track->stage;
    return 0;
}

static void execution_free(lib_execution *x)
{
    free(x->batch.entry);
    free(x->batch.stand_in);
    free(x->batch.rows);
    free(x->number);
    free(x->words);
    free(x->gpu_op);
    free(x);
}

static void chain_free(lib_execution *first)
{
    while (first) {
        lib_execution *next = first->next;
        execution_free(first);
        first = next;
    }
}

void lib_stream_close(lib_stream **out)
{
    lib_stream *s = *out;
    bool busy = false;
    if (!s) return;
    if (s->gpu) lib_gpu_close(s, !lib_broken(s->group->world));
    for (int i = 0; i < LIB_TRACKS; i++) {
        lib_track *t = &s->track[i];
        if (t->execution) execution_free(t->execution);
        comm_lane_close(&t->lane, &busy);
        comm_push_close(&t->push);
        unstage(t, s->group->world);
    }
    chain_free(s->first);
    chain_free(s->spare);
    lib_prepared_free(&s->prepared);
    free(s->counts);
    free(s);
    *out = NULL;
}

/* ---- executions ---------------------------------------------------------------------------------------- */

/* Some at a time: how many batches wait for their track is a matter of chance, too. */
static int make_spare(lib_stream *s)
{
    for (int i = 0; i < 2 * LIB_TRACKS; i++) {
        lib_execution *x = kolo_alloc(sizeof *x);
        if (!x) return KOLO_ENOMEM;
        x->next = s->spare;
        s->spare = x;
        x->number = kolo_alloc(3 * (size_t)s->group->size * sizeof *x->number);
        if (!x->number) return KOLO_ENOMEM;
        KOLO_TRY(kolo_grow(&x->batch.entry, &x->entries_room, s->most, sizeof *x->batch.entry));
    }
    return 0;
}

static const char *keep_word(char **at, const char *word)
{
    if (!word) return NULL;
    char *kept = *at;
    size_t bytes = strlen(word) + 1;
    *at += bytes;
    return memcpy(kept, word, bytes);
}

static int keep_stand_ins(lib_execution *x, const lib_beginning *b)
{
    size_t bytes = 0;
    KOLO_TRY(kolo_grow(&x->batch.stand_in, &x->stand_ins_room, b->entries, sizeof *x->batch.stand_in));
    kolo_request *own = x->batch.stand_in;
    for (int i = 0; i < b->entries; i++) {
        const kolo_request *r = b->begin[i].r;
        bytes += (r->name ? strlen(r->name) + 1 : 0) + (r->compression ? strlen(r->compression) + 1 : 0);
    }
    KOLO_TRY(kolo_grow(&x->words, &x->words_room, (int64_t)bytes, 1));
    char *at = x->words;
    for (int i = 0; i < b->entries; i++) {
        own[i] = *b->begin[i].r;
        own[i].name = keep_word(&at, own[i].name);
        own[i].compression = keep_word(&at, own[i].compression);
    }
    return 0;
}

/* Appends an execution of the batch, which is copied; it begins with `step`. */
static int append(lib_stream *s, const lib_beginning *b, lib_step step)
{
    const lib_begin *first = &b->begin[0];
    const int64_t numbers = lib_row_numbers(first->r->what, s->group->size);
    bool joined = false;
    for (int i = 0; i < b->entries; i++) joined |= !b->begin[i].entry;
    if (!s->spare) KOLO_TRY(make_spare(s));
    lib_execution *x = s->spare;
    lib_batch *own = &x->batch;
    /* for as many as a batch of the stream ever had: which of them a large one meets is a matter of chance */
    if (s->most < b->entries) s->most = b->entries;
    KOLO_TRY(kolo_grow(&own->entry, &x->entries_room, s->most, sizeof *own->entry));
    KOLO_TRY(kolo_grow(&own->rows, &x->rows_room, b->entries * numbers, sizeof *own->rows));
    if (joined) KOLO_TRY(keep_stand_ins(x, b));
    for (int i = 0; i < b->entries; i++) {
        const lib_begin *begin = &b->begin[i];
        own->entry[i] = begin->entry;
        if (begin->rows >= 0)
            memcpy(own->rows + i * numbers, b->rows + begin->rows, (size_t)numbers * sizeof *own->rows);
    }
    own->entries = b->entries;
    own->contributors = first->contributors;
    own->gpu = first->gpu;
    own->number = b->number;
    s->spare = x->next;
    x->next = NULL;
    x->stream = s;
    x->group = s->group;
    x->track = NULL;
    x->step = step;
    *(s->last ? &s->last->next : &s->first) = x;
    s->last = x;
    return 0;
}

int lib_execute_begin(kolo_group *group, const lib_beginning *batch)
{
    return append(group->named, batch, lib_execute_batch);
}

/* ---- turns --------------------------------------------------------------------------------------------- */

/* Appends the unnamed requests that were made since the last call. */
static int fetch_unnamed(lib_stream *s)
{
    kolo_group *g = s->group;
    if (g->unnamed != s) return 0;
    for (;;) {
        pthread_mutex_lock(&g->world->lock);
        lib_entry *entry = g->first;
        if (entry) g->first = entry->next;
        if (!g->first) g->last = NULL;
        pthread_mutex_unlock(&g->world->lock);
        if (!entry) return 0;
        const lib_begin one = {
            .r = &entry->r, .entry = entry, .rows = -1, .contributors = g->size, .gpu = entry->gpu};
        KOLO_TRY(append(s, &(lib_beginning){.begin = &one, .entries = 1, .number = entry->sequence},
                        lib_signature_check));
    }
}

/* Where a caller reduces on the track of the next number by itself, that number is waited for. */
static bool track_free(lib_stream *s, const lib_execution *x)
{
    kolo_world *world = s->group->world;
    uint64_t number = s->group->unnamed == s ? x->batch.number : s->begun;
    lib_track *t = &s->track[number % LIB_TRACKS];
    if (t->execution) return false;
    pthread_mutex_lock(&world->lock);
    bool claimed = t->claimed;
    pthread_mutex_unlock(&world->lock);
    return !claimed;
}

static void stream_begin(lib_stream *s, lib_execution *x)
{
    uint64_t number = s->group->unnamed == s ? x->batch.number : s->begun;
    s->begun++;
    s->first = x->next;
    if (!s->first) s->last = NULL;
    x->next = NULL;
    x->track = &s->track[number % LIB_TRACKS];
    x->track->execution = x;
    x->began = kolo_time();
    x->algorithm = NULL;
    x->enqueued = 0;
}

static void end(lib_stream *s, lib_execution *x)
{
    kolo_world *world = s->group->world;
    x->track->execution = NULL;
    x->next = s->spare;
    s->spare = x;
    if (s->group->unnamed != s) return;
    pthread_mutex_lock(&world->lock);
    s->group->finished++;
    pthread_mutex_unlock(&world->lock);
}

static int poll(lib_execution *x)
{
    while (x->step) {
        int rc = x->step(x);
        if (rc <= 0) return rc;
    }
    return 1;
}

int lib_stream_turn(lib_stream *s, bool *work)
{
    int moved = 0;
    KOLO_TRY(fetch_unnamed(s));
    while (s->first && track_free(s, s->first)) {
        stream_begin(s, s->first);
        moved = 1;
    }
    for (int i = 0; i < LIB_TRACKS; i++) {
        lib_execution *x = s->track[i].execution;
        if (!x) continue;
        int64_t at = x->run ? x->run->at : 0;
        lib_step step = x->step;
        int rc = poll(x);
        if (rc < 0) return rc;
        moved |= rc > 0 || x->step != step || (x->run && x->run->at != at);
        if (rc > 0) end(s, x);
    }
    for (int i = 0; i < LIB_TRACKS; i++) *work |= s->track[i].execution != NULL;
    *work |= s->first != NULL;
    return moved;
}
