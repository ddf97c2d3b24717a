/* The newest whole checkpoint of a run folder. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/manifest.h"
#include "ckpt/run.h"
#include "ckpt/store.h"
#include "ckpt/stream.h"
#include "kolo/error.h"

enum { PIECE = 1 << 20 };

static int file_crc(int fd, const char *path, uint64_t bytes, uint32_t *crc)
{
    char *piece = kolo_alloc(PIECE);
    int rc = piece ? 0 : KOLO_ECONFIG;
    *crc = 0;
    for (uint64_t at = 0; rc == 0 && at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        rc = kolo_file_pread(fd, path, piece, n, at);
        if (rc == 0) *crc = kolo_crc32c(*crc, piece, n);
    }
    free(piece);
    return rc;
}

static int verify_tensors(const char *path, const manifest *m)
{
    uint32_t crc;
    int64_t bytes = kolo_file_size(path);
    KOLO_TRY(bytes);
    if ((uint64_t)bytes != m->bytes) return kolo_fail(KOLO_EINPUT, "%s: %" PRId64 " bytes, its manifest says %" PRIu64, path, bytes, m->bytes);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return kolo_fail_io("open", path);
    int rc = file_crc(fd, path, m->bytes, &crc);
    close(fd);
    if (rc == 0 && crc != m->crc) rc = kolo_fail(KOLO_EINPUT, "%s: damaged: crc32c %08x, its manifest says %08x", path, crc, m->crc);
    return rc;
}

static int verify(const char *folder, bool whole, manifest *m)
{
    char *list = kolo_format("%s/manifest.json", folder), *tensors = kolo_format("%s/tensors.safetensors", folder);
    int rc = list && tensors ? kolo_record_read(list, m) : KOLO_ECONFIG;
    if (rc == 0 && whole) rc = verify_tensors(tensors, m);
    free(list);
    free(tensors);
    return rc;
}

/* whole: its tensors are compared with their checksum. */
static int read_step(const char *checkpoints, int64_t step, bool whole, kolo_position *position, char *path, size_t size)
{
    char name[STORE_NAME];
    manifest m;
    kolo_store_name(step, name);
    int n = snprintf(path, size, "%s/%s", checkpoints, name);
    if (n < 0 || (size_t)n >= size) return kolo_fail(KOLO_ECONFIG, "%s: this path is too long", checkpoints);
    KOLO_TRY(verify(path, whole, &m));
    if (m.position.step != step) return kolo_fail(KOLO_EINPUT, "%s: its manifest is of step %" PRId64, path, m.position.step);
    *position = m.position;
    return 0;
}

/* 1: whole, 0: gone or damaged (said unless it is gone). One that cannot be read is an error: it may be whole. */
static int try_step(const char *checkpoints, int64_t step, bool whole, kolo_position *position, char *path, size_t size)
{
    const int rc = read_step(checkpoints, step, whole, position, path, size);
    if (rc == 0) return 1;
    if (rc == KOLO_ECONFIG || (rc == KOLO_EIO && kolo_file_exists(path))) return rc;
    if (kolo_file_exists(path)) kolo_log0(KOLO_LOG_WARN, "%s; this checkpoint is passed over for the one before", kolo_error_text());
    return 0;
}

static int find(const char *run_folder, bool whole, kolo_position *position, char *path, size_t size)
{
    int64_t *steps = NULL, n = 0;
    char *checkpoints = kolo_format("%s/checkpoints", run_folder);
    if (!checkpoints) return KOLO_ECONFIG;
    int rc = kolo_store_list(checkpoints, &steps, &n);
    for (int64_t i = 0; rc == 0 && i < n; i++) rc = try_step(checkpoints, steps[i], whole, position, path, size);
    if (rc == 0 && n > 0)
        rc = kolo_fail(KOLO_EINPUT, "%s: none of the %" PRId64 " checkpoints is whole; restore one, or move this folder away to begin anew", checkpoints, n);
    if (rc == 0 && size > 0) *path = 0;
    free(steps);
    free(checkpoints);
    return rc;
}

int kolo_checkpoint_find(const char *run_folder, kolo_position *position, char *path, size_t size) { return find(run_folder, true, position, path, size); }

int kolo_checkpoint_position(const char *run_folder, kolo_position *position)
{
    char path[PATH_MAX];
    return find(run_folder, false, position, path, sizeof path);
}

static int64_t number_of(const char *which)
{
    char *end;
    errno = 0;
    const long long step = strtoll(which, &end, 10);
    return errno || end == which || *end || step < 0 ? -1 : step;
}

static int fail_missing(const char *run_folder, const char *checkpoints, int64_t step)
{
    int64_t *steps = NULL, n = 0;
    KOLO_TRY(kolo_store_list(checkpoints, &steps, &n));
    char *there = kolo_strdup(n ? "" : " none");
    for (int64_t i = n; there && i-- > 0;) {
        char *longer = kolo_format("%s %" PRId64, there, steps[i]);
        free(there);
        there = longer;
    }
    free(steps);
    kolo_fail(KOLO_EINPUT, "%s: no checkpoint of step %" PRId64 "; of those that were written there are:%s", run_folder, step, there ? there : "");
    free(there);
    return KOLO_EINPUT;
}

int kolo_checkpoint_pick(const char *run_folder, const char *which, kolo_position *position, char *path, size_t size)
{
    if (!strcmp(which, "newest")) return kolo_checkpoint_find(run_folder, position, path, size);
    const bool best = !strcmp(which, "best");
    const int64_t step = best ? kolo_store_best(run_folder) : number_of(which);
    if (step < 0 && best) return kolo_fail(KOLO_EINPUT, "%s: no checkpoint is known as the best: nothing was validated, or the best was lost", run_folder);
    if (step < 0) return kolo_fail(KOLO_ECONFIG, "checkpoint=%s: it is newest, best, or the number of a step", which);
    char *checkpoints = kolo_format("%s/checkpoints", run_folder);
    if (!checkpoints) return KOLO_ECONFIG;
    int rc = read_step(checkpoints, step, true, position, path, size);
    if (rc < 0 && !kolo_file_exists(path)) rc = fail_missing(run_folder, checkpoints, step);
    free(checkpoints);
    return rc < 0 ? rc : 1;
}
