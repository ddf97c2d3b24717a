/* Allreduces of 16-bit elements: what is brought and what is done travel in 16 bits, partial sums in f32.
 * Every algorithm, 1 to 17 members, against the sum of all in f32 in the tree's order, scaled, and rounded
 * once; and how many bytes it sends. */
#include <math.h>

#include "comm/algorithm/stages.h"
#include "comm_virtual.h"

enum { N = 17, MOST = 300 };

static virtual_cluster cluster;

typedef struct half_trial {
    const comm_algorithm_row *row;
    comm_problem p;
    comm_folding how;
    int places; /* 0: out of place, 1: in place, 2: by turns */
    bool exact; /* whole numbers, whose sums any order gives */
} half_trial;

static bool in_place(const half_trial *t, int m) { return t->places == 1 || (t->places == 2 && m % 2 == 0); }

static float value(int member, int64_t i, bool exact)
{
    uint32_t r = kolo_philox(5, (uint64_t)member, (uint64_t)i).v[0];
    return exact ? (float)(int)(r % 7) - 3 : ldexpf((float)(int)(r % 255) - 127, (int)(r >> 8) % 12 - 6);
}

static uint16_t brought(const half_trial *t, int member, int64_t i)
{
    uint16_t bits;
    float v = value(member, i, t->exact);
    comm_narrow(&bits, &v, 1, t->how.type);
    return bits;
}

/* The tree over members node by node, by the definition. */
static float tree(const half_trial *t, const int *order, int first, int n, int64_t i)
{
    if (n > 1) {
        int half = 1;
        while (half * 2 < n) half *= 2;
        return tree(t, order, first, half, i) + tree(t, order, first + half, n - half, i);
    }
    uint16_t bits = brought(t, order[first], i);
    float v;
    comm_widen(&v, &bits, 1, t->how.type);
    return (float)((double)v * t->how.prescale);
}

static uint16_t wanted(const half_trial *t, const int *order, int64_t i)
{
    float sum =
        (float)((double)tree(t, order, 0, t->p.members, i) / (double)t->how.divisor * t->how.postscale);
    uint16_t bits;
    comm_narrow(&bits, &sum, 1, t->how.type);
    return bits;
}

/* Wrong elements and bytes that should not have been written; -1: no end. */
static int64_t run(half_trial *t, bool defined)
{
    comm_schedule schedule[N] = {{0}};
    char *buffer[N][3];
    int order[3 * N + 1];
    int n = t->p.members;
    int64_t bad = 0, count = t->p.count, before = cluster.mismatches;
    comm_number_members(&t->p, order);
    for (int m = 0; m < n; m++) {
        t->p.me = m;
        t->p.in_place = in_place(t, m);
        if (t->row->make(&schedule[m], &t->p) < 0) return -1;
        buffer[m][COMM_SCRATCH] = virtual_memory((size_t)schedule[m].scratch * 4);
        buffer[m][COMM_OWN] = virtual_memory((size_t)count * 2);
        buffer[m][COMM_INPUT] = in_place(t, m) ? buffer[m][COMM_OWN] : virtual_memory((size_t)count * 2);
        for (int64_t i = 0; i < count; i++) ((uint16_t *)(void *)buffer[m][COMM_INPUT])[i] = brought(t, m, i);
    }
    cluster.half = &t->how;
    cluster.delivery = (enum virtual_delivery)(cluster.seed++ % 3);
    bool through = virtual_run(&cluster, schedule, buffer, n, 2, comm_combine_of(KOLO_F32, KOLO_SUM));
    for (int m = 0; m < n; m++) {
        for (int64_t i = 0; through && i < count; i++) {
            uint16_t must = defined ? wanted(t, order, i) : ((uint16_t *)(void *)buffer[0][COMM_OWN])[i];
            bad += ((uint16_t *)(void *)buffer[m][COMM_OWN])[i] != must;
            bad += !in_place(t, m) && ((uint16_t *)(void *)buffer[m][COMM_INPUT])[i] != brought(t, m, i);
        }
    }
    for (int m = 0; m < n; m++) {
        bad += virtual_release(buffer[m][COMM_SCRATCH], (size_t)schedule[m].scratch * 4);
        bad += virtual_release(buffer[m][COMM_OWN], (size_t)count * 2);
        if (!in_place(t, m)) bad += virtual_release(buffer[m][COMM_INPUT], (size_t)count * 2);
        comm_schedule_free(&schedule[m]);
    }
    return !through || cluster.mismatches != before ? -1 : bad;
}

static int64_t vary(half_trial *t)
{
    static const int64_t counts[] = {0, 1, 16, 35, MOST};
    static const comm_folding hows[] = {{KOLO_BF16, KOLO_SUM, true, 1, 1, 1},
                                        {KOLO_F16, KOLO_SUM, true, 3, .5, 1.25}};
    int node_of[N];
    static double links[N * N];
    int64_t bad = 0;
    for (int i = 0; i < N * N; i++) links[i] = 1 + i * 7 % 5;
    t->p.links = links;
    for (int map = 0; map < 4; map++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int i = 0; i < t->p.members; i++)
                node_of[i] = map == 1 ? i / 4 : map == 2 ? i % 3 : i * i / 20;
            t->p.node_of = map ? node_of : NULL;
            t->p.count = counts[c];
            t->places = (int)(c + (size_t)map) % 3;
            t->how = hows[(c + (size_t)map) % 2];
            if (!t->row->fits(&t->p) || (map && strcmp(t->row->name, "packed_trees") == 0)) continue;
            t->exact = !t->row->ordered(&t->p);
            int64_t wrong = run(t, true);
            if (wrong)
                diag("%s: %d members, count %d, map %d, places %d: %d", t->row->name, t->p.members,
                     (int)t->p.count, map, t->places, (int)wrong);
            bad |= wrong;
        }
    return bad;
}

static void every_algorithm(void)
{
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        int64_t bad = 0;
        comm_radices k;
        if (row->what != KOLO_ALLREDUCE || strcmp(row->name, "push") == 0) continue;
        bool packs = strcmp(row->name, "packed_trees") == 0;
        for (int n = 1; n <= N; n += packs && n > 5 ? 5 : 1) {
            half_trial t = {.row = row,
                            .p = {.what = KOLO_ALLREDUCE, .members = n, .width = 2, .half = true}};
            bad |= vary(&t);
            for (int i = 0; row->radices && comm_radices_try(n, i, &k); i++) {
                t.p.radix = k;
                bad |= vary(&t);
            }
        }
        is_int(bad, 0, "%s: sums of f32, rounded once", row->name);
    }
}

/* Bytes that all members send together. */
static int64_t sent(const char *name, int n, const int *node_of, bool half)
{
    const comm_algorithm_row *row = comm_algorithm_named(KOLO_ALLREDUCE, name);
    int64_t bytes = 0;
    for (int m = 0; m < n; m++) {
        comm_schedule s = {0};
        comm_problem p = {.what = KOLO_ALLREDUCE,
                          .me = m,
                          .members = n,
                          .count = 960 * 17,
                          .width = half ? 2 : 4,
                          .half = half,
                          .node_of = node_of};
        if (row->make(&s, &p) < 0) return -1;
        for (int64_t i = 0; i < s.actions; i++)
            if (s.action[i].kind == COMM_SEND)
                bytes += s.action[i].count * (!half || s.action[i].left.buffer == COMM_SCRATCH ? 4 : 2);
        comm_schedule_free(&s);
    }
    return bytes;
}

/* Of the 2 x 4 bytes an element that a sum in f32 moves. */
static void fewer_bytes(void)
{
    int block[16];
    for (int i = 0; i < 16; i++) block[i] = i / 4;
    static const struct {
        const char *name;
        double most;
    } rows[] = {{"direct", .5},     {"one_shot", .5}, {"rabenseifner", .64}, {"butterfly", .55},
                {"two_level", .55}, {"ring", .76},    {"binary_blocks", .76}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double share =
            (double)sent(rows[r].name, 16, block, true) / (double)sent(rows[r].name, 16, block, false);
        ok(share > .49 && share <= rows[r].most,
           "%s: %.3f of the bytes of sums that travel in f32, at most %.2f", rows[r].name, share,
           rows[r].most);
    }
    is_int(sent("direct", 2, NULL, true), 960 * 17 * 2 * 2,
           "two members: each sends half of what it brings, and half of what comes out");
}

/* The choice sees how long messages are: few members exchange 16 bits only. */
static void by_cost(void)
{
    comm_selector *s = NULL;
    int apart[16];
    int64_t bad = 0;
    comm_selector_open(&s, NULL, NULL);
    const comm_cost *c = comm_selector_costs(s);
    for (int i = 0; i < 16; i++) apart[i] = i;
    for (int n = 2; n <= 16; n++)
        for (int64_t count = 1; count < 1 << 27; count *= 9) {
            comm_problem p = {.what = KOLO_ALLREDUCE,
                              .members = n,
                              .count = count,
                              .width = 2,
                              .half = true,
                              .node_of = apart},
                         wide = p;
            const comm_algorithm_row *row = comm_algorithm_select(&p, s);
            wide.half = false;
            wide.width = 4;
            bad += !row->ordered(&p) ||
                   row->cost(&p, c) > comm_algorithm_select(&wide, s)->cost(&wide, c) * 1.03;
        }
    is_int(bad, 0, "whatever is chosen costs no more than the same sum in f32");
    comm_problem two = {
        .what = KOLO_ALLREDUCE, .members = 2, .count = 1 << 24, .width = 2, .half = true, .node_of = apart};
    const char *name = comm_algorithm_select(&two, s)->name;
    ok(!strcmp(name, "direct") || !strcmp(name, "rabenseifner"), "32 MiB on two nodes: halves (%s)", name);
    comm_selector_close(&s);
}

int main(void)
{
    every_algorithm();
    fewer_bytes();
    by_cost();
    is_int(cluster.mismatches, 0, "every message meets one of its size");
    virtual_close(&cluster);
    return done_testing();
}
