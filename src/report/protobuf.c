#include "report/protobuf.h"

#include <string.h>

#include "base/memory.h"

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

void kolo_message_raw(kolo_message *m, const void *data, size_t bytes)
{
    m->failed = m->failed || kolo_grow(&m->data, &m->capacity, (int64_t)(m->used + bytes), 1) < 0;
    if (m->failed || bytes == 0) return;
    memcpy(m->data + m->used, data, bytes);
    m->used += bytes;
}

static void put_varint(kolo_message *m, uint64_t value)
{
    uint8_t text[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) text[n++] = (uint8_t)(value | 0x80);
    text[n++] = (uint8_t)value;
    kolo_message_raw(m, text, n);
}

static void put_key(kolo_message *m, int field, enum wire wire)
{
    put_varint(m, (uint64_t)field << 3 | (uint64_t)wire);
}

/* The machines that this runs on are little-endian, as the format is. */
static void put_fixed(kolo_message *m, int field, enum wire wire, const void *value, size_t bytes)
{
    put_key(m, field, wire);
    kolo_message_raw(m, value, bytes);
}

void kolo_message_int(kolo_message *m, int field, int64_t value)
{
    put_key(m, field, VARINT);
    put_varint(m, (uint64_t)value);
}

void kolo_message_float(kolo_message *m, int field, float value)
{
    put_fixed(m, field, FIXED32, &value, sizeof value);
}

void kolo_message_double(kolo_message *m, int field, double value)
{
    put_fixed(m, field, FIXED64, &value, sizeof value);
}

void kolo_message_doubles(kolo_message *m, int field, const double *values, size_t count)
{
    kolo_message_bytes(m, field, values, count * sizeof *values);
}

void kolo_message_bytes(kolo_message *m, int field, const void *data, size_t bytes)
{
    put_key(m, field, BYTES);
    put_varint(m, bytes);
    kolo_message_raw(m, data, bytes);
}

void kolo_message_string(kolo_message *m, int field, const char *text)
{
    kolo_message_bytes(m, field, text, strlen(text));
}

void kolo_message_message(kolo_message *m, int field, kolo_message *inner)
{
    kolo_message_bytes(m, field, inner->data, inner->used);
    m->failed = m->failed || inner->failed;
    kolo_message_clear(inner);
}
