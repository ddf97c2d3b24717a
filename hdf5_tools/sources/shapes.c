/* The embedded data set: photos drawn by shapes.c and really encoded as JPEG, so that they go
 * the way of any photo. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/jpeg.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "sources/draw_shapes.h"
#include "sources/options.h"

/* Splits draw from different numbers. */
static int64_t first_number(const char *split)
{
    return strcmp(split, "train") == 0 ? 0 : strcmp(split, "val") == 0 ? 1000000000 : 2000000000;
}

typedef struct shapes {
    int64_t first;
} shapes;

static int open_shapes(source *s, const pack_options *o)
{
    const int64_t n = o->count ? o->count : strcmp(o->split, "train") == 0 ? 4000 : 1000;
    shapes *state = s->state = calloc(1, sizeof *state);
    if (!state) return kolo_fail(KOLO_ENOMEM, "out of memory");
    state->first = first_number(o->split);
    int32_t label[SHAPES_CLASSES];
    for (int c = 0; c < SHAPES_CLASSES; c++) KOLO_TRY(source_find_class(s, shapes_names[c], c, &label[c]));
    for (int64_t i = 0; i < n; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%06lld.jpg", shapes_names[i % SHAPES_CLASSES], (long long)i);
        KOLO_TRY(source_add(s, label[i % SHAPES_CLASSES], path, -1));
    }
    return 0;
}

static int shapes_load(const source *s, int64_t i, source_buffer *buffer)
{
    const shapes *state = s->state;
    kolo_image image = {0};
    int quality = 0, rc = shapes_draw(state->first + i, &image, &quality);
    if (rc == 0) rc = kolo_jpeg_encode(&image, quality, &buffer->data, &buffer->capacity, &buffer->bytes);
    kolo_image_free(&image);
    buffer->height = 0;
    return rc;
}

static int open_scenes(source *s, const pack_options *o)
{
    const int64_t n = o->count ? o->count : strcmp(o->split, "train") == 0 ? 2000 : 400;
    shapes *state = s->state = calloc(1, sizeof *state);
    int32_t label[SHAPES_CLASSES];
    if (!state) return kolo_fail(KOLO_ENOMEM, "out of memory");
    state->first = first_number(o->split);
    for (int c = 0; c < SHAPES_CLASSES; c++)
        KOLO_TRY(source_find_class(s, shapes_names[c], c + 1, &label[c]));
    s->box_form = SOURCE_BOX_XYWH;
    for (int64_t i = 0; i < n; i++) {
        char path[64];
        shapes_box boxes[SHAPES_MOST];
        int height, width;
        snprintf(path, sizeof path, "scene/%06lld.jpg", (long long)i);
        KOLO_TRY(source_add(s, SOURCE_UNLABELLED, path, -1));
        const int count = shapes_list_scene(state->first + i, &height, &width, boxes);
        source_set_size(s, i, height, width);
        for (int k = 0; k < count; k++) {
            const shapes_box *b = &boxes[k];
            const double numbers[4] = {b->x, b->y, b->width, b->height};
            const int flags = (b->occluded ? KOLO_BOX_OCCLUDED : 0) | (b->truncated ? KOLO_BOX_TRUNCATED : 0);
            KOLO_TRY(source_add_box(s, i, numbers, label[b->label], (uint8_t)flags, b->area,
                                    i * SHAPES_MOST + k + 1));
        }
    }
    return 0;
}

static int load_scene(const source *s, int64_t i, source_buffer *buffer)
{
    const shapes *state = s->state;
    kolo_image image = {0};
    int quality = 0, rc = shapes_draw_scene(state->first + i, &image, &quality);
    if (rc == 0) rc = kolo_jpeg_encode(&image, quality, &buffer->data, &buffer->capacity, &buffer->bytes);
    kolo_image_free(&image);
    buffer->height = 0;
    return rc;
}

static void close_shapes(source *s)
{
    free(s->state);
    s->state = NULL;
}

const source_kind source_shapes = {.name = "shapes",
                                   .help = "procedural photos of ten classes, made on the spot (--count)",
                                   .made = true,
                                   .open = open_shapes,
                                   .load = shapes_load,
                                   .close = close_shapes};

const source_kind source_scenes = {.name = "scenes",
                                   .help = "procedural photos of several shapes each, with boxes (--count)",
                                   .made = true,
                                   .open = open_scenes,
                                   .load = load_scene,
                                   .close = close_shapes};
