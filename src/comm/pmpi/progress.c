/* MPI moves a rank's messages while the rank is in a call of MPI's, and a rank that waits in a collective of
 * MPI's is. In one of ours it is not, and somebody may wait for a message of it before it comes to the same
 * collective. So while a rank waits with us a thread of ours goes to MPI in its place. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/pmpi/pmpi.h"

static struct {
    MPI_Comm own; /* where no message ever is, so that MPI looks for one */
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    _Atomic uint32_t begun, ended; /* waits of this rank; begun is a futex */
    _Atomic uint32_t asleep;
} pump = {.own = MPI_COMM_NULL};

static void *pump_main(void *unused)
{
    enum { LOOKS = 8, SHORT = 20, CALM = 1000 /* us */, PATIENCE = 20, MOST = 40 };
    uint32_t last = 0;
    int calm = 0, same = 0;
    prctl(PR_SET_TIMERSLACK, 1000);
    pmpi_inside++;
    while (!pump.stop) {
        const uint32_t begun = pump.begun, ended = pump.ended;
        if (begun == ended) { /* nobody waits, and for long: a call has to wake us */
            same = 0;
            if (calm++ < PATIENCE) {
                usleep(CALM);
                continue;
            }
            pump.asleep = 1;
            if (pump.begun == begun && !pump.stop) kolo_futex_wait(&pump.begun, begun, 1, 0);
            pump.asleep = 0;
            calm = 0;
            continue;
        }
        calm = 0;
        same = ended != last ? 0 : same < MOST ? same + 1 : MOST;
        last = ended;
        for (int i = 0; i < LOOKS && same && pump.ended == ended; i++) pmpi_look();
        usleep((useconds_t)(same ? SHORT * (1 + same / 4)
                                 : CALM)); /* calls that end by themselves are let alone */
    }
    return unused;
}

void pmpi_look(void)
{
    int flag;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, pump.own, &flag, MPI_STATUS_IGNORE);
}

void pmpi_enter(void)
{
    pmpi_inside++;
    atomic_fetch_add(&pump.begun, 1);
    if (pump.asleep) kolo_futex_wake(&pump.begun);
}

void pmpi_leave(void)
{
    atomic_fetch_add(&pump.ended, 1);
    pmpi_inside--;
}

/* Collective over MPI_COMM_WORLD, as its end. */
int pmpi_pump_open(void)
{
    /* not of MPI_COMM_SELF, for which MPICH does not look elsewhere */
    PMPI_Comm_dup(MPI_COMM_WORLD, &pump.own);
    KOLO_TRY(kolo_thread_start(&pump.thread, pump_main, NULL, "kolo-pmpi"));
    pump.running = true;
    return 0;
}

void pmpi_pump_close(void)
{
    pump.stop = true;
    kolo_futex_wake(&pump.begun);
    if (pump.running) pthread_join(pump.thread, NULL);
    if (pump.own != MPI_COMM_NULL) PMPI_Comm_free(&pump.own);
}
