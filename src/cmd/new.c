/* kolo new: a recipe with reasons, and a job script, for a folder of shards. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/file.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/propose.h"
#include "data/shard/manifest.h"
#include "kolo/error.h"
#include "models/models.h"

enum { WIDTH = 100 }; /* of comments */

typedef struct new_run {
    const char *name;
    char *data, *val, *run, *recipe, *job; /* owned; paths from the root; val "": none */
    const kolo_options *given;
    const kolo_option_entry *said[256]; /* options of the command line but for data=, val=, run= */
    int n_said;
    bool val_said;
} new_run;

static int note_option(void *context, const kolo_option_entry *e)
{
    new_run *n = context;
    const bool place = !strcmp(e->key, "data") || !strcmp(e->key, "val") || !strcmp(e->key, "run");
    for (int i = 0; i < n->n_said; i++)
        if (n->said[i] == e) return 0;
    if (!strcmp(e->key, "val")) n->val_said = true;
    if (!place && n->n_said < (int)(sizeof n->said / sizeof *n->said)) n->said[n->n_said++] = e;
    return 0;
}

/* Its lines after "# ". */
static void put_comment(FILE *to, const char *text)
{
    while (*text) {
        size_t length = strlen(text);
        if (length > WIDTH)
            for (length = WIDTH; length > 1 && text[length] != ' ';) length--;
        fprintf(to, "# %.*s\n", (int)length, text);
        text += length + (text[length] == ' ');
    }
}

/* In double quotes, those of `special` behind a backslash. */
static void put_quoted(FILE *to, const char *text, const char *special)
{
    for (; *text; text++) {
        if (strchr(special, *text)) fputc('\\', to);
        fputc(*text, to);
    }
}

static void put_path(FILE *to, const char *key, const char *path)
{
    fprintf(to, "%s: \"", key);
    put_quoted(to, path, "\"\\");
    fputs("\"\n", to);
}

static void put_facts(FILE *to, const kolo_data_facts *f, const kolo_dataset *set)
{
    char text[1024];
    const char *of = f->detection ? "boxes" : f->tags ? "tags" : "images";
    snprintf(text, sizeof text, "%s: %lld images for %s, %d classes, %s; short sides of ", f->info.name,
             (long long)f->info.count,
             f->detection ? "detection"
             : f->tags    ? "image labels"
                          : "classification",
             f->info.classes, f->info.channels == 1 ? "gray" : "colour");
    const size_t used = strlen(text);
    if (f->side_low == f->side_high) snprintf(text + used, sizeof text - used, "%d pixels.", f->side);
    else
        snprintf(text + used, sizeof text - used, "%d to %d pixels, half below %d.", f->side_low,
                 f->side_high, f->side + 1);
    put_comment(to, text);
    if (f->rarest < 0) return;
    if (f->most == f->fewest)
        snprintf(text, sizeof text, "%s class has %llu %s.", f->empty ? "Any other" : "Every",
                 (unsigned long long)f->most, of);
    else
        snprintf(text, sizeof text, "The commonest class (%.100s) has %llu %s, the rarest (%.100s) %llu.",
                 kolo_dataset_class_name(set, f->commonest), (unsigned long long)f->most, of,
                 kolo_dataset_class_name(set, f->rarest), (unsigned long long)f->fewest);
    put_comment(to, text);
    if (!f->empty) return;
    snprintf(text, sizeof text, "%d of the classes have none.", f->empty);
    put_comment(to, text);
}

static bool is_said(const new_run *n, const char *key)
{
    for (int i = 0; i < n->n_said; i++)
        if (!strcmp(n->said[i]->key, key)) return true;
    return false;
}

static int put_said(FILE *to, const new_run *n)
{
    if (n->n_said) fputs("\n# As given to `kolo new`.\n", to);
    for (int i = 0; i < n->n_said; i++) {
        char *value = kolo_option_text(n->given, n->said[i]);
        if (!value) return KOLO_ENOMEM;
        put_path(to, n->said[i]->key, value);
        free(value);
    }
    return 0;
}

static int put_recipe(FILE *to, const new_run *n, const kolo_data_facts *f, const kolo_dataset *set)
{
    kolo_proposal p;
    kolo_propose(f,
                 &(kolo_wishes){.model = is_said(n, "model") ? n->given->model : NULL,
                                .batch = is_said(n, "batch") ? n->given->batch : 0,
                                .epochs = is_said(n, "epochs") ? n->given->epochs : 0},
                 &p);
    put_facts(to, f, set);
    fprintf(to, "#   kolo plan %s        what a step does and takes\n", n->recipe);
    fprintf(to, "#   kolo train %s       here; or sbatch %s\n", n->recipe, n->job);
    fprintf(to, "#   kolo report %s\n", n->run);
    put_comment(to,
                "What stands here are rules of thumb to begin with. `kolo help KEY` explains each option; a "
                "line that is left out has its usual value. The learning rate is worth three short runs: a "
                "third of it, this, three times it.");
    put_path(to, "data", n->data);
    if (!*n->val)
        put_comment(
            to, "No validation data, so nobody knows what is learned: kolo-pack --holdout val=0.1 keeps a "
                "tenth of every class apart.");
    put_path(to, "val", *n->val ? n->val : "none");
    put_path(to, "run", n->run);
    for (int i = 0; i < p.count; i++) {
        if (is_said(n, p.of[i].key)) continue;
        if (*p.of[i].why) fputc('\n', to), put_comment(to, p.of[i].why);
        fprintf(to, "%s: %s\n", p.of[i].key, p.of[i].value);
    }
    if (f->info.count < 20000 && f->side >= 64) {
        fputc('\n', to);
        put_comment(to, "Weights trained elsewhere reach more with few images. Of the same network, as "
                        "torchvision, timm or a run have them; then about a fifth of the epochs and of lr.");
        fputs("# init: \"FILE.pth\"\n", to);
    }
    return put_said(to, n);
}

static int write_text(const char *path, char *text, size_t bytes, int rc)
{
    if (rc == 0) rc = kolo_file_write_atomic(path, text, bytes);
    free(text);
    return rc;
}

static int write_recipe(const new_run *n, const kolo_data_facts *f, const kolo_dataset *set)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return kolo_no_memory(sizeof *to);
    int rc = put_recipe(to, n, f, set);
    if (fclose(to) != 0 && rc == 0) rc = kolo_no_memory(bytes);
    return write_text(n->recipe, text, bytes, rc);
}

/* The template's line with what is known filled in. */
static void put_job_line(FILE *to, const new_run *n, const char *line, const char *jobs)
{
    static const char recipe[] = ": \"${KOLO_RECIPE:=", run[] = ": \"${KOLO_RUN:=",
                      name[] = "#SBATCH --job-name=", root[] = "@ROOT@/share/kolo/jobs",
                      special[] = "\"\\$`}";
    const char *at = strstr(line, root);
    if (!strncmp(line, recipe, sizeof recipe - 1) || !strncmp(line, run, sizeof run - 1)) {
        const bool first = !strncmp(line, recipe, sizeof recipe - 1);
        fputs(first ? recipe : run, to);
        put_quoted(to, first ? n->recipe : n->run, special);
        fputs("}\"", to);
    } else if (!strncmp(line, name, sizeof name - 1)) {
        fprintf(to, "%s%s", name, n->name);
    } else if (at) {
        fprintf(to, "%.*s\"", (int)(at - line), line);
        put_quoted(to, jobs, special);
        fprintf(to, "\"%s", at + sizeof root - 1);
    } else {
        fputs(line, to);
    }
    fputc('\n', to);
}

/* The folder of templates: installed in share, or beside it in the source tree. Caller frees. */
static char *find_jobs(void)
{
    char *path = kolo_format("%s/jobs", kolo_command_share());
    if (path && !kolo_folder_exists(path)) {
        free(path);
        path = kolo_format("%s/../jobs", kolo_command_share());
    }
    char *jobs = path ? realpath(path, NULL) : NULL;
    if (path && !jobs) kolo_file_fail("find", path);
    free(path);
    return jobs;
}

/* Of jobs/train_recipe.sh. */
static int write_job(const new_run *n)
{
    char *jobs = find_jobs(), *script = NULL, *made = NULL;
    size_t bytes = 0;
    char *path = jobs ? kolo_format("%s/train_recipe.sh", jobs) : NULL;
    int rc = path ? kolo_file_read(path, &script, NULL) : kolo_error_status();
    FILE *to = rc == 0 ? open_memstream(&made, &bytes) : NULL;
    if (rc == 0 && !to) rc = kolo_no_memory(sizeof *to);
    for (char *line = script; to && *line;) {
        char *end = strchrnul(line, '\n');
        const bool last = !*end;
        *end = 0;
        put_job_line(to, n, line, jobs);
        line = last ? end : end + 1;
    }
    if (to && fclose(to) != 0) rc = kolo_no_memory(bytes);
    rc = write_text(n->job, made, bytes, rc);
    if (rc == 0 && chmod(n->job, 0755) < 0) rc = kolo_file_fail("chmod", n->job);
    free(script);
    free(path);
    free(jobs);
    return rc;
}

/* A path from the root of a folder that exists. */
static int resolve(const char *key, const char *folder, char **path)
{
    if ((*path = realpath(folder, NULL))) return 0;
    return kolo_fail(KOLO_EINPUT, "%s=%s: %s; give %s=DIR, a folder made by kolo-pack", key, folder,
                     strerror(errno), key);
}

/* The split val in the folder where the split train is; "": there is none. */
static int find_val(const char *train, char **path)
{
    static const char name[] = "/train";
    const size_t length = strlen(train), end = sizeof name - 1;
    char *val = NULL;
    if (length > end && !strcmp(train + length - end, name)) {
        if (!(val = kolo_format("%.*s/val", (int)(length - end), train))) return KOLO_ENOMEM;
        if (kolo_manifest_in(val)) return (*path = val), 0;
    }
    free(val);
    return (*path = kolo_strdup("")) ? 0 : KOLO_ENOMEM;
}

/* data=DIR is a split, beside which another may lie, or the folder that holds the splits train and val. */
static int find_splits(new_run *n, const kolo_options *o)
{
    char *train = kolo_format("%s/train", o->data);
    const bool both = train && !kolo_manifest_in(o->data) && kolo_manifest_in(train);
    int rc = train ? resolve("data", both ? train : o->data, &n->data) : KOLO_ENOMEM;
    if (rc == 0 && *o->val && strcmp(o->val, "none") != 0) rc = resolve("val", o->val, &n->val);
    else if (rc == 0 && n->val_said) rc = (n->val = kolo_strdup("")) ? 0 : KOLO_ENOMEM;
    else if (rc == 0) rc = find_val(n->data, &n->val);
    free(train);
    return rc;
}

static int name_files(new_run *n, const kolo_options *o)
{
    char *here = getcwd(NULL, 0);
    if (!here) return kolo_file_fail("name", ".");
    n->recipe = kolo_format("%s/%s.yaml", here, n->name);
    n->job = kolo_format("%s/%s.sh", here, n->name);
    n->run = !*o->run         ? kolo_format("%s/runs/%s", here, n->name)
             : *o->run == '/' ? kolo_strdup(o->run)
                              : kolo_format("%s/%s", here, o->run);
    free(here);
    if (!n->recipe || !n->job || !n->run) return KOLO_ENOMEM;
    const char *there = kolo_file_exists(n->recipe) ? n->recipe : kolo_file_exists(n->job) ? n->job : NULL;
    return there ? kolo_fail(KOLO_ECONFIG, "%s is there already and is not overwritten; give another name",
                             there)
                 : 0;
}

static int check_words(const char *name, const kolo_options *o)
{
    if (!name) return kolo_fail(KOLO_ECONFIG, "no name: kolo new NAME data=DIR");
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-.", *c))
            return kolo_fail(
                KOLO_ECONFIG,
                "kolo new %s: the name becomes NAME.yaml, NAME.sh and runs/NAME here; use letters, "
                "digits, _ and -",
                name);
    if (!*o->data || !strcmp(o->data, "synthetic"))
        return kolo_fail(KOLO_ECONFIG, "no data to look at: kolo new %s data=DIR, a folder made by kolo-pack",
                         name);
    return 0;
}

/* A network that is given must be one for these data. */
static int check_model(const new_run *n, const kolo_data_facts *f)
{
    if (!is_said(n, "model")) return 0;
    const kolo_model *model = kolo_model_find(n->given->model);
    if (!model) return kolo_error_status();
    if (f->detection == (model->detector != NULL)) return 0;
    return kolo_fail(KOLO_ECONFIG, "model=%s %s, and %s holds %s; `kolo models` says what each finds",
                     n->given->model, model->detector ? "finds boxes" : "finds classes", n->data,
                     f->detection ? "boxes" : "classes");
}

static int write_both(new_run *n)
{
    kolo_dataset *set = NULL;
    kolo_data_facts facts;
    KOLO_TRY(kolo_dataset_open(&set, n->data));
    int rc = kolo_data_facts_read(&facts, set);
    if (rc == 0 && facts.info.count == 0) rc = kolo_fail(KOLO_EINPUT, "%s holds no images", n->data);
    if (rc == 0) rc = check_model(n, &facts);
    if (rc == 0) rc = write_recipe(n, &facts, set);
    if (rc == 0) rc = write_job(n);
    kolo_dataset_close(&set);
    if (rc == 0)
        printf("%s: options with their reasons; read and change them\n%s: a job for Slurm\n"
               "next: kolo train %s.yaml, or sbatch %s.sh\n",
               n->recipe, n->job, n->name, n->name);
    return rc < 0 ? rc : kolo_stdout_flush();
}

int kolo_command_new(int count, char **words)
{
    kolo_options options, said;
    new_run n = {0};
    KOLO_TRY(kolo_command_words(&options, count, words, 1, &n.name));
    kolo_options_default(&said);
    n.given = &said;
    int rc = kolo_options_read_arguments(
        &said, count, words,
        &(kolo_option_hooks){.positional = kolo_command_skip_word, .option = note_option, .context = &n});
    if (rc == 0) rc = check_words(n.name, &options);
    if (rc == 0) rc = find_splits(&n, &options);
    if (rc == 0) rc = name_files(&n, &options);
    if (rc == 0) rc = write_both(&n);
    free(n.data);
    free(n.val);
    free(n.run);
    free(n.recipe);
    free(n.job);
    kolo_options_free(&said);
    kolo_options_free(&options);
    return rc;
}
