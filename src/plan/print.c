/* The plan as text: what `kolo plan` shows, and one line for an action wherever one is named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "plan/parts.h"
#include "plan/servers.h"
#include "plan/shard.h"

const char *kolo_action_name(enum kolo_action_kind kind)
{
    static const char *const name[KOLO_ACTIONS] = {[KOLO_ACTION_RUN] = "run",
                                                   [KOLO_ACTION_LOAD] = "load",
                                                   [KOLO_ACTION_SUM] = "sum",
                                                   [KOLO_ACTION_FOLD] = "fold",
                                                   [KOLO_ACTION_REDUCE] = "reduce",
                                                   [KOLO_ACTION_WAIT] = "wait",
                                                   [KOLO_ACTION_NORM] = "norm",
                                                   [KOLO_ACTION_LAYERS] = "layers",
                                                   [KOLO_ACTION_UPDATE] = "update",
                                                   [KOLO_ACTION_BUFFERS] = "buffers",
                                                   [KOLO_ACTION_SQUARE] = "squares",
                                                   [KOLO_ACTION_NOISE] = "noise",
                                                   [KOLO_ACTION_DELTA] = "step",
                                                   [KOLO_ACTION_APPLY] = "apply",
                                                   [KOLO_ACTION_SEND] = "send",
                                                   [KOLO_ACTION_RECEIVE] = "receive",
                                                   [KOLO_ACTION_TRANSFERRED] = "transferred",
                                                   [KOLO_ACTION_SHARE] = "share",
                                                   [KOLO_ACTION_TAKE] = "take",
                                                   [KOLO_ACTION_COPY] = "copy",
                                                   [KOLO_ACTION_STASH] = "stash",
                                                   [KOLO_ACTION_PREDICT] = "predict",
                                                   [KOLO_ACTION_CLEAR] = "clear",
                                                   [KOLO_ACTION_COLLECT] = "collect",
                                                   [KOLO_ACTION_GATHER] = "gather",
                                                   [KOLO_ACTION_GATHERED] = "gathered",
                                                   [KOLO_ACTION_FETCH] = "fetch",
                                                   [KOLO_ACTION_EVICT] = "evict",
                                                   [KOLO_ACTION_FETCH_PARAM] = "fetch",
                                                   [KOLO_ACTION_EVICT_PARAM] = "evict",
                                                   [KOLO_ACTION_ENCODE] = "encode",
                                                   [KOLO_ACTION_DECODE] = "decode",
                                                   [KOLO_ACTION_STORE] = "store",
                                                   [KOLO_ACTION_STORED] = "stored",
                                                   [KOLO_ACTION_RETRIEVE] = "retrieve",
                                                   [KOLO_ACTION_RETRIEVED] = "retrieved"};
    return name[kind];
}

static void size_text(size_t bytes, char *text, size_t size)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int k = 0;
    while (value >= 1024 && k < 4) {
        value /= 1024;
        k++;
    }
    snprintf(text, size, k == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, unit[k]);
}

/* First and last tensor of a bucket. */
static void bucket_ends(const kolo_plan *plan, int bucket, const char **first, const char **last)
{
    const kolo_graph *g = plan->graph;
    size_t low = SIZE_MAX, high = 0;
    *first = *last = "-";
    for (int t = 0; t < g->tensors; t++) {
        const kolo_binding *h = &plan->fixed[t];
        if (h->arena != KOLO_ARENA_GRADIENT || kolo_plan_bucket_of(plan, h->offset) != bucket) continue;
        const char *name = g->tensor[t].of >= 0 && g->tensor[t].role == KOLO_ROLE_GRADIENT
                               ? g->tensor[g->tensor[t].of].name
                               : g->tensor[t].name;
        if (h->offset < low) *first = name;
        if (h->offset >= high) *last = name;
        low = h->offset < low ? h->offset : low;
        high = h->offset >= high ? h->offset : high;
    }
}

static void bucket_text(const kolo_plan *plan, const char *verb, int bucket, char *text, size_t size)
{
    if (bucket < 0 || bucket >= plan->buckets) {
        snprintf(text, size, "%s bucket %d", verb, bucket);
        return;
    }
    const char *first, *last;
    char bytes[32];
    bucket_ends(plan, bucket, &first, &last);
    size_text((size_t)plan->bucket[bucket].count * sizeof(float), bytes, sizeof bytes);
    snprintf(text, size, "%s bucket %d (%s, %s .. %s)", verb, bucket, bytes, first, last);
}

static bool combined(const kolo_plan *plan, int bucket)
{
    return plan->config.adasum && bucket >= 0 && bucket < plan->buckets && plan->bucket[bucket].params > 0;
}

static const char *out_name(const kolo_plan *plan, const kolo_node *n)
{
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) return plan->graph->tensor[n->out[k]].name;
    return "";
}

static void transfer_text(const kolo_plan *plan, const kolo_action *a, char *text, size_t size)
{
    if (a->transfer < 0 || a->transfer >= plan->transfers) {
        snprintf(text, size, "transfer %d", a->transfer);
        return;
    }
    const kolo_transfer *t = &plan->transfer[a->transfer];
    char bytes[32];
    size_text(t->bytes, bytes, sizeof bytes);
    snprintf(text, size, "%s %s (%s) %s stage %d, micro-batch %d",
             a->kind == KOLO_ACTION_SEND      ? "send"
             : a->kind == KOLO_ACTION_RECEIVE ? "receive"
             : t->sends                       ? "wait until sent:"
                                              : "wait for",
             plan->graph->tensor[t->tensor].name, bytes, t->sends ? "to" : "from", t->peer, t->slot);
}

static void fold_text(const kolo_action *a, char *text, size_t size)
{
    char level[2][24];
    for (int i = 0; i < 2; i++) {
        const int number = i ? a->from : a->to;
        if (number == KOLO_WINDOW) snprintf(level[i], sizeof level[i], "window");
        else snprintf(level[i], sizeof level[i], "level %d", number);
    }
    snprintf(text, size, "fold bucket %d: %s += %s, micro-batch %d", a->bucket, level[0], level[1], a->slot);
}

/* First and last parameter of a unit, by the bucket that has it; an evaluation has none. */
static void unit_text(const kolo_plan *plan, const kolo_action *a, char *text, size_t size)
{
    static const char *const verbs[] = {[KOLO_ACTION_FETCH] = "fetch the state of",
                                        [KOLO_ACTION_EVICT] = "evict the state of",
                                        [KOLO_ACTION_FETCH_PARAM] = "fetch",
                                        [KOLO_ACTION_EVICT_PARAM] = "evict",
                                        [KOLO_ACTION_GATHER] = "gather",
                                        [KOLO_ACTION_GATHERED] = "wait until gathered:"};
    const char *verb = verbs[a->kind], *first = "", *last = "";
    char bytes[32];
    if (a->unit < 0 || a->unit >= plan->units) {
        snprintf(text, size, "%s unit %d", verb, a->unit);
        return;
    }
    const kolo_unit *u = &plan->unit[a->unit];
    const size_t begin = (size_t)u->param * sizeof(float), end = begin + (size_t)u->params * sizeof(float);
    size_t low = SIZE_MAX, high = 0;
    for (int t = 0; t < plan->graph->tensors; t++) {
        const kolo_binding *h = &plan->fixed[t];
        if (h->arena != KOLO_ARENA_PARAM || h->offset < begin || h->offset >= end) continue;
        if (h->offset < low) low = h->offset, first = plan->graph->tensor[t].name;
        if (h->offset >= high) high = h->offset, last = plan->graph->tensor[t].name;
    }
    size_text(end - begin, bytes, sizeof bytes);
    snprintf(text, size, "%s unit %d (%s, %s .. %s)", verb, a->unit, bytes, first, last);
}

/* What ranks average: weights, the optimizer's state, running statistics. */
static void share_text(const kolo_plan *plan, const kolo_action *a, char *text, size_t size)
{
    const bool known = a->bucket >= 0 && a->bucket < plan->buckets, share = a->kind == KOLO_ACTION_SHARE;
    const char *what = known && plan->bucket[a->bucket].params == 0 ? "running statistics"
                       : a->from == KOLO_SHARE_WEIGHTS              ? "weights"
                       : a->from - KOLO_SHARE_STATE < kolo_plan_states(plan)
                           ? kolo_plan_state_name(plan, a->from - KOLO_SHARE_STATE)
                           : "state";
    char verb[96];
    snprintf(verb, sizeof verb, share ? "offer the %s of" : "take the mean %s of", what);
    bucket_text(plan, verb, a->bucket, text, size);
}

static void form_text(const kolo_plan *plan, const kolo_action *a, char *text, size_t size)
{
    static const char *const verb[] = {"encode",   "decode",  "offload", "wait until offloaded:",
                                       "retrieve", "wait for"},
                             *const name[KOLO_FORMS] = {[KOLO_FORM_SIGNS] = " as signs",
                                                        [KOLO_FORM_NIBBLES] = " in 4 bits",
                                                        [KOLO_FORM_FP16] = " in fp16",
                                                        [KOLO_FORM_BF16] = " in bf16",
                                                        [KOLO_FORM_FP8] = " in fp8"};
    char bytes[32], slot[32] = "";
    if (a->tensor < 0 || a->tensor >= plan->graph->tensors) {
        snprintf(text, size, "%s tensor %d", verb[a->kind - KOLO_ACTION_ENCODE], a->tensor);
        return;
    }
    const char *form = name[kolo_plan_form(plan, a->tensor)];
    size_text(kolo_plan_form_bytes(plan, a->tensor), bytes, sizeof bytes);
    if (plan->config.slots > 1) snprintf(slot, sizeof slot, ", micro-batch %d", a->slot);
    snprintf(text, size, "%s %s%s (%s)%s", verb[a->kind - KOLO_ACTION_ENCODE],
             plan->graph->tensor[a->tensor].name, form ? form : "", bytes, slot);
}

static void copy_text(const kolo_plan *plan, const kolo_action *a, char *text, size_t size)
{
    const bool there = a->tensor >= 0 && a->tensor < plan->graph->tensors;
    snprintf(text, size, "copy %s, micro-batch %d", there ? plan->graph->tensor[a->tensor].name : "no tensor",
             a->slot);
}

static void action_text(const kolo_plan *plan, int64_t i, char *text, size_t size)
{
    if (i < 0 || i >= plan->actions) {
        snprintf(text, size, "%s", i < 0 ? "between steps" : "no such action");
        return;
    }
    const kolo_action *a = &plan->action[i];
    switch (a->kind) {
    case KOLO_ACTION_LOAD: snprintf(text, size, "load micro-batch %d", a->slot); return;
    case KOLO_ACTION_RUN:
    case KOLO_ACTION_SUM: {
        if (a->node < 0 || a->node >= plan->graph->nodes) break;
        const kolo_node *n = &plan->graph->node[a->node];
        const char *verb = a->kind == KOLO_ACTION_SUM ? "allreduce" : a->again ? "run again" : "run";
        if (plan->config.slots > 1)
            snprintf(text, size, "%s %s %s, micro-batch %d", verb, kolo_op_table[n->op].name,
                     out_name(plan, n), a->slot);
        else snprintf(text, size, "%s %s %s", verb, kolo_op_table[n->op].name, out_name(plan, n));
        return;
    }
    case KOLO_ACTION_FOLD: fold_text(a, text, size); return;
    case KOLO_ACTION_REDUCE:
        bucket_text(plan,
                    combined(plan, a->bucket)                     ? "combine by Adasum"
                    : plan->config.exchange == KOLO_EXCHANGE_NODE ? "reduce within the node"
                                                                  : "reduce",
                    a->bucket, text, size);
        return;
    case KOLO_ACTION_WAIT: bucket_text(plan, "wait for", a->bucket, text, size); return;
    case KOLO_ACTION_SHARE:
    case KOLO_ACTION_TAKE: share_text(plan, a, text, size); return;
    case KOLO_ACTION_SEND:
    case KOLO_ACTION_RECEIVE:
    case KOLO_ACTION_TRANSFERRED: transfer_text(plan, a, text, size); return;
    case KOLO_ACTION_SQUARE:
        snprintf(text, size, "squares of bucket %d, micro-batch %d", a->bucket, a->slot);
        return;
    case KOLO_ACTION_NOISE: snprintf(text, size, "allreduce of the micro-batches' squares"); return;
    case KOLO_ACTION_NORM:
        snprintf(text, size, "norm of all gradients:%s%s%s", plan->config.clip_norm ? " clip" : "",
                 plan->config.scaled ? " loss scale" : "", plan->config.noise ? " noise scale" : "");
        return;
    case KOLO_ACTION_LAYERS:
        snprintf(text, size, "norms of %d tensors: %s", plan->segments, plan->config.optimizer->name);
        return;
    case KOLO_ACTION_UPDATE: bucket_text(plan, "update", a->bucket, text, size); return;
    case KOLO_ACTION_DELTA: bucket_text(plan, "this rank's step of", a->bucket, text, size); return;
    case KOLO_ACTION_APPLY: bucket_text(plan, "apply", a->bucket, text, size); return;
    case KOLO_ACTION_BUFFERS: snprintf(text, size, "update the running statistics"); return;
    case KOLO_ACTION_CLEAR: snprintf(text, size, "clear gaps of bucket %d", a->bucket); return;
    case KOLO_ACTION_COLLECT: bucket_text(plan, "collect this rank's part of", a->bucket, text, size); return;
    case KOLO_ACTION_COPY: copy_text(plan, a, text, size); return;
    case KOLO_ACTION_PREDICT: bucket_text(plan, "predict", a->bucket, text, size); return;
    case KOLO_ACTION_STASH: bucket_text(plan, "keep a version of", a->bucket, text, size); return;
    case KOLO_ACTION_FETCH:
    case KOLO_ACTION_EVICT:
    case KOLO_ACTION_FETCH_PARAM:
    case KOLO_ACTION_EVICT_PARAM:
    case KOLO_ACTION_GATHER:
    case KOLO_ACTION_GATHERED: unit_text(plan, a, text, size); return;
    case KOLO_ACTION_ENCODE:
    case KOLO_ACTION_DECODE:
    case KOLO_ACTION_STORE:
    case KOLO_ACTION_STORED:
    case KOLO_ACTION_RETRIEVE:
    case KOLO_ACTION_RETRIEVED: form_text(plan, a, text, size); return;
    }
    snprintf(text, size, "action %lld of kind %d", (long long)i, (int)a->kind);
}

void kolo_plan_action_text(const kolo_plan *plan, int64_t i, char *text, size_t size)
{
    const int ahead = plan->ring && i >= 0 && i < plan->actions ? plan->action[i].ahead : 0;
    action_text(plan, i, text, size);
    const size_t used = strlen(text);
    if (ahead)
        snprintf(text + used, size - used, ", %d batch%s %s", abs(ahead), abs(ahead) > 1 ? "es" : "",
                 ahead > 0 ? "ahead" : "back");
}

static void print_arenas(const kolo_plan *plan, FILE *f)
{
    char text[32];
    fprintf(f, "\narena                bytes\n");
    for (int a = 0; a < KOLO_ARENAS; a++) {
        size_t bytes = plan->arena_bytes[a];
        if (!bytes) continue;
        bool shared =
            plan->shares && (a == KOLO_ARENA_PARAM || a == KOLO_ARENA_BUFFER || a == KOLO_ARENA_EMA);
        size_text(bytes, text, sizeof text);
        fprintf(f, "  %-12s %12zu  %10s", kolo_arena_name[a], bytes, text);
        if (shared) fprintf(f, "  (the training plan's)");
        if (kolo_plan_resident(plan, (enum kolo_arena)a) < bytes)
            fprintf(f, "  in a file; %zu in memory", kolo_plan_resident(plan, (enum kolo_arena)a));
        if (a == KOLO_ARENA_SHADOW) fprintf(f, "  the parameters in %s", kolo_dtype_name(plan->graph->dtype));
        if (a == KOLO_ARENA_ACTIVATION)
            fprintf(f, "  at least %zu; %.2f %% lost between lifetimes", plan->least_activation,
                    100 * ((double)bytes / (double)plan->least_activation - 1));
        if (a == KOLO_ARENA_PART)
            fprintf(f, "  %d level%s beside the gradients", kolo_plan_levels(&plan->config) - 1,
                    kolo_plan_levels(&plan->config) > 2 ? "s" : "");
        fprintf(f, "\n");
    }
    size_text(kolo_plan_bytes(plan), text, sizeof text);
    fprintf(f, "  %-12s %12zu  %10s\n", "peak", kolo_plan_bytes(plan), text);
}

static void print_servers(const kolo_plan *plan, FILE *f)
{
    const kolo_plan_config *c = &plan->config;
    const int first = c->first_server, last = first + c->servers - 1, workers = kolo_workers(c);
    size_t most = 0, from;
    for (int r = first; r <= last; r++) {
        const size_t pushed = kolo_plan_pushed(plan, r, &from) - from;
        if (pushed > most) most = pushed;
    }
    if (first && c->servers == 1)
        fprintf(f, "servers: rank %d serves the weights and does not train\n", first);
    else if (first)
        fprintf(f, "servers: ranks %d to %d serve the weights, a part each, and do not train\n", first, last);
    fprintf(f,
            "asynchronous: %d rank%s gradients and pull%s weights, at most %zu bytes each way of each that "
            "serves them; a gradient lacks ",
            workers, workers > 1 ? "s push" : " pushes", workers > 1 ? "" : "s", most);
    if (c->bound)
        fprintf(f, "at most %lld update%s, for which ranks wait\n", (long long)c->bound,
                c->bound > 1 ? "s" : "");
    else fprintf(f, "any number of updates, %d where all ranks are alike\n", workers - 1);
}

static void print_buckets(const kolo_plan *plan, FILE *f)
{
    fprintf(f, "\nbucket      offset       bytes   complete after action  tensors\n");
    for (int b = 0; b < plan->buckets; b++) {
        const char *first, *last;
        int64_t at = -1;
        bucket_ends(plan, b, &first, &last);
        size_t end = plan->bucket[b].offset + (size_t)plan->bucket[b].count * sizeof(float);
        for (int64_t i = 0; i < plan->actions; i++) {
            const kolo_action *a = &plan->action[i];
            const kolo_node *n = a->kind == KOLO_ACTION_RUN ? &plan->graph->node[a->node] : NULL;
            for (int k = 0; n && k < n->n_out; k++)
                if (n->out[k] >= 0 && plan->fixed[n->out[k]].arena == KOLO_ARENA_GRADIENT &&
                    plan->fixed[n->out[k]].offset < end &&
                    plan->fixed[n->out[k]].offset >= plan->bucket[b].offset)
                    at = i;
        }
        fprintf(f, "  %4d %11zu %11zu   %21lld  %s .. %s\n", b, plan->bucket[b].offset,
                end - plan->bucket[b].offset, (long long)at, first, last);
    }
}

/* Payload that leaves this rank's arena; an all-reduce that uses its bandwidth well moves 2 (n-1)/n of it. */
static void print_sent(const kolo_plan *plan, FILE *f)
{
    int64_t reductions = 0, sums = 0;
    size_t reduced = 0, summed = 0;
    char text[32];
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        if (a->kind == KOLO_ACTION_REDUCE) {
            reductions++;
            reduced += (size_t)plan->bucket[a->bucket].count * sizeof(float);
        }
        if (a->kind != KOLO_ACTION_SUM) continue;
        sums++;
        summed += plan->layout[plan->graph->node[a->node].out[a->from]].bytes;
    }
    size_text(reduced, text, sizeof text);
    fprintf(f, "\nsent a step: %lld bucket reductions of %zu bytes (%s) in all", (long long)reductions,
            reduced, text);
    const int ranks = kolo_plan_summed(&plan->config);
    if (ranks > 1) fprintf(f, ", %.0f bytes a rank each way", 2.0 * (ranks - 1) / ranks * (double)reduced);
    size_t sent = 0;
    int sends = 0;
    for (int i = 0; i < plan->transfers; i++)
        if (plan->transfer[i].sends) sends++, sent += plan->transfer[i].bytes;
    if (sends) fprintf(f, "; %d transfers of %zu bytes to other stages", sends, sent);
    if (sums) fprintf(f, "; %lld batch-norm sums of %zu bytes", (long long)sums, summed);
    fprintf(f, "\n");
    kolo_plan_print_transfers(plan, f);
}

static void print_kernels(const kolo_plan *plan, FILE *f)
{
    const kolo_graph *g = plan->graph;
    fprintf(f, "\nkernels (operations x choice)\n");
    for (int i = 0; i < g->nodes; i++) {
        int same = 0, first = i;
        if (!kolo_plan_has_node(plan, i)) continue;
        for (int k = 0; k < g->nodes; k++) {
            if (!kolo_plan_has_node(plan, k) || g->node[k].op != g->node[i].op ||
                strcmp(kolo_kernel_name(plan->kernel[k]), kolo_kernel_name(plan->kernel[i])))
                continue;
            same++;
            if (k < first) first = k;
        }
        if (first == i)
            fprintf(f, "  %4d x %-20s %s\n", same, kolo_op_table[g->node[i].op].name,
                    kolo_kernel_name(plan->kernel[i]));
    }
    int64_t block[8] = {0};
    int blocks = 0;
    for (int t = 0; t < g->tensors; t++) {
        bool known = g->tensor[t].role != KOLO_ROLE_ACTIVATION || g->tensor[t].rank != 4;
        for (int k = 0; k < blocks; k++) known |= block[k] == plan->layout[t].block;
        if (!known && blocks < 8) block[blocks++] = plan->layout[t].block;
    }
    fprintf(f, "channel block of the activations:");
    for (int k = 0; k < blocks; k++) fprintf(f, " %lld", (long long)block[k]);
    fprintf(f, "\n");
}

/* Of that half: what runs again does so for it, and what comes back. */
static bool is_backward(const kolo_plan *plan, const kolo_action *a)
{
    if (kolo_action_changes_form(a->kind)) return kolo_action_restores(a->kind);
    return a->again || plan->graph->node[a->node].backward;
}

/* Actions [i, end) that are operations and sums of one micro-batch; shown as one line unless all are
 * wanted. */
static int64_t end_of_run(const kolo_plan *plan, int64_t i)
{
    int64_t end = i;
    for (; end < plan->actions; end++) {
        const kolo_action *a = &plan->action[end];
        if ((a->kind != KOLO_ACTION_RUN && a->kind != KOLO_ACTION_SUM &&
             !kolo_action_changes_form(a->kind)) ||
            a->slot != plan->action[i].slot)
            break;
        if (end > i && is_backward(plan, a) != is_backward(plan, &plan->action[i])) break;
    }
    return end;
}

static void print_actions(const kolo_plan *plan, FILE *f, bool all)
{
    char text[512];
    fprintf(f, "\nactions\n");
    for (int64_t i = 0; i < plan->actions; i++) {
        int64_t end = all ? i : end_of_run(plan, i);
        int slot = plan->action[i].slot;
        if (!all && slot > 1 && slot < plan->config.slots - 1) {
            if (slot == 2 && plan->action[i].kind == KOLO_ACTION_LOAD)
                fprintf(f, "        ... micro-batches 2 to %d in the same way\n", plan->config.slots - 2);
            continue;
        }
        if (end <= i + 2) {
            kolo_plan_action_text(plan, i, text, sizeof text);
            fprintf(f, "  %5lld %s\n", (long long)i, text);
            continue;
        }
        char last[512];
        kolo_plan_action_text(plan, i, text, sizeof text);
        kolo_plan_action_text(plan, end - 1, last, sizeof last);
        fprintf(f, "  %5lld .. %lld %s: %s .. %s\n", (long long)i, (long long)end - 1,
                is_backward(plan, &plan->action[i]) ? "backward" : "forward", text, last);
        i = end - 1;
    }
}

int kolo_plan_print(const kolo_plan *plan, void *file, bool all)
{
    FILE *f = file;
    const kolo_graph *g = plan->graph;
    const kolo_plan_config *c = &plan->config;
    static const char *const bn[] = {"local", "sync", "ghost"};
    fprintf(f, "plan of %s (%s): %d rank%s, %d micro-batch%s of %lld rows a rank, %s, bn=%s, reduce=%s\n",
            g->name, c->optimizer ? c->optimizer->name : "evaluation", c->ranks, c->ranks > 1 ? "s" : "",
            c->slots, c->slots > 1 ? "es" : "", (long long)g->rows, kolo_dtype_name(g->dtype),
            c->bn >= 0 && c->bn < 3 ? bn[c->bn] : "?",
            c->canonical ? "canonical"
            : c->average ? "adasum_nodes"
            : c->adasum  ? "adasum"
                         : "fast");
    if (c->placement)
        fprintf(f, "stage %d of %d, pipeline=%s, chunks=%d\n", c->stage, c->placement->stages,
                kolo_pipeline[c->placement->order].name, c->placement->chunks);
    if (c->late)
        fprintf(
            f, "gradients are applied %d step%s late: formed with weights of %d update%s before, %d copies\n",
            c->late, c->late > 1 ? "s" : "", c->late, c->late > 1 ? "s" : "", c->late + 1);
    if (c->lag)
        fprintf(
            f,
            "backup ranks: the first %d gradients of a step count, those of %d rank%s are dropped; others go "
            "%d step%s on without a rank that lags, %d copies\n",
            c->ranks - c->backup, c->backup, c->backup == 1 ? "" : "s", c->lag, c->lag > 1 ? "s" : "",
            c->lag + 1);
    if (c->servers) print_servers(plan, f);
    if (c->local) {
        static const char *const exchange[KOLO_EXCHANGES] = {"gradients", "nothing", "weights within a node",
                                                             "weights"};
        if (c->group > 1) fprintf(f, "groups of %d ranks have weights of their own", c->group);
        else fprintf(f, "ranks have weights of their own");
        fprintf(f, "; in this step they exchange %s\n", exchange[c->exchange]);
    }
    fprintf(f, "%lld actions, %lld parameters, hash %016llx\n", (long long)plan->actions,
            (long long)kolo_graph_parameters(g), (unsigned long long)plan->hash);
    print_arenas(plan, f);
    print_buckets(plan, f);
    print_sent(plan, f);
    print_kernels(plan, f);
    print_actions(plan, f, all);
    return kolo_stream_status(f);
}
