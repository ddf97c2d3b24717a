#include <ctype.h>
#include <string.h>

#include "shards.h"

shards_color shards_class_color(int label)
{
    /* far apart in hue, and light enough for dark letters */
    static const shards_color colors[] = {{255, 92, 92},  {92, 200, 255}, {120, 230, 100}, {255, 200, 60},  {220, 130, 255},
                                          {255, 150, 60}, {80, 230, 200}, {255, 130, 200}, {180, 190, 255}, {200, 230, 60}};
    return colors[(unsigned)label % (sizeof colors / sizeof *colors)];
}

void shards_fill(kolo_picture *p, int left, int top, int width, int height, shards_color color)
{
    int right = left + width, bottom = top + height;
    left = left < 0 ? 0 : left, top = top < 0 ? 0 : top;
    right = right > p->width ? p->width : right, bottom = bottom > p->height ? p->height : bottom;
    for (int y = top; y < bottom; y++)
        for (int x = left; x < right; x++) {
            uint8_t *to = p->pixels + 3 * ((size_t)y * (size_t)p->width + (size_t)x);
            to[0] = color.r, to[1] = color.g, to[2] = color.b;
        }
}

void shards_frame(kolo_picture *p, int left, int top, int right, int bottom, int line, shards_color color)
{
    const int width = right - left, height = bottom - top;
    shards_fill(p, left, top, width, line, color);
    shards_fill(p, left, bottom - line, width, line, color);
    shards_fill(p, left, top, line, height, color);
    shards_fill(p, right - line, top, line, height, color);
}

/* Five rows of three pixels a letter, an octal digit a row, the left pixel its highest bit. */
static const struct letter {
    char c;
    uint16_t rows;
} letters[] = {{'0', 075557}, {'1', 026227}, {'2', 071747},  {'3', 071717}, {'4', 055711}, {'5', 074717}, {'6', 074757}, {'7', 071122}, {'8', 075757},
               {'9', 075717}, {'A', 025755}, {'B', 065656},  {'C', 034443}, {'D', 065556}, {'E', 074647}, {'F', 074644}, {'G', 034553}, {'H', 055755},
               {'I', 072227}, {'J', 011152}, {'K', 055655},  {'L', 044447}, {'M', 057755}, {'N', 065555}, {'O', 025552}, {'P', 065644}, {'Q', 025563},
               {'R', 065655}, {'S', 034216}, {'T', 072222},  {'U', 055557}, {'V', 055552}, {'W', 055775}, {'X', 055255}, {'Y', 055222}, {'Z', 071247},
               {'.', 000002}, {',', 000024}, {'-', 000700},  {'_', 000007}, {':', 002020}, {'/', 011244}, {'(', 024442}, {')', 021112}, {'%', 051245},
               {'+', 002720}, {'=', 007070}, {'\'', 022000}, {'#', 057575}};

static uint16_t rows_of(char c)
{
    if (c == ' ') return 0;
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].c == toupper((unsigned char)c)) return letters[i].rows;
    return 077777;
}

int shards_text_width(const char *text, int scale) { return 4 * scale * (int)strlen(text); }

int shards_text(kolo_picture *p, int left, int top, int scale, shards_color color, const char *text)
{
    for (int i = 0; text[i]; i++) {
        const uint16_t rows = rows_of(text[i]);
        for (int y = 0; y < 5; y++)
            for (int x = 0; x < 3; x++)
                if (rows >> (3 * (4 - y) + (2 - x)) & 1) shards_fill(p, left + scale * (4 * i + x), top + scale * y, scale, scale, color);
    }
    return shards_text_width(text, scale);
}
