/* Device memory is host memory that only the device thread may touch: while that rests, its pages are closed,
 * so a host that follows a device pointer is caught. Behind every allocation lies a closed page; what was
 * never written is NaN. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin/standin.h"
#include "standin/tell.h"

enum { PAGE = 4096, GRAIN = 256, BLANK = 0xFF, REGIONS = 16384 };
#define FILLED ((size_t)256 << 20) /* larger ones are not filled: nothing here computes with so much */

enum state { EMPTY, CLOSED, OPENED, PINNED };
typedef struct region {
    unsigned char *address;
    size_t bytes;    /* asked for */
    size_t reserved; /* bytes rounded up: also blank, and looked at when freed */
    unsigned char *map;
    size_t map_bytes;
    const char *what; /* device: which call made it */
    int gpu;          /* device: of which one */
    _Atomic int state;
} region;

/* A region never moves and is whole before its state says so: the fault handler reads this without the
 * lock. */
static region regions[REGIONS];
static _Atomic int highest; /* all regions lie below */
static size_t used;
static bool working; /* the device thread is: what it touches is opened */
static struct sigaction former;

static region *region_add(void)
{
    int i = 0;
    while (i < REGIONS && regions[i].state != EMPTY) i++;
    if (i == REGIONS) abort();
    if (i >= highest) highest = i + 1;
    return &regions[i];
}

static bool is_device(const region *r) { return r->state == CLOSED || r->state == OPENED; }

static region *region_at(const void *address, bool device)
{
    for (int i = 0; i < highest; i++)
        if (regions[i].state != EMPTY && regions[i].address == address && is_device(&regions[i]) == device)
            return &regions[i];
    return NULL;
}

/* The pages between the two that stay closed. */
static bool region_open(region *r, bool open)
{
    if (STANDIN_SANITIZED) return true;
    return mprotect(r->map + PAGE, r->map_bytes - (size_t)2 * PAGE,
                    open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

/* The device thread's first touch of a region since it began to work. */
static bool open_for_device(const unsigned char *at)
{
    if (!standin_on_device_thread() || !working) return false;
    for (int i = 0; i < highest; i++) {
        region *r = &regions[i];
        if (r->state != CLOSED || at < r->map + PAGE || at >= r->map + r->map_bytes - PAGE) continue;
        if (!region_open(r, true)) return false;
        r->state = OPENED;
        return true;
    }
    return false;
}

static void say(const char *format, const char *what, size_t a, size_t b)
{
    char text[256];
    int n = snprintf(text, sizeof text, format, what, a, b);
    if (write(STDERR_FILENO, text, (size_t)n) < 0) return; /* nobody is left to be told */
}

/* Tells what the fault is, as far as it has to do with the GPU; then it goes where it went before. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    const unsigned char *at = info->si_addr;
    if (open_for_device(at)) return;
    const char *kernel = standin_on_device_thread() ? standin_kernel_at_work() : NULL;
    if (kernel) say("stand-in GPU: kernel %s touched what is not its own, at 0x%zx\n", kernel, (size_t)at, 0);
    for (int i = 0; i < highest; i++) {
        const region *r = &regions[i];
        if (!is_device(r) || at < r->map || at >= r->map + r->map_bytes) continue;
        say(kernel ? "stand-in GPU: this is in a %s, byte %zu of %zu\n"
                   : "stand-in GPU: the host touched device memory: a %s, byte %zu of %zu\n",
            r->what, (size_t)(at - r->address), r->bytes);
    }
    if (former.sa_flags & SA_SIGINFO) former.sa_sigaction(signal_number, info, context);
    else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) former.sa_handler(signal_number);
    else signal(SIGSEGV, SIG_DFL); /* the same instruction faults again and ends the process */
}

static void watch_faults(void)
{
    static bool watching;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (watching || STANDIN_SANITIZED) return;
    watching = true;
    sigaction(SIGSEGV, &action, &former);
}

static size_t limit(void) { return (size_t)standin_setting("STANDIN_MEMORY", (int64_t)16 << 30); }
size_t standin_memory_limit(void) { return limit(); }
size_t standin_memory_free(void) { return limit() > used ? limit() - used : 0; }

static bool map_region(region *r)
{
    if (STANDIN_SANITIZED) { /* malloc's red zones are better */
        r->map = r->address = aligned_alloc(GRAIN, r->reserved);
        r->reserved = r->bytes;
        return r->map != NULL;
    }
    size_t pages = (r->reserved + PAGE - 1) / PAGE * PAGE;
    r->map_bytes = pages + (size_t)2 * PAGE;
    unsigned char *map =
        mmap(NULL, r->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return false;
    r->map = map;
    r->address = map + PAGE + pages - r->reserved; /* its end touches the closed page */
    return region_open(r, true);
}

void *standin_device_alloc(size_t bytes, const char *what)
{
    standin_hold();
    watch_faults();
    region *r = region_add();
    *r = (region){.bytes = bytes,
                  .reserved = (bytes + GRAIN - 1) / GRAIN * GRAIN,
                  .what = what,
                  .gpu = standin_device()};
    size_t reserved = r->reserved;
    if (reserved < bytes || used + reserved > limit() || !map_region(r)) {
        standin_release();
        return NULL;
    }
    void *address = r->address;
    used += reserved;
    memset(address, BLANK, r->reserved < FILLED ? r->reserved : FILLED);
    region_open(r, false);
    r->state = CLOSED;
    standin_release();
    standin_track(what, address);
    return address;
}

bool standin_device_free(void *address, const char *what)
{
    if (!standin_untrack(what, address)) return false;
    standin_hold();
    region *r = region_at(address, true);
    region_open(r, true);
    for (size_t i = r->bytes; i < r->reserved; i++)
        if (r->address[i] != BLANK) {
            standin_defect("byte %zu behind a %s of %zu bytes was written", i - r->bytes, what, r->bytes);
            break;
        }
    used -= (r->bytes + GRAIN - 1) / GRAIN * GRAIN;
    if (STANDIN_SANITIZED) free(r->map);
    else munmap(r->map, r->map_bytes);
    r->state = EMPTY;
    standin_release();
    return true;
}

void standin_device_open(bool open)
{
    working = open;
    for (int i = 0; !open && i < highest; i++)
        if (regions[i].state == OPENED) {
            region_open(&regions[i], false);
            regions[i].state = CLOSED;
        }
}

int standin_pin(void *address, size_t bytes)
{
    if (standin_place_of(address, bytes) != STANDIN_HOST) return -1;
    standin_hold();
    region *r = region_add();
    *r = (region){.address = address, .bytes = bytes, .reserved = bytes, .state = PINNED};
    standin_release();
    return 0;
}

bool standin_unpin(void *address)
{
    standin_hold();
    region *r = region_at(address, false);
    if (r) r->state = EMPTY;
    standin_release();
    return r != NULL;
}

enum standin_place standin_place_of(const void *address, size_t bytes)
{
    enum standin_place place = STANDIN_HOST;
    const unsigned char *from = address, *to = from + (bytes ? bytes : 1);
    standin_hold();
    for (int i = 0; i < highest; i++) {
        const region *r = &regions[i];
        if (r->state == EMPTY || to <= r->address || from >= r->address + r->bytes) continue;
        bool whole = from >= r->address && to <= r->address + r->bytes;
        place = !whole ? STANDIN_NOWHERE : is_device(r) ? STANDIN_DEVICE : STANDIN_PINNED;
        break;
    }
    standin_release();
    return place;
}

int standin_gpu_of(const void *address)
{
    int gpu = -1;
    const unsigned char *at = address;
    standin_hold();
    for (int i = 0; i < highest && gpu < 0; i++)
        if (is_device(&regions[i]) && at >= regions[i].address &&
            at < regions[i].address + regions[i].reserved)
            gpu = regions[i].gpu;
    standin_release();
    return gpu;
}
