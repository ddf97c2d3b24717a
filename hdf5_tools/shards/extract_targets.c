/* Labels, boxes, tags and pairs of a split as the text files that others read. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "shards/extract.h"

/* The shortest text that reads back as the same number. */
static void put_number(FILE *out, double x)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    fputs(text, out);
}

static FILE *extract_targets_begin(const extracting *e, const char *name, char **path)
{
    *path = kolo_format("%s/%s", e->partial, name);
    const int fd = *path ? kolo_file_open_plain(*path, O_WRONLY | O_CREAT | O_EXCL, 0666) : -1;
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !out) kolo_fail(KOLO_EIO, "%s: %s", *path, strerror(errno)), close(fd);
    return out;
}

/* Closes what `begin` opened; rc: what became of the writing. */
static int end(FILE *out, char *path, int rc)
{
    const bool bad = out && ferror(out);
    if (!out) rc = path ? KOLO_EIO : KOLO_ENOMEM;
    if (out && (fclose(out) != 0 || bad) && rc == 0)
        rc = kolo_fail(KOLO_EIO, "%s: cannot write: %s", path, strerror(errno));
    free(path);
    return rc;
}

/* The numbers that the source gave, if they are of this form and still say where the box is
 * in the stored image. */
static const double *source_numbers(const extracting *e, int64_t sample, int64_t box, const char *form)
{
    const kolo_targets *t = kolo_dataset_targets(e->dataset);
    int64_t index;
    int height, width;
    const shards_part *p = extract_part(e, sample, &index);
    const kolo_shard_table *numbers = kolo_shard_find_table(&p->arrays, "box_source", KOLO_TABLE_F64, -1, 4);
    if (!numbers || strcmp(t->box_form, form) != 0) return NULL;
    const int64_t row = box - t->box_offset[p->header.first];
    if (row < 0 || row >= numbers->dim[0]) return NULL;
    const double *n = (const double *)numbers->data + 4 * row;
    double c[4] = {n[0], n[1], n[0] + n[2], n[1] + n[3]};
    kolo_dataset_size(e->dataset, sample, &height, &width);
    if (strcmp(form, "cxcywh") == 0)
        c[0] = (n[0] - n[2] / 2) * width, c[1] = (n[1] - n[3] / 2) * height, c[2] = (n[0] + n[2] / 2) * width,
        c[3] = (n[1] + n[3] / 2) * height;
    for (int i = 0; i < 4; i++)
        if (!(fabs(c[i] - (double)t->box[box][i]) < .01)) return NULL;
    return n;
}

/* ---- COCO ---------------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Are they all different, and none below `low`? Orders them. */
static bool are_keys(int64_t *numbers, int64_t n, int64_t low)
{
    qsort(numbers, (size_t)n, sizeof *numbers, by_number);
    bool fine = n == 0 || numbers[0] >= low;
    for (int64_t i = 1; i < n; i++) fine &= numbers[i] != numbers[i - 1];
    return fine;
}

static int64_t id_of(const extracting *e, int64_t sample)
{
    int64_t index;
    const shards_part *p = extract_part(e, sample, &index);
    return p->ids[index];
}

/* May the source's own numbers of images, boxes and classes be used? Where they repeat
 * (as after a merge): no. */
static int find_keys(const extracting *e, bool *images, bool *boxes, bool *classes)
{
    const kolo_targets *t = kolo_dataset_targets(e->dataset);
    const int k = kolo_dataset_get_info(e->dataset)->classes;
    const int64_t most = e->count > t->boxes ? e->count : t->boxes;
    int64_t *numbers = kolo_alloc(sizeof *numbers * (size_t)(most + k) + 8);
    if (!numbers) return KOLO_ENOMEM;
    for (int64_t i = 0; i < e->count; i++) numbers[i] = id_of(e, extract_sample(e, i));
    *images = are_keys(numbers, e->count, 0);
    memcpy(numbers, t->box_id, sizeof *numbers * (size_t)t->boxes);
    *boxes = are_keys(numbers, t->boxes, 0);
    memcpy(numbers, e->input.class_ids, sizeof *numbers * (size_t)k);
    *classes = are_keys(numbers, k, 0);
    free(numbers);
    return 0;
}

static void put_coco_box(const extracting *e, FILE *out, int64_t sample, int64_t k, int64_t image, int64_t id,
                         int64_t class)
{
    const kolo_targets *t = kolo_dataset_targets(e->dataset);
    const float *b = t->box[k], *scale = t->transform[sample];
    const double made[4] = {(double)b[0], (double)b[1], (double)b[2] - (double)b[0],
                            (double)b[3] - (double)b[1]};
    const double *n = source_numbers(e, sample, k, "xywh");
    if (!n) n = made;
    fprintf(out, "{\"id\":%" PRId64 ",\"image_id\":%" PRId64 ",\"category_id\":%" PRId64 ",\"bbox\":[", id,
            image, class);
    for (int i = 0; i < 4; i++) {
        if (i) fputc(',', out);
        put_number(out, n[i]);
    }
    fputs("],\"area\":", out); /* stored as of the source image */
    kolo_json_number(out, (double)t->box_area[k] * (double)scale[0] * (double)scale[1], 9);
    fprintf(out, ",\"iscrowd\":%d}", (t->box_flags[k] & KOLO_BOX_CROWD) != 0);
}

static int put_coco(extracting *e, FILE *out)
{
    const kolo_targets *t = kolo_dataset_targets(e->dataset);
    const kolo_dataset_info *info = kolo_dataset_get_info(e->dataset);
    bool images, boxes, classes, first = true;
    KOLO_TRY(find_keys(e, &images, &boxes, &classes));
    fputs("{\"images\":[", out);
    for (int64_t i = 0; i < e->count; i++) {
        const int64_t sample = extract_sample(e, i);
        int height, width;
        kolo_dataset_size(e->dataset, sample, &height, &width);
        fprintf(out, "%s\n{\"id\":%" PRId64 ",\"file_name\":", i ? "," : "",
                images ? id_of(e, sample) : i + 1);
        kolo_json_string(out, e->names[i]);
        fprintf(out, ",\"width\":%d,\"height\":%d}", width, height);
    }
    fputs("],\n\"annotations\":[", out);
    for (int64_t i = 0; i < e->count; i++) {
        const int64_t sample = extract_sample(e, i);
        for (int64_t k = t->box_offset[sample]; k < t->box_offset[sample + 1]; k++) {
            if (t->box_flags[k] & KOLO_BOX_OUTSIDE) {
                e->left_out++;
                continue;
            }
            fputs(first ? "\n" : ",\n", out);
            first = false;
            put_coco_box(e, out, sample, k, images ? id_of(e, sample) : i + 1, boxes ? t->box_id[k] : k + 1,
                         classes ? e->input.class_ids[t->box_class[k]] : t->box_class[k] + 1);
        }
    }
    fputs("],\n\"categories\":[", out);
    for (int c = 0; c < info->classes; c++) {
        fprintf(out, "%s\n{\"id\":%" PRId64 ",\"name\":", c ? "," : "",
                classes ? e->input.class_ids[c] : c + 1);
        kolo_json_string(out, kolo_dataset_class_name(e->dataset, c));
        fputc('}', out);
    }
    fputs("]}\n", out);
    return 0;
}

static int write_coco(extracting *e)
{
    char *path;
    FILE *out = extract_targets_begin(e, "annotations.json", &path);
    return end(out, path, out ? put_coco(e, out) : 0);
}

/* ---- YOLO ---------------------------------------------------------------------------------------------- */

static void put_yolo(extracting *e, FILE *out, int64_t sample)
{
    const kolo_targets *t = kolo_dataset_targets(e->dataset);
    int height, width;
    kolo_dataset_size(e->dataset, sample, &height, &width);
    for (int64_t k = t->box_offset[sample]; k < t->box_offset[sample + 1]; k++) {
        const float *b = t->box[k];
        const double x0 = (double)b[0] / width, y0 = (double)b[1] / height, x1 = (double)b[2] / width,
                     y1 = (double)b[3] / height;
        const double made[4] = {(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0};
        const double *n = source_numbers(e, sample, k, "cxcywh");
        if (t->box_flags[k] & (KOLO_BOX_OUTSIDE | KOLO_BOX_CROWD)) {
            e->left_out++;
            continue;
        }
        fprintf(out, "%d", t->box_class[k]);
        for (int i = 0; i < 4; i++) {
            fputc(' ', out);
            if (n) put_number(out, n[i]);
            else fprintf(out, "%.9g", made[i]);
        }
        fputc('\n', out);
    }
}

/* data.yaml: class names in order; a name in single quotes, those within it doubled. */
static int write_names(const extracting *e)
{
    char *path;
    FILE *out = extract_targets_begin(e, "data.yaml", &path);
    if (out) fputs("path: .\ntrain: images\nval: images\nnames:\n", out);
    for (int c = 0; out && c < kolo_dataset_get_info(e->dataset)->classes; c++) {
        fprintf(out, "  %d: '", c);
        for (const char *at = kolo_dataset_class_name(e->dataset, c); *at; at++)
            fputs(*at == '\'' ? "''" : (char[]){*at, 0}, out);
        fputs("'\n", out);
    }
    return end(out, path, 0);
}

/* labels/FILE.txt for images/FILE; an image with a label lies in the folder of its class,
 * and so does its text. */
static int write_yolo(extracting *e)
{
    char *folder = kolo_format("%s/labels", e->partial);
    int rc = folder ? kolo_folder_make(folder) : KOLO_ENOMEM;
    free(folder);
    for (int64_t i = 0; i < e->count && rc == 0; i++) {
        const char *name = e->names[i], *file = strchr(name, '/') + 1;
        const int stem = (int)(strrchr(file, '.') - file);
        char *path, *text = strncmp(name, "images/", 7) == 0
                                ? kolo_format("labels/%.*s.txt", stem, file)
                                : kolo_format("%.*s.txt", (int)(file - name) + stem, name);
        FILE *out = NULL;
        path = NULL;
        if (text) out = extract_targets_begin(e, text, &path);
        if (out) put_yolo(e, out, extract_sample(e, i));
        rc = end(out, path, 0);
        free(text);
    }
    return rc < 0 ? rc : write_names(e);
}

/* ---- labels, tags, pairs ------------------------------------------------------------------------------- */

static int write_list(const extracting *e)
{
    char *path;
    bool any = false;
    for (int64_t i = 0; i < e->count && !any; i++)
        any = kolo_dataset_label(e->dataset, extract_sample(e, i)) >= 0;
    if (!any) return 0;
    FILE *out = extract_targets_begin(e, "list.tsv", &path);
    for (int64_t i = 0; out && i < e->count; i++) {
        const int32_t label = kolo_dataset_label(e->dataset, extract_sample(e, i));
        if (label >= 0) fprintf(out, "%s\t%s\n", e->names[i], kolo_dataset_class_name(e->dataset, label));
    }
    return end(out, path, 0);
}

static int write_tags(const extracting *e, const kolo_targets *t)
{
    char *path;
    FILE *out = extract_targets_begin(e, "tags.tsv", &path);
    for (int64_t i = 0; out && i < e->count; i++) {
        const int64_t sample = extract_sample(e, i);
        for (int64_t k = t->tag_offset[sample]; k < t->tag_offset[sample + 1]; k++)
            fprintf(out, "%s\t%s\t%.9g\n", e->names[i], kolo_dataset_class_name(e->dataset, t->tag[k]),
                    (double)t->tag_value[k]);
    }
    return end(out, path, 0);
}

/* With --limit only some samples have a file: pairs of others are left out. */
static int write_pairs(const extracting *e, const kolo_pair_set *p)
{
    const int64_t all = kolo_dataset_get_info(e->dataset)->count;
    const char **name_of = kolo_alloc(sizeof *name_of * (size_t)all);
    char *path, *name = kolo_format("pairs-%s.tsv", p->name);
    if (!name_of || !name) {
        free(name_of);
        free(name);
        return KOLO_ENOMEM;
    }
    for (int64_t i = 0; i < e->count; i++) name_of[extract_sample(e, i)] = e->names[i];
    FILE *out = extract_targets_begin(e, name, &path);
    for (int64_t i = 0; out && i < p->count; i++) {
        const char *a = name_of[p->pair[i][0]], *b = name_of[p->pair[i][1]];
        if (a && b) fprintf(out, "%s\t%s\t%d\t%d\n", a, b, p->same[i], p->fold[i]);
    }
    free(name_of);
    free(name);
    return end(out, path, 0);
}

int extract_write_targets(extracting *e)
{
    const kolo_targets *t = kolo_dataset_targets(e->dataset);
    KOLO_TRY(write_list(e));
    if (!t) return 0;
    if (t->box_offset && strcmp(e->boxes, "coco") == 0) KOLO_TRY(write_coco(e));
    if (t->box_offset && strcmp(e->boxes, "yolo") == 0) KOLO_TRY(write_yolo(e));
    if (t->tag_offset) KOLO_TRY(write_tags(e, t));
    for (int s = 0; s < t->pair_sets; s++) KOLO_TRY(write_pairs(e, &t->pairs[s]));
    return 0;
}
