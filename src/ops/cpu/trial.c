#include "ops/cpu/trial.h"

#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"

bool kolo_trial_fits(const size_t bytes[KOLO_TRIAL_BUFFERS])
{
    size_t sum = kolo_memory_resident();
    for (int i = 0; i < KOLO_TRIAL_BUFFERS; i++) sum += bytes[i];
    return sum <= kolo_memory_limit(NULL);
}

int kolo_trial_open(kolo_trial *t, const size_t bytes[KOLO_TRIAL_BUFFERS])
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < KOLO_TRIAL_BUFFERS; i++) {
        if (!bytes[i]) continue;
        t->buffer[i] = kolo_pages_alloc(bytes[i]);
        if (!t->buffer[i]) {
            kolo_trial_close(t);
            return KOLO_ENOMEM;
        }
        t->bytes[i] = bytes[i];
        memset(t->buffer[i], 0x3C, bytes[i]); /* 0.01 both as f32 and as bf16: no denormals */
    }
    return 0;
}

void kolo_trial_close(kolo_trial *t)
{
    for (int i = 0; i < KOLO_TRIAL_BUFFERS; i++)
        if (t->buffer[i]) kolo_pages_free(&t->buffer[i], t->bytes[i]);
    memset(t, 0, sizeof *t);
}

double kolo_trial_seconds(int (*run)(void *context), void *context, double best)
{
    double least = 0, total = 0;
    for (int i = 0; i < 12; i++) {
        double start = kolo_time();
        int rc = run(context);
        if (rc < 0) return rc;
        double took = kolo_time() - start;
        if (i == 0 || took < least) least = took;
        if (i == 0 && best > 0 && took > 2 * best) break;
        total += i ? took : 0;             /* the first run warms up */
        if (i >= 1 && total > 2e-3) break; /* short ones are repeated: their clock is coarse */
    }
    return least;
}
