#include "train/predict.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/augment/augment.h"
#include "data/image/jpeg.h"
#include "kolo/error.h"
#include "train/mirror.h"

typedef struct reader {
    kolo_loader_config config; /* of validation */
    kolo_jpeg *jpeg;
    kolo_resampler *resampler;
    kolo_image image;
    kolo_mirror mirror; /* val_flip */
    uint8_t *pixels;    /* [rows] images of `bytes` */
    size_t bytes;
    int32_t *labels; /* [rows] zero: none is known */
} reader;

int kolo_image_feed_rows(kolo_image_feed *f, int64_t rows, kolo_image_read *read, void *context,
                         int64_t *file, int64_t *valid)
{
    for (*valid = 0; *valid < rows && f->next < f->files; f->next++) {
        const int rc = read(context, f->path[f->next], *valid);
        if (rc >= 0) {
            file[(*valid)++] = f->next;
            continue;
        }
        if (rc != KOLO_EINPUT && rc != KOLO_EIO) return rc;
        f->bad++;
        kolo_warn("%s; it is left out", kolo_error_text());
        if (f->unreadable) KOLO_TRY(f->unreadable(f->context, f->next, kolo_error_text()));
    }
    return 0;
}

int kolo_image_feed_end(const kolo_image_feed *f)
{
    if (!f->bad) return 0;
    return kolo_fail(KOLO_EINPUT, "%ld of %ld images could not be read; the warnings above say why",
                     (long)f->bad, (long)f->files);
}

static int read_image(void *context, const char *path, int64_t row)
{
    reader *r = context;
    const kolo_loader_config *c = &r->config;
    uint8_t *to = r->pixels + (size_t)row * r->bytes;
    kolo_view view;
    char *data = NULL;
    size_t bytes;
    KOLO_TRY(kolo_file_read(path, &data, &bytes));
    int rc = kolo_image_decode(r->jpeg, data, bytes, c->channels, &r->image);
    free(data);
    if (rc < 0) return kolo_fail_in(rc, "%s: ", path);
    kolo_view_center(&view, r->image.height, r->image.width, c->height, c->width, c->resize);
    view.resize.filter = c->interpolation;
    return kolo_view_render(&view, r->resampler, &r->image, 1, 0, 0, c->height, c->width, to);
}

int64_t kolo_predict_wave(const kolo_session *s) { return s->program ? 4 * s->grid.stages : 1; }

int kolo_predict_share(kolo_session *s, int tensor, void *results, size_t bytes)
{
    if (!s->program) return 0;
    const int from = kolo_grid_rank(&s->grid, kolo_session_answer_stage(s, tensor), 0);
    return kolo_comm_broadcast(s->comm, results, bytes, from);
}

/* One batch: the first `valid` rows are images. Stages that read none count all rows; nobody reads the
 * loss. */
static int compute(kolo_session *s, reader *r, const int64_t *samples, int64_t valid, float *logits)
{
    const bool loads = kolo_session_loads(s);
    const kolo_batch batch = {.pixels = loads ? r->pixels : NULL,
                              .labels = r->labels,
                              .samples = samples,
                              .rows = s->rows,
                              .valid = s->program ? s->rows : valid,
                              .valid_global = s->program ? s->rows : valid};
    if (s->options->val_flip) return kolo_mirror_logits(&r->mirror, s, &batch, logits);
    KOLO_TRY(kolo_exec_infer(s->exec, &batch));
    if (!kolo_session_answers(s, s->graph->logits)) return 0;
    return kolo_exec_get(s->exec, "activation", s->graph->logits, logits);
}

/* The next images of the feed; samples: [rows] their numbers, -1 behind the last. */
static int predict_batch(kolo_session *s, reader *r, kolo_image_feed *feed, int64_t *samples, float *logits)
{
    int64_t valid = 0;
    if (kolo_session_loads(s)) {
        KOLO_TRY(kolo_image_feed_rows(feed, s->rows, read_image, r, samples, &valid));
        memset(r->pixels + (size_t)valid * r->bytes, 0, (size_t)(s->rows - valid) * r->bytes);
    }
    for (int64_t i = valid; i < s->rows; i++) samples[i] = -1;
    return valid || s->program ? compute(s, r, samples, valid, logits) : 0;
}

static int predict(kolo_session *s, reader *r, kolo_image_feed *feed, kolo_predict_take *take, void *context)
{
    const int64_t classes = s->options->classes, words = kolo_session_tags(s) ? 2 * classes : 1,
                  wave = kolo_predict_wave(s), batches = kolo_predict_batches(s, feed), each = s->rows;
    const size_t bytes = (size_t)each * r->bytes + KOLO_IMAGE_SLACK;
    r->pixels = kolo_pages_alloc(bytes);
    r->labels = kolo_alloc((size_t)(each * words) * sizeof *r->labels);
    int64_t *samples = kolo_alloc((size_t)(wave * each) * sizeof *samples);
    float *logits =
        kolo_alloc((size_t)((wave + 1) * each * classes) * sizeof *logits); /* val_flip: one more */
    int rc = r->pixels && r->labels && samples && logits ? 0 : KOLO_ENOMEM;
    for (int64_t done = 0; rc == 0 && done < batches; done += wave) {
        const int64_t n = batches - done < wave ? batches - done : wave;
        for (int64_t k = 0; rc == 0 && k < n; k++)
            rc = predict_batch(s, r, feed, samples + k * each, logits + k * each * classes);
        if (rc == 0)
            rc = kolo_predict_share(s, s->graph->logits, logits,
                                    (size_t)(n * each * classes) * sizeof *logits);
        for (int64_t i = 0; rc == 0 && i < n * each; i++)
            if (samples[i] >= 0) rc = take(context, samples[i], logits + i * classes);
    }
    free(logits);
    free(samples);
    free(r->labels);
    if (r->pixels) kolo_pages_free(&r->pixels, bytes);
    return rc;
}

int kolo_predict(kolo_session *s, kolo_image_feed *feed, kolo_predict_take *take, void *context)
{
    reader r = {.config = kolo_session_loader(s, false)};
    r.bytes = (size_t)r.config.height * (size_t)r.config.width * (size_t)r.config.channels;
    int rc = kolo_jpeg_create(&r.jpeg);
    if (rc == 0) rc = kolo_resampler_create(&r.resampler);
    if (rc == 0 && s->options->val_flip) rc = kolo_mirror_open(&r.mirror, s);
    if (rc == 0) rc = predict(s, &r, feed, take, context);
    kolo_mirror_close(&r.mirror);
    kolo_image_free(&r.image);
    kolo_resampler_destroy(&r.resampler);
    kolo_jpeg_destroy(&r.jpeg);
    return rc;
}
