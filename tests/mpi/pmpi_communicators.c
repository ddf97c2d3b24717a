/* A plain MPI program with many communicators: what libkolo_pmpi.so carries in groups of its own, and
 * what it leaves to MPI. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>

#include "pmpi_program.h"

/* All collectives of a communicator, the numbers of whose ranks are what MPI says. */
static bool all_right(MPI_Comm comm)
{
    enum { EACH = 3000 };
    int me, n;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    int *all = malloc(sizeof(int) * EACH * (size_t)n), mine[EACH];
    bool good = true;
    for (int i = 0; i < EACH; i++) mine[i] = me * 10000 + i;
    MPI_Allgather(mine, EACH, MPI_INT, all, EACH, MPI_INT, comm);
    for (int i = 0; i < EACH * n; i++) good &= all[i] == i / EACH * 10000 + i % EACH;
    for (int root = 0; root < n; root++) {
        memcpy(mine, all + root * EACH, me == root ? sizeof mine : 0);
        MPI_Bcast(mine, EACH, MPI_INT, root, comm);
        for (int i = 0; i < EACH; i++) good &= mine[i] == root * 10000 + i;
    }
    MPI_Reduce_scatter_block(MPI_IN_PLACE, all, EACH, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < EACH; i++) good &= all[i] == n * (me * 10000 + i);
    for (int i = 0; i < EACH; i++) mine[i] = me + i;
    MPI_Allreduce(MPI_IN_PLACE, mine, EACH, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < EACH; i++) good &= mine[i] == n * (n - 1) / 2 + n * i;
    free(all);
    return good;
}

static void test_kinds(void)
{
    MPI_Comm twin, half, back, pair, joined;
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    bool good = all_right(twin) && all_right(MPI_COMM_WORLD) && all_right(twin);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    good &= all_right(half);
    agree(good, "a duplicate and halves");
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &back);
    agree(all_right(back) && all_right(MPI_COMM_SELF), "ranks back to front, and one alone");
    if (size > 1) {
        int sum, one = rank + 1, want = 0;
        MPI_Intercomm_create(half, 0, twin, 1 - rank % 2, 5, &pair);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, pair);
        for (int r = 1 - rank % 2; r < size; r += 2) want += r + 1;
        MPI_Intercomm_merge(pair, rank % 2, &joined);
        good = sum == want && all_right(joined);
        MPI_Comm_free(&joined);
        MPI_Comm_free(&pair);
    }
    agree(good, "two sides, and what they become when they are joined");
    MPI_Comm_free(&back);
    MPI_Comm_free(&half);
    MPI_Comm_free(&twin);
}

/* Twins that are used in another order on every second rank, each by sums that nobody waits for meanwhile. */
static void test_orders(void)
{
    MPI_Comm twin[2];
    MPI_Request request[2];
    int sum[2] = {rank, 10 * rank}, want = size * (size - 1) / 2;
    for (int t = 0; t < 2; t++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &twin[t]);
        MPI_Bcast(&want, 1, MPI_INT, 0, twin[t]);
    }
    for (int i = 0; i < 2; i++) {
        int t = i ^ (rank & 1);
        MPI_Iallreduce(MPI_IN_PLACE, &sum[t], 1, MPI_INT, MPI_SUM, twin[t], &request[t]);
        if (i == 0 && rank + 1 < size && !(rank & 1))
            MPI_Send(&want, 0, MPI_INT, rank + 1, 1, MPI_COMM_WORLD);
        if (i == 0 && rank & 1) MPI_Recv(&want, 0, MPI_INT, rank - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int t = 0; t < 2; t++) MPI_Comm_free(&twin[t]); /* under way */
    for (int t = 0; t < 2; t++) MPI_Wait(&request[t], MPI_STATUS_IGNORE);
    agree(sum[0] == want && sum[1] == 10 * want,
          "duplicates in another order on every second rank, freed while their sums are under way");
}

/* Rank 0 waits for the younger communicator before the others begin with the older. */
static void test_waiting(void)
{
    MPI_Comm twin[2];
    MPI_Request request[2];
    int sum[2] = {1, 1};
    for (int t = 0; t < 2; t++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &twin[t]);
        MPI_Bcast(&sum[t], 1, MPI_INT, 0, twin[t]);
    }
    for (int t = 0; t < 2; t++)
        if (rank == 0 || t == 1)
            MPI_Iallreduce(MPI_IN_PLACE, &sum[t], 1, MPI_INT, MPI_SUM, twin[t], &request[t]);
    MPI_Wait(&request[1], MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank > 0) MPI_Iallreduce(MPI_IN_PLACE, &sum[0], 1, MPI_INT, MPI_SUM, twin[0], &request[0]);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    for (int t = 0; t < 2; t++) MPI_Comm_free(&twin[t]);
    agree(sum[0] == size && sum[1] == size,
          "a sum is waited for while an older one of another communicator is not begun everywhere");
}

static void test_many(void)
{
    enum { TIMES = 12, AT_ONCE = 66 };
    MPI_Comm comm[AT_ONCE];
    bool good = true;
    int sum, want = size * (size - 1) / 2;
    for (int i = 0; i < TIMES; i++) { /* one after the other */
        MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm[0]);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm[0]);
        good &= sum == want;
        MPI_Comm_free(&comm[0]);
    }
    agree(good, "12 communicators one after the other");
    for (int i = 0; i < AT_ONCE; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm[i]);
        good &= sum == want;
    }
    for (int i = 0; i < AT_ONCE; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm[i]);
        good &= sum == want;
        MPI_Comm_free(&comm[i]);
    }
    agree(good, "66 at once, of which some have to be MPI's");
}

typedef struct lane {
    pthread_t thread;
    MPI_Comm comm;
    bool good;
} lane;

static void *use(void *of)
{
    lane *l = of;
    for (int i = 0; i < 4; i++) {
        int sum = 1;
        MPI_Comm next;
        MPI_Comm_dup(l->comm, &next);
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, next);
        l->good &= sum == size;
        MPI_Comm_free(&next);
    }
    return NULL;
}

static void *wait_for_sum(void *of)
{
    MPI_Status status;
    MPI_Waitall(1, of, &status);
    return NULL;
}

/* Rank 1 waits for a message before it comes to a sum that a thread of rank 0 waits for. */
static void test_message_of_other(void)
{
    pthread_t thread;
    MPI_Request request = MPI_REQUEST_NULL;
    int sum = 1, word = 5;
    if (rank == 1) MPI_Recv(&word, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    pthread_create(&thread, NULL, wait_for_sum, &request);
    if (rank == 0) usleep(100000);
    if (rank == 0) MPI_Send(&word, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
    pthread_join(thread, NULL);
    agree(sum == size && word == 5, "a thread sends what is awaited while another waits for the sum");
}

static void test_threads(void)
{
    lane lanes[3];
    bool good = true;
    for (int t = 0; t < 3; t++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &lanes[t].comm);
        lanes[t].good = true;
    }
    for (int t = 0; t < 3; t++) pthread_create(&lanes[t].thread, NULL, use, &lanes[t]);
    for (int t = 0; t < 3; t++) {
        pthread_join(lanes[t].thread, NULL);
        good &= lanes[t].good;
        MPI_Comm_free(&lanes[t].comm);
    }
    agree(good, "three threads that make communicators");
}

/* One rank sends more than the others await. */
static void test_mistake(void)
{
    int send[2] = {rank, rank}, *all = malloc(sizeof *all * (size_t)size);
    MPI_Comm twin;
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Comm_set_errhandler(twin, MPI_ERRORS_RETURN);
    int rc = MPI_Allgather(send, rank == size - 1 ? 2 : 1, MPI_INT, all, 1, MPI_INT, twin);
    bool good = rc != MPI_SUCCESS && MPI_Allgather(send, 1, MPI_INT, all, 1, MPI_INT, twin) == MPI_SUCCESS;
    for (int r = 0; r < size; r++) good &= all[r] == r;
    MPI_Comm_free(&twin);
    free(all);
    agree(good, "a rank that sends too much is an error on all, and the next call is sound");
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    test_kinds();
    test_orders();
    test_waiting();
    test_many();
    test_threads();
    test_message_of_other();
    if (size > 1) test_mistake();
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
