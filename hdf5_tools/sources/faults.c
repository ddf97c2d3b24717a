/* Annotations that are wrong: --on-error fail ends the packing at the first; skip leaves them out, reports
 * the first ones, counts all, up to --max-bad, and keeps a line of each for the list of rejects. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "sources/options.h"

#define MOST_TOLD 5
#define MOST_LISTED 100000 /* a wrong file of classes would make as many as the source has rows */

static int faults_append(source_faults *f, const char *text, size_t length)
{
    KOLO_TRY(kolo_grow(&f->lines, &f->capacity, f->bytes + (int64_t)length, 1));
    memcpy(f->lines + f->bytes, text, length);
    f->lines[f->bytes += (int64_t)length] = 0;
    return 0;
}

/* Below --in paths are written as those of the images, from there. */
static const char *shorten(const pack_options *o, const char *path)
{
    for (int i = 0; i < o->in_count; i++) {
        const size_t n = strlen(o->in[i]);
        if (strncmp(path, o->in[i], n) == 0 && path[n] == '/') return path + n + 1;
    }
    return path;
}

/* "file:line: cause" becomes "file:line TAB cause". */
static int list_fault(source_faults *f, const char *text)
{
    char line[1024];
    text = shorten(f->options, text);
    const char *colon = strstr(text, ": ");
    const size_t where = colon ? (size_t)(colon - text) : 0;
    size_t n = 0;
    if (!colon) line[n++] = '\t';
    for (const char *p = text; *p && n < sizeof line - 2; p++) {
        if (colon && p == text + where) line[n++] = '\t', p++;
        else line[n++] = (unsigned char)*p < 32 ? ' ' : *p;
    }
    line[n++] = '\n';
    return faults_append(f, line, n);
}

int source_fault(source *s, int status)
{
    source_faults *f = &s->faults;
    if (status != KOLO_EINPUT || !f->options->skip) return status;
    const int64_t most = f->options->max_bad;
    f->count++;
    if (f->count <= MOST_TOLD) kolo_log0(KOLO_LOG_WARN, "%s: left out", kolo_error_text());
    if (f->count <= MOST_LISTED) KOLO_TRY(list_fault(f, kolo_error_text()));
    if (most < 0 || f->count <= most) return 0;
    return kolo_fail_in(status,
                        "more than --max-bad %lld annotations are wrong, the last: ", (long long)most);
}

int source_end_faults(source *s)
{
    source_faults *f = &s->faults;
    if (f->count == 0) return 0;
    kolo_log0(KOLO_LOG_WARN, "%lld wrong annotation%s left out", (long long)f->count,
              f->count == 1 ? " was" : "s were");
    if (f->count <= MOST_LISTED) return 0;
    char line[96];
    const int n =
        snprintf(line, sizeof line, "%lld more\tare not listed\n", (long long)(f->count - MOST_LISTED));
    return faults_append(f, line, (size_t)n);
}
