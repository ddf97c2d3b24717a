/* cuDNN's backend interface: handles, descriptors, execution. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/dnn.h"

struct cudnnContext {
    cudaStream_t stream;
};
typedef struct handle { /* what the program holds of an object */
    dnn_object *object;
} handle;

static __thread char last_words[256];

cudnnStatus_t dnn_fail(cudnnStatus_t status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(last_words, sizeof last_words, format, list);
    va_end(list);
    standin_log("cuDNN says %s: %s", cudnnGetErrorString(status), last_words);
    return status;
}

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
static const struct {
    cudnnStatus_t status;
    const char *name;
} words[] = {
#define WORD(name)  \
    {               \
        name, #name \
    }
    WORD(CUDNN_STATUS_SUCCESS),
    WORD(CUDNN_STATUS_NOT_INITIALIZED),
    WORD(CUDNN_STATUS_BAD_PARAM),
    WORD(CUDNN_STATUS_BAD_PARAM_NULL_POINTER),
    WORD(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER),
    WORD(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED),
    WORD(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE),
    WORD(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE),
    WORD(CUDNN_STATUS_NOT_SUPPORTED),
    WORD(CUDNN_STATUS_INTERNAL_ERROR),
    WORD(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
    WORD(CUDNN_STATUS_EXECUTION_FAILED),
    WORD(CUDNN_STATUS_EXECUTION_FAILED_CUDART),
#undef WORD
};

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].status == status) return words[i].name;
    return "CUDNN_STATUS_(another one)";
}

void cudnnGetLastErrorString(char *text, size_t size)
{
    if (size) snprintf(text, size, "%s", last_words);
    last_words[0] = 0;
}

/* Counted; the failure that is wanted, or one of the GPU. */
static cudnnStatus_t enter(const char *call, enum standin_kind kind, cudnnStatus_t otherwise)
{
    int code;
    if (standin_begin(call, kind, &code)) return code ? (cudnnStatus_t)code : otherwise;
    if (standin_on_host_function()) standin_defect("%s was called in a host function", call);
    return CUDNN_STATUS_SUCCESS;
}
#define ENTER(kind, otherwise)                                                                       \
    do {                                                                                             \
        cudnnStatus_t enter_ = enter(__func__, (kind), (otherwise));                                 \
        if (enter_ != CUDNN_STATUS_SUCCESS) return dnn_fail(enter_, "a failure that was asked for"); \
    } while (0)

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    ENTER(STANDIN_CREATION, CUDNN_STATUS_NOT_INITIALIZED);
    if (standin_devices() == 0 || standin_sticky) return dnn_fail(CUDNN_STATUS_INTERNAL_ERROR, "no GPU");
    *out = calloc(1, sizeof **out);
    if (!*out) abort();
    standin_track("cuDNN handle", *out);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    int code;
    standin_begin(__func__, STANDIN_CREATION, &code);
    if (!standin_untrack("cuDNN handle", h)) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "no such handle");
    free(h);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream)
{
    ENTER(STANDIN_OTHER, CUDNN_STATUS_INTERNAL_ERROR);
    if (!standin_is("cuDNN handle", h)) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "no such handle");
    if (standin_stream_device(stream) < 0) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "no such stream");
    h->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- objects ---- */

size_t dnn_type_size(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    default: return 4;
    }
}

dnn_object *dnn_new(cudnnBackendDescriptorType_t type)
{
    dnn_object *o = calloc(1, sizeof *o);
    if (!o) abort();
    o->type = type;
    o->references = 1;
    return o;
}

static void clear(dnn_value *v)
{
    if (v->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < v->count; i++) dnn_drop(((dnn_object **)v->data)[i]);
    free(v->data);
}

void dnn_drop(dnn_object *o)
{
    if (!o || --o->references > 0) return;
    for (int i = 0; i < o->values; i++) clear(&o->value[i]);
    free(o->graph);
    free(o);
}

const dnn_value *dnn_find(const dnn_object *o, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < o->values; i++)
        if (o->value[i].name == name) return &o->value[i];
    return NULL;
}

int64_t dnn_int(const dnn_object *o, cudnnBackendAttributeName_t name, int i)
{
    const dnn_value *v = dnn_find(o, name);
    if (!v || i >= v->count) return 0;
    return dnn_type_size(v->type) == 8 ? ((const int64_t *)v->data)[i] : ((const int *)v->data)[i];
}

dnn_object *dnn_child(const dnn_object *o, cudnnBackendAttributeName_t name, int i)
{
    const dnn_value *v = dnn_find(o, name);
    return v && v->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < v->count ? ((dnn_object **)v->data)[i] : NULL;
}

/* data: values, or objects, whose references this takes. */
void dnn_put(dnn_object *o, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
             const void *data)
{
    size_t bytes = (size_t)count * dnn_type_size(type);
    dnn_value v = {name, type, count, malloc(bytes + 1)};
    if (!v.data) abort();
    if (bytes) memcpy(v.data, data, bytes);
    for (int i = 0; i < o->values; i++)
        if (o->value[i].name == name) {
            clear(&o->value[i]);
            o->value[i] = v;
            return;
        }
    if (o->values == DNN_ATTRIBUTES) abort();
    o->value[o->values++] = v;
}

/* ---- descriptors ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    ENTER(STANDIN_CREATION, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    if (!dnn_kind_known(type))
        return dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                        "descriptors of type %d are unknown", (int)type);
    handle *h = calloc(1, sizeof *h);
    if (!h) abort();
    h->object = dnn_new(type);
    standin_track("cuDNN descriptor", h);
    *out = h;
    return CUDNN_STATUS_SUCCESS;
}

static handle *known(cudnnBackendDescriptor_t d)
{
    if (standin_is("cuDNN descriptor", d)) return d;
    if (d) standin_defect("a cuDNN descriptor is used that is not there, or no longer");
    return NULL;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    int code;
    standin_begin(__func__, STANDIN_CREATION, &code);
    handle *h = known(d);
    if (!h) return dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == descriptor");
    standin_untrack("cuDNN descriptor", h);
    dnn_drop(h->object);
    free(h);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *data)
{
    ENTER(STANDIN_OTHER, CUDNN_STATUS_INTERNAL_ERROR);
    handle *h = known(d);
    if (!h) return dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == descriptor");
    dnn_object *o = h->object;
    if (o->finalized) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
    cudnnStatus_t rc = dnn_may_set(o, name, type, count, data);
    if (rc != CUDNN_STATUS_SUCCESS) return rc;
    if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        dnn_put(o, name, type, count, data);
        return CUDNN_STATUS_SUCCESS;
    }
    dnn_object **child = calloc((size_t)count + 1, sizeof *child);
    if (!child) abort();
    for (int64_t i = 0; i < count && rc == CUDNN_STATUS_SUCCESS; i++) {
        const handle *c = known(((const cudnnBackendDescriptor_t *)data)[i]);
        if (!c) rc = dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor among the values is NULL");
        else child[i] = c->object;
    }
    for (int64_t i = 0; i < count && rc == CUDNN_STATUS_SUCCESS; i++) child[i]->references++;
    if (rc == CUDNN_STATUS_SUCCESS) dnn_put(o, name, type, count, child);
    free(child);
    return rc;
}

static cudnnStatus_t give_descriptors(const dnn_value *v, int64_t n, void *data)
{
    for (int64_t i = 0; i < n; i++) {
        handle *to = known(((cudnnBackendDescriptor_t *)data)[i]);
        dnn_object *child = ((dnn_object **)v->data)[i];
        if (!to || to->object->type != child->type) {
            standin_defect("a cuDNN attribute is asked for into a descriptor of another type");
            return dnn_fail(CUDNN_STATUS_BAD_PARAM,
                            "the descriptors given for the answer are of another type");
        }
        child->references++;
        dnn_drop(to->object);
        to->object = child;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *count,
                                       void *data)
{
    ENTER(STANDIN_OTHER, CUDNN_STATUS_INTERNAL_ERROR);
    const handle *h = known(d);
    if (!h) return dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == descriptor");
    if (!h->object->finalized)
        return dnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalized");
    cudnnStatus_t rc = dnn_may_get(h->object, name, type);
    if (rc != CUDNN_STATUS_SUCCESS) return rc;
    const dnn_value *v = dnn_find(h->object, name);
    int64_t there = v ? v->count : 0, n = room < there ? room : there;
    if (count) *count = room > 0 && data ? n : there;
    if (count && room == 0 && name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) *count = 0; /* so does cuDNN */
    if (!data || n == 0) return CUDNN_STATUS_SUCCESS;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) return give_descriptors(v, n, data);
    memcpy(data, v->data, (size_t)n * dnn_type_size(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    ENTER(STANDIN_OTHER, CUDNN_STATUS_INTERNAL_ERROR);
    handle *h = known(d);
    if (!h) return dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nullptr == descriptor");
    if (h->object->finalized) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
    cudnnStatus_t rc = dnn_finalize(h->object);
    h->object->finalized = rc == CUDNN_STATUS_SUCCESS;
    return rc;
}

/* ---- execution ---- */

typedef struct execution {
    dnn_graph graph;
    void *pointer[DNN_TENSORS], *workspace;
} execution;

static int execute(standin_op *op)
{
    static uint64_t chance;
    const execution *e = op->work.argument;
    bool backwards = e->graph.conv.backwards;
    if (e->graph.conv.flavour == DNN_RANDOM) backwards = standin_random(&chance) & 1;
    memset(e->workspace, 0xFF, e->graph.workspace); /* whoever keeps something there loses it */
    dnn_graph_run(&e->graph, e->pointer, backwards);
    return STANDIN_DONE;
}

static cudnnStatus_t bind_pointers(const dnn_object *pack, execution *e)
{
    const dnn_value *ids = dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const dnn_value *pointers = dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    const dnn_value *workspace = dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    for (int t = 0; t < e->graph.tensors; t++) {
        const dnn_tensor *x = &e->graph.tensor[t];
        if (x->between) continue;
        for (int64_t i = 0; i < ids->count; i++)
            if (((const int64_t *)ids->data)[i] == x->uid) e->pointer[t] = ((void *const *)pointers->data)[i];
        if (!e->pointer[t])
            return dnn_fail(CUDNN_STATUS_BAD_PARAM, "no pointer for tensor %lld", (long long)x->uid);
        if ((uintptr_t)e->pointer[t] % (uintptr_t)x->align)
            return dnn_fail(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "tensor %lld", (long long)x->uid);
        if (standin_place_of(e->pointer[t], dnn_tensor_span(x)) != STANDIN_DEVICE) {
            standin_defect("tensor %lld of a convolution does not lie in device memory as a whole",
                           (long long)x->uid);
            return dnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "tensor %lld is not in device memory",
                            (long long)x->uid);
        }
    }
    if (workspace) e->workspace = *(void *const *)workspace->data;
    if (e->graph.workspace && standin_place_of(e->workspace, e->graph.workspace) != STANDIN_DEVICE) {
        standin_defect("the workspace of a convolution is not there, or too small for %zu bytes",
                       e->graph.workspace);
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "workspace");
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    ENTER(STANDIN_LAUNCH, CUDNN_STATUS_EXECUTION_FAILED);
    const handle *p = known(plan), *v = known(pack);
    if (!standin_is("cuDNN handle", h) || !p || !v)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no handle, plan or pack");
    if (p->object->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        v->object->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not a plan, or not a pack");
    if (!p->object->finalized || !v->object->finalized)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalized");
    const dnn_value *of = dnn_find(p->object, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    if (!of || *(const cudnnHandle_t *)of->data != h)
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "a plan of another handle");
    execution *e = calloc(1, sizeof *e);
    if (!e) abort();
    e->graph = *p->object->graph;
    cudnnStatus_t rc = bind_pointers(v->object, e);
    if (rc != CUDNN_STATUS_SUCCESS) {
        free(e);
        return rc;
    }
    const char *name = e->graph.name;
    double seconds = dnn_graph_seconds(&e->graph);
    standin_count_kernel(name);
    cudaError_t below = standin_enqueue(h->stream, &(standin_work){name, execute, free, e, seconds}, NULL);
    if (below == cudaSuccess && standin_sticky) below = standin_sticky;
    return below == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : dnn_fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "%s", cudaGetErrorName(below));
}
