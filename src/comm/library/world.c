/* The world: launch, router, the group of all ranks, and whoever takes the turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/library/membership.h"
#include "comm/library/parts.h"
#include "comm/rank_list.h"
#include "comm/segment.h"
#include "kolo/buckets.h"

/* MPI and PMIx can be begun once in a process: they are kept when a world is closed, so that another may be
 * opened, and end with the process. */
static struct {
    kolo_launch launch;
    pid_t pid;          /* whose it is: a child that was forked has neither launch nor world */
    kolo_world *opened; /* on that launch; NULL: none */
    bool begun, open;
    _Atomic bool broken;
} process;

static const char the_end[] = "the end of the world";

static void close_world(kolo_world **out, bool whole);

/* A program that ends without a close: MPI and PMIx would wait for the others, and they for this rank. Where
 * all end that way, nothing is wrong. */
static void leave(kolo_world *world)
{
    const bool whole =
        !lib_broken(world) && lib_agree_within(world->all, the_end, world->config.patience,
                                               "its program ended without kolo_world_close") == 0;
    close_world(&world, whole);
}

static void finish_launch(void)
{
    if (process.pid != getpid()) return;
    if (process.opened) leave(process.opened);
    /* after a failure that would wait for the dead */
    if (!process.broken) kolo_launch_finish(&process.launch);
}

/* From the launch's watchdog: PMIx and MPI would wait for the missing for ever. */
static void end_stuck(kolo_launch *launch, const char *text)
{
    kolo_error("%s", text);
    kolo_launch_abort(launch, -KOLO_ELAUNCH);
}

/* A program's ranks may begin and end at different times: beyond the launch who lives is waited for. */
static kolo_launch_limits limits_of(const kolo_world_config *config)
{
    kolo_world_config c;
    const int rc = lib_config_resolve(&c, config); /* what is wrong with it is said later */
    const kolo_launch_limits limits = {
        .start = c.timeout, .patience = c.patience, .end = rc < 0 ? NULL : end_stuck};
    lib_config_free(&c);
    return limits;
}

/* A launch of its own where the program runs MPI itself, else the process's. */
static int find_launch(const kolo_world_config *config, kolo_launch **launch, bool *own)
{
    const void *mpi_comm = config ? config->mpi_comm : NULL;
    const kolo_launch_limits limits = limits_of(config);
    *own = mpi_comm || (!process.begun && kolo_launch_mpi_runs());
    *launch = &process.launch;
    if (*own) {
        *launch = kolo_alloc(sizeof **launch);
        if (!*launch) return KOLO_ENOMEM;
        int rc = kolo_launch_adopt(*launch, mpi_comm);
        if (rc < 0) free(*launch);
        return rc;
    }
    if (process.begun) return 0;
    KOLO_TRY(kolo_launch_start(&process.launch, lib_config_method(config), &limits));
    process.begun = true;
    process.pid = getpid();
    atexit(finish_launch);
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* What needs no other rank: settings, the table, the door for a later shrink (of survivors, who
 * have theirs: not again). */
static int world_prepare(kolo_world *world, const kolo_world_config *config, bool survivors)
{
    const kolo_launch *l = world->launch;
    bool mpi;
    KOLO_TRY(lib_config_resolve(&world->config, config));
    KOLO_TRY(lib_entries_open(world));
    KOLO_TRY(comm_table_open(&world->selector, world->config.table, world->config.algorithm));
    if (!survivors) KOLO_TRY(comm_selector_check(world->selector, l->size));
    KOLO_TRY(comm_router_between(l, world->config.transport, &mpi));
    return l->size == 1 || mpi || survivors ? 0 : lib_membership_open(&world->membership, l->nodes == 1);
}

/* What every rank tells before anything else. */
typedef struct introduction {
    char settings[LIB_TEXT];
    line_address door;
} introduction;

/* Before anything waits for anybody every rank learns whether all could prepare, with
 * settings that fit together. */
static int agree_on_settings(const kolo_world *world, int status, lib_exchange exchange, void *of)
{
    const kolo_world_config *c = &world->config;
    introduction mine = {.settings = ""};
    char list[1600];
    kolo_failure own;
    bool differ = false;
    if (world->membership) mine.door = world->membership->address;
    if (status < 0) snprintf(mine.settings, LIB_TEXT, "%s", kolo_error_text());
    else
        snprintf(mine.settings, LIB_TEXT, "transport %s, table %08x, timeline %s, cache %d, fixed order %s",
                 c->transport, comm_selector_digest(world->selector),
                 c->timeline && *c->timeline ? "on" : "off", c->cache, c->fixed_order ? "on" : "off");
    kolo_error_keep(&own);
    introduction *all = kolo_alloc((size_t)world->launch->size * sizeof *all);
    if (!all) return KOLO_ENOMEM;
    int rc = exchange ? exchange(of, &mine, sizeof mine, all)
                      : kolo_launch_exchange(world->launch, &mine, sizeof mine, all);
    for (int r = 0; r < world->launch->size && rc == 0; r++)
        differ |= strcmp(all[r].settings, mine.settings) != 0;
    if (status < 0) rc = kolo_error_restore(&own, status);
    if (rc == 0 && differ) {
        comm_rank_list(list, sizeof list, NULL, world->launch->size, all[0].settings, sizeof *all);
        rc = kolo_fail(KOLO_ECONFIG, "comm: the ranks of a world need the same settings: %s", list);
    }
    if (rc == 0 && world->membership)
        rc = lib_membership_begin(world->membership, world->launch, &all[0].door, sizeof *all, c->timeout,
                                  c->patience);
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
                                       .within = exchange == lib_membership_exchange ? c->patience : 0,
                                       .shared_bytes = c->shared_bytes,
                                       .exchange = exchange,
                                       .exchange_of = of};
    KOLO_TRY(comm_router_open(&world->router, l, &config));
    KOLO_TRY(lib_engine_open(world));
    int *all = kolo_alloc((size_t)l->size * sizeof *all);
    kolo_group **table = world->group = kolo_alloc(16 * sizeof *world->group);
    if (!all || !table) {
        free(all);
        return KOLO_ENOMEM;
    }
    world->groups = 16;
    for (int r = 0; r < l->size; r++) all[r] = r;
    int rc = lib_group_open(world, all, l->size, 0, &table[0]);
    free(all);
    /* nothing can be agreed on yet, and the others wait */
    if (rc < 0) return comm_router_break_by(world->router, rc);
    KOLO_TRY(lib_group_join(table[0]));
    world->all = table[0];
    KOLO_TRY(lib_engine_start(world));
    KOLO_TRY(lib_agree(world->all, "the beginning of the world", ""));
    return c->timeline && *c->timeline ? lib_timeline_begin(world, c->timeline) : 0;
}

int lib_world_start(kolo_world **out, kolo_launch *launch, const kolo_world_config *config,
                    lib_exchange exchange, void *of)
{
    kolo_world *world = *out = kolo_alloc(sizeof *world);
    if (!world) return KOLO_ENOMEM;
    pthread_mutex_init(&world->lock, NULL);
    world->launch = launch;
    int rc = agree_on_settings(world, world_prepare(world, config, exchange == lib_membership_exchange),
                               exchange, of);
    if (rc == 0) rc = open_parts(world, exchange, of);
    if (rc < 0) kolo_world_close(out);
    return rc;
}

int kolo_world_open(kolo_world **out, const kolo_world_config *config)
{
    kolo_launch *launch;
    bool own;
    if (!out) return kolo_fail(KOLO_EINPUT, "comm: no place is given for the world");
    *out = NULL;
    if (process.open) return kolo_fail(KOLO_EINPUT, "comm: a world is open in this process; close it first");
    if (process.broken && process.launch.size > 1)
        return kolo_fail(KOLO_ELAUNCH, "comm: a world of this process broke, and its launcher would wait for "
                                       "the dead; start the job again");
    KOLO_TRY(find_launch(config, &launch, &own));
    int rc = lib_world_start(out, launch, config, NULL, NULL);
    if (rc == 0) (*out)->own_launch = own;
    else if (own) free(launch); /* what it holds stays, as others may wait for this rank */
    process.open = rc == 0;
    if (rc == 0 && !own) process.opened = *out;
    return rc;
}

void kolo_world_close(kolo_world **out)
{
    kolo_world *world = out ? *out : NULL;
    if (!world) return;
    bool whole = world->engine && world->groups && world->all && !lib_broken(world);
    for (int g = world->groups - 1; whole && g >= 0; g--)
        if (world->group[g]) lib_group_drain(world->group[g]);
    if (whole) whole = lib_agree(world->all, the_end, "") == 0;
    close_world(out, whole);
}

static void close_world(kolo_world **out, bool whole)
{
    kolo_world *world = *out;
    const bool opened = world->router != NULL; /* else nobody waits for this rank */
    if (process.opened == world) process.opened = NULL;
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
    if (world->own_launch && (whole || !world->launch->state)) kolo_launch_finish(world->launch);
    if (world->own_launch) free(world->launch);
    lib_membership_close(&world->membership);
    free(world);
    *out = NULL;
}

static int none(void) { return kolo_fail(KOLO_EINPUT, "comm: no world is open"); }

/* ---- shrinking ----------------------------------------------------------------------------------------- */

static int may_shrink(kolo_world *world)
{
    if (!world->membership && world->launch->size > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "comm: the %d nodes of this world talk over MPI, which cannot go on without its "
                         "dead ranks; open a world that is to shrink with "
                         "transport=tcp (KOLO_COMM_TRANSPORT=tcp)",
                         world->launch->nodes);
    if (!world->membership) return kolo_fail(KOLO_EINPUT, "comm: a world of one rank cannot shrink");
    if (comm_router_status(world->router) == 0)
        return kolo_fail(KOLO_EINPUT, "comm: the world is whole; kolo_world_abort breaks it on all ranks");
    /* its engine sees the same in its next turn, and ends what is under way */
    while (!lib_broken(world)) usleep(1000);
    return 0;
}

/* A world that did not come about, and that nobody opens any more. */
static void world_forget(kolo_launch **tried)
{
    if (!*tried) return;
    comm_router_forget(*tried);
    kolo_launch_finish(*tried);
    free(*tried);
    *tried = NULL;
}

/* The survivors' world; KOLO_ELAUNCH and *gathered: some of them died meanwhile. *tried: the one that was to
 * open before, then the one that does not now. */
static int open_survivors(kolo_world **out, lib_membership *membership, const kolo_world_config *config,
                          int least, kolo_launch **tried, bool *gathered)
{
    *gathered = false;
    int rc = lib_membership_gather(membership, least);
    world_forget(tried); /* its members are here now, or dead */
    KOLO_TRY(rc);
    *gathered = true;
    kolo_launch *launch = kolo_alloc(sizeof *launch);
    if (!launch) return KOLO_ENOMEM;
    rc = lib_membership_launch(membership, launch);
    if (rc == 0) rc = lib_world_start(out, launch, config, lib_membership_exchange, membership);
    if (rc == 0) {
        (*out)->own_launch = process.open = true;
        (*out)->membership = membership;
        return 0;
    }
    *tried = launch;
    return rc;
}

int kolo_world_shrink(kolo_world **out, int least)
{
    kolo_world *old = out ? *out : NULL;
    if (!old) return none();
    KOLO_TRY(may_shrink(old));
    lib_membership *membership = old->membership;
    kolo_world_config config = old->config;
    int attempts = old->launch->size, rc;
    bool gathered;
    kolo_launch *tried = NULL;
    if (least <= 0) least = old->launch->size / 2 + 1;
    old->membership = NULL;
    old->config = (kolo_world_config){0};
    kolo_world_close(out);
    lib_timeline_next(&config.timeline);
    do rc = open_survivors(out, membership, &config, least, &tried, &gathered);
    while (rc == KOLO_ELAUNCH && gathered && --attempts > 0);
    world_forget(&tried);
    if (rc < 0) lib_membership_close(&membership);
    lib_config_free(&config);
    return rc;
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

int kolo_world_rank(const kolo_world *world) { return world ? world->launch->rank : none(); }
int kolo_world_size(const kolo_world *world) { return world ? world->launch->size : none(); }
int kolo_world_local_rank(const kolo_world *world) { return world ? world->launch->local_rank : none(); }
int kolo_world_local_size(const kolo_world *world) { return world ? world->launch->local_size : none(); }
int kolo_world_node(const kolo_world *world) { return world ? world->launch->node : none(); }
int kolo_world_nodes(const kolo_world *world) { return world ? world->launch->nodes : none(); }

int kolo_world_alloc(kolo_world *world, size_t bytes, void **memory)
{
    if (!memory) return kolo_fail(KOLO_EINPUT, "comm: no place is given for the memory");
    *memory = NULL;
    return world ? comm_router_alloc(world->router, bytes, memory) : none();
}

void kolo_world_free(kolo_world *world, void *memory)
{
    if (world && memory) comm_router_free(world->router, memory);
}

kolo_launch *kolo_world_launch(kolo_world *world) { return world ? world->launch : NULL; }
