/* Labels that no loss can be formed with, in words. */
#include "kolo/error.h"
#include "ops/backend.h"

int kolo_bad_label_fail(const kolo_bad_label *bad, int64_t classes)
{
    switch ((enum kolo_bad)bad->kind) {
    case KOLO_BAD_NONE: return 0;
    case KOLO_BAD_CLASS:
        return kolo_fail(
            KOLO_EINPUT,
            "row %d of micro-batch %d has label %d, but the network has %ld classes; check classes= and the "
            "data set",
            bad->row, bad->slot, bad->value, (long)classes);
    case KOLO_BAD_COUNT:
        return kolo_fail(
            KOLO_EINPUT,
            "row %d of micro-batch %d has %d boxes, more than its label can hold; check max_boxes= "
            "and the data set",
            bad->row, bad->slot, bad->value);
    case KOLO_BAD_BOX: break;
    }
    return kolo_fail(
        KOLO_EINPUT,
        "row %d of micro-batch %d: centre %g, %g, width %g, height %g is no box; pack the data set again",
        bad->row, bad->slot, (double)bad->box[0], (double)bad->box[1], (double)bad->box[2],
        (double)bad->box[3]);
}
