/* kolo bench --tune kernels RECIPE: what the operations of a training take on this machine, alone and with
 * all cores busy, kept in KOLO_CACHE: what `kolo plan` goes by. */
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "kolo/error.h"
#include "train/times.h"

static int measure(kolo_options *options, kolo_launch *launch)
{
    kolo_session session;
    kolo_play *play = NULL;
    int parts = KOLO_SESSION_TRAIN | KOLO_SESSION_PLAN_ONLY | KOLO_SESSION_QUIET;
    if (!*options->data || !strcmp(options->data, "synthetic")) parts |= KOLO_SESSION_NO_DATA;
    KOLO_TRY(kolo_session_open(&session, options, launch, parts));
    int rc = kolo_session_rehearse(&session, true);
    const int measured = rc;
    if (rc >= 0) rc = kolo_session_play(&session, &play, NULL);
    if (rc >= 0)
        printf("%d operations of %s were measured: %d rank%s of %ld thread%s, %.3f ms a step, played\n",
               measured, options->model, session.ranks, session.ranks > 1 ? "s" : "", (long)options->threads,
               options->threads > 1 ? "s" : "", play->step * 1e3);
    kolo_play_destroy(&play);
    kolo_session_close(&session);
    return rc < 0 ? rc : 0;
}

int kolo_bench_kernels(int n, char **words)
{
    kolo_options options;
    kolo_launch *launch;
    KOLO_TRY(kolo_command_options(&options, n, words, 0, NULL));
    int rc = kolo_command_alone(&launch);
    if (rc == 0) rc = measure(&options, launch);
    kolo_options_free(&options);
    return rc;
}
