/* plan=auto, `kolo plan --search`: of the ways to place a training on its ranks the one whose step, played
 * (times.h), is the shortest. Where layers are cut, and what is made again, each plan chooses for itself
 * (partition.h, recompute.h); what those exact searches leave open is searched here (plan/search.h). */
#ifndef KOLO_TRAIN_AUTO_PLAN_H
#define KOLO_TRAIN_AUTO_PLAN_H

#include "train/session.h"

typedef struct kolo_auto_plan {
    char text[256];   /* options that were chosen, as words; empty: plain data parallel */
    char why[512];    /* what plain data parallel loses, and where; or why it is kept */
    char uneven[512]; /* what stages of unequally many ranks would be worth (uneven.h), or empty */
    double seconds, plain, bound; /* of a step: chosen, plain (0: it is not possible), of no plan less */
    int64_t priced, plans;        /* plans that were played; that there are */
    double took;                  /* seconds */
} kolo_auto_plan;

/* Of options->ranks ranks, for `gpu` or (NULL) a node like this, within `limit` seconds. options: the choice
 * is set in them. Only what is placement: stages, pipeline, chunks, shard, recompute, bucket_mb;
 * layers in parts (spatial, tensor), where none are given, as search_parts says; and micro_batch, where it is
 * not given and nothing says that it has to stay: that is the block of local batch norm's statistics.
 * begun: of a run that goes on, which keeps its buckets and parts. KOLO_ECONFIG: no plan can be, or none
 * fits; the text is that of the plain one. */
int kolo_auto_plan_choose(kolo_options *options, const kolo_gpu *gpu, bool begun, double limit,
                          kolo_auto_plan *result);
/* KOLO_ECONFIG: nothing can be searched, for there is no number of ranks, or no batch. */
int kolo_auto_plan_check(const kolo_options *options, int64_t ranks);
/* Sets what a search has chosen, kolo_auto_plan.text, in options, and what it searches to its default. */
int kolo_auto_plan_take(kolo_options *options, const char *text);
/* halo=auto: that of the two whose step, played, is shorter; set in options. Nothing where it is not auto or
 * no map is cut. as above */
typedef struct kolo_auto_halo {
    int chosen;        /* of halo=; -1: nothing was to be chosen */
    double seconds[2]; /* of a step: narrow, wide */
} kolo_auto_halo;
int kolo_auto_halo_choose(kolo_options *options, const kolo_gpu *gpu, kolo_auto_halo *result);
/* auto_plan_job.c. Of a job: rank 0 searches, all set what it has chosen. Collective. Nothing where neither
 * plan= nor halo= is auto. */
int session_auto_plan(kolo_session *session);

#endif
