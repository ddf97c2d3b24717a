/* The entries of a zip archive in memory (PKWARE's APPNOTE 6.3: stored and deflated, zip64), as
 * torch.save writes them. */
#ifndef KOLO_CKPT_ZIP_H
#define KOLO_CKPT_ZIP_H

#include "ckpt/reader.h"

typedef struct zip_entry {
    const char *name; /* in the map, not ended by NUL */
    size_t length;    /* of the name */
    bool deflated, checked;
    uint32_t crc;
    uint64_t packed, bytes;
    const unsigned char *data; /* in the map, `packed` long; after zip_take `bytes` long */
} zip_entry;

/* The directory of w's file: entries in the order of their names, none over another, no
 * name twice; kept by w. */
int zip_open(kolo_weights *w, zip_entry **entries, int64_t *n);
/* Makes e->data its contents: inflated if need be (kept by w; the whole archive may at most become 64 times
 * as long), the crc looked at. */
int zip_take(kolo_weights *w, zip_entry *e);
/* The entry of this name; NULL: there is none. */
zip_entry *zip_find(zip_entry *entries, int64_t n, const char *name, size_t length);

#endif
