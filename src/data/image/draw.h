/* Boxes and words in an image. */
#ifndef KOLO_DATA_DRAW_H
#define KOLO_DATA_DRAW_H

#include "data/image/image.h"

enum { KOLO_DRAW_HEIGHT = 7, KOLO_DRAW_ADVANCE = 6 }; /* of a letter, pixels, at scale 1 */

/* All clip at the borders. color: [channels of the image] */
/* filled */
void kolo_draw_rectangle(kolo_image *image, int left, int top, int width, int height, const uint8_t *color);
/* The border of a box x0 y0 x1 y1, `thick` pixels inwards. */
void kolo_draw_frame(kolo_image *image, const double *box, int thick, const uint8_t *color);
/* Letters, all as capitals, digits and some signs, of scale x scale pixels a dot; what there is no letter for
 * is a question mark. Returns the width in pixels, also for image NULL. */
int kolo_draw_text(kolo_image *image, int left, int top, int scale, const char *text, const uint8_t *color);
/* [3]: that of class `cls` >= 0, far from those of all other classes. */
void kolo_draw_color(int cls, uint8_t *color);
/* A frame in the colour of class `cls`, and `text` on that colour above it, or in it where there is no room;
 * sizes follow the image's. */
void kolo_draw_box(kolo_image *image, const double *box, int cls, const char *text);

#endif
