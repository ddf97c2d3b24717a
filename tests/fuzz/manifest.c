/* The manifest of a split. Its checksum is put right first: else nearly every change would end there. */
#include "data/shard/manifest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "input.h"

static void put_checksum(char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    char *crc = end ? memmem(text, (size_t)(end - text), "crc32c=", 7) : NULL, digits[9];
    if (!crc || end - crc < 7 + 8) return;
    const size_t head = (size_t)(end + 1 - text);
    const size_t body = strnlen(end + 1, bytes - head);
    snprintf(digits, sizeof digits, "%08x", kolo_crc32c(0, end + 1, body));
    memcpy(crc + 7, digits, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    kolo_manifest m;
    char *text = malloc(bytes + 1);
    if (bytes) memcpy(text, data, bytes);
    put_checksum(text, bytes);
    fuzz_put("a.index", text, bytes);
    free(text);
    if (!fuzz_taken(kolo_manifest_read(fuzz_folder(), &m))) return 0;
    int64_t next = 0;
    for (int s = 0; s < m.info.shards; s++) {
        fuzz_require(m.shards[s].first == next && !strchr(m.shards[s].file, '/'),
                     "shards in order, beside the manifest");
        next += m.shards[s].count;
    }
    fuzz_require(next == m.info.count, "as many samples as the shards have");
    for (int c = 0; c < m.info.channels; c++)
        fuzz_require(isfinite(m.info.mean[c]) && isfinite(m.info.std[c]), "finite statistics");
    kolo_manifest_free(&m);
    return 0;
}
