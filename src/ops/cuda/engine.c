#include "ops/cuda/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

void kolo_cuda_engine_close(kolo_cuda_engine *e)
{
    kolo_dnn_plan_destroy(&e->plan);
    kolo_dnn_graph_destroy(&e->graph);
}

/* ---- what is asked ---- */

static const uint32_t compiles = 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;

/* An engine may work in as much memory as its tensors take, and a little more, up to 1 GiB: all operations
 * share one workspace, and the largest counts. */
static kolo_dnn_rules rules_of(const kolo_backend *b, const kolo_dnn_conv *c)
{
    const uint32_t winograd =
        1u << CUDNN_NUMERICAL_NOTE_WINOGRAD | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
        1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
    const size_t most = (size_t)1 << 30, more = (size_t)64 << 20;
    const int64_t count = c->rows * (c->in * c->x[0] * c->x[1] + c->out * c->y[0] * c->y[1]);
    const size_t bytes = (size_t)count * kolo_dtype_size(c->dtype) + more;
    /* What is compiled takes a second for each shape, in every process. */
    kolo_dnn_rules rules = {.notes = 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                            .behaviours = c->statistics && !c->prologue ? 0 : compiles,
                            .workspace = bytes < most ? bytes : most};
    if (b->direct) rules.notes |= winograd | 1u << CUDNN_NUMERICAL_NOTE_FFT;
    if (b->deterministic) rules.notes |= 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    if (c->dtype == KOLO_F32 && !b->tf32)
        rules.notes |=
            1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    return rules;
}

static char *key_of(const kolo_kernel_request *r, const kolo_dnn_conv *c, const kolo_dnn_rules *rules)
{
    static const char *const mask[] = {"", " mask", " mask residual", " mask norms"};
    return kolo_format(
        "%s %s n %ld x %ld %ld %ld y %ld %ld %ld k %ld %ld s %ld %ld p %ld %ld d %ld %ld g %ld%s%s not %x",
        kolo_op_table[r->node->op].name, kolo_dtype_name(c->dtype), (long)c->rows, (long)c->in, (long)c->x[0],
        (long)c->x[1], (long)c->out, (long)c->y[0], (long)c->y[1], (long)c->kernel[0], (long)c->kernel[1],
        (long)c->stride[0], (long)c->stride[1], (long)c->pad[0], (long)c->pad[1], (long)c->dilation[0],
        (long)c->dilation[1], (long)c->group, c->add ? " add" : "", mask[c->mask], rules->notes);
}

/* ---- candidates ---- */

/* What cuDNN proposes, and the split form, which a clock tries first (its engines may have to be compiled)
 * and a rule takes last. */
typedef struct candidates {
    const kolo_kernel_request *request;
    const kolo_dnn_graph *graph;
    const kolo_cuda_split *split; /* or NULL */
    kolo_dnn_rules rules;
    kolo_dnn_choice *choice; /* [count] */
    kolo_dnn_plan **plan;    /* [count]; NULL: not open */
    int64_t count;
    bool clock;
    void *part[KOLO_DNN_PARTS], *memory, *scratch; /* of the trial */
} candidates;

static int64_t candidates_count(const candidates *c) { return c->count + (c->split != NULL); }

/* The proposal that candidate i is; -1: the split form. */
static int64_t proposal_of(const candidates *c, int64_t i)
{
    if (c->split && c->clock) return i - 1;
    return i < c->count ? i : -1;
}

/* The workspace of a fused engine and that of what follows it are one. */
static size_t scratch_of(const candidates *c, int64_t at)
{
    const size_t own = at < 0 ? 0 : c->plan[at]->workspace, split = c->split ? c->split->workspace : 0;
    return own > split ? own : split;
}

static int open_candidate(void *argument, int64_t i)
{
    candidates *c = argument;
    kolo_backend *b = c->request->backend;
    const int64_t at = proposal_of(c, i);
    if (at >= 0) {
        const double start = kolo_time();
        if (kolo_cuda_of(b)->compile_seconds <= 0) c->rules.behaviours |= compiles;
        if (kolo_dnn_plan_create(&c->plan[at], c->graph, &c->choice[at], &c->rules)) return 1;
        if (c->plan[at]->behaviours & compiles) kolo_cuda_of(b)->compile_seconds -= kolo_time() - start;
    }
    const size_t scratch = scratch_of(c, at);
    if (!c->clock || !scratch || kolo_cuda_trial_scratch(b, scratch, &c->scratch) >= 0) return 0;
    if (at >= 0) kolo_dnn_plan_destroy(&c->plan[at]);
    return 1;
}

static int run_candidate(void *argument, int64_t i)
{
    const candidates *c = argument;
    const int64_t at = proposal_of(c, i);
    if (at < 0) return c->split->run(c->split->argument, c->part, c->memory, c->scratch);
    KOLO_TRY(kolo_dnn_plan_run(c->plan[at], c->part, c->scratch));
    return c->split ? c->split->finish(c->split->argument, c->part, c->memory, c->scratch) : 0;
}

static void close_candidate(void *argument, int64_t i)
{
    candidates *c = argument;
    if (proposal_of(c, i) >= 0) kolo_dnn_plan_destroy(&c->plan[proposal_of(c, i)]);
}

/* ---- the trial ---- */

/* Norms of a mask that have parts of their own, from `first` on. */
static bool has_norm(const kolo_dnn_conv *c, int first)
{
    return c->mask && (first == KOLO_DNN_NORM || c->mask == KOLO_DNN_MASK_NORMS);
}

static size_t bytes_of(const kolo_dnn_conv *c, int part)
{
    const int64_t x = c->rows * c->in * c->x[0] * c->x[1];
    const int64_t sums = c->statistics ? c->out : 0, affine = c->prologue ? c->in : 0;
    const int64_t count[KOLO_DNN_NORM] = {[KOLO_DNN_X] = x,
                                          [KOLO_DNN_W] =
                                              c->out * (c->in / c->group) * c->kernel[0] * c->kernel[1],
                                          [KOLO_DNN_Y] = c->rows * c->out * c->y[0] * c->y[1],
                                          [KOLO_DNN_SUM] = sums,
                                          [KOLO_DNN_SQUARE] = sums,
                                          [KOLO_DNN_SCALE] = affine,
                                          [KOLO_DNN_BIAS] = affine,
                                          [KOLO_DNN_OTHER] = c->mask && c->add ? x : 0,
                                          [KOLO_DNN_RESIDUAL] = c->mask == KOLO_DNN_MASK_RESIDUAL ? x : 0};
    const bool wide = part == KOLO_DNN_SUM || part == KOLO_DNN_SQUARE;
    if (part < KOLO_DNN_NORM) return (size_t)count[part] * kolo_dtype_size(wide ? KOLO_F32 : c->dtype);
    const int first = part < KOLO_DNN_SECOND ? KOLO_DNN_NORM : KOLO_DNN_SECOND;
    if (!has_norm(c, first)) return 0;
    return part == first ? (size_t)x * kolo_dtype_size(c->dtype) : (size_t)c->in * sizeof(float);
}

/* Vectors in f32 are pairs of such numbers read as one where `dtype` has 16 bits: finite, and that is
 * enough. */
static int lay_trial(kolo_backend *b, const kolo_dnn_conv *c, candidates *all)
{
    size_t at[KOLO_DNN_PARTS + 1] = {0}, memory = all->split ? all->split->memory : 0;
    void *base;
    for (int i = 0; i < KOLO_DNN_PARTS; i++) at[i + 1] = at[i] + kolo_round_up(bytes_of(c, i), 4096);
    KOLO_TRY(kolo_cuda_trial_data(b, at[KOLO_DNN_PARTS] + memory, c->dtype, &base));
    for (int i = 0; i < KOLO_DNN_PARTS; i++) all->part[i] = at[i + 1] > at[i] ? (char *)base + at[i] : NULL;
    all->memory = (char *)base + at[KOLO_DNN_PARTS];
    cudaStream_t stream = kolo_cuda_of(b)->stream[KOLO_LANE_COMPUTE];
    if (memory) KOLO_TRY(KOLO_CUDA(cudaMemsetAsync(all->memory, 0x7F, memory, stream)));
    return all->split && all->split->fill ? all->split->fill(all->split->argument, all->memory) : 0;
}

static int choose_among(const kolo_dnn_conv *c, const char *key, candidates *all, int64_t *best)
{
    kolo_backend *b = all->request->backend;
    if (all->clock && lay_trial(b, c, all) < 0) {
        kolo_info("using the first engine of cuDNN's heuristics, untimed: %s", kolo_error_text());
        all->clock = false;
    }
    if (!all->clock) all->rules.behaviours |= compiles;
    const kolo_trial trial = {candidates_count(all), open_candidate, run_candidate, close_candidate, all};
    KOLO_TRY(kolo_cuda_trial_choose(b, &trial, all->clock, best));
    if (*best >= 0) return 0;
    return kolo_fail_in(KOLO_ECONFIG,
                        "cuDNN %d has no engine for %s among %ld; the last one: ", (int)cudnnGetVersion(),
                        key, (long)all->count);
}

/* What a choice says instead of an engine. */
static const char split_text[] = "split";

static int cuda_engine_choose(const kolo_kernel_request *r, const kolo_dnn_conv *c,
                              const kolo_dnn_rules *rules, const char *key, const kolo_cuda_split *split,
                              kolo_cuda_engine *out)
{
    kolo_backend *b = r->backend;
    const bool clock = !b->deterministic && !b->choices.given && kolo_cuda_of(b)->dnn;
    candidates all = {.request = r, .graph = out->graph, .rules = *rules, .clock = clock, .split = split};
    char text[KOLO_DNN_TEXT];
    int64_t best = -1, at = -1;
    int rc = kolo_dnn_proposals(out->graph, &all.choice, &all.count);
    if (rc < 0 && split) rc = 0; /* it knows none; the split form is there */
    if (rc >= 0 && !(all.plan = kolo_alloc((size_t)(all.count + 1) * sizeof *all.plan))) rc = KOLO_ENOMEM;
    if (rc >= 0) rc = choose_among(c, key, &all, &best);
    if (clock) kolo_cuda_trial_end(b);
    if (best >= 0) at = proposal_of(&all, best);
    if (at >= 0) out->plan = all.plan[at];
    if (rc >= 0 && clock) {
        if (at >= 0) kolo_dnn_choice_write(&all.choice[at], text);
        rc = kolo_choices_add(&b->choices, key, at >= 0 ? text : split_text);
    }
    free(all.plan);
    free(all.choice);
    return rc;
}

/* As chosen before, here or by rank 0. 1: nothing is known, or it is not to be had any more. */
static int recall(const kolo_kernel_request *r, const kolo_dnn_rules *rules, const char *key,
                  const kolo_cuda_split *split, kolo_cuda_engine *out)
{
    kolo_dnn_choice choice;
    const char *known = r->backend->deterministic ? NULL : kolo_choices_find(&r->backend->choices, key);
    if (!known) return 1;
    if (split && !strcmp(known, split_text)) return 0;
    int rc = kolo_dnn_choice_read(&choice, known)
                 ? kolo_dnn_plan_create(&out->plan, out->graph, &choice, rules)
                 : 1;
    if (rc <= 0) return rc;
    kolo_info("%s: the engine chosen before, %s, is no longer available; choosing another", key, known);
    return 1;
}

/* Sums that cuDNN forms are not the same twice on an H200 (9.19: losses of a first step in fp16 were 1e-5
 * apart), although no note of its engines says so. */
static bool keeps_bits(const kolo_dnn_conv *c) { return !c->statistics && c->mask == KOLO_DNN_NO_MASK; }

int kolo_cuda_engine_choose(const kolo_kernel_request *r, const kolo_dnn_conv *c,
                            const kolo_cuda_split *split, kolo_cuda_engine *out)
{
    if (r->backend->deterministic && split && !keeps_bits(c)) return 0;
    const kolo_dnn_rules rules = rules_of(r->backend, c);
    char *key = key_of(r, c, &rules);
    int rc = key ? kolo_dnn_graph_create(&out->graph, kolo_cuda_of(r->backend), c) : KOLO_ENOMEM;
    if (rc >= 0) rc = recall(r, &rules, key, split, out);
    if (rc > 0) rc = cuda_engine_choose(r, c, &rules, key, split, out);
    if (rc < 0 && key && split && !out->graph) { /* no such graph at all, it says */
        kolo_debug("%s: the split form: %s", key, kolo_error_text());
        rc = 0;
    }
    free(key);
    return rc;
}
