/* Images of the validation data with their true boxes and those that the last evaluation found, for a
 * page. */
#ifndef KOLO_REPORT_EXAMPLES_H
#define KOLO_REPORT_EXAMPLES_H

#include <stdio.h>

#include "report/run.h"

/* A section of the page; nothing where the run is of no detector, or its data are not there any more. */
int report_write_examples(FILE *f, const report_run *run);

#endif
