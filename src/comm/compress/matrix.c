#include "comm/compress/codec.h"

#include <math.h>
#include <string.h>

#include "comm/core/kernel_wide.h"

enum { SUMS = 16 };

/* out[i] += a * x[i] */
KOLO_CLONES_512 static void add_scaled(float *restrict out, const float *restrict x, float a, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] += a * x[i];
}

/* Sixteen sums side by side, the order whatever the vectors' width. */
#define DOT(name, type)                                                             \
    KOLO_CLONES_512 static type name(const float *a, const float *b, int64_t count) \
    {                                                                               \
        type sum[SUMS] = {0};                                                       \
        int64_t i = 0;                                                              \
        for (; i + SUMS <= count; i += SUMS)                                        \
            for (int j = 0; j < SUMS; j++) sum[j] += (type)a[i + j] * b[i + j];     \
        for (int j = 0; i < count; i++, j++) sum[j] += (type)a[i] * b[i];           \
        for (int half = SUMS / 2; half; half /= 2)                                  \
            for (int j = 0; j < half; j++) sum[j] += sum[j + half];                 \
        return sum[0];                                                              \
    }
DOT(dot, float)
DOT(dot_f64, double)

/* Blocked storage has lanes of one width: a whole group of them at a time, sums in registers. */
enum { LANES = 16 };

KOLO_CLONES_512 static void group_times(float *restrict p, const float *restrict data,
                                        const float *restrict q, int64_t columns)
{
    float sum[LANES] = {0};
    for (int64_t k = 0; k < columns; k++)
        for (int j = 0; j < LANES; j++) sum[j] += data[k * LANES + j] * q[k];
    memcpy(p, sum, sizeof sum);
}

KOLO_CLONES_512 static void group_transposed_times(float *restrict q, const float *restrict data,
                                                   const float *restrict p, int64_t columns)
{
    for (int64_t k = 0; k < columns; k++) {
        float v[LANES];
        for (int j = 0; j < LANES; j++) v[j] = data[k * LANES + j] * p[j];
        for (int half = LANES / 2; half; half /= 2)
            for (int j = 0; j < half; j++) v[j] += v[j + half];
        q[k] += v[0];
    }
}

KOLO_CLONES_512 static void group_add_product(float *restrict out, const float *restrict p,
                                              const float *restrict q, int64_t columns, float factor)
{
    for (int64_t k = 0; k < columns; k++) {
        float a = factor * q[k];
        for (int j = 0; j < LANES; j++) out[k * LANES + j] += a * p[j];
    }
}

void matrix_times(float *p, const comm_matrix *m, const float *data, const float *q, int rank)
{
    int64_t rows = matrix_rows(m);
    memset(p, 0, (size_t)(rows * rank) * sizeof *p);
    for (int64_t g = 0; g < m->groups; g++, data += m->columns * m->lanes)
        for (int r = 0; r < rank; r++) {
            float *to = p + r * rows + g * m->lanes;
            const float *by = q + r * m->columns;
            if (m->lanes == LANES) group_times(to, data, by, m->columns);
            else
                for (int64_t k = 0; k < m->columns; k++) add_scaled(to, data + k * m->lanes, by[k], m->lanes);
        }
}

void matrix_transposed_times(float *q, const comm_matrix *m, const float *data, const float *p, int rank)
{
    memset(q, 0, (size_t)(m->columns * rank) * sizeof *q);
    for (int64_t g = 0; g < m->groups; g++, data += m->columns * m->lanes)
        for (int r = 0; r < rank; r++) {
            float *to = q + r * m->columns;
            const float *by = p + r * matrix_rows(m) + g * m->lanes;
            if (m->lanes == LANES) group_transposed_times(to, data, by, m->columns);
            else
                for (int64_t k = 0; k < m->columns; k++) to[k] += dot(data + k * m->lanes, by, m->lanes);
        }
}

void matrix_add_product(float *out, const comm_matrix *m, const float *p, const float *q, int rank,
                        float factor)
{
    for (int64_t g = 0; g < m->groups; g++, out += m->columns * m->lanes)
        for (int r = 0; r < rank; r++) {
            const float *left = p + r * matrix_rows(m) + g * m->lanes, *right = q + r * m->columns;
            if (m->lanes == LANES) group_add_product(out, left, right, m->columns, factor);
            else
                for (int64_t k = 0; k < m->columns; k++)
                    add_scaled(out + k * m->lanes, left, factor * right[k], m->lanes);
        }
}

KOLO_CLONES_512 static void subtract(float *restrict out, const float *restrict x, double a, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = (float)(out[i] - a * x[i]);
}

bool matrix_orthonormalise(float *p, int64_t rows, int rank)
{
    static const double dependent = 1e-5; /* of a column's length: what f32 leaves of it is rounding */
    bool finite = true;
    for (int r = 0; r < rank; r++) {
        float *column = p + r * rows;
        double whole = sqrt(dot_f64(column, column, rows)), rest = whole;
        finite &= isfinite(whole) != 0;
        for (int pass = 0; pass < 2 && whole > 0; pass++) {
            for (int s = 0; s < r; s++)
                subtract(column, p + s * rows, dot_f64(column, p + s * rows, rows), rows);
            rest = sqrt(dot_f64(column, column, rows));
            double inverse = rest > dependent * (pass ? 1 : whole) && isfinite(rest) ? 1 / rest : 0;
            for (int64_t i = 0; i < rows; i++) column[i] = (float)(column[i] * inverse);
            if (inverse == 0) break;
        }
    }
    return finite;
}
