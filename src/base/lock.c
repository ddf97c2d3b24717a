#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/owner.h"
#include "kolo/error.h"

enum { PATIENCE_MS = 10000, POLL_MS = 50, SETTLE_MS = 500 };

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR) continue;
}

static int fail_io(const run_lock *lock, const char *verb)
{
    return kolo_fail(KOLO_EIO,
                     "%s: cannot %s: %s; check its permissions and the free space, or choose another %s",
                     lock->path, verb, strerror(errno), lock->what);
}

static int fail_held(const run_lock *lock, const char *folder, const owner *o, const char *state)
{
    char who[512];
    kolo_owner_text(o, who, sizeof who);
    return kolo_fail(KOLO_ECONFIG,
                     "%s: this folder is in use by %s%s%s%s; wait for it, end it%s%s, or choose another %s",
                     folder, who, *state ? " (" : "", state, *state ? ")" : "", *o->job ? ": scancel " : "",
                     o->job, lock->what);
}

static int fail_unknown(const run_lock *lock, const char *folder, const owner *o)
{
    char who[512];
    kolo_owner_text(o, who, sizeof who);
    return kolo_fail(KOLO_ECONFIG,
                     "%s: this folder belongs to %s, and this host cannot check whether that still runs; if "
                     "it does not, remove %s and start again, else choose another %s",
                     folder, who, lock->path, lock->what);
}

static bool still_there(int fd, const char *path)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

/* 1; 0: nobody noted anything, or it cannot be read; KOLO_ENOMEM: there may be an owner. */
static int read_owner(const char *path, owner *o)
{
    char *text = NULL;
    int rc = kolo_file_read(path, &text, NULL);
    if (rc != KOLO_ENOMEM) rc = rc == 0 && kolo_owner_read(o, text);
    free(text);
    return rc;
}

/* The kernel's lock on the newest file of this name. A killed owner holds it until all its memory is given
 * back, so a dying one is waited for, a living one is not. */
static int acquire_kernel_lock(run_lock *lock, const char *folder)
{
    for (int waited = 0;; waited += POLL_MS) {
        lock->fd = kolo_file_open_plain(lock->path, O_RDWR | O_CREAT, 0666);
        if (lock->fd < 0) return lock->fd;
        int rc = flock(lock->fd, LOCK_EX | LOCK_NB);
        /* any other error: a file system without locks; the content decides */
        bool held = rc < 0 && errno == EWOULDBLOCK;
        if (!held && still_there(lock->fd, lock->path)) return 0;
        owner o = {.host = "an unknown host", .since = "now"}, me;
        bool known = held && read_owner(lock->path, &o) > 0;
        close(lock->fd);
        lock->fd = -1;
        kolo_owner_self(&me);
        bool dying = !known || (!strcmp(o.boot, me.boot) && !kolo_owner_process_runs(&o));
        if (held && (!dying || waited >= PATIENCE_MS)) return fail_held(lock, folder, &o, "");
        if (held) sleep_ms(POLL_MS);
    }
}

static int write_owner(const run_lock *lock, const owner *me)
{
    char *text = kolo_owner_write(me);
    if (!text) return kolo_fail(KOLO_ENOMEM, "%s: out of memory", lock->path);
    int rc = ftruncate(lock->fd, 0) < 0 ? fail_io(lock, "write") : 0;
    if (rc == 0) rc = kolo_file_pwrite(lock->fd, lock->path, text, strlen(text), 0);
    if (rc == 0 && fsync(lock->fd) < 0) rc = fail_io(lock, "write");
    free(text);
    return rc;
}

/* What the content says about taking this lock over. */
static int lock_check_owner(const run_lock *lock, const char *folder, const owner *was, const owner *me)
{
    char state[64], who[512];
    enum owner_state is = kolo_owner_look(was, me, state, sizeof state);
    if (is == OWNER_ALIVE) return fail_held(lock, folder, was, state);
    if (is == OWNER_UNKNOWN) return fail_unknown(lock, folder, was);
    kolo_owner_text(was, who, sizeof who);
    if (is == OWNER_GONE)
        kolo_warn("%s: was in use by %s, which is gone: this run takes the folder over", folder, who);
    return 0;
}

static int take_over(run_lock *lock, const char *folder)
{
    owner me, was, now;
    kolo_owner_self(&me);
    const int old = read_owner(lock->path, &was);
    KOLO_TRY(old);
    if (old) KOLO_TRY(lock_check_owner(lock, folder, &was, &me));
    KOLO_TRY(write_owner(lock, &me));
    if (!old || !strcmp(was.boot, me.boot)) return 0;
    /* Two machines may have found the same old lock abandoned at once, where flock does not reach from one to
     * the other: the last to write owns it, and both see that now. */
    sleep_ms(SETTLE_MS);
    const int seen = read_owner(lock->path, &now);
    KOLO_TRY(seen);
    return seen && !kolo_owner_equal(&now, &me) ? fail_held(lock, folder, &now, "") : 0;
}

int kolo_lock_take(run_lock *lock, const char *folder, const char *file, const char *what)
{
    *lock = (run_lock){.fd = -1, .path = kolo_format("%s/%s", folder, file), .what = what};
    if (!lock->path) return KOLO_ENOMEM;
    int rc = acquire_kernel_lock(lock, folder);
    if (rc == 0) rc = take_over(lock, folder);
    if (rc < 0) {
        if (lock->fd >= 0) close(lock->fd);
        free(lock->path);
        *lock = (run_lock){.fd = -1};
    }
    return rc;
}

void kolo_lock_release(run_lock *lock)
{
    if (lock->fd >= 0) {
        if (still_there(lock->fd, lock->path)) unlink(lock->path);
        close(lock->fd);
    }
    free(lock->path);
    *lock = (run_lock){.fd = -1};
}
