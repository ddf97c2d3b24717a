/* Inside the stand-in for cuDNN. dnn.c: descriptors as tables of attributes; dnn_rules.c: what each kind must
 * hold to be finalized, and what cuDNN then tells of it; dnn_graph.c: graphs of operations; dnn_conv.c: the
 * arithmetic of a convolution.
 *
 * The statuses are those that cuDNN 9.19 was seen to give (tests/cuda/standin_dnn.c compares them). Where it
 * crashes, or goes on with something that makes no sense, a defect is counted. */
#ifndef TESTS_STANDIN_DNN_H
#define TESTS_STANDIN_DNN_H

#include <cudnn.h>

#include "standin/standin.h"

enum { DNN_ATTRIBUTES = 24 };

typedef struct dnn_value {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *data; /* of type BACKEND_DESCRIPTOR: references to objects */
} dnn_value;

typedef struct dnn_object {
    cudnnBackendDescriptorType_t type;
    int references;
    bool finalized;
    dnn_value value[DNN_ATTRIBUTES];
    int values;
    struct dnn_graph *graph; /* of an execution plan */
} dnn_object;

cudnnStatus_t dnn_fail(cudnnStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t dnn_type_size(cudnnBackendAttributeType_t type);
/* NULL when it was not set. */
const dnn_value *dnn_find(const dnn_object *object, cudnnBackendAttributeName_t name);
/* INT64 or an enumeration */
int64_t dnn_int(const dnn_object *object, cudnnBackendAttributeName_t name, int i);
/* a descriptor; NULL: none */
dnn_object *dnn_child(const dnn_object *object, cudnnBackendAttributeName_t name, int i);
void dnn_put(dnn_object *object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
             int64_t count, const void *data);
dnn_object *dnn_new(cudnnBackendDescriptorType_t type);
void dnn_drop(dnn_object *object);

/* dnn_rules.c */
cudnnStatus_t dnn_may_set(const dnn_object *object, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t count, const void *data);
cudnnStatus_t dnn_may_get(const dnn_object *object, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type);
cudnnStatus_t dnn_finalize(dnn_object *object); /* checks; adds what can be asked for afterwards */
size_t dnn_kind_known(cudnnBackendDescriptorType_t type);

/* dnn_conv.c */
enum dnn_pass { DNN_FORWARD, DNN_DATA, DNN_WEIGHT };
enum dnn_flavour { DNN_PLAIN, DNN_TF32, DNN_RANDOM, DNN_WINOGRAD, DNN_HALF_SUMS };
typedef struct dnn_tensor {
    cudnnDataType_t type;
    int64_t uid, align, dim[4], stride[4];
    bool between; /* operations: it never lies in memory */
} dnn_tensor;
enum dnn_part { DNN_X, DNN_W, DNN_Y };
typedef struct dnn_conv {
    enum dnn_pass pass;
    enum dnn_flavour flavour;
    dnn_tensor tensor[3];
    int64_t pre[2], post[2], stride[2], dilation[2], groups;
    float alpha, beta;
    int64_t tile, split; /* knobs */
    bool backwards;      /* the order of sums */
} dnn_conv;
void dnn_tensor_describe(const dnn_object *object, dnn_tensor *tensor);
int64_t dnn_tensor_elements(const dnn_tensor *tensor);
/* What a pass makes, of zeros; p: x, w, y as f32, packed as (0, 2, 3, 1) */
void dnn_conv_run(const dnn_conv *conv, float *const p[3], bool backwards);
void dnn_conv_describe(const dnn_object *operation, dnn_conv *conv);
const char *dnn_conv_wrong(const dnn_conv *conv); /* NULL: shapes fit */

/* dnn_graph.c: operations one after another, one of them a convolution */
enum { DNN_STEPS = 16, DNN_TENSORS = 48, DNN_ENDS = 5 };
typedef struct dnn_step {
    const char *word; /* what it does */
    int ins, in[DNN_ENDS], outs, out[DNN_ENDS];
} dnn_step;
typedef struct dnn_graph {
    dnn_conv conv;
    int steps, tensors, at[3]; /* at: the tensors of the convolution */
    dnn_step step[DNN_STEPS];
    dnn_tensor tensor[DNN_TENSORS];
    const char *name; /* of a kernel that does this; NULL: there is none */
    size_t workspace;
} dnn_graph;
/* what is wrong with it, or NULL */
const char *dnn_graph_describe(const dnn_object *object, dnn_graph *graph);
size_t dnn_tensor_span(const dnn_tensor *tensor); /* bytes from the first to behind the last element */
double dnn_graph_seconds(const dnn_graph *graph);
void dnn_graph_run(const dnn_graph *graph, void *const pointer[DNN_TENSORS], bool backwards);

/* numbers.c: 16-bit types, written apart from the program's own */
float standin_from_half(uint16_t bits);
float standin_from_bf16(uint16_t bits);
uint16_t standin_to_half(float x);
uint16_t standin_to_bf16(float x);
float standin_to_tf32(float x);

#endif
