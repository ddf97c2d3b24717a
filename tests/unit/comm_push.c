/* Pushes: sums of ranks of a node without messages. Small, direct (shared memory) and staged (ordinary
 * memory) rounds, in any mixture. */
#include <math.h>

#include "comm_router_rig.h"

enum { MOST = 400000 };

typedef struct vectors {
    char *in[2], *out[2]; /* ordinary, shared */
} vectors;

static int make(rig_rank *r, vectors *v, size_t bytes)
{
    void *in, *out;
    KOLO_TRY(comm_router_alloc(r->router, bytes, &in));
    KOLO_TRY(comm_router_alloc(r->router, bytes, &out));
    *v = (vectors){{malloc(bytes), in}, {malloc(bytes), out}};
    return 0;
}

static void drop(rig_rank *r, vectors *v)
{
    free(v->in[0]);
    free(v->out[0]);
    comm_router_free(r->router, v->in[1]);
    comm_router_free(r->router, v->out[1]);
}

static int open_all(rig_rank *r, comm_push **push)
{
    int rank[WORLD_MAX];
    for (int i = 0; i < rig_size; i++) rank[i] = i;
    return comm_push_open(push, r->router, 5, rank, rig_size);
}

static float expected(int64_t i, int round)
{
    float v[WORLD_MAX];
    for (int p = 0; p < rig_size; p++) v[p] = world_value(p, i, round, false);
    return world_tree(v, rig_size);
}

static int64_t one_sum(rig_rank *r, comm_push *push, vectors *v, int round)
{
    static const int64_t counts[] = {1, 2, 10, 11, 1000, 1024, 1025, 16384, 65537, 300001, MOST};
    kolo_philox4 x = kolo_philox(9, (uint64_t)round, 0),
                 mine = kolo_philox(10, (uint64_t)round, (uint64_t)r->rank);
    int64_t count = counts[x.v[0] % 11], bad = 0;
    /* the ranks' vectors lie where each of them likes, or all in shared memory, or all in ordinary */
    int where = x.v[1] % 3 == 0 ? (int)(mine.v[0] % 2) : (int)(x.v[1] % 3 - 1);
    bool in_place = mine.v[1] % 2;
    float *in = (float *)(void *)v->in[where],
          *out = (float *)(void *)(in_place ? v->in[where] : v->out[where]);
    for (int64_t i = 0; i < count; i++) in[i] = world_value(r->rank, i, round, false);
    comm_folding how = {.type = KOLO_F32, .op = KOLO_SUM, .tree = true};
    if (comm_push_start(push, in, out, count, &how, (uint64_t)count) < 0) return 1;
    int rc = 0;
    if (mine.v[2] % 3 == 0)
        while ((rc = comm_push_poll(push)) == 0) comm_router_rest(r->router, 1); /* as an engine does */
    else rc = comm_push_wait(push);
    for (int64_t i = 0; i < count; i += i < 3000 || i > count - 3000 ? 1 : 17) {
        float want = expected(i, round);
        bad += memcmp(&out[i], &want, 4) != 0;
        if (!in_place) bad += in[i] != world_value(r->rank, i, round, false);
    }
    return rc == 1 ? bad : 1000;
}

static int64_t sums(rig_rank *r, int rounds)
{
    comm_push *push = NULL;
    vectors v;
    int64_t bad = 0;
    if (make(r, &v, MOST * 4) < 0 || open_all(r, &push) < 0) return -1;
    for (int round = 0; round < rounds && bad == 0; round++) bad += one_sum(r, push, &v, round);
    comm_push_close(&push);
    drop(r, &v);
    return bad;
}

/* Whole numbers that every type holds, so that sums, products, minima are known without rounding. */
static double number_in(const void *at, enum kolo_dtype type, int64_t i)
{
    float wide;
    switch (type) {
    case KOLO_U8: return ((const uint8_t *)at)[i];
    case KOLO_I8: return ((const int8_t *)at)[i];
    case KOLO_U16: return ((const uint16_t *)at)[i];
    case KOLO_I16: return ((const int16_t *)at)[i];
    case KOLO_I32: return ((const int32_t *)at)[i];
    case KOLO_I64: return (double)((const int64_t *)at)[i];
    case KOLO_F32: return ((const float *)at)[i];
    case KOLO_F64: return ((const double *)at)[i];
    case KOLO_BF16:
    case KOLO_F16: comm_widen(&wide, (const char *)at + 2 * i, 1, type); return wide;
    default: return 0;
    }
}

static void put_number(void *at, enum kolo_dtype type, int64_t i, int value)
{
    float wide = (float)value;
    switch (type) {
    case KOLO_U8: ((uint8_t *)at)[i] = (uint8_t)value; break;
    case KOLO_I8: ((int8_t *)at)[i] = (int8_t)value; break;
    case KOLO_U16: ((uint16_t *)at)[i] = (uint16_t)value; break;
    case KOLO_I16: ((int16_t *)at)[i] = (int16_t)value; break;
    case KOLO_I32: ((int32_t *)at)[i] = value; break;
    case KOLO_I64: ((int64_t *)at)[i] = value; break;
    case KOLO_F32: ((float *)at)[i] = wide; break;
    case KOLO_F64: ((double *)at)[i] = value; break;
    case KOLO_BF16:
    case KOLO_F16: comm_narrow((char *)at + 2 * i, &wide, 1, type); break;
    default: break;
    }
}

static int value_of(int rank, int64_t i) { return (int)((i * 3 + rank * 5) % 7) + (rank == 2 ? 1 : 0); }

static int64_t one_type(rig_rank *r, comm_push *push, vectors *v, enum kolo_dtype type, enum kolo_reduce op,
                        int64_t count, int where)
{
    comm_folding how = {.type = type,
                        .op = op,
                        .divisor = op == KOLO_AVERAGE ? rig_size : 1,
                        .prescale = 2,
                        .postscale = op == KOLO_PRODUCT ? 0 : 3};
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++) put_number(v->in[where], type, i, value_of(r->rank, i) % 4);
    if (op == KOLO_PRODUCT || op == KOLO_AVERAGE) how.prescale = how.postscale = 1;
    if (comm_push_start(push, v->in[where], v->out[where], count, &how, 1) < 0 || comm_push_wait(push) != 1)
        return 1000;
    for (int64_t i = 0; i < count; i += 7) {
        double want = op == KOLO_PRODUCT ? 1 : op == KOLO_MIN ? 99 : 0;
        for (int p = 0; p < rig_size; p++) {
            double x = value_of(p, i) % 4 * how.prescale;
            want = op == KOLO_PRODUCT ? want * x
                   : op == KOLO_MIN   ? fmin(want, x)
                   : op == KOLO_MAX   ? fmax(want, x)
                                      : want + x;
        }
        if (op == KOLO_AVERAGE && !kolo_dtype_is_real(type)) want = floor(want / rig_size);
        else if (op == KOLO_AVERAGE) continue; /* rounded */
        else if (how.postscale > 1) want *= 3;
        bad += number_in(v->out[where], type, i) != want;
    }
    return bad;
}

static int64_t types(rig_rank *r, int argument)
{
    comm_push *push = NULL;
    vectors v;
    int64_t bad = 0;
    (void)argument;
    if (make(r, &v, 200000) < 0 || open_all(r, &push) < 0) return -1;
    for (int type = 0; type < KOLO_BOOL; type++)
        for (int op = 0; op < KOLO_ADASUM; op++)
            for (int size = 0; size < 3; size++)
                bad += one_type(r, push, &v, type, op, size == 0 ? 3 : size == 1 ? 300 : 9001, op % 2);
    comm_push_close(&push);
    drop(r, &v);
    return bad;
}

/* Rank 1 brings something else; the next round is a good one. */
static int64_t differs(rig_rank *r, int argument)
{
    comm_push *push = NULL;
    comm_folding how = {.type = KOLO_F32, .op = KOLO_SUM};
    float *v = malloc(20000 * sizeof *v);
    int64_t bad = 0;
    (void)argument;
    if (open_all(r, &push) < 0) return -1;
    for (int round = 0; round < 30; round++) {
        int64_t count = round % 3 == 0 ? 1 : round % 3 == 1 ? 500 : 20000;
        bool odd = round % 2 == 0 && r->rank == 1;
        for (int i = 0; i < 20000; i++) v[i] = 1;
        if (round % 5 == 0) count = odd ? 0 : count;
        if (comm_push_start(push, v, v, count, &how, odd ? 8 : 7) < 0) return -1;
        int rc = comm_push_wait(push);
        bad += rc != (round % 2 == 0 ? COMM_PUSH_DIFFERS : 1);
        bad += v[0] != (round % 2 == 0 ? 1 : (float)rig_size);
    }
    comm_push_close(&push);
    free(v);
    return bad;
}

/* Several sets at once, a set made again with the same id, a meeting nobody leaves before all have come. */
static int64_t sets(rig_rank *r, int argument)
{
    comm_push *push[3] = {NULL};
    comm_folding how = {.type = KOLO_I32, .op = KOLO_SUM};
    int64_t bad = 0;
    (void)argument;
    for (int again = 0; again < 3; again++) {
        for (int s = 0; s < 3; s++) { /* set s: the ranks but rank s */
            int rank[WORLD_MAX], n = 0;
            for (int i = 0; i < rig_size; i++)
                if (i != s) rank[n++] = i;
            if (s != r->rank && comm_push_open(&push[s], r->router, 100 + s, rank, n) < 0) return -1;
        }
        int32_t x[3] = {1 << r->rank, 1 << r->rank, 1 << r->rank};
        for (int s = 0; s < 3; s++)
            if (push[s]) bad += comm_push_start(push[s], &x[s], &x[s], 1, &how, 3) < 0;
        for (int s = 2; s >= 0; s--)
            if (push[s]) bad += comm_push_wait(push[s]) != 1 || x[s] != (1 << rig_size) - 1 - (1 << s);
        for (int s = 0; s < 3; s++) comm_push_close(&push[s]);
    }
    comm_push *all = NULL;
    if (open_all(r, &all) < 0) return -1;
    for (uint32_t i = 1; i <= 20; i++) {
        atomic_fetch_add(&rig->mark[0], 1);
        if (comm_push_start(all, NULL, NULL, 0, &how, i) < 0 || comm_push_wait(all) != 1) return -1;
        bad += atomic_load(&rig->mark[0]) < i * (uint32_t)rig_size;
    }
    comm_push_close(&all);
    return bad;
}

/* So many sets at a time of the same two ranks, every second one closed and made again. */
static int64_t many_sets(rig_rank *r, int count)
{
    static const int two[] = {0, 1};
    comm_push **push = calloc((size_t)count, sizeof *push);
    comm_folding how = {.type = KOLO_I32, .op = KOLO_SUM};
    int64_t bad = 0;
    for (int step = 1; step <= 2; step++) {
        for (int s = 0; s < count; s += step) comm_push_close(&push[s]);
        for (int s = 0; s < count; s += step)
            if (comm_push_open(&push[s], r->router, s, two, 2) < 0) return -1;
    }
    for (int s = 0; s < count; s++) {
        int32_t x = s * 2 + r->rank;
        bad += comm_push_start(push[s], &x, &x, 1, &how, 1) < 0 || comm_push_wait(push[s]) != 1 ||
               x != s * 4 + 1;
    }
    for (int s = 0; s < count; s++) comm_push_close(&push[s]);
    free(push);
    return bad;
}

int main(int argc, char **argv)
{
    rig_config = (comm_router_config){.between = "tcp", .timeout = 20, .shared_bytes = 8 << 20};
    for (int n = 1; n <= 17; n++) {
        const int rounds = n <= 4 || n == 7 ? 60 : 24;
        is_int(rig_run(n, NULL, false, sums, rounds), 0,
               "%d process%s, %d sums of any size, from shared and ordinary memory: the tree's bits", n,
               n > 1 ? "es" : "", rounds);
    }
    is_int(rig_run(3, NULL, true, sums, 40), 0, "3 threads");
    is_int(rig_run(3, NULL, false, types, 0), 0, "every type and operation, with factors");
    is_int(rig_run(3, NULL, false, differs, 0), 0,
           "who brings something else is found by all, and the set goes on");
    is_int(rig_run(4, NULL, false, sets, 0), 0, "sets that overlap, made and closed again; meetings");
    is_int(rig_run(2, NULL, false, many_sets, argc > 1 ? atoi(argv[1]) : 200), 0,
           "many sets of one first rank");
    ok(!rig_leftovers("router"), "nothing is left in /dev/shm");
    return done_testing();
}
