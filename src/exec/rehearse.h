/* Rehearsal: steps of one rank that are carried out for their times alone, with other processors idle and
 * with others at the same work beside it. */
#ifndef KOLO_EXEC_REHEARSE_H
#define KOLO_EXEC_REHEARSE_H

#include "plan/plan.h"

typedef struct kolo_rehearsal {
    const kolo_graph *graph;
    /* of one rank: the whole network, or with a placement one of its stages, whose messages are left out */
    kolo_plan_config config;
    kolo_backend *backend;   /* the host's: "cpu" */
    kolo_backend_config how; /* it was made with; those beside have backends of their own */
    const kolo_options *options;
    int beside; /* others at the same work */
    int steps;  /* that count; two more in front of them */
} kolo_rehearsal;

/* *plan: what was carried out, the caller's; seconds: [(*plan)->actions], the mean of all steps; *varies: by
 * how much a whole step differs from their median, on average, as a share of it. Needs as much memory as 1 +
 * beside ranks do, which is not checked. */
int kolo_exec_rehearse(const kolo_rehearsal *rehearsal, kolo_plan **plan, double **seconds, double *varies);

#endif
