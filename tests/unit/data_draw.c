/* Frames and letters, looked at as they would be printed. */
#include "base/memory.h"
#include "data/image/draw.h"
#include "tap.h"

static kolo_image image;

static void blank(int height, int width, int channels)
{
    if (kolo_image_shape(&image, height, width, channels) < 0) exit(1);
    memset(image.pixels, 0, (size_t)height * (size_t)width * (size_t)channels);
}

/* Rows of '#' and '.'. */
static const char *shown(char *text)
{
    char *to = text;
    for (int y = 0; y < image.height; y++) {
        for (int x = 0; x < image.width; x++)
            *to++ = image.pixels[(size_t)(y * image.width + x) * (size_t)image.channels] ? '#' : '.';
        *to++ = '\n';
    }
    *to = 0;
    return text;
}

/* The nearest two among the colours of n classes: sum of their channels' distances. */
static int nearest(int n)
{
    int least = 1000;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            uint8_t a[3], b[3];
            kolo_draw_color(i, a);
            kolo_draw_color(k, b);
            const int far = abs(a[0] - b[0]) + abs(a[1] - b[1]) + abs(a[2] - b[2]);
            if (far < least) least = far;
        }
    return least;
}

int main(void)
{
    const int few = nearest(20), many = nearest(80);
    ok(few >= 60 && many >= 15, "classes have different colours: the nearest of 20 are %d apart, of 80 %d",
       few, many);
    const uint8_t white[3] = {255, 255, 255};
    char text[4096];
    blank(5, 7, 1);
    kolo_draw_frame(&image, (double[]){1.2, 0.5, 5.1, 4}, 1, white);
    is_text(shown(text), ".#####.\n.#...#.\n.#...#.\n.#####.\n.......\n",
            "a frame takes the pixels that the box touches");
    blank(3, 4, 3);
    kolo_draw_frame(&image, (double[]){-50, -1e30, 1e30, 2}, 1, white);
    is_text(shown(text), "....\n####\n....\n", "a box far beyond the image is cut off");
    blank(7, 11, 1);
    is_int(kolo_draw_text(&image, 0, 0, 1, "k4", white), 12, "two letters are twelve pixels wide");
    is_text(shown(text),
            "#...#....#.\n#..#....##.\n#.#....#.#.\n##....#..#.\n#.#...#####\n#..#.....#.\n#...#....#.\n",
            "small letters are drawn as capitals");
    is_int(kolo_draw_text(NULL, 0, 0, 2, "caf\xc3\xa9 ~", white), 72,
           "a letter of two bytes is one; unknown ones count too");
    blank(40, 60, 3);
    kolo_draw_box(&image, (double[]){10, 20, 50, 38}, 3, "cat .9");
    const uint8_t *frame = image.pixels + 3 * (38 - 1) * 60 + 3 * 30,
                  *label = image.pixels + 3 * 12 * 60 + 3 * 10;
    ok(frame[0] + frame[1] + frame[2] > 0 && !memcmp(frame, label, 3),
       "the label has the colour of its box, above it");
    blank(40, 60, 3);
    kolo_draw_box(&image, (double[]){-5, -5, 80, 80}, 3, "a name that is longer than the image");
    ok(image.pixels[0] | image.pixels[1] | image.pixels[2], "where there is no room it goes inside");
    kolo_image_free(&image);
    return done_testing();
}
