#include "faults.h"

#include "base/log.h"
#include "kolo/error.h"

#define MOST_TOLD 20

int faults_take(faults *f, int status)
{
    if (status != KOLO_EINPUT || !f->options->skip) return status;
    f->count++;
    if (f->count <= MOST_TOLD) kolo_log0(KOLO_LOG_WARN, "%s: left out", kolo_error_text());
    if (f->options->max_bad < 0 || f->count <= f->options->max_bad) return 0;
    return kolo_fail_in(status,
                        "more than --max-bad %lld annotations are wrong, the last: ", (long long)f->options->max_bad);
}

void faults_tell(const faults *f)
{
    if (f->count)
        kolo_log0(KOLO_LOG_WARN, "%lld wrong annotation%s left out", (long long)f->count,
                  f->count == 1 ? " was" : "s were");
}
