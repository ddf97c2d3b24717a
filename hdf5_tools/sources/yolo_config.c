#include "sources/yolo_config.h"

#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "readers/text_rows.h"
#include "sources/names.h"

#define MOST_CLASSES 1000000

typedef struct reader {
    const char *path;
    yaml_document_t document;
} reader;

static int fail_at(const reader *r, const yaml_node_t *node, const char *text)
{
    return kolo_fail(KOLO_EINPUT, "%s:%zu: %s", r->path, node->start_mark.line + 1, text);
}

static yaml_node_t *node_of(reader *r, int number) { return yaml_document_get_node(&r->document, number); }

/* A text without zeros in it. */
static int scalar(const reader *r, const yaml_node_t *node, const char **text)
{
    if (node->type != YAML_SCALAR_NODE) return fail_at(r, node, "a single value is expected here");
    *text = (const char *)node->data.scalar.value;
    return strlen(*text) == node->data.scalar.length ? 0 : fail_at(r, node, "a zero byte");
}

static yaml_node_t *value_of(reader *r, const char *key)
{
    const yaml_node_t *root = yaml_document_get_root_node(&r->document);
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *k = node_of(r, p->key);
        if (k->type == YAML_SCALAR_NODE && strcmp((const char *)k->data.scalar.value, key) == 0)
            return node_of(r, p->value);
    }
    return NULL;
}

/* A text or a list of texts. */
static int read_list(reader *r, const yaml_node_t *node, kolo_folder_names *list)
{
    const char *text = NULL;
    if (node->type != YAML_SEQUENCE_NODE) {
        KOLO_TRY(scalar(r, node, &text));
        return kolo_folder_add(list, text);
    }
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        KOLO_TRY(scalar(r, node_of(r, *i), &text));
        KOLO_TRY(kolo_folder_add(list, text));
    }
    return 0;
}

typedef struct numbered {
    int64_t id;
    const char *name;
} numbered;

static int by_id(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* "0: person, 1: bicycle", in any order. */
static int collect_numbered(reader *r, const yaml_node_t *node, numbered *list)
{
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
         p++, list++) {
        const char *key = NULL;
        KOLO_TRY(scalar(r, node_of(r, p->key), &key));
        if (!text_integer(key, &list->id) || list->id < 0)
            return fail_at(r, node_of(r, p->key),
                           "the number of a class, from 0, is expected before its name");
        KOLO_TRY(scalar(r, node_of(r, p->value), &list->name));
    }
    return 0;
}

static int read_numbered(reader *r, const yaml_node_t *node, yolo_config *c)
{
    const int64_t count = node->data.mapping.pairs.top - node->data.mapping.pairs.start;
    numbered *list = kolo_alloc(sizeof *list * (size_t)count);
    c->ids = kolo_alloc(sizeof *c->ids * (size_t)count);
    int rc = list && c->ids ? collect_numbered(r, node, list) : KOLO_ENOMEM;
    if (rc == 0) qsort(list, (size_t)count, sizeof *list, by_id);
    for (int64_t i = 0; i < count && rc == 0; i++) {
        c->ids[i] = list[i].id;
        rc = i > 0 && list[i].id == list[i - 1].id ? fail_at(r, node, "two classes have the same number")
                                                   : kolo_folder_add(&c->classes, list[i].name);
    }
    free(list);
    return rc;
}

static int read_counted(reader *r, const yaml_node_t *node, yolo_config *c)
{
    KOLO_TRY(read_list(r, node, &c->classes));
    c->ids = kolo_alloc(sizeof *c->ids * (size_t)c->classes.count);
    if (!c->ids) return KOLO_ENOMEM;
    for (int64_t i = 0; i < c->classes.count; i++) c->ids[i] = i;
    return 0;
}

static int read_names(reader *r, yolo_config *c)
{
    const yaml_node_t *list = value_of(r, "names"), *nc = value_of(r, "nc");
    const char *text = NULL;
    int64_t count;
    if (!list) return kolo_fail(KOLO_EINPUT, "%s: no `names`, the list of classes", r->path);
    KOLO_TRY(list->type == YAML_MAPPING_NODE ? read_numbered(r, list, c) : read_counted(r, list, c));
    if (c->classes.count == 0 || c->classes.count > MOST_CLASSES)
        return fail_at(r, list, "no classes, or far too many");
    KOLO_TRY(names_all_differ(r->path, c->classes.list, c->classes.count));
    if (!nc) return 0;
    KOLO_TRY(scalar(r, nc, &text));
    if (!text_integer(text, &count)) return fail_at(r, nc, "nc is not a number");
    if (count == c->classes.count || count == c->ids[c->classes.count - 1] + 1) return 0;
    return fail_at(r, nc, "nc is another number than there are names");
}

static int read_document(reader *r, yolo_config *c, const char *split)
{
    const yaml_node_t *root = yaml_document_get_root_node(&r->document);
    if (!root || root->type != YAML_MAPPING_NODE)
        return kolo_fail(KOLO_EINPUT, "%s: no keys; `train: FOLDER`, `names: [...]` are expected", r->path);
    KOLO_TRY(read_names(r, c));
    const yaml_node_t *node = value_of(r, split);
    if (!node && strcmp(split, "val") == 0) node = value_of(r, "valid");
    if (!node)
        return kolo_fail(KOLO_EINPUT, "%s: no `%s`, the folder of images of --split %s", r->path, split,
                         split);
    KOLO_TRY(read_list(r, node, &c->parts));
    for (int64_t i = 0; i < c->parts.count; i++)
        if (!*c->parts.list[i]) return fail_at(r, node, "an empty path");
    if (c->parts.count == 0) return fail_at(r, node, "no folder");
    node = value_of(r, "path");
    const char *path = "";
    if (node) KOLO_TRY(scalar(r, node, &path));
    if (*path && !(c->path = kolo_strdup(path))) return KOLO_ENOMEM;
    return 0;
}

int yolo_config_read(yolo_config *c, const char *path, const char *split)
{
    reader r = {.path = path};
    yaml_parser_t parser;
    char *text;
    size_t bytes;
    *c = (yolo_config){0};
    KOLO_TRY(kolo_file_read(path, &text, &bytes));
    if (!yaml_parser_initialize(&parser)) {
        free(text);
        return kolo_fail(KOLO_ENOMEM, "out of memory for libyaml");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    int rc;
    if (yaml_parser_load(&parser, &r.document)) {
        rc = read_document(&r, c, split);
        yaml_document_delete(&r.document);
    } else {
        rc = kolo_fail(KOLO_EINPUT, "%s:%zu: not YAML: %s", path, parser.problem_mark.line + 1,
                       parser.problem ? parser.problem : "out of memory");
    }
    yaml_parser_delete(&parser);
    free(text);
    if (rc < 0) yolo_config_free(c);
    return rc;
}

int64_t yolo_config_class(const yolo_config *c, int64_t id)
{
    int64_t low = 0, high = c->classes.count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (c->ids[middle] < id) low = middle + 1;
        else high = middle;
    }
    return low < c->classes.count && c->ids[low] == id ? low : -1;
}

void yolo_config_free(yolo_config *c)
{
    free(c->ids);
    free(c->path);
    kolo_folder_free(&c->parts);
    kolo_folder_free(&c->classes);
    *c = (yolo_config){0};
}
