/* Cityscapes: PATH/gtFine/SPLIT/CITY/ID_gtFine_polygons.json and
 * PATH/leftImg8bit/SPLIT/CITY/ID_leftImg8bit.png. Of every instance the box around its polygon is kept, with
 * the polygon's area: the whole object as it was outlined, also where another one stands before it. Classes
 * are the eight whose instances are evaluated; "cargroup" and the like, outlines of several objects, become
 * boxes with the group-of flag. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/memory.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "readers/json_stream.h"
#include "readers/text_rows.h"
#include "sources/options.h"

static const struct {
    const char *name;
    int id; /* of the published list of labels */
} things[] = {{"person", 24}, {"rider", 25}, {"car", 26},        {"truck", 27},
              {"bus", 28},    {"train", 31}, {"motorcycle", 32}, {"bicycle", 33}};
#define THINGS ((int)(sizeof things / sizeof *things))

/* Labels that are no objects, or whose objects are not evaluated. */
static const char *const others[] = {"unlabeled",  "ego vehicle",   "rectification border",
                                     "out of roi", "static",        "dynamic",
                                     "ground",     "road",          "sidewalk",
                                     "parking",    "rail track",    "building",
                                     "wall",       "fence",         "guard rail",
                                     "bridge",     "tunnel",        "pole",
                                     "polegroup",  "traffic light", "traffic sign",
                                     "vegetation", "terrain",       "sky",
                                     "caravan",    "trailer",       "license plate"};

typedef struct outline { /* of one object */
    int thing;           /* -1: another label */
    bool group, has_label, deleted;
    int64_t points;
    double low[2], high[2], first[2], last[2], twice_area;
} outline;

typedef struct cityscapes {
    json_stream json;
    int32_t label[THINGS];
    const char *annotations; /* folder of the cities' folders */
    outline *found;          /* of the image at hand, [objects] */
    int64_t objects, room, height, width;
} cityscapes;

/* ---- an object ----------------------------------------------------------------------------------------- */

static int find_label(json_stream *j, outline *o)
{
    const char *text;
    KOLO_TRY(json_string(j, &text));
    const size_t length = strlen(text);
    o->has_label = true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(text, others[i]) == 0) return 0;
    o->group = text_ends(text, "group");
    const size_t stem = length - (o->group ? strlen("group") : 0);
    for (int i = 0; i < THINGS; i++)
        if (strlen(things[i].name) == stem && strncmp(text, things[i].name, stem) == 0)
            return o->thing = i, 0;
    for (size_t i = 0; i < sizeof others / sizeof *others && o->group; i++)
        if (strlen(others[i]) == stem && strncmp(text, others[i], stem) == 0) return 0;
    return json_fail(j, "label `%.60s` is not one of Cityscapes", text);
}

static int read_point(json_stream *j, outline *o)
{
    double p[2] = {0, 0}, number;
    int rc, n = 0;
    KOLO_TRY(json_array(j));
    while ((rc = json_more(j)) > 0) {
        KOLO_TRY(json_number(j, &number));
        if (n < 2) p[n] = number;
        n++;
    }
    if (rc < 0) return rc;
    if (n != 2) return json_fail(j, "a point of %d numbers", n);
    for (int k = 0; k < 2; k++) {
        if (o->points == 0) o->low[k] = o->high[k] = o->first[k] = o->last[k] = p[k];
        o->low[k] = p[k] < o->low[k] ? p[k] : o->low[k];
        o->high[k] = p[k] > o->high[k] ? p[k] : o->high[k];
    }
    o->twice_area += o->last[0] * p[1] - p[0] * o->last[1];
    o->last[0] = p[0], o->last[1] = p[1];
    o->points++;
    return 0;
}

static int read_polygon(json_stream *j, outline *o)
{
    int rc;
    KOLO_TRY(json_array(j));
    while ((rc = json_more(j)) > 0) KOLO_TRY(read_point(j, o));
    o->twice_area += o->last[0] * o->first[1] - o->first[0] * o->last[1];
    return rc;
}

static int read_deleted(json_stream *j, outline *o)
{
    int64_t value;
    KOLO_TRY(json_integer(j, &value));
    o->deleted = value != 0;
    return 0;
}

static int read_object(cityscapes *c)
{
    json_stream *j = &c->json;
    outline o = {.thing = -1};
    const char *key;
    int rc;
    KOLO_TRY(json_object(j));
    while ((rc = json_key(j, &key)) > 0) {
        if (strcmp(key, "label") == 0) rc = find_label(j, &o);
        else if (strcmp(key, "polygon") == 0) rc = read_polygon(j, &o);
        else if (strcmp(key, "deleted") == 0) rc = read_deleted(j, &o);
        else rc = json_skip(j);
        if (rc < 0) return rc;
    }
    if (rc < 0) return rc;
    if (!o.has_label) return json_fail(j, "an object without label");
    if (o.thing < 0 || o.deleted) return 0;
    if (o.points < 3) return json_fail(j, "a polygon of %lld points", (long long)o.points);
    KOLO_TRY(kolo_grow(&c->found, &c->room, c->objects, sizeof *c->found));
    c->found[c->objects++] = o;
    return 0;
}

/* ---- an image ----------------------------------------------------------------------------------------- */

static int read_size(json_stream *j, int64_t *size)
{
    KOLO_TRY(json_integer(j, size));
    return *size > 0 && *size <= UINT16_MAX ? 0 : json_fail(j, "an image of %lld pixels", (long long)*size);
}

static int read_objects(cityscapes *c)
{
    int rc;
    KOLO_TRY(json_array(&c->json));
    while ((rc = json_more(&c->json)) > 0) KOLO_TRY(read_object(c));
    return rc;
}

static int read_annotation(cityscapes *c)
{
    json_stream *j = &c->json;
    const char *key;
    bool has_objects = false;
    int rc;
    c->objects = c->height = c->width = 0;
    KOLO_TRY(json_object(j));
    while ((rc = json_key(j, &key)) > 0) {
        if (strcmp(key, "imgHeight") == 0) rc = read_size(j, &c->height);
        else if (strcmp(key, "imgWidth") == 0) rc = read_size(j, &c->width);
        else if (strcmp(key, "objects") == 0) rc = read_objects(c), has_objects = true;
        else rc = json_skip(j);
        if (rc < 0) return rc;
    }
    if (rc == 0) rc = json_finish(j);
    if (rc == 0 && (!has_objects || !c->height || !c->width))
        rc = json_fail(j, "no imgHeight, imgWidth or objects");
    return rc;
}

/* Vertices are pixels, and the last one belongs to the object: hence one more. */
static int add_box(source *s, const cityscapes *c, const outline *o)
{
    const double box[4] = {o->low[0], o->low[1], o->high[0] - o->low[0] + 1, o->high[1] - o->low[1] + 1};
    const double area = (o->twice_area < 0 ? -o->twice_area : o->twice_area) / 2;
    return source_add_box(s, s->count - 1, box, c->label[o->thing], o->group ? KOLO_BOX_GROUP_OF : 0, area,
                          -1);
}

/* "aachen_000000_000019_gtFine_polygons.json" to "aachen_000000_000019"; NULL: another file. */
static char *stem_of(const char *file)
{
    static const char *const endings[] = {"_gtFine_polygons.json", "_gtCoarse_polygons.json"};
    for (int i = 0; i < 2; i++)
        if (text_ends(file, endings[i]))
            return kolo_format("%.*s", (int)(strlen(file) - strlen(endings[i])), file);
    return NULL;
}

static int add_image(source *s, cityscapes *c, const char *city, const char *file, const char *stem)
{
    char *image = kolo_format("%s/%s_leftImg8bit.png", city, stem);
    char *path = kolo_format("%s/%s/%s", c->annotations, city, file);
    int rc = image && path ? json_open(&c->json, path) : KOLO_ENOMEM;
    if (rc == 0) {
        rc = read_annotation(c);
        json_close(&c->json);
    }
    if (rc < 0) rc = source_fault(s, rc);
    else {
        rc = source_add(s, SOURCE_UNLABELLED, image, -1);
        if (rc == 0) source_set_size(s, s->count - 1, (int)c->height, (int)c->width);
        for (int64_t i = 0; i < c->objects && rc == 0; i++) {
            rc = add_box(s, c, &c->found[i]);
            if (rc == KOLO_EINPUT)
                rc = source_fault(s, kolo_fail_in(rc, "%s: a %s: ", path, things[c->found[i].thing].name));
        }
    }
    free(image);
    free(path);
    return rc;
}

static int add_city(source *s, cityscapes *c, const char *city)
{
    kolo_folder_names n = {0};
    int rc = 0;
    char *folder = kolo_folder_below(c->annotations, city, &rc);
    if (!folder) return rc;
    rc = kolo_folder_list(folder, &n);
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        char *stem = stem_of(n.list[i]);
        if (stem) rc = add_image(s, c, city, n.list[i], stem);
        free(stem);
    }
    kolo_folder_free(&n);
    free(folder);
    return rc;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static int find_folders(source *s, const pack_options *o, char **annotations)
{
    int rc = 0;
    if (o->in_count != 1 || o->annotation_count > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "--source cityscapes takes one --in folder, and one --annotations folder at most");
    char *truth = o->annotation_count ? kolo_strdup(o->annotations[0]) : kolo_format("%s/gtFine", o->in[0]);
    char *images = kolo_format("leftImg8bit/%s", o->split);
    if (!truth || !images) rc = KOLO_ENOMEM;
    else {
        *annotations = kolo_folder_below(truth, o->split, &rc);
        s->root = kolo_folder_below(o->in[0], images, &rc);
        if (rc == 0 && (!*annotations || !s->root))
            rc = kolo_fail(KOLO_EINPUT, "no folder %s/%s", *annotations ? o->in[0] : truth,
                           *annotations ? images : o->split);
    }
    free(truth);
    free(images);
    return rc;
}

/* The published sets of fine annotations have so many images. */
static int check_published(source *s, const cityscapes *c, const pack_options *o)
{
    const int64_t want = strcmp(o->split, "train") == 0 ? 2975 : strcmp(o->split, "val") == 0 ? 500 : 1525;
    if (s->count == 0) return kolo_fail(KOLO_EINPUT, "%s: no CITY/*_polygons.json", c->annotations);
    if (o->annotation_count || s->count == want || s->count < want * 9 / 10) return 0;
    return source_fault(s, kolo_fail(KOLO_EINPUT, "%s: %lld images, the published set has %lld",
                                     c->annotations, (long long)s->count, (long long)want));
}

static int open_cityscapes(source *s, const pack_options *o)
{
    cityscapes c = {.json.fd = -1};
    char *annotations = NULL;
    kolo_folder_names cities = {0};
    s->box_form = SOURCE_BOX_XYWH;
    int rc = find_folders(s, o, &annotations);
    c.annotations = annotations;
    for (int i = 0; i < THINGS && rc == 0; i++)
        rc = source_find_class(s, things[i].name, things[i].id, &c.label[i]);
    if (rc == 0) rc = kolo_folder_list(annotations, &cities);
    for (int64_t i = 0; i < cities.count && rc == 0; i++) rc = add_city(s, &c, cities.list[i]);
    if (rc == 0) rc = check_published(s, &c, o);
    kolo_folder_free(&cities);
    free(annotations);
    free(c.found);
    return rc;
}

const source_kind source_cityscapes = {
    .name = "cityscapes",
    .help = "Cityscapes: PATH/leftImg8bit and PATH/gtFine, polygons of instances to boxes",
    .annotations = "another folder of annotations [PATH/gtFine]",
    .open = open_cityscapes};
