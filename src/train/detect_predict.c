#include "train/detect_predict.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/image/draw.h"
#include "data/image/jpeg.h"
#include "kolo/error.h"
#include "metrics/detect_find.h"
#include "train/detect_evaluate.h"

/* An image of a wave (kolo_predict_wave): its file, or -1, and its size there. */
typedef struct shown_image {
    int64_t file;
    int height, width;
} shown_image;

typedef struct viewer {
    kolo_session *session;
    char *const *name;
    kolo_detect_take *take;
    void *context;
    kolo_loader_config config;
    kolo_jpeg *jpeg;
    kolo_resampler *resampler;
    kolo_image *image; /* [rows] of the last batch */
    uint8_t *pixels;
    int32_t *labels;
    int64_t *samples; /* [rows] */
    float *head[KOLO_MAX_HEADS];
    kolo_found_list list; /* of one image */
    shown_image *shown;   /* [wave][rows] */
    int64_t *boxes;       /* [wave][rows] how many each has */
    kolo_found *found;    /* of all of them, one image behind the other */
    int64_t founds, capacity;
} viewer;

static int decode(viewer *v, const char *path, kolo_image *image)
{
    char *data = NULL;
    size_t bytes;
    KOLO_TRY(kolo_file_read(path, &data, &bytes));
    const int rc = kolo_image_decode(v->jpeg, data, bytes, 3, image);
    free(data);
    return rc < 0 ? kolo_fail_in(rc, "%s: ", path) : 0;
}

/* As validation does it. */
static int read_image(void *context, const char *path, int64_t row)
{
    viewer *v = context;
    const kolo_loader_config *c = &v->config;
    kolo_image *p = &v->image[row];
    kolo_image to = {.pixels = v->pixels + (size_t)row * (size_t)c->height * (size_t)c->width * 3,
                     .height = c->height,
                     .width = c->width,
                     .channels = 3};
    kolo_detect_place place;
    double scale;
    KOLO_TRY(decode(v, path, p));
    kolo_detect_letterbox(p->height, p->width, c->height, c->width, c->detect.centered, &place, &scale);
    kolo_detect_fill(&to, c->detect.fill);
    return kolo_detect_put(v->resampler, c->detect.filter, p, &place, &to);
}

static int compute(viewer *v, int64_t valid)
{
    kolo_session *s = v->session;
    const kolo_batch batch = {.pixels = v->pixels,
                              .labels = v->labels,
                              .samples = v->samples,
                              .words = v->config.words,
                              .rows = s->rows,
                              .valid = s->program ? s->rows : valid, /* as other stages count them */
                              .valid_global = s->program ? s->rows : valid};
    return kolo_detect_answer(s, &batch, v->head);
}

/* The boxes of the first `rows` of the batch that was computed, where this rank has them; boxes: [rows]. */
static int keep_found(viewer *v, int64_t rows, int64_t *boxes)
{
    const kolo_session *s = v->session;
    const kolo_options *o = s->options;
    if (!kolo_session_answers(s, s->graph->head[0])) return 0;
    for (int64_t row = 0; row < rows; row++) {
        KOLO_TRY(kolo_detect_find(s->graph, (const float *const *)v->head, row, o->box_threshold, o->nms,
                                  &v->list));
        for (int64_t i = 0; i < v->list.count; i++) {
            KOLO_TRY(kolo_grow(&v->found, &v->capacity, v->founds, sizeof *v->found));
            v->found[v->founds++] = v->list.found[i];
        }
        boxes[row] = v->list.count;
    }
    return 0;
}

/* The next images of the feed; shown, boxes: [rows]. */
static int view_batch(viewer *v, kolo_image_feed *feed, shown_image *shown, int64_t *boxes)
{
    const kolo_session *s = v->session;
    int64_t valid = 0;
    if (kolo_session_loads(s))
        KOLO_TRY(kolo_image_feed_rows(feed, s->rows, read_image, v, v->samples, &valid));
    for (int64_t i = 0; i < s->rows; i++) {
        shown[i] = (shown_image){.file = i < valid ? v->samples[i] : -1};
        if (i < valid) shown[i].height = v->image[i].height, shown[i].width = v->image[i].width;
        boxes[i] = 0;
    }
    if (!valid && !s->program) return 0;
    KOLO_TRY(compute(v, valid));
    return keep_found(v, s->program ? s->rows : valid, boxes);
}

/* What was found, to the stage that shows it. n: images. */
static int share_found(viewer *v, int64_t n)
{
    kolo_session *s = v->session;
    const int of = s->graph->head[0];
    if (!s->program) return 0;
    KOLO_TRY(kolo_predict_share(s, of, v->boxes, (size_t)n * sizeof *v->boxes));
    int64_t all = 0;
    for (int64_t i = 0; i < n; i++) all += v->boxes[i];
    while (v->capacity < all) KOLO_TRY(kolo_grow(&v->found, &v->capacity, v->capacity, sizeof *v->found));
    v->founds = all;
    return kolo_predict_share(s, of, v->found, (size_t)all * sizeof *v->found);
}

/* What an image is called without its folder and its ending. */
typedef struct stem {
    const char *path, *at;
    int length;
} stem;

static stem stem_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *at = slash ? slash + 1 : path, *dot = strrchr(at, '.');
    return (stem){path, at, dot ? (int)(dot - at) : (int)strlen(at)};
}

static int compare_stems(const void *a, const void *b)
{
    const stem *x = a, *y = b;
    const int order = strncmp(x->at, y->at, (size_t)(x->length < y->length ? x->length : y->length));
    return order ? order : x->length - y->length;
}

/* Before anything is computed: two images would be drawn to one file. */
static int check_stems(int64_t n, const char *const *path)
{
    stem *all = kolo_alloc((size_t)(n + 1) * sizeof *all);
    int rc = all ? 0 : KOLO_ENOMEM;
    for (int64_t i = 0; i < n && rc == 0; i++) all[i] = stem_of(path[i]);
    if (rc == 0) qsort(all, (size_t)n, sizeof *all, compare_stems);
    for (int64_t i = 1; i < n && rc == 0; i++)
        if (!compare_stems(&all[i - 1], &all[i]))
            rc = kolo_fail(KOLO_ECONFIG,
                           "out=: %s and %s would both become %.*s.png: give images of different names, or "
                           "one after the other to different folders",
                           all[i - 1].path, all[i].path, all[i].length, all[i].at);
    free(all);
    return rc;
}

static int write_image(const kolo_image *p, const char *folder, const char *path)
{
    const stem s = stem_of(path);
    KOLO_TRY(kolo_folder_make(folder));
    char *to = kolo_format("%s/%.*s.png", folder, s.length, s.at);
    const int rc = to ? kolo_image_write_png(p, to) : KOLO_ENOMEM;
    free(to);
    return rc;
}

/* A pipeline has read other images since. */
static int draw(viewer *v, const char *path, int64_t row, const kolo_found *found, int64_t boxes)
{
    kolo_image *p = &v->image[row];
    if (v->session->program) KOLO_TRY(decode(v, path, p));
    for (int64_t i = boxes - 1; i >= 0; i--) {
        const kolo_found *f = &found[i];
        char text[128], number[16];
        snprintf(number, sizeof number, "%d", f->cls);
        snprintf(text, sizeof text, "%.100s %.2f", v->name ? v->name[f->cls] : number, f->score);
        kolo_draw_box(p, f->box, f->cls, text);
    }
    return write_image(p, v->session->options->out, path);
}

/* The surest box is given first and drawn last. */
static int show(viewer *v, const char *path, int64_t row, const shown_image *shown, kolo_found *found,
                int64_t boxes)
{
    for (int64_t i = 0; i < boxes; i++) {
        kolo_found *f = &found[i];
        double at[4];
        kolo_detect_unfit(&v->config.detect, shown->height, shown->width, f->box, at);
        for (int k = 0; k < 4; k++) {
            const double side = k % 2 ? shown->height : shown->width;
            f->box[k] = at[k] < 0 ? 0 : at[k] > side ? side : at[k];
        }
    }
    KOLO_TRY(v->take(v->context, shown->file, found, boxes));
    return *v->session->options->out ? draw(v, path, row, found, boxes) : 0;
}

/* batches: at most a wave of them */
static int view_wave(viewer *v, kolo_image_feed *feed, int64_t batches)
{
    const int64_t rows = v->session->rows;
    int64_t at = 0;
    v->founds = 0;
    for (int64_t k = 0; k < batches; k++)
        KOLO_TRY(view_batch(v, feed, v->shown + k * rows, v->boxes + k * rows));
    KOLO_TRY(share_found(v, batches * rows));
    for (int64_t i = 0; i < batches * rows; at += v->boxes[i++]) {
        const shown_image *one = &v->shown[i];
        if (one->file >= 0)
            KOLO_TRY(show(v, feed->path[one->file], i % rows, one, v->found + at, v->boxes[i]));
    }
    return 0;
}

static int open_viewer(viewer *v, kolo_session *s, char *const *name)
{
    *v = (viewer){.session = s, .name = name, .config = kolo_session_loader(s, false)};
    const size_t rows = (size_t)s->rows, image = (size_t)v->config.height * (size_t)v->config.width * 3;
    v->image = kolo_alloc(rows * sizeof *v->image);
    v->pixels = kolo_alloc(rows * image + KOLO_IMAGE_SLACK);
    v->labels = kolo_alloc(rows * (size_t)v->config.words * sizeof *v->labels);
    v->samples = kolo_alloc(rows * sizeof *v->samples);
    v->shown = kolo_alloc(rows * (size_t)kolo_predict_wave(s) * sizeof *v->shown);
    v->boxes = kolo_alloc(rows * (size_t)kolo_predict_wave(s) * sizeof *v->boxes);
    if (!v->image || !v->pixels || !v->labels || !v->samples || !v->shown || !v->boxes) return KOLO_ENOMEM;
    for (int i = 0; i < s->graph->heads; i++) {
        v->head[i] =
            kolo_alloc((size_t)kolo_tensor_count(&s->graph->tensor[s->graph->head[i]]) * sizeof(float));
        if (!v->head[i]) return KOLO_ENOMEM;
    }
    KOLO_TRY(kolo_jpeg_create(&v->jpeg));
    return kolo_resampler_create(&v->resampler);
}

static void close_viewer(viewer *v)
{
    for (int64_t i = 0; v->image && i < v->session->rows; i++) kolo_image_free(&v->image[i]);
    for (int i = 0; i < KOLO_MAX_HEADS; i++) free(v->head[i]);
    kolo_found_free(&v->list);
    kolo_resampler_destroy(&v->resampler);
    kolo_jpeg_destroy(&v->jpeg);
    free(v->image);
    free(v->pixels);
    free(v->labels);
    free(v->samples);
    free(v->shown);
    free(v->boxes);
    free(v->found);
}

int kolo_detect_predict(kolo_session *s, kolo_image_feed *feed, char *const *name, kolo_detect_take *take,
                        void *context)
{
    viewer v;
    if (*s->options->out) KOLO_TRY(check_stems(feed->files, feed->path));
    int rc = open_viewer(&v, s, name);
    v.take = take;
    v.context = context;
    const int64_t wave = kolo_predict_wave(s), batches = kolo_predict_batches(s, feed);
    for (int64_t done = 0; rc >= 0 && done < batches; done += wave)
        rc = view_wave(&v, feed, batches - done < wave ? batches - done : wave);
    close_viewer(&v);
    return rc;
}
