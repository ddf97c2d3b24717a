#include "train/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "train/mirror.h"
#include "train/parts.h"

typedef struct features {
    int64_t samples, width;
    float *all; /* (samples, width) */
} features;

static const kolo_pair_set *find_set(const kolo_targets *t, const char *name)
{
    for (int i = 0; t && i < t->pair_sets; i++)
        if (!strcmp(t->pairs[i].name, name)) return &t->pairs[i];
    return NULL;
}

static int no_set(const kolo_targets *t, const char *name)
{
    char list[512] = "";
    for (int i = 0, used = 0; t && i < t->pair_sets && used < (int)sizeof list; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", i ? ", " : "", t->pairs[i].name);
    return kolo_fail(KOLO_EINPUT, "pairs=%s: the validation set has %s%s", name,
                     *list ? "the pairs " : "no pairs; pack LFW with its files of pairs", list);
}

/* What one batch takes to have its features added up. */
typedef struct collector {
    kolo_session *session;
    features *features;
    kolo_mirror *mirror;
    const int32_t *labels; /* zeros, since people of the pairs need not be among the classes */
    float *values;         /* (rows, width): of one batch */
} collector;

/* Adds up what a batch's rows and their mirror images show. */
static int collect_batch(void *argument, const kolo_batch *batch)
{
    const collector *c = argument;
    const kolo_session *s = c->session;
    kolo_exec *exec = kolo_session_eval_exec(s);
    const int tensor = kolo_session_eval_graph(s)->features;
    const int64_t width = c->features->width;
    for (int side = 0; side < 2; side++) {
        kolo_batch shown = side ? kolo_mirror_batch(c->mirror, batch) : *batch;
        shown.labels = c->labels;
        KOLO_TRY(kolo_exec_infer(exec, &shown));
        if (!kolo_session_answers(s, tensor)) continue;
        KOLO_TRY(kolo_exec_get(exec, "activation", tensor, c->values));
        for (int64_t i = 0; i < batch->valid; i++)
            for (int64_t k = 0; k < width; k++)
                c->features->all[batch->samples[i] * width + k] += c->values[i * width + k];
    }
    return 0;
}

static double cosine(const features *f, int64_t a, int64_t b)
{
    const float *x = f->all + a * f->width, *y = f->all + b * f->width;
    double dot = 0, xx = 0, yy = 0;
    for (int64_t k = 0; k < f->width; k++) {
        dot += (double)x[k] * (double)y[k];
        xx += (double)x[k] * (double)x[k];
        yy += (double)y[k] * (double)y[k];
    }
    return dot / sqrt(xx * yy > 0 ? xx * yy : 1);
}

static int score(const features *f, const kolo_pair_set *set, kolo_pair_scores *scores)
{
    KOLO_TRY(kolo_pair_scores_create(scores, set->count));
    for (int64_t i = 0; i < set->count; i++) {
        scores->score[i] = (float)cosine(f, set->pair[i][0], set->pair[i][1]);
        scores->same[i] = set->same[i];
        scores->fold[i] = set->fold[i];
    }
    return 0;
}

int kolo_verify(kolo_session *s, bool ema, const char *name, kolo_pair_scores *scores,
                kolo_verification *result)
{
    const kolo_targets *t = kolo_dataset_targets(s->val_set);
    const kolo_pair_set *set = find_set(t, name), *other = find_set(t, "dev_train");
    const kolo_graph *g = kolo_session_eval_graph(s);
    kolo_pair_scores development = {0};
    *scores = (kolo_pair_scores){0};
    if (!set) return no_set(t, name);
    if (g->features < 0)
        return kolo_fail(KOLO_ECONFIG, "pairs=%s: %s has no features of whole images", name,
                         s->options->model);
    features f = {.samples = s->val_samples, .width = g->tensor[g->features].dim[1]};
    kolo_mirror mirror = {0};
    int32_t *labels = kolo_alloc((size_t)g->rows * sizeof *labels);
    float *values = kolo_alloc((size_t)(g->rows * f.width) * sizeof *values);
    f.all = kolo_alloc((size_t)(f.samples * f.width) * sizeof *f.all);
    int rc = labels && values && f.all ? kolo_mirror_open(&mirror, s) : KOLO_ENOMEM;
    kolo_exec_use_ema(kolo_session_eval_exec(s), ema);
    if (rc == 0) rc = session_each_val_batch(s, collect_batch, &(collector){s, &f, &mirror, labels, values});
    if (rc == 0) rc = kolo_comm_allreduce(s->comm, f.all, f.samples * f.width, KOLO_F32, KOLO_SUM);
    if (rc == 0) rc = score(&f, set, scores);
    if (rc == 0 && other && other != set) rc = score(&f, other, &development);
    if (rc == 0) rc = kolo_roc_measure(scores, development.count ? &development : NULL, result);
    kolo_pair_scores_free(&development);
    kolo_mirror_close(&mirror);
    free(labels);
    free(values);
    free(f.all);
    return rc;
}
