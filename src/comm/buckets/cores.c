/* Ranks that share processors compute in turns. The kernel balances them only every few ticks, so two ranks
 * stay on one processor, though another has fallen idle, for longer than a step takes. Here a rank that wants
 * to compute takes a ticket, tickets are given cores in their order, and a rank is bound to the one that it
 * was given while it has it; left to the kernel, two are soon on one processor again, and so are those after
 * them. No locks: a rank that dies keeps others waiting no longer than until the communicator breaks. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/buckets/inside.h"

static const double LOOK_EVERY = 0.25; /* seconds */

/* Where every core has as many ranks they need not even out, and keep their caches for longer. */
double kolo_comm_turn_seconds(int ranks, int cores) { return ranks % cores ? 8e-3 : 20e-3; }

double kolo_comm_poll_seconds(int ranks, int cores)
{
    const double look = 25e-9; /* about what a pause takes */
    return look * (ranks > cores ? COMM_LOOKS_SHARED : COMM_LOOKS);
}

static comm_ticket *ticket_of(const comm_node *node, uint32_t number)
{
    return &node->control[0]->ticket[number % COMM_TICKETS];
}

static void bind(pid_t thread, int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(thread, sizeof one, &one);
}

void comm_cores_open(comm_node *node)
{
    const comm_segments *s = &node->segments;
    comm_control *leader = node->control[0];
    struct stat namespace;
    cpu_set_t of;
    memcpy(&node->cores.all, s->base[0]->cpu_mask, sizeof of);
    for (int l = 0; l < s->ranks; l++) {
        memcpy(&of, s->base[l]->cpu_mask, sizeof of);
        if (!CPU_EQUAL(&of, &node->cores.all)) return;
    }
    if (CPU_COUNT(&of) < 1 || CPU_COUNT(&of) >= s->ranks) return;
    node->cores.count = CPU_COUNT(&of);
    node->cores.turn = kolo_comm_turn_seconds(s->ranks, node->cores.count);
    node->cores.names = stat("/proc/self/ns/pid", &namespace) == 0 ? namespace.st_ino : 0;
    uint32_t cores = 0;
    for (uint32_t cpu = 0; node->me == 0 && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &of)) atomic_store(&leader->ticket[cores++].core, 1 + cpu);
    if (node->me == 0) atomic_store(&leader->given, cores);
}

void comm_cores_release(comm_node *node)
{
    if (!node->cores.own || !pthread_equal(node->cores.holder, pthread_self())) return;
    comm_ticket *next = ticket_of(node, atomic_fetch_add(&node->control[0]->given, 1));
    const uint32_t core = node->cores.own;
    node->cores.own = 0;
    sched_setaffinity(0, sizeof node->cores.all, &node->cores.all);
    const pid_t thread = atomic_load(&next->thread);
    /* so that it wakes there */
    if (thread && node->cores.names && atomic_load(&next->names) == node->cores.names)
        bind(thread, (int)core - 1);
    atomic_store(&next->core, core);
    kolo_futex_wake(&next->core);
}

/* Nothing where the communicator breaks meanwhile. */
static void acquire(comm_node *node)
{
    comm_ticket *mine = ticket_of(node, atomic_fetch_add(&node->control[0]->taken, 1));
    uint32_t core;
    atomic_store(&mine->names, node->cores.names);
    atomic_store(&mine->thread, (int32_t)gettid());
    while ((core = atomic_load(&mine->core)) == 0) {
        if (comm_node_broken(node)) return;
        kolo_futex_wait(&mine->core, 0, LOOK_EVERY, 0);
    }
    atomic_store(&mine->thread, 0);
    atomic_store(&mine->core, 0);
    bind(0, (int)core - 1);
    node->cores.own = core;
    node->cores.holder = pthread_self();
    node->cores.since = kolo_time();
}

void kolo_comm_acquire_core(kolo_comm *comm)
{
    comm_node *node = &comm->world.node;
    if (!node->cores.count) return;
    if (node->cores.own) {
        const comm_control *leader = node->control[0];
        const bool others = (int32_t)(atomic_load(&leader->taken) - atomic_load(&leader->given)) > 0;
        if (!others || kolo_time() - node->cores.since < node->cores.turn) return;
        comm_cores_release(node);
    }
    acquire(node);
}

void kolo_comm_release_core(kolo_comm *comm) { comm_cores_release(&comm->world.node); }
