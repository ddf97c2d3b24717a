#include "train/predict.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/augment/augment.h"
#include "data/picture/jpeg.h"
#include "kolo/error.h"
#include "train/mirror.h"

typedef struct reader {
    kolo_loader_config config; /* of validation */
    kolo_jpeg *jpeg;
    kolo_resampler *resampler;
    kolo_picture picture;
    kolo_mirror mirror; /* val_flip */
} reader;

static int read_picture(reader *r, const char *path, uint8_t *to)
{
    const kolo_loader_config *c = &r->config;
    kolo_view view;
    char *data = NULL;
    size_t bytes;
    KOLO_TRY(kolo_file_read(path, &data, &bytes));
    int rc = kolo_picture_decode(r->jpeg, data, bytes, c->channels, &r->picture);
    free(data);
    if (rc < 0) return kolo_fail_in(rc, "%s: ", path);
    kolo_view_center(&view, r->picture.height, r->picture.width, c->height, c->width, c->resize);
    view.resize.filter = c->interpolation;
    return kolo_view_render(&view, r->resampler, &r->picture, 1, 0, 0, c->height, c->width, to);
}

/* One batch: the first `valid` rows are pictures. */
static int compute(kolo_session *s, reader *r, const uint8_t *pixels, const int32_t *labels, const int64_t *samples, int64_t valid, float *logits)
{
    const kolo_batch batch = {.pixels = pixels, .labels = labels, .samples = samples, .rows = s->rows, .valid = valid, .valid_global = valid};
    if (s->options->val_flip) return kolo_mirror_ask(&r->mirror, s->exec, s->graph, &batch, logits);
    KOLO_TRY(kolo_exec_answer(s->exec, &batch));
    return kolo_exec_get(s->exec, "activation", s->graph->logits, logits);
}

static int predict(kolo_session *s, reader *r, int64_t n, const char *const *path, kolo_predict_take *take, void *context)
{
    const size_t picture = (size_t)r->config.height * (size_t)r->config.width * (size_t)r->config.channels;
    const int64_t classes = s->options->classes;
    uint8_t *pixels = kolo_pages_alloc((size_t)s->rows * picture + KOLO_PICTURE_SLACK);
    int32_t *labels = kolo_alloc((size_t)s->rows * sizeof *labels);
    int64_t *samples = kolo_alloc((size_t)s->rows * sizeof *samples);
    float *logits = kolo_alloc((size_t)(2 * s->rows * classes) * sizeof *logits);
    int rc = pixels && labels && samples && logits ? 0 : KOLO_ECONFIG;
    for (int64_t first = 0; rc == 0 && first < n; first += s->rows) {
        const int64_t valid = n - first < s->rows ? n - first : s->rows;
        for (int64_t i = 0; rc == 0 && i < s->rows; i++) {
            labels[i] = i < valid ? 0 : -1; /* none is known: the loss is nobody's */
            samples[i] = i < valid ? first + i : -1;
            if (i < valid) rc = read_picture(r, path[first + i], pixels + (size_t)i * picture);
            else memset(pixels + (size_t)i * picture, 0, picture);
        }
        if (rc == 0) rc = compute(s, r, pixels, labels, samples, valid, logits);
        for (int64_t i = 0; rc == 0 && i < valid; i++) rc = take(context, first + i, logits + i * classes);
    }
    free(logits);
    free(samples);
    free(labels);
    if (pixels) kolo_pages_free(&pixels, (size_t)s->rows * picture + KOLO_PICTURE_SLACK);
    return rc;
}

int kolo_predict(kolo_session *s, int64_t n, const char *const *path, kolo_predict_take *take, void *context)
{
    reader r = {.config = kolo_session_loader(s, false)};
    int rc = kolo_jpeg_create(&r.jpeg);
    if (rc == 0) rc = kolo_resampler_create(&r.resampler);
    if (rc == 0 && s->options->val_flip) rc = kolo_mirror_open(&r.mirror, s);
    if (rc == 0) rc = predict(s, &r, n, path, take, context);
    kolo_mirror_close(&r.mirror);
    kolo_picture_free(&r.picture);
    kolo_resampler_destroy(&r.resampler);
    kolo_jpeg_destroy(&r.jpeg);
    return rc;
}
