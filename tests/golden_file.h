/* Golden files, tests/golden: figures of other programs for tensors that both sides make from a formula (a
 * name, a seed, an index). The form is described in the README beside them. A case is JSON and states its
 * seed; a quantity is whole, a summary, or a number. */
#ifndef TESTS_GOLDEN_FILE_H
#define TESTS_GOLDEN_FILE_H

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "kolo/error.h"
#include "tap.h"

#pragma GCC diagnostic ignored "-Wunused-function"

/* from the root of the sources, where all tests run */
#define GOLDEN_FOLDER "tests/golden"

/* ---- the formula ---- */

static const uint64_t golden_stride = 0x9E3779B97F4A7C15ull;

static uint64_t golden_base(const char *name, uint64_t seed)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3ull;
    return h ^ seed * golden_stride;
}

static uint64_t golden_z(uint64_t base, int64_t i)
{
    uint64_t z = base + (uint64_t)(i + 1) * golden_stride;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static double golden_u(uint64_t base, int64_t i) { return (double)(golden_z(base, i) >> 40) * 0x1p-24 - 0.5; }

static void golden_fill(const char *name, uint64_t seed, double a, double b, float *values, int64_t n)
{
    double fa = (double)(float)a, fb = (double)(float)b;
    uint64_t base = golden_base(name, seed);
    for (int64_t i = 0; i < n; i++) values[i] = (float)(fa + fb * golden_u(base, i));
}

static const double golden_unit = 3.46410161513775458705; /* 2 sqrt(3): variance 1 */

static bool golden_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* a and b of a state-dict entry. */
static void golden_coefficients(const char *name, int rank, const int64_t *dim, double gain, double *a,
                                double *b)
{
    *a = golden_ends(name, "layer_scale") ? 0.5 : golden_ends(name, "running_var") ? 1 : 0;
    if (golden_ends(name, "relative_position_bias_table") || golden_ends(name, "running_var")) *b = 0.5;
    else if (golden_ends(name, "layer_scale") || golden_ends(name, "running_mean") ||
             golden_ends(name, "bias"))
        *b = 0.2;
    else if (rank == 1) {
        *a = 1;
        *b = 0.2;
    } else {
        double fan_in = 1;
        for (int k = 1; k < rank; k++) fan_in *= (double)dim[k];
        *b = golden_unit * sqrt(gain / fan_in);
    }
}

static void golden_labels(const char *name, uint64_t seed, int64_t classes, int32_t *label, int64_t n)
{
    uint64_t base = golden_base(name, seed);
    for (int64_t i = 0; i < n; i++) label[i] = (int32_t)(golden_z(base, i) % (uint64_t)classes);
}

/* ---- reading ---- */

static cJSON *golden_read(const char *path) /* NULL: not there or no JSON */
{
    char *text = NULL;
    if (kolo_file_read(path, &text, NULL) < 0) return NULL;
    cJSON *json = cJSON_Parse(text);
    free(text);
    return json;
}

static const cJSON *golden_at(const cJSON *in, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(in, key);
}
static double golden_number(const cJSON *in, const char *key, double otherwise)
{
    const cJSON *n = golden_at(in, key);
    return cJSON_IsNumber(n) ? n->valuedouble : cJSON_IsBool(n) ? (double)cJSON_IsTrue(n) : otherwise;
}
static const char *golden_text(const cJSON *in, const char *key, const char *otherwise)
{
    const cJSON *n = golden_at(in, key);
    return cJSON_IsString(n) ? n->valuestring : otherwise;
}
/* Of the numbers that both sides make; a case that states none is no case. */
static uint64_t golden_seed(const cJSON *kase)
{
    const cJSON *seed = golden_at(kase, "seed");
    if (!cJSON_IsNumber(seed)) ok(0, "%s states its seed", golden_text(kase, "case", "a golden file"));
    return cJSON_IsNumber(seed) ? (uint64_t)seed->valuedouble : 0;
}

/* What this program calls a network of the files: "resnet20_cifar_B" is resnet20 with shortcut b,
 * "resnet50_10_classes" is resnet50, whose number of classes stands in the entry. shortcut: "a", "b", or NULL
 * where the name has none. */
static void golden_network(const char *entry, char name[64], const char **shortcut)
{
    snprintf(name, 64, "%.60s", entry);
    size_t end = strlen(name);
    if (golden_ends(name, "_classes")) {
        end -= strlen("_classes");
        while (end > 0 && isdigit((unsigned char)name[end - 1])) end--;
        if (end > 0 && name[end - 1] == '_') name[end - 1] = 0;
    }
    char *cifar = strstr(name, "_cifar");
    *shortcut = !cifar || !cifar[6] ? NULL : !strcmp(cifar, "_cifar_B") ? "b" : "a";
    if (cifar) *cifar = 0;
}

static int golden_dims(const cJSON *list, int64_t *dim) /* rank */
{
    int rank = 0;
    const cJSON *n;
    cJSON_ArrayForEach(n, list) dim[rank++] = (int64_t)n->valuedouble;
    return rank;
}

/* ---- comparing ---- */

typedef struct golden_worst {
    double share;
    char what[160];
    int compared;
} golden_worst; /* distance over what is allowed */

/* Our distances over the reference's own between f32 and f64, one a tensor, of the case at hand; then the
 * middle one of each case. */
static struct {
    double *part, *kase;
    int parts, kases;
} golden_ratio;

static void golden_keep(double **list, int *count, double value)
{
    *list = realloc(*list, (size_t)(*count + 1) * sizeof **list);
    (*list)[(*count)++] = value;
}

static int golden_rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double golden_middle(double *list, int count)
{
    qsort(list, (size_t)count, sizeof *list, golden_rising);
    return count ? list[count / 2] : 0;
}

static void golden_case_ends(const char *label)
{
    if (!golden_ratio.parts) return;
    const double middle = golden_middle(golden_ratio.part, golden_ratio.parts);
    diag("%s: %.2f of the reference's own distance (the middle one of %d)", label, middle,
         golden_ratio.parts);
    golden_keep(&golden_ratio.kase, &golden_ratio.kases, middle);
    golden_ratio.parts = 0;
}

static void golden_cases_end(void)
{
    if (golden_ratio.kases)
        diag("%.2f of the reference's own distance in the middle one of %d cases",
             golden_middle(golden_ratio.kase, golden_ratio.kases), golden_ratio.kases);
    free(golden_ratio.part);
    free(golden_ratio.kase);
}

/* distance: of a whole tensor, relative to its norm. A single dot with uniform numbers is a guess at it: as
 * often above as below. */
static void golden_ratio_note(const cJSON *record, double distance, bool dot)
{
    const double theirs = golden_number(record, "rel_l2", 0);
    if (theirs > 0 && isfinite(distance))
        golden_keep(&golden_ratio.part, &golden_ratio.parts,
                    distance / theirs * (dot ? sqrt(12) / 0.6745 : 1));
}

static void golden_note(golden_worst *w, const char *what, double distance, double allowed)
{
    double share = isfinite(distance) ? distance / allowed : INFINITY;
    w->compared++;
    if (share <= w->share) return;
    w->share = share;
    snprintf(w->what, sizeof w->what, "%.100s: %.3g, allowed %.3g", what, distance, allowed);
}

/* The looser figures by which a case is judged once an input of a ReLU that lies within rounding of 0 has
 * taken the other side. */
static double golden_loose;

static double golden_tolerance(const cJSON *record, const char *key)
{
    double t = 8 * golden_number(record, key, 0);
    t = t > golden_loose ? t : golden_loose;
    return t > 1e-6 ? t : 1e-6;
}

static void golden_scalar(golden_worst *w, const cJSON *record, const char *what, double value)
{
    double want = golden_number(record, "f64", NAN);
    golden_note(w, what, fabs(value - want) / (fabs(want) > 0 ? fabs(want) : 1),
                golden_tolerance(record, "rel"));
}

/* Values of a record, whole or summary, on the scale of its l2 norm. The probe's name is `name` unless
 * the record states one. */
static void golden_values(golden_worst *w, const cJSON *record, const char *name, uint64_t seed,
                          const double *value, int64_t n)
{
    double allowed = golden_tolerance(record, "rel_l2"), sum = 0, far = 0;
    const cJSON *f64 = golden_at(record, "f64"), *item;
    if (cJSON_IsArray(f64)) {
        int64_t i = 0;
        if (cJSON_GetArraySize(f64) != n) {
            golden_note(w, name, INFINITY, allowed);
            return;
        }
        cJSON_ArrayForEach(item, f64)
        {
            sum += item->valuedouble * item->valuedouble;
            far += (value[i] - item->valuedouble) * (value[i] - item->valuedouble);
            i++;
        }
        golden_note(w, name, sqrt(far) / (sum > 0 ? sqrt(sum) : 1), allowed);
        golden_ratio_note(record, sqrt(far) / (sum > 0 ? sqrt(sum) : 1), false);
        return;
    }
    char probe[300], what[300];
    double l2 = golden_number(f64, "l2", NAN), dot = 0, count = 1;
    int64_t dim[8], i = 0;
    int rank = golden_dims(golden_at(record, "shape"), dim);
    for (int k = 0; k < rank; k++) count *= (double)dim[k];
    snprintf(probe, sizeof probe, "%.250s.probe", golden_text(record, "probe", name));
    uint64_t base = golden_base(probe, seed);
    for (int64_t k = 0; k < n; k++) {
        sum += value[k] * value[k];
        dot += value[k] * golden_u(base, k);
    }
    double scale = l2 > 0 ? l2 : 1;
    snprintf(what, sizeof what, "%.200s (l2)", name);
    golden_note(w, what, count == (double)n ? fabs(sqrt(sum) - l2) / scale : INFINITY, allowed);
    snprintf(what, sizeof what, "%.200s (dot)", name);
    golden_note(w, what, fabs(dot - golden_number(f64, "dot", NAN)) / scale, allowed);
    golden_ratio_note(record, fabs(dot - golden_number(f64, "dot", NAN)) / scale, true);
    snprintf(what, sizeof what, "%.200s (first values)", name);
    cJSON_ArrayForEach(item, golden_at(f64, "first"))
    {
        golden_note(w, what, fabs(value[i] - item->valuedouble) / scale, allowed);
        i++;
    }
}

static void golden_floats(golden_worst *w, const cJSON *record, const char *name, uint64_t seed,
                          const float *value, int64_t n)
{
    double *wide = malloc((size_t)(n + 1) * sizeof *wide);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)value[i];
    golden_values(w, record, name, seed, wide, n);
    free(wide);
}

static void golden_result(const char *kase, const char *part, const golden_worst *w)
{
    ok(w->compared > 0 && w->share <= 1, "%s %s: %d comparisons, worst at %.0f %% of what is allowed (%s)",
       kase, part, w->compared, 100 * w->share, w->what);
}

#endif
