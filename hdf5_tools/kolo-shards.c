/* kolo-shards: looks at packed splits. */
#include <stdio.h>
#include <string.h>

#include "base/option.h"
#include "kolo/error.h"
#include "shards.h"

static const shards_command commands[] = {
    {"info", "info DIR [--json]", "header, statistics, class histogram", shards_info},
    {"verify", "verify DIR [--threads T]", "checks every sample's checksum, tables and counts", shards_verify},
    {"show", "show DIR [--index I] [--count N] [--out FILE.png|FILE.jpg]",
     "one picture, or a contact sheet, at the terminal or to a file", shards_show},
};
#define COMMANDS ((int)(sizeof commands / sizeof *commands))

static void usage(FILE *out)
{
    fprintf(out, "usage: kolo-shards COMMAND DIR ...   (DIR: a split that kolo-pack wrote)\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  kolo-shards %s\n      %s\n", commands[i].usage, commands[i].help);
    fprintf(
        out,
        "\nexit status: 0 fine, 2 bad input (verify: a difference was found), 3 reading or writing failed, 78 usage\n");
}

static int unknown(const char *word)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    const char *near = kolo_nearest(word, names, COMMANDS);
    fprintf(stderr, "kolo-shards: unknown command %s%s%s\n", word, near ? ", did you mean " : "", near ? near : "");
    usage(stderr);
    return -KOLO_ECONFIG;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return -KOLO_ECONFIG;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("kolo-shards %s\n", KOLO_VERSION);
        return 0;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        const int rc = commands[i].run(argc - 1, argv + 1);
        if (rc < 0) fprintf(stderr, "kolo-shards: %s\n", kolo_error_text());
        if (rc == KOLO_ECONFIG) fprintf(stderr, "usage: kolo-shards %s\n", commands[i].usage);
        return -rc;
    }
    return unknown(argv[1]);
}
