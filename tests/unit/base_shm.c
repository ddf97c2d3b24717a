/* What is left in /dev/shm is told from what is used by its locks, and from other users' by its owner. */
#include "base/shm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kolo/error.h"
#include "tap.h"

enum { OTHER = 65534, MOST = 64 };

typedef struct told {
    char name[256];
    kolo_shm_object object;
} told;

static told list[MOST];
static int count;

static void note(const kolo_shm_object *o, void *context)
{
    (void)context;
    if (count == MOST) return;
    snprintf(list[count].name, sizeof list[0].name, "%s", o->name);
    list[count++].object = *o;
}

/* State in which the last sweep found it; -1: it did not speak of it. */
static int state_of(const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) return (int)list[i].object.state;
    return -1;
}

static long holder_of(const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) return list[i].object.holder;
    return -1;
}

static void sweep(void)
{
    count = 0;
    kolo_shm_sweep(KOLO_SHM_ALL, note, NULL);
}

static const char *path_of(const char *name)
{
    static char path[2][300];
    static int next;
    char *to = path[next++ % 2];
    snprintf(to, sizeof path[0], "/dev/shm/%s", name);
    return to;
}

static int make(const char *name, mode_t mode)
{
    const int fd = open(path_of(name), O_RDWR | O_CREAT | O_EXCL, mode);
    if (fd >= 0 && (fchmod(fd, mode) < 0 || ftruncate(fd, 8192) < 0)) diag("cannot make %s", name);
    return fd;
}

static bool there(const char *name) { return access(path_of(name), F_OK) == 0; }

static void as_other(const char *name)
{
    const pid_t child = fork();
    if (child == 0) {
        if (setresuid(OTHER, OTHER, OTHER) < 0 || make(name, 0666) < 0) _exit(1);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void check_open(void)
{
    char name[64];
    snprintf(name, sizeof name, "kolo-test-%ld", (long)getpid());
    const int fd = kolo_shm_open_own(name);
    ok(fd >= 0, "a name that is free is taken");
    const int again = kolo_shm_open_own(name);
    ok(again >= 0, "and opened again by its owner");
    is_int(flock(fd, LOCK_EX), 0, "while one has it locked");
    is_int(kolo_shm_lock(again, LOCK_SH, .1), 0, "another waits as long as it wants to");
    is_int(flock(fd, LOCK_UN), 0, "when it is free");
    is_int(kolo_shm_lock(again, LOCK_SH, .1), 1, "it gets it");
    fchmod(fd, 0666);
    is_int(kolo_shm_open_own(name), -1, "one that others may write to is not trusted");
    close(fd), close(again);
    unlink(path_of(name));
    is_int(symlink("/etc/passwd", path_of(name)), 0, "a link");
    is_int(kolo_shm_open_own(name), -1, "is not followed");
    unlink(path_of(name));
    mkfifo(path_of(name), 0600);
    is_int(kolo_shm_open_own(name), -1, "a pipe is not waited for");
    unlink(path_of(name));
    if (geteuid() != 0) {
        skip("another user's file: only root can be two users");
        return;
    }
    as_other(name);
    is_int(kolo_shm_open_own(name), -1, "another user's file is not taken for ours");
    unlink(path_of(name));
}

static void check_sweep(void)
{
    char left[64], used[64], ranks[64], server[64], lock[80], serving[64], theirs[64], strange[64];
    const unsigned me = (unsigned)geteuid();
    const long pid = (long)getpid();
    snprintf(left, sizeof left, "kolo-data-%u-left-%ld", me, pid);
    snprintf(used, sizeof used, "kolo-data-%u-used-%ld", me, pid);
    snprintf(ranks, sizeof ranks, "kolo-kolo.0.test%ld-0-0", pid);
    snprintf(server, sizeof server, "kolo-serve-%u-left%ld", me, pid);
    snprintf(lock, sizeof lock, "%s.lock", server);
    snprintf(serving, sizeof serving, "kolo-serve-%u-used%ld.lock", me, pid);
    snprintf(theirs, sizeof theirs, "kolo-data-%u-theirs-%ld", me, pid);
    snprintf(strange, sizeof strange, "kolo-data-%u-strange-%ld", me + 1, pid);
    close(make(left, 0600));
    close(make(ranks, 0600));
    close(make(lock, 0600));
    close(make(strange, 0600));
    const int held = make(used, 0600), claimed = make(serving, 0600), s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/dev/shm/%s", server);
    ok(flock(held, LOCK_SH) == 0 && bind(s, (struct sockaddr *)&address, sizeof address) == 0,
       "segments, sockets and locks are made");
    close(s);
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)1 << 50, .l_len = 1};
    is_int(fcntl(claimed, F_OFD_SETLK, &byte), 0, "some are held");
    if (me == 0) as_other(theirs);
    sweep();
    is_int(state_of(left), KOLO_SHM_REMOVED, "a cache that nobody holds is removed");
    is_int(state_of(ranks), KOLO_SHM_REMOVED, "so is a segment of ranks");
    is_int(state_of(lock), KOLO_SHM_REMOVED, "and what a server had locked");
    ok(!there(left) && !there(ranks) && !there(lock) && !there(server), "with its socket: they are gone");
    is_int(state_of(used), KOLO_SHM_USED, "a cache that is in use stays");
    is_int(holder_of(used), pid, "and the process that holds it is told, from the kernel's list of locks");
    is_int(state_of(serving), KOLO_SHM_USED, "so does a server's");
    ok(there(used) && there(serving), "they are there");
    is_int(state_of(strange), -1, "names of another user are not looked at");
    ok(there(strange), "nor touched");
    if (me == 0) {
        is_int(state_of(theirs), KOLO_SHM_FOREIGN, "another user's file under a name of ours is told");
        ok(there(theirs), "and left, even by root");
    } else skip("another user's file: only root can be two users");
    close(held), close(claimed);
    sweep();
    ok(!there(used) && !there(serving), "once nobody holds them they go too");
    unlink(path_of(strange));
    unlink(path_of(theirs));
}

int main(void)
{
    check_open();
    check_sweep();
    return done_testing();
}
