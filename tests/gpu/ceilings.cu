/* ceilings [--versions] [--quick]: what this GPU can do at most, as JSON lines: bandwidth of a copy and of
 * reading, matrix products by cuBLASLt on random numbers, the bus, and what a launch costs. Times of
 * operations are held against these. --versions: only which libraries and driver are here; needs no GPU.
 * --quick: small sizes, one round. */
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rounds = 7;

static void check(int rc, const char *words, const char *call, int line)
{
    if (rc == 0) return;
    fprintf(stderr, "ceilings.cu:%d: %s: %s (%d)\n", line, call, words, rc);
    exit(69);
}
#define CUDA(call)                                                 \
    do {                                                           \
        cudaError_t rc_ = (call);                                  \
        check((int)rc_, cudaGetErrorString(rc_), #call, __LINE__); \
    } while (0)
#define BLAS(call)                                                    \
    do {                                                              \
        cublasStatus_t rc_ = (call);                                  \
        check((int)rc_, cublasLtGetStatusName(rc_), #call, __LINE__); \
    } while (0)

/* ---- kernels ------------------------------------------------------------------------------------------- */

static __global__ void copy_kernel(uint4 *to, const uint4 *from, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

static __global__ void read_kernel(const uint4 *from, size_t n, uint32_t *never)
{
    uint32_t sum = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint4 v = from[i];
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x9E3779B9u) *never = sum; /* so that the loads are not left out */
}

static __global__ void empty_kernel(void) {}

/* Numbers in [-1, 1): products of zeros run faster than real ones. */
template <typename T> static __global__ void fill_kernel(T *to, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u ^ seed;
        h ^= h >> 16, h *= 2246822519u, h ^= h >> 13;
        to[i] = (T)((float)(h >> 8) * (1.0f / 8388608.0f) - 1.0f);
    }
}

/* ---- timing -------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median seconds of one of `times` calls between two events. */
template <typename Run> static double seconds(Run run, int times)
{
    float all[64];
    cudaEvent_t from, to;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    for (int i = 0; i < 2; i++) run();
    for (int r = 0; r < rounds; r++) {
        CUDA(cudaEventRecord(from));
        for (int i = 0; i < times; i++) run();
        CUDA(cudaEventRecord(to));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&all[r], from, to));
    }
    CUDA(cudaGetLastError());
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    qsort(all, (size_t)rounds, sizeof *all, compare);
    return (double)all[rounds / 2] * 1e-3 / times;
}

static void tell(const char *name, double value, const char *unit)
{
    printf("{\"what\": \"ceiling\", \"name\": \"%s\", \"%s\": %.4g}\n", name, unit, value);
    fflush(stdout);
}

/* ---- memory and bus ------------------------------------------------------------------------------------ */

static void memory(size_t bytes, int blocks)
{
    uint4 *a, *b;
    uint32_t *never;
    size_t n = bytes / sizeof(uint4);
    CUDA(cudaMalloc(&a, bytes));
    CUDA(cudaMalloc(&b, bytes));
    CUDA(cudaMalloc(&never, sizeof *never));
    fill_kernel<<<blocks, 256>>>((float *)a, bytes / sizeof(float), 1u);
    double both = 2e-9 * (double)bytes, one = 1e-9 * (double)bytes;
    double best = both / seconds([&] { CUDA(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice)); }, 4);
    double own = both / seconds([&] { copy_kernel<<<blocks, 256>>>(b, a, n); }, 4);
    tell("memcpy", best, "gb_s");
    tell("copy kernel", own, "gb_s");
    tell("copy", best > own ? best : own, "gb_s");
    tell("read kernel", one / seconds([&] { read_kernel<<<blocks, 256>>>(a, n, never); }, 4), "gb_s");
    void *host;
    size_t part = bytes < (size_t)256 << 20 ? bytes : (size_t)256 << 20;
    CUDA(cudaMallocHost(&host, part));
    tell("upload",
         1e-9 * (double)part /
             seconds([&] { CUDA(cudaMemcpyAsync(a, host, part, cudaMemcpyHostToDevice)); }, 2),
         "gb_s");
    tell("download",
         1e-9 * (double)part /
             seconds([&] { CUDA(cudaMemcpyAsync(host, a, part, cudaMemcpyDeviceToHost)); }, 2),
         "gb_s");
    CUDA(cudaFreeHost(host));
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaFree(never));
}

static void launches(void)
{
    enum { MANY = 300 };
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    tell("launch", 1e6 * seconds([&] { empty_kernel<<<1, 32>>>(); }, MANY), "us");
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < MANY; i++) empty_kernel<<<1, 32, 0, stream>>>();
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    tell("launch in a graph", 1e6 / MANY * seconds([&] { CUDA(cudaGraphLaunch(exec, 0)); }, 4), "us");
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamDestroy(stream));
}

/* ---- matrix products ----------------------------------------------------------------------------------- */

typedef struct product {
    const char *name;
    cudaDataType type, out;
    cublasComputeType_t compute;
    size_t size;
} product;

static void fill(void *p, cudaDataType type, size_t n, int blocks, uint32_t seed)
{
    if (type == CUDA_R_16BF) fill_kernel<<<blocks, 256>>>((__nv_bfloat16 *)p, n, seed);
    else if (type == CUDA_R_16F) fill_kernel<<<blocks, 256>>>((__half *)p, n, seed);
    else fill_kernel<<<blocks, 256>>>((float *)p, n, seed);
}

/* (side x side) by (side x side), the best of the library's first candidates. */
static void matrix(const product *p, int side, int blocks)
{
    enum { CANDIDATES = 6 };
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    size_t n = (size_t)side * (size_t)side, scratch = (size_t)64 << 20;
    void *a, *b, *c, *workspace;
    float one = 1, zero = 0;
    int count = 0;
    cublasOperation_t transposed = CUBLAS_OP_T;
    BLAS(cublasLtCreate(&handle));
    BLAS(cublasLtMatmulDescCreate(&desc, p->compute, CUDA_R_32F));
    BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    BLAS(cublasLtMatrixLayoutCreate(&layout, p->type, (uint64_t)side, (uint64_t)side, side));
    BLAS(cublasLtMatmulPreferenceCreate(&preference));
    BLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch,
                                              sizeof scratch));
    CUDA(cudaMalloc(&a, n * p->size));
    CUDA(cudaMalloc(&b, n * p->size));
    CUDA(cudaMalloc(&c, n * p->size));
    CUDA(cudaMalloc(&workspace, scratch));
    fill(a, p->type, n, blocks, 1u);
    fill(b, p->type, n, blocks, 2u);
    BLAS(cublasLtMatmulAlgoGetHeuristic(handle, desc, layout, layout, layout, layout, preference, CANDIDATES,
                                        found, &count));
    double best = 1e30;
    for (int i = 0; i < count; i++) {
        double t = seconds(
            [&] {
                BLAS(cublasLtMatmul(handle, desc, &one, a, layout, b, layout, &zero, c, layout, c, layout,
                                    &found[i].algo, workspace, scratch, 0));
            },
            2);
        if (t < best) best = t;
    }
    if (count) tell(p->name, 2e-12 * (double)n * side / best, "tflop_s");
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaFree(c));
    CUDA(cudaFree(workspace));
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
}

/* ---- what is here -------------------------------------------------------------------------------------- */

static void version_of(const char *library, const char *function, const char *name)
{
    void *so = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    size_t (*ask)(void) = NULL;
    if (so) *(void **)&ask = dlsym(so, function);
    if (ask) printf(", \"%s\": %zu", name, ask());
    else printf(", \"%s\": null", name);
}

static void versions(void)
{
    int runtime = 0, driver = 0, nccl = 0, (*ask)(int *) = NULL;
    cudaRuntimeGetVersion(&runtime);
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    void *so = dlopen("libnccl.so.2", RTLD_NOW);
    if (so) *(void **)&ask = dlsym(so, "ncclGetVersion");
    if (ask) ask(&nccl);
    printf(
        "{\"what\": \"versions\", \"runtime\": %d, \"driver_supports\": %d, \"cublaslt\": %zu, \"nccl\": %d",
        runtime, driver, cublasLtGetVersion(), nccl);
    version_of("libcudnn.so.9", "cudnnGetVersion", "cudnn");
    printf("}\n");
}

int main(int argc, char **argv)
{
    static const product products[] = {
        {"bf16 product", CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2},
        {"fp16 product", CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 2},
        {"tf32 product", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
        {"f32 product", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4}};
    int quick = 0;
    cudaDeviceProp d;
    size_t free_bytes, total;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--versions")) return versions(), 0;
        if (strcmp(argv[i], "--quick"))
            return fprintf(stderr, "usage: ceilings [--versions] [--quick]\n"), 78;
        quick = 1;
    }
    versions();
    CUDA(cudaGetDeviceProperties(&d, 0));
    CUDA(cudaMemGetInfo(&free_bytes, &total));
    printf("{\"what\": \"gpu\", \"name\": \"%s\", \"capability\": \"%d.%d\", \"processors\": %d, \"l2_mib\": "
           "%d, "
           "\"memory_mib\": %zu, "
           "\"free_mib\": %zu}\n",
           d.name, d.major, d.minor, d.multiProcessorCount, d.l2CacheSize >> 20, total >> 20,
           free_bytes >> 20);
    if (quick) rounds = 1;
    int blocks = d.multiProcessorCount * 8;
    launches();
    memory((size_t)(quick ? 64 : 2048) << 20, blocks);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        matrix(&products[i], quick ? 1024 : 8192, blocks);
    return 0;
}
