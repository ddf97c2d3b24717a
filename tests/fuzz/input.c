#include "input.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "kolo/error.h"
#include "pack/pack.h"

bool fuzz_refused;
static char folder[256];

static void remove_folder(void) { kolo_folder_remove(folder); }

const char *fuzz_folder(void)
{
    if (folder[0]) return folder;
    const char *parent = getenv("TMPDIR");
    if (!parent) parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%.200s/kolo-fuzz-XXXXXX", parent);
    fuzz_require(mkdtemp(folder) != NULL, "a temporary folder");
    atexit(remove_folder);
    kolo_log_set_level(KOLO_LOG_ERROR); /* warnings of every input would be most of the work */
    return folder;
}

const char *fuzz_put(const char *name, const void *data, size_t bytes)
{
    static struct {
        char name[48], path[320];
    } known[8];
    int k = 0;
    while (known[k].name[0] && strcmp(known[k].name, name) != 0) fuzz_require(++k < 8, "at most 8 files");
    if (!known[k].name[0]) {
        snprintf(known[k].name, sizeof known[k].name, "%s", name);
        snprintf(known[k].path, sizeof known[k].path, "%s/%s", fuzz_folder(), name);
        char *slash = strrchr(known[k].path, '/');
        *slash = 0;
        fuzz_require(kolo_folder_make(known[k].path) == 0, "a folder");
        *slash = '/';
    }
    const int fd = open(known[k].path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_require(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0, "writing the input");
    return known[k].path;
}

static bool judge(int rc, int status)
{
    fuzz_require(rc >= 0 || rc == KOLO_EINPUT || rc == status, "the status of bad input");
    fuzz_require(rc >= 0 || kolo_error_text()[0], "a text that tells what is wrong");
    return rc >= 0;
}

bool fuzz_tried(int rc) { return judge(rc, KOLO_EINPUT); }

bool fuzz_taken_or(int rc, int status)
{
    fuzz_refused |= rc < 0;
    return judge(rc, status);
}

bool fuzz_taken(int rc) { return fuzz_taken_or(rc, KOLO_EINPUT); }

void fuzz_require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "violated: %s (last error: %s)\n", what, kolo_error_text());
    abort();
}

void fuzz_source(const char *kind, const char *in, const char *annotations)
{
    fuzz_source_of_two(kind, in, annotations, NULL);
}

void fuzz_source_of_two(const char *kind, const char *in, const char *annotations, const char *more)
{
    pack_options o = {.kind = source_find(kind), .in = {in}, .in_count = 1, .split = "train", .max_bad = -1};
    if (annotations) o.annotations[0] = annotations, o.annotation_count = 1;
    if (more) o.annotations[1] = more, o.annotation_count = 2;
    fuzz_require(o.kind != NULL, "a source of this name");
    for (int skip = 0; skip < 2; skip++) { /* --on-error fail, then skip: that goes further into the file */
        source s = {0};
        source_buffer buffer = {0};
        o.skip = skip;
        if (fuzz_taken(source_open(&s, o.kind, &o))) {
            fuzz_require(s.count > 0, "a sample in what was taken");
            for (int64_t i = 0; i < s.boxes; i++)
                fuzz_require(s.box[i].sample < s.count && s.box[i].label < s.classes,
                             "boxes of samples and classes");
            if (fuzz_taken(source_prepare(&s)))
                for (int64_t i = 0; i < s.count; i++) fuzz_tried(source_load(&s, i, &buffer));
        }
        free(buffer.data);
        source_free(&s);
    }
}
