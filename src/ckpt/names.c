#include "ckpt/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "ckpt/reader.h"
#include "kolo/error.h"

/* A row that begins a map has no patterns; its rules follow. */
struct name_map {
    int names; /* KOLO_names_* */
    const char *family;
    const char *theirs, *ours;
    enum name_shape shape;
};
static const name_map table[] = {
#define MAP(who, what) {.names = KOLO_names_##who, .family = what},
#define RULE(a, b, form) {.theirs = a, .ours = b, .shape = name_shape_##form},
#include "ckpt/names.def"
#undef MAP
#undef RULE
    {.family = "end"},
};
enum { ROWS = sizeof table / sizeof *table - 1 };

/* ---- patterns ---- */

typedef struct bound {
    int64_t value[26];
    uint32_t set; /* bit by letter */
    const char *rest;
} bound;

/* {2s+1}: factor, letter, offset; returns what is behind it. */
static const char *read_hole(const char *p, int64_t *factor, int *letter, int64_t *offset)
{
    char *end;
    *factor = isdigit((unsigned char)p[1]) ? strtol(p + 1, &end, 10) : 1;
    p = isdigit((unsigned char)p[1]) ? end : p + 1;
    *letter = *p - 'a';
    *offset = strtol(p + 1, &end, 10);
    return end + 1;
}

/* A number as programs write it: no sign, no leading zero. */
static const char *read_number(const char *p, int64_t *number)
{
    int digits = 0;
    for (*number = 0; isdigit((unsigned char)*p) && digits < 9; p++, digits++)
        *number = 10 * *number + (*p - '0');
    return digits && !isdigit((unsigned char)*p) && !(digits > 1 && p[-digits] == '0') ? p : NULL;
}

static bool match(const char *pattern, const char *name, bound *b)
{
    *b = (bound){.set = 0};
    while (*pattern) {
        int64_t factor, offset, number;
        int letter;
        if (*pattern != '{') {
            if (*pattern++ != *name++) return false;
        } else if (pattern[1] == '*') {
            b->rest = name;
            return *name;
        } else {
            pattern = read_hole(pattern, &factor, &letter, &offset);
            if (!(name = read_number(name, &number)) || number < offset || (number - offset) % factor)
                return false;
            number = (number - offset) / factor;
            if (b->set >> letter & 1 && b->value[letter] != number) return false;
            b->set |= 1u << letter;
            b->value[letter] = number;
        }
    }
    return !*name;
}

static bool names_fill(const char *pattern, const bound *b, char to[NAME_LENGTH])
{
    size_t used = 0;
    while (*pattern && used < NAME_LENGTH - 1) {
        int64_t factor, offset;
        int letter, wrote;
        if (*pattern != '{') {
            to[used++] = *pattern++;
            continue;
        }
        if (pattern[1] == '*') wrote = snprintf(to + used, NAME_LENGTH - used, "%s", b->rest), pattern += 3;
        else {
            pattern = read_hole(pattern, &factor, &letter, &offset);
            if (factor * b->value[letter] + offset < 0) return false;
            wrote = snprintf(to + used, NAME_LENGTH - used, "%lld",
                             (long long)(factor * b->value[letter] + offset));
        }
        used += (size_t)wrote;
    }
    if (used >= NAME_LENGTH || *pattern) return false;
    to[used] = 0;
    return true;
}

/* The rule of the map that fits; from: theirs or ours. */
static const name_map *convert(const name_map *map, bool from_theirs, const char *name, char to[NAME_LENGTH])
{
    bound b;
    for (const name_map *rule = map + 1; rule->ours; rule++)
        if (match(from_theirs ? rule->theirs : rule->ours, name, &b) &&
            names_fill(from_theirs ? rule->ours : rule->theirs, &b, to))
            return rule;
    return NULL;
}

/* ---- reading ---- */

bool kolo_names_auxiliary(const char *name)
{
    static const char head[] = "AuxLogits."; /* torchvision's and timm's Inception-v3 */
    return !strncmp(name, head, sizeof head - 1);
}

bool kolo_names_made_anew(const char *name)
{
    static const char *const tail[] = {"num_batches_tracked", "relative_position_index",
                                       "attn_mask",           "total_ops",
                                       "total_params",        "n_averaged"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) {
        const size_t n = strlen(tail[i]);
        if (length >= n && !strcmp(name + length - n, tail[i]) &&
            (length == n || name[length - n - 1] == '.'))
            return true;
    }
    return false;
}

static bool kept(const kolo_tensor *t)
{
    return (t->role == KOLO_ROLE_PARAM || t->role == KOLO_ROLE_BUFFER) && !kolo_tensor_is_later_slab(t);
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What all names begin with, a few parts like "backbone."; counters of wrappers have a name of one part. */
typedef struct prefix {
    const char *text;
    size_t length;
} prefix;

static const char *behind(const char *name, prefix p)
{
    return strncmp(name, p.text, p.length) ? name : name + p.length;
}

/* p with the next part that all have; the same length: there is none. */
static prefix longer_prefix(const kolo_weights *w, prefix p)
{
    prefix more = p;
    for (int64_t i = 0; i < w->count; i++) {
        const char *name = w->weight[i].name, *end = strchr(behind(name, p), '.');
        if (kolo_names_made_anew(name) && !end) continue;
        if (!end || !end[1]) return p;
        if (more.length == p.length) more = (prefix){name, (size_t)(end - name) + 1};
        if (strncmp(name, more.text, more.length)) return p;
    }
    return more;
}

static int fitting(const kolo_weights *weights, prefix p, const name_map *map, const char *const *known,
                   size_t n)
{
    int fit = 0;
    for (int i = 0; i < kolo_weights_count(weights); i++) {
        char ours[NAME_LENGTH];
        const char *name = kolo_weights_at(weights, i)->name;
        if (!convert(map, true, behind(name, p), ours)) continue;
        name = ours;
        fit += bsearch(&name, known, n, sizeof *known, compare_text) != NULL;
    }
    return fit;
}

/* Of all prefixes and maps those that fit best, the shorter prefix and the earlier map where others fit no
 * better. */
static prefix choose_names(const kolo_weights *weights, const char *const *known, size_t n,
                           const name_map **map)
{
    prefix p = {"", 0}, best = p, last;
    int most = -1;
    do {
        for (int i = 0; i < ROWS; i++) {
            const int fit = table[i].ours ? -1 : fitting(weights, p, &table[i], known, n);
            if (fit > most) most = fit, *map = &table[i], best = p;
        }
        last = p;
        p = longer_prefix(weights, p);
    } while (p.length > last.length);
    return best;
}

static int drop_prefix(kolo_weights *w, prefix p)
{
    if (p.length == 0) return 0;
    char *text = kolo_weights_keep(w, p.length + 1);
    if (!text) return KOLO_ENOMEM;
    memcpy(text, p.text, p.length);
    for (int64_t i = 0; i < w->count; i++) w->weight[i].name = behind(w->weight[i].name, p);
    kolo_info("%s: names without \"%s\", which all have", w->path, text);
    return kolo_weights_sort(w);
}

int kolo_names_recognise(kolo_weights *weights, const kolo_graph *graph, const name_map **map)
{
    size_t n = 0;
    const char **known = kolo_alloc((size_t)graph->tensors * sizeof *known + 1);
    char(*name)[NAME_LENGTH] = kolo_alloc((size_t)graph->tensors * sizeof *name + 1);
    for (int64_t t = 0; known && name && t < graph->tensors; t++)
        if (kept(&graph->tensor[t])) {
            kolo_tensor_whole(&graph->tensor[t], name[n]);
            known[n] = name[n];
            n++;
        }
    if (!known || !name) {
        free(known);
        free(name);
        return KOLO_ENOMEM;
    }
    qsort(known, n, sizeof *known, compare_text);
    const prefix p = choose_names(weights, known, n, map);
    free(known);
    free(name);
    return drop_prefix(weights, p);
}

int kolo_names_translate(kolo_weights *weights, const name_map *map)
{
    for (int64_t i = 0; i < weights->count; i++) {
        char ours[NAME_LENGTH];
        if (!convert(map, true, weights->weight[i].name, ours)) continue;
        char *name = kolo_weights_keep(weights, strlen(ours) + 1);
        if (!name) return KOLO_ENOMEM;
        weights->weight[i].name = memcpy(name, ours, strlen(ours) + 1);
    }
    return kolo_weights_sort(weights);
}

/* ---- writing ---- */

static bool has_all_names(const name_map *map, const kolo_graph *graph)
{
    char theirs[NAME_LENGTH];
    for (int64_t t = 0; t < graph->tensors; t++)
        if (kept(&graph->tensor[t]) && !convert(map, false, graph->tensor[t].name, theirs)) return false;
    return true;
}

int kolo_names_choose(const kolo_graph *graph, int names, const name_map **map)
{
    *map = NULL;
    for (int i = 0; i < ROWS && !*map; i++)
        if (!table[i].ours && table[i].names == names && has_all_names(&table[i], graph)) *map = &table[i];
    if (*map) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "names=%s: how the tensors of %s are called there is not known; leave names=torchvision",
                     names == KOLO_names_timm ? "timm" : "paper", graph->name);
}

bool kolo_names_theirs(const name_map *map, kolo_weight *w, char name[NAME_LENGTH])
{
    const name_map *rule = convert(map, false, w->name, name);
    if (!rule) return false;
    switch (rule->shape) {
    case name_shape_flat: w->rank = 1; break;
    case name_shape_window: w->rank = 4, w->dim[1] /= 49, w->dim[2] = w->dim[3] = 7; break;
    case name_shape_point: w->rank = 4, w->dim[2] = w->dim[3] = 1; break;
    default: break;
    }
    return true;
}

const char *kolo_names_program(const name_map *map)
{
    return map->names == KOLO_names_torchvision ? "torchvision's"
           : map->names == KOLO_names_timm      ? "timm's"
                                                : "the paper's";
}
