#include "base/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "kolo/error.h"

static const char folder_name[] = "/dev/shm";

/* ---- whose is it ---- */

static bool is_ours(const struct stat *info) { return S_ISREG(info->st_mode) && info->st_uid == geteuid(); }

int kolo_shm_open_own(const char *name)
{
    struct stat info;
    const int fd = shm_open(name, O_RDWR | O_CREAT, 0600); /* follows no link */
    if (fd < 0 && (errno == EACCES || errno == EPERM || errno == ELOOP || errno == EISDIR || errno == ENXIO))
        return -1;
    if (fd < 0) return KOLO_EIO;
    if (fstat(fd, &info) == 0 && is_ours(&info) && !(info.st_mode & 077)) return fd;
    close(fd);
    return -1;
}

int kolo_shm_lock(int fd, int operation, double seconds)
{
    const double begin = kolo_time();
    const struct timespec nap = {0, 20000000};
    for (;;) {
        if (flock(fd, operation | LOCK_NB) == 0) return 1;
        if (errno != EWOULDBLOCK && errno != EINTR) return KOLO_EIO;
        if (kolo_time() - begin > seconds) return 0;
        nanosleep(&nap, NULL);
    }
}

/* ---- what is left ---- */

/* Takes every kind of lock that users hold; it goes with the descriptor. */
static bool shm_lock_all(int fd)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return flock(fd, LOCK_EX | LOCK_NB) == 0 && fcntl(fd, F_OFD_SETLK, &all) == 0;
}

/* The kernel's list of locks: "1: FLOCK ADVISORY WRITE 4242 00:18:7 0 EOF"; of locks of open files it tells
 * no process. */
static long holder_of(const struct stat *info)
{
    char line[256];
    long found = 0;
    FILE *f = fopen("/proc/locks", "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        long pid = 0;
        unsigned major = 0, minor = 0;
        unsigned long inode = 0;
        if (sscanf(line, "%*s %*s %*s %*s %ld %x:%x:%lu", &pid, &major, &minor, &inode) != 4) continue;
        if (inode == info->st_ino && major == major(info->st_dev) && minor == minor(info->st_dev) && pid > 0)
            found = pid;
    }
    if (f) fclose(f);
    return found;
}

typedef struct kind {
    int bit;
    bool by_user; /* the user's number follows */
    const char *begin, *end;
    int young; /* seconds that an empty one may be of somebody who is just making it */
} kind;

static const kind kinds_known[] = {
    /* as kolo_launch_start names jobs; locked before it has a size */
    {KOLO_SHM_RANKS, false, "kolo-kolo.", "", 60},
    /* who finds one of these gone makes another */
    {KOLO_SHM_CACHES, true, "kolo-data-", "", 0},
    {KOLO_SHM_LAUNCHES, true, "kolo-launch-", "", 0},
    {KOLO_SHM_SERVERS, true, "kolo-serve-", ".lock", 0},
};

static const kind *kind_of(const char *name, int kinds)
{
    char begin[64];
    for (size_t i = 0; i < sizeof kinds_known / sizeof *kinds_known; i++) {
        const kind *k = &kinds_known[i];
        const size_t length = strlen(name), end = strlen(k->end);
        snprintf(begin, sizeof begin, "%s", k->begin);
        if (k->by_user) snprintf(begin, sizeof begin, "%s%u-", k->begin, (unsigned)geteuid());
        if ((kinds & k->bit) && !strncmp(name, begin, strlen(begin)) && length > strlen(begin) + end &&
            !strcmp(name + length - end, k->end))
            return k;
    }
    return NULL;
}

/* A server's socket goes before the lock beside it. */
static void remove_socket(int folder, const char *lock)
{
    char name[NAME_MAX + 1];
    struct stat info;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(lock) - strlen(".lock")), lock);
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode) &&
        info.st_uid == geteuid())
        unlinkat(folder, name, 0);
}

/* False: there is nothing to report. */
static bool shm_inspect(int folder, const kind *k, kolo_shm_object *o)
{
    struct stat info;
    const bool seen = fstatat(folder, o->name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (!seen) return false;
    o->uid = (unsigned)info.st_uid;
    o->bytes = (uint64_t)info.st_blocks * 512;
    o->state = is_ours(&info) ? KOLO_SHM_USED : KOLO_SHM_FOREIGN;
    if (o->state == KOLO_SHM_FOREIGN) return k->by_user; /* else the name is of another user's job */
    const int fd = openat(folder, o->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    const bool being_made = info.st_size == 0 && time(NULL) - info.st_mtime <= k->young;
    if (!being_made && shm_lock_all(fd)) {
        if (fstat(fd, &info) == 0 && is_ours(&info) && info.st_nlink > 0) {
            if (k->bit == KOLO_SHM_SERVERS) remove_socket(folder, o->name);
            if (unlinkat(folder, o->name, 0) == 0) o->state = KOLO_SHM_REMOVED;
        }
    } else o->holder = holder_of(&info);
    close(fd);
    return true;
}

int kolo_shm_sweep(int kinds, void (*report)(const kolo_shm_object *object, void *context), void *context)
{
    int removed = 0;
    DIR *folder = opendir(folder_name);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        kolo_shm_object o = {.name = entry->d_name};
        const kind *k = kind_of(entry->d_name, kinds);
        if (!k || !shm_inspect(dirfd(folder), k, &o)) continue;
        removed += o.state == KOLO_SHM_REMOVED;
        if (report) report(&o, context);
    }
    if (folder) closedir(folder);
    return removed;
}
