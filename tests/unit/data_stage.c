/* Staging: copies that are whole, made once, used again, made anew when the source changes, and links
 * where there is no room. */
#include "data_fixture.h"
#include "tap.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/log.h"
#include "data/shard/dataset.h"
#include "data/stage.h"

/* 11 MB, 2.8 MiB a shard */
static fixture f = {.count = 900, .shards = 6, .height = 64, .width = 64, .channels = 3};
static char root[256];

static kolo_stage_config config_of(const char *to)
{
    return (kolo_stage_config){.source = f.folder, .folder = to, .keep = true};
}

/* Opens, compares all samples with what they were made from, closes. */
static int same_samples(const char *folder)
{
    static uint8_t want[64 * 64 * 3], got[64 * 64 * 3];
    kolo_dataset *d;
    int same = kolo_dataset_open(&d, folder) == 0;
    for (int64_t i = 0; same && i < f.count; i += 3) {
        fixture_pixels(&f, i, want);
        same = kolo_dataset_read(d, i, got) == 0 && memcmp(want, got, sizeof want) == 0;
    }
    if (d) kolo_dataset_close(&d);
    return same;
}

static void path_of(char *path, size_t size, const char *folder, int shard)
{
    snprintf(path, size, "%s/toy-train-%05d-of-%05d.h5", folder, shard, f.shards);
}

static int is_link(const char *folder, int shard)
{
    char path[640];
    struct stat s;
    path_of(path, sizeof path, folder, shard);
    return lstat(path, &s) == 0 && S_ISLNK(s.st_mode);
}

static void test_reuse(void)
{
    kolo_stage *s;
    kolo_stage_info i;
    char folder[512], path[640], touched[640];
    const kolo_stage_config c = config_of(root);
    if (kolo_stage_open(&s, &c) < 0) diag("%s", kolo_error_text());
    kolo_stage_get_info(s, &i);
    snprintf(folder, sizeof folder, "%s", kolo_stage_folder(s));
    ok(i.copied == 6 && i.reused == 0 && i.linked == 0 && i.bytes > 11000000, "six shards are copied");
    ok(same_samples(folder) && !is_link(folder, 3), "with the same samples");
    kolo_stage_close(&s);
    ok(same_samples(folder), "they stay");
    kolo_stage_open(&s, &c);
    kolo_stage_get_info(s, &i);
    ok(i.copied == 0 && i.reused == 6, "and are used again");
    kolo_stage_close(&s);
    path_of(path, sizeof path, folder, 2);
    if (truncate(path, 100000) < 0) diag("truncate");
    path_of(touched, sizeof touched, f.folder, 4);
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    utimensat(AT_FDCWD, touched, times, 0);
    strcat(path, ".part");
    fclose(fopen(path, "w")); /* as a killed process leaves it */
    kolo_stage_open(&s, &c);
    kolo_stage_get_info(s, &i);
    ok(i.copied == 2 && i.reused == 4 && same_samples(folder),
       "a cut copy and one whose source has changed are made anew");
    kolo_stage_close(&s);
    kolo_stage_config passing = c;
    passing.keep = false;
    kolo_stage *other;
    kolo_stage_open(&other, &c);
    kolo_stage_open(&s, &passing);
    kolo_stage_close(&s);
    ok(same_samples(folder), "keep=false removes nothing that another process uses");
    kolo_stage_close(&other);
    kolo_stage_open(&s, &passing);
    kolo_stage_close(&s);
    ok(access(folder, F_OK) < 0, "the last one cleans up");
}

static void test_together(void)
{
    int copied = 0, failed = 0, ends[2];
    if (pipe(ends) < 0) return;
    for (int p = 0; p < 4; p++)
        if (fork() == 0) {
            kolo_stage *s;
            kolo_stage_info i = {0};
            const kolo_stage_config c = config_of(root);
            if (kolo_stage_open(&s, &c) < 0) i.copied = 100;
            else kolo_stage_get_info(s, &i);
            if (!s || !same_samples(kolo_stage_folder(s))) i.copied += 1000;
            if (write(ends[1], &i, sizeof i) != sizeof i) _exit(1);
            kolo_stage_close(&s);
            _exit(0);
        }
    for (int p = 0; p < 4; p++) {
        kolo_stage_info i;
        if (read(ends[0], &i, sizeof i) != sizeof i || i.copied + i.reused != 6) failed++;
        copied += i.copied;
    }
    while (wait(NULL) > 0) continue;
    ok(!failed && copied == 6, "four processes copy each shard once between them (%d)", copied);
    close(ends[0]), close(ends[1]);
    kolo_stage *s;
    kolo_stage_config c = config_of(root);
    c.keep = false;
    kolo_stage_open(&s, &c);
    kolo_stage_close(&s);
}

static void test_local(void)
{
    static const int nodes[] = {0, 1, 2};
    kolo_stage *s;
    kolo_stage_info i;
    kolo_stage_config c = config_of(root);
    c.keep = false, c.node = 1, c.ranks = 3, c.node_of = nodes;
    if (kolo_stage_open(&s, &c) < 0) diag("%s", kolo_error_text());
    kolo_stage_get_info(s, &i);
    const char *folder = kolo_stage_folder(s);
    ok(i.copied == 2 && i.linked == 4 && i.unfit == 0 && is_link(folder, 1) && !is_link(folder, 2) &&
           !is_link(folder, 3) && is_link(folder, 4),
       "of three nodes the second copies its two shards");
    ok(same_samples(folder), "and reaches the others at the source");
    kolo_stage *whole;
    c = config_of(root);
    kolo_stage_open(&whole, &c);
    kolo_stage_get_info(whole, &i);
    ok(i.copied == 4 && i.reused == 2 && same_samples(folder),
       "copies take the place of links when all are wanted");
    kolo_stage_close(&whole);
    kolo_stage_close(&s);
}

static void test_refusals(void)
{
    kolo_stage *s;
    kolo_stage_config c = config_of("/nonexistent/place");
    is_int(kolo_stage_open(&s, &c), KOLO_ECONFIG, "no such folder: %s", kolo_error_text());
    unsetenv("TMPDIR");
    c = config_of("tmpdir");
    is_int(kolo_stage_open(&s, &c), KOLO_ECONFIG, "no TMPDIR: %s", kolo_error_text());
    c = config_of(root);
    c.source = root;
    is_int(kolo_stage_open(&s, &c), KOLO_EINPUT, "no split: %s", kolo_error_text());
    char open_to_all[300];
    snprintf(open_to_all, sizeof open_to_all, "%s/kolo-stage-%u", root, (unsigned)geteuid());
    mkdir(open_to_all, 0700);
    chmod(open_to_all, 0777);
    c = config_of(root);
    is_int(kolo_stage_open(&s, &c), KOLO_ECONFIG, "a folder that others can write to: %s", kolo_error_text());
    chmod(open_to_all, 0700);
}

/* A file system of 24 MiB, of which 16 stay free, in a mount namespace of our own. Status: 0 good, 1
 * bad, 77 not possible. */
static int fill_disk(void)
{
    char place[300];
    kolo_stage *s;
    kolo_stage_info i;
    snprintf(place, sizeof place, "%s/small", root);
    mkdir(place, 0700);
    if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) return 77;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", place, "tmpfs", 0, "size=24m") < 0)
        return 77;
    kolo_stage_config c = config_of(place);
    kolo_log_set_level(KOLO_LOG_ERROR);
    if (kolo_stage_open(&s, &c) < 0) return 1;
    kolo_stage_get_info(s, &i);
    int good = i.copied > 0 && i.copied < 6 && i.unfit == 6 - i.copied && i.linked == i.unfit &&
               same_samples(kolo_stage_folder(s));
    kolo_stage_close(&s);
    c.strict = true;
    good &= kolo_stage_open(&s, &c) == KOLO_EIO && strstr(kolo_error_text(), "no room for toy-train-");
    return good ? 0 : 1;
}

static void test_full(void)
{
    int status = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) _exit(fill_disk());
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip("no small file system can be mounted here");
    else
        ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "a full disk: shards that do not fit are links, or an error when strict");
}

/* What the source and the folder for copies lie on, as told to who asks. */
enum { NFS = 0x6969, EXT4 = 0xef53, TMPFS = 0x01021994, UNKNOWN = 0x12345 };
static long type_of_source = EXT4, type_of_root = EXT4;
int statfs(const char *path, struct statfs *fs)
{
    *fs =
        (struct statfs){.f_type = strncmp(path, f.folder, strlen(f.folder)) ? type_of_root : type_of_source};
    return 0;
}

static void auto_stages(long source, long to, int copied, const char *text)
{
    kolo_stage *s = NULL;
    kolo_stage_info i = {0};
    kolo_stage_config c = config_of("auto");
    c.keep = false;
    type_of_source = source;
    type_of_root = to;
    if (kolo_stage_open(&s, &c) < 0) diag("%s", kolo_error_text());
    else kolo_stage_get_info(s, &i);
    const bool away = s && strncmp(kolo_stage_folder(s), f.folder, strlen(f.folder)) != 0;
    ok(s && i.copied == copied && away == (copied > 0) && same_samples(kolo_stage_folder(s)),
       "staging=auto: %s", text);
    kolo_stage_close(&s);
}

static void test_auto(void)
{
    setenv("TMPDIR", root, 1);
    auto_stages(NFS, EXT4, 6, "from a network to a disk of the node");
    auto_stages(UNKNOWN, EXT4, 6, "from what one does not know likewise");
    auto_stages(EXT4, EXT4, 0, "nothing from disk to disk");
    auto_stages(NFS, NFS, 0, "nothing to a network");
    auto_stages(NFS, TMPFS, 0, "nothing to memory");
}

int main(void)
{
    snprintf(root, sizeof root, "%s/kolo-test-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root) || fixture_make(&f) < 0) diag("%s", kolo_error_text());
    test_reuse();
    test_together();
    test_local();
    test_full();
    test_refusals();
    test_auto();
    fixture_remove(&f);
    kolo_folder_remove(root);
    return done_testing();
}
