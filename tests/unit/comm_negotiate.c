/* Names in any order on any member, by all members in one process: everybody begins the same batches, fails
 * the same names, and falls silent. */
#include "comm_negotiate.h"

static const lib_core_config plain = {.capacity = 16, .fusion_bytes = 400, .stall_warning = -1};

/* ---- random programs: every member does the same things in an order of its own ------------------------- */

enum { OPS = 24 };
typedef struct op {
    int names[4], count; /* a bundle if more than one */
    enum kolo_collective what;
    int64_t dim;
    int odd; /* this member brings something else; -1: nobody */
} op;

typedef struct program {
    play *p;
    op ops[OPS];
    bool done[PLAY_MAX][OPS], busy[PLAY_MAX][PLAY_NAMES];
    int left[PLAY_MAX];
} program;

static void deal(program *g, int round)
{
    play *p = g->p;
    bool used[PLAY_NAMES] = {false};
    for (int i = 0; i < OPS; i++) {
        op *o = &g->ops[i];
        *o = (op){.count = play_draw(p, 5) ? 1 : 2 + (int)play_draw(p, 3),
                  .odd = play_draw(p, 40) ? -1 : (int)play_draw(p, (uint32_t)p->members)};
        for (int k = 0; k < o->count; k++) {
            do o->names[k] = (int)play_draw(p, PLAY_NAMES);
            while (used[o->names[k]]);
            used[o->names[k]] = true;
        }
        uint32_t kind = play_draw(p, 8);
        o->what = o->count > 1 || kind < 5 ? KOLO_ALLREDUCE
                  : kind == 5              ? KOLO_ALLGATHER
                  : kind == 6              ? KOLO_BROADCAST
                                           : KOLO_BARRIER;
        o->dim = o->what == KOLO_BARRIER ? 1 : 4 + o->names[0] + (round % 7 == 0 ? 100 : 0);
    }
}

static void submit_op(program *g, int m, const op *o)
{
    play_entry *entry[4];
    char name[32];
    for (int k = 0; k < o->count; k++) {
        snprintf(name, sizeof name, "layer.%d.weight", o->names[k]);
        int64_t dim = o->dim + (o->odd == m) + (o->what == KOLO_ALLGATHER ? m : 0);
        entry[k] = play_entry_make(g->p, m, name, o->what, dim);
        if (o->odd == m && o->what == KOLO_ALLGATHER) entry[k]->e.r.type = KOLO_F64;
    }
    play_submit(g->p, m, entry, o->count);
}

/* One thing somewhere: a request, a message that arrives, or a word. */
static void step(program *g)
{
    play *p = g->p;
    int m = (int)play_draw(p, (uint32_t)p->members);
    switch (play_draw(p, 4)) {
    case 0:
        for (int tries = 0; g->left[m] && tries < 4; tries++) {
            int i = (int)play_draw(p, OPS);
            if (g->done[m][i]) continue;
            submit_op(g, m, &g->ops[i]);
            g->done[m][i] = true;
            g->left[m]--;
            break;
        }
        break;
    case 1: play_speak(p, m); break;
    default: play_deliver(p, m); break;
    }
}

static long run_program(int members, int per_node, uint64_t seed, int rounds, const lib_core_config *config)
{
    static play p;
    play_open(&p, members, per_node, seed, config);
    program *g = calloc(1, sizeof *g);
    g->p = &p;
    long odd = 0, ops = 0, waiting = 0;
    for (int r = 0; r < rounds; r++) {
        deal(g, r);
        for (int i = 0; i < OPS; i++)
            odd +=
                (g->ops[i].odd >= 0 && members > 1 && g->ops[i].what != KOLO_BARRIER) ? g->ops[i].count : 0;
        for (int m = 0; m < members; m++) {
            g->left[m] = OPS;
            memset(g->done[m], 0, sizeof g->done[m]);
        }
        for (bool more = true; more;) {
            step(g);
            more = false;
            for (int m = 0; m < members; m++) more |= g->left[m] > 0;
        }
        /* the next round may begin while messages of this one are on their way, so names must be free: only
         * what is under way is waited for */
        for (bool more = true; more;) {
            step(g);
            more = false;
            for (int m = 0; m < members; m++) more |= p.m[m].under_way > 0;
        }
        ops += OPS * members;
    }
    play_settle(&p);
    for (int m = 0; m < members; m++) waiting += p.m[m].under_way;
    ok(play_same(&p, false) && p.m[0].begun.lines > 0,
       "%d members, %d a node, %ld requests: the same batches everywhere (%ld lines)", members, per_node, ops,
       p.m[0].begun.lines);
    long failures = p.m[0].failed.lines;
    for (int m = 1; m < members; m++) failures = p.m[m].failed.lines == failures ? failures : -1;
    ok(waiting == 0 && failures == odd, "and every name that differed failed once on everybody (%ld of %ld)",
       failures, odd);
    long sent = p.sent;
    p.now += 1000;
    play_settle(&p);
    is_int(p.sent, sent, "then nobody says a word");
    play_close(&p);
    free(g);
    return ops;
}

/* ---- single behaviours --------------------------------------------------------------------------------- */

static void test_cached(void)
{
    static play p;
    play_open(&p, 3, 3, 1, &plain);
    for (int m = 0; m < 3; m++) play_one(&p, m, "w", KOLO_ALLREDUCE, 8);
    play_settle(&p);
    size_t bytes = 0;
    long sent = p.sent;
    for (int m = 0; m < 3; m++) play_one(&p, m, "w", KOLO_ALLREDUCE, 8);
    for (int m = 1; m < 3; m++) {
        play_speak(&p, m);
        bytes = p.m[m].up.size;
        play_deliver(&p, 0);
    }
    while (p.m[0].begun.lines < 2) play_speak(&p, 0);
    play_settle(&p);
    is_int(p.m[2].begun.lines, 2, "a name that comes back begins again");
    is_int(p.sent - sent, 4, "a message up and one down a member");
    ok(bytes <= 64, "of a few bytes (%zu)", bytes);
    play_close(&p);
}

static void test_bundle(void)
{
    static play p;
    play_open(&p, 2, 2, 2, &plain);
    play_entry *pair[2];
    for (int k = 0; k < 2; k++) pair[k] = play_entry_make(&p, 0, k ? "b" : "a", KOLO_ALLREDUCE, 8);
    play_submit(&p, 0, pair, 2);
    play_settle(&p);
    for (int k = 0; k < 2; k++) pair[k] = play_entry_make(&p, 1, k ? "b" : "a", KOLO_ALLREDUCE, 8);
    play_one(&p, 0, "c", KOLO_ALLREDUCE, 8);
    play_one(&p, 1, "c", KOLO_ALLREDUCE, 8);
    play_settle(&p);
    is_int(p.m[0].begun.lines, 1, "a bundle waits until it is whole everywhere; others do not wait for it");
    play_submit(&p, 1, pair, 2);
    play_settle(&p);
    ok(p.m[1].begun.text && strstr(p.m[1].begun.text, "0/2 a") && strstr(p.m[1].begun.text, "1/2 b"),
       "then it begins, fused");
    for (int k = 0; k < 2; k++) pair[k] = play_entry_make(&p, 0, k ? "b" : "a", KOLO_ALLREDUCE, 8);
    play_submit(&p, 0, pair, 2);
    play_one(&p, 1, "a", KOLO_ALLREDUCE, 8);
    play_settle(&p);
    ok(p.m[0].under_way == 0 && p.m[1].under_way == 0 && p.m[0].failed.lines == 2 && p.m[1].failed.lines == 1,
       "grouped on one member and alone on another: both fail");
    is_text(p.m[1].text,
            "\"a\" is not the same on all ranks of group 0, nothing was sent: "
            "rank 0: allreduce of 8 f32, sum grouped with 1 others (\"b\"); rank 1: allreduce of 8 f32, sum",
            "and say why");
    play_one(&p, 1, "b", KOLO_ALLREDUCE, 8);
    play_settle(&p);
    ok(p.m[1].failed.lines == 2 && p.m[1].under_way == 0 && p.m[0].failed.lines == 2,
       "what comes late has failed with them");
    for (int m = 0; m < 2; m++) play_one(&p, m, "b", KOLO_ALLREDUCE, 8);
    play_settle(&p);
    ok(p.m[0].under_way == 0 && p.m[1].under_way == 0 && p.m[0].failed.lines == 2 && play_same(&p, false),
       "after that the name is good again");
    for (int m = 0; m < 2; m++) {
        for (int k = 0; k < 2; k++)
            pair[k] = play_entry_make(&p, m, k ? "b" : "a", KOLO_ALLREDUCE, k && m ? 9 : 8);
        play_submit(&p, m, pair, 2);
        play_settle(&p);
    }
    is_text(p.m[0].text,
            "\"b\" is not the same on all ranks of group 0, nothing was sent: "
            "rank 0: allreduce of 8 f32, sum grouped with 1 others (\"a\"); "
            "rank 1: allreduce of 9 f32, sum grouped with 1 others (\"a\")",
            "what differs in a bundle is what is told of, though it is not its first");
    play_close(&p);
}

static void test_mismatch(void)
{
    static play p;
    play_open(&p, 5, 2, 3, &plain);
    for (int round = 0; round < 2; round++)
        for (int m = 0; m < 5; m++)
            play_one(&p, m, "w", KOLO_ALLREDUCE, round && m == 3 ? 9 : 8), play_settle(&p);
    ok(p.m[4].begun.lines == 1 && play_same(&p, true) && p.m[4].failed.lines == 1,
       "another shape on one member under a known name fails on all");
    is_text(p.m[0].text,
            "\"w\" is not the same on all ranks of group 0, nothing was sent: "
            "rank 0-2, 4: allreduce of 8 f32, sum; rank 3: allreduce of 9 f32, sum",
            "with what each brought");
    for (int m = 0; m < 5; m++) play_one(&p, m, "w", KOLO_ALLREDUCE, 9), play_settle(&p);
    ok(p.m[1].begun.lines == 2 && play_same(&p, false), "another shape on all is no failure");
    for (int m = 0; m < 5; m++) {
        play_entry *e = play_entry_make(&p, m, "bad", KOLO_ALLREDUCE, 8);
        e->e.fault = "the 3rd dimension is negative";
        play_submit(&p, m, &e, 1);
    }
    play_settle(&p);
    ok(play_same(&p, true) && strstr(p.m[2].text, "\"bad\": ") && p.m[2].failed.lines == 2,
       "what is wrong in itself fails everywhere (%s)", p.m[2].text);
    play_close(&p);
}

static void test_join(void)
{
    static play p;
    enum { N = 4 };
    play_open(&p, N, 2, 4, &plain);
    char name[16];
    /* member m has 2 + m rounds of three names; names are known after the first */
    for (int round = 0; round < 2 + N; round++)
        for (int m = 0; m < N; m++) {
            if (round == 2 + m) {
                play_entry *e = play_entry_make(&p, m, "", KOLO_JOIN, 0);
                play_submit(&p, m, &e, 1);
            }
            for (int k = 0; k < 3 && round < 2 + m; k++) {
                snprintf(name, sizeof name, k == 2 ? "%d.%d" : "w%d", k, round);
                play_one(&p, m, name, KOLO_ALLREDUCE, 5);
            }
            if (m == N - 1) play_settle(&p);
        }
    play_settle(&p);
    long joined = 0;
    int last = p.m[0].last;
    for (int m = 0; m < N; m++) joined += p.m[m].joined == 1 && p.m[m].last == last;
    ok(joined == N && last == N - 1, "all have joined, and know who was last (%d)", last);
    ok(play_same(&p, false), "those who had joined begin the same batches");
    ok(strstr(p.m[0].begun.text, " of 1 rows") && strstr(p.m[0].begun.text, " of 3 rows"),
       "which count who brings data");
    for (int m = 0; m < N; m++) play_one(&p, m, "w0", KOLO_ALLREDUCE, 5);
    play_settle(&p);
    ok(p.m[N - 1].under_way == 0 && play_same(&p, false), "after that all take part again");
    play_close(&p);
}

static void test_join_others(void)
{
    static play p;
    play_open(&p, 3, 3, 5, &plain);
    for (int m = 0; m < 3; m++) play_one(&p, m, "b", KOLO_BROADCAST, 5);
    play_settle(&p);
    play_entry *e = play_entry_make(&p, 1, "", KOLO_JOIN, 0);
    play_submit(&p, 1, &e, 1);
    play_one(&p, 0, "b", KOLO_BROADCAST, 5);
    play_one(&p, 2, "b", KOLO_BROADCAST, 5);
    play_one(&p, 0, "g", KOLO_ALLGATHER, 5);
    play_one(&p, 2, "g", KOLO_ALLGATHER, 5);
    play_settle(&p);
    ok(p.m[0].failed.lines == 2 && p.m[2].failed.lines == 2 && p.m[1].failed.lines == 0,
       "other collectives fail on those who ask, known or not");
    ok(strstr(p.m[2].text, "rank 1 of group 0 joined"), "and say who has joined: %s", p.m[2].text);
    for (int m = 0; m < 3; m += 2) {
        e = play_entry_make(&p, m, "", KOLO_JOIN, 0);
        play_submit(&p, m, &e, 1);
    }
    play_settle(&p);
    for (int m = 0; m < 3; m++) play_one(&p, m, "b", KOLO_BROADCAST, 5);
    play_settle(&p);
    ok(p.m[1].begun.lines == 2 && p.m[1].under_way == 0, "and work again when all have");
    play_close(&p);
}

static void test_fixed(void)
{
    char *first = NULL;
    int same = 1;
    lib_core_config config = plain;
    config.fixed_order = true;
    for (uint64_t seed = 0; seed < 12; seed++) {
        static play p;
        play_open(&p, 4, 2, 100 + seed, &config);
        for (int round = 0; round < 6; round++) {
            int at[4] = {0};
            for (int left = 4 * 8; left;) {
                int m = (int)play_draw(&p, 4), turn = at[m];
                if (play_draw(&p, 3) == 0)
                    play_speak(&p, (int)play_draw(&p, 4)), play_deliver(&p, (int)play_draw(&p, 4));
                if (turn == 8) continue;
                char name[16];
                /* member 0 in the same order in all runs */
                int k = m == 0 ? turn : (turn * 3 + (int)seed) % 8;
                snprintf(name, sizeof name, "t%d", k);
                play_one(&p, m, name, KOLO_ALLREDUCE, 4);
                at[m]++;
                left--;
            }
            play_settle(&p);
        }
        same &= play_same(&p, false);
        if (!first) first = strdup(p.m[0].begun.text);
        else same &= strcmp(first, p.m[0].begun.text) == 0;
        play_close(&p);
    }
    ok(same, "fixed order: the same batches in every run, whatever comes first elsewhere");
    ok(strstr(first, "1.0/1 t0") && strstr(first, "48.0/1 t7") && !strstr(first, "/2"),
       "in the first member's order, one by one");
    free(first);
}

static void test_stall(void)
{
    static play p;
    lib_core_config config = plain;
    config.stall_end = 5;
    play_open(&p, 4, 2, 9, &config);
    for (int m = 0; m < 4; m++) play_one(&p, m, "known", KOLO_ALLREDUCE, 4);
    play_settle(&p);
    for (int m = 0; m < 3; m++) {
        play_one(&p, m, "known", KOLO_ALLREDUCE, 4);
        play_one(&p, m, "new", KOLO_ALLREDUCE, 4);
    }
    play_settle(&p);
    is_int(p.m[0].failed.lines, 0, "names wait for their last member");
    for (int i = 0; i < 12; i++) p.now += 0.6, play_settle(&p);
    ok(p.m[0].failed.lines == 2 && p.m[2].failed.lines == 2 && p.m[3].failed.lines == 0,
       "given up after stall_end by those who have them");
    ok(strstr(p.m[0].text, "rank 3 of group 0 did not submit it"), "they know for whom they waited: %s",
       p.m[0].text);
    for (int m = 0; m < 3; m++) play_one(&p, m, "known", KOLO_ALLREDUCE, 4); /* a step further */
    play_one(&p, 3, "new", KOLO_ALLREDUCE, 4);
    play_one(&p, 3, "known", KOLO_ALLREDUCE, 4);
    play_settle(&p);
    ok(p.m[3].failed.lines == 2 && p.m[3].under_way == 0 && p.m[0].under_way == 1,
       "the late one fails too, and is not taken for a step that it is behind");
    play_one(&p, 3, "known", KOLO_ALLREDUCE, 4);
    play_settle(&p);
    ok(p.m[0].under_way == 0 && p.m[3].under_way == 0 && play_same(&p, false),
       "its next one is the others' next one");
    play_close(&p);
}

int main(void)
{
    lib_core_config none = plain, few = plain, much = plain;
    none.capacity = 0;
    few.capacity = 3;
    much.capacity = 200;
    much.fusion_bytes = 1;
    long ops = 0;
    ops += run_program(1, 1, 11, 20, &plain);
    ops += run_program(2, 2, 12, 50, &much);
    ops += run_program(3, 1, 13, 30, &few);
    ops += run_program(4, 2, 14, 30, &none);
    ops += run_program(7, 3, 15, 20, &plain);
    ops += run_program(33, 1, 16, 4, &much);
    diag("%ld requests", ops);
    test_cached();
    test_bundle();
    test_mismatch();
    test_join();
    test_join_others();
    test_fixed();
    test_stall();
    return done_testing();
}
