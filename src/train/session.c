#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/algorithm/algorithm.h"
#include "comm/buckets/reducer.h"
#include "data/augment/augment.h"
#include "data/order.h"
#include "plan/servers.h"
#include "train/auto_plan.h"
#include "train/compression.h"
#include "train/late.h"
#include "train/local.h"
#include "train/parts.h"
#include "train/plan_file.h"
#include "train/shard.h"
#include "train/pipeline.h"
#include "train/strategy.h"
#include "train/tournament.h"

static int parse_channels(const char *key, const char *text, int64_t channels, float *values)
{
    int n = 0;
    for (const char *p = text; *p && n < 4; n++) {
        char *end;
        values[n] = strtof(p, &end);
        if (end == p || (*end && *end != ','))
            return kolo_fail(KOLO_ECONFIG, "%s=%s is not a list of numbers such as 0.485,0.456,0.406", key,
                             text);
        p = *end ? end + 1 : end;
    }
    if (n != channels)
        return kolo_fail(KOLO_ECONFIG,
                         "%s=%s has %d numbers, the images have %ld channels: give as many, or %s= for the "
                         "data set's own",
                         key, text, n, (long)channels, key);
    return 0;
}

static int set_channels(kolo_options *o, const char *key, const float *values, int64_t channels)
{
    char text[96] = "";
    for (int64_t c = 0; c < channels; c++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.9g", c ? "," : "", (double)values[c]);
    return kolo_option_set(o, key, text, "the data");
}

/* A class for every sample, or boxes, as the network wants. */
static int check_task(const kolo_session *s, const kolo_dataset *set, const char *folder)
{
    const kolo_dataset_info *info = set ? kolo_dataset_get_info(set) : NULL;
    const bool boxes = s->detector;
    if (!info || kolo_session_tags(s) || strstr(info->task, boxes ? "detection" : "classification")) return 0;
    if (!boxes && s->options->loss != KOLO_loss_bce)
        return kolo_fail(KOLO_EINPUT,
                         "%s: %s is packed for %s and has no class for each sample, which loss=cross_entropy "
                         "needs; loss=bce learns %s of a sample",
                         folder, info->name, info->task,
                         strstr(info->task, "multilabel") ? "the tags" : "the classes of the boxes");
    return kolo_fail(KOLO_EINPUT,
                     "%s: %s is packed for %s and has no %s for each sample, which model=%s needs; pack a "
                     "source that has them",
                     folder, info->name, info->task, boxes ? "boxes" : "class", s->options->model);
}

/* Class count, channels and image size come from the data unless the recipe states them. */
static int resolve_shape(kolo_session *s, const kolo_model *model)
{
    kolo_options *o = s->options;
    const kolo_dataset *set = s->train_set ? s->train_set : s->val_set;
    const kolo_dataset_info *info = set ? kolo_dataset_get_info(set) : NULL;
    KOLO_TRY(session_read_targets(s));
    KOLO_TRY(check_task(s, s->train_set, o->data));
    KOLO_TRY(check_task(s, s->val_set, o->val));
    if (info) {
        snprintf(s->data_uuid, sizeof s->data_uuid, "%s", info->uuid);
        if (o->classes && o->classes < info->classes && !*o->pairs) /* pairs may be of anybody */
            return kolo_fail(KOLO_ECONFIG, "classes=%ld, but the data set %s has %d classes",
                             (long)o->classes, info->name, info->classes);
        if (o->channels && o->channels < info->channels)
            return kolo_fail(KOLO_ECONFIG, "channels=%ld, but the images of %s have %d channels",
                             (long)o->channels, info->name, info->channels);
        if (s->train_set && s->val_set) {
            const kolo_dataset_info *v = kolo_dataset_get_info(s->val_set);
            if (v->classes != info->classes || v->channels > info->channels)
                return kolo_fail(
                    KOLO_EINPUT,
                    "training data %s has %d classes and %d channels, validation data %s has %d and %d: "
                    "pack them from one source with --stats-from",
                    o->data, info->classes, info->channels, o->val, v->classes, v->channels);
        }
        KOLO_TRY(session_check_classes(s));
        if (!o->size && !info->height && !o->val_size && !s->detector)
            return kolo_fail(KOLO_ECONFIG,
                             "the images of %s have various sizes: state size= and crop=", info->name);
    }
    if (!o->classes) o->classes = info ? info->classes : model->classes;
    if (!o->channels) o->channels = info ? info->channels : model->channels;
    if (o->channels != 3 && (o->channels != 1 || s->detector))
        return kolo_fail(KOLO_ECONFIG, "%s of %ld channels: images are read as 1 channel (gray) or 3 (RGB)%s",
                         o->model, (long)o->channels, s->detector ? ", for detectors 3" : "");
    const bool stored = info && info->height && !s->detector; /* a detector fits any image in */
    s->height = o->size ? o->size : stored ? info->height : model->height;
    s->width = o->size ? o->size : stored ? info->width : model->width;
    if (!o->size && s->height == s->width) o->size = s->height;
    for (int c = 0; c < 4; c++)
        s->mean[c] = info ? info->mean[c] : 0.5f, s->std[c] = info && info->std[c] > 0 ? info->std[c] : 0.25f;
    kolo_model_pixels(model, s->mean, s->std);
    if (*o->mean) KOLO_TRY(parse_channels("mean", o->mean, o->channels, s->mean));
    else KOLO_TRY(set_channels(o, "mean", s->mean, o->channels));
    if (*o->std) KOLO_TRY(parse_channels("std", o->std, o->channels, s->std));
    else KOLO_TRY(set_channels(o, "std", s->std, o->channels));
    for (int64_t c = 0; c < o->channels; c++)
        if (!(s->std[c] > 1e-6f) || !isfinite(s->std[c]) || !isfinite(s->mean[c]))
            return kolo_fail(KOLO_ECONFIG,
                             "mean=%s std=%s: every channel needs a finite mean and a deviation above 0",
                             o->mean, o->std);
    return 0;
}

/* Beside transfers: sums of gradients and of f64. */
enum { BUCKETS = 4096 };

int session_open_comm(kolo_session *s, kolo_launch *launch, size_t arena_bytes, size_t used_bytes,
                      int64_t transfers, kolo_comm **comm)
{
    const kolo_options *o = s->options;
    const kolo_comm_device device = {
        .compute = s->cuda ? kolo_backend_stream(s->backend, KOLO_LANE_COMPUTE) : NULL,
        .comm = s->cuda ? kolo_backend_stream(s->backend, KOLO_LANE_COMM) : NULL,
        .uuid = s->device.uuid,
        .deterministic = o->deterministic,
        .reducer = o->reducer,
        .host = kolo_is_adasum(o) || (o->compression != KOLO_compression_none && launch->nodes > 1)};
    const kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                                     .arena_bytes = arena_bytes,
                                     .used_bytes = used_bytes,
                                     .buckets = (int)(transfers > 0 ? BUCKETS + transfers : 0),
                                     .canonical = o->reduce == KOLO_reduce_canonical,
                                     .timeout = o->comm_timeout,
                                     .heartbeat_timeout = o->heartbeat_timeout,
                                     .algorithm = o->comm_algorithm,
                                     .table = o->comm_table,
                                     .spin = -1};
    return kolo_comm_create_on(comm, launch, &config, s->cuda ? &device : NULL);
}

static int make_training_executor(kolo_session *s)
{
    kolo_plan **plan = kolo_alloc((size_t)(s->shapes * KOLO_EXCHANGES) * sizeof *plan);
    int rc = plan ? 0 : KOLO_ENOMEM, n = 0;
    for (int i = 0; rc == 0 && i < s->shapes; i++) plan[n++] = s->shape[i].plan;
    for (int i = 0; rc == 0 && i < s->shapes; i++)
        for (int x = 0; x < KOLO_EXCHANGES; x++)
            if (s->shape[i].exchange[x]) plan[n++] = s->shape[i].exchange[x];
    if (rc == 0) rc = kolo_exec_create(&s->exec, plan, n, s->backend, s->comm, s->options, NULL);
    free(plan);
    return rc;
}

/* For programs in one memory. */
static int open_comm_for(kolo_session *s, kolo_launch *launch, const kolo_program *p, int64_t transfers,
                         kolo_comm **comm)
{
    const size_t used = p->sum_bytes + kolo_plan_comm_bytes(p->plan[s->grid.stage]);
    return session_open_comm(s, launch, p->comm_bytes, used, transfers, comm);
}

static int make_executors(kolo_session *s)
{
    const kolo_options *o = s->options;
    bool flat = o->compression != KOLO_compression_none && o->compression_within;
    if (flat) KOLO_TRY(kolo_compression_flat(s->launch, &s->flat));
    const size_t own = s->shards > 1 || kolo_plan_versions(s->plan) > 1 || s->plan->config.servers
                           ? kolo_plan_comm_bytes(s->plan)
                           : s->plan->arena_bytes[KOLO_ARENA_GRADIENT];
    const size_t used = own - (s->plan->config.servers ? kolo_plan_spared(s->plan, s->launch->rank) : 0);
    kolo_launch *launch = flat ? &s->flat : s->launch;
    const kolo_plan_config *c = &s->plan->config; /* backup: sums of every version, arrivals and decisions */
    int64_t transfers = c->lag ? (int64_t)c->lag * s->plan->buckets + 2 * c->ranks : 0;
    if (c->servers) transfers = 8 * (int64_t)s->replicas; /* to and from each as a server, and rank 0's */
    for (int i = 0; s->program && i < s->shapes; i++)
        transfers += kolo_program_transfers(s->shape[i].program);
    if (s->plan->config.pairs) transfers = 4 * (int64_t)s->replicas; /* whole pieces and rests, to and from */
    KOLO_TRY(s->program ? open_comm_for(s, launch, s->program, transfers, &s->comm)
                        : session_open_comm(s, launch, own, used, transfers, &s->comm));
    if (s->plan->config.optimizer) KOLO_TRY(kolo_compression_apply(s));
    /* an executor that trains, or has transfers, does it when it has added its buckets and those */
    else if (!s->program) KOLO_TRY(kolo_comm_commit(s->comm));
    s->staged = s->cuda && !strncmp(kolo_comm_name(s->comm), "staged", 6);
    KOLO_TRY(make_training_executor(s));
    if (s->eval_program)
        KOLO_TRY(open_comm_for(s, s->launch, s->eval_program, kolo_program_transfers(s->eval_program),
                               &s->eval_comm));
    else if (s->eval_plan && s->eval_plan->arena_bytes[KOLO_ARENA_GATHERED])
        KOLO_TRY(session_open_comm(s, s->launch, kolo_plan_comm_bytes(s->eval_plan),
                                   kolo_plan_comm_bytes(s->eval_plan), 0, &s->eval_comm));
    if (s->eval_plan)
        KOLO_TRY(kolo_exec_create(&s->eval_exec, &s->eval_plan, 1, s->backend, s->eval_comm, o, s->exec));
    session_report_device(s);
    return 0;
}

static int choose_threads(kolo_session *s)
{
    kolo_options *o = s->options;
    if (s->elsewhere && o->threads) return 0;
    /* A sum over threads would make the bits depend on their number. */
    int64_t threads = o->threads ? o->threads : o->reduce == KOLO_reduce_canonical ? 1 : 0;
    int chosen = kolo_launch_bind(s->launch, (int)threads, o->bind != KOLO_bind_none);
    if (chosen < 0) return chosen;
    /* as many ranks will divide a node like this one */
    if (!threads && s->elsewhere && !s->gpu) chosen = chosen / s->ranks > 1 ? chosen / s->ranks : 1;
    o->threads = chosen;
    return 0;
}

/* Every rank has gradients, and an optimizer, of its own. */
static int check_adasum(const kolo_options *o)
{
    const char *with = o->compression != KOLO_compression_none                    ? "compression"
                       : o->bn == KOLO_bn_sync                                    ? "bn=sync"
                       : o->noise_scale                                           ? "noise_scale=true"
                       : o->loss_scale > 0 || o->precision == KOLO_precision_fp16 ? "loss scaling"
                                                                                  : NULL;
    if (!kolo_is_adasum(o) || !with) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "reduce=%s combines steps that every rank forms by itself, %s is for gradients of all "
                     "ranks: take one of them",
                     kolo_option_find("reduce")->choices[o->reduce], with);
}

/* What works on whole tensors has none of a parameter whose channels are cut. */
static int check_tensor(const kolo_options *o)
{
    if (o->tensor > 1 && kolo_is_adasum(o))
        return kolo_fail(KOLO_ECONFIG,
                         "reduce=%s combines whole tensors, and tensor=%ld cuts them into parts on different "
                         "ranks: use reduce=fast or reduce=canonical",
                         kolo_option_find("reduce")->choices[o->reduce], (long)o->tensor);
    return 0;
}

/* What loaders and comm parse when a job has started, `kolo plan` refuses before. */
static int check_texts(const kolo_options *o)
{
    kolo_augment_step augment[KOLO_AUGMENT_MOST];
    kolo_order_rule rule;
    comm_selector *selector = NULL;
    int n;
    KOLO_TRY(kolo_augment_parse(o->augment, augment, KOLO_AUGMENT_MOST, &n));
    KOLO_TRY(kolo_order_parse(o->shuffle, &rule));
    KOLO_TRY(comm_allreduce_open(&selector, "none", o->comm_algorithm));
    comm_selector_close(&selector);
    return 0;
}

/* What each value allows but their combination does not. */
static int check_options(const kolo_options *o)
{
    if (o->crop_area_min > o->crop_area_max)
        return kolo_fail(KOLO_ECONFIG, "crop_area_min=%g is larger than crop_area_max=%g", o->crop_area_min,
                         o->crop_area_max);
    if (o->ema >= 1)
        return kolo_fail(KOLO_ECONFIG,
                         "ema=%g would never take up a weight: give a decay below 1, such as 0.999", o->ema);
    if (o->label_smoothing >= 1)
        return kolo_fail(KOLO_ECONFIG, "label_smoothing=%g leaves nothing of the label: give less than 1",
                         o->label_smoothing);
    if (o->mosaic_scale_min > o->mosaic_scale_max)
        return kolo_fail(KOLO_ECONFIG, "mosaic_scale_min=%g is larger than mosaic_scale_max=%g",
                         o->mosaic_scale_min, o->mosaic_scale_max);
    KOLO_TRY(check_texts(o));
    KOLO_TRY(check_adasum(o));
    KOLO_TRY(check_tensor(o));
    KOLO_TRY(kolo_compression_check(o));
    return kolo_optim_check(o);
}

static int open_steps(kolo_session *s)
{
    KOLO_TRY(session_fit_plans(s));
    KOLO_TRY(kolo_strategy_check(s->plan_file->strategy, s->plan_file->path, s));
    if (s->parts & KOLO_SESSION_PLAN_ONLY) return 0;
    s->shared_bytes = kolo_memory_shared();
    s->held_bytes = kolo_memory_resident();
    s->highest_bytes = kolo_memory_peak();
    /* readers fill while memory is touched */
    if (!(s->parts & KOLO_SESSION_NO_DATA)) KOLO_TRY(session_make_loaders(s));
    KOLO_TRY(make_executors(s));
    kolo_session_settle(s);
    return 0;
}

static int open_plan_file(kolo_session *s)
{
    s->plan_file = kolo_alloc(sizeof *s->plan_file);
    if (!s->plan_file) return KOLO_ENOMEM;
    if (!(s->parts & KOLO_SESSION_TRAIN) || (s->parts & KOLO_SESSION_DATA_ONLY)) return 0;
    return kolo_plan_file_read(s->plan_file, s->options, s->ranks);
}

/* What is wrong may be the file's fault. */
static int in_plan_file(const kolo_session *s, int rc)
{
    const char *path = s->plan_file->path;
    if (rc != KOLO_ECONFIG || !path || strstr(kolo_error_text(), path)) return rc;
    return kolo_fail_in(rc, "%s: ", kolo_plan_file_where(s->plan_file, kolo_error_text()));
}

static int check_detector(const kolo_options *o)
{
    if (*o->augment || o->crop != KOLO_crop_none || o->mixup > 0 || o->cutmix > 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "augment=, crop=, mixup= and cutmix= move pixels without their boxes; model=%s has mosaic=, "
            "mosaic_mixup=, hsv=, flip=",
            o->model);
    if (o->val_flip)
        return kolo_fail(KOLO_ECONFIG, "val_flip=true takes the mean of logits, and model=%s finds boxes",
                         o->model);
    if (o->label_smoothing > 0 || o->loss != KOLO_loss_cross_entropy || o->head != KOLO_head_softmax)
        return kolo_fail(KOLO_ECONFIG,
                         "label_smoothing=, loss= and head= are of classifiers, and model=%s finds boxes; "
                         "leave them out",
                         o->model);
    return 0;
}

static int check_classifier(const kolo_options *o)
{
    if (o->mosaic > 0 || o->mosaic_mixup > 0 || o->hsv > 0 || *o->hierarchy)
        return kolo_fail(
            KOLO_ECONFIG,
            "mosaic=, mosaic_mixup=, hsv= and hierarchy= are of detectors, and model=%s finds no boxes; "
            "leave them out (augment=, crop=, mixup= and cutmix= are a classifier's)",
            o->model);
    return 0;
}

static int open_parts(kolo_session *s, int parts)
{
    kolo_options *o = s->options;
    const kolo_model *model = kolo_model_find(o->model);
    if (!model) return kolo_error_status();
    s->detector = model->detector;
    KOLO_TRY(check_options(o));
    KOLO_TRY(session_auto_plan(s));
    KOLO_TRY(s->detector ? check_detector(o) : check_classifier(o));
    s->elsewhere = (parts & KOLO_SESSION_PLAN_ONLY) && o->ranks;
    s->ranks = s->elsewhere ? (int)o->ranks : s->launch->size;
    KOLO_TRY(open_plan_file(s));
    KOLO_TRY(in_plan_file(s, session_parse_spatial(s)));
    KOLO_TRY(in_plan_file(s, session_open_grid(s)));
    KOLO_TRY(session_check_tournament(s));
    KOLO_TRY(session_check_local(s));
    KOLO_TRY(session_check_late(s));
    KOLO_TRY(in_plan_file(s, session_open_shards(s)));
    KOLO_TRY(session_open_data(s, parts));
    KOLO_TRY(session_open_tournament(s));
    KOLO_TRY(resolve_shape(s, model));
    KOLO_TRY(session_lay_phases(s));
    if (parts & KOLO_SESSION_DATA_ONLY)
        return o->batch ? session_resolve_batch(s)
                        : kolo_fail(KOLO_ECONFIG, "batch=auto: a server of batches measures no memory; give "
                                                  "the number of the training");
    KOLO_TRY(choose_threads(s));
    KOLO_TRY(session_choose_device(s)); /* near the cores that were just taken */
    KOLO_TRY(session_check_late_device(s));
    KOLO_TRY(session_check_offload(s));
    session_weigh_process(s, false);
    KOLO_TRY(session_choose_batch(s));
    return in_plan_file(s, open_steps(s));
}

int kolo_session_answer_stage(const kolo_session *s, int tensor)
{
    const kolo_graph *g = kolo_session_eval_graph(s);
    const kolo_placement *p = s->eval_graph ? s->eval_placement : s->placement;
    if (!p) return 0;
    for (int i = 0; i < g->heads; i++)
        if (g->head[i] == tensor) return kolo_placement_stage(p, p->stages * p->chunks - 1);
    return kolo_placement_stage(p, p->owner[tensor]);
}

int kolo_session_open(kolo_session *s, kolo_options *options, kolo_launch *launch, int parts)
{
    return kolo_session_open_for(s, options, launch, parts, NULL);
}

int kolo_session_open_for(kolo_session *s, kolo_options *options, kolo_launch *launch, int parts,
                          const kolo_gpu *gpu)
{
    *s = (kolo_session){.options = options, .launch = launch, .parts = parts, .gpu = gpu};
    int rc = open_parts(s, parts);
    if (rc < 0) kolo_session_close(s);
    return rc;
}

void kolo_session_close(kolo_session *s)
{
    session_close_loaders(s);
    kolo_exec_destroy(&s->eval_exec);
    kolo_exec_destroy(&s->exec);
    kolo_comm_destroy(&s->comm);
    kolo_compression_flat_free(&s->flat);
    kolo_comm_destroy(&s->eval_comm);
    session_free_plans(s);
    session_close_tournament(s);
    session_close_data(s);
    kolo_grid_free(&s->grid);
    if (s->plan_file) kolo_plan_file_close(s->plan_file);
    free(s->plan_file);
    s->plan_file = NULL;
    free(s->phase);
    s->phase = NULL;
}
