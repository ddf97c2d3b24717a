/* u8 images (N, H, W, C) -> normalised activations in the network's layout and type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/cpu.h"
#include "ops/element.h"

/* table: the normalised value of each pixel value, f32 or bf16 */
typedef struct normalize {
    kolo_view y;
    float table[4][256];
    uint16_t table_bf16[4][256];
    bool reverse;
    int threads;
} normalize;

/* `n` pixels; channel c of pixel i goes to y[c * channel_step + i * pixel_step]. A look-up is
 * faster than two divisions. */
static void pixels(void *y, const uint8_t *x, int64_t n, int64_t channels, int64_t channel_step,
                   int64_t pixel_step, const normalize *p)
{
    for (int64_t c = 0; c < channels; c++) {
        const float *table = p->table[c];
        const uint16_t *table_bf16 = p->table_bf16[c];
        float *to = (float *)y + c * channel_step;
        uint16_t *to_bf16 = (uint16_t *)y + c * channel_step;
        if (p->y.bf16)
            for (int64_t i = 0; i < n; i++) to_bf16[i * pixel_step] = table_bf16[x[i * channels + c]];
        else
            for (int64_t i = 0; i < n; i++) to[i * pixel_step] = table[x[i * channels + c]];
    }
}

static int normalize_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                         int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const normalize *p = k->state;
    const kolo_view *v = &p->y;
    int64_t row = v->blocks * kolo_view_plane(v), channel_step = v->block == 1 ? v->pixels : 1;
    int64_t first = 0;
    if (p->reverse) first = (v->channels - 1) * channel_step, channel_step = -channel_step;
    bool padded = v->blocks * v->block > v->channels;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t t = 0; t < v->rows * v->height; t++) {
        int64_t at = t * v->width * v->block;
        if (v->block == 1) at = t / v->height * row + t % v->height * v->width;
        void *y = kolo_at_out(args[1], at, v->bf16);
        if (padded) memset(y, 0, (size_t)(v->width * v->block) << (v->bf16 ? 1 : 2));
        pixels(kolo_at_out(y, first, v->bf16), (const uint8_t *)args[0] + t * v->width * v->channels,
               v->width, v->channels, channel_step, v->block, p);
    }
    return 0;
}

static int normalize_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    normalize *p = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    k->state = p;
    k->release = free;
    k->run = normalize_run;
    p->y = kolo_cpu_view_out(r, 0);
    if (p->y.channels > 4 || (p->y.block > 1 && p->y.blocks > 1))
        return kolo_fail(KOLO_EINTERNAL, "normalize: %ld channels in blocks of %ld", (long)p->y.channels,
                         (long)p->y.block);
    for (int64_t c = 0; c < p->y.channels; c++)
        for (int v = 0; v < 256; v++) {
            p->table[c][v] = kolo_pixel1((uint8_t)v, r->node->a.mean[c], r->node->a.std[c]);
            p->table_bf16[c][v] = kolo_to_bf16(p->table[c][v]);
        }
    p->reverse = r->node->a.reverse;
    p->threads = kolo_cpu_threads(r->backend, kolo_view_count(&p->y));
    snprintf(k->name, sizeof k->name, "own block %ld%s", (long)p->y.block, p->y.bf16 ? " bf16" : "");
    return 0;
}

const kolo_op_row kolo_cpu_normalize = {NULL, normalize_prepare};
