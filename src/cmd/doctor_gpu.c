/* kolo doctor: GPUs. A failure where the job was given some or device=cuda asks for them, else a remark. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/plugin.h"
#include "base/thread.h"
#include "cmd/doctor.h"
#include "comm/buckets/reducer.h"
#include "kolo/error.h"
#include "launch/device.h"
#include "ops/backend.h"

/* What the ways of gradients between GPUs say of themselves: a version, or why not. */
static void report_reducers(doctor *d)
{
    char note[128] = "";
    const kolo_reducer_type *const *row = kolo_cuda_symbol("kolo_cuda_reducer");
    for (; row && *row; row++) {
        const bool ready = !(*row)->ready || (*row)->ready(note, sizeof note) == 0;
        if (ready && *note)
            doctor_add(d, GOOD, 0, "reducer", "gradients may travel by %s %s", (*row)->name, note);
        if (!ready)
            doctor_add(d, WARN, 0, "reducer", "gradients cannot travel by %s, but through host memory: %s",
                       (*row)->name, kolo_error_text());
        *note = 0;
    }
}

/* Opens the backend on it: streams, cuDNN, cuBLASLt and a first kernel. */
static void check_gpu(doctor *d, int index, const kolo_device *device)
{
    kolo_backend *backend = NULL;
    kolo_backend_config config = {.threads = 1, .device = index};
    const char *place = "";
    double begin = kolo_time();
    int rc = kolo_backend_create(&backend, "cuda", &config);
    if (rc < 0) doctor_add(d, BAD, rc, "gpu", "%s", kolo_error_text());
    else {
        size_t bytes = kolo_backend_memory(backend, &place);
        doctor_add(d, GOOD, 0, "gpu",
                   "this rank's is %s, %s, capability %d.%d: %.1f of %.1f GiB may be used; opened in %.0f ms",
                   place, device->uuid, device->major, device->minor, (double)bytes / 0x1p30,
                   (double)device->memory_bytes / 0x1p30, (kolo_time() - begin) * 1e3);
    }
    kolo_backend_destroy(&backend);
}

/* Two ranks with one GPU: said by the later one. Collective. */
static int check_shared(doctor *d, const kolo_device *mine, bool allowed)
{
    kolo_launch *launch = d->launch;
    kolo_device *all = kolo_alloc((size_t)launch->size * sizeof *all);
    int rc = all ? kolo_launch_exchange(launch, mine, sizeof *mine, all) : KOLO_ENOMEM, gpus = 0;
    for (int rank = 0; rc >= 0 && rank < launch->size; rank++) {
        int first = 0;
        while (strcmp(all[first].uuid, all[rank].uuid) != 0) first++;
        gpus += first == rank;
        if (rank == launch->rank && first < rank)
            doctor_add(
                d, allowed ? WARN : BAD, KOLO_ECONFIG, "gpu",
                "%s is rank %d's too\tgive every rank its own (--gpus-per-node), or set share_gpu=true",
                mine->uuid, first);
    }
    if (rc >= 0) doctor_add(d, GOOD, 0, "gpu", "%d ranks use %d GPUs", launch->size, gpus);
    free(all);
    return rc;
}

static void list_gpus(doctor *d, const kolo_device *list, int n)
{
    uint8_t distance[KOLO_MAX_DEVICES];
    kolo_device_distances(list, n, distance);
    for (int i = 0; i < n; i++)
        doctor_add(d, GOOD, 0, "gpu", "%d: %s, %.1f GiB, capability %d.%d, %s, %s, distance %d", i,
                   list[i].name, (double)list[i].memory_bytes / 0x1p30, list[i].major, list[i].minor,
                   list[i].bus, list[i].uuid, distance[i]);
}

/* Which of the node's GPUs read each other's memory directly. A table where some do and some do not. */
static void check_peers(doctor *d, int n)
{
    void *symbol = kolo_cuda_symbol("kolo_cuda_peer");
    kolo_device_peer peer;
    memcpy(&peer, &symbol, sizeof peer);
    int pairs = 0, direct = 0;
    char lacking[512] = "";
    for (int a = 0; peer && a < n; a++)
        for (int b = 0; b < n; b++) {
            if (a == b) continue;
            pairs++;
            if (peer(a, b) > 0) direct++;
            else kolo_append(lacking, sizeof lacking, "%s%d-%d", *lacking ? ", " : "", a, b);
        }
    if (pairs == 0) return;
    if (direct == pairs) doctor_add(d, GOOD, 0, "p2p", "all %d GPUs read each other's memory directly", n);
    else
        doctor_add(d, WARN, 0, "p2p",
                   "GPUs %s cannot read each other's memory: what they exchange goes through the host\tlet "
                   "every task see all GPUs of its node (--gpus-per-node, no --gpus-per-task); in a virtual "
                   "machine or with an IOMMU that isolates them see the site's support (ACS)",
                   lacking);
}

static void check_health(doctor *d, const kolo_device *list, int n)
{
    void *symbol = kolo_cuda_symbol("kolo_cuda_health");
    kolo_device_ask ask;
    memcpy(&ask, &symbol, sizeof ask);
    for (int i = 0; ask && i < n; i++) {
        kolo_device_health h;
        if (ask(list[i].uuid, &h) < 0) {
            doctor_add(d, GOOD, 0, "thermal", "limits of GPUs are not readable: %s", kolo_error_text());
            return;
        }
        const bool trouble = h.hot || h.slowed;
        doctor_add(d, trouble ? WARN : GOOD, 0, trouble && h.hot ? "thermal" : "power",
                   "GPU %d: %d degrees Celsius, %.0f W of at most %.0f W%s%s%s", i, h.celsius, h.watts,
                   h.limit, h.hot ? ", slowed by its heat" : "", h.slowed ? ", slowed by its supply" : "",
                   trouble ? "\tsee the node's cooling and power supply; leave it out until then (sbatch "
                             "--exclude)"
                           : "");
        if (h.limit > 0 && h.limit < h.usual * 0.99)
            doctor_add(d, WARN, 0, "power",
                       "GPU %d is limited to %.0f W, its default is %.0f W\tmeant? nvidia-smi -pl", i,
                       h.limit, h.usual);
    }
}

int doctor_check_gpus(doctor *d)
{
    kolo_launch *launch = d->launch;
    const kolo_options *options = d->options;
    kolo_device list[KOLO_MAX_DEVICES], mine;
    bool asked = options->device == KOLO_device_cuda, given = kolo_device_granted();
    int driver = 0, runtime = 0, index;
    if (options->device == KOLO_device_cpu) return 0;
    void *symbol = kolo_cuda_symbol("kolo_cuda_devices");
    kolo_device_list devices;
    memcpy(&devices, &symbol, sizeof devices);
    int n = symbol ? devices(list, &driver, &runtime) : KOLO_ELAUNCH;
    if (!asked && !given) {
        if (n > 0) list_gpus(d, list, n);
        doctor_add(d, GOOD, 0, "gpu", "this job was given none, so device=auto computes on CPUs%s%s",
                   n > 0   ? "; device=cuda would use those above"
                   : n < 0 ? ": "
                           : "",
                   n < 0 ? kolo_error_text() : "");
        return 0;
    }
    if (n > 0) {
        doctor_add(d, GOOD, 0, "cuda", "%s; driver for CUDA up to %d.%d", kolo_backend_version("cuda"),
                   driver / 1000, driver % 1000 / 10);
        report_reducers(d);
        list_gpus(d, list, n);
        if (launch->local_rank == 0) {
            check_peers(d, n);
            check_health(d, list, n);
        }
    }
    if (d->offline) { /* a login node need not have what the job will have */
        if (n < 0) doctor_add(d, asked ? BAD : WARN, n, "gpu", "%s", kolo_error_text());
        return 0;
    }
    int rc = kolo_device_choose(launch, &index, &mine);
    if (rc < 0) {
        doctor_add(d, BAD, rc, "gpu", "%s", kolo_error_text());
        return 0;
    }
    check_gpu(d, index, &mine);
    return check_shared(d, &mine, options->share_gpu);
}
