/* The sums of batch norm and of its gradient, bit for bit, however many blocks form them and whichever comes
 * last: each kernel runs again and again, eagerly and replayed, its outputs NaN before each run, so that a
 * counter that is not set back leaves them unwritten.
 *
 * All lines of a block of one channel hold one number of 8 bits, so whatever a block adds is exact; the
 * numbers of different blocks differ in size, so that the order in which f64 adds the blocks decides the
 * last bits. That order is written down here once more. */
#include "cuda_rig.h"
#include "ops_rig.h"

enum { DOWN = 64 };

static kolo_backend *backend;
static int runs; /* eagerly, and again replayed: each takes long on the stand-in, little on a GPU */

typedef struct trial {
    int rank; /* 4: (N, C, H, W); 2: (N, C) */
    int64_t rows, channels, height, width, valid;
} trial;

typedef struct sums {
    const trial *t;
    rig r;
    int x, dy, stats, grad; /* tensors, nodes */
    int64_t pixels, lines;  /* of a row; of a block */
    int chunks, wrong;
} sums;

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ x >> 27) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

/* The number that all lines of a chunk hold; seed: of the tensor. */
static double value(const sums *s, int seed, int64_t chunk, int64_t channel)
{
    const uint64_t u = mixed((uint64_t)(chunk * 4099 + channel) * 3 + (uint64_t)seed + 1);
    const int sizes = s->r.g->dtype == KOLO_F16 ? 28 : 46, least = s->r.g->dtype == KOLO_F16 ? -20 : -30;
    const double size = ldexp((double)(128 + u % 128), (int)(u >> 20 & 0xFFFF) % sizes + least);
    return u >> 62 & 1 ? -size : size;
}

/* ---- the order ---- */

/* chunk: the exact sums of the chunks */
static double total(const double *chunk, int chunks)
{
    double class[DOWN] = {0};
    for (int i = 0; i < chunks; i++) class[i % DOWN] += chunk[i];
    for (int left = DOWN / 2; left > 0; left /= 2)
        for (int i = 0; i < left; i++) class[i] += class[i + left];
    return class[0];
}

/* The sum of dy^of_dy x^of_x. */
static double wanted(const sums *s, int64_t channel, int of_x, int of_dy)
{
    double *chunk = malloc((size_t)s->chunks * sizeof *chunk);
    const int64_t valid = s->t->valid * s->pixels;
    for (int i = 0; i < s->chunks; i++) {
        const int64_t left = valid - i * s->lines, count = left < 0 ? 0 : left < s->lines ? left : s->lines;
        chunk[i] = (double)count;
        for (int k = 0; k < of_x; k++) chunk[i] *= value(s, 0, i, channel);
        for (int k = 0; k < of_dy; k++) chunk[i] *= value(s, 1, i, channel);
    }
    const double sum = total(chunk, s->chunks);
    free(chunk);
    return sum;
}

/* ---- the operations ---- */

static void fill(sums *s, int tensor, int seed)
{
    const trial *t = s->t;
    float *v = malloc((size_t)(t->rows * t->channels * s->pixels) * sizeof *v);
    for (int64_t n = 0; n < t->rows; n++)
        for (int64_t c = 0; c < t->channels; c++)
            for (int64_t i = 0; i < s->pixels; i++)
                v[(n * t->channels + c) * s->pixels + i] =
                    n < t->valid ? (float)value(s, seed, (n * s->pixels + i) / s->lines, c) : NAN;
    rig_set(&s->r, tensor, v);
    free(v);
}

/* Sums of mean 0 and a deviation whose inverse is 1, so that the gradient's sums are those of dy and dy x. */
static void set_moments(sums *s)
{
    const int64_t c = s->t->channels;
    const size_t bytes = (size_t)(2 * c + 1) * sizeof(double);
    double *v = calloc(1, bytes);
    for (int64_t i = 0; i < c; i++) v[c + i] = 1 - 0x1p-10;
    v[2 * c] = 1;
    rig_check(kolo_backend_write(backend, s->r.buffer[s->r.g->node[s->stats].out[0]], v, bytes), "write");
    free(v);
}

static void forget(sums *s, int node)
{
    const kolo_node *n = &s->r.g->node[node];
    for (int k = 0; k < n->n_out; k++)
        rig_check(kolo_backend_fill(backend, KOLO_LANE_COMPUTE, s->r.buffer[n->out[k]], 0xFF,
                                    s->r.layout[n->out[k]].bytes),
                  "fill");
}

static void complain(sums *s, const char *what, int run, int64_t channel, double got, double want)
{
    const trial *t = s->t;
    if (s->wrong++ < 4)
        diag("%s (%ld, %ld, %ld, %ld), %d chunks, run %d: %s of channel %ld is %.17g, wanted %.17g",
             kolo_dtype_name(s->r.g->dtype), (long)t->rows, (long)t->channels, (long)t->height,
             (long)t->width, s->chunks, run, what, (long)channel, got, want);
}

static void compare(sums *s, int node, int run)
{
    const int64_t channels = s->t->channels;
    const kolo_node *n = &s->r.g->node[node];
    const bool grad = node == s->grad;
    double *got = rig_raw(&s->r, n->out[0]);
    float *copy[2] = {grad ? rig_raw(&s->r, n->out[1]) : NULL, grad ? rig_raw(&s->r, n->out[2]) : NULL};
    for (int64_t c = 0; c < channels; c++) {
        const double first = grad ? wanted(s, c, 0, 1) : wanted(s, c, 1, 0),
                     second = grad ? wanted(s, c, 1, 1) : wanted(s, c, 2, 0);
        if (got[c] != first) complain(s, grad ? "the sum of dy" : "the sum of x", run, c, got[c], first);
        if (got[channels + c] != second)
            complain(s, grad ? "the sum of dy x" : "the sum of x^2", run, c, got[channels + c], second);
        if (grad && copy[0][c] != (float)second) complain(s, "dw", run, c, (double)copy[0][c], second);
        if (grad && copy[1][c] != (float)first) complain(s, "db", run, c, (double)copy[1][c], first);
    }
    const double lines = (double)(s->t->valid * s->pixels);
    if (!grad && got[2 * channels] != lines)
        complain(s, "the number of lines", run, 0, got[2 * channels], lines);
    free(got);
    free(copy[0]);
    free(copy[1]);
}

static void run_eagerly(sums *s, int node)
{
    for (int run = 0; run < runs; run++) {
        forget(s, node);
        rig_check(rig_run_node(&s->r, node), "run");
        compare(s, node, run);
    }
}

static kolo_kernel *prepare(sums *s, int node, size_t *workspace)
{
    kolo_kernel *k;
    rig_check(kolo_backend_prepare(backend, s->r.g, node, s->r.layout, &k, workspace), "prepare");
    return k;
}

static void run_replayed(sums *s, int node)
{
    const kolo_node *n = &s->r.g->node[node];
    void *args[2 * KOLO_MAX_ARGS] = {NULL};
    kolo_replay *replay = NULL;
    size_t bytes;
    kolo_kernel *k = prepare(s, node, &bytes);
    void *workspace = rig_memory(&s->r, bytes, 0xFF);
    for (int i = 0; i < n->n_in; i++) args[i] = n->in[i] >= 0 ? s->r.buffer[n->in[i]] : NULL;
    for (int i = 0; i < n->n_out; i++) args[n->n_in + i] = s->r.buffer[n->out[i]];
    rig_check(kolo_backend_capture(backend), "capture");
    rig_check(kolo_kernel_run(k, args, workspace, s->r.there, 0), "run");
    rig_check(kolo_backend_capture_end(backend, &replay), "end of the capture");
    for (int run = 0; run < runs; run++) {
        forget(s, node);
        rig_check(kolo_replay_run(replay), "replay");
        rig_check(kolo_backend_finish(backend), "finish");
        compare(s, node, runs + run);
    }
    kolo_replay_destroy(&replay);
    rig_free(&s->r, workspace, bytes);
}

/* ---- a trial ---- */

static int node_of(const sums *s, enum kolo_op op)
{
    int found = -1;
    for (int i = 0; i < (int)s->r.g->nodes; i++)
        if (s->r.g->node[i].op == op) found = i;
    return found;
}

static void make(sums *s)
{
    const trial *t = s->t;
    const int64_t dim[] = {t->rows, t->channels, t->height, t->width};
    s->x = rig_input(&s->r, "x", t->rank, dim);
    rig_check(kolo_batch_norm(s->r.g, "n", s->x, 0x1p-10, 0.1, 1), "norm");
    s->dy = rig_backward(&s->r, s->r.g->node[s->r.g->nodes - 1].out[0]);
    s->r.step.valid[0] = (int32_t)t->valid;
    rig_layout(&s->r);
    s->stats = node_of(s, KOLO_OP_norm_stats);
    s->grad = node_of(s, KOLO_OP_norm_grad_stats);
}

/* Chunks of sums; *wrong: is added to. */
static int run(const trial *t, enum kolo_dtype dtype, int *wrong)
{
    sums s = {.t = t, .r = rig_open(backend, dtype, RIG_OWN)};
    int blocks = 0, lines = 0;
    size_t bytes;
    s.pixels = t->rank == 4 ? t->height * t->width : 1;
    make(&s);
    const char *name = kolo_kernel_name(prepare(&s, s.stats, &bytes)), *cut = strchr(name, ',');
    if (!cut || sscanf(cut, ", %d blocks of %d lines", &blocks, &lines) != 2)
        rig_check(kolo_fail(KOLO_EINTERNAL, "the kernel is called \"%s\"", name), "name");
    s.lines = lines;
    s.chunks = (int)((t->rows * s.pixels + lines - 1) / lines);
    fill(&s, s.x, 0);
    fill(&s, s.dy, 1);
    run_eagerly(&s, s.stats);
    run_replayed(&s, s.stats);
    set_moments(&s);
    run_eagerly(&s, s.grad);
    run_replayed(&s, s.grad);
    run_eagerly(&s, s.grad);
    rig_close(&s.r);
    *wrong += s.wrong;
    return s.chunks;
}

int main(void)
{
    static const enum kolo_dtype types[] = {KOLO_F32, KOLO_BF16, KOLO_F16};
    static const trial trials[] = {
        {4, 3, 3, 90, 91, 3},   /* few channels, some blocks */
        {4, 8, 3, 150, 149, 6}, /* more than DOWN of them, not all rows valid */
        {4, 7, 3, 151, 150, 7},      {4, 5, 64, 56, 56, 5},
        {4, 12, 40, 40, 41, 11},     /* a tile of channels that is not whole */
        {4, 9, 1000, 5, 9, 9},       /* many tiles */
        {4, 2, 2048, 7, 7, 2},       /* one block each */
        {2, 9001, 33, 1, 1, 8999},   /* channels that fill no vector */
        {2, 25001, 31, 1, 1, 25001}, /* a class is more than one batch */
        {2, 700, 1001, 1, 1, 700},
    };
    runs = cuda_rig() ? 2 : 3;
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    rig_check(kolo_backend_create(&backend, "cuda", &config), "backend");
    for (int i = 0; i < 3; i++) {
        int wrong = 0, one = 0, few = 0, many = 0;
        for (size_t k = 0; k < sizeof trials / sizeof *trials; k++) {
            const int chunks = run(&trials[k], types[i], &wrong);
            *(chunks == 1 ? &one : chunks > DOWN ? &many : &few) += 1;
        }
        is_int(wrong, 0, "%s: every run of the same kernel gives the sums of the one order",
               kolo_dtype_name(types[i]));
        ok(one && few > 1 && many > 4, "%s: by one block, by up to %d and by more: %d, %d, %d shapes",
           kolo_dtype_name(types[i]), DOWN, one, few, many);
    }
    kolo_backend_destroy(&backend);
    return done_testing();
}
