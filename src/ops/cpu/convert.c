/* Between the backend's layouts and canonical order (logical row-major f32). */
#include <stdlib.h>
#include <string.h>

#include "ops/cpu/access.h"
#include "base/failure.h"
#include "ops/cpu/cpu.h"
#include "ops/number.h"

static int by_dnnl(kolo_backend *b, const kolo_tensor *t, const kolo_layout *layout, const void *from,
                   void *to, bool canonical)
{
    kolo_dnnl *d = kolo_cpu_dnnl(b);
    const kolo_dnnl_desc *inner = layout->opaque, *outer = kolo_dnnl_rows_of(d, inner);
    kolo_dnnl_primitive *p = NULL;
    void *pointer[2] = {(void *)(uintptr_t)from, to}, *scratch = NULL;
    if (t->dtype != KOLO_F32) return kolo_fail(KOLO_EINTERNAL, "%s: a parameter is f32", t->name);
    if (!outer) return kolo_error_status();
    int rc = kolo_dnnl_make_reorder(d, canonical ? inner : outer, canonical ? outer : inner, &p);
    if (rc >= 0 && kolo_dnnl_scratch(p))
        rc = (scratch = malloc(kolo_dnnl_scratch(p))) ? 0 : kolo_fail(KOLO_ENOMEM, "out of memory");
    if (rc >= 0) rc = kolo_dnnl_run(p, pointer, scratch);
    free(scratch);
    kolo_dnnl_destroy(&p);
    return rc;
}

/* Where element (n, c, pixel) of a map lies. */
static int64_t convert_place(const kolo_view *v, int64_t n, int64_t c, int64_t pixel)
{
    return ((n * v->blocks + c / v->block) * v->pixels + pixel) * v->block + c % v->block;
}

int kolo_cpu_to_canonical(kolo_backend *b, const kolo_tensor *t, const kolo_layout *layout, const void *from,
                          float *to)
{
    if (layout->opaque) return by_dnnl(b, t, layout, from, to, true);
    int64_t count = kolo_tensor_count(t);
    if (!kolo_tensor_is_map(t)) {
        for (int64_t i = 0; i < count; i++) to[i] = kolo_number_read(from, i, t->dtype);
        return 0;
    }
    kolo_view v = kolo_cpu_view(t, layout);
    for (int64_t i = 0; i < count; i++) {
        int64_t plane = i / v.pixels;
        to[i] = kolo_number_read(
            from, convert_place(&v, plane / v.channels, plane % v.channels, i % v.pixels), t->dtype);
    }
    return 0;
}

int kolo_cpu_from_canonical(kolo_backend *b, const kolo_tensor *t, const kolo_layout *layout,
                            const float *from, void *to)
{
    if (layout->opaque) return by_dnnl(b, t, layout, from, to, false);
    int64_t count = kolo_tensor_count(t);
    if (!kolo_tensor_is_map(t)) {
        for (int64_t i = 0; i < count; i++) kolo_number_write(to, i, t->dtype, from[i]);
        return 0;
    }
    kolo_view v = kolo_cpu_view(t, layout);
    memset(to, 0, layout->bytes);
    for (int64_t i = 0; i < count; i++) {
        int64_t plane = i / v.pixels;
        kolo_number_write(to, convert_place(&v, plane / v.channels, plane % v.channels, i % v.pixels),
                          t->dtype, from[i]);
    }
    return 0;
}

/* ---- bf16 and f32 -------------------------------------------------------------------------------------- */

enum { PIECE = 16384 };

KOLO_BODY widen_body(float *to, const uint16_t *from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = kolo_from_bf16(from[i]);
}
KOLO_WIDE(widen, (float *to, const uint16_t *from, int64_t n), (to, from, n))

KOLO_BODY narrow_body(uint16_t *to, const float *from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = kolo_to_bf16(from[i]);
}
KOLO_WIDE(narrow, (uint16_t * to, const float *from, int64_t n), (to, from, n))

void kolo_cpu_widen(float *to, const void *from, int64_t count, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; i += PIECE)
        widen(to + i, (const uint16_t *)from + i, count - i < PIECE ? count - i : PIECE);
}

void kolo_cpu_narrow(void *to, const float *from, int64_t count, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; i += PIECE)
        narrow((uint16_t *)to + i, from + i, count - i < PIECE ? count - i : PIECE);
}
