/* Files in folders that others may write to: links that somebody planted, what killed writers leave, other
 * users. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../tap.h"
#include "base/temp_file.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/lock.h"
#include "base/memory.h"
#include "kolo/error.h"

enum { OTHER = 65534 }; /* nobody's uid */

static char room[] = "/tmp/kolo-aside-XXXXXX";
static char out[128], secret[128];

static const char *in(const char *name)
{
    static char path[8][256];
    static int next;
    char *to = path[next++ % 8];
    snprintf(to, sizeof path[0], "%s/%s", room, name);
    return to;
}

static bool holds(const char *path, const char *wanted)
{
    char *text = NULL;
    const bool same = kolo_file_read(path, &text, NULL) == 0 && !strcmp(text, wanted);
    free(text);
    return same;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (f) fputs(text, f), fclose(f);
}

static int entries(const char *head)
{
    kolo_folder_names names;
    int n = 0;
    if (kolo_folder_list(room, &names) < 0) return -1;
    for (int64_t i = 0; i < names.count; i++) n += !strncmp(names.list[i], head, strlen(head));
    kolo_folder_free(&names);
    return n;
}

/* Runs `act` as user `uid` in a child. */
static void as(uid_t uid, void (*act)(void))
{
    const pid_t child = fork();
    if (child == 0) {
        if (setresuid(uid, uid, uid) == 0) act();
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void check_planted(void)
{
    char guess[160];
    put(secret, "mine");
    snprintf(guess, sizeof guess, "%s.tmp-%ld", out, (long)getpid());
    is_int(symlink(secret, guess), 0, "a link to another file is planted at OUT.tmp-PID");
    is_int(kolo_file_write_atomic(out, "new", 3), 0, "OUT is written all the same (%s)", kolo_error_text());
    ok(holds(secret, "mine"), "and the other file stays as it is");
    unlink(guess);
    is_int(link(secret, guess), 0, "the same with a hard link");
    is_int(kolo_file_write_atomic(out, "newer", 5), 0, "OUT is written");
    ok(holds(secret, "mine") && holds(out, "newer"), "and the other file stays as it is");
    unlink(guess);
    is_int(entries("out"), 1, "nothing is left beside OUT");
}

static void plant_target(void)
{
    if (symlink(secret, in("out"))) _exit(1);
}

static void plant_leftover(void) { put(in("out.tmp-00000000000000ff"), "theirs"); }

static void check_other_user(void)
{
    unlink(out);
    if (geteuid() != 0) {
        skip("another user's link at OUT: only root can be two users");
        return;
    }
    put(secret, "mine");
    as(OTHER, plant_target);
    is_int(kolo_file_write_atomic(out, "new", 3), KOLO_EIO,
           "another user's link at OUT in a folder of everybody's is not followed (%s)", kolo_error_text());
    ok(holds(secret, "mine"), "what it leads to stays");
    unlink(out);
    as(OTHER, plant_leftover);
    is_int(kolo_file_write_atomic(out, "new", 3), 0,
           "another user's file of the pattern beside OUT: OUT is written");
    ok(holds(in("out.tmp-00000000000000ff"), "theirs"), "and theirs is left alone");
    unlink(in("out.tmp-00000000000000ff"));
    unlink(out);
    is_int(symlink(secret, out), 0, "an own link at OUT");
    is_int(kolo_file_write_atomic(out, "through", 7), 0, "is followed");
    ok(holds(secret, "through"), "and the file that it leads to is replaced");
    unlink(out);
}

static void killed_writer(void)
{
    kolo_temp_file a;
    if (kolo_temp_open(&a, out) == 0 && write(a.fd, "half", 4) == 4) kill(getpid(), SIGKILL);
}

static void check_leftovers(void)
{
    static const char *const kept[] = {"out.tmp-12345", "out.tmp-00000000000000fg",
                                       "out.tmp-00000000000000ff0", "other.tmp-00000000000000ff"};
    kolo_temp_file living;
    as(geteuid(), killed_writer);
    is_int(entries("out.tmp-"), 1, "a writer that is killed leaves its file");
    for (int i = 0; i < 4; i++) put(in(kept[i]), "x");
    is_int(kolo_temp_open(&living, out), 0, "the next writer of OUT begins");
    is_int(entries("out.tmp-"), 4, "and has removed it: there are its own and three that only look alike");
    is_int(kolo_file_write_atomic(out, "second", 6), 0, "another writer comes while the first is at it");
    is_int(write(living.fd, "first", 5), 5, "the first still has its file");
    is_int(kolo_temp_commit(&living, out, 0), 0, "and puts it in place (%s)", kolo_error_text());
    ok(holds(out, "first"), "whole");
    is_int(entries("out.tmp-"), 3, "nothing of theirs is left");
    for (int i = 0; i < 4; i++) is_int(unlink(in(kept[i])), 0, "%s is still there", kept[i]);
}

static void killed_elsewhere(void)
{
    kolo_temp_file a;
    if (kolo_temp_open(&a, in("elsewhere")) == 0 && write(a.fd, "half", 4) == 4) kill(getpid(), SIGKILL);
}

static void aged(const char *name)
{
    const struct timespec then[2] = {{time(NULL) - 2 * 24 * 60 * 60, 0}, {time(NULL) - 2 * 24 * 60 * 60, 0}};
    put(in(name), "x");
    utimensat(AT_FDCWD, in(name), then, 0);
}

static void check_leftovers_of_others(void)
{
    kolo_temp_file living;
    char mine[64];
    as(geteuid(), killed_elsewhere);
    is_int(entries("elsewhere.tmp-"), 1, "a writer of ELSEWHERE is killed");
    is_int(kolo_temp_open(&living, in("long")), 0, "one of LONG lives");
    is_int(entries("elsewhere.tmp-") + 10 * entries("long.tmp-"), 10,
           "which removes what the other has left in the folder");
    if (geteuid() == 0) as(OTHER, killed_elsewhere);
    is_int(kolo_file_write_atomic(out, "x", 1), 0, "one of OUT comes and goes");
    is_int(entries("long.tmp-"), 1, "the living one's file stays");
    is_int(entries("elsewhere.tmp-"), geteuid() == 0, "so does what another user's has left");
    is_int(kolo_temp_commit(&living, in("long"), 0), 0, "the living one has its file still (%s)",
           kolo_error_text());
    snprintf(mine, sizeof mine, "out.tmp-%d", (int)getpid());
    aged(mine);
    aged("out.tmp-4194305"); /* no process can have this number */
    put(in("out.tmp-4194306"), "x");
    aged("other.tmp-4194305");
    is_int(kolo_file_write_atomic(out, "x", 1), 0, "OUT once more");
    is_int(entries("out.tmp-4194305"), 0,
           "an older version's OUT.tmp-PID of a process that is gone is removed");
    is_int(entries(mine) + entries("out.tmp-4194306") + entries("other.tmp-"), 3,
           "that of one that lives, a fresh one, and another file's stay");
    kolo_temp_sweep(room);
    is_int(entries(mine) + entries("out.tmp-4194306"), 2, "in a folder of the program's own, too");
    is_int(entries("other.tmp-"), 0, "where that of any file is removed");
    unlink(in(mine));
    unlink(in("out.tmp-4194306"));
}

static void killed_folder(void)
{
    kolo_temp_file a;
    const int held = open(room, O_RDONLY | O_DIRECTORY);
    if (kolo_temp_open_folder(&a, held, "step", in("step")) < 0) _exit(1);
    close(openat(a.fd, "tensors", O_WRONLY | O_CREAT, 0666));
    kill(getpid(), SIGKILL);
}

static const char *left_folder(void)
{
    static char name[300];
    kolo_folder_names names;
    *name = 0;
    if (kolo_folder_list(room, &names) < 0) return name;
    for (int64_t i = 0; i < names.count; i++)
        if (!strncmp(names.list[i], "step.tmp-", 9)) snprintf(name, sizeof name, "%s", names.list[i]);
    kolo_folder_free(&names);
    return name;
}

static void check_folder(void)
{
    kolo_temp_file a;
    const int held = open(room, O_RDONLY | O_DIRECTORY);
    as(geteuid(), killed_folder);
    is_int(kolo_temp_sweep_folder(held, left_folder(), room), 1,
           "a folder that a killed writer has left is removed");
    is_int(entries("step.tmp-"), 0, "with what is in it");
    is_int(kolo_temp_open_folder(&a, held, "step", in("step")), 0, "another is begun");
    is_int(kolo_temp_sweep_folder(held, left_folder(), room), 0, "and stays while its writer lives");
    kolo_folder_remove_in(held, a.name, room);
    kolo_temp_release(&a);
    if (geteuid() == 0) {
        as(OTHER, killed_folder);
        is_int(kolo_temp_sweep_folder(held, left_folder(), room), 0, "another user's stays");
        kolo_folder_remove(in(left_folder()));
    } else skip("only root can be two users");
    mkdir(in("precious"), 0777);
    put(in("precious/file"), "mine");
    is_int(symlink(in("precious"), in("step.tmp")), 0, "a link to another folder");
    is_int(kolo_temp_sweep_folder(held, "step.tmp", room), 0, "is no folder of a killed writer's");
    is_int(kolo_folder_remove(in("step.tmp")), 0, "where a link is removed");
    ok(holds(in("precious/file"), "mine"), "what it leads to stays");
    close(held);
}

static void check_failure(void)
{
    kolo_temp_file a;
    put(out, "old");
    is_int(kolo_temp_open(&a, out), 0, "a writer");
    is_int(kolo_temp_commit(&a, out, KOLO_EIO), KOLO_EIO, "that fails gets its error back");
    ok(holds(out, "old") && entries("out.tmp-") == 0, "the old file stays, the new one is gone");
}

static void check_held_folder(void)
{
    kolo_temp_file a;
    char inside[256];
    mkdir(in("folder"), 0777);
    snprintf(inside, sizeof inside, "%s", in("folder/file"));
    is_int(kolo_temp_open(&a, inside), 0, "a file in a folder is begun");
    rename(in("folder"), in("moved"));
    mkdir(in("folder"), 0777);
    is_int(write(a.fd, "x", 1), 1, "the folder is exchanged for another of its name");
    is_int(kolo_temp_commit(&a, inside, 0), 0, "the file is committed");
    ok(kolo_file_exists(in("moved/file")) && !kolo_file_exists(inside),
       "it is in the folder in which it was begun");
}

static void check_long_name(void)
{
    char name[260], path[300];
    memset(name, 'n', 255);
    name[255] = 0;
    snprintf(path, sizeof path, "%s/%s", room, name);
    is_int(kolo_file_write_atomic(path, "x", 1), 0, "a name as long as names may be (%s)", kolo_error_text());
    unlink(path);
}

static void check_plain(void)
{
    run_lock lock;
    put(secret, "mine");
    is_int(symlink(secret, in("log")), 0, "a link where a log is kept");
    is_int(kolo_file_open_plain(in("log"), O_RDWR | O_CREAT, 0666), KOLO_EIO, "is refused (%s)",
           kolo_error_text());
    mkfifo(in("pipe"), 0600);
    is_int(kolo_file_open_plain(in("pipe"), O_RDONLY, 0), KOLO_EIO, "so is a pipe, at once (%s)",
           kolo_error_text());
    is_int(link(secret, in("second")), 0, "a second name of a file in a folder of everybody's");
    is_int(kolo_file_open_plain(in("second"), O_RDWR, 0), KOLO_EIO, "is refused (%s)", kolo_error_text());
    unlink(in("second"));
    is_int(symlink(secret, in("lock")), 0, "a link where a folder's lock is");
    is_int(kolo_lock_take(&lock, room, "lock", "folder"), KOLO_EIO, "is no lock (%s)", kolo_error_text());
    ok(holds(secret, "mine"), "and what it leads to stays");
    unlink(in("lock"));
    is_int(symlink(room, in("own")), 0, "a link where a folder is made");
    is_int(kolo_folder_make_own(in("own")), KOLO_ECONFIG, "is refused (%s)", kolo_error_text());
    is_int(kolo_folder_make_own(in("deep/er")), 0, "else it is made, with what is above it");
    is_int(kolo_folder_make_own(in("deep/er")), 0, "and found again");
}

int main(void)
{
    if (!mkdtemp(room)) skip_all("no room in /tmp");
    chmod(room, 01777);
    snprintf(out, sizeof out, "%s/out", room);
    snprintf(secret, sizeof secret, "%s/secret", room);
    check_planted();
    check_other_user();
    check_leftovers();
    check_leftovers_of_others();
    check_folder();
    check_failure();
    check_held_folder();
    check_long_name();
    check_plain();
    kolo_folder_remove(room);
    return done_testing();
}
