/* Ramps become phases; steps, epochs and schedules agree on where a run is. */
#include "train/phase.h"

#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"
#include "tap.h"

static int parse(const char *batch, const char *size, kolo_phase **phase, int *n)
{
    kolo_options o;
    kolo_options_default(&o);
    kolo_option_set(&o, "batch_ramp", batch, "test");
    kolo_option_set(&o, "size_ramp", size, "test");
    o.batch = 100;
    int rc = kolo_phases_parse(&o, phase, n);
    kolo_options_free(&o);
    return rc;
}

static void refused(const char *ramp)
{
    kolo_phase *p = NULL;
    int n;
    ok(parse("", ramp, &p, &n) == KOLO_ECONFIG && strstr(kolo_error_text(), "EPOCH:NUMBER"),
       "\"%s\" is refused", ramp);
    free(p);
}

static int parse_sides(const char *sides, const char *batch, const char *size, kolo_phase **phase, int *n)
{
    kolo_options o;
    kolo_options_default(&o);
    kolo_option_set(&o, "multi_scale", sides, "test");
    kolo_option_set(&o, "batch_ramp", batch, "test");
    kolo_option_set(&o, "size_ramp", size, "test");
    int rc = kolo_phases_parse(&o, phase, n);
    kolo_options_free(&o);
    return rc;
}

static void test_sides(void)
{
    static const char *const bad[] = {
        "480",      "480-",      "480-400",      "480-480",         "480-500",  "0-64",     "-64-128",
        "480-800:", "480-800:0", "480-800:32:0", "480-800:32:10:1", "480-800x", "480 -800", "32-99999"};
    kolo_phase *p = NULL;
    int n = 0, refusals = 0;
    ok(parse_sides("480-800", "1:64", "", &p, &n) == 0 && n == 2, "drawn sides beside a ramp of batches");
    for (int i = 0; i < n; i++) {
        const kolo_sides *s = &p[i].sides;
        ok(s->low == 480 && s->high == 800 && s->step == 32 && s->every == 10 && kolo_sides_count(s) == 11,
           "phase %d: 11 sides, every ten steps", i);
    }
    free(p);
    ok(parse_sides("24-56:8:3", "", "", &p, &n) == 0 && p[0].sides.low == 24 && p[0].sides.high == 56 &&
           p[0].sides.step == 8 && p[0].sides.every == 3,
       "with step and period stated");
    free(p);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        p = NULL;
        const bool refused =
            parse_sides(bad[i], "", "", &p, &n) == KOLO_ECONFIG && strstr(kolo_error_text(), "LOW-HIGH");
        if (!refused) diag("%s was taken", bad[i]);
        refusals += refused;
        free(p);
    }
    is_int(refusals, (int)(sizeof bad / sizeof *bad), "what is no range is refused");
    p = NULL;
    is_int(parse_sides("480-800", "", "0:64", &p, &n), KOLO_ECONFIG, "and one beside a size_ramp");
    free(p);
}

int main(void)
{
    test_sides();
    kolo_phase *p = NULL;
    int n = 0, wrong = 0;
    int64_t epoch, within, count[7] = {0};
    ok(parse("", "", &p, &n) == 0 && n == 1 && p[0].batch == 100 && p[0].sides.low == 0,
       "without ramps: one phase");
    is_int(kolo_phases_lay(p, n, 1000, false), 0, "laid over 1,000 images");
    for (int64_t s = 0; s < 50; s++) wrong += kolo_phase_time(p, n, s) != (double)s;
    is_int(wrong, 0, "whose time is the step");
    free(p);
    ok(parse("2:50,4:200", "0:16,2:24,3:32", &p, &n) == 0 && n == 4, "borders of both ramps: 4 phases");
    ok(p[1].epoch == 2 && p[1].batch == 50 && p[1].sides.low == 24 && p[2].epoch == 3 && p[2].batch == 50 &&
           p[2].sides.high == 32 && p[3].epoch == 4 && p[3].batch == 200 && p[3].sides.high == 32,
       "with what holds in each");
    is_int(kolo_phases_lay(p, n, 1050, false), 0, "laid over 1,050 images");
    ok(p[0].steps_per_epoch == 10 && p[1].steps_per_epoch == 21 && p[3].steps_per_epoch == 5 &&
           p[1].step == 20 && p[2].step == 41 && p[3].step == 62,
       "steps of an epoch, first steps");
    for (int64_t s = 0; s < 72; s++) {
        int i = kolo_phase_at(p, n, s, &epoch, &within);
        wrong += epoch < p[i].epoch || within >= p[i].steps_per_epoch || within != count[epoch]++;
    }
    ok(wrong == 0 && count[1] == 10 && count[2] == 21 && count[3] == 21 && count[4] == 5 && count[5] == 5,
       "every step has its epoch and place");
    ok(kolo_phase_time(p, n, 20) == 20 && kolo_phase_time(p, n, 41) == 30 &&
           kolo_phase_time(p, n, 62) == 40 && kolo_phase_time(p, n, 67) == 50,
       "schedules count epochs: ten units each");
    is_near(kolo_phase_time(p, n, 64), 44, 1e-12, "and parts of them");
    is_int(kolo_phases_lay(p, n, 150, false), KOLO_ECONFIG, "a batch larger than the data is refused");
    is_int(kolo_phases_lay(p, n, 150, true), 0, "unless it is padded");
    free(p);
    refused("5");
    refused("0:16,0:24");
    refused("3:16,1:24");
    refused("0:16,");
    refused("0:-3");
    refused("0:99999");
    refused("a:3");
    return done_testing();
}
