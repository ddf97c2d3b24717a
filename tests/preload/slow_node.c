/* For LD_PRELOAD: a kolo on one node of a private Slurm that is slow, or whose clock is wrong.
 *
 *     SLOW_NODE=n3      there computing pauses 4 ms after every 0.5 ms, and every MPI_Isend waits 80 ms
 *     WRONG_CLOCK=n2    there CLOCK_REALTIME is 5 s ahead
 *
 * Others are left alone: other programs, and nodes of other names (SLURMD_NODENAME). */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static bool slow, ahead;

static void pause_for(long milliseconds)
{
    const struct timespec rest = {0, milliseconds * 1000000};
    nanosleep(&rest, NULL);
}

/* Of the wall's clock, which knows no ticks; armed anew each time, so that something runs in between. */
static void arm(void)
{
    const struct itimerval once = {{0, 0}, {0, 500}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void on_timer(int signal)
{
    (void)signal;
    const int before = errno;
    pause_for(4);
    arm();
    errno = before;
}

static bool is_node(const char *key)
{
    const char *named = getenv(key), *node = getenv("SLURMD_NODENAME");
    return named && node && !strcmp(named, node) && !strcmp(program_invocation_short_name, "kolo");
}

__attribute__((constructor)) static void start(void)
{
    const struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    slow = is_node("SLOW_NODE");
    ahead = is_node("WRONG_CLOCK");
    if (!slow) return;
    sigaction(SIGALRM, &action, NULL);
    arm();
}

/* kolo starts itself once more, and a timer outlives that, its handler does not. */
int execv(const char *path, char *const *argv)
{
    static int (*next)(const char *, char *const *);
    const struct itimerval never = {{0, 0}, {0, 0}};
    if (!next) {
        void *found = dlsym(RTLD_NEXT, "execv");
        memcpy(&next, &found, sizeof next);
    }
    if (slow) signal(SIGALRM, SIG_IGN), setitimer(ITIMER_REAL, &never, NULL);
    return next(path, argv);
}

/* Types of MPI are numbers or pointers, which go the same way. */
int MPI_Isend(const void *data, int count, void *type, int to, int tag, void *comm, void *request);
int MPI_Isend(const void *data, int count, void *type, int to, int tag, void *comm, void *request)
{
    static int (*next)(const void *, int, void *, int, int, void *, void *);
    if (!next) {
        void *found = dlsym(RTLD_NEXT, "MPI_Isend");
        memcpy(&next, &found, sizeof next);
    }
    if (slow) pause_for(80);
    return next(data, count, type, to, tag, comm, request);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next) {
        void *found = dlsym(RTLD_NEXT, "clock_gettime");
        memcpy(&next, &found, sizeof next);
    }
    const int rc = next(clock, t);
    if (rc == 0 && ahead && clock == CLOCK_REALTIME) t->tv_sec += 5;
    return rc;
}
