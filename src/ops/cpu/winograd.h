/* Winograd's minimal filtering F(4 x 4, 3 x 3) (Lavin & Gray, arXiv:1509.09308) on vectors of 16 channels:
 * a tile of 4 x 4 results from 6 x 6 numbers by 36 products instead of 144. Interpolated at 0, +-5/8, +-3/2
 * and infinity, which round less than +-1 and +-2. Along an axis a tile may also have 3 results, which are
 * made of 5 numbers by all points but -3/2; what its points of interpolation have other than the six, a
 * factor each, stands with the pixels, so taps and their gradients are the same. Each transform is done
 * along one axis, up to six vectors at a time, then along the other; arrays of a tile are 6 x 6, whatever
 * they hold. */
#ifndef KOLO_OPS_CPU_WINOGRAD_H
#define KOLO_OPS_CPU_WINOGRAD_H

#include "ops/cpu/access.h"

enum { KOLO_WINOGRAD_TILE = 4, KOLO_WINOGRAD_SIDE = 6, KOLO_WINOGRAD_POINTS = 36, KOLO_WINOGRAD_TAPS = 9 };

#define WINOGRAD_A .625f
#define WINOGRAD_B 1.5f
#define WINOGRAD_AA (WINOGRAD_A * WINOGRAD_A)
#define WINOGRAD_BB (WINOGRAD_B * WINOGRAD_B)
/* 1 / product of the distances of a point from the others */
#define WINOGRAD_N0 (1 / (WINOGRAD_AA * WINOGRAD_BB))
#define WINOGRAD_NA (1 / (2 * WINOGRAD_AA * (WINOGRAD_AA - WINOGRAD_BB)))
#define WINOGRAD_NB (1 / (2 * WINOGRAD_BB * (WINOGRAD_BB - WINOGRAD_AA)))

/* Whether a tile of so many results along an axis has this point of it. */
KOLO_ALWAYS bool kolo_winograd_point(int point, int results)
{
    return point != 4 || results == KOLO_WINOGRAD_TILE;
}

/* 5 pixels to the points of 3 results */
KOLO_ALWAYS void kolo_winograd_pixels_3(kolo_v16 *v, int to, const kolo_v16 *d, int from)
{
    const float a = WINOGRAD_A, b = WINOGRAD_B;
    const kolo_v16 d1 = d[from], d2 = d[2 * from], d3 = d[3 * from];
    v[0] = b * (d3 - b * d2 - a * a * d1) + a * a * b * b * d[0];
    v[to] = (a + b) * (d3 + (a - b) * d2 - a * b * d1);
    v[2 * to] = (b - a) * (d3 - (a + b) * d2 + a * b * d1);
    v[3 * to] = 2 * b * (d3 - a * a * d1);
    v[5 * to] = d[4 * from] - b * d3 - a * a * d2 + a * a * b * d1;
}

/* The points of 3 results to these */
KOLO_ALWAYS void kolo_winograd_results_3(kolo_v16 *y, int to, const kolo_v16 *m, int from)
{
    const kolo_v16 sum_a = m[from] + m[2 * from], apart_a = m[from] - m[2 * from], m3 = m[3 * from];
    y[0] = m[0] + sum_a + m3;
    y[to] = WINOGRAD_A * apart_a + WINOGRAD_B * m3;
    y[2 * to] = WINOGRAD_AA * sum_a + WINOGRAD_BB * m3 + m[5 * from];
}

/* Gradients of 3 results to their points */
KOLO_ALWAYS void kolo_winograd_gradients_3(kolo_v16 *z, int to, const kolo_v16 *y, int from)
{
    const kolo_v16 y1 = y[from], y2 = y[2 * from], even = y[0] + WINOGRAD_AA * y2, odd = WINOGRAD_A * y1;
    z[0] = y[0];
    z[to] = even + odd;
    z[2 * to] = even - odd;
    z[3 * to] = y[0] + WINOGRAD_B * y1 + WINOGRAD_BB * y2;
    z[5 * to] = y2;
}

/* 6 pixels to 6 points, or as above: `results` is a constant, 4 or 3 */
KOLO_ALWAYS void kolo_winograd_pixels(kolo_v16 *v, int to, const kolo_v16 *d, int from, int results)
{
    if (results == 3) {
        kolo_winograd_pixels_3(v, to, d, from);
        return;
    }
    const kolo_v16 d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from];
    const kolo_v16 even_a = d4 - WINOGRAD_BB * d2, odd_a = WINOGRAD_A * (d3 - WINOGRAD_BB * d1);
    const kolo_v16 even_b = d4 - WINOGRAD_AA * d2, odd_b = WINOGRAD_B * (d3 - WINOGRAD_AA * d1);
    v[0] = WINOGRAD_AA * WINOGRAD_BB * d[0] - (WINOGRAD_AA + WINOGRAD_BB) * d2 + d4;
    v[to] = even_a + odd_a;
    v[2 * to] = even_a - odd_a;
    v[3 * to] = even_b + odd_b;
    v[4 * to] = even_b - odd_b;
    v[5 * to] = WINOGRAD_AA * WINOGRAD_BB * d1 - (WINOGRAD_AA + WINOGRAD_BB) * d3 + d[5 * from];
}

/* 6 points to 4 results, or as above */
KOLO_ALWAYS void kolo_winograd_results(kolo_v16 *y, int to, const kolo_v16 *m, int from, int results)
{
    if (results == 3) {
        kolo_winograd_results_3(y, to, m, from);
        return;
    }
    const kolo_v16 sum_a = m[from] + m[2 * from], apart_a = m[from] - m[2 * from];
    const kolo_v16 sum_b = m[3 * from] + m[4 * from], apart_b = m[3 * from] - m[4 * from];
    y[0] = m[0] + sum_a + sum_b;
    y[to] = WINOGRAD_A * apart_a + WINOGRAD_B * apart_b;
    y[2 * to] = WINOGRAD_AA * sum_a + WINOGRAD_BB * sum_b;
    y[3 * to] = WINOGRAD_AA * WINOGRAD_A * apart_a + WINOGRAD_BB * WINOGRAD_B * apart_b + m[5 * from];
}

/* 4 gradients of results to 6 points, or as above */
KOLO_ALWAYS void kolo_winograd_gradients(kolo_v16 *z, int to, const kolo_v16 *y, int from, int results)
{
    if (results == 3) {
        kolo_winograd_gradients_3(z, to, y, from);
        return;
    }
    const kolo_v16 y0 = y[0], y1 = y[from], y2 = y[2 * from], y3 = y[3 * from];
    const kolo_v16 even_a = y0 + WINOGRAD_AA * y2, odd_a = WINOGRAD_A * (y1 + WINOGRAD_AA * y3);
    const kolo_v16 even_b = y0 + WINOGRAD_BB * y2, odd_b = WINOGRAD_B * (y1 + WINOGRAD_BB * y3);
    z[0] = y0;
    z[to] = even_a + odd_a;
    z[2 * to] = even_a - odd_a;
    z[3 * to] = even_b + odd_b;
    z[4 * to] = even_b - odd_b;
    z[5 * to] = y3;
}

/* 3 taps to 6 points */
KOLO_ALWAYS void kolo_winograd_taps(kolo_v16 *u, int to, const kolo_v16 *g, int from)
{
    const kolo_v16 g0 = g[0], g1 = g[from], g2 = g[2 * from];
    const kolo_v16 even_a = WINOGRAD_NA * (g0 + WINOGRAD_AA * g2), odd_a = WINOGRAD_NA * WINOGRAD_A * g1;
    const kolo_v16 even_b = WINOGRAD_NB * (g0 + WINOGRAD_BB * g2), odd_b = WINOGRAD_NB * WINOGRAD_B * g1;
    u[0] = WINOGRAD_N0 * g0;
    u[to] = even_a + odd_a;
    u[2 * to] = even_a - odd_a;
    u[3 * to] = even_b + odd_b;
    u[4 * to] = even_b - odd_b;
    u[5 * to] = g2;
}

/* 6 points to gradients of 3 taps */
KOLO_ALWAYS void kolo_winograd_tap_gradients(kolo_v16 *g, int to, const kolo_v16 *m, int from)
{
    const kolo_v16 sum_a = WINOGRAD_NA * (m[from] + m[2 * from]);
    const kolo_v16 sum_b = WINOGRAD_NB * (m[3 * from] + m[4 * from]);
    g[0] = WINOGRAD_N0 * m[0] + sum_a + sum_b;
    g[to] = WINOGRAD_NA * WINOGRAD_A * (m[from] - m[2 * from]) +
            WINOGRAD_NB * WINOGRAD_B * (m[3 * from] - m[4 * from]);
    g[2 * to] = WINOGRAD_AA * sum_a + WINOGRAD_BB * sum_b + m[5 * from];
}

/* Along the rows, those with row(i), then along the columns with column(j): of a tile of high x wide
 * results, which are constants. */
#define KOLO_WINOGRAD_MAP(name, along, row, column)                               \
    KOLO_ALWAYS void name(kolo_v16 *to, const kolo_v16 *from, int high, int wide) \
    {                                                                             \
        kolo_v16 half[36];                                                        \
        for (int i = 0; i < 6; i++)                                               \
            if (row) along(half + i * 6, 1, from + i * 6, 1, wide);               \
        for (int j = 0; j < 6; j++)                                               \
            if (column) along(to + j, 6, half + j, 6, high);                      \
    }
KOLO_WINOGRAD_MAP(kolo_winograd_pixels_2d, kolo_winograd_pixels, i < high + 2, kolo_winograd_point(j, wide))
KOLO_WINOGRAD_MAP(kolo_winograd_results_2d, kolo_winograd_results, kolo_winograd_point(i, high), j < wide)
KOLO_WINOGRAD_MAP(kolo_winograd_gradients_2d, kolo_winograd_gradients, i < high, kolo_winograd_point(j, wide))

/* The same of weights: from n x n vectors to m x m. */
#define KOLO_WINOGRAD_BOTH(name, n, m, along)                                \
    KOLO_ALWAYS void name(kolo_v16 *to, const kolo_v16 *from)                \
    {                                                                        \
        kolo_v16 half[n * m];                                                \
        for (int i = 0; i < n; i++) along(half + i * m, 1, from + i * n, 1); \
        for (int j = 0; j < m; j++) along(to + j, m, half + j, m);           \
    }
KOLO_WINOGRAD_BOTH(kolo_winograd_taps_2d, 3, 6, kolo_winograd_taps)
KOLO_WINOGRAD_BOTH(kolo_winograd_tap_gradients_2d, 6, 3, kolo_winograd_tap_gradients)

/* 8 rows of two blocks of 16 columns (of one, if `wide` is 1): c = a b, or c += a b. A number of `a` is at
 * row * its row + step * its place in the sum; sums go over `outer` x `inner` places, and after `inner` of
 * them `a` goes on by a_next. b is [place][16], the second block b_next behind; c is [row][16], likewise. */
enum { KOLO_WINOGRAD_ROWS = 8 };
typedef struct kolo_winograd_product {
    int64_t outer, inner, a_next, b_next, c_next;
} kolo_winograd_product;

KOLO_ALWAYS void kolo_winograd_multiply(const kolo_winograd_product *p, const float *a, int row, int step,
                                        const float *b, float *c, int wide, bool add)
{
    kolo_v16 sum[KOLO_WINOGRAD_ROWS][2];
    for (int r = 0; r < KOLO_WINOGRAD_ROWS; r++)
        for (int w = 0; w < wide; w++)
            sum[r][w] = add ? *(const kolo_v16 *)(c + w * p->c_next + r * 16) : (kolo_v16){0};
    for (int64_t o = 0; o < p->outer; o++, a += p->a_next)
        for (int64_t k = 0; k < p->inner; k++, b += 16) {
            kolo_v16 column[2];
            for (int w = 0; w < wide; w++) column[w] = *(const kolo_v16 *)(b + w * p->b_next);
            for (int r = 0; r < KOLO_WINOGRAD_ROWS; r++)
                for (int w = 0; w < wide; w++) sum[r][w] += a[r * row + k * step] * column[w];
        }
    for (int r = 0; r < KOLO_WINOGRAD_ROWS; r++)
        for (int w = 0; w < wide; w++) *(kolo_v16 *)(c + w * p->c_next + r * 16) = sum[r][w];
}

#endif
