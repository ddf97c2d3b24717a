/* Inside the stand-in for cuDNN. dnn.c: descriptors as tables of attributes; dnn_rules.c: what each kind must hold
 * to be finalized, and what cuDNN then tells of it; dnn_conv.c: the arithmetic.
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
    struct dnn_conv *conv; /* of an execution plan */
} dnn_object;

cudnnStatus_t dnn_fail(cudnnStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t dnn_type_size(cudnnBackendAttributeType_t type);
/* NULL when it was not set. */
const dnn_value *dnn_find(const dnn_object *object, cudnnBackendAttributeName_t name);
int64_t dnn_int(const dnn_object *object, cudnnBackendAttributeName_t name, int i);       /* INT64 or an enumeration */
dnn_object *dnn_child(const dnn_object *object, cudnnBackendAttributeName_t name, int i); /* a descriptor; NULL: none */
void dnn_put(dnn_object *object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void *data);
dnn_object *dnn_new(cudnnBackendDescriptorType_t type);
void dnn_drop(dnn_object *object);

/* dnn_rules.c */
cudnnStatus_t dnn_may_set(const dnn_object *object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void *data);
cudnnStatus_t dnn_may_get(const dnn_object *object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type);
cudnnStatus_t dnn_finalize(dnn_object *object); /* checks; adds what can be asked for afterwards */
size_t dnn_kind_known(cudnnBackendDescriptorType_t type);

/* dnn_conv.c */
enum dnn_pass { DNN_FORWARD, DNN_DATA, DNN_WEIGHT };
enum dnn_flavour { DNN_PLAIN, DNN_TF32, DNN_RANDOM, DNN_WINOGRAD, DNN_HALF_SUMS };
typedef struct dnn_tensor {
    cudnnDataType_t type;
    int64_t uid, align, dim[4], stride[4];
} dnn_tensor;
enum dnn_part { DNN_X, DNN_W, DNN_Y, DNN_SUM, DNN_SQUARE, DNN_PARTS };
typedef struct dnn_conv {
    enum dnn_pass pass;
    enum dnn_flavour flavour;
    dnn_tensor tensor[DNN_PARTS];
    bool statistics; /* sums of y and y^2 over each channel, formed before y is rounded */
    int64_t pre[2], post[2], stride[2], dilation[2], groups;
    float alpha, beta;
    int64_t tile, split; /* knobs */
    bool backwards;      /* the order of sums */
    size_t workspace;
} dnn_conv;
size_t dnn_tensor_span(const dnn_tensor *tensor); /* bytes from the first to behind the last element */
double dnn_conv_seconds(const dnn_conv *conv);
void dnn_conv_run(const dnn_conv *conv, void *const pointer[DNN_PARTS], bool backwards);
void dnn_conv_describe(const dnn_object *operation, dnn_conv *conv);
void dnn_stats_describe(const dnn_object *operation, dnn_conv *conv);
const char *dnn_conv_wrong(const dnn_conv *conv); /* NULL: shapes fit */

/* numbers.c: 16-bit types, written apart from the program's own */
float standin_from_half(uint16_t bits);
float standin_from_bf16(uint16_t bits);
uint16_t standin_to_half(float x);
uint16_t standin_to_bf16(float x);
float standin_to_tf32(float x);

#endif
