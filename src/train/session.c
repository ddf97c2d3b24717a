#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/head.h"
#include "comm/reducer.h"
#include "kolo/error.h"
#include "train/compression.h"
#include "train/parts.h"

static void set_text(char **field, char *text) /* takes `text` */
{
    if (!text) return;
    free(*field);
    *field = text;
}

static int parse_channels(const char *key, const char *text, int64_t channels, float *values)
{
    int n = 0;
    for (const char *p = text; *p && n < 4; n++) {
        char *end;
        values[n] = strtof(p, &end);
        if (end == p || (*end && *end != ','))
            return kolo_fail(KOLO_ECONFIG, "%s=%s is not a list of numbers such as 0.485,0.456,0.406", key, text);
        p = *end ? end + 1 : end;
    }
    if (n != channels)
        return kolo_fail(KOLO_ECONFIG, "%s=%s has %d numbers, the pictures have %ld channels", key, text, n,
                         (long)channels);
    return 0;
}

static char *channels_text(const float *values, int64_t channels)
{
    char text[96] = "";
    for (int64_t c = 0; c < channels; c++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.9g", c ? "," : "", (double)values[c]);
    return kolo_strdup(text);
}

/* A class for every sample, or boxes, as the network wants. */
static int check_task(const kolo_session *s, const kolo_dataset *set, const char *folder)
{
    const kolo_dataset_info *info = set ? kolo_dataset_get_info(set) : NULL;
    const bool boxes = s->task != KOLO_TASK_CLASSIFY;
    if (!info || strstr(info->task, boxes ? "detection" : "classification")) return 0;
    return kolo_fail(KOLO_EINPUT, "%s: %s is packed for %s and has no %s for each sample, which model=%s needs; pack a "
                                  "source that has them",
                     folder, info->name, info->task, boxes ? "boxes" : "class", s->options->model);
}

/* Class count, channels and picture size come from the data unless the recipe states them. */
static int resolve_shape(kolo_session *s, const kolo_model *model)
{
    kolo_options *o = s->options;
    const kolo_dataset *set = s->train_set ? s->train_set : s->val_set;
    const kolo_dataset_info *info = set ? kolo_dataset_get_info(set) : NULL;
    KOLO_TRY(check_task(s, s->train_set, o->data));
    KOLO_TRY(check_task(s, s->val_set, o->val));
    if (info) {
        snprintf(s->data_uuid, sizeof s->data_uuid, "%s", info->uuid);
        if (o->classes && o->classes < info->classes && !*o->pairs) /* pairs may be of anybody */
            return kolo_fail(KOLO_ECONFIG, "classes=%ld, but the data set %s has %d classes", (long)o->classes,
                             info->name, info->classes);
        if (o->channels && o->channels < info->channels)
            return kolo_fail(KOLO_ECONFIG, "channels=%ld, but the pictures of %s have %d channels", (long)o->channels,
                             info->name, info->channels);
        if (s->train_set && s->val_set) {
            const kolo_dataset_info *v = kolo_dataset_get_info(s->val_set);
            if (v->classes != info->classes || v->channels > info->channels)
                return kolo_fail(KOLO_EINPUT,
                                 "training data %s has %d classes and %d channels, validation data %s has %d and %d: "
                                 "pack them from one source with --stats-from",
                                 o->data, info->classes, info->channels, o->val, v->classes, v->channels);
        }
        if (!o->size && !info->height && !o->val_size && s->task == KOLO_TASK_CLASSIFY)
            return kolo_fail(KOLO_ECONFIG, "the pictures of %s have various sizes: state size= and crop=", info->name);
    }
    if (!o->classes) o->classes = info ? info->classes : model->classes;
    if (!o->channels) o->channels = info ? info->channels : model->channels;
    const bool stored = info && info->height && s->task == KOLO_TASK_CLASSIFY; /* a detector fits any picture in */
    s->height = o->size ? o->size : stored ? info->height : model->height;
    s->width = o->size ? o->size : stored ? info->width : model->width;
    if (!o->size && s->height == s->width) o->size = s->height;
    for (int c = 0; c < 4; c++)
        s->mean[c] = info ? info->mean[c] : 0.5f, s->std[c] = info && info->std[c] > 0 ? info->std[c] : 0.25f;
    kolo_model_pixels(model, s->mean, s->std);
    if (*o->mean) KOLO_TRY(parse_channels("mean", o->mean, o->channels, s->mean));
    else set_text(&o->mean, channels_text(s->mean, o->channels));
    if (*o->std) KOLO_TRY(parse_channels("std", o->std, o->channels, s->std));
    else set_text(&o->std, channels_text(s->std, o->channels));
    for (int64_t c = 0; c < o->channels; c++)
        if (!(s->std[c] > 1e-6f) || !isfinite(s->std[c]) || !isfinite(s->mean[c]))
            return kolo_fail(KOLO_ECONFIG, "mean=%s std=%s: every channel needs a finite mean and a deviation above 0",
                             o->mean, o->std);
    return 0;
}

/* What begins at random in the layers that make the result; a detector's bias is an odds ratio, and stays. */
static int scale_head(kolo_graph *g, double scale)
{
    if (scale == 1) return 0;
    bool *head = kolo_alloc((size_t)g->tensors * sizeof *head + 1);
    const int rc = head ? kolo_graph_head(g, head) : KOLO_ECONFIG;
    for (int64_t t = 0; rc == 0 && t < g->tensors; t++)
        if (head[t] && g->tensor[t].init.kind != KOLO_INIT_CONSTANT) g->tensor[t].init.a *= scale;
    free(head);
    return rc;
}

static int make_graph(const kolo_session *s, bool train, kolo_graph **graph)
{
    const kolo_options *o = s->options;
    int64_t size = train ? 0 : o->val_size;
    static const enum kolo_overlap overlap[] = {[KOLO_box_loss_iou] = KOLO_OVERLAP_IOU,
                                                [KOLO_box_loss_giou] = KOLO_OVERLAP_GIOU,
                                                [KOLO_box_loss_diou] = KOLO_OVERLAP_DIOU,
                                                [KOLO_box_loss_ciou] = KOLO_OVERLAP_CIOU};
    const bool mixes = train && (o->mixup > 0 || o->cutmix > 0), boxes = s->task != KOLO_TASK_CLASSIFY;
    kolo_model_config config = {.rows = s->rows,
                                .height = size ? size : s->height,
                                .width = size ? size : s->width,
                                .channels = o->channels,
                                .classes = o->classes,
                                .words = boxes ? 1 + 5 * o->max_boxes : mixes ? 3 : 0,
                                .shortcut = o->shortcut,
                                .zero_init_residual = o->zero_init_residual,
                                .blur = o->blur_pool,
                                .drop_path = o->drop_path,
                                .dropout = o->dropout,
                                .smoothing = train ? o->label_smoothing : 0,
                                .loss = o->loss,
                                .head = o->head,
                                .margin = o->arc_margin,
                                .scale = o->arc_scale,
                                .overlap = overlap[o->box_loss],
                                .centre = o->simota == KOLO_simota_centre,
                                .train = train,
                                .dtype = session_dtype(s)};
    memcpy(config.mean, s->mean, sizeof config.mean);
    memcpy(config.std, s->std, sizeof config.std);
    KOLO_TRY(kolo_model_graph(graph, o->model, &config));
    return scale_head(*graph, o->head_init_scale);
}

static char *tuning_cache(void)
{
    const char *cache = getenv("KOLO_CACHE"), *home = getenv("HOME");
    char *folder = cache && *cache ? kolo_strdup(cache) : home && *home ? kolo_format("%s/.cache/kolo", home) : NULL;
    char *file = folder && kolo_folder_make(folder) == 0 ? kolo_format("%s/choices", folder) : NULL;
    free(folder);
    return file;
}

/* No gradients, no optimizer: the evaluation's own parameters are the only ones. */
static bool evaluates_only(int parts) { return (parts & KOLO_SESSION_EVAL) && !(parts & KOLO_SESSION_TRAIN); }

static int make_plans(kolo_session *s, int parts, const char *choices)
{
    kolo_options *o = s->options;
    char *cache = choices ? NULL : tuning_cache();
    kolo_backend_config config = {.threads = (int)o->threads,
                                  .direct = o->conv == KOLO_conv_direct,
                                  .deterministic = o->deterministic,
                                  .tf32 = o->precision == KOLO_precision_tf32,
                                  .device = s->device_index,
                                  .cache = cache,
                                  .choices = choices};
    int rc = kolo_backend_create(&s->backend, s->cuda ? "cuda" : "cpu", &config);
    free(cache);
    KOLO_TRY(rc);
    const kolo_optimizer *optimizer = kolo_optimizer_find(o->optimizer);
    if (!optimizer) return KOLO_ECONFIG;
    kolo_plan_config plan = {.ranks = s->ranks,
                             .slots = s->slots,
                             .bn = o->bn,
                             .canonical = o->reduce == KOLO_reduce_canonical,
                             .bucket_bytes = o->bucket_mb * 1048576,
                             .optimizer = optimizer,
                             .ema = kolo_averages(o),
                             .lookahead = o->lookahead > 0,
                             .clip_norm = o->clip_norm > 0,
                             .scaled = o->loss_scale > 0 || o->precision == KOLO_precision_fp16,
                             .adasum = s->ranks > 1 && kolo_is_adasum(o),
                             .average = s->ranks > 1 && o->reduce == KOLO_reduce_adasum_nodes,
                             .noise = o->noise_scale && s->ranks * s->slots > 1,
                             .decay_norms = o->decay_norms,
                             .layer_decay = o->layer_decay};
    if (!evaluates_only(parts)) KOLO_TRY(kolo_plan_create(&s->plan, s->graph, s->backend, &plan, NULL));
    if (!(parts & KOLO_SESSION_EVAL)) return 0;
    plan.slots = 1;
    plan.optimizer = NULL;
    plan.clip_norm = plan.scaled = plan.noise = plan.adasum = plan.average = false;
    if (evaluates_only(parts)) return kolo_plan_create(&s->plan, s->graph, s->backend, &plan, NULL);
    return kolo_plan_create(&s->eval_plan, s->eval_graph, s->backend, &plan, s->plan);
}

/* One rank chooses the algorithms for all: rank 0 times them, the others take its choices. */
static int agree_on_plans(kolo_session *s, int parts)
{
    if ((parts & KOLO_SESSION_PLAN_ONLY) || s->launch->size == 1) return make_plans(s, parts, NULL);
    kolo_comm *comm = NULL;
    char *choices = NULL;
    int64_t bytes = 0;
    int rc;
    kolo_comm_config config = {.timeout = s->options->timeout, .spin = -1};
    KOLO_TRY_GOTO(rc, kolo_comm_create(&comm, s->launch, &config));
    KOLO_TRY_GOTO(rc, kolo_comm_commit(comm));
    if (s->launch->rank == 0) {
        KOLO_TRY_GOTO(rc, make_plans(s, parts, NULL));
        choices = kolo_backend_choices(s->backend);
        if (!choices) {
            rc = KOLO_ECONFIG;
            goto fail;
        }
        bytes = (int64_t)strlen(choices) + 1;
    }
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(comm, &bytes, sizeof bytes, 0));
    if (!choices && !(choices = kolo_alloc((size_t)bytes))) {
        rc = KOLO_ECONFIG;
        goto fail;
    }
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(comm, choices, (size_t)bytes, 0));
    if (s->launch->rank != 0) KOLO_TRY_GOTO(rc, make_plans(s, parts, choices));
    rc = kolo_comm_barrier(comm);
fail:
    free(choices);
    kolo_comm_destroy(&comm);
    return rc;
}

static int make_executors(kolo_session *s)
{
    const kolo_options *o = s->options;
    const kolo_comm_device device = {.compute = kolo_backend_stream(s->backend, KOLO_LANE_COMPUTE),
                                     .comm = kolo_backend_stream(s->backend, KOLO_LANE_COMM),
                                     .uuid = s->device.uuid,
                                     .deterministic = o->deterministic,
                                     .reducer = o->reducer,
                                     .host = kolo_is_adasum(o)};
    kolo_comm_config config = {.arena_bytes = s->plan->arena_bytes[KOLO_ARENA_GRADIENT],
                               .canonical = o->reduce == KOLO_reduce_canonical,
                               .timeout = o->timeout,
                               .spin = -1,
                               .device = s->cuda ? &device : NULL};
    bool flat = o->compression != KOLO_compression_none && o->compression_within;
    if (flat) KOLO_TRY(kolo_compression_flat(s->launch, &s->flat));
    KOLO_TRY(kolo_comm_create(&s->comm, flat ? &s->flat : s->launch, &config));
    if (s->plan->config.optimizer) KOLO_TRY(kolo_compression_apply(s));
    else KOLO_TRY(kolo_comm_commit(s->comm)); /* an executor that trains does it, when it has added its buckets */
    s->staged = s->cuda && !strncmp(kolo_comm_name(s->comm), "staged", 6);
    KOLO_TRY(kolo_exec_create(&s->exec, s->plan, s->backend, s->comm, o, NULL));
    if (s->eval_plan) KOLO_TRY(kolo_exec_create(&s->eval_exec, s->eval_plan, s->backend, NULL, o, s->exec));
    session_tell_device(s);
    return 0;
}

static int choose_threads(kolo_session *s)
{
    kolo_options *o = s->options;
    /* A sum over threads would make the bits depend on their number. */
    int64_t threads = o->threads ? o->threads : o->reduce == KOLO_reduce_canonical ? 1 : 0;
    int chosen = kolo_launch_bind(s->launch, (int)threads, o->bind != KOLO_bind_none);
    if (chosen < 0) return chosen;
    o->threads = chosen;
    return 0;
}

/* Every rank has gradients, and an optimizer, of its own. */
static int check_adasum(const kolo_options *o)
{
    const char *with = o->compression != KOLO_compression_none       ? "compression"
                       : o->bn == KOLO_bn_sync                       ? "bn=sync"
                       : o->noise_scale                              ? "noise_scale=true"
                       : o->loss_scale > 0 || o->precision == KOLO_precision_fp16 ? "loss scaling"
                                                                     : NULL;
    if (!kolo_is_adasum(o) || !with) return 0;
    return kolo_fail(KOLO_ECONFIG, "reduce=%s combines steps that every rank forms by itself, %s is for gradients of all ranks: take one of them",
                     kolo_option_find("reduce")->choices[o->reduce], with);
}

/* What each value allows but their combination does not. */
static int check_options(const kolo_options *o)
{
    if (o->crop_area_min > o->crop_area_max)
        return kolo_fail(KOLO_ECONFIG, "crop_area_min=%g is larger than crop_area_max=%g", o->crop_area_min,
                         o->crop_area_max);
    if (o->ema >= 1)
        return kolo_fail(KOLO_ECONFIG, "ema=%g would never take up a weight: give a decay below 1, such as 0.999",
                         o->ema);
    if (o->label_smoothing >= 1)
        return kolo_fail(KOLO_ECONFIG, "label_smoothing=%g leaves nothing of the label: give less than 1",
                         o->label_smoothing);
    if (o->mosaic_scale_min > o->mosaic_scale_max)
        return kolo_fail(KOLO_ECONFIG, "mosaic_scale_min=%g is larger than mosaic_scale_max=%g", o->mosaic_scale_min,
                         o->mosaic_scale_max);
    KOLO_TRY(check_adasum(o));
    KOLO_TRY(kolo_compression_check(o));
    return kolo_optim_check(o);
}

static int make_graphs(kolo_session *s)
{
    const bool alone = evaluates_only(s->parts);
    KOLO_TRY(make_graph(s, !alone, &s->graph));
    return !alone && s->parts & KOLO_SESSION_EVAL ? make_graph(s, false, &s->eval_graph) : 0;
}

/* A network may have matrices as large as its pictures; then they cannot change. */
static int check_sizes(const kolo_session *s)
{
    const int64_t val = s->parts & KOLO_SESSION_EVAL ? s->options->val_size : 0;
    for (int i = -1; i < s->phases; i++) {
        const int64_t size = i < 0 ? val : s->phase[i].size;
        if (!size || (size == s->height && size == s->width)) continue;
        kolo_session trial = *s;
        kolo_graph *g = NULL;
        trial.height = trial.width = size;
        KOLO_TRY(make_graph(&trial, true, &g));
        const bool same = kolo_graph_parameters(g) == kolo_graph_parameters(s->graph);
        kolo_graph_destroy(&g);
        if (!same)
            return kolo_fail(KOLO_ECONFIG, "model=%s has weights whose number depends on the picture: %ld pixels beside %ld x %ld is not possible (size, val_size, size_ramp)",
                             s->options->model, (long)size, (long)s->width, (long)s->height);
    }
    return 0;
}

int session_plan_trial(kolo_session *s)
{
    KOLO_TRY(make_graphs(s));
    return make_plans(s, s->parts, NULL);
}

int session_open_phase(kolo_session *s)
{
    const int parts = s->parts;
    KOLO_TRY(session_resolve_batch(s));
    int64_t last, within;
    kolo_session_at(s, s->steps > 0 ? s->steps - 1 : 0, &last, &within);
    s->plain_epoch = last + 1 - s->options->close_mosaic;
    KOLO_TRY(make_graphs(s));
    if (s->now == 0 && !evaluates_only(parts)) KOLO_TRY(check_sizes(s));
    KOLO_TRY(agree_on_plans(s, parts));
    if (parts & KOLO_SESSION_PLAN_ONLY) return 0;
    KOLO_TRY(session_check_memory(s));
    if (!(parts & KOLO_SESSION_NO_DATA))
        KOLO_TRY(session_make_loaders(s, parts)); /* readers fill while memory is touched */
    return make_executors(s);
}

void session_close_phase(kolo_session *s)
{
    session_close_loaders(s);
    kolo_exec_destroy(&s->eval_exec);
    kolo_exec_destroy(&s->exec);
    kolo_comm_destroy(&s->comm);
    kolo_compression_flat_free(&s->flat);
    kolo_plan_destroy(&s->eval_plan);
    kolo_plan_destroy(&s->plan);
    kolo_backend_destroy(&s->backend);
    kolo_graph_destroy(&s->eval_graph);
    kolo_graph_destroy(&s->graph);
}

static int open_parts(kolo_session *s, int parts)
{
    kolo_options *o = s->options;
    const kolo_model *model = kolo_model_find(o->model);
    if (!model) return KOLO_ECONFIG;
    s->task = model->task;
    KOLO_TRY(check_options(o));
    if (s->task != KOLO_TASK_CLASSIFY && (*o->augment || o->crop != KOLO_crop_none || o->mixup > 0 || o->cutmix > 0))
        return kolo_fail(KOLO_ECONFIG,
                         "augment=, crop=, mixup= and cutmix= move pixels without their boxes; model=%s has mosaic=, "
                         "mosaic_mixup=, hsv=, flip=",
                         o->model);
    if (s->task != KOLO_TASK_CLASSIFY && o->val_flip)
        return kolo_fail(KOLO_ECONFIG, "val_flip=true takes the mean of logits, and model=%s finds boxes", o->model);
    s->ranks = (parts & KOLO_SESSION_PLAN_ONLY) && o->ranks ? (int)o->ranks : s->launch->size;
    KOLO_TRY(session_open_data(s, parts));
    KOLO_TRY(resolve_shape(s, model));
    KOLO_TRY(session_lay_phases(s));
    if (parts & KOLO_SESSION_DATA_ONLY)
        return o->batch ? session_resolve_batch(s) : kolo_fail(KOLO_ECONFIG, "batch=auto: whoever computes chooses it; give a number here");
    KOLO_TRY(choose_threads(s));
    KOLO_TRY(session_choose_device(s)); /* near the cores that were just taken */
    KOLO_TRY(session_choose_batch(s));
    return session_open_phase(s);
}

int kolo_session_open(kolo_session *s, kolo_options *options, kolo_launch *launch, int parts)
{
    *s = (kolo_session){.options = options, .launch = launch, .parts = parts};
    int rc = open_parts(s, parts);
    if (rc < 0) kolo_session_close(s);
    return rc;
}

void kolo_session_close(kolo_session *s)
{
    session_close_phase(s);
    session_close_data(s);
    free(s->phase);
    s->phase = NULL;
}
