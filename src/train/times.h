/* Times: what the actions of a session's plans take, and the step that follows: on the cores of this machine
 * by what was measured of its kernels, on the GPUs of a cluster by their rates. */
#ifndef KOLO_TRAIN_TIMES_H
#define KOLO_TRAIN_TIMES_H

#include "plan/play.h"
#include "train/session.h"

/* Where the times of operations are from. */
typedef struct kolo_times_from {
    int operations, measured; /* of this rank's network; in steps here (kolo_session_rehearse) */
    int timed;                /* each alone, here (now or earlier); the others, or all: estimated */
} kolo_times_from;

/* Seconds of the operations of one of its plans on a micro-batch: as measured in steps, or alone, and kept in
 * KOLO_CACHE, else alone by a clock, the best of `tries`, for some seconds (kolo_exec_clock), then kept.
 * seconds: [graph->nodes], those above 0 are known. timed: [graph->nodes] not estimated, or NULL. */
int kolo_session_clock(const kolo_session *session, const kolo_plan *plan, int tries, double *seconds,
                       bool *timed);

/* The step of all ranks, played: of s->gpu's cluster, or of one node like this machine. from: may be NULL.
 * KOLO_ECONFIG: a GPU of which no rates are known. */
int kolo_session_play(const kolo_session *session, kolo_play **play, kolo_times_from *from);
/* The seconds of all operations of the network on one micro-batch, one after the other. */
int kolo_session_work(const kolo_session *session, double *seconds);
/* Every operation of the plan was measured here, or is one that is only timed alone. */
bool kolo_session_is_measured(const kolo_session *session);

/* Steps of one rank are carried out here, alone and with all cores at the same work; what kernels took is
 * kept in KOLO_CACHE, for every later plan on such a machine. Nothing is done where all of it is known,
 * unless `again`. Returns how many operations were measured. KOLO_ECONFIG: no CPUs, or too little memory. */
int kolo_session_rehearse(const kolo_session *session, bool again);

#endif
