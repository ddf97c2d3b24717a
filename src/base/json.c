#include "base/json.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "kolo/error.h"

/* Length of the well-formed UTF-8 sequence at p (RFC 3629), 0 if it is none. p is NUL terminated. */
static int utf8_length(const unsigned char *p)
{
    if (p[0] < 0x80) return 1;
    int n = p[0] >= 0xC2 && p[0] <= 0xDF   ? 2
            : (p[0] & 0xF0) == 0xE0        ? 3
            : p[0] >= 0xF0 && p[0] <= 0xF4 ? 4
                                           : 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if (p[0] == 0xE0 && p[1] < 0xA0) return 0; /* longer than needed */
    if (p[0] == 0xED && p[1] > 0x9F) return 0; /* half of a surrogate pair */
    if (p[0] == 0xF0 && p[1] < 0x90) return 0;
    if (p[0] == 0xF4 && p[1] > 0x8F) return 0; /* beyond U+10FFFF */
    return n;
}

void kolo_json_string(FILE *file, const char *text)
{
    if (!text) {
        fputs("null", file);
        return;
    }
    fputc('"', file);
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int n = utf8_length(p);
        if (*p == '"' || *p == '\\') fprintf(file, "\\%c", *p);
        else if (*p == '\n') fputs("\\n", file);
        else if (*p < 0x20 || *p == 0x7F) fprintf(file, "\\u%04x", *p);
        else if (n == 0) fputs("\\ufffd", file);
        else fwrite(p, 1, (size_t)n, file);
        p += n ? n : 1;
    }
    fputc('"', file);
}

char *kolo_json_quote(const char *text)
{
    char *quoted = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&quoted, &bytes);
    if (file) {
        kolo_json_string(file, text);
        if (fclose(file) == 0) return quoted;
    }
    free(quoted);
    kolo_fail(KOLO_ENOMEM, "out of memory while quoting a text");
    return NULL;
}

void kolo_json_number(FILE *file, double value, int digits)
{
    if (isfinite(value)) fprintf(file, "%.*g", digits, value);
    else fputs("null", file);
}

void kolo_json_span(FILE *file, double begin, double end)
{
    const double from = round(begin * 1e9), to = round(end * 1e9);
    fprintf(file, "\"ts\":%.3f,\"dur\":%.3f", from / 1e3, (to - from) / 1e3);
}
