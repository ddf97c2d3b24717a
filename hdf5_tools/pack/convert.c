#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/image/exif.h"
#include "data/image/jpeg.h"
#include "data/image/resample.h"
#include "kolo/error.h"
#include "pack/pack.h"

#define MEASURED 512

struct converter {
    const packing *p;
    kolo_jpeg *jpeg;
    kolo_resampler *resampler;
    kolo_image image, resized;
    int top, left; /* of the image's first pixel, where only a part was decoded */
    source_buffer file;
    uint8_t *encoded;
    size_t encoded_capacity;
};

int converter_create(converter **converter_out, const packing *p)
{
    converter *c = *converter_out = kolo_alloc(sizeof *c);
    int rc = KOLO_ENOMEM;
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
    kolo_image_free(&c->image);
    kolo_image_free(&c->resized);
    free(c->file.data);
    free(c->encoded);
    free(c);
    *converter_in = NULL;
}

/* Fills c->image with the whole, upright image. */
static int load_pixels(converter *c, pack_record *r)
{
    const packing *p = c->p;
    c->top = c->left = 0;
    if (c->file.height) {
        KOLO_TRY(kolo_image_shape(&c->image, c->file.height, c->file.width, c->file.channels));
        memcpy(c->image.pixels, c->file.data, c->file.bytes);
        r->source_channels = (uint8_t)c->file.channels;
        return kolo_image_convert(&c->image, p->channels);
    }
    KOLO_TRY(kolo_image_decode(c->jpeg, c->file.data, c->file.bytes, p->channels, &c->image));
    r->source_channels = (uint8_t)c->image.channels;
    return 0;
}

/* The pixels that the crop needs, with those that the filter reads around it. */
static kolo_jpeg_window crop_window(const pack_options *o, const pack_frame *f)
{
    const double y = (double)f->source_height / f->full_height, x = (double)f->source_width / f->full_width;
    const double support = kolo_resample_support(o->filter);
    const int above = (int)(support * (y > 1 ? y : 1)) + 2, before = (int)(support * (x > 1 ? x : 1)) + 2;
    kolo_jpeg_window w = {.top = (int)(f->top * y) - above, .left = (int)(f->left * x) - before};
    int bottom = (int)((f->top + f->rows) * y) + above, right = (int)((f->left + f->columns) * x) + before;
    if (w.top < 0) w.top = 0;
    if (w.left < 0) w.left = 0;
    if (bottom > f->source_height) bottom = f->source_height;
    if (right > f->source_width) right = f->source_width;
    w.height = bottom - w.top, w.width = right - w.left;
    return w;
}

/* A JPEG file whose crop leaves pixels out: those are not decoded. */
static int load_window(converter *c, const pack_frame *f, pack_record *r)
{
    const int channels = c->p->channels ? c->p->channels : r->source_channels;
    const kolo_jpeg_window window = crop_window(&c->p->options, f);
    kolo_jpeg_window origin;
    KOLO_TRY(
        kolo_jpeg_decode(c->jpeg, c->file.data, c->file.bytes, channels, 1, &window, &c->image, &origin));
    c->top = origin.top, c->left = origin.left;
    return 0;
}

/* Resizes, crops and puts bars around c->image; *result is c->image itself where nothing changes. */
static int reshape(converter *c, const pack_frame *f, kolo_image **result)
{
    *result = &c->image;
    if (pack_frame_is_whole(f)) return 0;
    const size_t channels = (size_t)c->image.channels, stride = (size_t)f->width * channels;
    const kolo_resize q = {.top = -c->top,
                           .left = -c->left,
                           .height = f->source_height,
                           .width = f->source_width,
                           .full_height = f->full_height,
                           .full_width = f->full_width,
                           .row = f->top,
                           .column = f->left,
                           .rows = f->rows,
                           .columns = f->columns,
                           .filter = c->p->options.filter};
    KOLO_TRY(kolo_image_shape(&c->resized, f->height, f->width, c->image.channels));
    if (f->rows != f->height || f->columns != f->width)
        memset(c->resized.pixels, PACK_BAR, stride * (size_t)f->height);
    *result = &c->resized;
    return kolo_resample(c->resampler, &c->image, &q,
                         c->resized.pixels + (size_t)f->above * stride + (size_t)f->before * channels,
                         stride);
}

/* Does the end marker come after the start of the scan? Files that were cut off lack it;
 * nothing in a scan looks so. */
static bool jpeg_has_end(const uint8_t *p, size_t bytes)
{
    size_t at = 2;
    while (at + 4 <= bytes && !(p[at] == 0xFF && p[at + 1] == 0xDA)) { /* segments up to the scan */
        if (p[at] != 0xFF || p[at + 1] == 0xFF || p[at + 1] == 0x01 ||
            (p[at + 1] >= 0xD0 && p[at + 1] <= 0xD8))
            at++;
        else at += 2 + ((size_t)p[at + 2] << 8 | p[at + 3]);
    }
    for (size_t end = bytes; end >= at + 4; end--)
        if (p[end - 2] == 0xFF && p[end - 1] == 0xD9) return true;
    return false;
}

/* bytes side by side: a multiple of 3 and of a vector, so that a lane stays within one channel */
#define LANES 48
#define ROUNDS 256 /* 256 * 255 fits 16 bits */

/* Sums over n bytes, n <= LANES * ROUNDS; byte i belongs to lane i % LANES. */
static void add_lanes(const uint8_t *at, size_t n, uint64_t sum[LANES], uint64_t square[LANES],
                      uint8_t low[LANES], uint8_t high[LANES])
{
    uint16_t sums[LANES] = {0};
    uint32_t squares[LANES] = {0};
    for (; n >= LANES; at += LANES, n -= LANES) {
        for (int i = 0; i < LANES; i++) sums[i] = (uint16_t)(sums[i] + at[i]);
        for (int i = 0; i < LANES; i++) squares[i] += (uint32_t)(uint16_t)(at[i] * at[i]);
        for (int i = 0; i < LANES; i++) low[i] = at[i] < low[i] ? at[i] : low[i];
        for (int i = 0; i < LANES; i++) high[i] = at[i] > high[i] ? at[i] : high[i];
    }
    for (size_t i = 0; i < n; i++) {
        sums[i] = (uint16_t)(sums[i] + at[i]), squares[i] += (uint32_t)at[i] * at[i];
        low[i] = at[i] < low[i] ? at[i] : low[i], high[i] = at[i] > high[i] ? at[i] : high[i];
    }
    for (int i = 0; i < LANES; i++) sum[i] += sums[i], square[i] += squares[i];
}

static void convert_measure(const kolo_image *p, pack_record *r)
{
    const size_t bytes = (size_t)p->height * (size_t)p->width * (size_t)p->channels;
    uint64_t sum[LANES] = {0}, square[LANES] = {0};
    uint8_t low[LANES], high[LANES] = {0};
    memset(low, 255, sizeof low);
    for (size_t at = 0; at < bytes; at += LANES * (ROUNDS - 1))
        add_lanes(p->pixels + at, bytes - at < LANES * (ROUNDS - 1) ? bytes - at : LANES * (ROUNDS - 1), sum,
                  square, low, high);
    r->pixels = bytes / (size_t)p->channels;
    for (int k = 0; k < p->channels; k++) r->low[k] = 255;
    for (int i = 0; i < LANES; i++) {
        const int k = i % p->channels;
        r->sum[k] += sum[i], r->square[k] += square[i];
        if (low[i] < r->low[k]) r->low[k] = low[i];
        if (high[i] > r->high[k]) r->high[k] = high[i];
    }
}

/* Annotations made for an image of another size would put boxes in the wrong places. */
static int check_size(const converter *c, int64_t i, const pack_record *r)
{
    const source_place *place = &c->p->source.places[i];
    const int height = r->orig_size[0], width = r->orig_size[1];
    if (!place->height || (place->height == height && place->width == width) ||
        pack_is_turned(place, r->orientation, height, width))
        return 0;
    return kolo_fail(KOLO_EINPUT, "has %d x %d pixels, its annotation says %d x %d", width, height,
                     place->width, place->height);
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

/* The file's own bytes become the sample: a JPEG whose pixels nothing changes. Decoding it would only show
 * what the headers and the end do not: damage in between. */
static int convert_keep(converter *c, bool look, const uint8_t **data, pack_record *r)
{
    const packing *p = c->p;
    r->channels = p->channels ? (uint8_t)p->channels : r->source_channels;
    if (look || p->options.decode_all || !jpeg_has_end(c->file.data, c->file.bytes)) {
        KOLO_TRY(load_pixels(c, r));
        convert_measure(&c->image, r);
    }
    *data = c->file.data;
    return store_bytes(*data, c->file.bytes, KOLO_SAMPLE_OK, KOLO_CODEC_JPEG, r);
}

static int store_pixels(converter *c, kolo_image *result, const uint8_t **data, pack_record *r)
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

/* The header first: from it follow the size that the options ask for, and the part to decode. */
static int load_jpeg(converter *c, int64_t i, pack_frame *f, pack_record *r, bool *kept)
{
    const packing *p = c->p;
    kolo_jpeg_info info;
    KOLO_TRY(kolo_jpeg_inspect(c->jpeg, c->file.data, c->file.bytes, &info));
    const bool swap = info.orientation >= 5;
    r->orientation = (uint8_t)info.orientation;
    r->source_channels = info.components == 1 ? 1 : 3;
    KOLO_TRY(note_shape(c, i, swap ? info.width : info.height, swap ? info.height : info.width, f, r));
    *kept = p->options.encoding != KOLO_ENCODING_RAW && pack_frame_is_whole(f) &&
            !(p->channels == 1 && info.components != 1);
    if (*kept) return 0;
    const bool part = f->rows < f->full_height || f->columns < f->full_width;
    if (part && info.orientation == 1 && jpeg_has_end(c->file.data, c->file.bytes))
        return load_window(c, f, r);
    return load_pixels(c, r);
}

static int convert(converter *c, int64_t i, bool look, const uint8_t **data, pack_record *r)
{
    const packing *p = c->p;
    kolo_image *result;
    pack_frame f;
    bool kept = false;
    r->orientation = 1;
    KOLO_TRY(source_load(&p->source, i, &c->file));
    if (!c->file.height && kolo_image_sniff(c->file.data, c->file.bytes) == KOLO_IMAGE_JPEG) {
        KOLO_TRY(load_jpeg(c, i, &f, r, &kept));
        if (kept) return convert_keep(c, look, data, r);
    } else {
        if (!c->file.height) r->orientation = (uint8_t)kolo_exif_orientation(c->file.data, c->file.bytes);
        KOLO_TRY(load_pixels(c, r));
        KOLO_TRY(note_shape(c, i, c->image.height, c->image.width, &f, r));
    }
    KOLO_TRY(reshape(c, &f, &result));
    if (p->options.encoding == KOLO_ENCODING_RAW && p->height &&
        (result->height != p->height || result->width != p->width))
        return kolo_fail(
            KOLO_EINPUT,
            "has %d x %d pixels, the first image %d x %d; raw samples are all of one size, add --size N",
            result->width, result->height, p->width, p->height);
    r->channels = (uint8_t)result->channels;
    convert_measure(result, r);
    return store_pixels(c, result, data, r);
}

/* Only where no option asks for other pixels, and an image that turns out bad later is an error anyway. */
int converter_peek(converter *c, int64_t i, pack_record *r)
{
    const pack_options *o = &c->p->options;
    uint8_t head[3], tail[2];
    if (o->encoding == KOLO_ENCODING_RAW || o->skip || o->resize != PACK_RESIZE_NONE || o->crop ||
        c->p->channels != 3)
        return 0;
    const int64_t bytes = source_peek(&c->p->source, i, head, sizeof head, tail);
    if (bytes > INT32_MAX || kolo_image_sniff(head, sizeof head) != KOLO_IMAGE_JPEG || tail[0] != 0xFF ||
        tail[1] != 0xD9)
        return 0;
    *r = (pack_record){.status = PACK_SIZED, .bytes = (uint32_t)bytes, .codec = KOLO_CODEC_JPEG};
    record_seal(r);
    return 1;
}

/* As many images, spread evenly, as give the mean to half a percent of the range. */
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
    kolo_fail_in(rc, "%s: ", path);
    if (rc != KOLO_EINPUT || c->p->options.skip) return rc;
    return kolo_fail(
        rc, "%s; repair or remove it, or use --on-error skip, which leaves such images out and lists them",
        kolo_error_text());
}

int converter_shape(converter *c, int64_t i, int *height, int *width)
{
    pack_record r = {0};
    pack_frame f;
    KOLO_TRY(source_load(&c->p->source, i, &c->file));
    KOLO_TRY(load_pixels(c, &r));
    KOLO_TRY(pack_frame_of(&c->p->options, c->image.height, c->image.width, &f));
    *height = f.height;
    *width = f.width;
    return 0;
}
