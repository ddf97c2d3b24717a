/* Graphs of operations: one after another over f32 arrays. What lies between operations is rounded to its
 * type; of what goes to memory a later operation reads what it was before it was rounded. Which graphs
 * have a kernel is a table of texts: one letter for each tensor in memory in the order in which they are
 * met, a capital for f32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/dnn.h"

/* ---- what there is ---- */

static const struct kind {
    cudnnBackendDescriptorType_t type;
    int mode; /* of a pointwise operation */
    const char *word;
    int in[DNN_ENDS], out[DNN_ENDS]; /* attributes; 0: no more */
} kinds[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     0,
     "forward",
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     0,
     "data",
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX}},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     0,
     "filter",
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW}},
#define POINTWISE(mode, word) CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_POINTWISE_##mode, word
#define END(name) CUDNN_ATTR_OPERATION_POINTWISE_##name##DESC
    {POINTWISE(MUL, "mul"), {END(X), END(B)}, {END(Y)}},
    {POINTWISE(ADD, "add"), {END(X), END(B)}, {END(Y)}},
    {POINTWISE(SUB, "sub"), {END(X), END(B)}, {END(Y)}},
    {POINTWISE(RELU_FWD, "relu"), {END(X)}, {END(Y)}},
    {POINTWISE(RELU_BWD, "where"), {END(DY), END(X)}, {END(DX)}},
#undef END
    {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
     0,
     "stats",
     {CUDNN_ATTR_OPERATION_GENSTATS_XDESC},
     {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC}},
#define END(name) CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_##name
    {CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR,
     0,
     "norm",
     {END(MEAN_DESC), END(INVSTD_DESC), END(BN_SCALE_DESC), END(X_DESC), END(DY_DESC)},
     {END(DBN_SCALE_DESC), END(DBN_BIAS_DESC), END(EQ_DY_SCALE_DESC), END(EQ_X_SCALE_DESC), END(EQ_BIAS)}},
#undef END
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Beside a convolution alone those that cuDNN 9.19 has engines for in f16, on sm_80 and sm_90. */
#define AFFINE(x) "relu(add(mul(" x ",b),c))"
#define NORM(x, m, s, w, b) "add(mul(mul(sub(" x "," m ")," s ")," w ")," b ")"
static const struct pattern {
    const char *text, *name;
} patterns[] = {
    {"c=forward(a,b) D,E=stats(c)", "convolution and statistics"},
    {"e=forward(" AFFINE("a") ",d) F,G=stats(e)", "convolution of a norm and statistics"},
    {"e=filter(" AFFINE("a") ",d)", "convolution of a norm, weight gradient"},
#define SUMS "convolution, data gradient, sums of a norm"
    {"h=where(data(a,b)," NORM("c", "D", "E", "F", "G") ") I,J,K,L,M=norm(D,E,F,c,h)", SUMS},
    {"i=where(add(data(a,b),c)," NORM("d", "E", "F", "G", "H") ") J,K,L,M,N=norm(E,F,G,d,i)", SUMS},
    {"i=where(data(a,b),add(" NORM("c", "D", "E", "F", "G") ",h)) J,K,L,M,N=norm(D,E,F,c,i)", SUMS},
    {"j=where(add(data(a,b),c),add(" NORM("d", "E", "F", "G", "H") ",i)) K,L,M,N,O=norm(E,F,G,d,j)", SUMS},
    {"n=where(add(data(a,b),c),add(" NORM("d", "E", "F", "G", "H") "," NORM(
         "i", "J", "K", "L", "M") "))"
                                  " O,P,Q,R,S=norm(E,F,G,d,n) T,U,V,W,X=norm(J,K,L,i,n)",
     SUMS},
};

/* ---- from descriptors ---- */

static int tensor_of(dnn_graph *g, const dnn_object *o)
{
    dnn_tensor t = {0};
    dnn_tensor_describe(o, &t);
    for (int i = 0; i < g->tensors; i++)
        if (g->tensor[i].uid == t.uid) return i;
    if (g->tensors == DNN_TENSORS) abort();
    g->tensor[g->tensors] = t;
    return g->tensors++;
}

static int ends_of(dnn_graph *g, const dnn_object *o, const int name[DNN_ENDS], int at[DNN_ENDS])
{
    int n = 0;
    while (n < DNN_ENDS && name[n]) {
        const dnn_object *tensor = dnn_child(o, (cudnnBackendAttributeName_t)name[n], 0);
        if (!tensor) return -1;
        at[n++] = tensor_of(g, tensor);
    }
    return n;
}

static const struct kind *kind_of(const dnn_object *o)
{
    const dnn_object *pointwise = dnn_child(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
    const int mode = pointwise ? (int)dnn_int(pointwise, CUDNN_ATTR_POINTWISE_MODE, 0) : 0;
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].type == o->type && (!pointwise || kinds[i].mode == mode)) return &kinds[i];
    return NULL;
}

/* What the two inputs and the output of a convolution are. */
static const int part_of[3][3] = {[DNN_FORWARD] = {DNN_X, DNN_W, DNN_Y},
                                  [DNN_DATA] = {DNN_Y, DNN_W, DNN_X},
                                  [DNN_WEIGHT] = {DNN_X, DNN_Y, DNN_W}};

static bool is_convolution(const dnn_step *s)
{
    return !strcmp(s->word, "forward") || !strcmp(s->word, "data") || !strcmp(s->word, "filter");
}

static const char *add_step(dnn_graph *g, const dnn_object *o)
{
    const struct kind *k = kind_of(o);
    dnn_step *s = &g->step[g->steps++];
    if (!k) return "an operation that the stand-in does not know";
    s->word = k->word;
    s->ins = ends_of(g, o, k->in, s->in);
    s->outs = ends_of(g, o, k->out, s->out);
    if (s->ins < 0 || s->outs < 0) return "an operation without one of its tensors";
    if (!is_convolution(s)) return NULL;
    if (g->name) return "two convolutions";
    dnn_conv_describe(o, &g->conv);
    for (int i = 0; i < 3; i++) g->at[part_of[g->conv.pass][i]] = i < 2 ? s->in[i] : s->out[0];
    if (g->conv.beta != 0 && g->tensor[s->out[0]].between) return "a sum with what never lay in memory";
    g->name = k->word;
    return NULL;
}

static bool same_shape(const dnn_tensor *a, const dnn_tensor *b)
{
    return !memcmp(a->dim, b->dim, sizeof a->dim);
}

static bool is_channel(const dnn_tensor *a, int64_t channels)
{
    const int64_t dim[4] = {1, channels, 1, 1};
    return !memcmp(a->dim, dim, sizeof dim);
}

/* Inputs and outputs are of one shape, or have a number for each of its channels. */
static const char *step_wrong(const dnn_graph *g, const dnn_step *s, const bool made[DNN_TENSORS])
{
    const dnn_tensor *whole = &g->tensor[s->in[s->ins == DNN_ENDS ? 3 : 0]];
    for (int i = 0; i < s->ins; i++)
        if (g->tensor[s->in[i]].between && !made[s->in[i]])
            return "what is read between operations is not made yet";
    for (int i = 0; i < s->outs; i++)
        if (made[s->out[i]]) return "two operations make one tensor";
    for (int i = 0; i < s->ins + s->outs && !is_convolution(s); i++) {
        const dnn_tensor *t = &g->tensor[i < s->ins ? s->in[i] : s->out[i - s->ins]];
        if (!same_shape(t, whole) && !is_channel(t, whole->dim[1]))
            return "shapes of one operation do not fit";
    }
    return NULL;
}

static void append(char *text, size_t size, const char *more)
{
    if (strlen(text) + strlen(more) >= size) abort();
    strcat(text, more);
}

/* As the table of patterns says it. */
static void write_text(const dnn_graph *g, char text[1024])
{
    char name[DNN_TENSORS][256] = {{0}}, letter = 'a';
    text[0] = 0;
    for (const dnn_step *s = g->step; s < g->step + g->steps; s++) {
        char call[256];
        snprintf(call, sizeof call, "%s", s->word);
        for (int i = 0; i < s->ins + s->outs; i++) {
            const int t = i < s->ins ? s->in[i] : s->out[i - s->ins];
            const bool wide = g->tensor[t].type == CUDNN_DATA_FLOAT;
            if (!name[t][0] && !g->tensor[t].between)
                name[t][0] = (char)(wide ? letter - 'a' + 'A' : letter), letter++;
            if (i < s->ins) append(call, sizeof call, i ? "," : "("), append(call, sizeof call, name[t]);
            else if (!g->tensor[t].between)
                append(text, 1024, i > s->ins ? "," : *text ? " " : ""), append(text, 1024, name[t]);
        }
        append(call, sizeof call, ")");
        if (g->tensor[s->out[0]].between) snprintf(name[s->out[0]], sizeof name[0], "%s", call);
        else append(text, 1024, "="), append(text, 1024, call);
    }
}

static const char *name_of(const dnn_graph *g)
{
    static const char *const names[] = {"convolution", "convolution, data gradient",
                                        "convolution, weight gradient"};
    char text[1024];
    if (g->steps == 1) return names[g->conv.pass];
    write_text(g, text);
    standin_log("cuDNN is asked for %s", text);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (!strcmp(patterns[i].text, text)) return patterns[i].name;
    return NULL;
}

const char *dnn_graph_describe(const dnn_object *o, dnn_graph *g)
{
    bool made[DNN_TENSORS] = {false};
    const int64_t n = dnn_find(o, CUDNN_ATTR_OPERATIONGRAPH_OPS)->count;
    memset(g, 0, sizeof *g);
    if (n > DNN_STEPS) return "more operations than the stand-in takes";
    for (int i = 0; i < n; i++) {
        const char *wrong = add_step(g, dnn_child(o, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
        if (!wrong) wrong = step_wrong(g, &g->step[i], made);
        if (wrong) return wrong;
        for (int k = 0; k < g->step[i].outs; k++) made[g->step[i].out[k]] = true;
    }
    if (!g->name) return "no convolution";
    g->name = name_of(g);
    return NULL;
}

/* Prescribed, so that a test can say which must win: the plain engine with its largest tile, and not split;
 * and what does several operations at once. */
double dnn_graph_seconds(const dnn_graph *g)
{
    static const double rate[] = {[DNN_PLAIN] = 1e13,
                                  [DNN_TF32] = 4e13,
                                  [DNN_RANDOM] = 3e13,
                                  [DNN_WINOGRAD] = 2e13,
                                  [DNN_HALF_SUMS] = 5e13};
    static const double tile[] = {0.5, 1, 1.5, 8}, split[] = {1, 0.8, 0.6};
    const dnn_conv *c = &g->conv;
    const int64_t *w = c->tensor[DNN_W].dim, *y = c->tensor[DNN_Y].dim;
    const double flops = 2.0 * (double)(y[0] * y[1] * y[2] * y[3]) * (double)(w[1] * w[2] * w[3]);
    return (g->steps > 1 ? 1e-6 : 3e-6) + flops / (rate[c->flavour] * tile[c->tile] * split[c->split]);
}

/* ---- memory ---- */

static size_t type_bytes(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }

size_t dnn_tensor_span(const dnn_tensor *t)
{
    int64_t last = 0;
    for (int d = 0; d < 4; d++) last += (t->dim[d] - 1) * t->stride[d];
    return (size_t)(last + 1) * type_bytes(t->type);
}

static float rounded(float x, cudnnDataType_t type)
{
    if (type == CUDNN_DATA_FLOAT) return x;
    return type == CUDNN_DATA_HALF ? standin_from_half(standin_to_half(x))
                                   : standin_from_bf16(standin_to_bf16(x));
}

static float load(const void *p, int64_t i, cudnnDataType_t type)
{
    if (type == CUDNN_DATA_FLOAT) return ((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    return type == CUDNN_DATA_HALF ? standin_from_half(bits) : standin_from_bf16(bits);
}

static void store(void *p, int64_t i, cudnnDataType_t type, float x)
{
    if (type == CUDNN_DATA_FLOAT) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = type == CUDNN_DATA_HALF ? standin_to_half(x) : standin_to_bf16(x);
}

/* Element i of those packed as (0, 2, 3, 1), NHWC and KRSC: where it lies. Seven divisions: once a pixel. */
static int64_t place(const dnn_tensor *t, int64_t i)
{
    const int64_t *d = t->dim, *s = t->stride, b = i % d[1], pixel = i / d[1];
    return pixel / (d[2] * d[3]) * s[0] + b * s[1] + pixel / d[3] % d[2] * s[2] + pixel % d[3] * s[3];
}

/* ---- arithmetic ---- */

typedef struct evaluation {
    const dnn_graph *g;
    void *const *pointer;
    float *value[DNN_TENSORS]; /* packed */
    bool backwards;
} evaluation;

static float *room(evaluation *e, int t)
{
    float *v = e->value[t] = calloc((size_t)dnn_tensor_elements(&e->g->tensor[t]), sizeof *v);
    if (!v) abort();
    return v;
}

static void gather(evaluation *e, int t)
{
    const dnn_tensor *x = &e->g->tensor[t];
    const int64_t channels = x->dim[1];
    if (e->value[t]) return;
    float *v = room(e, t);
    for (int64_t i = 0, n = dnn_tensor_elements(x); i < n; i += channels) {
        const int64_t at = place(x, i);
        for (int64_t b = 0; b < channels; b++) {
            v[i + b] = load(e->pointer[t], at + b * x->stride[1], x->type);
            if (e->g->conv.flavour == DNN_TF32) v[i + b] = standin_to_tf32(v[i + b]);
        }
    }
}

static void finish(evaluation *e, int t)
{
    const dnn_tensor *x = &e->g->tensor[t];
    const int64_t channels = x->dim[1];
    float *v = e->value[t];
    for (int64_t i = 0, n = dnn_tensor_elements(x); i < n; i += channels) {
        const int64_t at = place(x, i);
        for (int64_t b = 0; b < channels; b++) {
            if (x->between) v[i + b] = rounded(v[i + b], x->type);
            else store(e->pointer[t], at + b * x->stride[1], x->type, v[i + b]);
        }
    }
}

static void convolve(evaluation *e, const dnn_step *s)
{
    const dnn_graph *g = e->g;
    const int t = s->out[0];
    float *const p[3] = {e->value[g->at[0]], e->value[g->at[1]], e->value[g->at[2]]}, *out = e->value[t];
    dnn_conv_run(&g->conv, p, e->backwards);
    for (int64_t i = 0, n = dnn_tensor_elements(&g->tensor[t]); i < n; i++) {
        const float old =
            g->conv.beta != 0 ? load(e->pointer[t], place(&g->tensor[t], i), g->tensor[t].type) : 0;
        out[i] = g->conv.alpha * out[i] + g->conv.beta * old;
    }
}

static void pointwise(evaluation *e, const dnn_step *s)
{
    const dnn_tensor *x = &e->g->tensor[s->in[0]];
    const float *a = e->value[s->in[0]], *b = s->ins > 1 ? e->value[s->in[1]] : NULL;
    const bool channel = b && !same_shape(&e->g->tensor[s->in[1]], x);
    for (int64_t i = 0, n = dnn_tensor_elements(x); i < n; i++) {
        const float other = b ? b[channel ? i % x->dim[1] : i] : 0;
        e->value[s->out[0]][i] = !strcmp(s->word, "mul")    ? a[i] * other
                                 : !strcmp(s->word, "add")  ? a[i] + other
                                 : !strcmp(s->word, "sub")  ? a[i] - other
                                 : !strcmp(s->word, "relu") ? (a[i] > 0 ? a[i] : 0)
                                                            : (other > 0 ? a[i] : 0);
    }
}

/* Sums over each channel: of a and of a b, which are packed. */
static void sums(const dnn_tensor *t, const float *a, const float *b, int64_t channel, double sum[2])
{
    sum[0] = sum[1] = 0;
    for (int64_t i = channel, n = dnn_tensor_elements(t); i < n; i += t->dim[1]) {
        sum[0] += (double)a[i];
        sum[1] += (double)a[i] * (double)b[i];
    }
}

static void statistics(evaluation *e, const dnn_step *s)
{
    const dnn_tensor *x = &e->g->tensor[s->in[0]];
    for (int64_t k = 0; k < x->dim[1]; k++) {
        double sum[2];
        sums(x, e->value[s->in[0]], e->value[s->in[0]], k, sum);
        for (int i = 0; i < 2; i++) e->value[s->out[i]][k] = (float)sum[i];
    }
}

/* dscale, dbias, and what dx is made of: eq_dy_scale dy + eq_x_scale x + eq_bias */
static void norm_weights(evaluation *e, const dnn_step *s)
{
    const float *mean = e->value[s->in[0]], *inverse = e->value[s->in[1]], *scale = e->value[s->in[2]];
    const dnn_tensor *x = &e->g->tensor[s->in[3]];
    const double lines = (double)(dnn_tensor_elements(x) / x->dim[1]);
    for (int64_t k = 0; k < x->dim[1]; k++) {
        const double m = (double)mean[k], i = (double)inverse[k], w = (double)scale[k];
        double sum[2];
        sums(x, e->value[s->in[4]], e->value[s->in[3]], k, sum);
        const double dscale = (sum[1] - m * sum[0]) * i, slope = -w * i * i * dscale / lines;
        const double result[DNN_ENDS] = {dscale, sum[0], w * i, slope, -w * i * sum[0] / lines - slope * m};
        for (int r = 0; r < DNN_ENDS; r++) e->value[s->out[r]][k] = (float)result[r];
    }
}

void dnn_graph_run(const dnn_graph *g, void *const pointer[DNN_TENSORS], bool backwards)
{
    evaluation e = {g, pointer, {NULL}, backwards};
    for (const dnn_step *s = g->step; s < g->step + g->steps; s++) {
        for (int i = 0; i < s->ins; i++) gather(&e, s->in[i]);
        for (int i = 0; i < s->outs; i++) room(&e, s->out[i]);
        if (is_convolution(s)) convolve(&e, s);
        else if (!strcmp(s->word, "stats")) statistics(&e, s);
        else if (!strcmp(s->word, "norm")) norm_weights(&e, s);
        else pointwise(&e, s);
        for (int i = 0; i < s->outs; i++) finish(&e, s->out[i]);
    }
    for (int i = 0; i < g->tensors; i++) free(e.value[i]);
}
