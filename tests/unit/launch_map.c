/* Node map from names, its MPICH description, and who shares processors with whom. */
#include "launch/bind.h"
#include "launch/method.h"
#include "tap.h"

enum { MOST = 64 };

/* "a a b c": one name a rank; a name may carry a group as "a/0" */
static int make_identities(const char *names, kolo_identity *all)
{
    int size = 0, used;
    char word[256];
    for (; sscanf(names, "%255s%n", word, &used) == 1; names += used, size++) {
        memset(&all[size], 0, sizeof all[size]);
        all[size].group = -1;
        char *slash = strchr(word, '/');
        if (slash) all[size].group = atoi(slash + 1), *slash = 0;
        snprintf(all[size].name, sizeof all[size].name, "%s", word);
    }
    return size;
}

/* "node:local ..." of all ranks, as rank `rank` sees it */
static const char *map_text(const char *names, int rank, kolo_launch *launch)
{
    static char text[1024];
    kolo_identity all[MOST];
    *launch = (kolo_launch){.rank = rank, .size = make_identities(names, all)};
    size_t used = 0;
    text[0] = 0;
    if (kolo_node_map(launch, all) < 0) return "failed";
    for (int r = 0; r < launch->size; r++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d:%d", r ? " " : "", launch->node_of[r],
                                 launch->local_of[r]);
    return text;
}

static void test_map(void)
{
    kolo_launch launch;
    is_text(map_text("n1 n1 n2 n2", 3, &launch), "0:0 0:1 1:0 1:1", "blocks of ranks");
    is_int(launch.nodes, 2, "two nodes");
    is_int(launch.node, 1, "own node");
    is_int(launch.local_rank, 1, "own local rank");
    is_int(launch.local_size, 2, "ranks of the own node");
    is_text(launch.host, "n2", "own name");
    is_text(launch.host_of[0], "n1", "name of another node");
    kolo_node_map_free(&launch);
    is_text(map_text("b a b a b", 0, &launch), "0:0 1:0 0:1 1:1 0:2", "cyclic, numbered by first appearance");
    is_int(launch.local_size, 3, "uneven nodes");
    kolo_node_map_free(&launch);
    is_text(map_text("vm/0 vm/0 vm/2 vm/2", 2, &launch), "0:0 0:1 1:0 1:1",
            "equal names, apart by the launcher's groups");
    kolo_node_map_free(&launch);
    is_text(map_text("a/0 b/0", 0, &launch), "0:0 1:0", "one group, apart by their names");
    kolo_node_map_free(&launch);
    is_text(map_text("only", 0, &launch), "0:0", "one rank");
    kolo_node_map_free(&launch);
    char longest[256], pair[600];
    memset(longest, 'x', 255);
    longest[255] = 0;
    snprintf(pair, sizeof pair, "%s %.254sy", longest, longest);
    is_text(map_text(pair, 0, &launch), "0:0 1:0", "names of 255 characters that differ in the last");
    is_text(launch.host, longest, "and are kept whole");
    kolo_node_map_free(&launch);
}

/* Reads a vector back as MPICH does: blocks of (start, nodes, per node) until all ranks are placed. */
static bool vector_gives(const char *text, const int *node_of, int size)
{
    int rank = 0, start, nodes, each, used;
    if (strncmp(text, "(vector", 7) != 0) return false;
    for (text += 7; sscanf(text, ",(%d,%d,%d)%n", &start, &nodes, &each, &used) == 3; text += used)
        for (int n = 0; n < nodes; n++)
            for (int c = 0; c < each; c++, rank++)
                if (rank >= size || node_of[rank] != start + n) return false;
    return rank == size && strcmp(text, ")") == 0;
}

static void test_vector(void)
{
    static const struct {
        const char *what, *want;
        int size, node_of[8];
    } cases[] = {
        {"one node", "(vector,(0,1,4))", 4, {0, 0, 0, 0}},
        {"blocks", "(vector,(0,2,2))", 4, {0, 0, 1, 1}},
        {"cyclic", "(vector,(0,2,1),(0,2,1))", 4, {0, 1, 0, 1}},
        {"uneven blocks", "(vector,(0,1,3),(1,1,1))", 4, {0, 0, 0, 1}},
        {"small before large", "(vector,(0,1,1),(1,1,3))", 4, {0, 1, 1, 1}},
        {"mixed", "(vector,(0,3,2),(1,1,1))", 7, {0, 0, 1, 1, 2, 2, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = kolo_node_vector(cases[i].node_of, cases[i].size, 200);
        is_text(text, cases[i].want, "vector of %s", cases[i].what);
        ok(text && vector_gives(text, cases[i].node_of, cases[i].size), "it reads back");
        free(text);
    }
    int odd[MOST], wrong = 0;
    for (int seed = 1; seed < 200; seed++) {
        for (int r = 0; r < MOST; r++) odd[r] = (r * seed + r * r / 3) % 5;
        char *text = kolo_node_vector(odd, MOST, 2000);
        wrong += !text || !vector_gives(text, odd, MOST);
        free(text);
    }
    is_int(wrong, 0, "200 odd placements read back");
    ok(!kolo_node_vector(odd, MOST, 40), "a vector that does not fit is not given");
}

static void test_seats(void)
{
    kolo_cpuset all[4];
    int index, sharers;
    memset(all, 0, sizeof all);
    for (int r = 0; r < 4; r++) {
        memcpy(all[r].machine, "m1", 3);
        all[r].mask[0] = 0xff;
    }
    ok(kolo_cpuset_share(all, 2, 4, &index, &sharers), "four ranks with the same processors may be bound");
    is_int(index, 2, "in rank order");
    is_int(sharers, 4, "among four");
    all[0].mask[0] = all[1].mask[0] = 0x0f;
    all[2].mask[0] = all[3].mask[0] = 0xf0;
    ok(kolo_cpuset_share(all, 3, 4, &index, &sharers), "two disjoint pairs may be bound");
    is_int(index, 1, "second of its pair");
    is_int(sharers, 2, "pairs");
    is_int(kolo_cpuset_count(all, 3, 4), 8, "all four together have all eight processors");
    all[0].mask[0] = 0x1f;
    ok(!kolo_cpuset_share(all, 3, 4, &index, &sharers), "partly the same processors: not bound");
    memcpy(all[0].machine, "m2", 3);
    ok(kolo_cpuset_share(all, 3, 4, &index, &sharers), "on another machine they do not matter");
    is_int(kolo_cpuset_count(all, 3, 4), 8, "nor are those counted that only it has");
    is_int(kolo_cpuset_count(all, 0, 4), 5, "and it has its own");
}

int main(void)
{
    test_map();
    test_vector();
    test_seats();
    return done_testing();
}
