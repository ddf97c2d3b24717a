/* The RAM cache: the same bytes, one copy for all processes, filled once, whoever dies. */
#include "data_fixture.h"
#include "tap.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/option.h"
#include "base/thread.h"
#include "data/cache.h"
#include "data/loader.h"
#include "data/shard/dataset.h"

static fixture raw = {.count = 3000, .shards = 3, .height = 64, .width = 64, .channels = 3}; /* 36 MB */
static fixture jpeg = {
    .count = 60, .shards = 2, .height = 40, .width = 50, .channels = 3, .encoding = KOLO_ENCODING_JPEG};

static int there(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "/dev/shm%s", name);
    return access(path, F_OK) == 0;
}

static void test_bytes(const fixture *f, const char *kind)
{
    kolo_dataset *d, *plain;
    kolo_cache *c;
    kolo_cache_info info;
    uint8_t a[20000], b[20000];
    int same = 1;
    kolo_dataset_open(&d, f->folder);
    kolo_dataset_open(&plain, f->folder);
    is_int(kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 2), 0, "%s: a cache is filled", kind);
    kolo_cache_get_info(c, &info);
    ok(info.filled == info.pieces && there(info.name), "all %lld pieces by the only process",
       (long long)info.pieces);
    for (int64_t i = 0; i < f->count; i++) {
        const size_t n = kolo_dataset_bytes(d, i);
        same &= kolo_dataset_read(d, i, a) == 0 && kolo_dataset_read(plain, i, b) == 0 && !memcmp(a, b, n);
        same &= kolo_dataset_memory(d, i) && !kolo_dataset_memory(plain, i);
    }
    ok(same, "%s: every sample is that of the file", kind);
    uint32_t crc[2] = {0, 0};
    int64_t hits[2];
    for (int k = 0; k < 2; k++) {
        kolo_loader *l;
        kolo_batch batch;
        kolo_loader_stats s;
        const kolo_loader_config config = {.dataset = k ? d : plain,
                                           .channels = 3,
                                           .height = 24,
                                           .width = 24,
                                           .classes = 10,
                                           .train = true,
                                           .seed = 1,
                                           .batch = 30,
                                           .ranks = 1,
                                           .crop = KOLO_crop_resized,
                                           .area_min = .2,
                                           .area_max = 1,
                                           .flip = true,
                                           .readers = 2,
                                           .prefetch = 2};
        kolo_loader_create(&l, &config);
        for (int t = 0; t < 4 && kolo_loader_next(l, &batch) == 0; t++) {
            crc[k] = kolo_crc32c(crc[k], batch.pixels, 30 * 24 * 24 * 3);
            kolo_loader_release(l, &batch);
        }
        kolo_loader_get_stats(l, &s);
        hits[k] = s.hits;
        kolo_loader_destroy(&l);
    }
    ok(crc[0] == crc[1] && hits[0] == 0 && hits[1] == 120, "%s: batches do not change, and hits are counted",
       kind);
    kolo_cache_close(&c);
    ok(!there(info.name) && !kolo_dataset_memory(d, 0), "%s: the last to leave removes it", kind);
    kolo_dataset_close(&d);
    kolo_dataset_close(&plain);
}

/* A node's share begins and ends within shards. */
static void test_share(void)
{
    kolo_dataset *d;
    kolo_cache *c;
    kolo_cache_info info;
    static uint8_t got[64 * 64 * 3], want[64 * 64 * 3], run[20 * 64 * 64 * 3];
    int same = 1, placed = 1;
    kolo_dataset_open(&d, raw.folder);
    if (kolo_cache_open(&c, d, 700, 2100, 2) < 0) diag("%s", kolo_error_text());
    kolo_cache_get_info(c, &info);
    for (int64_t i = 0; i < raw.count; i++) {
        fixture_pixels(&raw, i, want);
        same &= kolo_dataset_read(d, i, got) == 0 && !memcmp(got, want, sizeof want);
        placed &= (kolo_dataset_memory(d, i) != NULL) == (i >= 700 && i < 2100);
    }
    ok(same && placed && info.bytes < 1400 * 12288 + 4 * 4096,
       "a share: its samples in memory, the others in the files");
    for (int64_t i = 690; same && i < 2110; i += 10) {
        const int64_t n = kolo_dataset_run(d, i, 20);
        same = kolo_dataset_read_run(d, i, n, run) == 0;
        fixture_pixels(&raw, i + n - 1, want);
        same &= !memcmp(run + (n - 1) * 12288, want, sizeof want);
    }
    ok(same, "runs over its ends are whole");
    kolo_cache_close(&c);
    kolo_dataset_close(&d);
}

static int64_t sum_of(const kolo_dataset *d)
{
    static uint8_t data[64 * 64 * 3];
    int64_t sum = 0;
    for (int64_t i = 0; i < raw.count; i += 7)
        if (kolo_dataset_read(d, i, data) == 0) sum += data[5] + data[12000];
    return sum;
}

/* A child fills what it can claim, tells how much, and stays until its input is closed. */
static pid_t start(int *from, int *to)
{
    int out[2], in[2];
    if (pipe(out) < 0 || pipe(in) < 0) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        kolo_dataset *d;
        kolo_cache *c;
        kolo_cache_info info = {0};
        char end;
        close(out[0]), close(in[1]);
        kolo_dataset_open(&d, raw.folder);
        if (kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 1) < 0) _exit(1);
        kolo_cache_get_info(c, &info);
        int64_t told[2] = {info.filled, sum_of(d)};
        if (write(out[1], told, sizeof told) < 0 || read(in[0], &end, 1) < 0) _exit(2);
        kolo_cache_close(&c);
        kolo_dataset_close(&d);
        _exit(0);
    }
    close(out[1]), close(in[0]);
    *from = out[0], *to = in[1];
    return pid;
}

static void test_sharing(void)
{
    enum { MOST = 4 };
    pid_t pid[MOST];
    int from[MOST], to[MOST];
    kolo_dataset *d;
    kolo_cache *c;
    kolo_cache_info info;
    int64_t told[2], filled = 0, want, agree = 0;
    int status = 0, bad = 0;
    kolo_dataset_open(&d, raw.folder);
    want = sum_of(d);
    for (int i = 0; i < MOST; i++) pid[i] = start(&from[i], &to[i]);
    for (int i = 0; i < MOST; i++) {
        if (read(from[i], told, sizeof told) != sizeof told) bad++;
        else filled += told[0], agree += told[1] == want;
    }
    kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 1);
    kolo_cache_get_info(c, &info);
    ok(!bad && filled == info.pieces && info.filled == 0,
       "four processes fill %lld pieces together, each once", (long long)info.pieces);
    is_int(agree, MOST, "and read the same");
    kolo_cache_close(&c);
    ok(there(info.name), "it stays while somebody reads it");
    for (int i = 0; i < MOST; i++) kill(pid[i], SIGKILL);
    for (int i = 0; i < MOST; i++) waitpid(pid[i], &status, 0), close(from[i]), close(to[i]);
    ok(there(info.name), "killed processes leave it");
    kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 1);
    kolo_cache_get_info(c, &info);
    ok(info.filled == 0 && sum_of(d) == want, "and the next uses it as it is");
    kolo_cache_close(&c);
    ok(!there(info.name), "then it is gone");
    kolo_dataset_close(&d);
}

static void test_left_ones(void)
{
    kolo_dataset *d, *other;
    kolo_cache *c;
    kolo_cache_info info;
    int from, to;
    pid_t pid = start(&from, &to);
    int64_t told[2];
    if (read(from, told, sizeof told) != sizeof told) diag("the child told nothing");
    kolo_dataset_open(&d, raw.folder);
    kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 1);
    kolo_cache_get_info(c, &info);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    kolo_dataset_open(&other, jpeg.folder);
    kolo_cache *second;
    kolo_cache_open(&second, other, 0, kolo_dataset_get_info(other)->count, 1);
    ok(there(info.name), "a cache of another split that is used stays");
    kolo_cache_close(&second);
    kolo_cache_close(&c);
    pid = start(&from, &to);
    if (read(from, told, sizeof told) != sizeof told) diag("the child told nothing");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    kolo_cache_open(&second, other, 0, kolo_dataset_get_info(other)->count, 1);
    ok(!there(info.name), "one that a killed process left is removed when another split is cached");
    kolo_cache_close(&second);
    kolo_dataset_close(&other);
    kolo_dataset_close(&d);
}

/* Another process, of user `uid`, makes and locks the first `names` names that a cache may have, and stays.
 */
static pid_t occupy(const char *first, int names, uid_t uid, mode_t mode)
{
    int done[2];
    char end;
    if (pipe(done) < 0) return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        int bad = uid != geteuid() && setresuid(uid, uid, uid) < 0;
        for (int i = 0; i < names; i++) {
            char name[300], number[16] = "";
            if (i) snprintf(number, sizeof number, "-%d", i);
            snprintf(name, sizeof name, "/dev/shm%s%s", first, number);
            const int fd = open(name, O_RDWR | O_CREAT, mode);
            bad |= fd < 0 || fchmod(fd, mode) < 0 || flock(fd, LOCK_EX) < 0;
        }
        if (bad || write(done[1], "x", 1) < 0) _exit(1);
        pause();
    }
    close(done[1]);
    if (read(done[0], &end, 1) != 1) diag("the names cannot be occupied");
    close(done[0]);
    return pid;
}

static void let_go(pid_t pid, const char *first)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; i < 8; i++) {
        char name[300], number[16] = "";
        if (i) snprintf(number, sizeof number, "-%d", i);
        snprintf(name, sizeof name, "/dev/shm%s%s", first, number);
        unlink(name);
    }
}

static void test_occupied(void)
{
    enum { OTHER = 65534 };
    kolo_dataset *d;
    kolo_cache *c;
    kolo_cache_info info;
    kolo_dataset_open(&d, raw.folder);
    const int64_t all = kolo_dataset_get_info(d)->count;
    kolo_cache_open(&c, d, 0, all, 2);
    kolo_cache_get_info(c, &info);
    const int64_t want = sum_of(d);
    kolo_cache_close(&c);
    if (geteuid() == 0) {
        char second[160];
        snprintf(second, sizeof second, "%s-1", info.name);
        pid_t pid = occupy(info.name, 1, OTHER, 0666);
        double begin = kolo_time();
        is_int(kolo_cache_open(&c, d, 0, all, 2), 0,
               "another user has made and locked a file of its name: a cache is made all the same");
        ok(kolo_time() - begin < 3, "at once");
        kolo_cache_info other = {.name = ""};
        if (c) kolo_cache_get_info(c, &other);
        is_text(other.name, second, "under another name");
        is_int(sum_of(d), want, "with the same bytes");
        kolo_cache_close(&c);
        ok(there(info.name), "theirs is left alone");
        let_go(pid, info.name);
        pid = occupy(info.name, 8, OTHER, 0666);
        begin = kolo_time();
        is_int(kolo_cache_open(&c, d, 0, all, 2), 0, "they have all names: it is no error");
        ok(!c && kolo_time() - begin < 3, "but there is no cache, which is clear at once (%s)",
           kolo_error_text());
        is_int(sum_of(d), want, "samples are read from their files");
        let_go(pid, info.name);
    } else skip("another user's file: only root can be two users");
    const pid_t pid = occupy(info.name, 1, geteuid(), 0600);
    const double begin = kolo_time();
    is_int(kolo_cache_open(&c, d, 0, all, 2), 0,
           "a process of this user locks it and never lets go: no error");
    ok(!c && kolo_time() - begin < 15, "after %.1f s there is no cache (%s)", kolo_time() - begin,
       kolo_error_text());
    is_int(sum_of(d), want, "samples are read from their files");
    let_go(pid, info.name);
    kolo_dataset_close(&d);
}

static void test_refusals(void)
{
    kolo_dataset *d;
    kolo_cache *c;
    kolo_dataset_open(&d, raw.folder);
    setenv("SLURM_MEM_PER_NODE", "20", 1);
    is_int(kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 1), KOLO_ECONFIG,
           "36 MB do not fit into a job of 20: %s", kolo_error_text());
    ok(strstr(kolo_error_text(), "are missing") && !c, "the shortfall is told");
    unsetenv("SLURM_MEM_PER_NODE");
    char path[512];
    kolo_shard_places p;
    snprintf(path, sizeof path, "%s/toy-train-00001-of-00003.h5", raw.folder);
    kolo_shard_inspect(path, NULL, &p, NULL);
    const uint8_t wrong = 0xEE;
    int fd = open(path, O_RDWR);
    kolo_file_pwrite(fd, path, &wrong, 1, p.data + 700 * 12288 + 5);
    close(fd);
    is_int(kolo_cache_open(&c, d, 0, kolo_dataset_get_info(d)->count, 3), KOLO_EINPUT,
           "a changed byte is found by its checksum");
    ok(strstr(kolo_error_text(), "sample 1700 (number 700 of") && strstr(kolo_error_text(), "00001-of"), "%s",
       kolo_error_text());
    kolo_dataset_close(&d);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    if (fixture_make(&raw) < 0 || fixture_make(&jpeg) < 0) diag("%s", kolo_error_text());
    test_bytes(&raw, "raw");
    test_bytes(&jpeg, "jpeg");
    test_share();
    test_sharing();
    test_left_ones();
    test_occupied();
    test_refusals();
    fixture_remove(&raw);
    fixture_remove(&jpeg);
    return done_testing();
}
