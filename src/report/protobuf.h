/* Protocol Buffers' wire format, written: a message is a growing buffer to which fields are added in any
 * order; a message in a message is one of its fields. (protobuf.dev/programming-guides/encoding) */
#ifndef KOLO_REPORT_PROTOBUF_H
#define KOLO_REPORT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kolo_message {
    uint8_t *data; /* owned: free() */
    size_t used;
    int64_t capacity;
    bool failed; /* out of memory: what was added since is missing */
} kolo_message;

/* Empties it; the buffer stays. */
static inline void kolo_message_clear(kolo_message *m) { m->used = 0, m->failed = false; }
void kolo_message_raw(kolo_message *m, const void *data, size_t bytes); /* no field: as it is */
void kolo_message_int(kolo_message *m, int field, int64_t value);       /* int32, int64, bool, enum */
void kolo_message_float(kolo_message *m, int field, float value);
void kolo_message_double(kolo_message *m, int field, double value);
void kolo_message_doubles(kolo_message *m, int field, const double *values, size_t count); /* packed */
void kolo_message_bytes(kolo_message *m, int field, const void *data, size_t bytes);
void kolo_message_string(kolo_message *m, int field, const char *text);
/* `inner` as a field of `m`; inner is emptied. */
void kolo_message_message(kolo_message *m, int field, kolo_message *inner);

#endif
