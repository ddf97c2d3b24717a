/* Named requests through the public header, with as many ranks as mpiexec starts: any order, fusion, bundles,
 * failures, joins, groups, stalls.
 *   comm_named              behaviours
 *   comm_named nodes N      behaviours, with the ranks dealt over N simulated nodes
 *   comm_named stall        a name that one rank submits late: report and error (environment of the script)
 *   comm_named steps N      N steps of 40 names; for timelines and kills
 *   comm_named forget [R]   ends without closing the world; R: only that rank, while the others wait for a
 *                           name that it never brings
 *   comm_named tune         steps until the settings are tuned
 *   comm_named read FILE RANKS PHASE...   one process: whether FILE is a merged timeline of RANKS
 *                                         ranks with these phases
 *   comm_named bench [X]    figures; X: only of names submitted together */
#include "kolo/world.h"

#include <cjson/cJSON.h>
#include <mpi.h>
#include <unistd.h>

#include "base/file.h"
#include "base/philox.h"
#include "base/thread.h"
#include "comm/library/parts.h"
#include "tap.h"

static kolo_world *world;
static kolo_group *all;
static int me, ranks;

static bool everywhere(bool mine)
{
    int32_t bad = !mine;
    if (kolo_allreduce(all, NULL, &bad, 1, KOLO_I32, KOLO_SUM) < 0) return false;
    return bad == 0;
}

#define check(condition, ...)                                  \
    do {                                                       \
        bool mine_ = (condition), good_ = everywhere(mine_);   \
        if (!mine_) diag("on rank %d:", me);                   \
        if (me == 0 || !mine_) ok(good_ &&mine_, __VA_ARGS__); \
    } while (0)

static kolo_request sum_of(const char *name, float *data, int64_t count)
{
    return (kolo_request){.what = KOLO_ALLREDUCE,
                          .name = name,
                          .out = data,
                          .type = KOLO_F32,
                          .dims = 1,
                          .dim = {count},
                          .reduce = KOLO_SUM};
}

static uint32_t draw(uint64_t stream, uint64_t i, uint32_t below)
{
    return kolo_philox(5, stream, i).v[0] % below;
}

static void shuffle(int *order, int n, uint64_t stream)
{
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)draw(stream, (uint64_t)i, (uint32_t)i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

enum { NAMES = 40 };
static float vector[NAMES][300];
static char name_of[NAMES][40];

static int64_t length(int i) { return 1 + i * 7 % 300; }

/* Every name once, in this rank's own order; returns how many sums are wrong. */
static long step(int number, uint64_t order_of)
{
    int order[NAMES];
    kolo_handle handle[NAMES];
    long wrong = 0;
    shuffle(order, NAMES, order_of);
    for (int k = 0; k < NAMES; k++) {
        int i = order[k];
        for (int64_t j = 0; j < length(i); j++) vector[i][j] = (float)(me + 1) * (float)(i + j + number);
        kolo_request r = sum_of(name_of[i], vector[i], length(i));
        if (i % 4 == 1) r.reduce = KOLO_AVERAGE;
        if (i % 4 == 2) r.reduce = KOLO_MAX;
        if (kolo_submit(all, &r, &handle[i]) < 0) return diag("%s", kolo_error_text()), -1;
    }
    shuffle(order, NAMES, order_of + 1);
    for (int k = 0; k < NAMES; k++) {
        int i = order[k];
        float factor = i % 4 == 1   ? (float)(ranks + 1) / 2
                       : i % 4 == 2 ? (float)ranks
                                    : (float)(ranks * (ranks + 1) / 2);
        if (kolo_wait(world, handle[i]) < 0) return diag("%s", kolo_error_text()), -1;
        for (int64_t j = 0; j < length(i); j++) wrong += vector[i][j] != factor * (float)(i + j + number);
    }
    return wrong;
}

static void test_orders(void)
{
    long wrong = 0;
    for (int s = 0; s < 30; s++) wrong += step(s, (uint64_t)(1000 * me + 10 * s));
    check(wrong == 0,
          "%d names in another order on every rank, 30 times: right sums, averages and maxima (%ld wrong)",
          NAMES, wrong);
}

static void test_fused_bits(void)
{
    enum { N = 12, LONG = 37 };
    float one[N][LONG], many[N][LONG];
    kolo_handle handle[N];
    char name[40];
    long differ = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < LONG; j++)
            one[i][j] = many[i][j] =
                kolo_uniform(kolo_philox(9, (uint64_t)me, (uint64_t)(i * LONG + j)).v[0]) *
                (float)(1 << (j % 12));
    kolo_request bundle[N];
    char names[N][40];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "alone.%d", i);
        kolo_request r = sum_of(name, one[i], LONG);
        if (kolo_submit(all, &r, &handle[0]) < 0 || kolo_wait(world, handle[0]) < 0) differ++;
        snprintf(names[i], sizeof names[i], "together.%d", i);
        bundle[i] = sum_of(names[i], many[i], LONG);
    }
    if (kolo_submit_grouped(all, bundle, N, handle) < 0) differ++;
    for (int i = 0; i < N; i++) differ += kolo_wait(world, handle[i]) < 0;
    for (int i = 0; i < N; i++) differ += memcmp(one[i], many[i], sizeof one[i]) != 0;
    check(differ == 0, "fused and one by one: the same bits");
    int64_t hash = kolo_crc32c(0, one, sizeof one), most = hash, least = hash;
    differ = kolo_allreduce(all, NULL, &most, 1, KOLO_I64, KOLO_MAX) < 0 ||
             kolo_allreduce(all, NULL, &least, 1, KOLO_I64, KOLO_MIN) < 0;
    check(differ == 0 && most == least, "and the same on all ranks");
}

static void test_bundle_waits(void)
{
    float a[4] = {1, 1, 1, 1}, b[4] = {2, 2, 2, 2}, c = 3;
    kolo_handle pair[2], single;
    kolo_request two[2] = {sum_of("pair.a", a, 4), sum_of("pair.b", b, 4)};
    kolo_request one = sum_of("single", &c, 1);
    int early = 0;
    if (me != ranks - 1) early = kolo_submit_grouped(all, two, 2, pair);
    kolo_submit(all, &one, &single);
    bool alone = kolo_wait(world, single) == 0 && (me == ranks - 1 || kolo_test(world, pair[0]) == 0);
    kolo_barrier(all);
    if (me == ranks - 1) early = kolo_submit_grouped(all, two, 2, pair);
    bool both = early == 0 && kolo_wait(world, pair[0]) == 0 && kolo_wait(world, pair[1]) == 0;
    check(alone && both && a[0] == (float)ranks && b[3] == 2 * (float)ranks,
          "a bundle begins when it is whole on all ranks");
}

static void test_failures(void)
{
    float data[16] = {0};
    kolo_handle handle, again;
    kolo_request r = sum_of("shape", data, me == ranks - 1 ? 9 : 8);
    int rc = kolo_submit(all, &r, &handle);
    if (rc == 0) rc = kolo_wait(world, handle);
    check(rc == KOLO_EINPUT && strstr(kolo_error_text(), "\"shape\"") && strstr(kolo_error_text(), " 9 f32"),
          "another shape fails on every rank: %s", kolo_error_text());
    r = sum_of("type", data, 4);
    if (me == 0) r.type = KOLO_I32;
    rc = kolo_submit(all, &r, &handle);
    if (rc == 0) rc = kolo_wait(world, handle);
    check(rc == KOLO_EINPUT, "another type");
    r = (kolo_request){
        .what = KOLO_BROADCAST, .name = "root", .out = data, .dims = 1, .dim = {4}, .root = me == 1};
    rc = kolo_submit(all, &r, &handle);
    if (rc == 0) rc = kolo_wait(world, handle);
    check(rc == KOLO_EINPUT, "another root");
    r = sum_of("known", data, 4);
    rc = kolo_submit(all, &r, &handle) < 0 || kolo_wait(world, handle) < 0;
    r.dim[0] = me == 1 ? 5 : 4;
    if (kolo_submit(all, &r, &handle) == 0) rc |= kolo_wait(world, handle) != KOLO_EINPUT;
    r.dim[0] = 6;
    rc |= kolo_submit(all, &r, &handle) < 0 || kolo_wait(world, handle) < 0;
    check(rc == 0, "a known name: fails with another shape on one rank, works with another one on all");
    r = sum_of("twice", data, 4); /* under way as long as the last rank has not submitted it */
    kolo_request second = sum_of("twice", data + 8, 4);
    rc = 0;
    if (me < ranks - 1)
        rc = kolo_submit(all, &r, &handle) < 0 || kolo_submit(all, &second, &again) != KOLO_EINPUT;
    kolo_barrier(all);
    if (me == ranks - 1) rc = kolo_submit(all, &r, &handle);
    if (rc == 0) rc = kolo_wait(world, handle);
    check(rc == 0, "a name under way is refused, and goes on");
}

static void test_shapes(void)
{
    kolo_handle handle;
    kolo_output out;
    int32_t rows[3 * 8], total = 0;
    bool good = true;
    for (int round = 0; round < 3; round++) {
        int64_t mine = (me + round) % 3;
        for (int64_t i = 0; i < mine * 2; i++) rows[i] = me * 100 + (int)i;
        kolo_request r = {.what = KOLO_ALLGATHER,
                          .name = "rows",
                          .in = rows,
                          .type = KOLO_I32,
                          .dims = 2,
                          .dim = {mine, 2}};
        good &= kolo_submit(all, &r, &handle) == 0 && kolo_wait(world, handle) == 0 &&
                kolo_result(world, handle, &out) == 0;
        if (!good) break;
        const int32_t *got = out.data;
        int64_t at = 0;
        for (int m = 0; m < ranks; m++)
            for (int64_t i = 0; i < (m + round) % 3 * 2; i++) good &= got[at++] == m * 100 + (int)i;
        good &= out.dim[0] * 2 == at && out.dim[1] == 2;
        kolo_release(world, handle);
        total++;
    }
    check(good && total == 3, "a named allgather of other rows on every rank and at every step");
    int64_t splits[64];
    int32_t send[64 * 64], n = 0;
    for (int m = 0; m < ranks; m++)
        for (splits[m] = 0; splits[m] < m + 1; splits[m]++) send[n++] = me * 1000 + m;
    kolo_request r = {.what = KOLO_ALLTOALL,
                      .name = "exchange",
                      .in = send,
                      .type = KOLO_I32,
                      .dims = 1,
                      .dim = {n},
                      .splits = splits};
    good = kolo_submit(all, &r, &handle) == 0 && kolo_wait(world, handle) == 0 &&
           kolo_result(world, handle, &out) == 0;
    for (int m = 0; good && m < ranks; m++)
        for (int i = 0; i < me + 1; i++)
            good &= ((const int32_t *)out.data)[m * (me + 1) + i] == m * 1000 + me && out.splits[m] == me + 1;
    if (good) kolo_release(world, handle);
    check(good, "a named alltoall of uneven splits");
}

static void test_join(void)
{
    bool good = true;
    int last = -1;
    char name[40];
    /* rank m has m + 1 steps; then it joins, and the others go on */
    for (int s = 0; s <= me; s++) {
        float data[3] = {(float)(me + 1), -(float)(me + 1), 2}, least[2] = {(float)(me + 1), 5}, product = 3;
        kolo_handle h[3];
        snprintf(name, sizeof name, "mean.%d", s);
        kolo_request r[3] = {sum_of(s % 2 ? name : "mean", data, 3), sum_of("least", least, 2),
                             sum_of("product", &product, 1)};
        r[0].reduce = KOLO_AVERAGE;
        r[1].reduce = KOLO_MIN;
        r[2].reduce = KOLO_PRODUCT;
        for (int i = 0; i < 3; i++) good &= kolo_submit(all, &r[i], &h[i]) == 0;
        for (int i = 0; good && i < 3; i++) good &= kolo_wait(world, h[i]) == 0;
        float mean = 0, times = 1;
        for (int m = s; m < ranks; m++) mean += (float)(m + 1), times *= 3;
        mean /= (float)(ranks - s);
        good &= fabsf(data[0] - mean) < 1e-5f && fabsf(data[1] + mean) < 1e-5f &&
                fabsf(data[2] - 2) < 1e-5f && least[0] == (float)(s + 1) && least[1] == 5 && product == times;
    }
    if (me == ranks - 1) { /* all others have joined or will */
        float data[4];
        kolo_handle h;
        kolo_request r = {
            .what = KOLO_BROADCAST, .name = "not now", .out = data, .dims = 1, .type = KOLO_F32, .dim = {4}};
        int rc = kolo_submit(all, &r, &h);
        if (rc == 0) rc = kolo_wait(world, h);
        good &= rc == KOLO_EINPUT || ranks == 1;
    }
    good &= kolo_join(all, &last) == 0 && last == ranks - 1;
    check(good,
          "joins: averages over who brings data, minima and products not disturbed, other collectives "
          "refused, the "
          "last one known (%d)",
          last);
    check(step(3, 77) == 0, "and all go on after it");
}

static void test_groups(void)
{
    int member[64], count = 0, last;
    for (int r = me % 2; r < ranks; r += 2) member[count++] = r;
    int even[64], odd[64], evens = 0, odds = 0;
    for (int r = 0; r < ranks; r++)
        if (r % 2) odd[odds++] = r;
        else even[evens++] = r;
    kolo_group *group[2] = {NULL, NULL};
    bool good = ranks < 3 || (kolo_group_create(&group[0], world, even, evens) == 0 &&
                              kolo_group_create(&group[1], world, odd, odds) == 0);
    if (ranks >= 3) {
        kolo_group *mine = group[me % 2];
        for (int s = 0; s < 5 + me; s++) {
            float x = (float)(me + 1), want = 0;
            kolo_handle h;
            kolo_request r = sum_of("the same name", &x, 1);
            good &= kolo_submit(mine, &r, &h) == 0 && kolo_wait(world, h) == 0;
            for (int i = 0; i < count; i++)
                if (s < 5 + member[i]) want += (float)(member[i] + 1);
            good &= x == want;
        }
        good &= kolo_join(mine, &last) == 0 && last == count - 1;
        for (int g = 0; g < 2; g++) good &= kolo_group_free(&group[g]) == 0;
    }
    check(good, "the same name in two groups, with joins in each");
}

/* ---- for the script ------------------------------------------------------------------------------------ */

static void stall(void)
{
    float x = 1;
    kolo_handle h;
    kolo_request r = sum_of("before", &x, 1);
    kolo_submit(all, &r, &h);
    kolo_wait(world, h);
    if (me == ranks - 1) usleep(1800000);
    r = sum_of("late", &x, 1);
    int rc = kolo_submit(all, &r, &h);
    if (rc == 0) rc = kolo_wait(world, h);
    check(rc == KOLO_EINPUT && strstr(kolo_error_text(), "given up"),
          "fails on all ranks, the late one included: %s", kolo_error_text());
    check(step(1, 5) == 0, "and the world is whole");
}

/* More steps than the search takes. */
static void tune(void)
{
    long wrong = 0;
    double begin = kolo_time();
    for (int s = 0, going = 1; going; s++) {
        wrong += step(s, (uint64_t)(100 * me + s));
        int32_t mine = s < 250 || kolo_time() - begin < 3.5;
        if (s % 50 == 49) going = kolo_allreduce(all, NULL, &mine, 1, KOLO_I32, KOLO_MAX) == 0 && mine;
    }
    check(wrong == 0, "right sums while settings change");
}

static int read_timeline(int n, char **words)
{
    char *text = NULL;
    if (n < 4 || kolo_file_read(words[2], &text, NULL) < 0) return 1;
    cJSON *array = cJSON_ParseWithOpts(text, NULL, true);
    const cJSON *event;
    int count[64] = {0}, phases[64] = {0}, wanted = atoi(words[3]), bad = !array;
    double least = INFINITY, most = -INFINITY;
    cJSON_ArrayForEach(event, array)
    {
        const cJSON *ts = cJSON_GetObjectItem(event, "ts"), *pid = cJSON_GetObjectItem(event, "pid"),
                    *cat = cJSON_GetObjectItem(event, "cat");
        if (!ts || !pid || !cat || pid->valueint < 0 || pid->valueint >= 64) continue;
        count[pid->valueint]++;
        least = fmin(least, ts->valuedouble);
        most = fmax(most, ts->valuedouble);
        for (int i = 4; i < n; i++) phases[i] += strcmp(cat->valuestring, words[i]) == 0;
    }
    for (int r = 0; r < 64; r++) bad |= (count[r] > 0) != (r < wanted);
    for (int i = 4; i < n; i++) bad |= phases[i] == 0;
    bad |= !(most - least < 60e6);
    printf("events of rank 0: %d, over %.3f s%s\n", count[0], (most - least) * 1e-6, bad ? ": wrong" : "");
    cJSON_Delete(array);
    free(text);
    return bad;
}

static double median_of(double *x, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            double swap = x[j];
            x[j] = x[j - 1];
            x[j - 1] = swap;
        }
    return x[n / 2];
}

static void bench(bool together)
{
    enum { ROUNDS = 400, MANY = 1000, STEPS = 40, BYTES = 1024 };
    static double seconds[ROUNDS];
    static float data[MANY][BYTES / 4];
    static char name[MANY][40];
    static kolo_handle handle[MANY];
    float x = 1;
    for (int i = 0; i < ROUNDS && !together; i++) {
        kolo_handle h;
        kolo_request r = sum_of("x", &x, 1);
        kolo_barrier(all);
        double begin = kolo_time();
        kolo_submit(all, &r, &h);
        kolo_wait(world, h);
        seconds[i] = kolo_time() - begin;
    }
    double median = median_of(seconds, ROUNDS);
    if (me == 0 && !together)
        diag("cached name, submit to completion: least %.1f, tenth %.1f, median %.1f us", seconds[0] * 1e6,
             seconds[ROUNDS / 10] * 1e6, median * 1e6);
    for (int i = 0; i < MANY; i++) snprintf(name[i], sizeof name[i], "layer.%d", i);
    for (int one = 0; one < 2 - together; one++) {
        for (int s = 0; s < STEPS; s++) {
            kolo_barrier(all);
            double begin = kolo_time();
            for (int i = 0; i < MANY; i++) {
                kolo_request r = sum_of(name[i], data[i], BYTES / 4);
                kolo_submit(all, &r, &handle[i]);
                if (one) kolo_wait(world, handle[i]);
            }
            for (int i = 0; i < MANY && !one; i++) kolo_wait(world, handle[i]);
            seconds[s] = kolo_time() - begin;
        }
        median = median_of(seconds, STEPS);
        if (me == 0)
            diag("%d names of %d bytes, %s: least %.3f, median %.3f ms", MANY, BYTES,
                 one ? "one by one" : "together", seconds[0] * 1e3, median * 1e3);
    }
}

static int exchange(void *of, const void *mine, size_t bytes, void *everybodys)
{
    (void)of;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, everybodys, (int)bytes, MPI_BYTE, MPI_COMM_WORLD)
               ? KOLO_ELAUNCH
               : 0;
}

/* Ranks in turn, so that the lowest of a node are not neighbours. */
static int open_simulated(int nodes)
{
    static int node_of[64], local_of[64], job;
    static char *host_of[64], host[] = "simulated";
    static kolo_launch l = {
        .method = "test", .node_of = node_of, .local_of = local_of, .host_of = host_of, .mpi = true};
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &job);
    MPI_Comm_rank(MPI_COMM_WORLD, &l.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &l.size);
    job = (int)getpid();
    MPI_Bcast(&job, 1, MPI_INT, 0, MPI_COMM_WORLD);
    l.nodes = nodes;
    for (int r = 0; r < l.size; r++) {
        node_of[r] = r % nodes;
        local_of[r] = r / nodes;
        host_of[r % nodes] = host;
        l.local_size += r % nodes == l.rank % nodes;
    }
    l.node = node_of[l.rank];
    l.local_rank = local_of[l.rank];
    snprintf(l.host, sizeof l.host, "%s", host);
    snprintf(l.job, sizeof l.job, "named.%d.%d", job, nodes);
    return lib_world_start(&world, &l, NULL, exchange, NULL);
}

static int forget(int rank)
{
    float one = 1;
    kolo_handle h;
    const kolo_request r = sum_of("missing", &one, 1);
    if (rank < 0) return kolo_barrier(all);
    if (me == rank) exit(3);
    const double begin = kolo_time();
    int rc = kolo_submit(all, &r, &h);
    if (rc == 0) rc = kolo_wait(world, h);
    printf("rank %d after %.0f s: status %d: %s\n", me, kolo_time() - begin, rc, kolo_error_text());
    fflush(stdout);
    return 0;
}

int main(int n, char **words)
{
    const char *mode = n > 1 ? words[1] : "";
    bool simulated = strcmp(mode, "nodes") == 0 && n > 2;
    if (strcmp(mode, "read") == 0) return read_timeline(n, words);
    if ((simulated ? open_simulated(atoi(words[2])) : kolo_world_open(&world, NULL)) < 0) {
        printf("1..0 # SKIP %s\n", kolo_error_text());
        return 1;
    }
    all = kolo_world_group(world);
    me = kolo_world_rank(world);
    ranks = kolo_world_size(world);
    for (int i = 0; i < NAMES; i++) snprintf(name_of[i], sizeof name_of[i], "layer.%d.weight", i);
    if (strcmp(mode, "forget") == 0) return forget(n > 2 ? atoi(words[2]) : -1);
    if (strcmp(mode, "stall") == 0) stall();
    else if (strcmp(mode, "tune") == 0) tune();
    else if (strcmp(mode, "steps") == 0 && n > 2) {
        long wrong = 0;
        for (int s = 0; s < atoi(words[2]); s++) wrong += step(s, (uint64_t)(100 * me + s));
        check(wrong == 0, "%s steps", words[2]);
    } else if (strcmp(mode, "bench") == 0) bench(n > 2);
    else {
        test_orders();
        test_fused_bits();
        test_bundle_waits();
        test_failures();
        test_shapes();
        test_join();
        test_groups();
    }
    kolo_world_close(&world);
    if (simulated) MPI_Finalize();
    if (me == 0) printf("1..%d\n", tap_count);
    return tap_failed > 0;
}
