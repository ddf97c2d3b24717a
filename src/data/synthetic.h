/* The synthetic data set: sample s shows noise and a label drawn for row s mod batch, so
 * pixels are made once. */
#ifndef KOLO_DATA_SYNTHETIC_H
#define KOLO_DATA_SYNTHETIC_H

#include "data/loader.h"

int32_t kolo_synthetic_label(const kolo_loader_config *config, int64_t sample);
/* this rank's rows */
void kolo_synthetic_fill(const kolo_loader_config *config, int64_t rows, uint8_t *pixels);

/* Seven boxes of half to a tenth of the image, or as many as there is room for. label: [config->words] */
void kolo_synthetic_boxes(const kolo_loader_config *config, int64_t sample, int32_t *label);

#endif
