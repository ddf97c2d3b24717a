/* kolo-pack: images to HDF5 shards. See pack.h for the way a packing goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hold.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "pack/pack.h"

/* One split, with what is to be said and left; what it left behind in memory is freed. */
static int pack_one(packing *p)
{
    const double begin = kolo_time();
    int rc = pack_split(p);
    if (rc == 0 && p->launch.rank == 0 && !p->complete && !p->options.dry_run) {
        pack_tell(p, kolo_time() - begin);
        if (strcmp(p->options.out_split, "train") != 0 && !p->stats_given)
            kolo_warn(
                "mean and standard deviation are those of this split; --stats-from TRAIN takes the training "
                "split's");
    }
    /* ranks without an error of their own leave the word to the one that has it */
    if (rc < 0 && kolo_error_text()[0]) fprintf(stderr, "kolo-pack: %s\n", kolo_error_text());
    fflush(stdout);
    if (rc == KOLO_EINPUT && p->launch.rank == 0 && p->claimed && !p->resumed &&
        kolo_folder_remove(p->work) < 0)
        kolo_warn("%s", kolo_error_text());
    if (p->lock.fd >= 0) kolo_lock_release(&p->lock);
    pack_free(p);
    return rc;
}

/* Without --split. Training first, as what is held out, or val of --data, takes its mean and classes from
 * there. */
static int pack_both(const pack_options *options, const kolo_launch *launch)
{
    const bool apart = !options->holdout[0]; /* the parts are folders of the source */
    const char *const parts[] = {"train", apart ? "val" : options->holdout};
    char *folders[2] = {NULL, NULL};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        packing p = {.options = *options, .launch = *launch};
        pack_options *o = &p.options;
        folders[i] = kolo_format("%s/%s", options->out ? options->out : ".", parts[i]);
        if (!folders[i]) return KOLO_ENOMEM;
        o->out = folders[i];
        snprintf(o->out_split, sizeof o->out_split, "%s", parts[i]);
        if (apart) snprintf(o->split, sizeof o->split, "%s", parts[i]);
        if (o->default_seed) o->shuffle_seed = i == 0 ? 42 : 0;
        if (i == 1 && !o->stats_from && !o->dry_run) o->stats_from = folders[0];
        rc = pack_one(&p);
    }
    free(folders[0]);
    free(folders[1]);
    return rc;
}

/* The exit status. */
static int said_all(int rc)
{
    if (rc == 0 && (rc = kolo_stdout_flush()) < 0) fprintf(stderr, "kolo-pack: %s\n", kolo_error_text());
    return -rc;
}

/* From the launch's watchdog. */
static void end_stuck(kolo_launch *launch, const char *text)
{
    fprintf(stderr, "kolo-pack: %s\n", text);
    kolo_launch_abort(launch, -KOLO_ELAUNCH);
}

/* Ranks have unlike shares, so a rank with a heartbeat is waited for. */
static kolo_launch_limits read_limits(void)
{
    kolo_options o;
    kolo_options_default(&o);
    const int rc = kolo_options_read_environment(&o);
    const kolo_launch_limits limits = {
        .start = o.comm_timeout, .heartbeat_timeout = o.heartbeat_timeout, .end = rc < 0 ? NULL : end_stuck};
    kolo_options_free(&o);
    return limits;
}

/* SIGTERM and SIGINT still end a launch that hangs; nothing is written before it. */
KOLO_HOLD_SIGNALS(SIGUSR1);

int main(int argc, char **argv)
{
    static packing p;
    int rc = pack_options_read(&p.options, argc, argv);
    if (rc < 0) {
        fprintf(stderr, "kolo-pack: %s\n", kolo_error_text());
        return -rc;
    }
    if (p.options.help || p.options.version) {
        if (p.options.help) pack_options_help();
        else printf("kolo-pack %s\n", KOLO_VERSION);
        return said_all(0);
    }
    rc = kolo_options_check_environment(); /* a slip in a job's variables would pack something else */
    const kolo_launch_limits limits = read_limits();
    if (rc == 0) rc = kolo_launch_start(&p.launch, "auto", &limits);
    if (rc < 0) {
        fprintf(stderr, "kolo-pack: %s\n", kolo_error_text());
        return -rc;
    }
    if (p.launch.rank == 0) kolo_options_report_renamed();
    pack_catch_signals(); /* after MPI has set its own */
    kolo_release_signals();
    kolo_launch launch = p.launch;
    rc = p.options.both ? pack_both(&p.options, &launch) : pack_one(&p);
    kolo_launch_finish(&launch);
    return said_all(rc);
}
