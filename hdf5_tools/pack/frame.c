/* Where an image's pixels come to lie in its sample, and its boxes with them. */
#include <math.h>
#include <string.h>

#include "data/shard/targets.h"
#include "kolo/error.h"
#include "pack/pack.h"

static int scaled(int64_t side, int64_t other, int64_t by)
{
    const int64_t n = side * other / by;
    return n < 1 ? 1 : (int)n;
}

/* Size after the resize, before crop and bars. */
static void resized(const pack_options *o, int height, int width, pack_frame *f)
{
    const bool tall = height > width;
    int *shorter = tall ? &f->full_width : &f->full_height, *longer = tall ? &f->full_height : &f->full_width;
    const int low = tall ? width : height, high = tall ? height : width;
    f->full_height = f->full_width = o->size;
    switch (o->resize) {
    case PACK_RESIZE_NONE: f->full_height = height, f->full_width = width; break;
    case PACK_RESIZE_SHORTER: *longer = scaled(o->size, high, low); break;
    case PACK_RESIZE_LONGER:
    case PACK_RESIZE_LETTERBOX: *shorter = scaled(o->size, low, high); break;
    case PACK_RESIZE_EXACT: break;
    }
}

int pack_frame_of(const pack_options *o, int height, int width, pack_frame *f)
{
    *f = (pack_frame){.source_height = height, .source_width = width};
    resized(o, height, width, f);
    f->rows = f->full_height, f->columns = f->full_width;
    if (o->crop) {
        if (f->full_height < o->size || f->full_width < o->size)
            return kolo_fail(KOLO_EINPUT, "is only %d x %d pixels, smaller than --crop center with --size %d",
                             f->full_width, f->full_height, o->size);
        f->rows = f->columns = o->size;
        f->top = (f->full_height - o->size) / 2, f->left = (f->full_width - o->size) / 2;
    }
    f->height = f->rows, f->width = f->columns;
    if (o->resize == PACK_RESIZE_LETTERBOX) {
        f->height = f->width = o->size;
        f->above = (o->size - f->rows) / 2, f->before = (o->size - f->columns) / 2;
    }
    return 0;
}

bool pack_frame_is_whole(const pack_frame *f)
{
    return f->height == f->source_height && f->width == f->source_width && f->rows == f->height &&
           f->columns == f->width && f->full_height == f->height && f->full_width == f->width;
}

void pack_frame_transform(const pack_frame *f, float transform[4])
{
    transform[0] = (float)((double)f->full_width / f->source_width);
    transform[1] = (float)((double)f->full_height / f->source_height);
    transform[2] = (float)(f->before - f->left);
    transform[3] = (float)(f->above - f->top);
}

/* The four numbers of a source to corners in pixels of an image of height x width. */
static void corners(enum source_box_form form, const double n[4], int height, int width, double c[4])
{
    memcpy(c, n, 4 * sizeof *c);
    switch (form) {
    case SOURCE_BOX_NONE: break;
    case SOURCE_BOX_CXCYWH:
        c[0] = (n[0] - n[2] / 2) * width, c[1] = (n[1] - n[3] / 2) * height;
        c[2] = (n[0] + n[2] / 2) * width, c[3] = (n[1] + n[3] / 2) * height;
        break;
    case SOURCE_BOX_XYWH: c[2] = n[0] + n[2], c[3] = n[1] + n[3]; break;
    case SOURCE_BOX_XYXY: c[0] = n[0] - 1, c[1] = n[1] - 1; break;
    case SOURCE_BOX_NORM_XYXY:
        c[0] = n[0] * width, c[1] = n[1] * height, c[2] = n[2] * width, c[3] = n[3] * height;
    }
}

/* A point of the stored image of height x width to the upright one (EXIF orientation 1 to 8). */
static void turn_point(int orientation, int height, int width, double *x, double *y)
{
    const double a = *x, b = *y;
    const bool swap = orientation >= 5;
    const bool right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    *x = right ? width - a : a, *y = bottom ? height - b : b;
    if (!swap) return;
    const double keep = *x;
    *x = *y, *y = keep;
}

static void turn_box(int orientation, int height, int width, double c[4])
{
    double turned[4];
    memcpy(turned, c, sizeof turned);
    turn_point(orientation, height, width, &turned[0], &turned[1]);
    turn_point(orientation, height, width, &turned[2], &turned[3]);
    for (int i = 0; i < 2; i++) {
        c[i] = turned[i] < turned[i + 2] ? turned[i] : turned[i + 2];
        c[i + 2] = turned[i] < turned[i + 2] ? turned[i + 2] : turned[i];
    }
}

static double between(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* Cuts off what is outside; true if at least a pixel is left each way. */
static bool clip(double c[4], double left, double top, double right, double bottom)
{
    for (int i = 0; i < 4; i += 2)
        c[i] = between(c[i], left, right), c[i + 1] = between(c[i + 1], top, bottom);
    return c[2] - c[0] >= 1 && c[3] - c[1] >= 1;
}

/* Annotations of a turned image belong to the upright one, as programs show it, unless they state the size
 * that it has before the turn. */
bool pack_is_turned(const source_place *place, int orientation, int height, int width)
{
    return orientation >= 5 && place->height && height != width && place->height == width &&
           place->width == height;
}

void pack_place_box(const pack_frame *f, const source_box *b, enum source_box_form form, int turn,
                    float box[4], uint8_t *flags, float *area)
{
    const bool swap = turn >= 5;
    const int height = swap ? f->source_width : f->source_height,
              width = swap ? f->source_height : f->source_width;
    double c[4];
    corners(form, b->numbers, height, width, c);
    if (turn > 1) turn_box(turn, height, width, c);
    bool inside = clip(c, 0, 0, f->source_width, f->source_height);
    *area = b->area >= 0 ? b->area : (float)((c[2] - c[0]) * (c[3] - c[1]));
    const double sx = (double)f->full_width / f->source_width, sy = (double)f->full_height / f->source_height;
    const double dx = f->before - f->left, dy = f->above - f->top;
    c[0] = c[0] * sx + dx, c[2] = c[2] * sx + dx;
    c[1] = c[1] * sy + dy, c[3] = c[3] * sy + dy;
    inside &= clip(c, f->before, f->above, f->before + f->columns, f->above + f->rows);
    *flags = b->flags;
    if (!inside) {
        *flags |= KOLO_BOX_OUTSIDE;
        *area = 0;
        c[2] = c[0], c[3] = c[1];
    }
    for (int i = 0; i < 4; i++) box[i] = (float)c[i];
}
