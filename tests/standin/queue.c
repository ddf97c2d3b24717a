/* Work and the thread that does it. An op may be done when everything it follows is done; among those that
 * may, chance decides. Nothing is done before a host waits for it, polls, or has been silent for a while
 * (STANDIN_GRACE milliseconds), so that a program which forgets to wait, or to state an order, meets wrong
 * numbers instead of luck. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin/standin.h"

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
cudaError_t standin_sticky = cudaSuccess;

static pthread_cond_t work_wanted = PTHREAD_COND_INITIALIZER, work_done = PTHREAD_COND_INITIALIZER;
static pthread_t device_thread;
static bool running, stopping;
static standin_op **ready; /* may be done now */
static int ready_count, ready_capacity;
static standin_op **pending; /* submitted, not done */
static int pending_count, pending_capacity;
static standin_op *current; /* the device thread is at it */
static int wide;            /* hosts that wait for something, all work being welcome meanwhile */
static int64_t credit;      /* pieces that polls have allowed */
static double last_call, gpu_clock;
static uint64_t chance, number;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double grace(void)
{
    static double seconds = -1;
    if (seconds < 0) seconds = 1e-3 * (double)standin_setting("STANDIN_GRACE", 3);
    return seconds;
}

static void push(standin_op ***list, int *count, int *capacity, standin_op *op)
{
    if (*count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 16;
        *list = realloc(*list, (size_t)*capacity * sizeof **list);
        if (!*list) abort();
    }
    (*list)[(*count)++] = op;
}

static void take_out(standin_op **list, int *count, const standin_op *op)
{
    for (int i = *count - 1; i >= 0; i--)
        if (list[i] == op) {
            memmove(&list[i], &list[i + 1], (size_t)(--*count - i) * sizeof *list);
            return;
        }
}

/* ---- ops ---- */

standin_op *standin_op_new(const standin_work *work)
{
    standin_op *op = calloc(1, sizeof *op);
    if (!op) abort();
    op->work = *work;
    op->references = 1;
    op->number = ++number;
    return op;
}

standin_op *standin_op_keep(standin_op *op)
{
    if (op) op->references++;
    return op;
}

static void let_go(standin_op *op)
{
    if (op->work.drop) op->work.drop(op->work.argument);
    op->work.drop = NULL;
    for (int i = 0; i < op->befores; i++) standin_op_drop(&op->before[i]);
    free(op->before);
    free(op->after);
    op->before = op->after = NULL;
    op->befores = op->afters = op->before_capacity = op->after_capacity = 0;
}

void standin_op_drop(standin_op **op)
{
    standin_op *o = *op;
    *op = NULL;
    if (!o || --o->references > 0) return;
    let_go(o);
    free(o);
}

void standin_op_after(standin_op *op, standin_op *before)
{
    if (!before || before->done || before == op) return;
    push(&op->before, &op->befores, &op->before_capacity, standin_op_keep(before));
    push(&before->after, &before->afters, &before->after_capacity, op);
    op->waits++;
}

static void *device_main(void *unused);

void standin_op_submit(standin_op *op)
{
    if (standin_sticky) { /* nothing runs any more */
        op->done = true;
        let_go(op);
        return;
    }
    if (!running) {
        running = true;
        if (pthread_create(&device_thread, NULL, device_main, NULL)) abort();
    }
    last_call = now();
    push(&pending, &pending_count, &pending_capacity, standin_op_keep(op));
    if (op->waits == 0) push(&ready, &ready_count, &ready_capacity, op);
    if (pending_count == 1) pthread_cond_signal(&work_wanted);
}

static void finish(standin_op *op)
{
    op->done = true;
    gpu_clock += op->work.seconds;
    op->time = gpu_clock;
    take_out(ready, &ready_count, op);
    take_out(pending, &pending_count, op);
    for (int i = 0; i < op->afters; i++)
        if (--op->after[i]->waits == 0) push(&ready, &ready_count, &ready_capacity, op->after[i]);
    let_go(op);
    standin_op_drop(&op);
    pthread_cond_broadcast(&work_done);
}

void standin_break(cudaError_t error, const char *what)
{
    if (!standin_sticky) {
        standin_sticky = error;
        standin_log("broken: %s (%s)", cudaGetErrorName(error), what);
    }
    for (int left = pending_count; left > 0; left--) {
        standin_op *op = pending[0] == current ? pending_count > 1 ? pending[1] : NULL : pending[0];
        if (!op) break;
        finish(op);
    }
    pthread_cond_broadcast(&work_wanted);
}

/* ---- the device thread ---- */

static void want(standin_op *op)
{
    if (op->done || op->wanted) return;
    op->wanted = true;
    for (int i = 0; i < op->befores; i++) want(op->before[i]);
}

static bool at_liberty(void) { return wide > 0 || credit > 0 || stopping || now() - last_call >= grace(); }

/* One of the ops that may be done and are wanted, by chance. */
static standin_op *choose(void)
{
    int candidates = 0;
    bool free_choice = at_liberty();
    for (int i = 0; i < ready_count; i++) candidates += free_choice || ready[i]->wanted;
    if (!candidates) return NULL;
    int k = (int)(standin_random(&chance) % (uint64_t)candidates);
    for (int i = 0; i < ready_count; i++)
        if ((free_choice || ready[i]->wanted) && k-- == 0) return ready[i];
    return NULL;
}

static void nap(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
    t.tv_sec += ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&work_wanted, &standin_lock, &t);
}

static void rest(void)
{
    standin_device_open(false);
    if (pending_count == 0) pthread_cond_wait(&work_wanted, &standin_lock);
    else nap(grace());
}

static void *device_main(void *unused)
{
    int misses = 0;
    (void)unused;
    standin_hold();
    while (!stopping) {
        standin_op *op = choose();
        if (!op) {
            rest();
            continue;
        }
        standin_device_open(true);
        current = op;
        if (op->state[5]++ == 0) standin_log("run %s", op->work.name);
        standin_release();
        int rc = op->work.run(op);
        standin_hold();
        current = NULL;
        if (rc < 0) standin_break((cudaError_t)-rc, op->work.name);
        else if (rc == STANDIN_DONE || standin_sticky) finish(op);
        if (rc == STANDIN_LATER) {
            if (++misses > 2 * ready_count) nap(2e-4);
            continue;
        }
        misses = 0;
        if (credit > 0) credit--;
    }
    standin_device_open(false);
    standin_release();
    return NULL;
}

void standin_op_wait(standin_op *op)
{
    standin_op_keep(op);
    bool narrow = op && standin_random(&chance) % 2;
    if (narrow) want(op);
    else wide++;
    pthread_cond_signal(&work_wanted);
    while (op ? !op->done : pending_count > 0) pthread_cond_wait(&work_done, &standin_lock);
    if (!narrow) wide--;
    standin_op_drop(&op);
}

void standin_nudge(void)
{
    if (credit < 64) credit += (int64_t)(standin_random(&chance) % 24);
    last_call = now();
    pthread_cond_signal(&work_wanted);
}

void standin_wake(void) { pthread_cond_signal(&work_wanted); }

bool standin_on_device_thread(void) { return running && pthread_equal(pthread_self(), device_thread); }

void standin_stop(void)
{
    standin_hold();
    bool was = running;
    stopping = true;
    running = false;
    pthread_cond_broadcast(&work_wanted);
    standin_release();
    if (was) pthread_join(device_thread, NULL);
}
