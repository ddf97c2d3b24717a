/* A long random mix: every collective, in two groups, named and not, alone and grouped, in place and
 * not, small and large, by Adasum, compressed, while a rank has joined, in another order and at other
 * moments on every rank. */
#ifndef TESTS_COMM_CHECKLIST_MIX_H
#define TESTS_COMM_CHECKLIST_MIX_H

#include "comm_checklist.h"

enum {
    MIX = 40 /* requests under way at a time */,
    MIX_BLOCK = 10 /* those in front of a block may be grouped */,
    MIX_LATE = 3,
    MIX_COLUMNS = 2,
    MIX_ROWS = 20 /* of sparse matrices */
};

typedef struct mixed {
    kolo_group *group;
    kolo_request r;
    int seed;
    bool member, in_place;
    /* > 1: the first of so many that are grouped; 1: alone; 0: it goes with one before it */
    int bundle;
    char name[24], *in, *out; /* [LIST_MAX * 8] bytes each */
    int64_t splits[32], index[3];
    kolo_handle handle;
} mixed;

/* Elements that member m brings to gathers; that root deals to it; that `from` sends to `to`. */
static int64_t mix_part(const mixed *m, int member) { return (m->group->rank_of[member] * 3 + m->seed) % 7; }
static int64_t mix_sent(const mixed *m, int from, int to) { return (from * 3 + to * 5 + m->seed) % 4; }
static int64_t mix_index(const mixed *m, int member, int k)
{
    return (k * 7 + member * 3 + m->seed) % MIX_ROWS;
}

static void draw_moves(mixed *m, enum kolo_dtype type)
{
    const int me = m->group->rank, n = m->group->size;
    int64_t total = 0;
    switch (m->r.what) {
    case KOLO_SCATTER:
        for (int k = 0; k < n; k++) total += m->splits[k] = mix_part(m, k);
        m->r.dim[0] = total;
        m->r.splits = m->splits;
        m->r.in = me == m->r.root ? m->in : NULL;
        m->r.out = (rank + m->seed) % 2 ? m->out : NULL;
        if (me == m->r.root) fill(m->in, rank, total, m->seed, KOLO_SUM, type);
        return;
    case KOLO_ALLTOALL:
        for (int k = 0; k < n; k++) total += m->splits[k] = mix_sent(m, me, k);
        m->r.dim[0] = total;
        m->r.splits = m->splits;
        break;
    case KOLO_SPARSE_ALLREDUCE:
        m->r = request(KOLO_SPARSE_ALLREDUCE, m->in, NULL, type, 3, MIX_COLUMNS);
        for (int k = 0; k < 3; k++) m->index[k] = mix_index(m, me, k);
        m->r.index = m->index;
        m->r.rows = MIX_ROWS;
        total = 3 * MIX_COLUMNS;
        break;
    default: m->r.dim[0] = total = mix_part(m, me); break;
    }
    fill(m->in, rank, total, m->seed, KOLO_SUM, type);
}

/* How many of block b of a round are grouped, and what they are: 1, none. */
static int mix_bundle(int round, int block, enum kolo_collective *what, bool *in_second)
{
    static const enum kolo_collective kinds[] = {KOLO_ALLREDUCE, KOLO_ALLREDUCE, KOLO_BROADCAST,
                                                 KOLO_REDUCE_SCATTER, KOLO_ALLGATHER};
    kolo_philox4 d = kolo_philox(4244, (uint64_t)round, (uint64_t)block);
    *what = kinds[d.v[0] % 5];
    *in_second = d.v[1] % 3 == 0;
    return 1 + (int)(d.v[2] % 6);
}

/* An allreduce becomes one by Adasum (of vectors of which each element is one member's, so that the sum is
 * wanted), or a compressed one (of numbers that 16 bits hold). */
static void draw_special(mixed *m, uint32_t die)
{
    static const char *const words[] = {"bf16", "fp16", "topk:1"};
    const enum kolo_dtype type = m->r.type;
    const bool whole = type != KOLO_F16 && type != KOLO_BF16 && type != KOLO_F32 && type != KOLO_F64;
    if (m->r.what != KOLO_ALLREDUCE || whole) return;
    if (die % 3 == 0) m->r.reduce = KOLO_ADASUM;
    else if (type == KOLO_F32 && die % 3 == 1) m->r.reduce = KOLO_SUM, m->r.compression = words[die / 3 % 3];
}

static void fill_vector(const mixed *m, char *at)
{
    fill(at, rank, m->r.dim[0], m->seed,
         m->r.what == KOLO_BROADCAST || m->r.reduce == KOLO_ADASUM ? KOLO_SUM : m->r.reduce, m->r.type);
    for (int64_t k = 0; m->r.reduce == KOLO_ADASUM && k < m->r.dim[0]; k++)
        if (k % m->group->size != m->group->rank) put(m->r.type, at, k, 0);
}

/* Request i of a round: the same on all ranks but for what it brings. */
static void draw(mixed *m, kolo_group *second, int round, int i)
{
    static const enum kolo_collective kinds[] = {KOLO_ALLREDUCE, KOLO_ALLREDUCE,       KOLO_ALLREDUCE,
                                                 KOLO_ALLREDUCE, KOLO_BROADCAST,       KOLO_REDUCE_SCATTER,
                                                 KOLO_ALLGATHER, KOLO_GATHER,          KOLO_SCATTER,
                                                 KOLO_ALLTOALL,  KOLO_SPARSE_ALLREDUCE};
    kolo_philox4 d = kolo_philox(4242, (uint64_t)round, (uint64_t)i),
                 e = kolo_philox(4243, (uint64_t)round, (uint64_t)i);
    enum kolo_collective what = kinds[d.v[3] % 11], grouped;
    bool in_second;
    const int bundle = mix_bundle(round, i / MIX_BLOCK, &grouped, &in_second), place_in = i % MIX_BLOCK;
    m->bundle = bundle > 1 && place_in == 0 ? bundle : place_in < bundle ? bundle == 1 : 1;
    const bool goes_along = bundle > 1 && place_in < bundle;
    if (goes_along) what = grouped;
    enum kolo_dtype type = what == KOLO_SPARSE_ALLREDUCE ? KOLO_F32 : (enum kolo_dtype)(d.v[0] % KOLO_DTYPES);
    bool vector = what == KOLO_ALLREDUCE || what == KOLO_BROADCAST || what == KOLO_REDUCE_SCATTER;
    int64_t count = d.v[1] % 8 == 0 ? d.v[2] % 700 : d.v[2] % 40;
    if (e.v[3] % 50 == 0) count = 65536 + d.v[2] % 4000; /* 1 % of all, as half of them are vectors */
    if (what == KOLO_ALLREDUCE && e.v[1] / 8 % 3 == 0) type = KOLO_F32;
    m->group = second && (goes_along ? in_second : e.v[0] % 4 == 0) ? second : all;
    m->member = m->group->rank >= 0;
    m->seed = (round * MIX + i) % 5000;
    m->in_place = vector && e.v[1] % 3 == 0;
    char *from = m->in_place ? m->out : m->in;
    bool out = m->in_place || what == KOLO_ALLREDUCE || what == KOLO_BROADCAST;
    m->r = request(what, m->in_place ? NULL : m->in, out ? m->out : NULL, type, count, 0);
    m->r.reduce = (enum kolo_reduce)(d.v[0] / 16 % 5);
    draw_special(m, e.v[0] / 4);
    m->r.root = (int)(e.v[2] % (uint32_t)m->group->size);
    if (!m->member) return;
    if (!vector) draw_moves(m, type);
    else fill_vector(m, from);
    snprintf(m->name, sizeof m->name, "mix.%d", (int)(i + (d.v[3] / 16 % 3) * MIX));
    const bool needs_name = goes_along || (m->r.compression && strcmp(m->r.compression, "topk:1") == 0);
    m->r.name = needs_name || d.v[3] / 64 % 4 ? m->name : NULL;
}

/* `count` elements that world rank `of` brought, from its `first` on; moves on. */
static int64_t not_from(const char **at, int of, int64_t first, int64_t count, const mixed *m)
{
    int64_t bad = 0;
    for (int64_t k = 0; k < count; k++) {
        put(m->r.type, list_want, 0, value(of, first + k, m->seed, KOLO_SUM, m->r.type));
        bad += memcmp(*at, list_want, kolo_dtype_size(m->r.type)) != 0;
        *at += kolo_dtype_size(m->r.type);
    }
    return bad;
}

static int64_t check_sparse_mix(const mixed *m, const kolo_output *o)
{
    double dense[MIX_ROWS][MIX_COLUMNS] = {{0}};
    int64_t bad = 0;
    for (int k = 0; k < m->group->size; k++)
        for (int row = 0; row < 3; row++)
            for (int c = 0; c < MIX_COLUMNS; c++)
                dense[mix_index(m, k, row)][c] +=
                    value(m->group->rank_of[k], row * MIX_COLUMNS + c, m->seed, KOLO_SUM, KOLO_F32);
    for (int64_t i = 0; i < o->dim[0]; i++)
        for (int c = 0; c < MIX_COLUMNS; c++) {
            double *want = &dense[o->index ? o->index[i] : i][c];
            bad += ((const float *)o->data)[i * MIX_COLUMNS + c] !=
                   (float)(m->r.reduce == KOLO_AVERAGE ? *want / m->group->size : *want);
            *want = 0;
        }
    for (int row = 0; row < MIX_ROWS; row++)
        for (int c = 0; c < MIX_COLUMNS; c++) bad += dense[row][c] != 0; /* no row is missing */
    return bad;
}

static int64_t check_moved(const mixed *m, const char *data)
{
    const kolo_group *g = m->group;
    const int me = g->rank, n = g->size;
    int64_t bad = 0, first = 0;
    switch (m->r.what) {
    case KOLO_BROADCAST: return not_from(&data, g->rank_of[m->r.root], 0, m->r.dim[0], m);
    case KOLO_SCATTER:
        for (int k = 0; k < me; k++) first += mix_part(m, k);
        return not_from(&data, g->rank_of[m->r.root], first, mix_part(m, me), m);
    case KOLO_ALLTOALL:
        for (int k = 0; k < n; k++) {
            first = 0;
            for (int to = 0; to < me; to++) first += mix_sent(m, k, to);
            bad += not_from(&data, g->rank_of[k], first, mix_sent(m, k, me), m);
        }
        return bad;
    default: /* gathered */
        for (int k = 0; (m->r.what == KOLO_ALLGATHER || me == m->r.root) && k < n; k++)
            bad += not_from(&data, g->rank_of[k], 0, mix_part(m, k), m);
        return bad;
    }
}

static int64_t check_mixed(const mixed *m)
{
    int64_t bad = 0, from = 0;
    kolo_output o = {.data = m->out};
    for (int64_t k = 0; m->r.reduce == KOLO_ADASUM && k < m->r.dim[0]; k++)
        bad += get(m->r.type, m->out, k) !=
               value(m->group->rank_of[k % m->group->size], k, m->seed, KOLO_SUM, m->r.type);
    if (m->r.reduce == KOLO_ADASUM) return bad;
    if (m->r.what == KOLO_ALLREDUCE)
        return differ(m->out, m->r.dim[0], bits_of(m->group), m->seed, m->r.reduce, m->r.type);
    if (!m->r.out && kolo_result(world, m->handle, &o) < 0) return 1000;
    if (m->r.what == KOLO_SPARSE_ALLREDUCE) {
        bad = check_sparse_mix(m, &o);
    } else if (m->r.what != KOLO_REDUCE_SCATTER) {
        bad = check_moved(m, o.data);
    } else {
        from = lib_cut(m->r.dim[0], m->group->size, m->group->rank);
        for (int64_t k = from; k < lib_cut(m->r.dim[0], m->group->size, m->group->rank + 1); k++) {
            put(m->r.type, list_want, 0, wanted(bits_of(m->group), k, m->seed, m->r.reduce, m->r.type));
            bad += get(m->r.type, o.data, k - from) != get(m->r.type, list_want, 0);
        }
    }
    if (!m->r.out) kolo_release(world, m->handle);
    return bad;
}

static int64_t submit_one(mixed *m)
{
    kolo_request r[MIX_BLOCK];
    kolo_handle h[MIX_BLOCK];
    if (m->bundle == 1) return kolo_submit(m->group, &m->r, &m->handle) < 0;
    for (int k = 0; k < m->bundle; k++) r[k] = m[k].r;
    if (kolo_submit_grouped(m->group, r, m->bundle, h) < 0) return 1;
    for (int k = 0; k < m->bundle; k++) m[k].handle = h[k];
    return 0;
}

/* Places of named ones get the next of the shuffled names, another order on every rank; those
 * without a name keep theirs. */
static int64_t submit_mix(mixed *m, int round)
{
    int order[MIX], n = 0;
    int64_t bad = 0;
    for (int i = 0; i < MIX; i++)
        if (m[i].member && m[i].r.name && m[i].bundle) order[n++] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(kolo_philox(9, (uint64_t)(round * 64 + rank), (uint64_t)i).v[0] % (uint32_t)(i + 1)),
            swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    for (int i = 0, next = 0; i < MIX; i++) {
        uint32_t late = kolo_philox(10, (uint64_t)(round * 64 + rank), (uint64_t)i).v[0];
        if (!m[i].member || !m[i].bundle) continue;
        mixed *one = m[i].r.name ? &m[order[next++]] : &m[i];
        if (late % 24 == 0) usleep(late / 32 % 400);
        bad += submit_one(one);
    }
    return bad;
}

/* One rank joins behind its last request, the others ask for some sums more; all of it while the round's are
 * under way. Every fifth round nobody does. */
typedef struct mixed_join {
    kolo_handle join, late[MIX_LATE];
    char vector[MIX_LATE][64 * 8];
    uint32_t there;
} mixed_join;

static int64_t submit_join(mixed_join *j, int round)
{
    static const char *const names[MIX_LATE] = {"late.0", "late.1", "late.2"};
    static const enum kolo_dtype types[MIX_LATE] = {KOLO_F32, KOLO_I16, KOLO_BF16};
    const kolo_request join = {.what = KOLO_JOIN};
    const int away = round % size;
    int64_t bad = 0;
    j->join = 0;
    if (size == 1 || round % 5 == 4) return 0;
    j->there = everybody() & ~(1u << away);
    for (int k = 0; k < MIX_LATE && rank != away; k++) {
        kolo_request r = request(KOLO_ALLREDUCE, NULL, j->vector[k], types[k], 20 + k, 0);
        r.name = names[k];
        r.reduce = (enum kolo_reduce)((round + k) % 5);
        if (k == 0 && round % 3 == 0) r.compression = "bf16", r.reduce = KOLO_SUM;
        fill(j->vector[k], rank, 20 + k, round + k, r.reduce, types[k]);
        bad += kolo_submit(all, &r, &j->late[k]) < 0;
    }
    return bad + (kolo_submit(all, &join, &j->join) < 0);
}

static int64_t check_joined(mixed_join *j, int round)
{
    static const enum kolo_dtype types[MIX_LATE] = {KOLO_F32, KOLO_I16, KOLO_BF16};
    const int away = round % size;
    int64_t bad = 0;
    kolo_output o = {0};
    if (!j->join) return 0;
    for (int k = 0; k < MIX_LATE && rank != away; k++) {
        enum kolo_reduce op = (enum kolo_reduce)((round + k) % 5);
        if (k == 0 && round % 3 == 0) op = KOLO_SUM;
        bad += kolo_wait(world, j->late[k]) < 0 ||
               differ(j->vector[k], 20 + k, j->there, round + k, op, types[k]);
    }
    bad +=
        kolo_wait(world, j->join) < 0 || kolo_result(world, j->join, &o) < 0 || o.last < 0 || o.last >= size;
    kolo_release(world, j->join);
    if (bad)
        fprintf(stderr, "# rank %d: round %d, a join: %lld wrong: %s\n", rank, round, (long long)bad,
                kolo_error_text());
    return bad;
}

static int64_t mix_round(mixed *m, kolo_group *second, int round)
{
    for (int i = 0; i < MIX; i++) draw(&m[i], second, round, i);
    static mixed_join j;
    int64_t bad = submit_mix(m, round);
    bad += submit_join(&j, round);
    for (int i = 0; i < MIX; i++) {
        if (!m[i].member) continue;
        bool failed = kolo_wait(world, m[i].handle) < 0;
        int64_t wrong = failed ? 1 : check_mixed(&m[i]);
        if (wrong)
            fprintf(stderr,
                    "# rank %d: round %d, request %d: %s of %lld in group %d, type %d, op %d%s%s: %lld "
                    "wrong: %s\n",
                    rank, round, i, comm_collective_name(m[i].r.what), (long long)m[i].r.dim[0],
                    m[i].group->id, (int)m[i].r.type, (int)m[i].r.reduce, m[i].in_place ? ", in place" : "",
                    m[i].r.name ? ", named" : "", (long long)wrong, failed ? kolo_error_text() : "");
        bad += wrong;
    }
    return bad + check_joined(&j, round);
}

static int mix_rounds = 5;

static void check_mix(void)
{
    static mixed m[MIX];
    kolo_group *second = NULL;
    int64_t bad = 0;
    int list[32], n = 0;
    for (int r = 0; r < size; r += 2) list[n++] = r;
    if (size > 1) bad += kolo_group_create(&second, world, list, n) < 0;
    for (int i = 0; i < MIX; i++) {
        m[i].in = malloc((size_t)LIST_MAX * 8);
        m[i].out = malloc((size_t)LIST_MAX * 8);
    }
    for (int round = 0; round < mix_rounds && !bad; round++) bad += mix_round(m, second, round);
    bad += kolo_group_free(&second) < 0;
    char what[96];
    snprintf(what, sizeof what, "%d requests of random kind, size, type, group, order and moment",
             mix_rounds * MIX);
    report(bad, what);
    for (int i = 0; i < MIX; i++) {
        free(m[i].in);
        free(m[i].out);
    }
}

#endif
