/* The order of YOLOX: mosaic, affine map, mixup, HSV, mirror; without mosaic: fit, HSV, mirror. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/detect.h"
#include "kolo/error.h"

struct kolo_detector {
    kolo_resampler *resampler;
    kolo_image canvas, second;
};

int kolo_detector_create(kolo_detector **detector)
{
    kolo_detector *d = *detector = kolo_alloc(sizeof *d);
    if (!d) return KOLO_ENOMEM;
    const int rc = kolo_resampler_create(&d->resampler);
    if (rc < 0) kolo_detector_destroy(detector);
    return rc;
}

void kolo_detector_destroy(kolo_detector **detector)
{
    kolo_detector *d = *detector;
    if (!d) return;
    kolo_resampler_destroy(&d->resampler);
    kolo_image_free(&d->canvas);
    kolo_image_free(&d->second);
    free(d);
    *detector = NULL;
}

/* of [9]; the determinant is that of scale, shear and rotation: not 0 */
static void invert(const double *m, double *to)
{
    to[0] = m[4] * m[8] - m[5] * m[7], to[1] = m[2] * m[7] - m[1] * m[8], to[2] = m[1] * m[5] - m[2] * m[4];
    to[3] = m[5] * m[6] - m[3] * m[8], to[4] = m[0] * m[8] - m[2] * m[6], to[5] = m[2] * m[3] - m[0] * m[5];
    to[6] = m[3] * m[7] - m[4] * m[6], to[7] = m[1] * m[6] - m[0] * m[7], to[8] = m[0] * m[4] - m[1] * m[3];
    const double determinant = m[0] * to[0] + m[1] * to[3] + m[2] * to[6];
    for (int k = 0; k < 9; k++) to[k] /= determinant;
}

static int detect_make_append(kolo_boxes *out, const kolo_boxes *more)
{
    for (int64_t i = 0; i < more->count; i++) KOLO_TRY(kolo_boxes_add(out, more->box[i], more->cls[i]));
    return 0;
}

/* Images 0 to 3 with a corner at the centre: above it and left, above and right, below and
 * left, below and right. */
static int put_mosaic(kolo_detector *d, const kolo_detect_config *c, const kolo_detect_draw *draw,
                      const kolo_image *images, const kolo_boxes *boxes, kolo_boxes *out)
{
    KOLO_TRY(kolo_image_shape(&d->canvas, 2 * c->height, 2 * c->width, 3));
    kolo_detect_fill(&d->canvas, c->fill);
    for (int k = 0; k < 4; k++) {
        const kolo_image *p = &images[k];
        const int64_t first = out->count;
        kolo_detect_place place;
        double scale;
        kolo_detect_letterbox(p->height, p->width, c->height, c->width, false, &place, &scale);
        place.top = draw->center_y - (k < 2 ? place.full_height : 0);
        place.left = draw->center_x - (k % 2 == 0 ? place.full_width : 0);
        KOLO_TRY(kolo_detect_put(d->resampler, c->filter, p, &place, &d->canvas));
        KOLO_TRY(detect_make_append(out, &boxes[k]));
        kolo_boxes_move(out, first, scale, place.left, place.top);
    }
    kolo_boxes_clip(out, 0, d->canvas.width, d->canvas.height);
    return 0;
}

/* The fifth image, fitted to the output's size, that made larger or smaller, mirrored, moved: its canvas's
 * border has the fill colour, what lies beyond is black. */
static int put_second(kolo_detector *d, const kolo_detect_config *c, const kolo_detect_draw *draw,
                      const kolo_image *p, const kolo_boxes *boxes, kolo_boxes *out)
{
    const int height = (int)(c->height * draw->mixup_scale), width = (int)(c->width * draw->mixup_scale);
    const int right = width > c->width ? (int)(draw->mixup_right * (width - c->width)) : 0;
    const int down = height > c->height ? (int)(draw->mixup_down * (height - c->height)) : 0;
    const int64_t first = out->count;
    kolo_detect_place place;
    double scale;
    KOLO_TRY(kolo_image_shape(&d->second, c->height, c->width, 3));
    kolo_detect_fill(&d->second, 0);
    for (int y = 0; y < c->height && y < height - down; y++)
        memset(d->second.pixels + 3 * (size_t)y * (size_t)c->width, c->fill,
               3 * (size_t)(width - right < c->width ? width - right : c->width));
    kolo_detect_letterbox(p->height, p->width, height, width, false, &place, &scale);
    place.flip = draw->mixup_flip;
    place.top = -down;
    place.left = (draw->mixup_flip ? width - place.full_width : 0) - right;
    KOLO_TRY(kolo_detect_put(d->resampler, c->filter, p, &place, &d->second));
    KOLO_TRY(detect_make_append(out, boxes));
    kolo_boxes_move(out, first, scale, 0, 0);
    kolo_boxes_clip(out, first, width, height);
    if (draw->mixup_flip) kolo_boxes_flip(out, first, width);
    kolo_boxes_move(out, first, 1, -right, -down);
    return 0;
}

static int make_mosaic(kolo_detector *d, const kolo_detect_config *c, const kolo_detect_draw *draw,
                       const kolo_image *images, const kolo_boxes *boxes, kolo_image *to, kolo_boxes *out)
{
    double inverse[9];
    KOLO_TRY(put_mosaic(d, c, draw, images, boxes, out));
    invert(draw->matrix, inverse);
    kolo_detect_warp(&d->canvas, inverse, c->fill, to);
    kolo_boxes_warp(out, 0, draw->matrix);
    kolo_boxes_clip(out, 0, c->width, c->height);
    if (!draw->mixup || kolo_boxes_objects(out) == 0) return 0;
    KOLO_TRY(put_second(d, c, draw, &images[4], &boxes[4], out));
    kolo_detect_average(to, &d->second);
    return 0;
}

/* One image, fitted in. Colours and mirror are for it alone, not for the border. */
static int make_single(kolo_detector *d, const kolo_detect_config *c, const kolo_detect_draw *draw,
                       const kolo_image *image, const kolo_boxes *boxes, kolo_image *to, kolo_boxes *out)
{
    kolo_detect_place place, whole;
    double scale;
    kolo_detect_letterbox(image->height, image->width, c->height, c->width, c->centered, &place, &scale);
    whole = place;
    whole.top = whole.left = 0;
    whole.flip = draw->flip;
    KOLO_TRY(kolo_image_shape(&d->canvas, place.full_height, place.full_width, 3));
    KOLO_TRY(kolo_detect_put(d->resampler, c->filter, image, &whole, &d->canvas));
    if (draw->hue || draw->saturation || draw->value)
        kolo_detect_hsv(&d->canvas, draw->hue, draw->saturation, draw->value);
    kolo_detect_fill(to, c->fill);
    const size_t stride = 3 * (size_t)place.full_width;
    for (int y = 0; y < place.full_height; y++)
        memcpy(to->pixels + 3 * ((size_t)(place.top + y) * (size_t)c->width + (size_t)place.left),
               d->canvas.pixels + (size_t)y * stride, stride);
    KOLO_TRY(detect_make_append(out, boxes));
    kolo_boxes_move(out, 0, scale, 0, 0);
    if (draw->flip) kolo_boxes_flip(out, 0, place.full_width);
    kolo_boxes_move(out, 0, 1, place.left, place.top);
    return 0;
}

int kolo_detect_make(kolo_detector *d, const kolo_detect_config *c, const kolo_detect_draw *draw,
                     const kolo_image *images, const kolo_boxes *boxes, uint8_t *to, kolo_boxes *out)
{
    kolo_image whole = {.pixels = to, .height = c->height, .width = c->width, .channels = 3};
    out->count = 0;
    if (!draw->mosaic) {
        KOLO_TRY(make_single(d, c, draw, images, boxes, &whole, out));
    } else {
        KOLO_TRY(make_mosaic(d, c, draw, images, boxes, &whole, out));
        if (draw->hue || draw->saturation || draw->value)
            kolo_detect_hsv(&whole, draw->hue, draw->saturation, draw->value);
        if (draw->flip) kolo_detect_mirror(&whole, c->width);
        if (draw->flip) kolo_boxes_flip(out, 0, c->width);
    }
    kolo_boxes_clip(out, 0, c->width, c->height);
    kolo_boxes_drop(out, c->side_min);
    return 0;
}
