/* What allreduces that are more than a sum by elements need from call to call, of one stream: Adasum's
 * schedules and the codecs. A codec that counts rounds or holds something back belongs to a name and stays as
 * long as the group does; the others can be made again, so only those used last are kept. */
#ifndef COMM_LIBRARY_CODEC_STATES_H
#define COMM_LIBRARY_CODEC_STATES_H

#include "comm/core/adasum.h"
#include "comm/compress/compress.h"
#include "comm/library/negotiate.h"
#include "comm/library/parts.h"

/* What one is made for; the same on all members. */
typedef struct lib_codec_state_want {
    const char *words; /* compression; "": Adasum */
    const char *name;  /* "": can be made again */
    int64_t elements;  /* together */
    int64_t rows;      /* codec: of a matrix that stands row by row; 1: no matrix */
    int64_t track;     /* without a name: one run at a time */
    enum kolo_dtype type;
    const int64_t *count; /* [tensors] Adasum's tensors */
    int tensors;
} lib_codec_state_want;

typedef struct lib_codec_state {
    lib_link link;
    struct lib_codec_state *before, *after; /* of those without a name, the last used one first */
    char *key;                              /* [key_bytes] of what it is made for; begins with the name */
    int64_t key_bytes, rows, elements;
    comm_adasum *adasum;
    comm_codec *codec;
} lib_codec_state;

/* The one that was made for this, or a new one. Where a name comes back with something else, what was held
 * back under it is dropped. The turn is held. */
int lib_codec_state_find(lib_stream *stream, const lib_codec_state_want *want, lib_codec_state **out);

#endif
