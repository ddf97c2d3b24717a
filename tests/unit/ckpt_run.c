/* The run folder: one owner at a time, dead owners give way, the recipe of record stands. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt/ckpt.h"
#include "base/owner.h"
#include "kolo/error.h"
#include "tap.h"

static char top[] = "/tmp/kolo_run_XXXXXX";
static char folder[128], lock_path[160], squeue_path[160], ready_path[160];

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

/* A process that opens the run and holds it until it is killed. */
static pid_t start_holder(void)
{
    unlink(ready_path);
    pid_t pid = fork();
    if (pid == 0) {
        kolo_run *run = NULL;
        int rc = kolo_run_open(&run, folder);
        write_text(ready_path, rc == 0 ? "held" : kolo_error_text());
        for (;;) pause();
    }
    for (int i = 0; i < 500 && !kolo_file_exists(ready_path); i++) usleep(10000);
    return pid;
}

static void kill_holder(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int try_open(void)
{
    kolo_run *run = NULL;
    int rc = kolo_run_open(&run, folder);
    kolo_run_close(&run);
    return rc;
}

static void living_and_dead(void)
{
    kolo_run *run = NULL;
    is_int(kolo_run_open(&run, folder), 0, "a new folder is made and locked (%s)", kolo_error_text());
    is_text(kolo_run_folder(run), folder, "it knows its name");
    ok(kolo_file_exists(lock_path), "the lock is there to be read");
    is_int(try_open(), KOLO_ECONFIG, "a second start in the same process is refused");
    kolo_run_close(&run);
    ok(!run && !kolo_file_exists(lock_path), "closed: the lock is gone");
    is_int(try_open(), 0, "and the folder is free");

    pid_t pid = start_holder();
    char number[32];
    snprintf(number, sizeof number, "process %d", (int)pid);
    double begin = kolo_time();
    is_int(try_open(), KOLO_ECONFIG, "refused while another process holds it");
    ok(strstr(kolo_error_text(), number) && strstr(kolo_error_text(), "run="),
       "which is named, with the cure: %s", kolo_error_text());
    ok(kolo_time() - begin < 2, "at once");
    kill_holder(pid);
    ok(kolo_file_exists(lock_path), "a killed process leaves its lock");
    is_int(try_open(), 0, "which is taken over");
}

/* Whoever starts while another dies gets the folder, and of many who start at once one does. */
static void many_at_once(void)
{
    enum { MANY = 8 };
    int pipes[2], wins = 0, refused = 0, other = 0;
    pid_t child[MANY], pid = start_holder();
    kill_holder(pid);
    if (pipe(pipes) != 0) return;
    for (int i = 0; i < MANY; i++)
        if ((child[i] = fork()) == 0) {
            kolo_run *run = NULL;
            int rc = kolo_run_open(&run, folder);
            char answer = rc == 0 ? 'w' : rc == KOLO_ECONFIG ? 'r' : 'x';
            if (write(pipes[1], &answer, 1) == 1 && rc == 0)
                for (;;) pause();
            _exit(0);
        }
    for (int i = 0; i < MANY; i++) {
        char answer = 'x';
        if (read(pipes[0], &answer, 1) != 1) break;
        wins += answer == 'w', refused += answer == 'r', other += answer == 'x';
    }
    for (int i = 0; i < MANY; i++) kill_holder(child[i]);
    ok(wins == 1 && refused == MANY - 1, "of %d starts at once on a stale lock %d wins, %d refused, %d else",
       MANY, wins, refused, other);
    close(pipes[0]);
    close(pipes[1]);
    is_int(try_open(), 0, "and then the folder is free again");
}

/* A lock that another host wrote; `squeue` of our own answers for its job. */
static int try_foreign(const char *job, const char *restart, const char *step, const char *squeue)
{
    owner o;
    kolo_owner_self(&o);
    snprintf(o.host, sizeof o.host, "node99");
    snprintf(o.boot, sizeof o.boot, "00000000-0000-0000-0000-000000000000");
    snprintf(o.job, sizeof o.job, "%s", job);
    snprintf(o.restart, sizeof o.restart, "%s", restart);
    snprintf(o.step, sizeof o.step, "%s", step);
    char *text = kolo_owner_write(&o), *script = kolo_format("#!/bin/sh\n%s\n", squeue);
    write_text(lock_path, text);
    write_text(squeue_path, script);
    chmod(squeue_path, 0755);
    free(text);
    free(script);
    return try_open();
}

static void other_hosts(void)
{
    char *path = kolo_format("%s:%s", top, getenv("PATH"));
    setenv("PATH", path, 1);
    free(path);
    is_int(try_foreign("", "", "", "exit 1"), KOLO_ECONFIG, "another host, no job: it cannot be told");
    ok(strstr(kolo_error_text(), "node99") && strstr(kolo_error_text(), "remove") &&
           strstr(kolo_error_text(), "/lock"),
       "the owner and the cure are named: %s", kolo_error_text());
    ok(kolo_file_exists(lock_path), "and its lock is left alone");
    is_int(try_foreign("77", "", "", "echo RUNNING"), KOLO_ECONFIG, "another host, a job that runs: refused");
    ok(strstr(kolo_error_text(), "job 77") && strstr(kolo_error_text(), "RUNNING") &&
           strstr(kolo_error_text(), "scancel 77"),
       "%s", kolo_error_text());
    is_int(try_foreign("77", "", "", "exit 0"), 0, "a job that squeue does not list: taken over");
    is_int(try_foreign("77", "", "", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"), 0,
           "a job that Slurm forgot: taken over");
    is_int(try_foreign("77", "", "",
                       "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"),
           KOLO_ECONFIG, "Slurm does not answer: refused");
    is_int(try_foreign("77", "", "", "exit 127"), KOLO_ECONFIG, "no squeue here: refused");
    setenv("SLURM_JOB_ID", "78", 1);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    is_int(try_foreign("78", "", "0", "echo RUNNING; echo 78.0"), 0, "the same job, requeued: ours");
    is_int(try_foreign("78", "1", "0", "echo 78.0"), KOLO_ECONFIG,
           "the same start of the same job: a step that still runs is refused");
    is_int(try_foreign("78", "1", "0", "echo 78.batch; echo 78.1"), 0,
           "the same start: a step that has ended is not");
    is_int(try_foreign("77; touch x", "", "", "exit 0"), KOLO_ECONFIG,
           "a job id that is no number is not handed to a shell");
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_RESTART_COUNT");
    unlink(lock_path);
    const char *const garbage[] = {"", "{", "{\"pid\": \"x\"}", "not a lock\n"};
    int taken = 0;
    for (int i = 0; i < 4; i++) {
        write_text(lock_path, garbage[i]);
        taken += try_open() == 0;
    }
    is_int(taken, 4, "a lock file without an owner is taken");
}

static void recipe(void)
{
    kolo_run *run = NULL;
    kolo_options was, now;
    kolo_options_default(&was);
    kolo_options_default(&now);
    kolo_run_open(&run, folder);
    kolo_option_set(&was, "lr", "0.05", "test");
    kolo_option_set(&was, "data", "/some/place with \"quotes\"", "test");
    is_int(kolo_run_record(run, &now), 0, "the first start writes the recipe of record (%s)",
           kolo_error_text());
    is_int(kolo_run_record(run, &was), 0, "which binds nobody before there is a checkpoint");
    char *first = kolo_format("%s/checkpoints/step-0000000001", folder);
    kolo_folder_make(first);
    is_int(kolo_run_record(run, &was), 0, "the same options again are welcome (%s)", kolo_error_text());
    kolo_option_set(&now, "lr", "0.05", "test");
    kolo_option_set(&now, "threads", "7", "test");
    is_int(kolo_run_record(run, &now), 0, "threads and the data's place may change");
    kolo_option_set(&now, "lr", "0.06", "test");
    kolo_option_set(&now, "epochs", "9", "test");
    is_int(kolo_run_record(run, &now), KOLO_ECONFIG, "the learning rate may not");
    ok(strstr(kolo_error_text(), "lr: was 0.05, now 0.06") &&
           strstr(kolo_error_text(), "epochs: was 0, now 9"),
       "both differences are shown");
    kolo_folder_remove(first);
    free(first);
    kolo_run_close(&run);
    kolo_options_free(&was);
    kolo_options_free(&now);
}

static void leftovers(void)
{
    char *aside = kolo_format("%s/checkpoints/step-0000000007.tmp", folder),
         *old = kolo_format("%s/checkpoints/step-0000000008.old", folder);
    char *back = kolo_format("%s/checkpoints/step-0000000008", folder),
         *mine = kolo_format("%s/checkpoints/mine.tmp", folder);
    kolo_folder_make(aside);
    kolo_folder_make(old);
    kolo_folder_make(mine);
    try_open();
    ok(!kolo_file_exists(aside), "what a dead writer left is swept");
    ok(!kolo_file_exists(old) && kolo_file_exists(back), "a checkpoint caught in its replacement comes back");
    ok(kolo_file_exists(mine), "other people's folders stay");
    free(aside);
    free(old);
    free(back);
    free(mine);
}

static void unusable(void)
{
    kolo_run *run = NULL;
    is_int(kolo_run_open(&run, "/dev/null/run"), KOLO_EIO, "a folder that cannot be made (%s)",
           kolo_error_text());
    ok(!run, "leaves nothing");
    if (geteuid() == 0) {
        skip("root may write anywhere");
        return;
    }
    chmod(folder, 0555);
    is_int(kolo_run_open(&run, folder), KOLO_EIO, "a read-only folder (%s)", kolo_error_text());
    chmod(folder, 0755);
}

int main(void)
{
    if (!mkdtemp(top)) return 1;
    kolo_log_set_level(KOLO_LOG_ERROR);
    snprintf(folder, sizeof folder, "%s/run", top);
    snprintf(lock_path, sizeof lock_path, "%s/lock", folder);
    snprintf(squeue_path, sizeof squeue_path, "%s/squeue", top);
    snprintf(ready_path, sizeof ready_path, "%s/ready", top);
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURMD_NODENAME");
    living_and_dead();
    many_at_once();
    other_hosts();
    recipe();
    leftovers();
    unusable();
    kolo_folder_remove(top);
    return done_testing();
}
