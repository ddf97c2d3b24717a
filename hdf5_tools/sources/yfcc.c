/* YFCC100M: rows of metadata (yfcc100m_dataset, 23 or 25 columns) and those of its photos that are there. The
 * tags that people gave become tags of the samples; where a file of autotags (id TAB tag:score,...) is given,
 * it has them instead, with their scores.
 *
 * A photo is looked for as abc/def/abcdef....jpg by its hash (as Multimedia Commons keeps them), by
 * its hash, by its id, and by the name in its URL; the first way that finds one is taken for all.
 * Videos are passed over. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "readers/text_rows.h"
#include "sources/names.h"
#include "sources/options.h"

#define MOST_CLASSES 100000
#define COLUMNS 25 /* with row number and hash, which the first edition lacks */

enum column { ID = 1, HASH = 2, USER_TAGS = 10, URL = 16, MARKER = 24 };

typedef struct yfcc_tag {
    int64_t sample, name;
    float value;
} yfcc_tag;

typedef struct yfcc {
    name_table names, ids; /* ids: of the photos that are there, in the order of the samples */
    int64_t *last_sample;  /* [names] 1 + the last one that has this tag */
    yfcc_tag *tag;         /* classes are known when the last has been read */
    int64_t tags, capacity, room, rows, absent, videos;
    int way; /* how photos are found; -1: not known yet */
    bool has_autotags;
} yfcc;

/* ---- photos -------------------------------------------------------------------------------------------- */

enum { WAY_HASHED, WAY_HASH, WAY_ID, WAY_URL, WAYS };

/* NULL: the row does not have what this way needs. Caller frees. */
static char *photo_path(char *const *fields, int way)
{
    const char *hash = fields[HASH], *slash = strrchr(fields[URL], '/');
    switch (way) {
    case WAY_HASHED: return strlen(hash) > 6 ? kolo_format("%.3s/%.3s/%s.jpg", hash, hash + 3, hash) : NULL;
    case WAY_HASH: return *hash ? kolo_format("%s.jpg", hash) : NULL;
    case WAY_ID: return kolo_format("%s.jpg", fields[ID]);
    default: return slash && slash[1] ? kolo_strdup(slash + 1) : NULL;
    }
}

/* 1 and the photo's path below the root, 0: it is not there. */
static int find_photo(const source *s, yfcc *y, char *const *fields, char **path)
{
    const int first = y->way < 0 ? 0 : y->way, last = y->way < 0 ? WAYS - 1 : y->way;
    for (int way = first; way <= last; way++) {
        *path = photo_path(fields, way);
        char *full = *path ? kolo_format("%s/%s", s->root, *path) : NULL;
        const bool is_there = full && kolo_file_exists(full);
        free(full);
        if (is_there) {
            y->way = way;
            return 1;
        }
        free(*path);
        *path = NULL;
    }
    return 0;
}

/* ---- tags ---------------------------------------------------------------------------------------------- */

/* "new+york%2C" as in a URL, in place; control characters become blanks. */
static void decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        unsigned c = (uint8_t)*from;
        if (c == '+') c = ' ';
        else if (c == '%' && isxdigit((uint8_t)from[1]) && isxdigit((uint8_t)from[2])) {
            const char hex[3] = {from[1], from[2], 0};
            c = (unsigned)strtoul(hex, NULL, 16);
            from += 2;
        }
        *to++ = (char)(c < 32 ? ' ' : c);
    }
    *to = 0;
}

static int add_tag(yfcc *y, int64_t sample, char *text, double value)
{
    int64_t name;
    decode(text);
    if (!*text) return 0;
    KOLO_TRY(names_add(&y->names, text, &name));
    KOLO_TRY(kolo_grow(&y->last_sample, &y->room, name, sizeof *y->last_sample));
    if (y->last_sample[name] == sample + 1) return 0;
    y->last_sample[name] = sample + 1;
    KOLO_TRY(kolo_grow(&y->tag, &y->capacity, y->tags, sizeof *y->tag));
    y->tag[y->tags++] = (yfcc_tag){sample, name, (float)value};
    return 0;
}

static int add_user_tags(yfcc *y, int64_t sample, char *list)
{
    for (char *end; *list; list = end) {
        end = list + strcspn(list, ",");
        if (*end) *end++ = 0;
        KOLO_TRY(add_tag(y, sample, list, 1));
    }
    return 0;
}

/* "people:0.876,portrait:0.61" */
static int add_autotags(yfcc *y, const text_rows *rows, int64_t sample, char *list)
{
    for (char *end; *list; list = end) {
        double score;
        end = list + strcspn(list, ",");
        if (*end) *end++ = 0;
        char *colon = strrchr(list, ':');
        if (!colon || !text_number(colon + 1, &score) || score < 0 || score > 1)
            return text_fail(rows, "`%.60s` where tag:score is expected", list);
        *colon = 0;
        KOLO_TRY(add_tag(y, sample, list, score));
    }
    return 0;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static int add_row(source *s, yfcc *y, const text_rows *rows, char **fields)
{
    int64_t id, number;
    char *path;
    if (!text_integer(fields[ID], &id) || id < 0)
        return text_fail(rows, "`%.40s` is no number of a photo", fields[ID]);
    if (strcmp(fields[MARKER], "0") != 0 && strcmp(fields[MARKER], "1") != 0)
        return text_fail(rows, "`%.40s` in the last column, where 0 (photo) or 1 (video) is expected",
                         fields[MARKER]);
    y->rows++;
    if (fields[MARKER][0] == '1') return y->videos++, 0;
    const int rc = find_photo(s, y, fields, &path);
    if (rc <= 0) return y->absent += rc == 0, rc;
    int added = names_add(&y->ids, fields[ID], &number);
    if (added == 0 && number != s->count) added = text_fail(rows, "photo %s for the second time", fields[ID]);
    if (added == 0) added = source_add(s, SOURCE_UNLABELLED, path, -1);
    free(path);
    if (added < 0) return added;
    source_set_id(s, number, id);
    return y->has_autotags ? 0 : add_user_tags(y, number, fields[USER_TAGS]);
}

static int add_autotag_row(yfcc *y, const text_rows *rows, char *const *fields)
{
    const int64_t sample = names_find(&y->ids, fields[0]);
    return sample < 0 ? 0 : add_autotags(y, rows, sample, fields[1]);
}

/* Of 25 columns; of 23, which lack row number and hash; or of the 2 of autotags. */
typedef struct yfcc_file {
    source *s;
    yfcc *y;
    bool autotags;
} yfcc_file;

static int parse_line(const yfcc_file *f, const text_rows *rows, char *line)
{
    static char empty[1];
    char *fields[COLUMNS + 2];
    const int n = text_split(line, '\t', fields + 2, COLUMNS);
    if (f->autotags && n == 2) return add_autotag_row(f->y, rows, fields + 2);
    if (!f->autotags && n == COLUMNS) return add_row(f->s, f->y, rows, fields + 2);
    if (f->autotags || n != COLUMNS - 2)
        return text_fail(rows, "%d columns; metadata has 23 or 25, autotags 2", n);
    fields[ID] = fields[2];
    fields[0] = fields[HASH] = empty;
    return add_row(f->s, f->y, rows, fields);
}

static int read_line(void *of, const text_rows *rows, char *line)
{
    const yfcc_file *f = of;
    const int rc = parse_line(f, rows, line);
    return rc < 0 ? source_fault(f->s, rc) : 0;
}

static int read_file(source *s, yfcc *y, const char *path, bool autotags)
{
    return text_each(path, read_line, &(yfcc_file){s, y, autotags});
}

/* Autotags have two columns in their first line. */
static int is_autotags(const char *path, bool *autotags)
{
    text_rows rows;
    char *line, *fields[2];
    KOLO_TRY(text_open(&rows, path));
    const int rc = text_next(&rows, &line);
    *autotags = rc > 0 && text_split(line, '\t', fields, 2) == 2;
    text_close(&rows);
    return rc < 0 ? rc : 0;
}

static int read_files(source *s, yfcc *y, const pack_options *o)
{
    bool autotags[PACK_MOST_INPUTS];
    for (int i = 0; i < o->annotation_count; i++) {
        KOLO_TRY(is_autotags(o->annotations[i], &autotags[i]));
        y->has_autotags |= autotags[i];
    }
    for (int i = 0; i < o->annotation_count; i++)
        if (!autotags[i]) KOLO_TRY(read_file(s, y, o->annotations[i], false));
    for (int i = 0; i < o->annotation_count; i++)
        if (autotags[i]) KOLO_TRY(read_file(s, y, o->annotations[i], true));
    return 0;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static int check_found(const source *s, const yfcc *y, const pack_options *o)
{
    if (y->rows == 0) return kolo_fail(KOLO_EINPUT, "no metadata in the files that --annotations names");
    if (s->count == 0)
        return kolo_fail(
            KOLO_EINPUT,
            "%s: none of %lld photos of the metadata is there, by hash (abc/def/abcdef....jpg or "
            "abcdef....jpg), id, or the name in its URL",
            s->root, (long long)(y->rows - y->videos));
    if (y->absent || y->videos)
        kolo_log0(KOLO_LOG_WARN, "%lld photos of the metadata are not in %s; %lld videos were passed over",
                  (long long)y->absent, s->root, (long long)y->videos);
    if (y->names.count <= MOST_CLASSES || o->classes) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "%lld different tags; --classes FILE with those to keep, one a line, makes them classes",
                     (long long)y->names.count);
}

static int add_tags(source *s, const yfcc *y)
{
    int32_t *label = NULL;
    int rc = names_to_sorted_classes(&y->names, s, &label);
    for (int64_t i = 0; i < y->tags && rc == 0; i++)
        rc = source_add_tag(s, y->tag[i].sample, label[y->tag[i].name], y->tag[i].value);
    free(label);
    return rc;
}

static int open_yfcc(source *s, const pack_options *o)
{
    yfcc y = {.way = -1};
    if (o->in_count != 1 || o->annotation_count == 0)
        return kolo_fail(KOLO_ECONFIG, "--source yfcc100m takes one --in folder of photos, and --annotations "
                                       "yfcc100m_dataset (uncompressed, or .gz)");
    s->root = kolo_strdup(o->in[0]);
    int rc = s->root ? read_files(s, &y, o) : KOLO_ENOMEM;
    if (rc == 0) rc = check_found(s, &y, o);
    if (rc == 0) rc = add_tags(s, &y);
    names_free(&y.names);
    names_free(&y.ids);
    free(y.tag);
    free(y.last_sample);
    return rc;
}

const source_kind source_yfcc = {
    .name = "yfcc100m",
    .help = "YFCC100M: photos and rows of metadata; their tags",
    .annotations = "yfcc100m_dataset*, and yfcc100m_autotags, whose tags are then taken instead",
    .open = open_yfcc};
