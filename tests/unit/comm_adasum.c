/* Adasum among 2 to 9 members of one process: outside figures, the properties it is named
 * for, Horovod's cases. */
#include "comm/core/adasum.h"

#include <float.h>

#include "base/philox.h"
#include "comm_members.h"
#include "golden_file.h"
#include "kolo/error.h"

enum { MOST = 9 };

typedef struct group {
    int members;
    enum kolo_dtype type;
    int64_t total;
    comm_schedule adasum[MOST];
    char *buffer[MOST][COMM_PART];
} group;

static void begin(void *of, int v, comm_run *run)
{
    group *g = of;
    run->buffer = g->buffer[v];
    run->schedule = &g->adasum[v];
    run->width = kolo_dtype_size(g->type);
    run->combine = comm_combine_of(g->type, KOLO_SUM);
}

/* vector[v] becomes the result. Negative: it did not work. */
static int adasum(int members, enum kolo_dtype type, const int64_t *count, int tensors, void *const *vector)
{
    group g = {.members = members, .type = type};
    int rc = 0;
    for (int v = 0; v < members; v++) {
        comm_adasum_problem p = {v, members, type, count, tensors};
        if (comm_adasum_make(&g.adasum[v], &p) < 0) return -1;
        size_t scratch = (size_t)g.adasum[v].scratch * kolo_dtype_size(type);
        g.buffer[v][COMM_OWN] = vector[v];
        g.buffer[v][COMM_SCRATCH] = aligned_alloc(64, (scratch / 64 + 1) * 64);
        memset(g.buffer[v][COMM_SCRATCH], 0xee, (scratch / 64 + 1) * 64);
    }
    members_mismatched = 0;
    rc = members_run(members, begin, &g);
    for (int v = 0; v < members; v++) {
        free(g.buffer[v][COMM_SCRATCH]);
        comm_schedule_free(&g.adasum[v]);
    }
    return rc < 0 || members_mismatched ? -1 : 0;
}

/* ---- the definition, written apart: numbers as long double, in the stated tree ------------------------- */

static void pair(long double *out, const long double *a, const long double *b, int64_t n)
{
    long double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    long double ca = aa < sqrtl(DBL_MIN) ? 1 : 1 - ab / (2 * aa),
                cb = bb < sqrtl(DBL_MIN) ? 1 : 1 - ab / (2 * bb);
    for (int64_t i = 0; i < n; i++) out[i] = ca * a[i] + cb * b[i];
}

/* v: members x n, destroyed; the result stands in v[0]. */
static void definition(long double **v, int members, int64_t n)
{
    int q = 1;
    while (q * 2 <= members) q *= 2;
    int r = members - q;
    for (int i = 0; i < r; i++) {
        pair(v[2 * i], v[2 * i], v[2 * i + 1], n);
        long double *t = v[i];
        v[i] = v[2 * i];
        v[2 * i] = t;
    }
    for (int i = r; i < q; i++) v[i] = v[i + r];
    for (int d = 1; d < q; d *= 2)
        for (int i = 0; i < q; i += 2 * d) pair(v[i], v[i], v[i + d], n);
}

static double apart(const float *got, const long double *want, int64_t n)
{
    long double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return norm > 0 ? (double)sqrtl(difference / norm) : (double)sqrtl(difference);
}

typedef float (*maker)(int members, int member, int64_t i, int64_t n);

/* Relative error of f32 members against the definition; the members must have the same bits. */
static double against_definition(int members, int64_t n, maker make)
{
    float *v[MOST];
    long double *w[MOST], *first[MOST];
    double worst;
    for (int m = 0; m < members; m++) {
        v[m] = malloc((size_t)n * sizeof *v[m]);
        first[m] = w[m] = malloc((size_t)n * sizeof *w[m]);
        for (int64_t i = 0; i < n; i++) w[m][i] = v[m][i] = make(members, m, i, n);
    }
    worst = adasum(members, KOLO_F32, &n, 1, (void *const *)v) < 0 ? INFINITY : 0;
    definition(w, members, n);
    if (!(apart(v[0], w[0], n) < worst)) worst = fmax(worst, apart(v[0], w[0], n));
    for (int m = 1; m < members; m++)
        if (memcmp(v[0], v[m], (size_t)n * sizeof **v)) worst = INFINITY;
    for (int m = 0; m < members; m++) {
        free(v[m]);
        free(first[m]);
    }
    return worst;
}

static float uniform(int m, int64_t i)
{
    return kolo_uniform(kolo_philox(21, (uint64_t)m, (uint64_t)i).v[0]) - 0.5f;
}
static float any(int members, int m, int64_t i, int64_t n)
{
    (void)members, (void)n;
    return uniform(m, i) + 0.7f * uniform(99, i);
}
/* Entries around the smallest of f32, and from there to the root of the largest, in steps over the
 * members. */
static float tiny(int members, int m, int64_t i, int64_t n) { return any(members, m, i, n) * FLT_MIN * 4; }
static float wide(int members, int m, int64_t i, int64_t n)
{
    double low = log2(FLT_MIN), high = log2(FLT_MAX) / 2 - 1;
    return any(members, m, i, n) * (float)exp2(low + (high - low) * m / (members - 1));
}

static void test_definition(const char *name, maker make)
{
    const int64_t sizes[] = {1, 2, 17, 64 * 3 - 13, 4099, 1 << 16};
    double worst = 0;
    for (int members = 2; members <= MOST; members++)
        for (int s = 0; s < 6; s++) {
            double e = against_definition(members, sizes[s], make);
            if (!(e <= worst)) worst = e;
        }
    ok(worst < 100 * 1.2e-7, "%s: the definition within 100 ulp, the same bits on 2 to 9 members (%.1e)",
       name, worst);
}

/* ---- what it is named for ------------------------------------------------------------------------------ */

/* Member m brings one nonzero block of its own: sums are exact. */
static void test_orthogonal(void)
{
    int bad = 0;
    for (int members = 2; members <= MOST; members++) {
        enum { EACH = 37 };
        int64_t n = EACH * members;
        float *v[MOST];
        for (int m = 0; m < members; m++) {
            v[m] = calloc((size_t)n, sizeof **v);
            for (int i = 0; i < EACH; i++) v[m][m * EACH + i] = uniform(m, i);
        }
        bad += adasum(members, KOLO_F32, &n, 1, (void *const *)v) != 0;
        for (int64_t i = 0; i < n; i++) bad += v[members - 1][i] != uniform((int)(i / EACH), i % EACH);
        for (int m = 0; m < members; m++) free(v[m]);
    }
    is_int(bad, 0, "orthogonal vectors: the sum, exactly");
}

static void test_parallel(enum kolo_dtype type, double tolerance)
{
    double worst = 0;
    for (int members = 2; members <= 8; members *= 2) {
        enum { N = 1000 };
        double want[N];
        char *v[MOST];
        int64_t n = N;
        for (int m = 0; m < members; m++) {
            float line[N];
            v[m] = malloc(N * 8);
            for (int i = 0; i < N; i++) {
                line[i] = uniform(50, i) * (float)(m + 1);
                want[i] = (m ? want[i] : 0) + (double)uniform(50, i) * (m + 1) / members;
            }
            if (type == KOLO_F32) memcpy(v[m], line, sizeof line);
            else comm_narrow(v[m], line, N, type);
        }
        if (adasum(members, type, &n, 1, (void *const *)v) < 0) worst = INFINITY;
        float got[N];
        if (type == KOLO_F32) memcpy(got, v[0], sizeof got);
        else comm_widen(got, v[0], N, type);
        for (int i = 0; i < N; i++) worst = fmax(worst, fabs(got[i] - want[i]) / (members * 0.5));
        for (int m = 0; m < members; m++) free(v[m]);
    }
    ok(worst < tolerance, "parallel vectors: the average (%s, %.1e)",
       type == KOLO_F32   ? "f32"
       : type == KOLO_F16 ? "f16"
                          : "bf16",
       worst);
}

/* A tensor by itself and among 40 others, some of them empty: the same bits. */
static void test_fused(enum kolo_dtype type, const char *name)
{
    enum { TENSORS = 40, LONGEST = 700 };
    int64_t count[TENSORS], total = 0;
    int bad = 0;
    size_t width = kolo_dtype_size(type);
    for (int t = 0; t < TENSORS; t++) total += count[t] = t % 7 == 3 ? 0 : (t * 131) % LONGEST + 1;
    for (int members = 2; members <= MOST; members++) {
        char *fused[MOST], *alone[MOST];
        for (int m = 0; m < members; m++) {
            fused[m] = malloc((size_t)total * width);
            alone[m] = malloc((size_t)total * width);
            for (int64_t i = 0; i < total; i++) {
                float value = any(members, m, i, total);
                double d = value;
                if (type == KOLO_F64) memcpy(fused[m] + i * 8, &d, 8);
                else if (type == KOLO_F32) memcpy(fused[m] + i * 4, &value, 4);
                else comm_narrow(fused[m] + i * 2, &value, 1, type);
            }
            memcpy(alone[m], fused[m], (size_t)total * width);
        }
        bad += adasum(members, type, count, TENSORS, (void *const *)fused) != 0;
        size_t at = 0;
        for (int t = 0; t < TENSORS; at += (size_t)count[t++] * width) {
            void *part[MOST];
            for (int m = 0; m < members; m++) part[m] = alone[m] + at;
            bad += adasum(members, type, &count[t], 1, part) != 0;
        }
        for (int m = 0; m < members; m++) bad += memcmp(fused[m], alone[0], (size_t)total * width) != 0;
        for (int m = 0; m < members; m++) {
            free(fused[m]);
            free(alone[m]);
        }
    }
    is_int(bad, 0, "%s: 40 fused tensors have the bits of each alone, 2 to 9 members", name);
}

static void test_special(void)
{
    int64_t n = 4, three = 3;
    float a[4] = {1, -2, 0, 1}, zero[4] = {0}, nan[4] = {NAN, 1, 1, 1}, b[4] = {1, 2, 3, 4};
    float a3[3] = {1, 2, 3}, z3[3] = {0}, c3[3] = {2, 4, 6};
    int rc = adasum(2, KOLO_F32, &n, 1, (void *const[]){a, zero});
    ok(rc == 0 && zero[0] == 1 && zero[1] == -2 && zero[2] == 0 && zero[3] == 1,
       "a gradient of zeros on one member changes nothing");
    rc = adasum(3, KOLO_F32, &three, 1, (void *const[]){z3, a3, c3});
    ok(rc == 0 && fabsf(z3[0] - 1.5f) < 1e-6f && fabsf(z3[2] - 4.5f) < 1e-6f, "nor among three");
    adasum(2, KOLO_F32, &n, 1, (void *const[]){nan, b});
    ok(isnan(b[0]) && isnan(b[3]), "a NaN shows in the whole tensor");
    double big[2][3] = {{1e154, 1e154, 0}, {0, 0, 1e154}};
    rc = adasum(2, KOLO_F64, &three, 1, (void *const[]){big[0], big[1]});
    ok(rc == 0 && big[0][0] == 1e154 && big[1][2] == 1e154, "f64 whose squares overflow");
    comm_schedule bad = {0};
    ok(comm_adasum_make(&bad, &(comm_adasum_problem){0, 2, KOLO_I32, &n, 1}) == KOLO_EINPUT,
       "integers are refused");
}

/* ---- outside figures ----------------------------------------------------------------------------------- */

static void golden_vectors(const cJSON *json, int members, double (*v)[25])
{
    const uint64_t seed = golden_seed(json);
    const double common = golden_number(golden_at(json, "config"), "common", 0.8);
    for (int m = 0; m < members; m++)
        for (int i = 0; i < 25; i++) {
            char rank[16];
            snprintf(rank, sizeof rank, "v.%d", m);
            v[m][i] = (float)(golden_unit * (golden_u(golden_base(rank, seed), i) +
                                             common * golden_u(golden_base("v.common", seed), i)));
        }
}

static void test_golden(void)
{
    cJSON *json = golden_read(GOLDEN_FOLDER "/optim/adasum.json");
    if (!ok(json != NULL, GOLDEN_FOLDER "/optim/adasum.json can be read")) return;
    const cJSON *results = cJSON_GetObjectItem(json, "results"), *one;
    int64_t layers[4] = {7, 1, 12, 5}, whole = 25;
    double worst = 0;
    int compared = 0;
    cJSON_ArrayForEach(one, results)
    {
        int members = atoi(one->string);
        const cJSON *tree = cJSON_GetObjectItem(one, members & (members - 1) ? "fold_adjacent" : "doubling");
        for (int per_layer = 0; per_layer < 2 && members <= MOST; per_layer++) {
            double v[MOST][25];
            void *vector[MOST];
            const cJSON *want =
                cJSON_GetObjectItem(cJSON_GetObjectItem(tree, per_layer ? "per_layer" : "whole"), "f64");
            golden_vectors(json, members, v);
            for (int m = 0; m < members; m++) vector[m] = v[m];
            if (adasum(members, KOLO_F64, per_layer ? layers : &whole, per_layer ? 4 : 1, vector) < 0)
                worst = INFINITY;
            for (int i = 0; i < 25; i++, compared++)
                worst = fmax(worst, fabs(v[0][i] - cJSON_GetArrayItem(want, i)->valuedouble));
            golden_vectors(json, members, v); /* the same of whoever sees all members' memory */
            for (int t = 0, at = 0; t < (per_layer ? 4 : 1); at += (int)layers[t++]) {
                for (int m = 0; m < members; m++) vector[m] = v[m] + at;
                comm_adasum_members(vector, members, KOLO_F64, per_layer ? layers[t] : whole);
            }
            for (int i = 0; i < 25; i++)
                worst = fmax(worst, fabs(v[0][i] - cJSON_GetArrayItem(want, i)->valuedouble));
        }
    }
    ok(compared == 7 * 2 * 25 && worst < 1e-13,
       "outside figures for 2 to 8 ranks, whole and per layer: %d numbers, worst %.1e", compared, worst);
    cJSON_Delete(json);
}

int main(void)
{
    test_golden();
    test_definition("random", any);
    test_definition("as small as f32 can be", tiny);
    test_definition("from the smallest to the root of the largest", wide);
    test_orthogonal();
    test_parallel(KOLO_F32, 1e-6);
    test_parallel(KOLO_F16, 1e-3);
    test_parallel(KOLO_BF16, 8e-3);
    test_fused(KOLO_F32, "f32");
    test_fused(KOLO_F64, "f64");
    test_fused(KOLO_F16, "f16");
    test_special();
    return done_testing();
}
