/* What a shard holds beside its images, brought from the source's order into the output's. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <hdf5.h>
#include <jpeglib.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/shard/h5.h"
#include "kolo/error.h"
#include "pack/pack.h"

/* Tables of one shard, in memory while it is created. */
typedef struct tables {
    int32_t *labels;
    int64_t *ids;
    char *sources;
    uint64_t *source_offsets;
    kolo_shard_table extra[KOLO_SHARD_MOST_TABLES];
    void *owned[KOLO_SHARD_MOST_TABLES];
    char names[3 * SOURCE_MOST_PAIR_SETS][64];
    int count;
} tables;

static void free_tables(tables *t)
{
    free(t->labels);
    free(t->ids);
    free(t->sources);
    free(t->source_offsets);
    for (int i = 0; i < t->count; i++) free(t->owned[i]);
}

static int64_t number_at(const packing *p, const pack_shard *s, int64_t i)
{
    return p->order[p->slots[s->first + i]];
}

/* A table that the writers fill. */
static void add_later(tables *t, const char *name, enum kolo_table_type type, int64_t rows, int columns,
                      const char *note)
{
    t->extra[t->count++] = (kolo_shard_table){name, type, columns > 1 ? 2 : 1, {rows, columns}, NULL, note};
}

/* One that is filled now. NULL: no memory. */
static void *add_table(tables *t, const char *name, enum kolo_table_type type, int64_t rows, int columns,
                       const char *note)
{
    add_later(t, name, type, rows, columns, note);
    kolo_shard_table *table = &t->extra[t->count - 1];
    table->data = t->owned[t->count - 1] = kolo_alloc(kolo_shard_table_bytes(table) + 8);
    return t->owned[t->count - 1];
}

static int make_core(const packing *p, const pack_shard *s, tables *t)
{
    const source *src = &p->source;
    const size_t n = (size_t)s->count;
    t->labels = kolo_alloc(sizeof *t->labels * n + 8);
    t->ids = kolo_alloc(sizeof *t->ids * n + 8);
    t->source_offsets = kolo_alloc(sizeof *t->source_offsets * (n + 1));
    if (!t->labels || !t->ids || !t->source_offsets) return KOLO_ENOMEM;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t from = number_at(p, s, i);
        t->labels[i] = src->labels[from];
        t->ids[i] = src->ids[from];
        t->source_offsets[i + 1] =
            t->source_offsets[i] + (src->path_offsets[from + 1] - src->path_offsets[from]);
    }
    t->sources = kolo_alloc(t->source_offsets[s->count] + 1);
    if (!t->sources) return KOLO_ENOMEM;
    for (int64_t i = 0; i < s->count; i++)
        memcpy(t->sources + t->source_offsets[i], src->paths + src->path_offsets[number_at(p, s, i)],
               t->source_offsets[i + 1] - t->source_offsets[i]);
    return 0;
}

static int make_codecs(const packing *p, const pack_shard *s, tables *t)
{
    if (p->options.encoding != KOLO_ENCODING_MIXED) return 0;
    uint8_t *codec =
        add_table(t, "codec", KOLO_TABLE_U8, s->count, 1, "0 pixels (height, width, channels), 1 JPEG file");
    if (!codec) return KOLO_ENOMEM;
    for (int64_t i = 0; i < s->count; i++) codec[i] = p->brief[p->slots[s->first + i]].codec;
    return 0;
}

static int make_boxes(const packing *p, const pack_shard *s, tables *t)
{
    if (!s->box_offsets) return 0;
    const int64_t rows = (int64_t)s->box_offsets[s->count];
    uint64_t *offset = add_table(t, "box_offset", KOLO_TABLE_U64, s->count + 1, 1,
                                 "boxes of sample i are box_offset[i] to box_offset[i + 1] - 1");
    int32_t *label = add_table(t, "box_class", KOLO_TABLE_I32, rows, 1, NULL);
    int64_t *id =
        add_table(t, "box_id", KOLO_TABLE_I64, rows, 1, "number of the annotation in the source, or -1");
    double *numbers =
        add_table(t, "box_source", KOLO_TABLE_F64, rows, 4, "numbers of the source, in form box_form");
    if (!offset || !label || !id || !numbers) return KOLO_ENOMEM;
    memcpy(offset, s->box_offsets, sizeof *offset * (size_t)(s->count + 1));
    int64_t at = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t from = number_at(p, s, i);
        for (uint64_t k = p->source.box_offsets[from]; k < p->source.box_offsets[from + 1]; k++, at++) {
            const source_box *b = &p->source.box[k];
            label[at] = b->label;
            id[at] = b->id;
            memcpy(numbers + 4 * at, b->numbers, sizeof b->numbers);
        }
    }
    add_later(t, "box", KOLO_TABLE_F32, rows, 4, "x0 y0 x1 y1 in pixels of the stored image");
    add_later(
        t, "box_flags", KOLO_TABLE_U8, rows, 1,
        "1 crowd, 2 difficult, 4 truncated, 8 group-of, 16 occluded, 32 depiction, 64 inside, 128 outside");
    add_later(t, "box_area", KOLO_TABLE_F32, rows, 1, "of the object, in pixels of the source image");
    add_later(t, "transform", KOLO_TABLE_F32, s->count, 4, "sx sy dx dy: stored = source image * s + d");
    return 0;
}

static int make_tags(const packing *p, const pack_shard *s, tables *t)
{
    if (p->source.tags == 0) return 0;
    const source *src = &p->source;
    uint64_t *offset = add_table(t, "tag_offset", KOLO_TABLE_U64, s->count + 1, 1,
                                 "tags of sample i are tag_offset[i] to tag_offset[i + 1] - 1");
    if (!offset) return KOLO_ENOMEM;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t from = number_at(p, s, i);
        offset[i + 1] = offset[i] + src->tag_offsets[from + 1] - src->tag_offsets[from];
    }
    int32_t *tag = add_table(t, "tag", KOLO_TABLE_I32, (int64_t)offset[s->count], 1, "class");
    float *value =
        add_table(t, "tag_value", KOLO_TABLE_F32, (int64_t)offset[s->count], 1, "0 to 1: is it there?");
    if (!tag || !value) return KOLO_ENOMEM;
    for (int64_t i = 0, at = 0; i < s->count; i++) {
        const int64_t from = number_at(p, s, i);
        for (uint64_t k = src->tag_offsets[from]; k < src->tag_offsets[from + 1]; k++, at++)
            tag[at] = src->tag[k].tag, value[at] = src->tag[k].value;
    }
    return 0;
}

/* In the first shard: pairs name samples of the whole split. */
static int make_pairs(const packing *p, const pack_shard *s, tables *t)
{
    static const char *const part[] = {"set", "same", "fold"};
    for (int set = 0; set < p->source.pair_sets && s->first == 0; set++) {
        char(*names)[64] = &t->names[3 * set];
        int64_t rows = 0;
        for (int i = 0; i < 3; i++)
            snprintf(names[i], sizeof names[i], "pair_%s_%.40s", part[i], p->source.pair_set_names[set]);
        for (int64_t i = 0; i < p->pairs; i++) rows += p->pair[i].set == set;
        int32_t *pair = add_table(t, names[0], KOLO_TABLE_I32, rows, 2, "two samples of the split");
        uint8_t *same = add_table(t, names[1], KOLO_TABLE_U8, rows, 1, "1: of the same class");
        int32_t *fold = add_table(t, names[2], KOLO_TABLE_I32, rows, 1, NULL);
        if (!pair || !same || !fold) return KOLO_ENOMEM;
        for (int64_t i = 0, at = 0; i < p->pairs; i++) {
            const source_pair *from = &p->pair[i];
            if (from->set != set) continue;
            pair[2 * at] = (int32_t)from->a, pair[2 * at + 1] = (int32_t)from->b;
            same[at] = from->same, fold[at] = from->fold;
            at++;
        }
    }
    return 0;
}

void pack_task_text(const packing *p, char *text, size_t size)
{
    const source *s = &p->source;
    const char *const words[] = {p->labelled ? "classification" : NULL,
                                 s->box_form != SOURCE_BOX_NONE ? "detection" : NULL,
                                 s->tags ? "multilabel" : NULL, s->pairs ? "pairs" : NULL};
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < 4; i++)
        if (words[i]) used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "," : "", words[i]);
    if (!used) snprintf(text, size, "classification");
}

/* A time only where the environment fixes one: outputs are to be the same bytes. */
static void created_text(char *text, size_t size)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t t = epoch ? (time_t)strtoll(epoch, NULL, 10) : 0;
    struct tm tm;
    text[0] = 0;
    if (epoch && gmtime_r(&t, &tm)) strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static const char *const box_forms[] = {NULL, "cxcywh", "xywh", "xyxy", "norm_xyxy"};

/* What made a shard, as text. */
typedef struct origin {
    char fingerprint[40], hdf5[32], jpeg[32], created[32];
} origin;

static void find_origin(const packing *p, origin *from)
{
    unsigned major, minor, release;
    kolo_h5_lock();
    H5get_libversion(&major, &minor, &release);
    kolo_h5_unlock();
    snprintf(from->hdf5, sizeof from->hdf5, "%u.%u.%u", major, minor, release);
#ifdef LIBJPEG_TURBO_VERSION_NUMBER
    snprintf(from->jpeg, sizeof from->jpeg, "libjpeg-turbo %d", LIBJPEG_TURBO_VERSION_NUMBER);
#else
    snprintf(from->jpeg, sizeof from->jpeg, "libjpeg %d", JPEG_LIB_VERSION);
#endif
    snprintf(from->fingerprint, sizeof from->fingerprint, "%016" PRIx64 "%016" PRIx64, p->fingerprint[0],
             p->fingerprint[1]);
    created_text(from->created, sizeof from->created);
}

int pack_create_shard(const packing *p, int k)
{
    const pack_options *o = &p->options;
    const pack_shard *s = &p->shard[k];
    origin from;
    find_origin(p, &from);
    const kolo_shard_note notes[] = {{"tool", "kolo-pack " KOLO_VERSION},
                                     {"options", p->options_text},
                                     {"fingerprint", from.fingerprint},
                                     {"filter", pack_filter_names[o->filter]},
                                     {"hdf5", from.hdf5},
                                     {"jpeg", from.jpeg},
                                     {"created_utc", from.created}};
    char task[64];
    pack_task_text(p, task, sizeof task);
    tables t = {0};
    int rc = make_core(p, s, &t);
    if (rc == 0) rc = make_codecs(p, s, &t);
    if (rc == 0) rc = make_boxes(p, s, &t);
    if (rc == 0) rc = make_tags(p, s, &t);
    if (rc == 0) rc = make_pairs(p, s, &t);
    const kolo_shard_spec spec = {.dataset = o->name,
                                  .split = o->out_split,
                                  .task = task,
                                  .box_form = box_forms[p->source.box_form],
                                  .generator = "kolo-pack " KOLO_VERSION,
                                  .encoding = o->encoding,
                                  .channels = p->channels,
                                  .height = p->height,
                                  .width = p->width,
                                  .count = s->count,
                                  .first = s->first,
                                  .total = p->count,
                                  .shard = k,
                                  .shards = p->shards,
                                  .classes = p->source.classes,
                                  .class_names = (const char *const *)p->source.class_names,
                                  .class_ids = p->source.class_ids,
                                  .class_counts = p->class_counts,
                                  .pack_seed = (uint64_t)o->shuffle_seed,
                                  .labels = t.labels,
                                  .ids = t.ids,
                                  .offsets = s->offsets,
                                  .sources = t.sources,
                                  .source_offsets = t.source_offsets,
                                  .rejects = k == 0 && p->rejects ? p->rejects : "",
                                  .notes = notes,
                                  .note_count =
                                      (int)(sizeof notes / sizeof *notes) - (from.created[0] ? 0 : 1),
                                  .tables = t.extra,
                                  .table_count = t.count};
    /* under another name first: a kill in between leaves no half-made file where a resume looks */
    char *fresh = kolo_format("%s.new", s->path);
    if (rc == 0) rc = fresh ? kolo_shard_create(fresh, &spec) : KOLO_ENOMEM;
    if (rc == 0 && rename(fresh, s->path) != 0) rc = kolo_fail(KOLO_EIO, "%s: %s", s->path, strerror(errno));
    free(fresh);
    free_tables(&t);
    return rc;
}

int pack_place_tables(pack_shard *s)
{
    if (!s->box_offsets) return 0;
    const int64_t rows = (int64_t)s->box_offsets[s->count];
    const kolo_shard_table box = {"box", KOLO_TABLE_F32, 2, {rows, 4}, NULL, NULL},
                           flags = {"box_flags", KOLO_TABLE_U8, 1, {rows, 1}, NULL, NULL},
                           area = {"box_area", KOLO_TABLE_F32, 1, {rows, 1}, NULL, NULL},
                           transform = {"transform", KOLO_TABLE_F32, 2, {s->count, 4}, NULL, NULL};
    KOLO_TRY(kolo_shard_table_place(s->path, &box, &s->box_place));
    KOLO_TRY(kolo_shard_table_place(s->path, &flags, &s->flags_place));
    KOLO_TRY(kolo_shard_table_place(s->path, &area, &s->area_place));
    return kolo_shard_table_place(s->path, &transform, &s->transform_place);
}

typedef struct placed { /* rows of one block */
    float (*box)[4], (*transform)[4], *area;
    uint8_t *flags;
} placed;

static int place_boxes(const packing *p, const pack_shard *s, int64_t index, int64_t count, placed *out)
{
    uint64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t slot = p->slots[s->first + index + i], from = p->order[slot];
        const pack_record *r = pack_journal_at(p, slot);
        pack_frame frame;
        KOLO_TRY(pack_frame_of(&p->options, r->orig_size[0], r->orig_size[1], &frame));
        pack_frame_transform(&frame, out->transform[i]);
        const bool turned =
            pack_is_turned(&p->source.places[from], r->orientation, r->orig_size[0], r->orig_size[1]);
        for (uint64_t k = p->source.box_offsets[from]; k < p->source.box_offsets[from + 1]; k++, at++)
            pack_place_box(&frame, &p->source.box[k], p->source.box_form, turned ? r->orientation : 1,
                           out->box[at], &out->flags[at], &out->area[at]);
    }
    return 0;
}

int pack_store_targets(const packing *p, const pack_shard *s, int64_t index, int64_t count)
{
    if (!s->box_offsets) return 0;
    const uint64_t first = s->box_offsets[index], rows = s->box_offsets[index + count] - first;
    placed out = {.box = kolo_alloc(sizeof *out.box * rows + 8),
                  .transform = kolo_alloc(sizeof *out.transform * (size_t)count + 8),
                  .area = kolo_alloc(sizeof *out.area * rows + 8),
                  .flags = kolo_alloc(rows + 8)};
    int rc = out.box && out.transform && out.area && out.flags ? 0 : KOLO_ENOMEM;
    if (rc == 0) rc = place_boxes(p, s, index, count, &out);
    if (rc == 0 && rows) rc = kolo_file_pwrite(s->fd, s->path, out.box, 16 * rows, s->box_place + 16 * first);
    if (rc == 0 && rows) rc = kolo_file_pwrite(s->fd, s->path, out.flags, rows, s->flags_place + first);
    if (rc == 0 && rows) rc = kolo_file_pwrite(s->fd, s->path, out.area, 4 * rows, s->area_place + 4 * first);
    if (rc == 0)
        rc = kolo_file_pwrite(s->fd, s->path, out.transform, 16 * (size_t)count,
                              s->transform_place + 16 * (uint64_t)index);
    free(out.box);
    free(out.transform);
    free(out.area);
    free(out.flags);
    return rc;
}
