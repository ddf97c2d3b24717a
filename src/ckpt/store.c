#include "ckpt/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/stream.h"

static const char tmp_suffix[] = ".tmp", old_suffix[] = ".old";

void kolo_store_name(int64_t step, char name[STORE_NAME])
{
    snprintf(name, STORE_NAME, "step-%010" PRId64, step);
}

/* "step-" and at least ten digits, then `suffix`; the step or -1. */
static int64_t parse_name(const char *name, const char *suffix)
{
    char again[STORE_NAME];
    if (strncmp(name, "step-", 5)) return -1;
    char *end;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    if (errno || step < 0 || strcmp(end, suffix)) return -1;
    kolo_store_name(step, again);
    return !strncmp(name, again, strlen(again)) && name[strlen(again)] == *suffix ? step : -1;
}

bool kolo_store_named(const char *name) { return parse_name(name, "") >= 0; }

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int list(const char *checkpoints, const char *suffix, int64_t **steps, int64_t *n)
{
    int64_t capacity = 0;
    int rc = 0;
    *steps = NULL;
    *n = 0;
    DIR *dir = opendir(checkpoints);
    if (!dir) return errno == ENOENT ? 0 : kolo_fail_io("list", checkpoints);
    for (struct dirent *e; rc == 0 && (e = readdir(dir));) {
        int64_t step = parse_name(e->d_name, suffix);
        if (step < 0) continue;
        rc = kolo_grow(steps, &capacity, *n, sizeof **steps);
        if (rc == 0) (*steps)[(*n)++] = step;
    }
    closedir(dir);
    if (rc == 0 && *n > 0) qsort(*steps, (size_t)*n, sizeof **steps, compare_steps);
    if (rc < 0) free(*steps);
    if (rc < 0) *steps = NULL;
    return rc;
}

int kolo_store_list(const char *checkpoints, int64_t **steps, int64_t *n)
{
    return list(checkpoints, "", steps, n);
}

static int remove_step(const char *checkpoints, int64_t step, const char *suffix)
{
    char name[STORE_NAME];
    kolo_store_name(step, name);
    char *path = kolo_format("%s/%s%s", checkpoints, name, suffix);
    if (!path) return KOLO_ENOMEM;
    int rc = kolo_folder_remove(path);
    free(path);
    return rc;
}

/* A writer died between the two renames of a replacement: the old one is still the whole one. */
static int restore_old(const char *checkpoints, int64_t step, bool *restored)
{
    char name[STORE_NAME];
    kolo_store_name(step, name);
    char *to = kolo_format("%s/%s", checkpoints, name),
         *old = kolo_format("%s/%s%s", checkpoints, name, old_suffix);
    int rc = to && old ? 0 : KOLO_ENOMEM;
    *restored = rc == 0 && !kolo_file_exists(to);
    if (*restored && rename(old, to) < 0) rc = kolo_fail_io("rename", old);
    free(to);
    free(old);
    return rc;
}

/* "step-N.tmp" of older versions, "step-N.tmp-..." */
static bool is_begun(const char *name)
{
    const char *dot = strchr(name, '.');
    const size_t n = sizeof tmp_suffix - 1;
    return dot && !strncmp(dot, tmp_suffix, n) && (!dot[n] || dot[n] == '-') && parse_name(name, dot) >= 0;
}

static int sweep_begun(const char *checkpoints)
{
    DIR *dir = opendir(checkpoints);
    if (!dir) return kolo_fail_io("list", checkpoints);
    for (struct dirent *e; (e = readdir(dir));)
        if (is_begun(e->d_name) && kolo_temp_sweep_folder(dirfd(dir), e->d_name, checkpoints) < 0)
            kolo_warn("%s: left by a killed run: %s", e->d_name, kolo_error_text()); /* it only takes space */
    closedir(dir);
    return 0;
}

int kolo_store_sweep(const char *checkpoints)
{
    int64_t *steps, n;
    bool restored;
    int rc = list(checkpoints, old_suffix, &steps, &n);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        rc = restore_old(checkpoints, steps[i], &restored);
        if (rc == 0 && !restored) rc = remove_step(checkpoints, steps[i], old_suffix);
    }
    free(steps);
    return rc < 0 ? rc : sweep_begun(checkpoints);
}

int kolo_store_begin(const char *checkpoints, int64_t step, kolo_temp_file *a, char **path)
{
    char name[STORE_NAME];
    *a = (kolo_temp_file){.folder = -1, .fd = -1};
    kolo_store_name(step, name);
    if (!(*path = kolo_format("%s/%s", checkpoints, name))) return KOLO_ENOMEM;
    /* not mkdir -p: a run folder that somebody moved away must not come back without its recipe and lock */
    const int folder = open(checkpoints, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = folder < 0 ? kolo_fail_io("make the folder", *path) : 0;
    if (rc == 0) rc = kolo_temp_open_folder(a, folder, name, *path);
    if (folder >= 0) close(folder);
    if (rc < 0) free(*path);
    if (rc < 0) *path = NULL;
    return rc;
}

static int replace(const kolo_temp_file *a, const char *path, const char *old)
{
    const bool replaces = faccessat(a->folder, a->target, F_OK, 0) == 0;
    if (replaces && renameat(a->folder, a->target, a->folder, old) < 0) return kolo_fail_io("rename", path);
    if (renameat(a->folder, a->name, a->folder, a->target) < 0) return kolo_fail_io("rename", path);
    KOLO_TRY(kolo_folder_sync_held(a->folder, path));
    return replaces ? kolo_folder_remove_in(a->folder, old, path) : 0;
}

int kolo_store_commit(kolo_temp_file *a, char **path, int rc)
{
    kolo_failure first;
    kolo_error_keep(&first);
    char *old = kolo_format("%s%s", a->target, old_suffix);
    if (rc == 0) rc = old ? replace(a, *path, old) : KOLO_ENOMEM;
    else {
        kolo_folder_remove_in(a->folder, a->name, *path); /* its space may be what is lacking */
        kolo_error_restore(&first, rc);
    }
    kolo_temp_release(a);
    free(old);
    free(*path);
    *path = NULL;
    return rc;
}

static bool file_contains(const char *path, const char *line)
{
    char *text = NULL;
    const bool same = kolo_file_exists(path) && kolo_file_read(path, &text, NULL) == 0 && !strcmp(text, line);
    free(text);
    return same;
}

int kolo_store_mark_best(const char *run_folder, int64_t step)
{
    char name[STORE_NAME], line[STORE_NAME + 1];
    kolo_store_name(step, name);
    char *target = kolo_format("%s/checkpoints/%s/manifest.json", run_folder, name),
         *path = kolo_format("%s/best", run_folder);
    int rc = target && path ? 0 : KOLO_ENOMEM;
    const int bytes = snprintf(line, sizeof line, "%s\n", name);
    const bool there = rc == 0 && step > 0 && kolo_file_exists(target);
    if (there && !file_contains(path, line)) rc = kolo_file_write_atomic(path, line, (size_t)bytes);
    else if (rc == 0 && !there && unlink(path) < 0 && errno != ENOENT) rc = kolo_fail_io("remove", path);
    free(target);
    free(path);
    return rc;
}

int kolo_store_prune(const char *checkpoints, int64_t step, int64_t best,
                     bool (*ours)(const char *path, void *context), void *context)
{
    char name[STORE_NAME];
    int64_t *steps, n, kept = 0;
    int rc = list(checkpoints, "", &steps, &n);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        kolo_store_name(steps[i], name);
        char *path = kolo_format("%s/%s", checkpoints, name);
        const bool mine = path && ours(path, context),
                   keep = mine && (steps[i] == best || (steps[i] <= step && kept < 2));
        free(path);
        if (!path) rc = KOLO_ENOMEM;
        kept += keep;
        if (!mine || keep) continue;
        rc = remove_step(checkpoints, steps[i], "");
        if (rc == 0 && steps[i] > step)
            kolo_warn("%s: removed the checkpoint of step %" PRId64 ": the run went on from an earlier one",
                      checkpoints, steps[i]);
    }
    free(steps);
    return rc;
}
