/* JSON output: what every reader takes. */
#include <cjson/cJSON.h>

#include "base/json.h"
#include "tap.h"

static void quoted(const char *text, const char *want)
{
    char *got = kolo_json_quote(text);
    is_text(got, want, "%s", want);
    free(got);
}

static char *number(double value, int digits)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    kolo_json_number(f, value, digits);
    fclose(f);
    return text;
}

int main(void)
{
    quoted("plain", "\"plain\"");
    quoted("a \"b\" \\ c\n\t\x01", "\"a \\\"b\\\" \\\\ c\\n\\u0009\\u0001\"");
    quoted("\xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80", "\"\xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80\"");
    quoted("\xFF \xC3 \xC0\x80 \xED\xA0\x80", "\"\\ufffd \\ufffd \\ufffd\\ufffd \\ufffd\\ufffd\\ufffd\"");
    quoted(NULL, "null");
    char all[256], *text;
    for (int i = 1; i < 256; i++) all[i - 1] = (char)i;
    all[255] = 0;
    text = kolo_json_quote(all);
    cJSON *back = cJSON_Parse(text);
    ok(cJSON_IsString(back) && !strncmp(back->valuestring, all, 127),
       "all bytes: cJSON reads the ASCII half back");
    cJSON_Delete(back);
    free(text);
    const double values[] = {0.1, -1e-300, 12345678901234567.0, NAN, INFINITY, -INFINITY};
    const char *const want[] = {
        "0.10000000000000001", "-1.0000000000000000e-300", "12345678901234568", "null", "null", "null"};
    for (int i = 0; i < 6; i++) {
        text = number(values[i], 17);
        if (i == 1) is_near(strtod(text, NULL), values[i], 0, "%s reads back exactly", text);
        else is_text(text, want[i], "%s", want[i]);
        free(text);
    }
    return done_testing();
}
