/* kolo help --man, --completion: the manual page and bash's completion, from the tables. */
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"

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
    if (*e->standard) {
        printf(" Default: ");
        print_roff(e->standard, (int)strlen(e->standard));
        printf(".");
    }
    printf("%s\n", e->scope == KOLO_SCOPE_MATH ? " Fixed for the life of a run." : "");
}

void kolo_help_man(void)
{
    const char *heading = "";
    printf(".TH KOLO 1 \"\" \"kolo %s\"\n.SH NAME\nkolo \\- train vision networks on Slurm supercomputers\n.SH SYNOPSIS\n", KOLO_VERSION);
    for (int i = 0; i < kolo_command_count; i++) print_synopsis(&kolo_command_table[i]);
    printf(".SH COMMANDS\n");
    for (int i = 0; i < kolo_command_count; i++) {
        printf(".TP\n.B %s\n", kolo_command_table[i].name);
        print_roff(kolo_command_table[i].help, (int)strlen(kolo_command_table[i].help));
        printf("\n");
    }
    printf(".SH OPTIONS\nkey=value or \\-\\-key value on the command line, `key: value' in a recipe, KOLO_KEY in the "
           "environment.\n"
           "Recipe < site file (KOLO_SITE) < environment < command line. `kolo COMMAND \\-\\-help' lists those that a command takes.\n");
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (heading != kolo_option_section(e)) printf(".SS %s\n", heading = kolo_option_section(e));
        print_option(e);
    }
    printf(".SH ENVIRONMENT\n"
           ".TP\n.B KOLO_KEY\nany option, in capitals\n"
           ".TP\n.B KOLO_SITE\na recipe of what holds for this computing centre\n"
           ".TP\n.B KOLO_CACHE\nfolder of timed choices and measured tables; ~/.cache/kolo\n"
           ".TP\n.B KOLO_COMM_*\nsettings of the collectives: see kolo/comm.h\n"
           ".SH EXIT STATUS\n0 done; 2 bad input; 3 I/O; 69 launcher or a dead rank; 70 internal; 75 checkpoint "
           "written, run it again; 78 configuration.\n"
           ".SH FILES\nRUN/events.jsonl, RUN/summary.json, RUN/recipe.yaml, RUN/classes.txt, RUN/checkpoints/\n");
}

/* ---- bash ---- */

static void print_choices(void)
{
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (e->type != KOLO_OPTION_CHOICE) continue;
        printf("    %s=*) mapfile -t COMPREPLY < <(compgen -P \"%s=\" -W \"", e->key, e->key);
        for (int c = 0; e->choices[c]; c++) printf("%s%s", c ? " " : "", e->choices[c]);
        printf("\" -- \"${word#*=}\") ;;\n");
    }
}

/* words: all that a command takes. Commands that take alike have one line. */
static void print_words(void)
{
    for (int i = 0; i < kolo_command_count; i++) {
        const char *takes = kolo_command_table[i].takes;
        bool told = false;
        for (int k = 0; k < i; k++) told = told || !strcmp(kolo_command_table[k].takes, takes);
        if (!*takes || told) continue;
        printf("    ");
        const char *before = "";
        for (int k = i; k < kolo_command_count; k++)
            if (!strcmp(kolo_command_table[k].takes, takes)) printf("%s%s", before, kolo_command_table[k].name), before = "|";
        printf(") words=\"");
        before = "";
        for (int k = 0; k < kolo_option_count; k++)
            if (strpbrk(kolo_option_table[k].takers, takes)) printf("%s%s", before, kolo_option_table[k].key), before = " ";
        printf("\" ;;\n");
    }
}

void kolo_help_completion(void)
{
    printf("# bash completion of kolo, made from its option table\n_kolo()\n{\n    local "
           "word=\"${COMP_WORDS[COMP_CWORD]}\" words=\"\"\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        mapfile -t COMPREPLY < <(compgen -W \"");
    for (int i = 0; i < kolo_command_count; i++) printf("%s%s", i ? " " : "", kolo_command_table[i].name);
    printf("\" -- \"$word\")\n        return\n    fi\n    case \"${COMP_WORDS[1]}\" in\n");
    print_words();
    printf("    esac\n    case \"$word\" in\n");
    print_choices();
    printf("    *=*) mapfile -t COMPREPLY < <(compgen -P \"${word%%%%=*}=\" -f -- \"${word#*=}\") ;;\n"
           "    *) mapfile -t COMPREPLY < <(compgen -S = -W \"$words\" -- \"$word\"; compgen -f -- \"$word\")\n"
           "       compopt -o nospace ;;\n    esac\n}\ncomplete -F _kolo kolo\n");
}
