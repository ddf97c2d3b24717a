#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/exif.h"
#include "data/jpeg.h"
#include "data/resample.h"
#include "kolo/error.h"
#include "pack.h"

#define MEASURED 1024

struct converter {
    const packing *p;
    kolo_jpeg *jpeg;
    kolo_resampler *resampler;
    kolo_picture picture, resized;
    source_buffer file;
    uint8_t *encoded;
    size_t encoded_capacity;
};

int converter_create(converter **converter_out, const packing *p)
{
    converter *c = *converter_out = kolo_alloc(sizeof *c);
    int rc = KOLO_ECONFIG;
    if (!c) return rc;
    c->p = p;
    KOLO_TRY_GOTO(rc, kolo_jpeg_create(&c->jpeg));
    KOLO_TRY_GOTO(rc, kolo_resampler_create(&c->resampler));
    return 0;
fail:
    converter_destroy(converter_out);
    return rc;
}

void converter_destroy(converter **converter_in)
{
    converter *c = *converter_in;
    if (!c) return;
    kolo_jpeg_destroy(&c->jpeg);
    kolo_resampler_destroy(&c->resampler);
    kolo_picture_free(&c->picture);
    kolo_picture_free(&c->resized);
    free(c->file.data);
    free(c->encoded);
    free(c);
    *converter_in = NULL;
}

void record_seal(pack_record *r) { r->check = kolo_crc32c(0, r, offsetof(pack_record, check)); }

bool record_valid(const pack_record *r)
{
    return r->status != PACK_UNKNOWN && r->check == kolo_crc32c(0, r, offsetof(pack_record, check));
}

/* The orientation that the file states; decoding turns pixels by it. */
static int load_pixels(converter *c, pack_record *r)
{
    const packing *p = c->p;
    if (c->file.height) {
        KOLO_TRY(kolo_picture_shape(&c->picture, c->file.height, c->file.width, c->file.channels));
        memcpy(c->picture.pixels, c->file.data, c->file.bytes);
        r->source_channels = (uint8_t)c->file.channels;
        return kolo_picture_convert(&c->picture, p->channels);
    }
    KOLO_TRY(kolo_picture_decode(c->jpeg, c->file.data, c->file.bytes, p->channels, &c->picture));
    r->source_channels = (uint8_t)c->picture.channels;
    return 0;
}

/* Resizes, crops and puts bars around c->picture; *result is c->picture itself where nothing changes. */
static int reshape(converter *c, const pack_frame *f, kolo_picture **result)
{
    *result = &c->picture;
    if (pack_frame_is_whole(f)) return 0;
    const size_t channels = (size_t)c->picture.channels, stride = (size_t)f->width * channels;
    const kolo_resize q = {.height = f->source_height,
                           .width = f->source_width,
                           .full_height = f->full_height,
                           .full_width = f->full_width,
                           .row = f->top,
                           .column = f->left,
                           .rows = f->rows,
                           .columns = f->columns,
                           .filter = c->p->options.filter};
    KOLO_TRY(kolo_picture_shape(&c->resized, f->height, f->width, c->picture.channels));
    if (f->rows != f->height || f->columns != f->width)
        memset(c->resized.pixels, PACK_BAR, stride * (size_t)f->height);
    *result = &c->resized;
    return kolo_resample(c->resampler, &c->picture, &q,
                         c->resized.pixels + (size_t)f->above * stride + (size_t)f->before * channels, stride);
}

/* Does the end marker come after the start of the scan? Files that were cut off lack it; nothing in a scan looks like it. */
static bool jpeg_has_end(const uint8_t *p, size_t bytes)
{
    size_t at = 2;
    while (at + 4 <= bytes && !(p[at] == 0xFF && p[at + 1] == 0xDA)) { /* segments up to the scan */
        if (p[at] != 0xFF || p[at + 1] == 0xFF || p[at + 1] == 0x01 || (p[at + 1] >= 0xD0 && p[at + 1] <= 0xD8)) at++;
        else at += 2 + ((size_t)p[at + 2] << 8 | p[at + 3]);
    }
    for (size_t end = bytes; end >= at + 4; end--)
        if (p[end - 2] == 0xFF && p[end - 1] == 0xD9) return true;
    return false;
}

static void measure(const kolo_picture *p, pack_record *r)
{
    const size_t pixels = (size_t)p->height * (size_t)p->width;
    r->pixels = pixels;
    for (int k = 0; k < p->channels; k++) {
        const uint8_t *at = p->pixels + k;
        uint64_t sum = 0, square = 0;
        uint8_t low = 255, high = 0;
        for (size_t i = 0; i < pixels; i++, at += p->channels) {
            const uint32_t v = *at;
            sum += v;
            square += v * v;
            if (v < low) low = (uint8_t)v;
            if (v > high) high = (uint8_t)v;
        }
        r->sum[k] = sum, r->square[k] = square, r->low[k] = low, r->high[k] = high;
    }
}

/* Annotations made for a picture of another size would put boxes in the wrong places. */
static int check_size(const converter *c, int64_t i, const pack_record *r)
{
    const source_place *place = &c->p->source.places[i];
    const int height = r->orig_size[0], width = r->orig_size[1];
    if (!place->height || (place->height == height && place->width == width) ||
        pack_is_turned(place, r->orientation, height, width))
        return 0;
    return kolo_fail(KOLO_EINPUT, "has %d x %d pixels, its annotation says %d x %d", width, height, place->width,
                     place->height);
}

static int note_shape(converter *c, int64_t i, int height, int width, pack_frame *f, pack_record *r)
{
    r->orig_size[0] = (uint16_t)height, r->orig_size[1] = (uint16_t)width;
    KOLO_TRY(check_size(c, i, r));
    KOLO_TRY(pack_frame_of(&c->p->options, height, width, f));
    r->size[0] = (uint16_t)f->height, r->size[1] = (uint16_t)f->width;
    return 0;
}

static int store_bytes(const uint8_t *data, size_t bytes, enum kolo_sample_state state, enum kolo_codec codec,
                       pack_record *r)
{
    if (bytes > INT32_MAX)
        return kolo_fail(KOLO_EINPUT, "becomes a sample of %zu bytes, more than a shard can hold", bytes);
    r->state = (uint8_t)state;
    r->codec = (uint8_t)codec;
    r->bytes = (uint32_t)bytes;
    r->crc = kolo_crc32c(0, data, bytes);
    return 0;
}

/* 1: the file's own bytes became the sample: a JPEG whose pixels nothing changes. Decoding it would only show what the
 * headers and the end do not: damage in between. */
static int keep(converter *c, int64_t i, bool look, const uint8_t **data, pack_record *r)
{
    const packing *p = c->p;
    kolo_jpeg_info info;
    pack_frame f;
    if (p->options.encoding == KOLO_ENCODING_RAW || c->file.height) return 0;
    if (kolo_picture_sniff(c->file.data, c->file.bytes) != KOLO_PICTURE_JPEG) return 0;
    KOLO_TRY(kolo_jpeg_inspect(c->jpeg, c->file.data, c->file.bytes, &info));
    if (p->channels == 1 && info.components != 1) return 0;
    const bool swap = info.orientation >= 5;
    r->orientation = (uint8_t)info.orientation;
    KOLO_TRY(note_shape(c, i, swap ? info.width : info.height, swap ? info.height : info.width, &f, r));
    if (!pack_frame_is_whole(&f)) return 0;
    r->source_channels = info.components == 1 ? 1 : 3;
    r->channels = p->channels ? (uint8_t)p->channels : r->source_channels;
    if (look || p->options.decode_all || !jpeg_has_end(c->file.data, c->file.bytes)) {
        KOLO_TRY(load_pixels(c, r));
        measure(&c->picture, r);
    }
    *data = c->file.data;
    KOLO_TRY(store_bytes(*data, c->file.bytes, KOLO_SAMPLE_OK, KOLO_CODEC_JPEG, r));
    return 1;
}

static int store_pixels(converter *c, kolo_picture *result, const uint8_t **data, pack_record *r)
{
    size_t bytes = (size_t)result->height * (size_t)result->width * (size_t)result->channels;
    if (c->p->options.encoding == KOLO_ENCODING_JPEG) {
        KOLO_TRY(kolo_jpeg_encode(result, c->p->options.quality, &c->encoded, &c->encoded_capacity, &bytes));
        *data = c->encoded;
        return store_bytes(*data, bytes, KOLO_SAMPLE_ENCODED, KOLO_CODEC_JPEG, r);
    }
    *data = result->pixels;
    return store_bytes(*data, bytes, KOLO_SAMPLE_OK, KOLO_CODEC_RAW, r);
}

static int convert(converter *c, int64_t i, bool look, const uint8_t **data, pack_record *r)
{
    const packing *p = c->p;
    kolo_picture *result;
    pack_frame f;
    r->orientation = 1;
    KOLO_TRY(source_load(&p->source, i, &c->file));
    const int kept = keep(c, i, look, data, r);
    if (kept) return kept < 0 ? kept : 0;
    if (!c->file.height && kolo_picture_sniff(c->file.data, c->file.bytes) == KOLO_PICTURE_JPEG)
        r->orientation = (uint8_t)kolo_exif_orientation(c->file.data, c->file.bytes);
    KOLO_TRY(load_pixels(c, r));
    KOLO_TRY(note_shape(c, i, c->picture.height, c->picture.width, &f, r));
    KOLO_TRY(reshape(c, &f, &result));
    if (p->options.encoding == KOLO_ENCODING_RAW && p->height &&
        (result->height != p->height || result->width != p->width))
        return kolo_fail(KOLO_EINPUT,
                         "has %d x %d pixels, the first picture %d x %d; raw samples are all of one size, add --size N",
                         result->width, result->height, p->width, p->height);
    r->channels = (uint8_t)result->channels;
    measure(result, r);
    return store_pixels(c, result, data, r);
}

/* As many pictures, spread evenly, as give the mean to half a percent of the range. */
bool pack_measures(const packing *p, int64_t slot)
{
    return !p->options.stats_from && slot % ((p->slot_count + MEASURED - 1) / MEASURED) == 0;
}

int converter_run(converter *c, int64_t i, bool look, const uint8_t **data, pack_record *record)
{
    char path[4096];
    memset(record, 0, sizeof *record);
    int rc = convert(c, i, look, data, record);
    record->status = rc == 0 ? PACK_GOOD : PACK_BAD;
    record_seal(record);
    if (rc == 0) return 0;
    source_full_path(&c->p->source, i, path, sizeof path);
    return kolo_fail_in(rc, "%s: ", path);
}

int converter_shape(converter *c, int64_t i, int *height, int *width)
{
    pack_record r = {0};
    pack_frame f;
    KOLO_TRY(source_load(&c->p->source, i, &c->file));
    KOLO_TRY(load_pixels(c, &r));
    KOLO_TRY(pack_frame_of(&c->p->options, c->picture.height, c->picture.width, &f));
    *height = f.height;
    *width = f.width;
    return 0;
}
