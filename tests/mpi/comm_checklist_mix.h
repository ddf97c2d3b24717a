/* A long random mix: every collective but join, in two groups, named and not, in place and not, small and large, in another order and at other moments on every rank. */
#ifndef TESTS_COMM_CHECKLIST_MIX_H
#define TESTS_COMM_CHECKLIST_MIX_H

#include "comm_checklist.h"

enum { MIX = 40 /* requests under way at a time */, MIX_COLUMNS = 2, MIX_ROWS = 20 /* of sparse matrices */ };

typedef struct mixed {
    kolo_group *group;
    kolo_request r;
    int seed;
    bool member, in_place;
    char name[24], *in, *out; /* [LIST_MAX * 8] bytes each */
    int64_t splits[32], index[3];
    kolo_handle handle;
} mixed;

/* Elements that member m brings to gathers; that root deals to it; that `from` sends to `to`. */
static int64_t mix_part(const mixed *m, int member) { return (m->group->rank_of[member] * 3 + m->seed) % 7; }
static int64_t mix_sent(const mixed *m, int from, int to) { return (from * 3 + to * 5 + m->seed) % 4; }
static int64_t mix_index(const mixed *m, int member, int k) { return (k * 7 + member * 3 + m->seed) % MIX_ROWS; }

static void draw_moves(mixed *m, enum kolo_wire type)
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

/* Request i of a round: the same on all ranks but for what it brings. */
static void draw(mixed *m, kolo_group *second, int round, int i)
{
    static const enum kolo_collective kinds[] = {KOLO_ALLREDUCE,      KOLO_ALLREDUCE, KOLO_ALLREDUCE, KOLO_ALLREDUCE, KOLO_BROADCAST,
                                                 KOLO_REDUCE_SCATTER, KOLO_ALLGATHER, KOLO_GATHER,    KOLO_SCATTER,   KOLO_ALLTOALL,
                                                 KOLO_SPARSE_ALLREDUCE};
    kolo_philox4 d = kolo_philox(4242, (uint64_t)round, (uint64_t)i), e = kolo_philox(4243, (uint64_t)round, (uint64_t)i);
    enum kolo_collective what = kinds[d.v[3] % 11];
    enum kolo_wire type = what == KOLO_SPARSE_ALLREDUCE ? KOLO_WIRE_F32 : (enum kolo_wire)(d.v[0] % KOLO_WIRE_COUNT);
    bool vector = what == KOLO_ALLREDUCE || what == KOLO_BROADCAST || what == KOLO_REDUCE_SCATTER;
    int64_t count = d.v[1] % 8 == 0 ? d.v[2] % 700 : d.v[2] % 40;
    if (e.v[3] % 50 == 0) count = 65536 + d.v[2] % 4000; /* 1 % of all, as half of them are vectors */
    m->group = second && e.v[0] % 4 == 0 ? second : all;
    m->member = m->group->rank >= 0;
    m->seed = (round * MIX + i) % 5000;
    m->in_place = vector && e.v[1] % 3 == 0;
    char *from = m->in_place ? m->out : m->in;
    bool out = m->in_place || what == KOLO_ALLREDUCE || what == KOLO_BROADCAST;
    m->r = request(what, m->in_place ? NULL : m->in, out ? m->out : NULL, type, count, 0);
    m->r.reduce = (enum kolo_reduce)(d.v[0] / 16 % 5);
    m->r.root = (int)(e.v[2] % (uint32_t)m->group->size);
    if (!m->member) return;
    if (!vector) draw_moves(m, type);
    else fill(from, rank, count, m->seed, what == KOLO_BROADCAST ? KOLO_SUM : m->r.reduce, type);
    snprintf(m->name, sizeof m->name, "mix.%d", (int)(i + (d.v[3] / 16 % 3) * MIX));
    m->r.name = d.v[3] / 64 % 4 ? m->name : NULL;
}

/* `count` elements that world rank `of` brought, from its `first` on; moves on. */
static int64_t not_from(const char **at, int of, int64_t first, int64_t count, const mixed *m)
{
    int64_t bad = 0;
    for (int64_t k = 0; k < count; k++) {
        put(m->r.type, list_want, 0, value(of, first + k, m->seed, KOLO_SUM, m->r.type));
        bad += memcmp(*at, list_want, width(m->r.type)) != 0;
        *at += width(m->r.type);
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
                    value(m->group->rank_of[k], row * MIX_COLUMNS + c, m->seed, KOLO_SUM, KOLO_WIRE_F32);
    for (int64_t i = 0; i < o->dim[0]; i++)
        for (int c = 0; c < MIX_COLUMNS; c++) {
            double *want = &dense[o->index ? o->index[i] : i][c];
            bad += ((const float *)o->data)[i * MIX_COLUMNS + c] != (float)(m->r.reduce == KOLO_AVERAGE ? *want / m->group->size : *want);
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

/* Places of named ones get the next of the shuffled names, another order on every rank; those without a name keep theirs. */
static int64_t submit_mix(mixed *m, int round)
{
    int order[MIX], n = 0;
    int64_t bad = 0;
    for (int i = 0; i < MIX; i++)
        if (m[i].member && m[i].r.name) order[n++] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(kolo_philox(9, (uint64_t)(round * 64 + rank), (uint64_t)i).v[0] % (uint32_t)(i + 1)),
            swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    for (int i = 0, next = 0; i < MIX; i++) {
        uint32_t late = kolo_philox(10, (uint64_t)(round * 64 + rank), (uint64_t)i).v[0];
        if (!m[i].member) continue;
        mixed *one = m[i].r.name ? &m[order[next++]] : &m[i];
        if (late % 24 == 0) usleep(late / 32 % 400);
        bad += kolo_submit(one->group, &one->r, &one->handle) < 0;
    }
    return bad;
}

static int64_t mix_round(mixed *m, kolo_group *second, int round)
{
    for (int i = 0; i < MIX; i++) draw(&m[i], second, round, i);
    int64_t bad = submit_mix(m, round);
    for (int i = 0; i < MIX; i++) {
        if (!m[i].member) continue;
        bool failed = kolo_wait(world, m[i].handle) < 0;
        int64_t wrong = failed ? 1 : check_mixed(&m[i]);
        if (wrong)
            fprintf(stderr, "# rank %d: round %d, request %d: %s of %lld in group %d, type %d, op %d%s%s: %lld wrong: %s\n",
                    rank, round, i, comm_collective_name(m[i].r.what), (long long)m[i].r.dim[0], m[i].group->id,
                    (int)m[i].r.type, (int)m[i].r.reduce, m[i].in_place ? ", in place" : "", m[i].r.name ? ", named" : "",
                    (long long)wrong, failed ? kolo_error_text() : "");
        bad += wrong;
    }
    return bad;
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
    snprintf(what, sizeof what, "%d requests of random kind, size, type, group, order and moment", mix_rounds * MIX);
    report(bad, what);
    for (int i = 0; i < MIX; i++) {
        free(m[i].in);
        free(m[i].out);
    }
}

#endif
