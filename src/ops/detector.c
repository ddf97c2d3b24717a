#include "ops/detector.h"

#include <string.h>

#include "ops/yolov3.h"

static void decode_yolox(const double *raw, int64_t column, int64_t row, int64_t stride, const float *anchor,
                         double *corner)
{
    (void)anchor;
    kolo_yolox_decode(raw, column, row, stride, corner);
}

static void decode_yolov3(const double *raw, int64_t column, int64_t row, int64_t stride, const float *anchor,
                          double *corner)
{
    kolo_yolov3_decode(raw, column, row, stride, anchor, corner);
}

static const kolo_detector table[] = {
#define DETECTOR(id, ...) {.name = #id, __VA_ARGS__},
#include "ops/detectors.def"
#undef DETECTOR
};

const kolo_detector *kolo_detector_find(const char *name)
{
    for (size_t i = 0; name && i < sizeof table / sizeof *table; i++)
        if (!strcmp(name, table[i].name)) return &table[i];
    return NULL;
}
