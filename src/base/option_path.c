/* Paths among the options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "kolo/error.h"

/* As the shell calls it, where that is the same folder: links that a cluster's mounts hide behind stay
 * hidden. */
static char *this_folder(void)
{
    const char *shell = getenv("PWD");
    struct stat here, there;
    if (shell && *shell == '/' && stat(shell, &there) == 0 && stat(".", &here) == 0 &&
        here.st_dev == there.st_dev && here.st_ino == there.st_ino)
        return kolo_strdup(shell);
    char text[4096];
    if (getcwd(text, sizeof text)) return kolo_strdup(text);
    kolo_fail(KOLO_EIO, "the working folder cannot be found: %s", strerror(errno));
    return NULL;
}

/* A word may also be the name of something else: a network's is a path only with an ending or a slash.
 * FILE:KEY names FILE. */
static bool names_path(const kolo_option_entry *e, const char *text)
{
    const bool bare = !strpbrk(text, "./");
    if (!*text || *text == '/' || (bare && !strcmp(e->key, "model"))) return false;
    if (!strcmp(text, "synthetic") || !strcmp(text, e->default_value)) return false;
    if (kolo_file_exists(text)) return true;
    const char *colon = strrchr(text, ':');
    char *file = colon ? kolo_format("%.*s", (int)(colon - text), text) : NULL;
    const bool there = file && kolo_file_exists(file);
    free(file);
    return there;
}

int kolo_options_from_root(kolo_options *options)
{
    char *folder = this_folder();
    int rc = folder ? 0 : KOLO_EIO;
    for (int i = 0; rc == 0 && i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (!e->path) continue;
        char *text = kolo_option_text(options, e), *full = NULL;
        if (!text) rc = KOLO_ENOMEM;
        else if (names_path(e, text)) {
            const char *from = strncmp(text, "./", 2) ? text : text + 2;
            full = kolo_format("%s/%s", strcmp(folder, "/") ? folder : "", from);
            rc = full ? kolo_option_set(options, e->key, full, "the folder it is in") : KOLO_ENOMEM;
        }
        free(full);
        free(text);
    }
    free(folder);
    return rc;
}
