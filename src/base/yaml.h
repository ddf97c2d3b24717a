/* Flat YAML files: "key: value" on each line, a value a scalar or a list of scalars. Recipes and the tables
 * of share/gpus are such. */
#ifndef KOLO_BASE_YAML_H
#define KOLO_BASE_YAML_H

/* What is read, and who takes it. `set` gets a list's items joined by commas; where: "file:line:column" of
 * the key. */
typedef struct kolo_yaml_form {
    const char *what; /* for messages: "recipe" */
    int (*set)(void *context, const char *key, const char *value, const char *where);
} kolo_yaml_form;

/* 0, what `set` failed with, or KOLO_ECONFIG with file:line:column: no such file, not YAML, duplicate keys,
 * nesting, anchors. */
int kolo_yaml_read(const char *path, const kolo_yaml_form *form, void *context);

#endif
