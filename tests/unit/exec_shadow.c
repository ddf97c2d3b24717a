/* The 16-bit copy of the parameters (SHADOW): a CPU backend is made to read its linear weights from there,
 * and must give the bits of one that rounds the f32 weights whenever it reads them: in training, and in
 * evaluation with and without averages. */
#include "exec_rig.h"
#include "ops/element.h"
#include "ops/kernel.h"

/* ---- two backends whose linear layers see weights rounded to bf16: from SHADOW, or rounded on the spot - */

typedef struct rounded {
    kolo_kernel inner;
    int64_t count;
    bool from_shadow;
    float *wide;
} rounded;

static int run_rounded(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                       int slot)
{
    const rounded *l = k->state;
    void *seen[2 * KOLO_MAX_ARGS];
    memcpy(seen, args, 4 * sizeof *seen);
    for (int64_t i = 0; i < l->count; i++)
        l->wide[i] = kolo_from_bf16(l->from_shadow ? ((const uint16_t *)args[1])[i]
                                                   : kolo_to_bf16(((const float *)args[1])[i]));
    seen[1] = l->wide;
    return l->inner.run(&l->inner, seen, workspace, step, slot);
}

static void release_rounded(void *state)
{
    rounded *l = state;
    l->inner.release(l->inner.state);
    free(l->wide);
    free(l);
}

static int prepare_rounded(const kolo_kernel_request *r, kolo_kernel *k)
{
    rounded *l = calloc(1, sizeof *l);
    const kolo_op_row *row = kolo_cpu_backend.rows[r->node->op];
    KOLO_TRY(row->prepare(r, k));
    l->inner = *k;
    l->count = kolo_tensor_count(kolo_request_in(r, 1));
    l->from_shadow = r->layout[r->node->in[1]].half;
    l->wide = malloc((size_t)l->count * sizeof *l->wide);
    k->run = run_rounded;
    k->release = release_rounded;
    k->state = l;
    return 0;
}

static const kolo_op_row rounded_row = {NULL, prepare_rounded};
static const kolo_op_row *rows[KOLO_OP_COUNT];
static kolo_backend_type types[2];

static int half_blocks(kolo_backend *backend, const kolo_graph *graph, const kolo_graph *like,
                       const kolo_layout *like_layout, kolo_layout *layout)
{
    for (int64_t t = 0; t < graph->tensors; t++)
        if (graph->tensor[t].role == KOLO_ROLE_PARAM && graph->tensor[t].rank == 2) layout[t].half = true;
    return kolo_cpu_backend.blocks(backend, graph, like, like_layout, layout);
}

static kolo_backend *rounding_backend(bool shadow)
{
    kolo_backend *b = rig_backend(1, true);
    memcpy(rows, kolo_cpu_backend.rows, sizeof rows);
    rows[KOLO_OP_linear] = rows[KOLO_OP_linear_grad_data] = &rounded_row;
    types[shadow] = kolo_cpu_backend;
    types[shadow].rows = rows;
    if (shadow) types[shadow].blocks = half_blocks;
    b->type = &types[shadow];
    return b;
}

/* ---- */

static kolo_backend *backend[2]; /* rounding on the spot; from SHADOW */
static rig train[2], eval[2];

static bool shadow_is_exact(rig *r)
{
    size_t bytes = r->plan->arena_bytes[KOLO_ARENA_PARAM];
    float *param = malloc(bytes);
    uint16_t *half = malloc(bytes / 2);
    kolo_exec_read_arena(r->exec, KOLO_ARENA_PARAM, param);
    kolo_exec_read_arena(r->exec, KOLO_ARENA_SHADOW, half);
    bool same = true;
    for (size_t i = 0; i < bytes / 4; i++) same &= half[i] == kolo_to_bf16(param[i]);
    free(param);
    free(half);
    return same;
}

static int step_both(int64_t t, double *loss)
{
    for (int k = 0; k < 2; k++) {
        kolo_batch b = rig_batch(&train[k]);
        kolo_metrics m;
        kolo_step s = rig_step(t, .02);
        rig_fill(&train[k], t * train[k].rows);
        KOLO_TRY(kolo_exec_step(train[k].exec, &b, &s, &m));
        loss[k] = m.loss;
    }
    return 0;
}

static bool same_params(const char *which)
{
    int64_t n;
    float *a = rig_all(&train[0], which, &n), *b = rig_all(&train[1], which, &n);
    bool same = !memcmp(a, b, (size_t)n * sizeof *a);
    free(a);
    free(b);
    return same;
}

/* Validation losses of both, which must be the same. */
static bool evaluate(bool ema, double *loss)
{
    double got[2] = {0};
    for (int k = 0; k < 2; k++) {
        kolo_batch b = rig_batch(&eval[k]);
        kolo_metrics m;
        kolo_step none = {0};
        rig_fill(&eval[k], 1000);
        kolo_exec_use_ema(eval[k].exec, ema);
        if (kolo_exec_step(eval[k].exec, &b, &none, &m) < 0) diag("%s", kolo_error_text());
        got[k] = m.loss;
    }
    *loss = got[1];
    return got[0] == got[1];
}

static void test_training(void)
{
    double loss[2];
    int rc = 0, same = 0;
    for (int t = 0; t < 5 && rc >= 0; t++) {
        rc = step_both(t, loss);
        same += loss[0] == loss[1];
    }
    if (rc < 0) diag("%s", kolo_error_text());
    is_int(same, 5,
           "five steps that read the 16-bit copy have the losses of those that round the weights themselves");
    ok(same_params("param") && same_params("ema"), "and leave the same weights and averages");
    ok(shadow_is_exact(&train[1]), "the copy is that of the updated weights");
}

static void test_evaluation(void)
{
    double plain, averaged, again, set, loss[2];
    bool same = evaluate(false, &plain);
    same &= evaluate(true, &averaged);
    same &= evaluate(false, &again);
    ok(same && plain == again && plain != averaged,
       "evaluation has its own copy, of the weights or of their average: %.5f, %.5f", plain, averaged);
    step_both(5, loss);
    same = evaluate(false, &again);
    ok(same && again != plain, "a step of training shows in it");
    for (int k = 0; k < 2; k++) {
        int t = kolo_graph_find(train[k].graph, "fc2.weight");
        int64_t n = kolo_tensor_count(&train[k].graph->tensor[t]);
        float *w = calloc((size_t)n, sizeof *w);
        for (int64_t i = 0; i < n; i++) w[i] = kolo_initial_value(&train[k].graph->tensor[t], 99, i);
        kolo_exec_set(train[k].exec, "param", t, w);
        free(w);
    }
    same = evaluate(false, &set);
    ok(same && set != again, "so does a weight that was set");
    step_both(6, loss);
    ok(loss[0] == loss[1] && shadow_is_exact(&train[1]), "and training goes on from it");
}

static void test_plan(void)
{
    const kolo_plan *p = train[1].plan, *q = eval[1].plan;
    int t = kolo_graph_find(p->graph, "fc1.weight"), bias = kolo_graph_find(p->graph, "fc1.bias");
    int64_t read = -1, plain = -1;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        const kolo_node *n = a->kind == KOLO_ACTION_RUN ? &p->graph->node[a->node] : NULL;
        for (int k = 0; n && k < n->n_in; k++) {
            if (n->in[k] == t) read = a->binding + k;
            if (n->in[k] == bias) plain = a->binding + k;
        }
    }
    ok(p->arena_bytes[KOLO_ARENA_SHADOW] * 2 == p->arena_bytes[KOLO_ARENA_PARAM],
       "the copy has two bytes an element");
    ok(read >= 0 && p->binding[read].arena == KOLO_ARENA_SHADOW &&
           p->binding[read].offset * 2 == p->fixed[t].offset,
       "a weight is read there, at half its offset");
    ok(plain >= 0 && p->binding[plain].arena == KOLO_ARENA_PARAM,
       "what stays f32 is read at its fixed binding");
    ok(kolo_exec_bytes(q, p) >= q->arena_bytes[KOLO_ARENA_SHADOW] && q->arena_bytes[KOLO_ARENA_SHADOW] > 0,
       "an evaluation's own copy is counted");
    ok(p->hash != train[0].plan->hash, "the hash knows of it");
    if (read < 0) return;
    kolo_binding was = p->binding[read];
    p->binding[read] = p->fixed[t];
    ok(kolo_plan_check(p) == KOLO_EINTERNAL && strstr(kolo_error_text(), "16-bit copy"),
       "reading at the fixed binding is a breach: %s", kolo_error_text());
    p->binding[read] = was;
    is_int(kolo_plan_check(p), 0, "the plan as it was passes");
}

int main(void)
{
    rig_config c = {
        .model = "mlp", .rows = 6, .side = 12, .channels = 1, .slots = 2, .ema = true, .dtype = KOLO_BF16};
    int rc = 0;
    for (int k = 0; k < 2 && rc >= 0; k++) {
        rig_config e = c;
        e.eval = true;
        e.slots = 1;
        backend[k] = rounding_backend(k);
        rc = rig_open(&train[k], &c, backend[k], NULL, NULL);
        if (rc >= 0) rc = rig_open(&eval[k], &e, backend[k], NULL, &train[k]);
    }
    if (rc < 0) {
        ok(0, "%s", kolo_error_text());
        return done_testing();
    }
    test_plan();
    test_training();
    test_evaluation();
    for (int k = 0; k < 2; k++) {
        rig_close(&eval[k]);
        rig_close(&train[k]);
        kolo_backend_destroy(&backend[k]);
    }
    return done_testing();
}
