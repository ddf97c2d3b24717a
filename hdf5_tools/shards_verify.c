#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/dataset.h"
#include "data/shard_file.h"
#include "kolo/error.h"
#include "shards.h"

#define BLOCK 256

typedef struct check {
    const kolo_dataset *dataset;
    _Atomic int64_t next, bytes;
    pthread_mutex_t lock;
    int64_t bad, first_bad;
    int status; /* of the lowest sample that cannot be read */
    char error[1024];
} check;

static void complain(check *k, int64_t sample, const char *what)
{
    char source[512];
    int64_t index;
    const char *path = kolo_dataset_shard_of(k->dataset, sample, &index);
    if (kolo_dataset_source(k->dataset, sample, source, sizeof source) < 0) source[0] = 0;
    pthread_mutex_lock(&k->lock);
    if (k->bad++ < 20)
        fprintf(stderr, "%s: sample %" PRId64 " (of the split: %" PRId64 ", made from %s): %s\n", path, index, sample,
                source[0] ? source : "?", what);
    if (k->bad == 1 || sample < k->first_bad) k->first_bad = sample;
    pthread_mutex_unlock(&k->lock);
}

static int check_sample(check *k, int64_t sample, uint8_t **data, size_t *capacity)
{
    const size_t bytes = kolo_dataset_bytes(k->dataset, sample);
    if (bytes > *capacity) {
        free(*data);
        *capacity = bytes * 2;
        *data = malloc(*capacity);
        if (!*data) {
            *capacity = 0;
            return kolo_fail(KOLO_ECONFIG, "out of memory: %zu bytes", bytes * 2);
        }
    }
    KOLO_TRY(kolo_dataset_read(k->dataset, sample, *data));
    char text[96];
    const uint32_t crc = kolo_crc32c(0, *data, bytes), want = kolo_dataset_crc(k->dataset, sample);
    snprintf(text, sizeof text, "checksum %08x, stored %08x: the bytes were changed", crc, want);
    if (crc != want) complain(k, sample, text);
    atomic_fetch_add(&k->bytes, (int64_t)bytes);
    return 0;
}

static void *run_thread(void *argument)
{
    check *k = argument;
    uint8_t *data = NULL;
    size_t capacity = 0;
    const int64_t count = kolo_dataset_get_info(k->dataset)->count;
    for (;;) {
        const int64_t first = atomic_fetch_add(&k->next, BLOCK);
        if (first >= count) break;
        for (int64_t i = first; i < first + BLOCK && i < count; i++)
            if (check_sample(k, i, &data, &capacity) < 0) complain(k, i, kolo_error_text());
    }
    free(data);
    return NULL;
}

/* /classes/count against the labels. */
static int check_counts(const kolo_dataset *d)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    uint64_t *have = kolo_alloc(sizeof *have * (size_t)info->classes + 8),
             *want = kolo_alloc(sizeof *want * (size_t)info->classes + 8);
    char **names = NULL;
    int rc = have && want ? 0 : KOLO_ECONFIG;
    if (rc == 0) kolo_dataset_count_classes(d, have);
    for (int s = 0; rc == 0 && s < info->shards; s++) {
        rc = kolo_shard_read_classes(kolo_dataset_shard_path(d, s), info->classes, &names, want);
        for (int c = 0; rc == 0 && c < info->classes; c++)
            if (have[c] != want[c])
                rc = kolo_fail(KOLO_EINPUT, "%s: class %s has %" PRIu64 " samples, /classes/count says %" PRIu64,
                               kolo_dataset_shard_path(d, s), names[c], have[c], want[c]);
        free(names);
        names = NULL;
    }
    free(have);
    free(want);
    return rc;
}

static int verify(const kolo_dataset *d, int threads)
{
    check k = {.dataset = d};
    pthread_t *list = kolo_alloc(sizeof *list * (size_t)threads);
    int started = 0;
    if (!list) return KOLO_ECONFIG;
    const double begin = kolo_time();
    pthread_mutex_init(&k.lock, NULL);
    while (started < threads - 1 && pthread_create(&list[started], NULL, run_thread, &k) == 0) started++;
    run_thread(&k);
    for (int i = 0; i < started; i++) pthread_join(list[i], NULL);
    pthread_mutex_destroy(&k.lock);
    free(list);
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    const double seconds = kolo_time() - begin;
    if (k.bad) {
        int64_t index;
        const char *path = kolo_dataset_shard_of(d, k.first_bad, &index);
        return kolo_fail(KOLO_EINPUT,
                         "%" PRId64 " of %" PRId64 " samples are damaged, first %s sample %" PRId64
                         "; copy the shard again or pack again",
                         k.bad, info->count, path, index);
    }
    KOLO_TRY(check_counts(d));
    printf("%s-%s: %" PRId64 " samples in %d shard%s are whole (%.1f MB, %.2f GB/s)\n", info->name, info->split,
           info->count, info->shards, info->shards == 1 ? "" : "s", (double)k.bytes / 1e6,
           seconds > 0 ? (double)k.bytes / seconds / 1e9 : 0);
    return 0;
}

int shards_verify(int argc, char **argv)
{
    const char *folder = NULL;
    int threads = kolo_cpu_count();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) threads = atoi(argv[++i]);
        else if (argv[i][0] == '-' || folder) return kolo_fail(KOLO_ECONFIG, "verify: unexpected word %s", argv[i]);
        else folder = argv[i];
    }
    if (!folder) return kolo_fail(KOLO_ECONFIG, "verify: which folder?");
    if (threads < 1 || threads > 1024) return kolo_fail(KOLO_ECONFIG, "verify: --threads is from 1 to 1024");
    kolo_dataset *d;
    KOLO_TRY(kolo_dataset_open(&d, folder)); /* formats, uuids, positions, states, checksums of the tables */
    int rc = verify(d, threads);
    kolo_dataset_close(&d);
    return rc;
}
