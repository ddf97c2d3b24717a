/* kolo predict */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/ckpt.h"
#include "ckpt/weights.h"
#include "cmd/cmd.h"
#include "cmd/predict_form.h"
#include "train/class_names.h"
#include "train/detect_predict.h"
#include "train/predict.h"

enum { ROWS = 8 }; /* images at a time */

typedef struct output {
    kolo_predict_form *form;
    kolo_prediction *list; /* [capacity] of one image */
    int64_t capacity;
    const char *const *path;
    int64_t classes, top;
    bool tags;        /* every class has a score of its own: the sigmoid of its logit */
    double threshold; /* of tags that are printed; 0: the `top` best */
    kolo_class_names names;
    FILE *json;  /* of logits=; NULL: nobody wants it */
    bool listed; /* something was written there */
} output;

/* Of labels=, or those that a run has noted, unless its network has more classes than its data. */
static int find_names(output *out, const kolo_options *o)
{
    if (!*o->labels) {
        if (*o->run) KOLO_TRY(kolo_class_names_of_run(&out->names, o->run));
        if (out->names.count != out->classes) out->names.count = 0;
        return 0;
    }
    KOLO_TRY(kolo_class_names_read(&out->names, o->labels));
    if (out->names.count == out->classes) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "labels=%s names %ld classes, the network has %ld; give the names of its data set",
                     o->labels, (long)out->names.count, (long)out->classes);
}

/* The best classes with their probabilities (tags: their scores), best first; equal ones in
 * the order of classes. */
static int show_top(output *out, int64_t file, const float *logits)
{
    double sum = 0;
    float largest = -INFINITY;
    int64_t last = -1, n = 0;
    for (int64_t c = 0; c < out->classes; c++) largest = logits[c] > largest ? logits[c] : largest;
    for (int64_t c = 0; c < out->classes; c++) sum += exp((double)(logits[c] - largest));
    const bool all = out->tags && out->threshold > 0;
    for (int64_t k = 0; (all || k < out->top) && k < out->classes; k++) {
        int64_t best = -1;
        for (int64_t c = 0; c < out->classes; c++) {
            const bool later =
                last < 0 || logits[c] < logits[last] || (logits[c] == logits[last] && c > last);
            if (later && (best < 0 || logits[c] > logits[best])) best = c;
        }
        if (best < 0) break; /* not a number */
        const double score =
            out->tags ? 1 / (1 + exp(-(double)logits[best])) : exp((double)(logits[best] - largest)) / sum;
        if (all && score < out->threshold) break;
        KOLO_TRY(kolo_grow(&out->list, &out->capacity, n, sizeof *out->list));
        out->list[n++] = (kolo_prediction){.cls = best, .score = score};
        last = best;
    }
    return kolo_predict_form_show(out->form, file, out->list, n);
}

/* Before anything is computed: a file can be made there. */
static int check_place(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[4096];
    if (slash) snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    if (access(slash ? folder : ".", W_OK) == 0) return 0;
    return kolo_fail(KOLO_EIO, "logits=%s: cannot write there: %s", path, strerror(errno));
}

static int show_classes(void *context, int64_t i, const float *logits)
{
    output *out = context;
    KOLO_TRY(show_top(out, i, logits));
    if (!out->json) return 0;
    fprintf(out->json, "%s{\"path\":", out->listed ? ",\n " : "");
    out->listed = true;
    kolo_json_string(out->json, out->path[i]);
    fputs(",\"logits\":[", out->json);
    for (int64_t c = 0; c < out->classes; c++) {
        if (c) fputc(',', out->json);
        kolo_json_number(out->json, (double)logits[c], 9);
    }
    fputs("]}", out->json);
    return 0;
}

static int show_found(void *context, int64_t i, const kolo_found *found, int64_t n)
{
    output *out = context;
    for (int64_t k = 0; k < n; k++) {
        KOLO_TRY(kolo_grow(&out->list, &out->capacity, k, sizeof *out->list));
        out->list[k] = (kolo_prediction){.cls = found[k].cls, .score = (double)found[k].score};
        for (int j = 0; j < 4; j++) out->list[k].box[j] = (double)found[k].box[j];
    }
    return kolo_predict_form_show(out->form, i, out->list, n);
}

/* The form of what is printed; a stage that reads no images has nothing to print. */
static int open_form(output *out, const kolo_session *s, kolo_image_feed *feed, enum kolo_predict_kind kind)
{
    if (!kolo_session_loads(s)) return 0;
    KOLO_TRY(kolo_predict_form_open(&out->form, kind, feed->path, &out->names, s->detector));
    feed->unreadable = kolo_predict_form_unreadable;
    feed->context = out->form;
    return 0;
}

static void close_output(output *out)
{
    kolo_predict_form_close(&out->form);
    free(out->list);
    kolo_class_names_free(&out->names);
}

static int show_boxes(kolo_session *session, const kolo_options *o, kolo_image_feed *feed,
                      enum kolo_predict_kind kind)
{
    output out = {.path = feed->path, .classes = o->classes};
    int rc = find_names(&out, o);
    if (rc == 0 && *o->logits)
        rc = kolo_fail(KOLO_ECONFIG, "logits= is for networks that classify; %s finds boxes", o->model);
    if (rc == 0) rc = open_form(&out, session, feed, kind);
    if (rc == 0)
        rc = kolo_detect_predict(session, feed, out.names.count ? out.names.name : NULL, show_found, &out);
    close_output(&out);
    return rc;
}

static int show(kolo_session *session, const kolo_options *o, kolo_image_feed *feed,
                enum kolo_predict_kind kind)
{
    if (session->detector) return show_boxes(session, o, feed, kind);
    if (o->threshold > 0 && !kolo_session_tags(session))
        return kolo_fail(KOLO_ECONFIG,
                         "threshold= is for networks of image labels, whose classes have scores of their own;"
                         " %s predicts one class of an image; use top= for the number of classes to print",
                         o->model);
    if (*o->out)
        return kolo_fail(KOLO_ECONFIG, "out= is for networks that find boxes, which it draws; %s classifies",
                         o->model);
    output out = {.path = feed->path,
                  .classes = o->classes,
                  .top = o->top,
                  .tags = kolo_session_tags(session),
                  .threshold = o->threshold};
    char *text = NULL;
    size_t bytes = 0;
    const bool keeps = *o->logits && kolo_session_loads(session);
    int rc = find_names(&out, o);
    if (rc == 0 && keeps) rc = check_place(o->logits);
    if (rc == 0 && keeps && !(out.json = open_memstream(&text, &bytes)))
        rc = kolo_fail(KOLO_ENOMEM, "out of memory for %s", o->logits);
    if (out.json) fputc('[', out.json);
    if (rc == 0) rc = open_form(&out, session, feed, kind);
    if (rc == 0) rc = kolo_predict(session, feed, show_classes, &out);
    if (out.json) {
        fputs("]\n", out.json);
        if (fclose(out.json) != 0 && rc == 0) rc = kolo_fail(KOLO_ENOMEM, "out of memory for %s", o->logits);
        if (rc == 0) rc = kolo_file_write_atomic(o->logits, text, bytes);
    }
    free(text);
    close_output(&out);
    return rc;
}

/* Without a recipe the transform that published weights are measured with; a recipe may leave mean and
 * deviation to its data. */
static int usual_transform(kolo_options *o, const char *recipe)
{
    static const char usually[] = "kolo predict";
    const kolo_model *model = kolo_model_find(o->model);
    if (!model) return kolo_error_status();
    const bool colour = (o->channels ? o->channels : model->channels) == 3,
               usual = model->pixels == KOLO_PIXELS_NORMAL;
    if (recipe && usual && !(*o->mean && *o->std))
        kolo_info("recipe %s uses its data set's mean and deviation, which are not known here: %s are used; "
                  "set mean= and std= for others",
                  recipe, colour ? "ImageNet's" : "MNIST's");
    if (usual && !*o->mean)
        KOLO_TRY(kolo_option_set(o, "mean", colour ? "0.485,0.456,0.406" : "0.1307", usually));
    if (usual && !*o->std)
        KOLO_TRY(kolo_option_set(o, "std", colour ? "0.229,0.224,0.225" : "0.3081", usually));
    /* the short side is 256/224 of the crop; small images are taken as a whole */
    if (!recipe && !model->detector && model->height >= 64 && o->crop == KOLO_crop_none)
        o->crop = KOLO_crop_resized;
    return 0;
}

/* What is not there is said before anything is prepared. */
static int check_there(const char *path)
{
    if (access(path, R_OK) < 0) return kolo_fail(KOLO_EINPUT, "%s: %s", path, strerror(errno));
    return 0;
}

static int check_file(const char *path)
{
    KOLO_TRY(check_there(path));
    return kolo_folder_exists(path) ? kolo_fail(KOLO_EINPUT, "%s: a folder: name the file in it", path) : 0;
}

static int add_folder(kolo_folder_names *files, const char *folder)
{
    kolo_folder_names below = {0};
    int length = (int)strlen(folder), rc = kolo_folder_images(folder, "", &below);
    while (length > 1 && folder[length - 1] == '/') length--;
    if (rc == 0 && below.count == 0)
        rc = kolo_fail(KOLO_EINPUT, "%s: no images in this folder (.jpg, .png and the like)", folder);
    for (int64_t i = 0; rc == 0 && i < below.count; i++) {
        char *path = kolo_format("%.*s/%s", length, folder, below.list[i]);
        rc = path ? kolo_folder_add(files, path) : KOLO_ENOMEM;
        free(path);
    }
    kolo_folder_free(&below);
    return rc;
}

/* The words; a folder stands for the images in it. */
static int list_files(kolo_folder_names *files, int64_t n, const char *const *word)
{
    for (int64_t i = 0; i < n; i++) {
        KOLO_TRY(check_there(word[i]));
        KOLO_TRY(kolo_folder_exists(word[i]) ? add_folder(files, word[i]) : kolo_folder_add(files, word[i]));
    }
    return 0;
}

/* Neither run= nor weights=, and the first word is no run. */
static int fail_no_weights(const char *first)
{
    static const char how[] = "kolo predict RUN IMAGE..., with the folder of a run, or weights=FILE";
    if (!first) return kolo_fail(KOLO_ECONFIG, "no weights: %s", how);
    if (!kolo_file_exists(first))
        return kolo_fail(KOLO_EINPUT, "%s: there is no such run folder (`kolo runs FOLDER` lists them); %s",
                         first, how);
    return kolo_fail(KOLO_ECONFIG, "no weights, for %s is no run folder: it holds no recipe.yaml; %s", first,
                     how);
}

static int check_words(const kolo_options *o, const char *recipe, int64_t n, const char *first)
{
    if (recipe && *o->run)
        return kolo_fail(KOLO_ECONFIG, "run=%s has its own options: leave recipe %s out", o->run, recipe);
    if (!*o->weights && !*o->run) return fail_no_weights(first);
    if (n == 0)
        return kolo_fail(KOLO_ECONFIG,
                         "no images: name them, or folders of them, behind the options: IMAGE|FOLDER...");
    if (*o->labels) KOLO_TRY(check_file(o->labels));
    const char *key;
    char *file = kolo_weights_file(o->weights, &key);
    const int rc = !file ? kolo_error_status() : *file ? check_file(file) : 0;
    free(file);
    return rc;
}

/* Ranks that see other images would wait for each other for ever. */
static int check_same(kolo_launch *launch, const kolo_image_feed *feed)
{
    int64_t *all = kolo_alloc((size_t)launch->size * sizeof *all);
    int rc = all ? kolo_launch_exchange(launch, &feed->files, sizeof feed->files, all) : KOLO_ENOMEM;
    for (int r = 0; rc == 0 && r < launch->size; r++)
        if (all[r] != feed->files)
            rc = kolo_fail(
                KOLO_EINPUT,
                "rank %d sees %ld images, rank %d sees %ld: name files or a folder on a file system "
                "that all nodes share",
                r, (long)all[r], launch->rank, (long)feed->files);
    free(all);
    return rc;
}

/* One rank, or the ranks of one pipeline and of the parts of images. */
static int launch_ranks(const kolo_options *o, const kolo_image_feed *feed, kolo_launch **launch)
{
    if (o->stages == 1 && o->tensor == 1 && !strcmp(o->spatial, "1x1")) return kolo_command_alone(launch);
    KOLO_TRY(kolo_command_launch(o, launch));
    return check_same(*launch, feed);
}

static int check_one(const kolo_session *s)
{
    if (s->replicas == 1) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "stages=%ld on %d ranks: kolo predict is one pipeline; start %d ranks, or several "
                     "commands with a part of the images each",
                     (long)s->options->stages, s->ranks, s->ranks / s->replicas);
}

static int predict(kolo_options *o, const char *recipe, kolo_image_feed *feed, enum kolo_predict_kind kind)
{
    kolo_session session;
    kolo_launch *launch;
    int rc;
    KOLO_TRY(launch_ranks(o, feed, &launch));
    if (!*o->run) KOLO_TRY(usual_transform(o, recipe));
    o->batch = o->micro_batch = feed->files < ROWS ? feed->files : ROWS;
    o->bn = KOLO_bn_local;
    KOLO_TRY(kolo_session_open(&session, o, launch, KOLO_SESSION_EVAL | KOLO_SESSION_NO_DATA));
    rc = check_one(&session);
    if (rc == 0) rc = kolo_command_weights(&session, *o->weights ? o->weights : NULL, o->run, NULL);
    if (rc == 0) {
        kolo_exec_use_ema(session.exec, kolo_averages(o) && !*o->weights);
        rc = show(&session, o, feed, kind);
    }
    kolo_session_close(&session);
    return rc < 0 ? rc : kolo_image_feed_end(feed);
}

/* `kolo predict RUN IMAGE...`: a first word that is the folder of a run, where neither run= nor weights= is
 * given. Its own recipe holds then. */
static int take_run(kolo_options *o, const char **path)
{
    if (!path[0] || *o->run || *o->weights || !kolo_folder_exists(path[0])) return 0;
    char *recipe = kolo_format("%s/recipe.yaml", path[0]);
    const bool is_run = recipe && kolo_file_exists(recipe);
    int rc = recipe ? 0 : KOLO_ENOMEM;
    free(recipe);
    if (rc == 0 && is_run) rc = kolo_option_set(o, "run", path[0], "command line");
    return rc < 0 ? rc : is_run;
}

/* Takes the first of the words out. */
static void drop_first(const char **path)
{
    for (; path[0]; path++) path[0] = path[1];
}

int kolo_command_predict(int n, char **words)
{
    kolo_options options;
    const bool csv = kolo_command_flag(&n, words, "--csv"), json = kolo_command_flag(&n, words, "--json");
    if (csv && json) return kolo_fail(KOLO_ECONFIG, "--csv and --json: one form at a time");
    const char *recipe, **path = kolo_alloc((size_t)(n + 1) * sizeof *path);
    if (!path) return KOLO_ENOMEM;
    int rc = kolo_command_first(&options, &recipe, n, words, n, path);
    const int run_first = rc == 0 && !recipe ? take_run(&options, path) : 0;
    if (run_first < 0) rc = run_first;
    if (rc == 0 && *options.run && !recipe) rc = kolo_command_run(&options, options.run, n, words, n, path);
    if (rc == 0 && run_first) drop_first(path);
    if (rc == 0) {
        int64_t given = 0;
        kolo_folder_names files = {0};
        while (given < n && path[given]) given++;
        rc = check_words(&options, recipe, given, path[0]);
        if (rc == 0) rc = list_files(&files, given, path);
        if (rc == 0)
            rc = predict(&options, recipe,
                         &(kolo_image_feed){.files = files.count, .path = (const char *const *)files.list},
                         csv    ? KOLO_PREDICT_CSV
                         : json ? KOLO_PREDICT_JSON
                                : KOLO_PREDICT_TEXT);
        kolo_folder_free(&files);
        kolo_options_free(&options);
    }
    free(path);
    return rc;
}
