/* Every algorithm, for 1 to 17 members, against what its collective is defined to give: any counts, roots,
 * placements, in place and not, in a cluster in this process that interleaves members and delivers
 * messages as badly as it may. */
#include "comm/algorithm/stages.h"
#include "comm_trial.h"
#include "comm_virtual.h"

enum { N = TRIAL_MEMBERS, COUNTS = 12 };

static virtual_cluster cluster;

typedef struct memory {
    char *buffer[3];
    trial_sizes size;
    int64_t scratch;
    bool in_place;
} memory;

static int make_member(const trial *t, int m, comm_schedule *schedule, memory *mem)
{
    int64_t send[N], receive[N];
    comm_problem p = t->p;
    p.me = m;
    p.in_place = trial_in_place(t, m);
    p.counts = t->counts;
    p.send = send;
    p.receive = receive;
    for (int i = 0; i < p.members && p.what == KOLO_ALLTOALL; i++) {
        send[i] = trial_between(t, m, i);
        receive[i] = trial_between(t, i, m);
    }
    *schedule = (comm_schedule){0};
    if (t->row->make(schedule, &p) < 0) return -1;
    *mem = (memory){.size = trial_sizes_of(t, m), .scratch = schedule->scratch, .in_place = p.in_place};
    mem->buffer[COMM_SCRATCH] = virtual_memory((size_t)schedule->scratch * 4);
    mem->buffer[COMM_OWN] = virtual_memory((size_t)mem->size.own * 4);
    mem->buffer[COMM_INPUT] =
        p.in_place ? mem->buffer[COMM_OWN] + 4 * mem->size.at : virtual_memory((size_t)mem->size.in * 4);
    for (int64_t i = 0; i < mem->size.in; i++)
        ((float *)(void *)mem->buffer[COMM_INPUT])[i] = trial_value(m, i, t->exact);
    return 0;
}

/* Frees; returns what was written that should not have been. */
static int64_t end_member(const trial *t, int m, memory *mem)
{
    int64_t bad = 0;
    for (int64_t i = 0; !mem->in_place && i < mem->size.in; i++)
        bad += ((float *)(void *)mem->buffer[COMM_INPUT])[i] != trial_value(m, i, t->exact);
    if (!mem->in_place) bad += virtual_release(mem->buffer[COMM_INPUT], (size_t)mem->size.in * 4);
    bad += virtual_release(mem->buffer[COMM_OWN], (size_t)mem->size.own * 4);
    return bad + virtual_release(mem->buffer[COMM_SCRATCH], (size_t)mem->scratch * 4);
}

/* Wrong elements, or -1: members wait for each other for ever, or messages do not match. want: compare with
 * the definition; else members with each other. */
static int64_t run(trial *t, bool want)
{
    comm_schedule schedule[N];
    memory mem[N];
    char *buffer[N][3];
    int64_t bad = 0, before = cluster.mismatches;
    t->p.what = t->row->what;
    t->p.width = 4;
    for (int m = 0; m < t->p.members; m++) {
        if (make_member(t, m, &schedule[m], &mem[m]) < 0) return -1;
        memcpy(buffer[m], mem[m].buffer, sizeof buffer[m]);
    }
    cluster.delivery = (enum virtual_delivery)(cluster.seed++ % 3);
    bool through =
        virtual_run(&cluster, schedule, buffer, t->p.members, 4, comm_combine_of(KOLO_F32, KOLO_SUM));
    for (int m = 0; m < t->p.members; m++) {
        float *own = (float *)(void *)mem[m].buffer[COMM_OWN],
              *other = (float *)(void *)mem[0].buffer[COMM_OWN];
        for (int64_t i = 0; through && i < mem[m].size.out; i++) {
            float must = want ? trial_wanted(t, m, i) : t->p.what == KOLO_ALLREDUCE ? other[i] : own[i];
            bad += memcmp(&own[i], &must, 4) != 0;
        }
        comm_schedule_free(&schedule[m]);
    }
    for (int m = 0; m < t->p.members; m++) bad += end_member(t, m, &mem[m]);
    return !through || cluster.mismatches != before ? -1 : bad;
}

/* Placements of n members: all on one node, blocks of 4, blocks of 3 (which end in a short one), dealt in
 * turn to 3 nodes, uneven, twos dealt to 3 nodes. */
enum { MAPS = 6 };
static const int *map_of(int which, int n, int *node_of)
{
    for (int i = 0; i < n; i++)
        node_of[i] = which == 1   ? i / 4
                     : which == 2 ? i / 3 + 7
                     : which == 3 ? i % 3
                     : which == 4 ? i * i / 20
                                  : 9 - i / 2 % 3;
    return which ? node_of : NULL;
}

/* Which of them a row is tried on: one that goes by nodes on all, one that goes by links on the first, others
 * also where members are not in order, by turns. */
static bool tried(const comm_algorithm_row *row, int map, int64_t count)
{
    if (strcmp(row->name, "two_level") == 0 || map == 0) return true;
    return strcmp(row->name, "packed_trees") != 0 && map == (count % 2 ? 5 : 3);
}

/* Members node by node, nodes as they come. */
static const int *by_nodes(const int *node_of, int n, int *order)
{
    int filled = 0;
    for (int i = 0; node_of && i < n; i++) {
        bool seen = false;
        for (int e = 0; e < i; e++) seen = seen || node_of[e] == node_of[i];
        for (int k = i; k < n && !seen; k++)
            if (node_of[k] == node_of[i]) order[filled++] = k;
    }
    return node_of ? order : NULL;
}

static int64_t count_at(int which, int n)
{
    const int64_t counts[COUNTS] = {0, 1, 2, n - 1, n, n + 1, 2 * n, 17, 33, 100, 512, 1000};
    return counts[which];
}

/* All that may vary of a collective besides members and count. */
static int64_t vary(trial *t, int64_t count)
{
    int node_of[N], n = t->p.members;
    bool rooted =
        t->row->what == KOLO_BROADCAST || t->row->what == KOLO_GATHER || t->row->what == KOLO_SCATTER;
    int order[N];
    int64_t bad = 0;
    static double links[N * N];
    for (int i = 0; i < n * n; i++) links[i] = 1 + i * 7 % 5;
    t->p.links = links;
    for (t->p.root = rooted && n > 4 ? (int)count % 3 : 0;
         t->p.root<(rooted ? n : 1); t->p.root += n> 4 ? 3 : 1)
        for (int how = 0; how < (trial_counted(t->row->what)     ? 3
                                 : t->row->what == KOLO_ALLTOALL ? 2
                                                                 : 1);
             how++)
            for (int map = 0; map < MAPS; map++) {
                if (!tried(t->row, map, count)) continue;
                t->places = (int)((count + how + map + t->p.root + n) % 3);
                t->p.count = t->row->what == KOLO_ALLTOALL ? how ? 0 : count / 4 : count;
                trial_set_counts(t, t->row->what == KOLO_ALLTOALL ? count / 4 : count, how);
                t->p.node_of = map_of(map, n, node_of);
                t->order = by_nodes(t->p.node_of, n, order);
                if (trial_counted(t->row->what)) t->p.count = trial_sum(t->counts, n);
                t->p.what = t->row->what;
                if (!t->row->fits(&t->p)) continue;
                int ordered = t->row->ordered(&t->p);
                for (int exact = 0; exact < (ordered ? 1 : 2); exact++) {
                    t->exact = exact;
                    int64_t wrong = run(t, ordered || exact);
                    char k[COMM_RADICES_TEXT];
                    if (wrong)
                        diag(
                            "%s %s: %d members, count %d, root %d, counts %d, map %d, place %d, radix %s: %d",
                            comm_collective_name(t->row->what), t->row->name, n, (int)count, t->p.root, how,
                            map, t->places, comm_radices_text(&t->p.radix, k), (int)wrong);
                    bad |= wrong;
                }
            }
    return bad;
}

static int64_t row_trials(const comm_algorithm_row *row, int k, int64_t segment)
{
    int64_t bad = 0;
    bool packs = strcmp(row->name, "packed_trees") == 0; /* which takes its time: fewer trials */
    for (int n = 1; n <= N && !bad; n += packs && n > 5 ? 5 : 1)
        for (int c = 0; c < COUNTS; c += packs ? 3 : 1) {
            if (row->what == KOLO_BARRIER && c) break;
            trial t = {.row = row, .p = {.members = n, .radix = {{k}}, .segment = segment}};
            bad |= vary(&t, count_at(c, n));
        }
    return bad;
}

static void every_algorithm(void)
{
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++)
        is_int(row_trials(row, 0, 0), 0, "%s %s", comm_collective_name(row->what), row->name);
    const comm_algorithm_row *multiplying = comm_algorithm_named(KOLO_ALLREDUCE, "recursive_multiplying");
    is_int(row_trials(multiplying, 8, 0) | row_trials(multiplying, 3, 0), 0,
           "recursive multiplying by 8 and 3 (as 2)");
    is_int(row_trials(comm_algorithm_named(KOLO_ALLREDUCE, "butterfly"), 3, 0), 0,
           "butterfly that begins with threes");
    is_int(row_trials(comm_algorithm_named(KOLO_BROADCAST, "knomial"), 3, 0), 0, "broadcast of radix 3");
    const char *flowing[] = {"double_binary_tree", "segmented_ring", "packed_trees"};
    for (int i = 0; i < 3; i++)
        is_int(row_trials(comm_algorithm_named(KOLO_ALLREDUCE, flowing[i]), 0, 7), 0, "%s in segments of 7",
               flowing[i]);
    is_int(row_trials(comm_algorithm_named(KOLO_BROADCAST, "pipelined_tree"), 0, 7), 0,
           "pipelined broadcast in segments of 7");
}

/* Every list of two or three factors of 2 to 17 members, and longer ones, by algorithms that take lists; on a
 * placement in blocks of 4 and by turns. */
static int64_t list_trials(const comm_algorithm_row *row, int n, const comm_radices *k)
{
    int64_t bad = 0;
    for (int c = 0; c < COUNTS; c += 1 + 2 * (n > 8)) {
        trial t = {.row = row, .p = {.members = n, .radix = *k}};
        bad |= vary(&t, count_at(c, n));
    }
    return bad;
}

static void by_lists(void)
{
    static const comm_radices longer[] = {{{2, 2, 2, 2}}, {{2, 2, 2}}, {{17}}, {{13}}};
    static const int of[] = {16, 8, 17, 13};
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        int64_t bad = 0;
        int lists = 0;
        comm_radices k;
        if (!row->radices) continue;
        for (int n = 2; n <= N; n++)
            for (int i = 0; comm_radices_try(n, i, &k); i++, lists++) bad |= list_trials(row, n, &k);
        for (int i = 0; i < 4; i++, lists++) bad |= list_trials(row, of[i], &longer[i]);
        ok(!bad && lists == 30, "%s %s: %d factorisations of 2 to %d members",
           comm_collective_name(row->what), row->name, lists, N);
    }
    int radix[COMM_STAGES];
    ok(!comm_radices_of(COMM_LEVELS, 12, &(comm_radices){{2, 5}}, radix) &&
           !comm_radices_of(COMM_FACTORS, 12, &(comm_radices){{2, 2, 2}}, radix) &&
           !comm_radices_of(COMM_POWERS, 12, &(comm_radices){{3, 4, 2}}, radix) &&
           !comm_radices_of(COMM_DIGITS, 6, &(comm_radices){{2, 2}}, radix),
       "lists whose product is another number fit none");
}

/* MPICH's test allred_float: huge numbers that cancel, at every pair of members, and tiny ones at all
 * others. */
static float cancelling(int pair_low, int pair_high, int m)
{
    return m == pair_low ? 1e30f : m == pair_high ? -1e30f : 1e-7f * (float)(m + 1);
}

static int64_t cancel(const comm_algorithm_row *row, int n, int low, int high)
{
    enum { COUNT = 3 * N };
    comm_schedule schedule[N] = {{0}};
    char *buffer[N][3];
    static float own[N][COUNT], scratch[N][N * COUNT * 2];
    int64_t bad = 0;
    double links[N * N];
    for (int i = 0; i < n * n; i++) links[i] = 1;
    for (int m = 0; m < n; m++) {
        comm_problem p = {.what = KOLO_ALLREDUCE,
                          .me = m,
                          .members = n,
                          .count = 3 * n,
                          .in_place = true,
                          .width = 4,
                          .links = links};
        if (!row->fits(&p)) return 0;
        if (row->make(&schedule[m], &p) < 0 || schedule[m].scratch > N * COUNT * 2) return -1;
        for (int i = 0; i < 3 * n; i++) own[m][i] = cancelling(low, high, m);
        buffer[m][COMM_SCRATCH] = (char *)scratch[m];
        buffer[m][COMM_OWN] = buffer[m][COMM_INPUT] = (char *)own[m];
    }
    bad -= !virtual_run(&cluster, schedule, buffer, n, 4, comm_combine_of(KOLO_F32, KOLO_SUM));
    for (int m = 0; m < n; m++) {
        bad += memcmp(own[m], own[0], (size_t)n * 12) != 0;
        comm_schedule_free(&schedule[m]);
    }
    return bad;
}

static void same_bits(void)
{
    int64_t bad = 0;
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++)
        for (int n = 2; n <= 10 && row->what == KOLO_ALLREDUCE; n++)
            for (int low = 0; low < n; low++)
                for (int high = 0; high < n; high++)
                    if (low != high) bad |= cancel(row, n, low, high);
    is_int(bad, 0,
           "sums that cancel have the same bits on all members, whichever two hold the large numbers");
}

/* Messages from `from` to `to` are as long as the other end expects, one by one, and none is too long. */
static int64_t unequal(const comm_schedule *schedule, int from, int to)
{
    const comm_schedule *s = &schedule[from], *r = &schedule[to];
    int64_t i = 0, k = 0, bad = 0;
    for (;; i++, k++) {
        while (i < s->actions && (s->action[i].kind != COMM_SEND || s->action[i].peer != to)) i++;
        while (k < r->actions && (r->action[k].kind != COMM_RECEIVE || r->action[k].peer != from)) k++;
        if (i == s->actions || k == r->actions) return bad + (i - s->actions) + (k - r->actions);
        bad += s->action[i].count != r->action[k].count || s->action[i].count > COMM_MESSAGE_MAX;
    }
}

static void long_vectors(void)
{
    enum { MEMBERS = 3 };
    int64_t bad = 0, most = 0;
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        comm_schedule schedule[MEMBERS] = {{0}};
        const int64_t part = ((int64_t)1 << 30) + 5, counts[MEMBERS] = {part, 0, part + 1};
        for (int m = 0; m < MEMBERS; m++) {
            const int64_t to[MEMBERS] = {part + m, part + m, part + m},
                          of[MEMBERS] = {part, part + 1, part + 2};
            comm_problem p = {.what = row->what,
                              .me = m,
                              .members = MEMBERS,
                              .count = 3 * part,
                              .counts = counts,
                              .send = to,
                              .receive = of,
                              .width = 1};
            if (p.what == KOLO_ALLTOALL) p.count = 0;
            if (row->fits(&p)) bad += row->make(&schedule[m], &p) < 0;
            if (schedule[m].scratch > most) most = schedule[m].scratch;
        }
        for (int m = 0; m < MEMBERS; m++)
            for (int k = 0; k < MEMBERS; k++) bad += unequal(schedule, m, k);
        for (int m = 0; m < MEMBERS; m++) comm_schedule_free(&schedule[m]);
    }
    ok(bad == 0 && most >= (int64_t)1 << 30,
       "vectors of 3 G elements, more than an int counts, go in messages of at most %d, cut the same at both "
       "ends",
       COMM_MESSAGE_MAX);
}

/* Elements that all members send to other nodes; -1: not for such groups. */
static int64_t crossing(const comm_algorithm_row *row, const int *node_of, int root)
{
    enum { MEMBERS = 16, EACH = 48 };
    int64_t counts[MEMBERS], sum = 0;
    for (int i = 0; i < MEMBERS; i++) counts[i] = EACH;
    for (int m = 0; m < MEMBERS; m++) {
        comm_schedule s = {0};
        comm_problem p = {
            .what = row->what, .me = m, .members = MEMBERS, .root = root, .width = 4, .node_of = node_of};
        p.counts = p.send = p.receive = counts;
        p.count = row->what == KOLO_ALLTOALL ? EACH : MEMBERS * EACH;
        if (!row->fits(&p) || row->make(&s, &p) < 0) return -1;
        for (int64_t a = 0; a < s.actions; a++)
            if (s.action[a].kind == COMM_SEND && node_of[s.action[a].peer] != node_of[m])
                sum += s.action[a].count;
        comm_schedule_free(&s);
    }
    return sum;
}

/* But for recursive halving, whose sums lie where the vector's halves do when they go to their owners. */
static void placements_alike(void)
{
    int block[16], turn[16];
    for (int i = 0; i < 16; i++) {
        block[i] = i / 4;
        turn[i] = i % 4;
    }
    for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
        /* within a node */
        if (strcmp(row->name, "push") == 0 || strcmp(row->name, "packed_trees") == 0) continue;
        bool halves = row->what == KOLO_REDUCE_SCATTER && strcmp(row->name, "recursive_halving") == 0;
        int64_t wrong = 0, want = crossing(row, block, 0), have = crossing(row, turn, 0);
        for (int root = 1; root < 16 && comm_rooted(row->what); root++)
            wrong += crossing(row, turn, root) != want || crossing(row, block, root) != want;
        ok(!wrong && want > 0 && (halves ? have <= want + 16 * 48 : have == want),
           "%s %s: ranks dealt to nodes in turn send no more between nodes than ranks in blocks",
           comm_collective_name(row->what), row->name);
        if (have != want) diag("%d elements in blocks, %d in turn", (int)want, (int)have);
    }
}

int main(void)
{
    every_algorithm();
    by_lists();
    placements_alike();
    same_bits();
    long_vectors();
    is_int(cluster.mismatches, 0, "every message meets one of its size, none is empty or left over");
    virtual_close(&cluster);
    return done_testing();
}
