/* WebDataset: tar files whose members come in groups of one name, "key.jpg", "key.cls" or "key.json": a
 * group is a sample. The key goes up to the first dot of the file's name. Images stay in their tar;
 * only labels are read. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "readers/json_stream.h"
#include "readers/tar_stream.h"
#include "readers/text_rows.h"
#include "sources/names.h"
#include "sources/options.h"

#define MOST_LABEL 4096      /* bytes of a .cls */
#define MOST_JSON (16 << 20) /* bytes of a .json */
#define MOST_BRACE 10000000  /* files of one {a..b} */

typedef struct webdataset {
    name_table labels;
    char key[TAR_MOST_PATH];
    tar_member image; /* of the group at hand; path empty: none yet */
    bool is_left_out;
    char label[MOST_LABEL]; /* "": none yet */
} webdataset;

/* ---- a group ------------------------------------------------------------------------------------------- */

static int add_group(source *s, webdataset *w, const tar_stream *t, int archive)
{
    int64_t number;
    if (w->image.path[0] == 0)
        return kolo_fail(KOLO_EINPUT, "%s:%s: a sample without an image", t->path, w->key);
    if (w->label[0] == 0)
        return kolo_fail(
            KOLO_EINPUT,
            "%s:%s: a sample without a label; a .cls, or a .json with `label` or `cls`, is expected", t->path,
            w->key);
    KOLO_TRY(names_add(&w->labels, w->label, &number));
    return source_add_range(s, (int32_t)number, w->image.path, archive, w->image.offset, w->image.bytes);
}

static int end_group(source *s, webdataset *w, const tar_stream *t, int archive)
{
    if (w->key[0] == 0 || w->is_left_out) return 0;
    int rc = add_group(s, w, t, archive);
    return rc < 0 ? source_fault(s, rc) : 0;
}

static void begin_group(webdataset *w, const char *path, size_t length)
{
    memcpy(w->key, path, length);
    w->key[length] = 0;
    w->image.path[0] = w->label[0] = 0;
    w->is_left_out = false;
}

static int set_label(webdataset *w, const tar_stream *t, const tar_member *m, const char *label)
{
    if (!*label || strlen(label) >= sizeof w->label || strchr(label, '\n'))
        return kolo_fail(KOLO_EINPUT, "%s:%s: no label, or not a single line", t->path, m->path);
    if (w->label[0] && strcmp(w->label, label) != 0)
        return kolo_fail(KOLO_EINPUT, "%s:%s: label `%.40s`, but another member of the sample says `%.40s`",
                         t->path, m->path, label, w->label);
    snprintf(w->label, sizeof w->label, "%s", label);
    return 0;
}

static int read_cls(webdataset *w, const tar_stream *t, const tar_member *m)
{
    char *text;
    KOLO_TRY(tar_read(t, m, MOST_LABEL, &text));
    char *from = text, *end = text + strlen(text);
    while (isspace((unsigned char)*from)) from++;
    while (end > from && isspace((unsigned char)end[-1])) *--end = 0;
    int rc = set_label(w, t, m, from);
    free(text);
    return rc;
}

/* The value of the first of these keys: {"label": 7}, {"cls": "dog"}. A file without them says
 * nothing of the class. */
static int read_json(webdataset *w, const tar_stream *t, const tar_member *m)
{
    json_stream j;
    const char *key, *text;
    char number[32], *path = kolo_format("%s:%s", t->path, m->path);
    int64_t value;
    if (!path) return KOLO_ENOMEM;
    int rc = m->bytes > MOST_JSON ? kolo_fail(KOLO_EINPUT, "%s: too large for a label", path)
                                  : json_open_part(&j, path, t->fd, m->offset, m->bytes);
    free(path);
    if (rc < 0) return rc;
    rc = json_object(&j);
    while (rc >= 0 && (rc = json_key(&j, &key)) > 0) {
        const bool wanted = strcmp(key, "label") == 0 || strcmp(key, "cls") == 0;
        const int kind = wanted ? json_peek(&j) : 0;
        if (kind < 0) rc = kind;
        else if (kind == '"') {
            rc = json_string(&j, &text);
            if (rc == 0) rc = set_label(w, t, m, text);
        } else if (kind == '0') {
            rc = json_integer(&j, &value);
            snprintf(number, sizeof number, "%lld", (long long)value);
            if (rc == 0) rc = set_label(w, t, m, number);
        } else rc = json_skip(&j);
    }
    if (rc == 0) rc = json_finish(&j);
    json_close(&j);
    return rc;
}

static int set_image(webdataset *w, const tar_stream *t, const tar_member *m)
{
    if (w->image.path[0])
        return kolo_fail(KOLO_EINPUT, "%s:%s: a second image of one sample, after %s", t->path, m->path,
                         w->image.path);
    w->image = *m;
    return 0;
}

/* Length of the key in a member's path. */
static size_t key_length(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    return (size_t)(file - path) + strcspn(file, ".");
}

static int add_member(webdataset *w, const tar_stream *t, const tar_member *m)
{
    const char *ending = m->path + key_length(m->path);
    if (m->is_link) return tar_refuse_link(t, m);
    if (strchr(ending + 1, '.')) return 0; /* key.mask.png is not the image itself */
    if (kolo_folder_is_image(ending)) return set_image(w, t, m);
    if (strcasecmp(ending, ".cls") == 0) return read_cls(w, t, m);
    if (strcasecmp(ending, ".json") == 0) return read_json(w, t, m);
    return 0; /* captions, features, ... */
}

static int read_tar(source *s, webdataset *w, const char *path)
{
    tar_stream t;
    tar_member m;
    int archive = 0;
    KOLO_TRY(tar_open(&t, path));
    int rc = source_add_archive(s, path, &archive);
    w->key[0] = 0;
    while (rc >= 0 && (rc = tar_next(&t, &m)) > 0) {
        const size_t length = key_length(m.path);
        /* no ending; hidden */
        if (m.path[length] != '.' || strstr(m.path, "/.") || m.path[0] == '.') continue;
        if (strlen(w->key) != length || memcmp(w->key, m.path, length) != 0) {
            rc = end_group(s, w, &t, archive);
            if (rc < 0) break;
            begin_group(w, m.path, length);
        }
        if (!w->is_left_out) rc = add_member(w, &t, &m);
        if (rc < 0) {
            w->is_left_out = true;
            rc = source_fault(s, rc);
        }
    }
    if (rc == 0) rc = end_group(s, w, &t, archive);
    tar_close(&t);
    return rc;
}

/* ---- files --------------------------------------------------------------------------------------------- */

static int read_folder(source *s, webdataset *w, const char *folder)
{
    kolo_folder_names n;
    KOLO_TRY(kolo_folder_list(folder, &n));
    int rc = 0, found = 0;
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        if (!text_ends(n.list[i], ".tar")) continue;
        char *path = kolo_format("%s/%s", folder, n.list[i]);
        rc = path ? read_tar(s, w, path) : KOLO_ENOMEM;
        free(path);
        found++;
    }
    kolo_folder_free(&n);
    return rc == 0 && !found ? kolo_fail(KOLO_EINPUT, "%s: no .tar files", folder) : rc;
}

/* "name-{000..012}.tar": all of them, with as many digits as are written. */
static int read_braces(source *s, webdataset *w, const char *text)
{
    const char *open = strchr(text, '{'), *dots = strstr(open, ".."), *close = strchr(open, '}');
    char *end;
    const long long low = strtoll(open + 1, &end, 10);
    const bool good = dots && close && end == dots && dots > open + 1;
    const long long high = good ? strtoll(dots + 2, &end, 10) : 0;
    if (!good || end != close || close == dots + 2 || low < 0 || high < low || high - low >= MOST_BRACE ||
        strchr(close, '{'))
        return kolo_fail(KOLO_ECONFIG, "--in %s: {FIRST..LAST} is expected, once", text);
    for (long long i = low; i <= high; i++) {
        char *path =
            kolo_format("%.*s%0*lld%s", (int)(open - text), text, (int)(dots - open) - 1, i, close + 1);
        int rc = path ? read_tar(s, w, path) : KOLO_ENOMEM;
        free(path);
        if (rc < 0) return rc;
    }
    return 0;
}

static int read_input(source *s, webdataset *w, const char *in)
{
    if (kolo_folder_exists(in)) return read_folder(s, w, in);
    return strchr(in, '{') ? read_braces(s, w, in) : read_tar(s, w, in);
}

static int open_webdataset(source *s, const pack_options *o)
{
    webdataset *w = kolo_alloc(sizeof *w);
    int32_t *label = NULL;
    int rc = w ? 0 : KOLO_ENOMEM;
    if (o->annotation_count > 1)
        rc = kolo_fail(KOLO_ECONFIG, "--source webdataset-tar takes one --annotations at most");
    for (int i = 0; i < o->in_count && rc == 0; i++) rc = read_input(s, w, o->in[i]);
    if (rc == 0 && s->count == 0) rc = kolo_fail(KOLO_EINPUT, "%s: no samples", o->in[0]);
    if (rc == 0) rc = names_to_classes(&w->labels, s, o->annotation_count ? o->annotations[0] : NULL, &label);
    if (rc == 0) names_relabel(s, label);
    if (w) names_free(&w->labels);
    free(w);
    free(label);
    return rc;
}

const source_kind source_webdataset = {.name = "webdataset-tar",
                                       .help = "WebDataset: .tar files, their folder, or name-{000..012}.tar",
                                       .annotations = "the names of labels that are numbers, one a line",
                                       .open = open_webdataset};
