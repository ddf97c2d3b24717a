/* Requests of libkolo_comm whose vectors lie on GPUs, carried by NCCL: against the same requests of
 * host memory, with whole numbers, whose sums are exact in any order. Every collective, type and
 * reduction; scaled, in place, cut unevenly, fused, in several groups at a time, with a rank that has
 * joined. Ranks as processes. */
#include "../unit/comm_router_rig.h"
#include "comm/library/parts.h"
#include "cuda_memory.h"

enum { MOST = 4, COUNT = 1009, LARGE = 70001, BYTES = 8 * LARGE };

static kolo_world *whole;
static kolo_group *all;
static int me, ranks;
static char *host_in, *host_out, *want, *gpu_in, *gpu_out;

/* ---- one request in both memories ---------------------------------------------------------------------- */

static void fill(char *to, enum kolo_dtype type, int64_t count, int salt)
{
    static float as_float[LARGE];
    for (int64_t i = 0; i < count; i++)
        as_float[i] = (float)((i * 7 + me * 5 + salt) % 4 + (type == KOLO_BOOL ? -2 : 0));
    for (int64_t i = 0; i < count; i++) {
        const float v = type == KOLO_BOOL ? as_float[i] > 0 : as_float[i];
        switch (type) {
        case KOLO_U8:
        case KOLO_BOOL: ((uint8_t *)to)[i] = (uint8_t)v; break;
        case KOLO_I8: ((int8_t *)to)[i] = (int8_t)v; break;
        case KOLO_U16: ((uint16_t *)(void *)to)[i] = (uint16_t)v; break;
        case KOLO_I16: ((int16_t *)(void *)to)[i] = (int16_t)v; break;
        case KOLO_I32: ((int32_t *)(void *)to)[i] = (int32_t)v - 1; break;
        case KOLO_I64: ((int64_t *)(void *)to)[i] = (int64_t)v - 1; break;
        case KOLO_F16:
        case KOLO_BF16: comm_narrow((uint16_t *)(void *)to + i, &v, 1, type); break;
        case KOLO_F32: ((float *)(void *)to)[i] = v - 1; break;
        default: ((double *)(void *)to)[i] = v - 1;
        }
    }
}

static int done(kolo_request r)
{
    kolo_handle h;
    KOLO_TRY(kolo_submit(all, &r, &h));
    int rc = kolo_wait(whole, h);
    if (!r.out) kolo_release(whole, h); /* else it was by the wait; the error text is the wait's */
    return rc;
}

/* Elements that differ between the two, of what this rank gets. in_place: `out` holds what is brought, room:
 * of `out` in elements. */
static int64_t compare(kolo_request r, int64_t brought, int64_t room, bool in_place, int64_t from)
{
    const size_t width = kolo_dtype_size(r.type);
    int64_t bad = 0;
    fill(host_in, r.type, brought, (int)r.what);
    memset(host_out, 0x77, (size_t)room * width);
    memset(want, 0x77, (size_t)room * width);
    if (in_place) memcpy(want + (size_t)from * width, host_in, (size_t)brought * width);
    gpu_put(gpu_out, want, (size_t)room * width);
    gpu_put(gpu_in, host_in, (size_t)brought * width);
    r.in = in_place ? NULL : host_in;
    r.out = want;
    KOLO_TRY(done(r));
    r.in = in_place ? NULL : gpu_in;
    r.out = gpu_out;
    KOLO_TRY(done(r));
    gpu_get(host_out, gpu_out, (size_t)room * width);
    bool partly = in_place && r.what == KOLO_REDUCE_SCATTER; /* behind its part `out` may be anything */
    int64_t look = partly ? lib_cut(r.dim[0], ranks, me + 1) - lib_cut(r.dim[0], ranks, me) : room;
    if (in_place && r.what == KOLO_SCATTER)
        look = r.splits ? r.splits[me] : lib_cut(r.dim[0], ranks, me + 1) - lib_cut(r.dim[0], ranks, me);
    if (r.dims > 1 && look != room) look *= r.dim[1];
    for (int64_t i = 0; i < look; i++)
        bad += memcmp(host_out + (size_t)i * width, want + (size_t)i * width, width) != 0;
    if (bad)
        fprintf(stderr, "# rank %d: %s of type %d, reduction %d: %ld of %ld differ\n", me,
                comm_collective_name(r.what), r.type, r.reduce, (long)bad, (long)look);
    if (in_place) return bad;
    gpu_get(host_out, gpu_in, (size_t)brought * width); /* what goes in stays */
    return bad + (memcmp(host_out, host_in, (size_t)brought * width) != 0);
}

static kolo_request of(enum kolo_collective what, enum kolo_dtype type, int64_t count)
{
    return (kolo_request){.what = what, .type = type, .dims = 1, .dim = {count}};
}

/* ---- reductions ---------------------------------------------------------------------------------------- */

static int64_t reductions(void)
{
    static const enum kolo_reduce ops[] = {KOLO_SUM, KOLO_AVERAGE, KOLO_MIN, KOLO_MAX, KOLO_PRODUCT};
    int64_t bad = 0, some;
    for (int type = 0; type < KOLO_DTYPES; type++)
        for (int o = 0; o < 5; o++) {
            if (type == KOLO_U16 || type == KOLO_I16) continue;
            kolo_request r = of(KOLO_ALLREDUCE, (enum kolo_dtype)type, COUNT);
            r.reduce = ops[o];
            KOLO_TRY(some = compare(r, COUNT, COUNT, o & 1, 0));
            bad += some;
        }
    KOLO_TRY(some = compare(of(KOLO_ALLREDUCE, KOLO_F32, LARGE), LARGE, LARGE, false, 0));
    bad += some;
    KOLO_TRY(some = compare(of(KOLO_ALLREDUCE, KOLO_F32, 0), 0, 0, true, 0));
    return bad + some;
}

static int64_t scalings(void)
{
    static const enum kolo_dtype types[] = {KOLO_U8,  KOLO_I8,   KOLO_I32, KOLO_I64,
                                            KOLO_F16, KOLO_BF16, KOLO_F32, KOLO_F64};
    int64_t bad = 0, some;
    for (int i = 0; i < 16; i++) {
        kolo_request r = of(i & 8 ? KOLO_REDUCE_SCATTER : KOLO_ALLREDUCE, types[i % 8], 1008);
        r.reduce = i & 1 ? KOLO_AVERAGE : i & 2 ? KOLO_MAX : KOLO_SUM;
        r.prescale = i % 3 ? 2 : 0;
        r.postscale = i % 3 == 1 ? 0 : 0.5;
        int64_t mine = i & 8 ? lib_cut(1008, ranks, me + 1) - lib_cut(1008, ranks, me) : 1008;
        KOLO_TRY(some = compare(r, 1008, i & 1 ? 1008 : mine, i & 1, 0));
        bad += some;
    }
    return bad;
}

static int64_t cuts(void)
{
    int64_t bad = 0, some;
    for (int i = 0; i < 8; i++) {
        kolo_request r = {.what = KOLO_REDUCE_SCATTER,
                          .type = i & 2 ? KOLO_F32 : KOLO_I64,
                          .dims = 2,
                          .dim = {i & 1 ? 101 : 12 * ranks, 5}};
        const bool in_place = i & 4;
        int64_t count = r.dim[0] * 5,
                mine = 5 * (lib_cut(r.dim[0], ranks, me + 1) - lib_cut(r.dim[0], ranks, me));
        if (i == 3) r.dim[0] = 1, count = 5, mine = me == 0 ? 5 : 0; /* fewer rows than ranks */
        KOLO_TRY(some = compare(r, count, in_place ? count : mine, in_place, 0));
        bad += some;
    }
    return bad;
}

/* ---- moves --------------------------------------------------------------------------------------------- */

static int64_t moves(void)
{
    int64_t bad = 0, some, rows[MOST], even[MOST], total = 0, before = 0;
    for (int m = 0; m < ranks; m++) {
        rows[m] = m == 1 ? 0 : 40 + 13 * m;
        even[m] = 33;
        before += m < me ? rows[m] : 0;
        total += rows[m];
    }
    for (int root = 0; root < ranks; root++) {
        kolo_request b = of(KOLO_BROADCAST, KOLO_U16, LARGE), g = of(KOLO_GATHER, KOLO_F32, rows[me]),
                     s = of(KOLO_SCATTER, KOLO_I16, total);
        b.root = g.root = s.root = root;
        s.splits = rows;
        for (int in_place = 0; in_place < 2; in_place++) {
            KOLO_TRY(some = compare(b, LARGE, LARGE, in_place, 0));
            bad += some;
            KOLO_TRY(some = compare(g, rows[me], me == root ? total : rows[me] + 1, in_place,
                                    me == root ? before : 0));
            bad += some;
            KOLO_TRY(some = compare(s, me == root ? total : 0, me == root && in_place ? total : rows[me] + 1,
                                    in_place && me == root, 0));
            bad += some;
        }
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        kolo_request a = of(KOLO_ALLGATHER, KOLO_F64, 33), u = of(KOLO_ALLGATHER, KOLO_BOOL, rows[me]),
                     x = of(KOLO_ALLTOALL, KOLO_F32, 9 * ranks);
        KOLO_TRY(some = compare(a, 33, 33 * ranks, in_place, 33 * me));
        bad += some;
        a.splits = even;
        KOLO_TRY(some = compare(a, 33, 33 * ranks, in_place, 33 * me));
        bad += some;
        KOLO_TRY(some = compare(u, rows[me], total + 1, in_place, before));
        bad += some;
        KOLO_TRY(some = compare(x, 9 * ranks, 9 * ranks, in_place, 0));
        bad += some;
    }
    for (int m = 0; m < ranks; m++) rows[m] = (me + 2 * m) % 5;
    kolo_request x = {
        .what = KOLO_ALLTOALL, .type = KOLO_I8, .splits = rows, .dims = 2, .dim = {5 * ranks, 3}};
    KOLO_TRY(some = compare(x, 15 * ranks, 15 * ranks, false, 0));
    return bad + some;
}

/* ---- names, groups, joined ----------------------------------------------------------------------------- */

enum { NAMES = 24 };

/* Named in another order on every rank, every third of host memory, some grouped: the numbers are right,
 * and they were fused. */
static int64_t names(void)
{
    kolo_handle h[NAMES];
    char name[NAMES][8];
    int64_t bad = 0;
    float *v = (float *)(void *)host_in;
    kolo_request r[NAMES];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name[i], sizeof name[i], "n%d", i);
        for (int k = 0; k < 100; k++) v[100 * i + k] = (float)(me + i + k);
        r[i] = (kolo_request){
            .what = KOLO_ALLREDUCE, .name = name[i], .type = KOLO_F32, .dims = 1, .dim = {100}};
        r[i].out = i % 3 ? gpu_out + 400 * i : (char *)(v + 100 * i);
    }
    gpu_put(gpu_out, v, NAMES * 400);
    KOLO_TRY(kolo_submit_grouped(all, r, 6, h)); /* of both kinds */
    for (int k = 0; k < NAMES - 6; k++) {
        int i = 6 + (k + 5 * me) % (NAMES - 6);
        KOLO_TRY(kolo_submit(all, &r[i], &h[i]));
    }
    for (int i = 0; i < NAMES; i++) KOLO_TRY(kolo_wait(whole, h[i]));
    float *got = (float *)(void *)host_out;
    gpu_get(got, gpu_out, NAMES * 400);
    for (int i = 0; i < 100 * NAMES; i++) {
        const float sum = (float)(ranks * (i / 100 + i % 100) + ranks * (ranks - 1) / 2),
                    is = i / 100 % 3 ? got[i] : v[i];
        bad += is != sum;
    }
    kolo_request b[2] = {of(KOLO_BROADCAST, KOLO_F32, 10), of(KOLO_BROADCAST, KOLO_U8, 3)};
    for (int i = 0; i < 2; i++) b[i].name = i ? "b1" : "b0", b[i].out = gpu_out + 64 * i, b[i].root = 1;
    KOLO_TRY(kolo_submit_grouped(all, b, 2, h));
    for (int i = 0; i < 2; i++) KOLO_TRY(kolo_wait(whole, h[i]));
    return bad;
}

static int64_t one_group(kolo_group *g, kolo_handle *h, int slot, int i)
{
    kolo_request r = of(KOLO_ALLREDUCE, KOLO_I32, 500);
    int32_t *v = (int32_t *)(void *)(host_in + 2000 * slot);
    for (int k = 0; k < 500; k++) v[k] = k + me;
    gpu_put(gpu_out + 2000 * slot, v, 2000);
    r.name = i ? "x" : NULL;
    r.out = gpu_out + 2000 * slot;
    return kolo_submit(g, &r, h);
}

/* All, and every pair with rank 0, unnamed and named, all under way at once, begun in another
 * order on every rank. */
static int64_t sets(void)
{
    kolo_group *set[MOST] = {all};
    kolo_handle h[2 * MOST] = {0};
    int64_t bad = 0;
    for (int k = 1; k < ranks && ranks > 2; k++)
        KOLO_TRY(kolo_group_create(&set[k], whole, (const int[]){0, k}, 2));
    for (int i = 0; i < 2 * MOST; i++) {
        const int slot = me & 1 ? 2 * MOST - 1 - i : i, k = slot / 2;
        if (k < ranks && set[k] && kolo_group_rank(set[k]) >= 0)
            KOLO_TRY(one_group(set[k], &h[slot], slot, slot & 1));
    }
    for (int slot = 0; slot < 2 * MOST; slot++) {
        const int k = slot / 2;
        if (!h[slot]) continue;
        KOLO_TRY(kolo_wait(whole, h[slot]));
        int32_t got[500];
        gpu_get(got, gpu_out + 2000 * slot, 2000);
        const int members = kolo_group_size(set[k]), sum = k ? k : ranks * (ranks - 1) / 2;
        for (int i = 0; i < 500; i++) bad += got[i] != members * i + sum;
    }
    for (int k = ranks - 1; k > 0; k--) KOLO_TRY(kolo_group_free(&set[k]));
    return bad;
}

/* Rank 1 has no more data: it stands in with neutral elements, and averages count the others. */
static int64_t joining(void)
{
    kolo_request r = of(KOLO_ALLREDUCE, KOLO_F32, COUNT);
    static const enum kolo_reduce ops[] = {KOLO_SUM, KOLO_AVERAGE, KOLO_MIN, KOLO_MAX, KOLO_PRODUCT};
    int64_t bad = 0;
    int last;
    float *v = (float *)(void *)host_in;
    for (int o = 0; o < 5 && me != 1; o++) {
        kolo_handle h;
        float expect = (float)(ops[o] == KOLO_PRODUCT);
        int first = 1;
        for (int m = 0; m < ranks; m++) {
            if (m == 1) continue;
            const float x = 2 * (float)(m + 2); /* prescaled */
            if (ops[o] == KOLO_PRODUCT) expect *= x;
            else if (ops[o] == KOLO_MIN || ops[o] == KOLO_MAX)
                expect = first                ? x
                         : ops[o] == KOLO_MIN ? (x < expect ? x : expect)
                                              : (x > expect ? x : expect);
            else expect += x;
            first = 0;
        }
        if (ops[o] == KOLO_AVERAGE) expect = (float)((double)expect / (ranks - 1));
        for (int i = 0; i < COUNT; i++) v[i] = (float)(me + 2);
        gpu_put(gpu_out, v, COUNT * 4);
        r.name = (const char *[]){"a", "b", "c", "d", "e"}[o];
        r.reduce = ops[o];
        r.prescale = 2;
        r.out = gpu_out;
        KOLO_TRY(kolo_submit(all, &r, &h));
        KOLO_TRY(kolo_wait(whole, h));
        gpu_get(v, gpu_out, COUNT * 4);
        for (int i = 0; i < COUNT; i++) bad += v[i] != expect;
    }
    KOLO_TRY(kolo_join(all, &last));
    return bad;
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

static int64_t refused(kolo_request r, int status, const char *says)
{
    int rc = done(r);
    char text[1024];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    if (rc != status || !strstr(text, says))
        return fprintf(stderr, "# rank %d: status %d: %s\n", me, rc, text), 1;
    return compare(of(KOLO_ALLREDUCE, KOLO_F32, 10), 10, 10, false, 0) != 0; /* and the world goes on */
}

static int64_t refusals(void)
{
    int64_t bad = 0;
    kolo_request r = of(KOLO_ALLREDUCE, KOLO_F32, COUNT), s = r;
    for (int named = 0; named < 2; named++) {
        r.name = named ? "mixed" : NULL;
        r.out = me == 1 ? host_out : gpu_out;
        bad += refused(r, KOLO_EINPUT, "sum, on a GPU");
        r.dim[0] = 3; /* that a caller would do by itself */
        bad += refused(r, KOLO_EINPUT, "; rank 1");
        r.dim[0] = COUNT;
    }
    r.name = NULL;
    r.in = host_in;
    r.out = gpu_out;
    bad += refused(r, KOLO_EINPUT, "memory of a GPU for the one of in and out, the host's for the other");
    r.in = gpu_in;
    r.out = NULL;
    bad += refused(r, KOLO_EINPUT, "no `out`");
    r.out = gpu_out;
    r.reduce = KOLO_ADASUM;
    bad += refused(r, KOLO_EINPUT, "where Adasum is not");
    r.reduce = KOLO_SUM;
    r.compression = "bf16";
    bad += refused(r, KOLO_EINPUT, "where compression is not");
    r.compression = NULL;
    r.type = KOLO_I16;
    bad += refused(r, KOLO_EINPUT, "no whole numbers of 16 bits");
    const int64_t index = 0;
    s.what = KOLO_SPARSE_ALLREDUCE;
    s.in = gpu_in;
    s.index = &index;
    s.rows = 4;
    s.dims = 2;
    s.dim[0] = s.dim[1] = 1;
    return bad + refused(s, KOLO_EINPUT, "sparse rows");
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

static int64_t (*const drills[])(void) = {reductions, scalings, cuts, moves, names, sets, joining, refusals};
static const char *const what[] = {
    "every reduction of every type has the numbers of host memory",
    "scaled",
    "cut evenly and not, in place, fewer rows than ranks",
    "broadcast, gather, scatter, allgather, alltoall; in place, uneven, with nothing on one rank",
    "names in any order, fused, among those of host memory",
    "several groups at once, begun in other orders",
    "a rank that has joined stands in with neutral elements",
    "mixed memory and what NCCL does not do are errors on all ranks, and the world goes on",
    "nothing is left on a GPU, nothing was misused"};
enum { DRILLS = sizeof drills / sizeof *drills, ALONE = 4 /* that one rank can do by itself */ };
static bool standin;

static int64_t one_rank(rig_rank *r, int argument)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 30, .shared_bytes = 1 << 20, .transport = "tcp"};
    int64_t bad = 0;
    const char *missing = gpu_begin(standin, r->rank);
    (void)argument;
    if (missing) return kolo_fail(KOLO_ECONFIG, "test: %s", missing);
    me = r->rank;
    ranks = rig_size;
    host_in = malloc(BYTES), host_out = malloc(BYTES), want = malloc(BYTES);
    gpu_in = gpu_alloc(BYTES), gpu_out = gpu_alloc(BYTES);
    KOLO_TRY(lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r));
    all = kolo_world_group(whole);
    for (int d = 0; d < (ranks > 1 ? DRILLS : ALONE); d++) {
        int64_t some = drills[d]();
        if (some)
            fprintf(stderr, "# rank %d: %s: %ld: %s\n", me, what[d], (long)some,
                    some < 0 ? kolo_error_text() : "");
        if (some) bad |= 1 << d;
        for (; some < 0 && d < DRILLS; d++) bad |= 1 << d;
    }
    kolo_world_close(&whole);
    gpu_free(gpu_in);
    gpu_free(gpu_out);
    gpu_end();
    free(host_in), free(host_out), free(want);
    return bad | (gpu_misused() ? 1 << DRILLS : 0);
}

int main(void)
{
    static const int apart[] = {0, 1, 1, 0};
    standin = cuda_rig();
    if (!standin) skip_all("one GPU alone: NCCL wants one for every rank");
    setenv("STANDIN_DEVICES", "4", 1);
    for (int n = 1; n <= MOST; n++) {
        rig_party p = rig_begin("gpu", n, n == 3 ? apart : NULL, one_rank, 0, 60);
        is_int(rig_end(&p, -1), 0, "%d rank%s%s: all come to their end", n, n > 1 ? "s" : "",
               n == 3 ? " on two nodes" : "");
        for (int k = 0; k <= DRILLS; k++) {
            if (n == 1 && k >= ALONE && k < DRILLS) continue;
            int wrong = 0;
            for (int r = 0; r < n; r++)
                wrong += rig_outcomes[r].value < 0 || (rig_outcomes[r].value >> k & 1);
            is_int(wrong, 0, "%d ranks: %s", n, what[k]);
        }
    }
    is_int(rig_leftovers("gpu"), 0, "no segment is left behind");
    return done_testing();
}
