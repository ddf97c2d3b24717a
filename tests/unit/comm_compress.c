/* Compressed sums among members of one process: error bounds, what stays exact, error feedback, state. */
#include "comm_compress.h"

/* ---- 16 bits ------------------------------------------------------------------------------------------- */

static void test_flat(int kind, double bound)
{
    const int members[] = {2, 3, 8, 17, 64, 512};
    double worst = 0;
    int bad = 0;
    for (int m = 0; m < 6; m++) {
        int64_t n = members[m] > 64 ? 4999 : 20001;
        group *g = group_make(&(comm_compress){.kind = kind}, members[m], n, &(comm_matrix){0, 1, 1, n}, 1);
        fill(g, 0);
        bad += group_run(g) != 0;
        double error = 0, norm = 0;
        for (int64_t i = 0; i < n; i++) {
            double want = sum_of(0, members[m], i);
            error += (g->vector[0][i] - want) * (g->vector[0][i] - want);
            norm += want * want;
        }
        /* two, without others to average with: 3 % more */
        worst = fmax(worst, sqrt(error / norm) / (members[m] == 2 ? 1.03 : 1));
        group_free(g);
    }
    is_int(bad, 0, "%s: the same bits on all of 2 to 512 members", comm_compress_name(kind));
    ok(worst <= bound, "%s: rms error of the sum over 2 to 512 members at most %.1e (%.2e)",
       comm_compress_name(kind), bound, worst);
}

/* ---- every kind ---------------------------------------------------------------------------------------- */

static const comm_compress kinds[] = {
    {.kind = COMM_BF16},
    {.kind = COMM_FP16},
    {.kind = COMM_INT8, .seed = 5},
    {.kind = COMM_TOPK, .density = 0.02},
    {.kind = COMM_TOPK, .density = 0.3, .momentum = 0.9, .warmup = 4, .clip = 3},
    {.kind = COMM_POWERSGD, .rank = 2, .seed = 5},
    {.kind = COMM_POWERSGD, .rank = 2, .seed = 6, .start = 2},
    {.kind = COMM_TOPK, .density = 0.02, .start = 3}};
enum { KINDS = sizeof kinds / sizeof *kinds, COUNT = 7001 };
/* Between, before and behind matrices lie 100 + 9 + 1 + 91 elements that are exact. */
static const comm_matrix matrices[3] = {{100, 2, 50, 16}, {1709, 1, 40, 80}, {4910, 1, 20, 100}};

static bool is_exact(int64_t i)
{
    for (int k = 0; k < 3; k++)
        if (i >= matrices[k].at &&
            i < matrices[k].at + matrices[k].groups * matrices[k].columns * matrices[k].lanes)
            return false;
    return true;
}

static float tree(int first, int n, int64_t i)
{
    if (n == 1) return value(1, first, i);
    int half = 1;
    while (half * 2 < n) half *= 2;
    return tree(first, half, i) + tree(first + half, n - half, i);
}

static void test_exact(void)
{
    int wrong = 0, bad = 0;
    for (int k = 0; k < KINDS; k++)
        for (int members = 1; members <= 9; members++) {
            group *g = group_make(&kinds[k], members, COUNT, matrices, 3);
            for (int round = 0; round < 3; round++) {
                fill(g, 1);
                bad += group_run(g) != 0;
                for (int64_t i = 0; i < COUNT; i++) {
                    float want = is_exact(i) ? tree(0, members, i) : 0;
                    wrong += is_exact(i) && memcmp(&want, &g->vector[members - 1][i], 4);
                }
            }
            group_free(g);
        }
    is_int(bad, 0, "every kind: 1 to 9 members, the same bits on all");
    is_int(wrong, 0, "every kind: what lies in no matrix is the tree's sum, bit for bit");
}

static void test_not_finite(void)
{
    for (int k = 0; k < KINDS; k++) {
        group *g = group_make(&kinds[k], 3, COUNT, matrices, 3);
        int bad = 0, shown = 0, after = 0;
        for (int round = 0; round < 4; round++) {
            fill(g, 2);
            if (round == 1) g->vector[1][200] = NAN, g->vector[2][2000] = INFINITY;
            bad += group_run(g) != 0;
            if (round == 1) shown = !isfinite(g->vector[0][200]) && !isfinite(g->vector[0][2000]);
            for (int64_t i = 0; round > 1 && i < COUNT; i++) after += !isfinite(g->vector[0][i]);
        }
        ok(!bad && shown && !after, "%s: NaN and infinity show, and the next rounds are finite",
           comm_compress_name(kinds[k].kind));
        group_free(g);
    }
}

/* Five rounds, once whole, once with everything made anew after the second. */
static void test_state(void)
{
    for (int k = 0; k < KINDS; k++) {
        group *whole = group_make(&kinds[k], 3, COUNT, matrices, 3),
              *cut = group_make(&kinds[k], 3, COUNT, matrices, 3);
        int bad = 0;
        for (uint64_t round = 0; round < 5; round++) {
            fill(whole, 10 + round);
            fill(cut, 10 + round);
            bad += group_run(whole) != 0 || group_run(cut) != 0;
            bad += memcmp(whole->vector[0], cut->vector[0], COUNT * sizeof(float)) != 0;
            if (round != 1) continue;
            group *again = group_make(&kinds[k], 3, COUNT, matrices, 3);
            for (int v = 0; v < 3; v++) {
                size_t bytes = comm_codec_state_bytes(cut->codec[v]);
                char *state = malloc(bytes);
                comm_codec_save(cut->codec[v], state);
                bad += comm_codec_restore(again->codec[v], state, bytes) != 0;
                bad += comm_codec_restore(again->codec[v], state, bytes - 1) != KOLO_EINPUT;
                free(state);
            }
            group_free(cut);
            cut = again;
        }
        is_int(bad, 0, "%s: five rounds with all made anew and restored after the second have the same bits",
               comm_compress_name(kinds[k].kind));
        group_free(whole);
        group_free(cut);
    }
}

/* What came out over all rounds, and what still waits, is what went in: the last rounds bring nothing, and
 * all is handed over in the end. */
static void test_feedback(const comm_compress *config, const char *name, int rounds, double bound)
{
    enum { N = 4000, MEMBERS = 4, BRING = 6 };
    static double in[N], out[N];
    group *g = group_make(config, MEMBERS, N, &(comm_matrix){0, 1, 50, 80}, 1);
    double left = 0, norm = 0;
    int bad = 0;
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    for (uint64_t round = 0; round < (uint64_t)rounds; round++) {
        for (int v = 0; v < MEMBERS; v++)
            for (int64_t i = 0; i < N; i++)
                in[i] += g->vector[v][i] = round < BRING ? value(40 + round, v, i) : 0;
        bad += group_run(g) != 0;
        for (int64_t i = 0; i < N; i++) out[i] += g->vector[0][i];
    }
    for (int64_t i = 0; i < N; i++) left += (in[i] - out[i]) * (in[i] - out[i]), norm += in[i] * in[i];
    ok(!bad && sqrt(left / norm) < bound,
       "%s: nothing is lost: after %d rounds %.1e of what was brought is still to come", name, rounds,
       sqrt(left / norm));
    group_free(g);
}

/* ---- int8 ---------------------------------------------------------------------------------------------- */

static void test_int8(void)
{
    enum { N = 2000, ROUNDS = 400 };
    static double mean[N];
    group *g =
        group_make(&(comm_compress){.kind = COMM_INT8, .seed = 9}, 3, N, &(comm_matrix){0, 1, 1, N}, 1);
    double worst = 0, bias = 0, size = 0;
    int bad = 0;
    for (int round = 0; round < ROUNDS; round++) {
        fill(g, 3);
        bad += group_run(g) != 0;
        for (int64_t i = 0; i < N; i++) {
            double e = g->vector[0][i] - sum_of(3, 3, i);
            worst = fmax(worst, fabs(e));
            mean[i] += e / ROUNDS;
        }
    }
    for (int64_t i = 0; i < N; i++)
        bias += mean[i] * mean[i] / N, size += sum_of(3, 3, i) * sum_of(3, 3, i) / N;
    /* three roundings of at most 3.5 / 127 and one of the sum's */
    ok(!bad && worst < (3 * 3.5 + 9) / 127, "int8: no error above a unit of the scale a rounding (%.3f)",
       worst);
    ok(sqrt(bias / size) < 1e-3, "int8: the mean of 400 rounds is the sum (%.1e)", sqrt(bias / size));
    is_int(sent_by(g, 0), (5 + 2 * 3) * 65 * 4, "int8: a member sends 65 words a block of 256");
    group_free(g);
}

/* ---- topk ---------------------------------------------------------------------------------------------- */

static int64_t brought(const group *g)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->count; i++) n += g->vector[0][i] != 0;
    return n;
}

static void test_topk(void)
{
    enum { N = 20000 };
    comm_matrix all = {0, 1, 1, N};
    comm_compress fifth = {.kind = COMM_TOPK, .density = 0.2};
    static float alone[7][N];
    int wrong = 0;
    for (int v = 0; v < 7; v++) { /* what each sends */
        group *g = group_make(&fifth, 1, N, &all, 1);
        for (int64_t i = 0; i < N; i++) g->vector[0][i] = value(4, v, i);
        wrong += group_run(g) != 0 || brought(g) > N / 5 || brought(g) < N / 5 * 3 / 4;
        memcpy(alone[v], g->vector[0], sizeof alone[v]);
        float least = INFINITY, most = 0;
        for (int64_t i = 0; i < N; i++) {
            if (alone[v][i] != 0) least = fminf(least, fabsf(alone[v][i]));
            else most = fmaxf(most, fabsf(value(4, v, i)));
            wrong += alone[v][i] != 0 && alone[v][i] != value(4, v, i);
        }
        wrong += most > least;
        group_free(g);
    }
    is_int(wrong, 0, "topk: what is sent is at most a fifth, and larger than all that is not");
    for (int members = 2; members <= 7; members += 5) { /* by doubling, by split and allgather */
        group *g = group_make(&fifth, members, N, &all, 1);
        fill(g, 4);
        wrong = group_run(g) != 0;
        for (int64_t i = 0; i < N; i++) {
            double want = 0;
            for (int v = 0; v < members; v++) want += alone[v][i];
            wrong += fabs(g->vector[0][i] - want) > 1e-5;
        }
        is_int(wrong, 0, "topk: %d members, the sum of what each sends", members);
        group_free(g);
    }
    group *g = group_make(&(comm_compress){.kind = COMM_TOPK, .density = 0.001, .warmup = 8}, 1, N, &all, 1);
    const int64_t want[] = {5000, 5000, 1250, 1250, 313, 313, 79, 79, 20, 20};
    int bad = 0;
    for (int round = 0; round < 10; round++) {
        fill(g, 5);
        bad += group_run(g) != 0 || brought(g) > want[round] || brought(g) < want[round] * 3 / 4;
    }
    is_int(bad, 0, "topk: 1/4, 1/16, ... over the rounds of warm-up, then the density");
    group_free(g);
}

/* An element that waits gathers its momentum: after t rounds of g the sum of (1 - m^s) / (1 -
 * m) g over s = 1 .. t. */
static void test_momentum(void)
{
    enum { N = 100, ROUNDS = 7 };
    group *g = group_make(&(comm_compress){.kind = COMM_TOPK, .density = 0.01, .momentum = 0.5}, 2, N,
                          &(comm_matrix){0, 1, 1, N}, 1);
    int bad = 0;
    double want = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        for (int v = 0; v < 2; v++) {
            memset(g->vector[v], 0, N * sizeof(float));
            g->vector[v][3] = 1;
            if (round < ROUNDS) g->vector[v][70] = 1000;
        }
        want += 2 * (1 - pow(0.5, round)) / 0.5;
        bad += group_run(g) != 0;
        bad += round < ROUNDS ? g->vector[0][70] != 2000 || g->vector[0][3] != 0
                              : fabs(g->vector[0][3] - want) > 1e-5 || g->vector[0][70] != 0;
    }
    is_int(bad, 0, "topk: what waits gathers momentum, what was sent keeps none");
    group_free(g);
    g = group_make(&(comm_compress){.kind = COMM_TOPK, .density = 1, .clip = 4}, 4, N,
                   &(comm_matrix){0, 1, 1, N}, 1);
    for (int v = 0; v < 4; v++)
        for (int i = 0; i < N; i++) g->vector[v][i] = v ? 0.01f : 3;
    bad = group_run(g) != 0;
    ok(!bad && fabs(g->vector[0][0] - (3 * 2.0 / 30 + 0.03)) < 1e-6,
       "topk: a member's norm is held at clip / sqrt(members), smaller ones stay");
    group_free(g);
}

static void test_bytes(void)
{
    for (int k = 0; k < KINDS; k++) {
        if (kinds[k].warmup || kinds[k].start) continue;
        group *g = group_make(&kinds[k], 4, COUNT, matrices, 3);
        fill(g, 6);
        group_run(g);
        double sent = 0, told = comm_compress_bytes(&kinds[k], 4, COUNT, matrices, 3),
               dense = comm_compress_bytes(&(comm_compress){0}, 4, COUNT, matrices, 3);
        for (int v = 0; v < 4; v++) sent += (double)sent_by(g, v) / 4;
        ok(fabs(sent - told) < 0.12 * told && told < dense,
           "%s: sends what is told before, %.0f bytes of %.0f (%.0f told)", comm_compress_name(kinds[k].kind),
           sent, dense, told);
        group_free(g);
    }
}

static void test_cut(void)
{
    comm_matrix part[3];
    int n = comm_matrix_cut(matrices, 3, 500, 2000, part);
    ok(n == 2 && part[0].at == 100 + 800 - 500 && part[0].groups == 1 && part[0].columns == 50 &&
           part[1].at == 1209 && part[1].columns == 9 && part[1].lanes == 80,
       "a part of a vector holds whole groups, or whole columns, of its matrices");
    is_int(comm_matrix_cut(matrices, 3, 0, COUNT, part), 3, "the whole holds all");
    is_int(comm_matrix_cut(matrices, 3, 0, 50, part), 0, "a part before the first none");
}

static void test_wrong(void)
{
    comm_codec *c;
    ok(comm_compress_find("bf17") == KOLO_ECONFIG && strstr(kolo_error_text(), "powersgd"),
       "an unknown kind: the known ones are named");
    ok(comm_codec_make(&c, &(comm_compress){.kind = COMM_TOPK, .density = 0}, 0, 2, 10, NULL, 0) ==
           KOLO_ECONFIG,
       "topk of nothing is refused");
    ok(comm_codec_make(&c, &(comm_compress){.kind = COMM_POWERSGD}, 0, 2, 10, NULL, 0) == KOLO_ECONFIG,
       "powersgd of rank 0 is refused");
    ok(comm_codec_make(&c, &(comm_compress){.kind = COMM_BF16}, 0, 2, 10, &(comm_matrix){4, 1, 1, 7}, 1) ==
           KOLO_EINTERNAL,
       "a matrix that ends behind the vector is refused");
}

int main(void)
{
    test_flat(COMM_FP16, 3e-4);
    test_flat(COMM_BF16, 2.5e-3);
    test_exact();
    test_not_finite();
    test_state();
    test_feedback(&(comm_compress){.kind = COMM_TOPK, .density = 0.05}, "topk", 60, 1e-6);
    test_feedback(&(comm_compress){.kind = COMM_POWERSGD, .rank = 4, .seed = 2}, "powersgd", 200, 0.05);
    test_int8();
    test_topk();
    test_momentum();
    test_bytes();
    test_cut();
    test_wrong();
    return done_testing();
}
