/* offload=optimizer, parameters: the optimizer's state, or parameters, lie in a file without a name, which is
 * mapped. A unit of it is asked for ahead of its use, in the background; behind it its pages leave this
 * process, and are written when the system gets to it. What fits into free memory stays in the system's cache
 * and is not read again. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "exec/parts.h"
#include "kolo/error.h"
#include "plan/shard.h"

static int fail_room(const char *folder, size_t bytes, const char *what)
{
    const int64_t free_bytes = kolo_file_free_bytes(folder);
    return kolo_fail(
        KOLO_EIO,
        "offload_path=%s: no room for %zu bytes of %s, %lld are free: name another folder, on a disk of the "
        "node",
        folder, bytes, what, (long long)(free_bytes < 0 ? 0 : free_bytes));
}

/* Some file systems have no files without a name. */
static int open_file(const char *folder)
{
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    char *name = kolo_format("%s/.kolo-offload-XXXXXX", folder);
    const int made = name ? mkostemp(name, O_CLOEXEC) : -1;
    if (made >= 0) unlink(name);
    free(name);
    return made;
}

int exec_offload_file(const char *folder, size_t bytes, const char *what, int *file)
{
    if (!*folder) folder = "/tmp";
    *file = open_file(folder);
    if (*file < 0) return kolo_fail_in(kolo_file_fail("write", folder), "offload_path=: ");
    const int rc = posix_fallocate(*file, 0, (off_t)bytes);
    if (rc == ENOSPC || rc == EFBIG || rc == EDQUOT) return fail_room(folder, bytes, what);
    if (rc == 0) return 0;
    errno = rc;
    return kolo_fail_in(kolo_file_fail("write", folder), "offload_path=: ");
}

static int map_file(kolo_exec *e, enum kolo_arena arena, const char *what)
{
    const size_t bytes = e->plan->arena_bytes[arena];
    const char *folder = e->options->offload_path;
    if (bytes == 0) return 0;
    KOLO_TRY(exec_offload_file(folder, bytes, what, &e->file[arena]));
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, e->file[arena], 0);
    if (at == MAP_FAILED) return kolo_fail_in(kolo_file_fail("map", folder), "offload_path=: ");
    e->arena[arena] = at;
    return 0;
}

int exec_offload_open(kolo_exec *e)
{
    const int offload = e->plan->config.offload;
    if (!e->plan->config.optimizer || e->owner != e) return 0;
    if (offload & KOLO_OFFLOAD_STATE) KOLO_TRY(map_file(e, KOLO_ARENA_STATE, "the optimizer's state"));
    return offload & KOLO_OFFLOAD_PARAM ? map_file(e, KOLO_ARENA_PARAM, "parameters") : 0;
}

void exec_offload_close(kolo_exec *e)
{
    for (int a = 0; a < KOLO_ARENAS; a++) {
        if (e->file[a] < 0) continue;
        if (e->arena[a]) munmap(e->arena[a], e->plan->arena_bytes[a]);
        e->arena[a] = NULL;
        close(e->file[a]);
    }
}

/* Whole pages around, or (within) inside of [from, from + bytes) of the arena. */
static size_t pages(size_t *from, size_t bytes, bool within)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), end = *from + bytes;
    *from = within ? kolo_round_up(*from, page) : *from / page * page;
    const size_t last = within ? end / page * page : kolo_round_up(end, page);
    return last > *from ? last - *from : 0;
}

/* Of advice the system may make what it likes. */
static void evict(kolo_exec *e, enum kolo_arena arena, size_t from, size_t bytes)
{
    if ((bytes = pages(&from, bytes, true)) == 0) return;
    madvise(e->arena[arena] + from, bytes, MADV_DONTNEED);
    sync_file_range(e->owner->file[arena], (off_t)from, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

/* Parameters, or one number of the state for each of them, stand one array behind the other. */
static int arrays(const kolo_exec *e, enum kolo_arena arena)
{
    return arena == KOLO_ARENA_STATE ? kolo_plan_states(e->plan) : 1;
}

static size_t unit_at(const kolo_exec *e, enum kolo_arena arena, int unit, int array, size_t *bytes)
{
    const kolo_unit *u = &e->plan->unit[unit];
    int64_t from = u->param, to = u->param + u->params;
    if (arena == KOLO_ARENA_STATE) exec_own_range(e, unit, &from, &to);
    *bytes = to > from ? (size_t)(to - from) * sizeof(float) : 0;
    if (arena == KOLO_ARENA_PARAM) return (size_t)from * sizeof(float);
    return (size_t)array * kolo_plan_state_bytes(e->plan) +
           (size_t)exec_stored_at(e, unit, from) * sizeof(float);
}

void exec_fetch(kolo_exec *e, enum kolo_arena arena, int unit)
{
    for (int i = 0; i < arrays(e, arena); i++) {
        size_t bytes, from = unit_at(e, arena, unit, i, &bytes);
        if (bytes && (bytes = pages(&from, bytes, false)) > 0)
            madvise(e->arena[arena] + from, bytes, MADV_WILLNEED);
    }
}

void exec_evict(kolo_exec *e, enum kolo_arena arena, int unit)
{
    for (int i = 0; i < arrays(e, arena); i++) {
        size_t bytes;
        const size_t from = unit_at(e, arena, unit, i, &bytes);
        if (bytes) evict(e, arena, from, bytes);
    }
}

void exec_evict_all(kolo_exec *e, enum kolo_arena arena)
{
    if (e->owner->file[arena] >= 0) evict(e, arena, 0, e->plan->arena_bytes[arena]);
}

void exec_evict_pages(kolo_exec *e, const void *at, size_t bytes)
{
    for (int a = 0; a < KOLO_ARENAS; a++) {
        const char *arena = e->arena[a];
        if (e->owner->file[a] < 0 || !arena || (const char *)at < arena ||
            (const char *)at >= arena + e->plan->arena_bytes[a])
            continue;
        evict(e, (enum kolo_arena)a, (size_t)((const char *)at - arena), bytes);
    }
}
