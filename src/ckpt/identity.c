#include "ckpt/identity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"

enum { DIGITS = 32, LINE = DIGITS + 1 + 8 + 1 }; /* the number, a blank, its crc32c, a line's end */

static const char *const noted[] = {"recipe.yaml", "classes.txt"};
enum { FILES = sizeof noted / sizeof *noted };

/* What the file says. */
typedef struct identity {
    char id[RUN_ID];
    bool there[FILES], damaged;
    uint32_t crc[FILES];
} identity;

/* ---- text ---- */

enum { TEXT_BYTES = 256 }; /* more than the lines of all files */

/* Without files it is as older versions wrote it. */
static void text_of(const identity *i, char text[TEXT_BYTES])
{
    snprintf(text, TEXT_BYTES, "%.*s %08" PRIx32 "\n", DIGITS, i->id, kolo_crc32c(0, i->id, DIGITS));
    for (int file = 0; file < FILES; file++)
        if (i->there[file]) kolo_append(text, TEXT_BYTES, "%s %08" PRIx32 "\n", noted[file], i->crc[file]);
    if (strlen(text) == LINE) return;
    const uint32_t sum = kolo_crc32c(0, text, strlen(text));
    kolo_append(text, TEXT_BYTES, "crc32c %08" PRIx32 "\n", sum);
}

static void parse_file(identity *i, const char *text, int file)
{
    char line[64];
    snprintf(line, sizeof line, "\n%s ", noted[file]);
    const char *at = strstr(text, line);
    i->there[file] = at && sscanf(at + strlen(line), "%8" SCNx32, &i->crc[file]) == 1;
}

/* Nothing but what was written is taken: the text is made again from what was read. */
static void parse(identity *i, const char *text, size_t bytes)
{
    char again[TEXT_BYTES] = "";
    if (bytes >= LINE && strlen(text) == bytes) {
        snprintf(i->id, sizeof i->id, "%.*s", DIGITS, text);
        for (int file = 0; file < FILES; file++) parse_file(i, text, file);
        text_of(i, again);
    }
    if (strcmp(again, text) != 0) *i = (identity){.damaged = true};
}

/* ---- files ---- */

static int read_identity(const char *run_folder, identity *i)
{
    char *path = kolo_format("%s/run_id", run_folder), *text = NULL;
    size_t bytes = 0;
    *i = (identity){.damaged = false};
    int rc = path ? 0 : KOLO_ENOMEM;
    if (rc == 0 && kolo_file_exists(path)) rc = kolo_file_read(path, &text, &bytes);
    if (text) parse(i, text, bytes);
    free(text);
    free(path);
    return rc;
}

/* 1: it is there. */
static int sum_up(const char *run_folder, const char *name, uint32_t *crc)
{
    char *path = kolo_format("%s/%s", run_folder, name), *text = NULL;
    size_t bytes = 0;
    int rc = path ? 0 : KOLO_ENOMEM;
    if (rc == 0 && kolo_file_exists(path) && (rc = kolo_file_read(path, &text, &bytes)) == 0) {
        *crc = kolo_crc32c(0, text, bytes);
        rc = 1;
    }
    free(text);
    free(path);
    return rc;
}

int kolo_identity_read(const char *run_folder, char id[RUN_ID])
{
    identity i;
    const int rc = read_identity(run_folder, &i);
    snprintf(id, RUN_ID, "%s", i.id);
    if (i.damaged)
        kolo_log0(
            KOLO_LOG_WARN,
            "%s/run_id: damaged: checkpoints of other runs, and changes of recipe.yaml and classes.txt, are "
            "not noticed until the run goes on, which writes it anew",
            run_folder);
    return rc;
}

static int make_id(char id[RUN_ID])
{
    uint64_t word[2];
    if (getrandom(word, sizeof word, 0) != (ssize_t)sizeof word)
        return kolo_fail(KOLO_EIO, "cannot draw a random name for the run: %s", strerror(errno));
    snprintf(id, RUN_ID, "%016" PRIx64 "%016" PRIx64, word[0], word[1]);
    return 0;
}

int kolo_identity_write(const char *run_folder, char id[RUN_ID])
{
    identity i = {.damaged = false};
    int rc = *id ? 0 : make_id(id);
    snprintf(i.id, sizeof i.id, "%s", id);
    for (int file = 0; rc >= 0 && file < FILES; file++)
        i.there[file] = (rc = sum_up(run_folder, noted[file], &i.crc[file])) == 1;
    KOLO_TRY(rc);
    char *path = kolo_format("%s/run_id", run_folder), *was = NULL, text[TEXT_BYTES];
    text_of(&i, text);
    rc = path ? 0 : KOLO_ENOMEM;
    const bool stands =
        rc == 0 && kolo_file_exists(path) && kolo_file_read(path, &was, NULL) == 0 && !strcmp(was, text);
    if (rc == 0 && !stands) rc = kolo_file_write_atomic(path, text, strlen(text));
    free(was);
    free(path);
    return rc;
}

int kolo_identity_check(const char *run_folder, const char *name)
{
    identity i;
    uint32_t crc = 0;
    KOLO_TRY(read_identity(run_folder, &i));
    for (int file = 0; file < FILES; file++) {
        if (strcmp(noted[file], name) || !i.there[file]) continue;
        const int found = sum_up(run_folder, name, &crc);
        if (found < 0) return found;
        if (found && crc != i.crc[file])
            return kolo_fail(
                KOLO_EINPUT,
                "%s/%s has changed since the run began (crc32c %08" PRIx32 ", its run_id says %08" PRIx32
                "): damaged, or edited; restore it from a copy, or, if the change is wanted, remove "
                "%s/run_id, and it is taken as it is",
                run_folder, name, crc, i.crc[file], run_folder);
    }
    return 0;
}
