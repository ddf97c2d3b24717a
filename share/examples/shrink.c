/* Going on without ranks that die: srun --no-kill --kill-on-bad-exit=0 -n 4 ./shrink, over sockets between
 * nodes (KOLO_COMM_TRANSPORT=tcp). Here the last rank of the first world dies in the 10th step. */
#include <kolo/world.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { STEPS = 20, COUNT = 1000 };

static int stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_error_text());
    return 1;
}

int main(void)
{
    static float gradient[COUNT];
    const kolo_world_config config = {.size = sizeof(kolo_world_config), .transport = "tcp"};
    kolo_world *world;
    if (kolo_world_open(&world, &config) < 0) return stop("kolo_world_open");
    const int first = kolo_world_size(world);
    for (int64_t step = 0; step < STEPS;) {
        if (step == 10 && kolo_world_rank(world) == first - 1) kill(getpid(), SIGKILL);
        for (int i = 0; i < COUNT; i++) gradient[i] = 1;
        int rc = kolo_allreduce(kolo_world_group(world), NULL, gradient, COUNT, KOLO_F32, KOLO_SUM);
        if (rc == 0) {
            step++;
            continue;
        }
        if (rc != KOLO_ELAUNCH) return stop("kolo_allreduce");
        fprintf(stderr, "rank %d: %s\n", kolo_world_rank(world), kolo_error_text());
        /* 0: more than half of the ranks must be left, or two worlds might go on */
        if (kolo_world_shrink(&world, 0) < 0)
            return stop("kolo_world_shrink"); /* it prints why; start again from a checkpoint */
        /* some may have got the last sum, and others not: all go on from the earliest step */
        if (kolo_allreduce(kolo_world_group(world), NULL, &step, 1, KOLO_I64, KOLO_MIN) < 0)
            return stop("the step");
    }
    printf("rank %d of %d: %g\n", kolo_world_rank(world), kolo_world_size(world), gradient[0]);
    fflush(stdout);
    kolo_world_close(&world);
    return 0;
}
