/* Inside dnn*.c: cuDNN's descriptors, and the graph that choices and plans are made of. */
#ifndef KOLO_OPS_CUDA_DNN_DESCRIPTOR_H
#define KOLO_OPS_CUDA_DNN_DESCRIPTOR_H

#include "ops/cuda/dnn.h"

typedef cudnnBackendDescriptor_t descriptor;

static inline int dnn_make(descriptor *d, cudnnBackendDescriptorType_t type)
{
    *d = NULL;
    return KOLO_DNN(cudnnBackendCreateDescriptor(type, d));
}

static inline int dnn_set(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t n, const void *values)
{
    return KOLO_DNN(cudnnBackendSetAttribute(d, name, type, n, values));
}

static inline int dnn_set_descriptor(descriptor d, cudnnBackendAttributeName_t name, descriptor value)
{
    return dnn_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static inline int dnn_set_int64(descriptor d, cudnnBackendAttributeName_t name, int64_t n,
                                const int64_t *values)
{
    return dnn_set(d, name, CUDNN_TYPE_INT64, n, values);
}

static inline int dnn_get(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t room, int64_t *n, void *values)
{
    return KOLO_DNN(cudnnBackendGetAttribute(d, name, type, room, n, values));
}

static inline int dnn_finalize(descriptor d) { return KOLO_DNN(cudnnBackendFinalize(d)); }

static inline void dnn_destroy(descriptor *d)
{
    if (*d) cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

/* Tensors between operations, which never lie in memory. */
enum { BETWEEN = KOLO_DNN_PARTS, TENSORS = BETWEEN + 12 };
enum { OPERATIONS = 14, MODES = 11 };

struct kolo_dnn_graph {
    cudnnHandle_t handle;
    descriptor profile;                  /* borrowed; used where there is no handle */
    descriptor tensor[TENSORS];          /* unique id: index + 1 */
    descriptor convolution, mode[MODES]; /* pointwise modes */
    descriptor operation[OPERATIONS], graph;
    int operations, modes, between;
};

/* A descriptor whose content depends on the GPU is given which one; negative: it has no such attribute. */
static inline int dnn_set_gpu(const kolo_dnn_graph *g, descriptor d, int by_handle, int by_profile)
{
    if (g->handle)
        return by_handle < 0
                   ? 0
                   : dnn_set(d, (cudnnBackendAttributeName_t)by_handle, CUDNN_TYPE_HANDLE, 1, &g->handle);
    return by_profile < 0 ? 0 : dnn_set_descriptor(d, (cudnnBackendAttributeName_t)by_profile, g->profile);
}

#endif
