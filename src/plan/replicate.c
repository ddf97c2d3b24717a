#include "plan/replicate.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"

/* The best division of layers [0, end) onto so many ranks, in so many stages (or any number). */
typedef struct best {
    double seconds;
    int first, ranks; /* of its last stage */
} best;

typedef struct search {
    const kolo_replicate_input *in;
    double *compute, *weights; /* [layers + 1] sums of the layers in front */
    int rows;                  /* stages that are told apart; 0: they are not */
    best *table;               /* [rows + 1][layers + 1][ranks + 1] */
} search;

static best *at(const search *s, int row, int end, int ranks)
{
    const kolo_replicate_input *in = s->in;
    return &s->table[((int64_t)row * (in->layers + 1) + end) * (in->ranks + 1) + ranks];
}

/* Sums over n ranks send each 2 (n-1)/n of the weights, and take as much in. */
static double stage_seconds(const kolo_replicate_input *in, double compute, double weights, int ranks)
{
    return (compute + 4 * (ranks - 1) * weights / (in->bandwidth * ranks)) / ranks;
}

/* Of an activation and its gradient, shared by the ranks that read it. */
static double transfer_seconds(const kolo_replicate_input *in, int first, int ranks)
{
    return first ? 2 * in->layer[first - 1].activation / (in->bandwidth * ranks) : 0;
}

/* Layers [first, end) on so many ranks, behind the best that comes before them. */
static void try_stage(const search *s, int row, int end, int all, int first, int ranks)
{
    const kolo_replicate_input *in = s->in;
    best *b = at(s, row, end, all);
    double seconds =
        stage_seconds(in, s->compute[end] - s->compute[first], s->weights[end] - s->weights[first], ranks);
    if (first > 0) {
        const best *before = at(s, s->rows ? row - 1 : 0, first, all - ranks);
        seconds = fmax(fmax(seconds, transfer_seconds(in, first, ranks)), before->seconds);
    }
    if (seconds < b->seconds) *b = (best){seconds, first, ranks};
}

static void fill_row(const search *s, int row)
{
    const kolo_replicate_input *in = s->in;
    for (int end = 1; end <= in->layers; end++)
        for (int all = 1; all <= in->ranks; all++) {
            *at(s, row, end, all) = (best){INFINITY, 0, 0};
            if (row <= 1) try_stage(s, row, end, all, 0, all);
            for (int first = 1; row != 1 && first < end; first++)
                for (int ranks = 1; in->layer[first].cut && ranks < all; ranks++)
                    try_stage(s, row, end, all, first, ranks);
        }
}

static void read_back(const search *s, int row, kolo_replicate_stage *stage, int *stages)
{
    int n = 0, end = s->in->layers, ranks = s->in->ranks;
    for (int r = row; end > 0; r -= s->rows > 0) {
        const best *b = at(s, r, end, ranks);
        stage[n++] = (kolo_replicate_stage){b->first, b->ranks};
        end = b->first;
        ranks -= b->ranks;
    }
    for (int i = 0; i < n / 2; i++) {
        const kolo_replicate_stage last = stage[n - 1 - i];
        stage[n - 1 - i] = stage[i];
        stage[i] = last;
    }
    *stages = n;
}

int kolo_replicate(const kolo_replicate_input *in, kolo_replicate_stage *stage, int *stages, double *seconds)
{
    search s = {.in = in, .rows = in->most};
    const size_t layers = (size_t)in->layers + 1;
    s.compute = kolo_alloc(layers * sizeof *s.compute);
    s.weights = kolo_alloc(layers * sizeof *s.weights);
    s.table = kolo_alloc((size_t)(s.rows + 1) * layers * (size_t)(in->ranks + 1) * sizeof *s.table);
    const int rc = s.compute && s.weights && s.table ? 0 : KOLO_ENOMEM;
    int best_row = 0;
    for (int i = 0; rc == 0 && i < in->layers; i++) {
        s.compute[i + 1] = s.compute[i] + in->layer[i].seconds;
        s.weights[i + 1] = s.weights[i] + in->layer[i].weights;
    }
    *seconds = INFINITY;
    for (int row = s.rows > 0; rc == 0 && row <= s.rows; row++) {
        fill_row(&s, row);
        const double found = at(&s, row, in->layers, in->ranks)->seconds;
        if (found < *seconds) *seconds = found, best_row = row;
    }
    if (rc == 0) read_back(&s, best_row, stage, stages);
    free(s.compute);
    free(s.weights);
    free(s.table);
    return rc;
}

double kolo_replicate_seconds(const kolo_replicate_input *in, const kolo_replicate_stage *stage, int stages)
{
    double most = 0;
    for (int k = 0; k < stages; k++) {
        const int end = k + 1 < stages ? stage[k + 1].first : in->layers;
        double compute = 0, weights = 0;
        for (int i = stage[k].first; i < end; i++) {
            compute += in->layer[i].seconds;
            weights += in->layer[i].weights;
        }
        most = fmax(most, stage_seconds(in, compute, weights, stage[k].ranks));
        most = fmax(most, transfer_seconds(in, stage[k].first, stage[k].ranks));
    }
    return most;
}
