#include "ckpt/store.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/stream.h"
#include "kolo/error.h"

static const char tmp_suffix[] = ".tmp", old_suffix[] = ".old";

void kolo_store_name(int64_t step, char name[STORE_NAME]) { snprintf(name, STORE_NAME, "step-%010" PRId64, step); }

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

int kolo_store_list(const char *checkpoints, int64_t **steps, int64_t *n) { return list(checkpoints, "", steps, n); }

static int remove_step(const char *checkpoints, int64_t step, const char *suffix)
{
    char name[STORE_NAME];
    kolo_store_name(step, name);
    char *path = kolo_format("%s/%s%s", checkpoints, name, suffix);
    if (!path) return KOLO_ECONFIG;
    int rc = kolo_folder_remove(path);
    free(path);
    return rc;
}

/* A writer died between the two renames of a replacement: the old one is still the whole one. */
static int restore_old(const char *checkpoints, int64_t step, bool *restored)
{
    char name[STORE_NAME];
    kolo_store_name(step, name);
    char *to = kolo_format("%s/%s", checkpoints, name), *old = kolo_format("%s/%s%s", checkpoints, name, old_suffix);
    int rc = to && old ? 0 : KOLO_ECONFIG;
    *restored = rc == 0 && !kolo_file_exists(to);
    if (*restored && rename(old, to) < 0) rc = kolo_fail_io("rename", old);
    free(to);
    free(old);
    return rc;
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
    if (rc < 0) return rc;
    rc = list(checkpoints, tmp_suffix, &steps, &n);
    for (int64_t i = 0; rc == 0 && i < n; i++) rc = remove_step(checkpoints, steps[i], tmp_suffix);
    free(steps);
    return rc;
}

int kolo_store_commit(const char *checkpoints, int64_t step)
{
    char name[STORE_NAME];
    kolo_store_name(step, name);
    char *to = kolo_format("%s/%s", checkpoints, name), *from = kolo_format("%s/%s%s", checkpoints, name, tmp_suffix);
    char *old = kolo_format("%s/%s%s", checkpoints, name, old_suffix);
    int rc = to && from && old ? 0 : KOLO_ECONFIG;
    bool replaces = rc == 0 && kolo_file_exists(to);
    if (replaces && rename(to, old) < 0) rc = kolo_fail_io("rename", to);
    if (rc == 0 && rename(from, to) < 0) rc = kolo_fail_io("rename", from);
    if (rc == 0) rc = kolo_folder_sync(checkpoints);
    if (rc == 0 && replaces) rc = kolo_folder_remove(old);
    free(to);
    free(from);
    free(old);
    return rc;
}

int kolo_store_mark_best(const char *run_folder, int64_t step)
{
    char name[STORE_NAME], line[STORE_NAME + 1];
    kolo_store_name(step, name);
    char *target = kolo_format("%s/checkpoints/%s/manifest.json", run_folder, name), *path = kolo_format("%s/best", run_folder);
    int rc = target && path ? 0 : KOLO_ECONFIG;
    const int bytes = snprintf(line, sizeof line, "%s\n", name);
    const bool there = rc == 0 && step > 0 && kolo_file_exists(target);
    if (there && kolo_store_best(run_folder) != step) rc = kolo_file_write_atomic(path, line, (size_t)bytes);
    else if (rc == 0 && !there && unlink(path) < 0 && errno != ENOENT) rc = kolo_fail_io("remove", path);
    free(target);
    free(path);
    return rc;
}

int64_t kolo_store_best(const char *run_folder)
{
    int64_t step = -1;
    char *path = kolo_format("%s/best", run_folder), *text = NULL;
    if (path && kolo_file_read(path, &text, NULL) == 0) {
        text[strcspn(text, "\r\n")] = 0;
        step = parse_name(text, "");
    }
    free(text);
    free(path);
    return step;
}

int kolo_store_prune(const char *run_folder, const char *checkpoints, int64_t step)
{
    int64_t *steps, n, best = kolo_store_best(run_folder), kept = 0;
    int rc = list(checkpoints, "", &steps, &n);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        if (steps[i] == best || (steps[i] <= step && kept < 2)) kept++;
        else rc = remove_step(checkpoints, steps[i], "");
        if (rc == 0 && steps[i] > step) kolo_warn("%s: removed the checkpoint of step %" PRId64 ": the run went on from an earlier one", checkpoints, steps[i]);
    }
    free(steps);
    return rc;
}
