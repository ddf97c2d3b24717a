/* kolo doctor: what a support desk would ask for. One line a check: ok, warn or FAIL, the fact, the cure; or
 * one JSON object a line. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/shm.h"
#include "base/thread.h"
#include "cmd/cmd.h"
#include "cmd/doctor.h"
#include "kolo/error.h"

enum { LITTLE_LOCKED = 1 << 26 }; /* bytes: less is nobody's wish but a system's default */

static void print_text(const doctor *d, const char *verdict, const char *check, const char *fact,
                       const char *cure)
{
    char who[300] = "", line[2600];
    if (d->launch && d->launch->size > 1)
        snprintf(who, sizeof who, "[rank %d %s] ", d->launch->rank, d->launch->host);
    snprintf(line, sizeof line, "%-4s %-10s %s%s%s%s\n", verdict, check, who, fact, *cure ? ": " : "", cure);
    fputs(line, stdout);
}

static void print_json(const doctor *d, const char *verdict, const char *check, const char *fact,
                       const char *cure)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return;
    fprintf(f, "{\"verdict\":\"%s\",\"check\":", verdict);
    kolo_json_string(f, check);
    fprintf(f, ",\"rank\":%d,\"host\":", d->launch ? d->launch->rank : 0);
    kolo_json_string(f, d->launch ? d->launch->host : "");
    fprintf(f, ",\"text\":");
    kolo_json_string(f, fact);
    fprintf(f, ",\"cure\":");
    kolo_json_string(f, *cure ? cure : NULL);
    fprintf(f, "}\n");
    if (fclose(f) == 0) fputs(text, stdout);
    free(text);
}

/* Of an error's text, which ends with it: "what is wrong; the cure". NULL: it has none. */
static char *cut_cure(char *text)
{
    char *cure = NULL;
    for (char *at = text; (at = strstr(at, "; ")); at++) cure = at;
    if (!cure) return NULL;
    *cure = 0;
    return cure + 2;
}

void doctor_add(doctor *d, enum doctor_verdict verdict, int status, const char *check, const char *format,
                ...)
{
    static const char *const name[] = {"ok", "warn", "FAIL"}, *const key[] = {"ok", "warn", "fail"};
    char text[2048], *cure;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (verdict == BAD && d->failures++ == 0) d->status = status;
    if ((int)verdict > d->worst) d->worst = (int)verdict;
    if (verdict == GOOD && d->launch && d->launch->rank != 0) return;
    cure = strchr(text, '\t');
    if (cure) *cure++ = 0;
    else if (d->json && verdict != GOOD) cure = cut_cure(text);
    /* written at once: the lines of many ranks do not mix */
    if (d->json) print_json(d, key[verdict], check, text, cure ? cure : "");
    else print_text(d, name[verdict], check, text, cure ? cure : "");
    fflush(stdout);
}

static void check_launch(doctor *d)
{
    const kolo_launch *l = d->launch;
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *job = getenv("SLURM_JOB_ID");
    doctor_add(d, GOOD, 0, "launcher", "%s: %d ranks on %d nodes", l->method, l->size, l->nodes);
    if (job && !tasks)
        doctor_add(d, WARN, 0, "launcher", "in job %s but not in a step\tstart training by `srun --mpi=pmix`",
                   job);
    int least = l->size, most = 0;
    for (int node = 0; node < l->nodes; node++) {
        int count = 0;
        for (int i = 0; i < l->size; i++) count += l->node_of[i] == node;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    doctor_add(d, least == most ? GOOD : WARN, 0, "node map",
               least == most ? "%d ranks on every node"
                             : "uneven: between %d and %d ranks a node\tset --ntasks-per-node",
               least, most);
}

static void check_cores(doctor *d)
{
    int cpus = kolo_cpu_count(), here = d->launch->local_size;
    const char *asked = getenv("SLURM_CPUS_PER_TASK");
    if (asked && atoi(asked) > cpus)
        doctor_add(
            d, WARN, 0, "cores",
            "this task may use %d CPUs, --cpus-per-task asked for %s\tadd `srun --cpus-per-task=%s` (not "
            "inherited by Slurm 22.05 and 23.02)",
            cpus, asked, asked);
    else doctor_add(d, GOOD, 0, "cores", "%d CPUs for this process, %d ranks on the node", cpus, here);
}

/* What this user's programs have in /dev/shm, by whether anybody holds its lock. */
static void report_object(const kolo_shm_object *o, void *context)
{
    doctor *d = context;
    char holder[64] = "";
    const double mib = (double)o->bytes / 0x1p20;
    if (o->holder) snprintf(holder, sizeof holder, " by process %ld", o->holder);
    if (o->state == KOLO_SHM_REMOVED)
        doctor_add(d, WARN, 0, "shared",
                   "removed /dev/shm/%s, %.1f MiB, which killed processes of yours had left", o->name, mib);
    else if (o->state == KOLO_SHM_USED)
        doctor_add(d, GOOD, 0, "shared", "/dev/shm/%s, %.1f MiB, is in use%s and stays", o->name, mib,
                   holder);
    else
        doctor_add(d, WARN, 0, "shared",
                   "/dev/shm/%s has a name of yours and belongs to user %u: other names are taken", o->name,
                   o->uid);
}

static void check_memory(doctor *d)
{
    const char *source = "";
    size_t limit = kolo_memory_limit(&source);
    struct statvfs fs;
    doctor_add(d, limit < ((size_t)1 << 30) ? WARN : GOOD, 0, "memory", "%.1f GiB (%s)",
               (double)limit / 0x1p30, source);
    if (d->launch->local_rank == 0)
        kolo_shm_sweep(KOLO_SHM_ALL, report_object, d); /* before it is looked how much is free */
    if (statvfs("/dev/shm", &fs) != 0) {
        doctor_add(d, BAD, KOLO_ELAUNCH, "shared",
                   "/dev/shm is not there\tranks of one node reduce through it: mount a tmpfs there");
        return;
    }
    double free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    doctor_add(d, free_bytes < 0x1p28 ? WARN : GOOD, 0, "shared", "/dev/shm has %.1f GiB free%s",
               free_bytes / 0x1p30,
               free_bytes < 0x1p28
                   ? "\tgradients of the ranks of a node must fit (mount it larger, or fewer ranks a node)"
                   : "");
}

typedef struct limits {
    uint64_t files, locked;
} limits;

/* The least of all ranks, printed once: they are as a rule the same, and wrong, everywhere. Collective. */
static int check_limits(doctor *d, kolo_launch *launch)
{
    struct rlimit files, locked;
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &locked);
    limits mine = {files.rlim_cur, locked.rlim_cur}, least = mine,
           *all = kolo_alloc((size_t)launch->size * sizeof *all);
    int rc = all ? kolo_launch_exchange(launch, &mine, sizeof mine, all) : KOLO_ENOMEM, few = 0;
    for (int rank = 0; rc >= 0 && rank < launch->size; rank++) {
        if (all[rank].files < least.files) least.files = all[rank].files;
        if (all[rank].locked < least.locked) least.locked = all[rank].locked;
        few += all[rank].locked < LITTLE_LOCKED;
    }
    free(all);
    if (rc < 0 || launch->rank != 0) return rc;
    doctor_add(d, least.files < 1024 ? WARN : GOOD, 0, "limits", "%lu open files%s",
               (unsigned long)least.files, least.files < 1024 ? "\traise `ulimit -n` to 1024" : "");
    if (few)
        doctor_add(
            d, WARN, 0, "limits",
            "%lu KiB may be locked on %d of %d ranks\tInfiniBand wants `ulimit -l unlimited` (LimitMEMLOCK "
            "of slurmd)",
            (unsigned long)least.locked >> 10, few, launch->size);
    return 0;
}

static void check_environment(doctor *d)
{
    static const char *const suspicious[] = {"NCCL_P2P_DISABLE", "NCCL_ALGO",  "CUDA_LAUNCH_BLOCKING",
                                             "MALLOC_CHECK_",    "LD_PRELOAD", "OMP_NUM_THREADS"};
    for (size_t i = 0; i < sizeof suspicious / sizeof *suspicious; i++)
        if (getenv(suspicious[i]))
            doctor_add(d, WARN, 0, "environ", "%s=%s is set\tunset it, unless it is meant", suspicious[i],
                       getenv(suspicious[i]));
    if (getenv("SLURM_JOB_ID") && !getenv("SLURM_JOB_END_TIME") && !getenv("SLURM_RESTART_COUNT") &&
        d->launch->rank == 0)
        doctor_add(d, GOOD, 0, "job", "%s on %s", getenv("SLURM_JOB_ID"),
                   getenv("SLURM_JOB_NODELIST") ? getenv("SLURM_JOB_NODELIST") : "?");
}

static int check_sum(doctor *d)
{
    kolo_launch *launch = d->launch;
    kolo_comm *comm = NULL;
    int64_t sum = launch->rank + 1, want = (int64_t)launch->size * (launch->size + 1) / 2;
    int rc;
    kolo_comm_config config = {.size = sizeof(kolo_comm_config), .timeout = 30, .spin = -1};
    KOLO_TRY_GOTO(rc, kolo_comm_create(&comm, launch, &config));
    KOLO_TRY_GOTO(rc, kolo_comm_commit(comm));
    double begin = kolo_time();
    KOLO_TRY_GOTO(rc, kolo_comm_allreduce(comm, &sum, 1, KOLO_I64, KOLO_SUM));
    doctor_add(d, sum == want ? GOOD : BAD, KOLO_ELAUNCH, "reduce",
               "allreduce over ranks is %ld, expected %ld (%.2f ms)", (long)sum, (long)want,
               (kolo_time() - begin) * 1e3);
    rc = doctor_check_clocks(d, comm);
fail:
    kolo_comm_destroy(&comm);
    return rc;
}

static void check_own(doctor *d)
{
    check_launch(d);
    doctor_check_libraries(d);
    check_cores(d);
    doctor_check_processors(d);
    check_memory(d);
    doctor_check_cgroup(d);
    doctor_check_network(d);
    doctor_check_data(d, "data", d->options->data);
    doctor_check_data(d, "val", d->options->val);
    doctor_check_run(d, d->options->run);
    check_environment(d);
    doctor_measure(d);
}

static int check_together(doctor *d, bool pairs)
{
    KOLO_TRY(check_limits(d, d->launch));
    KOLO_TRY(doctor_check_binding(d));
    KOLO_TRY(doctor_compare_nodes(d));
    const int before = d->failures;
    KOLO_TRY(doctor_check_gpus(d));
    d->gpu_failed = d->failures > before;
    if (d->offline) {
        doctor_add(d, GOOD, 0, "offline", "not checked: launcher, other ranks, reductions");
        return 0;
    }
    KOLO_TRY(check_sum(d));
    return doctor_check_traffic(d, pairs);
}

/* Takes `--site FILE` out of the words. */
static int take_site(int *n, char **words, const char **path)
{
    for (int i = 0; i < *n; i++) {
        if (strcmp(words[i], "--site") != 0) continue;
        if (i + 1 == *n)
            return kolo_fail(KOLO_ECONFIG, "--site wants the name of a file that is not there yet");
        *path = words[i + 1];
        memmove(&words[i], &words[i + 2], (size_t)(*n - i - 2) * sizeof *words);
        *n -= 2;
        return 0;
    }
    return 0;
}

static int write_findings(doctor *d, const char *site)
{
    if (*d->slow)
        doctor_add(d, BAD, KOLO_ELAUNCH, "exclude", "slow nodes: %s\tsbatch --exclude=%s leaves them out",
                   d->slow, d->slow);
    if (!site) return 0;
    KOLO_TRY(doctor_write_site(d, site));
    doctor_add(d, GOOD, 0, "site", "%s holds options for this site: look through it, then KOLO_SITE=%s", site,
               site);
    return 0;
}

int kolo_command_doctor(int n, char **words)
{
    kolo_options options;
    const char *site = NULL;
    doctor d = {.options = &options};
    d.offline = kolo_command_flag(&n, words, "--offline");
    d.json = kolo_command_flag(&n, words, "--json");
    const bool pairs = kolo_command_flag(&n, words, "--all-pairs");
    KOLO_TRY(take_site(&n, words, &site));
    if (pairs && d.offline)
        return kolo_fail(KOLO_ECONFIG,
                         "--all-pairs measures between ranks, --offline has one: leave one of them out");
    KOLO_TRY(kolo_command_words(&options, n, words, 0, NULL));
    int rc = d.offline ? kolo_command_alone(&d.launch) : kolo_command_launch(&options, &d.launch);
    if (rc == 0) {
        check_own(&d);
        rc = check_together(&d, pairs);
    }
    if (rc == 0) rc = write_findings(&d, site);
    kolo_options_free(&options);
    if (rc == 0 && d.worst == BAD) return kolo_fail(d.status, "a check failed; see the lines marked FAIL");
    return rc;
}
