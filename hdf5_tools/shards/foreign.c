#include "shards/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/philox.h"
#include "data/sampler.h"
#include "kolo/error.h"

#define MOST_CLASSES 1000000 /* a wrong label makes as many names */

static int add_name(void *context, const char *word)
{
    shards_foreign *f = context;
    KOLO_TRY(kolo_grow(&f->names, &f->name_room, f->name_count, sizeof *f->names));
    f->names[f->name_count] = kolo_strdup(word);
    return f->names[f->name_count++] ? 0 : KOLO_ENOMEM;
}

/* A number a sample, or a row of ones and zeros a sample. */
int shards_foreign_labels(shards_foreign *f, const int64_t *values, int64_t columns)
{
    int64_t most = -1;
    f->label = kolo_alloc(sizeof *f->label * (size_t)f->count + 8);
    if (!f->label) return KOLO_ENOMEM;
    for (int64_t i = 0; i < f->count && !values; i++) f->label[i] = -1;
    if (!values) return 0;
    for (int64_t i = 0; i < f->count; i++) {
        int64_t label = columns == 1 ? values[i] : -1;
        for (int64_t k = 0; k < columns && columns > 1; k++) {
            const int64_t v = values[i * columns + k];
            if (v == 0) continue;
            if (v != 1 || label >= 0)
                return kolo_fail(KOLO_EINPUT,
                                 "%s: /%s, row %" PRId64 " is not a label: one 1 among zeros is expected",
                                 f->path, f->labels, i);
            label = k;
        }
        if (label < -1 || label >= MOST_CLASSES)
            return kolo_fail(KOLO_EINPUT,
                             "%s: /%s[%" PRId64 "] is %" PRId64 "; labels go from 0 to %d, -1: none", f->path,
                             f->labels, i, label, MOST_CLASSES - 1);
        if (f->classes && label >= f->name_count)
            return kolo_fail(KOLO_EINPUT, "%s: /%s[%" PRId64 "] is %" PRId64 ", but --classes names %" PRId64,
                             f->path, f->labels, i, label, f->name_count);
        f->label[i] = (int32_t)label;
        most = label > most ? label : most;
    }
    char text[24];
    for (int64_t k = f->name_count; k <= most; k++) {
        snprintf(text, sizeof text, "%" PRId64, k);
        KOLO_TRY(add_name(f, text));
    }
    return 0;
}

int shards_foreign_classes(shards_foreign *f)
{
    if (!f->classes) return 0;
    if (!kolo_file_exists(f->classes)) return shards_each_word(f->classes, add_name, f);
    char *text = NULL;
    int rc = kolo_file_read(f->classes, &text, NULL);
    for (char *at = text, *end; rc == 0 && *at; at = end) {
        const size_t n = strcspn(at, "\r\n");
        end = at + n + strspn(at + n, "\r\n");
        at[n] = 0;
        if (n) rc = add_name(f, at);
    }
    free(text);
    return rc;
}

typedef struct arrays {
    int32_t *labels;
    uint64_t *offsets, *source_offsets;
    uint8_t *states;
    uint16_t (*sizes)[2];
    char *sources;
} arrays;

static int fill_arrays(const shards_foreign *f, const shards_foreign_form *form, arrays *a)
{
    const size_t n = (size_t)f->count;
    size_t length = 0;
    *a = (arrays){.labels = kolo_alloc(sizeof *a->labels * n),
                  .offsets = kolo_alloc(sizeof *a->offsets * (n + 1)),
                  .source_offsets = kolo_alloc(sizeof *a->source_offsets * (n + 1)),
                  .states = kolo_alloc(n),
                  .sizes = kolo_alloc(sizeof *a->sizes * n)};
    FILE *out = open_memstream(&a->sources, &length);
    if (!out || !a->labels || !a->offsets || !a->source_offsets || !a->states || !a->sizes) {
        if (out) fclose(out);
        return kolo_fail(KOLO_ENOMEM, "out of memory for the tables of %" PRId64 " images", f->count);
    }
    for (size_t i = 0; i < n; i++) {
        a->labels[i] = f->label[f->order[i]];
        a->offsets[i + 1] = a->offsets[i] + form->describe(form->context, f->order[i], a->sizes[i]);
        a->states[i] = KOLO_SAMPLE_OK;
        const int put = fprintf(out, "%s[%" PRId64 "]", f->images, f->order[i]);
        a->source_offsets[i + 1] = a->source_offsets[i] + (uint64_t)put;
        if (a->labels[i] >= 0) f->counts[a->labels[i]]++;
    }
    return fclose(out) == 0 ? 0 : kolo_fail(KOLO_ENOMEM, "out of memory for sources");
}

int shards_foreign_write(shards_foreign *f, const shards_foreign_form *form)
{
    arrays a = {0};
    if (f->count < 1) return kolo_fail(KOLO_EINPUT, "%s holds no images", f->path);
    f->order = kolo_alloc(sizeof *f->order * (size_t)f->count);
    f->counts = kolo_alloc(sizeof *f->counts * (size_t)f->name_count + 8);
    if (!f->order || !f->counts) return KOLO_ENOMEM;
    for (int64_t i = 0; i < f->count; i++) f->order[i] = i;
    if (f->target.seed)
        kolo_shuffle(kolo_random_key((uint64_t)f->target.seed, KOLO_RANDOM_PACK), 0, f->count, f->order);
    int rc = fill_arrays(f, form, &a);
    const shards_plan plan = {.target = f->target,
                              .task = "classification",
                              .encoding = form->encoding,
                              .channels = form->channels,
                              .height = form->height,
                              .width = form->width,
                              .count = f->count,
                              .classes = (int)f->name_count,
                              .class_names = f->names,
                              .class_counts = f->counts,
                              .pack_seed = (uint64_t)f->target.seed,
                              .command = form->command,
                              .from = "",
                              .packed = "",
                              .rejects = "",
                              .labels = a.labels,
                              .ids = f->order,
                              .offsets = a.offsets,
                              .states = a.states,
                              .sizes = (const uint16_t(*)[2])a.sizes,
                              .orig_sizes = (const uint16_t(*)[2])a.sizes,
                              .sources = a.sources,
                              .source_offsets = a.source_offsets,
                              .load = form->load,
                              .tables = form->tables,
                              .measure = form->measure,
                              .context = form->context};
    if (rc == 0) rc = shards_write(&plan);
    free(a.labels), free(a.offsets), free(a.source_offsets), free(a.states), free(a.sizes), free(a.sources);
    return rc;
}

void shards_foreign_free(shards_foreign *f)
{
    for (int64_t k = 0; k < f->name_count; k++) free(f->names[k]);
    free(f->names);
    free(f->order);
    free(f->label);
    free(f->counts);
}
