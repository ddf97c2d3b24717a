/* In what state a run is: by what it wrote last, by its lock, and by Slurm. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/owner.h"
#include "kolo/error.h"
#include "report/run.h"

const char *const report_state_name[] = {"queued", "running", "stopped", "done", "failed", "begun"};

/* Is there a lock, and whose? */
static int read_lock(const report_run *run, owner *o)
{
    char *path = kolo_format("%s/lock", run->folder), *text = NULL;
    if (!path) return KOLO_ENOMEM;
    int rc = kolo_file_exists(path) ? kolo_file_read(path, &text, NULL) : 1;
    const bool found = rc == 0 && kolo_owner_read(o, text);
    free(text);
    free(path);
    return rc == KOLO_ENOMEM ? rc : found;
}

static void say(report_run *run, enum report_state state, const char *why, const char *next)
{
    run->state = state;
    snprintf(run->why, sizeof run->why, "%s", why);
    snprintf(run->next, sizeof run->next, "%s", next);
}

static const char again[] = "run the same command: it goes on from its last checkpoint";

/* Nobody holds the folder: what was said last counts. */
static void settle(report_run *run, const char *gone)
{
    const kolo_summary *s = &run->summary;
    char why[512];
    if (run->has_summary && !strcmp(s->state, "done")) return say(run, REPORT_DONE, "", s->next);
    if (run->has_summary && !strcmp(s->state, "stopped"))
        return say(run, REPORT_STOPPED, "on request", s->next);
    if (run->has_summary && !strcmp(s->state, "requeue"))
        return say(run, REPORT_STOPPED, "before its time limit", s->next);
    if (run->has_summary && !strcmp(s->state, "failed")) /* `next` is the message */
        return say(run, REPORT_FAILED, s->next, "mend that, then run the same command");
    if (!run->has_summary && !run->table[REPORT_step].rows)
        return say(run, REPORT_BEGUN, "no step was made", "run the command of this run");
    snprintf(why, sizeof why, "it ended without a word (killed, or its node failed)%s%.300s",
             *gone ? ": " : "", gone);
    say(run, REPORT_FAILED, why, again);
}

int report_run_state(report_run *run)
{
    owner o, me;
    char slurm[64] = "", who[400] = "";
    kolo_owner_self(&me);
    const int locked = read_lock(run, &o);
    KOLO_TRY(locked);
    snprintf(run->job, sizeof run->job, "%s", locked && *o.job ? o.job : run->summary.job);
    if (locked) {
        const enum owner_state is = kolo_owner_look(&o, &me, slurm, sizeof slurm);
        kolo_owner_text(&o, who, sizeof who);
        /* the same job, which waits for its next start */
        if (is == OWNER_ALIVE && (!strcmp(slurm, "PENDING") || !strcmp(slurm, "REQUEUED")))
            say(run, REPORT_QUEUED, "Slurm starts it again", "wait");
        else if (is == OWNER_ALIVE)
            say(run, REPORT_RUNNING, "", "wait, or stop it: it goes on from its last checkpoint");
        else if (is == OWNER_UNKNOWN) {
            say(run, REPORT_RUNNING, "", "");
            snprintf(run->why, sizeof run->why, "by its lock; from here nobody can tell (%.300s)", who);
            snprintf(run->next, sizeof run->next, "look for it there; remove its lock if it is gone");
        } else settle(run, who);
        return 0;
    }
    settle(run, "");
    if (run->state != REPORT_STOPPED || !*run->job) return 0;
    o = (owner){.host = "-"};
    snprintf(o.job, sizeof o.job, "%s", run->job);
    if (kolo_owner_look(&o, &me, slurm, sizeof slurm) == OWNER_ALIVE)
        say(run, REPORT_QUEUED, "Slurm starts it again", "wait");
    return 0;
}
