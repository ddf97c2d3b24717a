/* Where the options of a command come from: a run's recipe < a recipe < the site < the environment < words. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "kolo/error.h"

enum { WORDS = 8 }; /* most positional words where one of them is a recipe */

static char *find_recipe(const char *word)
{
    if (kolo_file_exists(word) || strchr(word, '/')) return kolo_strdup(word);
    size_t length = strlen(word);
    bool suffixed = length > 5 && !strcmp(word + length - 5, ".yaml");
    char *path = kolo_format("%s/recipes/%s%s", kolo_command_share(), word, suffixed ? "" : ".yaml");
    if (path && kolo_file_exists(path)) return path;
    free(path);
    return kolo_strdup(word);
}

typedef struct collector {
    const char **to;
    int n, room;
} collector;

static int collect(void *context, const char *word)
{
    collector *c = context;
    if (c->n >= c->room)
        return kolo_fail(KOLO_ECONFIG, "unexpected word `%s`; options are key=value (see `kolo help`)", word);
    c->to[c->n++] = word;
    return 0;
}

/* What a run was trained with, but for the machine it was trained on. */
static int read_run(kolo_options *options, const char *run)
{
    char *path = kolo_format("%s/recipe.yaml", run);
    int rc = path ? 0 : KOLO_ECONFIG;
    if (rc == 0 && !kolo_file_exists(path))
        rc = kolo_fail(KOLO_EINPUT, "%s holds no checkpoint and no recipe.yaml: it is no run folder; train first, or give a file of weights", run);
    if (rc == 0) rc = kolo_options_read_recipe(options, path);
    if (rc == 0) rc = kolo_options_leave(options);
    free(path);
    return rc;
}

/* run: NULL, or the folder whose recipe is below all else. recipe: NULL, or a word. */
static int read_all(kolo_options *options, const char *run, const char *recipe, int n, char **words, collector *c)
{
    char *path = NULL;
    int rc;
    kolo_options_default(options);
    if (run) KOLO_TRY_GOTO(rc, read_run(options, run));
    rc = !recipe || (path = find_recipe(recipe)) ? 0 : KOLO_ECONFIG;
    if (rc == 0) rc = kolo_options_read(options, path, 0, NULL);
    c->n = 0;
    if (rc == 0) rc = kolo_options_read_arguments(options, n, words, collect, c);
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
    const int rc = kolo_options_read_arguments(&scratch, n, words, collect, &c);
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

/* A word beside pictures or files: one of share/recipes, unless a file of that name is here. */
static bool names_recipe(const char *word)
{
    const size_t length = strlen(word);
    if (length > 5 && !strcmp(word + length - 5, ".yaml")) return true;
    if (kolo_file_exists(word) || strchr(word, '/')) return false;
    char *path = kolo_format("%s/recipes/%s.yaml", kolo_command_share(), word);
    const bool there = path && kolo_file_exists(path);
    free(path);
    return there;
}

int kolo_command_first(kolo_options *options, const char **recipe, int n, char **words, int extra, const char **positional)
{
    collector c = {positional, 0, extra};
    *recipe = NULL;
    KOLO_TRY(kolo_command_words(options, n, words, extra, positional));
    if (extra == 0 || !positional[0] || !names_recipe(positional[0])) return 0;
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
    return 0;
}

int kolo_command_run(kolo_options *options, const char *run, int n, char **words, int extra, const char **positional)
{
    collector c = {positional, 0, extra};
    char *folder = kolo_strdup(run);
    for (int i = 0; i < extra; i++) positional[i] = NULL;
    kolo_options_free(options);
    const int rc = folder ? read_all(options, folder, NULL, n, words, &c) : KOLO_ECONFIG;
    free(folder);
    return rc;
}
