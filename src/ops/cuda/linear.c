/* y = x w^T + bias and its gradients, by cuBLASLt: x (N, F), w (O, F), y (N, O), all row-major. In 16-bit graphs w is
 * read from its 16-bit copy, and its gradient written as f32. The bias is added, and its gradient summed, in the
 * epilogue of a product that writes f32; the library has no f32 bias for 16-bit outputs, bias.cu adds it then.
 * Source: NVIDIA cuBLAS documentation, cublasLtMatmul. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ops/cuda/cuda.h"

enum { X, W, Y, BIAS };
enum pass { FORWARD, DATA, WEIGHT };
enum { CANDIDATES = 8, ALGORITHM_TEXT = 2 * sizeof(cublasLtMatmulAlgo_t) + 1 };
static const size_t workspace_most = (size_t)32 << 20;

/* cuBLASLt counts in columns: a row-major (R, C) is a matrix of C rows and R columns. d = a b, a or b transposed. */
static const struct {
    int a, b, d;
    bool transpose_a, transpose_b;
    cublasLtEpilogue_t bias;
} products[] = {[FORWARD] = {W, X, Y, true, false, CUBLASLT_EPILOGUE_BIAS},
                [DATA] = {W, Y, X, false, false, CUBLASLT_EPILOGUE_DEFAULT},
                [WEIGHT] = {X, Y, W, false, true, CUBLASLT_EPILOGUE_BGRADB}};

typedef struct linear {
    enum pass pass;
    int at[4];             /* args of X, W, Y, BIAS; -1: not there */
    int64_t rows, in, out; /* N, F, O */
    enum kolo_dtype dtype; /* of x and y, and of w as it is read */
    bool tf32, exact,
        fused; /* exact: no partial sum in less than f32, and no order that could change; fused: the bias too */
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t matrix[3]; /* X, W, Y */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} linear;

static void close_descriptors(linear *l)
{
    if (l->product) cublasLtMatmulDescDestroy(l->product);
    for (int i = 0; i < 3; i++)
        if (l->matrix[i]) cublasLtMatrixLayoutDestroy(l->matrix[i]);
    l->product = NULL;
    memset(l->matrix, 0, sizeof l->matrix);
}

static void release(void *state)
{
    if (state) close_descriptors(state);
    free(state);
}

static int set(linear *l, cublasLtMatmulDescAttributes_t name, const void *value, size_t size)
{
    return KOLO_BLAS(cublasLtMatmulDescSetAttribute(l->product, name, value, size));
}

static int multiply(linear *l, const cublasLtMatmulAlgo_t *algorithm, void *const *p, void *workspace, size_t bytes,
                    cudaStream_t stream)
{
    const float one = 1, zero = 0;
    const int a = products[l->pass].a, b = products[l->pass].b, d = products[l->pass].d;
    if (l->fused) KOLO_TRY(set(l, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p[BIAS], sizeof p[BIAS]));
    cublasStatus_t rc = cublasLtMatmul(l->handle, l->product, &one, p[a], l->matrix[a], p[b], l->matrix[b], &zero, p[d],
                                       l->matrix[d], p[d], l->matrix[d], algorithm, workspace, bytes, stream);
    return kolo_cuda_blas_check(rc, "cublasLtMatmul", __FILE__, __LINE__);
}

static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    (void)step;
    (void)slot;
    linear *l = k->state; /* its descriptor takes the bias' address of this run */
    void *p[4];
    for (int i = 0; i < 4; i++) p[i] = l->at[i] >= 0 ? args[l->at[i]] : NULL;
    KOLO_TRY(multiply(l, &l->algorithm, p, workspace, l->workspace, kolo_cuda_stream(k)));
    if (!p[BIAS] || l->fused) return 0;
    if (l->pass == FORWARD) return kolo_cuda_bias_add(k->backend, p[Y], l->dtype, p[BIAS], l->rows, l->out, l->out);
    return kolo_cuda_bias_grad(k->backend, p[BIAS], p[Y], l->dtype, l->rows, l->out, l->out, workspace);
}

/* ---- what is asked ---------------------------------------------------------------------------------------------- */

static void describe(const kolo_kernel_request *r, linear *l)
{
    const kolo_node *n = r->node;
    const int out = n->n_in, bias_in = n->n_in > 2 && n->in[2] >= 0 ? 2 : -1;
    const int bias_out = n->n_out > 1 && n->out[1] >= 0 ? out + 1 : -1;
    const int forward[4] = {0, 1, out, bias_in}, data[4] = {out, 1, 0, -1}, weight[4] = {0, out, 1, bias_out};
    l->pass = n->op == KOLO_OP_linear ? FORWARD : n->op == KOLO_OP_linear_grad_data ? DATA : WEIGHT;
    memcpy(l->at, l->pass == FORWARD ? forward : l->pass == DATA ? data : weight, sizeof l->at);
    const kolo_tensor *t = r->graph->tensor, *w = &t[l->pass == WEIGHT ? n->out[0] : n->in[1]];
    const kolo_tensor *y = &t[l->pass == FORWARD ? n->out[0] : n->in[l->at[Y]]];
    l->rows = y->dim[0];
    l->out = w->dim[0];
    l->in = w->dim[1];
    l->dtype = y->dtype;
    l->tf32 = r->backend->tf32 && l->dtype == KOLO_F32;
    l->exact = r->backend->deterministic || l->dtype != KOLO_F32;
    l->handle = kolo_cuda_of(r->backend)->blas;
}

static enum kolo_dtype dtype_of(const linear *l, int matrix)
{
    return matrix == W && l->pass == WEIGHT ? KOLO_F32 : l->dtype;
}

static int make_matrices(linear *l)
{
    const int64_t width[3] = {l->in, l->in, l->out}, height[3] = {l->rows, l->out, l->rows};
    for (int i = 0; i < 3; i++) {
        const enum kolo_dtype dtype = dtype_of(l, i);
        const cudaDataType_t type = dtype == KOLO_BF16 ? CUDA_R_16BF : dtype == KOLO_F16 ? CUDA_R_16F : CUDA_R_32F;
        KOLO_TRY(KOLO_BLAS(
            cublasLtMatrixLayoutCreate(&l->matrix[i], type, (uint64_t)width[i], (uint64_t)height[i], width[i])));
    }
    return 0;
}

static int make_product(linear *l)
{
    const cublasOperation_t op[2] = {CUBLAS_OP_N, CUBLAS_OP_T};
    const cublasOperation_t a = op[products[l->pass].transpose_a], b = op[products[l->pass].transpose_b];
    const cublasLtEpilogue_t epilogue = l->fused ? products[l->pass].bias : CUBLASLT_EPILOGUE_DEFAULT;
    const void *aligned = (void *)(uintptr_t)KOLO_ALIGN; /* the heuristic takes the alignment from the address */
    KOLO_TRY(KOLO_BLAS(cublasLtMatmulDescCreate(
        &l->product, l->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    KOLO_TRY(set(l, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    KOLO_TRY(set(l, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    KOLO_TRY(set(l, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    return l->fused ? set(l, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof aligned) : 0;
}

static int make_preference(const linear *l, cublasLtMatmulPreference_t *out)
{
    static const cublasLtMatmulPreferenceAttributes_t alignment[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = workspace_most;
    const uint32_t align = 16; /* the 16-bit copy of a tensor that starts on KOLO_ALIGN is aligned to half of that */
    const uint32_t exact = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t schemes = l->exact ? exact : CUBLASLT_REDUCTION_SCHEME_MASK;
    *out = NULL;
    KOLO_TRY(KOLO_BLAS(cublasLtMatmulPreferenceCreate(out)));
    KOLO_TRY(KOLO_BLAS(cublasLtMatmulPreferenceSetAttribute(*out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                            sizeof workspace)));
    KOLO_TRY(KOLO_BLAS(cublasLtMatmulPreferenceSetAttribute(*out, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                            sizeof schemes)));
    for (size_t i = 0; i < sizeof alignment / sizeof *alignment; i++)
        KOLO_TRY(KOLO_BLAS(cublasLtMatmulPreferenceSetAttribute(*out, alignment[i], &align, sizeof align)));
    return 0;
}

static char *key_of(const linear *l)
{
    static const char *const pass[] = {"linear", "linear_grad_data", "linear_grad_weight"};
    return kolo_format("%s %s%s n %ld f %ld o %ld%s%s", pass[l->pass], kolo_dtype_name(l->dtype),
                       l->tf32 ? " tf32" : "", (long)l->rows, (long)l->in, (long)l->out,
                       l->at[BIAS] >= 0 ? " bias" : "", l->exact ? " exact" : "");
}

/* ---- which algorithm -------------------------------------------------------------------------------------------- */

/* The opaque bytes as hexadecimal text. */
static void algorithm_write(const cublasLtMatmulAlgo_t *algorithm, char text[ALGORITHM_TEXT])
{
    unsigned char byte[sizeof *algorithm];
    memcpy(byte, algorithm, sizeof byte);
    for (size_t i = 0; i < sizeof byte; i++) snprintf(text + 2 * i, 3, "%02x", byte[i]);
}

static bool algorithm_read(cublasLtMatmulAlgo_t *algorithm, const char *text)
{
    unsigned char byte[sizeof *algorithm];
    for (size_t i = 0; i < sizeof byte; i++) {
        unsigned value;
        int n = 0;
        if (sscanf(text + 2 * i, "%2x%n", &value, &n) != 1 || n != 2) return false;
        byte[i] = (unsigned char)value;
    }
    memcpy(algorithm, byte, sizeof byte);
    return text[2 * sizeof byte] == 0;
}

/* The descriptors for this problem and what the heuristic says to them, best first. *count 0: it has nothing. */
static int propose(linear *l, cublasLtMatmulHeuristicResult_t *result, int most, int *count)
{
    const int a = products[l->pass].a, b = products[l->pass].b, d = products[l->pass].d;
    cublasLtMatmulPreference_t preference = NULL;
    *count = 0;
    close_descriptors(l);
    KOLO_TRY(make_matrices(l));
    KOLO_TRY(make_product(l));
    int rc = make_preference(l, &preference);
    if (rc >= 0) {
        cublasStatus_t answer =
            cublasLtMatmulAlgoGetHeuristic(l->handle, l->product, l->matrix[a], l->matrix[b], l->matrix[d],
                                           l->matrix[d], preference, most, result, count);
        if (answer == CUBLAS_STATUS_NOT_SUPPORTED) *count = 0;
        else rc = kolo_cuda_blas_check(answer, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
    }
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    return rc;
}

/* With the bias in the product if that can be, else without. */
static int propose_any(linear *l, cublasLtMatmulHeuristicResult_t *result, int most, int *count)
{
    l->fused = l->at[BIAS] >= 0 && dtype_of(l, products[l->pass].d) == KOLO_F32;
    KOLO_TRY(propose(l, result, most, count));
    if (!*count && l->fused) {
        l->fused = false;
        KOLO_TRY(propose(l, result, most, count));
    }
    if (*count) return 0;
    return kolo_fail(KOLO_ECONFIG, "cuBLASLt %zu has no algorithm for a linear layer of %ld x %ld to %ld in %s",
                     cublasLtGetVersion(), (long)l->rows, (long)l->in, (long)l->out, kolo_dtype_name(l->dtype));
}

typedef struct timed {
    linear *l;
    const cublasLtMatmulAlgo_t *algorithm;
    void *pointer[4], *workspace;
    cudaStream_t stream;
} timed;

static int run_timed(void *argument)
{
    const timed *t = argument;
    return multiply(t->l, t->algorithm, t->pointer, t->workspace, workspace_most, t->stream);
}

static int open_trial(kolo_backend *b, linear *l, timed *t)
{
    const int64_t count[4] = {l->rows * l->in, l->out * l->in, l->rows * l->out, l->out};
    size_t at[5] = {0};
    void *memory;
    for (int i = 0; i < 4; i++) at[i + 1] = at[i] + kolo_round_up((size_t)count[i] * sizeof(float), 4096);
    KOLO_TRY(kolo_cuda_trial_memory(b, at[4] + workspace_most, &memory));
    *t = (timed){.l = l, .workspace = (char *)memory + at[4], .stream = kolo_cuda_of(b)->stream[KOLO_LANE_COMPUTE]};
    for (int i = 0; i < 4; i++) t->pointer[i] = (char *)memory + at[i];
    return 0;
}

/* The fastest; one that refuses to run is passed over. Without memory for a trial: the first. */
static int fastest(kolo_backend *b, linear *l, const cublasLtMatmulHeuristicResult_t *result, int count, int *best)
{
    timed t;
    double least = 0;
    int rc = 0;
    *best = 0;
    if (open_trial(b, l, &t) < 0) {
        kolo_info("an algorithm is taken as cuBLASLt's heuristic says, untimed: %s", kolo_error_text());
        return 0;
    }
    *best = -1;
    for (int i = 0; i < count; i++) {
        double seconds;
        t.algorithm = &result[i].algo;
        int ran = kolo_cuda_trial_time(b, run_timed, &t, &seconds);
        if (ran < 0) rc = ran;
        else if (*best < 0 || seconds < least) {
            *best = i;
            least = seconds;
        }
    }
    kolo_cuda_trial_end(b);
    return *best < 0 ? rc : 0;
}

/* Whether the kept algorithm is still to be had for this problem: 0, or 1. */
static int check_known(linear *l, const char *known)
{
    const int a = products[l->pass].a, b = products[l->pass].b, d = products[l->pass].d;
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algorithm;
    if (!algorithm_read(&algorithm, known) ||
        cublasLtMatmulAlgoCheck(l->handle, l->product, l->matrix[a], l->matrix[b], l->matrix[d], l->matrix[d],
                                &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > workspace_most)
        return 1;
    l->algorithm = algorithm;
    l->workspace = result.workspaceSize;
    return 0;
}

static int select_algorithm(const kolo_kernel_request *r, linear *l, const char *key)
{
    kolo_backend *b = r->backend;
    cublasLtMatmulHeuristicResult_t result[CANDIDATES];
    char text[ALGORITHM_TEXT];
    const bool clock = !b->deterministic && !b->choices.given;
    int count, best = 0;
    KOLO_TRY(propose_any(l, result, CANDIDATES, &count));
    const char *known = b->deterministic ? NULL : kolo_choices_find(&b->choices, key);
    if (known && !check_known(l, known)) return 0;
    if (known) kolo_info("%s: the algorithm kept for it is not to be had any more; choosing another", key);
    if (clock && count > 1) KOLO_TRY(fastest(b, l, result, count, &best));
    l->algorithm = result[best].algo;
    l->workspace = result[best].workspaceSize;
    algorithm_write(&l->algorithm, text);
    return clock ? kolo_choices_add(&b->choices, key, text) : 0;
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static int32_t setting(const linear *l, cublasLtMatmulAlgoConfigAttributes_t name)
{
    int32_t value = -1;
    size_t size;
    cublasStatus_t rc = cublasLtMatmulAlgoConfigGetAttribute(&l->algorithm, name, &value, sizeof value, &size);
    return rc == CUBLAS_STATUS_SUCCESS ? value : -1;
}

static int prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    linear *l = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ECONFIG;
    k->state = l;
    k->release = release;
    k->run = run;
    describe(r, l);
    char *key = key_of(l);
    int rc = key ? select_algorithm(r, l, key) : KOLO_ECONFIG;
    free(key);
    if (rc < 0) return rc;
    k->workspace = l->workspace;
    if (l->pass == WEIGHT && l->at[BIAS] >= 0 && !l->fused) {
        size_t bias = kolo_cuda_bias_workspace(r->backend, l->rows, l->out);
        if (bias > k->workspace) k->workspace = bias;
    }
    snprintf(k->name, sizeof k->name, "cuBLASLt %d tile %d stages %d split %d%s%s", setting(l, CUBLASLT_ALGO_CONFIG_ID),
             setting(l, CUBLASLT_ALGO_CONFIG_TILE_ID), setting(l, CUBLASLT_ALGO_CONFIG_STAGES_ID),
             setting(l, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), l->tf32 ? ", TF32" : "", l->fused ? ", with bias" : "");
    return 0;
}

/* The weight stays row-major; in 16-bit graphs it is read from its copy. */
static int layout_forward(const kolo_kernel_request *r, kolo_layout *layout)
{
    layout[r->node->in[1]].half = r->graph->dtype != KOLO_F32;
    return 0;
}

const kolo_op_row kolo_cuda_linear = {layout_forward, prepare};
const kolo_op_row kolo_cuda_linear_grad_data = {NULL, prepare};
const kolo_op_row kolo_cuda_linear_grad_weight = {NULL, prepare};
