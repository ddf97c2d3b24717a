/* An annotation of Pascal VOC: the reader of XML, and what is made of the elements. */
#include "readers/xml.h"

#include <string.h>

#include "input.h"

/* All elements, the text of those called name, xmin, filename; the others are looked into. */
static int walk(xml_reader *x)
{
    const char *name, *text;
    int rc;
    while ((rc = xml_child(x, &name)) > 0) {
        const size_t length = strlen(name);
        rc = length % 4 == 0 ? xml_text(x, &text) : length % 7 == 0 ? xml_skip(x) : walk(x);
        if (rc < 0) return rc;
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool ready;
    static const char *list;
    if (!ready) fuzz_put("JPEGImages/a.jpg", "", 0), list = fuzz_put("list.txt", "a\n", 2);
    ready = true;
    const char *path = fuzz_put("Annotations/a.xml", data, bytes);
    fuzz_source("voc-xml", fuzz_folder(), list);
    xml_reader x;
    if (!fuzz_taken(xml_open(&x, path))) return 0;
    int rc = walk(&x);
    if (rc == 0) rc = xml_finish(&x);
    fuzz_tried(rc);
    xml_close(&x);
    return 0;
}
