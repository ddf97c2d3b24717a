/* What follows from the step's number alone: learning rate, decay of the average. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"
#include "optim/optim.h"

/* `t` counts from the start of the run, warm-up included; u of cosine and polynomial runs from 0
 * after the warm-up to 1. */
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

static double exponential(const kolo_options *o, double t, double steps, double warmup, double unit)
{
    (void)steps, (void)warmup, (void)unit;
    return o->lr * pow(o->gamma, t);
}

/* SGDR (arXiv 1608.03983): a cosine from lr to lr_end, again and again. */
static double restarts(const kolo_options *o, double t, double steps, double warmup, double unit)
{
    (void)steps;
    double at = t - warmup, cycle = o->cycle * unit;
    if (o->cycle_factor == 1) at = fmod(at, cycle);
    else
        for (; at >= cycle; cycle *= o->cycle_factor) at -= cycle;
    return o->lr_end + (o->lr - o->lr_end) / 2 * (1 + cos(M_PI * at / cycle));
}

static double anneal(const kolo_options *o, double from, double to, double part)
{
    if (o->anneal == KOLO_anneal_linear) return from + (to - from) * part;
    return to + (from - to) / 2 * (1 + cos(M_PI * part));
}

/* torch's OneCycleLR with two phases: value at the start, at the top, at the end. */
static double one_cycle(const kolo_options *o, double t, double steps, double start, double top, double end)
{
    double peak = o->rise * steps - 1, last = steps - 1;
    if (t <= peak && peak > 0) return anneal(o, start, top, t / peak);
    return last > peak ? anneal(o, top, end, fmin((t - peak) / (last - peak), 1)) : end;
}

static double onecycle(const kolo_options *o, double t, double steps, double warmup, double unit)
{
    (void)warmup, (void)unit;
    return one_cycle(o, t, steps, o->lr / o->divide, o->lr, o->lr / o->divide / o->divide_end);
}

const kolo_schedule kolo_schedule_table[] = {
    {"constant", "lr throughout", constant},
    {"step", "times gamma every step_every epochs (torch StepLR)", step_down},
    {"multistep", "times gamma at each of milestones (torch MultiStepLR)", multistep},
    {"cosine", "half a cosine from lr to lr_end", cosine},
    {"exponential",
     "times gamma every step, so gamma=0.999 rather than 0.1 (torch ExponentialLR, whose steps are epochs)",
     exponential},
    {"restarts",
     "cosines from lr to lr_end of cycle epochs, each cycle_factor times longer than the one before",
     restarts},
    {"onecycle",
     "rises to lr for `rise` of the run, then falls below its start; momentum moves the other way (torch "
     "OneCycleLR)",
     onecycle},
    {"polynomial", "(1 - t/T)^power from lr to lr_end; power=1: linear", polynomial},
};
const int kolo_schedule_count = sizeof kolo_schedule_table / sizeof *kolo_schedule_table;

const kolo_schedule *kolo_schedule_find(const char *name)
{
    return kolo_optim_row("schedule", name, kolo_schedule_table, kolo_schedule_count,
                          sizeof *kolo_schedule_table);
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

double kolo_learning_rate(const kolo_options *options, double t, double steps, double unit)
{
    const kolo_schedule *schedule = kolo_schedule_find(options->schedule);
    if (!schedule) return NAN; /* kolo_optim_check refused it before the run */
    double warmup = options->warmup * unit;
    if (t < warmup) {
        if (options->warmup_shape == KOLO_warmup_shape_quadratic)
            return options->lr * (t / warmup) * (t / warmup);
        double start = options->warmup_start * options->lr;
        return start + (options->lr - start) * t / warmup;
    }
    return schedule->rate(options, t, steps - options->cooldown * unit, warmup, unit);
}

double kolo_rate_scale(const kolo_options *options, int64_t batch)
{
    double times = (double)batch / (double)options->lr_batch;
    return options->lr_scaling == KOLO_lr_scaling_linear ? times
           : options->lr_scaling == KOLO_lr_scaling_sqrt ? sqrt(times)
                                                         : 1;
}

double kolo_momentum(const kolo_options *options, double t, double steps)
{
    const kolo_optimizer *optimizer = kolo_optimizer_find(options->optimizer);
    if (!strcmp(options->schedule, "onecycle"))
        return one_cycle(options, t, steps, options->momentum_high, options->momentum_low,
                         options->momentum_high);
    return optimizer && optimizer->beta1 > 0 ? kolo_own(options->beta1, optimizer->beta1) : options->momentum;
}

double kolo_ema_decay(const kolo_options *options, int64_t update, double t, double unit)
{
    if (options->swa > 0) {
        double start = ceil(options->swa * unit), n = floor((t - start) / unit);
        if (t <= start) return 0;
        return fmod(t, unit) != 0 ? 1 : n / (n + 1);
    }
    return options->ema_ramp > 0 ? options->ema * -expm1(-(double)update / options->ema_ramp) : options->ema;
}
