/* Safetensors, the parts shared by whole-file and streaming writers. */
#ifndef KOLO_CKPT_SAFETENSORS_H
#define KOLO_CKPT_SAFETENSORS_H

#include "ckpt/weights.h"

/* The 8 length bytes and the JSON header, padded to 8 bytes; caller frees. Data follows widest type
 * first, else in the order given. */
int kolo_weights_header(const kolo_weight *weight, int n, const char *const *metadata, char **header,
                        size_t *bytes);

#endif
