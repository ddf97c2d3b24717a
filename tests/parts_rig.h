/* What networks that are cut into parts are compared on: whole numbers, which f32 adds exactly in any order,
 * and convolutions of any window. */
#ifndef KOLO_TESTS_PARTS_RIG_H
#define KOLO_TESTS_PARTS_RIG_H

#include "ops_rig.h"

/* Whole numbers from low to high that depend on name and place alone. */
static void whole_numbers(const char *name, int low, int high, float *value, int64_t n)
{
    uint32_t seed = 2463534242u;
    for (; *name; name++) seed = (seed ^ (uint8_t)*name) * 16777619u;
    for (int64_t i = 0; i < n; i++) {
        seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
        value[i] = (float)(low + (int)(seed % (uint32_t)(high - low + 1)));
    }
}

static int conv(kolo_graph *g, const char *name, int x, int64_t out, int64_t kernel, int64_t stride,
                int64_t groups)
{
    const kolo_conv_spec s = {.out = out,
                              .kernel = {kernel, kernel},
                              .stride = {stride, stride},
                              .pad = {kernel / 2, kernel / 2},
                              .groups = groups,
                              .bias = true,
                              .weight = rig_init};
    return kolo_conv(g, name, x, &s);
}

/* Whole numbers into all that no operation makes, by their names in the whole network. */
static void rig_fill_whole(rig *r)
{
    for (int t = 0; t < (int)r->g->tensors; t++) {
        const kolo_tensor *x = &r->g->tensor[t];
        if (x->producer >= 0) continue;
        char name[256];
        const kolo_tensor whole = kolo_tensor_whole(x, name);
        const int64_t count = kolo_tensor_count(&whole);
        float *v = malloc((size_t)count * sizeof *v), *slab = malloc((size_t)count * sizeof *slab);
        whole_numbers(name, x->role == KOLO_ROLE_PARAM ? -1 : 0, 1, v, count);
        if (x->slab.runs) kolo_slab_take(x, slab, v);
        rig_set(r, t, x->slab.runs ? slab : v);
        free(v);
        free(slab);
    }
}

/* A copy of a tensor; the caller frees it. */
static float *values_of(rig *r, int t)
{
    float *v = malloc((size_t)kolo_tensor_count(&r->g->tensor[t]) * sizeof *v + 1);
    rig_get(r, t, v);
    return v;
}

#endif
