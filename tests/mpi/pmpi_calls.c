/* A plain MPI program that knows nothing of Kolo: what libkolo_pmpi.so serves and what it leaves to MPI, with
 * results that a recount gives. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pmpi_program.h"

static int64_t value(int r, int64_t i) { return (r + 1) * (i % 13 - 6); }

static int64_t sum_of(int64_t i)
{
    int64_t sum = 0;
    for (int r = 0; r < size; r++) sum += value(r, i);
    return sum;
}

#define SUMS(name, type, mpi)                                                                               \
    static bool name(int count, bool in_place)                                                              \
    {                                                                                                       \
        type *in = calloc((size_t)count, sizeof(type)), *out = calloc((size_t)count, sizeof(type));         \
        bool good = true;                                                                                   \
        for (int i = 0; i < count; i++) in[i] = out[i] = (type)value(rank, i);                              \
        MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, count, mpi, MPI_SUM, MPI_COMM_WORLD);              \
        for (int i = 0; i < count; i++) good &= out[i] == (type)sum_of(i) && in[i] == (type)value(rank, i); \
        free(in);                                                                                           \
        free(out);                                                                                          \
        return good;                                                                                        \
    }
SUMS(sum_float, float, MPI_FLOAT)
SUMS(sum_double, double, MPI_DOUBLE)
SUMS(sum_int, int, MPI_INT)
SUMS(sum_unsigned, unsigned, MPI_UNSIGNED)
SUMS(sum_long, long, MPI_LONG)
SUMS(sum_char, signed char, MPI_SIGNED_CHAR)

static void test_sums(void)
{
    static const int counts[] = {1, 7, 1000, 65537, 300001};
    static const struct {
        const char *name;
        bool (*sum)(int count, bool in_place);
    } types[] = {{"float", sum_float},       {"double", sum_double}, {"int", sum_int},
                 {"unsigned", sum_unsigned}, {"long", sum_long},     {"signed char", sum_char}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        bool good = true;
        char text[80];
        for (int c = 0; c < 5; c++)
            for (int p = 0; p < 2; p++) good &= types[t].sum(counts[c], p);
        snprintf(text, sizeof text, "sums of %s, 1 to 300,001, in place and not", types[t].name);
        agree(good, text);
    }
}

static void test_others(void)
{
    float f[3] = {(float)rank, (float)-rank, 2}, least[3], most[3], product[3];
    MPI_Allreduce(f, least, 3, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(f, most, 3, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(f, product, 3, MPI_FLOAT, MPI_PROD, MPI_COMM_WORLD);
    agree(least[0] == 0 && least[1] == (float)(1 - size) && most[0] == (float)(size - 1) &&
              product[2] == (float)(1 << size),
          "min, max and product");
    struct {
        double value;
        int where;
    } pair = {(double)(rank % 2), rank}, best;
    MPI_Allreduce(&pair, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    agree(best.where == (size > 1), "what the library does not know is left to MPI");
    unsigned large = 0x80000000u + (unsigned)rank, largest, mask = 1u << rank, masks;
    MPI_Allreduce(&large, &largest, 1, MPI_UNSIGNED, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&mask, &masks, 1, MPI_UNSIGNED, MPI_BOR, MPI_COMM_WORLD);
    int none = 7;
    MPI_Allreduce(MPI_IN_PLACE, &none, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(&none, 0, MPI_INT, 0, MPI_COMM_WORLD);
    agree(largest == 0x80000000u + (unsigned)(size - 1) && masks == (1u << size) - 1 && none == 7,
          "so are the largest of unsigned ones, bits, and nothing at all");
}

static void maximum_of_squares(void *in, void *out, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        if (((double *)in)[i] * ((double *)in)[i] > ((double *)out)[i] * ((double *)out)[i])
            ((double *)out)[i] = ((double *)in)[i];
}

static void add_pairs(void *in, void *out, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < 2 * *count; i++) ((int *)out)[i] += ((int *)in)[i];
}

static void test_own_ones(void)
{
    MPI_Op op;
    double one = -rank, most;
    MPI_Op_create(maximum_of_squares, 1, &op);
    MPI_Allreduce(&one, &most, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);
    int pair[2] = {1, rank}, sums[2];
    MPI_Datatype pairs;
    MPI_Type_contiguous(2, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    MPI_Op_create(add_pairs, 1, &op);
    MPI_Allreduce(pair, sums, 1, pairs, op, MPI_COMM_WORLD);
    MPI_Op_free(&op);
    MPI_Type_free(&pairs);
    agree(most == 1 - size && sums[0] == size && sums[1] == size * (size - 1) / 2,
          "operations and types of the program's own");
}

/* The root sends every second number, the others take them one behind the other. */
static void test_broadcast(void)
{
    bool good = true;
    MPI_Datatype gaps;
    MPI_Type_vector(500, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    for (int root = 0; root < size; root++) {
        int data[1000];
        for (int i = 0; i < 1000; i++) data[i] = rank == root ? i : -1;
        if (rank == root) MPI_Bcast(data, 1, gaps, root, MPI_COMM_WORLD);
        else MPI_Bcast(data, 500, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < 500; i++) good &= data[i] == (rank == root ? i : 2 * i);
    }
    MPI_Type_free(&gaps);
    agree(good, "broadcasts from every root, whose type has holes");
    int data[2] = {7 + (rank != 0), 9};
    MPI_Type_indexed(2, (int[]){1, 1}, (int[]){1, 0}, MPI_INT, &gaps); /* back to front */
    MPI_Type_commit(&gaps);
    MPI_Bcast(data, rank ? 2 : 1, rank ? MPI_INT : gaps, 0, MPI_COMM_WORLD);
    MPI_Type_free(&gaps);
    agree(rank ? data[0] == 9 && data[1] == 7 : data[0] == 7, "broadcast of a type that has another order");
}

static void test_gather(void)
{
    enum { EACH = 333 };
    int *all = malloc(sizeof(int) * EACH * (size_t)size), mine[EACH];
    bool good = true;
    for (int i = 0; i < EACH; i++) mine[i] = rank * 1000 + i;
    MPI_Allgather(mine, EACH, MPI_INT, all, EACH, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < EACH * size; i++) good &= all[i] == i / EACH * 1000 + i % EACH;
    for (int i = 0; i < EACH * size; i++) all[i] = i / EACH == rank ? mine[i % EACH] + 1 : -1;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, EACH, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < EACH * size; i++) good &= all[i] == i / EACH * 1000 + i % EACH + 1;
    agree(good, "gathered to all, in place too");
    free(all);
}

static void test_scatter(void)
{
    enum { EACH = 257 };
    double *in = malloc(sizeof(double) * EACH * (size_t)size), out[EACH];
    bool good = true;
    for (int i = 0; i < EACH * size; i++) in[i] = (double)value(rank, i);
    MPI_Reduce_scatter_block(in, out, EACH, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < EACH; i++) good &= out[i] == (double)sum_of((int64_t)rank * EACH + i);
    MPI_Reduce_scatter_block(MPI_IN_PLACE, in, EACH, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < EACH; i++) good &= in[i] == (double)sum_of((int64_t)rank * EACH + i);
    agree(good, "reduced and scattered");
    free(in);
}

static void test_outstanding(void)
{
    enum { MANY = 24, COUNT = 5000 };
    float *data = malloc(sizeof(float) * MANY * COUNT);
    MPI_Request request[MANY];
    bool good = true;
    for (int k = 0; k < MANY; k++) {
        for (int i = 0; i < COUNT; i++) data[k * COUNT + i] = (float)value(rank, i + k);
        MPI_Iallreduce(MPI_IN_PLACE, data + k * COUNT, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                       &request[k]);
    }
    double blocking = 1;
    MPI_Allreduce(MPI_IN_PLACE, &blocking, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int k = 0; k < MANY; k++) MPI_Wait(&request[k], MPI_STATUS_IGNORE);
    for (int k = 0; k < MANY; k++)
        for (int i = 0; i < COUNT; i++) good &= data[k * COUNT + i] == (float)sum_of(i + k);
    agree(good && blocking == size, "24 sums under way at once, and a blocking one among them");
    free(data);
}

/* A message that nobody can take before the sender goes on with it, while the sender waits in a
 * collective for who awaits it. */
static void test_messages(void)
{
    enum { COUNT = 4 << 20 };
    int *data = calloc(COUNT, sizeof *data), one = 1, sum;
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0) data[COUNT - 1] = 7;
    if (rank == 0 && size > 1) MPI_Isend(data, COUNT, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
    if (rank == 1) MPI_Recv(data, COUNT, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    agree(sum == size && data[COUNT - 1] == (rank < 2 ? 7 : 0),
          "a message goes on while its sender waits in a collective for the receiver");
    free(data);
}

/* Every way to learn that a sum is complete. */
static void test_requests(void)
{
    enum { COUNT = 1 << 20 };
    MPI_Status status[3];
    int *data = calloc(COUNT, sizeof *data), one = 1, sum[6] = {0}, at, there = 0;
    MPI_Request request[6] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                              MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (rank == 1) MPI_Recv(data, COUNT, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 5; i++)
        MPI_Iallreduce(&one, &sum[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request[i]);
    if (rank == 0 && size > 1) MPI_Isend(data, COUNT, MPI_INT, 1, 4, MPI_COMM_WORLD, &request[5]);
    MPI_Waitall(2, request, status); /* rank 1 comes when it has the message, which nobody waits for */
    while (!there) MPI_Test(&request[2], &there, MPI_STATUS_IGNORE);
    MPI_Waitany(2, request + 3, &at, MPI_STATUS_IGNORE);
    for (there = 0; !there;) MPI_Testall(3, request + 3, &there, status);
    bool good = true;
    for (int i = 0; i < 5; i++) good &= sum[i] == size;
    agree(good, "sums that are waited for with others and with a message, and tested for");
    free(data);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    test_sums();
    test_others();
    test_own_ones();
    test_broadcast();
    test_gather();
    test_scatter();
    test_outstanding();
    test_messages();
    test_requests();
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
