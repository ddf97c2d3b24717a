/* Folders that are no split, and what was probably meant; folders within a split. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/memory.h"
#include "data/shard/manifest.h"
#include "kolo/error.h"

static bool is_manifest(int folder, const char *name)
{
    char head[6] = "";
    const size_t n = strlen(name);
    if (n < 7 || strcmp(name + n - 6, ".index") != 0) return false;
    const int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool reads = file >= 0 && read(file, head, 5) == 5;
    if (file >= 0) close(file);
    return reads && !strcmp(head, "kolo ");
}

bool kolo_manifest_in(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)))
        found = entry->d_name[0] != '.' && is_manifest(dirfd(dir), entry->d_name);
    if (dir) closedir(dir);
    return found;
}

/* What lies in a folder that is no split; to `depth` folders below it, of which the first few are enough. */
typedef struct folder_content {
    bool images, train, val, shards;
    char split[256]; /* one of the folders in it that are splits */
} folder_content;

/* NAME-SPLIT-00000-of-00002.h5 */
static bool is_shard(const char *name)
{
    const char *of = strstr(name, "-of-");
    const size_t n = strlen(name);
    return of && n > 3 && !strcmp(name + n - 3, ".h5");
}

static void folder_scan(const char *folder, int depth, folder_content *c)
{
    enum { ENOUGH = 100 };
    kolo_folder_names names;
    if (kolo_folder_list(folder, &names) < 0) return;
    for (int64_t i = 0; i < names.count && i < ENOUGH; i++) {
        struct stat info;
        char *path = kolo_format("%s/%s", folder, names.list[i]);
        const bool is_folder =
            path && names.list[i][0] != '.' && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
        if (!is_folder)
            c->images |= kolo_folder_is_image(names.list[i]), c->shards |= is_shard(names.list[i]);
        else if (kolo_manifest_in(path)) {
            if (!*c->split || !strcmp(names.list[i], "train"))
                snprintf(c->split, sizeof c->split, "%s", names.list[i]);
            c->train |= !strcmp(names.list[i], "train");
            c->val |= !strcmp(names.list[i], "val");
        } else if (depth > 0 && !c->images) {
            folder_content below = {0};
            folder_scan(path, depth - 1, &below);
            c->images = below.images;
        }
        free(path);
    }
    kolo_folder_free(&names);
}

int kolo_manifest_missing(const char *folder)
{
    folder_content c = {0};
    char *work = kolo_format("%s/.pack", folder);
    const bool unfinished = work && kolo_file_exists(work);
    free(work);
    if (unfinished)
        return kolo_fail(KOLO_EINPUT, "%s: packing has not finished; run the same kolo-pack with --resume",
                         folder);
    folder_scan(folder, 3, &c);
    if (c.shards)
        return kolo_fail(KOLO_EINPUT,
                         "%s holds shards and no manifest (*.index); `kolo-shards manifest %s` makes it anew",
                         folder, folder);
    if (c.train && c.val)
        return kolo_fail(
            KOLO_EINPUT,
            "%s is no data set, but %s/train and %s/val are; did you mean data=%s/train val=%s/val?", folder,
            folder, folder, folder, folder);
    if (*c.split)
        return kolo_fail(KOLO_EINPUT, "%s is no data set, but %s/%s is one; did you mean that?", folder,
                         folder, c.split);
    if (c.images)
        return kolo_fail(KOLO_EINPUT,
                         "%s is a folder of images, not a data set; pack it by `kolo-pack --source "
                         "imagefolder --in %s --out FOLDER` (`kolo-pack --help` has "
                         "other sources) and give FOLDER",
                         folder, folder);
    return kolo_fail(KOLO_EINPUT,
                     "%s holds no manifest (*.index): not a split of kolo-pack, or packing has not finished; "
                     "run kolo-pack --resume",
                     folder);
}

int kolo_manifest_outside(const char *key, const char *folder)
{
    char here[4096];
    if (*folder != '/' && !getcwd(here, sizeof here)) return 0;
    char *path = *folder == '/' ? kolo_strdup(folder) : kolo_format("%s/%s", here, folder);
    int rc = path ? 0 : KOLO_ENOMEM;
    /* itself, then what is above it, as far as there is something */
    for (char *cut; rc == 0 && *path; *cut = 0) {
        if (kolo_manifest_in(path))
            rc = kolo_fail(
                KOLO_ECONFIG,
                "%s=%s lies in the data set %s, whose folder is for its shards alone; choose another folder",
                key, folder, path);
        cut = strrchr(path, '/');
        if (!cut) break;
    }
    free(path);
    return rc;
}
