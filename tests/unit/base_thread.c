#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kolo/error.h"
#include "tap.h"

static _Atomic uint32_t word;

static void *set_soon(void *arg)
{
    usleep(50000);
    atomic_store(&word, 1);
    kolo_futex_wake(&word);
    return arg;
}

static void *wait_here(void *arg) { return kolo_futex_wait(&word, 0, 5, 0) ? arg : NULL; }

int main(void)
{
    double start = kolo_time();
    ok(!kolo_futex_wait(&word, 0, 0.05, 0), "a wait for a word that stays ends at the time-out");
    double took = kolo_time() - start;
    ok(took >= 0.049 && took < 2, "after the time that was asked (%.3f s)", took);
    ok(kolo_futex_wait(&word, 7, -1, 0), "another value returns at once");
    ok(!kolo_futex_wait(&word, 0, 0, 10), "0 seconds only looks");

    pthread_t thread, waiters[4];
    pthread_create(&thread, NULL, set_soon, NULL);
    ok(kolo_futex_wait(&word, 0, 5, 100), "a change in another thread is seen");
    pthread_join(thread, NULL);

    atomic_store(&word, 0);
    int woken = 0;
    for (int i = 0; i < 4; i++) pthread_create(&waiters[i], NULL, wait_here, &word);
    pthread_create(&thread, NULL, set_soon, NULL);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(waiters[i], &result);
        woken += result != NULL;
    }
    pthread_join(thread, NULL);
    is_int(woken, 4, "one wake reaches all waiters");

    _Atomic uint32_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        atomic_store(shared, 5);
        kolo_futex_wake(shared);
        _exit(0);
    }
    start = kolo_time();
    ok(kolo_futex_wait(shared, 0, 5, 0), "a change in another process is seen");
    ok(kolo_time() - start < 4, "by its wake, not by the time-out");
    waitpid(child, NULL, 0);

    pthread_attr_t usual, huge;
    pthread_getattr_default_np(&usual);
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 60);
    pthread_setattr_default_np(&huge);
    const int rc = kolo_thread_start(&thread, wait_here, NULL, "a test");
    pthread_setattr_default_np(&usual);
    is_int(rc, KOLO_ENOMEM, "a thread whose stack cannot be had is a lack of memory: %s", kolo_error_text());

    int before = kolo_cpu_count();
    ok(before >= 1 && before <= sysconf(_SC_NPROCESSORS_CONF), "the CPU count is sensible (%d)", before);
    cpu_set_t all, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof all, &all);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all)) {
            CPU_SET(c, &one);
            break;
        }
    sched_setaffinity(0, sizeof one, &one);
    is_int(kolo_cpu_count(), 1, "bound to one CPU it is 1");
    return done_testing();
}
