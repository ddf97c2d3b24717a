#include "ops/cpu/pool_plain.h"

#include <math.h>

#include "ops/cpu/access.h"

KOLO_ALWAYS void window_max(const kolo_window *w, void *y, uint8_t *index, const void *x, int64_t i,
                            int64_t j, bool bf16)
{
    int64_t top = i * w->stride[0] - w->pad[0], left = j * w->stride[1] - w->pad[1];
    int64_t h0 = top < 0 ? -top : 0, w0 = left < 0 ? -left : 0;
    int64_t h1 = top + w->kernel[0] > w->height ? w->height - top : w->kernel[0],
            w1 = left + w->kernel[1] > w->width ? w->width - left : w->kernel[1];
    int64_t at = h0 * w->kernel[1] + w0;
    float most = -INFINITY;
    for (int64_t kh = h0; kh < h1; kh++)
        for (int64_t kw = w0; kw < w1; kw++) {
            float v = kolo_load(x, (top + kh) * w->width + left + kw, bf16);
            bool larger = v > most || v != v;
            most = larger ? v : most;
            at = larger ? kh * w->kernel[1] + kw : at;
        }
    kolo_store(y, i * w->out_width + j, most, bf16);
    index[i * w->out_width + j] = (uint8_t)at;
}

/* Sixteen windows of 2 x 2, stride 2, at x (top left corner of the first); writes sixteen results. */
KOLO_ALWAYS void sixteen(float *restrict y, uint8_t *restrict index, const float *restrict x, int64_t width)
{
#pragma omp simd
    for (int l = 0; l < 16; l++) {
        float most = x[2 * l], v = x[2 * l + 1];
        uint32_t at = 0;
        at = v > most || v != v ? 1 : at;
        most = v > most || v != v ? v : most;
        v = x[width + 2 * l];
        at = v > most || v != v ? 2 : at;
        most = v > most || v != v ? v : most;
        v = x[width + 2 * l + 1];
        at = v > most || v != v ? 3 : at;
        most = v > most || v != v ? v : most;
        y[l] = most;
        index[l] = (uint8_t)at;
    }
}

/* Whole vectors may run over a row's end, whose successor is written later, but not over y's end, nor
 * beyond `readable` of x. */
KOLO_ALWAYS void halve(const kolo_window *w, float *y, uint8_t *index, const float *x, int64_t readable)
{
    int64_t size = w->out_height * w->out_width;
    float some[16];
    uint8_t at[16];
    for (int64_t i = 0; i < w->out_height; i++)
        for (int64_t j = 0; j < w->out_width; j += 16) {
            int64_t to = i * w->out_width + j, from = 2 * i * w->width + 2 * j,
                    left = w->out_width - j < 16 ? w->out_width - j : 16;
            if (from + w->width + 32 > readable) {
                for (int64_t k = j; k < j + left; k++) window_max(w, y, index, x, i, k, false);
            } else if (to + 16 > size) {
                sixteen(some, at, x + from, w->width);
                memcpy(y + to, some, (size_t)left * sizeof *y);
                memcpy(index + to, at, (size_t)left);
            } else {
                sixteen(y + to, index + to, x + from, w->width);
            }
        }
}

KOLO_BODY plane_body(const kolo_window *w, void *y, uint8_t *index, const void *x, int64_t readable,
                     bool bf16)
{
    bool halves = w->kernel[0] == 2 && w->kernel[1] == 2 && w->stride[0] == 2 && w->stride[1] == 2 &&
                  !w->pad[0] && !w->pad[1] && 2 * w->out_height <= w->height && 2 * w->out_width <= w->width;
    if (halves && !bf16) {
        halve(w, y, index, x, readable);
        return;
    }
    for (int64_t i = 0; i < w->out_height; i++)
        for (int64_t j = 0; j < w->out_width; j++)
            KOLO_FOR_TYPE(bf16, window_max(w, y, index, x, i, j, bf16_));
}
KOLO_WIDE(plane, (const kolo_window *w, void *y, uint8_t *index, const void *x, int64_t readable, bool bf16),
          (w, y, index, x, readable, bf16))

void kolo_max_plane(const kolo_window *w, void *y, uint8_t *index, const void *x, int64_t readable, bool bf16)
{
    plane(w, y, index, x, readable, bf16);
}

void kolo_max_plane_grad(const kolo_window *w, float *acc, const void *dy, const uint8_t *index, bool bf16)
{
    int64_t offset[256], width = w->kernel[1];
    for (int64_t k = 0; k < w->kernel[0] * width; k++) offset[k] = k / width * w->width + k % width;
    for (int64_t i = 0; i < w->out_height; i++) {
        float *row = acc + (i * w->stride[0] - w->pad[0]) * w->width - w->pad[1];
        for (int64_t j = 0; j < w->out_width; j++) {
            int64_t at = i * w->out_width + j;
            row[j * w->stride[1] + offset[index[at]]] +=
                bf16 ? kolo_load(dy, at, true) : kolo_load(dy, at, false);
        }
    }
}
