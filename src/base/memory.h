/* Memory: checked allocation, page-backed arenas, and what this process may use. */
#ifndef KOLO_BASE_MEMORY_H
#define KOLO_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define KOLO_ALIGN 64 /* cache line, and the widest vector; every tensor and slice starts on it */

static inline size_t kolo_round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* malloc/calloc/realloc/strdup for small things outside the step. They return NULL only with the error
 * text set (KOLO_ENOMEM: out of memory, bytes asked). kolo_grow doubles *array when count == *capacity. */
int kolo_no_memory(size_t bytes); /* sets that text for what is allocated otherwise; KOLO_ENOMEM */
void *kolo_alloc(size_t bytes);   /* zeroed */
int kolo_grow(void *array, int64_t *capacity, int64_t count, size_t element); /* array: T **, 0 or negative */
char *kolo_strdup(const char *text);
char *kolo_format(const char *format, ...) __attribute__((format(printf, 1, 2))); /* caller frees */
/* Behind what stands in text[bytes]; what does not fit is left out. */
void kolo_append(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Gives what is freed of the small things back to the system, where its library can: before much is
 * allocated. */
void kolo_trim(void);
/* From here on allocations of 1 MiB or more go back to the system when they are freed; glibc would keep as
 * much as the largest that was ever freed. Of the whole process: a program says it when it starts. */
void kolo_return_freed(void);

/* An anonymous mapping, huge-page advised, zero filled, KOLO_ALIGN aligned, touched before return so
 * that no page fault falls into a step. Owned by the caller, freed by kolo_pages_free(&p, bytes).
 * NULL: error text set. */
void *kolo_pages_alloc(size_t bytes);
void kolo_pages_free(void *pages, size_t bytes);  /* pages: T ** */
void kolo_pages_touch(void *pages, size_t bytes); /* also for shared segments */

/* The smallest of cgroup limit (v1 and v2), Slurm's request of this job on this node (SLURM_MEM_PER_NODE,
 * SLURM_MEM_PER_CPU) and MemAvailable, in bytes; `source` (may be NULL) names which one decided, static
 * text. */
size_t kolo_memory_limit(const char **source);
/* Resident set of this process now and at its peak, bytes (/proc/self/status). */
size_t kolo_memory_resident(void);
size_t kolo_memory_peak(void);
/* Of what is resident now: what this process may share with others (/dev/shm, shared mappings without a
 * file); and what is neither that nor pages: libraries, heap, stacks, generated code. */
size_t kolo_memory_shared(void);
size_t kolo_memory_beside_pages(void);
/* Of the mappings that lie within at .. at + bytes: resident in this process (/proc/self/smaps). */
size_t kolo_memory_resident_at(const void *at, size_t bytes);

#endif
