/* All members of a group in this process: cores that talk over queues which deliver in order,
 * whenever the test lets them. */
#ifndef TESTS_COMM_NEGOTIATE_H
#define TESTS_COMM_NEGOTIATE_H

#include "comm/library/negotiate.h"

#include "base/philox.h"
#include "kolo/error.h"
#include "tap.h"

enum { PLAY_MAX = 40, PLAY_NAMES = 64 };

typedef struct play_queue {
    char *data;
    size_t size, at, capacity;
} play_queue;

/* What happened on one member, in order: lines of text. */
typedef struct play_log {
    char *text;
    size_t size, capacity;
    long lines;
} play_log;

typedef struct play_member {
    lib_core *core;
    play_queue up, down[PLAY_MAX]; /* from this member to its parent, to its children */
    play_log begun, failed;
    long under_way; /* entries submitted and not complete */
    int joined, last;
    char text[2048]; /* of the last failure */
} play_member;

typedef struct play {
    int members;
    int node_of[PLAY_MAX], rank_of[PLAY_MAX];
    play_member m[PLAY_MAX];
    uint64_t seed, draws;
    double now;
    long sent; /* messages */
} play;

/* An entry as submit makes it; `whose` tells complete where to count. */
typedef struct play_entry {
    lib_entry e;
    play_member *whose;
    char name[48];
} play_entry;

static inline uint32_t play_draw(play *p, uint32_t below)
{
    return kolo_philox(p->seed, 7, p->draws++).v[0] % below;
}

static inline void play_write(play_log *log, const char *text)
{
    size_t length = strlen(text) + 1;
    while (log->size + length + 1 > log->capacity)
        log->text = realloc(log->text, log->capacity = 2 * log->capacity + 1024);
    memcpy(log->text + log->size, text, length);
    log->size += length;
    log->text[log->size - 1] = '\n';
    log->text[log->size] = 0;
    log->lines++;
}

static inline void play_post(play *p, play_queue *q, lib_bytes *message)
{
    size_t bytes = (size_t)message->size;
    while (q->size + bytes + 8 > q->capacity)
        q->data = realloc(q->data, q->capacity = 2 * q->capacity + 4096);
    memcpy(q->data + q->size, &bytes, 8);
    memcpy(q->data + q->size + 8, message->data, bytes);
    q->size += 8 + bytes;
    message->size = 0;
    p->sent++;
}

static inline void play_complete(lib_entry *entry, int status, const char *text)
{
    play_entry *e = (play_entry *)entry;
    e->whose->under_way--;
    if (entry->r.what == KOLO_JOIN) {
        e->whose->joined++;
        e->whose->last = entry->output.last;
    } else if (status < 0) {
        snprintf(e->whose->text, sizeof e->whose->text, "%s", text);
        char line[128];
        snprintf(line, sizeof line, "%s", e->name);
        play_write(&e->whose->failed, line);
    }
    free(e);
}

/* Batches begin and end at once. */
static inline void play_batches(play *p, int m)
{
    lib_core *core = p->m[m].core;
    for (int64_t b = 0; b < core->batches; b++) {
        const lib_beginning *batch = &core->batch[b];
        for (int i = 0; i < batch->entries; i++) {
            const lib_begin *begin = &batch->begin[i];
            lib_entry *entry = begin->entry;
            const kolo_request *r = begin->r;
            long last = begin->rows < 0 ? -1 : (long)batch->rows[begin->rows + p->members - 1];
            char line[160];
            snprintf(line, sizeof line, "%lu.%d/%d %s what %d dim %ld of %d rows %ld",
                     (unsigned long)batch->number, i, batch->entries, r->name, (int)r->what,
                     r->what == KOLO_ALLGATHER || r->what == KOLO_BARRIER ? 0 : (long)r->dim[0],
                     begin->contributors, last);
            play_write(&p->m[m].begun, line);
            if (entry) play_complete(entry, 0, NULL);
        }
    }
    if (core->down.size)
        for (int c = 0; c < core->children; c++) {
            lib_bytes copy = core->down;
            play_post(p, &p->m[m].down[c], &copy);
        }
    core->down.size = core->batches = 0;
}

static inline void play_speak(play *p, int m)
{
    bool idle = play_draw(p, 3) > 0;
    lib_core *core = p->m[m].core;
    if (lib_core_send(core, p->now, idle) < 0) ok(0, "member %d speaks: %s", m, kolo_error_text());
    play_batches(p, m);
    if (core->up.size) play_post(p, &p->m[m].up, &core->up);
}

static inline bool play_take(play *p, play_queue *q, int m, int child)
{
    if (q->at == q->size) return false;
    size_t bytes;
    memcpy(&bytes, q->data + q->at, 8);
    char *copy = malloc(bytes + 1); /* aligned, and its end is where a sanitizer sees it */
    memcpy(copy, q->data + q->at + 8, bytes);
    q->at += 8 + bytes;
    if (q->at == q->size) q->at = q->size = 0;
    if (lib_core_receive(p->m[m].core, child, copy, (int64_t)bytes, p->now) < 0)
        ok(0, "member %d hears: %s", m, kolo_error_text());
    free(copy);
    if (child < 0) play_batches(p, m);
    return true;
}

/* One message on its way to member m arrives, if there is one. */
static inline bool play_deliver(play *p, int m)
{
    lib_core *core = p->m[m].core;
    int edges = core->children + (core->parent >= 0), first = (int)play_draw(p, (uint32_t)edges + 1);
    for (int i = 0; i < edges; i++) {
        int e = (first + i) % edges;
        if (e < core->children) {
            if (play_take(p, &p->m[core->child[e]].up, m, e)) return true;
            continue;
        }
        lib_core *parent = p->m[core->parent].core;
        int c = 0;
        while (parent->child[c] != m) c++;
        if (play_take(p, &p->m[core->parent].down[c], m, -1)) return true;
    }
    return false;
}

/* Everything that can happen without a further request has happened. */
static inline void play_settle(play *p)
{
    for (int quiet = 0; quiet < 20;) {
        bool moved = false;
        long sent = p->sent;
        for (int m = 0; m < p->members; m++) {
            while (play_deliver(p, m)) moved = true;
            play_speak(p, m);
        }
        quiet = moved || p->sent != sent ? 0 : quiet + 1;
    }
}

static inline void play_open(play *p, int members, int per_node, uint64_t seed, const lib_core_config *like)
{
    memset(p, 0, sizeof *p);
    p->members = members;
    p->seed = seed;
    for (int m = 0; m < members; m++) p->node_of[m] = m / per_node, p->rank_of[m] = m;
    for (int m = 0; m < members; m++) {
        lib_core_config config = *like;
        config.me = m;
        config.members = members;
        config.node_of = p->node_of;
        config.rank_of = p->rank_of;
        config.host = "host";
        config.complete = play_complete;
        if (lib_core_open(&p->m[m].core, &config) < 0) ok(0, "open: %s", kolo_error_text());
    }
}

static inline void play_close(play *p)
{
    for (int m = 0; m < p->members; m++) {
        lib_core_close(&p->m[m].core);
        free(p->m[m].up.data);
        free(p->m[m].begun.text);
        free(p->m[m].failed.text);
        for (int c = 0; c < PLAY_MAX; c++) free(p->m[m].down[c].data);
    }
}

static inline play_entry *play_entry_make(play *p, int m, const char *name, enum kolo_collective what,
                                          int64_t dim)
{
    play_entry *e = calloc(1, sizeof *e);
    e->whose = &p->m[m];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->e.r = (kolo_request){.what = what,
                            .name = e->name,
                            .type = KOLO_F32,
                            .dims = 1,
                            .dim = {dim},
                            .reduce = KOLO_SUM,
                            .prescale = 1,
                            .postscale = 1};
    e->whose->under_way++;
    return e;
}

static inline void play_submit(play *p, int m, play_entry **entry, int entries)
{
    lib_entry *list[16];
    for (int i = 0; i < entries; i++) list[i] = &entry[i]->e;
    if (lib_core_add(p->m[m].core, list, entries, p->now) < 0)
        ok(0, "member %d submits: %s", m, kolo_error_text());
}

static inline void play_one(play *p, int m, const char *name, enum kolo_collective what, int64_t dim)
{
    play_entry *e = play_entry_make(p, m, name, what, dim);
    play_submit(p, m, &e, 1);
}

static inline int play_same(const play *p, bool failures)
{
    for (int m = 1; m < p->members; m++) {
        const play_log *a = failures ? &p->m[0].failed : &p->m[0].begun,
                       *b = failures ? &p->m[m].failed : &p->m[m].begun;
        if (a->size != b->size || (a->size && memcmp(a->text, b->text, a->size) != 0)) return 0;
    }
    return 1;
}

#endif
