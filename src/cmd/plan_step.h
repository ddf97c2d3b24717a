/* How long a step of a plan takes, predicted: operations by a clock here (or their bytes and arithmetic), the
 * rest by what it moves, communication on a lane of its own over links that nobody has measured. */
#ifndef KOLO_CMD_PLAN_STEP_H
#define KOLO_CMD_PLAN_STEP_H

#include "train/session.h"

/* Of a session without stages. node: [graph->nodes] seconds of each operation. */
int kolo_plan_step(const kolo_session *session, const double *node, double *seconds);
/* What several ways take and need, as a table to stdout: copies, parts, recomputation, a file, stages; and
 * the fastest that fits into memory= (or, without, this machine). words: those of the command, each way adds
 * its own. */
int kolo_plan_fit(const kolo_session *session, int n, char **words);

#endif
