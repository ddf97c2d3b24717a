#include "ckpt/darknet.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/head.h"
#include "ckpt/reader.h"
#include "kolo/error.h"

static void darknet_put(darknet_order *o, int tensor, bool begins)
{
    o->tensor[o->tensors] = tensor;
    o->begins[o->tensors++] = begins;
}

/* Which input of node n is the weight of a norm of x, the next one being its bias; -1: n norms no x. */
static int norm_weight(const kolo_node *n, int x)
{
    switch (n->op) {
    case KOLO_OP_norm_max_pool:
    case KOLO_OP_norm_apply:
        if (n->n_in > 5 && n->in[4] == x) return 6;
        return n->in[0] == x ? 2 : -1;
    case KOLO_OP_norm_conv_stats: return n->in[0] == x ? 3 : -1;
    case KOLO_OP_norm_infer: return n->in[0] == x ? 1 : -1;
    default: return -1;
    }
}

/* The norm that reads x: its parameters are in[*w] and in[*w + 1]. */
static const kolo_node *find_norm(const kolo_graph *g, int x, int *w)
{
    for (int64_t i = 0; i < g->nodes; i++)
        if (!g->node[i].backward && (*w = norm_weight(&g->node[i], x)) >= 0) return &g->node[i];
    return NULL;
}

/* NAME.weight's sister NAME.PART */
static int find_sister(const kolo_graph *g, int weight, const char *part)
{
    const char *name = g->tensor[weight].name, *dot = strrchr(name, '.');
    char *sister = kolo_format("%.*s.%s", dot ? (int)(dot - name) : 0, name, part);
    const int found = sister ? kolo_graph_find(g, sister) : -1;
    free(sister);
    return found;
}

static int unfit(const kolo_graph *g, int tensor)
{
    return kolo_fail(KOLO_ECONFIG,
                     "%s: %s belongs to a layer that darknet's .weights cannot hold; use safetensors",
                     g->name, g->tensor[tensor].name);
}

static bool is_conv(const kolo_node *n)
{
    return n->op == KOLO_OP_conv || n->op == KOLO_OP_conv_stats || n->op == KOLO_OP_norm_conv_stats;
}

static int put_layer(const kolo_graph *g, const kolo_node *n, darknet_order *o)
{
    int w = 0;
    const kolo_node *norm = is_conv(n) ? find_norm(g, n->out[0], &w) : NULL;
    const int bias = n->op != KOLO_OP_norm_conv_stats && n->n_in > 2 ? n->in[2] : -1;
    if ((norm != NULL) == (bias >= 0)) return unfit(g, n->in[1]);
    darknet_put(o, norm ? norm->in[w + 1] : bias, true);
    if (norm) {
        const int mean = find_sister(g, norm->in[w], "running_mean"),
                  var = find_sister(g, norm->in[w], "running_var");
        if (mean < 0 || var < 0) return unfit(g, norm->in[w]);
        darknet_put(o, norm->in[w], false);
        darknet_put(o, mean, false);
        darknet_put(o, var, false);
    }
    darknet_put(o, n->in[1], false);
    return 0;
}

static bool kept(const kolo_tensor *t) { return t->role == KOLO_ROLE_PARAM || t->role == KOLO_ROLE_BUFFER; }

int kolo_darknet_order(const kolo_graph *g, darknet_order *o)
{
    const size_t most = 5 * (size_t)g->nodes + 1;
    int rc = KOLO_ENOMEM;
    bool *seen = kolo_alloc((size_t)g->tensors * sizeof *seen + 1);
    *o = (darknet_order){.tensor = kolo_alloc(most * sizeof *o->tensor),
                         .begins = kolo_alloc(most * sizeof *o->begins)};
    if (!seen || !o->tensor || !o->begins) goto fail;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        if (!n->backward && (is_conv(n) || n->op == KOLO_OP_linear)) KOLO_TRY_GOTO(rc, put_layer(g, n, o));
    }
    for (int i = 0; i < o->tensors; i++) {
        if (seen[o->tensor[i]]) KOLO_TRY_GOTO(rc, unfit(g, o->tensor[i])); /* shared by two layers */
        seen[o->tensor[i]] = true;
    }
    for (int t = 0; t < g->tensors; t++)
        if (kept(&g->tensor[t]) && !seen[t]) KOLO_TRY_GOTO(rc, unfit(g, t));
    free(seen);
    return 0;
fail:
    free(seen);
    kolo_darknet_order_free(o);
    return rc;
}

void kolo_darknet_order_free(darknet_order *o)
{
    free(o->tensor);
    free(o->begins);
    *o = (darknet_order){0};
}

/* Outputs of a head's layer: of `anchors` of each pixel, `fixed` numbers and one for each class. */
typedef struct head_form {
    bool *head; /* [tensors of the graph] what has so many outputs */
    int64_t anchors, fixed, classes;
} head_form;

static int find_heads(const kolo_graph *g, head_form *f)
{
    const bool boxes = g->detector;
    const int64_t outputs = g->tensor[boxes ? g->head[0] : g->logits].dim[1];
    *f = (head_form){.head = kolo_alloc((size_t)g->tensors * sizeof *f->head + 1),
                     .fixed = boxes ? 5 : 0,
                     .classes = g->classes};
    if (!f->head) return KOLO_ENOMEM;
    f->anchors = outputs / (f->fixed + f->classes);
    KOLO_TRY(kolo_graph_head(g, f->head));
    for (int64_t t = 0; t < g->tensors; t++) f->head[t] = f->head[t] && g->tensor[t].dim[0] == outputs;
    return 0;
}

/* The class count with which the layers take all of the file; the graph's own where there is none such. */
static void solve_classes(const kolo_graph *g, const darknet_order *o, size_t bytes, head_form *f)
{
    int64_t others = 0, one = 0; /* numbers of the trunk; of one output of every head */
    for (int i = 0; i < o->tensors; i++) {
        const kolo_tensor *t = &g->tensor[o->tensor[i]];
        const int64_t count = kolo_tensor_count(t);
        if (f->head[o->tensor[i]]) one += count / t->dim[0] * f->anchors;
        else others += count;
    }
    const int64_t rest = (int64_t)(bytes / sizeof(float)) - others;
    if (bytes % sizeof(float) || one == 0 || rest <= 0 || rest % one || rest / one <= f->fixed) return;
    f->classes = rest / one - f->fixed;
}

static int add_tensor(kolo_weights *w, const kolo_tensor *t, int64_t outputs, size_t left)
{
    const size_t bytes = (size_t)(kolo_tensor_count(t) / t->dim[0] * outputs) * sizeof(float);
    if (bytes > left) return 1;
    kolo_weight *to = kolo_weights_add(w, t->name, strlen(t->name));
    if (!to) return KOLO_ENOMEM;
    to->type = KOLO_F32;
    to->rank = t->rank;
    memcpy(to->dim, t->dim, sizeof to->dim);
    to->dim[0] = outputs;
    to->data = w->map + w->bytes - left;
    to->bytes = bytes;
    return 0;
}

/* Tensors from `data` on. A file may end between two layers: what begins a training from the trunk of
 * another network does. */
static int read_layers(kolo_weights *w, const kolo_graph *g, const darknet_order *o, const head_form *f,
                       size_t data)
{
    size_t left = w->bytes - data;
    for (int i = 0; i < o->tensors; i++) {
        const kolo_tensor *t = &g->tensor[o->tensor[i]];
        if (left == 0 && o->begins[i] && i) {
            w->partial = true;
            return 0;
        }
        const int rc =
            add_tensor(w, t, f->head[o->tensor[i]] ? f->anchors * (f->fixed + f->classes) : t->dim[0], left);
        if (rc < 0) return rc;
        if (rc > 0)
            return kolo_fail(
                KOLO_EINPUT,
                "%s: it ends within %s: a damaged file, or the weights of another network than %s", w->path,
                t->name, g->name);
        left -= kolo_weights_at(w, (int)w->count - 1)->bytes;
    }
    if (left)
        return kolo_fail(KOLO_EINPUT,
                         "%s: it holds %zu bytes more than the layers of %s: the weights of another network",
                         w->path, left, g->name);
    return 0;
}

int kolo_darknet_read(kolo_weights *w, const kolo_graph *graph)
{
    darknet_order order;
    head_form form = {0};
    /* how many images the network has seen was 4 bytes long until version 0.2 */
    const size_t data = reader_number(w->map, 4) * 10 + reader_number(w->map + 4, 4) >= 2 ? 20 : 16;
    if (!graph)
        return kolo_fail(KOLO_EINPUT,
                         "%s: darknet's weights have no names: they can only be read for a network", w->path);
    if (w->bytes < data) return kolo_weights_refuse(w, "too short");
    int rc = kolo_darknet_order(graph, &order);
    if (rc < 0) return kolo_fail(KOLO_EINPUT, "%s: darknet's weights, but %s", w->path, kolo_error_text());
    rc = find_heads(graph, &form);
    if (rc == 0) {
        solve_classes(graph, &order, w->bytes - data, &form);
        rc = read_layers(w, graph, &order, &form, data);
    }
    free(form.head);
    kolo_darknet_order_free(&order);
    return rc;
}
