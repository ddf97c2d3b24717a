/* Threads that submit while the world breaks: every request that was taken is complete soon, with the text of
 * what broke it, and nothing more is taken. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 2, THREADS = 4, MOST = 10000, WORLDS = 10 };

static kolo_world *whole;
static _Atomic uint32_t running;
static int64_t *taken; /* [RANKS] shared, over all worlds */

typedef struct submitter {
    int number;
    int64_t taken, open, odd; /* open: never complete; odd: neither done nor of the break */
} submitter;

static int submit_one(const submitter *s, int i, float *vector, kolo_handle *handle)
{
    char name[32];
    snprintf(name, sizeof name, "thread %d, %d", s->number, i);
    const kolo_request r = {.what = KOLO_ALLREDUCE,
                            .name = s->number % 2 ? name : NULL,
                            .out = vector,
                            .type = KOLO_F32,
                            .dims = 1,
                            .dim = {4}};
    return i % 8 || s->number % 2 == 0 ? kolo_submit(kolo_world_group(whole), &r, handle)
                                       : kolo_submit_grouped(kolo_world_group(whole), &r, 1, handle);
}

static void odd(submitter *s, int rc)
{
    if (!s->odd++) diag("%d: %s", rc, kolo_error_text());
}

/* Asks, and does not wait: a wait would carry on by itself. */
static void *submit_and_ask(void *of)
{
    static _Thread_local float vector[MOST][4];
    static _Thread_local kolo_handle handle[MOST];
    submitter *s = of;
    int rc = 0;
    atomic_fetch_add(&running, 1);
    while (s->taken < MOST && (rc = submit_one(s, (int)s->taken, vector[s->taken], &handle[s->taken])) == 0)
        s->taken++;
    if (rc != 0 && rc != KOLO_ELAUNCH) odd(s, rc);
    double end = kolo_time() + 5;
    for (int64_t i = 0; i < s->taken; i++) {
        while (kolo_test(whole, handle[i]) == 0 && kolo_time() < end) usleep(1000);
        if (kolo_test(whole, handle[i]) != 1) {
            s->open++;
            continue;
        }
        rc = kolo_wait(whole, handle[i]);
        if (rc != 0 && (rc != KOLO_ELAUNCH || !strstr(kolo_error_text(), "enough of it"))) odd(s, rc);
    }
    return NULL;
}

/* Returns what it should not: requests that never end, or end otherwise. */
static int64_t one_rank(rig_rank *r, int wait)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 5, .shared_bytes = 1 << 20, .transport = "tcp"};
    submitter s[THREADS] = {{0}};
    pthread_t thread[THREADS];
    if (lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r) < 0) return -1;
    atomic_fetch_add(&rig->mark[0], 1);
    rig_await(&rig->mark[0], RANKS); /* else a break is found by whoever is still about to open */
    for (int t = 0; t < THREADS; t++) {
        s[t].number = t;
        pthread_create(&thread[t], NULL, submit_and_ask, &s[t]);
    }
    while (atomic_load(&running) < THREADS) usleep(10);
    if (r->rank == 1) {
        usleep((useconds_t)(wait * 150));
        kolo_world_abort(whole, "enough of it");
    }
    int64_t bad = 0;
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
        bad += s[t].open + 1000000 * s[t].odd;
        taken[r->rank] += s[t].taken;
    }
    kolo_world_close(&whole);
    return bad;
}

int main(void)
{
    int64_t bad = 0;
    taken = mmap(NULL, RANKS * sizeof *taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int n = 0; n < WORLDS; n++) {
        rig_party p = rig_begin("break", RANKS, NULL, one_rank, n, 30);
        bad += rig_end(&p, -1);
    }
    is_int(bad, 0, "%d worlds break while %d threads a rank submit, and end; whatever was taken is complete",
           WORLDS, THREADS);
    ok(taken[0] + taken[1] > WORLDS, "requests were taken (%lld)", (long long)(taken[0] + taken[1]));
    is_int(rig_leftovers("break"), 0, "no segment is left behind");
    return done_testing();
}
