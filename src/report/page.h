/* The report as one HTML file, which needs nothing else. */
#ifndef KOLO_REPORT_PAGE_H
#define KOLO_REPORT_PAGE_H

#include <stdio.h>

#include "report/run.h"

/* before: [n] the run before each, or NULL. The first run is the one that single figures are of. */
int report_write_page(FILE *f, const report_run *runs, int n, const report_run *const *before);

#endif
