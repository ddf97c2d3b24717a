/* Lines of text, plain or packed, cut in every way; numbers; UTF-8. */
#include <math.h>
#include <string.h>

#include "input.h"
#include "readers/text_rows.h"

enum { TAB, CSV, WORDS, WAYS };

static void look_at(const char *field)
{
    double number;
    int64_t integer;
    if (text_number(field, &number)) fuzz_require(isfinite(number), "a finite number");
    if (text_integer(field, &integer))
        fuzz_require(text_number(field, &number), "a whole number is a number");
    text_is_utf8(field);
}

static int read_rows(const char *path, int way)
{
    text_rows t;
    char *line, *fields[8];
    int rc = text_open(&t, path);
    if (rc < 0) return rc;
    while ((rc = text_next(&t, &line)) > 0) {
        fuzz_require(!strchr(line, '\n'), "a line without its end");
        const int n = way == CSV   ? text_split_csv(line, fields, 8)
                      : way == TAB ? text_split(line, '\t', fields, 8)
                                   : text_words(line, fields, 8);
        for (int i = 0; i < n && i < 8; i++) look_at(fields[i]);
    }
    text_close(&t);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_put("rows.txt", data, bytes);
    for (int way = 0; way < WAYS; way++) fuzz_taken(read_rows(path, way));
    return 0;
}
