#include "base/temp_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

static const char mark[] = ".tmp-kolo-",
                  old_mark[] = ".tmp-"; /* old: of versions that did not say whose it is */
enum { DIGITS = 16, TAIL = sizeof mark - 1 + DIGITS, TRIES = 100, DAY = 24 * 60 * 60 };

/* ---- names ---- */

/* As much of the target's name as leaves room for the rest. */
static int head_length(const char *target)
{
    const size_t length = strlen(target);
    return (int)(length + TAIL <= NAME_MAX ? length : NAME_MAX - TAIL);
}

static char *random_name(const char *target)
{
    uint64_t word;
    if (getrandom(&word, sizeof word, 0) == (ssize_t)sizeof word)
        return kolo_format("%.*s%s%016" PRIx64, head_length(target), target, mark, word);
    kolo_fail(KOLO_EIO, "cannot draw a random name for a temporary file: %s", strerror(errno));
    return NULL;
}

static bool ends_in_digits(const char *name, const char *before, const char *digits, size_t least,
                           size_t most)
{
    const size_t length = strlen(name), head = strlen(before);
    size_t n = 0;
    while (n < length && strchr(digits, name[length - n - 1])) n++;
    return n >= least && n <= most && length >= n + head && !memcmp(name + length - n - head, before, head);
}

/* With `target`: of that file, else of any. */
static bool is_of(const char *name, const char *target)
{
    const size_t head = target ? strlen(target) : 0;
    return !target || (!strncmp(name, target, head) && !strncmp(name + head, old_mark, sizeof old_mark - 1));
}

/* Only this program calls files so. */
static bool is_ours_by_name(const char *name)
{
    return ends_in_digits(name, mark, "0123456789abcdef", DIGITS, DIGITS);
}

static bool is_old(const char *name, const char *target)
{
    return is_of(name, target) && ends_in_digits(name, old_mark, "0123456789abcdef", DIGITS, DIGITS);
}

/* NAME.tmp-PID, which nothing locks. A writer on another node would have changed it. */
static bool is_numbered(int folder, const char *name, const char *target)
{
    struct stat info;
    if (!is_of(name, target) || !ends_in_digits(name, old_mark, "0123456789", 1, 10)) return false;
    const long pid = atol(strrchr(name, '-') + 1);
    return kill((pid_t)pid, 0) < 0 && errno == ESRCH &&
           fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && time(NULL) - info.st_mtime > DAY;
}

/* ---- leftovers ---- */

/* Ours alone, and nobody who writes it lives: a file system without locks keeps what is left there. To write:
 * NFS locks no other descriptor exclusively. */
static void remove_dead(int folder, const char *name)
{
    struct stat info;
    const int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    const bool ours =
        fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1;
    if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(folder, name, 0);
    close(fd);
}

/* target: that which is written now, whose leftovers of older versions go too; NULL: those of any. */
static void remove_left_ones(int folder, const char *target)
{
    const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* an offset of its own */
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir && again >= 0) close(again);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (is_ours_by_name(e->d_name) || is_old(e->d_name, target) || is_numbered(folder, e->d_name, target))
            remove_dead(folder, e->d_name);
    if (dir) closedir(dir);
}

void kolo_temp_sweep(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    remove_left_ones(fd, NULL);
    close(fd);
}

int kolo_temp_sweep_folder(int folder, const char *name, const char *path)
{
    struct stat info;
    const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return 0; /* no folder: whatever it is, this program has not made it */
    int rc = 0;
    const bool dead = fstat(fd, &info) == 0 && info.st_uid == geteuid() &&
                      (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    if (dead) rc = kolo_folder_remove_in(folder, name, path);
    close(fd);
    return rc < 0 ? rc : dead;
}

/* ---- opening ---- */

/* False: its folder is everybody's, and the link is neither ours nor the owner's. */
static bool trusts_link(const char *path, const struct stat *link)
{
    struct stat folder;
    char *parent = kolo_file_parent(path);
    const bool known = parent && stat(parent, &folder) == 0;
    free(parent);
    return known &&
           (!(folder.st_mode & S_IWOTH) || link->st_uid == geteuid() || link->st_uid == folder.st_uid);
}

/* The path of what is replaced or written to. */
static int find_target(const char *path, char **target, bool *replaced)
{
    struct stat st, link;
    const bool there = stat(path, &st) == 0, is_link = lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
    *replaced = !there || S_ISREG(st.st_mode);
    *target = NULL;
    if (there && S_ISDIR(st.st_mode)) return kolo_fail(KOLO_EINPUT, "%s: a folder; name a file in it", path);
    if (is_link && !trusts_link(path, &link))
        return kolo_fail(KOLO_EIO,
                         "%s: a link of user %u in a folder that everybody may write to is not followed; "
                         "remove it, or choose another place",
                         path, (unsigned)link.st_uid);
    if (there && *replaced) *target = realpath(path, NULL);
    if (there && *replaced && !*target && errno == ENOMEM) return kolo_no_memory(PATH_MAX);
    if (!*target) *target = kolo_strdup(path);
    return *target ? 0 : KOLO_ENOMEM;
}

static int open_folder(const char *target, const char *path)
{
    char *parent = kolo_file_parent(target);
    if (!parent) return KOLO_ENOMEM;
    const int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(parent);
    return fd >= 0 ? fd : kolo_file_fail("create", path);
}

/* A file or a folder that was not there before. */
static int temp_make(const kolo_temp_file *a, bool folder)
{
    const int flags = O_NOFOLLOW | O_CLOEXEC;
    if (!folder) return openat(a->folder, a->name, O_RDWR | O_CREAT | O_EXCL | flags, 0666);
    if (mkdirat(a->folder, a->name, 0777) < 0) return -1;
    const int fd = openat(a->folder, a->name, O_RDONLY | O_DIRECTORY | flags);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) errno = EEXIST; /* taken from us */
    return fd;
}

/* What another process took for a leftover, in the moment before it was locked, is given up for a new one. */
static int make_new(kolo_temp_file *a, const char *path, bool folder)
{
    struct stat info;
    for (int i = 0; i < TRIES; i++) {
        free(a->name);
        if (!(a->name = random_name(a->target))) return KOLO_ENOMEM;
        a->fd = temp_make(a, folder);
        if (a->fd < 0 && errno == EEXIST) continue;
        if (a->fd < 0) return kolo_file_fail(folder ? "make the folder" : "create", path), KOLO_EIO;
        const bool taken = flock(a->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
        if (!taken && fstat(a->fd, &info) == 0 && (folder ? info.st_nlink > 0 : info.st_nlink == 1)) return 0;
        close(a->fd);
        a->fd = -1;
    }
    return kolo_fail(KOLO_EIO,
                     "%s: cannot create: each of %d temporary names beside it was taken by another process; "
                     "choose another folder",
                     path, TRIES);
}

static int open_itself(kolo_temp_file *a, const char *target, const char *path)
{
    struct stat info;
    a->fd = open(target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (a->fd < 0) return kolo_file_fail("open", path), KOLO_EIO;
    if (fstat(a->fd, &info) == 0 && !S_ISREG(info.st_mode)) return 0;
    return kolo_fail(KOLO_EIO, "%s: became a file while it was opened; try again", path);
}

void kolo_temp_release(kolo_temp_file *a)
{
    if (a->fd >= 0) close(a->fd);
    if (a->folder >= 0) close(a->folder);
    free(a->target);
    free(a->name);
    *a = (kolo_temp_file){.folder = -1, .fd = -1};
}

/* a->folder is open. */
static int open_beside(kolo_temp_file *a, const char *name, const char *path, bool folder)
{
    if (!(a->target = kolo_strdup(name))) return KOLO_ENOMEM;
    remove_left_ones(a->folder, a->target);
    return make_new(a, path, folder);
}

static int open_new(kolo_temp_file *a, const char *target, const char *path)
{
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    if (!*name) return errno = ENOENT, kolo_file_fail("create", path);
    KOLO_TRY(a->folder = open_folder(target, path));
    return open_beside(a, name, path, false);
}

static int open_held(kolo_temp_file *a, int folder, const char *name, const char *path, bool is_folder)
{
    *a = (kolo_temp_file){.folder = fcntl(folder, F_DUPFD_CLOEXEC, 0), .fd = -1};
    const int rc = a->folder < 0 ? kolo_file_fail("create", path) : open_beside(a, name, path, is_folder);
    if (rc < 0) kolo_temp_release(a);
    return rc;
}

int kolo_temp_open_in(kolo_temp_file *a, int folder, const char *name, const char *path)
{
    return open_held(a, folder, name, path, false);
}

int kolo_temp_open_folder(kolo_temp_file *a, int folder, const char *name, const char *path)
{
    return open_held(a, folder, name, path, true);
}

int kolo_temp_open(kolo_temp_file *a, const char *path)
{
    char *target;
    bool replaced;
    *a = (kolo_temp_file){.folder = -1, .fd = -1};
    KOLO_TRY(find_target(path, &target, &replaced));
    const int rc = replaced ? open_new(a, target, path) : open_itself(a, target, path);
    free(target);
    if (rc < 0) kolo_temp_release(a);
    return rc < 0 ? rc : 0;
}

/* Network file systems report a full disk at a close; the lock must stand until the file has its name, so it
 * is a second descriptor that is closed. */
static int close_second(int fd, const char *path)
{
    const int second = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return second >= 0 && close(second) < 0 ? kolo_file_fail("close", path) : 0;
}

int kolo_temp_commit(kolo_temp_file *a, const char *path, int rc)
{
    const bool replaces = a->name != NULL;
    if (rc == 0 && replaces) rc = kolo_file_sync(a->fd, path);
    if (rc == 0) rc = close_second(a->fd, path);
    if (rc == 0 && replaces && renameat(a->folder, a->name, a->folder, a->target) < 0)
        rc = (kolo_file_fail("replace", path), KOLO_EIO);
    if (rc < 0 && replaces) unlinkat(a->folder, a->name, 0);
    if (rc == 0 && replaces) rc = kolo_folder_sync_held(a->folder, path);
    kolo_temp_release(a);
    return rc;
}

/* ---- files and folders that stay ---- */

/* Where others may put files. Elsewhere a second name is a backup's (cp -al). */
static bool is_shared(const char *path)
{
    struct stat folder;
    char *parent = kolo_file_parent(path);
    const bool shared = !parent || stat(parent, &folder) < 0 || (folder.st_mode & (S_IWGRP | S_IWOTH));
    free(parent);
    return shared;
}

int kolo_file_open_plain(const char *path, int flags, mode_t mode)
{
    struct stat info;
    const int fd =
        open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode); /* a pipe would keep us waiting */
    if (fd < 0 && errno == ELOOP)
        return kolo_fail(KOLO_EIO, "%s: a link where a file of this program is expected; remove it", path);
    if (fd < 0) return kolo_file_fail(flags & O_CREAT ? "create" : "open", path);
    const bool known = fstat(fd, &info) == 0;
    if (known && S_ISREG(info.st_mode) && (info.st_nlink <= 1 || !is_shared(path))) return fd;
    close(fd);
    if (!known) return kolo_file_fail("open", path);
    if (!S_ISREG(info.st_mode))
        return kolo_fail(KOLO_EIO, "%s: not a regular file, as it is expected here; remove it", path);
    return kolo_fail(
        KOLO_EIO, "%s: this file has another name too (%u links): somebody may have put it here; remove it",
        path, (unsigned)info.st_nlink);
}

int kolo_folder_make_own(const char *path)
{
    struct stat info;
    char *parent = kolo_file_parent(path);
    int rc = parent ? kolo_folder_make(parent) : KOLO_ENOMEM;
    free(parent);
    KOLO_TRY(rc);
    if (mkdir(path, 0777) == 0) return 0;
    const int error = errno;
    if (lstat(path, &info) < 0) return errno = error, kolo_file_fail("make this folder", path), KOLO_EIO;
    if (S_ISDIR(info.st_mode) && info.st_uid == geteuid()) return 0;
    return kolo_fail(KOLO_ECONFIG, "%s: %s; remove it, or choose another place", path,
                     S_ISDIR(info.st_mode) ? "a folder of another user"
                                           : "a link or a file where a folder of this program is expected");
}
