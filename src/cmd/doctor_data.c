/* kolo doctor: data and run folder: file system, speed, whether samples are whole. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/thread.h"
#include "cmd/doctor.h"
#include "data/shard/shard.h"
#include "kolo/error.h"

enum { READ_BYTES = 256 << 20, STEP = 7919 };
static const double read_seconds = 1;

/* "lustre (10.0.0.1@o2ib:/fs)"; the type alone goes to *type. */
static const char *describe_place(const char *folder, char type[64], char *text, size_t bytes)
{
    char path[PATH_MAX], source[256];
    *type = 0;
    if (!realpath(folder, path) || !kolo_machine_mount("", path, type, source))
        return "an unknown file system";
    snprintf(text, bytes, "%s (%s)", type, source);
    return text;
}

/* The kernel lets go of what it holds of the shards, as far as nobody uses it: reads come from the disk. */
static void drop_pages(const char *folder)
{
    char path[PATH_MAX];
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (*e->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (fd >= 0) close(fd);
    }
    if (dir) closedir(dir);
}

typedef struct reading {
    int64_t samples, bytes, bad; /* bad: the first sample with another checksum; -1 */
    double seconds;
} reading;

static int read_one(const kolo_dataset *set, int64_t sample, char **data, int64_t *room, reading *r)
{
    const int64_t bytes = (int64_t)kolo_dataset_bytes(set, sample);
    if (bytes > *room) {
        free(*data);
        *data = kolo_alloc((size_t)bytes);
        *room = *data ? bytes : 0;
        if (!*data) return KOLO_ENOMEM;
    }
    const double begin = kolo_time();
    KOLO_TRY(kolo_dataset_read(set, sample, *data));
    r->seconds += kolo_time() - begin;
    r->samples++;
    r->bytes += bytes;
    if (r->bad < 0 && kolo_crc32c(0, *data, (size_t)bytes) != kolo_dataset_crc(set, sample)) r->bad = sample;
    return 0;
}

/* Samples in no order, each rank others, for a second at most. */
static int read_some(const doctor *d, const kolo_dataset *set, reading *r)
{
    const int64_t count = kolo_dataset_get_info(set)->count;
    const int64_t share = count / d->launch->size, first = share * d->launch->rank;
    char *data = NULL;
    int64_t room = 0;
    int rc = 0;
    *r = (reading){.bad = -1};
    const int64_t most = share > 0 ? share : count;
    for (int64_t i = 0; rc == 0 && i < most && r->bytes < READ_BYTES && r->seconds < read_seconds; i++)
        rc = read_one(set, (first + (share > STEP ? i * STEP % share : i)) % count, &data, &room, r);
    free(data);
    return rc;
}

static void check_reading(doctor *d, const char *key, const char *folder, const kolo_dataset *set)
{
    reading r;
    drop_pages(folder);
    if (read_some(d, set, &r) < 0) {
        doctor_add(d, BAD, KOLO_EIO, key, "%s", kolo_error_text());
        return;
    }
    if (r.bad >= 0)
        doctor_add(d, BAD, KOLO_EINPUT, key,
                   "sample %ld has another checksum than its shard states\tkolo-shards verify %s finds all; "
                   "copy or pack them again",
                   (long)r.bad, folder);
    const double rate = r.seconds > 0 ? (double)r.bytes / r.seconds / 1e6 : 0;
    if (!strcmp(key, "data")) d->figures.read = rate;
    doctor_add(d, GOOD, 0, key, "one thread of each rank reads %.0f MB/s, %.0f images/s (%ld images tried)",
               rate, r.seconds > 0 ? (double)r.samples / r.seconds : 0, (long)r.samples);
}

static void check_place(doctor *d, const char *key, const char *folder)
{
    char type[64], text[400];
    const char *place = describe_place(folder, type, text, sizeof text);
    const bool shared = kolo_machine_mount_shared(type);
    doctor_add(d, GOOD, 0, key, "%s lies on %s%s", folder, place, shared ? ", which nodes share" : "");
    if (strcmp(key, "data") != 0) return;
    memcpy(d->data_type, type, sizeof type);
    d->data_shared = shared;
}

void doctor_check_data(doctor *d, const char *key, const char *folder)
{
    if (!*folder || !strcmp(folder, "none") || !strcmp(folder, "synthetic")) return;
    kolo_dataset *set = NULL;
    double begin = kolo_time();
    if (kolo_dataset_open(&set, folder) < 0) {
        doctor_add(d, BAD, KOLO_EINPUT, key, "%s", kolo_error_text());
        return;
    }
    const kolo_dataset_info *info = kolo_dataset_get_info(set);
    doctor_add(d, GOOD, 0, key, "%s: %ld images, %d classes, %d shards, opened in %.0f ms", folder,
               (long)info->count, info->classes, info->shards, (kolo_time() - begin) * 1e3);
    check_place(d, key, folder);
    if (info->count > 0) check_reading(d, key, folder, set);
    kolo_dataset_close(&set);
}

void doctor_check_run(doctor *d, const char *folder)
{
    if (!*folder || d->launch->rank != 0) return;
    char path[4096], type[64], text[400];
    if (kolo_folder_make(folder) < 0) {
        doctor_add(d, BAD, KOLO_EIO, "run", "%s", kolo_error_text());
        return;
    }
    snprintf(path, sizeof path, "%s/.doctor", folder);
    double begin = kolo_time();
    if (kolo_file_write_atomic(path, "kolo\n", 5) < 0) {
        doctor_add(d, BAD, KOLO_EIO, "run", "%s", kolo_error_text());
        return;
    }
    unlink(path);
    const double took = (kolo_time() - begin) * 1e3;
    doctor_add(d, GOOD, 0, "run", "%s: write, sync and rename in %.0f ms, %.1f GiB free, on %s", folder, took,
               (double)kolo_file_free_bytes(folder) / 0x1p30,
               describe_place(folder, type, text, sizeof text));
    if (d->launch->nodes > 1 && *type && !kolo_machine_mount_shared(type))
        doctor_add(d, WARN, 0, "run",
                   "%s is on a disk of node %s\tcheckpoints of %d nodes belong in a folder that all of them "
                   "see",
                   folder, d->launch->host, d->launch->nodes);
}
