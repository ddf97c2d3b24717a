/* What can be seen of a split in a moment, beside what opening it has checked: whether it is being packed,
 * whether samples are those that were packed. */
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/shard/dataset.h"
#include "kolo/error.h"

static int64_t divisor(int64_t a, int64_t b) { return b ? divisor(b, a % b) : a; }

/* Warns of the first sample that is not what was packed. Within the time samples are taken from all parts of
 * the split; of a small one all. */
static int check_samples(const kolo_dataset *d, double seconds)
{
    const int64_t count = kolo_dataset_get_info(d)->count;
    const double until = kolo_time() + seconds;
    /* a step of the golden section, made prime to the count, comes to each sample once, evenly meanwhile */
    int64_t step = (int64_t)((double)count * 0.6180339887);
    while (count > 1 && divisor(count, step) != 1) step++;
    size_t room = 0;
    uint8_t *data = NULL;
    int rc = 0;
    for (int64_t n = 0, i = 0; n < count && rc == 0 && kolo_time() < until;
         n++, i = (int64_t)(((__int128)i + step) % count)) {
        const size_t bytes = kolo_dataset_bytes(d, i);
        if (bytes > room) {
            free(data);
            data = kolo_alloc(room = bytes);
            if (!data) return KOLO_ENOMEM;
        }
        rc = kolo_dataset_read(d, i, data);
        if (rc < 0 || kolo_crc32c(0, data, bytes) == kolo_dataset_crc(d, i)) continue;
        int64_t index;
        const char *path = kolo_dataset_shard_of(d, i, &index);
        kolo_warn("%s: sample %lld does not have its checksum: its bytes were changed, and there may be "
                  "more; `kolo-shards verify` names all, then copy or pack this split again",
                  path, (long long)index);
        break;
    }
    free(data);
    return rc;
}

int kolo_dataset_check(const kolo_dataset *dataset, const char *folder, double seconds)
{
    char *journal = kolo_format("%s/.pack/journal", folder);
    if (!journal) return KOLO_ENOMEM;
    if (kolo_file_exists(journal))
        kolo_warn(
            "%s: a packing into this folder has not finished, or still runs; kolo-pack --resume finishes it",
            folder);
    free(journal);
    return check_samples(dataset, seconds);
}
