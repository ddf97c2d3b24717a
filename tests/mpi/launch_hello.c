/* Says who it is; the launch tests start it in every way there is.
 *   --method NAME    as kolo_launch_start takes it
 *   --fail RANK      that rank reports an error and ends the job, the others wait for it
 *   --fail-busy RANK the same, from another thread while the main thread waits inside MPI
 *   --mpi-sum        all ranks add their numbers by MPI_Allreduce
 *   --exchange BYTES all ranks exchange that many bytes, thrice
 *   --bind           binds, and prints threads and processors
 *   --within SECONDS what the launch, and what follows, may take
 *   --heartbeat-timeout SECONDS  without a sign of life
 *   --late RANK      that rank begins after an hour
 *   --stop RANK      that rank stops itself (SIGSTOP) as soon as its watch runs, within the launch
 *   --stop-later RANK after the launch, while the others exchange
 *   --busy-later RANK likewise it sleeps, but lives
 *   --stop-end RANK   at the end, while the others wait for all; --after US: so long after it began to end
 *   --alive FILE      all show there that they live, from before the end on */
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "launch/launch.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(KOLO_MPI) && KOLO_MPI
#include <mpi.h>
#endif

static kolo_launch launch;

static void stop(int rc)
{
    kolo_error("%s", kolo_error_text());
    kolo_launch_abort(&launch, -rc);
}

static void sum_ranks(void)
{
#if defined(KOLO_MPI) && KOLO_MPI
    int mine = launch.rank + 1, sum = 0;
    if (!launch.mpi) return;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (launch.rank == 0) printf("sum %d\n", sum);
#endif
}

static void exchange(size_t bytes)
{
    unsigned char *mine = kolo_alloc(bytes), *all = kolo_alloc(bytes * (size_t)launch.size);
    for (int turn = 0; turn < 3; turn++) {
        memset(mine, launch.rank * 3 + turn, bytes);
        int rc = kolo_launch_exchange(&launch, mine, bytes, all);
        for (size_t i = 0; rc == 0 && i < bytes * (size_t)launch.size; i++)
            if (all[i] != (unsigned char)(i / bytes * 3 + (size_t)turn))
                rc = kolo_fail(KOLO_EINTERNAL, "byte %zu of turn %d is wrong", i, turn);
        if (rc < 0) stop(rc);
    }
    if (launch.rank == 0) printf("exchanged\n");
    free(mine);
    free(all);
}

static void *fail_soon(void *unused)
{
    usleep(200000);
    stop(
        kolo_fail(KOLO_EIO, "rank %d on %s: reading the shard: broken on purpose", launch.rank, launch.host));
    return unused;
}

static void fail_job(int rank, bool busy)
{
    pthread_t thread;
    if (rank == launch.rank && !busy) fail_soon(NULL);
    if (rank == launch.rank) pthread_create(&thread, NULL, fail_soon, NULL);
#if defined(KOLO_MPI) && KOLO_MPI
    if (launch.mpi) {
        char byte;
        MPI_Recv(&byte, 1, MPI_CHAR, (launch.rank + 1) % launch.size, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
#endif
    sleep(60);
}

static void end_stuck(kolo_launch *stuck, const char *text)
{
    kolo_error("%s", text);
    kolo_launch_abort(stuck, 69);
}

/* The rank by the environment, as there is no launch yet. */
static int rank_to_be(void)
{
    const char *rank = getenv("PMIX_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    return rank ? atoi(rank) : 0;
}

static void *stop_soon(void *unused)
{
    usleep(20000);
    kill(getpid(), SIGSTOP);
    return unused;
}

/* The watch names its thread once it has shown the others that it is there. */
static bool watch_runs(void)
{
    bool runs = false;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && !runs && (entry = readdir(threads));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file && fgets(name, sizeof name, file)) runs = strcmp(name, "kolo-launch\n") == 0;
        if (file) fclose(file);
    }
    if (threads) closedir(threads);
    return runs;
}

static void *stop_watched(void *unused)
{
    while (!watch_runs()) usleep(200);
    kill(getpid(), SIGSTOP);
    return unused;
}

static int64_t after_us;

static void *stop_at_end(void *unused)
{
    usleep((useconds_t)after_us);
    kill(getpid(), SIGSTOP);
    return unused;
}

static void stop_in_end(void)
{
    pthread_t thread;
    if (after_us) pthread_create(&thread, NULL, stop_at_end, NULL);
    else stop_at_end(NULL);
}

static void stop_in_launch(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, stop_watched, NULL);
}

static void show_binding(void)
{
    char line[256], mask[128] = "?\n";
    int threads = kolo_launch_bind(&launch, 0, true);
    if (threads < 0) stop(threads);
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Cpus_allowed_list: %127s", mask);
    if (file) fclose(file);
    printf("bind %d threads %d processors %s\n", launch.rank, threads, mask);
}

/* In one write: MPICH takes stdout's buffer away, and pieces of several ranks' lines would mix. */
static void say_map(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *line = open_memstream(&text, &bytes);
    if (!line) return;
    fprintf(line, "job %s map", launch.job);
    for (int r = 0; r < launch.size; r++)
        fprintf(line, " %s:%d", launch.host_of[launch.node_of[r]], launch.local_of[r]);
    fputc('\n', line);
    fclose(line);
    fputs(text, stdout);
    free(text);
}

int main(int argc, char **argv)
{
    const char *method = "auto", *alive = NULL;
    int fail = -1;
    bool busy = false, sum = false, bind = false;
    size_t bytes = 0;
    int late = -1, stops = -1, stops_later = -1, busy_later = -1, stops_end = -1;
    kolo_launch_limits limits = {.end = end_stuck};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(argv[i], "--method") == 0) method = value, i++;
        else if (strcmp(argv[i], "--fail") == 0) fail = atoi(value), i++;
        else if (strcmp(argv[i], "--fail-busy") == 0) fail = atoi(value), busy = true, i++;
        else if (strcmp(argv[i], "--exchange") == 0) bytes = (size_t)atoi(value), i++;
        else if (strcmp(argv[i], "--within") == 0) limits.start = limits.later = atof(value), i++;
        else if (strcmp(argv[i], "--heartbeat-timeout") == 0) limits.heartbeat_timeout = atof(value), i++;
        else if (strcmp(argv[i], "--late") == 0) late = atoi(value), i++;
        else if (strcmp(argv[i], "--stop") == 0) stops = atoi(value), i++;
        else if (strcmp(argv[i], "--stop-later") == 0) stops_later = atoi(value), i++;
        else if (strcmp(argv[i], "--busy-later") == 0) busy_later = atoi(value), i++;
        else if (strcmp(argv[i], "--stop-end") == 0) stops_end = atoi(value), i++;
        else if (strcmp(argv[i], "--alive") == 0) alive = value, i++;
        else if (strcmp(argv[i], "--after") == 0) after_us = atoi(value), i++;
        else if (strcmp(argv[i], "--mpi-sum") == 0) sum = true;
        else if (strcmp(argv[i], "--bind") == 0) bind = true;
        else return 78;
    }
    if (late == rank_to_be()) sleep(3600);
    if (stops == rank_to_be()) stop_in_launch();
    int rc = kolo_launch_start(&launch, method, &limits);
    if (rc < 0) {
        kolo_error("%s", kolo_error_text());
        return -rc;
    }
    printf("%s rank %d size %d node %d nodes %d local %d of %d host %s mpi %d\n", launch.method, launch.rank,
           launch.size, launch.node, launch.nodes, launch.local_rank, launch.local_size, launch.host,
           launch.mpi);
    if (launch.rank == 0) say_map();
    fflush(stdout);
    if (stops_later == launch.rank) stop_soon(NULL);
    if (busy_later == launch.rank) sleep(3600);
    if (bytes > 0) exchange(bytes);
    if (sum) sum_ranks();
    if (bind) show_binding();
    if (fail >= 0) fail_job(fail, busy);
    fflush(stdout);
    if (alive) {
        kolo_launch_beat_at(&launch, alive);
        char mine = 0, *all = kolo_alloc((size_t)launch.size);
        if ((rc = kolo_launch_exchange(&launch, &mine, 1, all)) < 0) stop(rc);
        free(all);
    }
    if (stops_end == launch.rank) stop_in_end();
    kolo_launch_finish(&launch);
    kolo_launch_finish(&launch);
    return 0;
}
