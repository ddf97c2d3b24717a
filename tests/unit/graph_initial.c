/* Initial values: distribution, determinism, independence of name, seed and order. */
#include "graph/graph.h"
#include "tap.h"

enum { N = 200000 };

static kolo_tensor tensor(char *name, enum kolo_init_kind kind, double a)
{
    return (kolo_tensor){.name = name, .init = {kind, a}};
}

static void moments(const kolo_tensor *t, uint64_t seed, double *mean, double *var, double *fourth,
                    double *largest)
{
    double s1 = 0, s2 = 0, s4 = 0, top = 0;
    for (int64_t i = 0; i < N; i++) {
        double v = kolo_initial_value(t, seed, i);
        s1 += v;
        s2 += v * v;
        s4 += v * v * v * v;
        if (fabs(v) > top) top = fabs(v);
    }
    *mean = s1 / N;
    *var = s2 / N - *mean * *mean;
    *fourth = s4 / N;
    *largest = top;
}

static double correlation(const kolo_tensor *a, uint64_t sa, const kolo_tensor *b, uint64_t sb, int64_t shift)
{
    double sum = 0;
    for (int64_t i = 0; i < N; i++)
        sum += (double)kolo_initial_value(a, sa, i) * kolo_initial_value(b, sb, i + shift);
    return sum / N;
}

int main(void)
{
    char first[] = "layer1.0.conv1.weight", second[] = "layer1.0.conv2.weight";
    double mean, var, fourth, largest, root = 1 / sqrt(N);
    kolo_tensor normal = tensor(first, KOLO_INIT_NORMAL, 1), other = tensor(second, KOLO_INIT_NORMAL, 1);
    moments(&normal, 1, &mean, &var, &fourth, &largest);
    is_near(mean, 0, 4 * root, "normal: mean within 4 sigma");
    is_near(var, 1, 4 * sqrt(2) * root, "variance within 4 sigma");
    is_near(fourth, 3, 4 * sqrt(96) * root, "fourth moment within 4 sigma");
    ok(largest > 3.7 && largest < 6.5, "the largest of %d is likely: %.3f", N, largest);
    kolo_tensor uniform = tensor(first, KOLO_INIT_UNIFORM, 0.5);
    moments(&uniform, 1, &mean, &var, &fourth, &largest);
    is_near(mean, 0, 4 * sqrt(1. / 12) * root, "uniform: mean within 4 sigma");
    is_near(var, 1. / 12, 4 * sqrt(1. / 180) * root, "variance within 4 sigma");
    ok(largest <= 0.5 && largest > 0.4999, "the bound is reached and kept: %.6f", largest);
    is_near(correlation(&normal, 1, &other, 1, 0), 0, 4 * root, "two names are independent");
    is_near(correlation(&normal, 1, &normal, 2, 0), 0, 4 * root, "two seeds are independent");
    is_near(correlation(&normal, 1, &normal, 1, 1), 0, 4 * root, "neighbours are independent");
    float before = kolo_initial_value(&normal, 7, 12345),
          far = kolo_initial_value(&normal, 7, INT64_C(1) << 40);
    for (int64_t i = 99; i > 0; i--) (void)kolo_initial_value(&other, 8, i);
    ok(before == kolo_initial_value(&normal, 7, 12345), "a value does not depend on what was asked before");
    ok(isfinite(far) && far != kolo_initial_value(&normal, 7, 0), "indices beyond 2^32 count");
    kolo_tensor half = tensor(first, KOLO_INIT_NORMAL, 0.5);
    ok(kolo_initial_value(&half, 7, 12345) == 0.5f * before, "the deviation is a factor");
    kolo_tensor constant = tensor(first, KOLO_INIT_CONSTANT, 1);
    ok(kolo_initial_value(&constant, 3, 9) == 1, "constants are constant");
    return done_testing();
}
