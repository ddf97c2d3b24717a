/* Max pooling of plain planes (one channel each), where vectors cannot run along channels. */
#ifndef KOLO_OPS_CPU_POOL_PLAIN_H
#define KOLO_OPS_CPU_POOL_PLAIN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_window {
    int64_t height, width, out_height, out_width, kernel[2], stride[2], pad[2];
} kolo_window;

/* readable: elements of x from here to the end of its tensor; at least the plane */
void kolo_max_plane(const kolo_window *w, void *y, uint8_t *index, const void *x, int64_t readable,
                    bool bf16);
/* acc (height, width) += dy at the maxima */
void kolo_max_plane_grad(const kolo_window *w, float *acc, const void *dy, const uint8_t *index, bool bf16);

#endif
