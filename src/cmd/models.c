/* kolo models: the networks in figures, or one of them map by map. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "base/failure.h"
#include "models/models.h"

static int models_build(kolo_graph **g, const char *name, const kolo_options *o)
{
    const kolo_model_config config = {.rows = 1,
                                      .height = o ? o->size : 0,
                                      .width = o ? o->size : 0,
                                      .channels = o ? o->channels : 0,
                                      .classes = o ? o->classes : 0,
                                      .shortcut = o ? o->shortcut : "",
                                      .auxiliary = o ? o->auxiliary : -1,
                                      .std = {1, 1, 1, 1}};
    return kolo_model_graph(g, name, &config);
}

/* As PyTorch counts them: a counter of batches beside each pair of running statistics, an index beside each
 * table of relative positions. */
static int64_t state_entries(const kolo_graph *g)
{
    int64_t params = 0, buffers = 0, tables = 0;
    for (int64_t t = 0; t < g->tensors; t++) {
        params += g->tensor[t].role == KOLO_ROLE_PARAM;
        buffers += g->tensor[t].role == KOLO_ROLE_BUFFER;
    }
    for (int64_t i = 0; i < g->nodes; i++)
        tables += g->node[i].op == KOLO_OP_window_attention && g->node[i].n_in > 1;
    return params + buffers + buffers / 2 + tables;
}

/* Digits behind the point: three, and more where they would not show three that matter. */
static int digits_of(double gmacs)
{
    int digits = 3;
    for (double shown = gmacs * 1e3; shown > 0 && shown < 99.95 && digits < 9; shown *= 10) digits++;
    return digits;
}

static int print_all(void)
{
    printf("%-17s %11s %9s %7s  %-11s %-15s %s\n", "model", "parameters", "GMACs", "entries", "input",
           "finds", "source");
    for (int i = 0; i < kolo_model_count; i++) {
        const kolo_model *m = &kolo_model_table[i];
        kolo_graph *g;
        KOLO_TRY(models_build(&g, m->name, NULL));
        char input[32], finds[32];
        snprintf(input, sizeof input, "%" PRId64 "x%" PRId64 "x%" PRId64, m->channels, m->height, m->width);
        snprintf(finds, sizeof finds, !m->detector ? "%" PRId64 " classes" : "boxes of %" PRId64, m->classes);
        const double gmacs = kolo_graph_macs(g) / 1e9;
        printf("%-17s %11" PRId64 " %9.*f %7" PRId64 "  %-11s %-15s %s\n", m->name, kolo_graph_parameters(g),
               digits_of(gmacs), gmacs, state_entries(g), input, finds, m->source);
        kolo_graph_destroy(&g);
    }
    return 0;
}

/* Nodes one after the other whose outputs have maps of one size, but for what is padded within. */
typedef struct stage {
    int64_t height, width, parameters;
    double macs;
    int first, last, nodes; /* tensors */
} stage;

static void print_stage(const kolo_graph *g, const stage *s)
{
    if (!s->nodes) return;
    char map[64];
    const kolo_tensor *t = &g->tensor[s->last];
    if (s->height)
        snprintf(map, sizeof map, "%" PRId64 "x%" PRId64 "x%" PRId64, t->dim[1], s->height, s->width);
    else snprintf(map, sizeof map, "%" PRId64, t->dim[1]);
    printf("  %-12s %11" PRId64 " %9.*f  %s .. %s\n", map, s->parameters, digits_of(s->macs / 1e9),
           s->macs / 1e9, g->tensor[s->first].name, t->name);
}

static void count(const kolo_graph *g, const kolo_node *n, stage *s)
{
    const bool multiplies =
        n->op == KOLO_OP_conv || n->op == KOLO_OP_linear || n->op == KOLO_OP_window_attention;
    if (multiplies) s->macs += kolo_op_table[n->op].flops(g, n) / 2 / (double)g->rows;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0 && g->tensor[n->in[k]].role == KOLO_ROLE_PARAM)
            s->parameters += kolo_tensor_count(&g->tensor[n->in[k]]);
}

static void print_stages(const kolo_graph *g)
{
    stage s = {0};
    bool padded = false;
    printf("  %-12s %11s %9s  %s\n", "map", "parameters", "GMACs", "from .. to");
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        const kolo_tensor *y = &g->tensor[n->out[0]];
        if (y->role != KOLO_ROLE_ACTIVATION) continue;
        const int64_t height = y->rank == 4 ? y->dim[2] : 0, width = y->rank == 4 ? y->dim[3] : 0;
        padded = (padded || n->op == KOLO_OP_pad) && n->op != KOLO_OP_crop;
        if (s.nodes && !padded && (height != s.height || width != s.width)) {
            print_stage(g, &s);
            s = (stage){0};
        }
        if (!s.nodes++) s.first = n->out[0], s.height = height, s.width = width;
        s.last = n->out[0];
        count(g, n, &s);
    }
    print_stage(g, &s);
}

static int print_one(const char *name, const kolo_options *o)
{
    static const char *const pixels[] = {"minus mean, by standard deviation", "0 to 1", "-1 to 1",
                                         "blue, green, red, 0 to 255"};
    const kolo_model *m = kolo_model_find(name);
    kolo_graph *g;
    if (!m) return kolo_error_status();
    KOLO_TRY(models_build(&g, name, o));
    const kolo_tensor *x = &g->tensor[g->input];
    const double gmacs = kolo_graph_macs(g) / 1e9;
    printf("%s: %s\n", m->name, m->source);
    printf("  %s%d %s; pixels: %s; drop_path=%g dropout=%g\n", !m->detector ? "" : "boxes of ", g->classes,
           g->classes == 1 ? "class" : "classes", pixels[m->pixels], m->drop_path, m->dropout);
    printf("  %" PRId64 "x%" PRId64 "x%" PRId64 ": %" PRId64 " parameters, %.*f GMACs, %" PRId64
           " entries in the state dict\n",
           x->dim[3], x->dim[1], x->dim[2], kolo_graph_parameters(g), digits_of(gmacs), gmacs,
           state_entries(g));
    print_stages(g);
    kolo_graph_destroy(&g);
    return 0;
}

int kolo_command_models(int n, char **words)
{
    kolo_options options;
    const char *name = NULL;
    KOLO_TRY(kolo_command_words(&options, n, words, 1, &name));
    const int rc =
        name    ? print_one(name, &options)
        : n > 0 ? kolo_fail(KOLO_ECONFIG, "%s of which network? kolo models NAME %s", words[0], words[0])
                : print_all();
    kolo_options_free(&options);
    fflush(stdout);
    return rc;
}
