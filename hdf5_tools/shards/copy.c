#include "shards/copy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/philox.h"
#include "data/sampler.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "shards/columns.h"

typedef struct copy {
    const shards_copying *job;
    shards_input *inputs;
    int64_t *base; /* [inputs + 1] number of its first sample through all inputs */
    int32_t **class_map;
    int boxed; /* the first input that has boxes, or -1 */
    int classes;
    char **class_names;
    int64_t *class_ids;
    uint64_t *class_counts;
    shards_columns columns;
    int64_t *picks; /* [count], in the new order */
    int32_t *part_of;
    int64_t *index_of;
    int64_t *where; /* [all samples of the inputs] position in the new split, or -1 */
    char pair_names[3][KOLO_SHARD_MOST_TABLES][64];
    /* arrays of the new split */
    int32_t *labels;
    int64_t *ids;
    uint64_t *offsets, *source_offsets;
    uint8_t *states;
    uint16_t (*sizes)[2], (*orig_sizes)[2];
    char *sources, *from, *rejects;
    char task[64];
    kolo_shard_stats stats;
} copy;

static const kolo_dataset_info *info_of(const copy *c, int input)
{
    return kolo_dataset_get_info(c->job->inputs[input]);
}

static int check_inputs(const copy *c)
{
    const kolo_dataset_info *a = info_of(c, 0);
    static const char *const encodings[] = {"raw", "jpeg", "mixed"};
    for (int i = 1; i < c->job->input_count; i++) {
        const kolo_dataset_info *b = info_of(c, i);
        if (a->encoding != b->encoding || a->channels != b->channels || a->height != b->height ||
            a->width != b->width)
            return kolo_fail(KOLO_EINPUT,
                             "%s-%s is %s, %d x %d, %d channels, but %s-%s is %s, %d x %d, %d channels: they "
                             "do not go into one split; pack one of them again",
                             a->name, a->split, encodings[a->encoding], a->height, a->width, a->channels,
                             b->name, b->split, encodings[b->encoding], b->height, b->width, b->channels);
    }
    return 0;
}

static const char *box_form(const copy *c, int input) { return c->inputs[input].parts[0].header.box_form; }

/* Where some have boxes, the others are background. */
static int match_boxes(copy *c)
{
    c->boxed = -1;
    for (int i = 0; i < c->job->input_count; i++) {
        const int k = c->boxed;
        if (!box_form(c, i)[0]) continue;
        if (k < 0) c->boxed = i;
        else if (strcmp(box_form(c, k), box_form(c, i)) != 0)
            return kolo_fail(KOLO_EINPUT,
                             "%s-%s and %s-%s have boxes of different forms (`%s` and `%s`): they do not go "
                             "into one split",
                             info_of(c, k)->name, info_of(c, k)->split, info_of(c, i)->name,
                             info_of(c, i)->split, box_form(c, k), box_form(c, i));
    }
    for (int i = 0; i < c->job->input_count && c->boxed >= 0; i++)
        if (!box_form(c, i)[0]) KOLO_TRY(shards_input_to_background(&c->inputs[i], &c->inputs[c->boxed]));
    return 0;
}

/* ---- classes ------------------------------------------------------------------------------------------- */

static int class_number(const copy *c, const char *name)
{
    for (int k = 0; k < c->classes; k++)
        if (strcmp(c->class_names[k], name) == 0) return k;
    return -1;
}

static int add_class(copy *c, const char *name, int64_t id)
{
    c->class_names[c->classes] = kolo_strdup(name);
    c->class_ids[c->classes] = id;
    return c->class_names[c->classes++] ? 0 : KOLO_ENOMEM;
}

/* The classes of all inputs by name, or those that were asked for. */
static int map_classes(copy *c)
{
    const shards_copying *j = c->job;
    size_t most = (size_t)j->class_count;
    for (int i = 0; i < j->input_count; i++) most += (size_t)info_of(c, i)->classes;
    c->class_names = kolo_alloc(sizeof *c->class_names * most + 8);
    c->class_ids = kolo_alloc(sizeof *c->class_ids * most + 8);
    c->class_map = kolo_alloc(sizeof *c->class_map * (size_t)j->input_count);
    if (!c->class_names || !c->class_ids || !c->class_map) return KOLO_ENOMEM;
    for (int k = 0; k < j->class_count; k++) KOLO_TRY(add_class(c, j->classes[k], -1));
    for (int i = 0; i < j->input_count; i++) {
        const int own = info_of(c, i)->classes;
        int32_t *map = c->class_map[i] = kolo_alloc(sizeof *map * (size_t)own + 8);
        if (!map) return KOLO_ENOMEM;
        for (int k = 0; k < own; k++) {
            const char *name = kolo_dataset_class_name(j->inputs[i], k);
            map[k] = -1;
            if (c->inputs[i].is_background) continue;
            map[k] = i == 0 && !j->classes ? -1 : class_number(c, name); /* names of one split may repeat */
            if (map[k] < 0 && !j->classes) {
                KOLO_TRY(add_class(c, name, c->inputs[i].class_ids[k]));
                map[k] = c->classes - 1;
            } else if (map[k] >= 0 && j->classes && i == 0) {
                c->class_ids[map[k]] = c->inputs[i].class_ids[k];
            }
        }
    }
    c->class_counts = kolo_alloc(sizeof *c->class_counts * (size_t)c->classes + 8);
    return c->class_counts ? 0 : KOLO_ENOMEM;
}

/* As data/shard/shard.h says: labels, or where there are none boxes, or else tags. */
static void count_classes(copy *c)
{
    bool labelled = false;
    for (int64_t i = 0; i < c->job->count; i++) {
        if (c->labels[i] < 0) continue;
        c->class_counts[c->labels[i]]++;
        labelled = true;
    }
    if (!labelled && !shards_columns_count(&c->columns, "box", c->job->count, c->class_counts))
        shards_columns_count(&c->columns, "tag", c->job->count, c->class_counts);
}

/* ---- samples ------------------------------------------------------------------------------------------- */

static int list_parts(copy *c)
{
    const shards_copying *j = c->job;
    int parts = 0;
    c->base = kolo_alloc(sizeof *c->base * (size_t)(j->input_count + 1));
    if (!c->base) return KOLO_ENOMEM;
    for (int i = 0; i < j->input_count; i++) {
        c->base[i + 1] = c->base[i] + info_of(c, i)->count;
        parts += info_of(c, i)->shards;
    }
    c->columns.parts = kolo_alloc(sizeof *c->columns.parts * (size_t)parts);
    if (!c->columns.parts) return KOLO_ENOMEM;
    for (int i = 0; i < j->input_count; i++)
        for (int s = 0; s < info_of(c, i)->shards; s++)
            c->columns.parts[c->columns.part_count++] = &c->inputs[i].parts[s];
    return 0;
}

static int place_samples(copy *c)
{
    const shards_copying *j = c->job;
    const size_t n = (size_t)j->count, all = (size_t)c->base[j->input_count];
    c->picks = kolo_alloc(sizeof *c->picks * n);
    c->part_of = kolo_alloc(sizeof *c->part_of * n);
    c->index_of = kolo_alloc(sizeof *c->index_of * n);
    c->where = kolo_alloc(sizeof *c->where * all + 8);
    if (!c->picks || !c->part_of || !c->index_of || !c->where) return KOLO_ENOMEM;
    memcpy(c->picks, j->picks, sizeof *c->picks * n);
    if (j->target.seed)
        kolo_shuffle_values(kolo_random_key((uint64_t)j->target.seed, KOLO_RANDOM_PACK), 0, j->count,
                            c->picks);
    for (size_t i = 0; i < all; i++) c->where[i] = -1;
    for (int64_t i = 0; i < j->count; i++) c->where[c->picks[i]] = i;
    int64_t at = 0;
    for (int p = 0; p < c->columns.part_count; p++)
        for (int64_t k = 0; k < c->columns.parts[p]->header.count; k++, at++) {
            if (c->where[at] < 0) continue;
            c->part_of[c->where[at]] = p;
            c->index_of[c->where[at]] = k;
        }
    c->columns.part_of = c->part_of;
    c->columns.index_of = c->index_of;
    c->columns.class_map = c->class_map;
    return 0;
}

static uint64_t stored_bytes(const copy *c, const shards_part *p, int64_t k)
{
    const kolo_dataset_info *a = info_of(c, 0);
    return p->arrays.offsets ? p->arrays.offsets[k + 1] - p->arrays.offsets[k]
                             : (uint64_t)a->height * (uint64_t)a->width * (uint64_t)a->channels;
}

static int gather(copy *c)
{
    const size_t n = (size_t)c->job->count;
    c->labels = kolo_alloc(sizeof *c->labels * n);
    c->ids = kolo_alloc(sizeof *c->ids * n);
    c->states = kolo_alloc(n);
    c->offsets = kolo_alloc(sizeof *c->offsets * (n + 1));
    c->source_offsets = kolo_alloc(sizeof *c->source_offsets * (n + 1));
    c->sizes = kolo_alloc(sizeof *c->sizes * n);
    c->orig_sizes = kolo_alloc(sizeof *c->orig_sizes * n);
    if (!c->labels || !c->ids || !c->states || !c->offsets || !c->source_offsets || !c->sizes ||
        !c->orig_sizes)
        return KOLO_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const shards_part *p = c->columns.parts[c->part_of[i]];
        const int64_t k = c->index_of[i];
        const int32_t label = p->arrays.labels[k];
        c->labels[i] = label < 0 ? -1 : c->class_map[p->input][label];
        c->ids[i] = p->ids[k];
        c->states[i] = p->arrays.states[k];
        memcpy(c->sizes[i], p->sizes[k], sizeof *c->sizes);
        memcpy(c->orig_sizes[i], p->orig_sizes[k], sizeof *c->orig_sizes);
        c->offsets[i + 1] = c->offsets[i] + stored_bytes(c, p, k);
        c->source_offsets[i + 1] = c->source_offsets[i] + p->source_offsets[k + 1] - p->source_offsets[k];
    }
    c->sources = kolo_alloc(c->source_offsets[n] + 1);
    if (!c->sources) return KOLO_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const shards_part *p = c->columns.parts[c->part_of[i]];
        memcpy(c->sources + c->source_offsets[i], p->sources + p->source_offsets[c->index_of[i]],
               c->source_offsets[i + 1] - c->source_offsets[i]);
    }
    return 0;
}

static int copy_load(const void *context, int64_t sample, uint8_t *data)
{
    const copy *c = context;
    const shards_part *p = c->columns.parts[c->part_of[sample]];
    const kolo_dataset *d = c->job->inputs[p->input];
    const int64_t from = c->picks[sample] - c->base[p->input];
    KOLO_TRY(kolo_dataset_read(d, from, data));
    const uint32_t crc = kolo_crc32c(0, data, kolo_dataset_bytes(d, from));
    if (crc == kolo_dataset_crc(d, from)) return 0;
    return kolo_fail(
        KOLO_EINPUT,
        "%s: sample %" PRId64
        ": checksum %08x, stored %08x: the bytes were changed; copy the shard again or pack again",
        kolo_dataset_shard_of(d, from, NULL), c->index_of[sample], crc, kolo_dataset_crc(d, from));
}

/* ---- pairs --------------------------------------------------------------------------------------------- */

/* Rows of the pair set `name` in all inputs, written where `pair` is not NULL. */
static int64_t collect_pairs(const copy *c, const char *name, int32_t *pair, uint8_t *same, int32_t *fold)
{
    int64_t n = 0;
    for (int i = 0; i < c->job->input_count; i++) {
        const kolo_targets *t = kolo_dataset_targets(c->job->inputs[i]);
        for (int s = 0; t && s < t->pair_sets; s++) {
            const kolo_pair_set *from = &t->pairs[s];
            for (int64_t k = 0; strcmp(from->name, name) == 0 && k < from->count; k++) {
                const int64_t a = c->where[c->base[i] + from->pair[k][0]],
                              b = c->where[c->base[i] + from->pair[k][1]];
                if (a < 0 || b < 0) continue;
                if (pair)
                    pair[2 * n] = (int32_t)a, pair[2 * n + 1] = (int32_t)b, same[n] = from->same[k],
                             fold[n] = from->fold[k];
                n++;
            }
        }
    }
    return n;
}

static int make_pair_set(copy *c, const char *name, int set, kolo_shard_table *tables, int *count)
{
    static const char *const forms[] = {"pair_set_%s", "pair_same_%s", "pair_fold_%s"};
    const int64_t rows = collect_pairs(c, name, NULL, NULL, NULL);
    for (int i = 0; i < 3; i++) snprintf(c->pair_names[i][set], sizeof c->pair_names[i][set], forms[i], name);
    int32_t *pair = kolo_alloc(8 * (size_t)rows + 8), *fold = kolo_alloc(4 * (size_t)rows + 8);
    uint8_t *same = kolo_alloc((size_t)rows + 8);
    tables[(*count)++] = (kolo_shard_table){c->pair_names[0][set],     KOLO_TABLE_I32, 2, {rows, 2}, pair,
                                            "two samples of the split"};
    tables[(*count)++] =
        (kolo_shard_table){c->pair_names[1][set], KOLO_TABLE_U8, 1, {rows, 1}, same, "1: of the same class"};
    tables[(*count)++] = (kolo_shard_table){c->pair_names[2][set], KOLO_TABLE_I32, 1, {rows, 1}, fold, NULL};
    if (!pair || !same || !fold) return KOLO_ENOMEM;
    collect_pairs(c, name, pair, same, fold);
    return 0;
}

static int make_tables(const void *context, int64_t first, int64_t count, kolo_shard_table *tables,
                       int *table_count)
{
    copy *c = (copy *)context;
    KOLO_TRY(shards_columns_make(&c->columns, first, count, tables, table_count));
    int sets = 0;
    for (int i = 0; first == 0 && i < c->job->input_count; i++) {
        const kolo_targets *t = kolo_dataset_targets(c->job->inputs[i]);
        for (int s = 0; t && s < t->pair_sets; s++) {
            bool done = false;
            for (int k = 0; k < sets; k++)
                done |= strcmp(c->pair_names[0][k] + strlen("pair_set_"), t->pairs[s].name) == 0;
            if (done) continue;
            if (*table_count + 3 > KOLO_SHARD_MOST_TABLES)
                return kolo_fail(KOLO_EINPUT, "too many sets of pairs");
            KOLO_TRY(make_pair_set(c, t->pairs[s].name, sets++, tables, table_count));
        }
    }
    return 0;
}

/* ---- what is said of the whole ------------------------------------------------------------------------- */

static int add_task(void *context, const char *word)
{
    copy *c = context;
    const size_t used = strlen(c->task);
    if (!strstr(c->task, word))
        snprintf(c->task + used, sizeof c->task - used, "%s%s", used ? "," : "", word);
    return 0;
}

/* Moments of several splits, each by its number of pixels. */
static void pool_stats(copy *c)
{
    c->stats = c->inputs[0].stats;
    for (int ch = 0; ch < info_of(c, 0)->channels && c->job->input_count > 1; ch++) {
        double n = 0, sum = 0, square = 0, low = 1, high = 0;
        for (int i = 0; i < c->job->input_count; i++) {
            const kolo_shard_stats *s = &c->inputs[i].stats;
            n += s->count[ch];
            sum += s->count[ch] * s->mean[ch];
            square += s->count[ch] * (s->std[ch] * s->std[ch] + s->mean[ch] * s->mean[ch]);
            low = fmin(low, s->min[ch]), high = fmax(high, s->max[ch]);
        }
        if (n <= 0) continue;
        const double mean = sum / n, variance = square / n - mean * mean;
        c->stats.mean[ch] = mean;
        c->stats.std[ch] = sqrt(variance > 0 ? variance : 0);
        c->stats.min[ch] = low, c->stats.max[ch] = high, c->stats.count[ch] = n;
    }
}

static int copy_describe(copy *c)
{
    char *from = kolo_strdup(""), *rejects = kolo_strdup("");
    for (int i = 0; i < c->job->input_count && from && rejects; i++) {
        char *more = kolo_format("%s%s%s-%s %s", from, i ? ", " : "", info_of(c, i)->name,
                                 info_of(c, i)->split, info_of(c, i)->uuid);
        char *lines = kolo_format("%s%s", rejects, c->inputs[i].rejects);
        free(from), free(rejects);
        from = more, rejects = lines;
    }
    c->from = from, c->rejects = rejects;
    if (!from || !rejects) return KOLO_ENOMEM;
    for (int i = 0; i < c->job->input_count; i++)
        if (!c->inputs[i].is_background) KOLO_TRY(shards_each_word(info_of(c, i)->task, add_task, c));
    pool_stats(c);
    return 0;
}

static int copy_prepare(copy *c)
{
    const shards_copying *j = c->job;
    c->inputs = kolo_alloc(sizeof *c->inputs * (size_t)j->input_count);
    if (!c->inputs) return KOLO_ENOMEM;
    for (int i = 0; i < j->input_count; i++) KOLO_TRY(shards_input_load(&c->inputs[i], j->inputs[i], i));
    KOLO_TRY(check_inputs(c));
    KOLO_TRY(match_boxes(c));
    KOLO_TRY(list_parts(c));
    KOLO_TRY(map_classes(c));
    KOLO_TRY(place_samples(c));
    KOLO_TRY(shards_columns_open(&c->columns));
    KOLO_TRY(gather(c));
    count_classes(c);
    return copy_describe(c);
}

static void free_copy(copy *c)
{
    for (int i = 0; c->class_map && i < c->job->input_count; i++) free(c->class_map[i]);
    for (int k = 0; k < c->classes; k++) free(c->class_names[k]);
    for (int i = 0; c->inputs && i < c->job->input_count; i++)
        if (c->inputs[i].dataset) shards_input_free(&c->inputs[i]);
    shards_columns_close(&c->columns);
    void *const owned[] = {
        c->inputs,        c->base,    c->class_map,      c->class_names, c->class_ids, c->class_counts,
        c->columns.parts, c->picks,   c->part_of,        c->index_of,    c->where,     c->labels,
        c->ids,           c->offsets, c->source_offsets, c->states,      c->sizes,     c->orig_sizes,
        c->sources,       c->from,    c->rejects};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

int shards_copy(const shards_copying *job)
{
    if (job->count < 1)
        return kolo_fail(KOLO_EINPUT, "no sample fits what was asked for: nothing was written");
    copy *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    c->job = job;
    int rc = copy_prepare(c);
    if (rc == 0) {
        const kolo_dataset_info *a = info_of(c, 0);
        const shards_part *first = &c->inputs[0].parts[0];
        const uint64_t order = job->target.seed        ? (uint64_t)job->target.seed
                               : job->input_count == 1 ? first->header.pack_seed
                                                       : 0;
        shards_plan plan = {.target = job->target,
                            .task = c->task,
                            .box_form = c->boxed < 0 ? NULL : box_form(c, c->boxed),
                            .encoding = a->encoding,
                            .channels = a->channels,
                            .height = a->height,
                            .width = a->width,
                            .count = job->count,
                            .classes = c->classes,
                            .class_names = c->class_names,
                            .class_ids = c->class_ids,
                            .class_counts = c->class_counts,
                            .pack_seed = order,
                            .stats = c->stats,
                            .command = job->command,
                            .from = c->from,
                            .packed = c->inputs[0].packed,
                            .rejects = c->rejects,
                            .labels = c->labels,
                            .ids = c->ids,
                            .offsets = c->offsets,
                            .states = c->states,
                            .sizes = (const uint16_t(*)[2])c->sizes,
                            .orig_sizes = (const uint16_t(*)[2])c->orig_sizes,
                            .sources = c->sources,
                            .source_offsets = c->source_offsets,
                            .load = copy_load,
                            .tables = make_tables,
                            .context = c};
        if (!plan.target.name) plan.target.name = a->name;
        if (!plan.target.split) plan.target.split = a->split;
        rc = shards_write(&plan);
    }
    free_copy(c);
    free(c);
    return rc;
}
