/* Which GPU is this rank's. Slurm may show a rank all GPUs of its node or only its own; the rule works with
 * both: every rank of a node publishes which GPUs it sees and how far they are from its cores, and all
 * compute the same assignment, in which no GPU is taken twice before all are taken once, and near ones are
 * taken first. Two ranks that end on one GPU (fewer GPUs than ranks, or a step that shows all ranks the same
 * one) are the caller's to refuse, by uuid, unless share_gpu=true. */
#ifndef KOLO_LAUNCH_DEVICE_H
#define KOLO_LAUNCH_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launch/launch.h"

enum { KOLO_MAX_DEVICES = 64 };
typedef struct kolo_device {
    char name[64], uuid[48], bus[24]; /* "NVIDIA H200", "GPU-…", "0000:1b:00.0" */
    int major, minor;                 /* compute capability */
    size_t memory_bytes;
} kolo_device;

/* Of libkolo_cuda.so: fills list[0..KOLO_MAX_DEVICES), returns their number, versions as 1000
 * major + 10 minor (driver 0: none). Negative: no driver, or one too old (the text says which).
 * Makes no context on any GPU. */
typedef int (*kolo_device_list)(kolo_device *list, int *driver, int *runtime);

/* Of libkolo_cuda.so, kolo_cuda_peer: 1: GPU a, of the list above, reads GPU b's memory directly; 0: it does
 * not; negative: that cannot be asked. */
typedef int (*kolo_device_peer)(int a, int b);

/* What a GPU's driver states of its limits now. */
typedef struct kolo_device_health {
    int celsius;
    double watts, limit, usual; /* of power: now, at most, by default */
    bool hot, slowed;           /* clocks are held down: by heat; by the supply of power or another brake */
} kolo_device_health;
/* Of libkolo_cuda.so, kolo_cuda_health: by NVML, which comes with the driver. KOLO_ELAUNCH: no NVML, or it
 * refuses; what it does not state is 0. */
typedef int (*kolo_device_ask)(const char *uuid, kolo_device_health *health);

/* Whether this job was given GPUs: what device=auto goes by. CUDA_VISIBLE_DEVICES decides where it is set
 * (empty, "-1", and Slurm's "NoDevFiles" of a step without GPUs mean no); else SLURM_STEP_GPUS,
 * SLURM_JOB_GPUS or GPU_DEVICE_ORDINAL with a number in it, or SLURM_GPUS_ON_NODE above 0. */
int kolo_device_granted(void);

/* What a rank publishes of itself. */
typedef struct kolo_device_view {
    /* number of GPUs, or the negative status with which it could not list them */
    int32_t status;
    /* hash of each one's uuid: the same GPU may have other numbers elsewhere */
    uint32_t uuid[KOLO_MAX_DEVICES];
    uint8_t distance[KOLO_MAX_DEVICES]; /* 1: at this rank's cores; more: further away; 0: unknown for all */
} kolo_device_view;

/* The rule, without a driver: view[ranks] of one node in rank order -> pick[ranks], an index into each rank's
 * own list (-1 where it has none). */
void kolo_device_assign(const kolo_device_view *view, int ranks, int *pick);

/* hwloc's distance from the cores this process may use to each GPU's bus; all 0 where it is unknown of
 * one. */
void kolo_device_distances(const kolo_device *list, int n, uint8_t *distance);

/* The whole of it: lists, publishes, chooses. *index for the backend, *device (may be NULL) what it is.
 * Collective over all ranks of the job. KOLO_ELAUNCH on every rank where one of them has no library, no
 * usable driver, or no GPU; the text names the node. */
int kolo_device_choose(kolo_launch *launch, int *index, kolo_device *device);

#endif
