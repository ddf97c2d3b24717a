/* Plans of convolutions as the installed cuDNN makes them for a GPU that is only described: every convolution of the
 * ResNets, in every precision. The descriptions in tests/gpu/profiles/ were written by hand from the data sheets and
 * compute capabilities of these GPUs, not recorded on them. */
#include <math.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "models/models.h"
#include "ops/cuda/dnn.h"
#include "tap.h"

static const kolo_op_row *const rows[KOLO_OP_COUNT] = {[KOLO_OP_conv] = &kolo_cuda_conv,
                                                       [KOLO_OP_conv_grad_data] = &kolo_cuda_conv_grad_data,
                                                       [KOLO_OP_conv_grad_weight] = &kolo_cuda_conv_grad_weight};
static const kolo_backend_type type = {.name = "cuda", .rows = rows, .blocks = kolo_cuda_blocks};

static void check(int rc, const char *what)
{
    if (rc >= 0) return;
    printf("Bail out! %s: %s\n", what, kolo_error_text());
    exit(1);
}

/* A backend that makes plans for the GPU of a profile and cannot run them. */
typedef struct planner {
    kolo_backend backend;
    kolo_cuda cuda;
} planner;

static planner *open_planner(const char *gpu, bool tf32, const char *choices)
{
    char path[256], *json = NULL;
    planner *p = kolo_alloc(sizeof *p);
    snprintf(path, sizeof path, "tests/gpu/profiles/%s.json", gpu);
    check(kolo_file_read(path, &json, NULL), path);
    check(kolo_dnn_profile(&p->cuda.dnn_profile, json), path);
    free(json);
    p->cuda.processors = 132;
    p->backend = (kolo_backend){.type = &type, .tf32 = tf32, .state = &p->cuda};
    check(kolo_choices_open(&p->backend.choices, gpu, NULL, choices), "choices");
    return p;
}

static void close_planner(planner *p)
{
    for (int64_t i = 0; i < p->backend.kernels; i++) {
        kolo_kernel *k = p->backend.kernel[i];
        if (k->release) k->release(k->state);
        free(k->key);
        free(k);
    }
    free(p->backend.kernel);
    kolo_choices_close(&p->backend.choices);
    for (int64_t i = 0; i < p->cuda.weights; i++) free(p->cuda.weight[i]);
    free(p->cuda.weight);
    cudnnBackendDestroyDescriptor(p->cuda.dnn_profile);
    free(p);
}

static bool is_conv(const kolo_node *n)
{
    return n->op == KOLO_OP_conv || n->op == KOLO_OP_conv_grad_data || n->op == KOLO_OP_conv_grad_weight;
}

/* ---- whole networks ---------------------------------------------------------------------------------------------- */

typedef struct network {
    kolo_graph *graph;
    kolo_layout *layout;
} network;

static network open_network(planner *p, const char *model, int64_t batch, enum kolo_dtype dtype)
{
    const kolo_model *m = kolo_model_find(model);
    kolo_model_config config = {.rows = batch,
                                .height = m->height,
                                .width = m->width,
                                .channels = m->channels,
                                .classes = m->classes,
                                .std = {1, 1, 1, 1},
                                .train = true,
                                .dtype = dtype};
    network n = {NULL, NULL};
    check(kolo_model_graph(&n.graph, model, &config), model);
    n.layout = kolo_alloc((size_t)n.graph->tensors * sizeof *n.layout);
    check(kolo_backend_layout(&p->backend, n.graph, NULL, NULL, n.layout), "layout");
    return n;
}

static void close_network(network *n)
{
    kolo_graph_destroy(&n->graph);
    free(n->layout);
}

typedef struct tally {
    int convolutions, refused, breaches;
    size_t workspace;
    char first[256];
} tally;

/* breaches: f32 that would round to TF32; a workspace beyond what is allowed. */
static tally plan_network(planner *p, network *n)
{
    tally t = {0};
    for (int i = 0; i < (int)n->graph->nodes; i++) {
        kolo_kernel *k;
        size_t bytes = 0;
        if (!is_conv(&n->graph->node[i])) continue;
        t.convolutions++;
        if (kolo_backend_prepare(&p->backend, n->graph, i, n->layout, &k, &bytes) < 0) {
            if (!t.refused++) snprintf(t.first, sizeof t.first, "%s", kolo_error_text());
            continue;
        }
        if (bytes > t.workspace) t.workspace = bytes;
        t.breaches += n->graph->dtype == KOLO_F32 && !p->backend.tf32 && strstr(kolo_kernel_name(k), "tensor cores");
        t.breaches += bytes > ((size_t)1 << 30) + ((size_t)8 << 20);
    }
    return t;
}

static void test_networks(const char *gpu)
{
    static const struct {
        const char *model;
        int64_t batch;
        int convolutions; /* a forward and two gradients each, but the first one's input has none */
    } net[] = {{"resnet18", 256, 59},
               {"resnet18", 32, 59},
               {"resnet50", 256, 158},
               {"resnet50", 32, 158},
               {"resnet20", 128, 56}};
    static const struct {
        const char *name;
        enum kolo_dtype dtype;
        bool tf32;
    } precision[] = {
        {"f32", KOLO_F32, false}, {"tf32", KOLO_F32, true}, {"bf16", KOLO_BF16, false}, {"f16", KOLO_F16, false}};
    for (size_t k = 0; k < sizeof precision / sizeof *precision; k++) {
        planner *p = open_planner(gpu, precision[k].tf32, "");
        for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
            network n = open_network(p, net[i].model, net[i].batch, precision[k].dtype);
            tally t = plan_network(p, &n);
            ok(t.convolutions == net[i].convolutions && !t.refused && !t.breaches,
               "%s: %s, batch %ld, %s: all %d convolutions have a plan within its rules (workspace %.0f MiB)", gpu,
               net[i].model, (long)net[i].batch, precision[k].name, t.convolutions, (double)t.workspace / (1 << 20));
            if (t.refused || t.breaches) diag("%d refused, %d against the rules; %s", t.refused, t.breaches, t.first);
            close_network(&n);
        }
        close_planner(p);
    }
}

int main(void)
{
    test_networks("h200");
    test_networks("a100");
    return done_testing();
}
