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

#include "base/temp_file.h"
#include "base/failure.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/order.h"
#include "data/shard/manifest.h"
#include "data/share.h"

#define BLOCK (UINT64_C(4) << 20)
#define SPARE (INT64_C(16) << 20) /* bytes that are left free */

struct kolo_stage {
    kolo_stage_config config;
    kolo_manifest manifest;
    char *source, *folder; /* absolute; of this split; folder NULL: nothing is copied */
    char *name;            /* of the folder in `own` */
    int own;               /* the folder of all that this user stages at that place; -1: not open */
    int held, users;       /* the split's; a file in it; -1: not open */
    int64_t first, last;   /* samples to copy */
    kolo_stage_info info;
};

typedef struct stamp {
    int64_t bytes, source_time, copy_time; /* times in ns */
    uint32_t crc;
} stamp;

static int fail_errno(const char *verb, const char *path)
{
    return kolo_fail(KOLO_EIO, "staging: cannot %s %s: %s", verb, path, strerror(errno));
}

static int64_t mtime_ns(const struct stat *s)
{
    return (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec;
}

static char *path_in(const char *folder, const char *file, const char *end)
{
    return kolo_format("%s/%s%s", folder, file, end);
}

/* The same in the folder that is held: names there are not found through its path again. */
static int stat_in(const kolo_stage *s, const char *name, struct stat *info)
{
    return fstatat(s->held, name, info, AT_SYMLINK_NOFOLLOW);
}

static bool is_wanted(const kolo_stage *s, const kolo_manifest_shard *m)
{
    return m->first < s->last && m->first + m->count > s->first;
}

static bool read_stamp(const kolo_stage *s, const kolo_manifest_shard *m, stamp *to)
{
    char *name = kolo_format("%s.stamp", m->file), text[128];
    const int fd = name ? openat(s->held, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0) close(fd);
    free(name);
    return sscanf(text, "kolo-stage 1 %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNx32, &to->bytes,
                  &to->source_time, &to->copy_time, &to->crc) == 4;
}

static bool is_staged(const kolo_stage *s, const kolo_manifest_shard *m)
{
    char *from = path_in(s->source, m->file, "");
    struct stat source, copy;
    stamp t;
    const bool staged = from && stat(from, &source) == 0 && stat_in(s, m->file, &copy) == 0 &&
                        S_ISREG(copy.st_mode) && read_stamp(s, m, &t) && t.bytes == source.st_size &&
                        t.bytes == copy.st_size && t.source_time == mtime_ns(&source) &&
                        t.copy_time == mtime_ns(&copy);
    free(from);
    return staged;
}

static bool shard_done(void *context, int64_t item)
{
    const kolo_stage *s = context;
    const kolo_manifest_shard *m = &s->manifest.shards[item];
    return is_wanted(s, m) ? is_staged(s, m) : faccessat(s->held, m->file, F_OK, 0) == 0;
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
static int copy_blocks(int in, const char *from, int out, const char *to, uint64_t bytes, uint8_t *buffer,
                       uint32_t *crc)
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
    int rc = buffer ? copy_blocks(in, from, out, to, (uint64_t)t->bytes, buffer, &t->crc) : KOLO_ENOMEM;
    if (rc == 0) {
        posix_fadvise(out, 0, 0, POSIX_FADV_DONTNEED);
        rc = checksum(out, to, (uint64_t)t->bytes, buffer, &back);
    }
    free(buffer);
    if (rc == 0 && back != t->crc)
        return kolo_fail(
            KOLO_EIO,
            "staging: %s has other bytes on its disk than were written; set staging= to another folder", to);
    return rc;
}

static int put_stamp(const kolo_stage *s, const kolo_manifest_shard *m, stamp *t)
{
    char *name = kolo_format("%s.stamp", m->file), *path = path_in(s->folder, m->file, ".stamp"), text[128];
    struct stat info;
    kolo_temp_file a;
    int rc = name && path ? 0 : KOLO_ENOMEM;
    if (rc == 0 && stat_in(s, m->file, &info) < 0) rc = fail_errno("find", path);
    if (rc == 0 && (rc = kolo_temp_open_in(&a, s->held, name, path)) == 0) {
        t->copy_time = mtime_ns(&info);
        const int n =
            snprintf(text, sizeof text, "kolo-stage 1 %" PRId64 " %" PRId64 " %" PRId64 " %08" PRIx32 "\n",
                     t->bytes, t->source_time, t->copy_time, t->crc);
        rc = kolo_temp_commit(&a, path, kolo_file_pwrite(a.fd, path, text, (size_t)n, 0));
    }
    free(name);
    free(path);
    return rc;
}

/* 1: no room. A link that lies there is replaced, not followed: it leads to the source. */
static int copy_open(kolo_stage *s, const kolo_manifest_shard *m, int in, const char *from, const char *to,
                     stamp *t)
{
    kolo_temp_file a;
    char *part = kolo_format("%s.part", m->file); /* of an older version that was killed */
    if (part) unlinkat(s->held, part, 0);
    free(part);
    KOLO_TRY(kolo_temp_open_in(&a, s->held, m->file, to));
    const int rc = copy_checked(in, from, a.fd, to, t),
              done = kolo_temp_commit(&a, to, rc == 1 ? KOLO_EIO : rc);
    return rc == 1 ? rc : done;
}

/* 1: no room. */
static int copy_shard(kolo_stage *s, const kolo_manifest_shard *m, const char *from, const char *to)
{
    struct stat source;
    const int in = open(from, O_RDONLY | O_CLOEXEC);
    int rc = in < 0 || fstat(in, &source) < 0 ? fail_errno("open", from) : 0;
    if (rc == 0 && kolo_file_free_bytes(s->folder) < source.st_size + SPARE) rc = 1;
    if (rc == 0) {
        stamp t = {.bytes = source.st_size, .source_time = mtime_ns(&source)};
        rc = copy_open(s, m, in, from, to, &t);
        if (rc == 0) rc = put_stamp(s, m, &t);
        if (rc == 0) s->info.copied++, s->info.bytes += (uint64_t)t.bytes;
    }
    if (in >= 0) close(in);
    return rc;
}

/* A link put aside and renamed replaces whatever is there at once. */
static int link_shard(const kolo_stage *s, const kolo_manifest_shard *m, const char *from, const char *to)
{
    char *aside = kolo_format("%s.link", m->file);
    int rc = aside ? 0 : KOLO_ENOMEM;
    if (rc == 0) unlinkat(s->held, aside, 0);
    if (rc == 0 && symlinkat(from, s->held, aside) < 0) rc = fail_errno("link", to);
    if (rc == 0 && renameat(s->held, aside, s->held, m->file) < 0) rc = fail_errno("rename", to);
    free(aside);
    return rc;
}

static int stage_shard(void *context, int64_t item)
{
    kolo_stage *s = context;
    const kolo_manifest_shard *m = &s->manifest.shards[item];
    char *from = path_in(s->source, m->file, ""), *to = path_in(s->folder, m->file, "");
    int rc = !from || !to ? KOLO_ENOMEM : is_wanted(s, m) ? copy_shard(s, m, from, to) : 1;
    if (rc == 1 && is_wanted(s, m) && s->config.strict)
        rc = kolo_fail(KOLO_EIO, "staging: no room for %s in %s; free space there, or set staging_full=read",
                       m->file, s->folder);
    if (rc == 1) rc = link_shard(s, m, from, to);
    free(from);
    free(to);
    return rc;
}

/* Where `in` is everybody's, its folder must be ours, and nobody else's to enter. Opened, or negative. */
static int open_private(int in, const char *name, const char *path)
{
    struct stat info;
    if (mkdirat(in, name, 0700) < 0 && errno != EEXIST) return fail_errno("create", path);
    const int fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return fail_errno("find", path);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() && !(info.st_mode & 077)) return fd;
    if (fd >= 0) close(fd);
    return kolo_fail(
        KOLO_ECONFIG,
        "staging: %s is not a folder of yours alone; remove it or choose another staging=", path);
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

/* staging=auto: a folder worth copying to, or NULL. */
static const char *choose_root(const kolo_stage *s)
{
    const char *root = getenv("TMPDIR");
    if (!root || !*root) root = "/tmp";
    const char *why = place_of(s->source) != ELSEWHERE ? "they are on this node already"
                      : place_of(root) == MEMORY
                          ? "TMPDIR is memory (data_cache=ram would hold the samples there)"
                      : place_of(root) == ELSEWHERE ? "TMPDIR is not a disk of this node"
                                                    : NULL;
    if (why) kolo_info("staging=auto: the shards of %s are read where they are: %s", s->source, why);
    return why ? NULL : root;
}

/* What a killed run had begun to remove. Who still does holds the lock. */
static void remove_gone(int own, const char *name, const char *path)
{
    const char *number = strstr(name, ".gone-");
    if (!number || strspn(number + 6, "0123456789") != strlen(number + 6)) return;
    const int folder = openat(own, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int users = folder < 0 ? -1 : openat(folder, "users", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    const bool dead = folder >= 0 && (users < 0 ? errno == ENOENT : flock(users, LOCK_EX | LOCK_NB) == 0);
    if (dead && kolo_folder_remove_in(own, name, path) < 0) kolo_warn("%s", kolo_error_text());
    if (users >= 0) close(users);
    if (folder >= 0) close(folder);
}

static int enter_own(kolo_stage *s, const char *path)
{
    kolo_folder_names names;
    KOLO_TRY(s->own = open_private(AT_FDCWD, path, path));
    if (kolo_folder_list(path, &names) < 0) return 0;
    for (int64_t i = 0; i < names.count; i++) remove_gone(s->own, names.list[i], path);
    kolo_folder_free(&names);
    return 0;
}

/* Leaves s->folder NULL where nothing is to be copied. */
static int choose_folder(kolo_stage *s)
{
    const kolo_dataset_info *i = &s->manifest.info;
    const char *root = s->config.folder;
    if (!strcmp(root, "auto") && !(root = choose_root(s))) return 0;
    if (!strcmp(root, "tmpdir")) root = getenv("TMPDIR");
    if (!root || !*root)
        return kolo_fail(
            KOLO_ECONFIG,
            "staging=tmpdir, but TMPDIR is not set in this job; name a folder of the node: staging=DIR");
    if (!kolo_file_exists(root))
        return kolo_fail(KOLO_ECONFIG, "staging: %s is not there on this node; name another folder", root);
    char *own = kolo_format("%s/kolo-stage-%u", root, (unsigned)geteuid());
    int rc = own ? enter_own(s, own) : KOLO_ENOMEM;
    s->name = kolo_format("%s-%s-%s", i->name, i->split, i->uuid);
    if (rc == 0 && s->name) s->folder = kolo_format("%s/%s", own, s->name);
    free(own);
    return rc == 0 && !s->folder ? KOLO_ENOMEM : rc;
}

static void close_folder(kolo_stage *s)
{
    if (s->users >= 0) close(s->users);
    if (s->held >= 0) close(s->held);
    s->users = s->held = -1;
}

/* One try. 1: entered, 0: it was removed in between. */
static int try_to_enter(kolo_stage *s, const char *path)
{
    struct stat held, there;
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    KOLO_TRY(s->held = open_private(s->own, s->name, s->folder));
    s->users = openat(s->held, "users", flags, 0600);
    if (s->users < 0 && errno == ENOENT) return 0;
    if (s->users < 0) return fail_errno("open", path);
    while (flock(s->users, LOCK_SH) < 0)
        if (errno != EINTR) return fail_errno("lock", path);
    return fstat(s->held, &held) == 0 && fstatat(s->own, s->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_ino == there.st_ino && stat_in(s, "users", &there) == 0;
}

/* The folder exists and is held by a shared lock on `users`; one that was removed in between is made anew. */
static int enter_folder(kolo_stage *s)
{
    int rc = 0;
    char *path = path_in(s->folder, "users", "");
    if (!path) return KOLO_ENOMEM;
    while ((rc = try_to_enter(s, path)) == 0) close_folder(s);
    free(path);
    return rc < 0 ? rc : 0;
}

static int stage_all(kolo_stage *s)
{
    const kolo_share share = {s->users, s->manifest.info.shards, 1, s, shard_done, stage_shard, 0};
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
    if (i->unfit)
        kolo_warn("staging: no room in %s for %d of %d shards: they are read from %s", s->folder, i->unfit,
                  i->shards, s->source);
    return 0;
}

int kolo_stage_open(kolo_stage **stage, const kolo_stage_config *config)
{
    int rc;
    kolo_stage *s = *stage = kolo_alloc(sizeof *s);
    if (!s) return KOLO_ENOMEM;
    s->config = *config;
    s->own = s->held = s->users = -1;
    KOLO_TRY_GOTO(rc, kolo_manifest_read(config->source, &s->manifest));
    s->last = s->manifest.info.count;
    if (config->node_of)
        kolo_order_share(s->last, config->ranks, config->node_of, config->node, &s->first, &s->last);
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
    char *gone = kolo_format("%s.gone-%d", s->name, (int)getpid());
    if (gone && renameat(s->own, s->name, s->own, gone) == 0 &&
        kolo_folder_remove_in(s->own, gone, s->folder) < 0)
        kolo_warn("%s", kolo_error_text());
    free(gone);
}

void kolo_stage_close(kolo_stage **stage)
{
    kolo_stage *s = *stage;
    if (!s) return;
    kolo_failure before;
    kolo_error_keep(&before);
    if (s->users >= 0 && !s->config.keep && flock(s->users, LOCK_EX | LOCK_NB) == 0) remove_folder(s);
    close_folder(s);
    if (s->own >= 0) close(s->own);
    kolo_manifest_free(&s->manifest);
    free(s->source);
    free(s->folder);
    free(s->name);
    free(s);
    *stage = NULL;
    kolo_error_restore(&before, before.status);
}

const char *kolo_stage_folder(const kolo_stage *stage)
{
    return stage->folder ? stage->folder : stage->source;
}

void kolo_stage_get_info(const kolo_stage *stage, kolo_stage_info *info) { *info = stage->info; }
