/* What is in a folder; the images below it. */
#ifndef KOLO_BASE_FOLDER_H
#define KOLO_BASE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_folder_names {
    char **list;
    int64_t count, capacity;
} kolo_folder_names;

/* Everything in a folder but hidden entries, in byte order; the caller frees. A name with a line break is
 * an error. */
int kolo_folder_list(const char *path, kolo_folder_names *names);
/* Appends a copy. */
int kolo_folder_add(kolo_folder_names *names, const char *name);
void kolo_folder_free(kolo_folder_names *names);

/* By its ending: .jpg, .png, ... Other files (check sums, readme) lie in image folders too; images of
 * kinds that cannot be read are reported at decoding. */
bool kolo_folder_is_image(const char *name);
/* Appends all images below root/relative, as paths from root ("relative/name"), in byte order folder by
 * folder, links followed; relative "" is root itself. */
int kolo_folder_images(const char *root, const char *relative, kolo_folder_names *paths);
/* root/name if that is a folder, or NULL without an error; *rc becomes KOLO_ENOMEM when memory is short. */
char *kolo_folder_below(const char *root, const char *name, int *rc);

#endif
