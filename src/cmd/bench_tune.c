/* kolo bench --tune: what messages, bytes and sums cost between these ranks, and which algorithm is fastest
 * for groups like these, as the table that KOLO_COMM_TABLE names (comm/algorithm/algorithm.h). kolo bench
 * --algorithms: the names. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "cmd/cmd.h"
#include "comm/algorithm/algorithm.h"
#include "comm/algorithm/stages.h"
#include "comm/core/transport/router.h"
#include "kolo/error.h"

enum { PING = 4 << 20, LINK = 1 << 20, SIZES = 5, TRIALS = 3, SPINS = 1000, TAG = 1 };
static const int64_t sizes[SIZES] = {256, 4 << 10, 64 << 10, 1 << 20, 16 << 20};

/* Ranks that are measured together. */
typedef struct team {
    int me, members; /* me: -1 if this rank is none of them */
    int *rank_of, *node_of;
    comm_push *push; /* of a team on one node, while it is tuned */
} team;

typedef struct tune {
    kolo_launch *launch;
    comm_router *router;
    void *lane;
    int64_t requests;
    comm_schedule schedule;
    char *buffer[COMM_INPUT + 1];
    size_t room; /* bytes of each of them */
    comm_cost cost;
    bool free_order;
    int linked;
    double links[COMM_PACK_RANKS * COMM_PACK_RANKS];
    FILE *table; /* NULL but on rank 0 */
} tune;

/* ---- carrying out -------------------------------------------------------------------------------------- */

static int make_room(tune *t, size_t bytes)
{
    if (bytes <= t->room) return 0;
    for (int i = 0; i <= COMM_INPUT; i++) {
        free(t->buffer[i]);
        if (!(t->buffer[i] = kolo_alloc(bytes))) return KOLO_ENOMEM;
    }
    t->room = bytes;
    return 0;
}

static int make_lane(tune *t, int64_t requests)
{
    bool busy = false;
    if (requests <= t->requests) return 0;
    if (t->lane) comm_router_lane_free(&t->lane, &busy);
    t->requests = 2 * requests;
    return comm_router_lane_make(t->router, t->requests, &t->lane);
}

static int rest(tune *t, int *spins)
{
    if (++*spins > SPINS) comm_router_rest(t->router, 1e-3);
    return comm_router_status(t->router);
}

static int carry_out(tune *t, const team *who, size_t width, comm_combine combine)
{
    comm_run run = {.schedule = &t->schedule,
                    .transport = &comm_routed,
                    .lane = t->lane,
                    .rank_of = who->rank_of,
                    .buffer = t->buffer,
                    .width = width,
                    .combine = combine,
                    .tag = TAG};
    int rc, spins = 0;
    comm_router_lane_reset(t->lane);
    while ((rc = comm_run_poll(&run)) == 0) KOLO_TRY(rest(t, &spins));
    return rc < 0 ? rc : 0;
}

static int bench_tune_make(tune *t, const team *who, const comm_algorithm_row *row, comm_problem *p)
{
    p->me = who->me;
    p->members = who->members;
    p->node_of = who->node_of;
    KOLO_TRY(row->make(&t->schedule, p));
    KOLO_TRY(make_room(t, (size_t)t->schedule.scratch * p->width));
    return make_lane(t, t->schedule.posts);
}

static int barrier(tune *t, const team *who)
{
    comm_problem p = {.what = KOLO_BARRIER, .width = 1};
    KOLO_TRY(bench_tune_make(t, who, comm_algorithm_named(KOLO_BARRIER, "dissemination"), &p));
    return carry_out(t, who, 1, NULL);
}

/* In place, the same on all of the team afterwards. */
static int over_team(tune *t, const team *who, double *values, int64_t count, enum kolo_reduce reduce)
{
    comm_problem p = {.what = KOLO_ALLREDUCE, .count = count, .width = sizeof *values, .in_place = true};
    KOLO_TRY(bench_tune_make(t, who, comm_algorithm_named(KOLO_ALLREDUCE, "recursive_doubling"), &p));
    memcpy(t->buffer[COMM_OWN], values, (size_t)count * sizeof *values);
    KOLO_TRY(carry_out(t, who, sizeof *values, comm_combine_of(KOLO_F64, reduce)));
    memcpy(values, t->buffer[COMM_OWN], (size_t)count * sizeof *values);
    return 0;
}

/* ---- costs of messages, bytes, sums -------------------------------------------------------------------- */

static int message(tune *t, bool sends, int rank, size_t bytes)
{
    int rc, spins = 0;
    comm_router_lane_reset(t->lane);
    KOLO_TRY(comm_routed.post(t->lane, sends, rank, TAG, t->buffer[COMM_OWN], bytes));
    while ((rc = comm_routed.done(t->lane, 0)) == 0) KOLO_TRY(rest(t, &spins));
    return rc < 0 ? rc : 0;
}

/* `count` messages from one rank to the other, with an answer of a byte to all of them: the least
 * seconds of some rounds. */
static int ping(tune *t, int from, int to, size_t bytes, int count, double *seconds)
{
    int me = t->launch->rank;
    *seconds = 1e30;
    for (int round = 0; round < 5 && (me == from || me == to); round++) {
        double begin = kolo_time();
        for (int i = 0; i < count; i++) KOLO_TRY(message(t, me == from, me == from ? to : from, bytes));
        KOLO_TRY(message(t, me == to, me == from ? to : from, 1));
        begin = kolo_time() - begin;
        if (begin < *seconds) *seconds = begin;
    }
    return 0;
}

/* alpha and beta between rank 0 and another; what is measured on rank 0 holds. */
static int measure_level(tune *t, int level, int other)
{
    double small, large;
    if (other < 0) return 0;
    KOLO_TRY(ping(t, 0, other, 1, 1, &small));
    KOLO_TRY(ping(t, 0, other, PING, 1, &large));
    t->cost.alpha[level] = small / 2;
    t->cost.beta[level] = large > small ? (large - small) / PING : 1 / 100e9;
    return 0;
}

static double measure_sum(const tune *t)
{
    const int64_t count = PING / (int64_t)sizeof(float);
    comm_combine combine = comm_combine_of(KOLO_F32, KOLO_SUM);
    double least = 1e30;
    for (int i = 0; i < 5; i++) {
        double begin = kolo_time();
        combine(t->buffer[COMM_OWN], t->buffer[COMM_OWN], t->buffer[COMM_INPUT], count);
        begin = kolo_time() - begin;
        if (begin < least) least = begin;
    }
    return least / PING;
}

static int measure_costs(tune *t, const team *all)
{
    const kolo_launch *l = t->launch;
    int near = -1, far = -1;
    for (int r = l->size - 1; r > 0; r--) *(l->node_of[r] == l->node_of[0] ? &near : &far) = r;
    KOLO_TRY(make_room(t, PING));
    KOLO_TRY(make_lane(t, 1));
    KOLO_TRY(measure_level(t, 0, near));
    KOLO_TRY(measure_level(t, 1, far));
    t->cost.gamma = measure_sum(t);
    double of_zero[5] = {t->cost.alpha[0], t->cost.alpha[1], t->cost.beta[0], t->cost.beta[1], t->cost.gamma};
    if (l->rank != 0) memset(of_zero, 0, sizeof of_zero);
    KOLO_TRY(over_team(t, all, of_zero, 5, KOLO_SUM));
    t->cost = (comm_cost){{of_zero[0], of_zero[1]}, {of_zero[2], of_zero[3]}, of_zero[4]};
    return 0;
}

/* One pair after the other, in both directions. */
static int measure_links(tune *t, const team *node)
{
    const int n = node->members;
    if (n < 3 || n > COMM_PACK_RANKS) return 0;
    for (int u = 0; u < n; u++)
        for (int v = 0; v < n; v++) {
            double seconds;
            if (u == v) continue;
            KOLO_TRY(barrier(t, node));
            KOLO_TRY(ping(t, node->rank_of[u], node->rank_of[v], LINK, 4, &seconds));
            if (u == node->me) t->links[u * n + v] = 4 * LINK / seconds / 1e9;
        }
    t->linked = n;
    return over_team(t, node, t->links, (int64_t)n * n, KOLO_SUM);
}

/* ---- which algorithm ----------------------------------------------------------------------------------- */

/* A problem of so many bytes in all. counts: [members], filled in. */
static comm_problem problem_of(const tune *t, enum kolo_collective what, int64_t bytes, int members,
                               int64_t *counts)
{
    int64_t count = bytes / (int64_t)sizeof(float), part = what == KOLO_ALLTOALL ? count / members : 0;
    for (int i = 0; i < members; i++) counts[i] = part ? part : count / members + (i < count % members);
    return (comm_problem){.what = what,
                          .members = members,
                          .count = what == KOLO_ALLTOALL ? part : count,
                          .counts = counts,
                          .send = counts,
                          .receive = counts,
                          .width = sizeof(float),
                          .links = members == t->linked ? t->links : NULL};
}

static int push(const tune *t, const team *who, int64_t count)
{
    const comm_folding sum = {.type = KOLO_F32, .op = KOLO_SUM, .tree = true};
    KOLO_TRY(comm_push_start(who->push, t->buffer[COMM_INPUT], t->buffer[COMM_OWN], count, &sum, 1));
    int rc = comm_push_wait(who->push);
    return rc < 0 ? rc : 0;
}

/* Seconds of a call, the slowest member's, the best of some trials. */
static int bench_tune_measure(tune *t, const team *who, const comm_algorithm_row *row, comm_problem *p,
                              int64_t bytes, double *seconds)
{
    int calls = bytes <= 64 << 10 ? 20 : bytes <= 1 << 20 ? 5 : 1;
    bool pushes = comm_algorithm_pushes(row);
    *seconds = 1e30;
    for (int trial = 0; trial < TRIALS; trial++) {
        KOLO_TRY(barrier(t, who));
        if (!pushes) KOLO_TRY(bench_tune_make(t, who, row, p));
        double begin = kolo_time();
        for (int i = 0; i < calls; i++)
            KOLO_TRY(pushes ? push(t, who, p->count)
                            : carry_out(t, who, p->width, comm_combine_of(KOLO_F32, KOLO_SUM)));
        double slowest = (kolo_time() - begin) / calls;
        KOLO_TRY(over_team(t, who, &slowest, 1, KOLO_MAX));
        if (slowest < *seconds) *seconds = slowest;
    }
    return 0;
}

typedef struct choice {
    const comm_algorithm_row *row;
    comm_radices radix;
} choice;

/* The fastest of those that the costs do not rule out; each by itself, and by the radices that the
 * costs would have it take. */
static int fastest(tune *t, const team *who, enum kolo_collective what, int64_t bytes, choice *best)
{
    int64_t *counts = kolo_alloc((size_t)who->members * sizeof *counts);
    double least = 1e30, hoped = 1e30;
    int rc = counts ? 0 : KOLO_ENOMEM;
    if (rc < 0) return rc;
    comm_problem own = problem_of(t, what, bytes, who->members, counts);
    own.node_of = who->node_of;
    own.shares = who->push != NULL;
    for (int measuring = 0; measuring < 2; measuring++)
        for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++)
            for (int other = 0; rc == 0 && row->what == what && other < 2; other++) {
                double seconds;
                comm_problem p = own;
                double guess = other ? comm_radices_cheapest(row, &p, &t->cost, t->free_order) : INFINITY;
                if (!other && row->fits(&p) && (t->free_order || row->ordered(&p)))
                    guess = row->cost(&p, &t->cost);
                if (guess < hoped) hoped = guess;
                if (!measuring || !(guess <= 4 * hoped) || (other && !p.radix.k[0])) continue;
                rc = bench_tune_measure(t, who, row, &p, bytes, &seconds);
                if (rc < 0 || seconds >= .95 * least) continue; /* of equals the first */
                least = seconds;
                *best = (choice){row, p.radix};
            }
    free(counts);
    return rc;
}

static bool equal(const choice *a, const choice *b)
{
    return a->row == b->row && memcmp(&a->radix, &b->radix, sizeof a->radix) == 0;
}

/* upto: bytes; negative: any. */
static void write_use(const tune *t, enum kolo_collective what, int members, int nodes, int64_t upto,
                      const choice *best)
{
    char k[COMM_RADICES_TEXT], reach[32] = "*";
    if (!best->row || !t->table) return;
    if (upto >= 0) snprintf(reach, sizeof reach, "%" PRId64, upto);
    comm_radices_text(&best->radix, k);
    fprintf(t->table, "use %s %d %d %s %s%s%s\n", comm_collective_name(what), members, nodes, reach,
            best->row->name, *k ? " k=" : "", k);
}

/* A line `use` of the table for every run of sizes with the same fastest algorithm: it reaches up to the
 * geometric middle between its last size and the next. */
static int tune_each(tune *t, const team *who, int nodes, int64_t most)
{
    static const enum kolo_collective which[] = {KOLO_ALLREDUCE, KOLO_REDUCE_SCATTER, KOLO_ALLGATHER,
                                                 KOLO_BROADCAST, KOLO_ALLTOALL};
    for (size_t w = 0; w < sizeof which / sizeof *which; w++) {
        choice last = {0}, best = {0};
        for (int i = 0; i < SIZES && sizes[i] <= most; i++) {
            KOLO_TRY(make_room(t, 2 * (size_t)sizes[i]));
            KOLO_TRY(fastest(t, who, which[w], sizes[i], &best));
            /* the table counts bytes of a pair */
            int64_t each = which[w] == KOLO_ALLTOALL ? who->members : 1;
            if (!equal(&last, &best)) write_use(t, which[w], who->members, nodes, sizes[i] / 4 / each, &last);
            last = best;
        }
        write_use(t, which[w], who->members, nodes, -1, &last);
    }
    return 0;
}

static int tune_team(tune *t, team *who, int64_t most)
{
    int nodes = 0, first = who->rank_of[0];
    for (int i = 0; i < who->members; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++) seen = seen || who->node_of[k] == who->node_of[i];
        nodes += !seen;
    }
    if (nodes == 1) KOLO_TRY(comm_push_open(&who->push, t->router, first, who->rank_of, who->members));
    int rc = tune_each(t, who, nodes, most);
    comm_push_close(&who->push);
    return rc;
}

/* ---- teams --------------------------------------------------------------------------------------------- */

enum which { ALL, OF_A_NODE, ONE_A_NODE };

static int team_open(team *who, const kolo_launch *l, enum which which)
{
    *who = (team){.me = -1};
    who->rank_of = kolo_alloc((size_t)(2 * l->size) * sizeof *who->rank_of);
    if (!who->rank_of) return KOLO_ENOMEM;
    who->node_of = who->rank_of + l->size;
    for (int r = 0; r < l->size; r++) {
        if ((which == OF_A_NODE && l->node_of[r] != l->node_of[0]) ||
            (which == ONE_A_NODE && l->local_of[r] != 0))
            continue;
        if (r == l->rank) who->me = who->members;
        who->rank_of[who->members] = r;
        who->node_of[who->members++] = l->node_of[r];
    }
    return 0;
}

static int measure_all(tune *t, int64_t most)
{
    const kolo_launch *l = t->launch;
    team who[3] = {{0}};
    int rc = 0;
    for (int i = ALL; i <= ONE_A_NODE && rc == 0; i++) rc = team_open(&who[i], l, i);
    if (rc == 0) rc = measure_costs(t, &who[ALL]);
    if (rc == 0 && who[OF_A_NODE].me >= 0) rc = measure_links(t, &who[OF_A_NODE]);
    if (rc == 0 && t->table) {
        fprintf(t->table, "kolo-comm-table 1\n# measured on %d ranks of %d nodes, rank 0 on %s\n", l->size,
                l->nodes, l->host);
        fprintf(t->table, "cost node %.4g %.4g\ncost network %.4g %.4g\ncost reduce %.4g\n", t->cost.alpha[0],
                t->cost.beta[0], t->cost.alpha[1], t->cost.beta[1], t->cost.gamma);
        fprintf(t->table, "order %s\n", t->free_order ? "free" : "fixed");
        if (t->linked) fprintf(t->table, "links %d # GB/s from, to\n", t->linked);
        for (int i = 0; i < t->linked * t->linked; i++)
            fprintf(t->table, "%.2f%c", t->links[i], (i + 1) % t->linked ? ' ' : '\n');
    }
    for (int i = ALL; i <= ONE_A_NODE && rc == 0; i++) {
        bool again = i != ALL && who[i].members == who[ALL].members;
        if (!again && who[i].members > 1 && who[i].me >= 0) rc = tune_team(t, &who[i], most);
        if (rc == 0) rc = barrier(t, &who[ALL]);
    }
    for (int i = ALL; i <= ONE_A_NODE; i++) free(who[i].rank_of);
    return rc;
}

/* ---- the commands -------------------------------------------------------------------------------------- */

int kolo_bench_algorithms(void)
{
    printf("Algorithms of collectives: KOLO_COMM_ALGORITHM=NAME or NAME:k=4x8,segment=1024 forces one; * has "
           "the fixed order of sums, + where nodes or members allow it.\n");
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        const int apart[] = {0, 0, 0, 1, 1, 1}, plain[] = {0, 0, 1, 1};
        comm_problem odd = {.what = row->what, .members = 6, .radix = {{3}}, .node_of = apart},
                     even = {.what = row->what, .members = 4, .node_of = plain};
        bool sums = row->what == KOLO_ALLREDUCE || row->what == KOLO_REDUCE_SCATTER;
        printf("  %-15s %-22s %c %s\n", comm_collective_name(row->what), row->name,
               !sums || !row->ordered(&even) ? ' '
               : row->ordered(&odd)          ? '*'
                                             : '+',
               row->help);
    }
    return 0;
}

/* The words path=FILE and order=free. */
static int bench_tune_read_words(tune *t, kolo_options *options, int n, char **words, char **path,
                                 int64_t *most)
{
    t->free_order = kolo_command_flag(&n, words, "order=free");
    kolo_command_flag(&n, words, "order=fixed");
    for (int i = 0; i < n; i++) {
        if (strncmp(words[i], "path=", 5) != 0) continue;
        *path = kolo_strdup(words[i] + 5);
        memmove(&words[i], &words[i + 1], (size_t)(n - i - 1) * sizeof *words);
        n--;
        break;
    }
    KOLO_TRY(kolo_bench_take(&n, words, "max", sizes[0], most));
    return kolo_command_words(options, n, words, 0, NULL);
}

/* Its folder is made. */
static char *usual_path(void)
{
    char *path = comm_table_path(), *end = path ? strrchr(path, '/') : NULL;
    if (!end) return path;
    *end = 0;
    int rc = kolo_folder_make(path);
    *end = '/';
    if (rc == 0) return path;
    free(path);
    return NULL;
}

int kolo_bench_tune(int n, char **words)
{
    kolo_options options;
    tune t = {.cost = {{.5e-6, 2.5e-6}, {1 / 8e9, 1 / 12.5e9}, 1 / 20e9}};
    char *path = NULL, *text = NULL;
    size_t length = 0;
    int64_t most = sizes[SIZES - 1];
    comm_selector *read_back = NULL;
    bool busy = false;
    KOLO_TRY(bench_tune_read_words(&t, &options, n, words, &path, &most));
    int rc = kolo_command_launch(&options, &t.launch);
    if (rc == 0 && t.launch->size < 2)
        rc = kolo_fail(
            KOLO_ECONFIG,
            "kolo bench --tune measures between ranks: start it by srun or mpiexec, as the jobs will be");
    comm_router_config config = {.timeout = options.comm_timeout,
                                 .heartbeat_timeout = options.heartbeat_timeout};
    if (rc == 0) rc = comm_router_open(&t.router, t.launch, &config);
    if (rc == 0 && t.launch->rank == 0 && !(t.table = open_memstream(&text, &length)))
        rc = kolo_fail(KOLO_ENOMEM, "kolo bench --tune: out of memory");
    if (rc == 0) rc = measure_all(&t, most);
    if (t.table) fclose(t.table);
    if (rc == 0 && t.launch->rank == 0) {
        bool usual = !path;
        if (usual) path = usual_path();
        rc = path ? kolo_file_write_atomic(path, text, length) : KOLO_ENOMEM;
        if (rc == 0) rc = comm_selector_open(&read_back, path, NULL);
        comm_selector_close(&read_back);
        if (rc == 0 && usual)
            printf("%s# written to %s, which is used from now on; KOLO_COMM_TABLE=none: not\n", text, path);
        else if (rc == 0) printf("%s# written; use it by KOLO_COMM_TABLE=%s\n", text, path);
    }
    if (t.lane) comm_router_lane_free(&t.lane, &busy);
    comm_router_close(&t.router, rc == 0);
    comm_schedule_free(&t.schedule);
    for (int i = 0; i <= COMM_INPUT && !busy; i++) free(t.buffer[i]);
    free(text);
    free(path);
    kolo_options_free(&options);
    return rc;
}
