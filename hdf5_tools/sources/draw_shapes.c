#include "sources/draw_shapes.h"

#include <math.h>
#include <stdbool.h>

#include "base/philox.h"
#include "kolo/error.h"

const char *const shapes_names[SHAPES_CLASSES] = {"checks", "circle", "cross",   "dots",     "ring",
                                                  "square", "star",   "stripes", "triangle", "waves"};
enum { CHECKS, CIRCLE, CROSS, DOTS, RING, SQUARE, STAR, STRIPES, TRIANGLE, WAVES };

#define TAU 6.2831853f

typedef struct color {
    float v[3];
} color;

/* Smooth noise: random values on a grid, interpolated. */
#define GRID 9
typedef struct cloud {
    float value[GRID][GRID], cells;
} cloud;

typedef struct figure {
    int kind;
    float x, y, radius; /* pixels */
    float cosine, sine, stretch;
    float period, phase; /* of a pattern, in radii and turns */
    bool square;         /* outline of a pattern */
    color front, back;
} figure;

static float between(kolo_random *r, float low, float high)
{
    return low + (high - low) * kolo_random_uniform(r);
}

static color any_color(kolo_random *r)
{
    color c;
    for (int i = 0; i < 3; i++) c.v[i] = between(r, 15, 240);
    return c;
}

static float apart(color a, color b)
{
    float sum = 0;
    for (int i = 0; i < 3; i++) sum += (a.v[i] - b.v[i]) * (a.v[i] - b.v[i]);
    return sqrtf(sum);
}

static color color_unlike(kolo_random *r, color other, float distance)
{
    color c = any_color(r);
    for (int i = 0; i < 20 && apart(c, other) < distance; i++) c = any_color(r);
    return c;
}

static void make_cloud(cloud *c, kolo_random *r, float cells)
{
    c->cells = cells;
    for (int y = 0; y < GRID; y++)
        for (int x = 0; x < GRID; x++) c->value[y][x] = between(r, -1, 1);
}

/* u, v in [0, 1). */
static float cloud_at(const cloud *c, float u, float v)
{
    u *= c->cells, v *= c->cells;
    const int x = (int)u, y = (int)v;
    float fx = u - (float)x, fy = v - (float)y;
    fx = fx * fx * (3 - 2 * fx), fy = fy * fy * (3 - 2 * fy);
    const float top = c->value[y][x] + fx * (c->value[y][x + 1] - c->value[y][x]);
    const float low = c->value[y + 1][x] + fx * (c->value[y + 1][x + 1] - c->value[y + 1][x]);
    return top + fy * (low - top);
}

static void draw_shapes_place(figure *f, kolo_random *r, float height, float width, float small, float large)
{
    const float side = height < width ? height : width, angle = between(r, 0, TAU);
    f->radius = side * between(r, small, large);
    f->x = between(r, f->radius * .9f, width - f->radius * .9f);
    f->y = between(r, f->radius * .9f, height - f->radius * .9f);
    f->cosine = cosf(angle);
    f->sine = sinf(angle);
    f->stretch = between(r, .85f, 1.18f);
    f->period = between(r, .5f, .72f);
    f->phase = between(r, 0, 1);
    f->square = kolo_random_u32(r) & 1;
}

/* Distances to the outline in radii, negative inside. */
static float box(float x, float y, float a, float b)
{
    const float dx = fabsf(x) - a, dy = fabsf(y) - b;
    return dx > dy ? dx : dy;
}

static float star(float x, float y)
{
    const float fifth = TAU / 5, radius = sqrtf(x * x + y * y);
    float angle = atan2f(y, x) / fifth;
    angle = fabsf(angle - roundf(angle)) * 2; /* 0 at a tip, 1 in a notch */
    return radius - 1.05f / (1 + 1.35f * angle);
}

static float triangle(float x, float y)
{
    const float side = .8660254f * fabsf(x) + .5f * y;
    return (side > -y ? side : -y) - .55f;
}

static float outline(const figure *f, float x, float y)
{
    switch (f->kind) {
    case CIRCLE: return sqrtf(x * x + y * y) - .92f;
    case RING: return fabsf(sqrtf(x * x + y * y) - .76f) - .22f;
    case SQUARE: return box(x, y, .8f, .8f);
    case CROSS: return fminf(box(x, y, 1, .3f), box(x, y, .3f, 1));
    case STAR: return star(x, y);
    case TRIANGLE: return triangle(x, y);
    default: return f->square ? box(x, y, .9f, .9f) : sqrtf(x * x + y * y) - 1.05f;
    }
}

/* Signed distance-like value of the pattern inside the outline: positive is the front colour. */
static float pattern(const figure *f, float x, float y)
{
    const float k = TAU / f->period, turn = TAU * f->phase;
    switch (f->kind) {
    case STRIPES: return sinf(k * x + turn);
    case CHECKS: return sinf(.75f * k * x + turn) * sinf(.75f * k * y + turn) * 1.6f;
    case DOTS: return (cosf(k * x + turn) + cosf(k * y + turn)) - .75f;
    case WAVES: return sinf(k * (y + .24f * sinf(4.2f * x + turn)) + turn);
    default: return 1;
    }
}

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* Mixes the figure over `c` at pixel (x, y); shade changes its brightness. */
static void paint(const figure *f, float x, float y, float shade, color *c)
{
    const float dx = (x - f->x) / f->radius, dy = (y - f->y) / f->radius;
    if (dx * dx + dy * dy > 3) return;
    const float u = (f->cosine * dx + f->sine * dy) * f->stretch,
                v = (f->cosine * dy - f->sine * dx) / f->stretch;
    const float cover = clamp(.5f - outline(f, u, v) * f->radius, 0, 1);
    if (cover <= 0) return;
    const float front = clamp(.5f + pattern(f, u, v) * f->radius * f->period * .2f, 0, 1);
    for (int i = 0; i < 3; i++) {
        const float own = f->back.v[i] + front * (f->front.v[i] - f->back.v[i]);
        c->v[i] += cover * (own * (1 + shade) - c->v[i]);
    }
}

typedef struct scene {
    color low, high; /* of the background */
    float along_x, along_y, rough, grain;
    cloud coarse, fine, shade;
    figure main, thing[5]; /* thing: small ones, first `behind` of them behind the main figure */
    int things, behind;
} scene;

static void make_background(scene *s, kolo_random *r)
{
    const float angle = between(r, 0, TAU);
    s->low = any_color(r);
    s->high = any_color(r);
    s->along_x = cosf(angle);
    s->along_y = sinf(angle);
    s->rough = between(r, 8, 28);
    s->grain = between(r, 3, 11);
    make_cloud(&s->coarse, r, between(r, 1.5f, 4));
    make_cloud(&s->fine, r, between(r, 5, 7.9f));
    make_cloud(&s->shade, r, between(r, 1, 3));
}

static void make_scene(scene *s, kolo_random *r, int kind, float height, float width)
{
    make_background(s, r);
    const color middle = {{(s->low.v[0] + s->high.v[0]) / 2, (s->low.v[1] + s->high.v[1]) / 2,
                           (s->low.v[2] + s->high.v[2]) / 2}};
    s->main.kind = kind;
    const bool textured = kind == STRIPES || kind == CHECKS || kind == DOTS || kind == WAVES;
    draw_shapes_place(&s->main, r, height, width, textured ? .36f : .3f, .46f);
    s->main.front = color_unlike(r, middle, 130);
    s->main.back = color_unlike(r, s->main.front, 150);
    s->things = (int)kolo_random_below(r, 5);
    s->behind = s->things - (kolo_random_u32(r) & 1 && s->things > 0);
    for (int i = 0; i < s->things; i++) {
        figure *f = &s->thing[i];
        draw_shapes_place(f, r, height, width, .03f, i < s->behind ? .12f : .09f);
        f->kind = kolo_random_u32(r) & 1 ? CIRCLE : SQUARE;
        f->stretch = between(r, .5f, 2);
        f->front = f->back = any_color(r);
    }
}

static color background_at(const scene *s, float u, float v, float *shade)
{
    const float t = clamp(.5f + s->along_x * (u - .5f) + s->along_y * (v - .5f), 0, 1);
    const float rough = s->rough * (cloud_at(&s->coarse, u, v) + .6f * cloud_at(&s->fine, u, v));
    *shade = .18f * cloud_at(&s->shade, u, v);
    color c;
    for (int i = 0; i < 3; i++) c.v[i] = s->low.v[i] + t * (s->high.v[i] - s->low.v[i]) + rough;
    return c;
}

static color scene_at(const scene *s, float x, float y, float u, float v)
{
    float shade;
    color c = background_at(s, u, v, &shade);
    for (int i = 0; i < s->behind; i++) paint(&s->thing[i], x, y, shade, &c);
    paint(&s->main, x, y, shade, &c);
    for (int i = s->behind; i < s->things; i++) paint(&s->thing[i], x, y, shade, &c);
    return c;
}

/* One channel with contrast, light and grain: a word's four bytes add up to nearly normal,
 * mean 510, deviation 148. */
static uint8_t expose(float value, float contrast, float light, float grain, kolo_random *r)
{
    const uint32_t w = kolo_random_u32(r);
    const float normal = ((float)((w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24)) - 510) / 148;
    return (uint8_t)clamp(128 + contrast * (value - 128) + light + grain * normal + .5f, 0, 255);
}

int shapes_draw(int64_t number, kolo_image *image, int *quality)
{
    kolo_random random = kolo_random_at(kolo_random_key(0, KOLO_RANDOM_SHAPES), (uint64_t)number, 0),
                *r = &random;
    const int height = 64 + (int)kolo_random_below(r, 33), width = 64 + (int)kolo_random_below(r, 33);
    scene s;
    KOLO_TRY(kolo_image_shape(image, height, width, 3));
    *quality = 78 + (int)kolo_random_below(r, 18);
    make_scene(&s, r, (int)(number % SHAPES_CLASSES), (float)height, (float)width);
    const float contrast = between(r, .75f, 1.15f), light = between(r, -18, 18);
    uint8_t *out = image->pixels;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const color c =
                scene_at(&s, (float)x, (float)y, (float)x / (float)width, (float)y / (float)height);
            for (int i = 0; i < 3; i++) *out++ = expose(c.v[i], contrast, light, s.grain, r);
        }
    return 0;
}

/* ---- scenes: several figures --------------------------------------------------------------------------- */

typedef struct crowd {
    int height, width, quality, count;
    figure figure[SHAPES_MOST];
    scene ground;
} crowd;

/* A tenth of the images are empty. Later figures lie over earlier ones; some reach over the border. */
static void make_crowd(crowd *c, kolo_random *r)
{
    c->height = 128 + (int)kolo_random_below(r, 97), c->width = 128 + (int)kolo_random_below(r, 97);
    c->quality = 78 + (int)kolo_random_below(r, 18);
    make_background(&c->ground, r);
    c->count = kolo_random_below(r, 10) ? 1 + (int)kolo_random_below(r, SHAPES_MOST) : 0;
    for (int i = 0; i < c->count; i++) {
        figure *f = &c->figure[i];
        draw_shapes_place(f, r, (float)c->height, (float)c->width, .08f, .28f);
        f->x = between(r, 0, (float)c->width);
        f->y = between(r, 0, (float)c->height);
        f->kind = (int)kolo_random_below(r, SHAPES_CLASSES);
        f->front = color_unlike(r, c->ground.low, 130);
        f->back = color_unlike(r, f->front, 150);
    }
}

static kolo_random random_of_scene(int64_t number)
{
    return kolo_random_at(kolo_random_key(1, KOLO_RANDOM_SHAPES), (uint64_t)number, 0);
}

static bool covers(const figure *f, float x, float y)
{
    const float dx = (x - f->x) / f->radius, dy = (y - f->y) / f->radius;
    if (dx * dx + dy * dy > 3) return false;
    const float u = (f->cosine * dx + f->sine * dy) * f->stretch,
                v = (f->cosine * dy - f->sine * dx) / f->stretch;
    return outline(f, u, v) <= 0;
}

typedef struct extent {
    int left, top, right, bottom; /* half open */
} extent;

static extent reach(const crowd *c, const figure *f)
{
    const float r = 1.74f * f->radius;
    return (extent){(int)clamp(f->x - r, 0, (float)c->width), (int)clamp(f->y - r, 0, (float)c->height),
                    (int)clamp(f->x + r + 1, 0, (float)c->width),
                    (int)clamp(f->y + r + 1, 0, (float)c->height)};
}

/* The pixels of figure k in the image: all of them, and those that no later figure covers. */
static int64_t survey(const crowd *c, int k, extent *box, int64_t *visible)
{
    const extent e = reach(c, &c->figure[k]);
    int64_t pixels = 0;
    *box = (extent){c->width, c->height, 0, 0};
    *visible = 0;
    for (int y = e.top; y < e.bottom; y++)
        for (int x = e.left; x < e.right; x++) {
            if (!covers(&c->figure[k], (float)x, (float)y)) continue;
            bool hidden = false;
            for (int later = k + 1; later < c->count && !hidden; later++)
                hidden = covers(&c->figure[later], (float)x, (float)y);
            pixels++;
            *visible += !hidden;
            if (x < box->left) box->left = x;
            if (y < box->top) box->top = y;
            if (x >= box->right) box->right = x + 1;
            if (y >= box->bottom) box->bottom = y + 1;
        }
    return pixels;
}

int shapes_list_scene(int64_t number, int *height, int *width, shapes_box boxes[SHAPES_MOST])
{
    kolo_random r = random_of_scene(number);
    crowd c;
    int count = 0;
    make_crowd(&c, &r);
    *height = c.height, *width = c.width;
    for (int k = 0; k < c.count; k++) {
        extent e;
        int64_t visible;
        const int64_t pixels = survey(&c, k, &e, &visible);
        if (visible < 40 || visible * 4 < pixels) continue; /* nobody would draw a box around it */
        boxes[count++] = (shapes_box){.label = c.figure[k].kind,
                                      .x = e.left,
                                      .y = e.top,
                                      .width = e.right - e.left,
                                      .height = e.bottom - e.top,
                                      .area = (double)pixels,
                                      .occluded = visible * 10 < pixels * 8,
                                      .truncated = e.left == 0 || e.top == 0 || e.right == c.width ||
                                                   e.bottom == c.height};
    }
    return count;
}

int shapes_draw_scene(int64_t number, kolo_image *image, int *quality)
{
    kolo_random random = random_of_scene(number), *r = &random;
    crowd c;
    make_crowd(&c, r);
    KOLO_TRY(kolo_image_shape(image, c.height, c.width, 3));
    *quality = c.quality;
    const float contrast = between(r, .75f, 1.15f), light = between(r, -18, 18);
    uint8_t *out = image->pixels;
    for (int y = 0; y < c.height; y++)
        for (int x = 0; x < c.width; x++) {
            float shade;
            color at =
                background_at(&c.ground, (float)x / (float)c.width, (float)y / (float)c.height, &shade);
            for (int k = 0; k < c.count; k++) paint(&c.figure[k], (float)x, (float)y, shade, &at);
            for (int i = 0; i < 3; i++) *out++ = expose(at.v[i], contrast, light, c.ground.grain, r);
        }
    return 0;
}
