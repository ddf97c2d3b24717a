#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"
#include "shards/shards.h"

int shards_read_bytes(shards_reader *r, const kolo_dataset *d, int64_t sample)
{
    r->bytes = kolo_dataset_bytes(d, sample);
    if (r->bytes + 1 > r->capacity) {
        free(r->data);
        r->capacity = 2 * r->bytes + 64;
        r->data = malloc(r->capacity);
        if (!r->data) {
            const size_t asked = r->capacity;
            r->capacity = 0;
            return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes", asked);
        }
    }
    return kolo_dataset_read(d, sample, r->data);
}

int shards_decode(shards_reader *r, const kolo_dataset *d, int64_t sample, int channels, kolo_image *p)
{
    const int have = kolo_dataset_get_info(d)->channels;
    if (channels == 0) channels = have;
    if (kolo_dataset_codec(d, sample) == KOLO_CODEC_JPEG) {
        if (!r->jpeg) KOLO_TRY(kolo_jpeg_create(&r->jpeg));
        const int rc = kolo_image_decode(r->jpeg, r->data, r->bytes, channels, p);
        return rc < 0 ? kolo_fail_in(rc, "sample %" PRId64 " ", sample) : 0;
    }
    int height, width;
    kolo_dataset_size(d, sample, &height, &width);
    KOLO_TRY(kolo_image_shape(p, height, width, have));
    memcpy(p->pixels, r->data, r->bytes);
    return kolo_image_convert(p, channels);
}

void shards_reader_free(shards_reader *r)
{
    kolo_jpeg_destroy(&r->jpeg);
    free(r->data);
    *r = (shards_reader){0};
}

bool shards_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}
