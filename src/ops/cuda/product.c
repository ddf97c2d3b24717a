/* The bias is added, and its gradient summed, in the epilogue of a product that writes f32; the library has
 * no f32 bias for 16-bit outputs, bias.cu adds it then. Source: NVIDIA cuBLAS documentation,
 * cublasLtMatmul. */
#include "ops/cuda/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

enum { X = KOLO_PRODUCT_X, W = KOLO_PRODUCT_W, Y = KOLO_PRODUCT_Y, BIAS = KOLO_PRODUCT_BIAS };
enum { CANDIDATES = 64, ALGORITHM_TEXT = 2 * sizeof(cublasLtMatmulAlgo_t) + 1 };
static const size_t workspace_most = (size_t)32 << 20;

/* cuBLASLt counts in columns: a row-major (R, C) is a matrix of C rows and R columns. d = a
 * b, a or b transposed. */
static const struct {
    int a, b, d;
    bool transpose_a, transpose_b;
    cublasLtEpilogue_t bias;
} products[] = {[KOLO_PRODUCT_FORWARD] = {W, X, Y, true, false, CUBLASLT_EPILOGUE_BIAS},
                [KOLO_PRODUCT_DATA] = {W, Y, X, false, false, CUBLASLT_EPILOGUE_DEFAULT},
                [KOLO_PRODUCT_WEIGHT] = {X, Y, W, false, true, CUBLASLT_EPILOGUE_BGRADB}};

static void close_descriptors(kolo_product *p)
{
    if (p->product) cublasLtMatmulDescDestroy(p->product);
    for (int i = 0; i < 3; i++)
        if (p->matrix[i]) cublasLtMatrixLayoutDestroy(p->matrix[i]);
    p->product = NULL;
    memset(p->matrix, 0, sizeof p->matrix);
}

void kolo_product_close(kolo_product *p) { close_descriptors(p); }

static int cuda_product_set(const kolo_product *p, cublasLtMatmulDescAttributes_t name, const void *value,
                            size_t size)
{
    return KOLO_BLAS(cublasLtMatmulDescSetAttribute(p->product, name, value, size));
}

static int multiply(const kolo_product *p, const cublasLtMatmulAlgo_t *algorithm, void *const *part,
                    void *workspace, size_t bytes, cudaStream_t stream)
{
    const float one = 1, zero = 0;
    const int a = products[p->pass].a, b = products[p->pass].b, d = products[p->pass].d;
    if (p->fused)
        KOLO_TRY(cuda_product_set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &part[BIAS], sizeof part[BIAS]));
    cublasStatus_t rc =
        cublasLtMatmul(p->handle, p->product, &one, part[a], p->matrix[a], part[b], p->matrix[b], &zero,
                       part[d], p->matrix[d], part[d], p->matrix[d], algorithm, workspace, bytes, stream);
    return kolo_cuda_blas_check(rc, "cublasLtMatmul", __FILE__, __LINE__);
}

int kolo_product_run(const kolo_product *p, kolo_backend *b, void *const part[KOLO_PRODUCT_PARTS],
                     void *workspace)
{
    KOLO_TRY(multiply(p, &p->algorithm, part, workspace, p->workspace,
                      kolo_cuda_of(b)->stream[KOLO_LANE_COMPUTE]));
    if (!part[BIAS] || p->fused) return 0;
    if (p->pass == KOLO_PRODUCT_FORWARD)
        return kolo_cuda_bias_add(b, part[Y], p->dtype, part[BIAS], p->rows, p->out, p->biases);
    return kolo_cuda_bias_grad(b, part[BIAS], part[Y], p->dtype, p->rows, p->out, p->biases, workspace);
}

/* ---- what is asked ------------------------------------------------------------------------------------- */

static enum kolo_dtype dtype_of(const kolo_product *p, int matrix)
{
    return matrix == W && p->pass == KOLO_PRODUCT_WEIGHT ? KOLO_F32 : p->dtype;
}

static int make_matrices(kolo_product *p)
{
    const int64_t width[3] = {p->in, p->in, p->out}, height[3] = {p->rows, p->out, p->rows};
    for (int i = 0; i < 3; i++) {
        const enum kolo_dtype dtype = dtype_of(p, i);
        const cudaDataType_t type = dtype == KOLO_BF16  ? CUDA_R_16BF
                                    : dtype == KOLO_F16 ? CUDA_R_16F
                                                        : CUDA_R_32F;
        KOLO_TRY(KOLO_BLAS(cublasLtMatrixLayoutCreate(&p->matrix[i], type, (uint64_t)width[i],
                                                      (uint64_t)height[i], width[i])));
    }
    return 0;
}

static int make_product(kolo_product *p)
{
    const cublasOperation_t op[2] = {CUBLAS_OP_N, CUBLAS_OP_T};
    const cublasOperation_t a = op[products[p->pass].transpose_a], b = op[products[p->pass].transpose_b];
    const cublasLtEpilogue_t epilogue = p->fused ? products[p->pass].bias : CUBLASLT_EPILOGUE_DEFAULT;
    /* the heuristic takes the alignment from the address */
    const void *aligned = (void *)(uintptr_t)KOLO_ALIGN;
    KOLO_TRY(KOLO_BLAS(cublasLtMatmulDescCreate(
        &p->product, p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    KOLO_TRY(cuda_product_set(p, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    KOLO_TRY(cuda_product_set(p, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    KOLO_TRY(cuda_product_set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    return p->fused ? cuda_product_set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof aligned) : 0;
}

static int make_preference(const kolo_product *p, cublasLtMatmulPreference_t *out)
{
    static const cublasLtMatmulPreferenceAttributes_t alignment[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = workspace_most;
    /* the 16-bit copy of a tensor that starts on KOLO_ALIGN is aligned to half of that */
    const uint32_t align = 16;
    const uint32_t exact = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t schemes = p->exact ? exact : CUBLASLT_REDUCTION_SCHEME_MASK;
    *out = NULL;
    KOLO_TRY(KOLO_BLAS(cublasLtMatmulPreferenceCreate(out)));
    KOLO_TRY(KOLO_BLAS(cublasLtMatmulPreferenceSetAttribute(*out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                            &workspace, sizeof workspace)));
    KOLO_TRY(KOLO_BLAS(cublasLtMatmulPreferenceSetAttribute(*out, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                            &schemes, sizeof schemes)));
    for (size_t i = 0; i < sizeof alignment / sizeof *alignment; i++)
        KOLO_TRY(KOLO_BLAS(cublasLtMatmulPreferenceSetAttribute(*out, alignment[i], &align, sizeof align)));
    return 0;
}

static char *key_of(const kolo_product *p)
{
    static const char *const pass[] = {"linear", "linear_grad_data", "linear_grad_weight"};
    return kolo_format("%s %s%s n %ld f %ld o %ld%s%s", pass[p->pass], kolo_dtype_name(p->dtype),
                       p->tf32 ? " tf32" : "", (long)p->rows, (long)p->in, (long)p->out,
                       p->biases ? " bias" : "", p->exact ? " exact" : "");
}

/* ---- which algorithm ----------------------------------------------------------------------------------- */

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

/* The descriptors for this problem and what the heuristic says to them, best first. *count 0: it has
 * nothing. */
static int propose(kolo_product *p, cublasLtMatmulHeuristicResult_t *result, int most, int *count)
{
    const int a = products[p->pass].a, b = products[p->pass].b, d = products[p->pass].d;
    cublasLtMatmulPreference_t preference = NULL;
    *count = 0;
    close_descriptors(p);
    KOLO_TRY(make_matrices(p));
    KOLO_TRY(make_product(p));
    int rc = make_preference(p, &preference);
    if (rc >= 0) {
        cublasStatus_t answer =
            cublasLtMatmulAlgoGetHeuristic(p->handle, p->product, p->matrix[a], p->matrix[b], p->matrix[d],
                                           p->matrix[d], preference, most, result, count);
        if (answer == CUBLAS_STATUS_NOT_SUPPORTED) *count = 0;
        else rc = kolo_cuda_blas_check(answer, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
    }
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    return rc;
}

/* With the bias in the product if that can be, else without. */
static int propose_any(kolo_product *p, cublasLtMatmulHeuristicResult_t *result, int most, int *count)
{
    p->fused = p->biases == p->out && dtype_of(p, products[p->pass].d) == KOLO_F32;
    KOLO_TRY(propose(p, result, most, count));
    if (!*count && p->fused) {
        p->fused = false;
        KOLO_TRY(propose(p, result, most, count));
    }
    if (*count) return 0;
    return kolo_fail(
        KOLO_ECONFIG, "cuBLASLt %zu has no algorithm for a linear layer of %ld x %ld to %ld in %s",
        cublasLtGetVersion(), (long)p->rows, (long)p->in, (long)p->out, kolo_dtype_name(p->dtype));
}

/* What the heuristic says, as candidates of a trial. */
typedef struct candidates {
    kolo_product *p;
    const cublasLtMatmulHeuristicResult_t *result;
    void *pointer[KOLO_PRODUCT_PARTS], *workspace;
    cudaStream_t stream;
} candidates;

static int open_candidate(void *argument, int64_t i)
{
    (void)argument;
    (void)i;
    return 0;
}

static int run_candidate(void *argument, int64_t i)
{
    const candidates *c = argument;
    return multiply(c->p, &c->result[i].algo, c->pointer, c->workspace, workspace_most, c->stream);
}

static void close_candidate(void *argument, int64_t i)
{
    (void)argument;
    (void)i;
}

static int open_trial(kolo_backend *b, candidates *c)
{
    const kolo_product *p = c->p;
    const int64_t count[] = {p->rows * p->in, p->out * p->in, p->rows * p->out, p->out};
    size_t at[KOLO_PRODUCT_PARTS + 1] = {0};
    void *memory;
    for (int i = 0; i < KOLO_PRODUCT_PARTS; i++)
        at[i + 1] = at[i] + kolo_round_up((size_t)count[i] * sizeof(float), 4096);
    KOLO_TRY(kolo_cuda_trial_data(b, at[KOLO_PRODUCT_PARTS], p->dtype, &memory));
    KOLO_TRY(kolo_cuda_trial_scratch(b, workspace_most, &c->workspace));
    for (int i = 0; i < KOLO_PRODUCT_PARTS; i++) c->pointer[i] = (char *)memory + at[i];
    c->stream = kolo_cuda_of(b)->stream[KOLO_LANE_COMPUTE];
    return 0;
}

/* The fastest; without memory for a trial the first. */
static int fastest(kolo_backend *b, kolo_product *p, const cublasLtMatmulHeuristicResult_t *result, int count,
                   int64_t *best)
{
    candidates c = {.p = p, .result = result};
    const kolo_trial trial = {count, open_candidate, run_candidate, close_candidate, &c};
    bool clock = open_trial(b, &c) >= 0;
    if (!clock)
        kolo_info("using the first algorithm of cuBLASLt's heuristic, untimed: %s", kolo_error_text());
    int rc = kolo_cuda_trial_choose(b, &trial, clock, best);
    kolo_cuda_trial_end(b);
    return rc;
}

/* Whether the kept algorithm is still to be had for this problem: 0, or 1. */
static int check_known(kolo_product *p, const char *known)
{
    const int a = products[p->pass].a, b = products[p->pass].b, d = products[p->pass].d;
    cublasLtMatmulHeuristicResult_t result;
    cublasLtMatmulAlgo_t algorithm;
    if (!algorithm_read(&algorithm, known) ||
        cublasLtMatmulAlgoCheck(p->handle, p->product, p->matrix[a], p->matrix[b], p->matrix[d], p->matrix[d],
                                &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > workspace_most)
        return 1;
    p->algorithm = algorithm;
    p->workspace = result.workspaceSize;
    return 0;
}

static int select_algorithm(kolo_backend *b, kolo_product *p, const char *key)
{
    cublasLtMatmulHeuristicResult_t result[CANDIDATES];
    char text[ALGORITHM_TEXT];
    const bool clock = !b->deterministic && !b->choices.given;
    int64_t best = 0;
    int count;
    if (b->gpu) { /* cuBLASLt's heuristics ask the device, which is not there */
        p->workspace = workspace_most;
        return 0;
    }
    KOLO_TRY(propose_any(p, result, CANDIDATES, &count));
    const char *known = b->deterministic ? NULL : kolo_choices_find(&b->choices, key);
    if (known && !check_known(p, known)) return 0;
    if (known) kolo_info("%s: the algorithm chosen before is no longer available; choosing another", key);
    if (clock && count > 1) KOLO_TRY(fastest(b, p, result, count, &best));
    p->algorithm = result[best].algo;
    p->workspace = result[best].workspaceSize;
    algorithm_write(&p->algorithm, text);
    return clock ? kolo_choices_add(&b->choices, key, text) : 0;
}

/* ---- for operations ------------------------------------------------------------------------------------ */

static int32_t setting(const kolo_product *p, cublasLtMatmulAlgoConfigAttributes_t name)
{
    int32_t value = -1;
    size_t size;
    cublasStatus_t rc =
        cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm, name, &value, sizeof value, &size);
    return rc == CUBLAS_STATUS_SUCCESS ? value : -1;
}

int kolo_product_open(kolo_product *p, kolo_backend *b)
{
    p->tf32 = b->tf32 && p->dtype == KOLO_F32;
    p->exact = b->deterministic || p->dtype != KOLO_F32;
    p->handle = kolo_cuda_of(b)->blas;
    char *key = key_of(p);
    int rc = key ? select_algorithm(b, p, key) : KOLO_ENOMEM;
    free(key);
    if (rc >= 0 && p->pass == KOLO_PRODUCT_WEIGHT && p->biases && !p->fused) {
        size_t bias = kolo_cuda_bias_workspace(p->rows, p->out);
        if (bias > p->workspace) p->workspace = bias;
    }
    return rc;
}

void kolo_product_name(const kolo_product *p, char *text, size_t size)
{
    if (!p->handle) snprintf(text, size, "cuBLASLt, chosen on the GPU");
    else
        snprintf(text, size, "cuBLASLt %d tile %d stages %d split %d%s%s",
                 setting(p, CUBLASLT_ALGO_CONFIG_ID), setting(p, CUBLASLT_ALGO_CONFIG_TILE_ID),
                 setting(p, CUBLASLT_ALGO_CONFIG_STAGES_ID), setting(p, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                 p->tf32 ? ", TF32" : "", p->fused ? ", with bias" : "");
}
