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
    source *s;
    name_table labels;
    char *folder; /* of the list */
    bool any_absolute;
} table;

/* Can paths be kept as they are, below the list's folder? Errors are left to the second reading. */
static int look_for_absolute(table *t, const char *path)
{
    text_rows rows;
    char *line;
    int rc = 0;
    KOLO_TRY(text_open(&rows, path));
    while (!t->any_absolute && (rc = text_next(&rows, &line)) > 0) t->any_absolute = *line == '/';
    text_close(&rows);
    return t->any_absolute ? 0 : rc;
}

static int add_row(void *of, const text_rows *rows, char *line)
{
    table *t = of;
    char *fields[2];
    int64_t number;
    const int n = text_split(line, '\t', fields, 2);
    if (n != 2)
        return source_fault(t->s,
                            text_fail(rows, "2 columns `path TAB label` are expected, this line has %d", n));
    if (!*fields[0] || !*fields[1])
        return source_fault(t->s, text_fail(rows, "the path or the label is empty"));
    KOLO_TRY(names_add(&t->labels, fields[1], &number));
    if (!t->any_absolute || fields[0][0] == '/') return source_add(t->s, (int32_t)number, fields[0], -1);
    char *path = kolo_format("%s/%s", t->folder, fields[0]);
    int rc = path ? source_add(t->s, (int32_t)number, path, -1) : KOLO_ENOMEM;
    free(path);
    return rc;
}

static int read_rows(table *t, const char *path)
{
    const char *slash = strrchr(path, '/');
    t->folder = slash ? kolo_format("%.*s", slash == path ? 1 : (int)(slash - path), path) : kolo_strdup(".");
    if (!t->folder) return KOLO_ENOMEM;
    KOLO_TRY(look_for_absolute(t, path));
    if (!t->any_absolute && !(t->s->root = kolo_strdup(t->folder))) return KOLO_ENOMEM;
    return text_each(path, add_row, t);
}

static int open_table(source *s, const pack_options *o)
{
    table t = {.s = s};
    int32_t *label = NULL;
    if (o->in_count != 1 || o->annotation_count > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "--source list takes one --in LIST, and one --annotations NAMES at most");
    int rc = read_rows(&t, o->in[0]);
    if (rc == 0 && s->count == 0) rc = kolo_fail(KOLO_EINPUT, "%s: no lines `path TAB label`", o->in[0]);
    if (rc == 0) rc = names_to_classes(&t.labels, s, o->annotation_count ? o->annotations[0] : NULL, &label);
    if (rc == 0) names_relabel(s, label);
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
