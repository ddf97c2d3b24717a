/* Times the operations of one training step, each family apart: ops_bench MODEL BATCH f32|bf16 THREADS [SIDE
 * [CACHE]] Every tensor has a buffer of its own (but work in place where it can be): no plan, no reductions,
 * no update. Prints the best of the rounds. Depthwise convolutions, if there are any, beside oneDNN's own and
 * a copy of the same run: rates of the bytes that must be moved at least. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "models/models.h"
#include "ops/kernel.h"

enum { SECONDS = 3 };

/* OPS_BENCH_CPU=1: processor time of all threads, for machines that others use too; run with
 * OMP_WAIT_POLICY=passive */
static double now_of(void)
{
    struct timespec t;
    if (!getenv("OPS_BENCH_CPU")) return kolo_time();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int stop(const char *what)
{
    fprintf(stderr, "ops_bench: %s: %s\n", what, kolo_error_text());
    return 1;
}

static void fill(void *p, const kolo_tensor *t, size_t bytes)
{
    uint32_t seed = 12345;
    for (size_t i = 0; i < bytes / 4; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (t->role == KOLO_ROLE_LABEL) ((int32_t *)p)[i] = (int32_t)(seed >> 24) % 10;
        else if (t->role == KOLO_ROLE_INPUT) ((uint32_t *)p)[i] = seed;
        else if (t->role == KOLO_ROLE_PARAM)
            ((float *)p)[i] = ((float)(seed >> 8) * 0x1p-24f - 0.5f) * (t->rank > 1 ? 0.1f : 1.0f);
        else if (t->role == KOLO_ROLE_BUFFER) ((float *)p)[i] = 1;
    }
}

typedef struct bench {
    kolo_graph *g;
    kolo_backend *backend;
    kolo_layout *layout;
    void **buffer;
    kolo_kernel **kernel;
    void *workspace;
    kolo_step step;
    double *best;
} bench;

/* OPS_BENCH_BLOCK=1, 8, 16 or -1 (all channels) instead of the backend's own choice */
static int choose_layout(bench *b)
{
    const char *text = getenv("OPS_BENCH_BLOCK");
    const kolo_graph *g = b->g;
    if (!text) return kolo_backend_layout(b->backend, g, NULL, NULL, b->layout);
    for (int64_t t = 0; t < g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        bool image = x->producer >= 0 && g->node[x->producer].op == KOLO_OP_normalize;
        int64_t block = atol(text) < 0 ? x->dim[1] : image ? 1 : atol(text);
        b->layout[t] = kolo_tensor_is_map(x) ? kolo_layout_blocked(x, block) : kolo_layout_plain(x);
    }
    return kolo_backend_layout_parameters(b->backend, g, NULL, NULL, b->layout);
}

/* An output takes the memory of the input that dies there, as a plan would have it. */
static void share_memory(bench *b)
{
    const kolo_graph *g = b->g;
    int64_t *last = calloc((size_t)g->tensors, sizeof *last);
    int *fixed = malloc((size_t)g->tensors * sizeof *fixed);
    for (int t = 0; t < (int)g->tensors; t++) fixed[t] = t;
    for (int64_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] >= 0) last[g->node[i].in[k]] = i;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        int over = kolo_op_table[n->op].overwrite, from = over >= 0 ? n->in[over] : -1, to = n->out[0];
        if (from < 0 || last[from] != i || g->tensor[from].role != KOLO_ROLE_ACTIVATION ||
            b->layout[from].bytes != b->layout[to].bytes)
            continue;
        fixed[to] = fixed[from];
    }
    for (int64_t t = 0; t < g->tensors; t++) {
        int h = fixed[t];
        if (!b->buffer[h]) {
            b->buffer[h] = kolo_pages_alloc(kolo_round_up(b->layout[h].bytes, 64));
            if (b->buffer[h]) fill(b->buffer[h], &g->tensor[h], kolo_round_up(b->layout[h].bytes, 64));
        }
        b->buffer[t] = b->buffer[h];
    }
    free(last);
    free(fixed);
}

static int prepare(bench *b)
{
    size_t most = 64;
    double start = kolo_time();
    if (choose_layout(b) < 0) return stop("layout");
    double layouts = kolo_time() - start;
    for (int i = 0; i < (int)b->g->nodes; i++) {
        size_t bytes;
        if (kolo_backend_prepare(b->backend, b->g, i, b->layout, &b->kernel[i], &bytes) < 0)
            return stop("prepare");
        if (bytes > most) most = bytes;
    }
    printf("layout %.3f s, prepare %.3f s, workspace %.1f MiB\n", layouts, kolo_time() - start - layouts,
           (double)most / 1048576);
    b->workspace = kolo_pages_alloc(most);
    share_memory(b);
    for (int64_t t = 0; t < b->g->tensors; t++)
        if (!b->buffer[t]) return stop("memory");
    return b->workspace ? 0 : stop("memory");
}

static int round_of(bench *b, double *total)
{
    double start = now_of(), last = start;
    for (int64_t i = 0; i < b->g->nodes; i++) {
        const kolo_node *n = &b->g->node[i];
        void *args[2 * KOLO_MAX_ARGS];
        for (int k = 0; k < n->n_in; k++) args[k] = n->in[k] >= 0 ? b->buffer[n->in[k]] : NULL;
        for (int k = 0; k < n->n_out; k++) args[n->n_in + k] = n->out[k] >= 0 ? b->buffer[n->out[k]] : NULL;
        if (kolo_kernel_run(b->kernel[i], args, b->workspace, &b->step, 0) < 0)
            return stop(kolo_op_table[n->op].name);
        double now = now_of();
        if (now - last < b->best[i]) b->best[i] = now - last;
        last = now;
    }
    if (last - start < *total) *total = last - start;
    return 0;
}

static void print_families(const bench *b)
{
    for (int op = 0; op < KOLO_OP_COUNT; op++) {
        double sum = 0, flops = 0;
        int count = 0;
        for (int64_t i = 0; i < b->g->nodes; i++) {
            if ((int)b->g->node[i].op != op) continue;
            sum += b->best[i];
            count++;
            if (kolo_op_table[op].flops) flops += kolo_op_table[op].flops(b->g, &b->g->node[i]);
        }
        if (count)
            printf("%-22s %4d  %9.3f ms  %7.1f GF/s\n", kolo_op_table[op].name, count, 1e3 * sum,
                   flops / sum * 1e-9);
    }
}

static void print_nodes(const bench *b)
{
    for (int64_t i = 0; i < b->g->nodes; i++) {
        const kolo_node *n = &b->g->node[i];
        const kolo_tensor *x = &b->g->tensor[n->in[0]];
        printf("%4ld %-18s %9.1f us  %7.1f GF/s  (%ld,%ld,%ld,%ld) %s\n", (long)i, kolo_op_table[n->op].name,
               1e6 * b->best[i],
               kolo_op_table[n->op].flops ? kolo_op_table[n->op].flops(b->g, n) / b->best[i] * 1e-9 : 0,
               (long)x->dim[0], (long)x->dim[1], (long)x->dim[2], (long)x->dim[3],
               kolo_kernel_name(b->kernel[i]));
    }
}

/* ---- depthwise convolutions ---------------------------------------------------------------------------- */

static bool is_depthwise(const bench *b, int64_t i)
{
    const kolo_node *n = &b->g->node[i];
    const bool conv =
        n->op == KOLO_OP_conv || n->op == KOLO_OP_conv_grad_data || n->op == KOLO_OP_conv_grad_weight;
    return conv && n->a.groups > 1 && n->a.groups == b->g->tensor[n->in[0]].dim[1];
}

static double bytes_of(const bench *b, int64_t i)
{
    const kolo_node *n = &b->g->node[i];
    double bytes = 0;
    for (int k = 0; k < n->n_in; k++) bytes += n->in[k] >= 0 ? (double)b->layout[n->in[k]].bytes : 0;
    for (int k = 0; k < n->n_out; k++) bytes += n->out[k] >= 0 ? (double)b->layout[n->out[k]].bytes : 0;
    return bytes;
}

/* Bytes read and written a second by `threads` copies of pieces of a buffer that no cache holds. */
static double copy_rate(int threads)
{
    enum { PIECE = 1 << 18, PIECES = 512 };
    char *from = kolo_pages_alloc((size_t)PIECE * PIECES), *to = kolo_pages_alloc((size_t)PIECE * PIECES);
    double best = 1e30;
    for (int round = 0; from && to && round < 12; round++) {
        const double start = now_of();
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int i = 0; i < PIECES; i++) memcpy(to + (int64_t)i * PIECE, from + (int64_t)i * PIECE, PIECE);
        const double s = now_of() - start;
        if (round > 0 && s < best) best = s;
    }
    return 2.0 * PIECE * PIECES / best;
}

static char *replaced(const char *text, const char *word, const char *by)
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    for (const char *at; f && (at = strstr(text, word)); text = at + strlen(word))
        fprintf(f, "%.*s%s", (int)(at - text), text, by);
    if (f) fputs(text, f), fclose(f);
    return out;
}

/* The same nodes by oneDNN alone: a backend that is given our choices, with another in
 * the place of our loops. */
static int by_library(const bench *b, kolo_backend_config config, const char *choices, double *best)
{
    bench other = *b;
    char *text = replaced(choices, "depthwise", "direct");
    config.choices = text;
    if (!text || kolo_backend_create(&other.backend, "cpu", &config) < 0) return stop("backend");
    size_t most = 64;
    for (int i = 0; i < (int)b->g->nodes; i++) {
        size_t bytes = 0;
        if (!is_depthwise(b, i)) continue;
        if (kolo_backend_prepare(other.backend, b->g, i, b->layout, &b->kernel[i], &bytes) < 0)
            return stop("prepare");
        if (bytes > most) most = bytes;
    }
    other.workspace = kolo_pages_alloc(most);
    for (int round = 0; round < 5; round++)
        for (int64_t i = 0; i < b->g->nodes; i++) {
            const kolo_node *n = &b->g->node[i];
            void *args[2 * KOLO_MAX_ARGS];
            if (!is_depthwise(b, i)) continue;
            for (int k = 0; k < n->n_in; k++) args[k] = n->in[k] >= 0 ? b->buffer[n->in[k]] : NULL;
            for (int k = 0; k < n->n_out; k++)
                args[n->n_in + k] = n->out[k] >= 0 ? b->buffer[n->out[k]] : NULL;
            const double start = now_of();
            if (kolo_kernel_run(b->kernel[i], args, other.workspace, &b->step, 0) < 0) return stop("run");
            if (now_of() - start < best[i]) best[i] = now_of() - start;
        }
    free(text);
    return 0;
}

static int print_depthwise(const bench *b, const kolo_backend_config *config, const char *choices)
{
    static const enum kolo_op passes[] = {KOLO_OP_conv, KOLO_OP_conv_grad_data, KOLO_OP_conv_grad_weight};
    double *library = malloc((size_t)b->g->nodes * sizeof *library), copy = 0;
    for (int64_t i = 0; i < b->g->nodes; i++) library[i] = 1e30;
    for (int p = 0; p < 3; p++) {
        double bytes = 0, ours = 0, theirs = 0;
        const char *name = "";
        for (int64_t i = 0; i < b->g->nodes; i++) {
            if (b->g->node[i].op != passes[p] || !is_depthwise(b, i)) continue;
            if (copy == 0) {
                copy = copy_rate(config->threads);
                if (by_library(b, *config, choices, library)) return 1;
            }
            bytes += bytes_of(b, i), ours += b->best[i], theirs += library[i];
            name = kolo_kernel_name(b->kernel[i]);
        }
        if (bytes > 0)
            printf("depthwise %-18s %6.2f GB/s, of a copy's %.2f: %.2f; %s %.2f GB/s\n",
                   kolo_op_table[passes[p]].name, bytes / ours * 1e-9, copy * 1e-9, bytes / ours / copy, name,
                   bytes / theirs * 1e-9);
    }
    free(library);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(
            stderr,
            "usage: ops_bench MODEL BATCH f32|bf16 THREADS [SIDE [CACHE]]   (OPS_BENCH_NODES=1: each node; "
            "_RULE=1: no clock; _BLOCK=B)\n");
        return 78;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    const kolo_model *model = kolo_model_find(argv[1]);
    if (!model) return stop("model");
    int64_t rows = atol(argv[2]), side = argc > 5 ? atol(argv[5]) : 0;
    kolo_model_config c = {.rows = rows,
                           .height = side ? side : model->height,
                           .width = side ? side : model->width,
                           .channels = model->channels,
                           .classes = model->classes,
                           .shortcut = "a",
                           .mean = {.5f, .5f, .5f, .5f},
                           .std = {.25f, .25f, .25f, .25f},
                           .train = true,
                           .dtype = strcmp(argv[3], "bf16") ? KOLO_F32 : KOLO_BF16};
    bench b = {0};
    kolo_backend_config config = {.threads = atoi(argv[4]),
                                  .cache = argc > 6 ? argv[6] : NULL,
                                  .deterministic = getenv("OPS_BENCH_RULE") != NULL};
    if (kolo_model_graph(&b.g, argv[1], &c) < 0) return stop("graph");
    if (kolo_backend_create(&b.backend, "cpu", &config) < 0) return stop("backend");
    b.layout = calloc((size_t)b.g->tensors, sizeof *b.layout);
    b.buffer = calloc((size_t)b.g->tensors, sizeof *b.buffer);
    b.kernel = calloc((size_t)b.g->nodes, sizeof *b.kernel);
    b.best = malloc((size_t)b.g->nodes * sizeof *b.best);
    for (int64_t i = 0; i < b.g->nodes; i++) b.best[i] = 1e30;
    b.step.valid_global = rows;
    for (int i = 0; i < KOLO_MAX_SLOTS; i++) b.step.valid[i] = (int32_t)rows;
    b.step.scaler.scale = 1;
    if (prepare(&b)) return 1;
    double total = 1e30, sum = 0;
    double start = kolo_time();
    for (int i = 0; i < 3 || (i < 200 && kolo_time() - start < SECONDS); i++)
        if (round_of(&b, &total)) return 1;
    if (getenv("OPS_BENCH_NODES")) print_nodes(&b);
    print_families(&b);
    char *choices = kolo_backend_choices(b.backend);
    if (getenv("OPS_BENCH_CHOICES")) printf("%s", choices);
    if (print_depthwise(&b, &config, choices)) return 1;
    for (int64_t i = 0; i < b.g->nodes; i++) sum += b.best[i];
    printf("%s b%ld %s block %ld: step %.3f ms, %.1f img/s (best of each operation: %.3f ms, %.1f img/s)\n",
           argv[1], (long)rows, argv[3], (long)b.layout[b.g->node[1].out[0]].block, 1e3 * total,
           (double)rows / total, 1e3 * sum, (double)rows / sum);
    return 0;
}
