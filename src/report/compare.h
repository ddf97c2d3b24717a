/* Runs beside each other: what each has reached, over images, steps, seconds and node seconds. */
#ifndef KOLO_REPORT_COMPARE_H
#define KOLO_REPORT_COMPARE_H

#include <stdio.h>

#include "report/run.h"

/* A table of what each run took and reached, of how late its weights were where they were, and, where all
 * were evaluated, one of what each took until it first was as good as the worst of them at its best. Seconds
 * are of the steps: evaluations, checkpoints and starts do not count. runs: sorted. KOLO_ECONFIG: they are
 * judged by different figures. */
int report_compare_table(FILE *f, const report_run *runs, int n);
/* Curves of training loss and of the evaluations over each of these, as one SVG. KOLO_EINPUT: there is
 * nothing to draw. At most REPORT_SERIES runs. */
int report_compare_svg(FILE *f, const report_run *runs, int n);

#endif
