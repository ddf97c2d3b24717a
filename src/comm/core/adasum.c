/* Adasum's schedule: which messages, and the arithmetic between them. */
#include "comm/core/adasum.h"

#include <string.h>

#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "kolo/error.h"

/* What the run calls: `argument` is the level. */
enum { WHOLE, PACK, DOTS, ADD, APPLY, PACK_BACK, UNPACK_BACK };

typedef struct adasum {
    enum kolo_dtype type;
    size_t width;
    int64_t *count; /* [tensors] */
    /* index: among the members of the tree, after those that were combined into a neighbour */
    int tensors, index;
    int64_t total;
    /* scratch: dots of this member, of its partner; what comes, what goes, packed */
    comm_place mine, theirs, in, out;
} adasum;

/* What member `index` holds of a tensor of `count` elements after `levels` halvings. */
static comm_range held(int64_t count, int index, int levels)
{
    return comm_halved((comm_range){0, count}, index, 1 << levels);
}

static int64_t held_in_all(const adasum *a, int index, int levels)
{
    int64_t sum = 0;
    for (int t = 0; t < a->tensors; t++) sum += comm_length(held(a->count[t], index, levels));
    return sum;
}

/* ---- the schedule -------------------------------------------------------------------------------------- */

/* One tensor is sent from where it lies, several are packed. */
static bool packed(const adasum *a) { return a->tensors > 1; }

static comm_place place_of(const adasum *a, int index, int levels, comm_place pack)
{
    return packed(a) ? pack : comm_own(held(a->total, index, levels).from);
}

static void reduce_level(comm_build *b, const adasum *a, int level)
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

static void gather_level(comm_build *b, const adasum *a, int level)
{
    int peer = a->index ^ 1 << level;
    if (packed(a)) comm_build_call(b, PACK_BACK, level);
    comm_build_receive(b, peer, place_of(a, peer, level + 1, a->in), held_in_all(a, peer, level + 1));
    comm_build_send(b, peer, place_of(a, a->index, level + 1, a->out), held_in_all(a, a->index, level + 1));
    comm_build_wait_all(b);
    if (packed(a)) comm_build_call(b, UNPACK_BACK, level);
}

/* Adasum of all members. */
static void between(comm_build *b, adasum *a)
{
    int q = comm_power_until(b->n), r = b->n - q, levels = 0;
    int *rest = comm_build_memory(b, (size_t)q * sizeof *rest);
    comm_build team = *b;
    if (!rest) return;
    for (int i = 0; i < q; i++) rest[i] = i < r ? 2 * i : i + r; /* those that go on */
    bool folded = b->me < 2 * r, away = folded && b->me % 2;
    a->index = folded ? b->me / 2 : b->me - r;
    if (away) {
        comm_build_send(b, b->me - 1, comm_own(0), a->total);
        comm_build_wait_all(b);
        comm_build_receive(b, b->me - 1, comm_own(0), a->total);
        comm_build_wait_all(b);
        return;
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
}

static void place_scratch(adasum *a, comm_build *b)
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

int comm_adasum_make(comm_schedule *schedule, const comm_adasum_problem *p)
{
    if (p->type != KOLO_F16 && p->type != KOLO_BF16 && p->type != KOLO_F32 && p->type != KOLO_F64)
        return kolo_fail(KOLO_EINPUT, "comm: Adasum is of f16, bf16, f32 and f64 only");
    comm_build b = comm_build_in_place(schedule, p->me, p->members);
    adasum *a = comm_build_memory(&b, sizeof *a);
    int64_t *count = comm_build_memory(&b, (size_t)p->tensors * sizeof *count);
    if (!a || !count) return schedule->status;
    *a = (adasum){.type = p->type, .width = kolo_dtype_size(p->type), .count = count, .tensors = p->tensors};
    for (int t = 0; t < p->tensors; t++) a->total += a->count[t] = p->count[t];
    place_scratch(a, &b);
    schedule->call = adasum_call;
    schedule->context = a;
    between(&b, a);
    return schedule->status;
}

/* ---- the arithmetic ------------------------------------------------------------------------------------ */

static char *at_place(const comm_run *run, comm_place place)
{
    return run->buffer[place.buffer] + (size_t)place.at * run->width;
}

/* Visits every tensor's stretch that `index` holds after `levels`: in the vector, and in a packed copy. */
static void copy_packed(const adasum *a, const comm_run *run, comm_place pack, int index, int levels,
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
static void pair_level(const adasum *a, const comm_run *run, int level, bool apply)
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

static void add_dots(const adasum *a, const comm_run *run)
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
    adasum *a = context;
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
