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
#include "ckpt/identity.h"
#include "ckpt/manifest.h"
#include "ckpt/run.h"
#include "ckpt/store.h"
#include "ckpt/stream.h"
#include "kolo/error.h"

enum { PIECE = 1 << 20 };

static int file_crc(int fd, const char *path, uint64_t bytes, uint32_t *crc)
{
    char *piece = kolo_alloc(PIECE);
    int rc = piece ? 0 : KOLO_ENOMEM;
    *crc = 0;
    for (uint64_t at = 0; rc == 0 && at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        rc = kolo_file_pread(fd, path, piece, n, at);
        if (rc == 0) *crc = kolo_crc32c(*crc, piece, n);
    }
    free(piece);
    return rc;
}

static int verify_file(const char *folder, const char *name, uint64_t wanted, uint32_t wanted_crc)
{
    uint32_t crc;
    char *path = kolo_format("%s/%s", folder, name);
    const int64_t bytes = path ? kolo_file_size(path) : KOLO_ENOMEM;
    int rc = bytes < 0 ? (int)bytes : 0, fd = -1;
    if (rc == 0 && (uint64_t)bytes != wanted)
        rc = kolo_fail(KOLO_EINPUT, "%s: %" PRId64 " bytes, its manifest says %" PRIu64, path, bytes, wanted);
    if (rc == 0 && (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) rc = kolo_fail_io("open", path);
    if (rc == 0) rc = file_crc(fd, path, wanted, &crc);
    if (rc == 0 && crc != wanted_crc)
        rc =
            kolo_fail(KOLO_EINPUT, "%s: damaged: crc32c %08x, its manifest says %08x", path, crc, wanted_crc);
    if (fd >= 0) close(fd);
    free(path);
    return rc;
}

/* What is looked for, and how closely. */
typedef struct search {
    char run[RUN_ID]; /* the folder's; "": not known */
    bool whole;       /* files are compared with their checksums, not only the manifest with its own */
    bool quiet;       /* what is passed over is somebody else's to say */
} search;

static int verify(const char *folder, const search *s, manifest *m)
{
    char *list = kolo_format("%s/manifest.json", folder);
    int rc = list ? kolo_record_read(list, m) : KOLO_ENOMEM;
    free(list);
    if (rc == 0 && *s->run && *m->position.run && strcmp(s->run, m->position.run) != 0)
        rc = kolo_fail(KOLO_EINPUT,
                       "%s: a checkpoint of another run (%.8s; this folder is of %.8s, says its run_id); "
                       "move it to where it belongs",
                       folder, m->position.run, s->run);
    if (rc == 0 && s->whole) rc = verify_file(folder, "tensors.safetensors", m->bytes, m->crc);
    if (rc == 0 && s->whole && m->carried_bytes)
        rc = verify_file(folder, "carried", m->carried_bytes, m->carried_crc);
    return rc;
}

static int read_step(const char *checkpoints, int64_t step, const search *s, kolo_position *position,
                     char *path, size_t size)
{
    char name[STORE_NAME];
    manifest m;
    kolo_store_name(step, name);
    int n = snprintf(path, size, "%s/%s", checkpoints, name);
    if (n < 0 || (size_t)n >= size) return kolo_fail(KOLO_ECONFIG, "%s: this path is too long", checkpoints);
    KOLO_TRY(verify(path, s, &m));
    if (m.position.step != step)
        return kolo_fail(KOLO_EINPUT, "%s: its manifest is of step %" PRId64, path, m.position.step);
    if (!m.listed && !s->quiet)
        kolo_log0(KOLO_LOG_WARN,
                  "%s: written by an older version, which noted neither its run nor a checksum of what ranks "
                  "carry: only its tensors are checked",
                  path);
    *position = m.position;
    return 0;
}

/* 1: whole, 0: gone or damaged (said unless it is gone). One that cannot be read is an
 * error: it may be whole. */
static int try_step(const char *checkpoints, int64_t step, const search *s, kolo_position *position,
                    char *path, size_t size)
{
    const int rc = read_step(checkpoints, step, s, position, path, size);
    if (rc == 0) return 1;
    if (rc == KOLO_ECONFIG || rc == KOLO_ENOMEM || (rc == KOLO_EIO && kolo_file_exists(path))) return rc;
    if (kolo_file_exists(path) && !s->quiet)
        kolo_log0(KOLO_LOG_WARN, "%s; this checkpoint is passed over for the one before", kolo_error_text());
    return 0;
}

static int find_find(const char *run_folder, search *s, kolo_position *position, char *path, size_t size)
{
    int64_t *steps = NULL, n = 0;
    char *checkpoints = kolo_format("%s/checkpoints", run_folder);
    if (!checkpoints) return KOLO_ENOMEM;
    int rc = kolo_identity_read(run_folder, s->run);
    if (rc == 0) rc = kolo_store_list(checkpoints, &steps, &n);
    for (int64_t i = 0; rc == 0 && i < n; i++) rc = try_step(checkpoints, steps[i], s, position, path, size);
    if (rc == 0 && n > 0)
        rc = kolo_fail(
            KOLO_EINPUT,
            "%s: none of the %" PRId64
            " checkpoints is whole and of this run; restore one, or move this folder away to begin anew",
            checkpoints, n);
    if (rc == 0 && size > 0) *path = 0;
    free(steps);
    free(checkpoints);
    return rc;
}

int kolo_checkpoint_find(const char *run_folder, kolo_position *position, char *path, size_t size)
{
    search s = {.whole = true};
    return find_find(run_folder, &s, position, path, size);
}

int kolo_checkpoint_position(const char *run_folder, kolo_position *position)
{
    char path[PATH_MAX];
    search s = {.quiet = true}; /* it is looked for once more before it is read, and said then */
    int rc = find_find(run_folder, &s, position, path, sizeof path);
    s.quiet = false;
    return rc == KOLO_EINPUT ? find_find(run_folder, &s, position, path, sizeof path) : rc;
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
    kolo_fail(KOLO_EINPUT, "%s: no checkpoint of step %" PRId64 "; of those that were written there are:%s",
              run_folder, step, there ? there : "");
    free(there);
    return KOLO_EINPUT;
}

/* By the newest manifest, which is sealed, not by the file RUN/best, where a changed bit would name another.
 */
static int64_t best_of(const char *run_folder)
{
    kolo_position p;
    char path[PATH_MAX];
    search s = {.whole = false};
    const int found = find_find(run_folder, &s, &p, path, sizeof path);
    KOLO_TRY(found);
    if (found && p.best_step > 0) return p.best_step;
    return kolo_fail(KOLO_EINPUT,
                     "%s: no best checkpoint: this run had no validation; give checkpoint=newest, or a step",
                     run_folder);
}

int kolo_checkpoint_pick(const char *run_folder, const char *which, kolo_position *position, char *path,
                         size_t size)
{
    if (!strcmp(which, "newest")) return kolo_checkpoint_find(run_folder, position, path, size);
    search s = {.whole = true};
    const bool best = !strcmp(which, "best");
    const int64_t step = best ? best_of(run_folder) : number_of(which);
    if (best) KOLO_TRY(step);
    if (step < 0)
        return kolo_fail(KOLO_ECONFIG, "checkpoint=%s: it is newest, best, or the number of a step", which);
    char *checkpoints = kolo_format("%s/checkpoints", run_folder);
    if (!checkpoints) return KOLO_ENOMEM;
    int rc = kolo_identity_read(run_folder, s.run);
    if (rc == 0) rc = read_step(checkpoints, step, &s, position, path, size);
    if (rc < 0 && !kolo_file_exists(path)) rc = fail_missing(run_folder, checkpoints, step);
    free(checkpoints);
    return rc < 0 ? rc : 1;
}
