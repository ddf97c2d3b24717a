/* For LD_PRELOAD: the n-th allocation that Kolo's own code asks for fails, in any program built of it.
 *
 *     FAIL_PROGRAM=NAME     of this program; others, as launchers, are left alone
 *     FAIL_RANK=r           and, if given, of this rank of a launcher's (PMI_RANK, PMIX_RANK)
 *     FAIL_ALLOCATION=n     the n-th, counted from 1; n+ : it and all behind it; without: they are counted
 *     FAIL_REPORT=FILE      "failed ADDRESS ..." when that happened (offsets for addr2line), "count N" when
 *                           the process ends
 *
 * Kolo's own code is what calls from the program itself or from a library of its name; what glibc, HDF5,
 * oneDNN or MPI allocate for themselves always succeeds, because their answers to a failure are not what is
 * tested. Functions of libc that return allocated memory count as allocations of their caller. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANGES = 16 };
static struct {
    uintptr_t from, to, base;
} own[RANGES];
static int ranges;
static _Atomic long count;
static long failing; /* 0: none */
static bool all_behind;
static const char *report;

static void say(const char *text)
{
    const int fd = report ? open(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return;
    if (write(fd, text, strlen(text)) < 0) _exit(99);
    close(fd);
}

/* The program's base address, if it is Kolo's own code; else 0. */
static uintptr_t base_of(const void *caller)
{
    const uintptr_t at = (uintptr_t)caller;
    for (int i = 0; i < ranges; i++)
        if (at >= own[i].from && at < own[i].to) return own[i].base;
    return 0;
}

static void say_where(void)
{
    void *frame[32];
    char line[640] = "failed";
    const int frames = backtrace(frame, 32);
    for (int i = 0, used; i < frames; i++) {
        const uintptr_t base = base_of(frame[i]);
        used = (int)strlen(line);
        if (base)
            snprintf(line + used, sizeof line - (size_t)used, " %lx",
                     (unsigned long)((uintptr_t)frame[i] - base));
    }
    strcat(line, "\n");
    say(line);
}

static int add_object(struct dl_phdr_info *info, size_t size, void *first)
{
    const bool program = *(int *)first == 0;
    (void)size;
    ++*(int *)first;
    if (!program && !strstr(info->dlpi_name, "libkolo_")) return 0;
    for (int i = 0; i < info->dlpi_phnum && ranges < RANGES; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        own[ranges].base = info->dlpi_addr;
        own[ranges].from = info->dlpi_addr + p->p_vaddr;
        own[ranges].to = own[ranges].from + p->p_memsz;
        ranges++;
    }
    return 0;
}

__attribute__((constructor)) static void choose(void)
{
    const char *at = getenv("FAIL_ALLOCATION"), *rank = getenv("FAIL_RANK"), *mine = getenv("PMI_RANK"),
               *program = getenv("FAIL_PROGRAM");
    int objects = 0;
    if (!mine) mine = getenv("PMIX_RANK");
    if (!program || strcmp(program, program_invocation_short_name) != 0) return;
    if (rank && (!mine || strcmp(rank, mine) != 0)) return;
    report = getenv("FAIL_REPORT");
    dl_iterate_phdr(add_object, &objects);
    if (!at) return;
    char *end;
    failing = strtol(at, &end, 10);
    all_behind = *end == '+';
}

__attribute__((destructor)) static void report_count(void)
{
    char line[64];
    snprintf(line, sizeof line, "count %ld\n", (long)count);
    if (ranges) say(line);
}

static bool fails(const void *caller)
{
    if (!base_of(caller)) return false;
    const long n = atomic_fetch_add(&count, 1) + 1;
    if (!failing || (all_behind ? n < failing : n != failing)) return false;
    if (n == failing) say_where();
    errno = ENOMEM;
    return true;
}

#define CALLER __builtin_return_address(0)
/* The function of this name behind this library: libc's, or a sanitizer's. */
#define NEXT(name)                             \
    static __typeof__(name) *_Atomic next_;    \
    __typeof__(name) *next = next_;            \
    if (!next) {                               \
        void *found = dlsym(RTLD_NEXT, #name); \
        memcpy(&next, &found, sizeof next);    \
        next_ = next;                          \
    }

void *malloc(size_t bytes)
{
    NEXT(malloc)
    return fails(CALLER) ? NULL : next(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    NEXT(calloc)
    return fails(CALLER) ? NULL : next(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    NEXT(realloc)
    return fails(CALLER) ? NULL : next(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    NEXT(aligned_alloc)
    return fails(CALLER) ? NULL : next(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    NEXT(posix_memalign)
    return fails(CALLER) ? ENOMEM : next(memory, alignment, bytes);
}

/* Memory only: a file that cannot be mapped is an error of reading. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    NEXT(mmap)
    return flags & MAP_ANONYMOUS && fails(CALLER) ? MAP_FAILED
                                                  : next(at, bytes, protection, flags, fd, offset);
}

char *strdup(const char *text)
{
    NEXT(strdup)
    return fails(CALLER) ? NULL : next(text);
}

char *strndup(const char *text, size_t most)
{
    NEXT(strndup)
    return fails(CALLER) ? NULL : next(text, most);
}

char *realpath(const char *path, char *to)
{
    NEXT(realpath)
    return !to && fails(CALLER) ? NULL : next(path, to);
}

int vasprintf(char **text, const char *format, va_list list)
{
    NEXT(vasprintf)
    if (!fails(CALLER)) return next(text, format, list);
    *text = NULL;
    return -1;
}

ssize_t __getdelim(char **line, size_t *bytes, int delimiter, FILE *f);
ssize_t __getdelim(char **line, size_t *bytes, int delimiter, FILE *f) /* getline is this, inlined */
{
    NEXT(__getdelim)
    return !*line && fails(CALLER) ? -1 : next(line, bytes, delimiter, f);
}

FILE *open_memstream(char **text, size_t *bytes)
{
    NEXT(open_memstream)
    return fails(CALLER) ? NULL : next(text, bytes);
}
