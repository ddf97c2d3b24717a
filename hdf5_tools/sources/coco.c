/* COCO: instances_SPLIT.json and a folder of images. The file is read as a stream (the published one
 * has 470 MB): images, categories, then annotations; where annotations come before the others, they
 * are passed over and come back to. Boxes are x y width height in pixels from 0; categories become
 * classes by ascending id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "readers/json_stream.h"
#include "readers/text_rows.h"
#include "sources/names.h"
#include "sources/options.h"

typedef struct numbered {
    int64_t id;
    int64_t place; /* sample, or class label */
} numbered;

typedef struct coco {
    json_stream json;
    numbered *image, *category; /* sorted by id once all are read */
    int64_t images, categories, annotations, capacity[2];
    kolo_folder_names category_names; /* in the order of the file */
    bool has_images, has_categories, has_annotations, annotations_read;
    json_mark later; /* where the annotations are */
} coco;

static int by_id(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Sorts, and finds ids that are there twice. */
static int sort_ids(coco *c, numbered *list, int64_t count, const char *what)
{
    if (count) qsort(list, (size_t)count, sizeof *list, by_id);
    for (int64_t i = 1; i < count; i++)
        if (list[i].id == list[i - 1].id)
            return kolo_fail(KOLO_EINPUT, "%s: two %s have the id %lld", c->json.path, what,
                             (long long)list[i].id);
    return 0;
}

static const numbered *find_id(const numbered *list, int64_t count, int64_t id)
{
    const numbered key = {.id = id};
    return count ? bsearch(&key, list, (size_t)count, sizeof key, by_id) : NULL;
}

/* ---- images ------------------------------------------------------------------------------------------ */

static int check_image(coco *c, bool has_id, const char *file, const int64_t size[2])
{
    if (!has_id || !file) return json_fail(&c->json, "an image without id or file_name");
    if (!*file || source_path_leaves(file))
        return json_fail(
            &c->json, "file_name `%.200s`; it must be seen from the folder of images, and lie in it", file);
    if (size[0] < 0 || size[1] < 0 || size[0] > UINT16_MAX || size[1] > UINT16_MAX)
        return json_fail(&c->json, "an image of %lld x %lld pixels", (long long)size[1], (long long)size[0]);
    return 0;
}

static int read_image(source *s, coco *c)
{
    json_stream *j = &c->json;
    const char *key, *text;
    char *file = NULL;
    int64_t id = 0, size[2] = {0, 0};
    bool has_id = false;
    KOLO_TRY(json_object(j));
    int rc;
    while ((rc = json_key(j, &key)) > 0) {
        if (strcmp(key, "id") == 0) rc = json_integer(j, &id), has_id = true;
        else if (strcmp(key, "height") == 0) rc = json_integer(j, &size[0]);
        else if (strcmp(key, "width") == 0) rc = json_integer(j, &size[1]);
        else if (strcmp(key, "file_name") == 0 && !file) {
            rc = json_string(j, &text);
            if (rc == 0 && !(file = kolo_strdup(text))) rc = KOLO_ENOMEM;
        } else rc = json_skip(j);
        if (rc < 0) break;
    }
    if (rc == 0) rc = check_image(c, has_id, file, size);
    if (rc == 0) rc = kolo_grow(&c->image, &c->capacity[0], c->images, sizeof *c->image);
    if (rc == 0) rc = source_add(s, SOURCE_UNLABELLED, file, -1);
    free(file);
    if (rc < 0) return rc;
    source_set_id(s, s->count - 1, id);
    if (size[0] && size[1]) source_set_size(s, s->count - 1, (int)size[0], (int)size[1]);
    c->image[c->images++] = (numbered){id, s->count - 1};
    return 0;
}

static int read_category(coco *c)
{
    json_stream *j = &c->json;
    const char *key, *text;
    int64_t id = 0;
    const int64_t before = c->category_names.count;
    bool has_id = false;
    KOLO_TRY(json_object(j));
    int rc;
    while ((rc = json_key(j, &key)) > 0) {
        if (strcmp(key, "id") == 0) rc = json_integer(j, &id), has_id = true;
        else if (strcmp(key, "name") == 0 && c->category_names.count == before) {
            rc = json_string(j, &text);
            if (rc == 0) rc = kolo_folder_add(&c->category_names, text);
        } else rc = json_skip(j);
        if (rc < 0) return rc;
    }
    if (rc < 0) return rc;
    if (!has_id || c->category_names.count == before) return json_fail(j, "a category without id or name");
    KOLO_TRY(kolo_grow(&c->category, &c->capacity[1], c->categories, sizeof *c->category));
    c->category[c->categories] = (numbered){id, c->categories};
    c->categories++;
    return 0;
}

/* ---- annotations --------------------------------------------------------------------------------------- */

typedef struct annotation {
    int64_t id, image, category, crowd, numbers;
    double box[4], area;
    bool has_image, has_category;
} annotation;

static int read_box(json_stream *j, annotation *a)
{
    double number;
    KOLO_TRY(json_array(j));
    int rc;
    for (a->numbers = 0; (rc = json_more(j)) > 0; a->numbers++) {
        KOLO_TRY(json_number(j, &number));
        if (a->numbers < 4) a->box[a->numbers] = number;
    }
    return rc;
}

static int read_field(json_stream *j, const char *key, annotation *a)
{
    if (strcmp(key, "bbox") == 0) return read_box(j, a);
    if (strcmp(key, "image_id") == 0) return a->has_image = true, json_integer(j, &a->image);
    if (strcmp(key, "category_id") == 0) return a->has_category = true, json_integer(j, &a->category);
    if (strcmp(key, "id") == 0) return json_integer(j, &a->id);
    if (strcmp(key, "area") == 0) return json_number(j, &a->area);
    if (strcmp(key, "iscrowd") == 0) return json_integer(j, &a->crowd);
    return json_skip(j);
}

static int check_annotation(coco *c, const annotation *a, const numbered *image, const numbered *category)
{
    json_stream *j = &c->json;
    const long long id = a->id;
    if (!a->has_image || !a->has_category || a->numbers < 0)
        return json_fail(j, "annotation %lld lacks image_id, category_id or bbox; are these instances?", id);
    if (a->numbers != 4)
        return json_fail(j, "annotation %lld: bbox has %lld numbers, not 4", id, (long long)a->numbers);
    if (!image)
        return json_fail(j, "annotation %lld: there is no image with id %lld", id, (long long)a->image);
    if (!category)
        return json_fail(j, "annotation %lld: there is no category with id %lld", id, (long long)a->category);
    if (a->box[2] < 0 || a->box[3] < 0)
        return json_fail(j, "annotation %lld: bbox with width %g, height %g", id, a->box[2], a->box[3]);
    if (a->crowd != 0 && a->crowd != 1)
        return json_fail(j, "annotation %lld: iscrowd is neither 0 nor 1", id);
    return 0;
}

static int read_annotation(source *s, coco *c)
{
    annotation a = {.id = -1, .area = -1, .numbers = -1};
    const char *key;
    KOLO_TRY(json_object(&c->json));
    int rc;
    while ((rc = json_key(&c->json, &key)) > 0) KOLO_TRY(read_field(&c->json, key, &a));
    if (rc < 0) return rc;
    const numbered *image = find_id(c->image, c->images, a.image);
    const numbered *category = find_id(c->category, c->categories, a.category);
    c->annotations++;
    rc = check_annotation(c, &a, image, category);
    if (rc == 0) {
        rc = source_add_box(s, image->place, a.box, (int32_t)category->place, a.crowd ? KOLO_BOX_CROWD : 0,
                            a.area, a.id);
        if (rc == KOLO_EINPUT) json_fail(&c->json, "annotation %lld: %s", (long long)a.id, kolo_error_text());
    }
    return rc < 0 ? source_fault(s, rc) : 0;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

/* All images and categories are known: by ascending id categories become classes. */
static int make_classes(source *s, coco *c)
{
    if (c->images == 0) return kolo_fail(KOLO_EINPUT, "%s: no images", c->json.path);
    KOLO_TRY(names_all_differ(c->json.path, c->category_names.list, c->categories));
    KOLO_TRY(sort_ids(c, c->image, c->images, "images"));
    KOLO_TRY(sort_ids(c, c->category, c->categories, "categories"));
    for (int64_t i = 0; i < c->categories; i++) {
        int32_t label;
        KOLO_TRY(
            source_find_class(s, c->category_names.list[c->category[i].place], c->category[i].id, &label));
        c->category[i].place = label;
    }
    return 0;
}

static int read_annotations(source *s, coco *c)
{
    KOLO_TRY(make_classes(s, c));
    KOLO_TRY(json_array(&c->json));
    c->annotations_read = true;
    int rc;
    while ((rc = json_more(&c->json)) > 0) KOLO_TRY(read_annotation(s, c));
    return rc;
}

static int read_section(source *s, coco *c, const char *key)
{
    json_stream *j = &c->json;
    int rc;
    if (strcmp(key, "annotations") == 0) {
        if (c->has_annotations) return json_fail(j, "a second list of annotations");
        c->has_annotations = true;
        KOLO_TRY(json_tell(j, &c->later));
        return c->has_images && c->has_categories ? read_annotations(s, c) : json_skip(j);
    }
    const bool images = strcmp(key, "images") == 0;
    bool *seen = images ? &c->has_images : &c->has_categories;
    if (!images && strcmp(key, "categories") != 0) return json_skip(j);
    if (*seen) return json_fail(j, "a second list of %s", key);
    *seen = true;
    KOLO_TRY(json_array(j));
    while ((rc = json_more(j)) > 0) KOLO_TRY(images ? read_image(s, c) : read_category(c));
    return rc;
}

static int read_file(source *s, coco *c)
{
    json_stream *j = &c->json;
    const char *key;
    KOLO_TRY(json_object(j));
    int rc;
    while ((rc = json_key(j, &key)) > 0) KOLO_TRY(read_section(s, c, key));
    if (rc < 0) return rc;
    KOLO_TRY(json_finish(j));
    if (!c->has_images || !c->has_categories)
        return kolo_fail(KOLO_EINPUT, "%s: no list of %s; is it a file of COCO instances?", j->path,
                         c->has_images ? "categories" : "images");
    if (c->has_annotations && !c->annotations_read) {
        KOLO_TRY(json_return(j, &c->later));
        return read_annotations(s, c);
    }
    if (c->has_annotations) return 0;
    kolo_log0(KOLO_LOG_WARN, "%s: no annotations, so no boxes; those of the test images are not published",
              j->path);
    return make_classes(s, c);
}

/* ---- where things are ---------------------------------------------------------------------------------- */

/* instances_SPLIT*.json in PATH/annotations, or what other programs export. */
static int find_file(const pack_options *o, char **path)
{
    if (o->in_count != 1 || o->annotation_count > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "--source coco-json takes one --in folder, and one --annotations file at most");
    if (o->annotation_count) return (*path = kolo_strdup(o->annotations[0])) ? 0 : KOLO_ENOMEM;
    if (!(*path = kolo_format("%s/%s/_annotations.coco.json", o->in[0], o->split))) return KOLO_ENOMEM;
    if (kolo_file_exists(*path)) return 0;
    free(*path);
    *path = NULL;
    char *folder = kolo_format("%s/annotations", o->in[0]), *begin = kolo_format("instances_%s", o->split);
    kolo_folder_names n = {0};
    int rc = !folder || !begin ? KOLO_ENOMEM : kolo_folder_exists(folder) ? kolo_folder_list(folder, &n) : 0;
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        if (!text_begins(n.list[i], begin) || !text_ends(n.list[i], ".json")) continue;
        if (*path)
            rc = kolo_fail(KOLO_EINPUT, "both %s and %s are there; --annotations names the one to take",
                           *path, n.list[i]);
        else if (!(*path = kolo_format("%s/%s", folder, n.list[i]))) rc = KOLO_ENOMEM;
    }
    if (rc == 0 && !*path)
        rc = kolo_fail(KOLO_EINPUT, "%s: no annotations/instances_%s*.json; --annotations names the file",
                       o->in[0], o->split);
    kolo_folder_free(&n);
    free(folder);
    free(begin);
    return rc;
}

/* "train2017" of ".../instances_train2017.json" */
static char *stem_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    if (text_begins(file, "instances_")) file += strlen("instances_");
    return kolo_format("%.*s", (int)strcspn(file, "."), file);
}

static bool has_images(const source *s, const char *folder)
{
    char path[4096], full[8192];
    for (int64_t i = 0; i < s->count && i < 16; i++) {
        source_path(s, i, path, sizeof path);
        snprintf(full, sizeof full, "%s/%s", folder, path);
        if (kolo_file_exists(full)) return true;
    }
    return false;
}

/* Images lie in a folder called like the annotations or the split, below PATH or
 * PATH/images, or in PATH itself. */
static int find_images(source *s, const pack_options *o, const char *stem)
{
    const char *const names[] = {stem, o->split, "."};
    for (int i = 0; i < 6; i++) {
        char *folder = kolo_format("%s%s%s%s", o->in[0], i % 2 ? "/images" : "", i < 4 ? "/" : "",
                                   i < 4 ? names[i / 2] : "");
        if (!folder) return KOLO_ENOMEM;
        if (has_images(s, folder)) {
            s->root = folder;
            return 0;
        }
        free(folder);
    }
    char path[4096];
    source_path(s, 0, path, sizeof path);
    return kolo_fail(KOLO_EINPUT,
                     "%s: no %s in it, nor in %s, images/%s, %s, images/%s, images: no folder of images",
                     o->in[0], path, stem, stem, o->split, o->split);
}

/* The published files have so many images and annotations. */
static int check_published(source *s, const coco *c, const char *stem)
{
    static const struct {
        const char *stem;
        int64_t images, annotations;
    } known[] = {{"train2017", 118287, 860001},
                 {"val2017", 5000, 36781},
                 {"train2014", 82783, 604907},
                 {"val2014", 40504, 291875}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(stem, known[i].stem) != 0 || s->count < known[i].images / 2) continue;
        if (s->count == known[i].images && c->annotations == known[i].annotations) return 0;
        return source_fault(
            s, kolo_fail(KOLO_EINPUT,
                         "%s: %lld images and %lld annotations, the published file has %lld and %lld",
                         c->json.path, (long long)s->count, (long long)c->annotations,
                         (long long)known[i].images, (long long)known[i].annotations));
    }
    return 0;
}

static int open_coco(source *s, const pack_options *o)
{
    coco c = {.json.fd = -1};
    char *path = NULL, *stem = NULL;
    s->box_form = SOURCE_BOX_XYWH;
    int rc = find_file(o, &path);
    if (rc == 0 && !(stem = stem_of(path))) rc = KOLO_ENOMEM;
    if (rc == 0) rc = json_open(&c.json, path);
    if (rc == 0) rc = read_file(s, &c);
    if (rc == 0) rc = check_published(s, &c, stem);
    if (rc == 0) rc = find_images(s, o, stem);
    json_close(&c.json);
    free(c.image);
    free(c.category);
    kolo_folder_free(&c.category_names);
    free(path);
    free(stem);
    return rc;
}

const source_kind source_coco = {.name = "coco-json",
                                 .help = "COCO: PATH/annotations/instances_SPLIT*.json and its images",
                                 .annotations = "the file of instances [the one in PATH/annotations]",
                                 .open = open_coco};
