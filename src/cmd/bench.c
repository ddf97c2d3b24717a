/* kolo bench train: steps, timed, on synthetic data or on packed images (data=); with --profile the time of
 * every kind of action. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "cmd/cmd.h"
#include "kolo/error.h"
#include "train/session.h"
#include "train/times.h"

enum { WARM_UP = 3 }; /* at the third a GPU's step has been recorded */

static int one(kolo_session *session, int64_t step)
{
    kolo_batch batch;
    kolo_metrics metrics;
    KOLO_TRY(kolo_loader_next(session->loader, &batch));
    kolo_step parameters = {.step = step,
                            .seed = (uint64_t)session->options->seed,
                            .epoch = batch.epoch,
                            .lr = (float)session->options->lr,
                            .momentum = (float)session->options->momentum};
    int rc = kolo_exec_step(session->exec, &batch, &parameters, &metrics);
    kolo_loader_release(session->loader, &batch);
    return rc;
}

/* All steps so far are done. */
static int drain(kolo_session *session)
{
    kolo_metrics metrics;
    do KOLO_TRY(kolo_exec_drain(session->exec, &metrics));
    while (metrics.step >= 0);
    return kolo_comm_barrier(session->comm);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* By arena, and what the process or the GPU really holds. step: seconds of each, the least first. */
static void print_result(const kolo_session *session, int64_t steps, double seconds, const double *step,
                         double host)
{
    const kolo_options *o = session->options;
    const kolo_plan *plan = session->plan;
    char where[64], busy[32] = "";
    double peak = (double)(session->cuda ? kolo_session_taken(session) : kolo_session_peak_bytes(session));
    double planned =
        (double)(session->cuda ? kolo_exec_bytes(plan, NULL) : kolo_session_planned_bytes(session, false));
    printf("arenas (MiB):");
    for (int a = 0; a < KOLO_ARENAS; a++)
        if (plan->arena_bytes[a])
            printf(" %s %.1f", kolo_arena_name[a], (double)plan->arena_bytes[a] / 0x1p20);
    if (session->cuda) {
        snprintf(where, sizeof where, "%d x %.40s", session->launch->size, session->device.name);
        snprintf(busy, sizeof busy, ", host %.3f", host * 1e3 / (double)steps);
    } else {
        snprintf(where, sizeof where, "%d ranks x %ld threads", session->launch->size, (long)o->threads);
    }
    printf("\ntrain %s batch %ld size %ldx%ld %s, %s, %.3f ms/step (fastest %.3f, lower quartile %.3f, "
           "median %.3f%s), peak %.0f MiB (planned %.0f MiB): %.1f img/s\n",
           o->model, (long)o->batch, (long)session->height, (long)session->width,
           kolo_option_find("precision")->choices[o->precision], where, seconds * 1e3 / (double)steps,
           step[0] * 1e3, step[steps / 4] * 1e3, step[steps / 2] * 1e3, busy, peak / 0x1p20, planned / 0x1p20,
           (double)(steps * o->batch) / seconds);
    fflush(stdout);
}

/* Beside what was measured, where `kolo bench --tune kernels` was here. */
static int print_prediction(const kolo_session *session, double median)
{
    kolo_play *play = NULL;
    if (!kolo_session_is_measured(session)) return 0;
    KOLO_TRY(kolo_session_play(session, &play, NULL));
    printf("predicted %.3f ms/step, %+.1f %% of the median measured\n", play->step * 1e3,
           100 * (play->step / median - 1));
    kolo_play_destroy(&play);
    return 0;
}

static int bench_train(kolo_launch *launch, kolo_options *options, bool profiled)
{
    kolo_session session;
    kolo_exec_profile *profile = NULL;
    double *step = NULL;
    int rc;
    int64_t steps = options->steps ? options->steps : 20;
    KOLO_TRY(kolo_session_open(&session, options, launch, KOLO_SESSION_TRAIN));
    KOLO_TRY_GOTO(rc, kolo_exec_initialise(session.exec, 0));
    kolo_session_settle(&session);
    KOLO_TRY_GOTO(rc, kolo_loader_seek(session.loader, 0, 0));
    for (int64_t i = 0; i < WARM_UP; i++) KOLO_TRY_GOTO(rc, one(&session, i));
    step = kolo_alloc((size_t)steps * sizeof *step);
    if (!step || (profiled && !(profile = kolo_alloc((size_t)session.plan->actions * sizeof *profile)))) {
        rc = KOLO_ENOMEM;
        goto fail;
    }
    KOLO_TRY_GOTO(rc, kolo_exec_set_profile(session.exec, profile));
    KOLO_TRY_GOTO(rc, drain(&session));
    double begin = kolo_time(), host = kolo_exec_issue_seconds(session.exec);
    for (int64_t i = 0; i < steps; i++) {
        const double t = kolo_time();
        KOLO_TRY_GOTO(rc, one(&session, WARM_UP + i));
        step[i] = kolo_time() - t;
    }
    KOLO_TRY_GOTO(rc, drain(&session));
    double seconds = kolo_time() - begin;
    host = kolo_exec_issue_seconds(session.exec) - host;
    if (launch->rank == 0) {
        if (profile) KOLO_TRY_GOTO(rc, kolo_bench_profile(session.plan, profile, steps));
        qsort(step, (size_t)steps, sizeof *step, by_value);
        print_result(&session, steps, seconds, step, host);
        KOLO_TRY_GOTO(rc, print_prediction(&session, step[steps / 2]));
    }
    rc = kolo_exec_finish(session.exec);
fail:
    free(profile);
    free(step);
    kolo_session_close(&session);
    return rc;
}

int kolo_command_bench(int n, char **words)
{
    kolo_options options;
    kolo_launch *launch;
    const char *what[1];
    const char *way = n > 0 ? words[0] : "";
    if (kolo_bench_is_collective(way)) return kolo_command_letters = "A", kolo_bench_collective(n, words);
    if (!strcmp(way, "gradients")) return kolo_command_letters = "G", kolo_bench_gradients(n - 1, words + 1);
    if (!strcmp(way, "--tune") && n > 1 && !strcmp(words[1], "kernels"))
        return kolo_command_letters = "TL", kolo_bench_kernels(n - 2, words + 2);
    if (!strcmp(way, "--tune")) return kolo_command_letters = "U", kolo_bench_tune(n - 1, words + 1);
    if (n == 1 && !strcmp(way, "--algorithms")) return kolo_bench_algorithms();
    kolo_command_letters = "T";
    bool profiled = kolo_command_flag(&n, words, "--profile");
    KOLO_TRY(kolo_command_words(&options, n, words, 1, what));
    int rc;
    static const char can[] = "train, gradients, allreduce or another collective, --tune, --algorithms";
    if (!what[0]) {
        rc = kolo_fail(KOLO_ECONFIG, "no benchmark is named; one of %s (see `kolo help bench`)", can);
    } else if (strcmp(what[0], "train")) {
        rc = kolo_fail(KOLO_ECONFIG, "`%s` is not a benchmark; one of %s (see `kolo help bench`)", what[0],
                       can);
    } else {
        rc = *options.data ? 0 : kolo_option_set(&options, "data", "synthetic", "kolo bench");
        if (rc == 0) rc = kolo_command_launch(&options, &launch);
        if (rc == 0) rc = bench_train(launch, &options, profiled);
    }
    kolo_options_free(&options);
    return rc;
}
