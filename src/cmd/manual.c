/* kolo help --man, --completion: the manual page, and the rows that share/setup/completion.sh makes
 * completion of, from the tables. */
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "models/models.h"
#include "optim/optim.h"

void kolo_help_values(const kolo_option_entry *e, char *text, size_t size)
{
    static const char *const name[] = {"integer", "number", "true|false", "text", ""};
    size_t used = (size_t)snprintf(text, size, "%s", name[e->type]);
    for (int i = 0; e->type == KOLO_OPTION_CHOICE && e->choices[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "|" : "", e->choices[i]);
}

const char *kolo_help_way(const char **usage, int *length)
{
    const char *at = *usage, *end = at ? strstr(at, " | ") : NULL;
    *length = end ? (int)(end - at) : at ? (int)strlen(at) : 0;
    *usage = end ? end + 3 : NULL;
    return at;
}

/* ---- man ---- */

/* A leading dot or quote and every backslash or minus need care. */
static void print_roff(const char *text, int length)
{
    if (length && (*text == '.' || *text == '\'')) printf("\\&");
    for (int i = 0; i < length; i++) {
        if (text[i] == '\\') printf("\\e");
        else if (text[i] == '-') printf("\\-");
        else putchar(text[i]);
    }
}

static void print_synopsis(const kolo_command *c)
{
    const char *rest = c->usage, *way;
    int length;
    while ((way = kolo_help_way(&rest, &length))) {
        printf(".B kolo %s\n", c->name);
        print_roff(way, length);
        printf("\n.br\n");
    }
}

static void print_option(const kolo_option_entry *e)
{
    char values[256];
    kolo_help_values(e, values, sizeof values);
    printf(".TP\n.BR %s =%s\n", e->key, values);
    print_roff(e->help, (int)strlen(e->help));
    printf(".");
    if (*e->default_value) {
        printf(" Default: ");
        print_roff(e->default_value, (int)strlen(e->default_value));
        printf(".");
    }
    printf("%s\n", e->scope == KOLO_SCOPE_MATH ? " Fixed for the life of a run." : "");
}

void kolo_help_man(void)
{
    const char *heading = "";
    printf(".TH KOLO 1 \"\" \"kolo %s\"\n.SH NAME\nkolo \\- train vision networks on Slurm "
           "supercomputers\n.SH SYNOPSIS\n",
           KOLO_VERSION);
    for (int i = 0; i < kolo_command_count; i++) print_synopsis(&kolo_command_table[i]);
    printf(".SH COMMANDS\n");
    for (int i = 0; i < kolo_command_count; i++) {
        printf(".TP\n.B %s\n", kolo_command_table[i].name);
        print_roff(kolo_command_table[i].help, (int)strlen(kolo_command_table[i].help));
        printf("\n");
    }
    printf(".SH OPTIONS\nkey=value or \\-\\-key value on the command line, `key: value' in a recipe, "
           "KOLO_KEY in the environment.\n"
           "Recipe < site file (KOLO_SITE) < environment < command line. `kolo COMMAND \\-\\-help' lists "
           "those that a command takes.\n");
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (heading != kolo_option_section(e)) printf(".SS %s\n", heading = kolo_option_section(e));
        print_option(e);
    }
    printf(".SH ENVIRONMENT\n"
           ".TP\n.B KOLO_KEY\nany option, in capitals\n"
           ".TP\n.B KOLO_SITE\na recipe of what holds for this computing centre\n"
           ".TP\n.B KOLO_CACHE\nfolder of timed choices and measured tables; ~/.cache/kolo\n"
           ".TP\n.B KOLO_COMM_*\nsettings of the collectives: see kolo/world.h\n"
           ".SH EXIT STATUS\n0 done; 2 bad input; 3 I/O; 69 launcher or a dead rank; 70 internal; 71 out of "
           "memory (use a smaller micro_batch, or ask for more); 75 checkpoint written, run it again; 78 "
           "configuration.\n"
           ".SH FILES\nRUN/events.jsonl, RUN/summary.json, RUN/recipe.yaml, RUN/classes.txt, "
           "RUN/checkpoints/\n");
}

/* ---- completion ---- */

static void print_names(const void *first, int count, size_t stride)
{
    for (int i = 0; i < count; i++)
        printf("%s%s", i ? " " : "", *(const char *const *)((const char *)first + stride * (size_t)i));
}

/* What may follow KEY=: words, FILE for a path, nothing for a number. */
static void print_completed_values(const kolo_option_entry *e)
{
    if (!strcmp(e->key, "model"))
        print_names(&kolo_model_table[0].name, kolo_model_count, sizeof *kolo_model_table), printf(" FILE");
    else if (!strcmp(e->key, "optimizer"))
        print_names(&kolo_optimizer_table[0].name, kolo_optimizer_count, sizeof *kolo_optimizer_table);
    else if (!strcmp(e->key, "schedule"))
        print_names(&kolo_schedule_table[0].name, kolo_schedule_count, sizeof *kolo_schedule_table);
    else if (e->type == KOLO_OPTION_TEXT) printf("FILE");
    else if (e->type == KOLO_OPTION_BOOL) printf("true false");
    for (int c = 0; e->type == KOLO_OPTION_CHOICE && e->choices[c]; c++)
        printf("%s%s", c ? " " : "", e->choices[c]);
    if (e->type == KOLO_OPTION_INT && e->automatic) printf("auto");
}

void kolo_help_completion(void)
{
    for (int i = 0; i < kolo_command_count; i++) {
        const kolo_command *c = &kolo_command_table[i];
        printf("\t%s\t\t%.*s\n", c->name, (int)strcspn(c->help, ";:("), c->help);
        if (strstr(c->usage, "RECIPE")) printf("%s\tRECIPE\t\t\n", c->name);
        for (int k = 0; *c->letters && k < kolo_option_count; k++) {
            const kolo_option_entry *e = &kolo_option_table[k];
            if (!strpbrk(e->commands, c->letters)) continue;
            printf("%s\t%s=\t", c->name, e->key);
            print_completed_values(e);
            printf("\t%.*s\n", (int)strcspn(e->help, ";:("), e->help);
        }
    }
    for (int i = 0; i < kolo_command_count; i++) printf("help\t%s\t\t\n", kolo_command_table[i].name);
}
