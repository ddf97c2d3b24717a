/* Histograms with a bar a row, as text and as an image. */
#ifndef HDF5_TOOLS_SHARDS_CHART_H
#define HDF5_TOOLS_SHARDS_CHART_H

#include <stdint.h>

#include "data/image/image.h"

#define SHARDS_CHART_BARS 16 /* of values; a chart of classes has one a class */

typedef struct shards_chart {
    const char *title;
    int bars;
    char (*label)[32]; /* [bars] */
    uint64_t *count;   /* [bars] */
} shards_chart;

int shards_chart_create(shards_chart *chart, const char *title, int bars); /* labels and counts are empty */
/* Bars of equal width from the lowest to the highest of n values; whole: of whole numbers. */
int shards_chart_of(shards_chart *chart, const char *title, const double *values, int64_t n, bool whole);
void shards_chart_free(shards_chart *chart);

void shards_chart_print(const shards_chart *chart); /* at most 60 bars, then how many more there are */
void shards_chart_json(const shards_chart *chart);  /* {"title":..,"bars":[[label, count], ...]} */
/* All of them below each other; the caller frees the image. */
int shards_chart_draw(const shards_chart *charts, int n, kolo_image *image);

#endif
