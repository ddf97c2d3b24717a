/* Which communicators are served, and by what.
 *
 * A communicator gets its pmpi_comm at its first blocking call of ours, when all its ranks are there to make
 * one: MPI's own reduction tells them which number is free on all. MPI_Comm_free may leave nobody waiting, so
 * nothing is closed then: it is idle, and the next communicator with the same ranks takes it over,
 * whose collectives come behind those of the old one on every rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/library/parts.h"
#include "comm/pmpi/pmpi.h"

static struct {
    int key;                /* of the attribute that leads from a communicator to its pmpi_comm */
    _Atomic uint64_t taken; /* numbers of those served, used or idle */
    _Atomic long long served[PMPI_CALLS], unknown[PMPI_CALLS], elsewhere[PMPI_CALLS];
} book;

static pmpi_comm nobody; /* of communicators that are MPI's for good */

/* ---- making one ---------------------------------------------------------------------------------- */

/* Whether the library can carry `comm`: two ranks or more, in the order that they have in MPI_COMM_WORLD,
 * where they stand as `rank` tells, if there is memory for it. */
static bool can_carry(MPI_Comm comm, int *size, int **rank)
{
    MPI_Group own, all;
    int between, last = -1, next;
    bool good = true;
    *rank = NULL;
    PMPI_Comm_test_inter(comm, &between);
    PMPI_Comm_size(comm, size);
    if (between || *size < 2) return false;
    int *list = malloc((size_t)*size * sizeof *list);
    PMPI_Comm_group(comm, &own);
    PMPI_Comm_group(MPI_COMM_WORLD, &all);
    for (int i = 0; i < *size && good; i++, last = next) {
        PMPI_Group_translate_ranks(own, 1, &i, all, &next);
        good = next != MPI_UNDEFINED && next > last;
        if (list) list[i] = next;
    }
    PMPI_Group_free(&own);
    PMPI_Group_free(&all);
    if (good) *rank = list;
    else free(list);
    return good;
}

static uint64_t idle_with(const int *rank, int size)
{
    uint64_t mask = 0;
    for (int id = 1; id < PMPI_COMMS; id++) {
        const pmpi_comm *c = pmpi_shim.comm[id];
        if (c && !c->used && c->size == size && !memcmp(c->rank_of, rank, (size_t)size * sizeof *rank))
            mask |= 1ull << id;
    }
    return mask;
}

/* One of the bits that are set: the same for the same lot, another for another. */
static int draw(uint64_t bits, uint64_t lot)
{
    for (uint64_t skip = lot % (uint64_t)__builtin_popcountll(bits); skip > 0; skip--) bits &= bits - 1;
    return __builtin_ctzll(bits);
}

static uint64_t new_lot(void)
{
    static _Atomic uint64_t drawn;
    uint64_t lot = (++drawn + ((uint64_t)pmpi_shim.rank << 32)) * 0x9e3779b97f4a7c15ull;
    return (lot ^ lot >> 31) * 0xbf58476d1ce4e5b9ull >> 20;
}

/* Another thread of this rank may have taken it meanwhile. */
static bool communicators_claim(int id, bool idle)
{
    bool unused = false;
    return idle ? atomic_compare_exchange_strong(&pmpi_shim.comm[id]->used, &unused, true)
                : !(atomic_fetch_or(&book.taken, 1ull << id) >> id & 1);
}

static void give_back(int id, bool idle)
{
    if (idle) pmpi_shim.comm[id]->used = false;
    else atomic_fetch_and(&book.taken, ~(1ull << id));
}

/* A number that all ranks of `comm` have idle with these ranks, else one that is free on all; 0: none, or no
 * memory for a list of ranks somewhere. Threads of a rank that are about the same for other communicators
 * draw from the same numbers: by the lot of a communicator's first rank, so that two of them seldom meet.
 * Where they do, both draw again. */
static int agree(MPI_Comm comm, const int *rank, int size)
{
    for (;;) {
        const bool first = rank && rank[0] == pmpi_shim.rank;
        uint64_t all[3] = {0}, word[3] = {rank ? idle_with(rank, size) : 0, rank ? ~book.taken : 0,
                                          first ? new_lot() : UINT64_MAX};
        int rc = PMPI_Allreduce(word, all, 3, MPI_UINT64_T, MPI_BAND, comm);
        const bool idle = all[0] != 0;
        const uint64_t found = idle ? all[0] : all[1];
        if (rc != MPI_SUCCESS || !found) return 0;
        int id = draw(found, all[2]), mine = communicators_claim(id, idle), every = 0;
        rc = PMPI_Allreduce(&mine, &every, 1, MPI_INT, MPI_MIN, comm);
        if (rc == MPI_SUCCESS && every) return id;
        if (mine) give_back(id, idle);
        if (rc != MPI_SUCCESS) return 0;
    }
}

/* Collective over the ranks. NULL, on all: it cannot be, and nothing is left of it. */
static pmpi_comm *communicators_make(MPI_Comm comm, int id, int *rank, int size)
{
    kolo_group *group = NULL;
    pmpi_comm *c = calloc(1, sizeof *c);
    int rc = c ? lib_group_open(pmpi_shim.world, rank, size, id, &group)
               : kolo_fail(KOLO_ENOMEM, "no memory for a communicator"),
        worst;
    if (rc < 0) fprintf(stderr, "libkolo_pmpi: %s; MPI does the work itself\n", kolo_error_text());
    /* nobody waits for a part, or sends, before all are there */
    PMPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, comm);
    if (worst < 0 || lib_group_join(group) < 0) {
        lib_group_drop(&group);
        give_back(id, false);
        free(c);
        return NULL;
    }
    lib_group_place(group);
    *c = (pmpi_comm){
        .group = group, .rank = kolo_group_rank(group), .size = size, .rank_of = rank, .used = true};
    pmpi_shim.comm[id] = c;
    return c;
}

static pmpi_comm *communicators_open(MPI_Comm comm)
{
    int size, *rank, id = can_carry(comm, &size, &rank) ? agree(comm, rank, size) : 0;
    pmpi_comm *c = id ? pmpi_shim.comm[id] : NULL;
    if (id && !c) c = communicators_make(comm, id, rank, size);
    if (!c || c->rank_of != rank) free(rank);
    if (!c) c = &nobody;
    PMPI_Comm_set_attr(comm, book.key, c);
    return c;
}

/* ---- finding it ---------------------------------------------------------------------------------------- */

static int is_freed(MPI_Comm comm, int key, void *of, void *unused)
{
    pmpi_comm *c = of;
    (void)comm, (void)key, (void)unused;
    if (c != &nobody) c->used = false;
    return MPI_SUCCESS;
}

static pmpi_comm *communicators_of(MPI_Comm comm, bool blocks)
{
    int found;
    void *value;
    if (comm == MPI_COMM_WORLD) return pmpi_shim.comm[0];
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_SELF) return NULL;
    if (PMPI_Comm_get_attr(comm, book.key, &value, &found) != MPI_SUCCESS) return NULL;
    if (found) return value == &nobody ? NULL : value;
    if (!blocks) return NULL;
    pmpi_enter();
    pmpi_comm *c = communicators_open(comm);
    pmpi_leave();
    return c == &nobody ? NULL : c;
}

pmpi_comm *pmpi_serves(enum pmpi_call call, MPI_Comm comm, bool is_known, bool blocks)
{
    if (pmpi_inside || !pmpi_shim.world) return NULL;
    pmpi_comm *c = is_known ? communicators_of(comm, blocks) : NULL;
    atomic_fetch_add_explicit(c          ? &book.served[call]
                              : is_known ? &book.elsewhere[call]
                                         : &book.unknown[call],
                              1, memory_order_relaxed);
    return c;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

int pmpi_comms_open(void)
{
    pmpi_comm *c = calloc(1, sizeof *c);
    if (!c) return kolo_fail(KOLO_ENOMEM, "no memory for a communicator");
    *c = (pmpi_comm){.rank = pmpi_shim.rank, .size = pmpi_shim.size, .used = true};
    pmpi_shim.comm[0] = c;
    book.taken = 1;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, is_freed, &book.key, NULL);
    return 0;
}

void pmpi_comms_close(void) { PMPI_Comm_free_keyval(&book.key); }

void pmpi_report(void)
{
    static const char *const names[PMPI_CALLS] = {"MPI_Allreduce", "MPI_Iallreduce",
                                                  "MPI_Reduce_scatter_block", "MPI_Allgather", "MPI_Bcast"};
    for (int i = 0; i < PMPI_CALLS; i++)
        if (book.served[i] + book.unknown[i] + book.elsewhere[i] > 0)
            fprintf(stderr,
                    "libkolo_pmpi: %s: %lld served, left to MPI: %lld of a type, operation or size, %lld of "
                    "a communicator\n",
                    names[i], book.served[i], book.unknown[i], book.elsewhere[i]);
}

void pmpi_forget_counts(void)
{
    for (int i = 0; i < PMPI_CALLS; i++) book.served[i] = book.unknown[i] = book.elsewhere[i] = 0;
}
