/* Are the random numbers of augmentations distributed as their definitions say? Tolerances are 4
 * to 5 standard deviations of what is counted; the draws are always the same, so a test that
 * passes goes on to pass. */
#include "tap.h"

#include "data/augment/augment.h"
#include "kolo/error.h"

enum { SIDE = 64, DRAWS = 4000 };
static const float mean[3] = {0.2f, 0.4f, 0.6f}, deviation[3] = {0.1f, 0.2f, 0.25f};
static kolo_canvas *canvas;
static uint8_t pixels[SIDE * SIDE * 3];
static kolo_augment_step list[4];
static int steps;

static void choose(const char *text)
{
    if (kolo_augment_parse(text, list, 4, &steps) < 0) diag("%s", kolo_error_text());
}

static void paint(int value, int sample)
{
    memset(pixels, value, sizeof pixels);
    kolo_augment_apply(list, steps, canvas, 11, 0, sample);
}

/* A box of pixels that are not 0; its area, 0 if there is none. */
static int find_box(int *top, int *left, int *height, int *width)
{
    int bottom = -1, right = -1;
    *top = *left = SIDE;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            if (!pixels[3 * (y * SIDE + x)]) continue;
            *top = y < *top ? y : *top, bottom = y;
            *left = x < *left ? x : *left, right = x > right ? x : right;
        }
    *height = bottom - *top + 1;
    *width = right - *left + 1;
    return bottom < 0 ? 0 : *height * *width;
}

static void test_erase(void)
{
    double area = 0, aspect = 0, aspect2 = 0, down = 0;
    int n = 0, whole = 1, coloured = 1;
    choose("erase(0.25,0.02,0.33,0.3,3.3)");
    for (int i = 0; i < DRAWS; i++) {
        int top, left, height, width;
        paint(0, i);
        const int box = find_box(&top, &left, &height, &width);
        if (!box) continue;
        n++;
        area += (double)box / (SIDE * SIDE);
        aspect += log((double)height / width);
        aspect2 += pow(log((double)height / width), 2);
        down += top / (double)(SIDE - height);
        for (int y = top; y < top + height; y++)
            for (int x = left; x < left + width; x++) whole &= pixels[3 * (y * SIDE + x)] == 51;
        coloured &= pixels[3 * (top * SIDE + left) + 1] == 102 && pixels[3 * (top * SIDE + left) + 2] == 153;
    }
    is_near((double)n / DRAWS, 0.25, 0.03, "erase(0.25) erases a quarter of the images (%d of %d)", n, DRAWS);
    ok(whole && coloured, "one box of the mean colour");
    /* a box that does not fit is drawn again, which takes some of the largest away */
    is_near(area / n, 0.172, 0.013, "areas are even between .02 and .33: mean %.4f", area / n);
    is_near(aspect / n, log(0.3 * 3.3) / 2, 0.09, "log aspects are even about 0: mean %.3f", aspect / n);
    is_near(aspect2 / n, pow(log(3.3 / 0.3), 2) / 12, 0.08, "and reach from .3 to 3.3: variance %.3f",
            aspect2 / n);
    is_near(down / n, 0.5, 0.05, "boxes lie anywhere: mean %.3f of the way down", down / n);
}

static void test_noise(void)
{
    double sum[3] = {0}, square[3] = {0};
    int n = 0;
    choose("erase(1,0.3,0.33,1,1,1)");
    for (int i = 0; i < 200; i++) {
        memset(pixels, 0, sizeof pixels);
        kolo_augment_apply(list, steps, canvas, 11, 0, i);
        for (int k = 0; k < SIDE * SIDE; k++) {
            const uint8_t *p = pixels + 3 * k;
            if (!p[0] && !p[1] && !p[2]) continue;
            n++;
            for (int c = 0; c < 3; c++) sum[c] += p[c], square[c] += p[c] * p[c];
        }
    }
    /* of normal distributions 51 +- 25.5, 102 +- 51, 153 +- 63.75 held within 0 to 255 */
    const double means[3] = {51.22, 102.41, 151.69}, deviations[3] = {24.99, 49.91, 60.24};
    for (int c = 0; c < 3; c++) {
        const double m = sum[c] / n;
        ok(fabs(m - means[c]) < 1 && fabs(sqrt(square[c] / n - m * m) - deviations[c]) < 1.2,
           "noise of channel %d has mean %.1f and deviation %.1f", c, m, sqrt(square[c] / n - m * m));
    }
}

static void test_jitter(void)
{
    double sum = 0, square = 0;
    int low = 255, high = 0;
    choose("jitter(0.4,0,0,0)");
    for (int i = 0; i < DRAWS; i++) {
        paint(100, i);
        sum += pixels[0], square += pixels[0] * pixels[0];
        low = pixels[0] < low ? pixels[0] : low, high = pixels[0] > high ? pixels[0] : high;
    }
    const double m = sum / DRAWS;
    ok(low >= 59 && low <= 60 && high >= 139 && high <= 140, "brightness factors lie in 0.6 to 1.4: %d to %d",
       low, high);
    is_near(m, 99.5, 1.6, "their mean is 1"); /* values are cut off: half a level less */
    is_near(square / DRAWS - m * m, 80 * 80 / 12.0, 25, "and they are evenly distributed");
}

/* How much of a white image turned about its middle is not black says by how much. */
static void test_rotate(void)
{
    int n[4] = {0};
    choose("rotate(40)");
    for (int i = 0; i < DRAWS; i++) {
        static uint8_t want[SIDE * SIDE * 3];
        memset(pixels, 255, sizeof pixels);
        double m[6];
        kolo_random r = kolo_augment_random(11, 0, i, KOLO_OPERATION_AUGMENT + list[0].index);
        const double degrees = -40 + 80 * (double)kolo_random_uniform(&r);
        n[(int)((degrees + 40) / 20)]++;
        if (i >= 20) continue;
        kolo_augment_apply(list, steps, canvas, 11, 0, i);
        memcpy(want, pixels, sizeof want);
        memset(pixels, 255, sizeof pixels);
        kolo_matrix_rotate(m, degrees, SIDE, SIDE);
        kolo_adjust_affine(canvas, m, false, (const uint8_t[3]){0});
        if (memcmp(want, pixels, sizeof want)) n[0] = -1000;
    }
    ok(n[0] > 880 && n[1] > 880 && n[2] > 880 && n[3] > 880,
       "angles are even between -40 and 40: %d %d %d %d", n[0], n[1], n[2], n[3]);
}

/* Share of images that an entry changes. */
static void test_share(const char *text, double share)
{
    int changed = 0;
    static uint8_t before[sizeof pixels];
    for (size_t i = 0; i < sizeof before; i++) before[i] = (uint8_t)(20 + i * 2654435761u % 200);
    choose(text);
    for (int i = 0; i < DRAWS; i++) {
        memcpy(pixels, before, sizeof pixels);
        kolo_augment_apply(list, steps, canvas, 12, 1, i);
        changed += memcmp(before, pixels, sizeof pixels) != 0;
    }
    is_near((double)changed / DRAWS, share, 0.035, "%s changes %d of %d images", text, changed, DRAWS);
}

static void test_shares(void)
{
    test_share("grayscale(0.3)", 0.3);
    test_share("blur(0.7,1,2)", 0.7);
    test_share("posterize(3,0.4)", 0.4);
    test_share("solarize(128,0.2)", 0.2);
    test_share("equalize(0.6)", 0.6);
    test_share("autocontrast(0.8)", 0.8);
    test_share("sharpness(2,0.1)", 0.1);
    test_share("three_augment", 1);
    /* one of 14: identity; translation and rotation of size 0 is not drawn with magnitude 9 */
    test_share("randaugment(1,9)", 13.0 / 14);
    test_share("randaugment(0,9)", 0);
    /* half of the layers are skipped; at magnitude 0 only autocontrast, equalize and invert do something */
    test_share("timm_randaugment(9,0.5,1,0.5)", 0.5);
    test_share("timm_randaugment(9,0.5,2,1)", 1);
}

/* With a deviation the magnitude of timm's operations varies: solarize_add adds 0 to 110 by it. */
static void test_deviation(void)
{
    double sum = 0, square = 0;
    int n = 0;
    choose("timm_randaugment(5,1,1,1)");
    for (int i = 0; i < 15 * DRAWS; i++) {
        kolo_random r = kolo_augment_random(11, 0, i, KOLO_OPERATION_AUGMENT + list[0].index);
        if (kolo_random_below(&r, 15) != 6) continue; /* SolarizeAdd */
        paint(0, i);
        sum += pixels[0], square += pixels[0] * pixels[0];
        n++;
    }
    const double m = sum / n;
    ok(n > 3700 && n < 4300, "one of 15 operations is as frequent as another: %d of %d", n, 15 * DRAWS);
    is_near(m, 54.5, 0.9, "magnitudes have their mean");
    is_near(sqrt(square / n - m * m), 11, 0.6, "and their deviation");
}

int main(void)
{
    kolo_canvas_create(&canvas, SIDE, SIDE, 3, mean, deviation);
    canvas->pixels = pixels;
    test_erase();
    test_noise();
    test_jitter();
    test_rotate();
    test_shares();
    test_deviation();
    kolo_canvas_destroy(&canvas);
    return done_testing();
}
