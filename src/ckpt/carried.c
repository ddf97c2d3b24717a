#include "ckpt/carried.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/stream.h"
#include "kolo/error.h"

typedef struct carried_head {
    char magic[8];
    uint64_t bytes, parts;
} carried_head;

static carried_head head_of(size_t bytes, int parts) { return (carried_head){"kolocar1", bytes, (uint64_t)parts}; }

int kolo_carried_write(const char *folder, const carried *c)
{
    if (!c->parts) return 0;
    stream out;
    carried_head head = head_of(c->bytes, c->parts);
    char *path = kolo_format("%s/carried", folder);
    int rc = path ? kolo_stream_open(&out, path) : KOLO_ECONFIG;
    free(path);
    KOLO_TRY(rc);
    rc = kolo_stream_put(&out, &head, sizeof head);
    if (rc == 0) rc = kolo_stream_put(&out, c->data, c->bytes * (size_t)c->parts);
    for (int i = 0; rc == 0 && i < c->parts; i++) {
        uint32_t crc = kolo_crc32c(0, c->data + (size_t)i * c->bytes, c->bytes);
        rc = kolo_stream_put(&out, &crc, sizeof crc);
    }
    if (rc == 0) rc = kolo_stream_sync(&out);
    int closed = kolo_stream_close(&out);
    return rc < 0 ? rc : closed;
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

static int read_part(int fd, const char *path, int part, int parts, void *to, size_t bytes)
{
    carried_head head, want = head_of(bytes, parts);
    uint32_t crc;
    size_t data = sizeof head, crcs = data + bytes * (size_t)parts;
    KOLO_TRY(read_at(fd, path, &head, sizeof head, 0));
    if (memcmp(head.magic, want.magic, sizeof head.magic)) return kolo_fail(KOLO_EINPUT, "%s: not what a checkpoint carries", path);
    if (memcmp(&head, &want, sizeof head)) return 0;
    KOLO_TRY(read_at(fd, path, to, bytes, data + (size_t)part * bytes));
    KOLO_TRY(read_at(fd, path, &crc, sizeof crc, crcs + (size_t)part * sizeof crc));
    if (crc != kolo_crc32c(0, to, bytes))
        return kolo_fail(KOLO_EINPUT, "%s: damaged: the checksum of part %d differs; without this file the run goes on with nothing carried", path, part);
    return 1;
}

int kolo_checkpoint_read_carried(const char *path, int part, int parts, void *to, size_t bytes)
{
    char *file = kolo_format("%s/carried", path);
    if (!file) return KOLO_ECONFIG;
    int fd = open(file, O_RDONLY | O_CLOEXEC), rc = fd >= 0 || errno == ENOENT ? 0 : kolo_fail_io("open", file);
    if (fd >= 0) {
        rc = read_part(fd, file, part, parts, to, bytes);
        close(fd);
    }
    free(file);
    return rc;
}
