/* Groups and transfers: random programs of buckets of overlapping groups and of transfers, matched on
 * all ranks, which start them in orders of their own and wait for them later; every element of every
 * result is checked. mpiexec -n 2, 3, 4 or 7 comm_groups SEED; late, late-transfer,
 * late-stop-transfer: of two ranks with different programs, the last starts nothing of a group, or of a
 * transfer, because it does something else, or is stopped. */
#include <signal.h>

#include "comm_maps.h"

#include "base/thread.h"
#include "comm_program.h"

enum { PHASES = 6, RUNS = 4 };

static const map maps[] = {
    {2, "one node", {0}},
    {2, "1+1", {0, 1}},
    {3, "one node", {0}},
    {3, "2+1", {0, 0, 1}},
    {4, "one node", {0}},
    {4, "2+2", {0, 0, 1, 1}},
    {4, "2+2 cyclic", {0, 1, 0, 1}},
    {4, "1+1+1+1", {0, 1, 2, 3}},
    {7, "one node", {0}},
    {7, "4+3", {0, 0, 0, 0, 1, 1, 1}},
    {7, "cyclic over 4", {0, 1, 2, 3, 0, 1, 2}},
};

/* ---- running it ---- */

static int64_t wait_for(program *p, operation *op)
{
    if (!op->started) return 0;
    op->started = false;
    return kolo_comm_wait(p->comm, op->number) < 0 ? -1
                                                   : wrong_result(p, op, op->phase, kolo_comm_arena(p->comm));
}

static int start(program *p, operation *op, int phase)
{
    op->phase = phase;
    bring(p, op, phase, kolo_comm_arena(p->comm));
    op->started = true;
    return kolo_comm_start(p->comm, op->number);
}

/* All of a phase is started before anything of it is waited for; a quarter only where it is started again. */
static int64_t run_phase(program *p, dice *all, dice *mine, int phase)
{
    int order[PROGRAM_BUCKETS], own[PROGRAM_BUCKETS];
    int64_t bad = 0, rc;
    for (int b = 0; b < PROGRAM_BUCKETS; b++) order[b] = b;
    shuffle(all, order, PROGRAM_BUCKETS);
    reorder(p, order, mine, own);
    for (int i = 0; i < PROGRAM_BUCKETS; i++) {
        operation *op = &p->op[own[i]];
        if (!takes_part(p, op)) continue;
        if ((rc = wait_for(p, op)) < 0 || start(p, op, phase) < 0) return -1;
        bad += rc;
        if (roll(mine, 40) == 0) usleep((useconds_t)roll(mine, 2000));
    }
    shuffle(mine, own, PROGRAM_BUCKETS);
    for (int i = 0; i < PROGRAM_BUCKETS; i++) {
        if (phase < PHASES - 1 && roll(mine, 4) == 0) continue;
        if ((rc = wait_for(p, &p->op[own[i]])) < 0) return rc;
        bad += rc;
    }
    return bad;
}

static int64_t run(const map *m, uint64_t seed, bool canonical)
{
    static program p;
    dice all = {seed, 1000, 0}, mine = {seed, (uint64_t)rank, 0};
    draw(&p, rank, size, &all);
    const kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                                     .arena_bytes = p.elements * 4,
                                     .timeout = 30,
                                     .spin = 20,
                                     .canonical = canonical};
    int64_t bad = kolo_comm_create(&p.comm, &place(m)->launch, &config) < 0 || declare(&p) < 0 ? -1 : 0;
    for (int phase = 0; phase < PHASES && bad == 0; phase++) bad = run_phase(&p, &all, &mine, phase);
    if (bad < 0) fprintf(stderr, "# rank %d: %s\n", rank, kolo_error_text());
    kolo_comm_destroy(&p.comm);
    return bad < 0 ? 1000000 : bad;
}

/* ---- a rank that starts nothing ---- */

/* Different programs: rank 0 stands at action 40 of its own, the last rank at action 3. */
static void publish(kolo_comm *comm)
{
    if (rank == 0) kolo_comm_publish(comm, 7, 40);
    else kolo_comm_publish_text(comm, 7, 3, "forward of micro-batch 2");
}

static void check_late(bool transfer, bool stops, const map *m)
{
    const kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                                     .arena_bytes = 1 << 20,
                                     .timeout = stops ? 30 : 1,
                                     .heartbeat_timeout = stops ? 2 : 0,
                                     .spin = -1};
    const int last = size - 1, pair[] = {0, last};
    kolo_comm *comm = NULL;
    char want[64], mine[80];
    int group = 0, number = 0, rc = kolo_comm_create(&comm, &place(m)->launch, &config);
    if (rc == 0 && !transfer) rc = group = kolo_comm_group(comm, pair, 2);
    if (rc >= 0)
        rc = number = transfer ? kolo_comm_transfer(comm, last, 0, 0, 0, 1 << 20)
                               : kolo_comm_bucket_of(comm, group, KOLO_ALLREDUCE, 0, 1 << 18);
    if (rc >= 0) rc = kolo_comm_commit(comm);
    if (rc == 0) publish(comm);
    if (rc == 0) rc = kolo_comm_barrier(comm);
    if (stops) usleep(1500000); /* a beat tells the other node where this rank stands */
    if (rank == last && stops) raise(SIGSTOP);
    if (rank == last) usleep(6000000);
    const double begin = kolo_time();
    if (rc == 0 && rank == 0) rc = kolo_comm_start(comm, number);
    if (rc == 0 && rank == 0) rc = kolo_comm_wait(comm, number);
    if (rank != 0) usleep(8000000);
    const double seconds = kolo_time() - begin;
    snprintf(want, sizeof want, "rank %d on host n%d", last, m->node_of[last]);
    if (transfer)
        snprintf(mine, sizeof mine, "rank 0: receive 0 from rank %d, action 40 of step number 7", last);
    else snprintf(mine, sizeof mine, "rank 0: bucket 0, action 40 of step number 7");
    is_int(rc, KOLO_ELAUNCH, "%s, %s: a rank that %s ends the wait", m->name, transfer ? "transfer" : "group",
           stops ? "is stopped" : "starts nothing");
    ok(strstr(kolo_error_text(), want) == kolo_error_text() &&
           strstr(kolo_error_text(), "which began forward of micro-batch 2, action 3 of step number 7"),
       "it is named, with its own step and action: %s", kolo_error_text());
    ok(strstr(kolo_error_text(), mine), "and so is where rank 0 stands");
    ok(seconds > 0.9 && seconds < 5, "within the deadline (%.2f s)", seconds);
    done_testing();
    fflush(stdout);
    usleep(300000); /* mpiexec drops what it has not passed on yet */
    MPI_Abort(MPI_COMM_WORLD, 0);
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    const char *how = argc > 1 ? argv[1] : "1";
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        const map *m = &maps[i];
        if (m->size != size) continue;
        if (strncmp(how, "late", 4) == 0) {
            if (argc > 2 && strcmp(argv[2], m->name) == 0)
                check_late(strstr(how, "transfer"), strstr(how, "stop"), m);
            continue;
        }
        for (int n = 0; n < RUNS; n++)
            report(run(m, strtoull(how, NULL, 10) * RUNS + (uint64_t)n, n % 2 == 1),
                   n % 2 ? "random groups and transfers, canonical" : "random groups and transfers", m->name);
    }
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
