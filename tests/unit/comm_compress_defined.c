/* Compressions against their definitions: PowerSGD against the paper's algorithm in f64, what is asked in
 * words, groups of any size. */
#include "comm_compress.h"

/* ---- powersgd ------------------------------------------------------------------------------------------ */

static float of_rank_two(int member, int64_t row, int64_t column)
{
    float sum = 0; /* the same two columns and rows on all members, mixed otherwise */
    for (uint64_t r = 0; r < 2; r++) sum += value(60 + r, 0, row) * value(70 + r, member, column);
    return sum;
}

static void test_powersgd(void)
{
    enum { HIGH = 64, WIDE = 90, N = HIGH * WIDE, MEMBERS = 4, LANES = 16 };
    comm_matrix plain = {0, 1, HIGH, WIDE}, blocked = {0, HIGH / LANES, WIDE, LANES};
    for (int form = 0; form < 2; form++) {
        group *g = group_make(&(comm_compress){.kind = COMM_POWERSGD, .rank = 2, .seed = 1}, MEMBERS, N,
                              form ? &blocked : &plain, 1);
        double error = 0, norm = 0;
        for (int v = 0; v < MEMBERS; v++)
            for (int64_t i = 0; i < HIGH; i++)
                for (int64_t k = 0; k < WIDE; k++)
                    g->vector[v][form ? (i / LANES * WIDE + k) * LANES + i % LANES : i * WIDE + k] =
                        of_rank_two(v, i, k);
        int rc = group_run(g);
        for (int64_t i = 0; i < HIGH; i++)
            for (int64_t k = 0; k < WIDE; k++) {
                double want = 0;
                for (int v = 0; v < MEMBERS; v++) want += of_rank_two(v, i, k);
                double e =
                    g->vector[0][form ? (i / LANES * WIDE + k) * LANES + i % LANES : i * WIDE + k] - want;
                error += e * e, norm += want * want;
            }
        ok(rc == 0 && sqrt(error / norm) < 1e-5, "powersgd: a matrix of rank 2 comes out whole, %s (%.1e)",
           form ? "in blocks of 16 rows" : "row by row", sqrt(error / norm));
        is_int(sent_by(g, 0), 2 * 2 * (HIGH + WIDE) * 4, "powersgd: and %d words were sent twice",
               2 * (HIGH + WIDE));
        group_free(g);
    }
}

/* Vogels et al. 2019, algorithms 1 and 2, of the sum that all members bring (P and Q are
 * linear in it), in f64. */
enum { ROWS = 24, COLUMNS = 30, RANK = 3 }; /* of the matrix */
typedef struct paper {
    double error[ROWS][COLUMNS], q[COLUMNS][RANK], out[ROWS][COLUMNS];
} paper;

static void paper_orthonormalise(double (*p)[RANK], int rows)
{
    for (int r = 0; r < RANK; r++) {
        for (int s = 0; s < r; s++) {
            double dot = 0;
            for (int i = 0; i < rows; i++) dot += p[i][r] * p[i][s];
            for (int i = 0; i < rows; i++) p[i][r] -= dot * p[i][s];
        }
        double norm = 0;
        for (int i = 0; i < rows; i++) norm += p[i][r] * p[i][r];
        for (int i = 0; i < rows; i++) p[i][r] /= sqrt(norm);
    }
}

static void paper_round(paper *a, double (*m)[COLUMNS])
{
    double p[ROWS][RANK] = {0};
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++) {
            a->error[i][k] += m[i][k];
            for (int r = 0; r < RANK; r++) p[i][r] += a->error[i][k] * a->q[k][r];
        }
    paper_orthonormalise(p, ROWS);
    memset(a->q, 0, sizeof a->q);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++)
            for (int r = 0; r < RANK; r++) a->q[k][r] += a->error[i][k] * p[i][r];
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++) {
            a->out[i][k] = 0;
            for (int r = 0; r < RANK; r++) a->out[i][k] += p[i][r] * a->q[k][r];
            a->error[i][k] -= a->out[i][k];
        }
}

/* What the members have after a round: the count of rounds; what is lost, stored as the matrix is;
 * Q, column by column. */
static void paper_begin(paper *a, const group *g, int lanes)
{
    memset(a, 0, sizeof *a);
    for (int v = 0; v < g->members; v++) {
        float *state = malloc(comm_codec_state_bytes(g->codec[v])), *error = state + 2,
              *q = error + ROWS * COLUMNS;
        comm_codec_save(g->codec[v], state);
        for (int i = 0; i < ROWS; i++)
            for (int k = 0; k < COLUMNS; k++)
                a->error[i][k] += error[(i / lanes * COLUMNS + k) * lanes + i % lanes];
        for (int k = 0; k < COLUMNS; k++)
            for (int r = 0; r < RANK; r++) a->q[k][r] = q[r * COLUMNS + k];
        free(state);
    }
}

static void test_paper(void)
{
    enum { MEMBERS = 3, ROUNDS = 8, N = ROWS * COLUMNS, LANES = 8 };
    const comm_matrix blocked = {0, ROWS / LANES, COLUMNS, LANES};
    static paper a;
    double worst = 0, sum[ROWS][COLUMNS];
    int bad = 0;
    group *g =
        group_make(&(comm_compress){.kind = COMM_POWERSGD, .rank = RANK, .seed = 4}, MEMBERS, N, &blocked, 1);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        memset(sum, 0, sizeof sum);
        for (int v = 0; v < MEMBERS; v++)
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t k = 0; k < COLUMNS; k++) {
                    float x = value(80 + round / 2, v, i * COLUMNS + k); /* some comes twice */
                    g->vector[v][(i / LANES * COLUMNS + k) * LANES + i % LANES] = x;
                    sum[i][k] += x;
                }
        bad += group_run(g) != 0;
        if (round == 0) { /* from where its Q is known */
            paper_begin(&a, g, LANES);
            continue;
        }
        paper_round(&a, sum);
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t k = 0; k < COLUMNS; k++)
                worst = fmax(worst,
                             fabs(g->vector[0][(i / LANES * COLUMNS + k) * LANES + i % LANES] - a.out[i][k]));
    }
    ok(!bad && worst < 1e-4, "powersgd: round for round what the paper's algorithm gives in f64 (%.1e)",
       worst);
    group_free(g);
}

/* Q alone overflows: the round is no number, and nothing of it comes back. A matrix of one rank
 * is then what it was. */
static void test_overflow(void)
{
    enum { MEMBERS = 2, TALL = 64, N = 2 * TALL };
    int wrong[3] = {0};
    group *g = group_make(&(comm_compress){.kind = COMM_POWERSGD, .rank = 1, .seed = 4}, MEMBERS, N,
                          &(comm_matrix){0, 1, 2, TALL}, 1);
    for (int round = 0; round < 3; round++) {
        for (int v = 0; v < MEMBERS; v++)
            for (int i = 0; i < N; i++) g->vector[v][i] = round == 0 ? 1e38f : (float)(1 + i % TALL);
        bool fails = group_run(g) != 0;
        for (int i = 0; i < N; i++)
            wrong[round] +=
                fails || !(fabsf(g->vector[0][i] - (float)(MEMBERS * (1 + i % TALL))) < 1e-3f * TALL);
    }
    ok(wrong[0] == N && !wrong[1] && !wrong[2],
       "powersgd: after a round that overflows the next ones are right (%d, %d, %d)", wrong[0], wrong[1],
       wrong[2]);
    group_free(g);
}

static void test_words(void)
{
    static const char *const wrong[] = {"",
                                        "topk:",
                                        "topk:0",
                                        "topk:2",
                                        "topk:0.1x",
                                        "topk:0.1,",
                                        "topk:0.1,0.2",
                                        "topk:rank=2",
                                        "topk:clip=-1",
                                        "topk: 0.1",
                                        "topk:nan",
                                        "topk:warmup=.5",
                                        "bf16:1",
                                        "powersgd:0",
                                        "powersgd:1e30",
                                        "topk=0.1",
                                        "topk:momentum=1",
                                        "powersgd:2.5",
                                        "topk,0.1",
                                        "topk:density",
                                        "topk:start=5,momentum=.9"};
    comm_compress c;
    int bad = 0;
    ok(comm_compress_parse(&c, "topk:0.02,momentum=0.9,clip=4,warmup=100") == 0 && c.kind == COMM_TOPK &&
           c.density == 0.02 && c.momentum == 0.9 && c.clip == 4 && c.warmup == 100,
       "topk in words, with all it takes");
    ok(comm_compress_parse(&c, "topk:warmup=7") == 0 && c.density == 0.01 && c.momentum == 0 &&
           c.warmup == 7 && comm_compress_parse(&c, "topk") == 0 && c.density == 0.01,
       "what is not named has its default");
    ok(comm_compress_parse(&c, "powersgd:3") == 0 && c.rank == 3 &&
           comm_compress_parse(&c, "powersgd:rank=5,start=9") == 0 && c.rank == 5 && c.start == 9 &&
           comm_compress_parse(&c, "powersgd") == 0 && c.rank == 4,
       "powersgd in words");
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
        bool refused = comm_compress_parse(&c, wrong[i]) < 0;
        if (!refused) diag("\"%s\" was taken", wrong[i]);
        bad += !refused;
    }
    is_int(bad, 0, "%d wrong ones are refused", (int)(sizeof wrong / sizeof *wrong));
}

/* A fold takes 512 vectors; only sums of 16 bits are one. */
static void test_many(void)
{
    enum { N = 40, MEMBERS = 520 };
    const comm_matrix matrix = {0, 1, 8, 5};
    const comm_compress some[] = {
        {.kind = COMM_INT8}, {.kind = COMM_TOPK, .density = 1}, {.kind = COMM_POWERSGD, .rank = 2}};
    comm_codec *c;
    for (int k = 0; k < 3; k++) {
        group *g = group_make(&some[k], MEMBERS, N, &matrix, 1);
        int bad = g == NULL;
        for (int v = 0; !bad && v < MEMBERS; v++)
            for (int i = 0; i < N; i++) g->vector[v][i] = (float)((i / 5 + 1) * (i % 5 + 1)); /* of rank 1 */
        bad = bad || group_run(g) != 0;
        for (int i = 0; !bad && i < N; i++) {
            double want = MEMBERS * (i / 5 + 1) * (i % 5 + 1);
            bad += fabs(g->vector[0][i] - want) > 0.05 * MEMBERS * 40;
        }
        is_int(bad, 0, "%s: %d members", comm_compress_name(some[k].kind), MEMBERS);
        if (g) group_free(g);
    }
    ok(comm_codec_make(&c, &(comm_compress){.kind = COMM_FP16}, 0, MEMBERS, N, &matrix, 1) == KOLO_ECONFIG &&
           strstr(kolo_error_text(), "512"),
       "fp16: at most 512 members, which is said");
}

int main(void)
{
    test_powersgd();
    test_paper();
    test_many();
    test_overflow();
    test_words();
    return done_testing();
}
