/* Products by cuBLASLt: y = x w^T [+ bias], x (rows, in), w (out, in), y (rows, out), all row-major, and
 * the gradients of x, w and the bias. In 16-bit types w is 16-bit where it is read, and its gradient f32.
 * The bias is f32 always. */
#ifndef KOLO_OPS_CUDA_PRODUCT_H
#define KOLO_OPS_CUDA_PRODUCT_H

#include "ops/cuda/cuda.h"

enum { KOLO_PRODUCT_X, KOLO_PRODUCT_W, KOLO_PRODUCT_Y, KOLO_PRODUCT_BIAS, KOLO_PRODUCT_PARTS };
enum kolo_product_pass { KOLO_PRODUCT_FORWARD, KOLO_PRODUCT_DATA, KOLO_PRODUCT_WEIGHT };

typedef struct kolo_product {
    /* asked for */
    enum kolo_product_pass pass;
    int64_t rows, in, out, biases; /* biases: of the `out` columns so many have one; 0: none */
    enum kolo_dtype dtype;         /* of x and y, and of w as it is read */
    /* chosen */
    size_t workspace;
    /* exact: no partial sum in less than f32, and no order that could change; fused: the bias too */
    bool tf32, exact, fused;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t matrix[3]; /* X, W, Y */
    cublasLtMatmulAlgo_t algorithm;
} kolo_product;

/* Chooses an algorithm, by a clock or, where choices have to be the same every time, as the heuristic says.
 * Close it in any case. */
int kolo_product_open(kolo_product *product, kolo_backend *backend);
void kolo_product_close(kolo_product *product);
/* Enqueues it. part: X, W, Y, BIAS; of these the pass writes one, WEIGHT the bias' gradient too (NULL:
 * none). */
int kolo_product_run(const kolo_product *product, kolo_backend *backend, void *const part[KOLO_PRODUCT_PARTS],
                     void *workspace);
void kolo_product_name(const kolo_product *product, char *text, size_t size);

#endif
