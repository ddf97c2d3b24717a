/* The world: launch, router, the group of all ranks, and the thread that takes the turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/library/membership.h"
#include "comm/core/config.h"
#include "comm/library/parts.h"
#include "comm/core/rank_list.h"
#include "kolo/comm.h"

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
        !lib_broken(world) && lib_agree_within(world->all, the_end, world->config.heartbeat_timeout,
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
static int start_process_launch(const kolo_world_config *config)
{
    kolo_world_config c;
    int rc = lib_config_resolve(&c, config); /* what is wrong with it is said later */
    const kolo_launch_limits limits = {
        .start = c.timeout, .heartbeat_timeout = c.heartbeat_timeout, .end = rc < 0 ? NULL : end_stuck};
    rc = kolo_launch_start(&process.launch, c.method ? c.method : "auto", &limits);
    lib_config_free(&c);
    return rc;
}

/* A launch of its own where the program runs MPI itself, else the process's. */
static int find_launch(const kolo_world_config *config, kolo_launch **launch, bool *own)
{
    const void *mpi_comm = config ? config->mpi_comm : NULL;
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
    KOLO_TRY(start_process_launch(config));
    process.begun = true;
    process.pid = getpid();
    atexit(finish_launch);
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* What needs no other rank: settings, the table, the listener for a later shrink (of survivors, who have
 * theirs: not again), and all that the opening allocates before a rank that fails could break the world. */
static int world_prepare(kolo_world *world, const kolo_world_config *asked, lib_exchange exchange, void *of)
{
    kolo_launch *l = world->launch;
    const kolo_world_config *c = &world->config;
    const bool survivors = exchange == lib_membership_exchange;
    bool mpi;
    KOLO_TRY(lib_config_resolve(&world->config, asked));
    KOLO_TRY(lib_entries_open(world));
    KOLO_TRY(comm_table_open(&world->selector, c->table, c->algorithm));
    if (!survivors) KOLO_TRY(comm_selector_check(world->selector, l->size));
    KOLO_TRY(comm_router_between(l, c->transport, &mpi));
    if (l->size > 1 && !mpi && !survivors) KOLO_TRY(lib_membership_open(&world->membership, l));
    const comm_router_config config = {.between = c->transport,
                                       .timeout = c->timeout,
                                       .heartbeat_timeout = c->heartbeat_timeout,
                                       .within = survivors ? c->heartbeat_timeout : 0,
                                       .shared_bytes = c->shared_bytes,
                                       .exchange = exchange,
                                       .exchange_of = of};
    return comm_router_make(&world->router, l, &config);
}

/* What every rank tells before anything else. */
typedef struct introduction {
    int32_t status; /* of preparing; negative: `settings` is why */
    char settings[LIB_TEXT];
    line_address listener;
} introduction;

/* All could prepare, with settings that fit together; or it is said who could not, or differs. */
static int compare(const introduction *all, int size)
{
    char list[1600];
    bool differ = false;
    for (int r = 0; r < size; r++) {
        if (all[r].status == KOLO_ENOMEM)
            return kolo_fail(KOLO_ELAUNCH, "comm: rank %d could not open its world: %s", r, all[r].settings);
        differ |= strcmp(all[r].settings, all[0].settings) != 0;
    }
    if (!differ) return 0;
    comm_rank_list(list, sizeof list, NULL, size, all[0].settings, sizeof *all);
    return kolo_fail(KOLO_ECONFIG, "comm: the ranks of a world need the same settings: %s", list);
}

/* Before anything waits for anybody every rank learns whether all could prepare, with
 * settings that fit together. world: NULL with a status alone. */
static int agree_on_settings(kolo_launch *launch, const kolo_world *world, int status, lib_exchange exchange,
                             void *of)
{
    const kolo_world_config *c = world ? &world->config : NULL;
    const size_t bytes = (size_t)launch->size * sizeof(introduction);
    introduction mine = {.status = status};
    kolo_failure own;
    if (world && world->membership) mine.listener = world->membership->address;
    if (status < 0) snprintf(mine.settings, LIB_TEXT, "%s", kolo_error_text());
    else
        snprintf(mine.settings, LIB_TEXT, "transport %s, table %08x, timeline %s, cache %d, fixed order %s",
                 c->transport, comm_selector_digest(world->selector),
                 c->timeline && *c->timeline ? "on" : "off", c->cache, c->fixed_order ? "on" : "off");
    kolo_error_keep(&own);
    void *all =
        kolo_pages_alloc(bytes); /* pages, which are there where the heap is used up: the others wait */
    if (!all) return KOLO_ENOMEM;
    int rc = exchange ? exchange(of, &mine, sizeof mine, all)
                      : kolo_launch_exchange(launch, &mine, sizeof mine, all);
    if (rc == 0) rc = compare(all, launch->size);
    if (status < 0) rc = kolo_error_restore(&own, status);
    if (rc == 0 && world->membership)
        rc = lib_membership_begin(world->membership, &((introduction *)all)->listener, sizeof mine,
                                  c->timeout, c->heartbeat_timeout);
    kolo_pages_free(&all, bytes);
    return rc;
}

static int open_parts(kolo_world *world)
{
    const kolo_launch *l = world->launch;
    const kolo_world_config *c = &world->config;
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
    KOLO_TRY(rc);
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
    if (!world) return agree_on_settings(launch, NULL, KOLO_ENOMEM, exchange, of);
    pthread_mutex_init(&world->lock, NULL);
    world->launch = launch;
    if (launch->rank == 0 && getenv("KOLO_COMM_PATIENCE"))
        kolo_warn("comm: KOLO_COMM_PATIENCE is an old name; write KOLO_COMM_HEARTBEAT_TIMEOUT");
    int rc = agree_on_settings(launch, world, world_prepare(world, config, exchange, of), exchange, of);
    if (rc == 0) rc = comm_router_join(&world->router);
    world->joined = rc == 0;
    if (rc == 0) rc = open_parts(world);
    /* nothing can be agreed on yet, and the others wait */
    if (rc < 0 && world->joined) rc = comm_router_break_by(world->router, rc);
    if (rc < 0) kolo_world_close(out);
    return rc;
}

int kolo_world_open(kolo_world **out, const kolo_world_config *config)
{
    kolo_world_config taken;
    kolo_launch *launch;
    bool own;
    if (!out) return kolo_fail(KOLO_EINPUT, "comm: no place is given for the world");
    *out = NULL;
    if (process.open) return kolo_fail(KOLO_EINPUT, "comm: a world is open in this process; close it first");
    if (process.broken && process.launch.size > 1)
        return kolo_fail(KOLO_ELAUNCH, "comm: a world of this process broke, and its launcher would wait for "
                                       "the dead; start the job again");
    if (config) KOLO_TRY(comm_config_take(&taken, sizeof taken, config, "kolo_world_config"));
    KOLO_TRY(find_launch(config ? &taken : NULL, &launch, &own));
    int rc = lib_world_start(out, launch, config ? &taken : NULL, NULL, NULL);
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
    const bool opened = world->joined; /* else nobody waits for this rank */
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
