/* The table of networks, and the whole graph around one of them. */
#include "models/models.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/failure.h"
#include "base/option.h"
#include "models/darknet.h"
#include "models/layers.h"

const kolo_model kolo_model_table[] = {
#define MODEL(id, builder, h, w, c, k, text, ...) \
    {.name = #id,                                 \
     .source = text,                              \
     .height = h,                                 \
     .width = w,                                  \
     .channels = c,                               \
     .classes = k,                                \
     .build = kolo_build_##builder,               \
     __VA_ARGS__},
#include "models/models.def"
#undef MODEL
};
enum { MODELS = sizeof kolo_model_table / sizeof *kolo_model_table };
const int kolo_model_count = MODELS;

const kolo_model *kolo_model_find(const char *name)
{
    const char *names[MODELS], *end = strrchr(name, '.');
    if (end && !strcmp(end, ".cfg")) return kolo_darknet_model(name);
    for (int i = 0; i < MODELS; i++) {
        names[i] = kolo_model_table[i].name;
        if (!strcmp(name, names[i])) return &kolo_model_table[i];
    }
    const char *nearest = kolo_nearest(name, names, MODELS);
    if (nearest) kolo_fail(KOLO_ECONFIG, "unknown model \"%s\"; did you mean \"%s\"?", name, nearest);
    else kolo_fail(KOLO_ECONFIG, "unknown model \"%s\"; `kolo models` lists them", name);
    return NULL;
}

bool kolo_model_pixels(const kolo_model *model, float mean[4], float std[4])
{
    const float middle = model->pixels == KOLO_PIXELS_SIGNED ? 0.5f : 0,
                unit = model->pixels == KOLO_PIXELS_SIGNED ? 0.5f
                       : model->pixels == KOLO_PIXELS_BGR  ? 1 / 255.f
                                                           : 1;
    for (int c = 0; c < 4 && model->pixels != KOLO_PIXELS_NORMAL; c++) {
        mean[c] = middle;
        std[c] = unit;
    }
    return model->pixels != KOLO_PIXELS_NORMAL;
}

enum { BOXES = 120 }; /* most boxes of an image, unless config.words says otherwise */

/* 0, or negative where 0 says something: as usual for the model */
static kolo_model_config models_complete(const kolo_model *model, const kolo_model_config *config)
{
    kolo_model_config c = *config;
    if (!c.height) c.height = model->height;
    if (!c.width) c.width = model->width;
    if (!c.channels) c.channels = model->channels;
    if (!c.classes) c.classes = model->classes;
    if (!c.words) c.words = model->detector ? 1 + 5 * BOXES : 1;
    if (c.drop_path < 0) c.drop_path = model->drop_path;
    if (c.dropout < 0) c.dropout = model->dropout;
    if (c.auxiliary < 0) c.auxiliary = model->auxiliary;
    return c;
}

/* The last linear layer gives its place to cosines, under its name; the margin is for training alone. */
static int arc_head(kolo_graph *g, int logits, const kolo_model_config *config)
{
    const kolo_node *n = &g->node[g->tensor[logits].producer];
    if (n->op != KOLO_OP_linear || n != &g->node[g->nodes - 1] || g->tensor[n->in[0]].rank != 2)
        return kolo_fail(
            KOLO_ECONFIG,
            "head=arcface replaces a last linear layer, which this network does not have; use head=softmax");
    char name[256];
    const int x = n->in[0];
    const int64_t out = g->tensor[n->in[1]].dim[0];
    snprintf(name, sizeof name, "%.200s", g->tensor[n->in[1]].name);
    name[strlen(name) - strlen(".weight")] = 0;
    KOLO_TRY(kolo_graph_undo_node(g));
    const int cosines = kolo_cosine(g, name, x, out, (kolo_init){KOLO_INIT_NORMAL, 0.01});
    return kolo_arc_margin(g, "margin", cosines, config->train ? config->margin : 0, config->scale);
}

static int models_build(kolo_graph *g, const kolo_model *model, const kolo_model_config *config)
{
    const bool classify = !model->detector;
    if (config->classes < (classify ? 2 : 1))
        return kolo_fail(KOLO_ECONFIG, "%" PRId64 " classes are too few; at least %d %s needed",
                         config->classes, classify ? 2 : 1, classify ? "are" : "is");
    if (config->auxiliary > 0 && !(model->auxiliary > 0))
        return kolo_fail(KOLO_ECONFIG,
                         "auxiliary=%g: the network has no auxiliary head; leave auxiliary= out",
                         config->auxiliary);
    int x = kolo_input(g, config->rows, config->height, config->width, config->channels, config->words);
    if (x >= 0 && config->image_labels) KOLO_TRY(kolo_image_label_input(g, config->classes));
    x = kolo_normalize(g, x, config->mean, config->std);
    if (x < 0) return x;
    g->node[g->tensor[x].producer].a.reverse = model->pixels == KOLO_PIXELS_BGR;
    g->blur = config->blur;
    const bool cut = config->cuts != NULL;
    g->signs = config->device;
    g->pools = config->device && !cut; /* a norm is of all parts, a pool of one */
    int y = model->build(g, x, model, config);
    if (y < 0) return y;
    if (config->blur && !g->blurred)
        return kolo_fail(KOLO_ECONFIG,
                         "blur_pool=true: there is no convolution with a stride that takes 16 channels");
    if (classify && config->head == KOLO_head_arcface) KOLO_TRY(y = arc_head(g, y, config));
    if (classify)
        KOLO_TRY((config->loss == KOLO_loss_bce ? kolo_bce : kolo_cross_entropy)(g, y, config->smoothing));
    if (g->auxiliary >= 0 && !config->train) KOLO_TRY(kolo_graph_prune(g));
    if (config->train && config->freeze && *config->freeze) KOLO_TRY(kolo_graph_freeze(g, config->freeze));
    KOLO_TRY(kolo_graph_fuse(g));
    if (cut && config->cuts->channels > 1) KOLO_TRY(kolo_graph_split_channels(g, config->cuts->channels));
    if (cut) KOLO_TRY(kolo_graph_split_late(g, config->cuts));
    if (cut) KOLO_TRY(kolo_graph_split(g, config->cuts));
    if (config->train) KOLO_TRY(kolo_graph_backward(g));
    return cut && config->cuts->wide > 0 ? kolo_graph_widen(g, config->cuts->wide) : 0;
}

bool kolo_model_has_shortcuts(const kolo_model *model) { return model->build == kolo_build_resnet_cifar; }

int kolo_model_graph(kolo_graph **graph, const char *name, const kolo_model_config *config)
{
    *graph = NULL;
    const kolo_model *model = kolo_model_find(name);
    if (!model) return kolo_error_status();
    kolo_model_config whole = models_complete(model, config);
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(&g, name, config->train, config->dtype));
    int rc;
    KOLO_TRY_GOTO(rc, models_build(g, model, &whole));
    *graph = g;
    return 0;
fail:
    kolo_graph_destroy(&g);
    return kolo_fail_in(rc, "model %s: ", name);
}
