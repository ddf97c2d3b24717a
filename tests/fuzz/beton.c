/* FFCV's .beton to a split. */
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "input.h"
#include "shards/shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[320], out[320];
    snprintf(path, sizeof path, "%s", fuzz_put("a.beton", data, bytes));
    snprintf(out, sizeof out, "%s/out", fuzz_folder());
    char *words[] = {"convert", path, "--out", out, "--threads", "1", NULL};
    /* what it says of a split that is done */
    const int terminal = dup(1), nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    const bool taken = fuzz_taken(shards_convert(6, words));
    fflush(stdout);
    dup2(terminal, 1);
    close(terminal), close(nowhere);
    fuzz_require(kolo_file_exists(out) == taken, "a split is there whole or not at all");
    if (taken) fuzz_require(kolo_folder_remove(out) == 0, "its folder can be removed");
    return 0;
}
