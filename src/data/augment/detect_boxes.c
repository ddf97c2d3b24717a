#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/detect.h"
#include "kolo/error.h"

static int grow(kolo_boxes *b)
{
    const int64_t capacity = b->capacity ? 2 * b->capacity : 64;
    float(*box)[4] = kolo_alloc(sizeof *box * (size_t)capacity);
    int32_t *cls = kolo_alloc(sizeof *cls * (size_t)capacity);
    if (!box || !cls) {
        free(box);
        free(cls);
        return KOLO_ENOMEM;
    }
    if (b->count) {
        memcpy(box, b->box, sizeof *box * (size_t)b->count);
        memcpy(cls, b->cls, sizeof *cls * (size_t)b->count);
    }
    free(b->box);
    free(b->cls);
    b->box = box;
    b->cls = cls;
    b->capacity = capacity;
    return 0;
}

int kolo_boxes_add(kolo_boxes *b, const float *box, int32_t cls)
{
    if (b->count == b->capacity) KOLO_TRY(grow(b));
    memcpy(b->box[b->count], box, sizeof *b->box);
    b->cls[b->count++] = cls;
    return 0;
}

void kolo_boxes_free(kolo_boxes *b)
{
    free(b->box);
    free(b->cls);
    *b = (kolo_boxes){0};
}

void kolo_boxes_move(kolo_boxes *b, int64_t first, double scale, double right, double down)
{
    for (int64_t i = first; i < b->count; i++)
        for (int k = 0; k < 4; k++)
            b->box[i][k] = (float)((double)b->box[i][k] * scale + (k % 2 ? down : right));
}

void kolo_boxes_flip(kolo_boxes *b, int64_t first, double width)
{
    for (int64_t i = first; i < b->count; i++) {
        const double left = (double)b->box[i][0], right = (double)b->box[i][2];
        b->box[i][0] = (float)(width - right);
        b->box[i][2] = (float)(width - left);
    }
}

void kolo_boxes_clip(kolo_boxes *b, int64_t first, double width, double height)
{
    for (int64_t i = first; i < b->count; i++)
        for (int k = 0; k < 4; k++)
            b->box[i][k] = (float)fmax(0, fmin((double)b->box[i][k], k % 2 ? height : width));
}

void kolo_boxes_warp(kolo_boxes *b, int64_t first, const double *m)
{
    for (int64_t i = first; i < b->count; i++) {
        double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
        for (int corner = 0; corner < 4; corner++) {
            const double x = (double)b->box[i][corner & 1 ? 2 : 0], y = (double)b->box[i][corner & 2 ? 3 : 1];
            const double depth = m[6] * x + m[7] * y + m[8];
            for (int k = 0; k < 2; k++) {
                const double at = (m[3 * k] * x + m[3 * k + 1] * y + m[3 * k + 2]) / depth;
                low[k] = fmin(low[k], at);
                high[k] = fmax(high[k], at);
            }
        }
        for (int k = 0; k < 2; k++) b->box[i][k] = (float)low[k], b->box[i][k + 2] = (float)high[k];
    }
}

void kolo_boxes_drop(kolo_boxes *b, double side_min)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const float *box = b->box[i];
        if (!((double)box[2] - (double)box[0] > side_min && (double)box[3] - (double)box[1] > side_min))
            continue;
        memmove(b->box[kept], box, sizeof *b->box);
        b->cls[kept++] = b->cls[i];
    }
    b->count = kept;
}

int64_t kolo_boxes_objects(const kolo_boxes *b)
{
    int64_t n = 0;
    for (int64_t i = 0; i < b->count; i++) n += b->cls[i] >= 0;
    return n;
}
