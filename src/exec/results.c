/* What comes back from a step: metrics, the norms of its gradients, and whether something went wrong.
 * Nobody waits for it in the step itself: it is copied behind the step's last action, and looked at when the
 * host is KOLO_EXEC_AHEAD further. */
#include <inttypes.h>
#include <math.h>

#include "base/thread.h"
#include "exec/parts.h"
#include "kolo/error.h"

int exec_send_back(kolo_exec *e)
{
    int i = (int)(e->issued % e->flights);
    exec_step_in_flight *t = &e->in_flight[i];
    const size_t own = e->plan->ring ? 0 : KOLO_STEP_HOST_BYTES; /* the host's part is of a later batch */
    KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, (char *)&t->step + own,
                               (char *)&e->step[e->applied_version] + own, sizeof t->step - own));
    if (e->current->metrics) {
        const ptrdiff_t at = exec_gradients(e, e->applied_version) - exec_gradients(e, 0);
        const char *from = (const char *)e->current->metrics + at;
        KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, t->metrics, from, sizeof t->metrics));
    }
    KOLO_TRY(kolo_event_record(e->done[i], KOLO_LANE_COMPUTE));
    e->issued++;
    return 0;
}

/* On the host every wait of a step reports by itself; a device's sums may fail behind it. */
static int comm_status(const kolo_exec *e)
{
    return e->comm && !kolo_backend_is_host(e->backend) ? kolo_comm_status(e->comm) : 0;
}

int exec_await(kolo_exec *e, kolo_event *event)
{
    const double slice = 0.1, end = kolo_time() + e->options->comm_timeout;
    for (;;) {
        double left = end - kolo_time();
        int rc = kolo_event_wait(event, left < slice ? left : slice);
        if (rc >= 0) return rc;
        /* it may have come just behind the slice */
        if ((rc = kolo_event_done(event)) != 0) return rc < 0 ? rc : 0;
        /* a peer that is gone is the better reason */
        KOLO_TRY(comm_status(e));
        if (left >= slice) continue;
        rc = kolo_fail(KOLO_ELAUNCH, "the GPU has not finished within comm_timeout=%g s",
                       e->options->comm_timeout);
        return e->comm ? kolo_comm_abort(e->comm, rc) : rc; /* what closes after this waits for the GPU */
    }
}

/* Errors that a step leaves behind, which is counted from 1 as in progress and events; a skipped update under
 * a dynamic loss scale is none. */
static int check_results(const kolo_exec *e, const exec_step_in_flight *t)
{
    const kolo_step *s = &t->step;
    const kolo_graph *g = e->plan->graph;
    double loss = e->variant->metrics ? (double)t->metrics[0] : 0;
    if (s->bad.kind)
        return kolo_fail_in(kolo_bad_label_fail(&s->bad, g->classes), "step %" PRId64 ": ", s->step + 1);
    if (!isfinite(loss) && !e->plan->config.optimizer)
        return kolo_fail(KOLO_EINPUT, "the validation loss is %s: these weights have diverged",
                         isnan(loss) ? "not a number" : "infinite");
    if (!isfinite(loss) && s->step == 0)
        return kolo_fail(KOLO_ECONFIG,
                         "step 1: the loss is %s before anything was learnt: the weights that it begins with "
                         "(init=) are broken, or too large for the precision",
                         isnan(loss) ? "not a number" : "infinite");
    if (!isfinite(loss))
        return kolo_fail(KOLO_ECONFIG,
                         "step %" PRId64
                         ": the loss is %s (lr %g): training has diverged; begin another run folder with "
                         "a smaller lr, a longer warmup, clip_norm=1, or precision=f32",
                         s->step + 1, isnan(loss) ? "not a number" : "infinite", (double)s->lr);
    if (s->skip && !e->dynamic)
        return kolo_fail(KOLO_ECONFIG,
                         "step %" PRId64
                         ": the gradient norm is %s (lr %g); try a smaller lr, a longer warmup, "
                         "precision=f32%s",
                         s->step + 1, isnan(s->norm) ? "not a number" : "infinite", (double)s->lr,
                         e->plan->config.scaled ? ", or a smaller loss_scale" : "");
    return 0;
}

int exec_report_next(kolo_exec *e, kolo_metrics *metrics)
{
    int i = (int)(e->reported % e->flights);
    const exec_step_in_flight *t = &e->in_flight[i];
    *metrics = (kolo_metrics){.step = -1};
    int rc = exec_await(e, e->done[i]);
    if (rc < 0) return kolo_fail_in(rc, "step %" PRId64 ": ", t->step.step + 1);
    e->reported++;
    if ((rc = comm_status(e)) < 0) return kolo_fail_in(rc, "step %" PRId64 ": ", t->step.step + 1);
    *metrics = (kolo_metrics){.step = t->step.step,
                              .grad_norm = t->step.norm,
                              .square = t->step.square,
                              .loss_scale = (double)t->step.scaler.scale,
                              .skipped = t->step.scaler.skipped};
    if (e->variant->metrics) {
        metrics->loss = (double)t->metrics[0];
        metrics->top1 = (double)t->metrics[1];
        metrics->top5 = (double)t->metrics[2];
        metrics->rows = (double)t->metrics[3];
    }
    return check_results(e, t);
}

int kolo_exec_drain(kolo_exec *e, kolo_metrics *metrics)
{
    if (e->reported < e->issued) return exec_report_next(e, metrics);
    *metrics = (kolo_metrics){.step = -1};
    return 0;
}
