/* kolo help, kolo version: everything from the tables. */
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#if KOLO_MPI
#include <mpi.h>
#endif

#include "base/plugin.h"
#include "cmd/cmd.h"
#include "data/augment/augment.h"
#include "kolo/error.h"
#include "models/models.h"
#include "optim/optim.h"

static void print_option(const kolo_option_entry *e)
{
    char values[256];
    kolo_help_values(e, values, sizeof values);
    printf("  %s=%s\n      %s.", e->key, values, e->help);
    if (*e->default_value) printf(" Default: %s.", e->default_value);
    printf("%s\n", e->scope == KOLO_SCOPE_MATH ? " Fixed for the life of a run." : "");
}

enum { TEXT_AT = 28, TEXT_END = 118 }; /* columns */

/* From column `at` on, in lines between TEXT_AT and TEXT_END. */
static void print_wrapped(const char *text, int at)
{
    if (at > TEXT_AT - 2) at = printf("\n") - 1;
    at += printf("%*s", TEXT_AT - at, "");
    for (const char *word = text; *word;) {
        const int length = (int)strcspn(word, " ");
        if (at > TEXT_AT && at + 1 + length > TEXT_END) at = printf("\n%*s", TEXT_AT, "") - 1;
        at += printf("%s%.*s", at > TEXT_AT ? " " : "", length, word);
        word += length + strspn(word + length, " ");
    }
    printf("\n");
}

/* Options that one of the commands `takes` reads, under their headings. */
static void print_options(const char *takes)
{
    const char *heading = "";
    for (const kolo_option_entry *e = kolo_option_table; e < kolo_option_table + kolo_option_count; e++) {
        char values[256], text[1024];
        if (!strpbrk(e->commands, takes)) continue;
        if (heading != kolo_option_section(e)) printf("\n%s\n", heading = kolo_option_section(e));
        kolo_help_values(e, values, sizeof values);
        snprintf(text, sizeof text, *e->default_value ? "%s [%s]" : "%s", e->help, e->default_value);
        print_wrapped(text, printf("  %s=%s", e->key, values));
    }
}

static void print_model(const kolo_model *m)
{
    printf("  %-14s %ldx%ldx%ld, %ld classes; %s\n", m->name, (long)m->channels, (long)m->height,
           (long)m->width, (long)m->classes, m->source);
}

static int print_models(void)
{
    for (int i = 0; i < kolo_model_count; i++) print_model(&kolo_model_table[i]);
    return 0;
}

static void print_augmentation(const kolo_augmentation *a)
{
    char usage[256];
    kolo_augment_usage(a, usage, sizeof usage);
    printf("  %s\n      %s\n", usage, a->help);
}

static int print_all_options(void)
{
    printf("key=value or --key value; the default stands in brackets. `kolo COMMAND --help` lists those of "
           "one command.\n");
    print_options("TLSEPXMDGAUR");
    return 0;
}

static int print_optimizers(void)
{
    for (int i = 0; i < kolo_optimizer_count; i++)
        printf("  %-16s %s\n", kolo_optimizer_table[i].name, kolo_optimizer_table[i].help);
    return 0;
}

static int print_schedules(void)
{
    for (int i = 0; i < kolo_schedule_count; i++)
        printf("  %-14s %s\n", kolo_schedule_table[i].name, kolo_schedule_table[i].help);
    return 0;
}

static int print_augmentations(void)
{
    for (int i = 0; i < kolo_augmentation_count; i++) print_augmentation(&kolo_augmentation_table[i]);
    return 0;
}

static const struct {
    const char *name;
    int (*print)(void);
} topic_table[] = {
    {"options", print_all_options},   {"models", print_models},       {"recipes", kolo_recipe_print_all},
    {"optimizers", print_optimizers}, {"schedules", print_schedules}, {"augmentations", print_augmentations},
};
enum { TOPICS = sizeof topic_table / sizeof *topic_table };

/* 1: it is none. */
static int print_topic(const char *topic)
{
    for (int i = 0; i < TOPICS; i++)
        if (!strcmp(topic, topic_table[i].name)) return topic_table[i].print();
    return 1;
}

/* A name out of one of the tables, with its line. */
static bool print_name(const char *word)
{
#define LOOK_IN(kind, table, count) \
    for (int i = 0; i < count; i++) \
        if (!strcmp(word, table[i].name)) return printf("  %s (%s): %s\n", word, kind, table[i].help) > 0
    LOOK_IN("optimizer", kolo_optimizer_table, kolo_optimizer_count);
    LOOK_IN("schedule", kolo_schedule_table, kolo_schedule_count);
#undef LOOK_IN
    for (int i = 0; i < kolo_augmentation_count; i++)
        if (!strcmp(word, kolo_augmentation_table[i].name))
            return print_augmentation(&kolo_augmentation_table[i]), true;
    for (int i = 0; i < kolo_model_count; i++)
        if (!strcmp(word, kolo_model_table[i].name)) return print_model(&kolo_model_table[i]), true;
    return false;
}

/* The ways to call a command, a line each. */
static void print_usage(const kolo_command *c, const char *before)
{
    const char *rest = c->usage, *way;
    int length;
    while ((way = kolo_help_way(&rest, &length)))
        printf("%skolo %s%s%.*s\n", before, c->name, length ? " " : "", length, way);
}

static void print_overview(void)
{
    printf("kolo %s: trains vision networks on Slurm supercomputers\n\n", KOLO_VERSION);
    for (int i = 0; i < kolo_command_count; i++) {
        const kolo_command *c = &kolo_command_table[i];
        print_usage(c, "  ");
        printf("      %s\n", c->help);
    }
    printf("\nOptions are key=value or --key value, in a recipe `key: value`, in the environment KOLO_KEY.\n"
           "Recipe < site file (KOLO_SITE) < environment < command line. `kolo help options` lists them, "
           "`kolo help KEY` explains one.\n"
           "\nExit codes: 0 done, 2 bad input, 3 I/O, 69 launcher or a dead rank, 70 internal, 71 out of "
           "memory, 75 checkpoint written, run it again, 78 configuration.\n");
}

static bool print_command(const char *word)
{
    const kolo_command *c = kolo_command_table;
    while (c < kolo_command_table + kolo_command_count && strcmp(word, c->name)) c++;
    if (c == kolo_command_table + kolo_command_count) return false;
    print_usage(c, "");
    printf("    %s\n", c->help);
    if (*c->letters) {
        printf("\nOptions are key=value or --key value, the default stands in brackets; `kolo help KEY` "
               "explains one.\n");
        print_options(c->letters);
    }
    return true;
}

/* With the nearest of the names that help knows. */
static int no_such_word(const char *word)
{
    enum { MOST = 1024 };
    const char *name[MOST];
    int n = 0;
#define ADD(table, count, of) \
    for (int i = 0; i < (int)(count) && n < MOST; i++) name[n++] = table[i].of
    ADD(kolo_command_table, kolo_command_count, name);
    ADD(topic_table, TOPICS, name);
    ADD(kolo_option_table, kolo_option_count, key);
    ADD(kolo_model_table, kolo_model_count, name);
    ADD(kolo_optimizer_table, kolo_optimizer_count, name);
    ADD(kolo_schedule_table, kolo_schedule_count, name);
    ADD(kolo_augmentation_table, kolo_augmentation_count, name);
#undef ADD
    const char *near = kolo_nearest(word, name, n);
    return kolo_fail(KOLO_ECONFIG, "no command, option, recipe or topic `%s`%s%s%s; `kolo help` lists them",
                     word, near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
}

/* A word may be several things: `models` a command and a topic, an augmentation called like an option. */
static int help_word(const char *word)
{
    if (!strcmp(word, "--man")) return kolo_help_man(), 0;
    if (!strcmp(word, "--completion")) return kolo_help_completion(), 0;
    if (!strncmp(word, "--", 2)) word += 2;
    const kolo_option_entry *e = kolo_option_find(word);
    const bool command = print_command(word);
    if (command && !strcmp(word, "models")) printf("\n");
    const int topic = print_topic(word);
    KOLO_TRY(topic);
    const bool named = print_name(word);
    const int recipe = kolo_recipe_print(word);
    KOLO_TRY(recipe);
    if (e && strcmp(e->key, word)) printf("%s= is the old name of\n", word);
    if (e) print_option(e);
    if (e && !strcmp(word, "model")) print_models();
    if (command || topic == 0 || named || recipe == 0 || e) return 0;
    KOLO_TRY(kolo_option_reject_alias(word, "command line"));
    return no_such_word(word);
}

int kolo_command_help(int n, char **words)
{
    if (n == 0) print_overview();
    for (int i = 0; i < n; i++) KOLO_TRY(help_word(words[i]));
    fflush(stdout);
    return 0;
}

int kolo_command_version(int n, char **words)
{
    if (n > 0) return kolo_fail(KOLO_ECONFIG, "kolo version takes no words; got `%s`", words[0]);
    unsigned major, minor, release;
    H5get_libversion(&major, &minor, &release);
    printf("kolo %s\n", KOLO_VERSION);
    printf("hdf5 %u.%u.%u\n", major, minor, release);
    printf("%s\n", kolo_backend_version("cpu"));
#if KOLO_MPI
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(mpi, &length);
    for (char *p = mpi; *p; p++)
        if (*p == '\n' || *p == '\t') *p = p[1] ? ' ' : 0;
    printf("%.60s\n", mpi);
#else
    printf("without MPI\n");
#endif
#if KOLO_PMIX
    printf("with PMIx\n");
#else
    printf("without PMIx\n");
#endif
    /* not opened: that takes as long as all the rest many times over */
    if (kolo_cuda_library()) printf("CUDA by %s, opened when a GPU is chosen\n", kolo_cuda_library());
    else printf("without CUDA\n");
    if (*KOLO_LEFT_OUT) printf("without " KOLO_LEFT_OUT "\n"); /* libraries that one can do without */
    fflush(stdout);
    return 0;
}
