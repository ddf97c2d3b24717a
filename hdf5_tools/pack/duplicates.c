/* Images that are in a split twice: reported, not removed, since it may be intended; two classes for one
 * image hardly are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "pack/pack.h"

/* equal checksums of unequal images are rare, but their number grows with the square */
#define MOST_COMPARED 1000

typedef struct print {
    uint64_t key; /* checksum and length */
    int64_t position;
} print;

static int by_key(const void *a, const void *b)
{
    const print *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static int duplicates_load(const packing *p, int64_t position, source_buffer *buffer)
{
    int k = 0;
    while (k + 1 < p->shards && p->shard[k + 1].first <= position) k++;
    const pack_shard *s = &p->shard[k];
    const uint64_t *at = &s->offsets[position - s->first];
    KOLO_TRY(source_grow(buffer, at[1] - at[0]));
    return kolo_file_pread(s->fd, s->path, buffer->data, buffer->bytes, s->places.data + at[0]);
}

typedef struct found {
    int64_t compared, duplicates, relabelled, first[2]; /* relabelled: the two have different classes */
} found;

static int duplicates_compare(const packing *p, const print *list, found *f)
{
    source_buffer a = {0}, b = {0};
    int rc = 0;
    for (int64_t i = 1; i < p->count && rc == 0 && f->compared < MOST_COMPARED; i++) {
        if (list[i].key != list[i - 1].key) continue;
        f->compared++;
        rc = duplicates_load(p, list[i - 1].position, &a);
        if (rc == 0) rc = duplicates_load(p, list[i].position, &b);
        if (rc < 0 || memcmp(a.data, b.data, a.bytes) != 0) continue;
        const int32_t *labels = p->source.labels;
        const int64_t x = p->order[p->slots[list[i - 1].position]], y = p->order[p->slots[list[i].position]];
        const bool relabelled = labels[x] != labels[y];
        if (f->duplicates++ == 0 || (relabelled && f->relabelled == 0)) f->first[0] = x, f->first[1] = y;
        f->relabelled += relabelled;
    }
    free(a.data);
    free(b.data);
    return rc;
}

int pack_report_duplicates(const packing *p, const uint64_t *keys)
{
    found f = {0};
    char a[1024], b[1024], two_classes[64] = "";
    print *list = kolo_alloc(sizeof *list * (size_t)p->count);
    if (!list) return KOLO_ENOMEM;
    for (int64_t i = 0; i < p->count; i++) list[i] = (print){keys[i], i};
    qsort(list, (size_t)p->count, sizeof *list, by_key);
    int rc = duplicates_compare(p, list, &f);
    free(list);
    if (rc < 0 || f.duplicates == 0) return rc;
    source_path(&p->source, f.first[0], a, sizeof a);
    source_path(&p->source, f.first[1], b, sizeof b);
    if (f.relabelled)
        snprintf(two_classes, sizeof two_classes, ", %" PRId64 " of them with two classes", f.relabelled);
    kolo_warn("%s%" PRId64 " images are in this split twice%s: for example %s and %s",
              f.compared == MOST_COMPARED ? "at least " : "", f.duplicates, two_classes, a, b);
    return 0;
}
