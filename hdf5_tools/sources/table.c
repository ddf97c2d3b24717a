/* A list of images: a text file of lines "path TAB label". Paths are absolute, or relative to the list's
 * folder. A label is a class name, or a number from 0; --annotations names the numbers, one a line. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "readers/text_rows.h"
#include "sources/names.h"
#include "sources/options.h"

typedef struct table {
    text_rows rows;
    name_table labels;
    char *folder; /* of the list */
    bool any_absolute;
} table;

/* 1: a line with a path and a label; 0: the end. Blank lines are passed over. */
static int next_row(table *t, source *s, char *fields[2])
{
    char *line;
    int rc;
    while ((rc = text_next(&t->rows, &line)) > 0) {
        if (!*line) continue;
        const int n = text_split(line, '\t', fields, 2);
        if (n == 2 && *fields[0] && *fields[1]) return 1;
        KOLO_TRY(source_fault(
            s, n == 2 ? text_fail(&t->rows, "the path or the label is empty")
                      : text_fail(&t->rows, "2 columns `path TAB label` are expected, this line has %d", n)));
    }
    return rc;
}

/* Can paths be kept as they are, below the list's folder? Errors are left to the second reading. */
static int look_for_absolute(table *t, const char *path)
{
    char *line;
    int rc = 0;
    KOLO_TRY(text_open(&t->rows, path));
    while (!t->any_absolute && (rc = text_next(&t->rows, &line)) > 0) t->any_absolute = *line == '/';
    text_close(&t->rows);
    return t->any_absolute ? 0 : rc;
}

static int add_row(table *t, source *s, char *const fields[2])
{
    int64_t number;
    KOLO_TRY(names_add(&t->labels, fields[1], &number));
    if (!t->any_absolute || fields[0][0] == '/') return source_add(s, (int32_t)number, fields[0], -1);
    char *path = kolo_format("%s/%s", t->folder, fields[0]);
    int rc = path ? source_add(s, (int32_t)number, path, -1) : KOLO_ENOMEM;
    free(path);
    return rc;
}

static int read_rows(table *t, source *s, const char *path)
{
    char *fields[2];
    int rc;
    const char *slash = strrchr(path, '/');
    t->folder = slash ? kolo_format("%.*s", slash == path ? 1 : (int)(slash - path), path) : kolo_strdup(".");
    if (!t->folder) return KOLO_ENOMEM;
    KOLO_TRY(look_for_absolute(t, path));
    if (!t->any_absolute && !(s->root = kolo_strdup(t->folder))) return KOLO_ENOMEM;
    KOLO_TRY(text_open(&t->rows, path));
    while ((rc = next_row(t, s, fields)) > 0) KOLO_TRY(add_row(t, s, fields));
    return rc;
}

static int open_table(source *s, const pack_options *o)
{
    table t = {0};
    int32_t *label = NULL;
    if (o->in_count != 1 || o->annotation_count > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "--source list takes one --in LIST, and one --annotations NAMES at most");
    int rc = read_rows(&t, s, o->in[0]);
    if (rc == 0 && s->count == 0) rc = kolo_fail(KOLO_EINPUT, "%s: no lines `path TAB label`", o->in[0]);
    if (rc == 0) rc = names_to_classes(&t.labels, s, o->annotation_count ? o->annotations[0] : NULL, &label);
    if (rc == 0) names_relabel(s, label);
    text_close(&t.rows);
    names_free(&t.labels);
    free(t.folder);
    free(label);
    return rc;
}

const source_kind source_table = {
    .name = "list",
    .help = "a text file of lines `path TAB label`; a label is a name, or a number from 0",
    .annotations = "the names of labels that are numbers, one a line",
    .open = open_table};
