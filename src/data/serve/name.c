/* One server a name. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/serve/wire.h"
#include "data/share.h"
#include "kolo/error.h"

enum { LOCK_PATH = sizeof(((struct sockaddr_un *)0)->sun_path) + 8 };

static void lock_path(const struct sockaddr_un *address, char *path)
{
    snprintf(path, LOCK_PATH, "%s.lock", address->sun_path);
}

/* 1: the lock is held; 0: somebody else holds it; negative. */
static int try_lock(const char *path, int flags, int *lock)
{
    struct stat info;
    for (;;) {
        *lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
        if (*lock < 0 || fstat(*lock, &info) < 0) return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
        const int mine = info.st_uid == geteuid()
                             ? kolo_share_claim(*lock, 0, false)
                             : kolo_fail(KOLO_ECONFIG, "%s belongs to user %u; choose another name", path,
                                         (unsigned)info.st_uid);
        if (mine > 0 && fstat(*lock, &info) == 0 && info.st_nlink > 0) return 1;
        close(*lock);
        *lock = -1;
        if (mine <= 0) return mine;
        /* the one before has just removed it */
    }
}

/* Of names whose servers are dead. */
static void remove_left_ones(void)
{
    struct sockaddr_un old;
    char prefix[64], path[LOCK_PATH];
    int lock;
    snprintf(prefix, sizeof prefix, "kolo-serve-%u-", (unsigned)geteuid());
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *e; folder && (e = readdir(folder));) {
        const size_t n = strlen(e->d_name);
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || n < 5 ||
            strcmp(e->d_name + n - 5, ".lock") != 0)
            continue;
        if (n > sizeof old.sun_path - 10) continue;
        old = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(old.sun_path, sizeof old.sun_path, "/dev/shm/%.*s", (int)(n - 5), e->d_name);
        lock_path(&old, path);
        if (try_lock(path, 0, &lock) > 0) serve_name_leave(&old, lock);
    }
    if (folder) closedir(folder);
}

int serve_name_take(const char *name, struct sockaddr_un *address, int *lock)
{
    char path[LOCK_PATH];
    KOLO_TRY(serve_path(name, address));
    if (!strchr(name, '/')) remove_left_ones();
    lock_path(address, path);
    const int mine = try_lock(path, O_CREAT, lock);
    KOLO_TRY(mine);
    return mine ? 0
                : kolo_fail(KOLO_ECONFIG,
                            "data_server=%s: a server of this name runs on this node already; `kolo "
                            "serve-data --status data_server=%s` prints its state",
                            name, name);
}

int serve_name_listen(const struct sockaddr_un *address, int *fd)
{
    struct stat info;
    const char *path = address->sun_path;
    if (lstat(path, &info) == 0 && !S_ISSOCK(info.st_mode))
        return kolo_fail(KOLO_ECONFIG, "%s exists and is not a socket; choose another name", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return kolo_fail(KOLO_EIO, "cannot remove the old %s: %s", path, strerror(errno));
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0) return kolo_fail(KOLO_EIO, "serve-data: cannot create a socket: %s", strerror(errno));
    fchmod(*fd, 0600); /* before it has a name, so that it never has one with another mode */
    if (bind(*fd, (const struct sockaddr *)address, sizeof *address) == 0 && listen(*fd, 128) == 0) return 0;
    const int rc = kolo_fail(KOLO_EIO, "cannot listen at %s: %s", path, strerror(errno));
    close(*fd);
    *fd = -1;
    return rc;
}

/* Under the lock, which goes last: the next server finds neither socket nor file. A file that is no
 * socket is somebody else's. */
void serve_name_leave(const struct sockaddr_un *address, int lock)
{
    struct stat info;
    char path[LOCK_PATH];
    lock_path(address, path);
    if (lstat(address->sun_path, &info) == 0 && S_ISSOCK(info.st_mode)) unlink(address->sun_path);
    unlink(path);
    close(lock);
}
