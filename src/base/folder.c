#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

#define MOST_DEPTH 16

void kolo_folder_free(kolo_folder_names *n)
{
    for (int64_t i = 0; i < n->count; i++) free(n->list[i]);
    free(n->list);
    *n = (kolo_folder_names){0};
}

static int folder_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int kolo_folder_add(kolo_folder_names *n, const char *name)
{
    KOLO_TRY(kolo_grow(&n->list, &n->capacity, n->count, sizeof *n->list));
    n->list[n->count] = kolo_strdup(name);
    if (!n->list[n->count]) return KOLO_ENOMEM;
    n->count++;
    return 0;
}

int kolo_folder_list(const char *path, kolo_folder_names *n)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int rc = 0;
    *n = (kolo_folder_names){0};
    if (!dir)
        return kolo_fail(errno == ENOENT || errno == ENOTDIR ? KOLO_EINPUT : KOLO_EIO, "%s: %s", path,
                         strerror(errno));
    while (rc == 0 && (errno = 0, entry = readdir(dir))) {
        if (entry->d_name[0] == '.') continue;
        rc = strchr(entry->d_name, '\n')
                 ? kolo_fail(KOLO_EINPUT, "%s: the name of an entry holds a line break; rename it", path)
                 : kolo_folder_add(n, entry->d_name);
    }
    if (rc == 0 && errno) rc = kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    closedir(dir);
    if (rc < 0) kolo_folder_free(n);
    else if (n->count) qsort(n->list, (size_t)n->count, sizeof *n->list, folder_compare);
    return rc;
}

bool kolo_folder_is_image(const char *name)
{
    static const char *const known[] = {"jpg", "jpeg", "jpe", "png",  "bmp",  "ppm",
                                        "pgm", "pnm",  "tif", "tiff", "webp", "gif"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof known / sizeof *known; i++)
        if (strcasecmp(dot + 1, known[i]) == 0) return true;
    return false;
}

char *kolo_folder_below(const char *root, const char *name, int *rc)
{
    char *path = kolo_format("%s/%s", root, name);
    if (!path) *rc = KOLO_ENOMEM;
    else if (kolo_folder_exists(path)) return path;
    free(path);
    return NULL;
}

static int walk(const char *root, const char *relative, kolo_folder_names *paths, int depth)
{
    kolo_folder_names n = {0};
    char *folder = kolo_format("%s%s%s", root, *relative ? "/" : "", relative);
    int rc = folder ? 0 : KOLO_ENOMEM;
    if (rc == 0 && depth > MOST_DEPTH)
        rc = kolo_fail(KOLO_EINPUT, "%s: folders nest deeper than %d; does a link point upwards?", folder,
                       MOST_DEPTH);
    if (rc == 0) rc = kolo_folder_list(folder, &n);
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        char *below = kolo_format("%s%s%s", relative, *relative ? "/" : "", n.list[i]), *full = NULL;
        if (!below) rc = KOLO_ENOMEM;
        else if (kolo_folder_is_image(n.list[i])) rc = kolo_folder_add(paths, below);
        else if ((full = kolo_folder_below(root, below, &rc))) rc = walk(root, below, paths, depth + 1);
        free(full);
        free(below);
    }
    kolo_folder_free(&n);
    free(folder);
    return rc;
}

int kolo_folder_images(const char *root, const char *relative, kolo_folder_names *paths)
{
    return walk(root, relative, paths, 0);
}
