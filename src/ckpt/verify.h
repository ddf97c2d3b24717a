#ifndef KOLO_CKPT_VERIFY_H
#define KOLO_CKPT_VERIFY_H

#include "ckpt/manifest.h"

/* Reads a checkpoint's manifest and compares size and crc32c of its tensors with it. */
int kolo_checkpoint_verify(const char *folder, manifest *m);

#endif
