/* Schedules of a stream, made once for every kind of request. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "comm/library/parts.h"

enum { LIB_SCHEDULES = 256 };

typedef struct made {
    comm_problem problem; /* its pointers mean nothing: the digest stands for what they point to */
    uint64_t digest, used;
    comm_schedule schedule;
    const char *algorithm;
} made;

struct lib_cache {
    made made[LIB_SCHEDULES];
    int count;
    uint64_t clock;
};

static uint64_t digest_of(const comm_problem *p)
{
    uint64_t hash = kolo_hash_word(
        kolo_hash_word(kolo_hash_word(1, (uint64_t)p->what), (uint64_t)p->root * 2 + p->in_place),
        (uint64_t)p->count);
    hash = kolo_hash_word(hash, p->width * 2 + p->half);
    const int64_t *const lists[] = {p->counts, p->send, p->receive};
    for (int l = 0; l < 3; l++)
        for (int i = 0; lists[l] && i < p->members; i++)
            hash = kolo_hash_word(hash, (uint64_t)lists[l][i] + 1);
    return hash;
}

static bool same(const made *m, const comm_problem *p, uint64_t digest)
{
    return m->digest == digest && m->problem.what == p->what && m->problem.count == p->count &&
           m->problem.width == p->width && m->problem.root == p->root && m->problem.in_place == p->in_place &&
           m->problem.half == p->half;
}

int lib_schedule(struct lib_cache **cache, kolo_world *world, const comm_problem *problem,
                 const comm_schedule **schedule, const char **algorithm)
{
    struct lib_cache *c = *cache;
    uint64_t digest = digest_of(problem);
    int oldest = 0;
    if (!c && !(c = *cache = kolo_alloc(sizeof *c))) return KOLO_ENOMEM;
    for (int i = 0; i < c->count; i++) {
        if (same(&c->made[i], problem, digest)) {
            c->made[i].used = ++c->clock;
            *schedule = &c->made[i].schedule;
            *algorithm = c->made[i].algorithm;
            return 0;
        }
        if (c->made[i].used < c->made[oldest].used) oldest = i;
    }
    made *m = &c->made[c->count < LIB_SCHEDULES ? c->count++ : oldest];
    comm_problem chosen = *problem;
    const comm_algorithm_row *row = comm_algorithm_select(&chosen, world->selector);
    m->digest = 0;
    KOLO_TRY(row->make(&m->schedule, &chosen));
    m->problem = *problem;
    m->digest = digest;
    m->used = ++c->clock;
    *schedule = &m->schedule;
    *algorithm = m->algorithm = row->name;
    return 0;
}

void lib_schedules_free(struct lib_cache **cache)
{
    for (int i = 0; *cache && i < (*cache)->count; i++) comm_schedule_free(&(*cache)->made[i].schedule);
    free(*cache);
    *cache = NULL;
}
