/* The reader of safetensors. The header is taken for hostile: nothing in it is used before it is checked. */
#include "ckpt/safetensors.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/stream.h"
#include "kolo/error.h"

enum { HEADER_LIMIT = 100000000, VALUES_LIMIT = 4000000 }; /* bytes; JSON values, each a node of 64 bytes in memory */

struct kolo_weights {
    char *path;
    unsigned char *map;
    size_t bytes;
    cJSON *header;       /* owns the names */
    kolo_weight *weight; /* [count] */
    int *by_name;        /* [count] */
    int count;
};

static const struct {
    const char *name;
    size_t size;
} type_table[] = {[KOLO_WEIGHT_F32] = {"F32", 4}, [KOLO_WEIGHT_BF16] = {"BF16", 2}, [KOLO_WEIGHT_I64] = {"I64", 8}};
enum { TYPES = sizeof type_table / sizeof *type_table };

const char *kolo_weight_type_name(enum kolo_weight_type type) { return type_table[type].name; }
size_t kolo_weight_type_size(enum kolo_weight_type type) { return type_table[type].size; }

static int refuse(const kolo_weights *w, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: not a whole safetensors file: %s; copy or download it again", w->path, what);
}

static int refuse_tensor(const kolo_weights *w, const char *name, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: not a whole safetensors file: tensor \"%.100s\": %s; copy or download it again",
                     w->path, name, what);
}

static int map_file(kolo_weights *w)
{
    struct stat st;
    int fd = open(w->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return kolo_fail_io("open", w->path), KOLO_EINPUT;
    int rc = 0;
    if (fstat(fd, &st) < 0) rc = kolo_fail_io("read", w->path);
    else if (!S_ISREG(st.st_mode)) rc = kolo_fail(KOLO_EINPUT, "%s: not a file", w->path);
    else if (st.st_size < 10) rc = refuse(w, "too short"); /* a length and "{}" */
    if (rc == 0) {
        w->bytes = (size_t)st.st_size;
        void *map = mmap(NULL, w->bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) rc = kolo_fail_io("map", w->path);
        else w->map = map;
    }
    close(fd);
    return rc;
}

/* Parses the header; *data: where the tensors begin. */
static int parse_header(kolo_weights *w, size_t *data)
{
    uint64_t length = 0;
    for (int i = 0; i < 8; i++) length |= (uint64_t)w->map[i] << 8 * i;
    if (length > w->bytes - 8) return refuse(w, "its header is longer than the file");
    if (length > HEADER_LIMIT) return refuse(w, "its header is longer than 100 MB");
    const char *text = (const char *)w->map + 8;
    if (length < 2 || text[0] != '{') return refuse(w, "its header is not a JSON object");
    int values = 0;
    for (uint64_t i = 0; i < length; i++) values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (values > VALUES_LIMIT) return refuse(w, "its header holds too many values");
    if (memchr(text, 0, length) || memmem(text, length, "\\u0000", 6))
        return refuse(w, "its header holds a NUL character");
    const char *end = NULL;
    w->header = cJSON_ParseWithLengthOpts(text, length, &end, 0);
    if (!cJSON_IsObject(w->header)) return refuse(w, "its header is not valid JSON");
    for (; end < text + length; end++)
        if (!strchr(" \t\r\n", *end)) return refuse(w, "there is text behind its header");
    *data = 8 + (size_t)length;
    return 0;
}

/* A whole number from 0 to 2^53, where doubles end to be exact. */
static bool whole(const cJSON *value, uint64_t *number)
{
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= 0 && value->valuedouble <= 0x1p53)) return false;
    *number = (uint64_t)value->valuedouble;
    return (double)*number == value->valuedouble;
}

static int read_type(const kolo_weights *w, const cJSON *value, kolo_weight *t)
{
    if (!cJSON_IsString(value)) return refuse_tensor(w, t->name, "it has no dtype");
    for (int i = 0; i < TYPES; i++)
        if (!strcmp(value->valuestring, type_table[i].name)) {
            t->type = (enum kolo_weight_type)i;
            return 0;
        }
    return kolo_fail(
        KOLO_EINPUT,
        "%s: tensor \"%.100s\" is of type %.20s; this program reads F32, BF16 and I64: save it in one of them", w->path,
        t->name, value->valuestring);
}

static int read_shape(const kolo_weights *w, const cJSON *value, kolo_weight *t, uint64_t *bytes)
{
    if (!cJSON_IsArray(value)) return refuse_tensor(w, t->name, "it has no shape");
    *bytes = type_table[t->type].size;
    const cJSON *one;
    cJSON_ArrayForEach(one, value)
    {
        uint64_t dim;
        if (t->rank == KOLO_MAX_DIM) return refuse_tensor(w, t->name, "it has more than 6 dimensions");
        if (!whole(one, &dim)) return refuse_tensor(w, t->name, "a dimension is not a whole number");
        if (__builtin_mul_overflow(*bytes, dim, bytes)) return refuse_tensor(w, t->name, "its shape overflows");
        t->dim[t->rank++] = (int64_t)dim;
    }
    return 0;
}

static int read_offsets(const kolo_weights *w, const cJSON *value, kolo_weight *t, size_t data, uint64_t bytes)
{
    uint64_t begin, end;
    if (!cJSON_IsArray(value) || cJSON_GetArraySize(value) != 2 || !whole(cJSON_GetArrayItem(value, 0), &begin) ||
        !whole(cJSON_GetArrayItem(value, 1), &end))
        return refuse_tensor(w, t->name, "its data_offsets are not two whole numbers");
    if (begin > end) return refuse_tensor(w, t->name, "it ends before it begins");
    if (end > w->bytes - data) return refuse_tensor(w, t->name, "it ends behind the end of the file");
    if (end - begin != bytes) return refuse_tensor(w, t->name, "its shape and its data_offsets do not agree");
    t->data = w->map + data + begin;
    t->bytes = bytes;
    return 0;
}

static int read_tensor(const kolo_weights *w, const cJSON *item, size_t data, kolo_weight *t)
{
    uint64_t bytes = 0;
    t->name = item->string;
    /* three members, all found: so none is there twice */
    if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != 3)
        return refuse_tensor(w, t->name, "its entry is not {dtype, shape, data_offsets}");
    KOLO_TRY(read_type(w, cJSON_GetObjectItemCaseSensitive(item, "dtype"), t));
    KOLO_TRY(read_shape(w, cJSON_GetObjectItemCaseSensitive(item, "shape"), t, &bytes));
    return read_offsets(w, cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), t, data, bytes);
}

static int compare_names(const void *a, const void *b, void *weights)
{
    const kolo_weight *w = weights;
    return strcmp(w[*(const int *)a].name, w[*(const int *)b].name);
}

static int compare_places(const void *a, const void *b, void *weights)
{
    const kolo_weight *w = weights, *x = &w[*(const int *)a], *y = &w[*(const int *)b];
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty tensors first */
}

/* The tensors must tile the data: no overlap, and no hole in which something else may hide. */
static int check_places(const kolo_weights *w, size_t data)
{
    int *order = w->by_name; /* not in use yet */
    const unsigned char *at = w->map + data;
    qsort_r(order, (size_t)w->count, sizeof *order, compare_places, w->weight);
    for (int i = 0; i < w->count; i++) {
        const kolo_weight *t = &w->weight[order[i]];
        if ((const unsigned char *)t->data < at) return refuse_tensor(w, t->name, "it overlaps another tensor");
        if ((const unsigned char *)t->data > at) return refuse_tensor(w, t->name, "there is a hole before it");
        at += t->bytes;
    }
    return at == w->map + w->bytes ? 0 : refuse(w, "there are bytes that belong to no tensor (or none at all)");
}

static int check_names(const kolo_weights *w)
{
    qsort_r(w->by_name, (size_t)w->count, sizeof *w->by_name, compare_names, w->weight);
    for (int i = 1; i < w->count; i++)
        if (!strcmp(w->weight[w->by_name[i - 1]].name, w->weight[w->by_name[i]].name))
            return refuse_tensor(w, w->weight[w->by_name[i]].name, "there are two of this name");
    return 0;
}

static int read_tensors(kolo_weights *w, size_t data)
{
    size_t entries = (size_t)cJSON_GetArraySize(w->header);
    w->weight = kolo_alloc(sizeof *w->weight * (entries + 1));
    w->by_name = kolo_alloc(sizeof *w->by_name * (entries + 1));
    if (!w->weight || !w->by_name) return KOLO_ECONFIG;
    const cJSON *item;
    cJSON_ArrayForEach(item, w->header)
    {
        if (!strcmp(item->string, "__metadata__")) continue;
        KOLO_TRY(read_tensor(w, item, data, &w->weight[w->count]));
        w->by_name[w->count] = w->count;
        w->count++;
    }
    KOLO_TRY(check_places(w, data));
    return check_names(w);
}

int kolo_weights_open(kolo_weights **weights, const char *path)
{
    int rc = KOLO_ECONFIG;
    size_t data = 0;
    kolo_weights *w = *weights = kolo_alloc(sizeof *w);
    if (!w) return KOLO_ECONFIG;
    if (!(w->path = kolo_strdup(path))) goto fail;
    KOLO_TRY_GOTO(rc, map_file(w));
    KOLO_TRY_GOTO(rc, parse_header(w, &data));
    KOLO_TRY_GOTO(rc, read_tensors(w, data));
    return 0;
fail:
    kolo_weights_close(weights);
    return rc;
}

void kolo_weights_close(kolo_weights **weights)
{
    kolo_weights *w = *weights;
    if (!w) return;
    if (w->map) munmap(w->map, w->bytes);
    cJSON_Delete(w->header);
    free(w->weight);
    free(w->by_name);
    free(w->path);
    free(w);
    *weights = NULL;
}

int kolo_weights_count(const kolo_weights *weights) { return weights->count; }

const kolo_weight *kolo_weights_at(const kolo_weights *weights, int i)
{
    return i >= 0 && i < weights->count ? &weights->weight[i] : NULL;
}

const kolo_weight *kolo_weights_find(const kolo_weights *weights, const char *name)
{
    int low = 0, high = weights->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const kolo_weight *t = &weights->weight[weights->by_name[middle]];
        int order = strcmp(name, t->name);
        if (order == 0) return t;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

void kolo_weight_to_f32(const kolo_weight *weight, float *to, int64_t count)
{
    if (weight->type == KOLO_WEIGHT_F32) {
        memcpy(to, weight->data, (size_t)count * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < count; i++) { /* BF16: the upper half of an f32 */
        const unsigned char *p = (const unsigned char *)weight->data + 2 * i;
        uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
        memcpy(&to[i], &bits, sizeof bits);
    }
}
