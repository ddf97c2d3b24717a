#include "base/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "kolo/error.h"

static double *value_of(void *values, const kolo_number_key *k) { return (double *)((char *)values + k->at); }

void kolo_numbers_begin(const kolo_numbers *t, void *values)
{
    for (int i = 0; i < t->keys; i++) *value_of(values, &t->key[i]) = t->key[i].wanted ? NAN : 0;
}

static int refuse_key(const kolo_numbers *t, const char *name, const char *where)
{
    enum { MOST = 128 };
    const char *known[MOST];
    int n = 0;
    if (t->other) known[n++] = t->other;
    for (int i = 0; i < t->keys && n < MOST; i++) known[n++] = t->key[i].name;
    const char *near = kolo_nearest(name, known, n);
    return kolo_fail(KOLO_ECONFIG, "%s: a table of a %s has no key \"%s\"%s%s%s; %s has examples", where,
                     t->of, name, near ? "; is \"" : "", near ? near : "", near ? "\" meant?" : "",
                     t->folder);
}

int kolo_numbers_set(const kolo_numbers *t, void *values, const char *name, const char *text,
                     const char *where)
{
    const kolo_number_key *k = t->key;
    while (k < t->key + t->keys && strcmp(k->name, name) != 0) k++;
    if (k == t->key + t->keys) return refuse_key(t, name, where);
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end)
        return kolo_fail(KOLO_ECONFIG, "%s: %s: \"%s\" is not a number (%s)", where, name, text, k->what);
    if (!(value >= k->least && value <= k->most))
        return kolo_fail(KOLO_ECONFIG, "%s: %s: %s is out of range: %g to %g (%s)", where, name, text,
                         k->least, k->most, k->what);
    if (k->whole && value != floor(value))
        return kolo_fail(KOLO_ECONFIG, "%s: %s: %s is no whole number (%s)", where, name, text, k->what);
    *value_of(values, k) = value;
    return 0;
}

int kolo_numbers_check(const kolo_numbers *t, const void *values, const char *path)
{
    for (int i = 0; i < t->keys; i++) {
        double value;
        memcpy(&value, (const char *)values + t->key[i].at, sizeof value);
        if (t->key[i].wanted && isnan(value))
            return kolo_fail(KOLO_ECONFIG, "%s: %s is missing (%s)", path, t->key[i].name, t->key[i].what);
    }
    return 0;
}
