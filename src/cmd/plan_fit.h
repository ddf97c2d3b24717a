/* kolo plan memory=: what several ways of holding a network take and need. */
#ifndef KOLO_CMD_PLAN_FIT_H
#define KOLO_CMD_PLAN_FIT_H

#include "train/session.h"

/* What several ways take and need, as a table to stdout: copies, parts, recomputation, a file, stages; and
 * the fastest that fits into memory= (or, without, this machine). words: those of the command, each way adds
 * its own. */
int kolo_plan_fit(const kolo_session *session, int n, char **words);

#endif
