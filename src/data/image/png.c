#include "data/image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <png.h>

#include "base/temp_file.h"
#include "base/memory.h"
#include "kolo/error.h"

typedef struct reader {
    png_structp png;
    png_infop info;
    const uint8_t *data;
    size_t left;
    uint8_t **rows;
    char message[128];
} reader;

static void on_error(png_structp png, png_const_charp text)
{
    reader *r = png_get_error_ptr(png);
    snprintf(r->message, sizeof r->message, "%s", text);
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp text) { (void)png, (void)text; }

static void on_read(png_structp png, png_bytep to, size_t bytes)
{
    reader *r = png_get_io_ptr(png);
    if (bytes > r->left) png_error(png, "truncated");
    memcpy(to, r->data, bytes);
    r->data += bytes;
    r->left -= bytes;
}

/* Everything becomes 8-bit gray or RGB: palettes expanded, the high byte of 16 bits, alpha
 * dropped (not blended). */
static void choose_output(reader *r)
{
    const int color = png_get_color_type(r->png, r->info), depth = png_get_bit_depth(r->png, r->info);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(r->png);
    if (color == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(r->png);
    if (depth == 16) png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
}

static int read_image(reader *r, kolo_image *p)
{
    png_set_read_fn(r->png, r, on_read);
    png_set_user_limits(r->png, KOLO_IMAGE_MAX_SIDE, KOLO_IMAGE_MAX_SIDE);
    png_read_info(r->png, r->info);
    choose_output(r);
    const int height = (int)png_get_image_height(r->png, r->info),
              width = (int)png_get_image_width(r->png, r->info);
    KOLO_TRY(kolo_image_shape(p, height, width, png_get_channels(r->png, r->info)));
    r->rows = kolo_alloc(sizeof *r->rows * (size_t)height);
    if (!r->rows) return KOLO_ENOMEM;
    for (int y = 0; y < height; y++) r->rows[y] = p->pixels + (size_t)y * (size_t)width * (size_t)p->channels;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
    return 0;
}

int kolo_image_decode_png(const void *data, size_t bytes, int channels, kolo_image *image)
{
    reader *r = kolo_alloc(sizeof *r);
    int rc = KOLO_ENOMEM;
    if (!r) return rc;
    r->data = data;
    r->left = bytes;
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info) rc = kolo_fail(KOLO_ENOMEM, "out of memory for libpng");
    else if (setjmp(png_jmpbuf(r->png))) rc = kolo_fail(KOLO_EINPUT, "PNG: %s", r->message);
    else rc = read_image(r, image);
    png_destroy_read_struct(&r->png, &r->info, NULL);
    free(r->rows);
    free(r);
    return rc < 0 ? rc : kolo_image_convert(image, channels);
}

int kolo_image_write_png(const kolo_image *image, const char *path)
{
    png_image out = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)image->width,
                     .height = (png_uint_32)image->height,
                     .format = image->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    const int fd = kolo_file_open_plain(path, O_WRONLY | O_CREAT, 0666);
    KOLO_TRY(fd);
    FILE *file = ftruncate(fd, 0) == 0 ? fdopen(fd, "wb") : NULL;
    bool good = file && png_image_write_to_stdio(&out, file, 0, image->pixels, 0, NULL);
    if (file) good = fclose(file) == 0 && good;
    else close(fd);
    return good ? 0 : kolo_fail(KOLO_EIO, "%s: %s", path, out.message[0] ? out.message : strerror(errno));
}
