/* TIFF by libtiff, where that was found when this program was built: the first page, of any compression and
 * layout that libtiff turns into 8 bits a channel. Alpha is blended over black, as libtiff does it. */
#include "data/image/image.h"

#include "kolo/error.h"

#ifndef KOLO_TIFF

int kolo_image_decode_tiff(const void *data, size_t bytes, int channels, kolo_image *image)
{
    (void)data, (void)bytes, (void)channels, (void)image;
    return kolo_fail(KOLO_EINPUT,
                     "is a TIFF, and this program was built without libtiff; build it again where libtiff's "
                     "headers are, or convert the image");
}

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

typedef struct memory {
    const uint8_t *data;
    uint64_t bytes, at;
} memory;

static tmsize_t on_read(thandle_t handle, void *to, tmsize_t bytes)
{
    memory *m = handle;
    const uint64_t left = m->at < m->bytes ? m->bytes - m->at : 0;
    const uint64_t got = (uint64_t)bytes < left ? (uint64_t)bytes : left;
    memcpy(to, m->data + (got ? m->at : 0), (size_t)got);
    m->at += got;
    return (tmsize_t)got;
}

static tmsize_t on_write(thandle_t handle, void *from, tmsize_t bytes)
{
    (void)handle, (void)from, (void)bytes;
    return -1;
}

static toff_t on_seek(thandle_t handle, toff_t offset, int whence)
{
    memory *m = handle;
    m->at = offset + (whence == SEEK_CUR ? m->at : whence == SEEK_END ? m->bytes : 0);
    return m->at;
}

static int on_close(thandle_t handle) { return (void)handle, 0; }
static toff_t on_size(thandle_t handle) { return ((memory *)handle)->bytes; }

/* libtiff has one handler of errors for all threads. */
static _Thread_local char message[256];

static void on_error(const char *module, const char *format, va_list list)
{
    (void)module;
    if (!message[0]) vsnprintf(message, sizeof message, format, list);
}

static int fail(const char *otherwise)
{
    return kolo_fail(KOLO_EINPUT, "TIFF: %s", message[0] ? message : otherwise);
}

static void copy_pixels(const uint32_t *raster, kolo_image *p)
{
    const size_t pixels = (size_t)p->height * (size_t)p->width;
    uint8_t *to = p->pixels;
    for (size_t i = 0; i < pixels; i++) {
        *to++ = (uint8_t)TIFFGetR(raster[i]);
        if (p->channels == 1) continue;
        *to++ = (uint8_t)TIFFGetG(raster[i]);
        *to++ = (uint8_t)TIFFGetB(raster[i]);
    }
}

/* A tile may be larger than the image, and is unpacked whole. */
static int check_pieces(TIFF *tiff)
{
    const uint64_t most = 8ull * KOLO_IMAGE_MAX_PIXELS,
                   piece = TIFFIsTiled(tiff) ? TIFFTileSize64(tiff) : TIFFStripSize64(tiff);
    return piece <= most ? 0
                         : kolo_fail(KOLO_EINPUT, "TIFF: one of its tiles or strips claims %llu bytes",
                                     (unsigned long long)piece);
}

static int read_raster(TIFFRGBAImage *image, kolo_image *p)
{
    const bool gray =
        (image->photometric == PHOTOMETRIC_MINISBLACK || image->photometric == PHOTOMETRIC_MINISWHITE);
    if (image->height > KOLO_IMAGE_MAX_SIDE || image->width > KOLO_IMAGE_MAX_SIDE)
        return kolo_fail(KOLO_EINPUT, "TIFF: size out of range");
    KOLO_TRY(kolo_image_shape(p, (int)image->height, (int)image->width, gray ? 1 : 3));
    KOLO_TRY(check_pieces(image->tif));
    const size_t pixels = (size_t)p->height * (size_t)p->width;
    uint32_t *raster = malloc(sizeof *raster * pixels);
    if (!raster)
        return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes for a TIFF", sizeof *raster * pixels);
    image->req_orientation = image->orientation; /* rows as they are stored; turned below */
    int rc =
        TIFFRGBAImageGet(image, raster, image->width, image->height) && !message[0] ? 0 : fail("damaged");
    if (rc == 0) copy_pixels(raster, p);
    free(raster);
    return rc;
}

static int read_upright(TIFF *tiff, kolo_image *out)
{
    TIFFRGBAImage image;
    char why[1024] = "";
    if (!TIFFRGBAImageOK(tiff, why) || !TIFFRGBAImageBegin(&image, tiff, 1, why)) {
        snprintf(message, sizeof message, "%.250s", why);
        return fail("of a kind that libtiff does not read");
    }
    const int orientation = image.orientation;
    kolo_image stored = {0};
    int rc = read_raster(&image, orientation == 1 ? out : &stored);
    if (rc == 0 && orientation != 1) rc = kolo_image_turn(&stored, orientation, out);
    kolo_image_free(&stored);
    TIFFRGBAImageEnd(&image);
    return rc;
}

int kolo_image_decode_tiff(const void *data, size_t bytes, int channels, kolo_image *image)
{
    memory m = {data, bytes, 0};
    message[0] = 0;
    TIFFSetErrorHandler(on_error);
    TIFFSetWarningHandler(NULL);
    TIFF *tiff = TIFFClientOpen("image", "rm", &m, on_read, on_write, on_seek, on_close, on_size, NULL, NULL);
    if (!tiff) return fail("damaged header");
    int rc = read_upright(tiff, image);
    TIFFClose(tiff);
    return rc < 0 ? rc : kolo_image_convert(image, channels);
}

#endif
