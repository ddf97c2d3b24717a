/* The stream of JSON: every value read for what it is, and once more from a mark. */
#include "readers/json_stream.h"

#include <math.h>
#include <string.h>

#include "input.h"
#include "kolo/error.h"

static int walk(json_stream *j);

static int walk_container(json_stream *j, bool object)
{
    const char *key;
    json_mark mark;
    int rc = object ? json_object(j) : json_array(j);
    bool again = true;
    if (rc < 0) return rc;
    while ((rc = object ? json_key(j, &key) : json_more(j)) > 0) {
        KOLO_TRY(json_tell(j, &mark));
        if (again) {
            KOLO_TRY(json_skip(j));
            KOLO_TRY(json_return(j, &mark));
        }
        again = false; /* once a container: a nest of them would take 2^depth */
        KOLO_TRY(j->depth % 2 ? walk(j) : json_skip(j));
    }
    return rc;
}

static int walk(json_stream *j)
{
    const char *text;
    double number;
    const int kind = json_peek(j);
    if (kind < 0) return kind;
    if (kind == '{' || kind == '[') return walk_container(j, kind == '{');
    if (kind == '"') return json_string(j, &text);
    if (kind != '0') return json_skip(j);
    KOLO_TRY(json_number(j, &number));
    fuzz_require(isfinite(number), "a finite number");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    json_stream j;
    if (!fuzz_taken(json_open(&j, fuzz_put("a.json", data, bytes)))) return 0;
    int rc = walk(&j);
    if (rc == 0) rc = json_finish(&j);
    fuzz_taken(rc);
    json_close(&j);
    return 0;
}
