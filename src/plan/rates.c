#include "plan/rates.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/yaml.h"
#include "kolo/error.h"

typedef struct key {
    const char *name;
    size_t at; /* in kolo_rates */
    double least, most;
    const char *what;
    bool wanted;
} key;

static const key keys[] = {
#define KEY(name, least, most, what) {#name, offsetof(kolo_rates, name), least, most, what, true},
    KOLO_RATES(KEY)
#undef KEY
/* up to 10 of what a copy reaches: measured in part out of caches */
#define CLASS(id, name, ...)                                                                \
    {"bytes_" #name,                                                                        \
     offsetof(kolo_rates, bytes_of) + KOLO_CLASS_##id * sizeof(double),                     \
     1e-3,                                                                                  \
     10,                                                                                    \
     "of the bandwidth",                                                                    \
     false},                                                                                \
        {"flops_" #name, offsetof(kolo_rates, flops_of) + KOLO_CLASS_##id * sizeof(double), \
         1e-3,           10,                                                                \
         "of the rate",  false},
#include "graph/classes.def"
#undef CLASS
};
enum { KEYS = sizeof keys / sizeof *keys };

static double *value_of(kolo_rates *rates, const key *k) { return (double *)((char *)rates + k->at); }

static int refuse_key(const char *name, const char *where)
{
    const char *known[KEYS];
    for (int i = 0; i < KEYS; i++) known[i] = keys[i].name;
    const char *near = kolo_nearest(name, known, KEYS);
    return kolo_fail(KOLO_ECONFIG, "%s: a table of a GPU has no key \"%s\"%s%s%s; share/gpus has examples",
                     where, name, near ? "; is \"" : "", near ? near : "", near ? "\" meant?" : "");
}

static int rates_set(void *context, const char *name, const char *text, const char *where)
{
    for (const key *k = keys; k < keys + KEYS; k++) {
        if (strcmp(k->name, name)) continue;
        char *end;
        const double value = strtod(text, &end);
        if (end == text || *end)
            return kolo_fail(KOLO_ECONFIG, "%s: %s: \"%s\" is not a number (%s)", where, name, text, k->what);
        if (!(value >= k->least && value <= k->most))
            return kolo_fail(KOLO_ECONFIG, "%s: %s: %s is out of range: %g to %g (%s)", where, name, text,
                             k->least, k->most, k->what);
        *value_of(context, k) = value;
        return 0;
    }
    return refuse_key(name, where);
}

int kolo_rates_read(kolo_rates *rates, const char *path)
{
    static const kolo_yaml_form form = {"table of a GPU", rates_set};
    return kolo_yaml_read(path, &form, rates);
}

/* launch and latency may be nothing, but have to be said. */
void kolo_rates_begin(kolo_rates *rates)
{
    memset(rates, 0, sizeof *rates);
    for (int i = 0; i < KEYS; i++)
        if (keys[i].wanted) *value_of(rates, &keys[i]) = NAN;
}

int kolo_rates_check(const kolo_rates *rates, const char *path)
{
    for (int i = 0; i < KEYS; i++) {
        double value;
        memcpy(&value, (const char *)rates + keys[i].at, sizeof value);
        if (keys[i].wanted && isnan(value))
            return kolo_fail(KOLO_ECONFIG, "%s: %s is missing (%s)", path, keys[i].name, keys[i].what);
    }
    return 0;
}
