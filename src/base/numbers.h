/* Numbers of a flat YAML file (base/yaml.h) in a struct of doubles: which keys there are, and what each may
 * be. The tables of share/gpus and share/clusters are such. */
#ifndef KOLO_BASE_NUMBERS_H
#define KOLO_BASE_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct kolo_number_key {
    const char *name;
    size_t at; /* of a double in the struct */
    double least, most;
    const char *what;   /* for messages: its unit and meaning */
    bool wanted, whole; /* it has to be said; no fraction */
} kolo_number_key;

typedef struct kolo_numbers {
    const char *of, *folder; /* for messages: "GPU"; where examples are: "share/gpus" */
    const kolo_number_key *key;
    int keys;
    const char
        *other; /* a key that the file has besides, or NULL: for what is offered instead of a wrong one */
} kolo_numbers;

/* Nothing is said: NaN where a key is wanted, else 0. */
void kolo_numbers_begin(const kolo_numbers *numbers, void *values);
/* As kolo_yaml_form has it. KOLO_ECONFIG names `where` and the key: no such key (the nearest is offered), no
 * number, one out of its range. */
int kolo_numbers_set(const kolo_numbers *numbers, void *values, const char *name, const char *text,
                     const char *where);
/* Whether all that is wanted was said; KOLO_ECONFIG names file and key. */
int kolo_numbers_check(const kolo_numbers *numbers, const void *values, const char *path);

#endif
