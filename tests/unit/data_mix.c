/* mixup and CutMix: against tests/golden/images/mixing.json, and as distributions. */
#include "tap.h"

#include "data/augment/mix.h"
#include "golden_file.h"

enum { N = 4, C = 3, H = 6, W = 8, BYTES = H * W * C };

static float golden[N][C][H][W];
static uint8_t images[N][H][W][C];

/* The formula's numbers lie within sqrt(3): as bytes, 70 levels a unit about 128. */
static double level(double value) { return 128 + 70 * value; }

static void draw(uint64_t seed)
{
    golden_fill("mix.x", seed, 0, golden_unit, &golden[0][0][0][0], N * C * H * W);
    for (int i = 0; i < N; i++)
        for (int c = 0; c < C; c++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++) images[i][y][x][c] = (uint8_t)lround(level(golden[i][c][y][x]));
}

/* Largest distance of image i from the file's, in levels. */
static double distance(const cJSON *record, int i, const uint8_t *got)
{
    const cJSON *values = cJSON_GetObjectItem(cJSON_GetObjectItem(record, "image"), "f64"),
                *value = values->child;
    double worst = 0;
    for (int k = 0; k < i * BYTES; k++) value = value->next;
    for (int c = 0; c < C; c++)
        for (int p = 0; p < H * W; p++, value = value->next)
            worst = fmax(worst, fabs(got[p * C + c] - level(value->valuedouble)));
    return worst;
}

/* Every image with its partner; targets are formed as the file says. */
static void check_case(const cJSON *json, const char *name, const kolo_mix *mix)
{
    const cJSON *record = cJSON_GetObjectItem(json, name), *labels = cJSON_GetObjectItem(json, "labels");
    const cJSON *targets = cJSON_GetObjectItem(cJSON_GetObjectItem(record, "targets"), "f64");
    const int roll = strstr(name, "roll") != NULL;
    double worst = 0, apart = 0;
    for (int i = 0; i < N; i++) {
        const int j = roll ? (i + N - 1) % N : N - 1 - i;
        uint8_t a[BYTES], b[BYTES];
        memcpy(a, images[i], BYTES);
        memcpy(b, images[j], BYTES);
        kolo_mix_apply(mix, a, b, H, W, C);
        worst = fmax(worst, distance(record, i, a));
        for (int k = 0; k < 5; k++) {
            const double own = (cJSON_GetArrayItem(labels, i)->valueint == k) * 0.9 + 0.02;
            const double other = (cJSON_GetArrayItem(labels, j)->valueint == k) * 0.9 + 0.02;
            const double want = cJSON_GetArrayItem(targets, i * 5 + k)->valuedouble;
            apart = fmax(apart, fabs((double)mix->weight * own + (1 - (double)mix->weight) * other - want));
        }
    }
    ok(worst < 1.05 && apart < 1e-4, "%s: images within a level (%.2f), targets equal", name, worst);
}

static void test_golden(void)
{
    kolo_mix mix;
    cJSON *json = golden_read(GOLDEN_FOLDER "/images/mixing.json");
    if (!ok(json != NULL, GOLDEN_FOLDER "/images/mixing.json can be read")) return;
    draw(golden_seed(json));
    for (int i = 0; i < 4; i++) {
        const double lambda = i % 2 ? 0.7 : 0.25;
        char name[64];
        snprintf(name, sizeof name, "mixup_%s_%g", i < 2 ? "roll" : "flip", lambda);
        kolo_mix_blend(&mix, lambda);
        check_case(json, name, &mix);
    }
    static const double cuts[3][3] = {{3, 2, .5}, {7, 5, .4}, {0, 0, .9}};
    for (int i = 0; i < 6; i++) {
        const double *cut = cuts[i % 3];
        char name[64];
        snprintf(name, sizeof name, "cutmix_%s_%g_%g_%g", i < 3 ? "roll" : "flip", cut[0], cut[1], cut[2]);
        kolo_mix_box(&mix, cut[2], (int)cut[1], (int)cut[0], H, W);
        const cJSON *record = cJSON_GetObjectItem(json, name),
                    *box = cJSON_GetObjectItem(record, "box_x1y1x2y2");
        ok(mix.left == cJSON_GetArrayItem(box, 0)->valueint &&
               mix.top == cJSON_GetArrayItem(box, 1)->valueint &&
               mix.right == cJSON_GetArrayItem(box, 2)->valueint &&
               mix.bottom == cJSON_GetArrayItem(box, 3)->valueint &&
               fabs((double)mix.weight - cJSON_GetObjectItem(record, "lambda")->valuedouble) < 1e-6,
           "%s: the box and the weight", name);
        check_case(json, name, &mix);
    }
    cJSON_Delete(json);
}

static void test_apply(void)
{
    int sums = 1, near = 1, same = 1;
    for (int w = 0; w <= 20; w++) {
        uint8_t a[BYTES], b[BYTES];
        kolo_mix mix;
        memcpy(a, images[0], BYTES);
        memcpy(b, images[1], BYTES);
        kolo_mix_blend(&mix, w / 20.0);
        kolo_mix_apply(&mix, a, b, H, W, C);
        const uint8_t *p = &images[0][0][0][0], *q = &images[1][0][0][0];
        for (int i = 0; i < BYTES; i++) {
            sums &= a[i] + b[i] == p[i] + q[i];
            near &= fabs(a[i] - (w / 20.0 * p[i] + (1 - w / 20.0) * q[i])) < 0.51;
            near &= fabs(b[i] - (w / 20.0 * q[i] + (1 - w / 20.0) * p[i])) < 0.51;
            if (w == 20) same &= a[i] == p[i] && b[i] == q[i];
        }
    }
    ok(sums && near, "mixup rounds to the nearest and keeps the sum of both images");
    ok(same, "weight 1 changes nothing");
}

/* alpha times the integral of Beta's density without its constant, from 0 to x <= 1/2; in v = x^alpha
 * nothing is infinite. */
static double beta_part(double alpha, double x)
{
    const int steps = 20000;
    const double end = pow(x, alpha);
    double sum = 0;
    for (int i = 0; i < steps; i++) sum += pow(1 - pow((i + 0.5) * end / steps, 1 / alpha), alpha - 1);
    return sum * end / steps;
}

static double beta_below(double alpha, double x)
{
    const double half = beta_part(alpha, 0.5);
    return x <= 0.5 ? 0.5 * beta_part(alpha, x) / half : 1 - 0.5 * beta_part(alpha, 1 - x) / half;
}

static void test_beta(double alpha)
{
    enum { DRAWS = 20000 };
    static const double edges[] = {0.001, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.999};
    int below[9] = {0}, inside = 1;
    double sum = 0, square = 0, worst = 0;
    kolo_random r = kolo_random_at(kolo_random_key(3, KOLO_RANDOM_AUGMENT), (uint64_t)(alpha * 1000), 5);
    for (int i = 0; i < DRAWS; i++) {
        const double x = kolo_random_beta(&r, alpha);
        inside &= x >= 0 && x <= 1;
        sum += x, square += x * x;
        for (int k = 0; k < 9; k++) below[k] += x < edges[k];
    }
    const double mean = sum / DRAWS, variance = square / DRAWS - mean * mean;
    for (int k = 0; k < 9; k++)
        worst = fmax(worst, fabs(below[k] / (double)DRAWS - beta_below(alpha, edges[k])));
    ok(inside, "Beta(%g, %g) lies within 0 to 1", alpha, alpha);
    is_near(mean, 0.5, 0.015, "its mean is 1/2");
    is_near(variance, 0.25 / (2 * alpha + 1), 0.004, "its variance is 1 / (4 (2 alpha + 1))");
    ok(worst < 0.016, "and its distribution function is Beta's (Kolmogorov distance %.4f at nine points)",
       worst);
}

static void test_draws(void)
{
    enum { DRAWS = 8000 };
    const kolo_mix_config both = {.mixup = 0.8, .cutmix = 1, .probability = 0.75, .cutmix_share = 0.4};
    int none = 0, cut = 0, right = 1;
    double lambda = 0;
    for (int i = 0; i < DRAWS; i++) {
        kolo_mix m;
        kolo_random r = kolo_random_at(9, 0, (uint64_t)i);
        kolo_mix_draw(&m, &both, 40, 60, &r);
        none += m.kind == KOLO_MIX_NONE, cut += m.kind == KOLO_MIX_CUT;
        if (m.kind == KOLO_MIX_NONE) right &= m.weight == 1;
        if (m.kind != KOLO_MIX_CUT) continue;
        lambda += (double)m.weight;
        right &= m.top >= 0 && m.left >= 0 && m.bottom <= 40 && m.right <= 60 && m.top <= m.bottom &&
                 m.left <= m.right;
        right &= fabs((double)m.weight - (1 - (m.bottom - m.top) * (m.right - m.left) / 2400.0)) < 1e-6;
    }
    ok(right, "boxes lie in the image, and their weight is what they leave of it");
    is_near(none / (double)DRAWS, 0.25, 0.02, "a quarter is left alone");
    is_near(cut / (double)(DRAWS - none), 0.4, 0.025, "of the rest four in ten are CutMix");
    /* clipping at the border leaves more than lambda, whose mean is 1/2 */
    is_near(lambda / cut, 0.6936, 0.02,
            "the mean weight of CutMix with alpha 1, as a simulation in numpy has it");
    kolo_mix m;
    kolo_random r = kolo_random_at(9, 0, 0);
    kolo_mix_draw(&m, &(kolo_mix_config){.cutmix = 1, .probability = 1}, 40, 60, &r);
    is_int(m.kind, KOLO_MIX_CUT, "only CutMix asked: CutMix, whatever the share");
}

int main(void)
{
    test_golden();
    test_apply();
    test_beta(0.1);
    test_beta(0.2);
    test_beta(0.5);
    test_beta(0.8);
    test_beta(1);
    test_beta(3);
    test_draws();
    return done_testing();
}
