#include "ckpt/carried.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/manifest.h"
#include "ckpt/stream.h"
#include "kolo/error.h"

typedef struct carried_head {
    char magic[8];
    uint64_t bytes, parts;
} carried_head;

static carried_head head_of(size_t bytes, int parts)
{
    return (carried_head){"kolocar1", bytes, (uint64_t)parts};
}

int kolo_rank_state_write(int folder, const char *path, const carried *c, uint64_t *bytes, uint32_t *crc)
{
    *bytes = 0;
    if (!c->parts) return 0;
    stream out;
    carried_head head = head_of(c->bytes, c->parts);
    KOLO_TRY(kolo_stream_open(&out, folder, path, "carried"));
    int rc = kolo_stream_put(&out, &head, sizeof head);
    if (rc == 0) rc = kolo_stream_put(&out, c->data, c->bytes * (size_t)c->parts);
    for (int i = 0; rc == 0 && i < c->parts; i++) {
        const uint32_t part = kolo_crc32c(0, c->data + (size_t)i * c->bytes, c->bytes);
        rc = kolo_stream_put(&out, &part, sizeof part);
    }
    if (rc == 0) rc = kolo_stream_sync(&out);
    *bytes = out.bytes;
    *crc = out.crc;
    return kolo_stream_close(&out, rc);
}

static int put_part(stream *out, const char *data, size_t bytes, uint32_t *crc)
{
    *crc = kolo_crc32c(0, data, bytes);
    return kolo_stream_put(out, data, bytes);
}

int kolo_rank_parts_write(int folder, const char *path, const kolo_rank_parts *p, uint64_t *bytes,
                          uint32_t *crc, int *rc)
{
    const bool writes = folder >= 0;
    stream out;
    bool opened = false;
    const carried_head head = head_of(p->bytes, p->parts);
    uint32_t *each = writes ? kolo_alloc((size_t)p->parts * sizeof *each) : NULL;
    char *to = writes ? kolo_alloc(p->bytes) : NULL;
    if (writes && *rc == 0 && (!each || !to)) *rc = KOLO_ENOMEM;
    if (writes && *rc == 0) {
        *rc = kolo_stream_open(&out, folder, path, "carried");
        opened = *rc == 0;
    }
    if (opened) *rc = kolo_stream_put(&out, &head, sizeof head);
    int bad = 0; /* of all ranks together: nobody waits for a part any more */
    for (int i = 0; bad == 0 && i < p->parts; i++) {
        bad = p->bring(p->context, i, to);
        if (bad == 0 && writes && *rc == 0) *rc = put_part(&out, to, p->bytes, &each[i]);
    }
    if (bad < 0 && *rc == 0) *rc = bad;
    if (opened && *rc == 0) *rc = kolo_stream_put(&out, each, (size_t)p->parts * sizeof *each);
    if (opened && *rc == 0) *rc = kolo_stream_sync(&out);
    if (opened) {
        *bytes = out.bytes;
        *crc = out.crc;
        *rc = kolo_stream_close(&out, *rc);
    }
    free(each);
    free(to);
    return bad;
}

static int read_at(int fd, const char *path, void *to, size_t bytes, size_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return kolo_fail_io("read", path);
        if (n == 0) return kolo_fail(KOLO_EINPUT, "%s: torn: it ends within a part", path);
        done += (size_t)n;
    }
    return 0;
}

/* Its head is that of a file of this length: else a damaged head would pass for another grid's. */
static int check_head(int fd, const char *path, const carried_head *head)
{
    struct stat info;
    uint64_t data, crcs, all;
    if (fstat(fd, &info) < 0) return kolo_fail_io("read", path);
    const bool fits = !__builtin_mul_overflow(head->bytes, head->parts, &data) &&
                      !__builtin_mul_overflow(head->parts, sizeof(uint32_t), &crcs) &&
                      !__builtin_add_overflow(data, crcs, &all) &&
                      !__builtin_add_overflow(all, sizeof *head, &all) && all == (uint64_t)info.st_size;
    return fits ? 0 : kolo_fail(KOLO_EINPUT, "%s: damaged: it is not as long as its head says", path);
}

static int read_part(int fd, const char *path, int part, int parts, void *to, size_t bytes)
{
    carried_head head, want = head_of(bytes, parts);
    uint32_t crc;
    size_t data = sizeof head, crcs = data + bytes * (size_t)parts;
    KOLO_TRY(read_at(fd, path, &head, sizeof head, 0));
    if (memcmp(head.magic, want.magic, sizeof head.magic))
        return kolo_fail(KOLO_EINPUT,
                         "%s: not the rank-local state of a checkpoint; restore the checkpoint from a copy",
                         path);
    KOLO_TRY(check_head(fd, path, &head));
    if (memcmp(&head, &want, sizeof head)) return 0;
    KOLO_TRY(read_at(fd, path, to, bytes, data + (size_t)part * bytes));
    KOLO_TRY(read_at(fd, path, &crc, sizeof crc, crcs + (size_t)part * sizeof crc));
    if (crc != kolo_crc32c(0, to, bytes))
        return kolo_fail(KOLO_EINPUT, "%s: damaged: the checksum of part %d differs", path, part);
    return 1;
}

/* Rank 0 has compared checksums; this rank may see another folder, or less of it. */
static int listed(const char *path, bool *there)
{
    manifest m;
    struct stat info;
    char *list = kolo_format("%s/manifest.json", path), *file = kolo_format("%s/carried", path);
    int rc = list && file ? kolo_record_read(list, &m) : KOLO_ENOMEM;
    const int64_t bytes = rc == 0 && stat(file, &info) == 0 ? info.st_size : -1;
    *there = rc == 0 && (m.listed ? m.carried_bytes > 0 : bytes >= 0);
    if (rc == 0 && m.listed && *there && (uint64_t)bytes != m.carried_bytes)
        rc = kolo_fail(KOLO_EINPUT, "%s: %s; its manifest says %llu bytes", file,
                       bytes < 0 ? "missing" : "of another length", (unsigned long long)m.carried_bytes);
    free(file);
    free(list);
    return rc;
}

int kolo_checkpoint_read_rank_state(const char *path, int part, int parts, void *to, size_t bytes)
{
    bool there;
    KOLO_TRY(listed(path, &there));
    if (!there) return 0;
    char *file = kolo_format("%s/carried", path);
    if (!file) return KOLO_ENOMEM;
    int fd = open(file, O_RDONLY | O_CLOEXEC), rc = fd >= 0 ? 0 : kolo_fail_io("open", file);
    if (fd >= 0) {
        rc = read_part(fd, file, part, parts, to, bytes);
        close(fd);
    }
    free(file);
    return rc;
}
