/* `kolo plan stages=`: what all stages of a pipeline do, and how long a step takes by simulation. */
#ifndef KOLO_CMD_PLAN_PROGRAM_H
#define KOLO_CMD_PLAN_PROGRAM_H

#include "train/session.h"

/* As a table to stdout, or as one JSON object; timeline=FILE is written, too. */
int kolo_plan_program_print(const kolo_session *session, bool json);
/* The simulated step alone. */
int kolo_plan_program_step(const kolo_session *session, double *seconds);

#endif
