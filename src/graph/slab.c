/* Slabs: parts of a parameter whose channels are cut. Files, and the numbers that it begins with, know the
 * whole tensor alone. */
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

kolo_tensor kolo_tensor_whole(const kolo_tensor *t, char name[256])
{
    kolo_tensor whole = *t;
    snprintf(name, 256, "%.*s", t->slab.runs ? t->slab.named : 255, t->name);
    if (t->slab.runs) whole.dim[t->slab.axis] = t->slab.whole;
    whole.slab = (kolo_slab){0};
    whole.name = name;
    return whole;
}

int kolo_graph_next_slab(const kolo_graph *g, int tensor)
{
    const kolo_tensor *t = &g->tensor[tensor];
    if (!t->slab.runs) return -1;
    for (int64_t i = tensor + 1; i < g->tensors; i++) {
        const kolo_tensor *x = &g->tensor[i];
        if (x->slab.runs && x->slab.named == t->slab.named &&
            !strncmp(x->name, t->name, (size_t)t->slab.named))
            return (int)i;
    }
    return -1;
}

int64_t kolo_graph_largest_slab(const kolo_graph *g, int tensor)
{
    int64_t most = 0;
    for (int t = tensor; t >= 0; t = kolo_graph_next_slab(g, t))
        if (kolo_tensor_count(&g->tensor[t]) > most) most = kolo_tensor_count(&g->tensor[t]);
    return most;
}

/* A slab in memory: `outer` x runs stretches of `length` elements, which in the whole are `apart` from each
 * other, the first at `at`. */
typedef struct stretches {
    int64_t n, length, apart, at;
} stretches;

static stretches stretches_of(const kolo_tensor *t)
{
    const kolo_slab *s = &t->slab;
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < s->axis; i++) outer *= t->dim[i];
    for (int i = s->axis + 1; i < t->rank; i++) inner *= t->dim[i];
    return (stretches){.n = outer * s->runs,
                       .length = t->dim[s->axis] / s->runs * inner,
                       .apart = s->whole / s->runs * inner,
                       .at = s->first * inner};
}

int64_t kolo_slab_element(const kolo_tensor *t, int64_t i)
{
    if (!t->slab.runs) return i;
    const stretches s = stretches_of(t);
    return i / s.length * s.apart + s.at + i % s.length;
}

void kolo_slab_take(const kolo_tensor *t, float *slab, const float *whole)
{
    const stretches s = stretches_of(t);
    for (int64_t k = 0; k < s.n; k++)
        memcpy(slab + k * s.length, whole + k * s.apart + s.at, (size_t)s.length * sizeof *slab);
}

void kolo_slab_put(const kolo_tensor *t, const float *slab, float *whole)
{
    const stretches s = stretches_of(t);
    for (int64_t k = 0; k < s.n; k++)
        memcpy(whole + k * s.apart + s.at, slab + k * s.length, (size_t)s.length * sizeof *slab);
}
