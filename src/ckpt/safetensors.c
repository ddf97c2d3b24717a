/* The reader of safetensors. The header is taken for hostile: nothing in it is used before it is checked. */
#include "ckpt/safetensors.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/reader.h"
#include "kolo/error.h"

/* bytes; JSON values, each a node of 64 bytes in memory */
enum { HEADER_LIMIT = 100000000, VALUES_LIMIT = 4000000 };

/* Parses the header; *data: where the tensors begin. */
static int parse_header(const kolo_weights *w, cJSON **header, size_t *data)
{
    const uint64_t length = reader_number(w->map, 8);
    if (length > w->bytes - 8) return kolo_weights_refuse(w, "its header is longer than the file");
    if (length > HEADER_LIMIT) return kolo_weights_refuse(w, "its header is longer than 100 MB");
    const char *text = (const char *)w->map + 8;
    if (length < 2 || text[0] != '{') return kolo_weights_refuse(w, "its header is not a JSON object");
    int values = 0;
    for (uint64_t i = 0; i < length; i++) values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (values > VALUES_LIMIT) return kolo_weights_refuse(w, "its header holds too many values");
    if (memchr(text, 0, length) || memmem(text, length, "\\u0000", 6))
        return kolo_weights_refuse(w, "its header holds a NUL character");
    const char *end = NULL;
    *header = cJSON_ParseWithLengthOpts(text, length, &end, 0);
    if (!cJSON_IsObject(*header)) return kolo_weights_refuse(w, "its header is not valid JSON");
    for (; end < text + length; end++)
        if (!strchr(" \t\r\n", *end)) return kolo_weights_refuse(w, "there is text behind its header");
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
    if (!cJSON_IsString(value)) return kolo_weights_refuse_tensor(w, t->name, "it has no dtype");
    for (int i = 0; i < KOLO_DTYPES; i++)
        if (!strcmp(value->valuestring, kolo_weight_type_name((enum kolo_dtype)i))) {
            t->type = (enum kolo_dtype)i;
            return 0;
        }
    return kolo_fail(
        KOLO_EINPUT,
        "%s: tensor \"%.100s\" is of type %.20s; this program reads F32, BF16, F16, F64, I8 to I64, U8, U16 "
        "and BOOL: save it in one of them",
        w->path, t->name, value->valuestring);
}

static int read_shape(const kolo_weights *w, const cJSON *value, kolo_weight *t, uint64_t *bytes)
{
    if (!cJSON_IsArray(value)) return kolo_weights_refuse_tensor(w, t->name, "it has no shape");
    *bytes = kolo_dtype_size(t->type);
    const cJSON *one;
    cJSON_ArrayForEach(one, value)
    {
        uint64_t dim;
        if (t->rank == KOLO_MAX_DIM)
            return kolo_weights_refuse_tensor(w, t->name, "it has more than 6 dimensions");
        if (!whole(one, &dim))
            return kolo_weights_refuse_tensor(w, t->name, "a dimension is not a whole number");
        if (__builtin_mul_overflow(*bytes, dim, bytes))
            return kolo_weights_refuse_tensor(w, t->name, "its shape overflows");
        t->dim[t->rank++] = (int64_t)dim;
    }
    return 0;
}

static int read_offsets(const kolo_weights *w, const cJSON *value, kolo_weight *t, size_t data,
                        uint64_t bytes)
{
    uint64_t begin, end;
    if (!cJSON_IsArray(value) || cJSON_GetArraySize(value) != 2 ||
        !whole(cJSON_GetArrayItem(value, 0), &begin) || !whole(cJSON_GetArrayItem(value, 1), &end))
        return kolo_weights_refuse_tensor(w, t->name, "its data_offsets are not two whole numbers");
    if (begin > end) return kolo_weights_refuse_tensor(w, t->name, "it ends before it begins");
    if (end > w->bytes - data)
        return kolo_weights_refuse_tensor(w, t->name, "it ends behind the end of the file");
    if (end - begin != bytes)
        return kolo_weights_refuse_tensor(w, t->name, "its shape and its data_offsets do not agree");
    t->data = w->map + data + begin;
    t->bytes = bytes;
    return 0;
}

static int read_tensor(const kolo_weights *w, const cJSON *item, size_t data, kolo_weight *t)
{
    uint64_t bytes = 0;
    /* three members, all found: so none is there twice */
    if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != 3)
        return kolo_weights_refuse_tensor(w, t->name, "its entry is not {dtype, shape, data_offsets}");
    KOLO_TRY(read_type(w, cJSON_GetObjectItemCaseSensitive(item, "dtype"), t));
    KOLO_TRY(read_shape(w, cJSON_GetObjectItemCaseSensitive(item, "shape"), t, &bytes));
    return read_offsets(w, cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), t, data, bytes);
}

static int compare_places(const void *a, const void *b, void *weights)
{
    const kolo_weight *w = weights, *x = &w[*(const int *)a], *y = &w[*(const int *)b];
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty tensors first */
}

/* The tensors must tile the data: no overlap, and no hole in which something else may hide. */
static int check_places(kolo_weights *w, size_t data)
{
    const unsigned char *at = w->map + data;
    int *order = kolo_weights_keep(w, ((size_t)w->count + 1) * sizeof *order);
    if (!order) return KOLO_ENOMEM;
    for (int i = 0; i < w->count; i++) order[i] = i;
    qsort_r(order, (size_t)w->count, sizeof *order, compare_places, w->weight);
    for (int i = 0; i < w->count; i++) {
        const kolo_weight *t = &w->weight[order[i]];
        if ((const unsigned char *)t->data < at)
            return kolo_weights_refuse_tensor(w, t->name, "it overlaps another tensor");
        if ((const unsigned char *)t->data > at)
            return kolo_weights_refuse_tensor(w, t->name, "there is a hole before it");
        at += t->bytes;
    }
    return at == w->map + w->bytes
               ? 0
               : kolo_weights_refuse(w, "there are bytes that belong to no tensor (or none at all)");
}

static int read_tensors(kolo_weights *w, const cJSON *header, size_t data)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, header)
    {
        if (!strcmp(item->string, "__metadata__")) continue;
        kolo_weight *t = kolo_weights_add(w, item->string, strlen(item->string));
        if (!t) return KOLO_ENOMEM;
        KOLO_TRY(read_tensor(w, item, data, t));
    }
    return check_places(w, data);
}

int kolo_safetensors_read(kolo_weights *w)
{
    size_t data = 0;
    cJSON *header = NULL;
    int rc = parse_header(w, &header, &data);
    if (rc == 0) rc = read_tensors(w, header, data);
    cJSON_Delete(header);
    return rc;
}
