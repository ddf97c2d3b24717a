/* Open Images: a folder of images called by their ImageID, and files of comma separated values, which
 * differ in their first line:
 *   boxes         ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,
 *                 IsOccluded,IsTruncated,IsGroupOf,...
 *   image labels  ImageID,Source,LabelName,Confidence, which become tags
 *   classes       /m/011k07,Tortoise, or LabelName,DisplayName
 * The images that are in the folder are the samples, since hardly anybody has all; rows
 * of others are counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "readers/text_rows.h"
#include "sources/names.h"
#include "sources/options.h"

#define MOST_COLUMNS 64

enum column {
    IMAGE,
    LABEL,
    CONFIDENCE,
    XMIN,
    XMAX,
    YMIN,
    YMAX,
    OCCLUDED,
    TRUNCATED,
    GROUP_OF,
    DEPICTION,
    INSIDE,
    COLUMNS
};

static const char *const column_names[COLUMNS] = {"ImageID",     "LabelName", "Confidence",  "XMin",
                                                  "XMax",        "YMin",      "YMax",        "IsOccluded",
                                                  "IsTruncated", "IsGroupOf", "IsDepiction", "IsInside"};
static const uint8_t column_flags[COLUMNS] = {[OCCLUDED] = KOLO_BOX_OCCLUDED,
                                              [TRUNCATED] = KOLO_BOX_TRUNCATED,
                                              [GROUP_OF] = KOLO_BOX_GROUP_OF,
                                              [DEPICTION] = KOLO_BOX_DEPICTION,
                                              [INSIDE] = KOLO_BOX_INSIDE};

typedef struct openimages {
    name_table images, labels; /* labels: /m/... in the order of the classes */
    int32_t *class_of;         /* [labels] */
    int64_t room, rows, absent;
    int place[COLUMNS]; /* of the file at hand; -1: it has no such column */
    int columns;
} openimages;

/* ---- classes ------------------------------------------------------------------------------------------- */

/* Two labels can have one name ("Bow"): the second one's class then has the label in its name too. */
static int add_class(source *s, openimages *x, const char *label, const char *name)
{
    int64_t number;
    const int64_t before = x->labels.count;
    KOLO_TRY(names_add(&x->labels, label, &number));
    if (number < before) return 0;
    KOLO_TRY(kolo_grow(&x->class_of, &x->room, number, sizeof *x->class_of));
    KOLO_TRY(source_find_class(s, name, number, &x->class_of[number]));
    for (int64_t i = 0; i < number; i++) {
        if (x->class_of[i] != x->class_of[number] || x->class_of[i] == SOURCE_LEFT_OUT) continue;
        char *both = kolo_format("%s (%s)", name, label);
        int rc = both ? source_find_class(s, both, number, &x->class_of[number]) : KOLO_ENOMEM;
        free(both);
        return rc;
    }
    return 0;
}

static bool is_label(const char *text)
{
    return text_begins(text, "/m/") || text_begins(text, "/g/") || text_begins(text, "/t/");
}

static int read_classes(source *s, openimages *x, text_rows *rows, char **fields, int n)
{
    char *line;
    for (int rc = 1; rc > 0;) {
        if (n != 2 || !*fields[1]) return text_fail(rows, "`LABEL,NAME` is expected");
        if (is_label(fields[0])) KOLO_TRY(add_class(s, x, fields[0], fields[1]));
        else if (rows->line > 1) return text_fail(rows, "`%.40s` is no label (/m/...)", fields[0]);
        rc = text_next(rows, &line);
        if (rc <= 0) return rc;
        n = text_split_csv(line, fields, MOST_COLUMNS);
    }
    return 0;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static int parse_part(const openimages *x, const text_rows *rows, char *const *fields, enum column c,
                      double *value)
{
    const char *text = fields[x->place[c]];
    if (!text_number(text, value)) return text_fail(rows, "%s: `%.40s` is no number", column_names[c], text);
    return *value >= 0 && *value <= 1 ? 0
                                      : text_fail(rows, "%s: %s is outside of 0 .. 1", column_names[c], text);
}

/* 1, 0, or -1: not known. */
static int parse_flags(const openimages *x, const text_rows *rows, char *const *fields, uint8_t *flags)
{
    *flags = 0;
    for (enum column c = OCCLUDED; c < COLUMNS; c++) {
        int64_t value = 0;
        if (x->place[c] < 0) continue;
        if (!text_integer(fields[x->place[c]], &value) || value < -1 || value > 1)
            return text_fail(rows, "%s: `%.40s` is neither 1, 0 nor -1", column_names[c],
                             fields[x->place[c]]);
        if (value == 1) *flags |= column_flags[c];
    }
    return 0;
}

static int add_box(source *s, const openimages *x, const text_rows *rows, char *const *fields, int64_t sample,
                   int32_t label)
{
    static const enum column order[4] = {XMIN, YMIN, XMAX, YMAX};
    double box[4];
    uint8_t flags;
    for (int i = 0; i < 4; i++) KOLO_TRY(parse_part(x, rows, fields, order[i], &box[i]));
    if (box[2] < box[0] || box[3] < box[1])
        return text_fail(rows, "a box from (%g, %g) to (%g, %g)", box[0], box[1], box[2], box[3]);
    KOLO_TRY(parse_flags(x, rows, fields, &flags));
    return source_add_box(s, sample, box, label, flags, -1, -1);
}

static int add_tag(source *s, const openimages *x, const text_rows *rows, char *const *fields, int64_t sample,
                   int32_t label)
{
    double confidence;
    KOLO_TRY(parse_part(x, rows, fields, CONFIDENCE, &confidence));
    return source_add_tag(s, sample, label, confidence);
}

static int add_row(source *s, openimages *x, const text_rows *rows, char *const *fields, int n)
{
    if (n != x->columns) return text_fail(rows, "%d columns, the first line has %d", n, x->columns);
    x->rows++;
    const int64_t sample = names_find(&x->images, fields[x->place[IMAGE]]);
    if (sample < 0) {
        x->absent++;
        return 0;
    }
    const char *label = fields[x->place[LABEL]];
    const int64_t number = names_find(&x->labels, label);
    if (number < 0) return text_fail(rows, "the files of classes do not have `%.40s`", label);
    return (x->place[XMIN] >= 0 ? add_box : add_tag)(s, x, rows, fields, sample, x->class_of[number]);
}

/* Where the columns are. 1: this is a file of rows of images; 0: it is another one. */
static int find_columns(openimages *x, char *const *fields, int n)
{
    for (int c = 0; c < COLUMNS; c++) {
        x->place[c] = -1;
        for (int i = 0; i < n; i++)
            if (strcmp(fields[i], column_names[c]) == 0) x->place[c] = i;
    }
    x->columns = n;
    if (x->place[IMAGE] < 0 || x->place[LABEL] < 0) return 0;
    const int corners =
        (x->place[XMIN] >= 0) + (x->place[XMAX] >= 0) + (x->place[YMIN] >= 0) + (x->place[YMAX] >= 0);
    return corners == 4 || (corners == 0 && x->place[CONFIDENCE] >= 0);
}

/* Classes come first, so each file is opened twice: `classes` says which kind is wanted. */
static int read_file(source *s, openimages *x, const char *path, bool classes)
{
    text_rows rows;
    char *line, *fields[MOST_COLUMNS];
    KOLO_TRY(text_open(&rows, path));
    int rc = text_next(&rows, &line), n = rc > 0 ? text_split_csv(line, fields, MOST_COLUMNS) : 0;
    if (rc > 0 && n > 0 && n <= MOST_COLUMNS) {
        const int is_rows = find_columns(x, fields, n);
        const bool is_classes = !is_rows && (is_label(fields[0]) || strcmp(fields[0], "LabelName") == 0);
        if (!is_rows && !is_classes)
            rc = text_fail(&rows, "neither boxes nor image labels nor classes of Open Images, by this line");
        else if (is_classes) rc = classes ? read_classes(s, x, &rows, fields, n) : 0;
        else if (classes) rc = 0;
        else
            while ((rc = text_next(&rows, &line)) > 0) {
                n = text_split_csv(line, fields, MOST_COLUMNS);
                rc = n < 0 ? text_fail(&rows, "a quote is not closed") : add_row(s, x, &rows, fields, n);
                if (rc < 0 && (rc = source_fault(s, rc)) < 0) break;
            }
    } else if (rc >= 0) rc = kolo_fail(KOLO_EINPUT, "%s: empty, or no comma separated values", path);
    text_close(&rows);
    return rc;
}

/* ---- where things are ---------------------------------------------------------------------------------- */

/* ImageIDs are 16 hexadecimal digits, which are the numbers of the samples. */
static int64_t number_of(const char *id)
{
    const bool whole = strlen(id) == 16 && strspn(id, "0123456789abcdef") == 16;
    return whole ? (int64_t)strtoull(id, NULL, 16) : -1;
}

static int add_images(source *s, openimages *x)
{
    kolo_folder_names n;
    KOLO_TRY(kolo_folder_list(s->root, &n));
    int rc = 0;
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        int64_t number;
        if (!kolo_folder_is_image(n.list[i])) continue;
        rc = source_add(s, SOURCE_UNLABELLED, n.list[i], -1);
        *strrchr(n.list[i], '.') = 0;
        if (rc == 0) rc = names_add(&x->images, n.list[i], &number);
        if (rc == 0 && number != s->count - 1)
            rc = kolo_fail(KOLO_EINPUT, "%s: two images are called %s", s->root, n.list[i]);
        if (rc == 0 && number_of(n.list[i]) != -1) source_set_id(s, number, number_of(n.list[i]));
    }
    kolo_folder_free(&n);
    return rc < 0 || s->count ? rc : kolo_fail(KOLO_EINPUT, "%s: no images", s->root);
}

static const char *long_split(const pack_options *o)
{
    return strcmp(o->split, "val") == 0 ? "validation" : o->split;
}

static int find_root(source *s, const pack_options *o)
{
    const char *const below[] = {long_split(o), o->split};
    int rc = 0;
    if (o->in_count != 1)
        return kolo_fail(KOLO_ECONFIG, "--source openimages-csv takes one --in folder, %d are given",
                         o->in_count);
    for (int i = 0; i < 4 && rc == 0 && !s->root; i++) {
        char *path = kolo_format("%s%s", i < 2 ? "" : "images/", below[i % 2]);
        if (!path) return KOLO_ENOMEM;
        s->root = kolo_folder_below(o->in[0], path, &rc);
        free(path);
    }
    if (rc == 0 && !s->root && !(s->root = kolo_strdup(o->in[0]))) rc = KOLO_ENOMEM;
    return rc;
}

/* Appends the files of a folder that are called "...BEGIN....csv"; how many there were, or an error. */
static int find_files(const char *folder, const char *begin, kolo_folder_names *files)
{
    kolo_folder_names n = {0};
    int rc = kolo_folder_exists(folder) ? kolo_folder_list(folder, &n) : 0, found = 0;
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        if (!strstr(n.list[i], begin) || !text_ends(n.list[i], ".csv")) continue;
        char *path = kolo_format("%s/%s", folder, n.list[i]);
        rc = path ? kolo_folder_add(files, path) : KOLO_ENOMEM;
        free(path);
        found++;
    }
    kolo_folder_free(&n);
    return rc < 0 ? rc : found;
}

/* Boxes, human image labels and classes of the split: of the set of 600 boxable classes where that is there,
 * as every one of its files is a part of another. */
static int find_usual(const pack_options *o, const char *folder, kolo_folder_names *files)
{
    char *boxes = kolo_format("%s-annotations-bbox", long_split(o));
    char *labels = kolo_format("%s-annotations-human-imagelabels", long_split(o));
    char *few_labels = kolo_format("%s-boxable", labels ? labels : "");
    int rc = boxes && labels && few_labels ? 0 : KOLO_ENOMEM;
    if (rc == 0) rc = find_files(folder, "class-descriptions-boxable", files);
    if (rc == 0) rc = find_files(folder, "class-descriptions", files);
    if (rc >= 0) rc = find_files(folder, boxes, files);
    if (rc >= 0) rc = find_files(folder, few_labels, files);
    if (rc == 0) rc = find_files(folder, labels, files);
    free(boxes);
    free(labels);
    free(few_labels);
    return rc < 0 ? rc : 0;
}

static int list_files(const pack_options *o, kolo_folder_names *files)
{
    for (int i = 0; i < o->annotation_count; i++) KOLO_TRY(kolo_folder_add(files, o->annotations[i]));
    if (o->annotation_count) return 0;
    char *below = kolo_format("%s/annotations", o->in[0]);
    int rc = below ? find_usual(o, o->in[0], files) : KOLO_ENOMEM;
    if (rc == 0) rc = find_usual(o, below, files);
    free(below);
    if (rc < 0 || files->count) return rc;
    return kolo_fail(KOLO_EINPUT,
                     "%s: no *%s-annotations-bbox.csv and class-descriptions*.csv, nor in annotations; "
                     "--annotations names the files",
                     o->in[0], long_split(o));
}

static int check_rows(const source *s, const openimages *x)
{
    if (x->rows == 0)
        return kolo_fail(KOLO_EINPUT, "no boxes and no image labels in the files that are given");
    if (x->rows == x->absent)
        return kolo_fail(KOLO_EINPUT, "%s: not one of its images is in the annotations; is it another split?",
                         s->root);
    if (x->absent)
        kolo_log0(KOLO_LOG_WARN, "%lld of %lld rows are of images that are not in %s", (long long)x->absent,
                  (long long)x->rows, s->root);
    return 0;
}

static int open_openimages(source *s, const pack_options *o)
{
    openimages x = {0};
    kolo_folder_names files = {0};
    s->box_form = SOURCE_BOX_NORM_XYXY;
    int rc = find_root(s, o);
    if (rc == 0) rc = list_files(o, &files);
    if (rc == 0) rc = add_images(s, &x);
    for (int64_t i = 0; i < files.count && rc == 0; i++) rc = read_file(s, &x, files.list[i], true);
    if (rc == 0 && x.labels.count == 0)
        rc = kolo_fail(KOLO_EINPUT,
                       "no file of classes (class-descriptions-boxable.csv) among the annotations");
    for (int64_t i = 0; i < files.count && rc == 0; i++) rc = read_file(s, &x, files.list[i], false);
    if (rc == 0) rc = check_rows(s, &x);
    if (s->boxes == 0) s->box_form = SOURCE_BOX_NONE;
    names_free(&x.images);
    names_free(&x.labels);
    kolo_folder_free(&files);
    free(x.class_of);
    return rc;
}

const source_kind source_openimages = {
    .name = "openimages-csv",
    .help = "Open Images: images by ImageID; boxes with their flags, image labels as tags",
    .annotations = "*-annotations-bbox.csv, *-imagelabels*.csv, class-descriptions*.csv [those in PATH or "
                   "PATH/annotations]",
    .open = open_openimages};
