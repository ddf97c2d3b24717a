/* kolo plan: prints and checks the plan; computes nothing, for any number of ranks. */
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "kolo/error.h"
#include "plan/matrices.h"
#include "train/compression.h"
#include "train/session.h"

int kolo_command_plan(int n, char **words)
{
    kolo_options options;
    kolo_launch *launch;
    kolo_session session;
    bool all = kolo_command_flag(&n, words, "--all");
    KOLO_TRY(kolo_command_options(&options, n, words, 0, NULL));
    int parts = KOLO_SESSION_TRAIN | KOLO_SESSION_PLAN_ONLY;
    if (!*options.data || !strcmp(options.data, "synthetic")) parts |= KOLO_SESSION_NO_DATA;
    int rc = kolo_command_alone(&launch);
    if (rc == 0) rc = kolo_session_open(&session, &options, launch, parts);
    if (rc == 0) {
        rc = kolo_plan_print(session.plan, stdout, all);
        comm_compress compress = kolo_compression(&options, session.phase[0].steps_per_epoch);
        if (rc == 0) rc = kolo_plan_print_compressed(session.plan, session.backend, &compress, stdout);
        if (rc == 0) rc = kolo_plan_check(session.plan);
        if (rc == 0)
            printf("checked: every value is written before it is read, no two live values overlap, every bucket is "
                   "complete when it is sent\n");
        kolo_session_close(&session);
    }
    kolo_options_free(&options);
    return rc;
}
