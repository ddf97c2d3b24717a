#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "tap.h"

static char folder[] = "/tmp/kolo-file-XXXXXX";

static char *in_folder(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", folder, name);
    return path[turn];
}

static int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void test_read(void)
{
    char *text = NULL;
    size_t n = 0;
    is_int(kolo_file_read(in_folder("absent"), &text, &n), KOLO_EINPUT, "a missing file is bad input");
    ok(strstr(kolo_error_text(), "/absent") && strstr(kolo_error_text(), strerror(ENOENT)),
       "the text names it and why");
    is_int(kolo_file_read(folder, &text, &n), KOLO_EINPUT, "a folder is not a file");
    char *large = in_folder("large");
    const int fd = open(large, O_WRONLY | O_CREAT, 0600);
    ok(fd >= 0 && ftruncate(fd, (1 << 30) + 1) == 0 && kolo_file_read(large, &text, &n) == KOLO_EINPUT &&
           strstr(kolo_error_text(), "larger than 1 GiB"),
       "nor is what is longer than any that is read at once");
    close(fd);
    unlink(large);
    is_int(kolo_file_read("/proc/self/status", &text, &n), 0, "files that say size 0 are read whole");
    ok(n > 200 && strstr(text, "VmHWM") && text[n] == 0, "with a NUL after them");
    free(text);
}

static void test_atomic(void)
{
    char *path = in_folder("new"), *text = NULL;
    size_t n = 0;
    is_int(kolo_file_write_atomic(path, "one\0two", 7), 0, "a new file is written");
    is_int(kolo_file_read(path, &text, &n), 0, "and read");
    ok(n == 7 && !memcmp(text, "one\0two", 7), "with the same bytes");
    free(text);
    int before = open(path, O_RDONLY);
    is_int(kolo_file_write_atomic(path, "three", 5), 0, "it is replaced");
    char old[8] = "";
    is_int(read(before, old, 8), 7,
           "who has the old file open still reads the old bytes: it was renamed over, not rewritten");
    close(before);
    is_int(kolo_file_size(path), 5, "the size is the new one");
    is_int(entries(folder), 1, "nothing is left beside it");
    is_int(kolo_file_write_atomic(in_folder("no/such/file"), "x", 1), KOLO_EIO,
           "a folder that is not there cannot be written to");
    char *link = in_folder("link"), byte = 0;
    ok(symlink("new", link) == 0 && kolo_file_write_atomic(link, "four", 4) == 0 && kolo_file_size(path) == 4,
       "through a link the file that it leads to is replaced");
    struct stat st;
    ok(lstat(link, &st) == 0 && S_ISLNK(st.st_mode) && entries(folder) == 2, "and the link stays");
    unlink(link);
    int pipe = mkfifo(link, 0600) < 0 ? -1 : open(link, O_RDWR | O_NONBLOCK);
    ok(pipe >= 0 && kolo_file_write_atomic(link, "x", 1) == 0 && read(pipe, &byte, 1) == 1 && byte == 'x',
       "a pipe is written to");
    ok(lstat(link, &st) == 0 && S_ISFIFO(st.st_mode) && entries(folder) == 2, "and not replaced");
    close(pipe);
    unlink(link);
    is_int(kolo_file_write_atomic(folder, "x", 1), KOLO_EINPUT, "nor is a folder");
    ok(strstr(kolo_error_text(), "a folder; name a file in it"), "which is said");
    is_int(kolo_file_write_atomic(path, "", 0), 0, "an empty file is fine");
    is_int(kolo_file_size(path), 0, "and empty");
}

/* In a child: writes 1 MiB over `path`; the exit status is the negated result. */
static int write_in_child(const char *path, void (*cripple)(void))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        cripple();
        char *data = kolo_alloc(1 << 20);
        int rc = kolo_file_write_atomic(path, data, 1 << 20);
        free(data);
        _exit(-rc);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void limit_file_size(void)
{
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){65536, 65536});
}

static void test_half_written(void)
{
    char *path = in_folder("kept");
    kolo_file_write_atomic(path, "old", 3);
    int before = entries(folder);
    is_int(write_in_child(path, limit_file_size), 3, "a write that breaks off in the middle is an I/O error");
    is_int(kolo_file_size(path), 3, "the old file is still there");
    is_int(entries(folder), before, "the half one is gone");
}

/* A private 256 KiB file system; needs root or user name spaces. */
static void test_full_disk(void)
{
    int status = 0;
    char *place = in_folder("small");
    mkdir(place, 0700);
    pid_t child = fork();
    if (child == 0) {
        int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
        if (unshare(flags) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", place, "tmpfs", 0, "size=256k") < 0)
            _exit(100);
        char path[600], *big = kolo_alloc(1 << 20), *text;
        snprintf(path, sizeof path, "%s/file", place);
        int good = kolo_file_write_atomic(path, "old", 3) == 0;
        good &= kolo_file_write_atomic(path, big, 1 << 20) == KOLO_EIO;
        good &= strstr(kolo_error_text(), strerror(ENOSPC)) && strstr(kolo_error_text(), place);
        good &= kolo_file_read(path, &text, NULL) == 0 && !strcmp(text, "old") && entries(place) == 1;
        good &= kolo_file_free_bytes(place) > 0 && kolo_file_free_bytes(place) <= 256 << 10;
        _exit(good ? 0 : 1);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 100) skip("no small file system can be mounted here");
    else
        ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "a full disk keeps the old file, leaves no other, and is named");
    int full = open("/dev/full", O_WRONLY);
    if (full < 0) {
        skip("no /dev/full here");
        return;
    }
    is_int(kolo_file_pwrite(full, "/dev/full", "x", 1, 0), KOLO_EIO,
           "pwrite to a full device is an I/O error");
    close(full);
}

static void test_positions(void)
{
    char *path = in_folder("positions"), data[16] = "";
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    is_int(kolo_file_pwrite(fd, path, "abcdef", 6, 4), 0, "pwrite");
    is_int(kolo_file_pread(fd, path, data, 6, 4), 0, "pread");
    is_text(data, "abcdef", "reads what was written there");
    is_int(kolo_file_pread(fd, path, data, 8, 4), KOLO_EINPUT, "a read past the end is a truncated file");
    ok(strstr(kolo_error_text(), "truncated") && strstr(kolo_error_text(), "byte 10"),
       "and says where it ends");
    is_int(kolo_file_sync(fd, path), 0, "sync");
    close(fd);
    is_int(kolo_file_pread(fd, path, data, 1, 0), KOLO_EIO, "a closed descriptor is an I/O error");
}

static void test_folders(void)
{
    char *deep = in_folder("a/b//c/");
    is_int(kolo_folder_make(deep), 0, "folders are made with their parents");
    is_int(kolo_folder_make(deep), 0, "and may be there already");
    ok(kolo_file_exists(in_folder("a/b/c")), "the innermost one is there");
    kolo_file_write_atomic(in_folder("a/b/file"), "x", 1);
    is_int(kolo_folder_make(in_folder("a/b/file")), KOLO_EIO, "a file in the way is an error");
    ok(strstr(kolo_error_text(),
              "a/b/file: cannot make this folder: File exists; there is a file of that name"),
       "that says so");
    is_int(kolo_folder_make(in_folder("a/b/file/d")), KOLO_EIO, "also as a parent");
    kolo_folder_make(in_folder("outside"));
    kolo_file_write_atomic(in_folder("outside/kept"), "x", 1);
    if (symlink(in_folder("outside"), in_folder("a/link")) < 0) diag("no symbolic link");
    is_int(kolo_folder_remove(in_folder("a")), 0, "a folder is removed with what is in it");
    ok(!kolo_file_exists(in_folder("a")), "it is gone");
    ok(kolo_file_exists(in_folder("outside/kept")), "what a link in it points to is not");
    is_int(kolo_folder_remove(in_folder("a")), 0, "a folder that is not there counts as removed");
    is_int(kolo_folder_remove("/"), KOLO_EINPUT, "/ is refused");
    is_int(kolo_folder_remove("//"), KOLO_EINPUT, "so is //");
    is_int(kolo_folder_remove(""), KOLO_EINPUT, "so is the empty name");
    is_int(kolo_folder_sync(folder), 0, "a folder can be synced");
    int64_t here = kolo_file_free_bytes(folder), below = kolo_file_free_bytes(in_folder("not/there/yet"));
    ok(here > 0 && below > 0 && llabs(here - below) < 1 << 30,
       "free space of a path to be is that of its parent");
    ok(kolo_file_free_bytes("relative/not/there") > 0, "also for a relative path");
}

int main(void)
{
    if (!mkdtemp(folder)) skip_all("no temporary folder: %s", strerror(errno));
    test_read();
    test_atomic();
    test_half_written();
    test_full_disk();
    test_positions();
    test_folders();
    is_int(kolo_folder_remove(folder), 0, "the temporary folder is removed");
    return done_testing();
}
