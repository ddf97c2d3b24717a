#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/memory.h"
#include "kolo/error.h"

int kolo_file_fail(const char *verb, const char *path)
{
    int error = errno;
    const char *cure = "";
    const bool reads = !strcmp(verb, "open") || !strcmp(verb, "read");
    if (error == ENOSPC) cure = "; free space on this file system or choose another folder";
    if (error == EDQUOT)
        cure = "; your quota on this file system is used up: free some, or choose another folder";
    if (error == EFBIG) cure = "; the shell's limit on file sizes (ulimit -f) is too low";
    if (error == EACCES || error == EPERM || error == EROFS)
        cure = "; check its permissions or choose another place";
    if (error == EMFILE) cure = "; the shell's limit on open files (ulimit -n) is too low";
    if (error == EEXIST) cure = "; there is a file of that name: choose another";
    if (error == ENOENT && !strcmp(verb, "create")) cure = "; make its folder first";
    int status = reads && (error == ENOENT || error == ENOTDIR || error == EISDIR) ? KOLO_EINPUT : KOLO_EIO;
    return kolo_fail(status, "%s: cannot %s: %s%s", path, verb, strerror(error), cure);
}

/* stdio keeps that a write failed, not why. */
int kolo_stdout_flush(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    if (poll(&out, 1, 0) == 1 && (out.revents & POLLERR)) return 0; /* a pipe that nobody reads any more */
    return kolo_fail(
        KOLO_EIO, "standard output cannot be written: is its disk full, a quota used up, or was it closed?");
}

int kolo_stream_status(FILE *stream)
{
    if (stream == stdout) return kolo_stdout_flush();
    return ferror(stream) ? kolo_fail(KOLO_EIO, "what was printed could not be written") : 0;
}

enum { READ_LIMIT = 1 << 30 }; /* bytes; what is longer is read in parts, and /dev/zero never ends */

static int fail_length(const char *path)
{
    return kolo_fail(KOLO_EINPUT, "%s: larger than 1 GiB, which no file of this kind is; give another file",
                     path);
}

/* A pipe into which nobody writes would be waited for without end. */
static int wait_for_bytes(int fd, const char *path)
{
    enum { SECONDS = 5 };
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int n;
    while ((n = poll(&one, 1, SECONDS * 1000)) < 0 && errno == EINTR) continue;
    if (n != 0) return 0;
    return kolo_fail(KOLO_EINPUT, "%s: a pipe into which nobody has written for %d s; give a file", path,
                     SECONDS);
}

static int read_all(int fd, const char *path, char **data, size_t *length)
{
    struct stat st;
    if (fstat(fd, &st) < 0) return kolo_file_fail("read", path);
    if (st.st_size > READ_LIMIT) return fail_length(path);
    size_t capacity = (st.st_size > 0 ? (size_t)st.st_size : 4096) + 2, used = 0; /* /proc files say size 0 */
    char *text = kolo_alloc(capacity);
    if (!text) return KOLO_ENOMEM;
    for (;;) {
        int rc = wait_for_bytes(fd, path);
        ssize_t n = rc < 0 ? -1 : read(fd, text + used, capacity - used - 1);
        if (rc == 0 && n < 0 && errno == EINTR) continue;
        if (rc == 0 && n < 0) rc = kolo_file_fail("read", path);
        if (rc < 0) {
            free(text);
            return rc;
        }
        if (n == 0) break;
        used += (size_t)n;
        if (used + 1 < capacity) continue;
        if (used > READ_LIMIT) {
            free(text);
            return fail_length(path);
        }
        char *more = realloc(text, capacity *= 2);
        if (!more) {
            free(text);
            return kolo_fail(KOLO_ENOMEM, "%s: out of memory while reading it", path);
        }
        text = more;
    }
    text[used] = 0;
    *data = text;
    if (length) *length = used;
    return 0;
}

int kolo_file_read(const char *path, char **data, size_t *length)
{
    *data = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe: at once */
    if (fd < 0) return kolo_file_fail("open", path);
    int rc = read_all(fd, path, data, length);
    close(fd);
    return rc;
}

int kolo_file_pread(int fd, const char *path, void *data, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return kolo_file_fail("read", path);
        if (n == 0)
            return kolo_fail(
                KOLO_EINPUT,
                "%s: truncated: it ends at byte %llu, %zu bytes expected from byte %llu; copy it again", path,
                (unsigned long long)(offset + done), bytes, (unsigned long long)offset);
        done += (size_t)n;
    }
    return 0;
}

int kolo_file_pwrite(int fd, const char *path, const void *data, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return kolo_file_fail("write", path);
        done += (size_t)n;
    }
    return 0;
}

int kolo_file_sync(int fd, const char *path) { return fsync(fd) < 0 ? kolo_file_fail("sync", path) : 0; }

int kolo_folder_sync_held(int fd, const char *path)
{
    /* some network file systems cannot sync a folder and say EINVAL: there is nothing better to do there */
    return fsync(fd) < 0 && errno != EINVAL ? kolo_file_fail("sync", path) : 0;
}

int kolo_folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return kolo_file_fail("open", path);
    int rc = kolo_folder_sync_held(fd, path);
    close(fd);
    return rc;
}

char *kolo_file_parent(const char *path)
{
    char *parent = kolo_strdup(path);
    if (!parent) return NULL;
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/') n--;
    while (n > 0 && parent[n - 1] != '/') n--;
    while (n > 1 && parent[n - 1] == '/') n--;
    if (n == 0) parent[n++] = '.';
    parent[n] = 0;
    return parent;
}

int kolo_file_write_atomic(const char *path, const void *data, size_t bytes)
{
    kolo_temp_file a;
    int rc = 0;
    KOLO_TRY(kolo_temp_open(&a, path));
    for (size_t done = 0; rc == 0 && done < bytes;) {
        ssize_t n = write(a.fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) rc = kolo_file_fail("write", path);
        else done += (size_t)n;
    }
    return kolo_temp_commit(&a, path, rc);
}

static int make_one(const char *path)
{
    if (mkdir(path, 0777) == 0) return 0;
    int error = errno; /* EROFS or EACCES may come before EEXIST */
    if (kolo_folder_exists(path)) return 0;
    errno = error;
    kolo_file_fail("make this folder", path);
    return KOLO_EIO;
}

int kolo_folder_make(const char *path)
{
    if (!*path) return kolo_fail(KOLO_EINPUT, "cannot create a folder without a name");
    char *part = kolo_strdup(path);
    if (!part) return KOLO_ENOMEM;
    int rc = 0;
    for (char *p = part + 1; rc == 0 && *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        rc = make_one(part);
        *p = '/';
    }
    if (rc == 0) rc = make_one(part);
    free(part);
    return rc;
}

enum { PASSES = 8 }; /* a folder that is read while entries go may hide some of them */

int kolo_folder_remove_in(int folder, const char *name, const char *path)
{
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR) return kolo_file_fail("remove", path), KOLO_EIO;
    const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int rc = dir ? 0 : (kolo_file_fail("remove", path), KOLO_EIO);
    if (!dir && fd >= 0) close(fd);
    for (int pass = 0; rc == 0 && pass < PASSES; pass++, rewinddir(dir)) {
        for (struct dirent *e; rc == 0 && (e = readdir(dir));)
            if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
                rc = kolo_folder_remove_in(dirfd(dir), e->d_name, path);
        if (rc < 0 || unlinkat(folder, name, AT_REMOVEDIR) == 0 || errno == ENOENT) break;
        if ((errno != ENOTEMPTY && errno != EEXIST) || pass == PASSES - 1)
            rc = (kolo_file_fail("remove", path), KOLO_EIO);
    }
    if (dir) closedir(dir);
    return rc;
}

int kolo_folder_remove(const char *path)
{
    size_t root = strspn(path, "/");
    if (!path[root] || !strcmp(path, ".") || !strcmp(path, ".."))
        return kolo_fail(KOLO_EINPUT, "\"%s\": this folder is never removed", path);
    return kolo_folder_remove_in(AT_FDCWD, path, path);
}

bool kolo_file_exists(const char *path) { return access(path, F_OK) == 0; }

bool kolo_folder_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int64_t kolo_file_size(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) return kolo_file_fail("open", path);
    return st.st_size;
}

int64_t kolo_file_free_bytes(const char *path)
{
    struct statvfs fs;
    char *at = kolo_strdup(*path ? path : ".");
    if (!at) return KOLO_ENOMEM;
    while (statvfs(at, &fs) < 0) {
        const bool above = errno == ENOENT && strcmp(at, "/") && strcmp(at, ".");
        const int rc = above ? KOLO_ENOMEM : kolo_file_fail("ask for free space", path);
        char *parent = above ? kolo_file_parent(at) : NULL;
        free(at);
        if (!parent) return rc;
        at = parent;
    }
    free(at);
    return (int64_t)((unsigned __int128)fs.f_bavail * fs.f_frsize > INT64_MAX ? INT64_MAX
                                                                              : fs.f_bavail * fs.f_frsize);
}
