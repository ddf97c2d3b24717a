/* Affine and perspective maps of whole images: coordinates in double, 64 at a time, then
 * integers of 1/256 pixel. */
#include <math.h>
#include <string.h>

#include "base/wide.h"
#include "data/augment/detect.h"

typedef int32_t four __attribute__((vector_size(16)));
typedef uint8_t bytes __attribute__((vector_size(16)));

#define ALWAYS static inline __attribute__((always_inline))

/* One pixel's three channels as integers; the fourth is the next pixel's. */
ALWAYS void load(const uint8_t *from, four *to)
{
    int32_t word;
    memcpy(&word, from, sizeof word);
    const bytes packed = (bytes)(four){word}, zero = {0};
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    *to = (four)__builtin_shufflevector(packed, zero, 0, 16, 17, 18, 1, 19, 20, 21, 2, 22, 23, 24, 3, 25, 26,
                                        27);
#else
    *to = (four)__builtin_shufflevector(packed, zero, 16, 17, 18, 0, 19, 20, 21, 1, 22, 23, 24, 2, 25, 26, 27,
                                        3);
#endif
}

enum { RUN = 64 };

/* Where the points of a row's next outputs lie, in 1/256 pixel from the middle of the first pixel; far
 * outside where they have no place. */
typedef struct run {
    int32_t x[RUN], y[RUN];
} run;

static const double far = 1 << 22; /* 256 times that fits an integer */

/* also where it is no number */
ALWAYS double hold(double at) { return at > -far ? at < far ? at : far : -far; }

KOLO_CLONES static void find_affine(run *r, const double *m, int row, int column)
{
    const double x0 = m[1] * (row + 0.5) + m[2] - 0.5, y0 = m[4] * (row + 0.5) + m[5] - 0.5;
    for (int i = 0; i < RUN; i++) {
        r->x[i] = (int32_t)floor(hold(m[0] * (column + i + 0.5) + x0) * 256 + 0.5);
        r->y[i] = (int32_t)floor(hold(m[3] * (column + i + 0.5) + y0) * 256 + 0.5);
    }
}

/* Behind the horizon (depth <= 0) there is nothing. */
static void find_perspective(run *r, const double *m, int row, int column)
{
    const double y = row + 0.5;
    for (int i = 0; i < RUN; i++) {
        const double x = column + i + 0.5, depth = m[6] * x + m[7] * y + m[8];
        const double in_x = (m[0] * x + m[1] * y + m[2]) / depth, in_y = (m[3] * x + m[4] * y + m[5]) / depth;
        r->x[i] = (int32_t)floor(hold(depth > 0 ? in_x - 0.5 : -far) * 256 + 0.5);
        r->y[i] = (int32_t)floor(hold(depth > 0 ? in_y - 0.5 : -far) * 256 + 0.5);
    }
}

ALWAYS void blend(const four *a, const four *b, const four *c, const four *d, int fx, int fy, uint8_t *to)
{
    const four above = *a * (256 - fx) + *b * fx, below = *c * (256 - fx) + *d * fx;
    const four sum = (above * (256 - fy) + below * fy + 32768) >> 16;
    to[0] = (uint8_t)sum[0];
    to[1] = (uint8_t)sum[1];
    to[2] = (uint8_t)sum[2];
}

/* One of the four pixels where some lie outside. */
static void load_edge(const kolo_image *p, int x, int y, int fill, four *to)
{
    if (x < 0 || y < 0 || x >= p->width || y >= p->height) {
        *to = (four){fill, fill, fill, fill};
        return;
    }
    const uint8_t *at = p->pixels + 3 * ((size_t)y * (size_t)p->width + (size_t)x);
    *to = (four){at[0], at[1], at[2], 0};
}

static void warp_edge(const kolo_image *p, int x, int y, int fx, int fy, int fill, uint8_t *to)
{
    four a, b, c, d;
    load_edge(p, x, y, fill, &a);
    load_edge(p, x + 1, y, fill, &b);
    load_edge(p, x, y + 1, fill, &c);
    load_edge(p, x + 1, y + 1, fill, &d);
    blend(&a, &b, &c, &d, fx, fy, to);
}

KOLO_CLONES static void warp_run(const kolo_image *p, const run *r, int n, int fill, uint8_t *to)
{
    const int width = p->width, height = p->height;
    const size_t stride = 3 * (size_t)width;
    const uint8_t *pixels = p->pixels;
    for (int i = 0; i < n; i++, to += 3) {
        const int x = r->x[i] >> 8, y = r->y[i] >> 8, fx = r->x[i] & 255, fy = r->y[i] & 255;
        if ((unsigned)x < (unsigned)(width - 1) && (unsigned)y < (unsigned)(height - 1)) {
            const uint8_t *at = pixels + (size_t)y * stride + 3 * (size_t)x;
            four a, b, c, d;
            load(at, &a);
            load(at + 3, &b);
            load(at + stride, &c);
            load(at + stride + 3, &d); /* of the last pixel a byte behind the image, in its slack */
            blend(&a, &b, &c, &d, fx, fy, to);
        } else if (x < -1 || y < -1 || x >= width || y >= height) {
            to[0] = to[1] = to[2] = (uint8_t)fill;
        } else {
            warp_edge(p, x, y, fx, fy, fill, to);
        }
    }
}

void kolo_detect_warp(const kolo_image *from, const double *inverse, int fill, kolo_image *to)
{
    const bool affine = inverse[6] == 0 && inverse[7] == 0;
    double m[9];
    run r;
    for (int k = 0; k < 9; k++) m[k] = affine ? inverse[k] / inverse[8] : inverse[k];
    uint8_t *out = to->pixels;
    for (int row = 0; row < to->height; row++)
        for (int column = 0; column < to->width; column += RUN) {
            const int n = to->width - column < RUN ? to->width - column : RUN;
            if (affine) find_affine(&r, m, row, column);
            else find_perspective(&r, m, row, column);
            warp_run(from, &r, n, fill, out);
            out += 3 * n;
        }
}
