/* Runs a kernel: block after block, each thread a fiber. A fiber that never meets a barrier goes on with the
 * next thread, so a kernel without barriers changes no stack; one with them changes it once a thread and
 * barrier. Which thread goes first is left to chance. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "standin/fiber.h"
#include "standin/kernel.h"
#include "standin/standin.h"

enum { MOST = 1024, WARP = 32, STACK = 64 << 10, SHARED_MOST = 232448, SHARED_USUAL = 49152, BLANK = 0xFF };

enum state { NEW, RUNNABLE, AT_BARRIER, AT_EXCHANGE, FAULTED, ENDED };
typedef struct lane {
    kolo_emulate_thread now;
    enum state state;
    int line;
    int fiber; /* whose stack it stands on while it waits */
} lane;
typedef struct warp {
    int arrived, line;
    unsigned turn; /* parity of the exchange */
    uint64_t word[2][WARP];
} warp;

typedef struct launch {
    kolo_emulate_config config;
    void *body;
    void (*call)(void *);
    void (*release)(void *);
    bool faults; /* injected */
} launch;

kolo_emulate_thread *kolo_emulate_now;

/* All of the device thread alone. */
static lane lanes[MOST];
static warp warps[MOST / WARP];
static int threads, arrived, barrier_line, order[MOST], next_new;
static standin_fiber runner, fibers[MOST];
static int idle_fiber[MOST], idle, fibers_made, this_fiber;
static unsigned char *shared_end; /* shared memory ends at a closed page */
static const launch *at_work;
static char wrong[256]; /* the first breach of this kernel */
static uint64_t chance;

static void breach(const char *format, int a, int b)
{
    if (!wrong[0]) snprintf(wrong, sizeof wrong, format, a, b);
}

/* ---- what kernels call ---- */

static void leave(enum state state, int line)
{
    lane *self = &lanes[kolo_emulate_now->thread.x];
    self->state = state;
    self->line = line;
    self->fiber = this_fiber;
    standin_fiber_switch(&fibers[this_fiber], &runner);
}

void kolo_emulate_barrier(int line)
{
    if (arrived++ == 0) barrier_line = line;
    if (barrier_line != line) breach("threads wait in line %d and in line %d at once", barrier_line, line);
    if (arrived < threads) {
        leave(AT_BARRIER, line);
        return;
    }
    arrived = 0;
    for (int t = 0; t < threads; t++)
        if (lanes[t].state == AT_BARRIER) lanes[t].state = RUNNABLE;
}

const uint64_t *kolo_emulate_exchange(uint64_t mine, unsigned mask, int line)
{
    unsigned t = kolo_emulate_now->thread.x, first = t / WARP * WARP;
    warp *w = &warps[t / WARP];
    unsigned turn = w->turn;
    if (mask != 0xffffffffu) breach("line %d: not all lanes are in the mask", line, 0);
    if (w->arrived++ == 0) w->line = line;
    if (w->line != line) breach("lanes of a warp are in line %d and in line %d at once", w->line, line);
    w->word[turn][t % WARP] = mine;
    if (w->arrived < WARP) {
        leave(AT_EXCHANGE, line);
        return w->word[turn];
    }
    w->arrived = 0;
    w->turn = !turn;
    for (unsigned k = first; k < first + WARP; k++)
        if (lanes[k].state == AT_EXCHANGE) lanes[k].state = RUNNABLE;
    return w->word[turn];
}

static size_t shared_room(size_t bytes) { return (bytes + 15) / 16 * 16; }
void *kolo_emulate_shared(void) { return shared_end - shared_room(at_work->config.shared); }

/* ---- a block ---- */

/* A fiber's life: threads that have not begun, one after another; then it is idle. */
static void fiber_main(void)
{
    int self = this_fiber;
    for (;;) {
        while (next_new < threads) {
            lane *l = &lanes[order[next_new++]];
            l->state = RUNNABLE;
            kolo_emulate_now = &l->now;
            at_work->call(at_work->body);
            l->state = ENDED;
        }
        idle_fiber[idle++] = self;
        standin_fiber_switch(&fibers[self], &runner);
    }
}

static void resume(int fiber)
{
    this_fiber = fiber;
    standin_fiber_switch(&runner, &fibers[fiber]);
}

static void begin_some(void)
{
    while (next_new < threads) {
        if (idle == 0) {
            standin_fiber_make(&fibers[fibers_made], STACK, fiber_main);
            idle_fiber[idle++] = fibers_made++;
        }
        resume(idle_fiber[--idle]);
    }
}

static bool resume_some(void)
{
    bool any = false;
    for (int i = 0; i < threads; i++) {
        lane *l = &lanes[order[i]];
        if (l->state != RUNNABLE) continue;
        any = true;
        kolo_emulate_now = &l->now;
        resume(l->fiber);
    }
    return any;
}

static int divisor(int a, int b) { return b ? divisor(b, a % b) : a; }

static void mix_order(void)
{
    static const int strides[] = {1, -1, 7, 11, 13, 33, -5, 67};
    uint64_t r = standin_random(&chance);
    int stride = (strides[r % 8] % threads + threads) % threads, at = (int)((r >> 8) % (uint64_t)threads);
    if (divisor(threads, stride) != 1) stride = 1;
    for (int i = 0; i < threads; i++) {
        order[i] = at;
        at += stride;
        if (at >= threads) at -= threads;
    }
}

static void block_run(int64_t block)
{
    arrived = next_new = 0;
    for (int w = 0; w < threads / WARP; w++) warps[w].arrived = 0;
    for (int t = 0; t < threads; t++) {
        lanes[t].state = NEW;
        lanes[t].now.block.x = (unsigned)block;
    }
    mix_order();
    begin_some();
    while (resume_some()) continue;
    int ended = 0, line = 0;
    for (int t = 0; t < threads; t++) {
        ended += lanes[t].state == ENDED;
        if (lanes[t].state != ENDED) line = lanes[t].line;
    }
    if (ended == threads) return;
    breach("line %d is reached by not all threads: %d of them have left", line, ended);
    fibers_made = idle = 0; /* their stacks are given up */
}

/* ---- shared memory ---- */

/* __shared__ variables are thread-local ones of this library: all of them lie in the device
 * thread's block of it. */
static __thread volatile char shared_mark;
typedef struct block_of_thread {
    const void *inside;
    unsigned char *at;
    size_t bytes;
} block_of_thread;

static int find_block(struct dl_phdr_info *info, size_t size, void *argument)
{
    block_of_thread *b = argument;
    bool ours = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + h->p_vaddr, at = (uintptr_t)b->inside;
        ours |= h->p_type == PT_LOAD && at >= begin && at < begin + h->p_memsz;
    }
    for (int i = 0; ours && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            b->at = info->dlpi_tls_data;
            b->bytes = info->dlpi_phdr[i].p_memsz;
        }
    return ours;
}

static void blank_shared(size_t dynamic)
{
    static block_of_thread mine;
    if (!mine.inside) {
        shared_mark = 1; /* makes the block be there */
        mine.inside = &kolo_emulate_now;
        if (!STANDIN_SANITIZED) dl_iterate_phdr(find_block, &mine);
        size_t room = (size_t)SHARED_MOST / 4096 * 4096 + 4096;
        unsigned char *map =
            mmap(NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED || mprotect(map + room, 4096, PROT_NONE)) abort();
        shared_end = map + room;
    }
    if (mine.at) memset(mine.at, BLANK, mine.bytes);
    memset(shared_end - shared_room(dynamic), BLANK, shared_room(dynamic));
}

/* ---- a launch ---- */

static int kernel_run(standin_op *op)
{
    const launch *l = op->work.argument;
    int code;
    bool faults = standin_begin("run", STANDIN_OTHER, &code) || l->faults;
    if (faults) return -(int)cudaErrorIllegalAddress;
    int64_t grid = l->config.grid, begin = (int64_t)(standin_random(&chance) % (uint64_t)grid);
    bool backwards = standin_random(&chance) & 1;
    at_work = l;
    threads = (int)l->config.block;
    wrong[0] = 0;
    for (int t = 0; t < threads; t++)
        lanes[t].now = (kolo_emulate_thread){
            {(unsigned)t, 0, 0}, {0, 0, 0}, {(unsigned)threads, 1, 1}, {(unsigned)grid, 1, 1}};
    for (int64_t i = 0; i < grid && !wrong[0]; i++) {
        /* not for each: it takes longer than most blocks */
        if (i < 4 || i % 16 == 0) blank_shared(l->config.shared);
        block_run(((backwards ? -i : i) + begin + grid) % grid);
    }
    at_work = NULL;
    if (!wrong[0]) return STANDIN_DONE;
    standin_defect("kernel %s (launched at %s:%d): %s", l->config.name, l->config.file, l->config.line,
                   wrong);
    return -(int)cudaErrorLaunchFailure;
}

const char *standin_kernel_at_work(void) { return at_work ? at_work->config.name : NULL; }

static void launch_drop(void *argument)
{
    launch *l = argument;
    l->release(l->body);
    free(l);
}

enum { KERNELS = 512 };
static struct allowance {
    const void *kernel;
    int shared;
} allowances[KERNELS];

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    STANDIN_ENTER(STANDIN_OTHER);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > SHARED_MOST) return standin_set_error(cudaErrorInvalidValue);
    standin_hold();
    int i = 0;
    while (i < KERNELS - 1 && allowances[i].kernel && allowances[i].kernel != kernel) i++;
    allowances[i] = (struct allowance){kernel, value};
    standin_release();
    return cudaSuccess;
}

static size_t allowed_shared(const void *kernel)
{
    size_t bytes = SHARED_USUAL;
    standin_hold();
    for (int i = 0; i < KERNELS && allowances[i].kernel; i++)
        if (allowances[i].kernel == kernel) bytes = (size_t)allowances[i].shared;
    standin_release();
    return bytes > SHARED_USUAL ? bytes : SHARED_USUAL;
}

static cudaError_t launch_check(const kolo_emulate_config *c)
{
    int device = standin_stream_device(c->stream);
    if (c->grid < 1 || c->grid > INT32_MAX || c->block < 1 || c->block > MOST) {
        standin_defect("kernel %s: grid %lld, block %lld", c->name, (long long)c->grid, (long long)c->block);
        return cudaErrorInvalidConfiguration;
    }
    if (c->block % WARP)
        standin_defect("kernel %s: a block of %lld threads is not whole warps", c->name, (long long)c->block);
    if (c->shared > allowed_shared(c->kernel)) {
        standin_defect("kernel %s: %zu bytes of shared memory were not allowed", c->name, c->shared);
        return cudaErrorInvalidValue;
    }
    if (device < 0 || device != standin_device()) {
        standin_defect("kernel %s: its stream is not of this thread's current GPU", c->name);
        return cudaErrorInvalidResourceHandle;
    }
    return cudaSuccess;
}

void kolo_emulate_launch(const kolo_emulate_config *config, void *body, void (*call)(void *),
                         void (*release)(void *))
{
    int code;
    bool faults = standin_begin("launch", STANDIN_LAUNCH, &code);
    standin_count_kernel(config->name);
    cudaError_t rc = standin_on_host_function() ? cudaErrorNotPermitted
                     : standin_sticky           ? standin_sticky
                                                : launch_check(config);
    if (rc != cudaSuccess || config->block % WARP) {
        release(body);
        standin_set_error(rc);
        return;
    }
    launch *l = malloc(sizeof *l);
    if (!l) abort();
    *l = (launch){*config, body, call, release, faults};
    double seconds = 2e-6 + (double)(config->grid * config->block) * 1e-11;
    standin_set_error(standin_enqueue(
        config->stream, &(standin_work){config->name, kernel_run, launch_drop, l, seconds}, NULL));
}

/* ---- reports of -fsanitize=alignment,bounds in kernels ---- */

typedef struct place_in_source {
    const char *file;
    uint32_t line, column;
} place_in_source;

static void report(const place_in_source *at, const char *what)
{
    char text[200];
    snprintf(text, sizeof text, "%s:%u: %s", at->file, at->line, what);
    if (!at_work) {
        standin_defect("%s", text);
        return;
    }
    if (!wrong[0]) memcpy(wrong, text, sizeof text);
    leave(FAULTED, (int)at->line); /* the access is not made: this thread never goes on */
}

/* The compiler calls these by their names, with its own description of the place first. */
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__) /* then it knows them, with other types */
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"
#endif
void __ubsan_handle_type_mismatch_v1(const place_in_source *at, uintptr_t pointer);
void __ubsan_handle_type_mismatch_v1(const place_in_source *at, uintptr_t pointer)
{
    report(at, pointer ? "misaligned access" : "access through NULL");
}
void __ubsan_handle_out_of_bounds(const place_in_source *at, uintptr_t index);
void __ubsan_handle_out_of_bounds(const place_in_source *at, uintptr_t index)
{
    (void)index;
    report(at, "index beyond its array");
}
