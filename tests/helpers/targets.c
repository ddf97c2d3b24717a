/* targets DIR: what a split says of each sample, as lines for awk:
 *   sample NUMBER PATH HEIGHT WIDTH ORIGINAL-HEIGHT ORIGINAL-WIDTH LABEL ID sx sy dx dy
 *   box NUMBER CLASS FLAGS x0 y0 x1 y1 AREA ID and the source's four numbers
 *   tag NUMBER CLASS VALUE
 *   pair SET PATH PATH SAME FOLD */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/shard/dataset.h"
#include "data/shard/file.h"
#include "data/shard/targets.h"
#include "kolo/error.h"

typedef struct shard { /* what the dataset itself does not keep */
    const char *path;
    double *numbers; /* [boxes, 4] or NULL */
    int64_t *ids;
    uint16_t *original;
    int64_t first_box;
} shard;

static int load(shard *s, const char *path)
{
    kolo_shard_header h;
    kolo_shard_places p;
    kolo_shard_table box = {.name = "box_source", .type = KOLO_TABLE_F64, .rank = 2, .dim = {-1, 4}},
                     id = {.name = "id", .type = KOLO_TABLE_I64, .rank = 1, .dim = {-1, 1}};
    void *data;
    *s = (shard){.path = path};
    KOLO_TRY(kolo_shard_inspect(path, &h, &p, NULL));
    KOLO_TRY(kolo_shard_read_table(path, &box, &data));
    s->numbers = data;
    KOLO_TRY(kolo_shard_read_table(path, &id, &data));
    s->ids = data;
    s->original = kolo_alloc(4 * (size_t)h.count);
    FILE *file = fopen(path, "rb");
    const bool good = file && fseek(file, (long)p.orig_size, SEEK_SET) == 0 &&
                      fread(s->original, 4, (size_t)h.count, file) == (size_t)h.count;
    if (file) fclose(file);
    return good ? 0 : kolo_fail(KOLO_EIO, "%s: cannot read /orig_size", path);
}

static void print_sample(const kolo_dataset *d, const kolo_targets *t, const shard *s, int64_t i,
                         int64_t index)
{
    char source[512];
    int height, width;
    kolo_dataset_size(d, i, &height, &width);
    kolo_dataset_source(d, i, source, sizeof source);
    printf("sample %" PRId64 " %s %d %d %d %d %d %" PRId64, i, source, height, width, s->original[2 * index],
           s->original[2 * index + 1], kolo_dataset_label(d, i), s->ids[index]);
    for (int k = 0; k < 4 && t && t->transform; k++) printf(" %.9g", (double)t->transform[i][k]);
    printf("\n");
    for (int64_t b = t && t->box_offset ? t->box_offset[i] : 0;
         t && t->box_offset && b < t->box_offset[i + 1]; b++) {
        const double *n = &s->numbers[4 * (b - s->first_box)];
        printf("box %" PRId64 " %d %d %.9g %.9g %.9g %.9g %.9g %" PRId64 " %.17g %.17g %.17g %.17g\n", i,
               t->box_class[b], t->box_flags[b], (double)t->box[b][0], (double)t->box[b][1],
               (double)t->box[b][2], (double)t->box[b][3], (double)t->box_area[b], t->box_id[b], n[0], n[1],
               n[2], n[3]);
    }
    for (int64_t k = t && t->tag_offset ? t->tag_offset[i] : 0;
         t && t->tag_offset && k < t->tag_offset[i + 1]; k++)
        printf("tag %" PRId64 " %d %.9g\n", i, t->tag[k], (double)t->tag_value[k]);
}

static void print_pairs(const kolo_dataset *d, const kolo_targets *t)
{
    char a[512], b[512];
    for (int set = 0; t && set < t->pair_sets; set++)
        for (int64_t i = 0; i < t->pairs[set].count; i++) {
            kolo_dataset_source(d, t->pairs[set].pair[i][0], a, sizeof a);
            kolo_dataset_source(d, t->pairs[set].pair[i][1], b, sizeof b);
            printf("pair %s %s %s %d %d\n", t->pairs[set].name, a, b, t->pairs[set].same[i],
                   t->pairs[set].fold[i]);
        }
}

int main(int argc, char **argv)
{
    kolo_dataset *d;
    shard s = {0};
    int rc = argc == 2 ? kolo_dataset_open(&d, argv[1]) : kolo_fail(KOLO_ECONFIG, "usage: targets DIR");
    const kolo_targets *t = rc == 0 ? kolo_dataset_targets(d) : NULL;
    for (int64_t i = 0; rc == 0 && i < kolo_dataset_get_info(d)->count; i++) {
        int64_t index;
        const char *path = kolo_dataset_shard_of(d, i, &index);
        if (path != s.path) {
            free(s.numbers), free(s.ids), free(s.original);
            rc = load(&s, path);
            s.first_box = t && t->box_offset ? t->box_offset[i] : 0;
        }
        if (rc == 0) print_sample(d, t, &s, i, index);
    }
    if (rc == 0) print_pairs(d, t);
    if (rc < 0) fprintf(stderr, "targets: %s\n", kolo_error_text());
    free(s.numbers), free(s.ids), free(s.original);
    if (argc == 2) kolo_dataset_close(&d);
    return -rc;
}
