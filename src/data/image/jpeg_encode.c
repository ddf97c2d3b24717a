#include "data/image/jpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "base/memory.h"
#include "kolo/error.h"

typedef struct encoder {
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_destination_mgr sink;
    jmp_buf escape;
    char message[JMSG_LENGTH_MAX];
    uint8_t *data;
    size_t capacity;
} encoder;

static void fail_exit(j_common_ptr cinfo)
{
    encoder *e = cinfo->client_data;
    e->errors.format_message(cinfo, e->message);
    longjmp(e->escape, 1);
}

static void no_output(j_common_ptr cinfo) { (void)cinfo; }

static void sink_start(j_compress_ptr cinfo)
{
    encoder *e = cinfo->client_data;
    e->sink.next_output_byte = e->data;
    e->sink.free_in_buffer = e->capacity;
}

static boolean sink_full(j_compress_ptr cinfo)
{
    encoder *e = cinfo->client_data;
    const size_t used = e->capacity, more = used * 2 + 65536;
    uint8_t *data = realloc(e->data, more);
    if (!data) {
        snprintf(e->message, sizeof e->message, "out of memory for %zu bytes of JPEG", more);
        longjmp(e->escape, 1);
    }
    e->data = data;
    e->capacity = more;
    e->sink.next_output_byte = data + used;
    e->sink.free_in_buffer = more - used;
    return TRUE;
}

static void sink_end(j_compress_ptr cinfo) { (void)cinfo; }

static void jpeg_encode_run(encoder *e, const kolo_image *p, int quality)
{
    struct jpeg_compress_struct *c = &e->cinfo;
    const size_t stride = (size_t)p->width * (size_t)p->channels;
    jpeg_create_compress(c);
    c->dest = &e->sink;
    c->image_width = (JDIMENSION)p->width;
    c->image_height = (JDIMENSION)p->height;
    c->input_components = p->channels;
    c->in_color_space = p->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        JSAMPROW row = p->pixels + (size_t)c->next_scanline * stride;
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
}

int kolo_jpeg_encode(const kolo_image *image, int quality, uint8_t **data, size_t *capacity, size_t *bytes)
{
    encoder *e = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ENOMEM;
    e->data = *data;
    e->capacity = *data ? *capacity : 0;
    if (e->capacity == 0) {
        free(e->data);
        e->capacity = 65536;
        e->data = malloc(e->capacity);
    }
    *data = NULL;
    *capacity = 0;
    int rc = 0;
    e->cinfo.err = jpeg_std_error(&e->errors);
    e->errors.error_exit = fail_exit;
    e->errors.output_message = no_output;
    e->cinfo.client_data = e;
    e->sink = (struct jpeg_destination_mgr){
        .init_destination = sink_start, .empty_output_buffer = sink_full, .term_destination = sink_end};
    if (!e->data) rc = kolo_fail(KOLO_ENOMEM, "out of memory for a JPEG");
    else if (setjmp(e->escape)) rc = kolo_fail(KOLO_EINTERNAL, "libjpeg: %s", e->message);
    else jpeg_encode_run(e, image, quality);
    *data = e->data;
    *capacity = e->data ? e->capacity : 0;
    *bytes = e->data ? e->capacity - e->sink.free_in_buffer : 0;
    jpeg_destroy_compress(&e->cinfo);
    free(e);
    return rc;
}
