/* The world: launch, router, the group of all ranks, and whoever takes the turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/library/parts.h"
#include "kolo/buckets.h"

/* MPI and PMIx can be begun once in a process: they are kept when a world is closed, so that another may be opened, and end with the process. */
static struct {
    kolo_launch launch;
    bool begun, open;
    _Atomic bool broken;
} process;

static void finish_launch(void)
{
    if (!process.broken) kolo_launch_finish(&process.launch); /* after a failure that would wait for the dead */
}

/* A launch of its own where the program runs MPI itself, else the process's. */
static int find_launch(const kolo_world_config *config, kolo_launch **launch, bool *own)
{
    *own = config->mpi_comm || (!process.begun && kolo_launch_mpi_runs());
    *launch = &process.launch;
    if (*own) {
        *launch = kolo_alloc(sizeof **launch);
        if (!*launch) return KOLO_ECONFIG;
        int rc = kolo_launch_adopt(*launch, config->mpi_comm);
        if (rc < 0) free(*launch);
        return rc;
    }
    if (process.begun) return 0;
    KOLO_TRY(kolo_launch_start(&process.launch, config->method));
    process.begun = true;
    atexit(finish_launch);
    return 0;
}

static int open_parts(kolo_world *world, lib_exchange exchange, void *of)
{
    kolo_launch *l = world->launch;
    const kolo_world_config *c = &world->config;
    const comm_router_config config = {.between = c->transport,
                                       .timeout = c->timeout,
                                       .shared_bytes = c->shared_bytes,
                                       .exchange = exchange,
                                       .exchange_of = of};
    KOLO_TRY(lib_entries_open(world));
    KOLO_TRY(comm_selector_open(&world->selector, c->table, c->algorithm));
    KOLO_TRY(comm_router_open(&world->router, l, &config));
    if (c->timeline && *c->timeline) { /* a rank that cannot write is no reason to stop */
        if (lib_timeline_open(&world->timeline, c->timeline, l->rank, l->host) < 0)
            kolo_warn("comm: no timeline: %s", kolo_error_text());
        KOLO_TRY(lib_timeline_align(world->timeline, world));
    }
    KOLO_TRY(lib_engine_open(world));
    int *all = kolo_alloc((size_t)l->size * sizeof *all);
    kolo_group **table = world->group = kolo_alloc(16 * sizeof *world->group);
    if (!all || !table) {
        free(all);
        return KOLO_ECONFIG;
    }
    world->groups = 16;
    for (int r = 0; r < l->size; r++) all[r] = r;
    int rc = lib_group_open(world, all, l->size, 0, &table[0]);
    free(all);
    KOLO_TRY(rc);
    return lib_engine_start(world);
}

int lib_world_start(kolo_world **out, kolo_launch *launch, const kolo_world_config *config, lib_exchange exchange,
                    void *of)
{
    kolo_world *world = *out = kolo_alloc(sizeof *world);
    if (!world) return KOLO_ECONFIG;
    pthread_mutex_init(&world->lock, NULL);
    world->launch = launch;
    int rc = lib_config_resolve(&world->config, config);
    if (rc == 0) rc = open_parts(world, exchange, of);
    char note[64] = "";
    if (rc == 0) snprintf(note, sizeof note, "the beginning of the world with table %08x", comm_selector_digest(world->selector));
    if (rc == 0) rc = lib_agree(world->group[0], note, ""); /* ranks with different tables would run different algorithms */
    if (rc < 0) kolo_world_close(out);
    return rc;
}

int kolo_world_open(kolo_world **out, const kolo_world_config *asked)
{
    kolo_world_config config;
    *out = NULL;
    if (process.open) return kolo_fail(KOLO_EINPUT, "comm: a world is open in this process; close it first");
    int rc = lib_config_resolve(&config, asked);
    kolo_launch *launch;
    bool own;
    if (rc == 0) rc = find_launch(&config, &launch, &own);
    if (rc == 0) {
        rc = lib_world_start(out, launch, &config, NULL, NULL);
        if (rc == 0) (*out)->own_launch = own;
        else if (own) free(launch); /* what it holds stays, as others may wait for this rank */
    }
    lib_config_free(&config);
    process.open = rc == 0;
    return rc;
}

void kolo_world_close(kolo_world **out)
{
    kolo_world *world = *out;
    if (!world) return;
    bool whole = world->engine && world->groups && world->group[0] && !lib_broken(world);
    for (int g = world->groups - 1; whole && g >= 0; g--)
        if (world->group[g]) lib_group_drain(world->group[g]);
    if (whole) whole = lib_agree(world->group[0], "the end of the world", "") == 0;
    lib_engine_stop(world);
    for (int g = world->groups - 1; g >= 0; g--) lib_group_close(&world->group[g]);
    lib_engine_close(world);
    lib_timeline_close(&world->timeline);
    comm_router_close(&world->router, whole);
    comm_selector_close(&world->selector);
    lib_entries_close(world);
    lib_config_free(&world->config);
    free(world->group);
    free(world->bundle);
    pthread_mutex_destroy(&world->lock);
    if (world->own_launch || world->launch == &process.launch) process.open = false;
    if (!whole && world->launch == &process.launch) process.broken = true;
    if (world->own_launch && whole) kolo_launch_finish(world->launch);
    if (world->own_launch) free(world->launch);
    free(world);
    *out = NULL;
}

void kolo_world_abort(kolo_world *world, const char *reason)
{
    char text[512];
    if (!world) return;
    snprintf(text, sizeof text, "rank %d on host %s gave up: %s", world->launch->rank, world->launch->host,
             reason ? reason : "no reason given");
    comm_router_break(world->router, text);
    lib_engine_wake(world);
}

static int none(void) { return kolo_fail(KOLO_EINPUT, "comm: no world is open"); }
int kolo_world_rank(const kolo_world *world) { return world ? world->launch->rank : none(); }
int kolo_world_size(const kolo_world *world) { return world ? world->launch->size : none(); }
int kolo_world_local_rank(const kolo_world *world) { return world ? world->launch->local_rank : none(); }
int kolo_world_local_size(const kolo_world *world) { return world ? world->launch->local_size : none(); }
int kolo_world_node(const kolo_world *world) { return world ? world->launch->node : none(); }
int kolo_world_nodes(const kolo_world *world) { return world ? world->launch->nodes : none(); }

int kolo_world_alloc(kolo_world *world, size_t bytes, void **memory)
{
    *memory = NULL;
    return world ? comm_router_alloc(world->router, bytes, memory) : none();
}

void kolo_world_free(kolo_world *world, void *memory)
{
    if (memory) comm_router_free(world->router, memory);
}

kolo_launch *kolo_world_launch(kolo_world *world) { return world->launch; }
