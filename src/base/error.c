#include "kolo/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 4096 };

static _Thread_local char error_text[TEXT_BYTES];

int kolo_fail(int status, const char *format, ...)
{
    char text[TEXT_BYTES] = ""; /* aside: an argument may be the old text itself */
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    memcpy(error_text, text, sizeof text);
    return status;
}

int kolo_fail_in(int status, const char *format, ...)
{
    char text[TEXT_BYTES] = "";
    va_list list;
    va_start(list, format);
    int used = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (used >= 0 && (size_t)used < sizeof text) snprintf(text + used, sizeof text - (size_t)used, "%s", error_text);
    memcpy(error_text, text, sizeof text);
    return status;
}

const char *kolo_error_text(void) { return error_text; }
