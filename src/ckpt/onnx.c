#include "ckpt/onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "kolo/error.h"

#if KOLO_ONNX
#include <onnx.pb-c.h>

enum {
    FLOAT = 1,
    INT64 = 7,
    ATTRIBUTE_FLOAT = 1,
    ATTRIBUTE_INT = 2,
    ATTRIBUTE_STRING = 3,
    ATTRIBUTE_INTS = 7,
    OPSET = 20,
    IR_VERSION = 9
};

typedef struct block {
    struct block *next;
    max_align_t data[];
} block;

struct onnx_writer {
    const kolo_graph *graph;
    kolo_exec *exec;
    bool ema;
    Onnx__GraphProto proto;
    int64_t node_capacity, constant_capacity;
    int64_t fresh; /* names made so far */
    block *kept;
    int rc; /* of the first failure */
};

/* ---- memory and names ---- */

static void *onnx_keep(onnx_writer *w, size_t bytes)
{
    block *b = w->rc < 0 ? NULL : kolo_alloc(sizeof *b + bytes);
    if (!b) {
        if (w->rc == 0) w->rc = KOLO_ENOMEM;
        return NULL;
    }
    b->next = w->kept;
    w->kept = b;
    return b->data;
}

static char *keep_text(onnx_writer *w, const char *text)
{
    char *copy = text ? onnx_keep(w, strlen(text) + 1) : NULL;
    return copy ? memcpy(copy, text, strlen(text) + 1) : NULL;
}

static char *fresh_name(onnx_writer *w)
{
    char name[32];
    snprintf(name, sizeof name, "_%" PRId64, w->fresh++);
    return keep_text(w, name);
}

const kolo_graph *onnx_graph(const onnx_writer *w) { return w->graph; }

float *onnx_values(onnx_writer *w, int tensor)
{
    float *values = kolo_alloc((size_t)kolo_tensor_count(&w->graph->tensor[tensor]) * sizeof *values + 1);
    const int rc = values ? kolo_exec_get(w->exec, w->ema ? "ema" : "param", tensor, values) : KOLO_ENOMEM;
    if (rc == 0) return values;
    if (w->rc == 0) w->rc = rc;
    free(values);
    return NULL;
}

/* ---- nodes ---- */

/* Adds `one` to a list of pointers that protobuf-c counts by size_t. */
static bool onnx_append(onnx_writer *w, void *list, size_t *n, int64_t *capacity, void *one)
{
    int rc = one ? kolo_grow(list, capacity, (int64_t)*n, sizeof(void *)) : KOLO_ENOMEM;
    if (rc < 0 && w->rc == 0) w->rc = rc;
    if (rc == 0) (*(void ***)list)[(*n)++] = one;
    return rc == 0;
}

const char *onnx_node(onnx_writer *w, const char *op, const char *out, int n, const char *const *in)
{
    Onnx__NodeProto *node = onnx_keep(w, sizeof *node);
    if (!node) return NULL;
    onnx__node_proto__init(node);
    node->op_type = keep_text(w, op);
    node->input = onnx_keep(w, (size_t)n * sizeof *node->input + 1);
    node->output = onnx_keep(w, sizeof *node->output);
    node->attribute = onnx_keep(w, 8 * sizeof *node->attribute);
    for (int i = 0; i < n && w->rc == 0; i++) {
        if (!in[i]) break;
        node->input[node->n_input++] = keep_text(w, in[i]);
    }
    char *name = out ? keep_text(w, out) : fresh_name(w);
    if (w->rc < 0) return NULL;
    node->output[node->n_output++] = name;
    return onnx_append(w, &w->proto.node, &w->proto.n_node, &w->node_capacity, node) ? name : NULL;
}

const char *onnx_one(onnx_writer *w, const char *op, const char *out, const char *x)
{
    return x ? onnx_node(w, op, out, 1, &x) : NULL;
}

const char *onnx_two(onnx_writer *w, const char *op, const char *out, const char *x, const char *y)
{
    return x && y ? onnx_node(w, op, out, 2, (const char *[]){x, y}) : NULL;
}

static Onnx__AttributeProto *attribute(onnx_writer *w, const char *name, int type)
{
    Onnx__AttributeProto *a = w->proto.n_node ? onnx_keep(w, sizeof *a) : NULL;
    if (!a) return NULL;
    onnx__attribute_proto__init(a);
    a->name = keep_text(w, name);
    a->has_type = true;
    a->type = type;
    Onnx__NodeProto *node = w->proto.node[w->proto.n_node - 1];
    node->attribute[node->n_attribute++] = a; /* no operation has eight */
    return a;
}

void onnx_int(onnx_writer *w, const char *name, int64_t value)
{
    Onnx__AttributeProto *a = attribute(w, name, ATTRIBUTE_INT);
    if (a) a->has_i = true, a->i = value;
}

void onnx_real(onnx_writer *w, const char *name, double value)
{
    Onnx__AttributeProto *a = attribute(w, name, ATTRIBUTE_FLOAT);
    if (a) a->has_f = true, a->f = (float)value;
}

void onnx_text(onnx_writer *w, const char *name, const char *value)
{
    Onnx__AttributeProto *a = attribute(w, name, ATTRIBUTE_STRING);
    if (!a) return;
    a->has_s = true;
    a->s.data = (uint8_t *)keep_text(w, value);
    a->s.len = a->s.data ? strlen(value) : 0;
}

void onnx_ints(onnx_writer *w, const char *name, int n, const int64_t *value)
{
    Onnx__AttributeProto *a = attribute(w, name, ATTRIBUTE_INTS);
    if (!a || !(a->ints = onnx_keep(w, (size_t)n * sizeof *a->ints))) return;
    memcpy(a->ints, value, (size_t)n * sizeof *a->ints);
    a->n_ints = (size_t)n;
}

/* ---- constants ---- */

static const char *constant(onnx_writer *w, char *name, int type, int rank, const int64_t *dim,
                            const void *data, size_t bytes)
{
    Onnx__TensorProto *t = onnx_keep(w, sizeof *t);
    int64_t *shape = onnx_keep(w, (size_t)rank * sizeof *shape + 1);
    uint8_t *copy = onnx_keep(w, bytes + 1);
    if (!t || !shape || !copy || !name) return NULL;
    onnx__tensor_proto__init(t);
    if (rank) memcpy(shape, dim, (size_t)rank * sizeof *shape);
    if (bytes) memcpy(copy, data, bytes);
    t->dims = shape;
    t->n_dims = (size_t)rank;
    t->has_data_type = t->has_raw_data = true;
    t->data_type = type;
    t->name = name;
    t->raw_data = (ProtobufCBinaryData){bytes, copy};
    return onnx_append(w, &w->proto.initializer, &w->proto.n_initializer, &w->constant_capacity, t) ? name
                                                                                                    : NULL;
}

const char *onnx_whole(onnx_writer *w, int n, const int64_t *value)
{
    return constant(w, fresh_name(w), INT64, 1, (int64_t[]){n}, value, (size_t)n * sizeof *value);
}

const char *onnx_index(onnx_writer *w, int64_t value)
{
    return constant(w, fresh_name(w), INT64, 0, NULL, &value, sizeof value);
}

const char *onnx_floats(onnx_writer *w, int rank, const int64_t *dim, const float *value)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dim[i];
    return constant(w, fresh_name(w), FLOAT, rank, dim, value, (size_t)count * sizeof *value);
}

const char *onnx_reshape(onnx_writer *w, const char *out, const char *x, int n, const int64_t *dim)
{
    return onnx_two(w, "Reshape", out, x, onnx_whole(w, n, dim));
}

const char *onnx_transpose(onnx_writer *w, const char *out, const char *x, int n, const int64_t *order)
{
    const char *y = onnx_one(w, "Transpose", out, x);
    if (y) onnx_ints(w, "perm", n, order);
    return y;
}

const char *onnx_slice(onnx_writer *w, const char *out, const char *x, int n, const int64_t *axis,
                       const int64_t *begin, const int64_t *end, const int64_t *step)
{
    const char *in[] = {x, onnx_whole(w, n, begin), onnx_whole(w, n, end), onnx_whole(w, n, axis),
                        onnx_whole(w, n, step)};
    return x ? onnx_node(w, "Slice", out, 5, in) : NULL;
}

/* ---- the graph ---- */

/* A tensor's name; what the pixels become is what the file begins with. */
static const char *name_of(const onnx_writer *w, int tensor)
{
    if (tensor < 0) return NULL;
    const kolo_tensor *t = &w->graph->tensor[tensor];
    return t->producer >= 0 && w->graph->node[t->producer].op == KOLO_OP_normalize ? "input" : t->name;
}

/* Nodes that the outputs need: needed[tensor]. */
static void find_needed(const kolo_graph *g, bool *needed)
{
    for (int t = 0; t < g->tensors; t++) needed[t] = kolo_graph_is_output(g, t);
    for (int64_t i = g->nodes; i-- > 0;) {
        const kolo_node *n = &g->node[i];
        if (n->backward || n->op == KOLO_OP_normalize || n->out[0] < 0 || !needed[n->out[0]]) continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0) needed[n->in[k]] = true;
    }
}

static int emit_nodes(onnx_writer *w, const bool *needed)
{
    const kolo_graph *g = w->graph;
    for (int64_t i = 0; i < g->nodes && w->rc == 0; i++) {
        const kolo_node *n = &g->node[i];
        if (n->backward || n->op == KOLO_OP_normalize || n->out[0] < 0 || !needed[n->out[0]]) continue;
        if (!onnx_table[n->op])
            return kolo_fail(KOLO_ECONFIG, "%s: the operation %s cannot be written as ONNX",
                             g->tensor[n->out[0]].name, kolo_op_table[n->op].name);
        onnx_operation o = {.node = n, .out = name_of(w, n->out[0]), .n_in = n->n_in};
        for (int k = 0; k < n->n_in; k++) o.in[k] = name_of(w, n->in[k]);
        if (!onnx_table[n->op](w, &o) && w->rc == 0)
            w->rc = kolo_fail(KOLO_EINTERNAL, "%s could not be written as ONNX", o.out);
    }
    return w->rc;
}

/* Parameters and buffers that a node reads under their own names. */
static int add_parameters(onnx_writer *w)
{
    const kolo_graph *g = w->graph;
    bool *used = onnx_keep(w, (size_t)g->tensors + 1);
    for (size_t i = 0; used && i < w->proto.n_node; i++)
        for (size_t k = 0; k < w->proto.node[i]->n_input; k++) {
            const int t = kolo_graph_find(g, w->proto.node[i]->input[k]);
            if (t >= 0) used[t] = true;
        }
    for (int t = 0; used && w->rc == 0 && t < g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        float *values =
            used[t] && (x->role == KOLO_ROLE_PARAM || x->role == KOLO_ROLE_BUFFER) ? onnx_values(w, t) : NULL;
        if (values)
            constant(w, keep_text(w, x->name), FLOAT, x->rank, x->dim, values,
                     (size_t)kolo_tensor_count(x) * sizeof *values);
        free(values);
    }
    return w->rc;
}

/* f32, any number of rows */
static Onnx__ValueInfoProto *value_info(onnx_writer *w, const char *name, const kolo_tensor *t)
{
    Onnx__ValueInfoProto *v = onnx_keep(w, sizeof *v);
    Onnx__TypeProto *type = onnx_keep(w, sizeof *type);
    Onnx__TypeProto__Tensor *tensor = onnx_keep(w, sizeof *tensor);
    Onnx__TensorShapeProto *shape = onnx_keep(w, sizeof *shape);
    Onnx__TensorShapeProto__Dimension *dim = onnx_keep(w, (size_t)t->rank * sizeof *dim),
                                      **list = onnx_keep(w, (size_t)t->rank * sizeof *list);
    if (w->rc < 0) return NULL;
    onnx__value_info_proto__init(v);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor);
    onnx__tensor_shape_proto__init(shape);
    for (int d = 0; d < t->rank; d++) {
        onnx__tensor_shape_proto__dimension__init(list[d] = &dim[d]);
        if (d == 0) dim[d].dim_param = keep_text(w, "N");
        else dim[d].has_dim_value = true, dim[d].dim_value = t->dim[d];
    }
    shape->dim = list;
    shape->n_dim = (size_t)t->rank;
    tensor->has_elem_type = true;
    tensor->elem_type = FLOAT;
    tensor->shape = shape;
    type->tensor_type = tensor;
    v->name = keep_text(w, name);
    v->type = type;
    return v;
}

static int add_ends(onnx_writer *w)
{
    const kolo_graph *g = w->graph;
    w->proto.input = onnx_keep(w, sizeof *w->proto.input);
    w->proto.output = onnx_keep(w, (KOLO_MAX_HEADS + 1) * sizeof *w->proto.output);
    for (int64_t i = 0; i < g->nodes && w->rc == 0; i++)
        if (g->node[i].op == KOLO_OP_normalize && w->proto.n_input == 0)
            w->proto.input[w->proto.n_input++] = value_info(w, "input", &g->tensor[g->node[i].out[0]]);
    /* a classifier's features stand behind what it says, which readers take for the result */
    for (int last = 0; last < 2; last++)
        for (int t = 0; t < g->tensors && w->rc == 0; t++)
            if (kolo_graph_is_output(g, t) && (t == g->features) == last)
                w->proto.output[w->proto.n_output++] = value_info(w, g->tensor[t].name, &g->tensor[t]);
    return w->rc;
}

/* How pixels of 0 to 255 become the input: (pixel / 255 - mean) / std; channels in the order of the
 * pixels. */
static int scale_text(const kolo_graph *g, bool std, char *text, size_t size)
{
    const kolo_node *n = NULL;
    size_t used = 0;
    for (int64_t i = 0; i < g->nodes && !n; i++)
        if (g->node[i].op == KOLO_OP_normalize) n = &g->node[i];
    if (!n) return kolo_fail(KOLO_EINTERNAL, "%s has no input of images", g->name);
    for (int64_t c = 0; c < g->tensor[n->out[0]].dim[1] && c < 4 && used < size; c++)
        used += (size_t)snprintf(text + used, size - used, "%s%.9g", c ? "," : "",
                                 (double)(std ? n->a.std : n->a.mean)[c]);
    return 0;
}

/* Their order in the input. */
static const char *channels_of(const kolo_graph *g)
{
    for (int64_t i = 0; i < g->nodes; i++)
        if (g->node[i].op == KOLO_OP_normalize)
            return g->tensor[g->node[i].out[0]].dim[1] != 3 ? "gray" : g->node[i].a.reverse ? "BGR" : "RGB";
    return "";
}

static int write_model(onnx_writer *w, const char *path, const char *classes)
{
    char mean[96], std[96];
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets = &opset;
    enum { ENTRIES = 4 };
    Onnx__StringStringEntryProto entry[ENTRIES], *entries[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) {
        onnx__string_string_entry_proto__init(&entry[i]);
        entries[i] = &entry[i];
    }
    KOLO_TRY(scale_text(w->graph, false, mean, sizeof mean));
    KOLO_TRY(scale_text(w->graph, true, std, sizeof std));
    entry[0].key = keep_text(w, "mean"), entry[0].value = mean;
    entry[1].key = keep_text(w, "std"), entry[1].value = std;
    entry[2].key = keep_text(w, "channels"), entry[2].value = keep_text(w, channels_of(w->graph));
    entry[3].key = keep_text(w, "classes"), entry[3].value = keep_text(w, classes ? classes : "");
    opset.domain = keep_text(w, "");
    opset.has_version = true, opset.version = OPSET;
    model.has_ir_version = true, model.ir_version = IR_VERSION;
    model.producer_name = keep_text(w, "kolo");
    model.producer_version = keep_text(w, KOLO_VERSION);
    model.graph = &w->proto;
    model.opset_import = &opsets, model.n_opset_import = 1;
    model.metadata_props = entries, model.n_metadata_props = classes ? ENTRIES : ENTRIES - 1;
    w->proto.name = keep_text(w, w->graph->name);
    KOLO_TRY(w->rc);
    const size_t bytes = onnx__model_proto__get_packed_size(&model);
    if (bytes > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: an ONNX file cannot be longer than 2 GiB; this network needs %zu bytes", path,
                         bytes);
    uint8_t *packed = kolo_alloc(bytes);
    if (!packed) return KOLO_ENOMEM;
    onnx__model_proto__pack(&model, packed);
    const int rc = kolo_file_write_atomic(path, packed, bytes);
    free(packed);
    return rc;
}

int kolo_onnx_export(const char *path, kolo_exec *exec, const kolo_plan *plan, const kolo_export *how)
{
    onnx_writer w = {.graph = plan->graph, .exec = exec, .ema = how->ema, .proto = ONNX__GRAPH_PROTO__INIT};
    bool *needed = kolo_alloc((size_t)plan->graph->tensors * sizeof *needed + 1);
    int rc = needed ? 0 : KOLO_ENOMEM;
    if (rc == 0) {
        find_needed(plan->graph, needed);
        rc = emit_nodes(&w, needed);
    }
    if (rc == 0) rc = add_parameters(&w);
    if (rc == 0) rc = add_ends(&w);
    if (rc == 0) rc = write_model(&w, path, how->classes);
    free(needed);
    free(w.proto.node);
    free(w.proto.initializer);
    for (block *b = w.kept, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    return rc;
}

#else

int kolo_onnx_export(const char *path, kolo_exec *exec, const kolo_plan *plan, const kolo_export *how)
{
    (void)exec, (void)plan, (void)how;
    return kolo_fail(KOLO_ECONFIG,
                     "%s: this program was built without ONNX: install protobuf-c (libprotobuf-c-dev, "
                     "protobuf-c-compiler) and build again",
                     path);
}

#endif
