/* What the environment says about who started this process. */
#include "launch/method.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int kolo_env_int(const char *name, int otherwise)
{
    const char *text = getenv(name);
    if (!text || *text < '0' || *text > '9') return otherwise;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return *end || errno || value > INT_MAX ? otherwise : (int)value;
}

void kolo_env_host(char *name, size_t bytes)
{
    if (gethostname(name, bytes) != 0) snprintf(name, bytes, "unknown");
    name[bytes - 1] = 0;
}

/* First line of a file under /proc, NUL ended; false where it cannot be read. */
static bool read_proc(int pid, const char *what, char *text, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    size_t n = fread(text, 1, bytes - 1, file);
    fclose(file);
    text[n] = 0;
    return n > 0;
}

/* A batch script that was submitted out of a step still carries that step's SLURM_STEP_*. Its task, though,
 * is a child of the manager of the batch step, whose title is "slurmstepd: [JOB.batch]". */
static bool task_is_batch_script(void)
{
    char text[1024];
    int task = kolo_env_int("SLURM_TASK_PID", 0), parent = 0;
    if (task <= 0 || !read_proc(task, "stat", text, sizeof text)) return false;
    const char *after = strrchr(text, ')'); /* pid (command) state ppid */
    if (!after || sscanf(after + 1, " %*c %d", &parent) != 1 || parent <= 0) return false;
    return read_proc(parent, "cmdline", text, sizeof text) && strncmp(text, "slurmstepd:", 11) == 0 &&
           strstr(text, ".batch]");
}

bool kolo_slurm_step(int *rank, int *size)
{
    *rank = kolo_env_int("SLURM_PROCID", -1);
    *size = kolo_env_int("SLURM_STEP_NUM_TASKS", -1);
    if (*rank < 0 || *size < 1 || (!getenv("SLURM_STEP_ID") && !getenv("SLURM_STEPID"))) return false;
    if (getenv("OMPI_COMM_WORLD_RANK")) return false; /* the step is of Open MPI's daemons, one a node */
    return !task_is_batch_script();
}

const char *kolo_launch_cure(void)
{
#if defined(KOLO_PMIX) && KOLO_PMIX
    return "start it by srun --mpi=pmix";
#else
    return kolo_mpi_built() ? "start it by srun --mpi=pmi2 (this build is without PMIx)"
                            : "build kolo with PMIX=1 or MPI=1 for more than one rank";
#endif
}
