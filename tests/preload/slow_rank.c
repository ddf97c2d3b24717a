/* For LD_PRELOAD, of one rank: a kolo whose computing is slow, as on a core that others share. What oneDNN
 * computes for it, most of all that a network is, takes longer:
 *
 *     SLOW_TIMES=4      four times as long
 *     SLOW_NAPS=SEED    and now and then, at random, 50 ms to 150 ms more
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double slower;     /* so many times the time that it took is slept */
static unsigned long nap; /* state of a generator; 0: none */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* One of about a thousand calls. */
static double next_nap(void)
{
    if (!nap) return 0;
    nap = nap * 6364136223846793005u + 1442695040888963407u;
    return nap >> 54 ? 0 : 0.05 + 0.1 * (double)(nap >> 30 & 0xffffff) / 0x1p24;
}

__attribute__((constructor)) static void start(void)
{
    const char *times = getenv("SLOW_TIMES"), *seed = getenv("SLOW_NAPS");
    slower = times ? strtod(times, NULL) - 1 : 0;
    nap = seed ? strtoul(seed, NULL, 10) + 1 : 0;
}

int dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *args);
int dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *args)
{
    static int (*next)(const void *, void *, int, const void *);
    if (!next) {
        void *found = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
        memcpy(&next, &found, sizeof next);
    }
    const double begin = now();
    const int status = next(primitive, stream, count, args);
    rest(slower * (now() - begin) + next_nap());
    return status;
}
