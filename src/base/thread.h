/* Threads: futex waits, a clock, and the CPUs this process may use. Waits spin only while no CPU is short. */
#ifndef KOLO_BASE_THREAD_H
#define KOLO_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Seconds, monotonic. */
double kolo_time(void);

/* CPUs in this process's affinity mask, limited by the cgroup quota (rounded up); at least 1. */
int kolo_cpu_count(void);
/* CPUs of all processes of this job on this node, as its launch has counted them before it bound any; else
 * kolo_cpu_count. */
int kolo_node_cpu_count(void);
void kolo_node_set_cpu_count(int cpus);

/* Waits while *word == value, at most `seconds` (negative: for ever). Works across processes on
 * shared memory. Returns true if the word changed, false at the time-out. `spin` is how many polls
 * come before the futex. */
bool kolo_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds, int spin);
void kolo_futex_wake(_Atomic uint32_t *word); /* all waiters */

/* Between two polls: lets the other thread of the core go first. */
static inline void kolo_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* A thread of Kolo's own, named by what it is for (15 bytes of it): signals from outside are for the threads
 * that know what to do with them, so it has all of them blocked. KOLO_ENOMEM: there is none; the text begins
 * with what it was for. */
int kolo_thread_start(pthread_t *thread, void *(*main)(void *), void *of, const char *purpose);

#endif
