/* Named sums in any order, as a training loop would ask for them: srun --mpi=pmix -n 4 ./named */
#include <kolo/world.h>
#include <stdio.h>

enum { TENSORS = 3, COUNT = 1000 };

static int stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_error_text());
    return 1;
}

int main(void)
{
    static float gradient[TENSORS][COUNT];
    kolo_world *world;
    kolo_handle handle[TENSORS];
    char name[TENSORS][16];
    if (kolo_world_open(&world, NULL) < 0) return stop("kolo_world_open");
    int rank = kolo_world_rank(world), size = kolo_world_size(world);
    for (int k = 0; k < TENSORS; k++) {
        int t = (k + rank) % TENSORS; /* another order on every rank */
        snprintf(name[t], sizeof name[t], "layer.%d", t);
        for (int i = 0; i < COUNT; i++) gradient[t][i] = (float)(rank + t);
        kolo_request r = {.what = KOLO_ALLREDUCE,
                          .name = name[t],
                          .out = gradient[t],
                          .type = KOLO_F32,
                          .dims = 1,
                          .dim = {COUNT},
                          .reduce = KOLO_AVERAGE};
        if (kolo_submit(kolo_world_group(world), &r, &handle[t]) < 0) return stop(name[t]);
    }
    for (int t = 0; t < TENSORS; t++)
        if (kolo_wait(world, handle[t]) < 0) return stop(name[t]);
    if (rank == 0)
        printf("%d ranks: averages %g %g %g\n", size, gradient[0][0], gradient[1][0], gradient[2][0]);
    kolo_world_close(&world);
    return 0;
}
