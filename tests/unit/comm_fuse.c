/* Which requests that begin together are fused, and what the settings' search finds: pure functions. */
#include "comm/library/negotiate.h"
#include "tap.h"

enum { MOST = 64 };
static lib_begin begin[MOST];
static kolo_request request[MOST];
static int64_t order[MOST], start[MOST + 1], scratch[2 * MOST], n;

static void add(enum kolo_collective what, enum kolo_dtype type, enum kolo_reduce reduce, int64_t bytes,
                int64_t unit)
{
    request[n] = (kolo_request){.what = what, .type = type, .reduce = reduce};
    begin[n] = (lib_begin){.r = &request[n], .unit = unit, .rows = -1, .contributors = 4, .bytes = bytes};
    n++;
}

static const char *fuse(size_t limit, bool fixed)
{
    static char text[512];
    int64_t batches = lib_fuse(begin, n, limit, fixed, order, start, scratch);
    size_t at = 0;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t i = start[b]; i < start[b + 1]; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%ld",
                                   i > start[b] ? "+"
                                   : b          ? " "
                                                : "",
                                   (long)order[i]);
    return text;
}

static void test_kinds(void)
{
    n = 0;
    for (int i = 0; i < 6; i++) add(KOLO_ALLREDUCE, i % 2 ? KOLO_F16 : KOLO_F32, KOLO_SUM, 100, i);
    is_text(fuse(1000, false), "0+2+4 1+3+5", "kinds that alternate make two batches");
    is_text(fuse(200, false), "0+2 1+3 4 5", "no batch is larger than allowed");
    is_text(fuse(1, false), "0 1 2 3 4 5", "1 byte: nothing is fused");
    is_text(fuse(1000, true), "0 1 2 3 4 5", "fixed order: nothing is fused but bundles");
    n = 0;
    add(KOLO_ALLREDUCE, KOLO_F32, KOLO_SUM, 100, 0);
    add(KOLO_ALLREDUCE, KOLO_F32, KOLO_MAX, 100, 1);
    add(KOLO_BROADCAST, KOLO_F32, KOLO_SUM, 100, 2);
    add(KOLO_BROADCAST, KOLO_F32, KOLO_SUM, 100, 3);
    add(KOLO_ALLREDUCE, KOLO_F32, KOLO_ADASUM, 100, 4);
    add(KOLO_ALLREDUCE, KOLO_F32, KOLO_ADASUM, 100, 5);
    add(KOLO_ALLGATHER, KOLO_F32, KOLO_SUM, 100, 6);
    add(KOLO_REDUCE_SCATTER, KOLO_F32, KOLO_SUM, 100, 7);
    add(KOLO_ALLGATHER, KOLO_F32, KOLO_MAX, 100, 8);
    add(KOLO_ALLREDUCE, KOLO_F32, KOLO_SUM, 100, 9);
    add(KOLO_BROADCAST, KOLO_I64, KOLO_SUM, 100, 10);
    request[3].root = 1;
    is_text(fuse(1000, false), "0+9 1 2+10 3 4 5 6+8 7",
            "only the same reduction; Adasum alone; an allgather reduces nothing; broadcasts of one root are "
            "bytes");
}

static void test_differences(void)
{
    n = 0;
    for (int i = 0; i < 8; i++) add(KOLO_ALLREDUCE, KOLO_F32, KOLO_SUM, 8, i);
    request[1].postscale = .5;
    request[2].postscale = 1; /* as 0 */
    request[3].compression = "bf16";
    request[4].compression = "fp16";
    request[5].compression = "bf16";
    begin[6].contributors = 3;
    request[7].prescale = 2;
    is_text(fuse(1000, false), "0+2 1 3+5 4 6 7",
            "factors and who contributes must be the same; so must the compression");
}

static void test_bundles(void)
{
    n = 0;
    for (int i = 0; i < 3; i++) add(KOLO_ALLREDUCE, KOLO_F32, KOLO_SUM, 100, i);
    for (int i = 0; i < 4; i++) add(KOLO_ALLREDUCE, i == 2 ? KOLO_F16 : KOLO_F32, KOLO_SUM, 100, 3);
    add(KOLO_ALLREDUCE, KOLO_F32, KOLO_SUM, 100, 4);
    is_text(fuse(400, false), "0+1+2 3+4+6+7 5", "a bundle is not torn apart");
    is_text(fuse(250, false), "0+1 2 3+4+6 5 7", "not even if it is too large");
    is_text(fuse(1000, true), "0 1 2 3+4+6 5 7", "fixed order: bundles are fused");
}

/* A machine on which one setting is best; noise is a fraction. */
static double speed(const lib_tune *t, double noise, int i)
{
    double f = log2((double)lib_tune_fusion(t) / (1 << 24)), c = lib_tune_cycle(t) * 1e3 - 1;
    return 1e9 / (1 + .05 * f * f + .3 * c * c) * (1 + noise * ((i * 7919 % 101) / 50. - 1));
}

static void test_tune(void)
{
    for (int noisy = 0; noisy < 2; noisy++) {
        lib_tune t;
        double now = 0;
        int changes = 0, i = 0;
        lib_tune_begin(&t, 64 << 20, 0);
        /* a step of 100 MB in five parts, the first of which comes back */
        for (; i < 20000 && !t.settled; i++) {
            changes += lib_tune_note(&t, 20 << 20, i % 5 == 0, now);
            now += (20 << 20) / speed(&t, noisy * .01, i);
        }
        ok(t.settled && lib_tune_fusion(&t) == 1 << 24 && fabs(lib_tune_cycle(&t) - 1e-3) < 1e-9,
           "settles on the best setting%s: %zu bytes, %g s, after %d tries", noisy ? " with noise" : "",
           lib_tune_fusion(&t), lib_tune_cycle(&t), changes);
        ok(noisy || (fabs(t.best_score - speed(&t, 0, 0)) < 1e-3 * t.best_score &&
                     fabs(t.best_step - (100 << 20) / speed(&t, 0, 0)) < 1e-2 * t.best_step),
           "and knows bytes per second and the time of a step");
    }
    lib_tune t;
    lib_tune_begin(&t, 64 << 20, 0);
    bool changed = false;
    for (int i = 0; i < 1000; i++) changed |= lib_tune_note(&t, 100, false, i);
    ok(!changed && lib_tune_fusion(&t) == 64 << 20, "without a name that comes back nothing is tried");
}

int main(void)
{
    test_kinds();
    test_differences();
    test_bundles();
    test_tune();
    return done_testing();
}
