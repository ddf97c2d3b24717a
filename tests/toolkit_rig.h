/* For tests/toolkit: the C half of the CUDA backend, linked with the real libraries but without its kernels.
 * What a plan says can be seen without a GPU; what would run is not there, and says so. */
#ifndef TESTS_TOOLKIT_RIG_H
#define TESTS_TOOLKIT_RIG_H

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cuda/dnn.h"
#include "tap.h"

static void toolkit_check(int rc, const char *what)
{
    if (rc >= 0) return;
    printf("Bail out! %s: %s\n", what, kolo_error_text());
    exit(1);
}

static int no_kernel(void) { return kolo_fail(KOLO_EINTERNAL, "this test has no kernels"); }
int kolo_cuda_bias_add(kolo_backend *b, void *y, enum kolo_dtype dtype, const float *bias, int64_t rows,
                       int64_t stored, int64_t channels)
{
    (void)b, (void)y, (void)dtype, (void)bias, (void)rows, (void)stored, (void)channels;
    return no_kernel();
}
int kolo_cuda_bias_grad(kolo_backend *b, float *dbias, const void *dy, enum kolo_dtype dtype, int64_t rows,
                        int64_t stored, int64_t channels, void *workspace)
{
    (void)b, (void)dbias, (void)dy, (void)dtype, (void)rows, (void)stored, (void)channels, (void)workspace;
    return no_kernel();
}
size_t kolo_cuda_bias_workspace(int64_t rows, int64_t stored)
{
    (void)rows, (void)stored;
    return 0;
}
int kolo_dnn_widen(const kolo_cuda *cuda, float *to, const void *half, enum kolo_dtype dtype, int64_t count)
{
    (void)cuda, (void)to, (void)half, (void)dtype, (void)count;
    return no_kernel();
}
int kolo_cuda_norm_affine(const kolo_kernel *k, void *const *sums_w_b, float *statistic, void *affine,
                          const kolo_step *step, int slot)
{
    (void)k, (void)sums_w_b, (void)statistic, (void)affine, (void)step, (void)slot;
    return no_kernel();
}
int kolo_cuda_norm_take(const kolo_kernel *k, const float *formed, const void *x, double *sums,
                        void *workspace, const kolo_step *step, int slot)
{
    (void)k, (void)formed, (void)x, (void)sums, (void)workspace, (void)step, (void)slot;
    return no_kernel();
}
int kolo_cuda_norm_values(const kolo_kernel *k, void *const sums_w_b[3], float *to)
{
    (void)k, (void)sums_w_b, (void)to;
    return no_kernel();
}
int kolo_cuda_norm_formed(const kolo_kernel *k, const float *formed, void *const dsums_dw_db[3])
{
    (void)k, (void)formed, (void)dsums_dw_db;
    return no_kernel();
}
int kolo_cuda_noise(kolo_backend *b, void *to, enum kolo_dtype dtype, int64_t count)
{
    (void)b, (void)to, (void)dtype, (void)count;
    return no_kernel();
}
int kolo_cuda_depthwise(const kolo_kernel_request *r, kolo_kernel *k)
{
    (void)r, (void)k;
    return 1; /* not for kernels: what cuDNN would do is asked */
}

#endif
