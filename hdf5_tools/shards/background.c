/* A split without boxes among such that have boxes: its images are background, as those of a detection set
 * that show no object. It gets the tables of boxes, without rows, and the places of its images, as
 * kolo-pack computes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "pack/pack.h"
#include "shards/input.h"

static bool is_of_boxes(const char *name)
{
    return strcmp(name, "transform") == 0 || strcmp(name, "box") == 0 || strncmp(name, "box_", 4) == 0;
}

/* What was asked of kolo-pack that moves pixels. */
static bool read_options(const char *packed, pack_options *o)
{
    static const char *const resizes[] = {[PACK_RESIZE_NONE] = "none",
                                          [PACK_RESIZE_SHORTER] = "shorter",
                                          [PACK_RESIZE_LONGER] = "longer",
                                          [PACK_RESIZE_EXACT] = "exact",
                                          [PACK_RESIZE_LETTERBOX] = "letterbox"};
    char resize[16], crop[16];
    const char *at = strstr(packed, " size=");
    if (!at || sscanf(at, " size=%d resize=%15s crop=%15s", &o->size, resize, crop) != 3) return false;
    o->crop = strcmp(crop, "center") == 0;
    for (int i = 0; i < (int)(sizeof resizes / sizeof *resizes); i++)
        if (strcmp(resize, resizes[i]) == 0) return o->resize = (enum pack_resize)i, true;
    return false;
}

static int place_images(const shards_part *p, const char *packed, float (*transform)[4])
{
    const pack_options still = {.resize = PACK_RESIZE_NONE};
    pack_options asked = {0};
    const bool known = read_options(packed, &asked);
    for (int64_t i = 0; i < p->header.count; i++) {
        const int height = p->orig_sizes[i][0], width = p->orig_sizes[i][1];
        pack_frame f;
        const bool whole = height == p->sizes[i][0] && width == p->sizes[i][1];
        if ((!whole && !known) || height < 1 || width < 1 ||
            pack_frame_of(whole ? &still : &asked, height, width, &f) < 0 || f.height != p->sizes[i][0] ||
            f.width != p->sizes[i][1])
            return kolo_fail(
                KOLO_EINPUT,
                "%s-%s has no boxes, and where its resized images lie is not known, since it does not "
                "come straight from kolo-pack: it cannot be background of splits with boxes; pack it again",
                p->header.dataset, p->header.split);
        pack_frame_transform(&f, transform[i]);
    }
    return 0;
}

static int add_table(shards_part *p, const char *packed, const kolo_shard_table *like)
{
    kolo_shard_arrays *a = &p->arrays;
    const bool places = strcmp(like->name, "transform") == 0, offsets = strcmp(like->name, "box_offset") == 0;
    if (!a->tables && !(a->tables = kolo_alloc(sizeof *a->tables * KOLO_SHARD_MOST_TABLES)))
        return KOLO_ENOMEM;
    if (a->table_count == KOLO_SHARD_MOST_TABLES) return kolo_fail(KOLO_EINPUT, "too many tables");
    kolo_shard_table t = *like;
    t.dim[0] = 1;
    const size_t bytes = kolo_shard_table_bytes(&t);
    t.dim[0] = offsets ? p->header.count + 1 : places ? p->header.count : 0;
    t.name = kolo_strdup(like->name);
    void *data = kolo_alloc(bytes * (size_t)t.dim[0] + 8);
    t.data = data;
    a->tables[a->table_count++] = t;
    if (!t.name || !data) return KOLO_ENOMEM;
    return places ? place_images(p, packed, data) : 0;
}

int shards_input_to_background(shards_input *in, const shards_input *model)
{
    const kolo_shard_arrays *like = &model->parts[0].arrays;
    for (int s = 0; s < kolo_dataset_get_info(in->dataset)->shards; s++)
        for (int i = 0; i < like->table_count; i++)
            if (is_of_boxes(like->tables[i].name))
                KOLO_TRY(add_table(&in->parts[s], in->packed, &like->tables[i]));
    in->is_background = true;
    return 0;
}
