/* RUN/tensorboard: event files as TensorBoard reads them. A file each start: TFRecords (length, masked
 * crc32c) of the messages of tensorflow's event.proto and summary.proto, written by hand. Rank 0 only. */
#ifndef KOLO_REPORT_TENSORBOARD_H
#define KOLO_REPORT_TENSORBOARD_H

#include <stdint.h>

#include "base/option.h"
#include "data/image/image.h"

typedef struct kolo_tensorboard kolo_tensorboard;

/* A new file, which says that what older ones hold of steps beyond `step` does not count any more, and the
 * options that set the numbers of the run (hparams). */
int kolo_tensorboard_open(kolo_tensorboard **board, const char *run_folder, int64_t step,
                          const kolo_options *options);
/* How the run ended goes into it: done, failed, or anything else, which may go on. NULL: it did not get so
 * far. */
void kolo_tensorboard_close(kolo_tensorboard **board, const char *state);

/* Add `group`/`tag` to the event that kolo_tensorboard_write writes next. KOLO_ENOMEM, KOLO_EIO. */
int kolo_tensorboard_scalar(kolo_tensorboard *board, const char *group, const char *tag, double value);
int kolo_tensorboard_image(kolo_tensorboard *board, const char *group, const char *tag,
                           const kolo_image *image);
/* Of the finite ones among `values`; of none nothing is written. */
int kolo_tensorboard_histogram(kolo_tensorboard *board, const char *group, const char *tag,
                               const float *values, int64_t count);
/* Writes what was added since the last one as the event of `step`; nothing was: no event. */
int kolo_tensorboard_write(kolo_tensorboard *board, int64_t step);
/* What is buffered goes to the file, where TensorBoard sees it. */
int kolo_tensorboard_flush(kolo_tensorboard *board);

#endif
