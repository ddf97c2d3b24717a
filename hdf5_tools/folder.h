/* Folders of a source. */
#ifndef HDF5_TOOLS_FOLDER_H
#define HDF5_TOOLS_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct folder_names {
    char **list;
    int64_t count, capacity;
} folder_names;

/* Everything in a folder but hidden entries, in byte order; the caller frees. A name with a line break is an error. */
int folder_list(const char *path, folder_names *names);
/* Appends a copy. */
int folder_add(folder_names *names, const char *name);
void folder_free(folder_names *names);

/* By its ending: .jpg, .png, ... Other files (check sums, readme) lie in picture folders too; pictures of kinds that
 * cannot be read are told at decoding. */
bool folder_is_picture(const char *name);
/* Appends all pictures below root/relative, as paths from root ("relative/name"), in byte order folder by folder, links
 * followed; relative "" is root itself. */
int folder_pictures(const char *root, const char *relative, folder_names *paths);
/* root/name if that is a folder, or NULL without an error; *rc becomes KOLO_ECONFIG when memory is short. */
char *folder_below(const char *root, const char *name, int *rc);

#endif
