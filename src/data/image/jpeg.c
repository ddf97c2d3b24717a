#include "data/image/jpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/memory.h"
#include "data/image/exif.h"
#include "kolo/error.h"

struct kolo_jpeg {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    char message[JMSG_LENGTH_MAX];
    uint8_t *row; /* one, of up to four components */
    size_t row_bytes;
};

static void fail_exit(j_common_ptr cinfo)
{
    kolo_jpeg *jpeg = cinfo->client_data;
    jpeg->errors.format_message(cinfo, jpeg->message);
    longjmp(jpeg->escape, 1);
}

static void on_message(j_common_ptr cinfo, int level)
{
    /* stray bytes and the like are common in old files and harmless; a file that ends early would
     * be filled up with gray */
    if (level < 0 && cinfo->err->msg_code == JWRN_JPEG_EOF) fail_exit(cinfo);
}

/* Every scan goes over the whole image, however few bytes it has: a small file of many would take
 * minutes. Encoders make about ten. */
enum { MOST_SCANS = 64 };

static void on_progress(j_common_ptr cinfo)
{
    kolo_jpeg *jpeg = cinfo->client_data;
    if (jpeg->cinfo.input_scan_number <= MOST_SCANS) return;
    snprintf(jpeg->message, sizeof jpeg->message, "has more than %d scans; convert it to a baseline JPEG",
             MOST_SCANS);
    longjmp(jpeg->escape, 1);
}

static void no_output(j_common_ptr cinfo) { (void)cinfo; }

int kolo_jpeg_create(kolo_jpeg **jpeg)
{
    kolo_jpeg *j = *jpeg = kolo_alloc(sizeof *j);
    if (!j) return KOLO_ENOMEM;
    j->cinfo.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = fail_exit;
    j->errors.emit_message = on_message;
    j->errors.output_message = no_output;
    j->cinfo.client_data = j;
    if (setjmp(j->escape)) {
        int rc = kolo_fail(KOLO_EINTERNAL, "libjpeg: %s", j->message);
        free(j);
        *jpeg = NULL;
        return rc;
    }
    jpeg_create_decompress(&j->cinfo);
    j->progress.progress_monitor = on_progress;
    j->cinfo.progress = &j->progress;
    return 0;
}

void kolo_jpeg_destroy(kolo_jpeg **jpeg)
{
    if (!*jpeg) return;
    jpeg_destroy_decompress(&(*jpeg)->cinfo);
    free((*jpeg)->row);
    free(*jpeg);
    *jpeg = NULL;
}

/* Longjmps on error. */
static void read_header(kolo_jpeg *j, const void *data, size_t bytes)
{
    jpeg_mem_src(&j->cinfo, data, bytes);
    jpeg_read_header(&j->cinfo, TRUE);
}

static int refuse(kolo_jpeg *j)
{
    jpeg_abort_decompress(&j->cinfo);
    return kolo_fail(KOLO_EINPUT, "%s", j->message);
}

static int check_header(kolo_jpeg *j)
{
    const int components = j->cinfo.num_components;
    const uint64_t pixels = (uint64_t)j->cinfo.image_width * j->cinfo.image_height;
    if (components == 1 || components == 3 || components == 4) {
        if (pixels <= KOLO_IMAGE_MAX_PIXELS) return 0;
        snprintf(j->message, sizeof j->message, "claims %u x %u pixels, more than this program decodes",
                 j->cinfo.image_width, j->cinfo.image_height);
    } else {
        snprintf(j->message, sizeof j->message, "has %d components (1, 3 or 4 are known)", components);
    }
    return refuse(j);
}

static int check_bytes(const void *data, size_t bytes)
{
    if (bytes == 0) return kolo_fail(KOLO_EINPUT, "is empty (0 bytes)");
    if (kolo_image_sniff(data, bytes) != KOLO_IMAGE_JPEG) return kolo_fail(KOLO_EINPUT, "is not a JPEG");
    return 0;
}

int kolo_jpeg_inspect(kolo_jpeg *jpeg, const void *data, size_t bytes, kolo_jpeg_info *info)
{
    KOLO_TRY(check_bytes(data, bytes));
    if (setjmp(jpeg->escape)) return refuse(jpeg);
    read_header(jpeg, data, bytes);
    KOLO_TRY(check_header(jpeg));
    info->height = (int)jpeg->cinfo.image_height;
    info->width = (int)jpeg->cinfo.image_width;
    info->components = jpeg->cinfo.num_components;
    info->orientation = kolo_exif_orientation(data, bytes);
    jpeg_abort_decompress(&jpeg->cinfo);
    return 0;
}

/* Adobe stores inks inverted: s = 255 - ink. R = n - C n / 255 with n = 255 - K, rounded as integers. */
static void cmyk_row(const uint8_t *from, uint8_t *to, int width, int channels)
{
    for (int x = 0; x < width; x++, from += 4, to += channels) {
        const uint32_t n = from[3];
        uint8_t rgb[3];
        for (int c = 0; c < 3; c++) {
            uint32_t t = (255u - from[c]) * n + 128;
            rgb[c] = (uint8_t)(n - (((t >> 8) + t) >> 8));
        }
        if (channels == 3) memcpy(to, rgb, 3);
        else to[0] = (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 32768) >> 16);
    }
}

/* The window in scaled pixels, two pixels wider so that chroma upsampling sees the same neighbours
 * as in a whole decode. */
static kolo_jpeg_window scaled_window(const kolo_jpeg *j, int denominator, const kolo_jpeg_window *w)
{
    const int height = (int)j->cinfo.output_height, width = (int)j->cinfo.output_width;
    kolo_jpeg_window s = {0, 0, height, width};
    if (!w) return s;
    int bottom = (w->top + w->height + denominator - 1) / denominator + 2;
    int right = (w->left + w->width + denominator - 1) / denominator + 2;
    s.top = w->top / denominator - 2;
    s.left = w->left / denominator - 2;
    if (s.top < 0) s.top = 0;
    if (s.left < 0) s.left = 0;
    s.height = (bottom < height ? bottom : height) - s.top;
    s.width = (right < width ? right : width) - s.left;
    return s;
}

static int grow_row(kolo_jpeg *j)
{
    size_t need = (size_t)j->cinfo.output_width * 4;
    if (need <= j->row_bytes) return 0;
    free(j->row);
    j->row = kolo_alloc(need);
    j->row_bytes = j->row ? need : 0;
    return j->row ? 0 : KOLO_ENOMEM;
}

/* Longjmps on error. Rows of which nothing is wanted: their data are read. To skip to the last row would pass
 * over them. */
static int pass_rows(kolo_jpeg *j, int rows)
{
    if (rows < 1) return 0;
    KOLO_TRY(grow_row(j));
    JSAMPROW row = j->row;
    if (rows > 1) jpeg_skip_scanlines(&j->cinfo, (JDIMENSION)rows - 1);
    jpeg_read_scanlines(&j->cinfo, &row, 1);
    return 0;
}

/* Longjmps on error. `top` rows were skipped; image->height rows follow. */
static void read_rows(kolo_jpeg *j, kolo_image *p, int top)
{
    const size_t stride = (size_t)p->width * (size_t)p->channels;
    const bool cmyk = j->cinfo.out_color_space == JCS_CMYK;
    while ((int)j->cinfo.output_scanline < top + p->height) {
        JSAMPROW rows[16];
        int y = (int)j->cinfo.output_scanline - top, n = p->height - y < 16 ? p->height - y : 16;
        if (cmyk) {
            rows[0] = j->row;
            if (jpeg_read_scanlines(&j->cinfo, rows, 1) == 1)
                cmyk_row(j->row, p->pixels + (size_t)y * stride, p->width, p->channels);
            continue;
        }
        for (int i = 0; i < n; i++) rows[i] = p->pixels + (size_t)(y + i) * stride;
        jpeg_read_scanlines(&j->cinfo, rows, (JDIMENSION)n);
    }
}

static void choose_output(kolo_jpeg *j, int channels, int denominator)
{
    j->cinfo.scale_num = 1;
    j->cinfo.scale_denom = (unsigned)denominator;
    j->cinfo.out_color_space = j->cinfo.num_components == 4 ? JCS_CMYK
                               : channels == 1              ? JCS_GRAYSCALE
                                                            : JCS_RGB;
    /* RGB stored as RGB has no luma plane to hand out */
    if (channels == 1 && j->cinfo.jpeg_color_space == JCS_RGB) j->cinfo.out_color_space = JCS_RGB;
}

/* What is read, for setjmp: locals that live over it must not change. */
typedef struct request {
    int channels, denominator;
    const kolo_jpeg_window *window, *within;
    kolo_image *image;
    kolo_jpeg_window *origin;
} request;

static int decode(kolo_jpeg *j, const request *r)
{
    choose_output(j, r->channels, r->denominator);
    jpeg_start_decompress(&j->cinfo);
    const kolo_jpeg_window whole = {0, 0, (int)j->cinfo.output_height, (int)j->cinfo.output_width};
    kolo_jpeg_window w = scaled_window(j, r->denominator, r->window);
    if (w.width < whole.width) {
        JDIMENSION left = (JDIMENSION)w.left, width = (JDIMENSION)w.width;
        jpeg_crop_scanline(&j->cinfo, &left, &width);
        w.left = (int)left;
        w.width = (int)width;
    }
    const int stored = j->cinfo.out_color_space == JCS_RGB ? 3 : r->channels;
    KOLO_TRY(kolo_image_shape(r->image, w.height, w.width, stored));
    if (j->cinfo.out_color_space == JCS_CMYK) KOLO_TRY(grow_row(j));
    if (w.top > 0) jpeg_skip_scanlines(&j->cinfo, (JDIMENSION)w.top);
    read_rows(j, r->image, w.top);
    if (r->origin) *r->origin = (kolo_jpeg_window){w.top, w.left, whole.height, whole.width};
    const kolo_jpeg_window all = scaled_window(j, r->denominator, r->within);
    KOLO_TRY(pass_rows(j, all.top + all.height - w.top - w.height));
    /* the tail of a whole image is read to its end marker, so that a cut-off file is noticed */
    if (all.top + all.height == whole.height) jpeg_finish_decompress(&j->cinfo);
    else jpeg_abort_decompress(&j->cinfo);
    return stored == r->channels ? 0 : kolo_image_convert(r->image, r->channels);
}

int kolo_jpeg_decode(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, int denominator,
                     const kolo_jpeg_window *window, kolo_image *image, kolo_jpeg_window *origin)
{
    return kolo_jpeg_decode_part(jpeg, data, bytes, channels, denominator, window, window, image, origin);
}

int kolo_jpeg_decode_part(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, int denominator,
                          const kolo_jpeg_window *window, const kolo_jpeg_window *within, kolo_image *image,
                          kolo_jpeg_window *origin)
{
    const request r = {channels, denominator, window, within, image, origin};
    KOLO_TRY(check_bytes(data, bytes));
    if (setjmp(jpeg->escape)) return refuse(jpeg);
    read_header(jpeg, data, bytes);
    KOLO_TRY(check_header(jpeg));
    int rc = decode(jpeg, &r);
    if (rc < 0) jpeg_abort_decompress(&jpeg->cinfo);
    return rc;
}
