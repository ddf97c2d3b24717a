/* Pascal VOC: PATH/Annotations/ID.xml, PATH/JPEGImages/ID.jpg, and lists of IDs in PATH/ImageSets/Main. Boxes
 * are the first and last pixel each way, counted from 1. Several --in (VOC2007, VOC2012) become one split. */
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
#include "readers/xml.h"
#include "sources/names.h"
#include "sources/options.h"

typedef struct voc_box {
    int64_t sample, name;
    double numbers[4];
    uint8_t flags;
} voc_box;

typedef struct voc {
    name_table names;
    voc_box *box; /* of all images: classes are known when the last has been read */
    int64_t boxes, capacity;
    const char *root; /* that is being read */
} voc;

typedef struct image { /* what an annotation says of it */
    char ending[8];
    int64_t height, width, boxes;
} image;

/* ---- an annotation ------------------------------------------------------------------------------------- */

static int read_number(xml_reader *x, double *value)
{
    const char *text;
    KOLO_TRY(xml_text(x, &text));
    return text_number(text, value) ? 0 : xml_fail(x, "`%.40s` where a number is expected", text);
}

static int read_flag(xml_reader *x, uint8_t bit, uint8_t *flags)
{
    double value;
    KOLO_TRY(read_number(x, &value));
    if (value != 0 && value != 1) return xml_fail(x, "%g where 0 or 1 is expected", value);
    if (value == 1) *flags |= bit;
    return 0;
}

static int read_box(xml_reader *x, double numbers[4], int *seen)
{
    static const char *const sides[] = {"xmin", "ymin", "xmax", "ymax"};
    const char *name;
    int rc;
    while ((rc = xml_child(x, &name)) > 0) {
        int k = 0;
        while (k < 4 && strcmp(name, sides[k]) != 0) k++;
        rc = k < 4 ? read_number(x, &numbers[k]) : xml_skip(x);
        if (rc < 0) return rc;
        if (k < 4) *seen |= 1 << k;
    }
    return rc;
}

static int check_box(const xml_reader *x, const voc_box *b, int seen, bool has_name)
{
    const double *n = b->numbers;
    if (!has_name || seen != 15)
        return xml_fail(x, "the object that begins here lacks %s", has_name ? "its bndbox" : "a name");
    if (n[0] < 0 || n[1] < 0 || n[2] < n[0] || n[3] < n[1])
        return xml_fail(x, "the object that begins here has a box from (%g, %g) to (%g, %g)", n[0], n[1],
                        n[2], n[3]);
    if (n[2] == n[0] || n[3] == n[1]) {
        xml_fail(x,
                 "the object that begins here is a mere point or line, from (%g, %g) to (%g, %g); it is kept",
                 n[0], n[1], n[2], n[3]);
        kolo_log0(KOLO_LOG_WARN, "%s", kolo_error_text());
    }
    return 0;
}

static int read_object(voc *v, xml_reader *x)
{
    const char *name, *text;
    voc_box b = {.name = -1};
    int rc, seen = 0;
    while ((rc = xml_child(x, &name)) > 0) {
        if (strcmp(name, "bndbox") == 0) rc = read_box(x, b.numbers, &seen);
        else if (strcmp(name, "difficult") == 0) rc = read_flag(x, KOLO_BOX_DIFFICULT, &b.flags);
        else if (strcmp(name, "truncated") == 0) rc = read_flag(x, KOLO_BOX_TRUNCATED, &b.flags);
        else if (strcmp(name, "occluded") == 0) rc = read_flag(x, KOLO_BOX_OCCLUDED, &b.flags);
        else if (strcmp(name, "name") == 0 && b.name < 0) {
            rc = xml_text(x, &text);
            if (rc == 0 && *text) rc = names_add(&v->names, text, &b.name);
        } else rc = xml_skip(x);
        if (rc < 0) return rc;
    }
    if (rc < 0) return rc;
    KOLO_TRY(check_box(x, &b, seen, b.name >= 0));
    KOLO_TRY(kolo_grow(&v->box, &v->capacity, v->boxes, sizeof *v->box));
    v->box[v->boxes++] = b;
    return 0;
}

static int read_size(xml_reader *x, image *p)
{
    const char *name;
    double value;
    int rc;
    while ((rc = xml_child(x, &name)) > 0) {
        const bool width = strcmp(name, "width") == 0;
        if (!width && strcmp(name, "height") != 0) rc = xml_skip(x);
        else {
            KOLO_TRY(read_number(x, &value));
            if (value < 0 || value > UINT16_MAX || value != (double)(int64_t)value)
                return xml_fail(x, "an image of %g pixels", value);
            *(width ? &p->width : &p->height) = (int64_t)value;
            rc = 0;
        }
        if (rc < 0) return rc;
    }
    return rc;
}

static int read_file_name(xml_reader *x, image *p)
{
    const char *text;
    KOLO_TRY(xml_text(x, &text));
    const char *dot = strrchr(text, '.');
    if (dot && kolo_folder_is_image(text) && strlen(dot) < sizeof p->ending)
        memcpy(p->ending, dot, strlen(dot) + 1);
    return 0;
}

static int read_annotation(voc *v, const char *path, image *p)
{
    xml_reader x;
    const char *name;
    KOLO_TRY(xml_open(&x, path));
    int rc = xml_child(&x, &name);
    if (rc > 0 && strcmp(name, "annotation") != 0)
        rc = xml_fail(&x, "<%.60s>, where <annotation> is expected", name);
    while (rc > 0 && (rc = xml_child(&x, &name)) > 0) {
        if (strcmp(name, "object") == 0) rc = read_object(v, &x);
        else if (strcmp(name, "size") == 0) rc = read_size(&x, p);
        else if (strcmp(name, "filename") == 0) rc = read_file_name(&x, p);
        else rc = xml_skip(&x);
        rc = rc == 0 ? 1 : rc;
    }
    if (rc == 0) rc = xml_finish(&x);
    xml_close(&x);
    return rc;
}

/* ---- images ------------------------------------------------------------------------------------------ */

/* The image is called like the annotation; its ending is that of the annotation's <filename>,
 * but not always truly. */
static int add_file(source *s, const voc *v, const char *id, const image *p)
{
    const char *const endings[] = {p->ending, ".jpg", ".jpeg", ".png", ".JPG", ".bmp"};
    for (int i = 0; i <= 6; i++) {
        char *full = kolo_format("%s/JPEGImages/%s%s", v->root, id, endings[i % 6]);
        if (!full) return KOLO_ENOMEM;
        int rc = 1;
        if (i == 6 || kolo_file_exists(full))
            rc = source_add(s, SOURCE_UNLABELLED, s->root ? full + strlen(v->root) + 1 : full, -1);
        free(full);
        if (rc <= 0) return rc;
    }
    return 0;
}

static int add_image(source *s, voc *v, const char *id)
{
    image p = {.ending = ".jpg"};
    const int64_t before = v->boxes;
    if (source_path_leaves(id))
        return kolo_fail(KOLO_EINPUT, "%s: `%.200s` names an image out of its JPEGImages", v->root, id);
    char *path = kolo_format("%s/Annotations/%s.xml", v->root, id);
    int rc = path ? read_annotation(v, path, &p) : KOLO_ENOMEM;
    free(path);
    if (rc < 0) {
        v->boxes = before; /* no part of a damaged annotation */
        return source_fault(s, rc);
    }
    KOLO_TRY(add_file(s, v, id, &p));
    if (p.height && p.width) source_set_size(s, s->count - 1, (int)p.height, (int)p.width);
    for (int64_t i = before; i < v->boxes; i++) v->box[i].sample = s->count - 1;
    return 0;
}

typedef struct voc_list {
    source *s;
    voc *v;
} voc_list;

static int add_listed(void *of, const text_rows *rows, char *line)
{
    const voc_list *l = of;
    char *fields[2];
    const int n = text_words(line, fields, 2);
    if (n > 1)
        return text_fail(rows, "%d columns; a list has one image a line (lists of a single class have two)",
                         n);
    return n == 1 ? add_image(l->s, l->v, fields[0]) : 0;
}

static int read_list(source *s, voc *v, const char *path)
{
    return text_each(path, add_listed, &(voc_list){s, v});
}

/* Without lists all annotations are meant. */
static int read_folder(source *s, voc *v)
{
    kolo_folder_names n = {0};
    char *folder = kolo_format("%s/Annotations", v->root);
    int rc = folder ? kolo_folder_list(folder, &n) : KOLO_ENOMEM;
    kolo_log0(KOLO_LOG_WARN, "%s: no ImageSets; all of Annotations is taken", v->root);
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        if (!text_ends(n.list[i], ".xml")) continue;
        n.list[i][strlen(n.list[i]) - 4] = 0;
        rc = add_image(s, v, n.list[i]);
    }
    kolo_folder_free(&n);
    free(folder);
    return rc;
}

static int read_root(source *s, voc *v, const pack_options *o, int i)
{
    int rc = 0;
    v->root = o->in[i];
    char *annotations = kolo_folder_below(v->root, "Annotations", &rc),
         *lists = kolo_folder_below(v->root, "ImageSets/Main", &rc);
    if (rc == 0 && !annotations)
        rc = kolo_fail(KOLO_EINPUT,
                       "%s: no folder Annotations; --in is the folder that holds Annotations and JPEGImages "
                       "(VOCdevkit/VOC2007)",
                       v->root);
    else if (rc == 0 && o->annotation_count) rc = read_list(s, v, o->annotations[i]);
    else if (rc == 0 && lists) {
        char *path = kolo_format("%s/%s.txt", lists, o->split);
        rc = path ? read_list(s, v, path) : KOLO_ENOMEM;
        free(path);
    } else if (rc == 0) rc = read_folder(s, v);
    free(annotations);
    free(lists);
    return rc;
}

/* ---- classes ------------------------------------------------------------------------------------------- */

/* The 20 of the challenge, in its order, where no others are met: so every split has the same labels. */
static int make_classes(source *s, const voc *v, int32_t **label)
{
    static const char *const challenge[] = {"aeroplane",   "bicycle", "bird",  "boat",      "bottle",
                                            "bus",         "car",     "cat",   "chair",     "cow",
                                            "diningtable", "dog",     "horse", "motorbike", "person",
                                            "pottedplant", "sheep",   "sofa",  "train",     "tvmonitor"};
    int64_t known = 0;
    for (int c = 0; c < 20; c++) known += names_find(&v->names, challenge[c]) >= 0;
    if (known == 0 || known < v->names.count) return names_to_sorted_classes(&v->names, s, label);
    *label = kolo_alloc(sizeof **label * (size_t)v->names.count);
    if (!*label) return KOLO_ENOMEM;
    for (int c = 0; c < 20; c++) {
        int32_t at;
        const int64_t name = names_find(&v->names, challenge[c]);
        KOLO_TRY(source_find_class(s, challenge[c], c, &at));
        if (name >= 0) (*label)[name] = at;
    }
    return 0;
}

/* Names of annotations that were left out are forgotten. */
static int keep_used_names(voc *v)
{
    name_table used = {0};
    int rc = 0;
    for (int64_t i = 0; i < v->boxes && rc == 0; i++)
        rc = names_add(&used, names_text(&v->names, v->box[i].name), &v->box[i].name);
    names_free(&v->names);
    v->names = used;
    return rc;
}

static int add_boxes(source *s, voc *v)
{
    int32_t *label = NULL;
    int rc = keep_used_names(v);
    if (rc == 0) rc = make_classes(s, v, &label);
    for (int64_t i = 0; i < v->boxes && rc == 0; i++) {
        const voc_box *b = &v->box[i];
        char path[4096];
        rc = source_add_box(s, b->sample, b->numbers, label[b->name], b->flags, -1, -1);
        if (rc != KOLO_EINPUT) continue;
        source_path(s, b->sample, path, sizeof path);
        rc = source_fault(s, kolo_fail_in(rc, "%s: ", path));
    }
    free(label);
    return rc;
}

static int open_voc(source *s, const pack_options *o)
{
    voc v = {0};
    KOLO_TRY(xml_built());
    s->box_form = SOURCE_BOX_XYXY;
    if (o->annotation_count && o->annotation_count != o->in_count)
        return kolo_fail(KOLO_ECONFIG,
                         "--source voc-xml takes one --annotations list for each --in, or none");
    int rc = 0;
    if (o->in_count == 1 && !(s->root = kolo_strdup(o->in[0]))) rc = KOLO_ENOMEM;
    for (int i = 0; i < o->in_count && rc == 0; i++) rc = read_root(s, &v, o, i);
    if (rc == 0 && s->count == 0)
        rc = kolo_fail(KOLO_EINPUT, "%s: no images for --split %s", o->in[0], o->split);
    if (rc == 0) rc = add_boxes(s, &v);
    names_free(&v.names);
    free(v.box);
    return rc;
}

const source_kind source_voc = {
    .name = "voc-xml",
    .help = "Pascal VOC: PATH/Annotations, JPEGImages, ImageSets; several --in become one",
    .annotations = "a list of images for each --in [ImageSets/Main/SPLIT.txt]",
    .open = open_voc};
