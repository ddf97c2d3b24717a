#include "ops/detector.h"

#include "ops/yolov3.h"

static void decode_yolox(const double *raw, int64_t column, int64_t row, int64_t stride, const float *anchor, double *corner)
{
    (void)anchor;
    kolo_yolox_decode(raw, column, row, stride, corner);
}

static void decode_yolov3(const double *raw, int64_t column, int64_t row, int64_t stride, const float *anchor, double *corner)
{
    kolo_yolov3_decode(raw, column, row, stride, anchor, corner);
}

/* As their programs have it: release 0.3.0 of YOLOX, and darknet, whose gray is .5: 127.5, rounded up. */
static const kolo_detector table[] = {
    [KOLO_TASK_YOLOX] = {.decode = decode_yolox, .fill = 114, .l1 = true},
    [KOLO_TASK_YOLOV3] = {.decode = decode_yolov3, .every_class = true, .middle = true, .fill = 128},
};

const kolo_detector *kolo_detector_find(enum kolo_task task) { return (size_t)task < sizeof table / sizeof *table && table[task].decode ? &table[task] : NULL; }
