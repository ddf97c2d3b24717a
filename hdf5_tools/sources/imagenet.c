/* ImageNet (ILSVRC 2012) as it is distributed: ILSVRC2012_img_train.tar, a tar of a tar for each class, and
 * ILSVRC2012_img_val.tar, flat. Only headers are read; a sample is a range of the tar. Classes are synsets
 * (n01440764) in byte order, as everybody has them.
 *
 * Labels of the validation images are not in their tar. --annotations takes what says them:
 *   a map           lines `image synset`, also with commas and a heading (LOC_val_solution.csv)
 *   the ground truth of the development kit, 50,000 lines of ILSVRC2012_ID, together with a table of lines
 *                   `ILSVRC2012_ID synset ...`, since these IDs are in no order of the synsets
 * Images named n01440764_..., or in folders of synsets, need neither. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "readers/tar_stream.h"
#include "readers/text_rows.h"
#include "sources/names.h"
#include "sources/options.h"

#define CLASSES 1000
#define TRAIN_IMAGES 1281167
#define VAL_IMAGES 50000

typedef struct imagenet {
    name_table synsets, images; /* images: of the map, "ILSVRC2012_val_00000001" */
    int32_t *image_synset;      /* [images] */
    int64_t images_room;
    int32_t truth[VAL_IMAGES];  /* ILSVRC2012_ID of image i + 1 */
    int32_t of_id[CLASSES + 1]; /* 1 + synset of an ILSVRC2012_ID; 0: unknown */
    int64_t truths, ids;
} imagenet;

/* ---- labels -------------------------------------------------------------------------------------------- */

/* n and eight digits, and no digit after them. */
static bool is_synset(const char *text) { return text[0] == 'n' && strspn(text + 1, "0123456789") == 8; }

/* text begins with a synset. */
static int add_synset(imagenet *n, const char *text, int32_t *number)
{
    char name[10];
    int64_t found;
    memcpy(name, text, 9);
    name[9] = 0;
    KOLO_TRY(names_add(&n->synsets, name, &found));
    *number = (int32_t)found;
    return 0;
}

static int add_truth(imagenet *n, const text_rows *rows, const char *text)
{
    int64_t id;
    if (!text_integer(text, &id) || id < 1 || id > CLASSES)
        return text_fail(rows, "`%.40s` is no ILSVRC2012_ID from 1 to %d", text, CLASSES);
    if (n->truths == VAL_IMAGES) return text_fail(rows, "more than %d lines", VAL_IMAGES);
    n->truth[n->truths++] = (int32_t)id;
    return 0;
}

/* ID and synset. The development kit's table also has inner synsets, above 1000, which label no image. */
static int add_id(imagenet *n, const text_rows *rows, const char *id_text, const char *synset)
{
    int64_t id;
    int32_t number;
    if (!text_integer(id_text, &id) || id < 1) return text_fail(rows, "`%.40s` is no ILSVRC2012_ID", id_text);
    if (id > CLASSES) return 0;
    KOLO_TRY(add_synset(n, synset, &number));
    if (n->of_id[id] && n->of_id[id] != number + 1)
        return text_fail(rows, "ILSVRC2012_ID %lld has two synsets", (long long)id);
    n->ids += n->of_id[id] == 0;
    n->of_id[id] = number + 1;
    return 0;
}

/* File name without folder and ending. */
static void stem_of(const char *path, char *stem, size_t size)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path, *dot = strrchr(file, '.');
    snprintf(stem, size, "%.*s", (int)(dot ? dot - file : (ptrdiff_t)strlen(file)), file);
}

static int add_mapped(imagenet *n, const text_rows *rows, const char *image, const char *synset)
{
    char stem[256];
    int64_t at;
    int32_t number;
    stem_of(image, stem, sizeof stem);
    const int64_t before = n->images.count;
    KOLO_TRY(add_synset(n, synset, &number));
    KOLO_TRY(names_add(&n->images, stem, &at));
    KOLO_TRY(kolo_grow(&n->image_synset, &n->images_room, at, sizeof *n->image_synset));
    if (at < before && n->image_synset[at] != number) return text_fail(rows, "%s has two synsets", stem);
    n->image_synset[at] = number;
    return 0;
}

static int parse_line(void *of, const text_rows *rows, char *line)
{
    imagenet *n = of;
    char *fields[2];
    for (char *c = line; *c; c++)
        if (*c == ',') *c = ' ';
    const int count = text_words(line, fields, 2);
    if (count == 0 || (rows->line == 1 && text_begins(fields[0], "ImageId"))) return 0;
    int64_t number;
    if (count == 1 && text_integer(fields[0], &number)) return add_truth(n, rows, fields[0]);
    if (count == 1 && is_synset(fields[0]))
        return text_fail(
            rows,
            "a list of synsets alone; without their ILSVRC2012_ID it does not tell which ID is which, for "
            "the IDs of the ground truth are not in the order of the synsets");
    if (count > 1 && is_synset(fields[1]))
        return text_integer(fields[0], &number) ? add_id(n, rows, fields[0], fields[1])
                                                : add_mapped(n, rows, fields[0], fields[1]);
    return text_fail(
        rows,
        "neither `image synset`, nor `ILSVRC2012_ID synset`, nor an ILSVRC2012_ID; numbers do not tell a "
        "class here, for there are several orders of them");
}

static int check_annotations(const imagenet *n)
{
    if (n->truths && n->truths != VAL_IMAGES)
        return kolo_fail(KOLO_EINPUT, "the ground truth has %lld lines, not %d; is the file whole?",
                         (long long)n->truths, VAL_IMAGES);
    if (n->truths && n->ids != CLASSES)
        return kolo_fail(
            KOLO_EINPUT,
            "the ground truth is in ILSVRC2012_IDs, of which %lld of %d have a synset; --annotations "
            "with a table `ILSVRC2012_ID synset` (of the development kit's meta.mat) gives them, or a "
            "map `image synset` all labels",
            (long long)n->ids, CLASSES);
    return 0;
}

/* The synset of a validation image. */
static int find_synset(imagenet *n, const char *path, int32_t *number)
{
    char stem[256], *digits;
    int64_t index;
    stem_of(path, stem, sizeof stem);
    const int64_t at = names_find(&n->images, stem);
    if (at >= 0) return *number = n->image_synset[at], 0;
    digits = strrchr(stem, '_');
    if (n->truths && text_begins(stem, "ILSVRC2012_val_") && text_integer(digits + 1, &index) && index >= 1 &&
        index <= n->truths)
        return *number = n->of_id[n->truth[index - 1]] - 1, 0;
    /* a folder, or what the name begins with */
    for (const char *p = path; p; p = (p = strchr(p, '/')) ? p + 1 : NULL)
        if (is_synset(p) && strchr("/_.", p[9])) return add_synset(n, p, number);
    return kolo_fail(
        KOLO_EINPUT,
        "%s: no label; --annotations takes a map `image synset`, or the ground truth and a table "
        "`ILSVRC2012_ID synset`",
        path);
}

/* ---- tar files ----------------------------------------------------------------------------------------- */

static int add_member(source *s, imagenet *n, const tar_stream *t, const tar_member *m, int archive,
                      int32_t synset)
{
    int rc = 0;
    if (!kolo_folder_is_image(m->path) && !m->is_link) return 0;
    if (m->is_link) rc = tar_refuse_link(t, m);
    else if (synset < 0 && (rc = find_synset(n, m->path, &synset)) < 0) kolo_fail_in(rc, "%s:", t->path);
    if (rc < 0) return source_fault(s, rc);
    return source_add_range(s, synset, m->path, archive, m->offset, m->bytes);
}

static int add_members(source *s, imagenet *n, tar_stream *t, int archive, int32_t synset)
{
    tar_member m;
    int rc;
    while ((rc = tar_next(t, &m)) > 0) KOLO_TRY(add_member(s, n, t, &m, archive, synset));
    return rc;
}

/* Class of "n01440764.tar"; -1: another name. */
static int class_tar(imagenet *n, const char *path, int32_t *synset)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    *synset = -1;
    if (!is_synset(file) || strcmp(file + 9, ".tar") != 0) return 0;
    return add_synset(n, file, synset);
}

/* A tar of class tars, or of images. */
static int read_outer(source *s, imagenet *n, const char *path)
{
    tar_stream outer, inner;
    tar_member m;
    int32_t synset = -1;
    int archive = 0;
    KOLO_TRY(tar_open(&outer, path));
    int rc = source_add_archive(s, path, &archive);
    if (rc == 0) rc = class_tar(n, path, &synset);
    const int32_t own = synset; /* of a class tar that lies alone */
    while (rc >= 0 && (rc = tar_next(&outer, &m)) > 0) {
        rc = class_tar(n, m.path, &synset);
        if (rc < 0) break;
        if (synset < 0) rc = add_member(s, n, &outer, &m, archive, own);
        else if ((rc = tar_open_member(&inner, &outer, &m)) == 0) {
            rc = add_members(s, n, &inner, archive, synset);
            tar_close(&inner);
        }
    }
    tar_close(&outer);
    return rc;
}

/* The tar of the split in a folder, or class tars. */
static int read_folder(source *s, imagenet *n, const pack_options *o, const char *folder)
{
    kolo_folder_names list;
    const char *official =
        strcmp(o->split, "train") == 0 ? "ILSVRC2012_img_train.tar" : "ILSVRC2012_img_val.tar";
    char *path = kolo_format("%s/%s", folder, official), *classes = kolo_format("%s/n01440764", folder);
    int rc = path && classes ? 0 : KOLO_ENOMEM;
    const bool is_there = rc == 0 && kolo_file_exists(path);
    if (rc == 0 && kolo_folder_exists(classes))
        rc = kolo_fail(KOLO_EINPUT,
                       "%s holds folders of classes, not tar files: --source imagefolder packs them", folder);
    else if (is_there) rc = read_outer(s, n, path);
    free(path);
    free(classes);
    if (rc < 0 || is_there) return rc;
    KOLO_TRY(kolo_folder_list(folder, &list));
    for (int64_t i = 0; i < list.count && rc == 0; i++) {
        if (!is_synset(list.list[i]) || strcmp(list.list[i] + 9, ".tar") != 0) continue;
        path = kolo_format("%s/%s", folder, list.list[i]);
        rc = path ? read_outer(s, n, path) : KOLO_ENOMEM;
        free(path);
    }
    kolo_folder_free(&list);
    if (rc == 0 && s->count == 0)
        rc = kolo_fail(KOLO_EINPUT, "%s: neither %s nor tar files of classes (n01440764.tar)", folder,
                       official);
    return rc;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static int check_published(const source *s, const imagenet *n, const pack_options *o)
{
    const bool train = strcmp(o->split, "train") == 0;
    const int64_t want = train ? TRAIN_IMAGES : VAL_IMAGES;
    if (s->count == 0) return kolo_fail(KOLO_EINPUT, "%s: no images", o->in[0]);
    if (s->count == want && s->classes >= CLASSES) return 0;
    if (n->synsets.count >= CLASSES && s->count > want / 2)
        kolo_log0(KOLO_LOG_WARN, "%s: %lld images of %lld classes; the published %s has %lld of %d", o->in[0],
                  (long long)s->count, (long long)n->synsets.count, train ? "training set" : "validation set",
                  (long long)want, CLASSES);
    return 0;
}

static int open_imagenet(source *s, const pack_options *o)
{
    imagenet *n = kolo_alloc(sizeof *n);
    int32_t *label = NULL;
    int rc = n ? 0 : KOLO_ENOMEM;
    for (int i = 0; i < o->annotation_count && rc == 0; i++) rc = text_each(o->annotations[i], parse_line, n);
    if (rc == 0) rc = check_annotations(n);
    for (int i = 0; i < o->in_count && rc == 0; i++)
        rc = kolo_folder_exists(o->in[i]) ? read_folder(s, n, o, o->in[i]) : read_outer(s, n, o->in[i]);
    if (rc == 0) rc = names_to_sorted_classes(&n->synsets, s, &label);
    if (rc == 0) names_relabel(s, label);
    if (rc == 0) rc = check_published(s, n, o);
    if (n) {
        names_free(&n->synsets);
        names_free(&n->images);
        free(n->image_synset);
    }
    free(n);
    free(label);
    return rc;
}

const source_kind source_imagenet = {
    .name = "imagenet-tar",
    .help =
        "ImageNet: ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar, or their folder; nothing is unpacked",
    .annotations =
        "of the validation images: `image synset`; or the ground truth, and `ILSVRC2012_ID synset`",
    .open = open_imagenet};
