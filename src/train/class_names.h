/* Names of classes, a line each, as RUN/classes.txt and labels= have them. */
#ifndef KOLO_TRAIN_CLASS_NAMES_H
#define KOLO_TRAIN_CLASS_NAMES_H

#include <stdint.h>

typedef struct kolo_class_names {
    char *text, **name; /* [count], in text */
    int64_t count;
} kolo_class_names;

/* KOLO_EIO, KOLO_EINPUT: the file cannot be read. Freed by the caller, after an error too. */
int kolo_class_names_read(kolo_class_names *names, const char *file);
/* Those that a run has noted; none where it has not. */
int kolo_class_names_of_run(kolo_class_names *names, const char *run);
void kolo_class_names_free(kolo_class_names *names);

#endif
