#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "kolo/error.h"

double kolo_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A fixed cpu_set_t ends at 1024 CPUs; the kernel says EINVAL until the set is large enough. */
static int affinity_count(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set) break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int rc = sched_getaffinity(0, bytes, set);
        int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        int error = errno;
        CPU_FREE(set);
        if (rc == 0) return count;
        if (error != EINVAL) break;
    }
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int kolo_cpu_count(void)
{
    int count = affinity_count();
    double quota = kolo_cgroup_cpus("");
    if (quota > 0 && ceil(quota) < count) count = (int)ceil(quota);
    return count > 0 ? count : 1;
}

static atomic_int node_cpus;

int kolo_node_cpu_count(void)
{
    const int cpus = atomic_load(&node_cpus);
    return cpus > 0 ? cpus : kolo_cpu_count();
}

void kolo_node_set_cpu_count(int cpus) { atomic_store(&node_cpus, cpus); }

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static struct timespec deadline_after(double seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (seconds > 1e9) seconds = 1e9;
    end.tv_sec += (time_t)seconds;
    end.tv_nsec += (long)((seconds - floor(seconds)) * 1e9);
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    return end;
}

bool kolo_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds, int spin)
{
    for (int i = 0; i <= spin; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
        relax();
    }
    if (seconds == 0) return false;
    struct timespec end = seconds > 0 ? deadline_after(seconds) : (struct timespec){0, 0};
    while (atomic_load_explicit(word, memory_order_acquire) == value) {
        /* the bitset form takes an absolute time, so that early wakes do not prolong the wait; not PRIVATE:
         * the word may lie in memory shared between processes */
        long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, seconds > 0 ? &end : NULL, NULL,
                          FUTEX_BITSET_MATCH_ANY);
        if (rc < 0 && errno == ETIMEDOUT) return atomic_load_explicit(word, memory_order_acquire) != value;
    }
    return true;
}

void kolo_futex_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

int kolo_thread_start(pthread_t *thread, void *(*main)(void *), void *of, const char *purpose)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}; /* of its own */
    char name[16];
    sigset_t outside, before;
    snprintf(name, sizeof name, "%s", purpose);
    sigfillset(&outside);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&outside, faults[i]);
    pthread_sigmask(SIG_SETMASK, &outside, &before);
    const int rc = pthread_create(thread, NULL, main, of);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) pthread_setname_np(*thread, name);
    return rc == 0 ? 0
                   : kolo_fail(KOLO_ENOMEM,
                               "%s: no thread: %s; raise the limit of processes (ulimit -u) or of memory",
                               purpose, strerror(rc));
}
