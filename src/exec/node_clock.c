#include "exec/node_clock.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/thread.h"

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- memory ---- */

static const double assumed_byte = 1 / 2e12;

typedef struct adder {
    float *from, *to;
    int64_t count;
    pthread_t thread;
    atomic_bool *stop;
    atomic_int *ready;
    bool runs;
} adder;

static bool adder_open(adder *a, kolo_backend *b, int64_t count)
{
    const size_t bytes = (size_t)count * sizeof(float);
    a->count = count;
    a->from = kolo_backend_alloc(b, bytes);
    a->to = kolo_backend_alloc(b, bytes);
    return a->from && a->to;
}

static void adder_close(adder *a, kolo_backend *b)
{
    const size_t bytes = (size_t)a->count * sizeof(float);
    kolo_backend_free(b, (void **)&a->from, bytes);
    kolo_backend_free(b, (void **)&a->to, bytes);
}

static void *add_beside(void *argument)
{
    adder *a = argument;
    for (bool first = true; !atomic_load(a->stop); first = false) {
        for (int64_t k = 0; k < a->count; k++) a->to[k] += a->from[k];
        if (first) atomic_fetch_add(a->ready, 1);
    }
    return NULL;
}

static double add_times(adder *a, int times)
{
    float *to = a->to, *from = a->from;
    double best = INFINITY;
    for (int i = 0; i < times; i++) {
        const double begin = kolo_time();
#pragma omp parallel for simd schedule(static)
        for (int64_t k = 0; k < a->count; k++) to[k] += from[k];
        best = fmin(best, (kolo_time() - begin) / (3 * (double)a->count * sizeof(float)));
    }
    return best;
}

/* [0] is who is measured. */
static double add_crowded(adder *a, int beside, int times)
{
    atomic_bool stop = false;
    atomic_int ready = 0;
    int started = 0;
    for (int i = 1; i <= beside; i++) {
        a[i].stop = &stop;
        a[i].ready = &ready;
        a[i].runs = kolo_thread_start(&a[i].thread, add_beside, &a[i], "a clock of memory") == 0;
        started += a[i].runs;
    }
    while (atomic_load(&ready) < started) add_times(a, 1);
    const double seconds = add_times(a, times);
    atomic_store(&stop, true);
    for (int i = 1; i <= beside; i++)
        if (a[i].runs) pthread_join(a[i].thread, NULL);
    return seconds;
}

kolo_byte_seconds kolo_exec_byte_seconds(kolo_backend *b, int times, int beside)
{
    kolo_byte_seconds s = {assumed_byte, assumed_byte};
    if (times <= 0 || !kolo_backend_is_host(b)) return s;
    const int64_t all = 16 << 20, least = 1 << 20, share = all / (1 + beside); /* elements */
    adder *a = kolo_alloc((size_t)(beside + 1) * sizeof *a);
    bool there = a && adder_open(&a[0], b, all);
    if (there) s.alone = s.crowded = add_times(a, times);
    if (a) adder_close(&a[0], b);
    for (int i = 0; there && beside && i <= beside; i++)
        there = adder_open(&a[i], b, share > least ? share : least);
    if (there && beside) s.crowded = fmax(s.alone, add_crowded(a, beside, times));
    for (int i = 0; a && i <= beside; i++) adder_close(&a[i], b);
    free(a);
    return s;
}

/* ---- waking ---- */

enum { WAKES = 200 };

typedef struct pingpong {
    _Atomic uint32_t turn[2];
} pingpong;

static void *answer_pings(void *argument)
{
    pingpong *p = argument;
    for (uint32_t i = 1; i <= WAKES; i++) {
        while (atomic_load(&p->turn[0]) < i) kolo_futex_wait(&p->turn[0], i - 1, 1, 0);
        atomic_store(&p->turn[1], i);
        kolo_futex_wake(&p->turn[1]);
    }
    return NULL;
}

double kolo_exec_wake_seconds(void)
{
    pingpong p = {{0}};
    pthread_t other;
    double took[WAKES];
    if (kolo_thread_start(&other, answer_pings, &p, "a clock of wakings") < 0) return 0;
    for (uint32_t i = 1; i <= WAKES; i++) {
        const double begin = kolo_time();
        atomic_store(&p.turn[0], i);
        kolo_futex_wake(&p.turn[0]);
        while (atomic_load(&p.turn[1]) < i) kolo_futex_wait(&p.turn[1], i - 1, 1, 0);
        took[i - 1] = kolo_time() - begin;
    }
    pthread_join(other, NULL);
    qsort(took, WAKES, sizeof *took, by_value);
    return took[WAKES / 2] / 2;
}
