/* kolo plan: prints and checks the plan; computes nothing, for any number of ranks. */
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "kolo/error.h"
#include "plan/matrices.h"
#include "train/compression.h"
#include "train/session.h"

/* Where batch or picture size change: every phase, and what each shape of a batch needs of the memory that they share. The list above is of the first. */
static void print_shapes(const kolo_session *s)
{
    for (int i = 0; i < s->phases; i++) {
        const kolo_phase *p = &s->phase[i];
        printf("epoch %ld on: batch %ld, ", (long)p->epoch, (long)p->batch);
        if (!p->sides.low) printf("pictures of %ld x %ld\n", (long)s->width, (long)s->height);
        else if (p->sides.low == p->sides.high) printf("pictures of %d x %d\n", p->sides.high, p->sides.high);
        else printf("pictures of %d to %d in steps of %d, drawn every %d steps\n", p->sides.low, p->sides.high, p->sides.step, p->sides.every);
    }
    for (int i = 0; i < s->shapes; i++) {
        const kolo_shape *k = &s->shape[i];
        printf("plan %d: %d x %ld pictures of %ld x %ld, %ld actions, %.1f MiB while it runs\n", i, k->slots, (long)k->rows, (long)k->width, (long)k->height,
               (long)k->plan->actions, (double)k->scratch / 0x1p20);
    }
}

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
        if (session.shapes > 1) print_shapes(&session);
        for (int i = 0; i < session.shapes && rc == 0; i++) rc = kolo_plan_check(session.shape[i].plan);
        if (rc == 0)
            printf("checked: every value is written before it is read, no two live values overlap, every bucket is "
                   "complete when it is sent\n");
        if (rc == 0) rc = kolo_session_print_memory(&session, stdout);
        kolo_session_close(&session);
    }
    kolo_options_free(&options);
    return rc;
}
