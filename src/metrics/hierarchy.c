#include "metrics/hierarchy.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

enum { MOST_DEPTH = 64 };

typedef struct label_name {
    char *label, *name; /* in the text of the file */
} label_name;

typedef struct reader {
    const char *path;
    const char *const *class_name;
    int classes;
    label_name *name; /* NULL: labels are names */
    int64_t names;
    bool *above; /* [classes * classes] c, a: c is a kind of a */
    int found;
} reader;

/* A line `LABEL,NAME`, the name perhaps in quotes. */
static void split_line(char *line, label_name *to)
{
    char *comma = strchr(line, ','), *end = line + strcspn(line, "\r");
    *end = 0;
    *to = (label_name){line, comma ? comma + 1 : end};
    if (!comma) return;
    *comma = 0;
    const size_t n = strlen(to->name);
    if (n < 2 || *to->name != '"' || to->name[n - 1] != '"') return;
    char *w = to->name;
    for (const char *r = w + 1; r < to->name + n - 1; r++) {
        *w++ = *r;
        r += r[0] == '"' && r[1] == '"';
    }
    *w = 0;
}

static int read_names(reader *r, char *text)
{
    int64_t capacity = 0;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        KOLO_TRY(kolo_grow(&r->name, &capacity, r->names, sizeof *r->name));
        split_line(line, &r->name[r->names++]);
    }
    return 0;
}

static int find_name(const reader *r, const char *name)
{
    for (int c = 0; c < r->classes; c++)
        if (!strcmp(r->class_name[c], name)) return c;
    return -1;
}

/* As kolo-pack calls classes: two of one name have the label in the second's. -1: no class */
static int find_class(const reader *r, const char *label)
{
    char both[512];
    if (!r->name) return find_name(r, label);
    for (int64_t i = 0; i < r->names; i++) {
        if (strcmp(r->name[i].label, label)) continue;
        snprintf(both, sizeof both, "%s (%s)", r->name[i].name, label);
        const int c = find_name(r, both);
        return c >= 0 ? c : find_name(r, r->name[i].name);
    }
    return -1;
}

/* over: the classes above this node, `depth` of them */
static int read_node(reader *r, const cJSON *node, int *over, int depth, bool root)
{
    const cJSON *label = cJSON_GetObjectItemCaseSensitive(node, "LabelName"),
                *below = cJSON_GetObjectItemCaseSensitive(node, "Subcategory"), *child;
    if (!cJSON_IsString(label) || (below && !cJSON_IsArray(below)))
        return kolo_fail(
            KOLO_EINPUT,
            "%s: no hierarchy of Open Images: nodes have a LabelName, and perhaps a list Subcategory",
            r->path);
    if (depth == MOST_DEPTH)
        return kolo_fail(KOLO_EINPUT, "%s: more than %d kinds within each other", r->path, MOST_DEPTH);
    const int c = root ? -1 : find_class(r, label->valuestring);
    for (int i = 0; i < depth && c >= 0; i++) r->above[(int64_t)c * r->classes + over[i]] = over[i] != c;
    r->found += c >= 0;
    if (c >= 0) over[depth++] = c;
    cJSON_ArrayForEach(child, below) KOLO_TRY(read_node(r, child, over, depth, false));
    return 0;
}

static int hierarchy_fill(kolo_hierarchy *h, const bool *above, int classes)
{
    int64_t n = 0;
    h->classes = classes;
    for (int64_t i = 0; i < (int64_t)classes * classes; i++) n += above[i];
    h->first = kolo_alloc(sizeof *h->first * (size_t)(classes + 1));
    h->ancestor = kolo_alloc(sizeof *h->ancestor * (size_t)(n + 1));
    if (!h->first || !h->ancestor) return KOLO_ENOMEM;
    n = 0;
    for (int c = 0; c < classes; c++) {
        for (int a = 0; a < classes; a++)
            if (above[(int64_t)c * classes + a]) h->ancestor[n++] = a;
        h->first[c + 1] = n;
    }
    return 0;
}

static int read_tree(reader *r, const char *text)
{
    int over[MOST_DEPTH + 1];
    cJSON *tree = cJSON_Parse(text);
    int rc = tree ? read_node(r, tree, over, 0, true) : kolo_fail(KOLO_EINPUT, "%s: no JSON", r->path);
    cJSON_Delete(tree);
    if (rc == 0 && !r->found)
        rc = kolo_fail(
            KOLO_EINPUT, "%s: not one of its labels is a class of the data set%s", r->path,
            r->name ? "" : "; hierarchy_names=class-descriptions-boxable.csv says what /m/... are called");
    return rc;
}

int kolo_hierarchy_read(kolo_hierarchy **hierarchy, const char *path, const char *names,
                        const char *const *class_name, int classes)
{
    reader r = {.path = path, .class_name = class_name, .classes = classes};
    char *text = NULL, *lines = NULL;
    *hierarchy = NULL;
    r.above = kolo_alloc((size_t)classes * (size_t)classes * sizeof *r.above);
    int rc = r.above ? kolo_file_read(path, &text, NULL) : KOLO_ENOMEM;
    if (rc == 0 && names && *names) rc = kolo_file_read(names, &lines, NULL);
    if (rc == 0 && lines) rc = read_names(&r, lines);
    if (rc == 0) rc = read_tree(&r, text);
    if (rc == 0)
        rc = (*hierarchy = kolo_alloc(sizeof **hierarchy)) ? hierarchy_fill(*hierarchy, r.above, classes)
                                                           : KOLO_ENOMEM;
    if (rc < 0) kolo_hierarchy_free(hierarchy);
    free(r.above);
    free(r.name);
    free(text);
    free(lines);
    return rc;
}

void kolo_hierarchy_free(kolo_hierarchy **hierarchy)
{
    if (!*hierarchy) return;
    free((*hierarchy)->first);
    free((*hierarchy)->ancestor);
    free(*hierarchy);
    *hierarchy = NULL;
}
