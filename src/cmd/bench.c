/* kolo bench train: steps on synthetic data, timed; with --profile the time of every kind of action. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "cmd/cmd.h"
#include "kolo/error.h"
#include "train/session.h"

enum { WARM_UP = 3 };

static int one(kolo_session *session, int64_t step)
{
    kolo_batch batch;
    kolo_metrics metrics;
    KOLO_TRY(kolo_loader_next(session->loader, &batch));
    kolo_step parameters = {.step = step,
                            .epoch = batch.epoch,
                            .valid_global = batch.valid_global,
                            .first = step == 0,
                            .clip = 1,
                            .lr = (float)session->options->lr,
                            .momentum = (float)session->options->momentum};
    int rc = kolo_exec_step(session->exec, &batch, &parameters, &metrics);
    kolo_loader_release(session->loader, &batch);
    return rc;
}

typedef struct row {
    const char *name;
    double seconds;
    int64_t calls;
} row;

static int slower(const void *a, const void *b)
{
    double x = ((const row *)a)->seconds, y = ((const row *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_profile(const kolo_session *session, const kolo_exec_profile *profile, int64_t steps)
{
    static const char *const kind[] = {
        [KOLO_ACTION_LOAD] = "load",     [KOLO_ACTION_SUM] = "sum",        [KOLO_ACTION_FOLD] = "fold",
        [KOLO_ACTION_REDUCE] = "reduce", [KOLO_ACTION_WAIT] = "wait",      [KOLO_ACTION_NORM] = "norm",
        [KOLO_ACTION_UPDATE] = "update", [KOLO_ACTION_BUFFERS] = "buffers"};
    const kolo_plan *plan = session->plan;
    row rows[KOLO_OP_COUNT + 16] = {{0}};
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        int op = a->kind == KOLO_ACTION_RUN ? (int)plan->graph->node[a->node].op : -1;
        row *r = op >= 0 ? &rows[op] : &rows[KOLO_OP_COUNT + (int)a->kind];
        r->name = op >= 0 ? kolo_op_table[op].name : kind[a->kind];
        r->seconds += profile[i].seconds;
        r->calls += profile[i].calls;
    }
    qsort(rows, sizeof rows / sizeof *rows, sizeof *rows, slower);
    printf("%-22s %10s %8s\n", "action", "ms/step", "calls");
    for (size_t i = 0; i < sizeof rows / sizeof *rows && rows[i].calls; i++)
        printf("%-22s %10.3f %8.1f\n", rows[i].name, rows[i].seconds * 1e3 / (double)steps,
               (double)rows[i].calls / (double)steps);
}

static int bench_train(kolo_launch *launch, kolo_options *options, bool profiled)
{
    kolo_session session;
    kolo_exec_profile *profile = NULL;
    int rc;
    int64_t steps = options->steps ? options->steps : 20;
    KOLO_TRY(kolo_session_open(&session, options, launch, KOLO_SESSION_TRAIN));
    KOLO_TRY_GOTO(rc, kolo_exec_initialise(session.exec, 0));
    KOLO_TRY_GOTO(rc, kolo_loader_seek(session.loader, 0, 0));
    for (int64_t i = 0; i < WARM_UP; i++) KOLO_TRY_GOTO(rc, one(&session, i));
    if (profiled && !(profile = kolo_alloc((size_t)session.plan->actions * sizeof *profile))) {
        rc = KOLO_ECONFIG;
        goto fail;
    }
    KOLO_TRY_GOTO(rc, kolo_exec_set_profile(session.exec, profile));
    KOLO_TRY_GOTO(rc, kolo_comm_barrier(session.comm));
    double begin = kolo_time(), fastest = 1e30;
    for (int64_t i = 0; i < steps; i++) {
        double t = kolo_time();
        KOLO_TRY_GOTO(rc, one(&session, WARM_UP + i));
        t = kolo_time() - t;
        if (t < fastest) fastest = t;
    }
    KOLO_TRY_GOTO(rc, kolo_comm_barrier(session.comm));
    double seconds = kolo_time() - begin;
    if (launch->rank == 0) {
        static const char *const precision[] = {"f32", "bf16"};
        if (profile) print_profile(&session, profile, steps);
        printf("train %s batch %ld size %ldx%ld %s, %d ranks x %ld threads, %.3f ms/step (fastest %.3f), peak %.0f MiB "
               "(planned %.0f MiB): %.1f img/s\n",
               options->model, (long)options->batch, (long)session.height, (long)session.width,
               precision[options->precision], launch->size, (long)options->threads, seconds * 1e3 / (double)steps,
               fastest * 1e3, (double)kolo_memory_peak() / 0x1p20, (double)kolo_plan_bytes(session.plan) / 0x1p20,
               (double)(steps * options->batch) / seconds);
        fflush(stdout);
    }
fail:
    free(profile);
    kolo_session_close(&session);
    return rc;
}

int kolo_command_bench(int n, char **words)
{
    kolo_options options;
    kolo_launch *launch;
    const char *what[1];
    bool profiled = kolo_command_flag(&n, words, "--profile");
    KOLO_TRY(kolo_command_words(&options, n, words, 1, what));
    int rc;
    if (!what[0] || strcmp(what[0], "train")) {
        rc = kolo_fail(KOLO_ECONFIG,
                       "usage: kolo bench train model=NAME batch=N size=N precision=f32|bf16 steps=N [--profile]");
    } else {
        free(options.data);
        options.data = kolo_strdup("synthetic");
        rc = options.data ? kolo_command_launch(&options, &launch) : KOLO_ECONFIG;
        if (rc == 0) rc = bench_train(launch, &options, profiled);
    }
    kolo_options_free(&options);
    return rc;
}
