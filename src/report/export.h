/* A report for programs: its figures as CSV and JSON. */
#ifndef KOLO_REPORT_EXPORT_H
#define KOLO_REPORT_EXPORT_H

#include <stdio.h>

#include "report/run.h"

/* A cell, quoted where it must be (RFC 4180). */
void report_csv_text(FILE *f, const char *text);
/* A row a step of a run: what it reported, and where the run was evaluated after it (or at a step of which no
 * event is left) eval_ columns. An empty cell: not reported. 9 digits, as events have them. */
void report_write_csv(FILE *f, const report_run *runs, int n);
/* before: [n] the run before each, or NULL */
int report_write_json(FILE *f, const report_run *runs, int n, const report_run *const *before);

#endif
