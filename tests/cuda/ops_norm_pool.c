/* A norm with the max pool behind it as one operation, and its gradients, beside the operations that they are
 * made of, on both backends: the same bits, with rests everywhere, ties, and rows that are not valid. */
#include "cuda_rig.h"
#include "ops_rig.h"

typedef struct window {
    int64_t kernel[2], stride[2], pad[2], beyond;
} window;

static const window windows[] = {
    {{3, 3}, {2, 2}, {1, 1}, 0}, {{2, 2}, {2, 2}, {0, 0}, 0}, {{2, 2}, {2, 2}, {0, 0}, 1},
    {{3, 3}, {2, 2}, {0, 0}, 0}, {{3, 3}, {3, 3}, {1, 1}, 0}, {{4, 4}, {2, 2}, {2, 2}, 0},
    {{3, 2}, {2, 4}, {1, 0}, 0}, {{3, 3}, {1, 1}, {1, 1}, 0},
};
static const int64_t dims[][4] = {{3, 3, 9, 11}, {2, 64, 12, 8}, {4, 17, 7, 6}, {2, 72, 5, 5}, {1, 1, 4, 4}};

/* LEVELS: few values, so that maxima are shared; FLAT: one value. */
enum fill { SMOOTH, LEVELS, FLAT, FILLS };

static uint32_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 32);
}

static void set(rig *r, const char *name, enum fill fill, float base, int32_t valid)
{
    const int t = kolo_graph_find(r->g, name);
    const kolo_tensor *x = &r->g->tensor[t];
    const int64_t n = kolo_tensor_count(x), row = n / x->dim[0];
    uint64_t state = (uint64_t)n;
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = next(&state);
        v[i] = fill == FLAT     ? 0.5f
               : fill == LEVELS ? (float)(u % 4) - 1
                                : ((float)(u >> 8) * 0x1p-24f - 0.5f) * 4;
        v[i] = base + (x->rank == 1 ? 0.3f : 1) * v[i];
        if (x->rank == 4 && i / row >= valid) v[i] = NAN;
    }
    rig_set(r, t, v);
    free(v);
}

static rig open_one(kolo_backend *b, enum kolo_dtype dtype, const window *w, const int64_t *dim, bool joined)
{
    kolo_attributes a = {.dilation = {1, 1},
                         .groups = 1,
                         .beyond = {w->beyond, w->beyond},
                         .epsilon = 1e-3,
                         .momentum = 0.1,
                         .relu = true};
    memcpy(a.kernel, w->kernel, sizeof a.kernel);
    memcpy(a.stride, w->stride, sizeof a.stride);
    memcpy(a.pad, w->pad, sizeof a.pad);
    rig r = rig_open(b, dtype, RIG_OWN);
    const int map = kolo_batch_norm(r.g, "n", rig_input(&r, "x", 4, dim), a.epsilon, a.momentum, 1);
    rig_check(map, "norm");
    r.g->node[r.g->tensor[map].producer].a.relu = true;
    const kolo_node norm = r.g->node[r.g->tensor[map].producer];
    const enum kolo_op op = joined ? KOLO_OP_norm_max_pool : KOLO_OP_max_pool;
    int made = kolo_graph_node(r.g, op, joined ? 4 : 1, joined ? norm.in : &map, joined ? 3 : 2, &a, "y");
    rig_check(made, "pool");
    if (joined) { /* what it was made of has no other reader */
        bool dead[8] = {false};
        dead[r.g->tensor[map].producer] = true;
        rig_check(kolo_graph_compact(r.g, dead), "compact");
        made--;
    }
    rig_backward(&r, r.g->node[made].out[0]);
    rig_layout(&r);
    return r;
}

static void fill_one(rig *r, enum fill fill, int32_t valid)
{
    r->step.valid[0] = valid;
    set(r, "x", fill, 0, valid);
    set(r, "dy", SMOOTH, 0, valid);
    set(r, "n.weight", SMOOTH, 1, valid);
    set(r, "n.bias", SMOOTH, 0, valid);
}

static bool same(const rig *a, const char *in_a, const rig *b, const char *in_b)
{
    const int t = kolo_graph_find(a->g, in_a), u = kolo_graph_find(b->g, in_b);
    if (t < 0 || u < 0) return false;
    void *x = rig_raw(a, t), *y = rig_raw(b, u);
    const bool equal = a->layout[t].bytes == b->layout[u].bytes && !memcmp(x, y, a->layout[t].bytes);
    free(x);
    free(y);
    return equal;
}

/* The first tensor that differs; NULL: none. */
static const char *differs(const rig *apart, const rig *joined)
{
    static const char *const name[] = {"y",           "y:1",   "n:sums", "grad:n:sums", "grad:n.weight",
                                       "grad:n.bias", "grad:x"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (!same(apart, name[i], joined, name[i])) return name[i];
    return same(apart, "n:1", joined, "y:2") ? NULL : "the statistic";
}

static void one_case(kolo_backend *b, enum kolo_dtype dtype, int w, int d, enum fill fill, int32_t valid,
                     int *wrong)
{
    rig apart = open_one(b, dtype, &windows[w], dims[d], false),
        joined = open_one(b, dtype, &windows[w], dims[d], true);
    fill_one(&apart, fill, valid);
    fill_one(&joined, fill, valid);
    rig_run(&apart);
    rig_run(&joined);
    const char *which = differs(&apart, &joined);
    if (!which && !rig_padding_is_zero(&joined)) which = "the padding";
    if (which && (*wrong)++ < 4)
        diag("window %d, shape %d, fill %d, %d valid: %s differs", w, d, (int)fill, valid, which);
    rig_close(&apart);
    rig_close(&joined);
}

static void all_cases(kolo_backend *b, enum kolo_dtype dtype, const char *side)
{
    int wrong = 0, cases = 0;
    for (int w = 0; w < (int)(sizeof windows / sizeof *windows); w++)
        for (int d = 0; d < (int)(sizeof dims / sizeof *dims); d++)
            for (int fill = 0; fill < FILLS; fill++, cases++) {
                const int32_t rows = (int32_t)dims[d][0], valid = (w + fill) % 3 ? rows : rows / 2;
                one_case(b, dtype, w, d, (enum fill)fill, valid, &wrong);
            }
    is_int(wrong, 0,
           "%s, %s: norm, relu, max pool and their gradients in one have the bits of each, %d cases", side,
           kolo_dtype_name(dtype), cases);
}

/* A batch that is not finite has to show. */
static void not_a_number(kolo_backend *b, enum kolo_dtype dtype)
{
    rig r = open_one(b, dtype, &windows[0], dims[0], true);
    const int x = kolo_graph_find(r.g, "x"), y = kolo_graph_find(r.g, "y");
    const int64_t n = kolo_tensor_count(&r.g->tensor[x]), m = kolo_tensor_count(&r.g->tensor[y]),
                  plane = 9 * 11;
    float *v = malloc((size_t)n * sizeof *v);
    fill_one(&r, SMOOTH, 3);
    rig_get(&r, x, v);
    v[plane + 7] = NAN; /* of channel 1 */
    rig_set(&r, x, v);
    rig_run(&r);
    rig_get(&r, y, v);
    int64_t wrong = 0;
    for (int64_t i = 0; i < m; i++) wrong += isnan(v[i]) != (i / (m / 9) % 3 == 1);
    is_int(wrong, 0, "%s: one NaN makes its channel NaN, and no other", kolo_dtype_name(dtype));
    free(v);
    rig_close(&r);
}

int main(void)
{
    static const enum kolo_dtype types[] = {KOLO_F32, KOLO_BF16, KOLO_F16};
    const kolo_backend_config config = {.threads = 1, .deterministic = true};
    kolo_backend *gpu = NULL, *cpu = NULL;
    cuda_rig();
    rig_check(kolo_backend_create(&gpu, "cuda", &config), "cuda");
    cpu = rig_backend(1);
    for (int i = 0; i < 3; i++) {
        all_cases(gpu, types[i], "GPU");
        if (types[i] != KOLO_F16) all_cases(cpu, types[i], "CPU");
        not_a_number(gpu, types[i]);
    }
    kolo_backend_destroy(&gpu);
    kolo_backend_destroy(&cpu);
    return done_testing();
}
