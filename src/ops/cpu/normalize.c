/* u8 pictures (N, H, W, C) -> normalised activations in the network's layout and type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"

typedef struct normalize { kolo_view y; float mean[4], std[4]; int threads; } normalize;

/* `n` pixels of `channels`; channel c of pixel i goes to y[c * channel_step + i * pixel_step]. */
KOLO_ALWAYS void pixels_of(void *y, const uint8_t *x, int64_t n, int channels, int64_t channel_step, int64_t pixel_step, const normalize *p,
                           bool bf16)
{
    for (int c = 0; c < channels; c++) {
        const float mean = p->mean[c], std = p->std[c];
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            kolo_store(y, c * channel_step + i * pixel_step, kolo_pixel1(x[i * channels + c], mean, std), bf16);
    }
}

KOLO_ALWAYS void pixels_typed(void *y, const uint8_t *x, int64_t n, int channels, int64_t channel_step, int64_t pixel_step,
                              const normalize *p, bool bf16)
{
    if (channels == 1 && pixel_step == 1) pixels_of(y, x, n, 1, 0, 1, p, bf16);
    else if (channels == 3 && pixel_step == 1) pixels_of(y, x, n, 3, channel_step, 1, p, bf16);
    else if (channels == 3 && pixel_step == 3 && channel_step == 1) pixels_of(y, x, n, 3, 1, 3, p, bf16);
    else pixels_of(y, x, n, channels, channel_step, pixel_step, p, bf16);
}
KOLO_BODY pixels_body(void *y, const uint8_t *x, int64_t n, int channels, int64_t channel_step, int64_t pixel_step, const normalize *p)
{
    KOLO_FOR_TYPE(p->y.bf16, pixels_typed(y, x, n, channels, channel_step, pixel_step, p, bf16_));
}
KOLO_WIDE(pixels, (void *y, const uint8_t *x, int64_t n, int channels, int64_t channel_step, int64_t pixel_step, const normalize *p),
          (y, x, n, channels, channel_step, pixel_step, p))

static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const normalize *p = k->state;
    const kolo_view *v = &p->y;
    int64_t row = v->blocks * kolo_view_plane(v), channel_step = v->block == 1 ? v->pixels : 1;
    bool padded = v->blocks * v->block > v->channels;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t t = 0; t < v->rows * v->height; t++) {
        int64_t at = t * v->width * v->block;
        if (v->block == 1) at = t / v->height * row + t % v->height * v->width;
        void *y = kolo_at_out(args[1], at, v->bf16);
        if (padded) memset(y, 0, (size_t)(v->width * v->block) << (v->bf16 ? 1 : 2));
        pixels(y, (const uint8_t *)args[0] + t * v->width * v->channels, v->width, (int)v->channels, channel_step, v->block, p);
    }
    return 0;
}

static int prepare(const kolo_request *r, kolo_kernel *k)
{
    normalize *p = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ECONFIG;
    k->state = p;
    k->release = free;
    k->run = run;
    p->y = kolo_cpu_view_out(r, 0);
    if (p->y.channels > 4 || (p->y.block > 1 && p->y.blocks > 1))
        return kolo_fail(KOLO_EINTERNAL, "normalize: %ld channels in blocks of %ld", (long)p->y.channels, (long)p->y.block);
    memcpy(p->mean, r->node->a.mean, sizeof p->mean);
    memcpy(p->std, r->node->a.std, sizeof p->std);
    p->threads = kolo_cpu_threads(r->backend, kolo_view_count(&p->y));
    snprintf(k->name, sizeof k->name, "own block %ld%s", (long)p->y.block, p->y.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_normalize = {NULL, prepare};
