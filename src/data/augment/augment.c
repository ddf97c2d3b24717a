#include "data/augment/augment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "kolo/error.h"

const kolo_augmentation kolo_augmentation_table[] = {
#define AUGMENT(name, help, ...) {#name, help, kolo_augment_##name, {__VA_ARGS__}},
#define P(name, standard, low, high)             \
    {                                            \
#name, standard, low, high, false, false \
    }
#define P_WHOLE(name, standard, low, high)      \
    {                                           \
#name, standard, low, high, true, false \
    }
#define P_RISES(name, standard, low, high)      \
    {                                           \
#name, standard, low, high, false, true \
    }
#include "data/augment/augment.def"
#undef AUGMENT
#undef P
#undef P_WHOLE
#undef P_RISES
};
const int kolo_augmentation_count = sizeof kolo_augmentation_table / sizeof *kolo_augmentation_table;

static int augment_find(const char *name)
{
    for (int i = 0; i < kolo_augmentation_count; i++)
        if (strcmp(kolo_augmentation_table[i].name, name) == 0) return i;
    return -1;
}

static int unknown(const char *name)
{
    const char *names[sizeof kolo_augmentation_table / sizeof *kolo_augmentation_table];
    for (int i = 0; i < kolo_augmentation_count; i++) names[i] = kolo_augmentation_table[i].name;
    const char *near = kolo_nearest(name, names, kolo_augmentation_count);
    return kolo_fail(KOLO_ECONFIG,
                     "augment: there is no augmentation `%s`%s%s%s; `kolo help augmentations` lists them",
                     name, near ? ", did you mean `" : "", near ? near : "", near ? "`?" : "");
}

static int parameter_count(const kolo_augmentation *a)
{
    int n = 0;
    while (n < KOLO_AUGMENT_PARAMETERS && a->parameter[n].name) n++;
    return n;
}

void kolo_augment_usage(const kolo_augmentation *a, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "%s", a->name);
    const int n = parameter_count(a);
    for (int i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s=%g%s", i ? ", " : "(", a->parameter[i].name,
                               a->parameter[i].standard, i == n - 1 ? ")" : "");
}

static int check_number(const kolo_augmentation *a, int i, const double *values)
{
    const kolo_augment_parameter *p = &a->parameter[i];
    const double value = values[i];
    if (!(value >= p->low && value <= p->high))
        return kolo_fail(KOLO_ECONFIG, "augment: %s: %s=%g lies outside %g to %g", a->name, p->name, value,
                         p->low, p->high);
    if (p->whole && value != floor(value))
        return kolo_fail(KOLO_ECONFIG, "augment: %s: %s=%g is no whole number", a->name, p->name, value);
    if (p->rises && value < values[i - 1])
        return kolo_fail(KOLO_ECONFIG, "augment: %s: %s=%g lies below %s=%g", a->name, p->name, value,
                         a->parameter[i - 1].name, values[i - 1]);
    return 0;
}

static const char *skip_space(const char *at) { return at + strspn(at, " \t"); }

/* The numbers of one entry, from behind its opening parenthesis; *at ends behind the closing one. */
static int read_numbers(const kolo_augmentation *a, const char **at, double *values)
{
    const int most = parameter_count(a);
    char usage[256];
    const char *p = skip_space(*at);
    kolo_augment_usage(a, usage, sizeof usage);
    for (int i = 0; *p != ')'; i++) {
        char *end;
        const double value = strtod(p, &end);
        if (i >= most)
            return kolo_fail(KOLO_ECONFIG, "augment: %s has %d parameters: %s", a->name, most, usage);
        if (end == p || !isfinite(value))
            return kolo_fail(KOLO_ECONFIG, "augment: %s: `%.*s` is no number for %s; %s", a->name,
                             (int)strcspn(p, ",) "), p, a->parameter[i].name, usage);
        values[i] = value;
        p = skip_space(end);
        if (*p == ',') {
            p = skip_space(p + 1);
            if (*p != ')') continue;
        }
        if (*p == ')') break;
        if (!*p) return kolo_fail(KOLO_ECONFIG, "augment: the parenthesis of %s is not closed", a->name);
        return kolo_fail(KOLO_ECONFIG, "augment: %s: a comma is missing at `%.20s`", a->name, p);
    }
    *at = p + 1;
    return 0;
}

static int read_entry(const char **at, kolo_augment_step *step)
{
    char name[64];
    const size_t length = strcspn(*at, ",( \t");
    if (length >= sizeof name)
        return kolo_fail(KOLO_ECONFIG, "augment: the name `%.40s...` is too long", *at);
    memcpy(name, *at, length);
    name[length] = 0;
    *step = (kolo_augment_step){.index = augment_find(name)};
    if (step->index < 0) return unknown(name);
    const kolo_augmentation *a = &kolo_augmentation_table[step->index];
    const int n = parameter_count(a);
    for (int i = 0; i < n; i++) step->parameter[i] = a->parameter[i].standard;
    *at = skip_space(*at + length);
    if (**at == '(') {
        ++*at;
        KOLO_TRY(read_numbers(a, at, step->parameter));
    }
    for (int i = 0; i < n; i++) KOLO_TRY(check_number(a, i, step->parameter));
    return 0;
}

int kolo_augment_parse(const char *text, kolo_augment_step *list, int most, int *n)
{
    *n = 0;
    for (const char *at = text ? text : ""; *(at += strspn(at, ", \t"));) {
        kolo_augment_step step;
        if (*at == '(' || *at == ')')
            return kolo_fail(KOLO_ECONFIG, "augment: `%.20s`: a name belongs before the parenthesis", at);
        KOLO_TRY(read_entry(&at, &step));
        if (*n == most) return kolo_fail(KOLO_ECONFIG, "augment: at most %d entries", most);
        for (int i = 0; i < *n; i++) step.before += list[i].index == step.index;
        list[(*n)++] = step;
    }
    return 0;
}

void kolo_augment_apply(const kolo_augment_step *list, int n, kolo_canvas *canvas, uint64_t seed,
                        int64_t pass, int64_t sample)
{
    for (int i = 0; i < n; i++) {
        kolo_random random = kolo_augment_random(seed, pass | (int64_t)list[i].before << 56, sample,
                                                 KOLO_OPERATION_AUGMENT + list[i].index);
        kolo_augmentation_table[list[i].index].apply(canvas, list[i].parameter, &random);
    }
}
