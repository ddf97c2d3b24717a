/* Adasum's schedule: which messages, and the arithmetic between them. */
#include "comm/core/adasum.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "kolo/error.h"

/* What the run calls: `argument` is the level. */
enum { WHOLE, PACK, DOTS, ADD, APPLY, PACK_BACK, UNPACK_BACK };

struct comm_adasum {
    comm_schedule schedule;
    enum kolo_dtype type;
    size_t width;
    int64_t *count; /* [tensors], owned */
    /* index: among the members of the tree, after those that were combined into a neighbour */
    int tensors, index;
    int64_t total;
    /* scratch: dots of this member, of its partner; what comes, what goes, packed */
    comm_place mine, theirs, in, out;
};

/* What member `index` holds of a tensor of `count` elements after `levels` halvings. */
static comm_range held(int64_t count, int index, int levels)
{
    return comm_halved((comm_range){0, count}, index, 1 << levels);
}

static int64_t held_in_all(const comm_adasum *a, int index, int levels)
{
    int64_t sum = 0;
    for (int t = 0; t < a->tensors; t++) sum += comm_length(held(a->count[t], index, levels));
    return sum;
}

/* ---- the schedule -------------------------------------------------------------------------------------- */

/* One tensor is sent from where it lies, several are packed. */
static bool packed(const comm_adasum *a) { return a->tensors > 1; }

static comm_place place_of(const comm_adasum *a, int index, int levels, comm_place pack)
{
    return packed(a) ? pack : comm_own(held(a->total, index, levels).from);
}

static void reduce_level(comm_build *b, const comm_adasum *a, int level)
{
    int d = 1 << level, peer = a->index ^ d;
    int64_t dots = (int64_t)(sizeof(adasum_dots) / a->width) * a->tensors;
    if (packed(a)) comm_build_call(b, PACK, level);
    comm_build_receive(b, peer, a->in, held_in_all(a, a->index, level + 1));
    comm_build_send(b, peer, place_of(a, peer, level + 1, a->out), held_in_all(a, peer, level + 1));
    comm_build_wait_all(b);
    comm_build_call(b, DOTS, level);
    for (int step = 1; step <= d; step *= 2) {
        comm_build_receive(b, a->index ^ step, a->theirs, dots);
        comm_build_send(b, a->index ^ step, a->mine, dots);
        comm_build_wait_all(b);
        comm_build_call(b, ADD, level);
    }
    comm_build_call(b, APPLY, level);
}

static void gather_level(comm_build *b, const comm_adasum *a, int level)
{
    int peer = a->index ^ 1 << level;
    if (packed(a)) comm_build_call(b, PACK_BACK, level);
    comm_build_receive(b, peer, place_of(a, peer, level + 1, a->in), held_in_all(a, peer, level + 1));
    comm_build_send(b, peer, place_of(a, a->index, level + 1, a->out), held_in_all(a, a->index, level + 1));
    comm_build_wait_all(b);
    if (packed(a)) comm_build_call(b, UNPACK_BACK, level);
}

/* Adasum of all members. */
static int between(comm_build *b, comm_adasum *a)
{
    int q = comm_power_until(b->n), r = b->n - q, levels = 0;
    int *rest = comm_build_memory(b, (size_t)q * sizeof *rest);
    comm_build team = *b;
    if (!rest) return KOLO_ENOMEM;
    for (int i = 0; i < q; i++) rest[i] = i < r ? 2 * i : i + r; /* those that go on */
    bool folded = b->me < 2 * r, away = folded && b->me % 2;
    a->index = folded ? b->me / 2 : b->me - r;
    if (away) {
        comm_build_send(b, b->me - 1, comm_own(0), a->total);
        comm_build_wait_all(b);
        comm_build_receive(b, b->me - 1, comm_own(0), a->total);
        comm_build_wait_all(b);
        return 0;
    }
    if (folded) {
        comm_build_receive(b, b->me + 1, a->in, a->total);
        comm_build_wait_all(b);
        comm_build_call(b, WHOLE, 0);
    }
    team.member = rest;
    team.n = q;
    team.me = a->index;
    while (1 << levels < q) levels++;
    for (int l = 0; l < levels; l++) reduce_level(&team, a, l);
    for (int l = levels - 1; l >= 0; l--) gather_level(&team, a, l);
    if (folded) {
        comm_build_send(b, b->me + 1, comm_own(0), a->total);
        comm_build_wait_all(b);
    }
    return 0;
}

static void place_scratch(comm_adasum *a, comm_build *b)
{
    int64_t line = 64 / (int64_t)a->width, dots = (int64_t)(sizeof(adasum_dots) / a->width) * a->tensors;
    dots = kolo_round_up((size_t)dots, (size_t)line);
    int64_t whole = kolo_round_up((size_t)a->total, (size_t)line);
    a->mine = comm_scratch(0);
    a->theirs = comm_scratch(dots);
    a->in = comm_scratch(2 * dots);
    a->out = comm_scratch(2 * dots + whole);
    b->s->scratch = 2 * dots + whole + (packed(a) ? whole : 0);
}

static int adasum_call(void *context, comm_run *run, const comm_action *action);

int comm_adasum_make(comm_adasum **out, const comm_adasum_problem *p)
{
    *out = NULL;
    if (p->type != KOLO_F16 && p->type != KOLO_BF16 && p->type != KOLO_F32 && p->type != KOLO_F64)
        return kolo_fail(KOLO_EINPUT, "comm: Adasum is of f16, bf16, f32 and f64 only");
    comm_adasum *a = kolo_alloc(sizeof *a);
    if (!a) return KOLO_ENOMEM;
    int rc = KOLO_ENOMEM;
    a->type = p->type;
    a->width = kolo_dtype_size(p->type);
    a->tensors = p->tensors;
    a->count = kolo_alloc((size_t)(p->tensors + 1) * sizeof *a->count);
    if (!a->count) goto fail;
    for (int t = 0; t < p->tensors; t++) a->total += a->count[t] = p->count[t];
    comm_build b = comm_build_in_place(&a->schedule, p->me, p->members);
    place_scratch(a, &b);
    a->schedule.call = adasum_call;
    a->schedule.context = a;
    KOLO_TRY_GOTO(rc, between(&b, a));
    KOLO_TRY_GOTO(rc, a->schedule.status);
    *out = a;
    return 0;
fail:
    comm_adasum_free(&a);
    return rc;
}

void comm_adasum_free(comm_adasum **adasum)
{
    comm_adasum *a = *adasum;
    if (!a) return;
    comm_schedule_free(&a->schedule);
    free(a->count);
    free(a);
    *adasum = NULL;
}

const comm_schedule *comm_adasum_schedule(const comm_adasum *a) { return &a->schedule; }

/* ---- the arithmetic ------------------------------------------------------------------------------------ */

static char *at_place(const comm_run *run, comm_place place)
{
    return run->buffer[place.buffer] + (size_t)place.at * run->width;
}

/* Visits every tensor's stretch that `index` holds after `levels`: in the vector, and in a packed copy. */
static void copy_packed(const comm_adasum *a, const comm_run *run, comm_place pack, int index, int levels,
                        bool to_pack)
{
    char *vector = run->buffer[COMM_OWN], *p = at_place(run, pack);
    for (int t = 0; t < a->tensors; vector += (size_t)a->count[t++] * a->width) {
        comm_range r = held(a->count[t], index, levels);
        size_t bytes = (size_t)comm_length(r) * a->width;
        char *v = vector + (size_t)r.from * a->width;
        memcpy(to_pack ? p : v, to_pack ? v : p, bytes);
        p += bytes;
    }
}

/* Dots of, or the result from, what this member keeps at the level and what came. */
static void pair_level(const comm_adasum *a, const comm_run *run, int level, bool apply)
{
    char *vector = run->buffer[COMM_OWN], *other = at_place(run, a->in);
    adasum_dots *dots = (adasum_dots *)(void *)at_place(run, a->mine);
    bool left = !(a->index >> level & 1);
    for (int t = 0; t < a->tensors; vector += (size_t)a->count[t++] * a->width) {
        comm_range r = held(a->count[t], a->index, level + 1);
        char *own = vector + (size_t)r.from * a->width;
        const void *x = left ? own : other, *y = left ? other : own;
        if (apply) adasum_apply(own, x, y, comm_length(r), a->type, &dots[t]);
        else dots[t] = adasum_dots_of(x, y, comm_length(r), a->type);
        other += (size_t)comm_length(r) * a->width;
    }
}

static void add_dots(const comm_adasum *a, const comm_run *run)
{
    adasum_dots *mine = (adasum_dots *)(void *)at_place(run, a->mine);
    const adasum_dots *theirs = (const adasum_dots *)(const void *)at_place(run, a->theirs);
    for (int t = 0; t < a->tensors; t++) {
        mine[t].ab += theirs[t].ab;
        mine[t].aa += theirs[t].aa;
        mine[t].bb += theirs[t].bb;
    }
}

static int adasum_call(void *context, comm_run *run, const comm_action *action)
{
    comm_adasum *a = context;
    int level = (int)action->count, peer = a->index ^ 1 << level;
    char *own = run->buffer[COMM_OWN];
    switch (action->peer) {
    case WHOLE: comm_adasum_pair(own, own, at_place(run, a->in), a->type, a->count, a->tensors); break;
    case PACK: copy_packed(a, run, a->out, peer, level + 1, true); break;
    case DOTS: pair_level(a, run, level, false); break;
    case ADD: add_dots(a, run); break;
    case APPLY: pair_level(a, run, level, true); break;
    case PACK_BACK: copy_packed(a, run, a->out, a->index, level + 1, true); break;
    case UNPACK_BACK: copy_packed(a, run, a->in, peer, level + 1, false); break;
    }
    return 1;
}
