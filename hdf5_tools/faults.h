/* Rows of annotations that are wrong: --on-error fail ends the packing at the first; skip leaves them out, tells the
 * first ones and counts all, up to --max-bad. */
#ifndef HDF5_TOOLS_FAULTS_H
#define HDF5_TOOLS_FAULTS_H

#include "pack.h"

typedef struct faults {
    const pack_options *options;
    int64_t count;
} faults;

/* What to do about an error that was just set: 0 if the row is to be left out, else `status` itself. */
int faults_take(faults *f, int status);
/* Says how many there were. */
void faults_tell(const faults *f);

#endif
