/* kolo help, kolo version: everything from the tables, for people, man and bash. */
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#if KOLO_MPI
#include <mpi.h>
#endif

#include "base/plugin.h"
#include "cmd/cmd.h"
#include "data/augment.h"
#include "kolo/error.h"
#include "models/models.h"
#include "optim/optim.h"

static const char *type_name(const kolo_option_entry *e)
{
    static const char *const name[] = {"integer", "number", "true|false", "text", ""};
    return name[e->type];
}

static void print_values(const kolo_option_entry *e)
{
    if (e->type == KOLO_OPTION_CHOICE) {
        for (int i = 0; e->choices[i]; i++) printf("%s%s", i ? "|" : "", e->choices[i]);
    } else {
        printf("%s", type_name(e));
    }
}

static void print_option(const kolo_option_entry *e)
{
    printf("  %s=", e->key);
    print_values(e);
    printf("\n      %s. Default: %s.%s\n", e->help, *e->standard ? e->standard : "none",
           e->scope == KOLO_SCOPE_MATH ? " Fixed for the life of a run." : "");
}

static void print_model(const kolo_model *m)
{
    printf("  %-14s %ldx%ldx%ld, %ld classes; %s\n", m->name, (long)m->channels, (long)m->height, (long)m->width,
           (long)m->classes, m->source);
}

static void print_models(void)
{
    for (int i = 0; i < kolo_model_count; i++) print_model(&kolo_model_table[i]);
}

static void print_augmentation(const kolo_augmentation *a)
{
    char usage[256];
    kolo_augment_usage(a, usage, sizeof usage);
    printf("  %s\n      %s\n", usage, a->help);
}

static int print_topic(const char *topic)
{
    if (!strcmp(topic, "options")) {
        for (int i = 0; i < kolo_option_count; i++) print_option(&kolo_option_table[i]);
    } else if (!strcmp(topic, "models")) {
        print_models();
    } else if (!strcmp(topic, "optimizers")) {
        for (int i = 0; i < kolo_optimizer_count; i++)
            printf("  %-16s %s\n", kolo_optimizer_table[i].name, kolo_optimizer_table[i].help);
    } else if (!strcmp(topic, "schedules")) {
        for (int i = 0; i < kolo_schedule_count; i++)
            printf("  %-14s %s\n", kolo_schedule_table[i].name, kolo_schedule_table[i].help);
    } else if (!strcmp(topic, "augmentations")) {
        for (int i = 0; i < kolo_augmentation_count; i++) print_augmentation(&kolo_augmentation_table[i]);
    } else {
        return 1;
    }
    return 0;
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

/* The ways to call a command, " | " apart, a line each. */
static void print_usage(const kolo_command *c, const char *before)
{
    for (const char *at = c->usage, *end; at; at = end ? end + 3 : NULL) {
        end = strstr(at, " | ");
        const int length = end ? (int)(end - at) : (int)strlen(at);
        printf("%skolo %s%s%.*s\n", before, c->name, length ? " " : "", length, at);
    }
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
           "Recipe < site file (KOLO_SITE) < environment < command line. `kolo help options` lists them, `kolo help "
           "KEY` explains one.\n"
           "\nExit codes: 0 done, 2 bad input, 3 I/O, 69 launcher or a dead rank, 70 internal, 75 checkpoint written, "
           "run it again, 78 configuration.\n");
}

/* roff: a leading dot or quote and every backslash or minus need care. */
static void print_roff(const char *text)
{
    if (*text == '.' || *text == '\'') printf("\\&");
    for (; *text; text++) {
        if (*text == '\\') printf("\\e");
        else if (*text == '-') printf("\\-");
        else putchar(*text);
    }
}

static void print_man(void)
{
    printf(
        ".TH KOLO 1 \"\" \"kolo %s\"\n.SH NAME\nkolo \\- train vision networks on Slurm supercomputers\n.SH SYNOPSIS\n",
        KOLO_VERSION);
    for (int i = 0; i < kolo_command_count; i++) {
        printf(".B kolo %s\n", kolo_command_table[i].name);
        print_roff(kolo_command_table[i].usage);
        printf("\n.br\n");
    }
    printf(".SH COMMANDS\n");
    for (int i = 0; i < kolo_command_count; i++) {
        printf(".TP\n.B %s\n", kolo_command_table[i].name);
        print_roff(kolo_command_table[i].help);
        printf("\n");
    }
    printf(".SH OPTIONS\nkey=value or \\-\\-key value on the command line, `key: value' in a recipe, KOLO_KEY in the "
           "environment.\n"
           "Recipe < site file (KOLO_SITE) < environment < command line.\n");
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        printf(".TP\n.BR %s =", e->key);
        print_values(e);
        printf("\n");
        print_roff(e->help);
        printf(". Default: ");
        print_roff(*e->standard ? e->standard : "none");
        printf(".\n");
    }
    printf(".SH EXIT STATUS\n0 done; 2 bad input; 3 I/O; 69 launcher or a dead rank; 70 internal; 75 checkpoint "
           "written, run it again; 78 configuration.\n"
           ".SH FILES\nRUN/events.jsonl, RUN/summary.json, RUN/recipe.yaml, RUN/checkpoints/\n");
}

static void print_completion(void)
{
    printf("# bash completion of kolo, made from its option table\n_kolo()\n{\n    local "
           "word=\"${COMP_WORDS[COMP_CWORD]}\"\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        mapfile -t COMPREPLY < <(compgen -W \"");
    for (int i = 0; i < kolo_command_count; i++) printf("%s%s", i ? " " : "", kolo_command_table[i].name);
    printf("\" -- \"$word\")\n        return\n    fi\n    case \"$word\" in\n");
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (e->type != KOLO_OPTION_CHOICE) continue;
        printf("    %s=*) mapfile -t COMPREPLY < <(compgen -P \"%s=\" -W \"", e->key, e->key);
        for (int c = 0; e->choices[c]; c++) printf("%s%s", c ? " " : "", e->choices[c]);
        printf("\" -- \"${word#*=}\") ;;\n");
    }
    printf("    *=*) mapfile -t COMPREPLY < <(compgen -P \"${word%%%%=*}=\" -f -- \"${word#*=}\") ;;\n"
           "    *) mapfile -t COMPREPLY < <(compgen -S = -W \"");
    for (int i = 0; i < kolo_option_count; i++) printf("%s%s", i ? " " : "", kolo_option_table[i].key);
    printf("\" -- \"$word\"; compgen -f -- \"$word\")\n       compopt -o nospace ;;\n    esac\n}\ncomplete -F _kolo "
           "kolo\n");
}

static int help_word(const char *word)
{
    if (!strcmp(word, "--man")) return print_man(), 0;
    if (!strcmp(word, "--completion")) return print_completion(), 0;
    for (int i = 0; i < kolo_command_count; i++) {
        const kolo_command *c = &kolo_command_table[i];
        if (strcmp(word, c->name)) continue;
        print_usage(c, "");
        printf("    %s\n\nOptions: `kolo help options`, or `kolo help KEY` for one.\n", c->help);
        return 0;
    }
    if (print_topic(word) == 0) return 0;
    const kolo_option_entry *e = kolo_option_find(word);
    const bool named = print_name(word); /* an augmentation may be called like an option */
    if (!e && !named) return kolo_fail(KOLO_ECONFIG, "no command, option or topic `%s`; `kolo help` lists them", word);
    if (!e) return 0;
    print_option(e);
    if (!strcmp(word, "model")) print_models();
    return 0;
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
    fflush(stdout);
    return 0;
}
