/* Caffe's Datum, a message of protocol buffers, as a value of LMDB: an image file, or pixels in planes, and
 * a label. Source: caffe/proto/caffe.proto of BVLC/caffe; protobuf.dev/programming-guides/encoding. */
#ifndef HDF5_TOOLS_READERS_DATUM_H
#define HDF5_TOOLS_READERS_DATUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct datum {
    int channels, height, width; /* of pixels; encoded: what they say is not looked at */
    int64_t label;               /* -1: it has none */
    bool encoded;
    const uint8_t *data; /* within the message */
    size_t bytes;        /* not encoded: channels * height * width */
} datum;

/* KOLO_EINPUT: what is wrong; the text begins after the name of the message ("is no Datum: ..."). */
int datum_read(const uint8_t *message, size_t bytes, datum *d);
/* Planes to pixels (height, width, channels); the first of three planes is blue, as Caffe's and DIGITS' tools
 * write them, unless `rgb`. */
void datum_pixels(const datum *d, bool rgb, uint8_t *pixels);

#endif
