/* Orders of an epoch: permutations all, the same for any number of ranks where they promise it, local
 * where they promise that. */
#include "tap.h"
#include "data_fixture.h"

#include "base/option.h"
#include "base/thread.h"
#include "data/loader.h"
#include "data/order.h"

enum { N = 1000 };
static int64_t order[N], again[N];

static int fill(const char *rule, kolo_order_config c, int64_t epoch, int64_t *to)
{
    kolo_order *o;
    c.seed = 5;
    c.count = N;
    if (kolo_order_parse(rule, &c.rule) < 0 || kolo_order_create(&o, &c) < 0) return -1;
    kolo_order_fill(o, epoch, to);
    kolo_order_destroy(&o);
    return 0;
}

static int is_permutation(const int64_t *p)
{
    char seen[N] = {0};
    int n = 0;
    for (int i = 0; i < N; i++) n += p[i] >= 0 && p[i] < N && !seen[p[i]]++;
    return n == N;
}

static void test_permutations(void)
{
    static const char *const rules[] = {"full",      "block:16", "block:7:3", "block:1000",
                                        "block:1:1", "local",    "local:0.3", "local:1"};
    const int nodes[] = {0, 0, 1, 1, 1, 2, 0, 1};
    for (int i = 0; i < 8; i++)
        for (int batch = 24; batch <= 64; batch += 40) {
            const kolo_order_config c = {.rows = batch, .ranks = 8, .node_of = nodes};
            const int rc = fill(rules[i], c, 0, order) < 0 || fill(rules[i], c, 0, again) < 0;
            const int same = memcmp(order, again, sizeof order) == 0;
            fill(rules[i], c, 1, again);
            ok(!rc && same && is_permutation(order) && is_permutation(again) &&
                   memcmp(order, again, sizeof order) != 0,
               "%s, batch %d: every sample once, the same each time, another epoch another order", rules[i],
               batch);
        }
}

static void test_block(void)
{
    const kolo_order_config c = {.rows = 16, .ranks = 1};
    int64_t together = 0, mixed = 0;
    fill("block:10:32", c, 3, order);
    /* 16 lanes of one row, each mixes 20 samples: 2 blocks, or parts of 3 where its stretch begins within
     * one */
    for (int row = 0; row < 16; row++) {
        int blocks[100] = {0}, n = 0;
        for (int step = 0; step < 20; step++) n += !blocks[order[step * 16 + row] / 10]++;
        together += n <= 3;
        for (int step = 1; step < 20; step++)
            mixed += order[step * 16 + row] != order[(step - 1) * 16 + row] + 1;
    }
    is_int(together, 16, "a lane's window holds whole blocks");
    ok(mixed > 16 * 19 * 8 / 10, "which are mixed (%lld of 304 neighbours parted)", (long long)mixed);
    kolo_order *o;
    kolo_order_config k = {.rows = 16, .ranks = 1, .seed = 5, .count = N};
    kolo_order_parse("block:10:32", &k.rule);
    kolo_order_create(&o, &k);
    kolo_order_fill(o, 3, order);
    int64_t told[1200], n = kolo_order_window(o, order, 0, 4, 2, 1, told), found = 0;
    for (int step = 20; step < 40; step++)
        for (int row = 4; row < 6; row++)
            for (int64_t i = 0; i < n; i++) found += told[i] == order[step * 16 + row];
    ok(n == 40 && found == 40 && n <= kolo_order_window_most(o, 2),
       "the next window of two rows is told in advance");
    is_int(kolo_order_window(o, order, 1, 4, 2, 1, told), 0, "once");
    kolo_order_destroy(&o);
}

static void test_local(void)
{
    const int nodes[] = {0, 1, 1, 0};
    const kolo_order_config c = {.rows = 40, .ranks = 4, .node_of = nodes};
    int64_t home[2][2];
    for (int n = 0; n < 2; n++) kolo_order_share(N, 4, nodes, n, &home[n][0], &home[n][1]);
    ok(home[0][0] == 0 && home[0][1] == 500 && home[1][1] == 1000,
       "two of four ranks own half of the samples");
    for (int q = 0; q < 2; q++) {
        int away = 0;
        fill(q ? "local:0.4" : "local", c, 2, order);
        for (int i = 0; i < N; i++) {
            const int node = nodes[i % 40 / 10];
            away += order[i] < home[node][0] || order[i] >= home[node][1];
        }
        if (q == 0) is_int(away, 0, "every rank shows samples of its node only");
        else
            ok(away > 150 && away < 250, "of 400 exchanged samples about half come from the other node (%d)",
               away);
    }
    int64_t first, last, before = 0;
    const int odd[] = {0, 1, 2, 2, 2, 1, 0};
    int whole = 1;
    for (int n = 0; n < 3; n++, before = last) {
        kolo_order_share(INT64_C(1) << 55, 7, odd, n, &first, &last);
        whole &= first == before && last > first;
    }
    ok(whole && last == INT64_C(1) << 55, "shares of huge sets meet exactly");
}

static void test_refusals(void)
{
    static const char *const bad[] = {"ful",      "block",  "block:",  "block:0",   "block:4:", "block:4:0",
                                      "block:4x", "local:", "local:2", "local:.5x", "locally"};
    kolo_order_rule rule;
    int refused = 0;
    for (int i = 0; i < 11; i++) refused += kolo_order_parse(bad[i], &rule) == KOLO_ECONFIG;
    is_int(refused, 11, "what is no rule is refused (%s)", kolo_error_text());
    const int nodes[] = {0, 1, 2};
    is_int(fill("local", (kolo_order_config){.rows = 40, .ranks = 3, .node_of = nodes}, 0, order), -1,
           "rows that do not divide: %s", kolo_error_text());
}

static void test_speed(void)
{
    enum { IMAGENET = 1281167 };
    static const char *const rules[] = {"full", "block:128", "local:0.1"};
    int64_t *big = malloc(sizeof *big * IMAGENET);
    for (int i = 0; i < 3; i++) {
        kolo_order *o;
        kolo_order_config c = {.rows = 256, .ranks = 1, .seed = 1, .count = IMAGENET};
        kolo_order_parse(rules[i], &c.rule);
        kolo_order_create(&o, &c);
        double best = 9;
        for (int epoch = 0; epoch < 3; epoch++) {
            const double begin = tap_cpu();
            kolo_order_fill(o, epoch, big);
            const double s = tap_cpu() - begin;
            if (s < best) best = s;
        }
        ok(best < 1, "%s: an order of 1,281,167 samples takes %.1f ms of a processor", rules[i], best * 1e3);
        kolo_order_destroy(&o);
    }
    free(big);
}

/* Sample numbers of the rows that `ranks` ranks see in `steps` steps, in global row order. */
static void look(const kolo_dataset *d, const char *rule, int repeat, int ranks, int readers, int64_t steps,
                 int64_t *samples)
{
    for (int r = 0; r < ranks; r++) {
        kolo_loader *l;
        kolo_batch b;
        const kolo_loader_config c = {.dataset = d,
                                      .channels = 3,
                                      .height = 8,
                                      .width = 8,
                                      .classes = 10,
                                      .train = true,
                                      .seed = 4,
                                      .batch = 48,
                                      .rank = r,
                                      .ranks = ranks,
                                      .tail = KOLO_tail_drop,
                                      .area_min = .3,
                                      .area_max = 1,
                                      .shuffle = rule,
                                      .repeat = repeat,
                                      .readers = readers,
                                      .prefetch = 2};
        if (kolo_loader_create(&l, &c) < 0) {
            diag("%s", kolo_error_text());
            return;
        }
        for (int64_t t = 0; t < steps && kolo_loader_next(l, &b) == 0; t++) {
            memcpy(samples + t * 48 + r * b.rows, b.samples, sizeof *samples * (size_t)b.rows);
            kolo_loader_release(l, &b);
        }
        kolo_loader_destroy(&l);
    }
}

static void test_loader(void)
{
    fixture f = {.count = N, .shards = 3, .height = 8, .width = 8, .channels = 3};
    kolo_dataset *d = NULL;
    if (fixture_make(&f) < 0 || kolo_dataset_open(&d, f.folder) < 0) diag("%s", kolo_error_text());
    static int64_t one[48 * 45], many[48 * 45]; /* 45 steps: two epochs of 20 and some */
    for (int repeat = 1; repeat <= 3; repeat += 2) {
        look(d, "block:16:2", repeat, 1, 1, 45, one);
        int same = 0;
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            look(d, "block:16:2", repeat, ranks, ranks, 45, many);
            same += memcmp(one, many, sizeof one) == 0;
        }
        is_int(same, 3, "block order, repeat=%d: 2, 4 and 8 ranks together see the rows of one", repeat);
        int views = 1;
        for (int i = 0; i < 48 * 20; i++) views &= one[i] == one[i - i % repeat];
        ok(views, "views of a sample follow each other");
        if (repeat > 1) continue;
        fill("block:16:2", (kolo_order_config){.rows = 48, .ranks = 1}, 0, order);
        ok(memcmp(order, one, sizeof *one * 48 * 20) != 0, "another seed, another order");
    }
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

int main(void)
{
    test_permutations();
    test_block();
    test_local();
    test_refusals();
    test_speed();
    test_loader();
    return done_testing();
}
