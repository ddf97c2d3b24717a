/* Tar files, and tar files in them. */
#include "readers/tar_stream.h"

#include <stdlib.h>
#include <string.h>

#include "input.h"

static int walk(tar_stream *t, size_t bytes, int depth)
{
    tar_member *m = malloc(sizeof *m);
    char *data;
    int rc;
    while ((rc = tar_next(t, m)) > 0) {
        if (m->is_link) {
            fuzz_require(tar_refuse_link(t, m) < 0, "a link is refused");
            continue;
        }
        fuzz_require(m->offset >= 0 && m->bytes >= 0 && (size_t)m->offset + (size_t)m->bytes <= bytes,
                     "members lie within the file");
        if (fuzz_tried(tar_read(t, m, 4096, &data))) {
            fuzz_require(strnlen(data, (size_t)m->bytes + 1) <= (size_t)m->bytes, "a zero behind the data");
            free(data);
        }
        tar_stream inner;
        if (depth && fuzz_tried(tar_open_member(&inner, t, m))) {
            fuzz_tried(walk(&inner, bytes, depth - 1));
            tar_close(&inner);
        }
    }
    free(m);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tar_stream t;
    if (!fuzz_taken(tar_open(&t, fuzz_put("a.tar", data, bytes)))) return 0;
    fuzz_taken(walk(&t, bytes, 2));
    tar_close(&t);
    return 0;
}
