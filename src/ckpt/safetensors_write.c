#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "ckpt/safetensors.h"
#include "ckpt/stream.h"
#include "kolo/error.h"

/* order[n]: indices, widest type first, else as given. */
static void order_weights(const kolo_weight *weight, int n, int *order)
{
    int used = 0;
    for (size_t size = 8; size > 0; size /= 2)
        for (int i = 0; i < n; i++)
            if (kolo_dtype_size(weight[i].type) == size) order[used++] = i;
}

static void write_entry(FILE *f, const kolo_weight *w, uint64_t begin)
{
    kolo_json_string(f, w->name);
    fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[", kolo_weight_type_name(w->type));
    for (int d = 0; d < w->rank; d++) fprintf(f, "%s%lld", d ? "," : "", (long long)w->dim[d]);
    fprintf(f, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
            (unsigned long long)(begin + w->bytes));
}

static void write_metadata(FILE *f, const char *const *metadata)
{
    fputs("\"__metadata__\":{", f);
    for (int i = 0; metadata[i]; i += 2) {
        if (i) fputc(',', f);
        kolo_json_string(f, metadata[i]);
        fputc(':', f);
        kolo_json_string(f, metadata[i + 1]);
    }
    fputc('}', f);
}

static int write_header(FILE *f, const kolo_weight *weight, int n, const char *const *metadata)
{
    int rc = KOLO_ENOMEM;
    int *order = kolo_alloc(sizeof *order * (size_t)(n + 1));
    uint64_t *begin = kolo_alloc(sizeof *begin * (size_t)(n + 1)), at = 0;
    if (!order || !begin) goto done;
    order_weights(weight, n, order);
    for (int i = 0; i < n; i++) {
        begin[order[i]] = at;
        at += weight[order[i]].bytes;
    }
    for (int i = 0; i < 8; i++) fputc(0, f); /* the length, set when it is known */
    fputc('{', f);
    if (metadata) write_metadata(f, metadata);
    for (int i = 0; i < n; i++) {
        if (i || metadata) fputc(',', f);
        write_entry(f, &weight[i], begin[i]);
    }
    fputc('}', f);
    while (ftello(f) % 8) fputc(' ', f);
    rc = 0;
done:
    free(order);
    free(begin);
    return rc;
}

int kolo_weights_header(const kolo_weight *weight, int n, const char *const *metadata, char **header,
                        size_t *bytes)
{
    *header = NULL;
    FILE *f = open_memstream(header, bytes);
    if (!f) return kolo_fail(KOLO_ENOMEM, "out of memory while writing a safetensors header");
    int rc = write_header(f, weight, n, metadata);
    if (fclose(f) != 0 && rc == 0)
        rc = kolo_fail(KOLO_ENOMEM, "out of memory while writing a safetensors header");
    if (rc < 0) {
        free(*header);
        *header = NULL;
        return rc;
    }
    uint64_t length = *bytes - 8;
    for (int i = 0; i < 8; i++) (*header)[i] = (char)(length >> 8 * i);
    return 0;
}

int kolo_weights_write(const char *path, const kolo_weight *weight, int n, const char *const *metadata)
{
    stream s;
    char *header = NULL;
    size_t bytes = 0;
    int *order = kolo_alloc(sizeof *order * (size_t)(n + 1));
    int rc = order ? kolo_weights_header(weight, n, metadata, &header, &bytes) : KOLO_ENOMEM;
    if (rc == 0 && (rc = kolo_stream_open_temp(&s, path)) == 0) {
        order_weights(weight, n, order);
        rc = kolo_stream_put(&s, header, bytes);
        for (int i = 0; rc == 0 && i < n; i++)
            rc = kolo_stream_put(&s, weight[order[i]].data, weight[order[i]].bytes);
        rc = kolo_stream_commit(&s, path, rc);
    }
    free(order);
    free(header);
    return rc;
}
