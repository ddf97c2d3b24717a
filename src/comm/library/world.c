/* The world: launch, router, the group of all ranks, and whoever takes the turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/library/parts.h"
#include "comm/rank_list.h"
#include "comm/segment.h"
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
static int find_launch(const void *mpi_comm, const char *method, kolo_launch **launch, bool *own)
{
    *own = mpi_comm || (!process.begun && kolo_launch_mpi_runs());
    *launch = &process.launch;
    if (*own) {
        *launch = kolo_alloc(sizeof **launch);
        if (!*launch) return KOLO_ECONFIG;
        int rc = kolo_launch_adopt(*launch, mpi_comm);
        if (rc < 0) free(*launch);
        return rc;
    }
    if (process.begun) return 0;
    KOLO_TRY(kolo_launch_start(&process.launch, method));
    process.begun = true;
    atexit(finish_launch);
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------------------------------------- */

/* What needs no other rank: settings, the table. */
static int prepare(kolo_world *world, const kolo_world_config *config)
{
    KOLO_TRY(lib_config_resolve(&world->config, config));
    KOLO_TRY(lib_entries_open(world));
    return comm_table_open(&world->selector, world->config.table, world->config.algorithm);
}

/* Before anything waits for anybody every rank learns whether all could prepare, with settings that fit together. */
static int agree_on_settings(const kolo_world *world, int status, lib_exchange exchange, void *of)
{
    const kolo_world_config *c = &world->config;
    char mine[LIB_TEXT] = "", list[1600], own[COMM_TEXT];
    bool differ = false;
    if (status < 0) snprintf(mine, sizeof mine, "%s", kolo_error_text());
    else snprintf(mine, sizeof mine, "transport %s, table %08x, timeline %s, cache %d, fixed order %s", c->transport,
                  comm_selector_digest(world->selector), c->timeline && *c->timeline ? "on" : "off", c->cache,
                  c->fixed_order ? "on" : "off");
    snprintf(own, sizeof own, "%s", kolo_error_text());
    char *all = kolo_alloc((size_t)world->launch->size * LIB_TEXT);
    if (!all) return KOLO_ECONFIG;
    int rc = exchange ? exchange(of, mine, sizeof mine, all) : kolo_launch_exchange(world->launch, mine, sizeof mine, all);
    for (int r = 0; r < world->launch->size && rc == 0; r++) differ |= strcmp(all + (size_t)r * LIB_TEXT, mine) != 0;
    if (status < 0) rc = kolo_fail(status, "%s", own);
    if (rc == 0 && differ) {
        comm_rank_list(list, sizeof list, NULL, world->launch->size, all, LIB_TEXT);
        rc = kolo_fail(KOLO_ECONFIG, "comm: the ranks of a world need the same settings: %s", list);
    }
    free(all);
    return rc;
}

static int open_parts(kolo_world *world, lib_exchange exchange, void *of)
{
    kolo_launch *l = world->launch;
    const kolo_world_config *c = &world->config;
    const comm_router_config config = {.between = c->transport,
                                       .timeout = c->timeout,
                                       .patience = c->patience,
                                       .shared_bytes = c->shared_bytes,
                                       .exchange = exchange,
                                       .exchange_of = of};
    KOLO_TRY(comm_router_open(&world->router, l, &config));
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
    KOLO_TRY(lib_engine_start(world));
    KOLO_TRY(lib_agree(world->group[0], "the beginning of the world", ""));
    return c->timeline && *c->timeline ? lib_timeline_begin(world, c->timeline) : 0;
}

int lib_world_start(kolo_world **out, kolo_launch *launch, const kolo_world_config *config, lib_exchange exchange,
                    void *of)
{
    kolo_world *world = *out = kolo_alloc(sizeof *world);
    if (!world) return KOLO_ECONFIG;
    pthread_mutex_init(&world->lock, NULL);
    world->launch = launch;
    int rc = agree_on_settings(world, prepare(world, config), exchange, of);
    if (rc == 0) rc = open_parts(world, exchange, of);
    if (rc < 0) kolo_world_close(out);
    return rc;
}

int kolo_world_open(kolo_world **out, const kolo_world_config *config)
{
    kolo_launch *launch;
    bool own;
    *out = NULL;
    if (process.open) return kolo_fail(KOLO_EINPUT, "comm: a world is open in this process; close it first");
    KOLO_TRY(find_launch(config ? config->mpi_comm : NULL, lib_config_method(config), &launch, &own));
    int rc = lib_world_start(out, launch, config, NULL, NULL);
    if (rc == 0) (*out)->own_launch = own;
    else if (own) free(launch); /* what it holds stays, as others may wait for this rank */
    process.open = rc == 0;
    return rc;
}

void kolo_world_close(kolo_world **out)
{
    kolo_world *world = *out;
    if (!world) return;
    const bool opened = world->router != NULL; /* else nobody waits for this rank */
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
    if (opened && !whole && world->launch == &process.launch) process.broken = true;
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
