/* Choices: what a clock decided (an algorithm, a layout), as lines "key = value". Kept in a file per machine,
 * handed from rank 0 to the others as text, so that every rank and every later run prepares the same
 * kernels. */
#ifndef KOLO_OPS_CHOICES_H
#define KOLO_OPS_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_choice {
    char *key, *value;
    bool asked; /* of given ones: an operation is there that this is for, in whatever layout */
} kolo_choice;

typedef struct kolo_choices {
    kolo_choice *list; /* made or used in this process */
    int64_t count, capacity;
    kolo_choice *known; /* from the file, or from rank 0 */
    int64_t known_count, known_capacity;
    char *machine;  /* prefix of the keys in the file: CPU, library, threads */
    char *path;     /* the file, or NULL */
    bool given;     /* choices come from rank 0: nothing is timed here */
    double opened;  /* kolo_time() */
    bool announced; /* that timing goes on */
    bool doubted;   /* that a choice fits this machine */
} kolo_choices;

/* machine: text without newlines. path, text may be NULL. A file that cannot be read is no
 * error: it is only a cache. */
int kolo_choices_open(kolo_choices *choices, const char *machine, const char *path, const char *text);
void kolo_choices_close(kolo_choices *choices);

/* The value known for `key`, which thereby becomes one of the choices made; NULL: not known. */
const char *kolo_choices_find(kolo_choices *choices, const char *key);
/* Says, once, that what was found cannot be had here, where it came from a plan file or from rank 0. */
void kolo_choices_doubt(kolo_choices *choices, const char *key, const char *value);
/* Of given choices the first that is for no operation asked for so far; *count: how many are. NULL: none. */
const kolo_choice *kolo_choices_unasked(const kolo_choices *choices, int64_t *count);
/* Records a new choice (and appends it to the file). */
int kolo_choices_add(kolo_choices *choices, const char *key, const char *value);
char *kolo_choices_text(const kolo_choices *choices); /* caller frees */

#endif
