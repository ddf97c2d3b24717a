/* Pages of one size. Each begins with its number (8 bytes), 2 bytes, flags (2), and where its free part
 * begins and ends (2, 2), or, of a value that has pages of its own, how many those are (4). The first
 * two pages are heads, of which the one of the later transaction holds; the others make a tree, whose
 * nodes are found by offsets from byte 16 on. Source: libraries/liblmdb/mdb.c of LMDB 0.9 (MDB_page,
 * MDB_meta, MDB_db, MDB_node). */
#include "readers/lmdb_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "readers/text_rows.h"

#define MAGIC 0xBEEFC0DEu
#define VERSION 1
#define MOST_DEPTH 32
#define MOST_KEY_BYTES 511
#define NO_PAGE UINT64_MAX
/* in a head */
enum {
    HEAD_MAGIC = 16,
    HEAD_VERSION = 20,
    HEAD_PAGE = 40,
    HEAD_ENTRIES = 120,
    HEAD_ROOT = 128,
    HEAD_LAST = 136,
    HEAD_STEP = 144,
    HEAD_BYTES = 152
};
/* in a page, in a node */
enum { PAGE_FLAGS = 10, PAGE_LOWER = 12, PAGE_UPPER = 14, PAGE_RUN = 12, PAGE_BYTES = 16, NODE_BYTES = 8 };
enum { BRANCH = 1, LEAF = 2, OVERFLOW = 4, OWN_PAGES = 1, KINDS = 0x2F };

static uint64_t number_at(const uint8_t *at, int bytes)
{
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--) n = n << 8 | at[i];
    return n;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static int open_data(const char *path, struct stat *info)
{
    char *file = kolo_folder_exists(path) ? kolo_format("%s/data.mdb", path) : kolo_strdup(path);
    const int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    free(file);
    if (fd >= 0 && fstat(fd, info) == 0 && S_ISREG(info->st_mode)) return fd;
    if (fd >= 0) close(fd), errno = EINVAL;
    return -1;
}

bool lmdb_is_one(const char *path)
{
    uint8_t head[HEAD_BYTES];
    struct stat info;
    const int fd = open_data(path, &info);
    const bool is_one =
        fd >= 0 && pread(fd, head, sizeof head, 0) == HEAD_BYTES && number_at(head + HEAD_MAGIC, 4) == MAGIC;
    if (fd >= 0) close(fd);
    return is_one;
}

static int map_file(lmdb_file *f)
{
    struct stat info;
    const int fd = open_data(f->path, &info);
    if (fd < 0)
        return kolo_fail(errno == ENOENT || errno == ENOTDIR || errno == EINVAL ? KOLO_EINPUT : KOLO_EIO,
                         "%s: no LMDB (a folder that holds data.mdb, or that file): %s", f->path,
                         strerror(errno));
    f->bytes = (size_t)info.st_size;
    void *map = f->bytes >= HEAD_BYTES ? mmap(NULL, f->bytes, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    const int cause = errno;
    close(fd);
    if (map == MAP_FAILED) return kolo_fail(KOLO_EIO, "%s: cannot map it: %s", f->path, strerror(cause));
    f->map = map;
    if (!f->map || number_at(f->map + HEAD_MAGIC, 4) != MAGIC)
        return kolo_fail(KOLO_EINPUT, "%s: no LMDB, or one of a machine of another kind", f->path);
    return 0;
}

static int read_heads(lmdb_file *f)
{
    const uint8_t *head = f->map;
    f->page = (size_t)number_at(head + HEAD_PAGE, 4);
    if (f->page < 256 || f->page > 65536 || (f->page & (f->page - 1)) || f->bytes < 2 * f->page)
        return kolo_fail(KOLO_EINPUT, "%s: truncated, or its first page is damaged", f->path);
    const uint8_t *second = head + f->page;
    if (number_at(second + HEAD_MAGIC, 4) == MAGIC &&
        number_at(second + HEAD_STEP, 8) > number_at(head + HEAD_STEP, 8))
        head = second;
    if (number_at(head + HEAD_VERSION, 4) != VERSION)
        return kolo_fail(KOLO_EINPUT, "%s: version %" PRIu64 " of LMDB; this program reads %d", f->path,
                         number_at(head + HEAD_VERSION, 4), VERSION);
    f->root = number_at(head + HEAD_ROOT, 8);
    f->entries = number_at(head + HEAD_ENTRIES, 8);
    f->pages = f->bytes / f->page;
    const uint64_t last = number_at(head + HEAD_LAST, 8);
    if (last < f->pages) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "%s: truncated: page %" PRIu64 " is used, %" PRIu64 " are there; copy it again", f->path,
                     last, f->pages);
}

int lmdb_open(lmdb_file *f, const char *path)
{
    *f = (lmdb_file){.path = kolo_strdup(path)};
    int rc = f->path ? map_file(f) : KOLO_ENOMEM;
    if (rc == 0) rc = read_heads(f);
    if (rc < 0) lmdb_close(f);
    return rc;
}

void lmdb_close(lmdb_file *f)
{
    if (f->map) munmap((void *)(uintptr_t)f->map, f->bytes);
    free(f->path);
    *f = (lmdb_file){0};
}

/* ---- the tree ------------------------------------------------------------------------------------------ */

typedef struct walk {
    lmdb_file *f;
    int (*take)(void *context, lmdb_part key, lmdb_part value);
    void *context;
} walk;

static int damaged(const lmdb_file *f, uint64_t page)
{
    return kolo_fail(KOLO_EINPUT, "%s: page %" PRIu64 " is damaged", f->path, page);
}

static int wrong_value(const lmdb_file *f, lmdb_part key, const char *what)
{
    char text[LMDB_MOST_KEY];
    lmdb_key_text(key, text);
    return kolo_fail(KOLO_EINPUT, "%s/%s: %s", f->path, text, what);
}

/* A page of the tree, or NULL. */
static const uint8_t *find_page(const lmdb_file *f, uint64_t number, int *kind)
{
    if (number >= f->pages) return NULL;
    const uint8_t *p = f->map + number * f->page;
    *kind = (int)number_at(p + PAGE_FLAGS, 2) & KINDS;
    return number_at(p, 8) == number ? p : NULL;
}

/* The value of a node, of which `size` bytes are said to be: behind the key, or on pages of its own. */
static int find_value(const lmdb_file *f, const uint8_t *at, const uint8_t *end, size_t size, lmdb_part key,
                      bool own, lmdb_part *value)
{
    int kind = 0;
    if (!own && size > (size_t)(end - at)) return wrong_value(f, key, "its value is longer than its page");
    *value = (lmdb_part){at, size};
    if (!own) return 0;
    const uint64_t number = end - at >= 8 ? number_at(at, 8) : NO_PAGE;
    const uint8_t *first = find_page(f, number, &kind);
    const uint64_t run = first ? number_at(first + PAGE_RUN, 4) : 0;
    if (!first || kind != OVERFLOW || run > f->pages - number || size + PAGE_BYTES > run * f->page)
        return wrong_value(f, key, "its value lies on pages that are damaged or not there");
    *value = (lmdb_part){first + PAGE_BYTES, size};
    return 0;
}

static int read_leaf(walk *w, const uint8_t *node, const uint8_t *end, uint64_t page)
{
    lmdb_part value, key = {node + NODE_BYTES, (size_t)number_at(node + 6, 2)};
    const int flags = (int)number_at(node + 4, 2);
    if (key.bytes > (size_t)(end - key.data) || key.bytes > MOST_KEY_BYTES) return damaged(w->f, page);
    if (flags & ~OWN_PAGES)
        return wrong_value(w->f, key,
                           "a database of its own, or several values; values of the main database are read");
    KOLO_TRY(find_value(w->f, key.data + key.bytes, end, (size_t)number_at(node, 4), key, flags & OWN_PAGES,
                        &value));
    w->f->seen_entries++;
    return w->take(w->context, key, value);
}

static int walk_page(walk *w, uint64_t number, int depth)
{
    lmdb_file *f = w->f;
    int kind = 0;
    const uint8_t *p = find_page(f, number, &kind);
    if (!p || (kind != LEAF && kind != BRANCH) || depth == MOST_DEPTH || f->seen_pages++ == f->pages)
        return damaged(f, number);
    const size_t lower = (size_t)number_at(p + PAGE_LOWER, 2), upper = (size_t)number_at(p + PAGE_UPPER, 2);
    if (lower < PAGE_BYTES || lower % 2 || upper < lower || upper > f->page) return damaged(f, number);
    for (size_t at = PAGE_BYTES; at < lower; at += 2) {
        const size_t offset = (size_t)number_at(p + at, 2);
        if (offset < upper || offset + NODE_BYTES > f->page) return damaged(f, number);
        const uint8_t *node = p + offset;
        if (kind == LEAF) KOLO_TRY(read_leaf(w, node, p + f->page, number));
        else KOLO_TRY(walk_page(w, number_at(node, 6), depth + 1));
    }
    return 0;
}

int lmdb_each(lmdb_file *f, int (*take)(void *context, lmdb_part key, lmdb_part value), void *context)
{
    walk w = {f, take, context};
    f->seen_pages = f->seen_entries = 0;
    if (f->root != NO_PAGE) KOLO_TRY(walk_page(&w, f->root, 0));
    if (f->seen_entries == f->entries) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "%s: %" PRIu64 " keys, its head says %" PRIu64 ": damaged, or it was written to",
                     f->path, f->seen_entries, f->entries);
}

void lmdb_key_text(lmdb_part key, char text[LMDB_MOST_KEY])
{
    size_t n = key.bytes;
    while (n > 1 && key.data[n - 1] == 0) n--; /* the end of a C string, written with it */
    bool plain = n > 0;
    for (size_t i = 0; i < n && plain; i++) plain = key.data[i] >= 32 && key.data[i] != 127;
    memcpy(text, key.data, n);
    text[n] = 0;
    if (plain && text_is_utf8(text)) return;
    int at = snprintf(text, LMDB_MOST_KEY, "0x");
    for (size_t i = 0; i < key.bytes; i++) at += snprintf(text + at, 3, "%02x", key.data[i]);
}
