/* Shapes and graphs of a session: one for every shape that a training step's batch has in the run, and that
 * of the evaluation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ckpt/head.h"
#include "kolo/error.h"
#include "train/forms.h"
#include "train/parts.h"
#include "train/pipeline.h"
#include "train/plan_file.h"

/* ---- shapes ---- */

static int64_t weight(const kolo_shape *s) { return s->rows * s->height * s->width; }

/* The heaviest is first: what follows takes its layouts. */
static void add_shape(kolo_session *s, kolo_shape shape)
{
    for (int i = 0; i < s->shapes; i++) {
        const kolo_shape *k = &s->shape[i];
        if (k->rows == shape.rows && k->slots == shape.slots && k->height == shape.height &&
            k->width == shape.width)
            return;
    }
    int at = s->shapes++;
    for (; at > 0 && weight(&s->shape[at - 1]) < weight(&shape); at--) s->shape[at] = s->shape[at - 1];
    s->shape[at] = shape;
}

static int lay_shapes(kolo_session *s)
{
    int most = 0;
    for (int i = 0; i < s->phases; i++) most += 1 + kolo_sides_count(&s->phase[i].sides);
    s->shape = kolo_alloc((size_t)most * sizeof *s->shape);
    if (!s->shape) return KOLO_ENOMEM;
    for (int i = 0; i < s->phases; i++) {
        const kolo_sides *sides = &s->phase[i].sides;
        kolo_shape shape = {.height = s->height, .width = s->width};
        KOLO_TRY(session_cut(s, i, &shape.rows, &shape.slots));
        if (!sides->low) add_shape(s, shape);
        for (int k = 0; k < kolo_sides_count(sides); k++) {
            shape.height = shape.width = sides->low + k * sides->step;
            add_shape(s, shape);
        }
    }
    return 0;
}

static kolo_shape evaluation_shape(const kolo_session *s)
{
    const int64_t size = s->options->val_size;
    return (kolo_shape){
        .rows = s->eval_rows, .slots = 1, .height = size ? size : s->height, .width = size ? size : s->width};
}

/* ---- graphs ---- */

/* What begins at random in the layers that make the result; a detector's bias is an odds ratio, and stays. */
static int scale_head(kolo_graph *g, double scale)
{
    if (scale == 1) return 0;
    bool *head = kolo_alloc((size_t)g->tensors * sizeof *head + 1);
    const int rc = head ? kolo_graph_head(g, head) : KOLO_ENOMEM;
    for (int64_t t = 0; rc == 0 && t < g->tensors; t++)
        if (head[t] && g->tensor[t].init.kind != KOLO_INIT_CONSTANT) g->tensor[t].init.a *= scale;
    free(head);
    return rc;
}

/* cuDNN 9.19's engines for a data gradient with a norm's sums keep it to themselves on sm_90 alone: on sm_80
 * and sm_100 most work through hundreds of MiB beside it, which spares nothing. Those for a norm in front of
 * a convolution round its scale and bias to f16. What they add up is in another order every time. */
static int fuse_for_device(const kolo_session *s, kolo_graph *g)
{
    const bool engines = s->device.major == 9 && !s->options->deterministic;
    if (engines) KOLO_TRY(kolo_graph_fuse_grad(g));
    return kolo_graph_fuse_conv(g, engines && g->dtype == KOLO_F16 && s->options->conv != KOLO_conv_direct);
}

bool session_loads_parts(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const kolo_loader_config c = {.train = true,
                                  .augment = o->augment,
                                  .mix = {.mixup = o->mixup, .cutmix = o->cutmix},
                                  .words = s->detector ? 6 : 0,
                                  .serve = o->data_server};
    /* TensorBoard is shown whole images */
    return s->across > 1 && (s->parts & KOLO_SESSION_TRAIN) && strcmp(o->data, "synthetic") &&
           !o->tensorboard && kolo_loader_cuts(&c);
}

static bool has_operation(const kolo_graph *g, enum kolo_op op)
{
    for (int64_t i = 0; i < g->nodes; i++)
        if (g->node[i].op == op) return true;
    return false;
}

/* Weights that start at 0 are those of norms. */
static bool has_zero_weights(const kolo_graph *g)
{
    for (int64_t i = 0; i < g->tensors; i++) {
        const kolo_tensor *t = &g->tensor[i];
        const char *end = t->role == KOLO_ROLE_PARAM ? strrchr(t->name, '.') : NULL;
        if (end && !strcmp(end, ".weight") && t->init.kind == KOLO_INIT_CONSTANT && t->init.a == 0)
            return true;
    }
    return false;
}

static int no_layer(const kolo_options *o, const char *option, const char *layer, const char *off)
{
    return kolo_fail(KOLO_ECONFIG, "%s: model=%s has no %s; give %s", option, o->model, layer, off);
}

/* What is said of layers that the network does not have is a mistake. Frozen ones have lost theirs. */
static int check_layers(const kolo_options *o, const kolo_graph *g)
{
    if (o->dropout > 0 && !*o->freeze && !has_operation(g, KOLO_OP_dropout))
        return no_layer(o, "dropout=", "dropout", "dropout=0");
    if (o->drop_path > 0 && !has_operation(g, KOLO_OP_residual))
        return no_layer(o, "drop_path=", "stochastic depth", "drop_path=0");
    if (*o->shortcut && !kolo_model_has_shortcuts(kolo_model_find(o->model)))
        return no_layer(o, "shortcut=", "choice of shortcuts", "shortcut=");
    if (o->zero_init_residual && !has_zero_weights(g))
        return no_layer(o, "zero_init_residual=true", "residual block that ends in a norm",
                        "zero_init_residual=false");
    return 0;
}

/* Of a wide halo, the most: this share of a part. */
static const double WIDE = .25;

static int make_graph(const kolo_session *s, const kolo_shape *shape, bool train, kolo_graph **graph)
{
    const kolo_options *o = s->options;
    static const enum kolo_overlap overlap[] = {[KOLO_box_loss_iou] = KOLO_OVERLAP_IOU,
                                                [KOLO_box_loss_giou] = KOLO_OVERLAP_GIOU,
                                                [KOLO_box_loss_diou] = KOLO_OVERLAP_DIOU,
                                                [KOLO_box_loss_ciou] = KOLO_OVERLAP_CIOU};
    const bool cut = session_parts(s) > 1;
    const kolo_cuts cuts = {.parts = {s->spatial[0], s->spatial[1]},
                            .channels = (int)o->tensor,
                            .range = s->cut_range,
                            .ranges = s->cut_ranges,
                            .apart = s->across > 1,
                            .load_parts = train && session_loads_parts(s),
                            .wide = o->halo == KOLO_halo_wide ? WIDE : 0,
                            .like = s->graph};
    const bool mixes = train && (o->mixup > 0 || o->cutmix > 0), boxes = s->detector;
    kolo_model_config config = {.rows = shape->rows,
                                .height = shape->height,
                                .width = shape->width,
                                .channels = o->channels,
                                .classes = o->classes,
                                .words = boxes                      ? 1 + 5 * o->max_boxes
                                         : mixes                    ? 3
                                         : train && s->class_weight ? 2
                                                                    : 0,
                                .shortcut = o->shortcut,
                                .zero_init_residual = o->zero_init_residual,
                                .freeze = o->freeze,
                                .blur = o->blur_pool,
                                .auxiliary = o->auxiliary,
                                .drop_path = o->drop_path,
                                .dropout = o->dropout,
                                /* image labels have it in their weights */
                                .smoothing = train && !kolo_session_tags(s) ? o->label_smoothing : 0,
                                .image_labels = kolo_session_tags(s),
                                .loss = o->loss,
                                .head = o->head,
                                .margin = o->arc_margin,
                                .scale = o->arc_scale,
                                .overlap = overlap[o->box_loss],
                                .centre = o->simota == KOLO_simota_centre,
                                .cuts = cut ? &cuts : NULL,
                                .train = train,
                                .device = s->cuda,
                                .dtype = session_dtype(s)};
    memcpy(config.mean, s->mean, sizeof config.mean);
    memcpy(config.std, s->std, sizeof config.std);
    KOLO_TRY(kolo_model_graph(graph, o->model, &config));
    if (train) KOLO_TRY(check_layers(o, *graph));
    if (train && s->cuda && !cut) KOLO_TRY(fuse_for_device(s, *graph));
    return scale_head(*graph, o->head_init_scale);
}

/* A network may have matrices as large as its images; then they cannot change. */
static int check_sizes(const kolo_session *s, const kolo_graph *g, const kolo_shape *shape)
{
    if (kolo_graph_parameters(g) == kolo_graph_parameters(s->graph)) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "model=%s has weights whose number depends on the image: %ld pixels beside %ld x %ld "
                     "is not possible (size, val_size, size_ramp, multi_scale)",
                     s->options->model, (long)shape->height, (long)s->shape[0].width,
                     (long)s->shape[0].height);
}

static void report_uncut(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (!*s->graph->uncut || s->launch->rank > 0 || (s->parts & KOLO_SESSION_QUIET)) return;
    char text[1100];
    if (o->tensor > 1) snprintf(text, sizeof text, "tensor=%ld", (long)o->tensor);
    else snprintf(text, sizeof text, "spatial=%.1080s", o->spatial);
    kolo_info("%s: left whole, as their channels, groups or heads are no multiple of the parts: %s", text,
              s->graph->uncut);
}

int session_make_graphs(kolo_session *s)
{
    const bool alone = session_evaluates_only(s);
    const kolo_shape evaluation = evaluation_shape(s);
    KOLO_TRY(lay_shapes(s));
    if (alone) s->shape[0] = evaluation;
    for (int i = 0; i < s->shapes; i++) {
        KOLO_TRY(make_graph(s, &s->shape[i], !alone, &s->shape[i].graph));
        s->graph = s->shape[0].graph;
        KOLO_TRY(check_sizes(s, s->shape[i].graph, &s->shape[i]));
    }
    KOLO_TRY(kolo_plan_file_check(s->plan_file, kolo_graph_parameters(s->graph)));
    report_uncut(s);
    KOLO_TRY(session_open_forms(s));
    if (alone || !(s->parts & KOLO_SESSION_EVAL)) return 0;
    KOLO_TRY(make_graph(s, &evaluation, false, &s->eval_graph));
    return check_sizes(s, s->eval_graph, &evaluation);
}
