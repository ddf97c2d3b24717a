#include "data/worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/augment/augment.h"
#include "data/detect_row.h"
#include "data/image/jpeg.h"
#include "data/shard/dataset.h"

struct kolo_worker {
    const kolo_recipe *recipe; /* of the row that is made */
    kolo_jpeg *jpeg;
    kolo_resampler *resampler;
    kolo_image image, turned;
    kolo_canvas *canvas;  /* NULL: no augmentations */
    kolo_detect_row *row; /* NULL: no boxes */
    uint8_t *blob;
    size_t blob_bytes;
    bool timed;
    int64_t failed;           /* the sample that the last error is about */
    kolo_loader_stats *stats; /* of the chunk that is made */
};

int kolo_worker_create(kolo_worker **worker, const kolo_recipe *recipe)
{
    kolo_worker *w = *worker = kolo_alloc(sizeof *w);
    int rc = KOLO_ENOMEM;
    if (!w) return rc;
    w->recipe = recipe;
    KOLO_TRY_GOTO(rc, kolo_jpeg_create(&w->jpeg));
    KOLO_TRY_GOTO(rc, kolo_resampler_create(&w->resampler));
    const kolo_loader_config *c = &recipe->config;
    if (kolo_loader_has_boxes(c)) KOLO_TRY_GOTO(rc, kolo_detect_row_create(&w->row));
    else if (recipe->augments)
        KOLO_TRY_GOTO(rc, kolo_canvas_create(&w->canvas, c->height, c->width, c->channels, c->mean, c->std));
    return 0;
fail:
    kolo_worker_destroy(worker);
    return rc;
}

void kolo_worker_destroy(kolo_worker **worker)
{
    kolo_worker *w = *worker;
    if (!w) return;
    kolo_jpeg_destroy(&w->jpeg);
    kolo_resampler_destroy(&w->resampler);
    kolo_canvas_destroy(&w->canvas);
    kolo_detect_row_destroy(&w->row);
    kolo_image_free(&w->image);
    kolo_image_free(&w->turned);
    free(w->blob);
    free(w);
    *worker = NULL;
}

/* What comes from a file is compared with its checksum before it is used (kolo_dataset_check_run). */
static int read_sample(kolo_worker *w, int64_t sample, void *to)
{
    const kolo_dataset *d = w->recipe->config.dataset;
    const double begin = w->timed ? kolo_time() : 0;
    KOLO_TRY(kolo_dataset_read_run(d, sample, 1, to));
    if (w->timed) kolo_latency_add(&w->stats->read, kolo_time() - begin);
    return kolo_dataset_check_run(d, sample, 1, to, &sample);
}

/* The stored bytes, where they lie in memory or in the worker's own. */
static int get_blob(kolo_worker *w, int64_t sample, size_t bytes, const uint8_t **blob)
{
    *blob = kolo_dataset_memory(w->recipe->config.dataset, sample);
    if (*blob) return 0;
    if (bytes > w->blob_bytes) {
        free(w->blob);
        w->blob = kolo_alloc(bytes + bytes / 2);
        w->blob_bytes = w->blob ? bytes + bytes / 2 : 0;
        if (!w->blob) return KOLO_ENOMEM;
    }
    *blob = w->blob;
    return read_sample(w, sample, w->blob);
}

/* Training may decode at half, quarter or eighth size as long as the crop keeps at least the output's pixels.
 * Validation decodes whole, so that its figures agree with other programs' to the bit. */
static int choose_denominator(const kolo_loader_config *c, const kolo_view *view)
{
    const kolo_resize *q = &view->resize;
    int denominator = 8;
    if (!c->train) return 1;
    while (denominator > 1 && (q->height < (double)q->full_height * denominator ||
                               q->width < (double)q->full_width * denominator))
        denominator /= 2;
    return denominator;
}

/* Pixels of the image that the wanted part of the view needs, in full-size pixels. */
static kolo_jpeg_window needed_window(const kolo_view *view, int height, int width)
{
    const kolo_resize *q = &view->resize;
    const double y = q->height / q->full_height, x = q->width / q->full_width;
    const double reach = kolo_resample_support(q->filter);
    const double margin_y = (y > 1 ? y : 1) * reach + 1, margin_x = (x > 1 ? x : 1) * reach + 1;
    const int column = q->column;
    double top = q->top + q->row * y - margin_y, bottom = q->top + (q->row + q->rows) * y + margin_y;
    double left = q->left + column * x - margin_x, right = q->left + (column + q->columns) * x + margin_x;
    if (top < 0) top = 0;
    if (left < 0) left = 0;
    if (bottom > height) bottom = height;
    if (right > width) right = width;
    kolo_jpeg_window w = {(int)top, (int)left, 0, 0};
    w.height = (int)(bottom + 0.999) - w.top;
    w.width = (int)(right + 0.999) - w.left;
    return w;
}

/* The whole output, or those parts of it that are wanted. */
static int render(kolo_worker *w, const kolo_view *view, int denominator, int origin_top, int origin_left,
                  uint8_t *to)
{
    const kolo_recipe *r = w->recipe;
    const kolo_loader_config *c = &r->config;
    for (int i = 0; i < r->windows; i++) {
        const kolo_window *p = &r->window[i];
        const kolo_view cut = kolo_view_cut(view, p);
        KOLO_TRY(kolo_view_render(&cut, w->resampler, &w->image, denominator, origin_top, origin_left,
                                  p->height, p->width, to));
        to += (size_t)p->height * (size_t)p->width * (size_t)c->channels;
    }
    if (r->windows) return 0;
    return kolo_view_render(view, w->resampler, &w->image, denominator, origin_top, origin_left, c->height,
                            c->width, to);
}

/* Of the output what holds all parts that are wanted. */
static kolo_view wanted_view(const kolo_recipe *r, const kolo_view *view)
{
    int end[2] = {0};
    kolo_window all = r->window[0];
    for (int i = 0; i < r->windows; i++) {
        const kolo_window *p = &r->window[i];
        if (p->top < all.top) all.top = p->top;
        if (p->left < all.left) all.left = p->left;
        if (p->top + p->height > end[0]) end[0] = p->top + p->height;
        if (p->left + p->width > end[1]) end[1] = p->left + p->width;
    }
    all.height = end[0] - all.top;
    all.width = end[1] - all.left;
    return r->windows ? kolo_view_cut(view, &all) : *view;
}

/* What of the file is decoded for that; where it lies beside the image, next to nothing: the file is read all
 * the same, so that it is found damaged on every rank. */
static kolo_jpeg_window wanted_window(const kolo_recipe *r, const kolo_view *view, int height, int width,
                                      const kolo_jpeg_window *within)
{
    const kolo_view wanted = wanted_view(r, view);
    if (wanted.resize.rows > 0 && wanted.resize.columns > 0) return needed_window(&wanted, height, width);
    return (kolo_jpeg_window){within->top, within->left, 1, 1};
}

static int render_jpeg(kolo_worker *w, const uint8_t *blob, size_t bytes, int64_t pass, int64_t sample,
                       uint8_t *to)
{
    const kolo_loader_config *c = &w->recipe->config;
    kolo_jpeg_info info;
    kolo_view view;
    KOLO_TRY(kolo_jpeg_inspect(w->jpeg, blob, bytes, &info));
    if (info.orientation != 1) {
        KOLO_TRY(kolo_jpeg_decode(w->jpeg, blob, bytes, c->channels, 1, NULL, &w->turned, NULL));
        KOLO_TRY(kolo_image_turn(&w->turned, info.orientation, &w->image));
        kolo_view_choose(&view, c, w->image.height, w->image.width, pass, sample);
        w->stats->decoded += (int64_t)w->image.height * w->image.width;
        return render(w, &view, 1, 0, 0, to);
    }
    kolo_view_choose(&view, c, info.height, info.width, pass, sample);
    if (view.resize.rows < 1 || view.resize.columns < 1) {
        memset(to, 0, w->recipe->sample_bytes);
        return 0;
    }
    const int denominator = choose_denominator(c, &view);
    const kolo_jpeg_window within = needed_window(&view, info.height, info.width),
                           window = wanted_window(w->recipe, &view, info.height, info.width, &within);
    kolo_jpeg_window origin;
    KOLO_TRY(kolo_jpeg_decode_part(w->jpeg, blob, bytes, c->channels, denominator, &window, &within,
                                   &w->image, &origin));
    w->stats->decoded += (int64_t)w->image.height * w->image.width;
    return render(w, &view, denominator, origin.top, origin.left, to);
}

static int render_raw(kolo_worker *w, int64_t pass, int64_t sample, uint8_t *to)
{
    const kolo_loader_config *c = &w->recipe->config;
    const kolo_dataset_info *info = kolo_dataset_get_info(c->dataset);
    kolo_view view;
    int height, width;
    kolo_dataset_size(c->dataset, sample, &height, &width);
    kolo_view_choose(&view, c, height, width, pass, sample);
    if (w->recipe->direct && info->channels == c->channels &&
        kolo_view_is_whole(&view, c->height, c->width) && !view.resize.flip)
        return read_sample(w, sample, to);
    KOLO_TRY(kolo_image_shape(&w->image, height, width, info->channels));
    KOLO_TRY(read_sample(w, sample, w->image.pixels));
    KOLO_TRY(kolo_image_convert(&w->image, c->channels));
    return render(w, &view, 1, 0, 0, to);
}

int64_t kolo_worker_failed(const kolo_worker *w) { return w->failed; }

static int in_sample(kolo_worker *w, int rc, int64_t sample)
{
    char source[512];
    kolo_failure cause;
    int64_t index;
    const kolo_dataset *d = w->recipe->config.dataset;
    const char *shard = kolo_dataset_shard_of(d, sample, &index);
    w->failed = sample;
    kolo_error_keep(&cause);
    if (kolo_dataset_source(d, sample, source, sizeof source) < 0) source[0] = 0;
    return kolo_fail(rc,
                     "sample %lld (number %lld of %s%s%s): %s; run kolo-shards verify on the folder, then "
                     "copy or pack that shard again",
                     (long long)sample, (long long)index, shard, source[0] ? ", made from " : "", source,
                     cause.text);
}

static int fetch_jpeg(kolo_worker *w, const uint8_t *blob, size_t bytes, kolo_image *to)
{
    kolo_jpeg_info info;
    KOLO_TRY(kolo_jpeg_inspect(w->jpeg, blob, bytes, &info));
    kolo_image *upright = info.orientation == 1 ? to : &w->turned;
    KOLO_TRY(kolo_jpeg_decode(w->jpeg, blob, bytes, 3, 1, NULL, upright, NULL));
    return upright == to ? 0 : kolo_image_turn(upright, info.orientation, to);
}

int kolo_worker_fetch(kolo_worker *w, int64_t sample, kolo_image *to)
{
    const kolo_dataset *d = w->recipe->config.dataset;
    const size_t bytes = kolo_dataset_bytes(d, sample);
    int rc = 0;
    if (kolo_dataset_codec(d, sample) == KOLO_CODEC_JPEG) {
        const uint8_t *blob;
        rc = get_blob(w, sample, bytes, &blob);
        if (rc == 0) rc = fetch_jpeg(w, blob, bytes, to);
    } else {
        int height, width;
        kolo_dataset_size(d, sample, &height, &width);
        rc = kolo_image_shape(to, height, width, kolo_dataset_get_info(d)->channels);
        if (rc == 0) rc = read_sample(w, sample, to->pixels);
        if (rc == 0) rc = kolo_image_convert(to, 3);
    }
    if (rc < 0) return in_sample(w, rc, sample);
    w->stats->bytes += (int64_t)bytes;
    w->stats->hits += kolo_dataset_memory(d, sample) != NULL;
    return 0;
}

int kolo_worker_make(kolo_worker *w, const kolo_recipe *r, int64_t pass, int64_t sample, uint8_t *to,
                     int32_t *label, bool timed, kolo_loader_stats *stats)
{
    const kolo_loader_config *c = &r->config;
    const size_t length = kolo_dataset_bytes(c->dataset, sample);
    const bool cached = kolo_dataset_memory(c->dataset, sample);
    int rc;
    w->recipe = r;
    w->failed = sample;
    w->timed = timed && !cached;
    w->stats = stats;
    if (w->row) return kolo_detect_row_make(w->row, w, r, pass, sample, to, label);
    if (kolo_dataset_codec(c->dataset, sample) == KOLO_CODEC_JPEG) {
        const uint8_t *blob;
        rc = get_blob(w, sample, length, &blob);
        if (rc == 0) rc = render_jpeg(w, blob, length, pass, sample, to);
    } else {
        rc = render_raw(w, pass, sample, to);
    }
    if (rc < 0) return in_sample(w, rc, sample);
    stats->bytes += (int64_t)length;
    stats->hits += cached;
    if (w->canvas) {
        w->canvas->pixels = to;
        w->canvas->height = c->height;
        w->canvas->width = c->width;
        kolo_augment_apply(r->augment, r->augments, w->canvas, c->seed, pass, sample);
    }
    return 0;
}

int kolo_worker_make_run(kolo_worker *w, int64_t sample, int64_t n, uint8_t *to, kolo_loader_stats *stats)
{
    const kolo_recipe *r = w->recipe;
    const kolo_dataset *d = r->config.dataset;
    while (n > 0) {
        const int64_t run = kolo_dataset_run(d, sample, n);
        const bool cached = kolo_dataset_memory(d, sample) && kolo_dataset_memory(d, sample + run - 1);
        const double begin = kolo_time();
        int64_t failed = sample;
        int rc = kolo_dataset_read_run(d, sample, run, to);
        if (rc < 0) return in_sample(w, rc, sample);
        stats->bytes += run * (int64_t)r->sample_bytes;
        if (cached) stats->hits += run;
        else kolo_latency_add(&stats->read, kolo_time() - begin);
        if (!cached) rc = kolo_dataset_check_run(d, sample, run, to, &failed);
        if (rc < 0) return in_sample(w, rc, failed);
        sample += run;
        to += run * (int64_t)r->sample_bytes;
        n -= run;
    }
    return 0;
}
