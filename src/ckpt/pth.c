/* What torch.save writes: a pickle that says which tensors there are, and their numbers, as entries of a zip
 * archive or (until PyTorch 1.6) behind the pickle. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/pickle.h"
#include "ckpt/reader.h"
#include "ckpt/zip.h"
#include "kolo/error.h"

enum { PICKLE_LIMIT = 1 << 26, KEY = 64, NESTED = 4 };

typedef struct old_storage {
    const char *key; /* in the pickle's memory */
    int64_t length, count;
    enum kolo_dtype type;
    const unsigned char *data; /* NULL: the file does not say where */
} old_storage;

typedef struct pth {
    kolo_weights *w;
    pickle p;
    const char *folder; /* of the archive, "archive/"; length of it */
    size_t folder_length;
    zip_entry *entry;
    int64_t entries;
    old_storage *old; /* [olds], by key; NULL: a zip archive */
    int64_t olds;
} pth;

/* ---- numbers ---- */

static int compare_keys(const void *a, const void *b)
{
    const old_storage *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return memcmp(x->key, y->key, (size_t)x->length);
}

static const unsigned char *old_data(const pth *f, const pickle_value *storage)
{
    const old_storage wanted = {.key = storage->text, .length = storage->count};
    const old_storage *s = bsearch(&wanted, f->old, (size_t)f->olds, sizeof wanted, compare_keys);
    return s && s->count == storage->number && s->type == storage->type ? s->data : NULL;
}

static int zip_data(pth *f, const pickle_value *storage, const unsigned char **data)
{
    char name[256];
    const size_t length = f->folder_length + 5 + (size_t)storage->count;
    if (storage->count > KEY || length >= sizeof name)
        return kolo_weights_refuse(f->w, "the name of a storage is too long");
    memcpy(name, f->folder, f->folder_length);
    memcpy(name + f->folder_length, "data/", 5);
    memcpy(name + f->folder_length + 5, storage->text, (size_t)storage->count);
    zip_entry *e = zip_find(f->entry, f->entries, name, length);
    const size_t size = kolo_dtype_size(storage->type);
    if (!e || e->bytes / size != (uint64_t)storage->number || e->bytes % size)
        return kolo_weights_refuse(f->w,
                                   "the numbers of a tensor are missing, or of another length than it says");
    KOLO_TRY(zip_take(f->w, e));
    *data = e->data;
    return 0;
}

/* ---- tensors ---- */

static int whole_list(const pth *f, const pickle_value *tuple, int64_t *to)
{
    for (int64_t i = 0; i < tuple->count; i++) {
        const pickle_value *v = &f->p.value[tuple->item[i]];
        if (v->kind != PICKLE_NUMBER || v->number < 0) return -1;
        to[i] = v->number;
    }
    return 0;
}

/* Shape and strides, which must stay within the storage; what expand() makes visits an element many times,
 * and so has more elements than the file. *count: elements. */
static int read_shape(pth *f, const pickle_value *tensor, int64_t have, kolo_weight *t, int64_t *count)
{
    const pickle_value *shape = &f->p.value[tensor->item[1]], *strides = &f->p.value[tensor->item[2]];
    int64_t stride[KOLO_MAX_DIM], last = tensor->number, dense = 1;
    if (shape->count > KOLO_MAX_DIM)
        return kolo_weights_refuse_tensor(f->w, t->name, "it has more than 6 dimensions");
    if (strides->count != shape->count || whole_list(f, shape, t->dim) < 0 ||
        whole_list(f, strides, stride) < 0)
        return kolo_weights_refuse_tensor(f->w, t->name,
                                          "its shape and strides are not as many whole numbers");
    t->rank = (int)shape->count;
    *count = 1;
    bool row_major = true;
    for (int d = t->rank - 1; d >= 0; d--) {
        int64_t reach;
        if (__builtin_mul_overflow(*count, t->dim[d], count))
            return kolo_weights_refuse_tensor(f->w, t->name, "its shape overflows");
        if (t->dim[d] > 1 && (__builtin_mul_overflow(t->dim[d] - 1, stride[d], &reach) ||
                              __builtin_add_overflow(last, reach, &last)))
            return kolo_weights_refuse_tensor(f->w, t->name, "its strides overflow");
        if (t->dim[d] <= 1) stride[d] = 0; /* nobody goes it, however long it is */
        else row_major &= stride[d] == dense;
        dense = *count;
    }
    if (tensor->number < 0 || (*count > 0 && last >= have) || tensor->number > have)
        return kolo_weights_refuse_tensor(f->w, t->name, "it reaches beyond its storage");
    if (row_major || *count == 0) return 0;
    int64_t *kept = kolo_weights_keep(f->w, sizeof stride);
    if (!kept) return KOLO_ENOMEM;
    memcpy(kept, stride, sizeof stride);
    t->stride = kept;
    return 0;
}

static int read_tensor(pth *f, const pickle_value *key, const pickle_value *tensor)
{
    const pickle_value *storage = &f->p.value[tensor->item[0]];
    const unsigned char *data = NULL;
    int64_t count = 0;
    if (memchr(key->text, 0, (size_t)key->count))
        return kolo_weights_refuse(f->w, "a tensor's name holds a NUL character");
    kolo_weight *t = kolo_weights_add(f->w, key->text, (size_t)key->count);
    if (!t) return KOLO_ENOMEM;
    t->type = storage->type;
    KOLO_TRY(read_shape(f, tensor, storage->number, t, &count));
    if (!f->old) KOLO_TRY(zip_data(f, storage, &data));
    else if (!(data = old_data(f, storage)))
        return kolo_weights_refuse_tensor(f->w, t->name,
                                          "its numbers are missing, or of another length than it says");
    const size_t size = kolo_dtype_size(t->type);
    t->data = data + (size_t)tensor->number * size;
    if (__builtin_mul_overflow((size_t)count, size, &t->bytes))
        return kolo_weights_refuse_tensor(f->w, t->name, "its shape overflows");
    return 0;
}

static int has_tensors(const pickle *p, const pickle_value *dict)
{
    for (int64_t i = 0; i + 1 < dict->count; i += 2)
        if (p->value[dict->item[i + 1]].kind == PICKLE_TENSOR) return 1;
    return 0;
}

static const pickle_value *dict_under(const pickle *p, const pickle_value *root, const char *key)
{
    const pickle_value *inner = pickle_get(p, root, key);
    return inner && inner->kind == PICKLE_DICT ? inner : NULL;
}

/* What programs put the dict of tensors into; the weights' own before their average. */
static const pickle_value *unwrap(pth *f, const pickle_value *root)
{
    const pickle_value *first = NULL;
    for (const char *const *key = kolo_weights_group; *key; key++) {
        const pickle_value *inner = dict_under(&f->p, root, *key);
        if (!inner) continue;
        if (!first) first = inner, f->w->taken = *key;
        else if (!f->w->beside && has_tensors(&f->p, inner)) f->w->beside = *key;
    }
    return first;
}

/* The dict of tensors: the root, or one within. */
static const pickle_value *find_state(pth *f, const pickle_value *root)
{
    for (int depth = 0; depth < NESTED && root->kind == PICKLE_DICT; depth++) {
        const char *wanted = f->w->wanted;
        const pickle_value *inner = wanted ? dict_under(&f->p, root, wanted) : NULL;
        if (inner) {
            f->w->taken = wanted;
            return has_tensors(&f->p, inner) ? inner : NULL;
        }
        inner = unwrap(f, root);
        if (!inner) {
            if (wanted) f->w->taken = NULL; /* names may have it */
            return has_tensors(&f->p, root) ? root : NULL;
        }
        root = inner;
    }
    return NULL;
}

static int read_state(pth *f, int32_t root)
{
    const pickle_value *state = find_state(f, &f->p.value[root]);
    if (!state)
        return kolo_fail(KOLO_EINPUT,
                         "%s: it holds no dict of tensors: write one by torch.save(model.state_dict(), FILE)",
                         f->w->path);
    for (int64_t i = 0; i + 1 < state->count; i += 2) {
        const pickle_value *key = &f->p.value[state->item[i]], *value = &f->p.value[state->item[i + 1]];
        if (value->kind == PICKLE_TENSOR && key->kind == PICKLE_TEXT) KOLO_TRY(read_tensor(f, key, value));
    }
    return 0;
}

/* ---- the archive ---- */

static bool ends_in(const zip_entry *e, const char *tail)
{
    const size_t n = strlen(tail);
    return e->length >= n && !memcmp(e->name + e->length - n, tail, n);
}

static int read_archive(pth *f)
{
    zip_entry *root = NULL;
    KOLO_TRY(zip_open(f->w, &f->entry, &f->entries));
    for (int64_t i = 0; i < f->entries; i++)
        if (ends_in(&f->entry[i], "/data.pkl")) {
            if (root)
                return kolo_weights_refuse(
                    f->w, "it holds two data.pkl, and programs may differ in which they read");
            root = &f->entry[i];
        }
    if (!root)
        return kolo_fail(KOLO_EINPUT, "%s: a zip archive, but none of torch.save's: it holds no data.pkl",
                         f->w->path);
    f->folder = root->name;
    f->folder_length = root->length - strlen("data.pkl");
    for (int64_t i = 0; i < f->entries; i++) {
        if (!ends_in(&f->entry[i], "/byteorder")) continue;
        KOLO_TRY(zip_take(f->w, &f->entry[i]));
        if (f->entry[i].bytes < 6 || memcmp(f->entry[i].data, "little", 6))
            return kolo_fail(KOLO_EINPUT,
                             "%s: its numbers begin with their high bytes: save it again on another machine",
                             f->w->path);
    }
    if (root->bytes > PICKLE_LIMIT) return kolo_weights_refuse(f->w, "its pickle is longer than 64 MB");
    KOLO_TRY(zip_take(f->w, root));
    f->p.at = root->data;
    f->p.end = root->data + root->bytes;
    const int value = pickle_read(&f->p);
    return value < 0 ? value : read_state(f, value);
}

/* ---- the older form: magic number, version, machine, what was saved, keys, then for each key its
 * length and its numbers */

static int list_old(pth *f)
{
    const pickle *p = &f->p;
    f->old = kolo_weights_keep(f->w, (size_t)p->values * sizeof *f->old + 1);
    if (!f->old) return KOLO_ENOMEM;
    for (int64_t i = 0; i < p->values; i++) {
        const pickle_value *v = &p->value[i];
        if (v->kind == PICKLE_STORAGE)
            f->old[f->olds++] =
                (old_storage){.key = v->text, .length = v->count, .count = v->number, .type = v->type};
    }
    qsort(f->old, (size_t)f->olds, sizeof *f->old, compare_keys);
    int64_t n = 0;
    for (int64_t i = 0; i < f->olds; i++) /* one of a key; old_data compares the others with it */
        if (n == 0 || compare_keys(&f->old[n - 1], &f->old[i])) f->old[n++] = f->old[i];
    f->olds = n;
    return 0;
}

static int place_old(pth *f, const pickle_value *keys)
{
    if (keys->kind != PICKLE_LIST) return kolo_weights_refuse(f->w, "it does not list its storages");
    const unsigned char *at = f->p.at, *const end = f->w->map + f->w->bytes;
    for (int64_t i = 0; i < keys->count; i++) {
        const pickle_value *key = &f->p.value[keys->item[i]];
        const old_storage wanted = {.key = key->text, .length = key->count};
        old_storage *s = key->kind == PICKLE_TEXT
                             ? bsearch(&wanted, f->old, (size_t)f->olds, sizeof wanted, compare_keys)
                             : NULL;
        if (!s) return kolo_weights_refuse(f->w, "it lists a storage that no tensor has");
        if (end - at < 8 || reader_number(at, 8) != (uint64_t)s->count ||
            (uint64_t)s->count > (uint64_t)(end - at - 8) / kolo_dtype_size(s->type))
            return kolo_weights_refuse(f->w, "its numbers end early, or are as many as no storage has");
        s->data = at + 8;
        at += 8 + (size_t)s->count * kolo_dtype_size(s->type);
    }
    return 0;
}

static int read_old(pth *f)
{
    int value[5];
    f->p.at = f->w->map;
    for (int i = 0; i < 5; i++) {
        const size_t left = (size_t)(f->w->map + f->w->bytes - f->p.at);
        f->p.end = f->p.at + (left < PICKLE_LIMIT ? left : PICKLE_LIMIT);
        value[i] = pickle_read(&f->p);
        KOLO_TRY(value[i]);
    }
    const pickle_value *version = &f->p.value[value[1]], *machine = &f->p.value[value[2]];
    const pickle_value *little =
        machine->kind == PICKLE_DICT ? pickle_get(&f->p, machine, "little_endian") : NULL;
    if (version->kind != PICKLE_NUMBER || version->number != 1001 || !little || little->number != 1)
        return kolo_weights_refuse(f->w,
                                   "it is of another version, or of a machine with another order of bytes");
    KOLO_TRY(list_old(f));
    KOLO_TRY(place_old(f, &f->p.value[value[4]]));
    return read_state(f, value[3]);
}

static int read_with(kolo_weights *w, int (*read)(pth *f))
{
    pth f = {.w = w, .p.path = w->path};
    const int rc = read(&f);
    pickle_free(&f.p);
    return rc;
}

int kolo_pth_read(kolo_weights *w) { return read_with(w, read_archive); }
int kolo_pth_read_old(kolo_weights *w) { return read_with(w, read_old); }
