/* Vectors on a GPU: an error on every rank, and nobody's processor reaches for them; pinned and managed ones
 * are carried. With a driver that only says whose memory is whose (tests/driver), loaded as CUDA's own would
 * be: by the program, while the world runs. */
#include <dlfcn.h>

#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 3, ODD = 1, COUNT = 1000 };

static kolo_world *whole;
static kolo_group *all;
static float *on_gpu, *managed, *pinned;
static long (*asked)(void);

static int load_driver(void)
{
    char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    while (n > 0 && path[n - 1] != '/') n--;
    snprintf(path + (n > 0 ? n : 0), 64, "../driver/libcuda.so.1");
    void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!driver) return kolo_fail(KOLO_ECONFIG, "test: %s", dlerror());
    int (*alloc)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2");
    int (*alloc_managed)(unsigned long long *, size_t, unsigned) =
        (int (*)(unsigned long long *, size_t, unsigned))dlsym(driver, "cuMemAllocManaged");
    int (*alloc_host)(void **, size_t) = (int (*)(void **, size_t))dlsym(driver, "cuMemAllocHost_v2");
    asked = (long (*)(void))dlsym(driver, "driver_asked");
    unsigned long long at[2];
    void *host;
    if (!asked || alloc(&at[0], COUNT * 4) || alloc_managed(&at[1], COUNT * 4, 1) ||
        alloc_host(&host, COUNT * 4))
        return KOLO_ECONFIG;
    on_gpu = (float *)(uintptr_t)at[0];
    managed = (float *)(uintptr_t)at[1];
    pinned = host;
    return 0;
}

static int64_t sums(float *v, const char *name)
{
    kolo_request r = {
        .what = KOLO_ALLREDUCE, .name = name, .out = v, .type = KOLO_F32, .dims = 1, .dim = {COUNT}};
    kolo_handle h;
    for (int i = 0; i < COUNT; i++) v[i] = 1;
    if (name) {
        if (kolo_submit(all, &r, &h) < 0 || kolo_wait(whole, h) < 0) return 1;
    } else if (kolo_allreduce(all, NULL, v, COUNT, KOLO_F32, KOLO_SUM) < 0) {
        return 1;
    }
    return v[COUNT - 1] != RANKS;
}

static int64_t refused(int rc, int64_t bit)
{
    if (rc == KOLO_EINPUT && strstr(kolo_error_text(), "memory of a GPU")) return 0;
    fprintf(stderr, "# status %d, %lx: %s\n", rc, (unsigned long)bit, kolo_error_text());
    return bit;
}

/* Bits of what is wrong. */
static int64_t one_rank(rig_rank *r, int argument)
{
    static float host[COUNT];
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20, .transport = "tcp"};
    const bool mine = r->rank == ODD;
    int64_t bad = 0, index = 0;
    (void)argument;
    KOLO_TRY(lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r));
    all = kolo_world_group(whole);
    bad |= sums(host, NULL) | sums(host, "x");
    KOLO_TRY(load_driver());
    float *odd = mine ? on_gpu : host;
    bad |= refused(kolo_allreduce(all, NULL, odd, COUNT, KOLO_F32, KOLO_SUM), 2);
    bad |= refused(kolo_allreduce(all, odd, host, 4, KOLO_F32, KOLO_SUM), 4);
    bad |= refused(kolo_broadcast(all, odd, COUNT, KOLO_F32, ODD), 8);
    bad |= refused(kolo_allgather(all, odd + 100, host, 4, NULL, KOLO_F32), 16);
    for (int again = 0; again < 2; again++) {
        kolo_request two[2] = {
            {.what = KOLO_ALLREDUCE, .name = "a", .out = host, .type = KOLO_F32, .dims = 1, .dim = {4}}};
        kolo_handle h[2] = {0, 0};
        two[1] = two[0];
        two[1].name = "b";
        two[1].out = mine && !again ? on_gpu : host + 8;
        if (kolo_submit_grouped(all, two, 2, h) < 0) bad |= 32;
        for (int i = 0; i < 2; i++)
            bad |= again ? (kolo_wait(whole, h[i]) < 0) * 64 : refused(kolo_wait(whole, h[i]), 32);
    }
    kolo_request sparse = {.what = KOLO_SPARSE_ALLREDUCE,
                           .in = host,
                           .index = mine ? (const int64_t *)(const void *)on_gpu : &index,
                           .rows = 9,
                           .type = KOLO_F32,
                           .dims = 2,
                           .dim = {1, 4}};
    kolo_handle h = 0;
    if (kolo_submit(all, &sparse, &h) < 0) bad |= 128;
    bad |= refused(kolo_wait(whole, h), 128);
    kolo_release(whole, h);
    if (sums(managed, NULL) || sums(managed, "x") || sums(pinned, NULL) || sums(pinned, "x")) bad |= 256;
    if (!asked()) bad |= 512;
    if (sums(host, NULL) || sums(host, "x")) bad |= 1024;
    kolo_world_close(&whole);
    return bad;
}

int main(void)
{
    static const int apart[RANKS] = {0, 1, 1};
    static const char *const what[] = {"sums of host memory, before and after a driver is loaded",
                                       "allreduce of a GPU's memory on one rank: an error on all",
                                       "a small one, read only",
                                       "broadcast",
                                       "allgather, of a place within",
                                       "of a group, and all of it: the error names it",
                                       "the same names afterwards, of host memory",
                                       "row numbers on a GPU",
                                       "managed and pinned memory are carried",
                                       "the driver was asked",
                                       "and the world goes on"};
    for (int nodes = 1; nodes <= 2; nodes++) {
        rig_party p = rig_begin("device", RANKS, nodes == 1 ? NULL : apart, one_rank, 0, 30);
        is_int(rig_end(&p, -1), 0, "%d nodes: all ranks come to their end", nodes);
        for (int k = 0; k < 11; k++) {
            int wrong = 0;
            for (int r = 0; r < RANKS; r++)
                wrong += rig_outcomes[r].value < 0 || (rig_outcomes[r].value >> k & 1);
            is_int(wrong, 0, "%d nodes: %s", nodes, what[k]);
        }
    }
    is_int(rig_leftovers("device"), 0, "no segment is left behind");
    return done_testing();
}
