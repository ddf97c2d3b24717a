/* Two hundred epochs: memory and descriptors stay as they are; 128 shards open fast. */
#include "tap.h"
#include "data_fixture.h"

#include <dirent.h>

#include "base/option.h"
#include "base/thread.h"
#include "data/cache.h"
#include "data/loader.h"

/* A sanitizer keeps what is freed for a while. */
#if defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || defined SANITIZED
static const size_t growth = 512 << 20;
#else
static const size_t growth = 1 << 20;
#endif

static int descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) n++;
    if (folder) closedir(folder);
    return n;
}

static void soak(const kolo_dataset *d, const char *kind, const char *rule)
{
    kolo_loader *l;
    kolo_batch b;
    size_t early = 0;
    int open_early = 0, rc = 0;
    const kolo_loader_config c = {.dataset = d,
                                  .channels = 3,
                                  .height = 24,
                                  .width = 24,
                                  .classes = 10,
                                  .train = true,
                                  .seed = 1,
                                  .batch = 50,
                                  .ranks = 1,
                                  .shuffle = rule,
                                  .crop = KOLO_crop_resized,
                                  .area_min = .1,
                                  .area_max = 1,
                                  .flip = true,
                                  .readers = 2,
                                  .prefetch = 2,
                                  .tail = KOLO_tail_pad};
    if (kolo_loader_create(&l, &c) < 0) diag("%s", kolo_error_text());
    const int64_t steps = kolo_loader_steps(l);
    for (int64_t t = 0; rc == 0 && t < 200 * steps; t++) {
        rc = kolo_loader_next(l, &b);
        if (rc == 0) kolo_loader_release(l, &b);
        if (t == 20 * steps) early = kolo_memory_resident(), open_early = descriptors();
    }
    const size_t late = kolo_memory_resident();
    ok(rc == 0 && b.epoch == 199 && late < early + growth && descriptors() == open_early,
       "%s, %s: after 200 epochs %.1f MiB, %.1f after 20; %d descriptors", kind, rule, (double)late / 0x1p20,
       (double)early / 0x1p20, open_early);
    kolo_loader_destroy(&l);
}

static void test_many_shards(void)
{
    fixture f = {.count = 1280, .shards = 128, .height = 8, .width = 8, .channels = 3};
    kolo_dataset *d = NULL;
    double best = 9;
    fixture_make(&f);
    for (int i = 0; i < 3; i++) {
        const double begin = tap_cpu();
        kolo_dataset_open(&d, f.folder);
        const double seconds = tap_cpu() - begin;
        if (seconds < best) best = seconds;
        if (d) kolo_dataset_close(&d);
    }
    ok(best < 2, "128 shards open in %.0f ms of a processor", best * 1e3);
    fixture_remove(&f);
}

int main(void)
{
    fixture f = {
        .count = 110, .shards = 2, .height = 40, .width = 60, .channels = 3, .encoding = KOLO_ENCODING_JPEG};
    kolo_dataset *d = NULL;
    kolo_cache *c = NULL;
    if (fixture_make(&f) < 0 || kolo_dataset_open(&d, f.folder) < 0) diag("%s", kolo_error_text());
    soak(d, "files", "full");
    soak(d, "files", "block:8:2");
    if (kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 1) < 0) diag("%s", kolo_error_text());
    soak(d, "cache", "local:0.5");
    kolo_cache_close(&c);
    const int before = descriptors();
    int same = 1;
    for (int i = 0; i < 20; i++) {
        same &= kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 2) == 0;
        kolo_cache_close(&c);
    }
    ok(same && descriptors() == before, "caches opened and closed leave no descriptor");
    kolo_dataset_close(&d);
    fixture_remove(&f);
    test_many_shards();
    return done_testing();
}
