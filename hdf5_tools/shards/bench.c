/* How fast samples come, in random order, by every way of reading and number of threads. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/philox.h"
#include "base/thread.h"
#include "data/sampler.h"
#include "data/shard/h5.h"
#include "kolo/error.h"
#include "shards/shards.h"

#define MOST_THREADS 64
#define MOST_CELLS 16

typedef struct bench bench;

/* One way of reading: `begin` and `end` may be NULL. `read` brings one sample to `data`; thread-safe. */
typedef struct way {
    const char *name;
    int (*begin)(bench *b);
    int (*read)(bench *b, int64_t sample, uint8_t *data);
    void (*end)(bench *b);
} way;

typedef struct piece { /* one shard as a way sees it */
    const uint8_t *memory;
    size_t bytes, skip; /* of the mapping, and from its start to the first sample */
    hid_t file, set;
} piece;

struct bench {
    const char *folder, *ways, *threads_text;
    int64_t seconds;
    bool cold, json;
    kolo_dataset *dataset;
    const way *chosen[MOST_CELLS], *current;
    int64_t threads[MOST_CELLS];
    int way_count, thread_count;
    int64_t *order;      /* [count] */
    int64_t count, most; /* most: bytes of the largest sample */
    piece *pieces;       /* [shards] */
    uint8_t *slots[MOST_THREADS];
    double until;
    _Atomic int64_t samples;
};

static const piece *piece_of(const bench *b, int64_t sample, kolo_dataset_extent *x)
{
    int s = 0;
    for (;; s++) {
        kolo_dataset_get_extent(b->dataset, s, x);
        if (sample < x->first + x->count) return &b->pieces[s];
    }
}

static int read_pread(bench *b, int64_t sample, uint8_t *data)
{
    return kolo_dataset_read(b->dataset, sample, data);
}

/* ---- mmap and ram -------------------------------------------------------------------------------------- */

static int begin_mmap(bench *b)
{
    for (int s = 0; s < kolo_dataset_get_info(b->dataset)->shards; s++) {
        kolo_dataset_extent x;
        kolo_dataset_get_extent(b->dataset, s, &x);
        piece *p = &b->pieces[s];
        p->skip = x.place % (uint64_t)sysconf(_SC_PAGESIZE);
        p->bytes = x.bytes + p->skip;
        void *at = x.bytes ? mmap(NULL, p->bytes, PROT_READ, MAP_SHARED, x.fd, (off_t)(x.place - p->skip))
                           : MAP_FAILED;
        if (at == MAP_FAILED && x.bytes)
            return kolo_fail(KOLO_EIO, "%s: mmap: %s", kolo_dataset_shard_path(b->dataset, s),
                             strerror(errno));
        p->memory = x.bytes ? at : NULL;
        if (x.bytes) madvise(at, p->bytes, MADV_RANDOM);
    }
    return 0;
}

static int read_memory(bench *b, int64_t sample, uint8_t *data)
{
    kolo_dataset_extent x;
    const piece *p = piece_of(b, sample, &x);
    memcpy(data, p->memory + p->skip + kolo_dataset_offset(b->dataset, sample),
           kolo_dataset_bytes(b->dataset, sample));
    return 0;
}

static void end_mmap(bench *b)
{
    for (int s = 0; s < kolo_dataset_get_info(b->dataset)->shards; s++) {
        if (b->pieces[s].memory) munmap((void *)b->pieces[s].memory, b->pieces[s].bytes);
        b->pieces[s].memory = NULL;
    }
}

static int begin_ram(bench *b)
{
    const uint64_t bytes = kolo_dataset_get_info(b->dataset)->bytes;
    const char *source;
    const size_t room = kolo_memory_limit(&source);
    if (bytes > room / 10 * 9)
        return kolo_fail(KOLO_ECONFIG,
                         "bench: ram: the split has %.1f MB, %.1f MB may be used (%s); leave ram out of --io",
                         (double)bytes / 1e6, (double)room / 1e6, source);
    for (int s = 0; s < kolo_dataset_get_info(b->dataset)->shards; s++) {
        kolo_dataset_extent x;
        kolo_dataset_get_extent(b->dataset, s, &x);
        piece *p = &b->pieces[s];
        *p = (piece){.bytes = x.bytes + 1, .file = p->file, .set = p->set};
        uint8_t *memory = kolo_pages_alloc(p->bytes);
        if (!memory) return KOLO_ENOMEM;
        p->memory = memory;
        KOLO_TRY(kolo_file_pread(x.fd, kolo_dataset_shard_path(b->dataset, s), memory, x.bytes, x.place));
    }
    return 0;
}

static void end_ram(bench *b)
{
    for (int s = 0; s < kolo_dataset_get_info(b->dataset)->shards; s++)
        if (b->pieces[s].memory) kolo_pages_free(&b->pieces[s].memory, b->pieces[s].bytes);
}

/* ---- HDF5 itself: one thread at a time, as the serial library wants it --------------------------------- */

static int begin_h5(bench *b)
{
    const bool raw = kolo_dataset_get_info(b->dataset)->encoding == KOLO_ENCODING_RAW;
    int rc = 0;
    kolo_h5_lock();
    for (int s = 0; rc == 0 && s < kolo_dataset_get_info(b->dataset)->shards; s++) {
        piece *p = &b->pieces[s];
        p->file = kolo_h5_open(kolo_dataset_shard_path(b->dataset, s), false);
        p->set = p->file < 0 ? -1 : H5Dopen2(p->file, raw ? "images" : "bytes", H5P_DEFAULT);
        if (p->set < 0)
            rc = kolo_fail(KOLO_EIO, "%s: HDF5 cannot open it", kolo_dataset_shard_path(b->dataset, s));
    }
    kolo_h5_unlock();
    return rc;
}

static int read_h5(bench *b, int64_t sample, uint8_t *data)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(b->dataset);
    kolo_dataset_extent x;
    const piece *p = piece_of(b, sample, &x);
    const bool raw = i->encoding == KOLO_ENCODING_RAW;
    const int rank = raw ? 4 : 1;
    hsize_t start[4] = {raw ? (hsize_t)(sample - x.first) : kolo_dataset_offset(b->dataset, sample), 0, 0, 0};
    hsize_t count[4] = {raw ? 1 : kolo_dataset_bytes(b->dataset, sample), (hsize_t)i->height,
                        (hsize_t)i->width, (hsize_t)i->channels};
    kolo_h5_lock();
    const hid_t file = H5Dget_space(p->set), memory = H5Screate_simple(rank, count, NULL);
    const bool bad = file < 0 || memory < 0 ||
                     H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
                     H5Dread(p->set, H5T_NATIVE_UINT8, memory, file, H5P_DEFAULT, data) < 0;
    if (file >= 0) H5Sclose(file);
    if (memory >= 0) H5Sclose(memory);
    kolo_h5_unlock();
    return bad ? kolo_fail(KOLO_EIO, "%s: H5Dread failed", kolo_dataset_shard_of(b->dataset, sample, NULL))
               : 0;
}

static void end_h5(bench *b)
{
    kolo_h5_lock();
    for (int s = 0; s < kolo_dataset_get_info(b->dataset)->shards; s++) {
        if (b->pieces[s].set >= 0) H5Dclose(b->pieces[s].set);
        if (b->pieces[s].file >= 0) H5Fclose(b->pieces[s].file);
        b->pieces[s].set = b->pieces[s].file = -1;
    }
    kolo_h5_unlock();
}

static const way ways[] = {{"pread", NULL, read_pread, NULL},
                           {"mmap", begin_mmap, read_memory, end_mmap},
                           {"h5", begin_h5, read_h5, end_h5},
                           {"ram", begin_ram, read_memory, end_ram}};
#define WAYS ((int)(sizeof ways / sizeof *ways))

/* ---- the table ----------------------------------------------------------------------------------------- */

static int read_block(void *context, int thread, int64_t first, int64_t last, int64_t *bytes)
{
    bench *b = context;
    if (kolo_time() > b->until) return 1;
    for (int64_t i = first; i < last; i++) {
        const int64_t sample = b->order[i % b->count];
        KOLO_TRY(b->current->read(b, sample, b->slots[thread]));
        *bytes += (int64_t)kolo_dataset_bytes(b->dataset, sample);
    }
    atomic_fetch_add(&b->samples, last - first);
    return 0;
}

/* Asks the kernel to forget the pages of the shards; those that others have mapped stay. */
static void bench_forget(const bench *b)
{
    for (int s = 0; s < kolo_dataset_get_info(b->dataset)->shards; s++) {
        kolo_dataset_extent x;
        kolo_dataset_get_extent(b->dataset, s, &x);
        fsync(x.fd);
        posix_fadvise(x.fd, 0, 0, POSIX_FADV_DONTNEED);
    }
}

static void print_cell(const bench *b, int64_t threads, const shards_work *w, bool first)
{
    const double samples = (double)b->samples / w->seconds, mb = (double)w->bytes / w->seconds / 1e6;
    if (b->json)
        printf("%s{\"io\":\"%s\",\"threads\":%" PRId64 ",\"samples\":%" PRId64
               ",\"seconds\":%.6f,\"samples_per_s\":%.1f,\"mb_per_s\":%.1f}",
               first ? "" : ",", b->current->name, threads, b->samples, w->seconds, samples, mb);
    else printf("%-8s %7" PRId64 " %14.0f %12.1f\n", b->current->name, threads, samples, mb);
    fflush(stdout);
}

/* Every sample once, as often as there is time. */
static int run_cell(bench *b, int64_t threads, bool first)
{
    atomic_store(&b->samples, 0);
    if (b->cold) bench_forget(b);
    shards_work work = {.total = b->cold ? b->count : INT64_MAX / 2,
                        .block = b->count < 64 * threads ? 1 : 16,
                        .threads = (int)threads,
                        .run = read_block,
                        .context = b};
    b->until = kolo_time() + (double)b->seconds;
    KOLO_TRY(shards_run(&work));
    print_cell(b, threads, &work, first);
    return 0;
}

static int run_all(bench *b)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(b->dataset);
    bool first = true;
    if (b->json)
        printf("{\"samples\":%" PRId64 ",\"bytes\":%" PRIu64 ",\"cold\":%s,\"cells\":[", i->count, i->bytes,
               b->cold ? "true" : "false");
    else
        printf("%s-%s: %" PRId64 " samples, %.1f MB, random order, %s\n\n%-8s %7s %14s %12s\n", i->name,
               i->split, i->count, (double)i->bytes / 1e6,
               b->cold ? "page cache emptied before every row" : "page cache as it is", "io", "threads",
               "samples/s", "MB/s");
    for (int w = 0; w < b->way_count; w++) {
        b->current = b->chosen[w];
        int rc = b->current->begin ? b->current->begin(b) : 0;
        for (int t = 0; t < b->thread_count && rc == 0; t++, first = false)
            rc = run_cell(b, b->threads[t], first);
        if (b->current->end) b->current->end(b);
        KOLO_TRY(rc);
    }
    if (b->json) printf("]}\n");
    return 0;
}

static int add_way(void *context, const char *word)
{
    bench *b = context;
    const char *names[WAYS];
    for (int w = 0; w < WAYS; w++) {
        names[w] = ways[w].name;
        if (strcmp(word, ways[w].name) != 0) continue;
        if (b->way_count == MOST_CELLS) return kolo_fail(KOLO_ECONFIG, "bench: --io: at most %d", MOST_CELLS);
        b->chosen[b->way_count++] = &ways[w];
        return 0;
    }
    const char *near = kolo_nearest(word, names, WAYS);
    return kolo_fail(KOLO_ECONFIG, "bench: --io %s: unknown%s%s; pread, mmap, h5 and ram are known", word,
                     near ? ", did you mean " : "", near ? near : "");
}

static int add_threads(void *context, const char *word)
{
    bench *b = context;
    char *end;
    const long n = strtol(word, &end, 10);
    if (*end || n < 1 || n > MOST_THREADS || b->thread_count == MOST_CELLS)
        return kolo_fail(KOLO_ECONFIG,
                         "bench: --threads %s: must be numbers from 1 to %d with commas, at most %d of them",
                         word, MOST_THREADS, MOST_CELLS);
    b->threads[b->thread_count++] = n;
    return 0;
}

/* Powers of two up to the CPUs, and the CPUs. */
static void default_threads(bench *b)
{
    const int cpus = kolo_cpu_count() < MOST_THREADS ? kolo_cpu_count() : MOST_THREADS;
    for (int n = 1; n < cpus; n *= 2) b->threads[b->thread_count++] = n;
    b->threads[b->thread_count++] = cpus;
}

static int bench_prepare(bench *b)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(b->dataset);
    int64_t threads = 1;
    if (i->count == 0) return kolo_fail(KOLO_EINPUT, "%s has no samples", b->folder);
    for (int t = 0; t < b->thread_count; t++) threads = b->threads[t] > threads ? b->threads[t] : threads;
    b->count = i->count;
    b->order = kolo_alloc(sizeof *b->order * (size_t)b->count);
    b->pieces = kolo_alloc(sizeof *b->pieces * (size_t)i->shards);
    if (!b->order || !b->pieces) return KOLO_ENOMEM;
    for (int s = 0; s < i->shards; s++) b->pieces[s].file = b->pieces[s].set = -1;
    kolo_shuffle(kolo_random_key(1, KOLO_RANDOM_PERMUTE), 0, b->count, b->order);
    for (int64_t k = 0; k < b->count; k++)
        if ((int64_t)kolo_dataset_bytes(b->dataset, k) > b->most)
            b->most = (int64_t)kolo_dataset_bytes(b->dataset, k);
    for (int64_t t = 0; t < threads; t++)
        if (!(b->slots[t] = kolo_alloc((size_t)b->most + 64))) return KOLO_ENOMEM;
    return 0;
}

int shards_bench(int argc, char **argv)
{
    bench b = {.ways = "pread,mmap,h5,ram", .seconds = 1};
    const shards_option options[] = {
        {"--io", "LIST", "of pread, mmap, h5, ram, with commas [all]", SHARDS_TEXT, &b.ways, 0, 0},
        {"--threads", "LIST", "numbers with commas [1, 2, 4, ... up to the CPUs]", SHARDS_TEXT,
         &b.threads_text, 0, 0},
        {"--seconds", "S", "for every row of the table [1]", SHARDS_NUMBER, &b.seconds, 1, 3600},
        {"--cold", NULL, "empty the page cache before every row, and read every sample at most once",
         SHARDS_FLAG, &b.cold, 0, 0},
        {"--json", NULL, "the table as one line of JSON", SHARDS_FLAG, &b.json, 0, 0}};
    const shards_line line = {
        "bench DIR",
        "Reads samples in random order: pread (as the loader does), mmap, h5 (H5Dread, one "
        "thread at a time) and ram (the\n"
        "split in memory), each with several numbers of threads.",
        options,
        (int)(sizeof options / sizeof *options),
        1,
        1,
        &b.folder,
        NULL};
    int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    KOLO_TRY(shards_each_word(b.ways, add_way, &b));
    if (b.threads_text) KOLO_TRY(shards_each_word(b.threads_text, add_threads, &b));
    if (b.thread_count == 0) default_threads(&b);
    KOLO_TRY(kolo_dataset_open(&b.dataset, b.folder));
    rc = bench_prepare(&b);
    if (rc == 0) rc = run_all(&b);
    for (int t = 0; t < MOST_THREADS; t++) free(b.slots[t]);
    free(b.order);
    free(b.pieces);
    kolo_dataset_close(&b.dataset);
    return rc;
}
