#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "base/thread.h"
#include "data/augment.h"
#include "data/synthetic.h"
#include "data/worker.h"
#include "kolo/error.h"

/* A slot goes free -> filling (readers take rows of it) -> ready (all rows done) -> held (by the consumer) -> free. */
enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_HELD };

typedef struct slot {
    uint8_t *pixels;
    int32_t *labels, *labels2; /* labels2 and mix: NULL if nothing is mixed */
    float *mix;
    int64_t *samples;
    int64_t epoch, step, valid, valid_global;
    int64_t taken, done; /* rows given to readers, rows finished */
    enum slot_state state;
    int status; /* of the failed row with the lowest number */
    int64_t failed_row;
    char error[1024];
} slot;

struct kolo_loader {
    kolo_recipe recipe;
    int64_t count, rows, steps, chunk;
    int readers, slots;
    slot *slot;
    size_t slot_bytes;
    int32_t *labels; /* labels, labels2 and mix of all slots */
    size_t labels_bytes;
    uint8_t *noise;     /* synthetic: the pixels of every batch */
    bool shared_pixels; /* all slots show the noise itself: no batch is short */

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t work, ready;
    int64_t *order, order_epoch;
    bool ordering;              /* a reader computes the next order, without the lock */
    int64_t epoch, step;        /* of the batch that is opened next */
    int64_t opened, consumed;   /* batches since seek; batch i lives in slot i % slots */
    int busy;                   /* readers at work on a chunk */
    bool stop, pause, finished; /* finished: no batch is left to open (validation) */
    kolo_loader_stats stats;
    pthread_t *threads;
    int started;
};

static slot *slot_of(kolo_loader *l, int64_t batch) { return &l->slot[batch % l->slots]; }

/* Of a row of this rank in the order of the epoch. */
static int64_t position_of(const kolo_loader *l, const slot *s, int64_t row)
{
    return s->step * l->recipe.config.batch + l->recipe.config.rank * l->rows + row;
}

/* Which samples the next batch has. Lock held; order is that of l->epoch. */
static void open_batch(kolo_loader *l)
{
    const kolo_loader_config *c = &l->recipe.config;
    slot *s = slot_of(l, l->opened);
    const int64_t first = l->step * c->batch, left = l->count - first, mine = c->rank * l->rows;
    s->epoch = l->epoch;
    s->step = l->step;
    s->valid_global = left < c->batch ? left : c->batch;
    s->valid = s->valid_global - mine;
    if (s->valid < 0) s->valid = 0;
    if (s->valid > l->rows) s->valid = l->rows;
    for (int64_t i = 0; i < l->rows; i++) {
        const bool valid = i < s->valid;
        const int64_t position = first + mine + i;
        s->samples[i] = !valid ? -1 : l->order ? l->order[position / c->repeat] : position;
        s->labels[i] = !valid       ? -1
                       : c->dataset ? kolo_dataset_label(c->dataset, s->samples[i])
                                    : kolo_synthetic_label(c, s->samples[i]);
        if (!s->mix) continue;
        s->labels2[i] = s->labels[i];
        s->mix[i] = 1;
    }
    s->taken = s->done = 0;
    s->status = 0;
    s->state = SLOT_FILLING;
    l->opened++;
    if (++l->step < l->steps) return;
    l->step = 0;
    l->epoch++;
    if (!c->train) l->finished = true;
}

/* Lock held on entry and return; other readers wait, the consumer does not. */
static void make_order(kolo_loader *l)
{
    const int64_t epoch = l->epoch;
    l->ordering = true;
    pthread_mutex_unlock(&l->lock);
    kolo_permutation(l->recipe.config.seed, epoch, l->count, l->order);
    pthread_mutex_lock(&l->lock);
    l->order_epoch = epoch;
    l->ordering = false;
    pthread_cond_broadcast(&l->work);
}

/* The next rows to fill, or NULL when the loader stops. Lock held. */
static slot *take_rows(kolo_loader *l, int64_t *first, int64_t *count)
{
    for (;;) {
        if (l->stop) return NULL;
        slot *s = l->opened > 0 ? slot_of(l, l->opened - 1) : NULL;
        if (l->pause || l->ordering) {
            pthread_cond_wait(&l->work, &l->lock);
        } else if (s && s->state == SLOT_FILLING && s->taken < l->rows) {
            *first = s->taken;
            *count = l->rows - s->taken < l->chunk ? l->rows - s->taken : l->chunk;
            s->taken += *count;
            l->busy++;
            return s;
        } else if (l->finished || slot_of(l, l->opened)->state != SLOT_FREE) {
            pthread_cond_wait(&l->work, &l->lock);
        } else if (l->order && l->order_epoch != l->epoch) {
            make_order(l);
        } else {
            open_batch(l);
            pthread_cond_signal(&l->work);
        }
    }
}

typedef struct result {
    int status;
    int64_t row, samples, bytes;
} result;

/* Rows `repeat` apart are a pair, so that no picture is mixed with another view of itself. A pair lies in one chunk of one
 * rank, so who reads it needs no other reader, and neither readers nor ranks change what is mixed with what. */
static void mix_rows(const kolo_loader *l, slot *s, int64_t first, int64_t count)
{
    const kolo_loader_config *c = &l->recipe.config;
    const size_t bytes = l->recipe.sample_bytes;
    for (int64_t i = first; i < first + count; i++) {
        const int64_t j = i + c->repeat;
        if (i / c->repeat % 2 == 1 || j >= s->valid) continue;
        kolo_mix mix;
        const int64_t number = c->mix.by_pair ? position_of(l, s, i) : s->step;
        kolo_random random = kolo_augment_random(c->seed, s->epoch, number, KOLO_OPERATION_MIX);
        kolo_mix_draw(&mix, &c->mix, c->height, c->width, &random);
        if (mix.kind == KOLO_MIX_NONE) continue;
        kolo_mix_apply(&mix, s->pixels + (size_t)i * bytes, s->pixels + (size_t)j * bytes, c->height, c->width,
                       c->channels);
        s->labels2[i] = s->labels[j];
        s->labels2[j] = s->labels[i];
        s->mix[i] = s->mix[j] = mix.weight;
    }
}

static void fill_rows(const kolo_loader *l, kolo_worker *worker, slot *s, int64_t first, int64_t count, result *r)
{
    const kolo_recipe *recipe = &l->recipe;
    const size_t bytes = recipe->sample_bytes;
    const int64_t left = s->valid - first, valid = left < 0 ? 0 : left < count ? left : count;
    if (l->shared_pixels) {
        r->samples = valid;
        return;
    }
    if (l->noise) {
        memcpy(s->pixels + (size_t)first * bytes, l->noise + (size_t)first * bytes, (size_t)valid * bytes);
    } else if (recipe->direct && !recipe->config.train && recipe->augments == 0 && valid > 0) {
        r->status =
            kolo_worker_make_run(worker, s->samples[first], valid, s->pixels + (size_t)first * bytes, &r->bytes);
        r->row = first;
    } else {
        for (int64_t i = 0; i < valid && r->status == 0; i++) {
            r->row = first + i;
            const int64_t view = position_of(l, s, r->row) % recipe->config.repeat;
            const int64_t pass = kolo_augment_pass(s->epoch, view);
            r->status = kolo_worker_make(worker, pass, s->samples[r->row], s->pixels + (size_t)r->row * bytes, &r->bytes);
        }
        if (s->mix && r->status == 0) mix_rows(l, s, first, count);
    }
    r->samples = valid;
    memset(s->pixels + (size_t)(first + valid) * bytes, 0, (size_t)(count - valid) * bytes);
}

static void *reader(void *argument)
{
    kolo_loader *l = argument;
    kolo_worker *worker = NULL;
    const int created = kolo_worker_create(&worker, &l->recipe);
    int64_t first = 0, count = 0;
    pthread_mutex_lock(&l->lock);
    for (slot *s; (s = take_rows(l, &first, &count));) {
        result r = {.status = created, .row = first};
        pthread_mutex_unlock(&l->lock);
        if (created == 0) fill_rows(l, worker, s, first, count, &r);
        pthread_mutex_lock(&l->lock);
        if (r.status < 0 && (s->status == 0 || r.row < s->failed_row)) {
            s->status = r.status;
            s->failed_row = r.row;
            snprintf(s->error, sizeof s->error, "%s", kolo_error_text());
        }
        l->stats.samples += r.samples;
        l->stats.bytes += r.bytes;
        s->done += count;
        if (--l->busy == 0 && l->pause) pthread_cond_broadcast(&l->ready);
        if (s->done == l->rows) {
            s->state = SLOT_READY;
            pthread_cond_broadcast(&l->ready);
        }
    }
    pthread_mutex_unlock(&l->lock);
    kolo_worker_destroy(&worker);
    return NULL;
}

static int check_shape(const kolo_loader_config *c)
{
    if (c->channels != 1 && c->channels != 3)
        return kolo_fail(KOLO_ECONFIG, "loader: %d channels; 1 or 3 are possible", c->channels);
    if (c->height < 1 || c->width < 1 || c->height > 8192 || c->width > 8192)
        return kolo_fail(KOLO_ECONFIG, "loader: pictures of %d x %d pixels; 1 to 8192 a side are possible", c->height,
                         c->width);
    if (c->dataset) {
        const kolo_dataset_info *info = kolo_dataset_get_info(c->dataset);
        if (info->channels == 3 && c->channels == 1)
            return kolo_fail(
                KOLO_EINPUT,
                "data set %s has colour pictures, the network takes 1 channel; pack again with --color gray",
                info->name);
        if (info->classes > c->classes)
            return kolo_fail(KOLO_EINPUT, "data set %s has %d classes, the network %d; set classes=%d", info->name,
                             info->classes, c->classes, info->classes);
    }
    return 0;
}

static int check_config(const kolo_loader_config *c, int64_t count)
{
    if (c->ranks < 1 || c->rank < 0 || c->rank >= c->ranks)
        return kolo_fail(KOLO_EINTERNAL, "loader: rank %d of %d", c->rank, c->ranks);
    if (c->batch < 1 || c->batch % c->ranks != 0)
        return kolo_fail(KOLO_ECONFIG, "batch=%lld does not divide among %d ranks; use a multiple of %d",
                         (long long)c->batch, c->ranks, c->ranks);
    if (count < 1) return kolo_fail(KOLO_EINPUT, "the data set has no samples");
    if (c->train && c->tail == KOLO_tail_drop && count < c->batch)
        return kolo_fail(KOLO_ECONFIG,
                         "batch=%lld is larger than the data set (%lld samples); use a smaller batch or tail=pad",
                         (long long)c->batch, (long long)count);
    const int64_t unit = 2 * (c->repeat > 0 ? c->repeat : 1);
    if (c->train && kolo_mix_wanted(&c->mix) && c->batch / c->ranks % unit != 0)
        return kolo_fail(KOLO_ECONFIG,
                         "mixup and cutmix mix rows of one rank: batch=%lld gives each of %d ranks %lld rows, which is no "
                         "multiple of %lld (2 x repeat); use a batch that is a multiple of %lld",
                         (long long)c->batch, c->ranks, (long long)(c->batch / c->ranks), (long long)unit,
                         (long long)(unit * c->ranks));
    return check_shape(c);
}

static int make_recipe(kolo_loader *l, const kolo_loader_config *config)
{
    kolo_recipe *r = &l->recipe;
    r->config = *config;
    r->config.augment = NULL; /* parsed here; the caller's text is not kept */
    if (!config->train || config->repeat < 1) r->config.repeat = 1;
    if (!config->train) r->config.mix = (kolo_mix_config){0};
    r->sample_bytes = (size_t)config->height * (size_t)config->width * (size_t)config->channels;
    if (config->train) KOLO_TRY(kolo_augment_parse(config->augment, r->augment, KOLO_AUGMENT_MOST, &r->augments));
    if (!config->dataset) return 0;
    const kolo_dataset_info *info = kolo_dataset_get_info(config->dataset);
    kolo_view view;
    kolo_view_center(&view, config->height, config->width, config->height, config->width,
                     config->train ? 0 : config->resize);
    r->direct = info->encoding == KOLO_ENCODING_RAW && info->height == config->height && info->width == config->width &&
                info->channels == config->channels && kolo_view_is_whole(&view, config->height, config->width);
    return 0;
}

static int choose_readers(const kolo_loader_config *c)
{
    if (c->readers > 0) return c->readers;
    if (!c->dataset) return 1;
    const int cpus = kolo_cpu_count();
    if (kolo_dataset_get_info(c->dataset)->encoding == KOLO_ENCODING_RAW) return cpus < 2 ? 1 : 2;
    return cpus < 16 ? cpus : 16;
}

/* Large chunks where a row costs a microsecond, single rows where it costs a decode; pairs that are mixed stay together. */
static int64_t choose_chunk(const kolo_loader *l)
{
    const kolo_loader_config *c = &l->recipe.config;
    const bool jpeg = c->dataset && kolo_dataset_get_info(c->dataset)->encoding != KOLO_ENCODING_RAW;
    const int64_t share = (l->rows + 2 * l->readers - 1) / (2 * l->readers);
    const int64_t most = jpeg ? 4 : l->recipe.sample_bytes < 16384 ? 256 : 8;
    const int64_t chunk = share < most ? share : most, unit = kolo_mix_wanted(&c->mix) ? 2 * c->repeat : 1;
    return (chunk + unit - 1) / unit * unit;
}

static int make_slots(kolo_loader *l)
{
    const kolo_loader_config *c = &l->recipe.config;
    l->slots = (c->prefetch > 0 ? c->prefetch : 3) + 1; /* one more: the one that the consumer holds */
    l->slot_bytes = (size_t)l->rows * l->recipe.sample_bytes;
    l->slot = kolo_alloc(sizeof *l->slot * (size_t)l->slots);
    if (!l->slot) return KOLO_ECONFIG;
    if (!c->dataset) {
        l->noise = kolo_pages_alloc(l->slot_bytes);
        if (!l->noise) return KOLO_ECONFIG;
        kolo_synthetic_fill(c, l->rows, l->noise);
    }
    const bool mixes = kolo_mix_wanted(&c->mix);
    const size_t stride = kolo_round_up(sizeof *l->labels * (size_t)l->rows, KOLO_ALIGN), arrays = mixes ? 3 : 1;
    l->labels_bytes = stride * arrays * (size_t)l->slots;
    l->labels = kolo_pages_alloc(l->labels_bytes);
    if (!l->labels) return KOLO_ECONFIG;
    for (int i = 0; i < l->slots; i++) {
        slot *s = &l->slot[i];
        s->pixels = l->shared_pixels ? l->noise : kolo_pages_alloc(l->slot_bytes);
        s->labels = l->labels + (size_t)i * arrays * (stride / sizeof *l->labels);
        if (mixes) {
            s->labels2 = s->labels + stride / sizeof *s->labels;
            s->mix = (float *)(s->labels2 + stride / sizeof *s->labels2);
        }
        s->samples = kolo_alloc(sizeof *s->samples * (size_t)l->rows);
        if (!s->pixels || !s->samples) return KOLO_ECONFIG;
    }
    if (!c->train || !c->dataset) return 0;
    l->order = kolo_alloc(sizeof *l->order * (size_t)l->count);
    l->order_epoch = -1;
    return l->order ? 0 : KOLO_ECONFIG;
}

/* Signals belong to the main thread: readers block them all. */
static int start_readers(kolo_loader *l)
{
    sigset_t all, old;
    int rc = 0;
    l->threads = kolo_alloc(sizeof *l->threads * (size_t)l->readers);
    if (!l->threads) return KOLO_ECONFIG;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; i < l->readers && rc == 0; i++) {
        rc = pthread_create(&l->threads[i], NULL, reader, l);
        if (rc == 0) l->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? kolo_fail(KOLO_ECONFIG, "cannot start %d reader threads: %s; lower readers=", l->readers, strerror(rc))
              : 0;
}

int kolo_loader_create(kolo_loader **loader, const kolo_loader_config *config)
{
    const int64_t count = config->dataset ? kolo_dataset_get_info(config->dataset)->count : config->synthetic_count;
    int rc;
    *loader = NULL;
    KOLO_TRY(check_config(config, count));
    kolo_loader *l = *loader = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ECONFIG;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->count = count;
    l->rows = config->batch / config->ranks;
    l->steps = config->train && config->tail == KOLO_tail_drop ? count / config->batch
                                                               : (count + config->batch - 1) / config->batch;
    l->shared_pixels = !config->dataset && l->steps * config->batch <= count;
    l->readers = choose_readers(config);
    KOLO_TRY_GOTO(rc, make_recipe(l, config));
    l->chunk = choose_chunk(l);
    KOLO_TRY_GOTO(rc, make_slots(l));
    KOLO_TRY_GOTO(rc, start_readers(l));
    return 0;
fail:
    kolo_loader_destroy(loader);
    return rc;
}

void kolo_loader_destroy(kolo_loader **loader)
{
    kolo_loader *l = *loader;
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->started; i++) pthread_join(l->threads[i], NULL);
    for (int i = 0; l->slot && i < l->slots; i++) {
        if (l->slot[i].pixels && !l->shared_pixels) kolo_pages_free(&l->slot[i].pixels, l->slot_bytes);
        free(l->slot[i].samples);
    }
    if (l->noise) kolo_pages_free(&l->noise, l->slot_bytes);
    kolo_pages_free(&l->labels, l->labels_bytes);
    free(l->slot);
    free(l->order);
    free(l->threads);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    free(l);
    *loader = NULL;
}

int64_t kolo_loader_steps(const kolo_loader *loader) { return loader->steps; }

int kolo_loader_seek(kolo_loader *l, int64_t epoch, int64_t step)
{
    if (epoch < 0 || step < 0 || step > l->steps)
        return kolo_fail(KOLO_EINTERNAL, "loader: seek to epoch %lld step %lld of %lld", (long long)epoch,
                         (long long)step, (long long)l->steps);
    pthread_mutex_lock(&l->lock);
    l->pause = true;
    while (l->busy > 0 || l->ordering) pthread_cond_wait(l->ordering ? &l->work : &l->ready, &l->lock);
    for (int i = 0; i < l->slots; i++) l->slot[i].state = SLOT_FREE;
    l->opened = l->consumed = 0;
    l->finished = !l->recipe.config.train && step == l->steps;
    l->epoch = step == l->steps ? epoch + 1 : epoch;
    l->step = step == l->steps ? 0 : step;
    l->pause = false;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return 0;
}

static void show(const kolo_loader *l, const slot *s, kolo_batch *batch)
{
    *batch = (kolo_batch){.pixels = s->pixels,
                          .labels = s->labels,
                          .samples = s->samples,
                          .labels2 = s->labels2,
                          .mix = s->mix,
                          .rows = l->rows,
                          .valid = s->valid,
                          .valid_global = s->valid_global,
                          .epoch = s->epoch,
                          .step = s->step,
                          .slot = (int)(s - l->slot)};
}

int kolo_loader_next(kolo_loader *l, kolo_batch *batch)
{
    int rc = 0;
    pthread_mutex_lock(&l->lock);
    slot *s = slot_of(l, l->consumed);
    const bool held = s->state == SLOT_HELD;
    double begin = 0;
    while (!held && s->state != SLOT_READY && !(l->finished && l->consumed == l->opened)) {
        if (begin == 0) begin = kolo_time();
        pthread_cond_wait(&l->ready, &l->lock);
    }
    if (begin != 0) l->stats.wait_seconds += kolo_time() - begin;
    if (held) {
        rc = kolo_fail(KOLO_EINTERNAL, "loader: all %d batches are held; release one before asking for the next",
                       l->slots);
    } else if (s->state != SLOT_READY) {
        rc = 1;
    } else if (s->status < 0) {
        rc = kolo_fail(s->status, "%s", s->error);
    } else {
        s->state = SLOT_HELD;
        l->consumed++;
        show(l, s, batch);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void kolo_loader_release(kolo_loader *l, const kolo_batch *batch)
{
    pthread_mutex_lock(&l->lock);
    l->slot[batch->slot].state = SLOT_FREE;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

int kolo_loader_memory(const kolo_loader *l, int i, void **base, size_t *bytes)
{
    const int pieces = l->shared_pixels ? 2 : 1 + l->slots;
    if (i >= pieces) return 0;
    *base = i == 0 ? (void *)l->labels : l->slot[i - 1].pixels;
    *bytes = i == 0 ? l->labels_bytes : l->slot_bytes;
    return 1;
}

void kolo_loader_get_stats(const kolo_loader *loader, kolo_loader_stats *stats)
{
    kolo_loader *l = (kolo_loader *)loader; /* the lock is no part of what callers see */
    pthread_mutex_lock(&l->lock);
    *stats = l->stats;
    pthread_mutex_unlock(&l->lock);
}
