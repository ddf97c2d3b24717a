/* Stages of unequally many ranks: against trying all divisions of 10,000 small chains, and on PipeDream's own
 * profile of VGG-16, whose published division is 15-1. */
#include "plan/replicate.h"

#include <math.h>
#include <stdint.h>

#include "tap.h"

enum { LAYERS = 5, RANKS = 5 };

static uint64_t state = 20191027;
static double draw(void)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(state >> 40) / 0x1p24;
}

/* The least of all divisions that go on from `stages` stages, the last of which is open. */
static double try_all(const kolo_replicate_input *in, kolo_replicate_stage *stage, int stages, int left)
{
    double least = INFINITY;
    kolo_replicate_stage *last = &stage[stages - 1];
    last->ranks = left;
    least = kolo_replicate_seconds(in, stage, stages);
    if (in->most && stages == in->most) return least;
    for (int ranks = 1; ranks < left; ranks++)
        for (int first = last->first + 1; first < in->layers; first++) {
            if (!in->layer[first].cut) continue;
            last->ranks = ranks;
            stage[stages] = (kolo_replicate_stage){first, 0};
            least = fmin(least, try_all(in, stage, stages + 1, left - ranks));
        }
    return least;
}

static void test_all(void)
{
    int wrong = 0, uneven = 0;
    for (int i = 0; i < 10000; i++) {
        kolo_replicate_layer layer[LAYERS];
        const int layers = 1 + (int)(draw() * LAYERS), ranks = 1 + (int)(draw() * RANKS);
        for (int k = 0; k < layers; k++)
            layer[k] = (kolo_replicate_layer){draw(), draw() * draw(), draw() * draw() * 2, draw() < .8};
        const kolo_replicate_input in = {layer, layers, ranks, (int)(draw() * 4), .25 + draw() * 4};
        kolo_replicate_stage stage[RANKS], found[RANKS];
        int stages, all = 0;
        double seconds;
        stage[0] = (kolo_replicate_stage){0, 0};
        const double want = try_all(&in, stage, 1, ranks);
        if (kolo_replicate(&in, found, &stages, &seconds) < 0) seconds = -1;
        for (int k = 0; k < stages; k++) {
            all += found[k].ranks;
            uneven += found[k].ranks != found[0].ranks;
            wrong += k > 0 && !layer[found[k].first].cut;
        }
        wrong += fabs(seconds - want) > 1e-9 * want || all != ranks || (in.most && stages > in.most) ||
                 fabs(kolo_replicate_seconds(&in, found, stages) - seconds) > 1e-9 * want;
    }
    ok(wrong == 0, "10,000 chains: as found by trying all divisions (%d wrong)", wrong);
    ok(uneven > 1000, "many of which are uneven (%d stages)", uneven);
}

/* Milliseconds of both halves, MB that go on, MB of weights: msr-fiddle/pipedream, profiler/
 * image_classification/profiles/vgg16/graph.txt, in the order of layers; what takes no time is left out. */
static const double vgg16[][3] = {
    {17.972, 77.07, 0},      {46.920, 1644.17, .007}, {9.999, 1644.17, 0},     {159.531, 1644.17, .148},
    {9.766, 1644.17, 0},     {9.374, 411.04, 0},      {54.803, 822.08, .295},  {5.097, 822.08, 0},
    {75.441, 822.08, .590},  {5.133, 822.08, 0},      {4.999, 205.52, 0},      {29.149, 411.04, 1.181},
    {2.757, 411.04, 0},      {44.481, 411.04, 2.360}, {3.103, 411.04, 0},      {48.133, 411.04, 2.360},
    {2.870, 411.04, 0},      {2.682, 102.76, 0},      {23.823, 205.52, 4.721}, {1.722, 205.52, 0},
    {37.259, 205.52, 9.439}, {1.527, 205.52, 0},      {40.445, 205.52, 9.439}, {1.523, 205.52, 0},
    {1.583, 51.38, 0},       {12.989, 51.38, 9.439},  {1.050, 51.38, 0},       {11.466, 51.38, 9.439},
    {.653, 51.38, 0},        {12.690, 51.38, 9.439},  {.630, 51.38, 0},        {.787, 12.85, 0},
    {7.050, 2.10, 411.058},  {.407, 2.10, 0},         {1.443, 2.10, 67.125},   {.309, 2.10, 0},
    {.941, .51, 16.388}};

static void test_vgg16(void)
{
    enum { N = sizeof vgg16 / sizeof *vgg16, FC = 32 };
    kolo_replicate_layer layer[N];
    kolo_replicate_stage found[16];
    int stages;
    double two, any, total = 0;
    for (int i = 0; i < N; i++) {
        layer[i] =
            (kolo_replicate_layer){vgg16[i][0] * 1e-3, vgg16[i][1] * 1e6, vgg16[i][2] * 1e6, .cut = true};
        total += vgg16[i][0];
    }
    ok(fabs(total - 690.5) < .1, "PipeDream's profile of VGG-16 takes 690.5 ms (%.1f)", total);
    /* 16 GPUs, 10 Gb/s */
    kolo_replicate_input in = {layer, N, 16, .most = 2, .bandwidth = 1.25e9};
    const kolo_replicate_stage published[] = {{0, 15}, {FC, 1}}, plain[] = {{0, 16}};
    const double told = kolo_replicate_seconds(&in, published, 2),
                 copies = kolo_replicate_seconds(&in, plain, 1);
    int rc = kolo_replicate(&in, found, &stages, &two);
    ok(rc == 0 && stages == 2 && found[0].ranks == 15 && found[1].ranks == 1,
       "in two stages it is best on 15 ranks and 1, as published (%d-%d)", found[0].ranks, found[1].ranks);
    ok(two <= told && two > .9 * told, "cut where the linear layers begin, or near (layer %d, %.1f ms; %.1f)",
       found[1].first, two * 1e3, told * 1e3);
    in.most = 0;
    rc = kolo_replicate(&in, found, &stages, &any);
    ok(rc == 0 && any <= two, "any number of stages is no worse (%d, %.1f ms)", stages, any * 1e3);
    ok(copies > 2 * told, "copies take more than twice as long (%.1f ms)", copies * 1e3);
}

int main(void)
{
    test_all();
    test_vgg16();
    return done_testing();
}
