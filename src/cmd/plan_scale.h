/* kolo plan --scale A..B: how a training scales, strongly (the same batch) and weakly (the same batch a
 * rank). */
#ifndef KOLO_CMD_PLAN_SCALE_H
#define KOLO_CMD_PLAN_SCALE_H

#include "cmd/plan_forecast.h"

/* range: "A..B"; its ranks are A, 2 A, ... and B. options: batch= is of ranks=, or without that of A ranks.
 * cluster: NULL: one node like this. As a table or one object of JSON; svg=FILE. KOLO_ECONFIG: no such range,
 * or no number of ranks that can be planned for. */
int kolo_plan_scale(const kolo_options *options, kolo_launch *launch, int parts, const kolo_cluster *cluster,
                    const char *range, bool json);

#endif
