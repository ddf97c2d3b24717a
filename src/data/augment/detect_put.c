/* Images into a canvas: letterbox, mosaic and mixup are made of this. */
#include <string.h>

#include "base/wide.h"
#include "data/augment/detect.h"

static size_t bytes_of(const kolo_image *p)
{
    return (size_t)p->height * (size_t)p->width * (size_t)p->channels;
}

void kolo_detect_fill(kolo_image *p, int value) { memset(p->pixels, value, bytes_of(p)); }

/* Which of `full` outputs from `corner` on lie within 0 .. side: the first, how many, and where it goes. */
static void clip(int corner, int full, int side, int *from, int *count, int *to)
{
    const int first = corner < 0 ? 0 : corner, last = corner + full < side ? corner + full : side;
    *from = first - corner;
    *count = last > first ? last - first : 0;
    *to = first;
}

/* Where nothing is resized: the wanted rows and columns as they are. */
static void detect_put_copy(const kolo_image *from, const kolo_resize *q, uint8_t *to, size_t stride)
{
    const size_t channels = (size_t)from->channels, bytes = (size_t)q->columns * channels;
    for (int y = 0; y < q->rows; y++)
        memcpy(to + (size_t)y * stride,
               from->pixels + ((size_t)(q->row + y) * (size_t)from->width + (size_t)q->column) * channels,
               bytes);
}

int kolo_detect_put(kolo_resampler *resampler, int filter, const kolo_image *from,
                    const kolo_detect_place *place, kolo_image *canvas)
{
    kolo_resize q = {.height = from->height,
                     .width = from->width,
                     .full_height = place->full_height,
                     .full_width = place->full_width,
                     .flip = place->flip,
                     .filter = filter};
    const size_t channels = (size_t)canvas->channels, stride = (size_t)canvas->width * channels;
    int top, left;
    clip(place->top, place->full_height, canvas->height, &q.row, &q.rows, &top);
    clip(place->left, place->full_width, canvas->width, &q.column, &q.columns, &left);
    if (q.rows < 1 || q.columns < 1) return 0;
    if (place->flip) q.column = place->full_width - q.column - q.columns;
    uint8_t *to = canvas->pixels + (size_t)top * stride + (size_t)left * channels;
    if (q.flip || q.full_height != from->height || q.full_width != from->width)
        return kolo_resample(resampler, from, &q, to, stride);
    detect_put_copy(from, &q, to, stride);
    return 0;
}

void kolo_detect_letterbox(int height, int width, int out_height, int out_width, bool centered,
                           kolo_detect_place *place, double *scale)
{
    const double down = (double)out_height / height, across = (double)out_width / width;
    *scale = down < across ? down : across;
    *place = (kolo_detect_place){.full_height = (int)(height * *scale), .full_width = (int)(width * *scale)};
    if (centered && down < across) place->full_width = (int)((int64_t)width * out_height / height);
    else if (centered) place->full_height = (int)((int64_t)height * out_width / width);
    if (place->full_height < 1) place->full_height = 1;
    if (place->full_width < 1) place->full_width = 1;
    if (!centered) return;
    place->top = (out_height - place->full_height) / 2;
    place->left = (out_width - place->full_width) / 2;
}

void kolo_detect_unfit(const kolo_detect_config *c, int height, int width, const double *box, double *to)
{
    kolo_detect_place place;
    double scale;
    kolo_detect_letterbox(height, width, c->height, c->width, c->centered, &place, &scale);
    for (int k = 0; k < 4; k++) to[k] = (box[k] - (k % 2 ? place.top : place.left)) / scale;
}

void kolo_detect_mirror(kolo_image *p, int columns)
{
    const int channels = p->channels;
    for (int y = 0; y < p->height; y++) {
        uint8_t *left = p->pixels + (size_t)y * (size_t)p->width * (size_t)channels;
        uint8_t *right = left + (ptrdiff_t)(columns - 1) * channels;
        for (; left < right; left += channels, right -= channels)
            for (int k = 0; k < channels; k++) {
                const uint8_t keep = left[k];
                left[k] = right[k];
                right[k] = keep;
            }
    }
}

KOLO_CLONES static void average(uint8_t *restrict to, const uint8_t *restrict other, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = (uint8_t)((to[i] + other[i]) >> 1);
}

void kolo_detect_average(kolo_image *p, const kolo_image *other)
{
    average(p->pixels, other->pixels, bytes_of(p));
}
