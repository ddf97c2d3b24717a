/* Images a second of several jobs together, each reading for itself and all served by one loader:
 *   serve_bench DIR JOBS SECONDS [KEY=VALUE ...]
 * Each job is a process that takes batches and does nothing with them. Prints what all get a second and
 * the CPU time an image, alone and served, and the ratios; where others use the machine too, CPU time
 * is the one to trust. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/option.h"
#include "base/thread.h"
#include "data/loader.h"
#include "data/serve/serve.h"
#include "data/shard/dataset.h"
#include "kolo/error.h"

static volatile sig_atomic_t stopped;
static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static kolo_loader_config config_of(const kolo_dataset *set, const kolo_options *o, const char *serve)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(set);
    const int side = o->size ? (int)o->size : info->height;
    return (kolo_loader_config){.dataset = set,
                                .channels = info->channels,
                                .height = side,
                                .width = side,
                                .classes = info->classes,
                                .train = true,
                                .seed = 1,
                                .batch = o->batch,
                                .ranks = 1,
                                .shuffle = o->shuffle,
                                .crop = o->crop,
                                .crop_pad = (int)o->crop_pad,
                                .area_min = o->crop_area_min,
                                .area_max = o->crop_area_max,
                                .flip = o->flip,
                                .augment = o->augment,
                                .interpolation = o->interpolation,
                                .readers = (int)o->readers,
                                .prefetch = (int)o->prefetch,
                                .serve = serve,
                                .serve_wait = o->serve_wait};
}

typedef struct result {
    double rate, all; /* images a second, behind as many batches as are read ahead; all images */
} result;

static int job(const kolo_loader_config *c, double seconds, result *r)
{
    kolo_loader *l;
    kolo_batch b;
    double begin = 0, before = 0;
    KOLO_TRY(kolo_loader_create(&l, c));
    KOLO_TRY(kolo_loader_seek(l, 0, 0));
    for (int i = 0; begin == 0 || kolo_time() - begin < seconds; i++) {
        KOLO_TRY(kolo_loader_next(l, &b));
        kolo_loader_release(l, &b);
        r->all += (double)b.valid;
        if (i != 2 * c->prefetch + 2) continue;
        begin = kolo_time();
        before = r->all;
    }
    r->rate = (r->all - before) / (kolo_time() - begin);
    kolo_loader_destroy(&l);
    return 0;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void server(const kolo_loader_config *c, int jobs, int told)
{
    kolo_server *s;
    signal(SIGTERM, stop);
    int rc = kolo_server_open(&s, c, jobs);
    if (rc == 0 && write(told, &rc, sizeof rc) == sizeof rc) rc = kolo_server_run(s, &stopped);
    if (rc < 0) fprintf(stderr, "serve_bench: %s\n", kolo_error_text());
    kolo_server_close(&s);
    _exit(-rc);
}

/* Of all jobs: images a second, CPU seconds an image. Negative: something failed. */
static int measure(const char *folder, const kolo_options *o, int jobs, double seconds, const char *serve,
                   double *rate, double *cpu)
{
    kolo_dataset *set;
    int pipes[2], told = 0;
    result r = {0}, sum = {0};
    pid_t serving = 0;
    const double before = cpu_seconds();
    if (pipe(pipes) < 0 || kolo_dataset_open(&set, folder) < 0) return -1;
    const kolo_loader_config c = config_of(set, o, serve);
    if (serve && (serving = fork()) == 0) server(&c, jobs, pipes[1]);
    if (serve && read(pipes[0], &told, sizeof told) != sizeof told) return -1;
    for (int i = 0; i < jobs; i++) {
        if (fork()) continue;
        if (job(&c, seconds, &r) < 0) fprintf(stderr, "serve_bench: %s\n", kolo_error_text());
        _exit(write(pipes[1], &r, sizeof r) != sizeof r);
    }
    for (int i = 0; i < jobs && read(pipes[0], &r, sizeof r) == sizeof r; i++)
        sum.rate += r.rate, sum.all += r.all;
    if (serving) kill(serving, SIGTERM);
    while (wait(NULL) > 0) continue;
    close(pipes[0]), close(pipes[1]);
    kolo_dataset_close(&set);
    *rate = sum.rate;
    *cpu = (cpu_seconds() - before) / sum.all;
    return sum.rate > 0 ? 0 : -1;
}

int main(int count, char **word)
{
    kolo_options o;
    char name[64];
    kolo_options_default(&o);
    if (count < 4) return fprintf(stderr, "usage: serve_bench DIR JOBS SECONDS [KEY=VALUE ...]\n"), 2;
    const int jobs = atoi(word[2]);
    const double seconds = atof(word[3]);
    if (jobs < 1 || seconds <= 0 || kolo_options_read_arguments(&o, count - 4, word + 4, NULL) < 0)
        return fprintf(stderr, "serve_bench: %s\n", kolo_error_text()), 2;
    kolo_log_set_level(KOLO_LOG_WARN);
    snprintf(name, sizeof name, "bench-%d", (int)getpid());
    double rate[2], cpu[2];
    for (int k = 0; k < 2; k++)
        if (measure(word[1], &o, jobs, seconds, k ? name : NULL, &rate[k], &cpu[k]) < 0)
            return fprintf(stderr, "serve_bench: %s\n", kolo_error_text()), 1;
    printf("%d jobs: alone %.0f img/s, %.0f us CPU an image; served %.0f img/s, %.0f us; ratio %.2f, of CPU "
           "time %.2f\n",
           jobs, rate[0], cpu[0] * 1e6, rate[1], cpu[1] * 1e6, rate[1] / rate[0], cpu[0] / cpu[1]);
    kolo_options_free(&o);
    return 0;
}
