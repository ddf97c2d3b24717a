/* The run folder: made, locked, swept, and its recipe of record. */
#include "ckpt/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/failure.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/store.h"

static int check_space(const char *folder)
{
    int64_t bytes = kolo_file_free_bytes(folder);
    if (bytes < 0) return (int)bytes;
    if (bytes == 0)
        return kolo_fail(KOLO_EIO, "%s: the file system is full: free space, or choose another run= folder",
                         folder);
    return 0;
}

int kolo_run_open(kolo_run **run, const char *folder)
{
    int rc = KOLO_ENOMEM;
    kolo_run *r = *run = kolo_alloc(sizeof *r);
    if (!r) return KOLO_ENOMEM;
    r->lock.fd = -1;
    r->folder = kolo_strdup(folder);
    r->checkpoints = kolo_format("%s/checkpoints", folder);
    if (!r->folder || !r->checkpoints) goto fail;
    KOLO_TRY_GOTO(rc, kolo_folder_make(folder));
    KOLO_TRY_GOTO(rc, kolo_lock_take(&r->lock, folder, "lock", "run= folder"));
    KOLO_TRY_GOTO(rc, check_space(folder));
    KOLO_TRY_GOTO(rc, kolo_folder_make(r->checkpoints));
    kolo_temp_sweep(r->folder);
    KOLO_TRY_GOTO(rc, kolo_store_sweep(r->checkpoints));
    return 0;
fail:
    kolo_run_close(run);
    return rc;
}

void kolo_run_close(kolo_run **run)
{
    kolo_run *r = *run;
    if (!r) return;
    kolo_failure before;
    kolo_error_keep(&before);
    if (kolo_saver_destroy(&r->saver) < 0) kolo_error("%s", kolo_error_text());
    if (r->lock.fd >= 0) kolo_lock_release(&r->lock);
    free(r->checkpoints);
    free(r->folder);
    free(r);
    *run = NULL;
    kolo_error_restore(&before, before.status);
}

const char *kolo_run_folder(const kolo_run *run) { return run->folder; }

/* What those want who train longer than a run was begun for. */
static const char cure_longer[] =
    "; to train longer than this run was begun for, begin from its weights: run= another folder, init= this "
    "one, epochs= those to come, and an lr= to go on with, for the schedule of this one ends where it ends";

static int compare_recipe(const char *path, const kolo_options *options)
{
    kolo_options was;
    kolo_options_default(&was);
    int rc = kolo_options_read_record(&was, path);
    if (rc < 0) {
        rc = kolo_fail_in(rc, "the recipe of this run cannot be read (another version of this program?): ");
    } else {
        char *difference = kolo_options_difference(&was, options);
        const bool longer = options->epochs > was.epochs || options->steps > was.steps;
        if (difference)
            rc = kolo_fail(KOLO_ECONFIG,
                           "%s: this run was started with other options that change its numbers: %s. "
                           "Give the old values to go on, or choose another run= folder to begin anew%s",
                           path, difference, longer ? cure_longer : "");
        free(difference);
    }
    kolo_options_free(&was);
    return rc;
}

/* Who evaluates the run may do so from anywhere. */
static char *write_from_root(const kolo_options *options)
{
    kolo_options copy;
    int rc = kolo_options_copy(&copy, options);
    if (rc == 0) rc = kolo_options_from_root(&copy);
    char *text = rc == 0 ? kolo_options_write(&copy, true) : NULL;
    kolo_options_free(&copy);
    return text;
}

int kolo_run_identify(kolo_run *run, bool begins, kolo_position *position)
{
    char id[RUN_ID] = "";
    if (!begins) KOLO_TRY(kolo_identity_read(run->folder, id));
    if (!*id && !begins) /* "": an older version's, which gets one now */
        snprintf(id, sizeof id, "%s", position->run);
    KOLO_TRY(kolo_identity_write(run->folder, id));
    snprintf(position->run, sizeof position->run, "%s", id);
    return 0;
}

int kolo_run_record(kolo_run *run, const kolo_options *options)
{
    int rc = KOLO_ENOMEM;
    int64_t *steps = NULL, n = 0;
    KOLO_TRY(kolo_store_list(run->checkpoints, &steps, &n));
    free(steps);
    char *path = kolo_format("%s/recipe.yaml", run->folder), *text = NULL;
    if (!path) return KOLO_ENOMEM;
    if (n > 0 && kolo_file_exists(path)) {
        rc = kolo_identity_check(run->folder, "recipe.yaml");
        if (rc == 0) rc = kolo_identity_check(run->folder, "classes.txt");
        if (rc == 0) rc = compare_recipe(path, options);
    } else if ((text = write_from_root(options))) {
        rc = kolo_file_write_atomic(path, text, strlen(text));
    }
    free(text);
    free(path);
    return rc;
}
