/* What single networks want of the operations: pools whose windows reach further down and right than up and
 * left, channels in reverse order; averages to 7 x 7 pixels. Against the definitions or torch's figures, in
 * every layout and both types. */
#include "golden_adaptive.h"
#include "ops_rig.h"

enum { ROWS = 2, CHANNELS = 5 };

static float noise(int64_t i) { return (float)((uint64_t)(i + 1) * 2654435761u % 1000003) / 500000 - 1; }

/* Of the window at (h, w), clipped to the map: its maximum, or its mean. *from: where the maximum is. */
static float window(const float *plane, const int64_t *dim, int64_t kernel, int64_t stride, int64_t h,
                    int64_t w, bool max, int64_t *from)
{
    float most = -INFINITY, sum = 0;
    int count = 0;
    for (int64_t i = h * stride - (kernel - 1) / 2; i < h * stride - (kernel - 1) / 2 + kernel; i++)
        for (int64_t j = w * stride - (kernel - 1) / 2; j < w * stride - (kernel - 1) / 2 + kernel; j++) {
            if (i < 0 || j < 0 || i >= dim[2] || j >= dim[3]) continue;
            const float v = plane[i * dim[3] + j];
            if (v > most) most = v, *from = i * dim[3] + j;
            sum += v;
            count++;
        }
    return max ? most : sum / (float)count;
}

/* The sum of dy over the windows that took each pixel, by the definition of the forward. */
static void pool(kolo_backend *backend, int64_t block, bool max, int64_t kernel, int64_t stride,
                 int64_t height, int64_t width)
{
    rig r = rig_open(backend, KOLO_F32, block);
    const int64_t dim[] = {ROWS, CHANNELS, height, width}, n = ROWS * CHANNELS * height * width;
    int x = rig_input(&r, "x", 4, dim);
    int y = (max ? kolo_max_pool_same : kolo_avg_pool_same)(r.g, "y", x, kernel, stride);
    rig_check(y, "pool");
    const int64_t high = (height + stride - 1) / stride, wide = (width + stride - 1) / stride,
                  m = ROWS * CHANNELS * high * wide;
    const int dy = rig_backward(&r, y), dx = r.g->grad[x];
    rig_layout(&r);
    float *in = malloc((size_t)n * sizeof *in), *out = malloc((size_t)m * sizeof *out),
          *d = malloc((size_t)m * sizeof *d);
    float *want = calloc((size_t)n, sizeof *want), *got = malloc((size_t)n * sizeof *got);
    for (int64_t i = 0; i < n; i++) in[i] = noise(i) - 2; /* below 0: a zero outside would win */
    for (int64_t i = 0; i < m; i++) d[i] = noise(7 * i);
    rig_set(&r, x, in);
    rig_set(&r, dy, d);
    rig_run(&r);
    rig_get(&r, y, out);
    rig_get(&r, dx, got);
    double far = 0, back = 0;
    for (int64_t i = 0; i < m; i++) {
        const int64_t plane = i / (high * wide), h = i / wide % high, w = i % wide;
        int64_t from = 0;
        far = fmax(far, fabs((double)(out[i] - window(in + plane * height * width, dim, kernel, stride, h, w,
                                                      max, &from))));
        if (max) want[plane * height * width + from] += d[i];
    }
    for (int64_t i = 0; i < n && max; i++) back = fmax(back, fabs((double)(got[i] - want[i])));
    double sent = 0, arrived = 0; /* an average loses nothing on the way back */
    for (int64_t i = 0; i < m; i++) sent += (double)d[i];
    for (int64_t i = 0; i < n; i++) arrived += (double)got[i];
    back = fmax(back, fabs(sent - arrived) / 100);
    ok(r.g->tensor[y].dim[2] == high && r.g->tensor[y].dim[3] == wide && far < 1e-5 && back < 1e-5,
       "%s pool %ld, stride %ld, of %ld x %ld, block %ld: %ld x %ld, and back", max ? "max" : "average",
       (long)kernel, (long)stride, (long)height, (long)width, (long)block, (long)high, (long)wide);
    free(in), free(out), free(d), free(want), free(got);
    rig_close(&r);
}

/* Channel c has the figures' numbers times c + 1. */
static void adaptive(kolo_backend *backend, enum kolo_dtype dtype, int64_t block, size_t map)
{
    enum { DEEP = 21 };
    rig r = rig_open(backend, dtype, block);
    const int64_t high = golden_adaptive[map].height, wide = golden_adaptive[map].width, n = high * wide;
    const int x = rig_input(&r, "x", 4, (const int64_t[]){ROWS, DEEP, high, wide}),
              y = kolo_adaptive_avg_pool(r.g, "y", x, 7, 7);
    rig_check(y, "adaptive pool");
    const int dy = rig_backward(&r, y);
    rig_layout(&r);
    float *in = malloc((size_t)(ROWS * DEEP * n) * sizeof *in), *out = malloc(ROWS * DEEP * 49 * sizeof *out);
    for (int64_t i = 0; i < ROWS * DEEP * n; i++) in[i] = noise(i % n) * (float)(i / n % DEEP + 1);
    for (int64_t i = 0; i < ROWS * DEEP * 49; i++) out[i] = noise(7 * (i % 49)) * (float)(i / 49 % DEEP + 1);
    rig_set(&r, x, in);
    rig_set(&r, dy, out);
    rig_run(&r);
    rig_get(&r, y, out);
    rig_get(&r, r.g->grad[x], in);
    double far = 0, most = 0;
    for (int64_t i = 0; i < ROWS * DEEP * 49; i++)
        far = fmax(far, fabs((double)out[i] / (double)(i / 49 % DEEP + 1) - golden_adaptive[map].y[i % 49]));
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(golden_adaptive[map].dx[i]));
    for (int64_t i = 0; i < ROWS * DEEP * n; i++)
        far = fmax(far, fabs((double)in[i] / (double)(i / n % DEEP + 1) - golden_adaptive[map].dx[i % n]) /
                            fmax(most, 1));
    ok(far < (dtype == KOLO_F32 ? 1e-6 : 0x1p-7) && rig_padding_is_zero(&r),
       "%ld x %ld averaged to 7 x 7 pixels as torch does, and back, %s, block %ld (%.1e)", (long)high,
       (long)wide, kolo_dtype_name(dtype), (long)block, far);
    free(in), free(out);
    rig_close(&r);
}

static void reversed(kolo_backend *backend, enum kolo_dtype dtype, int64_t block)
{
    static const float mean[4] = {0.1f, 0.2f, 0.3f, 0}, std[4] = {0.5f, 0.25f, 0.125f, 1};
    rig r = rig_open(backend, dtype, block);
    const int pixels = kolo_input(r.g, ROWS, 3, 5, 3, 1), y = kolo_normalize(r.g, pixels, mean, std);
    rig_check(y, "normalize");
    r.g->node[0].a.reverse = true;
    rig_layout(&r);
    uint8_t *x = r.buffer[pixels];
    float got[ROWS * 3 * 15];
    for (int i = 0; i < ROWS * 15 * 3; i++) x[i] = (uint8_t)(37 * i);
    rig_run(&r);
    rig_get(&r, y, got);
    double far = 0;
    for (int i = 0; i < ROWS * 3 * 15; i++) {
        const int c = 2 - i / 15 % 3; /* of the image */
        far = fmax(far,
                   fabs((double)got[i] - ((double)x[(i / 45 * 15 + i % 15) * 3 + c] / 255 - (double)mean[c]) /
                                             (double)std[c]));
    }
    ok(far < (dtype == KOLO_F32 ? 1e-5 : 0.04), "normalize in reverse order, %s, block %ld",
       kolo_dtype_name(dtype), (long)block);
    rig_close(&r);
}

int main(void)
{
    kolo_backend *backend = rig_backend(2);
    const int64_t blocks[] = {1, 8, 16, RIG_NHWC};
    for (int b = 0; b < 4; b++) {
        pool(backend, blocks[b], true, 2, 1, 7, 6);
        pool(backend, blocks[b], true, 2, 2, 7, 36);
        pool(backend, blocks[b], true, 2, 2, 8, 33);
        pool(backend, blocks[b], true, 5, 1, 6, 4);
        pool(backend, blocks[b], false, 2, 2, 7, 5);
        pool(backend, blocks[b], false, 2, 2, 4, 6);
    }
    for (int b = 0; b < 4; b++) {
        reversed(backend, KOLO_F32, blocks[b]);
        reversed(backend, KOLO_BF16, blocks[b]);
        for (size_t map = 0; map < sizeof golden_adaptive / sizeof *golden_adaptive; map++) {
            adaptive(backend, KOLO_F32, blocks[b], map);
            adaptive(backend, KOLO_BF16, blocks[b], map);
        }
    }
    kolo_backend_destroy(&backend);
    return done_testing();
}
