/* kolo serve-data: one loader for the jobs of a node; started once a node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "data/serve/serve.h"
#include "kolo/error.h"
#include "train/session.h"

static int status(int n, char **words)
{
    kolo_options options;
    char text[32 << 10];
    KOLO_TRY(kolo_command_words(&options, n, words, 0, NULL));
    const int rc = kolo_server_ask(options.data_server, text, sizeof text);
    kolo_options_free(&options);
    if (rc == 0) fputs(text, stdout);
    fflush(stdout);
    return rc;
}

static int serve(kolo_session *session)
{
    const kolo_options *o = session->options;
    const kolo_loader_config config = kolo_session_loader(session, true);
    kolo_server *server;
    KOLO_TRY(kolo_server_open(&server, &config, (int)o->serve_jobs));
    const long rows = (long)(config.batch / config.ranks);
    kolo_info("serving rows %ld to %ld of each batch of %s; jobs on this node join by data_server=%s",
              config.rank * rows, config.rank * rows + rows - 1, o->data, o->data_server);
    const int rc = kolo_command_asked() ? 0 : kolo_server_run(server, &kolo_command_stop);
    kolo_server_close(&server);
    return rc;
}

int kolo_command_serve_data(int n, char **words)
{
    kolo_options options;
    kolo_launch *launch;
    kolo_session session;
    kolo_command_catch();
    if (kolo_command_flag(&n, words, "--status")) return status(n, words);
    KOLO_TRY(kolo_command_options(&options, n, words, 0, NULL));
    /* validation differs from job to job, and is not served */
    int rc = kolo_option_set(&options, "val", "none", "kolo serve-data");
    if (rc == 0 && (!*options.data || !strcmp(options.data, "synthetic")))
        rc = kolo_fail(KOLO_ECONFIG, "nothing to serve: give data=DIR (a folder made by kolo-pack)");
    if (rc == 0) rc = kolo_command_launch(&options, &launch);
    if (rc == 0 && launch->size != launch->nodes)
        rc = kolo_fail(
            KOLO_ECONFIG,
            "%d ranks on %d nodes: one server a node is enough; start it by srun --ntasks-per-node=1",
            launch->size, launch->nodes);
    if (rc == 0)
        rc = kolo_session_open(&session, &options, launch, KOLO_SESSION_TRAIN | KOLO_SESSION_DATA_ONLY);
    if (rc == 0) {
        rc = serve(&session);
        kolo_session_close(&session);
    }
    kolo_options_free(&options);
    return rc;
}
