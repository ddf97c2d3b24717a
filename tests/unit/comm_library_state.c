/* What compressed sums hold back: kept for any number of names, saved, and restored in other processes. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 3, NAMES = 1100, SMALL = 4, COUNT = 600, ROUNDS = 6, CUT = 3, STATE = 1 << 20 };

static const char *const kinds[] = {"bf16", "int8", "topk:0.05", "topk:0.01,momentum=0.9,clip=2,warmup=4",
                                    "powersgd:2"};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct kept {
    _Alignas(8) char state[RANKS][STATE];
    size_t bytes[RANKS];
    float sum[ROUNDS][KINDS][COUNT];
} kept;
static kept *of_first; /* seen by all processes */

static kolo_world *whole;
static kolo_group *all;
static int me;

static int start(rig_rank *r)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20, .transport = "tcp"};
    me = r->rank;
    KOLO_TRY(lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r));
    all = kolo_world_group(whole);
    return 0;
}

static int64_t leave(int64_t bad)
{
    if (bad < 0) diag("rank %d: %s", me, kolo_error_text());
    kolo_world_close(&whole);
    return bad;
}

static int submit(const char *name, const char *compression, float *vector, int64_t rows, int64_t columns,
                  kolo_handle *h)
{
    return kolo_submit(all,
                       &(kolo_request){.what = KOLO_ALLREDUCE,
                                       .name = name,
                                       .out = vector,
                                       .type = KOLO_F32,
                                       .dims = 2,
                                       .dim = {rows, columns},
                                       .compression = compression},
                       h);
}

static int sum(const char *name, const char *compression, float *vector, int64_t rows, int64_t columns)
{
    kolo_handle h;
    KOLO_TRY(submit(name, compression, vector, rows, columns, &h));
    return kolo_wait(whole, h);
}

/* One element a round and rank is sent, so after as many rounds as there are elements nothing waits any
 * more. */
static int64_t many_names(rig_rank *r, int argument)
{
    static float vector[NAMES][SMALL], total[NAMES][SMALL];
    static kolo_handle h[NAMES];
    char name[24];
    int64_t bad = 0;
    (void)argument;
    KOLO_TRY(start(r));
    for (int round = 0; round < SMALL; round++) {
        for (int n = 0; n < NAMES; n++) {
            snprintf(name, sizeof name, "layer%d", n);
            for (int i = 0; i < SMALL; i++) vector[n][i] = round ? 0 : (float)(1 + i + n % 7 + me);
            if (submit(name, "topk:0.25", vector[n], 1, SMALL, &h[n]) < 0) return leave(-1);
        }
        for (int n = 0; n < NAMES; n++) {
            if (kolo_wait(whole, h[n]) < 0) return leave(-1);
            for (int i = 0; i < SMALL; i++) total[n][i] += vector[n][i];
        }
    }
    for (int n = 0; n < NAMES; n++)
        for (int i = 0; i < SMALL; i++) bad += total[n][i] != (float)(3 * (1 + i + n % 7) + 3);
    return leave(bad);
}

/* An element that waits gathers its momentum: 1, 1.5, 1.75 of it a round. */
static int64_t gathers(rig_rank *r, int argument)
{
    int64_t bad = 0;
    (void)argument;
    KOLO_TRY(start(r));
    for (int round = 0; round < 3; round++) {
        float vector[SMALL] = {0, 1, 0, round < 2 ? 100 : 0};
        if (sum("weight", "topk:0.25,momentum=0.5", vector, 1, SMALL) < 0) return leave(-1);
        bad += round < 2 ? vector[1] != 0 || vector[3] != 300
                         : vector[1] != 3 * (1 + 1.5f + 1.75f) || vector[3] != 0;
    }
    /* what waits goes when the name comes back with another shape, and with another compression */
    for (int other = 0; other < 2; other++) {
        float waits[SMALL] = {50, 0, 0, 100}, next[SMALL] = {1, 2, 3, 4};
        if (sum("weight", "topk:0.25,momentum=0.5", waits, 1, SMALL) < 0) return leave(-1);
        if (sum("weight", other ? "topk:0.25,momentum=0.25" : "topk:0.25,momentum=0.5", next, other ? 1 : 2,
                other ? SMALL : SMALL / 2) < 0)
            return leave(-1);
        bad += waits[3] != 300 || waits[0] != 0 || next[3] != 12 || next[0] != 0;
    }
    return leave(bad);
}

static int round_of_all(int round, float (*out)[COUNT])
{
    for (int k = 0; k < KINDS; k++) {
        for (int64_t i = 0; i < COUNT; i++) out[k][i] = world_value(me, i + k, round, false);
        KOLO_TRY(sum(kinds[k], kinds[k], out[k], 20, COUNT / 20));
    }
    return 0;
}

static int64_t first_run(rig_rank *r, int argument)
{
    static float out[KINDS][COUNT];
    (void)argument;
    KOLO_TRY(start(r));
    for (int round = 0; round < ROUNDS; round++) {
        if (round == CUT) {
            void *state;
            size_t bytes;
            if (kolo_group_state_save(all, &state, &bytes) < 0 || bytes > STATE) return leave(-1);
            memcpy(of_first->state[me], state, of_first->bytes[me] = bytes);
            kolo_release_object(&state);
        }
        if (round_of_all(round, out) < 0) return leave(-1);
        if (me == 0) memcpy(of_first->sum[round], out, sizeof out);
    }
    return leave(0);
}

static int64_t second_run(rig_rank *r, int argument)
{
    static float out[KINDS][COUNT];
    int64_t bad = 0;
    (void)argument;
    KOLO_TRY(start(r));
    if (round_of_all(99, out) < 0) return leave(-1); /* what is held back of this goes */
    if (kolo_group_state_restore(all, of_first->state[me], of_first->bytes[me]) < 0) return leave(-1);
    for (int round = CUT; round < ROUNDS; round++) {
        if (round_of_all(round, out) < 0) return leave(-1);
        for (int k = 0; k < KINDS; k++) bad += memcmp(out[k], of_first->sum[round][k], sizeof out[k]) != 0;
    }
    return leave(bad);
}

static bool refuses(const void *state, size_t bytes)
{
    return kolo_group_state_restore(all, state, bytes) == KOLO_EINPUT;
}

/* Nothing that is refused changes anything: the rounds go on as in the first run. */
static int64_t damaged_states(rig_rank *r, int argument)
{
    static float out[KINDS][COUNT];
    static _Alignas(8) char copy[STATE];
    size_t bytes = of_first->bytes[r->rank];
    int64_t bad = 0;
    (void)argument;
    KOLO_TRY(start(r));
    memcpy(copy, of_first->state[me], bytes);
    for (int round = 0; round < CUT; round++)
        if (round_of_all(round, out) < 0) return leave(-1);
    for (size_t cut = 0; cut < bytes; cut += cut < 400 ? 1 : 61) bad += !refuses(copy, cut);
    for (size_t at = 0; at < bytes; at += at < 400 ? 1 : 61) {
        copy[at] ^= 4;
        bad += !refuses(copy, bytes);
        copy[at] ^= 4;
    }
    bad += !refuses(of_first->state[(me + 1) % RANKS], of_first->bytes[(me + 1) % RANKS]) ||
           !strstr(kolo_error_text(), "member");
    bad += !refuses(copy + 1, bytes) + !refuses(NULL, 0);
    for (int round = CUT; round < ROUNDS; round++) {
        if (round_of_all(round, out) < 0) return leave(-1);
        for (int k = 0; k < KINDS; k++) bad += memcmp(out[k], of_first->sum[round][k], sizeof out[k]) != 0;
    }
    return leave(bad);
}

static int64_t joined(rig_rank *r, int argument)
{
    float vector[COUNT] = {0};
    int last;
    int64_t bad = 0;
    (void)argument;
    KOLO_TRY(start(r));
    for (int round = 0; round < 3; round++) {
        vector[7] = vector[8] = 4;
        if (me == 0 && round == 2) break;
        if (sum("weight", "topk:0.001", vector, 1, COUNT) < 0) return leave(-1);
    }
    bad += me && vector[7] != 8 + 8 + 4; /* sent so far: 7 of 4, 8 of 8; rank 0 still held 4 of 7 */
    if (kolo_join(all, &last) < 0) return leave(-1);
    void *state;
    size_t bytes;
    bad += kolo_group_state_save(all, &state, &bytes) < 0 || kolo_group_state_restore(all, state, bytes) < 0;
    kolo_release_object(&state);
    return leave(bad);
}

static int64_t party(const int *node_of, rig_body body)
{
    rig_party p = rig_begin("state", RANKS, node_of, body, 0, 60);
    return rig_end(&p, -1);
}

int main(void)
{
    static const int two[RANKS] = {0, 0, 1}, *const places[] = {NULL, two};
    of_first = mmap(NULL, sizeof *of_first, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int p = 0; p < 2; p++) {
        const char *where = p ? "two nodes" : "one node";
        is_int(party(places[p], many_names), 0, "%s: %d names in turn, and what each holds back comes", where,
               NAMES);
        is_int(party(places[p], gathers), 0, "%s: momentum is asked for in words; another shape begins anew",
               where);
        is_int(party(places[p], first_run), 0, "%s: a run saves on the way", where);
        is_int(party(places[p], second_run), 0, "%s: other processes go on from it with the same bits",
               where);
        is_int(party(places[p], damaged_states), 0,
               "%s: what is damaged or another's is refused and changes nothing", where);
        is_int(party(places[p], joined), 0, "%s: a rank that has joined hands over what it held back", where);
    }
    is_int(rig_leftovers("state"), 0, "no segment is left behind");
    return done_testing();
}
