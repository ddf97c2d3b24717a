/* Plans whose activations change their form: the checker passes them and refuses what is wrong with them,
 * bytes are those that are counted by hand, and the executor gives the plain run's bits or, where numbers are
 * rounded, the same ones whatever else is chosen. */
#include "base/memory.h"
#include "exec_rig.h"
#include "plan/stash.h"

static kolo_backend *backend;

enum { ALONE = -1, BESIDE = -2 }; /* all offloaded, alone or with exact forms; else the form of numbers */

static int choose(const kolo_plan *plain, int how, kolo_form *form)
{
    if (how != ALONE)
        KOLO_TRY(kolo_stash_choose(plain, how > 0 ? (enum kolo_form_kind)how : KOLO_FORM_KEPT, true, form));
    return how < 0 ? kolo_stash_offload(plain, 0, form) : 0;
}

/* Convolutions of so many channels with relus and pools between, as VGG has them. */
static int channels = 24;
static int build_pools(kolo_graph **graph, const kolo_model_config *c)
{
    const kolo_conv_spec conv = {.out = channels,
                                 .kernel = {3, 3},
                                 .stride = {1, 1},
                                 .pad = {1, 1},
                                 .bias = true,
                                 .weight = {KOLO_INIT_NORMAL, .1}};
    KOLO_TRY(kolo_graph_create(graph, "pools", c->train, c->dtype));
    kolo_graph *g = *graph;
    int x = kolo_normalize(g, kolo_input(g, c->rows, c->height, c->width, 3, 1), c->mean, c->std);
    char name[16];
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "conv%d%d", i, k);
            x = kolo_conv(g, name, x, &conv);
            snprintf(name, sizeof name, "relu%d%d", i, k);
            x = kolo_relu(g, name, x);
        }
        snprintf(name, sizeof name, "pool%d", i);
        x = kolo_max_pool(g, name, x, i == 1 ? 5 : 3, 2, 1);
    }
    x = kolo_global_avg_pool(g, "mean", x);
    KOLO_TRY(x = kolo_linear(g, "fc", x, 10, true, (kolo_init){KOLO_INIT_NORMAL, .1}, (kolo_init){0}));
    KOLO_TRY(kolo_cross_entropy(g, x, 0));
    return c->train ? kolo_graph_backward(g) : 0;
}

/* ---- bits ---- */

typedef struct result {
    float *param;
    int64_t count;
    double loss;
    kolo_stashed stashed;
    size_t activation;
} result;

static result train(rig_config c)
{
    result out = {0};
    rig r;
    if (rig_open(&r, &c, backend, NULL, NULL) < 0) {
        ok(0, "%s: %s", c.model ? c.model : "pools", kolo_error_text());
        return out;
    }
    kolo_batch b = rig_batch(&r);
    kolo_metrics m = {0};
    for (int t = 0; t < 2; t++) {
        kolo_step s = rig_step(t, .01);
        rig_fill(&r, t * r.rows);
        if (kolo_exec_step(r.exec, &b, &s, &m) < 0) diag("%s", kolo_error_text());
    }
    out.loss = m.loss;
    out.param = rig_all(&r, "param", &out.count);
    out.activation = r.plan->arena_bytes[KOLO_ARENA_ACTIVATION];
    kolo_plan_stashed(r.plan, &out.stashed);
    rig_close(&r);
    return out;
}

static void same_bits(rig_config c, const char *what)
{
    static const int how[] = {KOLO_FORM_KEPT, ALONE, BESIDE};
    static const char *const name[] = {"exact forms", "offloaded", "both"};
    const result plain = train(c);
    c.choose = choose;
    for (int i = 0; i < 3; i++) {
        c.how = how[i];
        const result got = train(c);
        const int *of = got.stashed.of;
        ok(plain.param && got.param && got.loss == plain.loss &&
               !memcmp(got.param, plain.param, (size_t)plain.count * sizeof(float)) &&
               of[KOLO_FORM_KEPT] < got.stashed.activations && got.activation < plain.activation,
           "%s, %s: the plain run's bits; %d again, %d signs, %d in 4 bits, %d offloaded; %.2f of the arena",
           what, name[i], of[KOLO_FORM_DROPPED], of[KOLO_FORM_SIGNS], of[KOLO_FORM_NIBBLES],
           of[KOLO_FORM_OFFLOADED], (double)got.activation / (double)plain.activation);
        free(got.param);
    }
    free(plain.param);
}

static void rounded_bits(rig_config c, const char *what)
{
    static const enum kolo_form_kind form[] = {KOLO_FORM_FP16, KOLO_FORM_BF16, KOLO_FORM_FP8};
    static const double far[] = {.002, .02, .2};
    const result plain = train(c);
    c.choose = choose;
    for (int i = 0; i < 3; i++) {
        if (!kolo_form_takes(form[i], c.dtype)) continue;
        c.how = (int)form[i];
        const result got = train(c), more = train(c);
        const double apart = got.param ? rig_apart(got.param, plain.param, plain.count) : NAN;
        ok(got.param && more.param && !memcmp(got.param, more.param, (size_t)got.count * sizeof(float)),
           "%s, form %d: twice the same bits", what, (int)form[i]);
        ok(apart > 0 && apart < far[i] && got.stashed.waiting < got.stashed.bytes,
           "%s, form %d: %g from the plain run; %.2f of its bytes wait", what, (int)form[i], apart,
           got.stashed.waiting / got.stashed.bytes);
        free(got.param);
        free(more.param);
    }
    free(plain.param);
}

static void test_bits(void)
{
    rig_config c = {.build = build_pools, .rows = 4, .side = 32, .channels = 3};
    same_bits(c, "pools");
    rounded_bits(c, "pools");
    c.slots = 3;
    same_bits(c, "pools, 3 micro-batches");
    c = (rig_config){.build = build_pools, .rows = 4, .side = 32, .channels = 3, .dtype = KOLO_BF16};
    same_bits(c, "pools in bf16");
    rounded_bits(c, "pools in bf16");
    c = (rig_config){.model = "resnet20", .rows = 4, .side = 16, .channels = 3, .slots = 2};
    same_bits(c, "resnet20");
    rounded_bits(c, "resnet20");
}

/* ---- what costs no time ---- */

static kolo_stash_worth worth;

static int choose_free(const kolo_plan *plain, int how, kolo_form *form)
{
    (void)how;
    return kolo_stash_choose_free(plain, form, &worth);
}

static void test_free(void)
{
    rig_config c = {.build = build_pools, .rows = 4, .side = 32, .channels = 3};
    channels = 160;
    const result plain = train(c);
    c.choose = choose_free;
    const result got = train(c);
    const int *of = got.stashed.of;
    ok(worth.taken && worth.price > 0 && worth.price <= KOLO_STASH_PRICE && of[KOLO_FORM_SIGNS] > 0 &&
           of[KOLO_FORM_DROPPED] == 0 && got.activation < plain.activation,
       "160 channels: %d signs, %d in 4 bits, nothing again, at %.4f of a step", of[KOLO_FORM_SIGNS],
       of[KOLO_FORM_NIBBLES], worth.price);
    const double spared = 1 - (double)got.activation / (double)plain.activation;
    ok(fabs(worth.spared - spared) < 1e-9, "what it says to spare is what it spares: %.3f", spared);
    ok(plain.param && got.param && got.loss == plain.loss &&
           !memcmp(got.param, plain.param, (size_t)plain.count * sizeof(float)),
       "the plain run's bits");
    free(got.param);
    free(plain.param);
    channels = 8;
    const result narrow = train(c);
    ok(!worth.taken && worth.price > KOLO_STASH_PRICE && worth.spared > KOLO_STASH_SPARED &&
           narrow.stashed.of[KOLO_FORM_KEPT] == narrow.stashed.activations,
       "8 channels: %.3f of a step would be more than nothing: all is kept", worth.price);
    free(narrow.param);
    channels = 24;
    c = (rig_config){.model = "resnet20", .rows = 4, .side = 16, .channels = 3, .choose = choose_free};
    const result net = train(c);
    ok(!worth.taken && worth.spared < KOLO_STASH_SPARED &&
           net.stashed.of[KOLO_FORM_KEPT] == net.stashed.activations,
       "resnet20: %.4f of the arena is nothing: all is kept", worth.spared);
    free(net.param);
}

static void test_encodable(void)
{
    rig_config c = {.build = build_pools, .rows = 2, .side = 16, .channels = 3};
    rig r;
    if (rig_open(&r, &c, backend, NULL, NULL) < 0) {
        ok(0, "%s", kolo_error_text());
        return;
    }
    size_t bytes = 0, want = 0;
    for (int t = 0; t < r.graph->tensors; t++) {
        const kolo_tensor *x = &r.graph->tensor[t];
        const bool sign = !strncmp(x->name, "relu", 4) && x->name[5] == '1' && !strchr(x->name, ':'),
                   place = !strcmp(x->name, "pool0:1") || !strcmp(x->name, "pool2:1");
        if (x->producer < 0 || r.graph->node[x->producer].backward) continue;
        if (sign || place) want += (size_t)kolo_tensor_count(x) * (sign ? sizeof(float) : 1);
    }
    is_int(kolo_stash_encodable(r.graph, &bytes), 0, "bytes that could be encoded");
    ok(bytes == want && want > 0, "those of relus in front of pools and of small windows: %zu, by hand %zu",
       bytes, want);
    rig_close(&r);
}

/* ---- bytes ---- */

static void test_bytes(void)
{
    rig_config c = {.build = build_pools, .rows = 4, .side = 32, .channels = 3, .ranks = 1};
    c.choose = choose;
    c.how = KOLO_FORM_FP8;
    rig r;
    if (rig_open(&r, &c, backend, NULL, NULL) < 0) {
        ok(0, "%s", kolo_error_text());
        return;
    }
    kolo_stashed got;
    kolo_plan_stashed(r.plan, &got);
    is_int(got.of[KOLO_FORM_SIGNS], 3, "the relu in front of each pool: signs");
    is_int(got.of[KOLO_FORM_NIBBLES], 2, "the index of a pool of 3 x 3, not of 5 x 5: 4 bits");
    is_int(got.of[KOLO_FORM_KEPT], 1, "which stays as it is");
    double want = 0;
    for (int t = 0; t < r.graph->tensors; t++) {
        const double elements = (double)kolo_plan_form_count(r.plan, t);
        const char *name = r.graph->tensor[t].name;
        const int maker = r.graph->tensor[t].producer;
        if (r.graph->tensor[t].role != KOLO_ROLE_ACTIVATION || maker < 0 || r.graph->node[maker].backward)
            continue;
        if (!strncmp(name, "relu", 4)) want += name[5] == '1' ? elements / 8 : elements;
        if (!strcmp(name, "pool0:1") || !strcmp(name, "pool2:1")) want += elements / 2;
        if (!strcmp(name, "pool1:1") || !strcmp(name, "pool0") || !strcmp(name, "pool1")) want += elements;
        if (!strcmp(name, "normalize") || !strcmp(name, "mean")) want += elements;
        if (!strcmp(name, "fc")) want += elements; /* the loss's */
    }
    ok(fabs(got.waiting - want) <= 12 * 64, "bytes that wait: %.0f, by hand %.0f and what aligns them",
       got.waiting, want);
    rig_close(&r);
}

/* ---- the checker ---- */

static bool refuses(const kolo_plan *p, const char *words)
{
    const int rc = kolo_plan_check(p);
    const bool right = rc < 0 && strstr(kolo_error_text(), words);
    if (!right) diag("%s", rc < 0 ? kolo_error_text() : "passes");
    return right;
}

static bool without(kolo_plan *p, int64_t i)
{
    const kolo_action one = p->action[i];
    memmove(p->action + i, p->action + i + 1, (size_t)(p->actions - i - 1) * sizeof one);
    p->actions--;
    const bool right = refuses(p, "");
    memmove(p->action + i + 1, p->action + i, (size_t)(p->actions - i) * sizeof one);
    p->actions++;
    p->action[i] = one;
    return right;
}

static bool shifted(kolo_plan *p, const kolo_action *a, int k)
{
    p->binding[a->binding + k].offset += KOLO_ALIGN;
    const bool right = refuses(p, "");
    p->binding[a->binding + k].offset -= KOLO_ALIGN;
    return right;
}

static void check_all(int how, const char *what)
{
    rig_config c = {.build = build_pools, .rows = 2, .side = 16, .channels = 3, .slots = 2};
    c.choose = choose;
    c.how = how;
    rig r;
    int all = 0, left = 0, moved = 0, gone = 0, first = 0, early = 0;
    if (rig_open(&r, &c, backend, NULL, NULL) < 0) {
        ok(0, "%s: %s", what, kolo_error_text());
        return;
    }
    kolo_plan *p = r.plan;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (!kolo_action_changes_form(a->kind)) continue;
        all++;
        left += without(p, i);
        moved += shifted(p, a, 0) && shifted(p, a, 1);
        if (a->kind != KOLO_ACTION_DECODE && a->kind != KOLO_ACTION_RETRIEVE) continue;
        first++; /* something else where it waits */
        const size_t kept = r.form[a->tensor];
        r.form[a->tensor] = KOLO_FORM_KEPT;
        gone += refuses(p, "");
        r.form[a->tensor] = (kolo_form)kept;
        kolo_binding *b = &p->binding[a->binding], *own = &p->binding[a->binding + 1], swap = *b;
        *b = *own, *own = swap;
        early += refuses(p, "");
        swap = *b, *b = *own, *own = swap;
    }
    ok(all >= 4 && left == all, "%s: each of %d changes of form, left out: refused", what, all);
    is_int(moved, all, "%s: each beside its place: refused", what);
    is_int(gone, first, "%s: of a tensor that has no form: refused", what);
    is_int(early, first, "%s: the wrong way round: refused", what);
    is_int(kolo_plan_check(p), 0, "%s: as it was it passes", what);
    rig_close(&r);
}

/* Signs for whom numbers are needed. */
static int signs_only(const kolo_plan *plain, int how, kolo_form *form)
{
    (void)how;
    form[kolo_graph_find(plain->graph, "relu00")] = KOLO_FORM_SIGNS;
    return 0;
}

static void test_checker(void)
{
    check_all(KOLO_FORM_FP16, "rounded");
    check_all(KOLO_FORM_KEPT, "exact");
    check_all(ALONE, "offloaded");
    rig_config c = {.build = build_pools, .rows = 2, .side = 16, .channels = 3, .choose = signs_only};
    rig r;
    const int rc = rig_open(&r, &c, backend, NULL, NULL);
    ok(rc < 0 && strstr(kolo_error_text(), "nothing but signs was kept"),
       "signs of what a convolution's gradient reads: refused: %s", rc < 0 ? kolo_error_text() : "passes");
    rig_close(&r);
}

int main(void)
{
    backend = rig_backend(1, true);
    test_bits();
    test_free();
    test_encodable();
    test_bytes();
    test_checker();
    kolo_backend_destroy(&backend);
    return done_testing();
}
