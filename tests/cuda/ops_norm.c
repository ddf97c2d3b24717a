/* Batch norm on CUDA against the CPU backend, operation by operation: each gets the CPU's inputs, exactly.
 * The CPU computes in f32 from values that the GPU's type holds. Rows that are not valid hold NaN, so one
 * that counted would show. Every operation runs twice and gives the same bits. The variance is also compared
 * with its definition in f64. */
#include "cuda_rig.h"
#include "ops_rig.h"

enum { CPU, GPU, SIDES };
static kolo_backend *backend[SIDES];

typedef struct trial {
    enum kolo_dtype dtype;
    int rank; /* 4: (N, C, H, W); 2: (N, C) */
    int64_t rows, channels, height, width;
    int32_t valid;
    bool relu, residual, infer, in_place;
    float mean; /* of x, in deviations */
} trial;

typedef struct pair {
    const trial *t;
    rig side[SIDES];
    int x, r, dy;
    uint64_t seed;
    int wrong;
} pair;

static int64_t lines_of(const trial *t) { return t->rank == 4 ? t->height * t->width : 1; }

static void complain(pair *p, const char *what, double got, double want)
{
    const trial *t = p->t;
    if (p->wrong++ < 4)
        diag("%s (%ld, %ld, %ld, %ld)%s%s%s, %d valid, mean %g: %s is %.9g, wanted %.9g",
             kolo_dtype_name(t->dtype), (long)t->rows, (long)t->channels, (long)t->height, (long)t->width,
             t->infer ? " infer" : "", t->residual ? " residual" : "", t->relu ? " relu" : "", (int)t->valid,
             (double)t->mean, what, got, want);
}

static float rounded(float x, enum kolo_dtype t)
{
    return t == KOLO_BF16  ? kolo_from_bf16(kolo_to_bf16(x))
           : t == KOLO_F16 ? kolo_from_f16(kolo_to_f16(x))
                           : x;
}

/* About normal, deviation 1. */
static float chance(pair *p)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        p->seed = p->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (float)(p->seed >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 1.7f;
}

/* An activation: mean + normal in valid rows, NaN in others. A vector: 1 + a little. */
static void fill(pair *p, int tensor, float mean)
{
    const kolo_tensor *x = &p->side[CPU].g->tensor[tensor];
    const bool map = x->role == KOLO_ROLE_ACTIVATION;
    int64_t n = kolo_tensor_count(x), row = map ? n / x->dim[0] : n;
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        v[i] = map ? rounded(mean + chance(p), p->t->dtype) : mean + 0.2f * chance(p);
        if (map && i / row >= p->t->valid) v[i] = NAN;
    }
    for (int s = 0; s < SIDES; s++) rig_set(&p->side[s], tensor, v);
    free(v);
}

static void make(pair *p, int s)
{
    const trial *t = p->t;
    rig *r = &p->side[s];
    kolo_graph *g = r->g;
    const int64_t dim[] = {t->rows, t->channels, t->height, t->width};
    g->train = !t->infer;
    p->x = rig_input(r, "x", t->rank, dim);
    p->r = t->residual ? rig_input(r, "r", t->rank, dim) : -1;
    rig_check(kolo_batch_norm(g, "n", p->x, 1e-5, 0.1, 1), "norm");
    kolo_node *n = &g->node[g->nodes - 1];
    n->a.relu = t->relu;
    if (t->residual) n->in[n->n_in++] = p->r;
    p->dy = t->infer ? -1 : rig_backward(r, n->out[0]);
    r->step.valid[0] = t->valid;
    r->in_place = t->in_place;
    rig_layout(r);
}

/* ---- comparison ---- */

/* The definition: mean and variance of channel c over the valid rows. */
static void moments(pair *p, int64_t c, double *mean, double *variance)
{
    const trial *t = p->t;
    int64_t pixels = lines_of(t), n = kolo_tensor_count(&p->side[CPU].g->tensor[p->x]);
    float *x = malloc((size_t)n * sizeof *x);
    rig_get(&p->side[CPU], p->x, x);
    double sum = 0, square = 0, count = (double)(t->valid * pixels);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t row = 0; row < t->valid; row++)
            for (int64_t i = 0; i < pixels; i++) {
                double v = (double)x[(row * t->channels + c) * pixels + i] - (pass ? sum / count : 0);
                if (pass) square += v * v;
                else sum += v;
            }
    }
    free(x);
    *mean = count > 0 ? sum / count : 0;
    *variance = count > 0 ? square / count : 0;
}

static void compare_sums(pair *p, const double *got, const double *want, int64_t c)
{
    const double m = want[2 * c];
    if (got[2 * c] != m) complain(p, "the number of elements", got[2 * c], m);
    for (int64_t i = 0; i < c && m > 0; i++) {
        double mean = got[i] / m, variance = got[c + i] / m - mean * mean,
               other = want[c + i] / m - want[i] / m * (want[i] / m);
        double size = sqrt(other + 1e-5), far = fabs(want[i] / m);
        if (!(fabs(mean - want[i] / m) <= 1e-6 * size + 1e-12 * far))
            complain(p, "a mean", mean, want[i] / m);
        if (!(fabs(variance - other) <= 2e-6 * size * size + 1e-12 * far * far))
            complain(p, "a variance", variance, other);
        if (i % (c / 7 + 1)) continue;
        moments(p, i, &mean, &variance);
        if (!(fabs(got[i] / m - mean) <= 1e-6 * size))
            complain(p, "a mean beside its definition", got[i] / m, mean);
        double own = got[c + i] / m - got[i] / m * (got[i] / m);
        if (!(fabs(own - variance) <= 2e-6 * size * size))
            complain(p, "a variance beside its definition", own, variance);
    }
    for (int64_t i = 0; i < 2 * c && m == 0; i++)
        if (got[i] != 0) complain(p, "a sum over nothing", got[i], 0);
}

/* f64 sums of g, g xhat, or their f32 copies: each is the sum of so many numbers of size 1. */
static void compare_gradients(pair *p, const char *what, const double *got, const double *want, int64_t n,
                              double each)
{
    double tolerance =
        2e-6 * each * ((double)(p->t->valid * lines_of(p->t)) + 1) * (1 + fabs((double)p->t->mean) * 0.1);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance + 1e-6 * fabs(want[i]))) complain(p, what, got[i], want[i]);
}

static void compare_elements(pair *p, const char *what, const float *got, const float *want, int64_t n,
                             int64_t row)
{
    const enum kolo_dtype t = p->t->dtype;
    const double relative = t == KOLO_F32 ? 4e-6 : t == KOLO_BF16 ? 0x1p-7 : 0x1p-10;
    for (int64_t i = 0; i < n; i++) {
        double far = fabs((double)got[i] - (double)want[i]), size = fabs((double)want[i]);
        if (i / row >= p->t->valid ? got[i] != 0
                                   : !(far <= relative * size + 4e-6 + (t == KOLO_F16 ? 6e-8 : 0)))
            complain(p, what, (double)got[i], (double)want[i]);
    }
}

/* A tensor of one side as f64. */
static double *values_of(const rig *r, int t)
{
    const kolo_tensor *x = &r->g->tensor[t];
    int64_t n = kolo_tensor_count(x);
    double *v = malloc((size_t)n * sizeof *v);
    if (x->dtype == KOLO_F64) {
        rig_check(kolo_backend_read(r->backend, v, r->buffer[t], (size_t)n * sizeof *v), "read");
        return v;
    }
    float *f = malloc((size_t)n * sizeof *f);
    rig_get((rig *)(uintptr_t)r, t, f);
    for (int64_t i = 0; i < n; i++) v[i] = (double)f[i];
    free(f);
    return v;
}

/* Compares what both sides made of tensor t, then gives both the CPU's. */
static void compare(pair *p, int t)
{
    const kolo_graph *g = p->side[CPU].g;
    const kolo_tensor *x = &g->tensor[t];
    const int64_t n = kolo_tensor_count(x);
    double *got = values_of(&p->side[GPU], t), *want = values_of(&p->side[CPU], t);
    float *f = malloc((size_t)n * sizeof *f), *h = malloc((size_t)n * sizeof *h);
    for (int64_t i = 0; i < n; i++)
        f[i] = rounded((float)want[i], x->role == KOLO_ROLE_ACTIVATION ? p->t->dtype : KOLO_F32),
        h[i] = (float)got[i];
    if (x->role == KOLO_ROLE_ACTIVATION) compare_elements(p, x->name, h, f, n, n / x->dim[0]);
    else if (x->role == KOLO_ROLE_PARTIAL && g->node[x->producer].op == KOLO_OP_norm_stats)
        compare_sums(p, got, want, n / 2);
    else if (x->role == KOLO_ROLE_STATISTIC)
        for (int64_t i = 0; i < n; i++) {
            if (!(fabs(got[i] - want[i]) <= 1e-6 * (fabs(want[i]) + 1e-3)))
                complain(p, x->name, got[i], want[i]);
        }
    else compare_gradients(p, x->name, got, want, n, 3);
    if (x->dtype == KOLO_F64)
        rig_check(kolo_backend_write(backend[GPU], p->side[GPU].buffer[t], want, (size_t)n * sizeof *want),
                  "write");
    else
        for (int s = 0; s < SIDES; s++) rig_set(&p->side[s], t, f);
    free(got);
    free(want);
    free(f);
    free(h);
}

static void run_twice(pair *p, int i)
{
    rig *r = &p->side[GPU];
    const kolo_node *n = &r->g->node[i];
    void *first[KOLO_MAX_ARGS];
    rig_check(rig_run_node(&p->side[CPU], i), "CPU");
    rig_check(rig_run_node(r, i), kolo_op_table[n->op].name);
    for (int k = 0; k < n->n_out; k++) first[k] = rig_raw(r, n->out[k]);
    rig_check(rig_run_node(r, i), kolo_op_table[n->op].name);
    for (int k = 0; k < n->n_out; k++) {
        void *second = rig_raw(r, n->out[k]);
        if (memcmp(first[k], second, r->layout[n->out[k]].bytes))
            complain(p, "a second run of the same operation", 0, 0);
        free(first[k]);
        free(second);
    }
}

static int run(const trial *t)
{
    pair p = {.t = t, .seed = (uint64_t)(t->channels * 1000003 + t->rows * 101 + t->height)};
    for (int s = 0; s < SIDES; s++) {
        p.side[s] = rig_open(backend[s], s == CPU ? KOLO_F32 : t->dtype, s == CPU ? RIG_NHWC : RIG_OWN);
        make(&p, s);
    }
    const kolo_graph *g = p.side[CPU].g;
    for (int i = 0; i < (int)g->tensors; i++)
        if (g->tensor[i].producer < 0) fill(&p, i, i == p.x ? t->mean : i == p.r || i == p.dy ? 0 : 1);
    for (int i = 0; i < (int)g->nodes; i++) {
        run_twice(&p, i);
        for (int k = 0; k < g->node[i].n_out; k++) compare(&p, g->node[i].out[k]);
    }
    if (!rig_padding_is_zero(&p.side[GPU])) complain(&p, "padding", NAN, 0);
    for (int s = 0; s < SIDES; s++) rig_close(&p.side[s]);
    return p.wrong;
}

/* ---- cases ---- */

/* All shapes, and beside each others the kinds of norm and the valid rows, in turn. */
static void shapes(enum kolo_dtype dtype)
{
    static const int64_t channels[] = {3, 8, 10, 64, 100, 2048}, side[][2] = {{1, 1}, {7, 7}, {56, 56}},
                         rows[] = {1, 3, 7};
    int wrong = 0, done = 0;
    for (int c = 0; c < 6; c++)
        for (int s = 0; s < 3; s++)
            for (int n = 0; n < 3; n++) {
                /* the host is no GPU */
                if (channels[c] * side[s][0] * side[s][1] * rows[n] > 300000) continue;
                trial t = {.dtype = dtype,
                           .rank = 4,
                           .rows = rows[n],
                           .channels = channels[c],
                           .height = side[s][0],
                           .width = side[s][1]};
                t.relu = (c + s + n) % 2;
                t.residual = (c + s / 2 + n / 2) % 2;
                t.valid = (int32_t)(n && (c + s) % 2 ? rows[n] - n : rows[n]);
                wrong += run(&t);
                done++;
            }
    ok(!wrong && done > 40, "%s: %d shapes", kolo_dtype_name(dtype), done);
}

static void kinds(enum kolo_dtype dtype)
{
    int wrong = 0;
    for (int32_t valid = 0; valid <= 3; valid++)
        for (int kind = 0; kind < 4; kind++)
            for (int rank = 2; rank <= 4; rank += 2) {
                const trial t = {.dtype = dtype,
                                 .rank = rank,
                                 .rows = 3,
                                 .channels = 20,
                                 .height = 9,
                                 .width = 5,
                                 .valid = valid,
                                 .relu = kind & 1,
                                 .residual = kind & 2};
                wrong += run(&t);
            }
    is_int(wrong, 0, "%s: with and without relu and residual, 0 to 3 of 3 rows valid",
           kolo_dtype_name(dtype));
}

static void vectors(enum kolo_dtype dtype)
{
    static const int64_t channels[] = {1, 3, 10, 33, 64, 1001};
    int wrong = 0;
    for (int c = 0; c < 6; c++) {
        const trial t = {.dtype = dtype,
                         .rank = 2,
                         .rows = 700,
                         .channels = channels[c],
                         .height = 1,
                         .width = 1,
                         .valid = 600 + c,
                         .relu = c % 2,
                         .residual = c % 3 == 0};
        wrong += run(&t);
    }
    is_int(wrong, 0, "%s: (N, C), also where C fills no vector", kolo_dtype_name(dtype));
}

static void far_means(enum kolo_dtype dtype)
{
    int wrong = 0;
    for (int i = 0; i < 4; i++) {
        const trial t = {.dtype = dtype,
                         .rank = 4,
                         .rows = 5,
                         .channels = 24,
                         .height = 40,
                         .width = 31,
                         .valid = 4,
                         .relu = true,
                         .mean = (float[]){-100, 100, 10, 1000}[i]};
        if (dtype == KOLO_F32 || i < 3) wrong += run(&t);
    }
    is_int(wrong, 0, "%s: means of 10 and 100 deviations%s", kolo_dtype_name(dtype),
           dtype == KOLO_F32 ? ", and 1000" : "");
}

static void inference(enum kolo_dtype dtype)
{
    int wrong = 0;
    for (int kind = 0; kind < 8; kind++)
        for (int c = 0; c < 3; c++) {
            const trial t = {.dtype = dtype,
                             .rank = 4,
                             .rows = 3,
                             .channels = (int64_t[]){3, 64, 100}[c],
                             .height = 7,
                             .width = 11,
                             .valid = c ? 3 : 2,
                             .infer = true,
                             .relu = kind & 1,
                             .residual = kind & 2,
                             .in_place = kind & 4};
            wrong += run(&t);
        }
    is_int(wrong, 0, "%s: with running statistics, in place too", kolo_dtype_name(dtype));
}

int main(void)
{
    static const enum kolo_dtype types[] = {KOLO_F32, KOLO_BF16, KOLO_F16};
    cuda_rig();
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    backend[CPU] = rig_backend(1);
    rig_check(kolo_backend_create(&backend[GPU], "cuda", &config), "backend");
    for (int i = 0; i < 3; i++) {
        shapes(types[i]);
        kinds(types[i]);
        vectors(types[i]);
        far_means(types[i]);
        inference(types[i]);
    }
    kolo_backend_destroy(&backend[GPU]);
    kolo_backend_destroy(&backend[CPU]);
    return done_testing();
}
