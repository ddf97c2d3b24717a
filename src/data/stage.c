#include "data/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/order.h"
#include "data/shard/manifest.h"
#include "data/share.h"
#include "kolo/error.h"

#define BLOCK (UINT64_C(4) << 20)
#define SPARE (INT64_C(16) << 20) /* bytes that are left free */

struct kolo_stage {
    kolo_stage_config config;
    kolo_manifest manifest;
    char *source, *folder; /* absolute; of this split; folder NULL: nothing is copied */
    int users;             /* file; -1: not open */
    int64_t first, last;   /* samples to copy */
    kolo_stage_info info;
};

typedef struct stamp {
    int64_t bytes, source_time, copy_time; /* times in ns */
    uint32_t crc;
} stamp;

static int fail_errno(const char *verb, const char *path) { return kolo_fail(KOLO_EIO, "stage: cannot %s %s: %s", verb, path, strerror(errno)); }

static int64_t time_of(const struct stat *s) { return (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec; }

static char *path_in(const char *folder, const char *file, const char *end) { return kolo_format("%s/%s%s", folder, file, end); }

static bool is_wanted(const kolo_stage *s, const kolo_manifest_shard *m) { return m->first < s->last && m->first + m->count > s->first; }

static bool read_stamp(const kolo_stage *s, const kolo_manifest_shard *m, stamp *to)
{
    char *path = path_in(s->folder, m->file, ".stamp"), *text = NULL;
    const bool read = path && kolo_file_exists(path) && kolo_file_read(path, &text, NULL) == 0 &&
                      sscanf(text, "kolo-stage 1 %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNx32, &to->bytes, &to->source_time, &to->copy_time, &to->crc) == 4;
    free(text);
    free(path);
    return read;
}

static bool is_staged(const kolo_stage *s, const kolo_manifest_shard *m)
{
    char *from = path_in(s->source, m->file, ""), *to = path_in(s->folder, m->file, "");
    struct stat source, copy;
    stamp t;
    const bool staged = from && to && stat(from, &source) == 0 && lstat(to, &copy) == 0 && S_ISREG(copy.st_mode) && read_stamp(s, m, &t) &&
                        t.bytes == source.st_size && t.bytes == copy.st_size && t.source_time == time_of(&source) && t.copy_time == time_of(&copy);
    free(from);
    free(to);
    return staged;
}

static bool shard_done(void *context, int64_t item)
{
    const kolo_stage *s = context;
    const kolo_manifest_shard *m = &s->manifest.shards[item];
    if (is_wanted(s, m)) return is_staged(s, m);
    char *to = path_in(s->folder, m->file, "");
    const bool there = to && kolo_file_exists(to);
    free(to);
    return there;
}

static int checksum(int fd, const char *path, uint64_t bytes, uint8_t *buffer, uint32_t *crc)
{
    *crc = 0;
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < BLOCK ? bytes - at : BLOCK;
        KOLO_TRY(kolo_file_pread(fd, path, buffer, n, at));
        *crc = kolo_crc32c(*crc, buffer, n);
    }
    return 0;
}

/* 1: the disk is full. */
static int copy_blocks(int in, const char *from, int out, const char *to, uint64_t bytes, uint8_t *buffer, uint32_t *crc)
{
    *crc = 0;
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < BLOCK ? bytes - at : BLOCK;
        KOLO_TRY(kolo_file_pread(in, from, buffer, n, at));
        *crc = kolo_crc32c(*crc, buffer, n);
        for (uint64_t done = 0; done < n;) {
            const ssize_t w = pwrite(out, buffer + done, n - done, (off_t)(at + done));
            if (w < 0 && (errno == ENOSPC || errno == EDQUOT)) return 1;
            if (w < 0 && errno != EINTR) return fail_errno("write", to);
            if (w > 0) done += (uint64_t)w;
        }
    }
    if (fsync(out) == 0) return 0;
    return errno == ENOSPC || errno == EDQUOT ? 1 : fail_errno("sync", to);
}

/* From disk to disk, and back from the disk for its checksum. 1: the disk is full. */
static int copy_checked(int in, const char *from, int out, const char *to, stamp *t)
{
    uint8_t *buffer = kolo_alloc(BLOCK);
    uint32_t back = 0;
    int rc = buffer ? copy_blocks(in, from, out, to, (uint64_t)t->bytes, buffer, &t->crc) : KOLO_ECONFIG;
    if (rc == 0) {
        posix_fadvise(out, 0, 0, POSIX_FADV_DONTNEED);
        rc = checksum(out, to, (uint64_t)t->bytes, buffer, &back);
    }
    free(buffer);
    if (rc == 0 && back != t->crc) return kolo_fail(KOLO_EIO, "stage: %s came back from its disk other than it was written; set stage= to another folder", to);
    return rc;
}

static int put_stamp(const kolo_stage *s, const kolo_manifest_shard *m, stamp *t)
{
    char *to = path_in(s->folder, m->file, ""), *path = path_in(s->folder, m->file, ".stamp");
    char text[128];
    struct stat info;
    int rc = to && path ? 0 : KOLO_ECONFIG;
    if (rc == 0 && stat(to, &info) < 0) rc = fail_errno("find", to);
    if (rc == 0) {
        t->copy_time = time_of(&info);
        const int n =
            snprintf(text, sizeof text, "kolo-stage 1 %" PRId64 " %" PRId64 " %" PRId64 " %08" PRIx32 "\n", t->bytes, t->source_time, t->copy_time, t->crc);
        rc = kolo_file_write_atomic(path, text, (size_t)n);
    }
    free(to);
    free(path);
    return rc;
}

/* 1: no room. */
static int copy_shard(kolo_stage *s, const kolo_manifest_shard *m, const char *from, const char *to)
{
    char *aside = kolo_format("%s.part", to);
    int in = aside ? open(from, O_RDONLY | O_CLOEXEC) : -1, out = -1, rc = 0;
    struct stat source;
    if (!aside) return KOLO_ECONFIG;
    if (in < 0 || fstat(in, &source) < 0) rc = fail_errno("open", from);
    if (rc == 0 && kolo_file_free_bytes(s->folder) < source.st_size + SPARE) rc = 1;
    if (rc == 0 && (out = open(aside, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) < 0) rc = fail_errno("create", aside);
    if (rc == 0) {
        stamp t = {.bytes = source.st_size, .source_time = time_of(&source)};
        rc = copy_checked(in, from, out, aside, &t);
        if (rc == 0 && rename(aside, to) < 0) rc = fail_errno("rename", aside);
        if (rc == 0) rc = put_stamp(s, m, &t);
        if (rc == 0) s->info.copied++, s->info.bytes += (uint64_t)t.bytes;
    }
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    if (rc != 0 && out >= 0) unlink(aside);
    free(aside);
    return rc;
}

/* A link put aside and renamed replaces whatever is there at once. */
static int link_shard(const char *from, const char *to)
{
    char *aside = kolo_format("%s.link", to);
    int rc = aside ? 0 : KOLO_ECONFIG;
    if (rc == 0) unlink(aside);
    if (rc == 0 && symlink(from, aside) < 0) rc = fail_errno("link", aside);
    if (rc == 0 && rename(aside, to) < 0) rc = fail_errno("rename", aside);
    free(aside);
    return rc;
}

static int stage_shard(void *context, int64_t item)
{
    kolo_stage *s = context;
    const kolo_manifest_shard *m = &s->manifest.shards[item];
    char *from = path_in(s->source, m->file, ""), *to = path_in(s->folder, m->file, "");
    int rc = !from || !to ? KOLO_ECONFIG : is_wanted(s, m) ? copy_shard(s, m, from, to) : 1;
    if (rc == 1 && is_wanted(s, m) && s->config.strict)
        rc = kolo_fail(KOLO_EIO, "stage: no room for %s in %s; free space there, or set stage_full=read", m->file, s->folder);
    if (rc == 1) rc = link_shard(from, to);
    free(from);
    free(to);
    return rc;
}

/* `root` may be world-writable: its folder must be ours, and nobody else's to enter. */
static int make_private(const char *path)
{
    struct stat info;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return fail_errno("create", path);
    if (lstat(path, &info) < 0) return fail_errno("find", path);
    if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
        return kolo_fail(KOLO_ECONFIG, "stage: %s is not a folder of yours alone; remove it or choose another stage=", path);
    return 0;
}

/* What a path lies on. Other file systems belong to many nodes, as far as one knows. */
enum place { ELSEWHERE, DISK, MEMORY };
static enum place place_of(const char *path)
{
    static const struct {
        unsigned type;
        enum place place;
    } known[] = {{0xef53, DISK} /* ext2, ext3, ext4 */, {0x58465342, DISK} /* XFS */,
                 {0x9123683e, DISK} /* Btrfs */,        {0x2fc12fc1, DISK} /* ZFS */,
                 {0xf2f52010, DISK} /* F2FS */,         {0xca451a4e, DISK} /* bcachefs */,
                 {0x3153464a, DISK} /* JFS */,          {0x794c7630, DISK} /* overlay */,
                 {0x01021994, MEMORY} /* tmpfs */,      {0x858458f6, MEMORY} /* ramfs */};
    struct statfs fs;
    if (statfs(path, &fs) < 0) return ELSEWHERE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].type == (unsigned)fs.f_type) return known[i].place;
    return ELSEWHERE;
}

/* stage=auto: a folder worth copying to, or NULL. */
static const char *choose_root(const kolo_stage *s)
{
    const char *root = getenv("TMPDIR");
    if (!root || !*root) root = "/tmp";
    const char *why = place_of(s->source) != ELSEWHERE ? "they are on this node already"
                      : place_of(root) == MEMORY       ? "TMPDIR is memory (data_cache=ram would hold the samples there)"
                      : place_of(root) == ELSEWHERE    ? "TMPDIR is not a disk of this node"
                                                       : NULL;
    if (why) kolo_info("stage=auto: the shards of %s are read where they are: %s", s->source, why);
    return why ? NULL : root;
}

/* Leaves s->folder NULL where nothing is to be copied. */
static int choose_folder(kolo_stage *s)
{
    const kolo_dataset_info *i = &s->manifest.info;
    const char *root = s->config.folder;
    if (!strcmp(root, "auto") && !(root = choose_root(s))) return 0;
    if (!strcmp(root, "tmpdir")) root = getenv("TMPDIR");
    if (!root || !*root) return kolo_fail(KOLO_ECONFIG, "stage=tmpdir, but TMPDIR is not set in this job; name a folder of the node: stage=DIR");
    if (!kolo_file_exists(root)) return kolo_fail(KOLO_ECONFIG, "stage: %s is not there on this node; name another folder", root);
    char *own = kolo_format("%s/kolo-stage-%u", root, (unsigned)geteuid());
    int rc = own ? make_private(own) : KOLO_ECONFIG;
    if (rc == 0) s->folder = kolo_format("%s/%s-%s-%s", own, i->name, i->split, i->uuid);
    free(own);
    return rc == 0 && !s->folder ? KOLO_ECONFIG : rc;
}

/* The folder exists and is held by a shared lock on `users`; one that was removed in between is made anew. */
static int enter_folder(kolo_stage *s)
{
    char *path = path_in(s->folder, "users", "");
    struct stat held, there;
    int rc = path ? 0 : KOLO_ECONFIG;
    for (bool entered = false; rc == 0 && !entered;) {
        KOLO_TRY_GOTO(rc, make_private(s->folder));
        s->users = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (s->users < 0 && errno == ENOENT) continue;
        if (s->users < 0) rc = fail_errno("open", path);
        while (rc == 0 && flock(s->users, LOCK_SH) < 0)
            if (errno != EINTR) rc = fail_errno("lock", path);
        entered = rc == 0 && fstat(s->users, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino;
        if (!entered && s->users >= 0) close(s->users), s->users = -1;
    }
fail:
    free(path);
    return rc;
}

static int stage_all(kolo_stage *s)
{
    const kolo_share share = {s->users, s->manifest.info.shards, 1, s, shard_done, stage_shard};
    KOLO_TRY(kolo_share_run(&share));
    KOLO_TRY(kolo_manifest_write(s->folder, &s->manifest));
    kolo_stage_info *i = &s->info;
    i->shards = s->manifest.info.shards;
    for (int n = 0; n < i->shards; n++) {
        const kolo_manifest_shard *m = &s->manifest.shards[n];
        const bool staged = is_staged(s, m);
        i->linked += !staged;
        i->unfit += !staged && is_wanted(s, m);
    }
    i->reused = i->shards - i->linked - i->copied;
    if (i->unfit) kolo_warn("stage: no room in %s for %d of %d shards: they are read from %s", s->folder, i->unfit, i->shards, s->source);
    return 0;
}

int kolo_stage_open(kolo_stage **stage, const kolo_stage_config *config)
{
    int rc;
    kolo_stage *s = *stage = kolo_alloc(sizeof *s);
    if (!s) return KOLO_ECONFIG;
    s->config = *config;
    s->users = -1;
    KOLO_TRY_GOTO(rc, kolo_manifest_read(config->source, &s->manifest));
    s->last = s->manifest.info.count;
    if (config->node_of) kolo_order_share(s->last, config->ranks, config->node_of, config->node, &s->first, &s->last);
    s->source = realpath(config->source, NULL);
    if (!s->source) {
        rc = fail_errno("find", config->source);
        goto fail;
    }
    KOLO_TRY_GOTO(rc, choose_folder(s));
    if (s->folder) {
        KOLO_TRY_GOTO(rc, enter_folder(s));
        KOLO_TRY_GOTO(rc, stage_all(s));
    }
    s->config.source = s->config.folder = NULL; /* the caller's */
    s->config.node_of = NULL;
    return 0;
fail:
    kolo_stage_close(stage);
    return rc;
}

/* Renamed before it is removed: who enters meanwhile makes a new one. */
static void remove_folder(const kolo_stage *s)
{
    char *gone = kolo_format("%s.gone-%d", s->folder, (int)getpid());
    if (gone && rename(s->folder, gone) == 0 && kolo_folder_remove(gone) < 0) kolo_warn("%s", kolo_error_text());
    free(gone);
}

void kolo_stage_close(kolo_stage **stage)
{
    kolo_stage *s = *stage;
    if (!s) return;
    if (s->users >= 0 && !s->config.keep && flock(s->users, LOCK_EX | LOCK_NB) == 0) remove_folder(s);
    if (s->users >= 0) close(s->users);
    kolo_manifest_free(&s->manifest);
    free(s->source);
    free(s->folder);
    free(s);
    *stage = NULL;
}

const char *kolo_stage_folder(const kolo_stage *stage) { return stage->folder ? stage->folder : stage->source; }

void kolo_stage_get_info(const kolo_stage *stage, kolo_stage_info *info) { *info = stage->info; }
