#include "cmd/share_table.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "cmd/cmd.h"
#include "kolo/error.h"

static const char suffix[] = ".yaml";

static bool is_suffixed(const char *word)
{
    const size_t length = strlen(word), end = sizeof suffix - 1;
    return length > end && !strcmp(word + length - end, suffix);
}

char *kolo_table_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *stem = kolo_strdup(name);
    if (stem && is_suffixed(stem)) stem[strlen(stem) - (sizeof suffix - 1)] = 0;
    return stem;
}

int kolo_table_all(const char *folder, glob_t *found)
{
    char *pattern = kolo_format("%s/%s/*%s", kolo_command_share(), folder, suffix);
    if (!pattern) return KOLO_ENOMEM;
    const int rc = glob(pattern, 0, NULL, found);
    free(pattern);
    return rc == 0 || rc == GLOB_NOMATCH ? 0 : kolo_fail(KOLO_EIO, "share/kolo/%s cannot be listed", folder);
}

static int fail_unknown(const char *folder, const char *option, const char *word)
{
    enum { MOST = 64 };
    char *names[MOST];
    int n = 0;
    glob_t found = {0};
    KOLO_TRY(kolo_table_all(folder, &found));
    for (; n < MOST && n < (int)found.gl_pathc; n++) names[n] = kolo_table_name(found.gl_pathv[n]);
    char *list = kolo_strdup("");
    for (int i = 0; i < n && list; i++) {
        char *longer = kolo_format("%s%s%s", list, i ? ", " : "", names[i] ? names[i] : "?");
        free(list);
        list = longer;
    }
    const char *near = kolo_nearest(word, (const char *const *)names, n);
    const int rc =
        kolo_fail(KOLO_ECONFIG,
                  "%s=%s: there is no such table of a %s%s%s%s; there are %s%s, and any file: %s=PATH.yaml",
                  option, word, strcmp(option, "gpu") ? option : "GPU", near ? "; is " : "", near ? near : "",
                  near ? " meant?" : "", list && *list ? list : "none in share/kolo/",
                  list && *list ? "" : folder, option);
    for (int i = 0; i < n; i++) free(names[i]);
    free(list);
    globfree(&found);
    return rc;
}

int kolo_table_find(const char *folder, const char *option, const char *word, char **path)
{
    const bool file = strchr(word, '/') || is_suffixed(word);
    char *low = kolo_strdup(word);
    for (char *p = low; p && *p && !file; p++) *p = (char)tolower((unsigned char)*p);
    *path = !low   ? NULL
            : file ? kolo_strdup(word)
                   : kolo_format("%s/%s/%s%s", kolo_command_share(), folder, low, suffix);
    free(low);
    if (!*path) return KOLO_ENOMEM;
    if (file || kolo_file_exists(*path)) return 0;
    free(*path);
    *path = NULL;
    return fail_unknown(folder, option, word);
}
