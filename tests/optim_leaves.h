/* Norms in leaves: one updater with whole tensors, and several with parts of them that bring their sums
 * together, come to the same bytes, on any backend and with any number of threads. */
#ifndef TESTS_OPTIM_LEAVES_H
#define TESTS_OPTIM_LEAVES_H

#include <math.h>
#include <omp.h>
#include <string.h>

#include "kolo/error.h"
#include "optim/optim.h"
#include "tap.h"

enum { LEAVES_TENSORS = 5, LEAVES_SPACE = 112400, LEAVES_ALL = 30, LEAVES_RANKS = 3, LEAVES_STEPS = 3 };
static const int64_t leaves_size[LEAVES_TENSORS] = {1, 4095, 4096, 4097, 100000};
enum leaves_row { LEAVES_PARAM, LEAVES_GRAD, LEAVES_STATE, LEAVES_STATE1, LEAVES_ROWS };

/* Who has which leaves. */
typedef struct leaves_way {
    const char *name;
    int ranks;
    bool dealt;    /* in turn, not in runs */
    bool together; /* neighbours are one slice */
} leaves_way;

/* What must not depend on that. */
typedef struct leaves_outcome {
    float row[LEAVES_ROWS][LEAVES_SPACE];
    double norm[LEAVES_ALL], layers[2 * LEAVES_ALL];
    kolo_layer layer[LEAVES_RANKS][LEAVES_TENSORS]; /* of every rank */
    kolo_step step[LEAVES_RANKS];
} leaves_outcome;

typedef struct leaves_rank {
    kolo_updater *updater;
    kolo_layer *layer;
    kolo_step *step;
    double *sum;
    kolo_slice slice[LEAVES_ALL];
    kolo_measured measured[LEAVES_ALL];
    int slices, measures;
} leaves_rank;

typedef struct leaves_world {
    kolo_backend *backend;
    kolo_options options;
    float *memory; /* [LEAVES_ROWS][LEAVES_SPACE] of all ranks, each of which touches its own leaves only */
    leaves_rank rank[LEAVES_RANKS];
    int ranks;
} leaves_world;

static void leaves_check(int rc)
{
    if (rc >= 0) return;
    printf("Bail out! %s\n", kolo_error_text());
    exit(1);
}

static void *leaves_memory(kolo_backend *b, size_t bytes)
{
    void *p = kolo_backend_alloc(b, bytes);
    if (!p) leaves_check(KOLO_ENOMEM);
    return p;
}

static float leaves_number(int64_t i) /* of both signs, over six decimal orders */
{
    const uint32_t z = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 3) * 40503u;
    return ((float)(z >> 8) * 0x1p-24f - 0.5f) * powf(10, (float)(z % 7) - 5);
}

/* The graph's order is the other way round than the arena's. */
static int64_t leaves_first(int tensor)
{
    int64_t leaf = 0;
    for (int t = LEAVES_TENSORS - 1; t > tensor; t--) leaf += kolo_leaves(leaves_size[t]);
    return leaf;
}

static int64_t leaves_begin(int tensor)
{
    int64_t at = 0;
    for (int t = 0; t < tensor; t++) at += (leaves_size[t] + 15) / 16 * 16;
    return at;
}

/* Leaf at `from` of a tensor; the slice before is lengthened where it ends there. */
static void leaves_take(leaves_world *w, leaves_rank *r, const leaves_way *way, int tensor, int64_t from)
{
    const int64_t left = leaves_size[tensor] - from, count = left < KOLO_LEAF ? left : KOLO_LEAF;
    float *at = w->memory + leaves_begin(tensor) + from;
    float *grad = at + LEAVES_GRAD * LEAVES_SPACE;
    kolo_slice *last = r->slices ? &r->slice[r->slices - 1] : NULL;
    r->measured[r->measures++] = (kolo_measured){grad, count, leaves_first(tensor) + from / KOLO_LEAF};
    if (way->together && last && last->layer == r->layer + tensor && last->param + last->count == at) {
        last->count += count;
        return;
    }
    r->slice[r->slices++] =
        (kolo_slice){.param = at,
                     .grad = grad,
                     .state = {at + LEAVES_STATE * LEAVES_SPACE, at + LEAVES_STATE1 * LEAVES_SPACE},
                     .layer = r->layer + tensor,
                     .leaf = leaves_first(tensor) + from / KOLO_LEAF,
                     .count = count,
                     .decay = true,
                     .rate = 1};
}

static void leaves_open_rank(leaves_world *w, int rank, const char *optimizer, const leaves_way *way)
{
    static const kolo_layer none[LEAVES_TENSORS];
    leaves_rank *r = &w->rank[rank];
    r->layer = leaves_memory(w->backend, sizeof none);
    r->step = leaves_memory(w->backend, sizeof *r->step);
    r->sum = leaves_memory(w->backend, 2 * LEAVES_ALL * sizeof *r->sum);
    leaves_check(kolo_backend_write(w->backend, r->layer, none, sizeof none));
    kolo_segment segment[LEAVES_TENSORS];
    kolo_leaf_run leaves[LEAVES_TENSORS];
    for (int t = 0; t < LEAVES_TENSORS; t++) {
        segment[t] = (kolo_segment){leaves_begin(t), leaves_size[t], true, 1};
        leaves[t] = (kolo_leaf_run){leaves_first(t), kolo_leaves(leaves_size[t])};
        for (int64_t from = 0; from < leaves_size[t]; from += KOLO_LEAF) {
            const int64_t leaf = leaves[t].first + from / KOLO_LEAF;
            if (rank == (way->dealt ? leaf % way->ranks : leaf * way->ranks / LEAVES_ALL))
                leaves_take(w, r, way, t, from);
        }
    }
    const kolo_updater_config config = {.backend = w->backend,
                                        .optimizer = kolo_optimizer_find(optimizer),
                                        .options = &w->options,
                                        .slice = r->slice,
                                        .slices = r->slices,
                                        .layer = r->layer,
                                        .segment = segment,
                                        .leaf = leaves,
                                        .layers = LEAVES_TENSORS,
                                        .measured = r->measured,
                                        .measures = r->measures};
    leaves_check(kolo_updater_create(&r->updater, &config));
}

static void leaves_open(leaves_world *w, kolo_backend *b, const char *optimizer, const leaves_way *way)
{
    const size_t bytes = LEAVES_ROWS * LEAVES_SPACE * sizeof(float);
    float *start = calloc(1, bytes);
    *w = (leaves_world){.backend = b, .ranks = way->ranks};
    kolo_options_default(&w->options);
    kolo_option_set(&w->options, "optimizer", optimizer, "test");
    w->options.clip_norm = 0.5;
    w->memory = leaves_memory(b, bytes);
    for (int64_t i = 0; i < leaves_begin(LEAVES_TENSORS); i++) start[i] = leaves_number(i);
    leaves_check(kolo_backend_write(b, w->memory, start, bytes));
    for (int k = 0; k < w->ranks; k++) leaves_open_rank(w, k, optimizer, way);
    free(start);
}

static void leaves_close(leaves_world *w)
{
    for (int k = 0; k < w->ranks; k++) {
        leaves_rank *r = &w->rank[k];
        kolo_updater_destroy(&r->updater);
        kolo_backend_free(w->backend, (void **)&r->layer, LEAVES_TENSORS * sizeof *r->layer);
        kolo_backend_free(w->backend, (void **)&r->step, sizeof *r->step);
        kolo_backend_free(w->backend, (void **)&r->sum, 2 * LEAVES_ALL * sizeof *r->sum);
    }
    kolo_backend_free(w->backend, (void **)&w->memory, LEAVES_ROWS * LEAVES_SPACE * sizeof(float));
    kolo_options_free(&w->options);
}

/* One step of all ranks: norm, factors, update. Sums are exchanged between measuring and deciding. */
static void leaves_step(leaves_world *w, int number, leaves_outcome *out)
{
    kolo_backend *b = w->backend;
    static const double none[2 * LEAVES_ALL];
    static float grad[LEAVES_SPACE];
    const kolo_step step = {
        .step = number, .lr = 0.01f, .momentum = 0.9f, .weight_decay = 0.05f, .clip = 1, .scaler.scale = 1};
    for (int64_t i = 0; i < leaves_begin(LEAVES_TENSORS); i++) grad[i] = leaves_number(i + 77 * number + 5);
    leaves_check(kolo_backend_write(b, w->memory + LEAVES_GRAD * LEAVES_SPACE, grad, sizeof grad));
    for (int k = 0; k < w->ranks; k++)
        leaves_check(kolo_backend_write(b, w->rank[k].step, &step, sizeof step));
    for (int pass = 0; pass < 2; pass++) {
        const int sums = pass ? 2 * LEAVES_ALL : LEAVES_ALL;
        double *all = pass ? out->layers : out->norm, mine[2 * LEAVES_ALL];
        memset(all, 0, (size_t)sums * sizeof *all);
        for (int k = 0; k < w->ranks; k++) {
            leaves_rank *r = &w->rank[k];
            leaves_check(kolo_backend_write(b, r->sum, none, sizeof none));
            leaves_check(pass ? kolo_updater_layers_measure(r->updater, r->step, r->sum)
                              : kolo_updater_measure(r->updater, r->sum));
            leaves_check(kolo_backend_finish(b));
            leaves_check(kolo_backend_read(b, mine, r->sum, sizeof mine));
            for (int i = 0; i < sums; i++) all[i] += mine[i];
        }
        for (int k = 0; k < w->ranks; k++) {
            leaves_rank *r = &w->rank[k];
            leaves_check(kolo_backend_write(b, r->sum, all, (size_t)sums * sizeof *all));
            leaves_check(pass ? kolo_updater_layers_decide(r->updater, r->step, r->sum)
                              : kolo_updater_decide(r->updater, r->sum, sums, r->step));
            leaves_check(kolo_backend_finish(b));
        }
    }
    for (int k = 0; k < w->ranks; k++)
        leaves_check(
            kolo_updater_update(w->rank[k].updater, 0, w->rank[k].slices, KOLO_UPDATE, w->rank[k].step));
    leaves_check(kolo_backend_finish(b));
}

static void leaves_run(kolo_backend *b, const char *optimizer, const leaves_way *way, leaves_outcome *out)
{
    static leaves_world w;
    leaves_open(&w, b, optimizer, way);
    for (int t = 0; t < LEAVES_STEPS; t++) leaves_step(&w, t, out);
    leaves_check(kolo_backend_read(b, out->row, w.memory, sizeof out->row));
    for (int k = 0; k < LEAVES_RANKS; k++) { /* where there are fewer ranks the first one's again */
        const leaves_rank *r = &w.rank[k < w.ranks ? k : 0];
        leaves_check(kolo_backend_read(b, out->layer[k], r->layer, sizeof out->layer[k]));
        leaves_check(kolo_backend_read(b, &out->step[k], r->step, sizeof out->step[k]));
    }
    leaves_close(&w);
}

/* Gradients of the last step, as a rank with one slice a tensor has measured them, beside plain sums. square:
 * which of a layer's sums is that of its clipped gradient; -1: neither. */
static void leaves_right(const char *optimizer, int square, const leaves_outcome *out)
{
    const double clip = (double)out->step[0].clip;
    double worst = 0, off = 0, norm = 0;
    for (int t = 0; t < LEAVES_TENSORS; t++) {
        double want = 0, sum = 0;
        for (int64_t i = 0; i < leaves_size[t]; i++) {
            const double g = (double)leaves_number(leaves_begin(t) + i + 77 * (LEAVES_STEPS - 1) + 5);
            want += g * g;
        }
        for (int64_t i = 0; i < kolo_leaves(leaves_size[t]); i++) sum += out->norm[leaves_first(t) + i];
        worst = fmax(worst, fabs(sum - want) / want);
        if (square >= 0) off = fmax(off, fabs(out->layer[0][t].sum[square] / (clip * clip * want) - 1));
        norm += want;
    }
    worst = fmax(worst, fabs(out->step[0].norm - sqrt(norm)) / sqrt(norm));
    ok(worst < 1e-12 && off < 1e-6 && clip < 1,
       "%s: the leaves of a gradient add up to its square, and all to the norm: %.3g, %.3g", optimizer, worst,
       off);
}

static void leaves_test(kolo_backend *b)
{
    static const char *const optimizer[] = {"lars", "lamb", "novograd"};
    static const int square[] = {1, -1, 0};
    static const leaves_way whole = {"whole", 1, false, true};
    static const leaves_way ways[] = {{"a slice for every leaf", 1, false, false},
                                      {"three ranks with runs of leaves", 3, false, true},
                                      {"three ranks with every third leaf", 3, true, false},
                                      {"two ranks with halves", 2, false, true}};
    static leaves_outcome want, got;
    for (int o = 0; o < 3; o++) {
        omp_set_num_threads(1);
        leaves_run(b, optimizer[o], &whole, &want);
        leaves_right(optimizer[o], square[o], &want);
        for (int i = 0; i < 4; i++) {
            omp_set_num_threads(1 + i % 3);
            leaves_run(b, optimizer[o], &ways[i], &got);
            ok(!memcmp(got.norm, want.norm, sizeof got.norm) &&
                   !memcmp(got.layers, want.layers, sizeof got.layers),
               "%s, %s: the sums of one slice a tensor", optimizer[o], ways[i].name);
            ok(!memcmp(got.layer, want.layer, sizeof got.layer) &&
                   !memcmp(got.step, want.step, sizeof got.step),
               "the factors, the norm and the clipping, on every rank");
            ok(!memcmp(got.row, want.row, sizeof got.row), "the weights and the state");
        }
    }
}

#endif
