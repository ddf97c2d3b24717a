#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/jpeg.h"
#include "data/resample.h"
#include "kolo/error.h"
#include "pack.h"

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

/* Channels that pictures get: 0 as long as `--color keep` has not yet been decided. */
static int wanted_channels(const packing *p) { return p->channels; }

static int load_picture(converter *c, int64_t i)
{
    const source *s = &c->p->source;
    KOLO_TRY(source_load(s, i, &c->file));
    if (!c->file.height)
        return kolo_picture_decode(c->jpeg, c->file.data, c->file.bytes, wanted_channels(c->p), &c->picture);
    KOLO_TRY(kolo_picture_shape(&c->picture, c->file.height, c->file.width, c->file.channels));
    memcpy(c->picture.pixels, c->file.data, c->file.bytes);
    return kolo_picture_convert(&c->picture, wanted_channels(c->p));
}

static int rounded(int64_t side, int64_t other, int64_t by)
{
    const int64_t n = side * other / by;
    return n < 1 ? 1 : (int)n;
}

static void resized_shape(const pack_options *o, const kolo_picture *p, int *height, int *width)
{
    const bool tall = p->height > p->width;
    *height = *width = o->size;
    if (o->resize == PACK_RESIZE_NONE) *height = p->height, *width = p->width;
    if (o->resize == PACK_RESIZE_SHORTER)
        *(tall ? height : width) = rounded(o->size, tall ? p->height : p->width, tall ? p->width : p->height);
    if (o->resize == PACK_RESIZE_LONGER)
        *(tall ? width : height) = rounded(o->size, tall ? p->width : p->height, tall ? p->height : p->width);
}

/* Resizes and crops into c->resized, or leaves c->picture. Returns which one it is in *result. */
static int reshape(converter *c, kolo_picture **result)
{
    const pack_options *o = &c->p->options;
    int height, width;
    *result = &c->picture;
    resized_shape(o, &c->picture, &height, &width);
    const int out_height = o->crop ? o->size : height, out_width = o->crop ? o->size : width;
    if (height == c->picture.height && width == c->picture.width && out_height == height && out_width == width)
        return 0;
    if (height < out_height || width < out_width)
        return kolo_fail(KOLO_EINPUT, "is only %d x %d pixels, smaller than --crop center with --size %d", width,
                         height, o->size);
    const kolo_resize q = {.height = c->picture.height,
                           .width = c->picture.width,
                           .full_height = height,
                           .full_width = width,
                           .row = (height - out_height) / 2,
                           .column = (width - out_width) / 2,
                           .rows = out_height,
                           .columns = out_width};
    KOLO_TRY(kolo_picture_shape(&c->resized, out_height, out_width, c->picture.channels));
    *result = &c->resized;
    return kolo_resample(c->resampler, &c->picture, &q, c->resized.pixels,
                         (size_t)out_width * (size_t)c->picture.channels);
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

/* A JPEG source file goes into the shard as it is, where nothing asks for other pixels. */
static bool keeps_bytes(const converter *c, const kolo_picture *result)
{
    kolo_jpeg_info info;
    if (c->file.height || result != &c->picture) return false;
    if (kolo_picture_sniff(c->file.data, c->file.bytes) != KOLO_PICTURE_JPEG) return false;
    return kolo_jpeg_inspect(c->jpeg, c->file.data, c->file.bytes, &info) == 0 &&
           !(c->p->channels == 1 && info.components != 1);
}

static int store(converter *c, kolo_picture *result, const uint8_t **data, pack_record *r)
{
    size_t bytes = (size_t)result->height * (size_t)result->width * (size_t)result->channels;
    r->state = KOLO_SAMPLE_OK;
    *data = result->pixels;
    if (c->p->options.encoding == KOLO_ENCODING_JPEG) {
        if (keeps_bytes(c, result)) {
            *data = c->file.data;
            bytes = c->file.bytes;
        } else {
            KOLO_TRY(kolo_jpeg_encode(result, c->p->options.quality, &c->encoded, &c->encoded_capacity, &bytes));
            *data = c->encoded;
            r->state = KOLO_SAMPLE_ENCODED;
        }
    }
    if (bytes > INT32_MAX)
        return kolo_fail(KOLO_EINPUT, "becomes a sample of %zu bytes, more than a shard can hold", bytes);
    r->bytes = (uint32_t)bytes;
    r->crc = kolo_crc32c(0, *data, bytes);
    return 0;
}

static int convert(converter *c, int64_t i, const uint8_t **data, pack_record *r)
{
    kolo_picture *result;
    KOLO_TRY(load_picture(c, i));
    r->orig_size[0] = (uint16_t)c->picture.height, r->orig_size[1] = (uint16_t)c->picture.width;
    r->source_channels = (uint8_t)c->picture.channels;
    KOLO_TRY(reshape(c, &result));
    const packing *p = c->p;
    if (p->options.encoding == KOLO_ENCODING_RAW && p->height &&
        (result->height != p->height || result->width != p->width))
        return kolo_fail(KOLO_EINPUT,
                         "has %d x %d pixels, the first picture %d x %d; raw samples are all of one size, add --size N",
                         result->width, result->height, p->width, p->height);
    r->size[0] = (uint16_t)result->height, r->size[1] = (uint16_t)result->width;
    r->channels = (uint8_t)result->channels;
    measure(result, r);
    return store(c, result, data, r);
}

int converter_run(converter *c, int64_t i, const uint8_t **data, pack_record *record)
{
    char path[1024];
    memset(record, 0, sizeof *record);
    int rc = convert(c, i, data, record);
    record->status = rc == 0 ? PACK_GOOD : PACK_BAD;
    record_seal(record);
    if (rc == 0) return 0;
    source_full_path(&c->p->source, i, path, sizeof path);
    return kolo_fail_in(rc, "%s: ", path);
}

int converter_shape(converter *c, int64_t i, int *height, int *width)
{
    kolo_picture *result;
    KOLO_TRY(load_picture(c, i));
    KOLO_TRY(reshape(c, &result));
    *height = result->height;
    *width = result->width;
    return 0;
}
