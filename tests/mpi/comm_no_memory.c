/* A little of everything that the comm library does, as a program does it that ends with the first error:
 * tests/no_memory.sh lets one allocation of it after the other fail. Exit status: 0 and "sums are right", or
 * the negated status of the call that failed, with its text. */
#include "kolo/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kolo_world *world;

static int end(const char *what, int rc)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    fprintf(stderr, "status %d: %s: %s\n", rc, what, text);
    if (world) kolo_world_abort(world, text);
    if (world) kolo_world_close(&world);
    return -rc;
}

#define TRY(call)                            \
    do {                                     \
        const int rc_ = (call);              \
        if (rc_ < 0) return end(#call, rc_); \
    } while (0)

static kolo_request sum_of(const char *name, float *data, int64_t count, const char *compression)
{
    return (kolo_request){.what = KOLO_ALLREDUCE,
                          .name = name,
                          .out = data,
                          .type = KOLO_F32,
                          .dims = 1,
                          .dim = {count},
                          .compression = compression,
                          .reduce = KOLO_SUM};
}

/* Named, fused and compressed ones, submitted in one order on all ranks. */
static int named(kolo_group *group, int ranks, int *bad)
{
    enum { NAMES = 4, COUNT = 300 };
    static float data[NAMES][COUNT];
    kolo_handle handle[NAMES];
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "sum %d", i);
        for (int k = 0; k < COUNT; k++) data[i][k] = (float)i;
        const kolo_request r = sum_of(name, data[i], COUNT, i == 3 ? "fp16" : NULL);
        TRY(kolo_submit(group, &r, &handle[i]));
    }
    for (int i = 0; i < NAMES; i++) {
        TRY(kolo_wait(world, handle[i]));
        kolo_release(world, handle[i]);
        for (int k = 0; k < COUNT; k++) *bad += data[i][k] != (float)(i * ranks);
    }
    return 0;
}

static int unnamed(kolo_group *group, int ranks, int *bad)
{
    double one = 1, all[16] = {0};
    static int64_t large[20000];
    for (int i = 0; i < 20000; i++) large[i] = i;
    TRY(kolo_allreduce(group, NULL, &one, 1, KOLO_F64, KOLO_SUM));
    TRY(kolo_allreduce(group, NULL, large, 20000, KOLO_I64, KOLO_SUM));
    TRY(kolo_allgather(group, &one, all, 1, NULL, KOLO_F64));
    TRY(kolo_barrier(group));
    *bad += one != ranks || all[ranks - 1] != ranks || large[19999] != (int64_t)19999 * ranks;
    return 0;
}

int main(void)
{
    int bad = 0, rc;
    TRY(kolo_world_open(&world, NULL));
    kolo_group *all = kolo_world_group(world), *group = NULL;
    const int ranks = kolo_group_size(all), last = ranks - 1;
    if ((rc = unnamed(all, ranks, &bad)) || (rc = named(all, ranks, &bad))) return rc;
    if (ranks > 1) TRY(kolo_group_create(&group, world, &last, 1));
    if (group && kolo_group_rank(group) == 0 && (rc = named(group, 1, &bad))) return rc;
    void *object;
    size_t bytes;
    TRY(kolo_broadcast_object(all, "an object", 10, 0, &object, &bytes));
    bad += bytes != 10 || strcmp(object, "an object") != 0;
    kolo_release_object(&object);
    if (group) kolo_group_free(&group);
    kolo_world_close(&world);
    puts(bad ? "sums are wrong" : "sums are right");
    return bad ? 1 : 0;
}
