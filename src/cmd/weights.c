/* kolo export, kolo import */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "cmd/cmd.h"
#include "data/shard/manifest.h"
#include "kolo/error.h"
#include "train/class_names.h"
#include "train/session.h"

/* *list: the names of the run's classes as a JSON list; NULL: it has noted none, or the network has others.
 * Caller frees. */
static int list_classes(const char *run, int64_t classes, char **list)
{
    kolo_class_names names = {0};
    size_t bytes;
    *list = NULL;
    int rc = run ? kolo_class_names_of_run(&names, run) : 0;
    const bool named = rc == 0 && names.count > 0 && names.count == classes;
    FILE *f = named ? open_memstream(list, &bytes) : NULL;
    for (int64_t c = 0; f && c < classes; c++) {
        fputc(c ? ',' : '[', f);
        kolo_json_string(f, names.name[c]);
    }
    if (f) fputc(']', f);
    if (named && (!f || fclose(f) != 0))
        rc = kolo_fail(KOLO_ENOMEM, "out of memory for the names of classes");
    kolo_class_names_free(&names);
    return rc;
}

/* With `run`: its checkpoint=; with weights=: that file; else the model as initialised from the seed. */
static int export(kolo_options *o, const char *run, const char *file)
{
    kolo_session session;
    kolo_launch *launch;
    enum kolo_export_form form;
    int64_t step = 0;
    char *classes = NULL;
    int rc;
    KOLO_TRY(kolo_export_form(file, &form));
    if (run && *o->weights)
        return kolo_fail(KOLO_ECONFIG, "weights of a run or of weights=%s: give one of them", o->weights);
    KOLO_TRY(kolo_command_alone(&launch));
    o->batch = o->micro_batch = 1;
    o->bn = KOLO_bn_local;
    o->deterministic = true; /* nothing is computed: no algorithm need be timed, and any machine will do */
    o->precision = KOLO_precision_f32;
    o->device = KOLO_device_cpu;
    char *parts = o->spatial, whole[] = "1x1"; /* what others read is cut into none */
    const int64_t tensor = o->tensor;
    o->spatial = whole;
    o->tensor = 1;
    rc = kolo_session_open(&session, o, launch, KOLO_SESSION_EVAL | KOLO_SESSION_NO_DATA);
    o->spatial = parts;
    o->tensor = tensor;
    KOLO_TRY(rc);
    if (run || *o->weights)
        KOLO_TRY_GOTO(rc, kolo_command_weights(&session, run ? NULL : o->weights, run, &step));
    else KOLO_TRY_GOTO(rc, kolo_exec_initialise(session.exec, (uint64_t)o->seed));
    KOLO_TRY_GOTO(rc, list_classes(run, o->classes, &classes));
    const kolo_export how = {.form = form,
                             .classes = classes,
                             .ema = kolo_averages(o) && run,
                             .batches = step,
                             .names = o->names,
                             .dtype = o->export_dtype};
    if (form == KOLO_FORM_ONNX) KOLO_TRY_GOTO(rc, kolo_onnx_export(file, session.exec, session.plan, &how));
    else KOLO_TRY_GOTO(rc, kolo_weights_export(file, session.exec, session.plan, &how));
    kolo_info("%s: %ld parameters of %s%s", file, (long)kolo_graph_parameters(session.graph), o->model,
              run || *o->weights ? "" : " as initialised");
fail:
    free(classes);
    kolo_session_close(&session);
    return rc;
}

int kolo_command_export(int n, char **words)
{
    kolo_options options;
    const char *word[2];
    KOLO_TRY(kolo_command_words(&options, n, words, 2, word));
    const char *run = word[1] ? word[0] : NULL; /* RUN FILE */
    if (!word[0]) {
        kolo_options_free(&options);
        return kolo_fail(KOLO_ECONFIG,
                         "usage: kolo export RUN FILE, or kolo export model=NAME [weights=FILE] FILE");
    }
    if (run) KOLO_TRY(kolo_command_run(&options, run, n, words, 2, word));
    int rc = export(&options, run, word[run ? 1 : 0]);
    kolo_options_free(&options);
    return rc;
}

/* One rank holds the whole network; with which stages the run is trained is recorded, and does not matter to
 * the checkpoint. */
static int open_whole(kolo_session *session, kolo_options *options, kolo_launch *launch)
{
    const int64_t stages = options->stages, chunks = options->chunks;
    char *cut = options->cut, whole[] = "";
    options->stages = options->chunks = 1;
    options->cut = whole;
    const int rc = kolo_session_open(session, options, launch, KOLO_SESSION_TRAIN);
    options->stages = stages;
    options->chunks = chunks;
    options->cut = cut;
    return rc;
}

static int import(kolo_options *options, const char *file)
{
    kolo_session session;
    kolo_launch *launch;
    kolo_run *run = NULL;
    kolo_position position = {.best = -1};
    char path[4096];
    int rc;
    if (!*options->run) return kolo_fail(KOLO_ECONFIG, "no run folder to begin: give run=DIR");
    KOLO_TRY(kolo_manifest_outside("run", options->run));
    int found = kolo_checkpoint_find(options->run, &position, path, sizeof path);
    KOLO_TRY(found);
    if (found)
        return kolo_fail(KOLO_ECONFIG, "%s holds a checkpoint of step %ld already: give a fresh run folder",
                         options->run, (long)position.step);
    position = (kolo_position){.best = -1};
    KOLO_TRY(kolo_command_alone(&launch));
    KOLO_TRY(open_whole(&session, options, launch));
    KOLO_TRY_GOTO(rc, kolo_exec_initialise(session.exec, (uint64_t)options->seed));
    KOLO_TRY_GOTO(rc, kolo_weights_import(file, session.exec, session.plan, options->init_head));
    KOLO_TRY_GOTO(rc, kolo_run_open(&run, options->run));
    KOLO_TRY_GOTO(rc, kolo_run_record(run, options));
    position.batch = options->batch;
    position.samples = session.samples;
    position.seed = (uint64_t)options->seed;
    snprintf(position.data_uuid, sizeof position.data_uuid, "%s", session.data_uuid);
    snprintf(position.model, sizeof position.model, "%s", options->model);
    KOLO_TRY_GOTO(rc, kolo_run_identify(run, true, &position));
    KOLO_TRY_GOTO(rc,
                  kolo_checkpoint_save(run, session.exec, session.plan, session.backend, options, &position));
    KOLO_TRY_GOTO(rc, kolo_checkpoint_wait(run));
    kolo_info("%s begins with the weights of %s; `kolo train` with the same options goes on from there",
              options->run, file);
fail:
    kolo_run_close(&run);
    kolo_session_close(&session);
    return rc;
}

int kolo_command_import(int n, char **words)
{
    kolo_options options;
    const char *file[1];
    KOLO_TRY(kolo_command_options(&options, n, words, 1, file));
    int rc = file[0] ? import(&options, file[0])
                     : kolo_fail(KOLO_ECONFIG, "usage: kolo import FILE RECIPE.yaml data=DIR run=DIR");
    kolo_options_free(&options);
    return rc;
}
