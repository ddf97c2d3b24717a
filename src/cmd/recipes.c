/* The recipes that come with Kolo: found by name, listed with what they reach, and offered
 * where a word is near one. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "kolo/error.h"
#include "models/models.h"

static const char suffix[] = ".yaml";

/* found: paths in order; globfree. */
static int find_all(glob_t *found)
{
    char *pattern = kolo_format("%s/recipes/*%s", kolo_command_share(), suffix);
    *found = (glob_t){0};
    if (!pattern) return KOLO_ENOMEM;
    glob(pattern, 0, NULL, found); /* none is none */
    free(pattern);
    return 0;
}

/* Cuts a path down to the recipe's name, in place. */
static const char *name_of(char *path)
{
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t length = strlen(name), end = sizeof suffix - 1;
    if (length > end && !strcmp(name + length - end, suffix)) name[length - end] = 0;
    return name;
}

/* The leading comment, line by line: what it is, then what it reaches. */
static int print_recipe(char *path)
{
    static const char target[] = "# target: ", small[] = "# small: ", took[] = "# took: ";
    char *text = NULL;
    KOLO_TRY(kolo_file_read(path, &text, NULL));
    printf("  %s\n", name_of(path));
    for (char *line = text, *next; *line == '#'; line = next) {
        char *end = strchrnul(line, '\n');
        next = *end ? end + 1 : end;
        *end = 0;
        if (!strncmp(line, target, sizeof target - 1)) printf("      reaches %s\n", line + sizeof target - 1);
        else if (!strncmp(line, took, sizeof took - 1)) printf("      took %s\n", line + sizeof took - 1);
        else if (strncmp(line, small, sizeof small - 1))
            printf("      %s\n", line + 1 + strspn(line + 1, " "));
    }
    free(text);
    return 0;
}

int kolo_recipe_print_all(void)
{
    glob_t found;
    int rc = find_all(&found);
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++) rc = print_recipe(found.gl_pathv[i]);
    globfree(&found);
    return rc;
}

static bool is_model(const char *word)
{
    for (int i = 0; i < kolo_model_count; i++)
        if (!strcmp(kolo_model_table[i].name, word)) return true;
    return false;
}

/* Recipes that begin with `word` but for their small forms; else the one that it may be a slip of. */
static void offer(const char *word, glob_t *found, char *text, size_t size)
{
    const char *names[256], *nearest;
    int n = 0;
    size_t used = 0;
    *text = 0;
    for (size_t i = 0; i < found->gl_pathc && n < 256; i++) names[n++] = name_of(found->gl_pathv[i]);
    for (int i = 0; i < n && used < size; i++) {
        const size_t length = strlen(names[i]);
        const bool small = length > 6 && !strcmp(names[i] + length - 6, "_small");
        if (!*word || strncmp(names[i], word, strlen(word)) || small) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", names[i]);
    }
    if (!used && (nearest = kolo_nearest(word, names, n))) snprintf(text, size, "%s", nearest);
}

/* As `kolo new` leaves it. */
static bool lies_here(const char *word)
{
    char *path = kolo_format("%s%s", word, suffix);
    const bool there = path && kolo_file_exists(path);
    free(path);
    return there;
}

static int fail_unknown(const char *word)
{
    glob_t found;
    char near[512];
    KOLO_TRY(find_all(&found));
    const bool none = found.gl_pathc == 0;
    offer(word, &found, near, sizeof near);
    globfree(&found);
    if (lies_here(word))
        return kolo_fail(KOLO_ECONFIG, "no recipe %s; did you mean the file %s%s?", word, word, suffix);
    if (none)
        return kolo_fail(KOLO_ECONFIG,
                         "no recipe %s: there is no such file, and this program has no share/kolo/recipes "
                         "beside its bin: was it copied alone?",
                         word);
    if (is_model(word) && *near)
        return kolo_fail(
            KOLO_ECONFIG,
            "%s is a network, not a recipe: model=%s, or one of the recipes %s (`kolo help recipes`)", word,
            word, near);
    if (is_model(word))
        return kolo_fail(KOLO_ECONFIG,
                         "%s is a network, not a recipe: model=%s (`kolo help recipes` lists recipes)", word,
                         word);
    return kolo_fail(
        KOLO_ECONFIG,
        "no recipe %s: there is no such file, and none of Kolo's is called so (`kolo help recipes`)%s%s%s",
        word, *near ? "; did you mean " : "", near, *near ? "?" : "");
}

static bool is_suffixed(const char *word)
{
    const size_t length = strlen(word), end = sizeof suffix - 1;
    return length > end && !strcmp(word + length - end, suffix);
}

/* *path: of the recipe of that name in share/recipes (caller frees), or NULL. */
static int find_by_name(const char *word, char **path)
{
    *path = kolo_format("%s/recipes/%s%s", kolo_command_share(), word, is_suffixed(word) ? "" : suffix);
    if (!*path) return KOLO_ENOMEM;
    if (kolo_file_exists(*path)) return 0;
    free(*path);
    *path = NULL;
    return 0;
}

/* A folder is none: that of images may be called as a recipe is. */
static bool is_file(const char *word) { return kolo_file_exists(word) && !kolo_folder_exists(word); }

bool kolo_recipe_is(const char *word)
{
    char *path = NULL;
    if (is_suffixed(word)) return true;
    if (is_file(word) || strchr(word, '/') || find_by_name(word, &path) < 0) return false;
    const bool there = path;
    free(path);
    return there;
}

int kolo_recipe_find(const char *word, char **path)
{
    if (is_file(word) || strchr(word, '/')) return (*path = kolo_strdup(word)) ? 0 : KOLO_ENOMEM;
    KOLO_TRY(find_by_name(word, path));
    return *path ? 0 : fail_unknown(word);
}

int kolo_recipe_print(const char *word)
{
    char *path = NULL, *text = NULL;
    int rc = find_by_name(word, &path);
    if (rc == 0 && path) rc = kolo_file_read(path, &text, NULL);
    if (text) fputs(text, stdout);
    free(path);
    free(text);
    return rc < 0 ? rc : !text;
}

/* ---- kolo recipes ---- */

enum { COLUMNS = 4, CELL = 128 };
static const char *const column_head[COLUMNS] = {"recipe", "network", "reaches", "took"};
typedef struct recipe_row {
    char cell[COLUMNS][CELL];
} recipe_row;

/* to: of the first line of `text` that starts with `key` what follows, up to the first of `ends`; "": no such
 * line. */
static void find_clause(const char *text, const char *key, char *to, size_t size)
{
    static const char *const ends[] = {"\n", " (", ": ", "; ", ", "};
    const char *at = text;
    while (at && strncmp(at, key, strlen(key)) != 0) at = (at = strchr(at, '\n')) ? at + 1 : NULL;
    *to = 0;
    if (!at) return;
    at += strlen(key);
    size_t length = strlen(at);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *end = strstr(at, ends[i]);
        if (end && (size_t)(end - at) < length) length = (size_t)(end - at);
    }
    snprintf(to, size, "%.*s", (int)length, at);
}

static int read_row(recipe_row *row, char *path)
{
    static const char *const key[COLUMNS] = {NULL, "model: ", "# target: ", "# took: "};
    char *text = NULL;
    KOLO_TRY(kolo_file_read(path, &text, NULL));
    snprintf(row->cell[0], CELL, "%s", name_of(path));
    for (int i = 1; i < COLUMNS; i++) {
        find_clause(text, key[i], row->cell[i], CELL);
        if (!*row->cell[i]) snprintf(row->cell[i], CELL, "-");
    }
    free(text);
    return 0;
}

/* Columns as wide as what stands in them. */
static int print_table(glob_t *found)
{
    const int count = (int)found->gl_pathc + 1;
    recipe_row *row = kolo_alloc((size_t)count * sizeof *row);
    int width[COLUMNS] = {0}, rc = row ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < COLUMNS; i++) snprintf(row->cell[i], CELL, "%s", column_head[i]);
    for (int r = 1; rc == 0 && r < count; r++) rc = read_row(&row[r], found->gl_pathv[r - 1]);
    for (int r = 0; rc == 0 && r < count; r++)
        for (int i = 0; i < COLUMNS; i++)
            if ((int)strlen(row[r].cell[i]) > width[i]) width[i] = (int)strlen(row[r].cell[i]);
    for (int r = 0; rc == 0 && r < count; r++) {
        for (int i = 0; i < COLUMNS - 1; i++) printf("%-*s  ", width[i], row[r].cell[i]);
        puts(row[r].cell[COLUMNS - 1]);
    }
    free(row);
    return rc;
}

int kolo_command_recipes(int n, char **words)
{
    glob_t found;
    kolo_options options;
    const char *name = NULL;
    KOLO_TRY(kolo_command_words(&options, n, words, 1, &name));
    kolo_options_free(&options);
    if (name) {
        const int missing = kolo_recipe_print(name);
        KOLO_TRY(missing);
        return missing ? fail_unknown(name) : kolo_stdout_flush();
    }
    int rc = find_all(&found);
    if (rc == 0) rc = print_table(&found);
    globfree(&found);
    if (rc == 0)
        printf(
            "kolo recipes NAME prints one, kolo train NAME data=DIR val=DIR run=DIR trains it, kolo new NAME "
            "data=DIR proposes one for your data\n");
    return rc < 0 ? rc : kolo_stdout_flush();
}
