/* What this session computes on, and how: the device, the number format, and whether it all fits there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "train/parts.h"

static const char *precision_of(const kolo_session *s)
{
    return kolo_option_find("precision")->choices[s->options->precision];
}

/* One decision for the job: a rank that was given GPUs must not compute beside one that was given none. */
static int any_granted(const kolo_session *s, bool *granted)
{
    int32_t mine = kolo_device_granted(), *all = kolo_alloc((size_t)s->launch->size * sizeof *all);
    int rc = all ? kolo_launch_exchange(s->launch, &mine, sizeof mine, all) : KOLO_ENOMEM;
    *granted = false;
    for (int r = 0; rc == 0 && r < s->launch->size; r++) *granted |= all[r] != 0;
    free(all);
    return rc;
}

/* All ranks know all GPUs, so all refuse alike. */
static int check_shared(kolo_session *s)
{
    const kolo_launch *l = s->launch;
    int rc = KOLO_ENOMEM, other = -1;
    const size_t size = sizeof s->device.uuid;
    char *all = kolo_alloc((size_t)l->size * size);
    if (!all) return rc;
    KOLO_TRY_GOTO(rc, kolo_launch_exchange(s->launch, s->device.uuid, size, all));
    s->gpu_ranks = 0;
    for (int r = 0; r < l->size; r++)
        s->gpu_ranks += l->node_of[r] == l->node && !memcmp(all + (size_t)r * size, s->device.uuid, size);
    for (int r = 1; r < l->size && !s->options->share_gpu && rc == 0; r++) {
        const char *uuid = all + (size_t)r * size;
        for (other = 0; other < r; other++)
            if (l->node_of[other] == l->node_of[r] && !memcmp(all + (size_t)other * size, uuid, size)) break;
        if (other == r) continue;
        rc = kolo_fail(
            KOLO_ELAUNCH,
            "ranks %d and %d of node %s have one GPU (%.47s): start one rank a GPU (--gpus-per-node=N with N "
            "tasks a node, without --gpu-bind), or set share_gpu=true",
            other, r, l->host_of[l->node_of[r]], uuid);
    }
fail:
    free(all);
    return rc;
}

int session_choose_device(kolo_session *s)
{
    const kolo_options *o = s->options;
    bool granted = false;
    s->gpu_ranks = 1;
    if (s->gpu) {
        snprintf(s->device.name, sizeof s->device.name, "%s", s->gpu->name);
        s->device.memory_bytes = s->gpu->memory;
        s->device.major = s->gpu->capability / 10;
        s->device.minor = s->gpu->capability % 10;
        s->cuda = true;
        return 0;
    }
    if (o->device == KOLO_device_auto) KOLO_TRY(any_granted(s, &granted));
    s->cuda = o->device == KOLO_device_cuda || granted;
    if (s->cuda) {
        KOLO_TRY(kolo_device_choose(s->launch, &s->device_index, &s->device));
        return check_shared(s);
    }
    if (o->precision == KOLO_precision_fp16 || o->precision == KOLO_precision_tf32)
        return kolo_fail(KOLO_ECONFIG, "precision=%s is for GPUs, and this runs on CPUs: set precision=%s",
                         precision_of(s), o->precision == KOLO_precision_fp16 ? "bf16" : "f32");
    return 0;
}

enum kolo_dtype session_dtype(const kolo_session *s)
{
    switch (s->options->precision) {
    case KOLO_precision_bf16: return KOLO_BF16;
    case KOLO_precision_fp16: return KOLO_F16;
    default: return KOLO_F32; /* tf32 is a way to multiply f32 */
    }
}

size_t kolo_session_taken(const kolo_session *s)
{
    const char *source;
    size_t left = s->cuda ? kolo_backend_memory(s->backend, &source) : 0;
    return left < s->device_bytes ? s->device_bytes - left : 0;
}

void session_report_device(const kolo_session *s)
{
    const char *sums = s->comm ? kolo_comm_name(s->comm) : "none";
    if (s->cuda)
        kolo_info("computing on %s (compute capability %d.%d), %s; allreduce: %s", s->device.name,
                  s->device.major, s->device.minor, precision_of(s), sums);
    else
        kolo_info("computing on CPUs (%ld threads a rank, %s), %s; allreduce: %s", (long)s->options->threads,
                  kolo_backend_version("cpu"), precision_of(s), sums);
}
