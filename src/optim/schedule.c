/* What follows from the step's number alone: learning rate, decay of the average. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"
#include "optim/optim.h"

/* `t` counts from the start of the run, warm-up included; u of cosine and polynomial runs from 0 after the warm-up to 1. */
static double progress(double t, double steps, double warmup)
{
    double whole = steps - warmup;
    return whole > 0 ? fmin((t - warmup) / whole, 1) : 1;
}

static double constant(const kolo_options *o, double t, double steps, double warmup, double unit)
{
    (void)t, (void)steps, (void)warmup, (void)unit;
    return o->lr;
}

static double step_down(const kolo_options *o, double t, double steps, double warmup, double unit)
{
    (void)steps, (void)warmup;
    return o->lr * pow(o->gamma, floor(t / (o->step_every * unit) + 1e-9));
}

static double multistep(const kolo_options *o, double t, double steps, double warmup, double unit)
{
    (void)steps, (void)warmup;
    int passed = 0;
    for (const char *at = o->milestones; *at;) {
        char *end;
        double milestone = strtod(at, &end);
        if (end == at) break;
        passed += t >= milestone * unit - 1e-6;
        at = end + (*end == ',');
    }
    return o->lr * pow(o->gamma, passed);
}

static double cosine(const kolo_options *o, double t, double steps, double warmup, double unit)
{
    (void)unit;
    return o->lr_end + (o->lr - o->lr_end) / 2 * (1 + cos(M_PI * progress(t, steps, warmup)));
}

static double polynomial(const kolo_options *o, double t, double steps, double warmup, double unit)
{
    (void)unit;
    return (o->lr - o->lr_end) * pow(1 - progress(t, steps, warmup), o->power) + o->lr_end;
}

const kolo_schedule kolo_schedule_table[] = {
    {"constant", "lr throughout", constant},
    {"step", "times gamma every step_every epochs (torch StepLR)", step_down},
    {"multistep", "times gamma at each of milestones (torch MultiStepLR)", multistep},
    {"cosine", "half a cosine from lr to lr_end", cosine},
    {"polynomial", "(1 - t/T)^power from lr to lr_end; power=1: linear", polynomial},
};
const int kolo_schedule_count = sizeof kolo_schedule_table / sizeof *kolo_schedule_table;

const kolo_schedule *kolo_schedule_find(const char *name)
{
    const char *names[sizeof kolo_schedule_table / sizeof *kolo_schedule_table];
    for (int i = 0; i < kolo_schedule_count; i++) {
        names[i] = kolo_schedule_table[i].name;
        if (!strcmp(names[i], name)) return &kolo_schedule_table[i];
    }
    const char *nearest = kolo_nearest(name, names, kolo_schedule_count);
    kolo_fail(KOLO_ECONFIG,
              nearest ? "unknown schedule \"%s\"; did you mean \"%s\"?"
                      : "unknown schedule \"%s\"; `kolo help schedules` lists them%s",
              name, nearest ? nearest : "");
    return NULL;
}

int kolo_milestones_check(const char *milestones)
{
    double last = -1;
    for (const char *at = milestones; *at;) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || !(value > last) || (*end && *end != ',') || (*end == ',' && !end[1]))
            return kolo_fail(KOLO_ECONFIG, "milestones: \"%s\" is not a list of rising numbers like 30,60,80",
                             milestones);
        last = value;
        at = end + (*end == ',');
    }
    return 0;
}

double kolo_learning_rate(const kolo_options *options, int64_t step, int64_t steps, int64_t steps_per_epoch)
{
    const kolo_schedule *schedule = kolo_schedule_find(options->schedule);
    if (!schedule) return NAN; /* kolo_optim_check refused it before the run */
    double t = (double)step, unit = (double)steps_per_epoch, warmup = options->warmup * unit;
    if (t < warmup) {
        double start = options->warmup_start * options->lr;
        return start + (options->lr - start) * t / warmup;
    }
    return schedule->rate(options, t, (double)steps, warmup, unit);
}

double kolo_ema_decay(const kolo_options *options, int64_t t)
{
    return options->ema_ramp > 0 ? options->ema * -expm1(-(double)t / options->ema_ramp) : options->ema;
}
