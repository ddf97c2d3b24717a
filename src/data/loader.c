#include "data/loader.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/thread.h"
#include "data/loader_parts.h"
#include "data/serve/client.h"
#include "data/shard/dataset.h"
#include "data/synthetic.h"

static loader_slot *slot_of(kolo_loader *l, int64_t batch) { return &l->slot[batch % l->slots]; }

/* The samples of one global batch that differ; the unit of block and local orders. 1: the batch is no
 * whole number of them. */
static int64_t distinct_rows(const kolo_loader_config *c)
{
    return c->batch % c->repeat ? 1 : c->batch / c->repeat;
}

/* In block order: what this rank reads in the window after the one that begins here; at first, in
 * that one too. Lock held. */
static void note_advice(kolo_loader *l, const int64_t *order)
{
    const kolo_loader_config *c = &l->recipe.config;
    if (!l->advice || l->advised || c->assigned || (l->client && kolo_client_serves(l->client)) ||
        distinct_rows(c) * c->repeat != c->batch)
        return;
    const int64_t first = c->rank * l->rows / c->repeat,
                  last = ((c->rank + 1) * l->rows + c->repeat - 1) / c->repeat;
    for (int ahead = l->step > 0; ahead < 2; ahead++)
        l->advised +=
            kolo_order_window(l->sampler, order, l->step, first, last - first, ahead, l->advice + l->advised);
}

/* Of the next batch: its number, its shape, and how many rows count. */
static void count_rows(const kolo_loader *l, loader_slot *s)
{
    const kolo_loader_config *c = &l->recipe.config;
    const int64_t left = l->count - l->step * c->batch, mine = l->rank * l->rows;
    s->recipe = l->sized ? &l->sized[kolo_sides_draw(&c->sides, c->seed, l->epoch, l->step)] : &l->recipe;
    s->epoch = l->epoch;
    s->step = l->step;
    s->rank = l->rank;
    s->valid_global = left < c->batch ? left : c->batch;
    s->valid = s->valid_global - mine;
    if (s->valid < 0) s->valid = 0;
    if (s->valid > l->rows) s->valid = l->rows;
}

static void next_step(kolo_loader *l)
{
    if (l->recipe.config.assigned) return;
    if (++l->step < l->steps) return;
    l->step = 0;
    l->epoch++;
    if (!l->recipe.config.train) l->finished = true;
}

/* Of the global batch, which every rank knows: what a replaced sample changes is left out. */
static void weigh_batch(const kolo_loader *l, loader_slot *s, const int64_t *order)
{
    const kolo_loader_config *c = &l->recipe.config;
    double sum = 0;
    if (!c->train || !c->class_weight) return;
    for (int64_t i = 0; i < s->valid_global; i++) {
        const int64_t position = s->step * c->batch + i;
        const int32_t label = kolo_dataset_label(c->dataset, order ? order[position / c->repeat] : position);
        if (label >= 0) sum += (double)c->class_weight[label];
    }
    s->unit = sum > 0 ? (float)((double)s->valid_global / sum) : 0;
}

/* Which samples the next batch has. Lock held; the order of l->epoch is there. */
static void open_batch(kolo_loader *l)
{
    const kolo_loader_config *c = &l->recipe.config;
    loader_slot *s = slot_of(l, l->opened);
    const int64_t *order = l->sampler ? l->order[l->epoch % 2] : NULL;
    const int64_t first = l->step * c->batch, mine = l->rank * l->rows;
    count_rows(l, s);
    for (int64_t i = 0; i < l->rows; i++) {
        const bool valid = i < s->valid;
        const int64_t position = first + mine + i;
        s->samples[i] = !valid ? -1 : order ? order[position / c->repeat] : position;
    }
    weigh_batch(l, s, order);
    loader_label(s, 0, l->rows);
    if (order) note_advice(l, order);
    s->taken = s->done = 0;
    s->status = 0;
    s->stats = (kolo_loader_stats){0};
    s->state = SLOT_FILLING;
    l->opened++;
    next_step(l);
}

/* Lock held on entry and return; the consumer and readers that have rows go on. */
static void make_order(kolo_loader *l, int64_t epoch)
{
    l->ordering = true;
    l->order_epoch[epoch % 2] = -1;
    pthread_mutex_unlock(&l->lock);
    kolo_order_fill(l->sampler, epoch, l->order[epoch % 2]);
    pthread_mutex_lock(&l->lock);
    l->order_epoch[epoch % 2] = epoch;
    l->ordering = false;
    pthread_cond_broadcast(&l->work);
}

/* Lock held on entry and return. Neighbours are one request to the file system. */
static void advise_readahead(kolo_loader *l)
{
    l->busy++;
    l->advising = true;
    pthread_mutex_unlock(&l->lock);
    for (int64_t i = 0, n; i < l->advised; i += n) {
        for (n = 1; i + n < l->advised && l->advice[i + n] == l->advice[i] + n; n++) continue;
        kolo_dataset_advise(l->recipe.config.dataset, l->advice[i], n);
    }
    pthread_mutex_lock(&l->lock);
    l->advised = 0;
    l->advising = false;
    if (--l->busy == 0 && l->pause) pthread_cond_broadcast(&l->ready);
}

static bool has_order(const kolo_loader *l, int64_t epoch)
{
    return !l->sampler || l->order_epoch[epoch % 2] == epoch;
}

/* There is a place for another batch, and it is known which. Lock held. */
static bool can_open(kolo_loader *l)
{
    if (l->finished || slot_of(l, l->opened)->state != SLOT_FREE) return false;
    if (!l->recipe.config.assigned) return true;
    if (l->opened == l->tasks) return false;
    const loader_task *t = &l->task[l->opened % KOLO_LOADER_ASSIGNED];
    l->epoch = t->epoch;
    l->step = t->step;
    l->rank = t->rank;
    return true;
}

/* The next rows to fill, or NULL when the loader stops. Lock held. */
static loader_slot *claim_rows(kolo_loader *l, int64_t *first, int64_t *count)
{
    for (;;) {
        if (l->stop) return NULL;
        loader_slot *s = l->opened > 0 ? slot_of(l, l->opened - 1) : NULL;
        const bool rows = s && s->state == SLOT_FILLING && s->taken < l->rows;
        const bool full = !can_open(l);
        if (l->pause) {
            pthread_cond_wait(&l->work, &l->lock);
        } else if (l->advised && !l->advising) {
            advise_readahead(l);
        } else if (!l->ordering && has_order(l, l->epoch) && !has_order(l, l->epoch + 1) &&
                   (full || l->step > l->steps / 2)) {
            make_order(l, l->epoch + 1);
        } else if (rows) {
            *first = s->taken;
            *count = l->rows - s->taken < l->chunk ? l->rows - s->taken : l->chunk;
            s->taken += *count;
            l->busy++;
            return s;
        } else if (full || (l->ordering && !has_order(l, l->epoch))) {
            pthread_cond_wait(&l->work, &l->lock);
        } else if (!has_order(l, l->epoch)) {
            make_order(l, l->epoch);
        } else {
            open_batch(l);
            pthread_cond_signal(&l->work);
        }
    }
}

static void add_stats(kolo_loader_stats *to, const kolo_loader_stats *from)
{
    to->samples += from->samples;
    to->bytes += from->bytes;
    to->decoded += from->decoded;
    to->hits += from->hits;
    to->served += from->served;
    to->bad += from->bad;
    kolo_latency_merge(&to->read, &from->read);
    kolo_latency_merge(&to->sample, &from->sample);
}

static void *reader(void *argument)
{
    kolo_loader *l = argument;
    kolo_worker *worker = NULL;
    const int created = kolo_worker_create(&worker, &l->recipe);
    int64_t first = 0, count = 0;
    pthread_mutex_lock(&l->lock);
    for (loader_slot *s; (s = claim_rows(l, &first, &count));) {
        loader_result r = {.status = created, .row = first};
        pthread_mutex_unlock(&l->lock);
        if (created == 0) loader_fill(l, worker, s, first, count, &r);
        pthread_mutex_lock(&l->lock);
        if (r.status < 0 && (s->status == 0 || r.row < s->failed_row)) {
            s->status = r.status;
            s->failed_row = r.row;
            kolo_error_keep(&s->failure);
        }
        add_stats(&s->stats, &r.stats);
        s->done += count;
        if (--l->busy == 0 && l->pause) pthread_cond_broadcast(&l->ready);
        if (s->done == l->rows) {
            const int64_t position = s->epoch * l->steps + s->step;
            s->state = SLOT_READY;
            pthread_cond_broadcast(&l->ready);
            if (l->client) kolo_client_done(l->client, position);
        }
    }
    pthread_mutex_unlock(&l->lock);
    kolo_worker_destroy(&worker);
    return NULL;
}

/* One, for a loader that reads no image, where rows have samples and labels all the same. */
static int make_described(kolo_loader *l)
{
    const kolo_loader_config *c = &l->recipe.config;
    loader_layout layout;
    if (c->train) return 0;
    loader_lay_slot(&layout, l->rows, c->words, 0);
    l->memory_bytes = layout.bytes;
    l->memory = kolo_pages_alloc(l->memory_bytes);
    l->slot = kolo_alloc(sizeof *l->slot);
    if (!l->memory || !l->slot) return KOLO_ENOMEM;
    loader_point_slot(l->slot, &layout, l->memory);
    l->slot->pixels = NULL;
    return 0;
}

static int make_slots(kolo_loader *l)
{
    const kolo_loader_config *c = &l->recipe.config;
    const size_t pixels = (size_t)l->rows * l->recipe.sample_bytes;
    loader_layout layout;
    l->slots = loader_choose_slots(c);
    l->slot = kolo_alloc(sizeof *l->slot * (size_t)l->slots);
    if (!l->slot) return KOLO_ENOMEM;
    if (!c->dataset) {
        l->noise_bytes = pixels;
        l->noise = kolo_pages_alloc(pixels);
        if (!l->noise) return KOLO_ENOMEM;
        kolo_synthetic_fill(c, l->rows, l->noise);
    }
    loader_lay_slot(&layout, l->rows, c->words, l->shared_pixels ? 0 : pixels);
    l->memory_bytes = layout.bytes * (size_t)l->slots;
    l->memory = c->memory ? c->memory : kolo_pages_alloc(l->memory_bytes);
    if (!l->memory) return KOLO_ENOMEM;
    for (int i = 0; i < l->slots; i++) {
        loader_point_slot(&l->slot[i], &layout, l->memory + (size_t)i * layout.bytes);
        if (l->shared_pixels) l->slot[i].pixels = l->noise;
    }
    return 0;
}

/* Training is permuted. Where nodes own samples, or blocks of them are read together, the dealing is to rows
 * of different samples. */
static int make_sampler(kolo_loader *l, const kolo_loader_config *config)
{
    const kolo_loader_config *c = &l->recipe.config;
    kolo_order_config order = {.seed = c->seed,
                               .count = l->count,
                               .rows = distinct_rows(c),
                               .ranks = c->ranks,
                               .node_of = config->node_of};
    KOLO_TRY(kolo_order_parse(config->shuffle, &order.rule));
    if (!c->train || !c->dataset) return 0;
    KOLO_TRY(kolo_order_create(&l->sampler, &order));
    for (int i = 0; i < 2; i++) {
        l->order[i] = kolo_alloc(sizeof **l->order * (size_t)l->count);
        l->order_epoch[i] = -1;
        if (!l->order[i]) return KOLO_ENOMEM;
    }
    const int64_t most = 2 * kolo_order_window_most(l->sampler, l->rows / c->repeat + 2);
    l->advice = most > 0 ? kolo_alloc(sizeof *l->advice * (size_t)most) : NULL;
    l->bad = kolo_alloc(sizeof *l->bad * (size_t)(c->max_bad + 1));
    return (most > 0 && !l->advice) || !l->bad ? KOLO_ENOMEM : 0;
}

/* Signals belong to the main thread: readers block them all. */
static int start_readers(kolo_loader *l)
{
    sigset_t all, old;
    int rc = 0;
    l->threads = kolo_alloc(sizeof *l->threads * (size_t)l->readers);
    if (!l->threads) return KOLO_ENOMEM;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; i < l->readers && rc == 0; i++) {
        rc = pthread_create(&l->threads[i], NULL, reader, l);
        if (rc == 0) l->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? kolo_fail(KOLO_ECONFIG, "cannot start %d reader threads: %s; lower readers=", l->readers,
                          strerror(rc))
              : 0;
}

int kolo_loader_create(kolo_loader **loader, const kolo_loader_config *config)
{
    const int64_t count =
        config->dataset ? kolo_dataset_get_info(config->dataset)->count : config->synthetic_count;
    int rc;
    *loader = NULL;
    KOLO_TRY(loader_check(config, count));
    kolo_loader *l = *loader = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ENOMEM;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->count = count;
    l->rows = config->batch / config->ranks;
    l->rank = config->rank;
    l->steps = config->train && config->tail == KOLO_tail_drop ? count / config->batch
                                                               : (count + config->batch - 1) / config->batch;
    l->shared_pixels = !config->dataset && l->steps * config->batch <= count;
    l->readers = loader_choose_readers(config);
    KOLO_TRY_GOTO(rc, loader_make_recipe(&l->recipe, config));
    KOLO_TRY_GOTO(rc, loader_make_sized(l, config));
    if (config->counts_only) {
        KOLO_TRY_GOTO(rc, make_described(l));
        return 0;
    }
    l->chunk = loader_choose_chunk(l);
    KOLO_TRY_GOTO(rc, make_slots(l));
    KOLO_TRY_GOTO(rc, make_sampler(l, config));
    if (config->train && config->serve && *config->serve)
        KOLO_TRY_GOTO(rc, kolo_client_open(&l->client, l, config));
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
    if (l->client) kolo_client_interrupt(l->client);
    for (int i = 0; i < l->started; i++) pthread_join(l->threads[i], NULL);
    kolo_client_close(&l->client);
    if (!l->recipe.config.memory) kolo_pages_free(&l->memory, l->memory_bytes);
    kolo_pages_free(&l->noise, l->noise_bytes);
    free(l->slot);
    free(l->sized);
    kolo_order_destroy(&l->sampler);
    free(l->order[0]);
    free(l->order[1]);
    free(l->advice);
    free(l->bad);
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
    if (l->client) kolo_client_interrupt(l->client);
    while (l->busy > 0 || l->ordering) pthread_cond_wait(l->ordering ? &l->work : &l->ready, &l->lock);
    for (int i = 0; i < l->slots; i++) l->slot[i].state = SLOT_FREE;
    l->opened = l->consumed = l->advised = l->tasks = 0;
    l->finished = !l->recipe.config.train && step == l->steps;
    l->epoch = step == l->steps ? epoch + 1 : epoch;
    l->step = step == l->steps ? 0 : step;
    if (l->client) kolo_client_seek(l->client, l->epoch * l->steps + l->step);
    l->pause = false;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return 0;
}

static void show(const kolo_loader *l, const loader_slot *s, kolo_batch *batch)
{
    *batch = (kolo_batch){.pixels = s->pixels,
                          .height = s->recipe->config.height,
                          .width = s->recipe->config.width,
                          .labels = s->labels,
                          .samples = s->samples,
                          .words = l->recipe.config.words,
                          .rows = l->rows,
                          .valid = s->valid,
                          .valid_global = s->valid_global,
                          .first = s->rank * l->rows,
                          .epoch = s->epoch,
                          .step = s->step,
                          .slot = (int)(s - l->slot)};
}

/* 1: the end of validation */
static int count_batch(kolo_loader *l, kolo_batch *batch)
{
    loader_slot counted = {0}, *s = l->slot ? l->slot : &counted;
    if (l->finished) return 1;
    count_rows(l, s);
    if (l->slot) loader_describe(l, s);
    show(l, s, batch);
    batch->slot = 0;
    next_step(l);
    return 0;
}

int kolo_loader_next(kolo_loader *l, kolo_batch *batch)
{
    int rc = 0;
    if (l->recipe.config.counts_only) return count_batch(l, batch);
    pthread_mutex_lock(&l->lock);
    loader_slot *s = slot_of(l, l->consumed);
    const bool held = s->state == SLOT_HELD;
    double begin = 0;
    const bool none = l->recipe.config.assigned && l->consumed == l->tasks;
    while (!held && !none && s->state != SLOT_READY && !(l->finished && l->consumed == l->opened)) {
        if (begin == 0) begin = kolo_time();
        pthread_cond_wait(&l->ready, &l->lock);
    }
    if (begin != 0) l->stats.wait_seconds += kolo_time() - begin;
    if (none) {
        rc = kolo_fail(KOLO_EINTERNAL, "loader: no batch is assigned");
    } else if (held) {
        rc = kolo_fail(KOLO_EINTERNAL,
                       "loader: all %d batches are held; release one before asking for the next", l->slots);
    } else if (s->state != SLOT_READY) {
        rc = 1;
    } else if (s->status < 0) {
        rc = kolo_error_restore(&s->failure, s->status);
    } else {
        s->state = SLOT_HELD;
        l->consumed++;
        add_stats(&l->stats, &s->stats);
        show(l, s, batch);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

void kolo_loader_release(kolo_loader *l, const kolo_batch *batch)
{
    if (l->recipe.config.counts_only) return;
    pthread_mutex_lock(&l->lock);
    l->slot[batch->slot].state = SLOT_FREE;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

int kolo_loader_assign(kolo_loader *l, int64_t epoch, int64_t step, int rank)
{
    const kolo_loader_config *c = &l->recipe.config;
    int rc = 0;
    pthread_mutex_lock(&l->lock);
    if (!c->assigned || l->tasks - l->consumed >= KOLO_LOADER_ASSIGNED || rank < 0 || rank >= c->ranks ||
        epoch < 0 || step < 0 || step >= l->steps)
        rc = kolo_fail(KOLO_EINTERNAL,
                       "loader: rank %d's rows of step %lld of epoch %lld cannot be assigned, %lld are", rank,
                       (long long)step, (long long)epoch, (long long)(l->tasks - l->consumed));
    else l->task[l->tasks++ % KOLO_LOADER_ASSIGNED] = (loader_task){epoch, step, rank};
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

int kolo_loader_memory(const kolo_loader *l, int i, void **base, size_t *bytes)
{
    if (i > l->shared_pixels || l->recipe.config.counts_only) return 0;
    *base = i == 0 ? l->memory : l->noise;
    *bytes = i == 0 ? l->memory_bytes : l->noise_bytes;
    return 1;
}

void kolo_loader_get_stats(const kolo_loader *loader, kolo_loader_stats *stats)
{
    kolo_loader *l = (kolo_loader *)loader; /* the lock is no part of what callers see */
    pthread_mutex_lock(&l->lock);
    *stats = l->stats;
    pthread_mutex_unlock(&l->lock);
}
