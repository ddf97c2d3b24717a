/* Labeled Faces in the Wild: folders People_Name/People_Name_0001.jpg, and files of pairs, each of which
 * becomes a set of pairs in the shards: pairsDevTrain.txt dev_train, pairsDevTest.txt dev_test,
 * pairs.txt (folds) view2.
 *
 * Pairs file: first line N (pairs of a kind), or F TAB N (folds); then, fold by fold, N lines `name TAB i TAB
 * j` of one person and N lines `name TAB i TAB name TAB j` of two. */
#include <ctype.h>
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

#define FULL_IMAGES 13233 /* of the published set, of each of its alignments too */
#define FULL_PEOPLE 5749
#define MOST_FOLDS 1000

typedef struct lfw {
    name_table images; /* "Name_0001" -> sample */
} lfw;

/* ---- images ------------------------------------------------------------------------------------------ */

/* Person_NNNN.ending in the folder Person: the name without its ending, in `stem`. */
static bool image_stem(const char *person, const char *file, char *stem, size_t size)
{
    const size_t length = strlen(person);
    const char *dot = strrchr(file, '.');
    int64_t number;
    if (!dot || (size_t)(dot - file) >= size || strncmp(file, person, length) != 0 || file[length] != '_')
        return false;
    memcpy(stem, file, (size_t)(dot - file));
    stem[dot - file] = 0;
    return isdigit((unsigned char)stem[length + 1]) && text_integer(stem + length + 1, &number);
}

static int add_image(source *s, lfw *l, int32_t label, const char *person, const char *file)
{
    char stem[256];
    int64_t number;
    if (!kolo_folder_is_image(file)) return 0;
    if (!image_stem(person, file, stem, sizeof stem))
        return source_fault(s, kolo_fail(KOLO_EINPUT,
                                         "%s/%s/%s: the name is not %s_NNNN.jpg, as its folder asks for",
                                         s->root, person, file, person));
    KOLO_TRY(names_add(&l->images, stem, &number));
    if (number != s->count)
        return kolo_fail(KOLO_EINPUT, "%s/%s/%s: a second image of this name", s->root, person, file);
    char *path = kolo_format("%s/%s", person, file);
    int rc = path ? source_add(s, label, path, -1) : KOLO_ENOMEM;
    free(path);
    return rc;
}

/* Of one with fewer images than min_faces they are listed too, since pairs may name them, but left out. */
static int add_person(source *s, lfw *l, const char *person, int64_t min_faces)
{
    kolo_folder_names files = {0};
    int32_t label = 0;
    int rc = 0;
    char *folder = kolo_folder_below(s->root, person, &rc);
    if (!folder) return rc;
    const int64_t before = s->count;
    int64_t images = 0;
    rc = kolo_folder_list(folder, &files);
    for (int64_t i = 0; i < files.count; i++) images += kolo_folder_is_image(files.list[i]);
    if (rc == 0 && images < min_faces) label = SOURCE_LEFT_OUT;
    else if (rc == 0) rc = source_find_class(s, person, -1, &label);
    for (int64_t i = 0; i < files.count && rc == 0; i++) rc = add_image(s, l, label, person, files.list[i]);
    if (rc == 0 && s->count == before)
        rc = kolo_fail(KOLO_EINPUT,
                       "%s: a person without images; --in is the folder with a folder for each person",
                       folder);
    kolo_folder_free(&files);
    free(folder);
    return rc;
}

static int add_people(source *s, lfw *l, int64_t min_faces)
{
    kolo_folder_names people;
    KOLO_TRY(kolo_folder_list(s->root, &people));
    int rc = 0;
    for (int64_t i = 0; i < people.count && rc == 0; i++) rc = add_person(s, l, people.list[i], min_faces);
    kolo_folder_free(&people);
    if (rc == 0 && s->count == 0)
        rc = kolo_fail(KOLO_EINPUT, "%s: no folders of people; %s/Name/Name_0001.jpg is expected", s->root,
                       s->root);
    return rc;
}

/* A set that is nearly the published one is meant to be that. */
static int check_full(source *s)
{
    if (s->classes < FULL_PEOPLE - 50 || (s->classes == FULL_PEOPLE && s->count == FULL_IMAGES)) return 0;
    return source_fault(s, kolo_fail(KOLO_EINPUT,
                                     "%s: %lld images of %d people, the published set has %d of %d; "
                                     "fetch it again",
                                     s->root, (long long)s->count, s->classes, FULL_IMAGES, FULL_PEOPLE));
}

/* ---- pairs --------------------------------------------------------------------------------------------- */

/* Sample of image `number` of a person. */
static int find_image(const lfw *l, const text_rows *rows, const char *person, const char *number,
                      int64_t *sample)
{
    char stem[256];
    int64_t n;
    if (!text_integer(number, &n) || n < 1 || n > 9999)
        return text_fail(rows, "`%.40s` is no number of an image", number);
    snprintf(stem, sizeof stem, "%.200s_%04d", person, (int)n);
    *sample = names_find(&l->images, stem);
    return *sample >= 0 ? 0 : text_fail(rows, "there is no image %s", stem);
}

static int add_pair(source *s, lfw *l, const text_rows *rows, const char *set, char **fields, int n,
                    bool same, int fold)
{
    int64_t a = 0, b = 0;
    if (n != (same ? 3 : 4))
        return source_fault(s, text_fail(rows, "%d columns, a pair of %s has %d", n,
                                         same ? "one person" : "two people", same ? 3 : 4));
    int rc = find_image(l, rows, fields[0], fields[1], &a);
    if (rc == 0) rc = find_image(l, rows, fields[same ? 0 : 2], fields[same ? 2 : 3], &b);
    if (rc == 0 && !same && strcmp(fields[0], fields[2]) == 0)
        rc = text_fail(rows, "a pair of two people names %s twice", fields[0]);
    if (rc < 0) return source_fault(s, rc);
    return source_add_pair(s, set, a, b, same, fold);
}

/* "10 300" or "1100": folds and pairs of a kind in each. */
static int read_head(text_rows *rows, int64_t *folds, int64_t *pairs)
{
    char *line, *fields[2];
    const int rc = text_next(rows, &line), n = rc > 0 ? text_words(line, fields, 2) : 0;
    *folds = 1;
    if (rc < 0) return rc;
    if ((n == 1 || n == 2) && (n == 1 || text_integer(fields[0], folds)) &&
        text_integer(fields[n - 1], pairs) && *folds >= 1 && *folds <= MOST_FOLDS && *pairs >= 1 &&
        *pairs <= INT32_MAX)
        return n;
    return text_fail(rows, "the first line of a pairs file is `PAIRS` or `FOLDS PAIRS`");
}

static const char *set_name(const char *path, bool has_folds)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    if (has_folds) return "view2";
    return strstr(file, "DevTrain") ? "dev_train" : strstr(file, "DevTest") ? "dev_test" : NULL;
}

static int read_pairs(source *s, lfw *l, const char *path)
{
    text_rows rows;
    int64_t folds, pairs, read = 0;
    char *line, *fields[4];
    KOLO_TRY(text_open(&rows, path));
    int rc = read_head(&rows, &folds, &pairs);
    const char *set = rc > 0 ? set_name(path, rc == 2) : NULL;
    if (rc > 0 && !set)
        rc = kolo_fail(KOLO_EINPUT, "%s: its name has neither DevTrain nor DevTest, and there are no folds",
                       path);
    for (int i = 0; rc >= 0 && i < s->pair_sets; i++)
        if (strcmp(s->pair_set_names[i], set) == 0)
            rc = kolo_fail(KOLO_EINPUT, "%s: pairs %s are given twice", path, set);
    while (rc >= 0 && (rc = text_next(&rows, &line)) > 0) {
        if (!*line) continue;
        const int64_t at = read++ % (2 * pairs), fold = (read - 1) / (2 * pairs);
        const int n = text_split(line, '\t', fields, 4);
        rc = fold < folds ? add_pair(s, l, &rows, set, fields, n, at < pairs, (int)fold)
                          : text_fail(&rows, "more pairs than the first line says");
    }
    text_close(&rows);
    if (rc == 0 && read != folds * 2 * pairs)
        rc = kolo_fail(KOLO_EINPUT, "%s: %lld pairs, the first line promises %lld; it is cut off", path,
                       (long long)read, (long long)(folds * 2 * pairs));
    return rc;
}

/* ---- where things are ---------------------------------------------------------------------------------- */

/* PATH itself, or the folder of people that is usual below it. */
static int find_root(source *s, const pack_options *o)
{
    static const char *const usual[] = {"lfw", "lfw_funneled", "lfw-funneled", "lfw-deepfunneled",
                                        "lfw_deepfunneled"};
    int rc = 0;
    if (o->in_count != 1)
        return kolo_fail(KOLO_ECONFIG, "--source lfw takes one --in folder, %d are given", o->in_count);
    for (int i = 0; i < 5 && rc == 0; i++) {
        char *found = kolo_folder_below(o->in[0], usual[i], &rc);
        if (found && s->root)
            rc = kolo_fail(KOLO_EINPUT, "both %s and %s are there; give one of them as --in", s->root, found);
        if (found && !s->root) s->root = found;
        else free(found);
    }
    if (rc < 0 || s->root) return rc;
    s->root = kolo_strdup(o->in[0]);
    return s->root ? 0 : KOLO_ENOMEM;
}

/* The files that --annotations names; else those of the usual names beside the folder of people. */
static int read_all_pairs(source *s, lfw *l, const pack_options *o)
{
    static const char *const usual[] = {"pairsDevTrain.txt", "pairsDevTest.txt", "pairs.txt"};
    int rc = 0;
    for (int i = 0; i < o->annotation_count && rc == 0; i++) rc = read_pairs(s, l, o->annotations[i]);
    for (int i = 0; i < 3 && rc == 0 && o->annotation_count == 0; i++) {
        char *path = kolo_format("%s/%s", o->in[0], usual[i]);
        if (!path) rc = KOLO_ENOMEM;
        else if (kolo_file_exists(path)) rc = read_pairs(s, l, path);
        free(path);
    }
    if (rc == 0 && s->pairs == 0)
        kolo_log0(KOLO_LOG_WARN,
                  "%s: no pairs; --annotations pairs.txt names them where verification is wanted", s->root);
    return rc;
}

static int open_lfw(source *s, const pack_options *o)
{
    lfw l = {0};
    int rc = find_root(s, o);
    if (rc == 0) rc = add_people(s, &l, o->min_faces);
    if (rc == 0) rc = check_full(s);
    if (rc == 0) rc = read_all_pairs(s, &l, o);
    names_free(&l.images);
    return rc;
}

const source_kind source_lfw = {
    .name = "lfw",
    .help = "Labeled Faces in the Wild: PATH/Name/Name_0001.jpg, and files of pairs",
    .annotations = "pairs.txt, pairsDevTrain.txt, pairsDevTest.txt [those in PATH]",
    .people = true,
    .open = open_lfw};
