/* Rows of a batch, made by one reader: samples, what is mixed, what is replaced. */
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "data/augment/augment.h"
#include "data/loader_parts.h"
#include "data/serve/client.h"
#include "data/shard/dataset.h"
#include "data/synthetic.h"
#include "kolo/error.h"

/* Of a row of this rank in the order of the epoch. */
static int64_t position_of(const kolo_loader *l, const loader_slot *s, int64_t row)
{
    return s->step * l->recipe.config.batch + s->rank * l->rows + row;
}

void loader_label(loader_slot *s, int64_t first, int64_t count)
{
    const kolo_loader_config *c = &s->recipe->config;
    const float whole = 1;
    if (c->image_labels) return; /* readers write them with the images */
    for (int64_t i = first; i < first + count; i++) {
        int32_t *label = s->labels + i * c->words;
        if (c->words > 3) { /* boxes: a reader writes them with the image */
            memset(label, 0, sizeof *label * (size_t)c->words);
            if (!c->dataset && s->samples[i] >= 0) kolo_synthetic_boxes(c, s->samples[i], label);
            continue;
        }
        label[0] = s->samples[i] < 0 ? -1
                   : c->dataset      ? kolo_dataset_label(c->dataset, s->samples[i])
                                     : kolo_synthetic_label(c, s->samples[i]);
        if (c->words == 2) {
            const float factor = label[0] < 0 ? 0 : c->class_weight[label[0]] * s->unit;
            memcpy(&label[1], &factor, sizeof label[1]);
        }
        if (c->words != 3) continue;
        label[1] = label[0];
        memcpy(&label[2], &whole, sizeof label[2]);
    }
}

static void write_image_labels(loader_slot *s, int64_t row)
{
    const kolo_loader_config *c = &s->recipe->config;
    kolo_image_labels_row(c->image_labels, s->samples[row], c->train ? c->pos_weight : NULL,
                          c->train ? c->smoothing : 0, (float *)(s->labels + row * c->words));
}

void loader_describe(const kolo_loader *l, loader_slot *s)
{
    const kolo_loader_config *c = &s->recipe->config;
    for (int64_t i = 0; i < l->rows; i++) s->samples[i] = i < s->valid ? position_of(l, s, i) : -1;
    memset(s->labels, 0, (size_t)(l->rows * c->words) * sizeof *s->labels);
    loader_label(s, 0, l->rows);
    for (int64_t i = 0; i < s->valid && c->image_labels; i++) write_image_labels(s, i);
}

/* The loss is linear in what image labels weigh, so the labels of mixed images are mixed likewise. */
static void mix_labels(const kolo_loader_config *c, int32_t *a, int32_t *b, float weight)
{
    if (!c->image_labels) {
        a[1] = b[0];
        b[1] = a[0];
        memcpy(&a[2], &weight, sizeof a[2]);
        b[2] = a[2];
        return;
    }
    float *x = (float *)a, *y = (float *)b;
    for (int64_t i = 0; i < c->words; i++) {
        const float own = x[i], other = y[i];
        x[i] = weight * own + (1 - weight) * other;
        y[i] = weight * other + (1 - weight) * own;
    }
}

/* Rows `repeat` apart are a pair, so that no image is mixed with another view of itself. A pair lies
 * in one chunk of one rank, so who reads it needs no other reader, and neither readers nor ranks change
 * what is mixed with what. */
static void mix_rows(const kolo_loader *l, loader_slot *s, int64_t first, int64_t count)
{
    const kolo_loader_config *c = &s->recipe->config;
    const size_t bytes = s->recipe->sample_bytes;
    for (int64_t i = first; i < first + count; i++) {
        const int64_t j = i + c->repeat;
        if (i / c->repeat % 2 == 1 || j >= s->valid) continue;
        kolo_mix mix;
        const int64_t number = c->mix.by_pair ? position_of(l, s, i) : s->step;
        kolo_random random = kolo_augment_random(c->seed, s->epoch, number, KOLO_OPERATION_MIX);
        kolo_mix_draw(&mix, &c->mix, c->height, c->width, &random);
        if (mix.kind == KOLO_MIX_NONE) continue;
        kolo_mix_apply(&mix, s->pixels + (size_t)i * bytes, s->pixels + (size_t)j * bytes, c->height,
                       c->width, c->channels);
        mix_labels(c, s->labels + i * c->words, s->labels + j * c->words, mix.weight);
    }
}

/* 0: rows with this sample may be made of others; else the error that its decoder left. */
static int allow_bad(kolo_loader *l, int64_t sample, int rc)
{
    const int64_t most = l->recipe.config.max_bad;
    bool known = false;
    if (rc != KOLO_EINPUT || !l->recipe.config.train || most == 0) return rc;
    pthread_mutex_lock(&l->lock);
    for (int64_t i = 0; i < l->bad_count; i++) known |= l->bad[i] == sample;
    const bool take = !known && l->bad_count < most;
    if (take) l->bad[l->bad_count++] = sample;
    pthread_mutex_unlock(&l->lock);
    if (take) kolo_warn("%s; another sample takes its place", kolo_error_text());
    return known || take ? 0 : kolo_fail_in(rc, "more than max_bad=%lld bad samples: ", (long long)most);
}

/* A sample that does not have its checksum, or cannot be decoded, is replaced by the next one of the split
 * that is fine: the same one wherever it is met. So is one whose mosaic has such a sample. */
static int make_row(kolo_loader *l, kolo_worker *worker, loader_slot *s, int64_t row,
                    kolo_loader_stats *stats)
{
    const kolo_recipe *r = s->recipe;
    const int64_t pass = kolo_augment_pass(s->epoch, position_of(l, s, row) % r->config.repeat);
    const int64_t first = s->samples[row];
    const bool timed = row % 8 == 0 || r->sample_bytes >= 16384;
    const double begin = timed ? kolo_time() : 0;
    uint8_t *to = s->pixels + (size_t)row * r->sample_bytes;
    int32_t *label = s->labels + row * r->config.words;
    for (int rc; (rc = kolo_worker_make(worker, r, pass, s->samples[row], to, label, timed, stats)) < 0;) {
        KOLO_TRY(allow_bad(l, kolo_worker_failed(worker), rc));
        s->samples[row] = (s->samples[row] + 1) % l->count;
        if (s->samples[row] == first) return kolo_fail(KOLO_EINPUT, "no sample of the split can be used");
    }
    if (s->samples[row] != first) {
        stats->bad++;
        if (!kolo_loader_has_boxes(&r->config)) loader_label(s, row, 1);
    }
    if (r->config.image_labels) write_image_labels(s, row);
    if (timed) kolo_latency_add(&stats->sample, kolo_time() - begin);
    return 0;
}

void loader_fill(kolo_loader *l, kolo_worker *worker, loader_slot *s, int64_t first, int64_t count,
                 loader_result *r)
{
    const kolo_recipe *recipe = s->recipe;
    const size_t bytes = recipe->sample_bytes;
    const int64_t left = s->valid - first, valid = left < 0 ? 0 : left < count ? left : count;
    if (l->shared_pixels) {
        r->stats.samples = valid;
        return;
    }
    if (l->client && kolo_client_take(l->client, s, first, count, &r->stats)) {
        r->stats.samples = valid;
        return;
    }
    if (l->noise) {
        memcpy(s->pixels + (size_t)first * bytes, l->noise + (size_t)first * bytes, (size_t)valid * bytes);
    } else if (recipe->direct && !recipe->config.train && recipe->augments == 0 && valid > 0) {
        r->row = first;
        r->status = kolo_worker_make_run(worker, s->samples[first], valid, s->pixels + (size_t)first * bytes,
                                         &r->stats);
        for (int64_t i = 0; i < valid && recipe->config.image_labels; i++) write_image_labels(s, first + i);
    } else {
        for (int64_t i = 0; i < valid && r->status == 0; i++) {
            r->row = first + i;
            r->status = make_row(l, worker, s, r->row, &r->stats);
        }
        if (kolo_mix_wanted(&recipe->config.mix) && r->status == 0) mix_rows(l, s, first, count);
    }
    r->stats.samples = valid;
    memset(s->pixels + (size_t)(first + valid) * bytes, 0, (size_t)(count - valid) * bytes);
    const size_t words = recipe->config.image_labels ? (size_t)recipe->config.words : 0;
    memset(s->labels + (size_t)(first + valid) * words, 0,
           (size_t)(count - valid) * words * sizeof *s->labels);
}
