/* kolo-shards: looks at packed splits, checks them, and makes others of them. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/option.h"
#include "kolo/error.h"
#include "shards/shards.h"

static const shards_command commands[] = {
    {"info", "DIR", "header, statistics, tables, class histogram", shards_info},
    {"verify", "DIR", "checks every sample's checksum, tables and counts; decodes", shards_verify},
    {"show", "DIR", "an image or a contact sheet, boxes drawn, at the terminal or to a file", shards_show},
    {"stats", "DIR", "mean and deviation anew, histograms of classes, sizes and boxes", shards_stats},
    {"extract", "DIR --out FOLDER", "images and boxes back out to files", shards_extract},
    {"subset", "DIR --out NEW", "some of the samples: by class, by list, so many", shards_subset},
    {"merge", "A B ... --out NEW", "several splits to one", shards_merge},
    {"reshard", "DIR --out NEW --shards M", "another number of files, another order", shards_reshard},
    {"manifest", "DIR", "makes the .index anew from the shards", shards_manifest},
    {"convert", "FILE.h5|FILE.beton|LMDB --out NEW", "images of other HDF5 files, of FFCV, LMDB, to a split",
     shards_convert},
    {"bench", "DIR", "how fast samples can be read, by way and threads", shards_bench},
};
#define COMMANDS ((int)(sizeof commands / sizeof *commands))

static void usage(FILE *out)
{
    fprintf(out, "usage: kolo-shards COMMAND DIR ...   (DIR: a split that kolo-pack wrote)\n\n");
    for (int i = 0; i < COMMANDS; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", commands[i].name, commands[i].words);
        fprintf(out, "  %-42s %s\n", left, commands[i].help);
    }
    fprintf(out, "\nkolo-shards COMMAND --help lists its options.\n"
                 "exit status: 0 fine, 2 bad input (verify: a difference was found), 3 reading or writing "
                 "failed, 71 out of memory, 78 usage\n");
}

static int unknown(const char *word)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    const char *near = kolo_nearest(word, names, COMMANDS);
    fprintf(stderr, "kolo-shards: unknown command %s%s%s\n", word, near ? ", did you mean " : "",
            near ? near : "");
    usage(stderr);
    return -KOLO_ECONFIG;
}

static int end(int rc)
{
    if (rc >= 0) rc = kolo_stdout_flush();
    if (rc < 0) fprintf(stderr, "kolo-shards: %s\n", kolo_error_text());
    return -rc;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return -KOLO_ECONFIG;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return end(0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("kolo-shards %s\n", KOLO_VERSION);
        return end(0);
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        const int rc = kolo_options_check_environment();
        kolo_options_report_renamed();
        return end(rc < 0 ? rc : commands[i].run(argc - 1, argv + 1));
    }
    return unknown(argv[1]);
}
