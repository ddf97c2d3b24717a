/* cuBLASLt: one matrix product, column by column, with the epilogues that add a bias or sum its
 * gradient. Four algorithms; the fast ones sum in an order that changes, or round partial sums, as their
 * reduction scheme says. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "standin/dnn.h"

enum { ALGORITHMS = 4, MAGIC = 0x57ABD };

struct cublasLtContext {
    int device;
};
typedef struct matrix {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
} matrix;
typedef struct product {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t transpose_a, transpose_b;
    uint32_t epilogue;
    void *bias;
} product;
typedef struct preference {
    uint64_t workspace;
    uint32_t schemes, align[4];
} preference;
typedef struct algorithm { /* lies in cublasLtMatmulAlgo_t */
    uint64_t magic;
    int32_t id, tile, split, scheme, stages;
    uint32_t align;
    uint64_t workspace;
} algorithm;
_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "the algorithm's bytes");

static cublasStatus_t enter(const char *call, enum standin_kind kind, cublasStatus_t otherwise)
{
    int code;
    if (standin_begin(call, kind, &code)) return code ? (cublasStatus_t)code : otherwise;
    if (standin_on_host_function()) standin_defect("%s was called in a host function", call);
    return CUBLAS_STATUS_SUCCESS;
}
#define ENTER(kind, otherwise)                                        \
    do {                                                              \
        cublasStatus_t enter_ = enter(__func__, (kind), (otherwise)); \
        if (enter_ != CUBLAS_STATUS_SUCCESS) return enter_;           \
    } while (0)

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    default: return "CUBLAS_STATUS_(another one)";
    }
}
const char *cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

static void *make(size_t bytes, const char *what)
{
    void *p = calloc(1, bytes);
    if (!p) abort();
    standin_track(what, p);
    return p;
}

static cublasStatus_t unmake(void *p, const char *what)
{
    int code;
    standin_begin(what, STANDIN_CREATION, &code);
    if (!standin_untrack(what, p)) return CUBLAS_STATUS_INVALID_VALUE;
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    ENTER(STANDIN_CREATION, CUBLAS_STATUS_NOT_INITIALIZED);
    if (standin_devices() == 0 || standin_sticky) return CUBLAS_STATUS_NOT_INITIALIZED;
    *h = make(sizeof **h, "cuBLASLt handle");
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return unmake(h, "cuBLASLt handle"); }

/* ---- descriptors ---- */

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    ENTER(STANDIN_CREATION, CUBLAS_STATUS_ALLOC_FAILED);
    if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    matrix *m = make(sizeof(cublasLtMatrixLayoutOpaque_t), "cuBLASLt matrix layout");
    *m = (matrix){type, rows, columns, ld};
    *out = (cublasLtMatrixLayout_t)(void *)m;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m)
{
    return unmake(m, "cuBLASLt matrix layout");
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    ENTER(STANDIN_CREATION, CUBLAS_STATUS_ALLOC_FAILED);
    product *p = make(sizeof(cublasLtMatmulDescOpaque_t), "cuBLASLt product");
    *p = (product){.compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    *out = (cublasLtMatmulDesc_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t p) { return unmake(p, "cuBLASLt product"); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t size)
{
    ENTER(STANDIN_OTHER, CUBLAS_STATUS_INTERNAL_ERROR);
    if (!standin_is("cuBLASLt product", d) || !value) return CUBLAS_STATUS_INVALID_VALUE;
    product *p = (product *)(void *)d;
    size_t wanted = name == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof p->bias : 4;
    if (size != wanted) return CUBLAS_STATUS_INVALID_VALUE;
    if (name == CUBLASLT_MATMUL_DESC_TRANSA) memcpy(&p->transpose_a, value, 4);
    else if (name == CUBLASLT_MATMUL_DESC_TRANSB) memcpy(&p->transpose_b, value, 4);
    else if (name == CUBLASLT_MATMUL_DESC_EPILOGUE) memcpy(&p->epilogue, value, 4);
    else if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER) memcpy(&p->bias, value, sizeof p->bias);
    else {
        standin_defect("the stand-in does not know attribute %d of a product", (int)name);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    ENTER(STANDIN_CREATION, CUBLAS_STATUS_ALLOC_FAILED);
    preference *p = make(sizeof(cublasLtMatmulPreferenceOpaque_t), "cuBLASLt preference");
    *p = (preference){.schemes = CUBLASLT_REDUCTION_SCHEME_MASK, .align = {256, 256, 256, 256}};
    *out = (cublasLtMatmulPreference_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return unmake(p, "cuBLASLt preference");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t d,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t size)
{
    ENTER(STANDIN_OTHER, CUBLAS_STATUS_INTERNAL_ERROR);
    if (!standin_is("cuBLASLt preference", d) || !value) return CUBLAS_STATUS_INVALID_VALUE;
    preference *p = (preference *)(void *)d;
    if (size != (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8u : 4u))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch ((int)name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: memcpy(&p->workspace, value, 8); break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: memcpy(&p->schemes, value, 4); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        memcpy(&p->align[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, 4);
        break;
    default:
        standin_defect("the stand-in does not know preference %d", (int)name);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the problem ---- */

typedef struct problem {
    product p;
    matrix a, b, d;
    int64_t m, n, k;
} problem;

static bool is_half(cudaDataType_t t) { return t == CUDA_R_16F || t == CUDA_R_16BF; }

/* Not every case that cuBLASLt takes: f32, or 16-bit inputs with the same or f32 outputs, summed in f32. */
static cublasStatus_t read_problem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                   cublasLtMatrixLayout_t d, problem *out)
{
    if (!standin_is("cuBLASLt product", desc)) return CUBLAS_STATUS_INVALID_VALUE;
    cublasLtMatrixLayout_t all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (!standin_is("cuBLASLt matrix layout", all[i])) return CUBLAS_STATUS_INVALID_VALUE;
    *out = (problem){*(const product *)(const void *)desc,
                     *(const matrix *)(const void *)a,
                     *(const matrix *)(const void *)b,
                     *(const matrix *)(const void *)d,
                     0,
                     0,
                     0};
    const problem *q = out;
    const matrix *before = (const matrix *)(const void *)c;
    out->m = (int64_t)(q->p.transpose_a ? q->a.columns : q->a.rows);
    out->k = (int64_t)(q->p.transpose_a ? q->a.rows : q->a.columns);
    out->n = (int64_t)(q->p.transpose_b ? q->b.rows : q->b.columns);
    int64_t k = (int64_t)(q->p.transpose_b ? q->b.columns : q->b.rows);
    if (k != q->k || (int64_t)q->d.rows != q->m || (int64_t)q->d.columns != q->n ||
        before->rows != q->d.rows || before->columns != q->d.columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    bool inputs = q->a.type == q->b.type && (q->a.type == CUDA_R_32F || is_half(q->a.type));
    bool output = q->d.type == q->a.type || (is_half(q->a.type) && q->d.type == CUDA_R_32F);
    bool compute = q->p.compute == CUBLAS_COMPUTE_32F ||
                   (q->p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && q->a.type == CUDA_R_32F);
    bool epilogue = q->p.epilogue == CUBLASLT_EPILOGUE_DEFAULT || q->p.epilogue == CUBLASLT_EPILOGUE_BIAS ||
                    q->p.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    return inputs && output && compute && epilogue && q->p.scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
                                                                               : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* By their number; the first the heuristic proposes is the last of those allowed. */
static const int schemes[ALGORITHMS] = {
    CUBLASLT_REDUCTION_SCHEME_NONE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
    CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, CUBLASLT_REDUCTION_SCHEME_INPLACE};

static algorithm algorithm_of(int id, const problem *q, uint32_t align)
{
    uint64_t bytes = id == 0 ? 0 : (uint64_t)(q->m * q->n) * 8;
    return (algorithm){MAGIC, id, 20, id == 0 ? 1 : 2, schemes[id], 3, align, bytes};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int most,
                                              cublasLtMatmulHeuristicResult_t result[], int *count)
{
    ENTER(STANDIN_OTHER, CUBLAS_STATUS_INTERNAL_ERROR);
    problem q;
    *count = 0;
    if (!standin_is("cuBLASLt handle", h) || !standin_is("cuBLASLt preference", pref) || most < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t rc = read_problem(desc, a, b, c, d, &q);
    if (rc != CUBLAS_STATUS_SUCCESS) return rc;
    if (q.p.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !q.p.bias) return CUBLAS_STATUS_INVALID_VALUE;
    const preference *p = (const preference *)(const void *)pref;
    uint32_t align = 256;
    for (int i = 0; i < 4; i++) align = p->align[i] < align ? p->align[i] : align;
    for (int id = ALGORITHMS - 1; id >= 0 && *count < most; id--) {
        algorithm g = algorithm_of(id, &q, align);
        if ((g.scheme && !(p->schemes & (uint32_t)g.scheme)) || g.workspace > p->workspace) continue;
        cublasLtMatmulHeuristicResult_t *r = &result[(*count)++];
        memset(r, 0, sizeof *r);
        memcpy(&r->algo, &g, sizeof g);
        r->workspaceSize = g.workspace;
    }
    return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    ENTER(STANDIN_OTHER, CUBLAS_STATUS_INTERNAL_ERROR);
    problem q;
    algorithm g;
    if (!standin_is("cuBLASLt handle", h)) return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t rc = read_problem(desc, a, b, c, d, &q);
    if (rc != CUBLAS_STATUS_SUCCESS) return rc;
    memcpy(&g, algo, sizeof g);
    if (g.magic != MAGIC || g.id < 0 || g.id >= ALGORITHMS || g.scheme != schemes[g.id])
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(result, 0, sizeof *result);
    result->algo = *algo;
    result->workspaceSize = algorithm_of(g.id, &q, g.align).workspace;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, void *value,
                                                    size_t size, size_t *written)
{
    algorithm g;
    memcpy(&g, algo, sizeof g);
    int32_t v = name == CUBLASLT_ALGO_CONFIG_ID                 ? g.id
                : name == CUBLASLT_ALGO_CONFIG_TILE_ID          ? g.tile
                : name == CUBLASLT_ALGO_CONFIG_SPLITK_NUM       ? g.split
                : name == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? g.scheme
                : name == CUBLASLT_ALGO_CONFIG_STAGES_ID        ? g.stages
                                                                : 0;
    if (g.magic != MAGIC || size < sizeof v) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &v, sizeof v);
    if (written) *written = sizeof v;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

typedef struct call {
    problem q;
    algorithm g;
    const void *a, *b, *c;
    void *d, *workspace;
    float alpha, beta;
} call;

static size_t type_size(cudaDataType_t t) { return is_half(t) ? 2 : 4; }
static size_t span(const matrix *m)
{
    return (size_t)((int64_t)(m->columns - 1) * m->ld + (int64_t)m->rows) * type_size(m->type);
}

static float load(const void *p, int64_t i, cudaDataType_t t)
{
    if (!is_half(t)) return ((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    return t == CUDA_R_16F ? standin_from_half(bits) : standin_from_bf16(bits);
}

static float rounded(float x, cudaDataType_t t)
{
    if (!is_half(t)) return x;
    return t == CUDA_R_16F ? standin_from_half(standin_to_half(x)) : standin_from_bf16(standin_to_bf16(x));
}

static void store(void *p, int64_t i, cudaDataType_t t, float x)
{
    if (!is_half(t)) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = t == CUDA_R_16F ? standin_to_half(x) : standin_to_bf16(x);
}

/* op(A) as rows of k, op(B) as columns of k. */
static float *gather(const problem *q, const matrix *m, const void *p, bool transpose, int64_t vectors)
{
    float *out = malloc((size_t)(vectors * q->k + 1) * sizeof *out);
    if (!out) abort();
    for (int64_t v = 0; v < vectors; v++)
        for (int64_t k = 0; k < q->k; k++) {
            float x = load(p, transpose ? k + v * m->ld : v + k * m->ld, m->type);
            out[v * q->k + k] = q->p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? standin_to_tf32(x) : x;
        }
    return out;
}

/* Sixteen sums side by side, as wide vectors have them, added up from one end or the other. */
static float sum_products(const float *a, const float *b, int64_t n, bool backwards)
{
    enum { LANES = 16 };
    float lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += a[i + l] * b[i + l];
    for (int l = 0; i + l < n; l++) lane[l] += a[i + l] * b[i + l];
    for (int l = 0; l < LANES; l++) sum += lane[backwards ? LANES - 1 - l : l];
    return sum;
}

static float dot(const call *c, const float *a, const float *b, bool backwards)
{
    const int64_t k = c->q.k, half = c->g.split > 1 ? k / 2 : k;
    float part[2] = {sum_products(a, b, half, backwards),
                     sum_products(a + half, b + half, k - half, backwards)};
    if (c->g.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)
        return rounded(part[0], c->q.d.type) + rounded(part[1], c->q.d.type);
    return part[0] + part[1];
}

static int multiply(standin_op *op)
{
    static uint64_t chance;
    const call *c = op->work.argument;
    const problem *q = &c->q;
    bool backwards = c->g.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE && (standin_random(&chance) & 1);
    if (c->g.workspace) memset(c->workspace, 0xFF, c->g.workspace);
    float *a = gather(q, &q->a, c->a, q->p.transpose_a, q->m),
          *b = gather(q, &q->b, c->b, !q->p.transpose_b, q->n);
    for (int64_t j = 0; j < q->n; j++)
        for (int64_t i = 0; i < q->m; i++) {
            float x = c->alpha * dot(c, a + i * q->k, b + j * q->k, backwards);
            if (c->beta != 0) x += c->beta * load(c->c, i + j * q->d.ld, q->d.type);
            if (q->p.epilogue == CUBLASLT_EPILOGUE_BIAS) x += load(q->p.bias, i, q->d.type);
            store(c->d, i + j * q->d.ld, q->d.type, x);
        }
    for (int64_t j = 0; q->p.epilogue == CUBLASLT_EPILOGUE_BGRADB && j < q->n; j++) {
        float sum = 0;
        for (int64_t k = 0; k < q->k; k++) sum += b[j * q->k + k];
        store(q->p.bias, j, q->d.type, sum);
    }
    free(a);
    free(b);
    return STANDIN_DONE;
}

static bool on_device(const void *p, size_t bytes, const char *what)
{
    if (standin_place_of(p, bytes) == STANDIN_DEVICE) return true;
    standin_defect("%s of a matrix product does not lie in device memory as a whole", what);
    return false;
}

static cublasStatus_t check_memory(const call *c, size_t workspace_bytes)
{
    const problem *q = &c->q;
    int64_t bias = q->p.epilogue == CUBLASLT_EPILOGUE_BIAS     ? q->m
                   : q->p.epilogue == CUBLASLT_EPILOGUE_BGRADB ? q->n
                                                               : 0;
    bool there = on_device(c->a, span(&q->a), "A") && on_device(c->b, span(&q->b), "B") &&
                 on_device(c->d, span(&q->d), "D") &&
                 (!bias || on_device(q->p.bias, (size_t)bias * type_size(q->d.type), "the bias")) &&
                 (!c->g.workspace || on_device(c->workspace, c->g.workspace, "the workspace"));
    if (!there) return CUBLAS_STATUS_INVALID_VALUE;
    if (c->g.workspace > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    uintptr_t together =
        (uintptr_t)c->a | (uintptr_t)c->b | (uintptr_t)c->d | (bias ? (uintptr_t)q->p.bias : 0);
    if (together % c->g.align % 16) { /* kernels read 16 bytes at once, if they were told they may */
        standin_defect("a matrix of a product is not aligned as its algorithm was chosen for (%u bytes)",
                       c->g.align);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                              cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b,
                              const void *beta, const void *C, cublasLtMatrixLayout_t c, void *D,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t bytes, cudaStream_t stream)
{
    ENTER(STANDIN_LAUNCH, CUBLAS_STATUS_EXECUTION_FAILED);
    call *own = calloc(1, sizeof *own);
    if (!own) abort();
    *own = (call){.a = A,
                  .b = B,
                  .c = C,
                  .d = D,
                  .workspace = workspace,
                  .alpha = *(const float *)alpha,
                  .beta = *(const float *)beta};
    cublasStatus_t rc = standin_is("cuBLASLt handle", h) ? read_problem(desc, a, b, c, d, &own->q)
                                                         : CUBLAS_STATUS_NOT_INITIALIZED;
    if (rc == CUBLAS_STATUS_SUCCESS) {
        if (algo) memcpy(&own->g, algo, sizeof own->g);
        else own->g = algorithm_of(0, &own->q, 1);
        if (own->g.magic != MAGIC || own->g.id < 0 || own->g.id >= ALGORITHMS)
            rc = CUBLAS_STATUS_INVALID_VALUE;
        /* of another problem */
        else if (own->g.workspace != algorithm_of(own->g.id, &own->q, 1).workspace)
            rc = CUBLAS_STATUS_NOT_SUPPORTED;
        else rc = check_memory(own, bytes);
    }
    if (rc != CUBLAS_STATUS_SUCCESS) {
        free(own);
        return rc;
    }
    double seconds = 3e-6 + 2.0 * (double)(own->q.m * own->q.n * own->q.k) / (1e13 * (1 + own->g.id));
    standin_count_kernel("matrix product");
    cudaError_t below =
        standin_enqueue(stream, &(standin_work){"matrix product", multiply, free, own, seconds}, NULL);
    return below == cudaSuccess && !standin_sticky ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
