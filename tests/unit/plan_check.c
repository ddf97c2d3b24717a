/* Plans of real networks pass the checker for every way of running them; broken ones are named. */
#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"
#include "models/models.h"
#include "plan/plan.h"
#include "tap.h"

static kolo_backend *backend;

static kolo_graph *graph_of(const char *model, int64_t rows, int64_t side, int64_t channels, bool train)
{
    kolo_model_config c = {.rows = rows,
                           .height = side,
                           .width = side,
                           .channels = channels,
                           .classes = 10,
                           .train = train,
                           .mean = {.5f, .5f, .5f},
                           .std = {.25f, .25f, .25f}};
    kolo_graph *g = NULL;
    if (kolo_model_graph(&g, model, &c) < 0) diag("%s: %s", model, kolo_error_text());
    return g;
}

static kolo_plan_config config_of(int ranks, int slots)
{
    return (kolo_plan_config){.ranks = ranks,
                              .slots = slots,
                              .bn = KOLO_bn_local,
                              .bucket_bytes = 1 << 20,
                              .optimizer = kolo_optimizer_find("sgd"),
                              .decay_norms = false};
}

static kolo_plan *plan_of(const kolo_graph *g, const kolo_plan_config *c)
{
    kolo_plan *p = NULL;
    if (kolo_plan_create(&p, g, backend, c, NULL) < 0) diag("%s", kolo_error_text());
    return p;
}

static bool allowed(const kolo_plan_config *c)
{
    return !c->canonical || c->ranks == 1 || !(c->slots & (c->slots - 1));
}

static void test_networks(void)
{
    static const struct {
        const char *name;
        int64_t side, channels;
    } net[] = {
        {"lenet5", 28, 1}, {"mlp", 28, 1}, {"resnet20", 16, 3}, {"resnet18", 64, 3}, {"resnet50", 64, 3}};
    static const int slots[] = {1, 2, 3, 4, 5, 8}, ranks[] = {1, 2, 4};
    for (size_t n = 0; n < sizeof net / sizeof *net; n++) {
        kolo_graph *g = graph_of(net[n].name, 2, net[n].side, net[n].channels, true);
        int good = 0, all = 0;
        for (int i = 0; g && i < 6 * 3 * 2 * 2 * 2; i++) {
            kolo_plan_config c = config_of(ranks[i / 6 % 3], slots[i % 6]);
            c.bn = i / 18 % 2 ? KOLO_bn_sync : KOLO_bn_local;
            c.canonical = i / 36 % 2;
            c.clip_norm = c.ema = i / 72 % 2;
            if (!allowed(&c)) continue;
            kolo_plan *p = plan_of(g, &c);
            int rc = p ? kolo_plan_check(p) : -1;
            if (rc < 0) diag("%s: %d ranks, %d slots: %s", net[n].name, c.ranks, c.slots, kolo_error_text());
            good += rc == 0;
            all++;
            kolo_plan_destroy(&p);
        }
        ok(all == 128 && good == all, "%s: %d plans of %d pass", net[n].name, good, all);
        kolo_graph_destroy(&g);
    }
}

static void test_evaluation(void)
{
    kolo_graph *train = graph_of("resnet20", 4, 16, 3, true), *eval = graph_of("resnet20", 8, 16, 3, false);
    kolo_plan_config c = config_of(1, 2);
    kolo_plan *p = plan_of(train, &c), *q = NULL;
    c.optimizer = NULL;
    ok(kolo_plan_create(&q, eval, backend, &c, p) == 0 && kolo_plan_check(q) == 0,
       "an evaluation plan passes: %s", q ? "" : kolo_error_text());
    int same = 1, t = kolo_graph_find(eval, "layer2.0.conv1.weight");
    for (int i = 0; q && i < eval->tensors; i++)
        if (eval->tensor[i].role == KOLO_ROLE_PARAM || eval->tensor[i].role == KOLO_ROLE_BUFFER) {
            int u = kolo_graph_find(train, eval->tensor[i].name);
            same &= q->fixed[i].arena == p->fixed[u].arena && q->fixed[i].offset == p->fixed[u].offset;
        }
    ok(q && t >= 0 && same, "its parameters live where training keeps them");
    ok(q && kolo_plan_bytes(q) < q->arena_bytes[KOLO_ARENA_PARAM] + kolo_plan_bytes(q),
       "shared arenas are not counted again");
    kolo_plan_destroy(&p);
    kolo_plan_destroy(&q);
    kolo_graph_destroy(&train);
    kolo_graph_destroy(&eval);
}

static void test_canonical_needs_powers(void)
{
    kolo_graph *g = graph_of("lenet5", 2, 28, 1, true);
    kolo_plan_config c = config_of(2, 3);
    kolo_plan *p = NULL;
    c.canonical = true;
    int rc = kolo_plan_create(&p, g, backend, &c, NULL);
    ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), "power of two") &&
           strstr(kolo_error_text(), "batch=8"),
       "canonical over ranks with 3 micro-batches is refused with a cure: %s", kolo_error_text());
    c.ranks = 1;
    p = plan_of(g, &c);
    ok(p && kolo_plan_check(p) == 0, "alone it is possible");
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
}

/* The tree that folds make of slot names, written by hand from the definition and from the plan. */
static void tree_text(int begin, int end, char *text)
{
    if (end - begin == 1) {
        sprintf(text + strlen(text), "%d", begin);
        return;
    }
    int half = 1;
    while (half * 2 < end - begin) half *= 2;
    strcat(text, "(");
    tree_text(begin, begin + half, text);
    strcat(text, "+");
    tree_text(begin + half, end, text);
    strcat(text, ")");
}

static void folded_text(const kolo_plan *p, char level[8][1024])
{
    int last = p->buckets - 1;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (a->kind == KOLO_ACTION_RUN) {
            const kolo_node *n = &p->graph->node[a->node];
            for (int k = 0; k < n->n_out; k++) {
                if (n->out[k] < 0 || p->fixed[n->out[k]].arena != KOLO_ARENA_GRADIENT) continue;
                if (p->fixed[n->out[k]].offset < p->bucket[last].offset) continue;
                kolo_binding b = p->binding[a->binding + n->n_in + k];
                int to = b.arena == KOLO_ARENA_GRADIENT
                             ? 0
                             : 1 + (int)(b.offset / p->arena_bytes[KOLO_ARENA_GRADIENT]);
                sprintf(level[to], "%d", a->slot);
            }
        }
        if (a->kind == KOLO_ACTION_FOLD && a->bucket == last) {
            char sum[1024];
            snprintf(sum, sizeof sum, "(%.400s+%.400s)", level[a->to], level[a->from]);
            strcpy(level[a->to], sum);
        }
    }
}

static void test_tree(void)
{
    kolo_graph *g = graph_of("lenet5", 2, 28, 1, true);
    int good = 0;
    for (int slots = 1; slots <= 17; slots++) {
        kolo_plan_config c = config_of(1, slots);
        c.canonical = true;
        kolo_plan *p = plan_of(g, &c);
        char level[8][1024] = {""}, want[1024] = "";
        if (!p) continue;
        folded_text(p, level);
        tree_text(0, slots, want);
        if (strcmp(level[0], want)) diag("%d slots: %s, want %s", slots, level[0], want);
        else good++;
        kolo_plan_destroy(&p);
    }
    is_int(good, 17, "canonical folds make the tree of blocks, for 1 to 17 micro-batches");
    kolo_graph_destroy(&g);
}

/* ---- broken plans ---- */

static int64_t action_at(const kolo_plan *p, enum kolo_action_kind kind, int which)
{
    for (int64_t i = 0; i < p->actions; i++)
        if (p->action[i].kind == kind && which-- == 0) return i;
    return -1;
}

static int64_t run_of(const kolo_plan *p, enum kolo_op op, int slot)
{
    for (int64_t i = 0; i < p->actions; i++)
        if (p->action[i].kind == KOLO_ACTION_RUN && p->action[i].slot == slot &&
            p->graph->node[p->action[i].node].op == op)
            return i;
    return -1;
}

static void swap(kolo_plan *p, int64_t i, int64_t k)
{
    kolo_action a = p->action[i];
    p->action[i] = p->action[k];
    p->action[k] = a;
}

static void drop(kolo_plan *p, int64_t i)
{
    memmove(&p->action[i], &p->action[i + 1], (size_t)(p->actions - i - 1) * sizeof *p->action);
    p->actions--;
}

/* Moves one activation onto another that is alive: the conv's output onto its input. */
static void break_binding(kolo_plan *p)
{
    int64_t i = run_of(p, KOLO_OP_conv, 0);
    const kolo_action *a = &p->action[i];
    p->binding[a->binding + p->graph->node[a->node].n_in].offset = p->binding[a->binding].offset;
}
static void break_order(kolo_plan *p) { swap(p, run_of(p, KOLO_OP_conv, 0), run_of(p, KOLO_OP_conv, 0) + 1); }
static void break_load(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_LOAD, 1)); }
static void break_fold(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_FOLD, 0)); }
static void break_early(kolo_plan *p)
{
    int64_t i = action_at(p, KOLO_ACTION_REDUCE, 0), k = i; /* before the operation that completes it */
    while (p->action[k].kind != KOLO_ACTION_RUN) k--;
    for (; i > k; i--) swap(p, i, i - 1);
}
static void break_wait(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_WAIT, 1)); }
static void break_reduce(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_REDUCE, 1)); }
static void break_update(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_UPDATE, 0)); }
static void break_twice(kolo_plan *p) { p->action[action_at(p, KOLO_ACTION_UPDATE, 0)].bucket = 1; }
static void break_sum(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_SUM, 3)); }
static void break_buffers(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_BUFFERS, 0)); }
static void break_level(kolo_plan *p)
{
    int64_t i = run_of(p, KOLO_OP_linear_grad_weight, 1);
    const kolo_action *a = &p->action[i];
    p->binding[a->binding + p->graph->node[a->node].n_in] = p->fixed[p->graph->node[a->node].out[0]];
}
static void break_clip(kolo_plan *p)
{
    swap(p, action_at(p, KOLO_ACTION_NORM, 0), action_at(p, KOLO_ACTION_WAIT, 0));
}
static void break_fixed(kolo_plan *p) { p->fixed[kolo_graph_find(p->graph, "conv1.weight")].offset += 64; }
static void break_bucket(kolo_plan *p) { p->bucket[1].count += 16; }
static void break_segment(kolo_plan *p) { p->segment[0].decay = !p->segment[0].decay; }
static void break_early_update(kolo_plan *p)
{
    int64_t i = action_at(p, KOLO_ACTION_UPDATE, 0), k = action_at(p, KOLO_ACTION_REDUCE, 0) + 1;
    for (; i > k; i--) swap(p, i, i - 1);
}

/* Of plans whose ranks combine steps, or that measure the noise. */
static void break_delta(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_DELTA, 1)); }
static void break_apply(kolo_plan *p)
{
    p->action[action_at(p, KOLO_ACTION_APPLY, 0)].kind = KOLO_ACTION_UPDATE;
}
static void break_late_step(kolo_plan *p)
{
    swap(p, action_at(p, KOLO_ACTION_DELTA, 0), action_at(p, KOLO_ACTION_DELTA, 0) + 1);
}
static void break_apply_early(kolo_plan *p)
{
    int64_t i = action_at(p, KOLO_ACTION_APPLY, 0);
    swap(p, i, i - 1);
}
static void break_square(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_SQUARE, 1)); }
static void break_square_late(kolo_plan *p)
{
    int64_t i = action_at(p, KOLO_ACTION_FOLD, 0);
    swap(p, i, i - 1);
}
static void break_noise(kolo_plan *p) { drop(p, action_at(p, KOLO_ACTION_NOISE, 0)); }

typedef struct damage {
    const char *what;
    void (*make)(kolo_plan *);
    const char *says;
    bool adasum;
} damage;

/* A plan of c that passes, then is damaged and refused with the words of d. */
static void refuse(const kolo_graph *g, const kolo_plan_config *c, const damage *d)
{
    kolo_plan *p = plan_of(g, c);
    int whole = p ? kolo_plan_check(p) : -1, rc = -1;
    if (whole == 0) d->make(p), rc = kolo_plan_check(p);
    ok(whole == 0 && rc == KOLO_EINTERNAL && strstr(kolo_error_text(), d->says), "%s: %s", d->what,
       rc < 0 ? kolo_error_text() : "passed");
    kolo_plan_destroy(&p);
}

static void test_modes(void)
{
    static const damage broken[] = {
        {"a step left out", break_delta, "instead of steps", true},
        {"an update instead of what was combined", break_apply, "no action of this plan", true},
        {"a step behind its reduction", break_late_step, "instead of steps", true},
        {"what is not combined yet applied", break_apply_early, "no step of all ranks", true},
        {"squares left out", break_square, "are measured", false},
        {"squares of what was folded", break_square_late, "not there any more", false},
        {"squares of one rank", break_noise, "are measured", false},
    };
    kolo_graph *g = graph_of("resnet20", 2, 16, 3, true);
    int good = 0, all = 0;
    for (int i = 0; i < 3 * 4 * 2 * 2 * 2; i++) {
        static const char *const rules[] = {"sgd", "adamw", "lamb", "lars"};
        kolo_plan_config c = config_of(i % 3 + 2, i / 3 % 4 + 1);
        c.adasum = i / 12 % 2;
        c.average = c.adasum && i / 24 % 2;
        c.noise = !c.adasum;
        c.clip_norm = i / 24 % 2;
        c.ema = i / 48 % 2;
        c.layer_decay = 0.8;
        c.optimizer = kolo_optimizer_find(rules[i % 4]);
        c.bucket_bytes = 1 << 17;
        kolo_plan *p = plan_of(g, &c);
        all++;
        good += p && kolo_plan_check(p) == 0;
        kolo_plan_destroy(&p);
    }
    is_int(good, all, "plans that combine steps or measure noise");
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        kolo_plan_config c = config_of(2, 2);
        c.bucket_bytes = 1 << 17;
        c.adasum = broken[i].adasum;
        c.noise = !c.adasum;
        refuse(g, &c, &broken[i]);
    }
    kolo_graph_destroy(&g);
}

/* Names as torchvision has them: which depth is whose. */
static void test_depths(void)
{
    static const struct {
        const char *what, *name[12];
        int depth[12];
    } nets[] = {
        {"a residual network",
         {"conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer1.0.downsample.0.weight",
          "layer1.1.bn2.bias", "layer2.0.conv1.weight", "fc.weight", "fc.bias"},
         {0, 0, 1, 1, 2, 3, 4, 4}},
        {"ConvNeXt",
         {"features.0.0.weight", "features.0.1.weight", "features.1.0.layer_scale",
          "features.1.0.block.0.weight", "features.1.1.block.5.weight", "features.2.0.weight",
          "features.2.1.weight", "features.3.0.block.0.weight", "classifier.0.weight", "classifier.2.weight"},
         {0, 0, 1, 1, 2, 3, 3, 4, 5, 5}},
        {"Swin",
         {"features.0.0.weight", "features.0.2.weight", "features.1.0.norm1.weight",
          "features.1.0.attn.qkv.weight", "features.1.1.mlp.3.bias", "features.2.reduction.weight",
          "features.2.norm.weight", "features.3.0.norm1.weight", "norm.weight", "head.weight"},
         {0, 0, 1, 1, 2, 3, 3, 4, 5, 5}},
        {"a network without blocks",
         {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight", "fc1.bias"},
         {0, 0, 1, 1, 2, 2}},
    };
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        kolo_tensor tensor[12] = {{0}};
        kolo_node node[12] = {{0}};
        kolo_graph g = {.tensor = tensor, .node = node};
        int depth[12], wrong = 0;
        for (; g.tensors < 12 && nets[i].name[g.tensors]; g.tensors++) {
            const char *name = nets[i].name[g.tensors];
            tensor[g.tensors] = (kolo_tensor){.name = (char *)(uintptr_t)name,
                                              .role = KOLO_ROLE_PARAM,
                                              .rank = strstr(name, "weight") && !strstr(name, "bn") ? 4 : 1};
            node[g.nodes++] = (kolo_node){.n_in = 1, .in = {(int)g.tensors}};
        }
        int depths = kolo_plan_depths(&g, depth);
        for (int t = 0; t < g.tensors; t++) wrong += depth[t] != nets[i].depth[t];
        ok(wrong == 0 && depths == depth[g.tensors - 1] + 1, "depths of %s: %d", nets[i].what, depths);
    }
    kolo_graph *g = graph_of("resnet20", 2, 16, 3, true);
    kolo_plan_config c = config_of(1, 1);
    c.layer_decay = 0.5;
    kolo_plan *p = plan_of(g, &c);
    float least = 1, most = 0;
    for (int s = 0; p && s < p->segments; s++) {
        least = p->segment[s].rate < least ? p->segment[s].rate : least;
        most = p->segment[s].rate > most ? p->segment[s].rate : most;
    }
    ok(most == 1 && least == 0x1p-10f,
       "layer_decay=0.5 of ResNet-20 (stem, 9 blocks, head): rates from 2^-10 to 1");
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
}

static void test_broken(void)
{
    static const damage broken[] = {
        {"an output on top of its input", break_binding, "over its own operand", false},
        {"operations swapped", break_order, "never written or was overwritten", false},
        {"a load left out", break_load, "never written or was overwritten", false},
        {"a fold left out", break_fold, "not complete", false},
        {"a reduction before the last gradient", break_early, "not complete", false},
        {"a reduction left out", break_reduce, "not under way", false},
        {"a wait left out", break_wait, "before the gradients are complete", false},
        {"an update left out", break_update, "never updated", false},
        {"an update twice", break_twice, "before the gradients are complete", false},
        {"an update before the wait", break_early_update, "before the gradients are complete", false},
        {"an allreduce left out", break_sum, "before it is summed", false},
        {"running statistics left out", break_buffers, "running statistics", false},
        {"a gradient on another micro-batch's", break_level, "gradients", false},
        {"clipping before a sum is there", break_clip, "not complete", false},
        {"a parameter away from its gradient", break_fixed, "fixed binding of conv1.weight", false},
        {"buckets that overlap", break_bucket, "bucket", false},
        {"a segment with the wrong decay", break_segment, "segment", false},
    };
    kolo_graph *g = graph_of("resnet20", 2, 16, 3, true);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        kolo_plan_config c = config_of(2, 2);
        c.bn = KOLO_bn_sync;
        c.bucket_bytes = 1 << 17;
        c.clip_norm = broken[i].make == break_clip;
        refuse(g, &c, &broken[i]);
    }
    kolo_graph_destroy(&g);
}

/* Every pair of values that is alive together and overlaps would be found here too: all single moves of
 * a binding are caught. */
static void test_random_moves(void)
{
    kolo_graph *g = graph_of("lenet5", 2, 28, 1, true);
    kolo_plan_config c = config_of(1, 2);
    kolo_plan *p = plan_of(g, &c);
    int caught = 0, tried = 0;
    for (int64_t b = 0; p && b < p->bindings; b++) {
        if (p->binding[b].arena < 0) continue;
        kolo_binding was = p->binding[b];
        p->binding[b].offset += 64;
        tried++;
        caught += kolo_plan_check(p) < 0;
        p->binding[b] = was;
    }
    ok(tried > 50 && caught == tried, "moving a binding by 64 bytes: %d of %d caught", caught, tried);
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
}

int main(void)
{
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) {
        ok(0, "backend: %s", kolo_error_text());
        return done_testing();
    }
    test_networks();
    test_evaluation();
    test_canonical_needs_powers();
    test_tree();
    test_broken();
    test_modes();
    test_depths();
    test_random_moves();
    kolo_backend_destroy(&backend);
    return done_testing();
}
