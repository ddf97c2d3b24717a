/* The algorithms on a simulated machine: SimGrid runs all ranks in this process (smpicc; tests/scale/check.sh
 * starts it). The schedules and the loop that carries them out are the library's; only the transport is ours,
 * a few lines over MPI's messages. The library holds no mutable globals, so the ranks share it.
 *   scale check          sums and moves real data by every algorithm, TAP
 *   scale chosen BYTES...  simulated microseconds of the allreduce, reduce_scatter, allgather and broadcast
 *                          that the selector takes
 *   scale time BYTES...  simulated microseconds of the allreduces that are not hopeless, beside the
 *                        simulator's own MPICH */
#define TRIAL_MEMBERS 1024
#include "comm_trial.h"
#include "comm/algorithm/stages.h"
#include "comm/core/transport.h"
#include "kolo/error.h"
#include "tap.h"

#include <mpi.h>
#include <time.h>
#include <smpi/smpi.h>

enum {
    QUADRATIC = 64, /* members up to which messages between all of them are simulated in reasonable time */
    HOPELESS = 12,  /* times the cheapest, by the costs: not simulated */
};

typedef struct lane {
    MPI_Request *request;
    int64_t posted, first;
} lane;

static int lane_post(void *of, bool sends, int rank, int tag, void *data, size_t bytes)
{
    lane *l = of;
    MPI_Request *request = &l->request[l->posted++];
    return sends ? MPI_Isend(data, (int)bytes, MPI_BYTE, rank, tag, MPI_COMM_WORLD, request)
                 : MPI_Irecv(data, (int)bytes, MPI_BYTE, rank, tag, MPI_COMM_WORLD, request);
}

/* Waits: in a simulation polling would take time of its own. */
static int lane_done(void *of, int64_t serial)
{
    lane *l = of;
    MPI_Waitall((int)(serial + 1 - l->first), l->request + l->first, MPI_STATUSES_IGNORE);
    l->first = serial + 1;
    return 1;
}

static const comm_transport simulated = {.post = lane_post, .done = lane_done};

typedef struct world {
    int rank, size;
    int *self, *node_of; /* [size] */
    int *placed;         /* [size] node_of in the order in which algorithms count: node by node */
    int64_t *counts;     /* [size] of parts of the vector that is timed */
} world;

/* Who shares a host is asked, never counted. */
static void open_world(world *w)
{
    MPI_Comm node;
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    w->self = malloc((size_t)w->size * sizeof(int));
    w->node_of = malloc((size_t)w->size * sizeof(int));
    for (int i = 0; i < w->size; i++) w->self[i] = i;
    int leader = w->rank;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL, &node);
    MPI_Bcast(&leader, 1, MPI_INT, 0, node);
    MPI_Allgather(&leader, 1, MPI_INT, w->node_of, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Comm_free(&node);
    int *order = malloc((size_t)(2 * w->size + 1) * sizeof(int)), least;
    w->placed = malloc((size_t)w->size * sizeof(int));
    comm_group_nodes(w->node_of, w->size, order, order + w->size, &least);
    for (int i = 0; i < w->size; i++) w->placed[i] = w->node_of[order[i]];
    free(order);
    w->counts = calloc((size_t)w->size, sizeof *w->counts);
}

static void add_floats(void *out, const void *left, const void *right, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        ((float *)out)[i] = ((const float *)left)[i] + ((const float *)right)[i];
}

static void add_nothing(void *out, const void *left, const void *right, int64_t count)
{
    (void)out;
    (void)left;
    (void)right;
    (void)count;
}

static void carry_out(const world *w, const comm_schedule *schedule, char **buffer, bool real)
{
    lane l = {malloc((size_t)(schedule->posts + 1) * sizeof(MPI_Request)), 0, 0};
    comm_run run = {.schedule = schedule,
                    .transport = &simulated,
                    .lane = &l,
                    .rank_of = w->self,
                    .buffer = buffer,
                    .width = 4,
                    .combine = real ? add_floats : add_nothing,
                    .tag = 3};
    while (comm_run_poll(&run) == 0) continue;
    free(l.request);
}

/* ---- real data ----------------------------------------------------------------------------------------- */

static int64_t wrong_elements(const world *w, trial *t)
{
    int64_t *send = calloc((size_t)w->size, 8), *receive = calloc((size_t)w->size, 8), wrong = 0;
    comm_schedule schedule = {0};
    t->p.me = w->rank;
    t->p.in_place = trial_in_place(t, w->rank);
    t->p.counts = t->counts;
    for (int i = 0; i < w->size && t->p.what == KOLO_ALLTOALL; i++) {
        send[i] = trial_between(t, w->rank, i);
        receive[i] = trial_between(t, i, w->rank);
    }
    t->p.send = send;
    t->p.receive = receive;
    if (t->row->make(&schedule, &t->p) < 0) return 1;
    trial_sizes size = trial_sizes_of(t, w->rank);
    float *own = calloc((size_t)size.own + 1, 4),
          *in = t->p.in_place ? own + size.at : calloc((size_t)size.in + 1, 4);
    float *scratch = calloc((size_t)schedule.scratch + 1, 4);
    char *buffer[3] = {(char *)scratch, (char *)own, (char *)in};
    for (int64_t i = 0; i < size.in; i++) in[i] = trial_value(w->rank, i, true);
    carry_out(w, &schedule, buffer, true);
    /* all are seen by some rank */
    for (int64_t i = w->rank % 7; i < size.out; i += 7) wrong += own[i] != trial_wanted(t, w->rank, i);
    for (int64_t i = 0; i < size.in && !t->p.in_place; i++) wrong += in[i] != trial_value(w->rank, i, true);
    if (!t->p.in_place) free(in);
    free(own);
    free(scratch);
    free(send);
    free(receive);
    comm_schedule_free(&schedule);
    return wrong;
}

static bool too_many(const world *w, const comm_algorithm_row *row)
{
    return w->size > QUADRATIC && (strstr(row->name, "direct") || strcmp(row->name, "one_shot") == 0 ||
                                   strcmp(row->name, "pairwise") == 0);
}

static void check(const world *w)
{
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        trial *t = calloc(1, sizeof *t);
        *t = (trial){.row = row,
                     .exact = true,
                     .places = 2,
                     .p = {.what = row->what,
                           .members = w->size,
                           .root = w->size / 3,
                           .count = w->size + 37,
                           .width = 4,
                           .node_of = w->node_of}};
        trial_set_counts(t, w->size + 37, 2);
        if (row->what == KOLO_ALLTOALL) t->p.count = 2;
        if (trial_counted(row->what)) t->p.count = trial_sum(t->counts, w->size);
        if (row->fits(&t->p) && !too_many(w, row)) {
            int64_t mine = wrong_elements(w, t), all = 0;
            MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
            if (w->rank == 0)
                is_int(all, 0, "%s %s, %d ranks", comm_collective_name(row->what), row->name, w->size);
        }
        free(t);
    }
}

/* ---- times --------------------------------------------------------------------------------------------- */

/* Of a vector of so many bytes, or of its parts. */
static comm_problem problem_of(const world *w, enum kolo_collective what, int64_t bytes)
{
    for (int i = 0; i < w->size; i++)
        w->counts[i] = comm_part(bytes / 4, w->size, i + 1) - comm_part(bytes / 4, w->size, i);
    return (comm_problem){.what = what,
                          .me = w->rank,
                          .members = w->size,
                          .count = bytes / 4,
                          .counts = w->counts,
                          .width = 4,
                          .node_of = w->node_of,
                          .in_place = true};
}

/* All at one time, which is returned: from a barrier ranks come later than others by as much as a
 * short operation takes. */
static double begin_together(void)
{
    double now = MPI_Wtime(), last;
    MPI_Allreduce(&now, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    last += 1e-3;
    struct timespec wait = {0, (long)((last - MPI_Wtime()) * 1e9)};
    nanosleep(&wait, NULL);
    return last;
}

/* Seconds of the slowest rank. row NULL: MPI_Allreduce. Memory is folded by the simulator:
 * nobody looks at the data. */
static double seconds_of(const world *w, const comm_algorithm_row *row, int64_t bytes)
{
    comm_schedule schedule = {0};
    comm_problem p = problem_of(w, row ? row->what : KOLO_ALLREDUCE, bytes);
    char *buffer[3] = {NULL, SMPI_SHARED_MALLOC((size_t)bytes), NULL};
    double slowest = 0;
    if (row && row->make(&schedule, &p) < 0) return -1;
    if (schedule.scratch) buffer[0] = SMPI_SHARED_MALLOC((size_t)schedule.scratch * 4);
    buffer[2] = buffer[1];
    double start = begin_together();
    if (row) carry_out(w, &schedule, buffer, false);
    else MPI_Allreduce(MPI_IN_PLACE, buffer[1], (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - start;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    SMPI_SHARED_FREE(buffer[1]);
    if (buffer[0]) SMPI_SHARED_FREE(buffer[0]);
    comm_schedule_free(&schedule);
    return slowest;
}

/* What the costs say of a row, or of the cheapest. */
static double guess(const world *w, const comm_algorithm_row *row, int64_t bytes)
{
    static const comm_cost network = {{.7e-6, 3e-6}, {1 / 100e9, 1 / 25e9}, 0};
    comm_problem p = {
        .what = KOLO_ALLREDUCE, .members = w->size, .count = bytes / 4, .width = 4, .node_of = w->placed};
    double least = 1e30;
    if (row) return row->cost(&p, &network);
    for (row = comm_algorithm_table; row->name; row++)
        if (row->what == KOLO_ALLREDUCE && row->fits(&p) && row->cost(&p, &network) < least)
            least = row->cost(&p, &network);
    return least;
}

static void print_times(const world *w, const char *name, const comm_algorithm_row *row, int sizes,
                        char **words)
{
    if (w->rank == 0) printf("# %-24s", name);
    for (int i = 0; i < sizes; i++) {
        int64_t bytes = atoll(words[i]);
        bool hopeless = row && guess(w, row, bytes) > HOPELESS * guess(w, NULL, bytes);
        double seconds = hopeless ? 0 : seconds_of(w, row, bytes);
        if (w->rank == 0 && hopeless) printf("%14s", "-");
        if (w->rank == 0 && !hopeless) printf("%14.1f", seconds * 1e6);
        if (w->rank == 0) fflush(stdout);
    }
    if (w->rank == 0) printf("\n");
}

/* "chosen COLLECTIVE BYTES NAME MICROSECONDS": what the library would take by itself, here
 * with its built-in costs. */
static void print_chosen(const world *w, const comm_selector *selector, enum kolo_collective what,
                         int64_t bytes)
{
    comm_problem p = problem_of(w, what, bytes);
    const comm_algorithm_row *row = comm_algorithm_select(&p, selector);
    double seconds = seconds_of(w, row, bytes);
    if (w->rank == 0)
        printf("# chosen %s %lld %s %.2f\n", comm_collective_name(what), (long long)bytes, row->name,
               seconds * 1e6);
}

static void measure_chosen(const world *w, int sizes, char **words)
{
    static const enum kolo_collective timed[] = {KOLO_ALLREDUCE, KOLO_REDUCE_SCATTER, KOLO_ALLGATHER,
                                                 KOLO_BROADCAST};
    comm_selector *selector = NULL;
    if (comm_selector_open(&selector, NULL, NULL) < 0) return;
    seconds_of(w, NULL, 4);
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < sizes; i++) print_chosen(w, selector, timed[c], atoll(words[i]));
    comm_selector_close(&selector);
}

static void measure(const world *w, int sizes, char **words)
{
    if (w->rank == 0) {
        printf("# %-24s", "us, by bytes:");
        for (int i = 0; i < sizes; i++) printf("%14s", words[i]);
        printf("\n");
    }
    seconds_of(w, NULL, 4); /* the simulator's MPI makes its communicators at the first call */
    print_times(w, "MPI_Allreduce", NULL, sizes, words);
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        comm_problem p = {
            .what = KOLO_ALLREDUCE, .members = w->size, .count = 1, .width = 4, .node_of = w->node_of};
        if (row->what == KOLO_ALLREDUCE && row->fits(&p) && !too_many(w, row))
            print_times(w, row->name, row, sizes, words);
    }
}

int main(int argc, char **argv)
{
    world w;
    MPI_Init(&argc, &argv);
    open_world(&w);
    int rc = 0;
    if (argc > 2 && strcmp(argv[1], "time") == 0) measure(&w, argc - 2, argv + 2);
    else if (argc > 2 && strcmp(argv[1], "chosen") == 0) measure_chosen(&w, argc - 2, argv + 2);
    else check(&w);
    if (w.rank == 0 && argc < 3) rc = done_testing();
    free(w.self);
    free(w.node_of);
    free(w.placed);
    free(w.counts);
    MPI_Finalize();
    return rc;
}
