/* Samples a second of the loader and of the plain loops that bound it, hot:
 *   data_bench pread DIR THREADS        every sample by one pread, in random order, to a ring of batches
 *   data_bench decode DIR THREADS       the same, and libjpeg's whole decode, written here
 *   data_bench loader DIR THREADS [KEY=VALUE ...]   our loader with these options; normalise=1: then to f32
 *                                                   as a graph would; cold=1: one epoch each time, of files
 *                                                   that are not in the page cache
 *   data_bench crc DIR                  microseconds that the checksum of a sample takes, as
 *                                       it came from its file
 *   data_bench open DIR                 milliseconds to open and close all shards
 *   data_bench order N                  milliseconds to make the order of an epoch of N samples
 * Prints one number, the best of three rounds of a second, after one pass over the data; of
 * ten for milliseconds. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

#include "base/memory.h"
#include "base/option.h"
#include "base/thread.h"
#include "data/cache.h"
#include "data/loader.h"
#include "data/order.h"
#include "data/shard/dataset.h"
#include "kolo/error.h"

enum { BATCH = 256, RING = 4, ROUNDS = 3 };

typedef struct task {
    const kolo_dataset *set;
    const int64_t *order;
    int64_t from, to, made;
    bool decode;
    double seconds; /* 0: one pass */
    uint8_t *ring;
    size_t stride;
    pthread_t thread;
} task;

static int stop(void)
{
    fprintf(stderr, "data_bench: %s\n", kolo_error_text());
    return 1;
}

/* One decompressor for all images; a damaged one ends the program by libjpeg's own handler. */
static void decode(struct jpeg_decompress_struct *j, const uint8_t *data, size_t bytes, uint8_t *to,
                   size_t room)
{
    jpeg_mem_src(j, data, bytes);
    jpeg_read_header(j, TRUE);
    j->out_color_space = JCS_RGB;
    jpeg_start_decompress(j);
    const size_t row = (size_t)j->output_width * 3;
    while (j->output_scanline < j->output_height && (j->output_scanline + 1) * row <= room) {
        JSAMPROW rows[1] = {to + j->output_scanline * row};
        jpeg_read_scanlines(j, rows, 1);
    }
    jpeg_abort_decompress(j);
}

static void *run(void *argument)
{
    task *t = argument;
    const size_t room = 64 << 20;
    struct jpeg_error_mgr errors;
    struct jpeg_decompress_struct j = {.err = jpeg_std_error(&errors)};
    uint8_t *pixels = t->decode ? malloc(room) : NULL;
    const double begin = kolo_time();
    jpeg_create_decompress(&j);
    for (int64_t i = t->from; t->seconds > 0 || i < t->to; t->made++, i++) {
        if (i == t->to) i = t->from;
        if (t->seconds > 0 && t->made % 64 == 0 && kolo_time() - begin > t->seconds) break;
        uint8_t *to = t->ring + (size_t)(t->made % (BATCH * RING)) * t->stride;
        if (kolo_dataset_read(t->set, t->order[i], to) < 0) break;
        if (pixels) decode(&j, to, kolo_dataset_bytes(t->set, t->order[i]), pixels, room);
    }
    jpeg_destroy_decompress(&j);
    free(pixels);
    return NULL;
}

/* Samples a second of all threads, each with its own share. */
static double loop_rate(const kolo_dataset *set, int threads, bool decodes, double seconds)
{
    const int64_t n = kolo_dataset_get_info(set)->count;
    int64_t *order = kolo_alloc(sizeof *order * (size_t)n), made = 0;
    task *t = kolo_alloc(sizeof *t * (size_t)threads);
    size_t stride = 0;
    for (int64_t i = 0; i < n; i++)
        if (kolo_dataset_bytes(set, i) > stride) stride = kolo_dataset_bytes(set, i);
    kolo_permutation(1, 0, n, order);
    const double begin = kolo_time();
    for (int i = 0; i < threads; i++) {
        t[i] = (task){.set = set,
                      .order = order,
                      .from = n * i / threads,
                      .to = n * (i + 1) / threads,
                      .decode = decodes,
                      .seconds = seconds,
                      .stride = stride,
                      .ring = kolo_pages_alloc(stride * BATCH * RING)};
        pthread_create(&t[i].thread, NULL, run, &t[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i].thread, NULL);
        made += t[i].made;
        kolo_pages_free(&t[i].ring, stride * BATCH * RING);
    }
    const double rate = (double)made / (kolo_time() - begin);
    free(order);
    free(t);
    return rate;
}

static void normalise(const kolo_batch *b, size_t bytes, float *to)
{
    static const float scale[3] = {1 / 58.4f, 1 / 57.1f, 1 / 57.4f}, shift[3] = {-2.12f, -2.04f, -1.8f};
    for (size_t i = 0; i + 3 <= (size_t)b->rows * bytes; i += 3)
        for (size_t c = 0; c < 3; c++) to[i + c] = (float)b->pixels[i + c] * scale[c] + shift[c];
}

/* Out of the page cache. */
static void forget(const kolo_dataset *set)
{
    for (int s = 0; s < kolo_dataset_get_info(set)->shards; s++) {
        const int fd = open(kolo_dataset_shard_path(set, s), O_RDONLY);
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static double loader_rate(const kolo_dataset *set, int threads, const kolo_options *o, bool normal, bool cold)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(set);
    const int side = o->size ? (int)o->size : info->height;
    const kolo_loader_config c = {.dataset = set,
                                  .channels = info->channels,
                                  .height = side,
                                  .width = side,
                                  .classes = info->classes,
                                  .train = true,
                                  .seed = 1,
                                  .batch = BATCH,
                                  .ranks = 1,
                                  .shuffle = o->shuffle,
                                  .crop = o->crop,
                                  .crop_pad = (int)o->crop_pad,
                                  .area_min = o->crop_area_min,
                                  .area_max = o->crop_area_max,
                                  .flip = o->flip,
                                  .augment = o->augment,
                                  .interpolation = o->interpolation,
                                  .readers = threads,
                                  .prefetch = RING - 1};
    const size_t bytes = (size_t)side * (size_t)side * (size_t)info->channels;
    kolo_loader *l;
    kolo_batch b;
    float *floats = normal ? kolo_pages_alloc(bytes * BATCH * sizeof *floats) : NULL;
    double best = 0;
    if (kolo_loader_create(&l, &c) < 0) return -1;
    for (int round = 0; round < ROUNDS; round++) {
        /* what was read ahead is of another epoch */
        if (cold) kolo_loader_seek(l, 0, kolo_loader_steps(l) - 1);
        if (cold) forget(set);
        if (cold) kolo_loader_seek(l, round + 2, 0);
        double begin = kolo_time(), seconds = 0;
        int64_t made = 0, steps = 0;
        while (cold ? steps < kolo_loader_steps(l) : seconds < 1) {
            if (kolo_loader_next(l, &b) != 0) return -1;
            if (normal) normalise(&b, bytes, floats);
            made += b.rows;
            steps++;
            kolo_loader_release(l, &b);
            seconds = kolo_time() - begin;
        }
        if ((double)made / seconds > best) best = (double)made / seconds;
    }
    kolo_loader_destroy(&l);
    if (floats) kolo_pages_free(&floats, bytes * BATCH * sizeof *floats);
    return best;
}

static int open_all(const char *folder)
{
    kolo_dataset *set;
    KOLO_TRY(kolo_dataset_open(&set, folder));
    kolo_dataset_close(&set);
    return 0;
}

static int order_epoch(const char *text)
{
    const kolo_order_config c = {.seed = 1, .count = strtoll(text, NULL, 10), .rows = BATCH, .ranks = 1};
    static kolo_order *order; /* of the first call, with its memory: a run has it from its first epoch on */
    static int64_t *samples, epoch;
    if (!order) KOLO_TRY(kolo_order_create(&order, &c));
    if (!samples) samples = kolo_alloc(sizeof *samples * (size_t)c.count);
    if (!samples) return KOLO_ENOMEM;
    kolo_order_fill(order, epoch++, samples);
    return 0;
}

static int print_milliseconds(int (*work)(const char *word), const char *word)
{
    double best = 1e9;
    for (int round = 0; round < 10; round++) {
        const double begin = kolo_time();
        if (work(word) < 0) return stop();
        const double seconds = kolo_time() - begin;
        if (seconds < best) best = seconds;
    }
    printf("%.2f\n", best * 1e3);
    return 0;
}

/* Beside the read that it follows, in which the bytes came into the CPU's cache: the best
 * of many short rounds. */
static int print_crc(const char *folder)
{
    enum { SHORT = 32 };
    kolo_dataset *set;
    double best = 1;
    if (kolo_dataset_open(&set, folder) < 0) return stop();
    const int64_t n = kolo_dataset_get_info(set)->count;
    uint8_t *ring = kolo_pages_alloc(kolo_dataset_bytes(set, 0) * SHORT);
    if (!ring) return stop();
    for (int64_t round = 0, i = 0; round < 400; round++) {
        double seconds = 0;
        for (int k = 0; k < SHORT; k++, i = (i + 7919) % n) {
            uint8_t *to = ring + (size_t)k * kolo_dataset_bytes(set, 0);
            if (kolo_dataset_bytes(set, i) != kolo_dataset_bytes(set, 0) || kolo_dataset_read(set, i, to) < 0)
                return stop();
            const double begin = kolo_time();
            if (kolo_dataset_check_bytes(set, i, to) < 0) return stop();
            seconds += kolo_time() - begin;
        }
        if (seconds / SHORT < best) best = seconds / SHORT;
    }
    printf("%.2f\n", best * 1e6);
    kolo_dataset_close(&set);
    return 0;
}

int main(int count, char **word)
{
    kolo_dataset *set;
    kolo_cache *cache = NULL;
    kolo_options o;
    bool normal = false, cold = false;
    double rate = 0;
    kolo_options_default(&o);
    if (count == 3 && !strcmp(word[1], "open")) return print_milliseconds(open_all, word[2]);
    if (count == 3 && !strcmp(word[1], "crc")) return print_crc(word[2]);
    if (count == 3 && !strcmp(word[1], "order")) return print_milliseconds(order_epoch, word[2]);
    if (count < 4)
        return fprintf(stderr, "usage: data_bench pread|decode|loader DIR THREADS [KEY=VALUE ...], crc DIR, "
                               "open DIR, order N\n"),
               2;
    const int threads = atoi(word[3]);
    if (count > 4 && !strcmp(word[count - 1], "normalise=1")) normal = true, count--;
    if (count > 4 && !strcmp(word[count - 1], "cold=1")) cold = true, count--;
    if (kolo_options_read_arguments(&o, count - 4, word + 4, NULL) < 0 || threads < 1) return stop();
    if (kolo_dataset_open(&set, word[2]) < 0) return stop();
    if (o.data_cache == KOLO_data_cache_ram &&
        kolo_cache_open(&cache, set, 0, kolo_dataset_get_info(set)->count, threads) < 0)
        return stop();
    loop_rate(set, threads, false, 0); /* into the page cache */
    if (!strcmp(word[1], "loader")) {
        rate = loader_rate(set, threads, &o, normal, cold);
    } else {
        for (int round = 0; round < ROUNDS; round++) {
            const double r = loop_rate(set, threads, !strcmp(word[1], "decode"), 1);
            if (r > rate) rate = r;
        }
    }
    if (rate < 0) return stop();
    printf("%.0f\n", rate);
    kolo_cache_close(&cache);
    kolo_dataset_close(&set);
    kolo_options_free(&o);
    return 0;
}
