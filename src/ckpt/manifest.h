/* manifest.json of a checkpoint. All of it before the object "this_start" is the same for any number of
 * ranks, of restarts and of runs. */
#ifndef KOLO_CKPT_MANIFEST_H
#define KOLO_CKPT_MANIFEST_H

#include "ckpt/ckpt.h"

typedef struct manifest {
    kolo_position position;
    kolo_scaler scaler; /* scale 0: an older one, which says nothing of it */
    uint64_t bytes;     /* of tensors.safetensors */
    uint32_t crc;
    int64_t tensors;
    uint64_t carried_bytes; /* of the file "carried"; 0: there is none */
    uint32_t carried_crc;
    int ranks;   /* that wrote it */
    bool listed; /* it names its run and all files; false: an older one */
} manifest;

/* Those options that change the numbers, or the others, as a JSON object, indented for the
 * manifest; caller frees. */
char *kolo_record_options(const kolo_options *options, bool math);
/* The whole text; math, run: from kolo_record_options; caller frees. */
char *kolo_record_text(const manifest *m, const char *math, const char *run);
/* KOLO_EINPUT where it is torn or foreign. */
int kolo_record_read(const char *path, manifest *m);

#endif
