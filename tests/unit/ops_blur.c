/* blur_pool: a convolution with a stride takes what was blurred, beside loops that do it tap by tap. */
#include "ops_rig.h"

enum { CHANNELS = 16, HEIGHT = 7, WIDTH = 6, OUT = 3 };

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 16777216.0f - 0.5f;
}

/* Zero beyond the border. */
static double at(const float *x, int64_t c, int64_t row, int64_t column)
{
    const bool inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
    return inside ? (double)x[(c * HEIGHT + row) * WIDTH + column] : 0;
}

static double blurred(const float *x, int64_t c, int64_t row, int64_t column)
{
    static const double tap[3] = {1, 2, 1};
    double sum = 0;
    /* the convolution's own padding */
    if (row < 0 || row >= HEIGHT || column < 0 || column >= WIDTH) return 0;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) sum += tap[i] * tap[k] * at(x, c, row + i - 1, column + k - 1);
    return sum / 16;
}

static double expected(const float *x, const float *w, int64_t o, int64_t row, int64_t column)
{
    double sum = 0;
    for (int64_t c = 0; c < CHANNELS; c++)
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 3; k++)
                sum += (double)w[((o * CHANNELS + c) * 3 + i) * 3 + k] *
                       blurred(x, c, 2 * row + i - 1, 2 * column + k - 1);
    return sum;
}

static void check_values(kolo_backend *backend, int64_t block)
{
    const kolo_conv_spec spec = {
        .out = OUT, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .weight = rig_init};
    rig r = rig_open(backend, KOLO_F32, block);
    float x[CHANNELS * HEIGHT * WIDTH], w[OUT * CHANNELS * 9], y[OUT * 4 * 3];
    uint32_t state = 5;
    double worst = 0;
    r.g->blur = true;
    const int in = rig_input(&r, "x", 4, (const int64_t[]){1, CHANNELS, HEIGHT, WIDTH}),
              out = kolo_conv(r.g, "c", in, &spec);
    rig_check(out, "network");
    rig_layout(&r);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = noise(&state);
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) w[i] = noise(&state);
    rig_set(&r, in, x);
    rig_set(&r, kolo_graph_find(r.g, "c.weight"), w);
    rig_run(&r);
    rig_get(&r, out, y);
    for (int64_t o = 0; o < OUT; o++)
        for (int64_t row = 0; row < 4; row++)
            for (int64_t column = 0; column < 3; column++)
                worst =
                    fmax(worst, fabs((double)y[(o * 4 + row) * 3 + column] - expected(x, w, o, row, column)));
    ok(worst < 1e-5, "blocks of %d channels: 1 2 1 both ways, then the convolution (%.1g off)", (int)block,
       worst);
    rig_close(&r);
}

/* Operations of a graph of one convolution. */
static int64_t nodes(int64_t channels, int64_t stride, bool blur)
{
    const kolo_conv_spec spec = {
        .out = 4, .kernel = {3, 3}, .stride = {stride, stride}, .pad = {1, 1}, .weight = rig_init};
    kolo_graph *g;
    rig_check(kolo_graph_create(&g, "one", true, KOLO_F32), "graph");
    g->blur = blur;
    int x =
        kolo_graph_tensor(g, "x", KOLO_ROLE_ACTIVATION, KOLO_F32, 4, (const int64_t[]){1, channels, 8, 8});
    rig_check(kolo_conv(g, "c", x, &spec), "convolution");
    const int64_t count = g->nodes;
    kolo_graph_destroy(&g);
    return count;
}

int main(void)
{
    kolo_backend *backend = rig_backend(1);
    check_values(backend, 1);
    check_values(backend, 8);
    check_values(backend, RIG_NHWC);
    is_int(nodes(16, 2, true), 3, "two averages before a stride");
    is_int(nodes(15, 2, true), 1, "none of fewer than 16 channels");
    is_int(nodes(16, 1, true), 1, "none without a stride");
    is_int(nodes(16, 2, false), 1, "none where nobody asked");
    kolo_backend_destroy(&backend);
    return done_testing();
}
