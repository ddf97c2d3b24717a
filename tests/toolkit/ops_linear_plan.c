/* Linear layers as far as the installed cuBLASLt goes without a GPU: it takes every descriptor, and only its
 * heuristic, the first call that asks for a device, says no. */
#include "toolkit_rig.h"

static const kolo_op_row *const rows[KOLO_OP_COUNT] = {
    [KOLO_OP_linear] = &kolo_cuda_linear,
    [KOLO_OP_linear_grad_data] = &kolo_cuda_linear_grad_data,
    [KOLO_OP_linear_grad_weight] = &kolo_cuda_linear_grad_weight};
static const kolo_backend_type type = {.name = "cuda", .rows = rows, .blocks = kolo_nhwc_blocks};

/* y = x w^T + b of odd sizes, and its gradients; map: x is one, (7, 33, 3, 2). */
static kolo_graph *open_graph(enum kolo_dtype dtype, bool bias, bool map)
{
    const int rank = map ? 4 : 2;
    const kolo_init zero = {KOLO_INIT_CONSTANT, 0};
    kolo_graph *g = NULL;
    toolkit_check(kolo_graph_create(&g, "linear", true, dtype), "graph");
    int x = kolo_graph_tensor(g, "x", KOLO_ROLE_ACTIVATION, dtype, rank, (const int64_t[]){7, 33, 3, 2});
    int y = kolo_linear(g, "l", x, 11, bias, zero, zero), w = kolo_graph_find(g, "l.weight");
    toolkit_check(y, "linear");
    int dy = kolo_graph_tensor(g, "dy", KOLO_ROLE_ACTIVATION, dtype, rank, g->tensor[y].dim);
    int dx = kolo_graph_tensor(g, "dx", KOLO_ROLE_ACTIVATION, dtype, rank, g->tensor[x].dim);
    int dw = kolo_graph_tensor(g, "dw", KOLO_ROLE_GRADIENT, KOLO_F32, 2, g->tensor[w].dim);
    int db = kolo_graph_tensor(g, "db", KOLO_ROLE_GRADIENT, KOLO_F32, 1, g->tensor[y].dim + 1);
    g->tensor[dw].of = w;
    const kolo_attributes a = g->node[0].a;
    toolkit_check(
        kolo_graph_node_with(g, KOLO_OP_linear_grad_weight, 2, (int[]){x, dy}, 1 + bias, (int[]){dw, db}, &a),
        "dw");
    toolkit_check(kolo_graph_node_with(g, KOLO_OP_linear_grad_data, 2, (int[]){dy, w}, 1, &dx, &a), "dx");
    return g;
}

static void test_descriptors(enum kolo_dtype dtype, bool tf32, bool bias, bool map)
{
    kolo_cuda cuda = {.processors = 132}; /* no handle */
    kolo_backend b = {.type = &type, .tf32 = tf32, .state = &cuda};
    kolo_graph *g = open_graph(dtype, bias, map);
    kolo_layout *layout = kolo_alloc((size_t)g->tensors * sizeof *layout);
    int reached = 0;
    toolkit_check(kolo_choices_open(&b.choices, "none", NULL, NULL), "choices");
    toolkit_check(kolo_backend_layout(&b, g, NULL, NULL, layout), "layout");
    for (int i = 0; i < (int)g->nodes; i++) {
        kolo_kernel *k;
        size_t workspace;
        int rc = kolo_backend_prepare(&b, g, i, layout, &k, &workspace);
        bool here = rc < 0 && strstr(kolo_error_text(), "cublasLtMatmulAlgoGetHeuristic");
        if (!here)
            diag("%s: %s", kolo_op_table[g->node[i].op].name,
                 rc < 0 ? kolo_error_text() : "made without a GPU?");
        reached += here;
    }
    is_int(reached, 3, "%s%s%s%s: the descriptors of all three passes are accepted", kolo_dtype_name(dtype),
           tf32 ? " as TF32" : "", bias ? " with bias" : "", map ? ", every pixel of a map" : "");
    is_int(layout[kolo_graph_find(g, "l.weight")].half, dtype != KOLO_F32, "the weight is read %s",
           dtype == KOLO_F32 ? "as it is" : "from its 16-bit copy");
    kolo_choices_close(&b.choices);
    kolo_graph_destroy(&g);
    free(layout);
}

int main(void)
{
    for (int bias = 0; bias < 2; bias++) {
        test_descriptors(KOLO_F32, false, bias, false);
        test_descriptors(KOLO_F32, true, bias, false);
        test_descriptors(KOLO_BF16, false, bias, false);
        test_descriptors(KOLO_F16, false, bias, false);
        test_descriptors(KOLO_F32, false, bias, true);
        test_descriptors(KOLO_BF16, false, bias, true);
    }
    return done_testing();
}
