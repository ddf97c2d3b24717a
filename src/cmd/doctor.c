/* kolo doctor: what a support desk would ask for. One line a check: ok, warn or FAIL, the fact, the cure. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "base/shm.h"
#include "base/thread.h"
#include "cmd/cmd.h"
#include "comm/buckets/trainer.h"
#include "comm/buckets/reducer.h"
#include "data/shard/shard.h"
#include "kolo/error.h"
#include "launch/device.h"
#include "ops/backend.h"

enum { LITTLE_LOCKED = 1 << 26 }; /* bytes: less is nobody's wish but a system's default */

enum verdict { GOOD, WARN, BAD };

typedef struct report {
    const kolo_launch *launch;
    int worst, status; /* status: of the first failure */
} report;

static void report_add(report *r, enum verdict verdict, int status, const char *check, const char *format,
                       ...) __attribute__((format(printf, 5, 6)));
static void report_add(report *r, enum verdict verdict, int status, const char *check, const char *format,
                       ...)
{
    static const char *const name[] = {"ok", "warn", "FAIL"};
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (verdict == BAD && r->worst < BAD) r->status = status;
    if ((int)verdict > r->worst) r->worst = (int)verdict;
    if (verdict == GOOD && r->launch && r->launch->rank != 0)
        return; /* the other ranks report trouble only */
    /* written at once: the lines of many ranks do not mix */
    char who[300] = "", line[1400];
    if (r->launch && r->launch->size > 1)
        snprintf(who, sizeof who, "[rank %d %s] ", r->launch->rank, r->launch->host);
    snprintf(line, sizeof line, "%-4s %-10s %s%s\n", name[verdict], check, who, text);
    fputs(line, stdout);
    fflush(stdout);
}

static void check_launch(report *r)
{
    const kolo_launch *l = r->launch;
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *job = getenv("SLURM_JOB_ID");
    report_add(r, GOOD, 0, "launcher", "%s: %d ranks on %d nodes", l->method, l->size, l->nodes);
    if (job && !tasks)
        report_add(r, WARN, 0, "launcher", "in job %s but not in a step: start training by `srun --mpi=pmix`",
                   job);
    int least = l->size, most = 0;
    for (int node = 0; node < l->nodes; node++) {
        int count = 0;
        for (int i = 0; i < l->size; i++) count += l->node_of[i] == node;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    report_add(r, least == most ? GOOD : WARN, 0, "node map",
               least == most ? "%d ranks on every node"
                             : "uneven: between %d and %d ranks a node (set --ntasks-per-node)",
               least, most);
}

static void check_cores(report *r)
{
    int cpus = kolo_cpu_count(), here = r->launch->local_size;
    const char *asked = getenv("SLURM_CPUS_PER_TASK");
    if (asked && atoi(asked) > cpus)
        report_add(
            r, WARN, 0, "cores",
            "this task may use %d CPUs, --cpus-per-task asked for %s: add `srun --cpus-per-task=%s` (not "
            "inherited by Slurm 22.05 and 23.02)",
            cpus, asked, asked);
    else report_add(r, GOOD, 0, "cores", "%d CPUs for this process, %d ranks on the node", cpus, here);
}

/* What this user's programs have in /dev/shm, by whether anybody holds its lock. */
static void report_object(const kolo_shm_object *o, void *context)
{
    report *r = context;
    char holder[64] = "";
    const double mib = (double)o->bytes / 0x1p20;
    if (o->holder) snprintf(holder, sizeof holder, " by process %ld", o->holder);
    if (o->state == KOLO_SHM_REMOVED)
        report_add(r, WARN, 0, "shared",
                   "removed /dev/shm/%s, %.1f MiB, which killed processes of yours had left", o->name, mib);
    else if (o->state == KOLO_SHM_USED)
        report_add(r, GOOD, 0, "shared", "/dev/shm/%s, %.1f MiB, is in use%s and stays", o->name, mib,
                   holder);
    else
        report_add(r, WARN, 0, "shared",
                   "/dev/shm/%s has a name of yours and belongs to user %u: other names are taken", o->name,
                   o->uid);
}

static void check_memory(report *r)
{
    const char *source = "";
    size_t limit = kolo_memory_limit(&source);
    struct statvfs fs;
    report_add(r, limit < ((size_t)1 << 30) ? WARN : GOOD, 0, "memory", "%.1f GiB (%s)",
               (double)limit / 0x1p30, source);
    if (r->launch->local_rank == 0)
        kolo_shm_sweep(KOLO_SHM_ALL, report_object, r); /* before it is looked how much is free */
    if (statvfs("/dev/shm", &fs) != 0) {
        report_add(r, BAD, KOLO_ELAUNCH, "shared",
                   "/dev/shm is not there: ranks of one node reduce through it");
        return;
    }
    double free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    report_add(r, free_bytes < 0x1p28 ? WARN : GOOD, 0, "shared", "/dev/shm has %.1f GiB free%s",
               free_bytes / 0x1p30,
               free_bytes < 0x1p28
                   ? ": gradients of the ranks of a node must fit (mount it larger, or fewer ranks a node)"
                   : "");
}

typedef struct limits {
    uint64_t files, locked;
} limits;

/* The least of all ranks, printed once: they are as a rule the same, and wrong, everywhere. Collective. */
static int check_limits(report *r, kolo_launch *launch)
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
    report_add(r, least.files < 1024 ? WARN : GOOD, 0, "limits", "%lu open files%s",
               (unsigned long)least.files, least.files < 1024 ? ": raise `ulimit -n` to 1024" : "");
    if (few)
        report_add(
            r, WARN, 0, "limits",
            "%lu KiB may be locked on %d of %d ranks: InfiniBand wants `ulimit -l unlimited` (LimitMEMLOCK "
            "of slurmd)",
            (unsigned long)least.locked >> 10, few, launch->size);
    return 0;
}

static void check_data(report *r, const char *key, const char *folder)
{
    if (!*folder || !strcmp(folder, "none") || !strcmp(folder, "synthetic")) return;
    kolo_dataset *set = NULL;
    double begin = kolo_time();
    if (kolo_dataset_open(&set, folder) < 0) {
        report_add(r, BAD, KOLO_EINPUT, key, "%s", kolo_error_text());
        return;
    }
    const kolo_dataset_info *info = kolo_dataset_get_info(set);
    report_add(r, GOOD, 0, key, "%s: %ld images, %d classes, %d shards, opened in %.0f ms", folder,
               (long)info->count, info->classes, info->shards, (kolo_time() - begin) * 1e3);
    kolo_dataset_close(&set);
}

static void check_run(report *r, const char *folder)
{
    if (!*folder || r->launch->rank != 0) return;
    char path[4096];
    if (kolo_folder_make(folder) < 0) {
        report_add(r, BAD, KOLO_EIO, "run", "%s", kolo_error_text());
        return;
    }
    snprintf(path, sizeof path, "%s/.doctor", folder);
    double begin = kolo_time();
    if (kolo_file_write_atomic(path, "kolo\n", 5) < 0) {
        report_add(r, BAD, KOLO_EIO, "run", "%s", kolo_error_text());
        return;
    }
    unlink(path);
    int64_t free_bytes = kolo_file_free_bytes(folder);
    report_add(r, GOOD, 0, "run", "%s: write, sync and rename in %.0f ms, %.1f GiB free", folder,
               (kolo_time() - begin) * 1e3, (double)free_bytes / 0x1p30);
}

static void check_environment(report *r)
{
    static const char *const suspicious[] = {"NCCL_P2P_DISABLE", "NCCL_ALGO",  "CUDA_LAUNCH_BLOCKING",
                                             "MALLOC_CHECK_",    "LD_PRELOAD", "OMP_NUM_THREADS"};
    for (size_t i = 0; i < sizeof suspicious / sizeof *suspicious; i++)
        if (getenv(suspicious[i]))
            report_add(r, WARN, 0, "environ", "%s=%s is set: intended?", suspicious[i],
                       getenv(suspicious[i]));
    if (getenv("SLURM_JOB_ID") && !getenv("SLURM_JOB_END_TIME") && !getenv("SLURM_RESTART_COUNT") &&
        r->launch->rank == 0)
        report_add(r, GOOD, 0, "job", "%s on %s", getenv("SLURM_JOB_ID"),
                   getenv("SLURM_JOB_NODELIST") ? getenv("SLURM_JOB_NODELIST") : "?");
}

/* ---- GPUs: a failure where the job was given some or device=cuda asks for them, else a remark ---------- */

/* What the ways of gradients between GPUs say of themselves: a version, or why not. */
static void report_reducers(report *r)
{
    char note[128] = "";
    const kolo_reducer_type *const *row = kolo_cuda_symbol("kolo_cuda_reducer");
    for (; row && *row; row++) {
        bool ready = (*row)->ready(note, sizeof note) == 0;
        if (ready && *note)
            report_add(r, GOOD, 0, "reducer", "gradients may travel by %s %s", (*row)->name, note);
        if (!ready)
            report_add(r, WARN, 0, "reducer", "gradients cannot travel by %s, but through host memory: %s",
                       (*row)->name, kolo_error_text());
        *note = 0;
    }
}

/* Opens the backend on it: streams, cuDNN, cuBLASLt and a first kernel. */
static void check_gpu(report *r, int index, const kolo_device *device)
{
    kolo_backend *backend = NULL;
    kolo_backend_config config = {.threads = 1, .device = index};
    const char *place = "";
    double begin = kolo_time();
    int rc = kolo_backend_create(&backend, "cuda", &config);
    if (rc < 0) report_add(r, BAD, rc, "gpu", "%s", kolo_error_text());
    else {
        size_t bytes = kolo_backend_memory(backend, &place);
        report_add(r, GOOD, 0, "gpu",
                   "this rank's is %s, %s, capability %d.%d: %.1f of %.1f GiB may be used; opened in %.0f ms",
                   place, device->uuid, device->major, device->minor, (double)bytes / 0x1p30,
                   (double)device->memory_bytes / 0x1p30, (kolo_time() - begin) * 1e3);
    }
    kolo_backend_destroy(&backend);
}

/* Two ranks with one GPU: said by the later one. Collective. */
static int check_shared(report *r, kolo_launch *launch, const kolo_device *mine, bool allowed)
{
    kolo_device *all = kolo_alloc((size_t)launch->size * sizeof *all);
    int rc = all ? kolo_launch_exchange(launch, mine, sizeof *mine, all) : KOLO_ENOMEM, gpus = 0;
    for (int rank = 0; rc >= 0 && rank < launch->size; rank++) {
        int first = 0;
        while (strcmp(all[first].uuid, all[rank].uuid) != 0) first++;
        gpus += first == rank;
        if (rank == launch->rank && first < rank)
            report_add(
                r, allowed ? WARN : BAD, KOLO_ECONFIG, "gpu",
                "%s is rank %d's too: give every rank its own (--gpus-per-node), or set share_gpu=true",
                mine->uuid, first);
    }
    if (rc >= 0) report_add(r, GOOD, 0, "gpu", "%d ranks use %d GPUs", launch->size, gpus);
    free(all);
    return rc;
}

static void list_gpus(report *r, const kolo_device *list, int n)
{
    uint8_t distance[KOLO_MAX_DEVICES];
    kolo_device_distances(list, n, distance);
    for (int i = 0; i < n; i++)
        report_add(r, GOOD, 0, "gpu", "%d: %s, %.1f GiB, capability %d.%d, %s, %s, distance %d", i,
                   list[i].name, (double)list[i].memory_bytes / 0x1p30, list[i].major, list[i].minor,
                   list[i].bus, list[i].uuid, distance[i]);
}

static int check_gpus(report *r, kolo_launch *launch, const kolo_options *options, bool offline)
{
    kolo_device list[KOLO_MAX_DEVICES], mine;
    bool asked = options->device == KOLO_device_cuda, given = kolo_device_granted();
    int driver = 0, runtime = 0, index;
    if (options->device == KOLO_device_cpu) return 0;
    void *symbol = kolo_cuda_symbol("kolo_cuda_devices");
    kolo_device_list devices;
    memcpy(&devices, &symbol, sizeof devices);
    int n = symbol ? devices(list, &driver, &runtime) : KOLO_ELAUNCH;
    if (!asked && !given) {
        if (n > 0) list_gpus(r, list, n);
        report_add(r, GOOD, 0, "gpu", "this job was given none, so device=auto computes on CPUs%s%s",
                   n > 0   ? "; device=cuda would use those above"
                   : n < 0 ? ": "
                           : "",
                   n < 0 ? kolo_error_text() : "");
        return 0;
    }
    if (n > 0) {
        report_add(r, GOOD, 0, "cuda", "%s; driver for CUDA up to %d.%d", kolo_backend_version("cuda"),
                   driver / 1000, driver % 1000 / 10);
        report_reducers(r);
        list_gpus(r, list, n);
    }
    if (offline) { /* a login node need not have what the job will have */
        if (n < 0) report_add(r, asked ? BAD : WARN, n, "gpu", "%s", kolo_error_text());
        return 0;
    }
    int rc = kolo_device_choose(launch, &index, &mine);
    if (rc < 0) {
        report_add(r, BAD, rc, "gpu", "%s", kolo_error_text());
        return 0;
    }
    check_gpu(r, index, &mine);
    return check_shared(r, launch, &mine, options->share_gpu);
}

static int check_sum(report *r, kolo_launch *launch)
{
    kolo_comm *comm = NULL;
    int64_t sum = launch->rank + 1, want = (int64_t)launch->size * (launch->size + 1) / 2;
    int rc;
    kolo_comm_config config = {.size = sizeof(kolo_comm_config), .timeout = 30, .spin = -1};
    KOLO_TRY_GOTO(rc, kolo_comm_create(&comm, launch, &config));
    KOLO_TRY_GOTO(rc, kolo_comm_commit(comm));
    double begin = kolo_time();
    KOLO_TRY_GOTO(rc, kolo_comm_allreduce(comm, &sum, 1, KOLO_I64, KOLO_SUM));
    report_add(r, sum == want ? GOOD : BAD, KOLO_ELAUNCH, "reduce",
               "allreduce over ranks is %ld, expected %ld (%.2f ms)", (long)sum, (long)want,
               (kolo_time() - begin) * 1e3);
fail:
    kolo_comm_destroy(&comm);
    return rc;
}

int kolo_command_doctor(int n, char **words)
{
    kolo_options options;
    kolo_launch *launch;
    report r = {0};
    bool offline = kolo_command_flag(&n, words, "--offline");
    KOLO_TRY(kolo_command_words(&options, n, words, 0, NULL));
    int rc = offline ? kolo_command_alone(&launch) : kolo_command_launch(&options, &launch);
    if (rc == 0) {
        r.launch = launch;
        check_launch(&r);
        check_cores(&r);
        check_memory(&r);
        check_data(&r, "data", options.data);
        check_data(&r, "val", options.val);
        check_run(&r, options.run);
        check_environment(&r);
        rc = check_limits(&r, launch);
        if (rc >= 0) rc = check_gpus(&r, launch, &options, offline);
        if (rc < 0) { /* the others did not answer */
        } else if (offline)
            report_add(&r, GOOD, 0, "offline", "not checked: launcher, other ranks, reductions");
        else rc = check_sum(&r, launch);
    }
    kolo_options_free(&options);
    if (rc == 0 && r.worst == BAD) return kolo_fail(r.status, "a check failed; see the lines marked FAIL");
    return rc;
}
