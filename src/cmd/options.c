/* Where the options of a command come from: a run's recipe < a recipe < the site < the environment <
 * words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/identity.h"
#include "cmd/cmd.h"
#include "kolo/error.h"

enum { WORDS = 8 }; /* most positional words where one of them is a recipe */

const char *kolo_command_letters = "";

/* The commands that read an option; the ways of `kolo bench` count as commands of their own. */
static void list_commands(const kolo_option_entry *e, char *text, size_t size)
{
    static const struct {
        const char *letter, *name;
    } of_bench[] = {
        {"T", "bench train"}, {"G", "bench gradients"}, {"A", "bench allreduce"}, {"U", "bench --tune"}};
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < kolo_command_count; i++) {
        const kolo_command *c = &kolo_command_table[i];
        const bool bench = c->run == kolo_command_bench;
        for (size_t k = 0; k < (bench ? sizeof of_bench / sizeof *of_bench : 1) && used < size; k++) {
            if (!strpbrk(e->commands, bench ? of_bench[k].letter : c->letters)) continue;
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "kolo ",
                                     bench ? of_bench[k].name : c->name);
        }
    }
}

static int check_option(void *context, const kolo_option_entry *e)
{
    char commands[256];
    (void)context;
    if (strpbrk(e->commands, kolo_command_letters)) return 0;
    list_commands(e, commands, sizeof commands);
    const bool of_train = strchr(kolo_command_letters, 'T') && !strcmp(e->key, "weights");
    return kolo_fail(KOLO_ECONFIG, "command line: %s= would be ignored here; it is an option of %s%s", e->key,
                     commands,
                     of_train ? "; to start from a file of weights give init=FILE, to weigh classes "
                                "class_weight=balanced"
                              : "");
}

typedef struct collector {
    const char **to;
    int n, room;
} collector;

static int options_collect(void *context, const char *word)
{
    collector *c = context;
    if (c->n >= c->room)
        return kolo_fail(KOLO_ECONFIG, "unexpected word `%s`; options are key=value (see `kolo help`)", word);
    c->to[c->n++] = word;
    return 0;
}

static int options_read_words(kolo_options *options, int n, char **words, collector *c)
{
    const kolo_option_hooks hooks = {.positional = options_collect, .option = check_option, .context = c};
    return kolo_options_read_arguments(options, n, words, &hooks);
}

int kolo_command_skip_word(void *context, const char *word)
{
    (void)context;
    (void)word;
    return 0;
}

static int check_needs(void *context, const kolo_option_entry *e)
{
    const kolo_options *options = context;
    return kolo_option_check_needs(options, e);
}

/* What a user gives to train with works, or is a mistake; what a recipe has may wait for its use. */
static int check_words(kolo_options *options, int n, char **words)
{
    const kolo_option_hooks hooks = {
        .positional = kolo_command_skip_word, .option = check_needs, .context = options};
    kolo_options given;
    if (!strchr(kolo_command_letters, 'T')) return 0;
    kolo_options_default(&given);
    const int rc = kolo_options_read_arguments(&given, n, words, &hooks);
    kolo_options_free(&given);
    return rc;
}

static int fail_no_recipe(const char *run, const char *recipe)
{
    char *checkpoints = kolo_format("%s/checkpoints", run);
    const bool trained = checkpoints && kolo_file_exists(checkpoints);
    free(checkpoints);
    if (trained)
        return kolo_fail(
            KOLO_EINPUT,
            "%s is missing: it says what the network of the checkpoints is; put it back, or train "
            "on with run=%s and the options it had, which writes it anew",
            recipe, run);
    return kolo_fail(KOLO_EINPUT,
                     "%s holds no checkpoint and no recipe.yaml: it is no run folder; train first, or give a "
                     "file of weights (checkpoint=best, or =STEP, chooses among those of a run)",
                     run);
}

/* What a run was trained with, but for the machine it was trained on. */
static int read_run(kolo_options *options, const char *run)
{
    char *path = kolo_format("%s/recipe.yaml", run);
    int rc = path ? 0 : KOLO_ENOMEM;
    if (rc == 0 && !kolo_file_exists(path)) rc = fail_no_recipe(run, path);
    if (rc == 0) rc = kolo_identity_check(run, "recipe.yaml");
    if (rc == 0) rc = kolo_options_read_record(options, path);
    if (rc == 0) rc = kolo_options_leave(options);
    if (rc == 0) rc = kolo_option_set(options, "run", run, "run folder"); /* it may have been moved */
    free(path);
    return rc;
}

/* run: NULL, or the folder whose recipe is below all else. recipe: NULL, or a word. */
static int read_all(kolo_options *options, const char *run, const char *recipe, int n, char **words,
                    collector *c)
{
    char *path = NULL;
    int rc;
    kolo_options_default(options);
    if (run) KOLO_TRY_GOTO(rc, read_run(options, run));
    if (recipe) KOLO_TRY_GOTO(rc, kolo_recipe_find(recipe, &path));
    rc = kolo_options_read(options, path, 0, NULL);
    c->n = 0;
    if (rc == 0) rc = options_read_words(options, n, words, c);
fail:
    free(path);
    if (rc < 0) kolo_options_free(options);
    return rc;
}

/* The recipe is the word behind `extra` others. */
static int find_recipe_word(int n, char **words, int extra, const char **recipe)
{
    const char *all[WORDS];
    collector c = {all, 0, extra + 1};
    kolo_options scratch;
    if (extra >= WORDS) return kolo_fail(KOLO_EINTERNAL, "a recipe behind %d words", extra);
    kolo_options_default(&scratch);
    const int rc = options_read_words(&scratch, n, words, &c);
    kolo_options_free(&scratch);
    *recipe = c.n > extra ? all[extra] : NULL;
    return rc;
}

int kolo_command_words(kolo_options *options, int n, char **words, int extra, const char **positional)
{
    collector c = {positional, 0, extra};
    for (int i = 0; i < extra; i++) positional[i] = NULL;
    return read_all(options, NULL, NULL, n, words, &c);
}

int kolo_command_first(kolo_options *options, const char **recipe, int n, char **words, int extra,
                       const char **positional)
{
    collector c = {positional, 0, extra};
    *recipe = NULL;
    KOLO_TRY(kolo_command_words(options, n, words, extra, positional));
    if (extra == 0 || !positional[0] || !kolo_recipe_is(positional[0])) return 0;
    *recipe = positional[0];
    kolo_options_free(options);
    KOLO_TRY(read_all(options, NULL, *recipe, n, words, &c));
    for (int i = 0; i < extra; i++) positional[i] = i + 1 < c.n ? positional[i + 1] : NULL;
    return 0;
}

int kolo_command_options(kolo_options *options, int n, char **words, int extra, const char **positional)
{
    const char *all[WORDS] = {NULL}, *recipe;
    collector c = {all, 0, extra + 1};
    KOLO_TRY(find_recipe_word(n, words, extra, &recipe));
    KOLO_TRY(read_all(options, NULL, recipe, n, words, &c));
    for (int i = 0; i < extra; i++) positional[i] = all[i];
    const int rc = check_words(options, n, words);
    if (rc < 0) kolo_options_free(options);
    return rc;
}

int kolo_command_run(kolo_options *options, const char *run, int n, char **words, int extra,
                     const char **positional)
{
    collector c = {positional, 0, extra};
    char *folder = kolo_strdup(run);
    for (int i = 0; i < extra; i++) positional[i] = NULL;
    kolo_options_free(options);
    const int rc = folder ? read_all(options, folder, NULL, n, words, &c) : KOLO_ENOMEM;
    free(folder);
    return rc;
}
