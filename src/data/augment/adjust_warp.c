/* Affine maps with bilinear and bicubic interpolation, in double as Pillow has them, so that
 * every byte is the same. */
#include "data/augment/adjust.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wide.h"

typedef double four __attribute__((vector_size(32)));
typedef int32_t four_int __attribute__((vector_size(16)));
typedef uint32_t four_words __attribute__((vector_size(16)));
typedef uint8_t bytes __attribute__((vector_size(16)));

#define ALWAYS static inline __attribute__((always_inline))

/* One pixel as numbers; where it has one channel, the others are of the next pixels and mean nothing. Bytes
 * are spread to integers by hand, because the compiler would do it one by one. */
ALWAYS void load(const uint8_t *from, four *to)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    const bytes packed = (bytes)(four_words){word}, zero = {0};
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const bytes spread =
        __builtin_shufflevector(packed, zero, 0, 16, 17, 18, 1, 19, 20, 21, 2, 22, 23, 24, 3, 25, 26, 27);
#else
    const bytes spread =
        __builtin_shufflevector(packed, zero, 16, 17, 18, 0, 19, 20, 21, 1, 22, 23, 24, 2, 25, 26, 27, 3);
#endif
    *to = __builtin_convertvector((four_int)spread, four);
}

/* To bytes: cut off, and held within 0 to 255. */
ALWAYS void store(const four *value, uint8_t *to, int channels)
{
    const four_int whole = __builtin_convertvector(*value, four_int), low = whole & ~(whole >> 31);
    const four_int over = (255 - low) >> 31, v = (low & ~over) | (over & 255);
    for (int k = 0; k < channels; k++) to[k] = (uint8_t)v[k];
}

/* Where the points of one row's next outputs lie: between pixels (left, top) and (left + 1, top + 1). */
enum { RUN = 64 };
enum place { OUTSIDE, BORDER, MIDDLE }; /* of the image; MIDDLE: all pixels that count lie in it */
typedef struct run {
    double dx[RUN], dy[RUN];
    int32_t left[RUN], top[RUN], place[RUN];
} run;

/* reach: pixels that count in front of a point, and as many behind it. */
ALWAYS void find(run *r, const kolo_canvas *c, const double *m, int row, int column, int reach)
{
    const double height = c->height, width = c->width, near = reach - 0.5;
    const double down_x = m[1] * (row + 0.5), down_y = m[4] * (row + 0.5);
    for (int i = 0; i < RUN; i++) {
        const double x = m[0] * (column + i + 0.5) + down_x + m[2],
                     y = m[3] * (column + i + 0.5) + down_y + m[5];
        const int32_t in = (x >= 0) & (x < width) & (y >= 0) & (y < height);
        const int32_t middle = (x >= near) & (x < width - near) & (y >= near) & (y < height - near);
        const double safe_x = in ? x - 0.5 : 0, safe_y = in ? y - 0.5 : 0;
        const double left = floor(safe_x), top = floor(safe_y);
        r->left[i] = (int32_t)left;
        r->top[i] = (int32_t)top;
        r->dx[i] = safe_x - left;
        r->dy[i] = safe_y - top;
        r->place[i] = in + middle;
    }
}

static inline int inside(int i, int n) { return i < 0 ? 0 : i < n ? i : n - 1; }

/* Offsets of the pixels that count, from the first of them where they lie side by side; at the border the
 * outermost counts again and again. */
ALWAYS size_t corner(const kolo_canvas *c, const run *r, int i, int channels, int reach, size_t *rows,
                     size_t *columns)
{
    const size_t stride = (size_t)c->width * (size_t)channels;
    const int left = r->left[i] + 1 - reach, top = r->top[i] + 1 - reach;
    const bool middle = r->place[i] == MIDDLE;
    for (int k = 0; k < 2 * reach; k++) {
        columns[k] = (size_t)(middle ? k : inside(left + k, c->width)) * (size_t)channels;
        rows[k] = (size_t)(middle ? k : inside(top + k, c->height)) * stride;
    }
    return middle ? (size_t)top * stride + (size_t)left * (size_t)channels : 0;
}

ALWAYS void linear_pixel(const uint8_t *from, const size_t *rows, const size_t *columns, double dx, double dy,
                         four *to)
{
    four v[2];
    for (int j = 0; j < 2; j++) {
        four a, b;
        load(from + rows[j] + columns[0], &a);
        load(from + rows[j] + columns[1], &b);
        v[j] = a + (b - a) * dx;
    }
    *to = v[0] + (v[1] - v[0]) * dy;
}

/* Through v[1] and v[2], with slopes from their neighbours. */
ALWAYS void cubic(const four *v, double d, four *to)
{
    const four p2 = -v[0] + v[2], p3 = 2 * (v[0] - v[1]) + v[2] - v[3], p4 = -v[0] + v[1] - v[2] + v[3];
    *to = v[1] + d * (p2 + d * (p3 + d * p4));
}

ALWAYS void cubic_pixel(const uint8_t *from, const size_t *rows, const size_t *columns, double dx, double dy,
                        four *to)
{
    four row[4], across[4];
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < 4; i++) load(from + rows[j] + columns[i], &row[i]);
        cubic(row, dx, &across[j]);
    }
    cubic(across, dy, to);
}

ALWAYS void warp_pixel(const kolo_canvas *c, const run *r, int i, uint8_t *to, int channels, bool by_cubic)
{
    size_t rows[4], columns[4];
    four value;
    if (by_cubic) {
        const size_t first = corner(c, r, i, channels, 2, rows, columns);
        cubic_pixel(c->spare + first, rows, columns, r->dx[i], r->dy[i], &value);
    } else {
        const size_t first = corner(c, r, i, channels, 1, rows, columns);
        linear_pixel(c->spare + first, rows, columns, r->dx[i], r->dy[i], &value);
    }
    store(&value, to, channels);
}

ALWAYS void warp(const kolo_canvas *canvas, const double *matrix, const uint8_t *fill, int channels,
                 bool by_cubic)
{
    const kolo_canvas c = *canvas; /* a copy, because writing bytes might change the original */
    uint8_t *to = c.pixels;
    run r;
    for (int row = 0; row < c.height; row++)
        for (int column = 0; column < c.width; column += RUN) {
            const int n = c.width - column < RUN ? c.width - column : RUN;
            find(&r, &c, matrix, row, column, by_cubic ? 2 : 1);
            for (int i = 0; i < n; i++, to += channels) {
                if (r.place[i] != OUTSIDE) warp_pixel(&c, &r, i, to, channels, by_cubic);
                else
                    for (int k = 0; k < channels; k++) to[k] = fill[k];
            }
        }
}

KOLO_CLONES static void warp_linear(const kolo_canvas *c, const double *matrix, const uint8_t *fill)
{
    if (c->channels == 3) warp(c, matrix, fill, 3, false);
    else warp(c, matrix, fill, 1, false);
}

KOLO_CLONES static void warp_cubic(const kolo_canvas *c, const double *matrix, const uint8_t *fill)
{
    if (c->channels == 3) warp(c, matrix, fill, 3, true);
    else warp(c, matrix, fill, 1, true);
}

void kolo_adjust_affine(kolo_canvas *c, const double *matrix, bool by_cubic, const uint8_t *fill)
{
    memcpy(c->spare, c->pixels, kolo_canvas_bytes(c));
    if (by_cubic) warp_cubic(c, matrix, fill);
    else warp_linear(c, matrix, fill);
}

/* 15 digits behind the point, as Image.rotate, so that quarter turns are exact. */
static double digits15(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.15f", x);
    return strtod(text, NULL);
}

void kolo_matrix_rotate(double *m, double degrees, int height, int width)
{
    const double turn = fmod(degrees, 360), x = width / 2.0, y = height / 2.0;
    const double angle = -(turn < 0 ? turn + 360 : turn) * (M_PI / 180);
    m[0] = digits15(cos(angle));
    m[1] = digits15(sin(angle));
    m[3] = digits15(-sin(angle));
    m[4] = digits15(cos(angle));
    m[2] = m[0] * -x + m[1] * -y + x;
    m[5] = m[3] * -x + m[4] * -y + y;
}

void kolo_matrix_affine(double *m, const kolo_affine *f)
{
    const double turn = f->degrees * (M_PI / 180), sx = f->shear_x * (M_PI / 180),
                 sy = f->shear_y * (M_PI / 180);
    const double a = cos(turn - sy) / cos(sy), b = -cos(turn - sy) * tan(sx) / cos(sy) - sin(turn);
    const double c = sin(turn - sy) / cos(sy), d = -sin(turn - sy) * tan(sx) / cos(sy) + cos(turn);
    const double x = -f->center_x - f->right, y = -f->center_y - f->down;
    m[0] = d / f->scale;
    m[1] = -b / f->scale;
    m[3] = -c / f->scale;
    m[4] = a / f->scale;
    m[2] = m[0] * x + m[1] * y + f->center_x;
    m[5] = m[3] * x + m[4] * y + f->center_y;
}
