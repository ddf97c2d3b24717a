/* The table of networks, and the whole graph around one of them. */
#include "models/models.h"

#include <inttypes.h>
#include <string.h>

#include "base/option.h"
#include "kolo/error.h"
#include "models/layers.h"

const kolo_model kolo_model_table[] = {
#define MODEL(id, depth, builder, h, w, c, k, text) \
    {.name = #id,                                   \
     .source = text,                                \
     .height = h,                                   \
     .width = w,                                    \
     .channels = c,                                 \
     .classes = k,                                  \
     .argument = depth,                             \
     .build = kolo_build_##builder},
#include "models/models.def"
#undef MODEL
};
enum { MODELS = sizeof kolo_model_table / sizeof *kolo_model_table };
const int kolo_model_count = MODELS;

const kolo_model *kolo_model_find(const char *name)
{
    const char *names[MODELS];
    for (int i = 0; i < MODELS; i++) {
        names[i] = kolo_model_table[i].name;
        if (!strcmp(name, names[i])) return &kolo_model_table[i];
    }
    const char *nearest = kolo_nearest(name, names, MODELS);
    if (nearest) kolo_fail(KOLO_ECONFIG, "unknown model \"%s\"; did you mean \"%s\"?", name, nearest);
    else kolo_fail(KOLO_ECONFIG, "unknown model \"%s\"; `kolo help models` lists them", name);
    return NULL;
}

/* 0: as usual for the model */
static kolo_model_config complete(const kolo_model *model, const kolo_model_config *config)
{
    kolo_model_config c = *config;
    if (!c.height) c.height = model->height;
    if (!c.width) c.width = model->width;
    if (!c.channels) c.channels = model->channels;
    if (!c.classes) c.classes = model->classes;
    return c;
}

static int build(kolo_graph *g, const kolo_model *model, const kolo_model_config *config)
{
    if (config->classes < 2)
        return kolo_fail(KOLO_ECONFIG, "%" PRId64 " classes cannot be told apart; at least 2 are needed",
                         config->classes);
    int x = kolo_input(g, config->rows, config->height, config->width, config->channels,
                       config->words ? config->words : 1);
    x = kolo_normalize(g, x, config->mean, config->std);
    if (x < 0) return x;
    int logits = model->build(g, x, model, config);
    KOLO_TRY(kolo_cross_entropy(g, logits, config->smoothing));
    KOLO_TRY(kolo_graph_fuse(g));
    return config->train ? kolo_graph_backward(g) : 0;
}

int kolo_model_graph(kolo_graph **graph, const char *name, const kolo_model_config *config)
{
    *graph = NULL;
    const kolo_model *model = kolo_model_find(name);
    if (!model) return KOLO_ECONFIG;
    kolo_model_config whole = complete(model, config);
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(&g, name, config->train, config->dtype));
    int rc;
    KOLO_TRY_GOTO(rc, build(g, model, &whole));
    *graph = g;
    return 0;
fail:
    kolo_graph_destroy(&g);
    return kolo_fail_in(rc, "model %s: ", name);
}
