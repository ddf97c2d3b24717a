#include "comm/core/config.h"

#include <string.h>

#include "kolo/error.h"

int comm_config_take(void *own, size_t bytes, const void *given, const char *name)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    memset(own, 0, bytes);
    if (size < sizeof size)
        return kolo_fail(KOLO_ECONFIG,
                         "comm: %s.size is %zu; set it, so that later versions know which fields are there: "
                         "%s config = {.size = sizeof config, ...}",
                         name, size, name);
    if (size > bytes)
        return kolo_fail(
            KOLO_ECONFIG,
            "comm: %s.size is %zu, but this library knows %zu bytes of it: the program was compiled "
            "for a later version; put that version's libkolo_comm.so first (LD_LIBRARY_PATH), or "
            "compile it anew",
            name, size, bytes);
    memcpy(own, given, size);
    return 0;
}
