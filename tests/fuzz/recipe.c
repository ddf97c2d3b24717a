/* Recipes. What is taken can be written, and reads back the same. */
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "input.h"
#include "kolo/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    kolo_options options, again;
    kolo_options_default(&options);
    kolo_options_default(&again);
    if (fuzz_taken_or(kolo_options_read_recipe(&options, fuzz_put("recipe.yaml", data, bytes)),
                      KOLO_ECONFIG)) {
        char *text = kolo_options_write(&options, true);
        fuzz_require(text != NULL, "written");
        fuzz_require(kolo_options_read_recipe(&again, fuzz_put("again.yaml", text, strlen(text))) == 0,
                     "read back");
        char *difference = kolo_options_difference(&options, &again);
        fuzz_require(difference == NULL, "read back the same");
        free(text);
    }
    kolo_options_free(&options);
    kolo_options_free(&again);
    return 0;
}
