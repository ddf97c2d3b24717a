/* The stand-in for cuDNN beside the real library, which needs no GPU to judge descriptors: both are given the
 * same right and wrong things, and must say the same. Skipped where libcudnn.so.9 is not found. */
#include <cudnn.h>
#include <dlfcn.h>
#include <stdbool.h>

#include "cuda_rig.h"

typedef cudnnBackendDescriptor_t descriptor;
typedef struct library {
    const char *name;
    __typeof__(cudnnBackendCreateDescriptor) *create;
    __typeof__(cudnnBackendDestroyDescriptor) *destroy;
    __typeof__(cudnnBackendSetAttribute) *set;
    __typeof__(cudnnBackendGetAttribute) *get;
    __typeof__(cudnnBackendFinalize) *finalize;
} library;

static library open_library(const char *name, void *from)
{
    static const char *const call[] = {"CreateDescriptor", "DestroyDescriptor", "SetAttribute",
                                       "GetAttribute", "Finalize"};
    library l = {.name = name};
    void **entry[] = {(void **)&l.create, (void **)&l.destroy, (void **)&l.set, (void **)&l.get,
                      (void **)&l.finalize};
    for (int i = 0; i < 5; i++) {
        char symbol[64];
        snprintf(symbol, sizeof symbol, "cudnnBackend%s", call[i]);
        if (!(*entry[i] = dlsym(from, symbol))) skip_all("%s has no %s", name, symbol);
    }
    return l;
}

static void *find_real(void)
{
    const char *home[] = {getenv("CUDNN_HOME"), getenv("CUDA_HOME"), "/usr/local/cuda"};
    static const char *const place[] = {"lib64", "lib"};
    void *found = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; !found && i < 6; i++) {
        char path[4096];
        if (!home[i / 2]) continue;
        snprintf(path, sizeof path, "%s/%s/libcudnn.so.9", home[i / 2], place[i % 2]);
        found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return found;
}

/* ---- pieces ---- */

/* What one question has made, until it is answered. */
enum { MOST = 16 };
static descriptor made[MOST];
static int count;

static descriptor make(const library *l, cudnnBackendDescriptorType_t type)
{
    descriptor d = NULL;
    if (count == MOST || l->create(type, &d) != CUDNN_STATUS_SUCCESS)
        printf("Bail out! %s makes no descriptor\n", l->name), exit(1);
    return made[count++] = d;
}

static void destroy(const library *l, descriptor d)
{
    for (int i = 0; i < count; i++)
        if (made[i] == d) made[i] = made[--count];
    l->destroy(d);
}

static int set_ints(const library *l, descriptor d, cudnnBackendAttributeName_t name, int64_t n,
                    const int64_t *v)
{
    return l->set(d, name, CUDNN_TYPE_INT64, n, v);
}

static int set_child(const library *l, descriptor d, cudnnBackendAttributeName_t name, descriptor child)
{
    return l->set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &child);
}

static descriptor tensor(const library *l, int64_t uid, int64_t n, int64_t c, int64_t h, int64_t w,
                         cudnnDataType_t type)
{
    descriptor d = make(l, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t dim[4] = {n, c, h, w}, stride[4] = {c * h * w, 1, c * w, c}, align = 16;
    l->set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_ints(l, d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dim);
    set_ints(l, d, CUDNN_ATTR_TENSOR_STRIDES, 4, stride);
    set_ints(l, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid);
    set_ints(l, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &align);
    return d;
}

static descriptor geometry(const library *l)
{
    descriptor d = make(l, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const int64_t axes = 2, one[2] = {1, 1};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    set_ints(l, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &axes);
    l->set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    l->set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_ints(l, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, one);
    set_ints(l, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, one);
    set_ints(l, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, one);
    set_ints(l, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, one);
    return d;
}

/* y (2, 16, height, 5) = conv of x (2, 8, 5, 5) with w (16, channels, 3, 3), padding 1. */
static descriptor operation(const library *l, int64_t height, int64_t channels, bool finalized)
{
    descriptor d = make(l, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR), c = geometry(l);
    descriptor t[3] = {tensor(l, 1, 2, 8, 5, 5, CUDNN_DATA_FLOAT),
                       tensor(l, 2, 16, channels, 3, 3, CUDNN_DATA_FLOAT),
                       tensor(l, 3, 2, 16, height, 5, CUDNN_DATA_FLOAT)};
    const float one = 1, zero = 0;
    for (int i = 0; i < 3; i++) l->finalize(t[i]);
    if (finalized) l->finalize(c);
    l->set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    l->set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    set_child(l, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c);
    set_child(l, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, t[0]);
    set_child(l, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, t[1]);
    set_child(l, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, t[2]);
    return d;
}

/* ---- cases: what a library answers, as one number ---- */

static int64_t answers_of_get(const library *l, descriptor d, int64_t room, bool array)
{
    int64_t v[8], n = -7;
    int rc = l->get(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, room, &n, array ? v : NULL);
    return rc * 100 + n;
}

static int knob_twice(const library *l)
{
    descriptor config = make(l, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
               knob = make(l, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    const cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_TILE_SIZE;
    const int64_t value = 1;
    l->set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    set_ints(l, knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1, &value);
    l->finalize(knob);
    return l->set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, 2,
                  (descriptor[]){knob, knob});
}

static int pack(const library *l, int64_t pointers, bool change)
{
    descriptor d = make(l, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    void *p[3] = {(void *)256, (void *)512, (void *)1024}, *workspace = NULL;
    const int64_t uid[3] = {1, 2, 3};
    set_ints(l, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3, uid);
    l->set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers, p);
    l->set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    int rc = l->finalize(d);
    return change ? set_ints(l, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3, uid) : rc;
}

enum { CASES = 28 };
static const char *const case_name[CASES] = {"a descriptor of no kind",
                                             "destroying none",
                                             "setting an attribute of none",
                                             "an attribute of another type",
                                             "two values for one",
                                             "no value",
                                             "no array",
                                             "an attribute of another kind",
                                             "a tensor without anything",
                                             "asking before it is finalized",
                                             "as many strides as dimensions",
                                             "finalizing twice",
                                             "setting afterwards",
                                             "asking for another type",
                                             "asking for another kind's attribute",
                                             "asking how many",
                                             "asking for two of four",
                                             "asking without an array",
                                             "an operation with a geometry that is not finalized",
                                             "an operation whose output is too high",
                                             "one whose channels do not fit",
                                             "an empty operation",
                                             "a factor that is no number",
                                             "a right operation",
                                             "a graph of it",
                                             "a knob twice",
                                             "a pack with too few pointers",
                                             "changing a pack"};

static int64_t answer(const library *l, int n)
{
    const int64_t one = 1, four[4] = {2, 8, 5, 5};
    const float real = 1;
    int64_t asked, there;
    descriptor raw = make(l, CUDNN_BACKEND_TENSOR_DESCRIPTOR), x = tensor(l, 1, 2, 8, 5, 5, CUDNN_DATA_FLOAT),
               d;
    int whole = l->finalize(x);
    if (whole) return whole;
    switch (n) {
    case 0: return l->create((cudnnBackendDescriptorType_t)99, &d);
    case 1: return l->destroy(NULL);
    case 2: return set_ints(l, NULL, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &one);
    case 3: return l->set(raw, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &real);
    case 4: return set_ints(l, raw, CUDNN_ATTR_TENSOR_UNIQUE_ID, 2, four);
    case 5: return set_ints(l, raw, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0, four);
    case 6: return set_ints(l, raw, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, NULL);
    case 7: return set_ints(l, raw, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, four);
    case 8: return l->finalize(raw);
    case 9: return l->get(raw, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &there, &asked);
    case 10:
        d = tensor(l, 1, 2, 8, 5, 5, CUDNN_DATA_FLOAT);
        set_ints(l, d, CUDNN_ATTR_TENSOR_STRIDES, 3, four);
        return l->finalize(d);
    case 11: return l->finalize(x);
    case 12: return set_ints(l, x, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &one);
    case 13: return l->get(x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &there, &asked);
    case 14: return l->get(x, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 1, &there, &asked);
    case 15: return answers_of_get(l, x, 0, false);
    case 16: return answers_of_get(l, x, 2, true);
    case 17: return answers_of_get(l, x, 4, false);
    case 18: return l->finalize(operation(l, 5, 8, false));
    case 19: return l->finalize(operation(l, 6, 8, true));
    case 20: return l->finalize(operation(l, 5, 9, true));
    case 21: return l->finalize(make(l, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
    case 22:
        d = make(l, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
        return l->set(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_INT64, 1, &one);
    case 23: return l->finalize(operation(l, 5, 8, true));
    case 24: {
        descriptor graph = make(l, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), of = operation(l, 5, 8, true);
        l->finalize(of);
        int set = set_child(l, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, of);
        destroy(l, of); /* the graph keeps what it needs */
        return set * 10000 + l->finalize(graph);
    }
    case 25: return knob_twice(l);
    case 26: return pack(l, 2, false);
    default: return pack(l, 3, true);
    }
}

static int64_t ask(const library *l, int n)
{
    const int64_t said = answer(l, n);
    while (count) destroy(l, made[count - 1]);
    return said;
}

int main(void)
{
    cuda_rig();
    void *real = find_real(), *mine = dlopen(getenv("KOLO_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (!real) skip_all("no libcudnn.so.9 to compare with");
    if (!mine || !dlsym(mine, "standin_count")) skip_all("KOLO_CUDA_LIBRARY is not the stand-in");
    const library a = open_library("cuDNN", real), b = open_library("the stand-in", mine);
    for (int n = 0; n < CASES; n++) is_int(ask(&b, n), ask(&a, n), "%s: cuDNN's answer", case_name[n]);
    return done_testing();
}
