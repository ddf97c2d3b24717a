/* Detection: images with boxes. The whole chain against YOLOX's results in golden_detect.h. */
#include "tap.h"

#include "base/option.h"
#include "data/augment/augment.h"
#include "data/augment/detect.h"
#include "golden_detect.h"
#include "kolo/error.h"

#define COUNT(array) (int)(sizeof array / sizeof *array)

static kolo_image images[KOLO_DETECT_IMAGES];
static kolo_boxes boxes[KOLO_DETECT_IMAGES];
static kolo_detector *detector;

/* The formula of detect_figures.py. */
static void draw_all(void)
{
    for (int n = 0; n < 5; n++) {
        kolo_image *p = &images[n];
        kolo_image_shape(p, golden_sizes[n][0], golden_sizes[n][1], 3);
        uint8_t *to = p->pixels;
        for (int y = 0; y < p->height; y++)
            for (int x = 0; x < p->width; x++)
                for (int c = 0; c < 3; c++)
                    *to++ = (uint8_t)(40 + abs((2 * x + y + 50 * c + 37 * n) % 320 - 160));
    }
    for (int i = 0; i < COUNT(golden_boxes); i++)
        kolo_boxes_add(&boxes[golden_boxes[i].image], golden_boxes[i].box, golden_boxes[i].cls);
}

static double spread(double part, double low, double high) { return low + (high - low) * part; }

/* The draw that a case's random numbers mean. */
static kolo_detect_draw draw_of(const struct golden_detect *g, const kolo_detect_config *c)
{
    const double part[8] = {g->angle, g->scale, g->shear[0], g->shear[1], g->move[0], g->move[1], .5, .5};
    kolo_detect_draw d = {.mosaic = g->mosaic,
                          .mixup = g->mixup,
                          .flip = g->flip,
                          .mixup_flip = g->mixup_draws[1] > .5,
                          .sample = {0, 1, 2, 3, 4},
                          .center_y = (int)spread(g->center[0], .5 * c->height, 1.5 * c->height),
                          .center_x = (int)spread(g->center[1], .5 * c->width, 1.5 * c->width),
                          .mixup_scale = spread(g->mixup_draws[0], .5, 1.5),
                          .mixup_down = g->mixup_draws[2],
                          .mixup_right = g->mixup_draws[3]};
    kolo_detect_matrix(d.matrix, c, part);
    return d;
}

static void check_boxes(const struct golden_detect *g, const kolo_boxes *out)
{
    double worst = 0;
    int classes = 1;
    is_int(out->count, g->count, "%s: as many boxes", g->name);
    for (int i = 0; i < g->count && i < out->count; i++) {
        for (int k = 0; k < 4; k++) worst = fmax(worst, fabs((double)out->box[i][k] - (double)g->box[i][k]));
        classes &= out->cls[i] == (int)g->box[i][4];
    }
    ok(worst < 0.01 && classes, "%s: the same boxes (%.4f pixels apart)", g->name, worst);
}

/* Where four images meet a row may lie on the other side: a few points may differ by more. */
static void check_grid(const struct golden_detect *g, const uint8_t *to)
{
    int near = 0, all = 0;
    double sum = 0;
    for (int r = 0; r < GOLDEN_GRID; r++)
        for (int x = 0; x < GOLDEN_GRID; x++)
            for (int c = 0; c < 3; c++, all++) {
                const int row = (2 * r + 1) * GOLDEN_HEIGHT / (2 * GOLDEN_GRID);
                const int column = (2 * x + 1) * GOLDEN_WIDTH / (2 * GOLDEN_GRID);
                unsigned want = 0;
                sscanf(g->grid + 2 * all, "%2x", &want);
                const int d = abs(to[3 * (row * GOLDEN_WIDTH + column) + c] - (int)want);
                near += d <= 2;
                sum += d;
            }
    ok(strlen(g->grid) == 2 * (size_t)all && near >= all * 98 / 100 && sum / all < 1,
       "%s: the same image (%d of %d values within 2 levels, on average %.2f)", g->name, near, all,
       sum / all);
}

static void test_golden(void)
{
    for (int i = 0; i < COUNT(golden_detects); i++) {
        const struct golden_detect *g = &golden_detects[i];
        static uint8_t to[GOLDEN_HEIGHT * GOLDEN_WIDTH * 3];
        kolo_detect_config c;
        kolo_boxes out = {0};
        kolo_detect_usual(&c, GOLDEN_HEIGHT, GOLDEN_WIDTH, false);
        const kolo_detect_draw d = draw_of(g, &c);
        const int rc = kolo_detect_make(detector, &c, &d, images, boxes, to, &out);
        if (rc < 0) diag("%s", kolo_error_text());
        check_boxes(g, &out);
        check_grid(g, to);
        kolo_boxes_free(&out);
    }
}

static void test_boxes(void)
{
    kolo_boxes b = {0};
    const float one[4] = {10, 20, 30, 50}, thin[4] = {5, 5, 6, 40}, two[4] = {0, 0, 2, 1.001f};
    for (int i = 0; i < 200; i++) kolo_boxes_add(&b, i == 7 ? one : i == 150 ? two : thin, i);
    kolo_boxes_drop(&b, 1);
    ok(b.count == 2 && b.cls[0] == 7 && b.cls[1] == 150 && b.box[0][3] == 50,
       "boxes of a side of one pixel or less are dropped, the others keep order and class");
    kolo_boxes_move(&b, 0, 2, 3, -4);
    ok(b.box[0][0] == 23 && b.box[0][1] == 36 && b.box[0][2] == 63 && b.box[0][3] == 96,
       "scale, then translation");
    kolo_boxes_flip(&b, 0, 100);
    ok(b.box[0][0] == 37 && b.box[0][2] == 77 && b.box[0][1] == 36, "mirrored in an image 100 wide");
    kolo_boxes_clip(&b, 0, 70, 50);
    ok(b.box[0][2] == 70 && b.box[0][3] == 50 && b.box[1][1] == 0, "clipped");
    const float nan_box[4] = {NAN, 0, 10, 10};
    kolo_boxes_add(&b, nan_box, 1);
    kolo_boxes_drop(&b, 1);
    is_int(b.count, 1, "what is no number is dropped, and what lies outside");
    kolo_boxes_free(&b);
}

static void test_letterbox(void)
{
    kolo_detect_place p;
    double scale;
    kolo_detect_letterbox(480, 640, 416, 416, false, &p, &scale);
    ok(p.full_width == 416 && p.full_height == 312 && p.top == 0 && p.left == 0 && fabs(scale - .65) < 1e-12,
       "480 x 640 into 416 x 416: 312 x 416 in the corner");
    kolo_detect_letterbox(480, 640, 416, 416, true, &p, &scale);
    ok(p.top == 52 && p.left == 0, "or in the middle");
    kolo_detect_letterbox(375, 500, 416, 416, true, &p, &scale);
    is_int(p.full_height, 312, "where 375 of 500 are 312 of 416, as darknet's (h*netw)/w has it");
    kolo_detect_letterbox(333, 500, 416, 416, true, &p, &scale);
    ok(p.full_height == 277 && p.top == 69, "and what is left of 277.06 rows is halved, rounded down");
    kolo_detect_letterbox(1000, 3, 64, 64, false, &p, &scale);
    ok(p.full_width == 1 && p.full_height == 64, "a line keeps one pixel");
}

/* A single image of 20 x 40, all of one colour, in 64 x 64: 32 x 64 of it between gray. */
static void test_middle(void)
{
    enum { SIDE = 64 };
    static uint8_t from[20 * 40 * 3 + KOLO_IMAGE_SLACK], to[SIDE * SIDE * 3];
    const kolo_image image = {.pixels = from, .height = 20, .width = 40, .channels = 3};
    const kolo_detect_draw draw = {.flip = true, .sample = {0, -1, -1, -1, -1}};
    kolo_detect_config c;
    kolo_boxes given = {0}, made = {0};
    const float box[4] = {4, 5, 10, 15};
    double back[4];
    int wrong = 0;
    memset(from, 200, sizeof from);
    kolo_boxes_add(&given, box, 7);
    kolo_detect_usual(&c, SIDE, SIDE, false);
    c.centered = true, c.fill = 128; /* as darknet */
    is_int(kolo_detect_make(detector, &c, &draw, &image, &given, to, &made), 0, "made (%s)",
           kolo_error_text());
    for (int i = 0; i < SIDE * SIDE * 3; i++) wrong += to[i] != (i / (3 * SIDE) / 16 % 3 == 0 ? 128 : 200);
    is_int(wrong, 0, "16 rows of gray, the image, 16 rows of gray");
    ok(made.count == 1 && made.box[0][0] == 64 - 16 && made.box[0][2] == 64 - 6.4f && made.box[0][1] == 24 &&
           made.box[0][3] == 40,
       "its box is where it is, mirrored");
    const double there[4] = {6.4, 24, 16, 40};
    kolo_detect_unfit(&c, 20, 40, there, back);
    for (int k = 0; k < 4; k++) wrong += fabs(back[k] - (double)box[k]) > 1e-9;
    is_int(wrong, 0, "and comes back to the image");
    kolo_boxes_free(&given);
    kolo_boxes_free(&made);
}

/* A bright rectangle on black; where it is after a map. */
static void find_bright(const kolo_image *p, double *box)
{
    box[0] = box[1] = 1e9, box[2] = box[3] = -1;
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            if (p->pixels[3 * (y * p->width + x)] < 128) continue;
            box[0] = fmin(box[0], x), box[1] = fmin(box[1], y);
            box[2] = fmax(box[2], x + 1), box[3] = fmax(box[3], y + 1);
        }
}

/* Pixels and boxes go the same way, whatever the draw. */
static void test_carried(bool mosaic, double perspective)
{
    kolo_detect_config c;
    double worst = 0;
    int seen = 0;
    kolo_detect_usual(&c, 160, 200, true);
    c.mosaic = mosaic;
    c.degrees = 0; /* a turned rectangle does not fill its upright box */
    c.shear = 0;
    c.perspective = perspective;
    c.fill = 0;
    c.hsv = 0;
    for (int i = 0; i < 60; i++) {
        kolo_image part[KOLO_DETECT_IMAGES] = {0};
        kolo_boxes part_boxes[KOLO_DETECT_IMAGES] = {0}, out = {0};
        kolo_image whole = {0};
        kolo_random r = kolo_random_at(1, 2, (uint64_t)i);
        const int which = mosaic ? i % 4 : 0;
        for (int k = 0; k < 4; k++) {
            kolo_image_shape(&part[k], 100 + 10 * k + i, 180 - 5 * k, 3);
            kolo_detect_fill(&part[k], 0);
        }
        kolo_image *p = &part[which];
        const int top = (int)kolo_random_below(&r, 50), left = (int)kolo_random_below(&r, 80);
        const float box[4] = {(float)left, (float)top, (float)left + 50, (float)top + 30};
        for (int y = top; y < top + 30; y++) memset(p->pixels + 3 * (y * p->width + left), 255, 150);
        kolo_boxes_add(&part_boxes[which], box, 1);
        kolo_detect_draw d;
        kolo_detect_choose(&d, &c, 5, 0, i, 1000, NULL);
        kolo_image_shape(&whole, c.height, c.width, 3);
        kolo_detect_make(detector, &c, &d, part, part_boxes, whole.pixels, &out);
        if (out.count == 1 && out.box[0][2] - out.box[0][0] > 8 && out.box[0][3] - out.box[0][1] > 8) {
            double got[4];
            find_bright(&whole, got);
            for (int k = 0; k < 4; k++) worst = fmax(worst, fabs(got[k] - (double)out.box[0][k]));
            seen++;
        }
        for (int k = 0; k < 4; k++) kolo_image_free(&part[k]), kolo_boxes_free(&part_boxes[k]);
        kolo_image_free(&whole);
        kolo_boxes_free(&out);
    }
    /* half a pixel of rounding here and half where sides are cut off to whole pixels; a
     * perspective makes trapezes */
    ok(seen > 25 && worst <= (perspective > 0 ? 3 : 1),
       "%s%s: %d boxes lie round what they held (%.2f pixels apart)", mosaic ? "mosaic" : "single",
       perspective > 0 ? " with perspective" : "", seen, worst);
}

static void test_warp(void)
{
    kolo_image to = {0};
    int same = 1, shifted = 1;
    const double identity[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, shift[9] = {1, 0, 5, 0, 1, -3, 0, 0, 1};
    const kolo_image *p = &images[0];
    kolo_image_shape(&to, p->height, p->width, 3);
    kolo_detect_warp(p, identity, 7, &to);
    same &= !memcmp(p->pixels, to.pixels, (size_t)(p->height * p->width * 3));
    kolo_detect_warp(p, shift, 7, &to);
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            const int from_x = x + 5, from_y = y - 3, out = from_x >= p->width || from_y < 0;
            const int want = out ? 7 : p->pixels[3 * (from_y * p->width + from_x)];
            shifted &= to.pixels[3 * (y * p->width + x)] == want;
        }
    ok(same, "the identity changes nothing");
    ok(shifted, "whole pixels are shifted as they are, outside is the fill colour");
    const double horizon[9] = {1, 0, 0, 0, 1, 0, 0, -1 / 60.0, 1}; /* depth 0 in row 60 */
    kolo_detect_warp(p, horizon, 7, &to);
    int behind = 1;
    for (int k = 61 * p->width * 3; k < p->height * p->width * 3; k++) behind &= to.pixels[k] == 7;
    ok(behind && to.pixels[0] != 7, "behind the horizon there is nothing");
    kolo_image_free(&to);
}

static void test_hsv(void)
{
    kolo_image p = {0};
    int worst = 0, gray = 1, turned = 1;
    kolo_image_shape(&p, 64, 64, 3);
    for (int i = 0; i < 4096; i++)
        for (int c = 0; c < 3; c++) p.pixels[3 * i + c] = (uint8_t)(i * 2654435761u >> (8 * c + 3));
    uint8_t keep[4096 * 3];
    memcpy(keep, p.pixels, sizeof keep);
    kolo_detect_hsv(&p, 0, 0, 0);
    for (size_t i = 0; i < sizeof keep; i++)
        worst = abs(p.pixels[i] - keep[i]) > worst ? abs(p.pixels[i] - keep[i]) : worst;
    ok(worst <= 5, "there and back within what 180 hues and 256 saturations can tell apart (%d levels)",
       worst);
    memcpy(p.pixels, keep, sizeof keep);
    kolo_detect_hsv(&p, 0, -255, 0);
    for (int i = 0; i < 4096; i++) {
        const uint8_t *k = keep + 3 * i;
        const int most = k[0] > k[1] ? (k[0] > k[2] ? k[0] : k[2]) : k[1] > k[2] ? k[1] : k[2];
        gray &= p.pixels[3 * i] == most && p.pixels[3 * i + 1] == most && p.pixels[3 * i + 2] == most;
    }
    ok(gray, "without saturation the largest value is left");
    const uint8_t red[3] = {255, 0, 0};
    for (int i = 0; i < 4096; i++) memcpy(p.pixels + 3 * i, red, 3);
    kolo_detect_hsv(&p, 60, 0, -55);
    for (int i = 0; i < 4096; i++)
        turned &= p.pixels[3 * i] == 0 && p.pixels[3 * i + 1] == 200 && !p.pixels[3 * i + 2];
    ok(turned, "red turned by 60 of 180 is green, and darker by 55");
    kolo_image_free(&p);
}

static void test_draws(void)
{
    enum { DRAWS = 4000, SAMPLES = 1000 };
    static int64_t offset[SAMPLES + 1];
    kolo_detect_config c;
    int mosaic = 0, mixup = 0, flip = 0, hue = 0, same = 1, filled = 1, inside = 1, other = 0;
    double scale = 0, angle = 0, pick = 0;
    kolo_detect_usual(&c, 640, 640, false);
    c.mosaic = 0.5;
    for (int i = 0; i < SAMPLES; i++) offset[i + 1] = offset[i] + (i % 3 == 0);
    for (int i = 0; i < DRAWS; i++) {
        kolo_detect_draw d, e;
        kolo_detect_choose(&d, &c, 1, 2, i % SAMPLES + (i / SAMPLES << 20), SAMPLES, offset);
        kolo_detect_choose(&e, &c, 1, 2, i % SAMPLES + (i / SAMPLES << 20), SAMPLES, offset);
        same &= !memcmp(d.sample, e.sample, sizeof d.sample) && !memcmp(d.matrix, e.matrix, sizeof d.matrix);
        kolo_detect_choose(&e, &c, 1, 3, i % SAMPLES + (i / SAMPLES << 20), SAMPLES, offset);
        other += memcmp(d.matrix, e.matrix, sizeof d.matrix) != 0;
        mosaic += d.mosaic, mixup += d.mixup, flip += d.flip, hue += d.hue != 0;
        scale += hypot(d.matrix[0], d.matrix[3]);
        angle += fabs(atan2(-d.matrix[3], d.matrix[0]));
        if (d.mixup) filled &= d.sample[4] % 3 == 0;
        if (!d.mosaic) inside &= d.sample[1] == -1 && d.sample[4] == -1;
        for (int k = 1; k < 4 && d.mosaic; k++) {
            inside &= d.sample[k] >= 0 && d.sample[k] < SAMPLES;
            pick += (double)d.sample[k];
        }
        if (d.mosaic)
            inside &= d.center_x >= 320 && d.center_x < 960 && d.center_y >= 320 && d.center_y < 960;
    }
    ok(same && other == DRAWS, "a draw follows from seed, epoch and sample, and another epoch has another");
    ok(inside && filled,
       "images are of the split, for mixup with boxes; centres lie in the middle of the canvas");
    is_near(mosaic / (double)DRAWS, 0.5, 0.035, "half are mosaics");
    ok(mixup == mosaic, "and all of these mixed");
    is_near(flip / (double)DRAWS, 0.5, 0.035, "half are mirrored");
    is_near(hue / (double)DRAWS, 0.4, 0.035, "half have another hue, of which a fifth is cut off to 0");
    is_near(scale / DRAWS, 1.05, 0.04, "scales are even between 0.1 and 2");
    is_near(angle / DRAWS * 180 / M_PI, 5.1, 0.35, "angles between -10 and 10, but for the shear");
    is_near(pick / (3.0 * mosaic), 499.5, 16, "samples are even");
    for (int i = 0; i < SAMPLES; i++) offset[i + 1] = 0;
    kolo_detect_draw d;
    c.mosaic = 1;
    kolo_detect_choose(&d, &c, 1, 2, 5, SAMPLES, offset);
    ok(!d.mixup && d.sample[4] == -1, "in a split without boxes nothing is mixed, and the search ends");
}

int main(void)
{
    draw_all();
    if (kolo_detector_create(&detector) < 0) diag("%s", kolo_error_text());
    test_boxes();
    test_letterbox();
    test_middle();
    test_warp();
    test_hsv();
    test_golden();
    test_carried(false, 0);
    test_carried(true, 0);
    test_carried(true, 2e-4);
    test_draws();
    kolo_detector_destroy(&detector);
    for (int i = 0; i < 5; i++) kolo_image_free(&images[i]), kolo_boxes_free(&boxes[i]);
    return done_testing();
}
