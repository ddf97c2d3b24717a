/* Served batches: the bytes that each job would have made by itself, whoever comes, goes or dies. */
#include "data_serve_rig.h"

static kolo_dataset *set;

static kolo_loader_config of_rank(kolo_loader_config c, int rank, int ranks)
{
    c.rank = rank, c.ranks = ranks;
    return c;
}

static seen alone(kolo_loader_config c, int64_t steps)
{
    seen s;
    c.dataset = set;
    if (look(c, 0, steps, -1, -1, -1, &s) < 0) diag("%s", kolo_error_text());
    return s;
}

static int same(const seen *a, const seen *b) { return !memcmp(a->crc, b->crc, sizeof a->crc); }

/* Two jobs of two ranks and one of one. */
static void test_same(kolo_loader_config c, const char *what)
{
    static const int rank[] = {0, 0, 1, 0, 1}, ranks[] = {1, 2, 2, 2, 2};
    process server = serve(c, 3), job[5];
    int equal = 1;
    int64_t served = 0;
    for (int k = 0; k < 5; k++) {
        kolo_loader_config own = of_rank(c, rank[k], ranks[k]);
        own.readers = 1 + k % 3, own.prefetch = 1 + k;
        job[k] = start(own, false, 0, 0, STEPS, -1);
    }
    for (int k = 0; k < 5; k++) {
        const seen want = alone(of_rank(c, rank[k], ranks[k]), STEPS), got = result_of(&job[k]);
        equal &= same(&got, &want);
        served += got.served;
        finish(&job[k]);
    }
    ok(equal, "%s: three jobs of five ranks see bit for bit what they would see alone", what);
    is_int(served, 3 * 2 * 100, "%s: all of it from the server", what);
    is_int(end(&server), 0, "a server that is told to end has done its work");
}

static kolo_loader_config of_node(kolo_loader_config c, int rank, int ranks, const int *node_of)
{
    c.node_of = node_of;
    return of_rank(c, rank, ranks);
}

/* A server has the rows of its node, also where each node shows its own images. */
static void test_nodes(void)
{
    static const int servers[] = {0, 1}, ranks[] = {0, 0, 1, 1};
    kolo_loader_config c = config_of(NULL);
    c.shuffle = "local:0.25";
    process server = serve(of_node(c, 1, 2, servers), 1),
            inside = start(of_node(c, 3, 4, ranks), false, 0, 0, STEPS, -1);
    process beside = start(of_node(c, 2, 4, ranks), false, 0, 0, STEPS, -1);
    const seen want = alone(of_node(c, 3, 4, ranks), STEPS), got = result_of(&inside);
    ok(same(&got, &want), "the second of two nodes serves the fourth of four ranks");
    is_int(got.served, 2 * 4 * 6, "its rows, but for padding");
    finish(&inside), finish(&beside);
    process outside = start(of_node(c, 0, 4, ranks), false, 0, 0, STEPS, -1);
    is_int(finish(&outside), 78, "not the first, whose rows are another node's");
    end(&server);
}

static void test_killed_job(void)
{
    kolo_loader_config c = config_of(NULL);
    c.serve_wait = 1000;
    process server = serve(c, 2), a = start(c, false, 0, 0, STEPS, 1), b = start(c, false, 0, 0, STEPS, 1);
    wait_told(&a), wait_told(&b); /* both have come: one that is missing is waited for */
    kill(b.pid, SIGKILL);
    let_on(&a);
    const seen want = alone(c, STEPS), got = result_of(&a);
    ok(same(&got, &want) && got.served == 200, "a job that is killed holds nobody up");
    finish(&a), finish(&b);
    end(&server);
}

static void test_killed_server(void)
{
    const kolo_loader_config c = config_of(NULL);
    const seen want = alone(c, STEPS + 5);
    process server = serve(c, 1), job = start(c, false, 0, 0, STEPS + 5, 1);
    wait_told(&job);
    kill(server.pid, SIGKILL);
    finish(&server);
    ok(access(socket_path, F_OK) == 0, "a server that is killed leaves its socket");
    server = serve(c, 1);
    let_on(&job);
    const seen got = result_of(&job);
    ok(same(&got, &want), "its job goes on by itself: the same bytes");
    ok(got.served > 100 && got.served < 300,
       "and takes from the next server from the next epoch on (%lld of 300)", (long long)got.served);
    is_int(finish(&job), 0, "to its end");
    end(&server);
    server = serve(c, 1);
    job = start(c, false, 0, 0, STEPS, 1);
    wait_told(&job);
    is_int(end(&server), 0, "a server may end before its jobs");
    let_on(&job);
    const seen rest = result_of(&job);
    ok(!memcmp(rest.crc, want.crc, STEPS * sizeof *want.crc) && rest.served > 0 && rest.served < 200,
       "they go on by themselves");
    finish(&job);
}

static void test_late(void)
{
    const kolo_loader_config c = config_of(NULL);
    const seen want = alone(c, STEPS);
    process server = serve(c, 1), a = start(c, false, 0, 0, STEPS, 1);
    wait_told(&a);
    process b = start(c, false, 0, 0, STEPS, -1);
    let_on(&a);
    seen got = result_of(&a);
    ok(same(&got, &want) && got.served == 200, "a job that comes first is served from its first batch on");
    finish(&a);
    got = result_of(&b);
    ok(same(&got, &want), "one that comes later sees the same");
    is_int(finish(&b), 0, "and ends");
    process far = start(c, false, 0, 5 * 700 + 2, 3, -1);
    got = result_of(&far);
    is_int(got.served, 24 + 24 + 4, "a ring that nobody has joined goes where the first one is");
    finish(&far);
    end(&server);
}

static void test_joins_at_epoch(void)
{
    kolo_loader_config c = config_of(NULL);
    c.serve_wait = 1000; /* the ring waits for b at the epoch's begin */
    const seen want = alone(c, STEPS);
    process server = serve(c, 1), a = start(c, false, 0, 0, STEPS, 1);
    wait_told(&a);
    process b = start(c, false, 0, 0, STEPS, 1);
    wait_told(&b);
    let_on(&a);
    let_on(&b);
    const seen first = result_of(&a), second = result_of(&b);
    ok(same(&first, &want) && same(&second, &want),
       "a job that comes in the middle of an epoch sees the same");
    is_int(second.served, 100, "it joins at the next one");
    is_int(first.served, 200, "where the others wait for it");
    finish(&a), finish(&b);
    end(&server);
}

static void test_let_go(void)
{
    kolo_loader_config c = config_of(NULL);
    c.serve_wait = 1;
    const seen want = alone(c, STEPS);
    process server = serve(c, 2), slow = start(c, false, 0, 0, STEPS, 1),
            quick = start(c, false, 0, 0, STEPS, -1);
    wait_told(&slow);
    const seen got = result_of(&quick);
    ok(same(&got, &want), "who stands still is dropped, and the others go on");
    finish(&quick);
    let_on(&slow);
    const seen rest = result_of(&slow);
    ok(same(&rest, &want), "it sees the same when it moves again");
    finish(&slow);
    end(&server);
}

int main(void)
{
    if (rig_open() < 0 || kolo_dataset_open(&set, jpeg.folder) < 0) {
        diag("%s", kolo_error_text());
        return 1;
    }
    kolo_loader_config c = config_of(NULL);
    test_same(c, "mixed images");
    c.mix = (kolo_mix_config){0}, c.repeat = 2, c.shuffle = "block:8:4";
    test_same(c, "blocks, two views");
    test_nodes();
    test_killed_job();
    test_killed_server();
    test_late();
    test_joins_at_epoch();
    test_let_go();
    kolo_dataset_close(&set);
    fixture_remove(&jpeg);
    return done_testing();
}
