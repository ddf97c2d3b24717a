#include "base/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { TEXT_BYTES = KOLO_FAILURE_BYTES };

static _Thread_local char error_text[TEXT_BYTES];
static _Thread_local int error_status = KOLO_EINTERNAL;

/* Names of files and classes come into errors as they are, and errors go to terminals. */
static int error_set(int status, char *text)
{
    kolo_plain(text);
    memcpy(error_text, text, TEXT_BYTES);
    error_status = status;
    return status;
}

int kolo_fail(int status, const char *format, ...)
{
    char text[TEXT_BYTES] = ""; /* aside: an argument may be the old text itself */
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return error_set(status, text);
}

int kolo_fail_in(int status, const char *format, ...)
{
    char text[TEXT_BYTES] = "";
    va_list list;
    va_start(list, format);
    int used = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (used >= 0 && (size_t)used < sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, "%s", error_text);
    return error_set(status, text);
}

const char *kolo_error_text(void) { return error_text; }

int kolo_error_status(void) { return error_status; }

void kolo_error_keep(kolo_failure *kept)
{
    kept->status = error_status;
    memcpy(kept->text, error_text, TEXT_BYTES);
}

int kolo_error_restore(const kolo_failure *kept, int rc)
{
    if (rc >= 0) return rc;
    memcpy(error_text, kept->text, TEXT_BYTES);
    return error_status = rc;
}
