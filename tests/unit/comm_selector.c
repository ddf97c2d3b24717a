/* Which algorithm is chosen: by cost, by a table of measurements, by name; and trees packed into links
 * against the least cut. */
#include "comm/algorithm/algorithm.h"
#include "comm/algorithm/stages.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"

static char path[64];

static comm_selector *from(const char *text)
{
    comm_selector *s = NULL;
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    comm_selector_open(&s, path, NULL);
    return s;
}

static void refused(const char *text, const char *want, const char *what)
{
    comm_selector *s = from(text);
    char with[256];
    snprintf(with, sizeof with, "%s%s", path, want);
    if (!ok(!s && strstr(kolo_error_text(), with) == kolo_error_text(), "%s", what))
        diag("%s", kolo_error_text());
    comm_selector_close(&s);
}

static comm_problem reduce(int members, int64_t count, const int *node_of)
{
    return (comm_problem){
        .what = KOLO_ALLREDUCE, .members = members, .count = count, .width = 4, .node_of = node_of};
}

static const char *chosen(const comm_selector *s, comm_problem p)
{
    return comm_algorithm_select(&p, s)->name;
}

static void by_cost(void)
{
    enum { L = 8, NODES = 8 };
    int block[L * NODES], dealt[L * NODES], odd[24], one_each[64];
    comm_selector *s;
    comm_selector_open(&s, NULL, NULL);
    for (int i = 0; i < L * NODES; i++) block[i] = i / L;
    for (int i = 0; i < 24; i++) odd[i] = i / 6;
    for (int i = 0; i < 64; i++) one_each[i] = i;
    const char *small = chosen(s, reduce(64, 256, one_each));
    ok(!strncmp(small, "recursive_", 10), "1 KiB on 64 nodes: whole vectors (%s)", small);
    is_text(chosen(s, reduce(64, 1 << 22, one_each)), "rabenseifner", "16 MiB on 64 nodes");
    double near[2], far[2];
    for (int i = 0; i < L * NODES; i++) dealt[i] = i % NODES;
    for (int i = 0; i < 2; i++) {
        comm_problem large = reduce(64, 1 << 24, i ? dealt : block);
        near[i] = comm_algorithm_named(KOLO_ALLREDUCE, "rabenseifner")->cost(&large, comm_selector_costs(s));
        far[i] = comm_algorithm_named(KOLO_ALLREDUCE, "binary_blocks")->cost(&large, comm_selector_costs(s));
    }
    ok(far[0] > 2 * near[0] && near[1] > 2 * far[1],
       "nodes of 8 in blocks: farthest first costs %.1f x nearest first; dealt in turn: 1 / %.1f",
       far[0] / near[0], near[1] / far[1]);
    const comm_algorithm_row *row = comm_algorithm_named(KOLO_ALLREDUCE, "two_level");
    comm_problem p = reduce(24, 1 << 20, odd);
    ok(!row->ordered(&p), "nodes of 6: sums by nodes have another order");
    p = reduce(64, 1 << 20, block);
    ok(row->ordered(&p), "nodes of 8: they have the tree's");
    int64_t bad = 0;
    for (int what = 0; what < KOLO_JOIN; what++)
        for (int n = 1; n <= 40; n++)
            for (int64_t count = 0; count < 1 << 26; count = count * 13 + 1) {
                int64_t counts[40];
                for (int i = 0; i < n; i++) counts[i] = i % 3 ? count : 0;
                comm_problem any = {.what = what,
                                    .members = n,
                                    .count = count,
                                    .counts = counts,
                                    .send = counts,
                                    .receive = counts,
                                    .width = 4,
                                    .node_of = block};
                const comm_algorithm_row *r = comm_algorithm_select(&any, s);
                bad += !r || !r->fits(&any) || !r->ordered(&any);
            }
    is_int(bad, 0,
           "every collective of 1 to 40 members of any size gets a row that fits and keeps the order");
    comm_selector_close(&s);
}

static void by_table(void)
{
    comm_selector *s = from("# measured\nkolo-comm-table 1\ncost node 1e-6 1e-10\ncost network 3e-6 2e-10 # "
                            "slow\ncost reduce 1e-11\n"
                            "use allreduce 4 1 1024 one_shot\nuse allreduce 4 1 65536 recursive_multiplying "
                            "k=2\nuse allreduce 4 1 * "
                            "direct\n"
                            "use broadcast 4 1 * knomial k=3\nuse allreduce 12 1 * butterfly k=2x2x3\nuse "
                            "allreduce 5 1 * ring\nuse broadcast 6 1 * pipelined_tree segment=99\n");
    if (!ok(s != NULL, "a table is read")) {
        diag("%s", kolo_error_text());
        return;
    }
    ok(comm_selector_costs(s)->alpha[1] == 3e-6 && comm_selector_costs(s)->gamma == 1e-11, "its costs");
    is_text(chosen(s, reduce(4, 256, NULL)), "one_shot", "4 members, 1024 bytes");
    is_text(chosen(s, reduce(4, 257, NULL)), "recursive_multiplying", "a byte range further");
    is_text(chosen(s, reduce(4, 1 << 20, NULL)), "direct", "beyond all of them");
    const int apart[4] = {0, 0, 1, 1};
    ok(strcmp(chosen(s, reduce(4, 1 << 20, apart)), "direct"),
       "on two nodes the measurements of one do not hold");
    ok(strcmp(chosen(s, reduce(5, 1 << 20, NULL)), "ring"), "a row without the fixed order is not taken");
    comm_problem p = {.what = KOLO_BROADCAST, .members = 4, .count = 10, .width = 1};
    comm_algorithm_select(&p, s);
    ok(p.radix.k[0] == 3 && !p.radix.k[1], "the radix that was measured comes with it");
    p = (comm_problem){.what = KOLO_BROADCAST, .members = 6, .count = 10, .width = 1};
    comm_algorithm_select(&p, s);
    is_int(p.segment, 99, "and the segment");
    p = reduce(12, 1 << 20, NULL);
    const char *by = comm_algorithm_select(&p, s)->name;
    ok(!strcmp(by, "butterfly") && p.radix.k[0] == 2 && p.radix.k[1] == 2 && p.radix.k[2] == 3 &&
           !p.radix.k[3],
       "and a list of radices");
    uint32_t digest = comm_selector_digest(s);
    comm_selector_close(&s);
    s = from("kolo-comm-table 1\norder free\nuse allreduce 5 1 * ring\nlinks 2\n0 1\n2 0\n");
    is_text(chosen(s, reduce(5, 1 << 20, NULL)), "ring", "order free: it is");
    ok(comm_selector_links(s, 2) && comm_selector_links(s, 2)[2] == 2 && !comm_selector_links(s, 3),
       "links of as many ranks as were measured");
    p = (comm_problem){.what = KOLO_BROADCAST, .members = 2, .count = 10, .width = 1};
    comm_algorithm_select(&p, s);
    const int two_nodes[2] = {0, 1};
    comm_problem q = {.what = KOLO_BROADCAST, .members = 2, .count = 10, .width = 1, .node_of = two_nodes};
    comm_algorithm_select(&q, s);
    ok(p.links && !q.links, "which come to problems of a node, not to those between nodes");
    ok(comm_selector_digest(s) != digest, "other tables have other digests");
    comm_selector_close(&s);
}

static void wrong_tables(void)
{
    refused("", ": empty", "an empty file");
    refused("hello\n", ", line 1: not a table", "another file");
    refused("kolo-comm-table 1\n\nuse allreduce 4 1 10 rings\n", ", line 3: comm: no algorithm \"rings\"",
            "an unknown algorithm, with its line");
    ok(strstr(kolo_error_text(), "did you mean \"ring\"") != NULL, "and the nearest one");
    refused("kolo-comm-table 1\nuse allreduce 4 1 -1 ring\n", ", line 2: \"-1\"", "negative bytes");
    refused("kolo-comm-table 1\ncost node 1e-6\n", ", line 2: cost wants", "a cost that is cut off");
    refused("kolo-comm-table 1\ncost node nan 1\n", ", line 2: \"nan\"", "a cost that is no number");
    refused("kolo-comm-table 1\ncost network 1e308 1\n", ", line 2: \"1e308\"",
            "a cost with which all algorithms cost more than can be told");
    refused("kolo-comm-table 1\nlinks 2\n0 1\n", ", line 4: the file ends after 1 of 2",
            "links that are cut off");
    refused("kolo-comm-table 1\nlinks 2\n0 1 2\n", ", line 3: 3 numbers", "a row that is too long");
    refused("kolo-comm-table 1\nlinks 17\n", ", line 2: links of 17", "links of too many ranks");
    refused("kolo-comm-table 1\nuse allreduce 4 1 10 ring k=1\n", ", line 2: \"1\"", "a radix of 1");
    refused("kolo-comm-table 1\nuse allreduce 12 1 * butterfly k=4x4\n",
            ", line 2: comm: algorithm butterfly: k=4x4 is not for 12 members",
            "radices with another product");
    ok(strstr(kolo_error_text(), "k=12, 2x6, 2x2x3, 2x3x2, 3x4, 3x2x2, 4x3, 6x2") != NULL,
       "and which would fit");
    refused("kolo-comm-table 1\nuse allreduce 17 1 * two_level k=4\n",
            ", line 2: comm: algorithm two_level: k=4 is not for 17", "a level of 4 of 17 members");
    refused("kolo-comm-table 1\nuse allreduce 4 1 10 ring k=2\n", ", line 2: algorithm ring takes no k",
            "a radix for an algorithm without");
    refused("kolo-comm-table 1\nuse allreduce 4 1 10 butterfly k=2x\n", ", line 2: \"2x\" is no k",
            "half a list");
    refused("kolo-comm-table 1\nuse allreduce 4 1 10 butterfly segment=9\n",
            ", line 2: algorithm butterfly takes no segment", "a segment likewise");
    refused("kolo-comm-table 1\nchoose ring\n", ", line 2: \"choose\"", "an unknown word");
    comm_selector *s = NULL;
    ok(comm_selector_open(&s, "/nonexistent/table", NULL) == KOLO_EINPUT && !s, "no such file");
}

static void forced(void)
{
    comm_selector *s = NULL;
    ok(comm_selector_open(&s, NULL, "segmented_rong") == KOLO_ECONFIG &&
           strstr(kolo_error_text(), "segmented_ring"),
       "an unknown name is refused with the nearest");
    comm_selector_open(&s, NULL, "ring");
    is_text(chosen(s, reduce(7, 3, NULL)), "ring", "a forced algorithm is taken");
    comm_problem p = {.what = KOLO_BROADCAST, .members = 7, .count = 3, .width = 1};
    ok(comm_algorithm_select(&p, s) != NULL, "by collectives that have it; others choose");
    comm_selector_close(&s);
}

/* NAME:k=LIST,segment=N, as users force it. */
static void forced_lists(void)
{
    comm_selector *s = NULL;
    comm_problem p = reduce(12, 1 << 10, NULL);
    comm_selector_open(&s, NULL, "two_level:k=2x2x3");
    is_text(comm_algorithm_select(&p, s)->name, "two_level",
            "two_level:k=2x2x3 for 12 members, on one node, too");
    ok(p.radix.k[0] == 2 && p.radix.k[1] == 2 && p.radix.k[2] == 3, "by these levels");
    uint32_t digest = comm_selector_digest(s);
    ok(comm_selector_check(s, 12) == 0 && comm_selector_check(s, 1) == 0, "which fits 12 members");
    ok(comm_selector_check(s, 16) == KOLO_ECONFIG &&
           strstr(kolo_error_text(), "k=2x2x3 is not for 16 members") &&
           strstr(kolo_error_text(), "k=16, 2x8, 2x2x4"),
       "and not 16, for which others are named");
    p = reduce(16, 1 << 10, NULL);
    const comm_algorithm_row *row = comm_algorithm_select(&p, s);
    ok(row && row->fits(&p) && comm_radices_fit(row, &p), "a group of 16 falls back on a choice");
    comm_selector_close(&s);
    comm_selector_open(&s, NULL, "two_level:k=3x4");
    ok(comm_selector_digest(s) != digest, "another list is another digest");
    comm_selector_close(&s);
    comm_selector_open(&s, NULL, "pipelined_tree:segment=77");
    p = (comm_problem){.what = KOLO_BROADCAST, .members = 7, .count = 300, .width = 1};
    ok(!strcmp(comm_algorithm_select(&p, s)->name, "pipelined_tree") && p.segment == 77, "segments likewise");
    comm_selector_close(&s);
    static const char *const wrong[][2] = {
        {"butterfly:k=4y8", "\"4y8\" is no k"}, {"ring:k=4", "takes no k"},
        {"butterfly:radix=4", "known are k="},  {"butterfly:k=", "\"\" is no k"},
        {"butterfly:k=1x4", "\"1x4\" is no k"}, {"butterfly:k=99999x99999", "is no k"},
        {"butterflies:k=4", "did you mean"},    {"segmented_ring:segment=0", "not a whole number"}};
    int bad = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bool refused_so =
            comm_selector_open(&s, NULL, wrong[i][0]) < 0 && strstr(kolo_error_text(), wrong[i][1]);
        if (!refused_so) diag("%s: %s", wrong[i][0], kolo_error_text());
        bad += !refused_so;
    }
    is_int(bad, 0, "words that are wrong are refused, with what is wrong");
}

/* Levels and factors are chosen by their cost, too. */
static void radices_by_cost(void)
{
    int block[48];
    const comm_cost *c;
    comm_selector *s;
    comm_selector_open(&s, NULL, NULL);
    c = comm_selector_costs(s);
    for (int i = 0; i < 48; i++) block[i] = i / 8;
    int worse = 0, lists = 0;
    for (int64_t count = 64; count < 1 << 25; count *= 8)
        for (const comm_algorithm_row *row = comm_algorithm_table; row->name; row++) {
            comm_problem p = reduce(48, count, block);
            if (row->what != KOLO_ALLREDUCE || !row->radices) continue;
            double own = row->fits(&p) && row->ordered(&p) ? row->cost(&p, c) : 1e9,
                   best = comm_radices_cheapest(row, &p, c, false);
            worse += best > own || !row->ordered(&p) || (best < own) != (p.radix.k[0] != 0);
            lists += p.radix.k[0] != 0;
        }
    ok(!worse && lists > 0,
       "of all factorisations the cheapest is taken, if it keeps the order (%d times not the algorithm's "
       "own)",
       lists);
    comm_selector_close(&s);
}

/* Where the caller can push, the push is a row like others, and by the costs the cheapest. */
static void pushes(void)
{
    const int apart[4] = {0, 0, 1, 1};
    comm_selector *s = NULL;
    comm_problem p = reduce(4, 1 << 20, NULL);
    int64_t other = 0;
    comm_selector_open(&s, NULL, NULL);
    p.shares = true;
    is_text(chosen(s, p), "push", "on a node that can push");
    for (int n = 2; n <= 64; n++)
        for (int64_t count = 1; count < 1 << 28; count *= 7) {
            comm_problem any = reduce(n, count, NULL);
            any.shares = true;
            other += !comm_algorithm_pushes(comm_algorithm_select(&any, s));
        }
    is_int(other, 0, "for any count and size");
    ok(!comm_selector_asks(s, KOLO_ALLREDUCE, 4, 1), "nobody has to ask");
    p.node_of = apart;
    ok(strcmp(chosen(s, p), "push") != 0, "not over two nodes");
    comm_selector_close(&s);
    s = from("kolo-comm-table 1\norder free\nuse allreduce 4 1 65536 push\nuse allreduce 4 1 * ring\n");
    p = reduce(4, 1 << 20, NULL);
    p.shares = true;
    is_text(chosen(s, p), "ring", "a table that names another one is asked");
    ok(comm_selector_asks(s, KOLO_ALLREDUCE, 4, 1) && !comm_selector_asks(s, KOLO_ALLREDUCE, 5, 1),
       "for groups like those it names");
    p.fixed = true;
    ok(strcmp(chosen(s, p), "ring") != 0,
       "but not for another order of sums where it has to be the fixed one");
    comm_selector_close(&s);
    comm_selector_open(&s, NULL, "push");
    is_text(chosen(s, reduce(4, 9, NULL)), "recursive_doubling",
            "forced where there is nothing to push through: another one");
    comm_selector_close(&s);
}

/* The table of a cluster is found by its name. */
static void by_cluster(void)
{
    char folder[80], file[160];
    comm_selector *s = NULL;
    snprintf(folder, sizeof folder, "%s.d", path);
    snprintf(file, sizeof file, "%s/comm-table-big-one", folder);
    setenv("KOLO_CACHE", folder, 1);
    setenv("SLURM_CLUSTER_NAME", "big/one", 1);
    mkdir(folder, 0700);
    FILE *f = fopen(file, "w");
    fputs("kolo-comm-table 1\ncost reduce 7e-11\n", f);
    fclose(f);
    ok(comm_table_open(&s, "", NULL) == 0 && comm_selector_costs(s)->gamma == 7e-11,
       "a cluster's own table is read where none is named");
    comm_selector_close(&s);
    ok(comm_table_open(&s, "none", NULL) == 0 && comm_selector_costs(s)->gamma != 7e-11,
       "unless none is wanted");
    comm_selector_close(&s);
    setenv("SLURM_CLUSTER_NAME", "other", 1);
    ok(comm_table_open(&s, NULL, NULL) == 0 && comm_selector_costs(s)->gamma != 7e-11,
       "or the cluster is another one");
    comm_selector_close(&s);
    unlink(file);
    rmdir(folder);
}

/* ---- packed trees -------------------------------------------------------------------------------------- */

/* A table of such links between n ranks of a node. */
static comm_selector *linked_table(int n, const double *links, const char *order)
{
    static char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text,
                                   "kolo-comm-table 1\ncost node 5e-7 5e-11\norder %s\nlinks %d\n", order, n);
    for (int i = 0; i < n * n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%g%c", links[i], (i + 1) % n ? ' ' : '\n');
    return from(text);
}

/* Those of an eight-GPU cube mesh: pairs of one or two NVLinks. */
static const char mesh[8][9] = {"01122000", "10210200", "12020020", "21200001",
                                "20000112", "02001021", "00201202", "00012120"};

/* Seconds for which the busiest rank sends what the schedules of an allreduce say, one link after the
 * other. */
static double busiest(const char *name, const double *links, int n)
{
    double most = 0;
    for (int m = 0; m < n; m++) {
        double seconds = 0;
        comm_schedule s = {0};
        comm_problem p = {.what = KOLO_ALLREDUCE,
                          .me = m,
                          .members = n,
                          .in_place = true,
                          .count = 1 << 20,
                          .width = 4,
                          .links = links};
        if (comm_algorithm_named(KOLO_ALLREDUCE, name)->make(&s, &p) < 0) return 0;
        for (int64_t i = 0; i < s.actions; i++)
            if (s.action[i].kind == COMM_SEND)
                seconds += (double)s.action[i].count * 4e-9 / links[m * n + s.action[i].peer];
        most = seconds > most ? seconds : most;
        comm_schedule_free(&s);
    }
    return most;
}

/* What the choice is by the costs alone, on a node whose links were measured; */
static void packed_on(int n, double links[], const char *what)
{
    comm_selector *unlike = linked_table(n, links, "free"), *fixed = linked_table(n, links, "fixed");
    comm_problem p = reduce(n, 1 << 22, NULL),
                 cast = {.what = KOLO_BROADCAST, .members = n, .count = 1 << 24, .width = 1};
    p.links = comm_selector_links(unlike, n);
    double trees =
        comm_algorithm_named(KOLO_ALLREDUCE, "packed_trees")->cost(&p, comm_selector_costs(unlike));
    double ring = comm_algorithm_named(KOLO_ALLREDUCE, "ring")->cost(&p, comm_selector_costs(unlike));
    p.links = NULL;
    ok(trees < ring, "%s: by the costs an allreduce by trees takes %.2f of the ring's time", what,
       trees / ring);
    double share = busiest("packed_trees", links, n) / busiest("ring", links, n);
    ok(share < 1 && share > trees / ring / 3, "by its messages, %.2f", share);
    is_text(chosen(unlike, p), "packed_trees", "and is chosen where the order is free");
    ok(strcmp(chosen(fixed, p), "packed_trees") != 0, "but not where it is fixed (%s)", chosen(fixed, p));
    is_text(chosen(fixed, cast), "packed_trees", "a broadcast has no order");
    ok(strcmp(chosen(unlike, reduce(n, 16, NULL)), "packed_trees") != 0, "64 bytes: no trees");
    for (int i = 0; i < n * n; i++) links[i] = i % (n + 1) ? 20 : 0;
    comm_selector *like = linked_table(n, links, "free");
    ok(strcmp(chosen(like, p), "packed_trees") != 0 && strcmp(chosen(like, cast), "packed_trees") != 0,
       "links alike: none for a sum (%s) or a broadcast (%s)", chosen(like, p), chosen(like, cast));
    p.shares = true;
    is_text(chosen(unlike, p), "push", "where members push, they do");
    comm_selector_close(&unlike);
    comm_selector_close(&fixed);
    comm_selector_close(&like);
}

static void packed_by_cost(void)
{
    static double links[256];
    /* partners by twos have no links; in the mesh's own order halving is as good as trees */
    static const int at[8] = {0, 5, 1, 4, 2, 7, 3, 6};
    for (int u = 0; u < 8; u++)
        for (int v = 0; v < 8; v++)
            links[u * 8 + v] = u == v                      ? 0
                               : mesh[at[u]][at[v]] == '0' ? 1.5
                                                           : 22. * (mesh[at[u]][at[v]] - '0');
    packed_on(8, links, "a hybrid cube mesh, slow where it has no links");
    for (int u = 0; u < 16; u++)
        for (int v = 0; v < 16; v++)
            links[u * 16 + v] = u == v ? 0 : (u + 5) % 16 == v || (v + 5) % 16 == u ? 20 : .5;
    packed_on(16, links, "16 ranks, each fast to the fifth from it");
}

/* Bytes that each link carries in a schedule of `count` elements, against what it can: the time of the
 * busiest, and so the rate. */
static double rate_of(const double *links, int n, int root, enum kolo_collective what)
{
    const int64_t count = 1 << 20;
    double slowest = 0;
    for (int m = 0; m < n; m++) {
        double sent[COMM_PACK_RANKS] = {0};
        comm_schedule s = {0};
        comm_problem p = {.what = what,
                          .me = m,
                          .members = n,
                          .root = root,
                          .in_place = true,
                          .count = count,
                          .width = 1,
                          .links = links};
        const comm_algorithm_row *row = comm_algorithm_named(what, "packed_trees");
        if (!row->fits(&p) || row->make(&s, &p) < 0) return 0;
        for (int64_t i = 0; i < s.actions; i++)
            if (s.action[i].kind == COMM_SEND) sent[s.action[i].peer] += (double)s.action[i].count;
        for (int v = 0; v < n; v++)
            if (sent[v] > 0 && sent[v] / links[m * n + v] > slowest) slowest = sent[v] / links[m * n + v];
        comm_schedule_free(&s);
    }
    return (double)count / slowest;
}

/* The least, over all cuts that part somebody from the root, of what crosses. By trying all of them. */
static double least_cut(const double *links, int n, int root)
{
    double least = 1e30;
    for (int set = 1; set < 1 << n; set++) {
        if (!(set >> root & 1) || set == (1 << n) - 1) continue;
        double cut = 0;
        for (int u = 0; u < n; u++)
            for (int v = 0; v < n; v++)
                if ((set >> u & 1) && !(set >> v & 1) && u != v) cut += links[u * n + v];
        if (cut < least) least = cut;
    }
    return least;
}

static void near_bound(const double *links, int n, const char *what)
{
    double worst = 1, worst_sum = 1;
    for (int root = 0; root<n; root += n> 8 ? 7 : 1) {
        double share = rate_of(links, n, root, KOLO_BROADCAST) / least_cut(links, n, root);
        if (share < worst) worst = share;
    }
    worst_sum = rate_of(links, n, 0, KOLO_ALLREDUCE) / least_cut(links, n, 0);
    ok(worst >= .9 && worst <= 1.001,
       "%s: a broadcast has %.1f %% of what the least cut lets through, from any root", what, 100 * worst);
    ok(worst_sum >= .48 && worst_sum <= 1.001,
       "%s: an allreduce %.1f %% (half is sure: its two ways may meet)", what, 100 * worst_sum);
}

static void packed(void)
{
    double links[256] = {0};
    for (int i = 0; i < 8; i++) links[i * 8 + (i + 1) % 8] = links[(i + 1) % 8 * 8 + i] = 25;
    near_bound(links, 8, "a ring of 8");
    links[3 * 8 + 4] = links[4 * 8 + 3] = 0;
    near_bound(links, 8, "a ring that lacks a link");
    for (int u = 0; u < 8; u++)
        for (int v = 0; v < 8; v++)
            links[u * 8 + v] = u == v ? 0 : u / 4 == v / 4 ? 50 : u % 4 == v % 4 ? 5 : 0;
    near_bound(links, 8, "two fast islands, four slow bridges");
    for (int u = 0; u < 16; u++)
        for (int v = 0; v < 16; v++) links[u * 16 + v] = u == v ? 0 : u / 8 == v / 8 ? 20 : 3.7;
    near_bound(links, 16, "16 ranks, two sockets");
    for (int u = 0; u < 8; u++)
        for (int v = 0; v < 8; v++) links[u * 8 + v] = links[v * 8 + u] = 22. * (mesh[u][v] - '0');
    near_bound(links, 8, "a hybrid cube mesh");
    for (int u = 0; u < 8; u++) links[u * 8 + 5] = links[5 * 8 + u] = 0;
    comm_problem p = {.what = KOLO_BROADCAST, .members = 8, .count = 9, .width = 1, .links = links};
    ok(!comm_algorithm_named(KOLO_BROADCAST, "packed_trees")->fits(&p),
       "a rank without links: packed trees do not fit");
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/kolo-selector-%d", (int)getpid());
    by_cost();
    by_table();
    wrong_tables();
    forced();
    forced_lists();
    radices_by_cost();
    pushes();
    by_cluster();
    packed_by_cost();
    packed();
    unlink(path);
    return done_testing();
}
