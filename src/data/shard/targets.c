#include "data/shard/targets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/shard/file.h"
#include "kolo/error.h"

static int damaged(const char *path, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: %s; pack this split again", path, what);
}

/* Makes room for `more` elements behind `have` and copies them there. */
static int targets_append(void *array, int64_t have, int64_t more, size_t element, const void *data)
{
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, element * (size_t)(have + more) + 8);
    if (!grown)
        return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes for targets",
                         element * (size_t)(have + more));
    memcpy(array, &grown, sizeof grown);
    memcpy((char *)grown + element * (size_t)have, data, element * (size_t)more);
    return 0;
}

/* offsets: of one shard, u64 [n + 1] from 0 to `rows`; whole: of the split, so far [first + 1]. */
static int append_offsets(const char *path, const char *what, int64_t **whole, int64_t first, int64_t n,
                          const uint64_t *offsets, int64_t rows)
{
    int64_t *grown = realloc(*whole, sizeof **whole * (size_t)(first + n + 1));
    if (!grown) return kolo_fail(KOLO_ENOMEM, "out of memory for targets");
    *whole = grown;
    if (first == 0) grown[0] = 0;
    const int64_t base = grown[first];
    if (offsets[0] != 0 || offsets[n] != (uint64_t)rows)
        return kolo_fail(KOLO_EINPUT, "%s: /%s_offset does not span /%s; pack this split again", path, what,
                         what);
    for (int64_t i = 0; i < n; i++) {
        if (offsets[i] > offsets[i + 1])
            return kolo_fail(KOLO_EINPUT, "%s: /%s_offset does not rise; pack this split again", path, what);
        grown[first + i + 1] = base + (int64_t)offsets[i + 1];
    }
    return 0;
}

static int check_classes(const char *path, const char *name, const int32_t *classes, int64_t n, int most)
{
    for (int64_t i = 0; i < n; i++)
        if (classes[i] < 0 || classes[i] >= most)
            return kolo_fail(KOLO_EINPUT,
                             "%s: /%s[%lld] is class %d, but there are %d; pack this split again", path, name,
                             (long long)i, classes[i], most);
    return 0;
}

static int check_boxes(const char *path, const float *box, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(isfinite(box[4 * i]) && isfinite(box[4 * i + 1]) && isfinite(box[4 * i + 2]) &&
              isfinite(box[4 * i + 3]) && box[4 * i] <= box[4 * i + 2] && box[4 * i + 1] <= box[4 * i + 3]))
            return kolo_fail(KOLO_EINPUT, "%s: /box[%lld] is no box; pack this split again", path,
                             (long long)i);
    return 0;
}

static int add_boxes(kolo_targets *t, const char *path, const kolo_shard_header *h,
                     const kolo_shard_arrays *a)
{
    const kolo_shard_table *box = kolo_shard_find_table(a, "box", KOLO_TABLE_F32, -1, 4);
    if (!box) return h->first && t->box_offset ? damaged(path, "has no boxes, the shards before it have") : 0;
    const int64_t n = box->dim[0];
    const kolo_shard_table *offset = kolo_shard_find_table(a, "box_offset", KOLO_TABLE_U64, h->count + 1, 1),
                           *label = kolo_shard_find_table(a, "box_class", KOLO_TABLE_I32, n, 1),
                           *flags = kolo_shard_find_table(a, "box_flags", KOLO_TABLE_U8, n, 1),
                           *area = kolo_shard_find_table(a, "box_area", KOLO_TABLE_F32, n, 1),
                           *id = kolo_shard_find_table(a, "box_id", KOLO_TABLE_I64, n, 1),
                           *transform = kolo_shard_find_table(a, "transform", KOLO_TABLE_F32, h->count, 4);
    if (!offset || !label || !flags || !area || !id || !transform)
        return damaged(path, "a table of boxes is missing or of another shape");
    if (h->first && !t->box_offset) return damaged(path, "has boxes, the shards before it have not");
    KOLO_TRY(check_classes(path, "box_class", label->data, n, h->classes));
    if (h->complete) KOLO_TRY(check_boxes(path, box->data, n));
    KOLO_TRY(append_offsets(path, "box", &t->box_offset, h->first, h->count, offset->data, n));
    KOLO_TRY(targets_append(&t->transform, h->first, h->count, sizeof *t->transform, transform->data));
    KOLO_TRY(targets_append(&t->box, t->boxes, n, sizeof *t->box, box->data));
    KOLO_TRY(targets_append(&t->box_class, t->boxes, n, sizeof *t->box_class, label->data));
    KOLO_TRY(targets_append(&t->box_flags, t->boxes, n, sizeof *t->box_flags, flags->data));
    KOLO_TRY(targets_append(&t->box_area, t->boxes, n, sizeof *t->box_area, area->data));
    KOLO_TRY(targets_append(&t->box_id, t->boxes, n, sizeof *t->box_id, id->data));
    t->boxes += n;
    snprintf(t->box_form, sizeof t->box_form, "%s", h->box_form);
    return 0;
}

static int add_tags(kolo_targets *t, const char *path, const kolo_shard_header *h, const kolo_shard_arrays *a)
{
    const kolo_shard_table *tag = kolo_shard_find_table(a, "tag", KOLO_TABLE_I32, -1, 1);
    if (!tag) return h->first && t->tag_offset ? damaged(path, "has no tags, the shards before it have") : 0;
    const int64_t n = tag->dim[0];
    const kolo_shard_table *offset = kolo_shard_find_table(a, "tag_offset", KOLO_TABLE_U64, h->count + 1, 1),
                           *value = kolo_shard_find_table(a, "tag_value", KOLO_TABLE_F32, n, 1);
    if (!offset || !value) return damaged(path, "a table of tags is missing or of another shape");
    if (h->first && !t->tag_offset) return damaged(path, "has tags, the shards before it have not");
    KOLO_TRY(check_classes(path, "tag", tag->data, n, h->classes));
    KOLO_TRY(append_offsets(path, "tag", &t->tag_offset, h->first, h->count, offset->data, n));
    KOLO_TRY(targets_append(&t->tag, t->tags, n, sizeof *t->tag, tag->data));
    KOLO_TRY(targets_append(&t->tag_value, t->tags, n, sizeof *t->tag_value, value->data));
    t->tags += n;
    return 0;
}

static int add_pair_set(kolo_targets *t, const char *path, const kolo_shard_arrays *a, const char *set)
{
    char same_name[64], fold_name[64];
    kolo_pair_set *grown = realloc(t->pairs, sizeof *t->pairs * (size_t)(t->pair_sets + 1));
    if (!grown) return kolo_fail(KOLO_ENOMEM, "out of memory for pairs");
    t->pairs = grown;
    kolo_pair_set *p = &t->pairs[t->pair_sets];
    *p = (kolo_pair_set){0};
    t->pair_sets++;
    snprintf(p->name, sizeof p->name, "%s", set + strlen("pair_set_"));
    snprintf(same_name, sizeof same_name, "pair_same_%s", p->name);
    snprintf(fold_name, sizeof fold_name, "pair_fold_%s", p->name);
    const kolo_shard_table *pair = kolo_shard_find_table(a, set, KOLO_TABLE_I32, -1, 2);
    p->count = pair ? pair->dim[0] : 0;
    const kolo_shard_table *same = kolo_shard_find_table(a, same_name, KOLO_TABLE_U8, p->count, 1),
                           *fold = kolo_shard_find_table(a, fold_name, KOLO_TABLE_I32, p->count, 1);
    if (!pair || !same || !fold)
        return kolo_fail(KOLO_EINPUT,
                         "%s: the tables of pairs `%s` are missing or of another shape; pack again", path,
                         p->name);
    KOLO_TRY(targets_append(&p->pair, 0, p->count, sizeof *p->pair, pair->data));
    KOLO_TRY(targets_append(&p->same, 0, p->count, sizeof *p->same, same->data));
    return targets_append(&p->fold, 0, p->count, sizeof *p->fold, fold->data);
}

int kolo_targets_add(kolo_targets **targets, const char *path, const kolo_shard_header *h,
                     const kolo_shard_arrays *a)
{
    kolo_targets *t = *targets;
    bool any = t != NULL;
    for (int i = 0; i < a->table_count && !any; i++)
        any = strncmp(a->tables[i].name, "box", 3) == 0 || strncmp(a->tables[i].name, "tag", 3) == 0 ||
              strncmp(a->tables[i].name, "pair_set_", 9) == 0;
    if (!any) return 0;
    if (!t) t = *targets = kolo_alloc(sizeof *t);
    if (!t) return KOLO_ENOMEM;
    KOLO_TRY(add_boxes(t, path, h, a));
    KOLO_TRY(add_tags(t, path, h, a));
    for (int i = 0; i < a->table_count; i++)
        if (strncmp(a->tables[i].name, "pair_set_", 9) == 0)
            KOLO_TRY(add_pair_set(t, path, a, a->tables[i].name));
    return 0;
}

int kolo_targets_finish(kolo_targets *t, int64_t samples)
{
    for (int s = 0; t && s < t->pair_sets; s++)
        for (int64_t i = 0; i < t->pairs[s].count; i++)
            for (int k = 0; k < 2; k++)
                if (t->pairs[s].pair[i][k] < 0 || t->pairs[s].pair[i][k] >= samples)
                    return kolo_fail(
                        KOLO_EINPUT, "pair %lld of `%s` names sample %d of %lld; pack this split again",
                        (long long)i, t->pairs[s].name, t->pairs[s].pair[i][k], (long long)samples);
    return 0;
}

void kolo_targets_free(kolo_targets **targets)
{
    kolo_targets *t = *targets;
    if (!t) return;
    for (int s = 0; s < t->pair_sets; s++) {
        free(t->pairs[s].pair);
        free(t->pairs[s].same);
        free(t->pairs[s].fold);
    }
    free(t->pairs);
    free(t->box_offset);
    free(t->box);
    free(t->box_class);
    free(t->box_flags);
    free(t->box_area);
    free(t->box_id);
    free(t->transform);
    free(t->tag_offset);
    free(t->tag);
    free(t->tag_value);
    free(t);
    *targets = NULL;
}
