/* OpenCV's u8 HSV (hue of 180 steps, by tables of 12-bit reciprocals) and back, for a jitter
 * with YOLOX's meaning. */
#include <math.h>

#include "base/wide.h"
#include "data/augment/detect.h"

enum { SHIFT = 12, BLOCK = 64 };

/* (what << SHIFT) / i, rounded. */
static int reciprocal(double what, int i) { return i ? (int)nearbyint(what * (1 << SHIFT) / i) : 0; }

typedef struct plane { /* of a block of pixels */
    float h[BLOCK], s[BLOCK], v[BLOCK];
} plane;

typedef struct jitter {
    int hue, saturation, value;
    int by_chroma[256], by_value[256]; /* reciprocals of six times, and of 255ths */
} jitter;

static int clamp_byte(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

/* Pixels to changed hue in sixths of a turn, saturation and value in [0, 1]. */
static void split(const jitter *j, const uint8_t *p, size_t n, plane *to)
{
    for (size_t i = 0; i < n; i++, p += 3) {
        const int r = p[0], g = p[1], b = p[2];
        const int rg = r > g ? r : g, v = rg > b ? rg : b, gr = r > g ? g : r, least = gr > b ? b : gr,
                  chroma = v - least;
        const int up = v == r ? g - b : v == g ? b - r + 2 * chroma : r - g + 4 * chroma;
        const int raw = (up * j->by_chroma[chroma] + (1 << (SHIFT - 1))) >> SHIFT;
        const int s = (chroma * j->by_value[v] + (1 << (SHIFT - 1))) >> SHIFT;
        const int h = ((raw < 0 ? raw + 180 : raw) + j->hue + 180) % 180;
        to->h[i] = (float)h / 30;
        to->s[i] = (float)clamp_byte(s + j->saturation) / 255;
        to->v[i] = (float)clamp_byte(v + j->value) / 255;
    }
}

/* n = 5, 3, 1 for red, green, blue */
static inline float channel(float n, float h, float s, float v)
{
    const float k = n + h >= 6 ? n + h - 6 : n + h;
    const float rest = 4 - k, less = k < rest ? k : rest, part = less < 0 ? 0 : less > 1 ? 1 : less;
    return v * (1 - s * part) * 255 + 0.5f;
}

KOLO_CLONES static void join(plane *p)
{
    for (int i = 0; i < BLOCK; i++) {
        const float h = p->h[i], s = p->s[i], v = p->v[i];
        p->h[i] = channel(5, h, s, v);
        p->s[i] = channel(3, h, s, v);
        p->v[i] = channel(1, h, s, v);
    }
}

void kolo_detect_hsv(kolo_image *image, int hue, int saturation, int value)
{
    const size_t pixels = (size_t)image->height * (size_t)image->width;
    jitter j = {.hue = hue % 180, .saturation = saturation, .value = value};
    plane block = {{0}, {0}, {0}};
    uint8_t *p = image->pixels;
    for (int i = 0; i < 256; i++) {
        j.by_chroma[i] = reciprocal(180 / 6.0, i);
        j.by_value[i] = reciprocal(255, i);
    }
    for (size_t i = 0; i < pixels; i += BLOCK, p += 3 * BLOCK) {
        const size_t n = pixels - i < BLOCK ? pixels - i : BLOCK;
        split(&j, p, n, &block);
        join(&block);
        for (size_t k = 0; k < n; k++) {
            p[3 * k] = (uint8_t)block.h[k];
            p[3 * k + 1] = (uint8_t)block.s[k];
            p[3 * k + 2] = (uint8_t)block.v[k];
        }
    }
}
