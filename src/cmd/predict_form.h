/* How `kolo predict` prints what it predicts: text, CSV, JSON; an image after the other, in the order of the
 * files, those that cannot be read too (text leaves them to the warnings). */
#ifndef KOLO_CMD_PREDICT_FORM_H
#define KOLO_CMD_PREDICT_FORM_H

#include <stdbool.h>

#include "train/class_names.h"

typedef struct kolo_prediction {
    int64_t cls;
    double score;
    double box[4]; /* x0, y0, x1, y1 in pixels of the image; of a detector */
} kolo_prediction;

typedef struct kolo_predict_form kolo_predict_form;

enum kolo_predict_kind { KOLO_PREDICT_TEXT, KOLO_PREDICT_CSV, KOLO_PREDICT_JSON };

/* path: [files], borrowed, as `names` are, which may have none; boxes: predictions have them. */
int kolo_predict_form_open(kolo_predict_form **form, enum kolo_predict_kind kind, const char *const *path,
                           const kolo_class_names *names, bool boxes);
/* Number `file` could not be read. The context is a kolo_predict_form. */
int kolo_predict_form_unreadable(void *context, int64_t file, const char *why);
/* What was predicted of number `file`, best first; files ascend. */
int kolo_predict_form_show(kolo_predict_form *form, int64_t file, const kolo_prediction *list, int64_t n);
/* Prints what is left. */
void kolo_predict_form_close(kolo_predict_form **form);

#endif
