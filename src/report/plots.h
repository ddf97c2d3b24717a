/* The plots of a report (plots.def) from the runs that it is of. */
#ifndef KOLO_REPORT_PLOTS_H
#define KOLO_REPORT_PLOTS_H

#include "report/plot.h"
#include "report/run.h"

enum report_plot_id {
#define PLOT(name, ...) REPORT_PLOT_##name,
#include "report/plots.def"
#undef PLOT
    REPORT_PLOTS
};
extern const char *const report_plot_name[REPORT_PLOTS];

/* Fills *plot (freed by the caller, after an error too); it is empty where the runs tell nothing of that. */
int report_plot_make(report_plot *plot, enum report_plot_id which, const report_run *runs, int n);

/* Of the last event of classes: the share of right answers, or AP, of one (NaN: it was not seen); the one
 * with the least (-1: none). */
double report_class_score(const report_run *run, int cls);
int report_worst_class(const report_run *run);

#endif
