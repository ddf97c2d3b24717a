#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cgroup.h"
#include "kolo/error.h"

static const size_t page_bytes = 4096, huge_bytes = 2 << 20;
static atomic_size_t pages_there; /* bytes of kolo_pages_alloc */

int kolo_no_memory(size_t bytes)
{
    return kolo_fail(KOLO_ENOMEM,
                     "out of memory: %zu bytes asked, %zu in use; use a smaller micro_batch, or ask for more "
                     "memory",
                     bytes, kolo_memory_resident());
}

static void *no_memory(size_t bytes)
{
    kolo_no_memory(bytes);
    return NULL;
}

void *kolo_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    return p ? p : no_memory(bytes);
}

int kolo_grow(void *array, int64_t *capacity, int64_t count, size_t element)
{
    if (count < *capacity) return 0;
    int64_t wanted = *capacity ? *capacity : 8;
    while (wanted <= count) {
        if (wanted > INT64_MAX / 2)
            return kolo_fail(KOLO_ENOMEM, "an array of %lld elements is too large", (long long)count);
        wanted *= 2;
    }
    size_t bytes;
    if (__builtin_mul_overflow((size_t)wanted, element, &bytes))
        return kolo_fail(KOLO_ENOMEM, "an array of %lld elements of %zu bytes is too large",
                         (long long)wanted, element);
    void *old, *grown;
    memcpy(&old, array, sizeof old); /* through memcpy: array is some T **, not void ** */
    grown = realloc(old, bytes);
    if (!grown) return kolo_no_memory(bytes);
    memset((char *)grown + (size_t)*capacity * element, 0, bytes - (size_t)*capacity * element);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return 0;
}

char *kolo_strdup(const char *text)
{
    char *copy = strdup(text);
    return copy ? copy : no_memory(strlen(text) + 1);
}

char *kolo_format(const char *format, ...)
{
    char *text = NULL;
    va_list list;
    va_start(list, format);
    int n = vasprintf(&text, format, list);
    va_end(list);
    return n >= 0 ? text : no_memory(strlen(format));
}

void kolo_append(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, bytes - used, format, list);
    va_end(list);
}

void kolo_return_freed(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

void kolo_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* Large mappings start on a huge page, so that the kernel can use huge pages from the first byte. */
static void *map_aligned(size_t bytes)
{
    size_t slack = bytes >= huge_bytes ? huge_bytes : 0;
    char *p = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (!slack) return p;
    size_t head = (huge_bytes - (uintptr_t)p % huge_bytes) % huge_bytes;
    if (head) munmap(p, head);
    if (slack - head) munmap(p + head + bytes, slack - head);
    return p + head;
}

void *kolo_pages_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return no_memory(bytes);
    size_t whole = kolo_round_up(bytes ? bytes : 1, page_bytes);
    void *p = map_aligned(whole);
    if (!p) return no_memory(bytes);
    madvise(p, whole, MADV_HUGEPAGE); /* advice: a kernel without it is only slower */
    kolo_pages_touch(p, whole);
    atomic_fetch_add_explicit(&pages_there, whole, memory_order_relaxed);
    return p;
}

void kolo_pages_free(void *pages, size_t bytes)
{
    void *p, *none = NULL;
    memcpy(&p, pages, sizeof p);
    const size_t whole = kolo_round_up(bytes ? bytes : 1, page_bytes);
    if (p && munmap(p, whole) == 0) atomic_fetch_sub_explicit(&pages_there, whole, memory_order_relaxed);
    memcpy(pages, &none, sizeof none);
}

void kolo_pages_touch(void *pages, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if ((uintptr_t)pages % page_bytes == 0 && madvise(pages, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
    /* A write that changes nothing, even while another process writes there: 0 is exchanged for 0. */
    for (size_t at = 0; at < bytes; at += page_bytes) {
        char zero = 0;
        __atomic_compare_exchange_n((char *)pages + at, &zero, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

/* "Name:   123 kB" of a /proc file, in bytes; 0 if absent. */
static size_t proc_bytes(const char *path, const char *name)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name))) {
            kib = strtoull(line + strlen(name), NULL, 10);
            break;
        }
    fclose(f);
    return (size_t)kib * 1024;
}

static int64_t environment_number(const char *name)
{
    const char *text = getenv(name);
    if (!text || !*text) return 0;
    char *end;
    long long value = strtoll(text, &end, 10);
    return value > 0 && (*end == 0 || *end == '(') ? value : 0; /* "16(x2)": CPUs of each of two nodes */
}

/* Slurm gives MiB; 0 asks for the whole node, which is no limit. */
static int64_t slurm_bytes(void)
{
    int64_t node = environment_number("SLURM_MEM_PER_NODE");
    if (node) return node << 20;
    int64_t cpus = environment_number("SLURM_CPUS_ON_NODE");
    if (!cpus) cpus = environment_number("SLURM_JOB_CPUS_PER_NODE");
    return (environment_number("SLURM_MEM_PER_CPU") * cpus) << 20;
}

size_t kolo_memory_limit(const char **source)
{
    const char *name = "no known limit";
    size_t limit = SIZE_MAX;
    struct {
        const char *name;
        int64_t bytes;
    } bounds[] = {
        {"free memory of the machine (MemAvailable)", (int64_t)proc_bytes("/proc/meminfo", "MemAvailable:")},
        {"cgroup limit", kolo_cgroup_memory("")},
        {"Slurm's memory request", slurm_bytes()},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i].bytes > 0 && bounds[i].bytes != INT64_MAX && (size_t)bounds[i].bytes < limit) {
            limit = (size_t)bounds[i].bytes;
            name = bounds[i].name;
        }
    if (source) *source = name;
    return limit;
}

size_t kolo_memory_resident(void) { return proc_bytes("/proc/self/status", "VmRSS:"); }

size_t kolo_memory_resident_at(const void *at, size_t bytes)
{
    char line[256];
    const uintptr_t from = (uintptr_t)at;
    unsigned long long begin, end, kib, all = 0;
    bool within = false;
    FILE *f = fopen("/proc/self/smaps", "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2) within = begin >= from && end <= from + bytes;
        else if (within && sscanf(line, "Rss: %llu kB", &kib) == 1) all += kib;
    }
    fclose(f);
    return (size_t)all * 1024;
}

size_t kolo_memory_shared(void) { return proc_bytes("/proc/self/status", "RssShmem:"); }

size_t kolo_memory_beside_pages(void)
{
    const size_t all = kolo_memory_resident(),
                 apart = kolo_memory_shared() + atomic_load_explicit(&pages_there, memory_order_relaxed);
    return all > apart ? all - apart : 0;
}

size_t kolo_memory_peak(void) { return proc_bytes("/proc/self/status", "VmHWM:"); }
