/* Memory, lanes, events and replay of the cuda backend: what arrives where, and in which order. */
#include <math.h>

#include "cuda_rig.h"
#include "kolo/error.h"
#include "ops/backend.h"

enum { N = 1000 };
static kolo_backend *b;
static float host[N], back[N];

static void numbers(float *x, float first)
{
    for (int i = 0; i < N; i++) x[i] = first + (float)i;
}

/* All elements are factor * i + offset. */
static int holds(const float *device, float factor, float offset)
{
    if (kolo_backend_read(b, back, device, sizeof back) < 0) return 0;
    for (int i = 0; i < N; i++)
        if (back[i] != factor * (float)i + offset) return 0;
    return 1;
}

static void test_memory(void)
{
    const char *place = "";
    size_t before = kolo_backend_memory(b, &place), size = (size_t)64 << 20;
    ok(before > size && strstr(place, "GPU 0 ("), "%s tells how much may be used: %zu", place, before);
    float *x = kolo_backend_alloc(b, sizeof back);
    void *large = kolo_backend_alloc(b, size);
    ok(x && large && (size_t)x % 64 == 0, "memory is made, aligned");
    ok(holds(x, 0, 0), "and zero");
    size_t after = kolo_backend_memory(b, &place);
    ok(after + size <= before + 4096, "there is then less of it (%zu)", before - after);
    kolo_backend_free(b, &large, size);
    ok(!large, "a freed pointer is gone");
    void *none = kolo_backend_alloc(b, (size_t)1 << 50);
    ok(!none && strstr(kolo_error_text(), "1073741824.0 MiB") && strstr(kolo_error_text(), "micro_batch"),
       "too much is refused: %s", kolo_error_text());
    is_int(kolo_backend_finish(b), 0, "and nothing is broken by it");
    kolo_backend_free(b, (void **)&x, sizeof back);
    ok(!kolo_backend_is_host(b), "it is not the host's");
}

static void test_pins(void)
{
    is_int(kolo_backend_pin(b, host, sizeof host), 0, "host memory is page-locked");
    is_int(kolo_backend_pin(b, host, sizeof host), 0, "again");
    is_int(kolo_backend_pin(b, host + 10, 40), 0, "and a part of it");
    ok(kolo_backend_pin(b, host + 10, sizeof host) < 0, "what reaches beyond is refused");
    kolo_backend_unpin(b, host);
    kolo_backend_unpin(b, host + 10);
    float *x = kolo_backend_alloc(b, sizeof host);
    numbers(host, 1);
    is_int(kolo_backend_copy(b, KOLO_LANE_UPLOAD, x, host, sizeof host), 0,
           "a copy from it, while one user is left");
    ok(holds(x, 1, 1), "arrives");
    kolo_backend_unpin(b, host);
    kolo_backend_unpin(b, host); /* not pinned any more: nothing happens */
    is_int(kolo_backend_finish(b), 0, "the last unpin unlocks it");
    kolo_backend_free(b, (void **)&x, sizeof host);
}

/* upload -> fold on COMPUTE -> copy on COMM: only the events order them. */
static void test_lanes(void)
{
    kolo_event *there = NULL, *done = NULL;
    float *x = kolo_backend_alloc(b, sizeof host), *sum = kolo_backend_alloc(b, sizeof host),
          *copy = kolo_backend_alloc(b, sizeof host);
    ok(kolo_event_create(b, &there, true) == 0 && kolo_event_create(b, &done, true) == 0, "events");
    is_int(kolo_event_done(there), 1, "one that was never recorded is reached");
    kolo_backend_pin(b, host, sizeof host);
    numbers(host, 5);
    int rc = 0;
    for (int i = 0; i < 20 && rc == 0; i++) {
        rc = kolo_event_after(done, KOLO_LANE_UPLOAD);
        if (rc == 0) rc = kolo_backend_copy(b, KOLO_LANE_UPLOAD, x, host, sizeof host);
        if (rc == 0) rc = kolo_event_record(there, KOLO_LANE_UPLOAD);
        if (rc == 0) rc = kolo_event_after(there, KOLO_LANE_COMPUTE);
        if (rc == 0) rc = kolo_backend_fold(b, sum, x, N);
        /* NaN, if the next copy does not wait */
        if (rc == 0) rc = kolo_backend_fill(b, KOLO_LANE_COMPUTE, x, 0xff, sizeof host);
        if (rc == 0) rc = kolo_event_record(done, KOLO_LANE_COMPUTE);
    }
    if (rc == 0) rc = kolo_event_after(done, KOLO_LANE_COMM);
    if (rc == 0) rc = kolo_backend_copy(b, KOLO_LANE_COMM, copy, sum, sizeof host);
    if (rc == 0) rc = kolo_event_record(there, KOLO_LANE_COMM);
    is_int(rc, 0, "twenty rounds over three lanes: %s", rc ? kolo_error_text() : "");
    is_int(kolo_event_wait(there, 60), 0, "the host waits");
    is_int(kolo_event_done(there), 1, "it is reached");
    ok(kolo_event_seconds(done, there) >= 0 && kolo_event_seconds(done, there) < 60,
       "and tells the time between two");
    ok(holds(copy, 20, 100), "every step saw what the one before it had made");
    kolo_backend_unpin(b, host);
    kolo_event_destroy(&there);
    kolo_event_destroy(&done);
    kolo_backend_free(b, (void **)&x, sizeof host);
    kolo_backend_free(b, (void **)&sum, sizeof host);
    kolo_backend_free(b, (void **)&copy, sizeof host);
}

typedef struct step {
    float *x, *sum, *copy;
    kolo_event *uploaded, *fork, *join, *free;
} step;

/* What a training step looks like: waits for an upload, branches to COMM and back, tells others when the
 * input is free again. */
static int enqueue_step(const step *s)
{
    KOLO_TRY(kolo_event_after(s->uploaded, KOLO_LANE_COMPUTE));
    KOLO_TRY(kolo_backend_fold(b, s->sum, s->x, N));
    KOLO_TRY(kolo_event_record(s->free, KOLO_LANE_COMPUTE));
    KOLO_TRY(kolo_event_record(s->fork, KOLO_LANE_COMPUTE));
    KOLO_TRY(kolo_event_after(s->fork, KOLO_LANE_COMM));
    KOLO_TRY(kolo_backend_copy(b, KOLO_LANE_COMM, s->copy, s->sum, sizeof host));
    KOLO_TRY(kolo_event_record(s->join, KOLO_LANE_COMM));
    return kolo_event_after(s->join, KOLO_LANE_COMPUTE);
}

static int upload(const step *s, float first)
{
    KOLO_TRY(kolo_event_wait(s->free, 60)); /* a replay has read the last input */
    KOLO_TRY(kolo_event_wait(s->uploaded, 60));
    numbers(host, first);
    KOLO_TRY(kolo_event_after(s->free, KOLO_LANE_UPLOAD));
    KOLO_TRY(kolo_backend_copy(b, KOLO_LANE_UPLOAD, s->x, host, sizeof host));
    return kolo_event_record(s->uploaded, KOLO_LANE_UPLOAD);
}

static void step_make(step *s)
{
    int rc = 0;
    kolo_event **event[] = {&s->uploaded, &s->fork, &s->join, &s->free};
    s->x = kolo_backend_alloc(b, sizeof host), s->sum = kolo_backend_alloc(b, sizeof host),
    s->copy = kolo_backend_alloc(b, sizeof host);
    for (int i = 0; i < 4; i++) rc |= kolo_event_create(b, event[i], i == 1);
    ok(s->x && s->sum && s->copy && rc == 0, "memory and events of a step");
}

static void step_end(step *s)
{
    kolo_event_destroy(&s->uploaded);
    kolo_event_destroy(&s->fork);
    kolo_event_destroy(&s->join);
    kolo_event_destroy(&s->free);
    kolo_backend_free(b, (void **)&s->x, sizeof host);
    kolo_backend_free(b, (void **)&s->sum, sizeof host);
    kolo_backend_free(b, (void **)&s->copy, sizeof host);
}

static void test_replay(void)
{
    step s = {0};
    kolo_replay *replay = NULL;
    step_make(&s);
    kolo_backend_pin(b, host, sizeof host);
    is_int(upload(&s, 0) < 0 ? -1 : enqueue_step(&s), 0, "a step done at once");
    ok(holds(s.copy, 1, 0), "is right");
    is_int(kolo_backend_capture(b), 0, "the next one is recorded");
    int rc = enqueue_step(&s);
    is_int(rc, 0, "with all it enqueues: %s", rc ? kolo_error_text() : "");
    rc = kolo_backend_capture_end(b, &replay);
    is_int(rc, 0, "to its end: %s", rc ? kolo_error_text() : "");
    ok(holds(s.sum, 1, 0), "and not done");
    for (int i = 1; i <= 5 && rc == 0; i++) {
        rc = upload(&s, (float)i);
        if (rc == 0) rc = kolo_replay_run(replay);
    }
    is_int(rc, 0, "five replays, each with an input of its own: %s", rc ? kolo_error_text() : "");
    ok(holds(s.copy, 6, 15), "their sum stands where COMM left it");
    is_int(upload(&s, 100) < 0 ? -1 : enqueue_step(&s), 0, "a step between replays");
    is_int(upload(&s, 0) < 0 ? -1 : kolo_replay_run(replay), 0, "and one replay more");
    ok(holds(s.copy, 8, 115), "work together");
    kolo_replay_destroy(&replay);
    kolo_backend_unpin(b, host);
    step_end(&s);
}

int main(void)
{
    cuda_rig();
    kolo_backend_config config = {.threads = 1};
    if (kolo_backend_create(&b, "cuda", &config) < 0) {
        ok(0, "the backend opens: %s", kolo_error_text());
        return done_testing();
    }
    test_memory();
    test_pins();
    test_lanes();
    test_replay();
    is_int(kolo_backend_finish(b), 0, "nothing has failed behind our back");
    kolo_backend_destroy(&b);
    return done_testing();
}
