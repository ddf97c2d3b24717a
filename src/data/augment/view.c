#include "data/augment/augment.h"

#include <math.h>
#include <string.h>

#include "base/option.h"

static kolo_view whole(int height, int width, int full_height, int full_width)
{
    kolo_view view = {
        .resize = {.height = height, .width = width, .full_height = full_height, .full_width = full_width}};
    return view;
}

/* Puts a window of out_size at `corner` of an axis that has low .. high - 1: what of it exists, and where
 * that goes. */
static void clip(int corner, int out_size, int low, int high, int *from, int *count, int *to)
{
    const int first = corner > low ? corner : low, last = corner + out_size < high ? corner + out_size : high;
    *from = first;
    *count = last > first ? last - first : 0;
    *to = first - corner;
}

/* Half to even, as torchvision's centre crop. */
static int middle(int full, int out)
{
    const int twice = full - out;
    return twice % 2 == 0 ? twice / 2 : (int)nearbyint(twice / 2.0);
}

/* Size that makes the short side `side`; the other floor(side * long / short). */
static void scale_to(int side, int height, int width, int *full_height, int *full_width)
{
    *full_height = height <= width ? side : (int)((int64_t)side * height / width);
    *full_width = height <= width ? (int)((int64_t)side * width / height) : side;
}

static void cover(int height, int width, int out_height, int out_width, int *full_height, int *full_width)
{
    if ((int64_t)out_height * width >= (int64_t)out_width * height) {
        *full_height = out_height;
        *full_width = (int)(((int64_t)out_height * width + height / 2) / height);
        if (*full_width < out_width) *full_width = out_width;
    } else {
        *full_width = out_width;
        *full_height = (int)(((int64_t)out_width * height + width / 2) / width);
        if (*full_height < out_height) *full_height = out_height;
    }
}

void kolo_view_center(kolo_view *view, int height, int width, int out_height, int out_width, int short_side)
{
    int full_height, full_width;
    if (short_side > 0) scale_to(short_side, height, width, &full_height, &full_width);
    else cover(height, width, out_height, out_width, &full_height, &full_width);
    *view = whole(height, width, full_height, full_width);
    kolo_resize *q = &view->resize;
    clip(middle(full_height, out_height), out_height, 0, full_height, &q->row, &q->rows, &view->top);
    clip(middle(full_width, out_width), out_width, 0, full_width, &q->column, &q->columns, &view->left);
}

void kolo_view_pad(kolo_view *view, int height, int width, int out_height, int out_width, int pad,
                   kolo_random *random)
{
    const int down = (int)kolo_random_below(random, 2 * (uint32_t)pad + 1) - pad;
    const int right = (int)kolo_random_below(random, 2 * (uint32_t)pad + 1) - pad;
    int full_height, full_width;
    cover(height, width, out_height, out_width, &full_height, &full_width);
    *view = whole(height, width, full_height, full_width);
    kolo_resize *q = &view->resize;
    const int y = middle(full_height, out_height), x = middle(full_width, out_width);
    clip(y + down, out_height, y, y + out_height, &q->row, &q->rows, &view->top);
    clip(x + right, out_width, x, x + out_width, &q->column, &q->columns, &view->left);
}

static void set_box(kolo_view *view, int top, int left, int height, int width, int out_height, int out_width)
{
    *view = whole(height, width, out_height, out_width);
    view->resize.top = top;
    view->resize.left = left;
    view->resize.rows = out_height;
    view->resize.columns = out_width;
}

/* Inception's crop in torchvision's form: ten tries at a random area and aspect, then the largest centred box
 * whose aspect is allowed. */
void kolo_view_resized(kolo_view *view, int height, int width, int out_height, int out_width, double area_min,
                       double area_max, kolo_random *random)
{
    const double low = 3.0 / 4.0, high = 4.0 / 3.0, area = (double)height * width;
    for (int i = 0; i < 10; i++) {
        const double part = area * (area_min + (area_max - area_min) * (double)kolo_random_uniform(random));
        const double aspect = exp(log(low) + (log(high) - log(low)) * (double)kolo_random_uniform(random));
        const int w = (int)nearbyint(sqrt(part * aspect)), h = (int)nearbyint(sqrt(part / aspect));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        const int top = (int)kolo_random_below(random, (uint32_t)(height - h + 1));
        const int left = (int)kolo_random_below(random, (uint32_t)(width - w + 1));
        set_box(view, top, left, h, w, out_height, out_width);
        return;
    }
    const double ratio = (double)width / height;
    int h = height, w = width;
    if (ratio < low) h = (int)nearbyint(w / low);
    else if (ratio > high) w = (int)nearbyint(h * high);
    if (h > height) h = height;
    if (w > width) w = width;
    set_box(view, (height - h) / 2, (width - w) / 2, h, w, out_height, out_width);
}

void kolo_view_flip(kolo_view *view, int out_width)
{
    view->resize.flip = !view->resize.flip;
    view->left = out_width - view->left - view->resize.columns;
}

bool kolo_view_is_whole(const kolo_view *view, int height, int width)
{
    const kolo_resize *q = &view->resize;
    return q->top == 0 && q->left == 0 && q->height == height && q->width == width &&
           q->full_height == height && q->full_width == width && q->row == 0 && q->column == 0 &&
           q->rows == height && q->columns == width;
}

void kolo_view_choose(kolo_view *view, const kolo_loader_config *c, int height, int width, int64_t pass,
                      int64_t sample)
{
    if (!c->train) {
        kolo_view_center(view, height, width, c->height, c->width, c->resize);
        view->resize.filter = c->interpolation;
        return;
    }
    kolo_random random = kolo_augment_random(c->seed, pass, sample, KOLO_OPERATION_CROP);
    if (c->crop == KOLO_crop_resized)
        kolo_view_resized(view, height, width, c->height, c->width, c->area_min, c->area_max, &random);
    else if (c->crop == KOLO_crop_pad)
        kolo_view_pad(view, height, width, c->height, c->width, c->crop_pad, &random);
    else kolo_view_center(view, height, width, c->height, c->width, 0);
    view->resize.filter = c->interpolation;
    if (!c->flip) return;
    random = kolo_augment_random(c->seed, pass, sample, KOLO_OPERATION_FLIP);
    if (kolo_random_u32(&random) >> 31) kolo_view_flip(view, c->width);
}

/* Pixels from..from + count - 1 of an axis go to `to` and on; of these are left what lies in a window. */
static void cut_axis(int first, int size, int *from, int *count, int *to, bool flip)
{
    const int begin = *to > first ? *to : first, all = *to + *count,
              end = all < first + size ? all : first + size, left = end > begin ? end - begin : 0;
    *from += left == 0 ? 0 : flip ? all - end : begin - *to;
    *count = left;
    *to = left == 0 ? 0 : begin - first;
}

kolo_view kolo_view_cut(const kolo_view *view, const kolo_window *w)
{
    kolo_view cut = *view;
    kolo_resize *q = &cut.resize;
    cut_axis(w->top, w->height, &q->row, &q->rows, &cut.top, false);
    cut_axis(w->left, w->width, &q->column, &q->columns, &cut.left, q->flip);
    return cut;
}

static void copy_row(const uint8_t *from, uint8_t *to, int columns, int channels, bool flip)
{
    if (!flip) {
        memcpy(to, from, (size_t)columns * (size_t)channels);
        return;
    }
    from += (size_t)(columns - 1) * (size_t)channels;
    if (channels == 1)
        for (int x = 0; x < columns; x++) to[x] = *from--;
    else
        for (int x = 0; x < columns; x++, to += 3, from -= 3)
            to[0] = from[0], to[1] = from[1], to[2] = from[2];
}

int kolo_view_render(const kolo_view *view, kolo_resampler *resampler, const kolo_image *image,
                     int denominator, int origin_top, int origin_left, int out_height, int out_width,
                     uint8_t *to)
{
    kolo_resize q = view->resize;
    const size_t channels = (size_t)image->channels, stride = (size_t)out_width * channels;
    if (q.rows < out_height || q.columns < out_width) memset(to, 0, (size_t)out_height * stride);
    if (q.rows < 1 || q.columns < 1) return 0;
    uint8_t *part = to + (size_t)view->top * stride + (size_t)view->left * channels;
    const bool same = denominator == 1 && q.height == q.full_height && q.width == q.full_width;
    if (!same) {
        q.top = q.top / denominator - origin_top;
        q.left = q.left / denominator - origin_left;
        q.height /= denominator;
        q.width /= denominator;
        return kolo_resample(resampler, image, &q, part, stride);
    }
    const uint8_t *from = image->pixels + ((size_t)((int)q.top + q.row - origin_top) * (size_t)image->width +
                                           (size_t)((int)q.left + q.column - origin_left)) *
                                              channels;
    for (int y = 0; y < q.rows; y++, part += stride, from += (size_t)image->width * channels)
        copy_row(from, part, q.columns, image->channels, q.flip);
    return 0;
}
