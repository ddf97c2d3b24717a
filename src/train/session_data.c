/* What a session reads: splits where they are, staged or cached, and the loaders over them. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/shm.h"
#include "base/thread.h"
#include "data/shard/dataset.h"
#include "kolo/error.h"
#include "metrics/detect_truth.h"
#include "ops/detector.h"
#include "train/async.h"
#include "train/parts.h"
#include "train/tournament.h"

/* For a look at a split at the start: some ten thousand small samples, or some dozen on a cold file
 * system. */
#define CHECK_SECONDS 0.02

/* Does each node show its own share of the training samples? */
static bool is_local(const kolo_session *s, bool train)
{
    kolo_order_rule rule;
    return train && kolo_order_parse(s->options->shuffle, &rule) == 0 && rule.kind == KOLO_ORDER_LOCAL;
}

/* Each node copies what it will show. */
static int stage(kolo_session *s, const char *source, kolo_stage **stage, bool train)
{
    const kolo_options *o = s->options;
    kolo_stage_info info;
    const kolo_stage_config config = {.source = source,
                                      .folder = o->staging,
                                      .strict = o->staging_full == KOLO_staging_full_fail,
                                      .keep = o->staging_keep,
                                      .node = s->launch->node,
                                      .ranks = s->replicas,
                                      .node_of = is_local(s, train) ? s->launch->node_of : NULL};
    const double begin = kolo_time();
    KOLO_TRY(kolo_stage_open(stage, &config));
    kolo_stage_get_info(*stage, &info);
    if (info.shards == 0) return 0; /* nothing to copy, as staging=auto has logged */
    kolo_info("%s is staged in %s: of %d shards %d copied (%.1f MB), %d there already, %d read from the "
              "source; %.1f s",
              source, kolo_stage_folder(*stage), info.shards, info.copied, (double)info.bytes / 1e6,
              info.reused, info.linked, kolo_time() - begin);
    return 0;
}

static int cache(const kolo_session *s, kolo_dataset *set, kolo_cache **cache, bool train)
{
    const kolo_options *o = s->options;
    const int cpus = kolo_cpu_count(), threads = o->readers ? (int)o->readers : cpus < 8 ? cpus : 8;
    const double begin = kolo_time();
    int64_t first = 0, last = kolo_dataset_get_info(set)->count;
    kolo_cache_info info;
    if (is_local(s, train))
        kolo_order_share(last, s->replicas, s->launch->node_of, s->launch->node, &first, &last);
    KOLO_TRY(kolo_cache_open(cache, set, first, last, threads));
    if (!*cache) return 0; /* it has said why */
    kolo_cache_get_info(*cache, &info);
    kolo_info("%s is in memory, one copy a node: /dev/shm%s, %.1f MB, samples %lld to %lld, %lld of %lld "
              "pieces filled by this rank; %.1f s",
              kolo_dataset_get_info(set)->name, info.name, (double)info.bytes / 1e6, (long long)first,
              (long long)last, (long long)info.filled, (long long)info.pieces, kolo_time() - begin);
    return 0;
}

/* Where a folder of data that is not there was named, if in the record of the run that is asked. */
static int missing(const kolo_session *s, const char *key, const char *folder)
{
    const kolo_options *o = s->options;
    kolo_options was;
    kolo_options_default(&was);
    char *path = *o->run && !(s->parts & KOLO_SESSION_TRAIN) ? kolo_format("%s/recipe.yaml", o->run) : NULL;
    char *recorded = NULL;
    if (path && kolo_file_exists(path) && kolo_options_read_record(&was, path) == 0)
        recorded = kolo_option_text(&was, kolo_option_find(key));
    const bool here = recorded && !strcmp(recorded, folder);
    const int rc =
        kolo_fail(KOLO_EINPUT, "%s=%s%s%s%s: no such folder; give %s=DIR (a folder made by kolo-pack)", key,
                  folder, here ? ", as " : "", here ? path : "", here ? " has it" : "", key);
    free(recorded);
    free(path);
    kolo_options_free(&was);
    return rc;
}

static int open_split(kolo_session *s, const char *folder, kolo_dataset **set, kolo_stage **staged,
                      kolo_cache **cached, bool train, int parts)
{
    const kolo_options *o = s->options;
    const bool reads = !(parts & KOLO_SESSION_PLAN_ONLY);
    if (!kolo_file_exists(folder)) return missing(s, train ? "data" : "val", folder);
    if (reads && *o->staging) {
        KOLO_TRY(stage(s, folder, staged, train));
        folder = kolo_stage_folder(*staged);
    }
    KOLO_TRY(kolo_dataset_open(set, folder));
    if (reads && s->launch->rank == 0) KOLO_TRY(kolo_dataset_check(*set, folder, CHECK_SECONDS));
    return reads && o->data_cache == KOLO_data_cache_ram ? cache(s, *set, cached, train) : 0;
}

int session_open_data(kolo_session *s, int parts)
{
    kolo_options *o = s->options;
    bool synthetic = !strcmp(o->data, "synthetic");
    if ((parts & KOLO_SESSION_TRAIN) && !(parts & KOLO_SESSION_NO_DATA) && !synthetic) {
        if (!*o->data)
            return kolo_fail(
                KOLO_ECONFIG,
                "no training data: give data=DIR (a folder made by kolo-pack) or data=synthetic");
        KOLO_TRY(open_split(s, o->data, &s->train_set, &s->stage[0], &s->cache[0], true, parts));
    }
    if (parts & KOLO_SESSION_NO_DATA) return 0;
    if (!strcmp(o->val, "synthetic"))
        return kolo_fail(KOLO_ECONFIG, "val=synthetic: noise has nothing to be found; give val=DIR (a folder "
                                       "made by kolo-pack) or val=none");
    if (*o->val && strcmp(o->val, "none"))
        KOLO_TRY(open_split(s, o->val, &s->val_set, &s->stage[1], &s->cache[1], false, parts));
    /* what killed runs have left on this node, now that what this run goes on with is held */
    if (!(parts & KOLO_SESSION_PLAN_ONLY) && s->launch->local_rank == 0)
        kolo_shm_sweep(KOLO_SHM_ALL, NULL, NULL);
    return 0;
}

static bool has_task(const kolo_dataset *set, const char *task)
{
    return strstr(kolo_dataset_get_info(set)->task, task);
}

/* targets=auto: what the first split that is open has; without one what the run says, or one class. */
static void choose_targets(kolo_session *s)
{
    kolo_options *o = s->options;
    const kolo_dataset *set = s->train_set ? s->train_set : s->val_set;
    if (o->targets != KOLO_targets_auto) return;
    o->targets = KOLO_targets_label;
    if (!set || s->detector || o->loss != KOLO_loss_bce || has_task(set, "classification")) return;
    if (has_task(set, "multilabel")) o->targets = KOLO_targets_tags;
    else if (has_task(set, "detection")) o->targets = KOLO_targets_boxes;
}

/* Image labels need a loss for each class, and a head without a margin for one. */
static int check_targets(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const char *targets = kolo_option_find("targets")->choices[o->targets];
    if (!kolo_session_tags(s)) {
        if (o->pos_weight != 1)
            return kolo_fail(
                KOLO_ECONFIG,
                "pos_weight= weighs image labels, but targets=%s; give loss=bce and targets=tags "
                "or boxes",
                targets);
        return session_check_class_weight(s);
    }
    if (o->loss != KOLO_loss_bce)
        return kolo_fail(KOLO_ECONFIG,
                         "targets=%s gives a sample any number of classes, of which loss=cross_entropy wants "
                         "one; give loss=bce",
                         targets);
    if (o->head == KOLO_head_arcface)
        return kolo_fail(KOLO_ECONFIG,
                         "head=arcface has a margin for the one class of a sample; targets=%s has any number",
                         targets);
    return 0;
}

int session_read_targets(kolo_session *s)
{
    kolo_options *o = s->options;
    static const enum kolo_unnamed unnamed[] = {[KOLO_unverified_auto] = KOLO_UNNAMED_AUTO,
                                                [KOLO_unverified_ignore] = KOLO_UNNAMED_UNKNOWN,
                                                [KOLO_unverified_negative] = KOLO_UNNAMED_NEGATIVE};
    const kolo_dataset *set[2] = {s->train_set, s->val_set};
    choose_targets(s);
    KOLO_TRY(check_targets(s));
    kolo_image_labels_config config = {.boxes = o->targets == KOLO_targets_boxes,
                                       .tag_threshold = o->tag_threshold,
                                       .unnamed = unnamed[o->unverified]};
    for (int i = 0; i < 2 && kolo_session_tags(s); i++)
        if (set[i]) {
            KOLO_TRY(kolo_image_labels_read(&s->image_labels[i], set[i], &config));
            /* one rule for both splits, and for the run's evaluations */
            const bool negative = s->image_labels[i]->rest_negative;
            o->unverified = negative ? KOLO_unverified_negative : KOLO_unverified_ignore;
            config.unnamed = negative ? KOLO_UNNAMED_NEGATIVE : KOLO_UNNAMED_UNKNOWN;
        }
    return session_weigh_classes(s);
}

void session_close_data(kolo_session *s)
{
    kolo_dataset **set[2] = {&s->train_set, &s->val_set};
    kolo_detect_truth_free(&s->truth);
    free(s->pos_weight);
    s->pos_weight = NULL;
    free(s->class_weight);
    s->class_weight = NULL;
    for (int i = 0; i < 2; i++) {
        kolo_image_labels_free(&s->image_labels[i]);
        kolo_cache_close(&s->cache[i]);
        kolo_dataset_close(set[i]);
        kolo_stage_close(&s->stage[i]);
    }
}

/* The usual constants, but for what options say and how the network wants images fitted in. */
static void set_boxes(const kolo_session *s, kolo_loader_config *c)
{
    const kolo_options *o = s->options;
    const kolo_detector *d = kolo_detector_find(s->detector);
    kolo_detect_usual(&c->detect, c->height, c->width, false);
    c->detect.centered = d->centered;
    c->detect.fill = d->fill;
    c->words = 1 + 5 * o->max_boxes;
    c->plain_epoch = s->plain_epoch;
    c->detect.mosaic = o->mosaic;
    c->detect.mixup = o->mosaic_mixup;
    c->detect.scale_min = o->mosaic_scale_min;
    c->detect.scale_max = o->mosaic_scale_max;
    c->detect.degrees = o->degrees;
    c->detect.translate = o->translate;
    c->detect.shear = o->shear;
    c->detect.hsv = o->hsv;
    c->detect.flip = o->flip ? 0.5 : 0;
    c->detect.crowd = o->crowd;
}

/* Of training images those parts that this rank computes, where they are loaded by themselves. */
static void set_parts(const kolo_session *s, kolo_loader_config *c)
{
    const kolo_graph *g = s->graph;
    int loaded[KOLO_MAX_LOADED];
    c->counts_only = !kolo_session_loads(s);
    if (!c->train || !s->plan || !g->input_grid[0]) return;
    const int n = kolo_plan_loaded(s->plan, loaded);
    memcpy(c->grid, g->input_grid, sizeof c->grid);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < kolo_graph_inputs(g); p++)
            if (loaded[i] == g->image_part[p]) c->part[c->parts++] = p;
    c->counts_only = c->parts == 0;
}

kolo_loader_config kolo_session_loader(const kolo_session *s, bool train)
{
    const kolo_options *o = s->options;
    const kolo_sides sides = train ? s->phase[s->now].sides : (kolo_sides){0};
    const int64_t side = train ? sides.high : o->val_size;
    const int workers = kolo_session_workers(s);
    kolo_loader_config config = {.dataset = train ? s->train_set : s->val_set,
                                 .synthetic_count = s->samples,
                                 .channels = (int)o->channels,
                                 .height = (int)(side ? side : s->height),
                                 .width = (int)(side ? side : s->width),
                                 .sides = sides,
                                 .classes = !train && *o->pairs ? INT_MAX : (int)o->classes,
                                 .train = train,
                                 .seed = (uint64_t)o->seed,
                                 .shuffle = o->shuffle,
                                 .node_of = s->tournament ? s->tournament->share : s->launch->node_of,
                                 .max_bad = o->max_bad,
                                 .batch = train ? kolo_session_batch(s) : s->eval_rows * s->replicas,
                                 .rank = train && s->grid.replica >= workers ? 0 : s->grid.replica,
                                 .ranks = train ? workers : s->replicas,
                                 .tail = train ? o->tail : KOLO_tail_pad,
                                 .crop = o->crop,
                                 .crop_pad = (int)o->crop_pad,
                                 .area_min = o->crop_area_min,
                                 .area_max = o->crop_area_max,
                                 .flip = train && o->flip,
                                 .augment = train ? o->augment : NULL,
                                 .interpolation = o->interpolation,
                                 .repeat = (int)o->repeat,
                                 .mix = {.mixup = o->mixup,
                                         .cutmix = o->cutmix,
                                         .probability = o->mix_probability,
                                         .cutmix_share = o->cutmix_share,
                                         .by_pair = o->mix == KOLO_mix_pair},
                                 .readers = (int)o->readers,
                                 .prefetch = (int)o->prefetch,
                                 .assigned = train && kolo_is_async(s),
                                 .serve = train ? o->data_server : NULL,
                                 .serve_wait = o->serve_wait};
    memcpy(config.mean, s->mean, sizeof config.mean);
    memcpy(config.std, s->std, sizeof config.std);
    set_parts(s, &config);
    if (s->detector) set_boxes(s, &config);
    config.image_labels = s->image_labels[!train];
    config.pos_weight = train ? s->pos_weight : NULL;
    config.class_weight = train ? s->class_weight : NULL;
    config.smoothing = train ? o->label_smoothing : 0;
    if (train) return config;
    config.resize = (int)o->val_resize;
    if (!config.resize && o->crop == KOLO_crop_resized)
        config.resize = (int)lrint((double)config.height * 256 / 224);
    return config;
}

/* A GPU fetches batches by itself while the host goes on. */
static int pin(const kolo_session *s, const kolo_loader *loader)
{
    void *base;
    size_t bytes;
    for (int i = 0; kolo_loader_memory(loader, i, &base, &bytes); i++)
        KOLO_TRY(kolo_backend_pin(s->backend, base, bytes));
    return 0;
}

static void close_loader(const kolo_session *s, kolo_loader **loader)
{
    void *base;
    size_t bytes;
    for (int i = 0; *loader && kolo_loader_memory(*loader, i, &base, &bytes); i++)
        kolo_backend_unpin(s->backend, base);
    kolo_loader_destroy(loader);
}

int session_renew_loader(kolo_session *s)
{
    if (kolo_session_tags(s) && !s->image_labels[0])
        return kolo_fail(KOLO_ECONFIG,
                         "data=synthetic has no image labels (targets=%s); give targets=label "
                         "class_weight=none pos_weight=1",
                         kolo_option_find("targets")->choices[s->options->targets]);
    const kolo_loader_config config = kolo_session_loader(s, true);
    close_loader(s, &s->loader);
    KOLO_TRY(kolo_loader_create(&s->loader, &config));
    return pin(s, s->loader);
}

int session_make_loaders(kolo_session *s)
{
    if (s->parts & KOLO_SESSION_TRAIN) KOLO_TRY(session_renew_loader(s));
    if ((s->parts & KOLO_SESSION_EVAL) && s->val_set) {
        kolo_loader_config config = kolo_session_loader(s, false);
        KOLO_TRY(kolo_loader_create(&s->val_loader, &config));
        KOLO_TRY(pin(s, s->val_loader));
    }
    KOLO_TRY(session_make_tournament_loader(s));
    return s->tournament ? pin(s, s->tournament->loader) : 0;
}

void session_close_loaders(kolo_session *s)
{
    close_loader(s, &s->loader);
    close_loader(s, &s->val_loader);
    if (s->tournament) close_loader(s, &s->tournament->loader);
}

int session_each_batch(kolo_loader *loader, int (*visit)(void *argument, const kolo_batch *batch),
                       void *argument)
{
    KOLO_TRY(kolo_loader_seek(loader, 0, 0));
    for (;;) {
        kolo_batch batch;
        int rc = kolo_loader_next(loader, &batch);
        if (rc == 1) return 0;
        KOLO_TRY(rc);
        rc = visit(argument, &batch);
        kolo_loader_release(loader, &batch);
        KOLO_TRY(rc);
    }
}

int session_each_val_batch(kolo_session *s, int (*visit)(void *argument, const kolo_batch *batch),
                           void *argument)
{
    return session_each_batch(s->val_loader, visit, argument);
}
