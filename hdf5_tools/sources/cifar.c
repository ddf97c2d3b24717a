/* CIFAR binary files: records of one label byte (CIFAR-100: coarse, fine), then 3072 bytes in three
 * planes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "sources/options.h"

#define SIDE 32
#define PLANE (SIDE * SIDE)

typedef struct cifar {
    char *data[PACK_MOST_INPUTS];
    int64_t first[PACK_MOST_INPUTS + 1]; /* number of the first record of a file */
    int files, record;                   /* bytes of a record: 3073 or 3074 */
} cifar;

static int add_file(source *s, cifar *c, const char *path, const char *name)
{
    size_t bytes;
    char text[96];
    if (c->files == PACK_MOST_INPUTS) return kolo_fail(KOLO_ECONFIG, "at most %d files", PACK_MOST_INPUTS);
    KOLO_TRY(kolo_file_read(path, &c->data[c->files], &bytes));
    const int record = bytes % 3073 == 0 ? 3073 : 3074;
    if (bytes == 0 || bytes % (size_t)record != 0)
        return kolo_fail(
            KOLO_EINPUT,
            "%s: %zu bytes are no whole number of CIFAR records (3073 or 3074 bytes); fetch the file again",
            path, bytes);
    if (c->record && c->record != record)
        return kolo_fail(KOLO_EINPUT, "%s: CIFAR-10 and CIFAR-100 files mixed", path);
    c->record = record;
    const int64_t n = (int64_t)(bytes / (size_t)record);
    const int most = record == 3073 ? 10 : 100;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t label = ((uint8_t *)c->data[c->files])[i * record + record - 3073];
        if (label >= most)
            return kolo_fail(KOLO_EINPUT, "%s: record %lld has label %d; labels are 0 to %d", path,
                             (long long)i, label, most - 1);
        snprintf(text, sizeof text, "%.64s/%05lld", name, (long long)i);
        KOLO_TRY(source_add(s, label, text, -1));
    }
    c->first[++c->files] = s->count;
    return 0;
}

static int add_folder(source *s, cifar *c, const char *folder, const char *split)
{
    static const char *const train[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "train.bin"};
    static const char *const test[] = {"test_batch.bin", "test.bin"};
    const bool training = strcmp(split, "train") == 0;
    const char *const *names = training ? train : test;
    for (int i = 0; i < (training ? 6 : 2); i++) {
        char *path = kolo_format("%s/%s", folder, names[i]);
        int rc = !path ? KOLO_ENOMEM : kolo_file_exists(path) ? add_file(s, c, path, names[i]) : 0;
        free(path);
        KOLO_TRY(rc);
    }
    if (c->files == 0)
        return kolo_fail(KOLO_EINPUT, "%s holds no %s; name the .bin files by --in", folder,
                         training ? "data_batch_*.bin or train.bin" : "test_batch.bin or test.bin");
    if (training && c->record == 3073 && c->files != 5)
        return kolo_fail(
            KOLO_EINPUT,
            "%s holds %d of the 5 files data_batch_*.bin; fetch the others, or name files by --in", folder,
            c->files);
    return 0;
}

/* One name a line, in label order. 1: there is no such file. */
static int read_names(source *s, const char *folder, const char *file, int classes, int32_t *labels)
{
    char *path = kolo_format("%s/%s", folder, file), *text = NULL;
    int found = 0;
    if (!path) return KOLO_ENOMEM;
    int rc = kolo_file_exists(path) ? kolo_file_read(path, &text, NULL) : 1;
    free(path);
    if (rc != 0) return rc;
    for (char *line = text; *line && rc == 0 && found < classes;) {
        char *end = line + strcspn(line, "\r\n");
        char *next = end + strspn(end, "\r\n");
        *end = 0;
        if (*line) rc = source_find_class(s, line, found, &labels[found]);
        found += *line != 0;
        line = next;
    }
    free(text);
    if (rc < 0 || found == classes) return rc;
    return kolo_fail(KOLO_EINPUT, "%s/%s has fewer than %d names", folder, file, classes);
}

/* Samples were listed with the numbers of the files; now that the names are known they get their labels. */
static int name_classes(source *s, const cifar *c, const char *folder)
{
    static const char *const ten[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                      "dog",      "frog",       "horse", "ship", "truck"};
    const int classes = c->record == 3073 ? 10 : 100;
    int32_t labels[100] = {0};
    int rc =
        read_names(s, folder, classes == 10 ? "batches.meta.txt" : "fine_label_names.txt", classes, labels);
    for (int i = 0; i < classes && rc == 1; i++) {
        char text[24];
        snprintf(text, sizeof text, "class_%02d", i);
        KOLO_TRY(source_find_class(s, classes == 10 ? ten[i] : text, i, &labels[i]));
    }
    for (int64_t i = 0; i < s->count && rc >= 0; i++) s->labels[i] = labels[s->labels[i]];
    return rc < 0 ? rc : 0;
}

static int open_cifar(source *s, const pack_options *o)
{
    cifar *c = s->state = kolo_alloc(sizeof *c);
    struct stat info;
    if (!c) return KOLO_ENOMEM;
    s->channels = 3;
    s->height = s->width = SIDE;
    for (int i = 0; i < o->in_count; i++) {
        if (stat(o->in[i], &info) != 0)
            return kolo_fail(KOLO_EINPUT, "--in %s: no such file or folder", o->in[i]);
        const char *slash = strrchr(o->in[i], '/');
        if (S_ISDIR(info.st_mode)) KOLO_TRY(add_folder(s, c, o->in[i], o->split));
        else KOLO_TRY(add_file(s, c, o->in[i], slash ? slash + 1 : o->in[i]));
    }
    char *folder = kolo_strdup(o->in[0]);
    if (!folder) return KOLO_ENOMEM;
    if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode)) {
        char *slash = strrchr(folder, '/');
        if (slash) *slash = 0;
        else folder[0] = '.', folder[1] = 0;
    }
    int rc = name_classes(s, c, folder);
    free(folder);
    return rc;
}

static int cifar_load(const source *s, int64_t i, source_buffer *buffer)
{
    const cifar *c = s->state;
    int file = 0;
    while (i >= c->first[file + 1]) file++;
    const uint8_t *planes = (const uint8_t *)c->data[file] + (i - c->first[file] + 1) * c->record - 3 * PLANE;
    KOLO_TRY(source_grow(buffer, 3 * PLANE));
    for (int p = 0; p < PLANE; p++)
        for (int k = 0; k < 3; k++) buffer->data[3 * p + k] = planes[k * PLANE + p];
    buffer->height = buffer->width = SIDE, buffer->channels = 3;
    return 0;
}

static void close_cifar(source *s)
{
    cifar *c = s->state;
    if (!c) return;
    for (int i = 0; i < PACK_MOST_INPUTS; i++) free(c->data[i]);
    free(c);
    s->state = NULL;
}

const source_kind source_cifar = {.name = "cifar-bin",
                                  .help = "CIFAR-10 and CIFAR-100 binary files: a folder, or the .bin files",
                                  .data_name = "cifar",
                                  .pixels = true,
                                  .open = open_cifar,
                                  .load = cifar_load,
                                  .close = close_cifar};
