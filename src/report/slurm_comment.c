#include "report/slurm_comment.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"

static const double apart = 60; /* s */
extern char **environ;

/* Slurm's commands take a task of an array by the array's number and its own. */
void kolo_slurm_comment_begin(kolo_slurm_comment *c, bool wanted)
{
    const char *job = getenv("SLURM_JOB_ID"), *array = getenv("SLURM_ARRAY_JOB_ID"),
               *task = getenv("SLURM_ARRAY_TASK_ID");
    *c = (kolo_slurm_comment){.on = wanted && job && *job};
    if (!c->on) return;
    if (array && task) snprintf(c->job, sizeof c->job, "%s_%s", array, task);
    else snprintf(c->job, sizeof c->job, "%s", job);
    c->set = kolo_time() - apart + 1; /* the first one a second after the beginning */
}

static void comment_fail(kolo_slurm_comment *c, const char *why)
{
    c->on = false;
    kolo_warn("slurm_comment=: scontrol could not set the comment of job %s (%s); it stays as it is", c->job,
              why);
}

static void reap(kolo_slurm_comment *c, int how)
{
    int status;
    if (c->child == 0) return;
    const pid_t ended = waitpid(c->child, &status, how);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return;
    c->child = 0;
    if (ended > 0 && status != 0 && c->on) comment_fail(c, "it failed");
}

bool kolo_slurm_comment_due(kolo_slurm_comment *c)
{
    if (!c->on || kolo_time() - c->set < apart) return false;
    reap(c, WNOHANG);
    return c->on && c->child == 0;
}

void kolo_slurm_comment_set(kolo_slurm_comment *c, const char *text)
{
    if (!c->on) return;
    char *job = kolo_format("JobId=%s", c->job), *comment = kolo_format("Comment=%s", text),
         name[] = "scontrol", update[] = "update", *words[] = {name, update, job, comment, NULL};
    posix_spawn_file_actions_t quiet;
    c->set = kolo_time();
    if (job && comment && posix_spawn_file_actions_init(&quiet) == 0) {
        posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        if (posix_spawnp(&c->child, name, &quiet, NULL, words, environ) != 0) {
            c->child = 0;
            comment_fail(c, "it cannot be started");
        }
        posix_spawn_file_actions_destroy(&quiet);
    }
    free(comment);
    free(job);
}

void kolo_slurm_comment_end(kolo_slurm_comment *c, const char *text)
{
    if (!c->on) return;
    reap(c, 0);
    kolo_slurm_comment_set(c, text);
    reap(c, 0);
}
