/* kolo train, kolo eval */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "cmd/cmd.h"
#include "kolo/error.h"
#include "metrics/ap.h"
#include "metrics/roc.h"
#include "train/train.h"
#include "train/verify.h"

int kolo_command_train(int n, char **words)
{
    kolo_options options;
    kolo_launch *launch;
    kolo_command_catch();
    KOLO_TRY(kolo_command_options(&options, n, words, 0, NULL));
    int rc = kolo_command_launch(&options, &launch);
    if (rc == 0) rc = kolo_train(launch, &options, kolo_command_asked);
    kolo_options_free(&options);
    return rc;
}

int kolo_command_weights(kolo_session *session, const char *file, const char *run, int64_t *step)
{
    char path[4096];
    kolo_position position;
    if (step) *step = 0;
    KOLO_TRY(kolo_exec_initialise(session->exec, (uint64_t)session->options->seed));
    if (file) return kolo_weights_import(file, session->exec, session->plan, KOLO_init_head_load);
    const int found =
        kolo_train_find(session, run, session->options->checkpoint, &position, path, sizeof path);
    KOLO_TRY(found);
    if (!found)
        return kolo_fail(KOLO_EINPUT, "%s holds no checkpoint: train first, or give a file of weights", run);
    if (step) *step = position.step;
    return kolo_checkpoint_load(path, session->exec, session->plan);
}

static int verify(kolo_session *session, bool ema, bool prints)
{
    const kolo_options *o = session->options;
    kolo_pair_scores scores;
    kolo_verification v;
    KOLO_TRY(kolo_verify(session, ema, o->pairs, &scores, &v));
    int rc = prints && *o->roc ? kolo_roc_write(o->roc, o->pairs, &scores, &v) : 0;
    if (prints && rc == 0)
        printf(
            "%s: accuracy %.4f +- %.4f  EER %.4f  AUC %.4f  TAR %.4f at FAR 0.01  (%ld pairs, folds: %d)\n",
            o->pairs, v.accuracy, v.error, v.eer, v.auc, v.tar, (long)scores.count, v.folds);
    kolo_pair_scores_free(&scores);
    return rc;
}

/* As pycocotools prints them; of boxes in VOC's form also as its devkit does. */
static void print_boxes(const kolo_evaluation *e)
{
    kolo_ap ap = {0};
    char text[128];
    memcpy(ap.line, e->line, sizeof ap.line);
    for (int i = 0; i < 12; i++) {
        kolo_ap_text(&ap, i, text, sizeof text);
        puts(text);
    }
    for (int i = 0; i < 2 && e->voc[i] >= 0; i++)
        printf(" VOC mean AP by the rule of %s @[ IoU=0.50 ] = %.4f\n",
               i ? "2010, all points   " : "2007, eleven points", e->voc[i]);
    if (e->openimages >= 0) printf(" Open Images Challenge mean AP @[ IoU=0.50 ] = %.4f\n", e->openimages);
    printf("AP %.12f  AP50 %.12f  (%ld images, %.1f s, %.0f img/s)\n", e->line[0], e->line[1], (long)e->rows,
           e->seconds, (double)e->rows / e->seconds);
}

/* file: of weights, or NULL: those of the run. */
static int evaluate(kolo_launch *launch, kolo_options *options, const char *file)
{
    kolo_session session;
    kolo_evaluation e;
    int rc;
    KOLO_TRY(kolo_session_open(&session, options, launch, KOLO_SESSION_EVAL));
    KOLO_TRY_GOTO(rc, kolo_command_weights(&session, file, options->run, NULL));
    /* what is timed is no wait for a rank that still reads its weights */
    KOLO_TRY_GOTO(rc, kolo_comm_barrier(session.comm));
    const bool ema = kolo_averages(options) && !file;
    if (*options->pairs) KOLO_TRY_GOTO(rc, verify(&session, ema, launch->rank == 0));
    else KOLO_TRY_GOTO(rc, kolo_evaluate(&session, ema, options->results, NULL, &e));
    if (launch->rank == 0 && session.detector) print_boxes(&e);
    else if (launch->rank == 0 && !*options->pairs && kolo_session_tags(&session))
        printf("loss %.6f  mAP %.4f  micro AP %.4f  (%ld images, %ld of %ld classes shown, %.1f s, %.0f "
               "img/s)\n",
               e.loss, e.map, e.ap_micro, (long)e.rows, (long)e.classes, (long)options->classes, e.seconds,
               (double)e.rows / e.seconds);
    else if (launch->rank == 0 && !*options->pairs)
        printf("loss %.6f  top-1 %.4f  top-5 %.4f  (%ld images, %.1f s, %.0f img/s)\n", e.loss, e.top1,
               e.top5, (long)e.rows, e.seconds, (double)e.rows / e.seconds);
    fflush(stdout);
fail:
    kolo_session_close(&session);
    return rc;
}

/* A recipe may say init=, which is what the run began with. Beside run= on the command line it says something
 * else than run= does. */
static int check_eval(const kolo_options *o, int n, char **words)
{
    kolo_options said;
    if (!*o->run && !*o->weights && !*o->init)
        return kolo_fail(KOLO_ECONFIG, "nothing to evaluate: give run=DIR or weights=FILE");
    if (!*o->val || !strcmp(o->val, "none"))
        return kolo_fail(KOLO_ECONFIG, "no validation data: give val=DIR");
    kolo_options_default(&said);
    const kolo_option_hooks hooks = {.positional = kolo_command_skip_word};
    int rc = kolo_options_read_arguments(&said, n, words, &hooks);
    if (rc == 0 && *said.init && *o->run)
        rc = kolo_fail(KOLO_ECONFIG,
                       "init= and run=: evaluate which? weights=FILE is a file, run=DIR a run's checkpoint");
    kolo_options_free(&said);
    return rc;
}

/* The options of `kolo eval`: over those of a run, which run= or a folder as first word names, or over a
 * recipe. *recipe: one that is beside run=, or NULL. */
static int read_eval(kolo_options *o, int n, char **words, const char **recipe)
{
    const char *word = NULL;
    *recipe = NULL;
    KOLO_TRY(kolo_command_words(o, n, words, 1, &word));
    const bool folder = word && kolo_folder_exists(word);
    int rc = 0;
    if (folder && *o->run && strcmp(o->run, word))
        rc = kolo_fail(KOLO_ECONFIG, "%s and run=%s: evaluate which?", word, o->run);
    if (rc == 0 && (folder || *o->run)) {
        const char *beside = NULL;
        rc = kolo_command_run(o, folder ? word : o->run, n, words, 1, &beside);
        if (rc == 0 && !folder) *recipe = beside;
        return rc;
    }
    kolo_options_free(o);
    return rc < 0 ? rc : kolo_command_options(o, n, words, 0, NULL);
}

int kolo_command_eval(int n, char **words)
{
    kolo_options o;
    kolo_launch *launch;
    const char *recipe;
    KOLO_TRY(read_eval(&o, n, words, &recipe));
    int rc = check_eval(&o, n, words);
    if (rc == 0) rc = kolo_command_launch(&o, &launch);
    if (rc == 0 && recipe)
        kolo_log0(KOLO_LOG_INFO, "%s is evaluated by the options that it was trained with, not by recipe %s",
                  o.run, recipe);
    if (rc == 0) rc = evaluate(launch, &o, *o.weights ? o.weights : *o.run ? NULL : o.init);
    kolo_options_free(&o);
    return rc;
}
