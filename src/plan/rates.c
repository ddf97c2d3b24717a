#include "plan/rates.h"

#include <string.h>

#include "base/numbers.h"
#include "base/yaml.h"
#include "kolo/error.h"

static const kolo_number_key keys[] = {
#define KEY(name, least, most, what) {#name, offsetof(kolo_rates, name), least, most, what, true, false},
    KOLO_RATES(KEY)
#undef KEY
        {"winograd", offsetof(kolo_rates, winograd), 2, 6, "pixels, a side of a tile", false, true},
/* up to 10 of what a copy reaches: measured in part out of caches */
#define CLASS(id, name, ...)                                                                \
    {"bytes_" #name,                                                                        \
     offsetof(kolo_rates, bytes_of) + KOLO_CLASS_##id * sizeof(double),                     \
     1e-3,                                                                                  \
     10,                                                                                    \
     "of the bandwidth",                                                                    \
     false,                                                                                 \
     false},                                                                                \
        {"flops_" #name, offsetof(kolo_rates, flops_of) + KOLO_CLASS_##id * sizeof(double), \
         1e-3,           10,                                                                \
         "of the rate",  false,                                                             \
         false},                                                                            \
        {"launch_" #name,                                                                   \
         offsetof(kolo_rates, launch_of) + KOLO_CLASS_##id * sizeof(double),                \
         1e-3,                                                                              \
         1e6,                                                                               \
         "microseconds",                                                                    \
         false,                                                                             \
         false},
#include "graph/classes.def"
#undef CLASS
};
static const kolo_numbers table = {"GPU", "share/gpus", keys, sizeof keys / sizeof *keys, NULL};

static int rates_set(void *rates, const char *name, const char *text, const char *where)
{
    return kolo_numbers_set(&table, rates, name, text, where);
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
    kolo_numbers_begin(&table, rates);
}

int kolo_rates_check(const kolo_rates *rates, const char *path)
{
    return kolo_numbers_check(&table, rates, path);
}
