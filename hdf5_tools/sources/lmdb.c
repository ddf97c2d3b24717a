/* LMDB: every value is an image file (LSUN, and what other programs make of folders), or Caffe's Datum; the
 * first one tells which. Labels:
 *   Datum      its own; --annotations names the numbers, one a line (DIGITS' labels.txt)
 *   images   rows `key TAB label` of --annotations, and then a second one that names numbers; without
 *              it the folder in the key ("dog/1.jpg"); several --in without folders in their keys, as
 *              LSUN's: one class each
 * Keys of bookkeeping (__len__, num-samples) are passed over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/image/image.h"
#include "kolo/error.h"
#include "readers/datum.h"
#include "readers/lmdb_file.h"
#include "readers/text_rows.h"
#include "sources/names.h"
#include "sources/options.h"

enum form { UNKNOWN, IMAGES, DATUMS };

typedef struct value {
    const uint8_t *data;
    size_t bytes;
    bool is_datum;
} value;

typedef struct values { /* the state: what load needs */
    lmdb_file file[PACK_MOST_INPUTS];
    value *list; /* [samples] */
    int64_t capacity;
    bool rgb;
} values;

typedef struct listing {
    source *s;
    values *x;
    const pack_options *o;
    int input;
    enum form form;
    name_table labels, keys; /* keys: of the rows of --annotations */
    int32_t *key_label;      /* [keys] number in labels */
    int64_t key_room;
} listing;

/* ---- keys ---------------------------------------------------------------------------------------------- */

static bool is_bookkeeping(const char *key)
{
    return text_begins(key, "__") || strcmp(key, "num-samples") == 0 || strcmp(key, "num_samples") == 0;
}

/* ---- labels -------------------------------------------------------------------------------------------- */

static int add_row(listing *l, const text_rows *rows, char *line)
{
    char *space = strrchr(line, '\t');
    int64_t key, label;
    if (!space) space = strrchr(line, ' ');
    if (!space || space == line || !space[1]) return text_fail(rows, "`key TAB label` is expected");
    *space = 0;
    if (names_find(&l->keys, line) >= 0) return text_fail(rows, "the key `%.60s` for the second time", line);
    KOLO_TRY(names_add(&l->keys, line, &key));
    KOLO_TRY(names_add(&l->labels, space + 1, &label));
    KOLO_TRY(kolo_grow(&l->key_label, &l->key_room, key, sizeof *l->key_label));
    l->key_label[key] = (int32_t)label;
    return 0;
}

static int read_row(void *of, const text_rows *rows, char *line)
{
    listing *l = of;
    const int rc = add_row(l, rows, line);
    return rc < 0 ? source_fault(l->s, rc) : 0;
}

/* "bedroom" of "lsun/bedroom_train_lmdb" */
static void class_of_path(const char *path, char *name, size_t size)
{
    static const char *const ends[] = {".mdb", ".lmdb", "_lmdb", "_train", "_val", "_test"};
    size_t n = strlen(path), first;
    while (n > 1 && path[n - 1] == '/') n--;
    for (first = n; first > 0 && path[first - 1] != '/';) first--;
    snprintf(name, size, "%.*s", (int)(n - first), path + first);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (text_ends(name, ends[i]) && strlen(name) > strlen(ends[i]))
            name[strlen(name) - strlen(ends[i])] = 0;
}

static int add_label(listing *l, const char *name, int32_t *label)
{
    int64_t number;
    KOLO_TRY(names_add(&l->labels, name, &number));
    *label = (int32_t)number;
    return 0;
}

static int image_label(listing *l, const char *key, int32_t *label)
{
    char name[LMDB_MOST_KEY];
    *label = SOURCE_UNLABELLED;
    if (l->keys.count) {
        const int64_t at = names_find(&l->keys, key);
        if (at < 0)
            return kolo_fail(KOLO_EINPUT, "%s/%s: %s has no row for this key", l->o->in[l->input], key,
                             l->o->annotations[0]);
        return *label = l->key_label[at], 0;
    }
    const char *slash = strchr(key, '/');
    if (slash && slash > key) snprintf(name, sizeof name, "%.*s", (int)(slash - key), key);
    else if (l->o->in_count > 1) class_of_path(l->o->in[l->input], name, sizeof name);
    else return 0;
    return add_label(l, name, label);
}

/* ---- values -------------------------------------------------------------------------------------------- */

/* Of samples that are pixels: their size, where all have the same. */
static void note_size(source *s, const datum *d)
{
    const datum all = {.height = s->height, .width = s->width, .channels = s->channels};
    const bool same =
        s->count == 0 || (d->height == all.height && d->width == all.width && d->channels == all.channels);
    s->height = s->width = s->channels = 0;
    if (!d->encoded && same) s->height = d->height, s->width = d->width, s->channels = d->channels;
}

static int datum_label(listing *l, const char *key, lmdb_part message, int32_t *label)
{
    datum d;
    char name[24];
    const int rc = datum_read(message.data, message.bytes, &d);
    if (rc < 0) return kolo_fail_in(rc, "%s/%s: ", l->o->in[l->input], key);
    note_size(l->s, &d);
    *label = SOURCE_UNLABELLED;
    if (d.label < 0) return 0;
    snprintf(name, sizeof name, "%lld", (long long)d.label);
    return add_label(l, name, label);
}

static bool is_image(lmdb_part v) { return kolo_image_sniff(v.data, v.bytes) != KOLO_IMAGE_UNKNOWN; }

/* 0: this key is to be passed over. */
static int find_form(listing *l, const char *key, lmdb_part v)
{
    datum d;
    if (is_image(v)) {
        l->form = IMAGES;
        note_size(l->s, &(datum){.encoded = true});
        if (l->o->annotation_count && l->keys.count == 0)
            KOLO_TRY(text_each(l->o->annotations[0], read_row, l));
        return 1;
    }
    if (is_bookkeeping(key)) return 0;
    if (datum_read(v.data, v.bytes, &d) == 0) return l->form = DATUMS, 1;
    return kolo_fail(KOLO_EINPUT, "%s/%s: neither an image nor a Datum of Caffe; %s", l->o->in[l->input], key,
                     kolo_error_text());
}

static int add_value(listing *l, const char *key, lmdb_part v, int32_t label)
{
    source *s = l->s;
    char path[2 * LMDB_MOST_KEY], folder[LMDB_MOST_KEY];
    class_of_path(l->o->in[l->input], folder, sizeof folder);
    snprintf(path, sizeof path, "%s%s%s", l->o->in_count > 1 ? folder : "", l->o->in_count > 1 ? "/" : "",
             key);
    KOLO_TRY(kolo_grow(&l->x->list, &l->x->capacity, s->count, sizeof *l->x->list));
    l->x->list[s->count] = (value){v.data, v.bytes, l->form == DATUMS};
    return source_add(s, label, path, -1);
}

static int lmdb_add(void *context, lmdb_part k, lmdb_part v)
{
    listing *l = context;
    char key[LMDB_MOST_KEY];
    int32_t label = SOURCE_UNLABELLED;
    lmdb_key_text(k, key);
    int rc = l->form == UNKNOWN ? find_form(l, key, v) : 1;
    if (rc == 0 || (l->form == IMAGES && is_bookkeeping(key) && !is_image(v))) return 0;
    if (rc > 0) rc = l->form == DATUMS ? datum_label(l, key, v, &label) : image_label(l, key, &label);
    if (rc < 0) return source_fault(l->s, rc);
    return add_value(l, key, v, label);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

static int make_classes(listing *l)
{
    const pack_options *o = l->o;
    const int own = l->form == IMAGES && l->keys.count ? 1 : 0; /* the first that may name numbers */
    int32_t *label = NULL;
    if (l->s->count == 0) return kolo_fail(KOLO_EINPUT, "%s: no images", o->in[0]);
    int rc =
        names_to_classes(&l->labels, l->s, o->annotation_count > own ? o->annotations[own] : NULL, &label);
    if (rc == 0) names_relabel(l->s, label);
    free(label);
    return rc;
}

static int open_values(source *s, const pack_options *o, bool rgb)
{
    values *x = s->state = kolo_alloc(sizeof *x);
    listing l = {.s = s, .x = x, .o = o};
    if (!x) return KOLO_ENOMEM;
    x->rgb = rgb;
    int rc = o->annotation_count > 2
                 ? kolo_fail(KOLO_ECONFIG, "--source lmdb takes --annotations twice at most: rows and names")
                 : 0;
    if (rc == 0 && o->in_count == 1 && !(s->root = kolo_strdup(o->in[0]))) rc = KOLO_ENOMEM;
    for (int i = 0; i < o->in_count && rc == 0; i++) {
        l.form = UNKNOWN;
        l.input = i;
        rc = lmdb_open(&x->file[i], o->in[i]);
        if (rc == 0) rc = lmdb_each(&x->file[i], lmdb_add, &l);
    }
    if (rc == 0) rc = make_classes(&l);
    names_free(&l.labels);
    names_free(&l.keys);
    free(l.key_label);
    return rc;
}

static int open_lmdb(source *s, const pack_options *o) { return open_values(s, o, false); }
static int open_rgb(source *s, const pack_options *o) { return open_values(s, o, true); }

static int lmdb_load(const source *s, int64_t i, source_buffer *buffer)
{
    const values *x = s->state;
    const value *v = &x->list[i];
    datum d = {.encoded = true, .data = v->data, .bytes = v->bytes};
    if (v->is_datum) KOLO_TRY(datum_read(v->data, v->bytes, &d));
    if (d.bytes > INT32_MAX) return kolo_fail(KOLO_EINPUT, "has %zu bytes, too many for an image", d.bytes);
    KOLO_TRY(source_grow(buffer, d.bytes));
    if (d.encoded) {
        if (d.bytes) memcpy(buffer->data, d.data, d.bytes);
        return 0;
    }
    datum_pixels(&d, x->rgb, buffer->data);
    buffer->height = d.height, buffer->width = d.width, buffer->channels = d.channels;
    return 0;
}

static void close_lmdb(source *s)
{
    values *x = s->state;
    if (!x) return;
    for (int i = 0; i < PACK_MOST_INPUTS; i++) lmdb_close(&x->file[i]);
    free(x->list);
    free(x);
    s->state = NULL;
}

#define ANNOTATIONS \
    "of images rows `key TAB label` [the folder in the key]; the names of labels that are numbers"

const source_kind source_lmdb = {.name = "lmdb",
                                 .help = "LMDB of image files (LSUN: one --in a class) or of Caffe's "
                                         "Datum, whose planes are blue, green, red",
                                 .annotations = ANNOTATIONS,
                                 .open = open_lmdb,
                                 .load = lmdb_load,
                                 .close = close_lmdb};
const source_kind source_lmdb_rgb = {.name = "lmdb-rgb",
                                     .help = "the same with Datums whose planes are red, green, blue",
                                     .annotations = ANNOTATIONS,
                                     .open = open_rgb,
                                     .load = lmdb_load,
                                     .close = close_lmdb};
