#include "readers/datum.h"

#include <inttypes.h>

#include "data/image/image.h"
#include "kolo/error.h"

enum { CHANNELS = 1, HEIGHT, WIDTH, DATA, LABEL, FLOAT_DATA, ENCODED };
enum { VARINT = 0, EIGHT_BYTES = 1, COUNTED = 2, FOUR_BYTES = 5 };

typedef struct wire {
    const uint8_t *at, *end;
} wire;

static int broken(const char *what) { return kolo_fail(KOLO_EINPUT, "is not a Datum: %s", what); }

static int read_varint(wire *w, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (w->at == w->end) return broken("it ends within a number");
        const uint8_t byte = *w->at++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return 0;
    }
    return broken("a number of more than 64 bits");
}

/* Any field: `value` of a number, or *part and the length in `value`. */
static int read_field(wire *w, int kind, uint64_t *value, const uint8_t **part)
{
    *part = NULL;
    if (kind == VARINT) return read_varint(w, value);
    if (kind == COUNTED) KOLO_TRY(read_varint(w, value));
    else if (kind == EIGHT_BYTES) *value = 8;
    else if (kind == FOUR_BYTES) *value = 4;
    else return broken("a field of a kind that it does not have");
    if (*value > (uint64_t)(w->end - w->at)) return broken("a field is longer than the message");
    *part = w->at;
    w->at += *value;
    return 0;
}

/* int32, of which a negative one has ten bytes. */
static int read_int32(uint64_t value, int64_t *number)
{
    *number = (int64_t)value;
    return *number >= INT32_MIN && *number <= INT32_MAX ? 0 : broken("a number of more than 32 bits");
}

static int set_field(datum *d, uint64_t field, int kind, uint64_t value, const uint8_t *part, bool *floats)
{
    int64_t number = 0;
    if (field == 0) return broken("a field without number");
    if (field == FLOAT_DATA) return *floats = true, 0;
    if (field > ENCODED) return 0;
    if (kind != (field == DATA ? COUNTED : VARINT)) return broken("a field has another type");
    if (field == DATA) return d->data = part, d->bytes = (size_t)value, 0;
    if (field == ENCODED) return d->encoded = value != 0, 0;
    KOLO_TRY(read_int32(value, &number));
    if (field == LABEL) {
        if (number < 0) return kolo_fail(KOLO_EINPUT, "has the label %" PRId64, number);
        d->label = number;
        return 0;
    }
    if (number < 0 || number > KOLO_IMAGE_MAX_SIDE)
        return kolo_fail(KOLO_EINPUT, "is a Datum of %" PRId64 " channels, rows or columns", number);
    *(field == CHANNELS ? &d->channels : field == HEIGHT ? &d->height : &d->width) = (int)number;
    return 0;
}

static int datum_check(const datum *d, bool floats)
{
    if (!d->data && floats)
        return kolo_fail(KOLO_EINPUT, "is a Datum of fractions (float_data), not of an image");
    if (!d->data) return broken("it has no data");
    if (d->encoded)
        return kolo_image_sniff(d->data, d->bytes) != KOLO_IMAGE_UNKNOWN
                   ? 0
                   : kolo_fail(KOLO_EINPUT,
                               "is a Datum that says it is encoded, but its data is not an image");
    if ((d->channels != 1 && d->channels != 3) || d->height < 1 || d->width < 1)
        return kolo_fail(KOLO_EINPUT, "is a Datum of %d channels, %d x %d; images have 1 or 3 channels",
                         d->channels, d->width, d->height);
    const uint64_t pixels = (uint64_t)d->height * (uint64_t)d->width;
    if (pixels > KOLO_IMAGE_MAX_PIXELS || d->bytes != pixels * (uint64_t)d->channels)
        return kolo_fail(KOLO_EINPUT, "is a Datum of %d x %d x %d with %zu bytes", d->channels, d->height,
                         d->width, d->bytes);
    return 0;
}

int datum_read(const uint8_t *message, size_t bytes, datum *d)
{
    wire w = {message, message + bytes};
    bool floats = false;
    *d = (datum){.label = -1};
    while (w.at < w.end) {
        uint64_t tag, value = 0;
        const uint8_t *part = NULL;
        KOLO_TRY(read_varint(&w, &tag));
        KOLO_TRY(read_field(&w, (int)(tag & 7), &value, &part));
        KOLO_TRY(set_field(d, tag >> 3, (int)(tag & 7), value, part, &floats));
    }
    return datum_check(d, floats);
}

void datum_pixels(const datum *d, bool rgb, uint8_t *pixels)
{
    const size_t plane = (size_t)d->height * (size_t)d->width, channels = (size_t)d->channels;
    for (size_t c = 0; c < channels; c++) {
        const uint8_t *from = d->data + plane * (rgb ? c : channels - 1 - c);
        for (size_t i = 0; i < plane; i++) pixels[i * channels + c] = from[i];
    }
}
