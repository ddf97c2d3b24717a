/* One operation, or a few, and their gradients, on the CPU backend and on the CUDA backend. The CPU computes
 * in f32 from values that the GPU's type holds, and its result is rounded to that type. Sums in the CPU's
 * order, and operations without sums, must have its bits. */
#ifndef TESTS_CUDA_PAIR_H
#define TESTS_CUDA_PAIR_H

#include "cuda_rig.h"
#include "ops_rig.h"

static kolo_backend *cpu, *gpu;
static const enum kolo_dtype types[] = {KOLO_F32, KOLO_BF16, KOLO_F16};
static int64_t failures; /* of all shapes of one test */

/* One operation (and its gradient) on both sides. */
typedef struct pair {
    rig side[2]; /* CPU in f32, GPU in dtype */
    enum kolo_dtype dtype;
    const char *what;
    char shape[96];
    uint64_t seed;
} pair;

static pair pair_open(enum kolo_dtype dtype, const char *what)
{
    pair p = {
        .side = {rig_open(cpu, KOLO_F32, 8), rig_open(gpu, dtype, RIG_OWN)}, .dtype = dtype, .what = what};
    return p;
}

static void pair_close(pair *p)
{
    rig_close(&p->side[0]);
    rig_close(&p->side[1]);
}

static float rounded(float x, enum kolo_dtype t)
{
    return t == KOLO_BF16  ? kolo_from_bf16(kolo_to_bf16(x))
           : t == KOLO_F16 ? kolo_from_f16(kolo_to_f16(x))
                           : x;
}

static uint32_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 32);
}

/* What tensors are filled with. LEVELS: few values, so that maxima are shared; STRANGE: infinities,
 * NaN and -0 among them. */
enum fill { SMOOTH, LEVELS, STRANGE, BYTES };

static float value(enum fill fill, uint64_t *state)
{
    uint32_t r = next(state);
    if (fill == BYTES) return (float)(r >> 24);
    if (fill == LEVELS) return (float)((int)(r % 5) - 2);
    if (fill == STRANGE && r % 7 == 0)
        return r % 5 == 0 ? NAN : r % 5 == 1 ? INFINITY : r % 5 == 2 ? -INFINITY : -0.0f;
    return ((float)(r >> 8) * 0x1p-24f - 0.5f) * 4;
}

static void pair_fill(pair *p, int t, enum fill fill)
{
    int64_t n = kolo_tensor_count(&p->side[0].g->tensor[t]);
    float *v = malloc((size_t)(n + 1) * sizeof *v);
    p->seed += 77;
    for (int64_t i = 0; i < n; i++) v[i] = rounded(value(fill, &p->seed), p->dtype);
    rig_set(&p->side[0], t, v);
    rig_set(&p->side[1], t, v);
    free(v);
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || kolo_float_bits(a) == kolo_float_bits(b);
}

/* Elements of tensor t that are not alike: in bits, or by more than `tolerance` of their size (or of
 * `least`, if that is larger). */
static int64_t unlike(pair *p, int t, double tolerance, double least)
{
    const kolo_tensor *x = &p->side[0].g->tensor[t];
    int64_t n = kolo_tensor_count(x), wrong = 0;
    float *want = malloc((size_t)(n + 1) * sizeof *want), *got = malloc((size_t)(n + 1) * sizeof *got);
    rig_get(&p->side[0], t, want);
    rig_get(&p->side[1], t, got);
    for (int64_t i = 0; i < n; i++) {
        float w =
            x->dtype == KOLO_F32 && x->role == KOLO_ROLE_ACTIVATION ? rounded(want[i], p->dtype) : want[i];
        double apart = fabs((double)w - (double)got[i]), size = fmax(fabs((double)w), least);
        bool alike = same(w, got[i]) || (tolerance > 0 && apart <= tolerance * size);
        if (!alike && wrong < 3 && failures < 10)
            diag("%s %s %s, %s[%ld]: %.9g, the CPU has %.9g", p->what, kolo_dtype_name(p->dtype), p->shape,
                 x->name, (long)i, (double)got[i], (double)w);
        wrong += !alike;
    }
    free(want);
    free(got);
    return wrong;
}

/* One unit of the type's last place, twice: the f32 results differ a little, and so may the roundings. */
static double ulp(enum kolo_dtype t) { return t == KOLO_F32 ? 2e-6 : t == KOLO_BF16 ? 0x1p-7 : 0x1p-10; }

/* Runs all nodes on both sides and compares what they make. floor: what a value is compared with if it is
 * smaller itself; the size of the terms where a sum may cancel */
static void pair_check_above(pair *p, double tolerance, double floor)
{
    const kolo_graph *g = p->side[0].g;
    for (int i = 0; i < 2; i++) rig_run(&p->side[i]);
    for (int t = 0; t < (int)g->tensors; t++)
        if (g->tensor[t].producer >= 0) failures += unlike(p, t, tolerance, floor) > 0;
    if (!rig_padding_is_zero(&p->side[1])) {
        failures++;
        diag("%s %s %s: padding is not zero", p->what, kolo_dtype_name(p->dtype), p->shape);
    }
    pair_close(p);
}

static void pair_check(pair *p, double tolerance) { pair_check_above(p, tolerance, 1e-3); }

static void pair_backends(void)
{
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    cpu = rig_backend(2);
    rig_check(kolo_backend_create(&gpu, "cuda", &config), "backend");
}

static void pair_backends_close(void)
{
    kolo_backend_destroy(&gpu);
    kolo_backend_destroy(&cpu);
}

#endif
