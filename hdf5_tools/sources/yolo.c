/* YOLO: images below a folder images, labels in files of the same names below labels. A row of labels is
 *   class xc yc w h            box: middle and size as parts of the image's width and height
 *   class x1 y1 x2 y2 x3 y3 .. polygon, of which the box is kept
 * An image without a file of labels, or with an empty one, is background. data.yaml tells where images
 * are, and the names of the classes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "readers/text_rows.h"
#include "sources/names.h"
#include "sources/options.h"
#include "sources/yolo_config.h"

#define MOST_FIELDS 20001 /* of a polygon's row */

typedef struct yolo {
    yolo_config config;
    kolo_folder_names images; /* full paths */
    char *root;
    int32_t *label; /* [classes] */
    int64_t label_files, duplicates;
    char **fields;
} yolo;

/* ---- where things are ---------------------------------------------------------------------------------- */

/* The only file of YAML in a folder, or that of a usual name. */
static int find_config(const char *folder, char **path)
{
    static const char *const usual[] = {"data.yaml", "dataset.yaml", "config.yaml"};
    kolo_folder_names n;
    int64_t found = -1, count = 0;
    KOLO_TRY(kolo_folder_list(folder, &n));
    for (int u = 0; u < 3 && found < 0; u++)
        for (int64_t i = 0; i < n.count; i++)
            if (strcmp(n.list[i], usual[u]) == 0) found = i, count = 1;
    for (int64_t i = 0; i < n.count && count == 0; i++)
        if (text_ends(n.list[i], ".yaml") || text_ends(n.list[i], ".yml")) found = found < 0 ? i : n.count;
    int rc = 0;
    if (found < 0 || found == n.count)
        rc =
            kolo_fail(KOLO_EINPUT, "%s: %s; give the one that names images and classes by --annotations",
                      folder, found < 0 ? "no data.yaml" : "several .yaml files, of which none is data.yaml");
    else if (!(*path = kolo_format("%s/%s", folder, n.list[found]))) rc = KOLO_ENOMEM;
    kolo_folder_free(&n);
    return rc;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? kolo_format("%.*s", slash == path ? 1 : (int)(slash - path), path) : kolo_strdup(".");
}

static char *yolo_join(const char *folder, const char *path)
{
    return path[0] == '/' ? kolo_strdup(path) : kolo_format("%s/%s", folder, path);
}

/* `path` of the file, seen from it; where that is not there (it was written for another
 * machine) the file's folder. */
static int find_root(yolo *y, const pack_options *o, const char *config)
{
    char *folder = o->annotation_count ? kolo_strdup(o->in[0]) : folder_of(config);
    if (!folder) return KOLO_ENOMEM;
    y->root = folder;
    if (o->annotation_count || !y->config.path || strcmp(y->config.path, ".") == 0) return 0;
    char *root = yolo_join(folder, y->config.path);
    if (!root) return KOLO_ENOMEM;
    if (kolo_folder_exists(root)) {
        y->root = root;
        root = folder;
    }
    free(root);
    return 0;
}

static int read_config(yolo *y, const pack_options *o)
{
    char *path = NULL;
    if (o->in_count != 1 || o->annotation_count > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "--source yolo-txt takes one --in, the folder or its data.yaml, and one "
                         "--annotations at most");
    int rc = 0;
    const char *given = o->annotation_count ? o->annotations[0] : o->in[0];
    if (kolo_folder_exists(given)) rc = find_config(given, &path);
    else if (!(path = kolo_strdup(given))) rc = KOLO_ENOMEM;
    if (rc == 0) rc = yolo_config_read(&y->config, path, o->split);
    if (rc == 0) rc = find_root(y, o, path);
    free(path);
    return rc;
}

/* ---- images ------------------------------------------------------------------------------------------ */

typedef struct image_list {
    kolo_folder_names *images;
    char *folder;
} image_list;

static int add_listed(void *of, const text_rows *rows, char *line)
{
    const image_list *l = of;
    char *full = yolo_join(l->folder, text_begins(line, "./") ? line + 2 : line);
    const int rc = full ? kolo_folder_add(l->images, full) : KOLO_ENOMEM;
    (void)rows;
    free(full);
    return rc;
}

/* A text file of paths, absolute or seen from its own folder. */
static int add_list(yolo *y, const char *path)
{
    image_list l = {&y->images, folder_of(path)};
    const int rc = l.folder ? text_each(path, add_listed, &l) : KOLO_ENOMEM;
    free(l.folder);
    return rc;
}

static int add_folder(yolo *y, const char *path)
{
    kolo_folder_names found = {0};
    int rc = kolo_folder_images(path, "", &found);
    const size_t length = strlen(path);
    for (int64_t i = 0; i < found.count && rc == 0; i++) {
        char *full = kolo_format("%s%s%s", path, length && path[length - 1] == '/' ? "" : "/", found.list[i]);
        rc = full ? kolo_folder_add(&y->images, full) : KOLO_ENOMEM;
        free(full);
    }
    kolo_folder_free(&found);
    return rc;
}

/* Files are often written with "../" before folders that are beside them. */
static int add_part(yolo *y, const char *part)
{
    char *path = yolo_join(y->root, part);
    if (path && !kolo_file_exists(path) && text_begins(part, "../")) {
        free(path);
        path = yolo_join(y->root, part + 3);
    }
    if (!path) return KOLO_ENOMEM;
    int rc = kolo_folder_exists(path) ? add_folder(y, path)
             : kolo_file_exists(path) ? add_list(y, path)
                                      : kolo_fail(KOLO_EINPUT, "%s: no such folder or list of images", path);
    free(path);
    return rc;
}

/* ---- labels -------------------------------------------------------------------------------------------- */

/* The last "/images/" of the path becomes "/labels/", the ending ".txt". */
static char *label_path(const char *image)
{
    static const char from[] = "/images/";
    const char *at = NULL, *slash = strrchr(image, '/'), *dot = strrchr(image, '.');
    for (const char *p = image; (p = strstr(p, from)); p++) at = p;
    const int end = (int)((dot && dot > slash ? dot : image + strlen(image)) - image);
    if (!at) return kolo_format("%.*s.txt", end, image);
    return kolo_format("%.*s/labels/%.*s.txt", (int)(at - image), image, end - (int)(at - image) - 8, at + 8);
}

static int parse_numbers(const text_rows *rows, char *const *fields, int n, double *numbers)
{
    for (int i = 1; i < n; i++) {
        double v;
        if (!text_number(fields[i], &v)) return text_fail(rows, "`%.40s` is no number", fields[i]);
        if (v < 0 || v > 1)
            return text_fail(
                rows, "%.40s is outside of 0 .. 1; coordinates are parts of the image's width and height",
                fields[i]);
        numbers[i - 1] = v;
    }
    return 0;
}

static void polygon_box(const double *points, int count, double box[4])
{
    double low[2] = {points[0], points[1]}, high[2] = {points[0], points[1]};
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 2; k++) {
            const double v = points[2 * i + k];
            low[k] = v < low[k] ? v : low[k], high[k] = v > high[k] ? v : high[k];
        }
    for (int k = 0; k < 2; k++) box[k] = (low[k] + high[k]) / 2, box[k + 2] = high[k] - low[k];
}

static int parse_row(const yolo *y, const text_rows *rows, int n, double numbers[MOST_FIELDS], double box[4],
                     int64_t *class)
{
    double number;
    if (n != 5 && (n < 7 || n % 2 == 0 || n > MOST_FIELDS))
        return text_fail(rows, "%d columns; a box has 5 (class xc yc w h), a polygon 7, 9, ...", n);
    if (!text_number(y->fields[0], &number) || fabs(number) > 1e9 || number != floor(number))
        return text_fail(rows, "`%.40s` is no class number", y->fields[0]);
    *class = yolo_config_class(&y->config, (int64_t)number);
    if (*class < 0)
        return text_fail(rows, "class %.40s, but `names` has the numbers %lld to %lld", y->fields[0],
                         (long long)y->config.ids[0], (long long)y->config.ids[y->config.classes.count - 1]);
    KOLO_TRY(parse_numbers(rows, y->fields, n, numbers));
    if (n == 5) memcpy(box, numbers, 4 * sizeof *box);
    else polygon_box(numbers, (n - 1) / 2, box);
    return box[2] > 0 && box[3] > 0
               ? 0
               : text_fail(rows, "a box without area: width %g, height %g", box[2], box[3]);
}

/* 1: this image has had the same box before. */
static int is_duplicate(name_table *seen, const double box[4], int64_t class)
{
    char text[160];
    int64_t number;
    const int64_t before = seen->count;
    snprintf(text, sizeof text, "%lld %a %a %a %a", (long long)class, box[0], box[1], box[2], box[3]);
    KOLO_TRY(names_add(seen, text, &number));
    return number < before;
}

typedef struct label_file { /* of the image added last */
    source *s;
    yolo *y;
    double *numbers;
    name_table seen;
} label_file;

static int add_row(void *of, const text_rows *rows, char *line)
{
    label_file *f = of;
    double box[4];
    int64_t class = 0;
    const int n = text_words(line, f->y->fields, MOST_FIELDS);
    if (n == 0) return 0;
    int rc = parse_row(f->y, rows, n, f->numbers, box, &class);
    if (rc < 0) return source_fault(f->s, rc);
    rc = is_duplicate(&f->seen, box, class);
    if (rc == 0) return source_add_box(f->s, f->s->count - 1, box, f->y->label[class], 0, -1, -1);
    f->y->duplicates += rc > 0;
    return rc < 0 ? rc : 0;
}

static int read_labels(source *s, yolo *y, const char *path, double *numbers)
{
    label_file f = {.s = s, .y = y, .numbers = numbers};
    const int rc = text_each(path, add_row, &f);
    names_free(&f.seen);
    return rc;
}

static int add_image(source *s, yolo *y, const char *image, double *numbers)
{
    KOLO_TRY(source_add(s, SOURCE_UNLABELLED, s->root ? image + strlen(s->root) + 1 : image, -1));
    char *path = label_path(image);
    if (!path) return KOLO_ENOMEM;
    const bool is_there = kolo_file_exists(path);
    y->label_files += is_there;
    int rc = is_there ? read_labels(s, y, path, numbers) : 0;
    free(path);
    return rc;
}

static int add_all(source *s, yolo *y)
{
    const kolo_folder_names *n = &y->images;
    const size_t length = strlen(y->root);
    bool below = true;
    for (int64_t i = 0; i < n->count; i++)
        below &= strncmp(n->list[i], y->root, length) == 0 && n->list[i][length] == '/';
    if (below && !(s->root = kolo_strdup(y->root))) return KOLO_ENOMEM;
    double *numbers = kolo_alloc(sizeof *numbers * MOST_FIELDS);
    y->fields = kolo_alloc(sizeof *y->fields * MOST_FIELDS);
    y->label = kolo_alloc(sizeof *y->label * (size_t)y->config.classes.count);
    int rc = numbers && y->fields && y->label ? 0 : KOLO_ENOMEM;
    for (int64_t c = 0; c < y->config.classes.count && rc == 0; c++)
        rc = source_find_class(s, y->config.classes.list[c], y->config.ids[c], &y->label[c]);
    for (int64_t i = 0; i < n->count && rc == 0; i++) rc = add_image(s, y, n->list[i], numbers);
    free(numbers);
    return rc;
}

static int check_found(const yolo *y, const pack_options *o)
{
    const kolo_folder_names *n = &y->images;
    if (n->count == 0)
        return kolo_fail(KOLO_EINPUT, "%s: no images in `%s`", y->root, y->config.parts.list[0]);
    if (y->label_files) {
        if (y->duplicates)
            kolo_log0(KOLO_LOG_WARN, "%lld rows that repeat another of the same image were left out",
                      (long long)y->duplicates);
        return 0;
    }
    char *path = label_path(n->list[0]);
    int rc = kolo_fail(KOLO_EINPUT, "%s: no labels for any image of --split %s; %s was looked for", y->root,
                       o->split, path ? path : "");
    free(path);
    return rc;
}

static int open_yolo(source *s, const pack_options *o)
{
    yolo y = {0};
    s->box_form = SOURCE_BOX_CXCYWH;
    int rc = read_config(&y, o);
    for (int64_t i = 0; i < y.config.parts.count && rc == 0; i++) rc = add_part(&y, y.config.parts.list[i]);
    if (rc == 0) rc = add_all(s, &y);
    if (rc == 0) rc = check_found(&y, o);
    yolo_config_free(&y.config);
    kolo_folder_free(&y.images);
    free(y.root);
    free(y.label);
    free(y.fields);
    return rc;
}

const source_kind source_yolo = {
    .name = "yolo-txt",
    .help = "YOLO: data.yaml or its folder, images in images/, boxes in labels/*.txt",
    .annotations = "data.yaml [the one in PATH]; its paths are then below PATH",
    .open = open_yolo};
