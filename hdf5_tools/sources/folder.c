/* Image folders: the class is the folder below PATH/SPLIT or PATH, classes and files in byte order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "sources/options.h"

#define MOST_DEPTH 16

/* After a failed stat or open: a link to something that is not there. Such an image is reported, or
 * skipped, at decoding. */
static bool leads_nowhere(void) { return errno == ENOENT || errno == ELOOP; }

/* All images below root/relative, with symbolic links followed. */
static int walk(source *s, int32_t label, const char *relative, int depth)
{
    kolo_folder_names n;
    int rc = 0;
    char *path = kolo_format("%s/%s", s->root, relative);
    if (!path) return KOLO_ENOMEM;
    if (depth > MOST_DEPTH)
        rc = kolo_fail(KOLO_EINPUT, "%s: folders nest deeper than %d; does a link point upwards?", path,
                       MOST_DEPTH);
    if (rc == 0) rc = kolo_folder_list(path, &n);
    free(path);
    if (rc < 0) return rc;
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        struct stat info;
        char *below = kolo_format("%s/%s", relative, n.list[i]),
             *full = below ? kolo_format("%s/%s", s->root, below) : NULL;
        const bool found = full && stat(full, &info) == 0;
        if (!full) rc = KOLO_ENOMEM;
        else if (!found && !leads_nowhere())
            rc = kolo_fail(KOLO_EIO, "%s: %s; make it readable, or remove it", full, strerror(errno));
        else if (!found) rc = kolo_folder_is_image(n.list[i]) ? source_add(s, label, below, 0) : 0;
        else if (S_ISDIR(info.st_mode)) rc = walk(s, label, below, depth + 1);
        else if (S_ISREG(info.st_mode) && kolo_folder_is_image(n.list[i]))
            rc = source_add(s, label, below, info.st_size);
        free(full);
        free(below);
    }
    kolo_folder_free(&n);
    return rc;
}

static int walk_class(source *s, const char *name)
{
    int32_t label;
    int rc = source_find_class(s, name, -1, &label);
    if (rc < 0) return kolo_fail_in(rc, "%s/%s: ", s->root, name);
    if (label == SOURCE_LEFT_OUT) return 0;
    const int64_t before = s->count;
    KOLO_TRY(walk(s, label, name, 0));
    if (s->count == before)
        return kolo_fail(KOLO_EINPUT, "%s/%s: a class folder without images; remove it or fill it", s->root,
                         name);
    return 0;
}

/* Sets s->root to PATH/name if that is a folder. */
static int try_root(source *s, const char *path, const char *name)
{
    free(s->root);
    s->root = kolo_format("%s/%s", path, name);
    return !s->root ? KOLO_ENOMEM : kolo_folder_exists(s->root);
}

static int choose_root(source *s, const pack_options *o)
{
    static const char *const val[] = {"val", "valid", "validation", "test"};
    if (o->in_count != 1)
        return kolo_fail(KOLO_ECONFIG, "--source imagefolder takes one --in folder, %d given", o->in_count);
    int found = try_root(s, o->in[0], o->split);
    for (int i = 0; i < 4 && found == 0 && strcmp(o->split, "val") == 0; i++)
        found = try_root(s, o->in[0], val[i]);
    if (found) return found < 0 ? found : 0;
    /* classes called train would hardly be meant */
    found = try_root(s, o->in[0], "train");
    if (found < 0) return found;
    free(s->root);
    s->root = kolo_strdup(o->in[0]);
    if (!s->root) return KOLO_ENOMEM;
    if (found)
        return kolo_fail(KOLO_EINPUT,
                         "--in %s has a folder train, but none for --split %s; give that folder itself",
                         s->root, o->split);
    return kolo_folder_exists(s->root)
               ? 0
               : kolo_fail(KOLO_EINPUT, "--in %s: %s", s->root,
                           kolo_file_exists(s->root) ? "not a folder" : "no such folder");
}

static int open_folder(source *s, const pack_options *o)
{
    kolo_folder_names n;
    KOLO_TRY(choose_root(s, o));
    KOLO_TRY(kolo_folder_list(s->root, &n));
    int rc = 0;
    for (int64_t i = 0; i < n.count && rc == 0; i++) {
        char *path = kolo_format("%s/%s", s->root, n.list[i]);
        if (!path) rc = KOLO_ENOMEM;
        else if (kolo_folder_exists(path)) rc = walk_class(s, n.list[i]);
        free(path);
    }
    kolo_folder_free(&n);
    if (rc < 0) return rc;
    if (s->count == 0)
        return kolo_fail(KOLO_EINPUT, "%s: no class folders with images; expected %s/CLASS/image.jpg",
                         s->root, s->root);
    return 0;
}

const source_kind source_folder = {.name = "imagefolder",
                                   .help = "PATH/SPLIT/CLASS/... or PATH/CLASS/...: image files",
                                   .open = open_folder};
