/* Slurm's environment alone: enough for one task, and the place to refuse many that do
 * not know of each other. */
#include "launch/method.h"

#include "kolo/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool slurm_fits(void)
{
    int rank, size;
    return kolo_slurm_step(&rank, &size);
}

static int refuse_strangers(int size)
{
    const char *type = getenv("SLURM_MPI_TYPE");
    if (kolo_method_pmix.fits())
        return kolo_fail(KOLO_ELAUNCH,
                         "launch: method slurm cannot connect %d tasks, but PMIx can; use launch=auto", size);
    char given[128] = "was given --mpi=none, or no --mpi where the site's default is none";
    if (type) snprintf(given, sizeof given, "was given --mpi=%.64s", type);
    return kolo_fail(
        KOLO_ELAUNCH,
        "launch: srun started %d tasks but they cannot find each other, every one would be rank 0 of 1: this "
        "srun %s; %s",
        size, given, kolo_launch_cure());
}

static int slurm_start(kolo_launch *launch)
{
    kolo_launch_state *state = kolo_state(launch);
    int rank, size;
    if (!kolo_slurm_step(&rank, &size))
        return kolo_fail(KOLO_ELAUNCH,
                         "launch: method slurm, but this is no task of srun (SLURM_STEP_NUM_TASKS and "
                         "SLURM_PROCID are not set); %s",
                         kolo_launch_cure());
    if (size > 1 && kolo_method_mpi.fits()) { /* srun --mpi=pmi2: MPI is what connects the tasks */
        state->method = &kolo_method_mpi;
        return state->method->start(launch);
    }
    if (size > 1) return refuse_strangers(size);
    launch->rank = 0;
    launch->size = 1;
    const char *node = getenv("SLURMD_NODENAME");
    if (node && *node) snprintf(state->me.name, sizeof state->me.name, "%s", node);
    return 0;
}

static int single_exchange(kolo_launch *launch, const void *mine, size_t bytes, void *all)
{
    (void)launch;
    memcpy(all, mine, bytes);
    return 0;
}

static void single_finish(kolo_launch *launch) { (void)launch; }

static void single_abort(kolo_launch *launch, int exit_status)
{
    (void)launch;
    (void)exit_status;
}

static bool single_fits(void) { return true; }

static int single_start(kolo_launch *launch)
{
    launch->rank = 0;
    launch->size = 1;
    return 0;
}

const kolo_method kolo_method_slurm = {
    .name = "slurm",
    .fits = slurm_fits,
    .start = slurm_start,
    .exchange = single_exchange,
    .finish = single_finish,
    .abort = single_abort,
};
const kolo_method kolo_method_single = {
    .name = "single",
    .fits = single_fits,
    .start = single_start,
    .exchange = single_exchange,
    .finish = single_finish,
    .abort = single_abort,
};
