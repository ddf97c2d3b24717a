/* The world lasts from MPI_Init to MPI_Finalize. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/library/parts.h"
#include "comm/pmpi/pmpi.h"
#include "comm/core/transport/inside.h"

#define FOREVER 3e7 /* seconds: the longest that a world waits */

struct pmpi_shim pmpi_shim;
_Thread_local int pmpi_inside;

static int open_world(kolo_world **world)
{
    MPI_Comm all = MPI_COMM_WORLD;
    /* a rank of the program may compute or read for hours before it comes to the next
     * collective, as MPI allows */
    const char *timeout = getenv("KOLO_COMM_TIMEOUT");
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .mpi_comm = &all, .timeout = timeout && *timeout ? 0 : FOREVER};
    int worst, level, rc;
    PMPI_Query_thread(&level);
    /* the program calls MPI whenever it likes, and so do threads of ours */
    rc = level == MPI_THREAD_MULTIPLE ? pmpi_comms_open()
                                      : kolo_fail(KOLO_ECONFIG, "this MPI gives no MPI_THREAD_MULTIPLE");
    if (rc == 0) rc = pmpi_pump_open();
    PMPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (worst == 0) {
        rc = kolo_world_open(world, &config);
        PMPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    if (rc < 0) fprintf(stderr, "libkolo_pmpi: %s; MPI does the work itself\n", kolo_error_text());
    if (worst < 0) {
        kolo_world_close(world);
        pmpi_pump_close();
    }
    return worst;
}

static void life_begin(void)
{
    const char *wanted = getenv("KOLO_PMPI");
    kolo_world *world = NULL;
    int all;
    if (wanted && !strcmp(wanted, "0")) return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &pmpi_shim.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &pmpi_shim.size);
    pmpi_inside++;
    if (open_world(&world) == 0) {
        pmpi_shim.comm[0]->group = kolo_world_group(world);
        pmpi_shim.one_node = pmpi_shim.comm[0]->group->one_node;
        /* ranks that wait for a core do not spin with us */
        all = !pmpi_shim.one_node || world->router->crowded || (wanted && !strcmp(wanted, "all"));
        PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        pmpi_shim.all = all;
        pmpi_shim.world = world;
    }
    pmpi_inside--;
    if (pmpi_shim.world && !pmpi_shim.all) pmpi_worth_open();
}

static void end(void)
{
    const char *report = getenv("KOLO_PMPI_REPORT");
    if (!pmpi_shim.world) return;
    pmpi_enter();
    pmpi_comms_close();
    kolo_world_close(&pmpi_shim.world);
    pmpi_leave();
    pmpi_pump_close();
    if (report && *report && strcmp(report, "0") && pmpi_shim.rank == 0) pmpi_report();
}

/* More threads than the program asks for: the library has one of its own. */
static int init(int *argc, char ***argv, int *provided)
{
    int rc = PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided);
    if (rc == MPI_SUCCESS) life_begin();
    return rc;
}

int MPI_Init(int *argc, char ***argv)
{
    int provided;
    return init(argc, argv, &provided);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)required;
    return init(argc, argv, provided);
}

int MPI_Finalize(void)
{
    end();
    return PMPI_Finalize();
}

/* MPICH's mpif.h and `use mpi` call the C functions above, `use mpi_f08` for these three PMPI's, by the names
 * that Fortran compilers make. */
void mpi_init_f08_(int *error);
void mpi_init_thread_f08_(const int *required, int *provided, int *error);
void mpi_finalize_f08_(int *error);

void mpi_init_f08_(int *error)
{
    int rc = MPI_Init(NULL, NULL);
    if (error) *error = rc;
}

void mpi_init_thread_f08_(const int *required, int *provided, int *error)
{
    int rc = MPI_Init_thread(NULL, NULL, *required, provided);
    if (error) *error = rc;
}

void mpi_finalize_f08_(int *error)
{
    int rc = MPI_Finalize();
    if (error) *error = rc;
}
