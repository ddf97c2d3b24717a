/* Shards that were changed on purpose, for tests in shell:
 *   shard_seal FILE        the checksum of tables and attributes is made anew
 *   shard_seal FILE old    it is removed, and the shard becomes one of format 1.1 */
#include <stdio.h>
#include <string.h>

#include "data/shard/file.h"
#include "data/shard/h5.h"
#include "kolo/error.h"

static int make_old(const char *path)
{
    const uint32_t version[2] = {1, 1};
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    int bad = file < 0 || H5Adelete(file, "tables_crc32c") < 0 ||
              kolo_h5_put_u32s(file, "format_version", version, 2) < 0;
    if (file >= 0) H5Fclose(file);
    kolo_h5_unlock();
    return bad ? kolo_fail(KOLO_EINPUT, "%s has no checksum to remove", path) : 0;
}

int main(int count, char **word)
{
    const bool old = count == 3 && strcmp(word[2], "old") == 0;
    if (count != 2 && !old) return fprintf(stderr, "usage: shard_seal FILE [old]\n"), 2;
    if ((old ? make_old(word[1]) : kolo_shard_seal(word[1])) == 0) return 0;
    fprintf(stderr, "shard_seal: %s\n", kolo_error_text());
    return 1;
}
