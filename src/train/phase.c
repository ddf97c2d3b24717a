#include "train/phase.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

enum { MOST = 64 }; /* entries of a ramp */

typedef struct ramp {
    int n;
    int64_t epoch[MOST], value[MOST];
} ramp;

static int parse(ramp *r, const char *key, const char *text, int64_t high)
{
    r->n = 0;
    for (const char *at = text; *at;) {
        char *end;
        int64_t epoch = strtoll(at, &end, 10), value = 0;
        bool good = end != at && *end == ':' && epoch >= 0 && (r->n == 0 || epoch > r->epoch[r->n - 1]);
        if (good) value = strtoll(at = end + 1, &end, 10), good = end != at && value > 0 && value <= high;
        if (!good || (*end && *end != ',') || (*end && !end[1]) || r->n == MOST)
            return kolo_fail(KOLO_ECONFIG,
                             "%s=%s is not a list of EPOCH:NUMBER with rising epochs, such as 0:128,6:160",
                             key, text);
        r->epoch[r->n] = epoch;
        r->value[r->n++] = value;
        at = end + (*end == ',');
    }
    return 0;
}

/* What holds in an epoch. */
static int64_t value_at(const ramp *r, int64_t epoch, int64_t value)
{
    for (int i = 0; i < r->n && r->epoch[i] <= epoch; i++) value = r->value[i];
    return value;
}

/* The next border behind an epoch, or -1. */
static int64_t border(const ramp *r, int64_t epoch)
{
    for (int i = 0; i < r->n; i++)
        if (r->epoch[i] > epoch) return r->epoch[i];
    return -1;
}

/* Reads `before` and a number of 1 to `most` at *at, which moves behind it. */
static bool read_after(const char **at, const char *before, int most, int *value)
{
    const size_t n = strlen(before);
    char *end;
    if (strncmp(*at, before, n) || (*at)[n] < '0' || (*at)[n] > '9') return false;
    const long read = strtol(*at + n, &end, 10);
    *at = end;
    *value = (int)read;
    return read > 0 && read <= most;
}

static int parse_sides(kolo_sides *s, const char *text)
{
    const char *at = text;
    *s = (kolo_sides){.step = 32, .every = 10};
    if (!*at) return 0;
    bool good = read_after(&at, "", 8192, &s->low) && read_after(&at, "-", 8192, &s->high);
    if (good && *at) good = read_after(&at, ":", 8192, &s->step);
    if (good && *at) good = read_after(&at, ":", 1 << 24, &s->every);
    if (good && !*at && s->low < s->high && (s->high - s->low) % s->step == 0) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "multi_scale=%s is not LOW-HIGH[:STEP[:EVERY]] with whole STEPs (32) from LOW to HIGH, "
                     "such as 480-800 or 320-608:32:10",
                     text);
}

int kolo_phases_parse(const kolo_options *o, kolo_phase **out, int *phases)
{
    ramp batch, size;
    kolo_sides sides;
    KOLO_TRY(parse(&batch, "batch_ramp", o->batch_ramp, 1 << 24));
    KOLO_TRY(parse(&size, "size_ramp", o->size_ramp, 8192));
    KOLO_TRY(parse_sides(&sides, o->multi_scale));
    if (sides.low && size.n)
        return kolo_fail(KOLO_ECONFIG, "multi_scale=%s and size_ramp=%s: give one of them", o->multi_scale,
                         o->size_ramp);
    if (batch.n + size.n > 0 && o->steps)
        return kolo_fail(KOLO_ECONFIG,
                         "%s counts epochs: give the length of the run in epochs=, not in steps=",
                         batch.n ? "batch_ramp" : "size_ramp");
    if (batch.n > 0 && o->batch == 0)
        return kolo_fail(KOLO_ECONFIG, "batch=auto and batch_ramp=%s: give one of them", o->batch_ramp);
    kolo_phase *p = *out = kolo_alloc((size_t)(batch.n + size.n + 1) * sizeof *p);
    if (!p) return KOLO_ENOMEM;
    *phases = 0;
    for (int64_t epoch = 0; epoch >= 0;) {
        const int side = (int)value_at(&size, epoch, 0);
        p[(*phases)++] = (kolo_phase){
            .epoch = epoch,
            .batch = value_at(&batch, epoch, o->batch),
            .sides = side ? (kolo_sides){.low = side, .high = side, .step = 1, .every = 1} : sides};
        int64_t a = border(&batch, epoch), b = border(&size, epoch);
        epoch = a < 0 || (b >= 0 && b < a) ? b : a;
    }
    return 0;
}

int kolo_phases_lay(kolo_phase *p, int phases, int64_t samples, bool pad)
{
    for (int i = 0; i < phases; i++) {
        p[i].steps_per_epoch = (samples + (pad ? p[i].batch - 1 : 0)) / p[i].batch;
        if (!p[i].steps_per_epoch)
            return kolo_fail(KOLO_ECONFIG,
                             "batch=%ld is larger than the %ld training images: lower batch, or set tail=pad",
                             (long)p[i].batch, (long)samples);
        p[i].step = i ? p[i - 1].step + (p[i].epoch - p[i - 1].epoch) * p[i - 1].steps_per_epoch : 0;
    }
    return 0;
}

int kolo_phase_at(const kolo_phase *p, int phases, int64_t step, int64_t *epoch, int64_t *within)
{
    int i = phases - 1;
    while (i > 0 && p[i].step > step) i--;
    *epoch = p[i].epoch + (step - p[i].step) / p[i].steps_per_epoch;
    *within = (step - p[i].step) % p[i].steps_per_epoch;
    return i;
}

double kolo_phase_time(const kolo_phase *p, int phases, int64_t step)
{
    int64_t epoch, within;
    int i = kolo_phase_at(p, phases, step, &epoch, &within);
    const double unit = (double)p[0].steps_per_epoch;
    return (double)epoch * unit + (double)within * (unit / (double)p[i].steps_per_epoch);
}
