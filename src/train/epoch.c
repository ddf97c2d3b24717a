#include "train/epoch.h"

#include <string.h>

#include "base/thread.h"
#include "kolo/error.h"

/* The figures of a rank as one vector, so that one reduction adds them up. */
typedef struct figures {
    int64_t samples, bytes, hits, bad, wait_ns;
    kolo_latency read, sample;
} figures;

static void subtract(kolo_latency *from, const kolo_latency *l)
{
    for (int i = 0; i < KOLO_LATENCY_BINS; i++) from->bin[i] -= l->bin[i];
}

void kolo_epoch_begin(kolo_epoch *epoch, const kolo_session *session, int64_t step)
{
    kolo_loader_get_stats(session->loader, &epoch->before);
    epoch->began = kolo_time();
    epoch->first = step;
}

int kolo_epoch_end(kolo_epoch *epoch, kolo_session *session, int64_t step, kolo_data_event *event)
{
    const kolo_loader_stats *was = &epoch->before;
    const double seconds = kolo_time() - epoch->began;
    kolo_loader_stats now;
    kolo_loader_get_stats(session->loader, &now);
    figures f = {.samples = now.samples - was->samples,
                 .bytes = now.bytes - was->bytes,
                 .hits = now.hits - was->hits,
                 .bad = now.bad - was->bad,
                 .wait_ns = (int64_t)((now.wait_seconds - was->wait_seconds) * 1e9),
                 .read = now.read,
                 .sample = now.sample};
    subtract(&f.read, &was->read);
    subtract(&f.sample, &was->sample);
    KOLO_TRY(kolo_comm_allreduce(session->comm, &f, sizeof f / sizeof(int64_t), KOLO_I64, KOLO_SUM));
    epoch->seconds += seconds;
    epoch->bytes += f.bytes;
    epoch->hits += f.hits;
    epoch->bad += f.bad;
    const double wait = (double)f.wait_ns * 1e-9 / session->ranks; /* of a rank, on average */
    int64_t number, within;
    kolo_session_at(session, step - 1, &number, &within);
    *event = (kolo_data_event){.step = step,
                               .epoch = number,
                               .steps = step - epoch->first,
                               .img_per_s = (double)f.samples / seconds,
                               .mb_per_s = (double)f.bytes / seconds / 1e6,
                               .busy = 1 - wait / seconds,
                               .wait = wait,
                               .read_p50 = kolo_latency_quantile(&f.read, .5),
                               .read_p99 = kolo_latency_quantile(&f.read, .99),
                               .sample_p50 = kolo_latency_quantile(&f.sample, .5),
                               .sample_p99 = kolo_latency_quantile(&f.sample, .99),
                               .samples = f.samples,
                               .cache_hits = f.hits,
                               .bad_samples = f.bad};
    return 0;
}
