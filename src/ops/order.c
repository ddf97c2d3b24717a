/* Memory and order of work of any backend: a device's table is asked where there is one; without it memory is
 * the host's and everything is done at once, so an event is the time at which it was recorded. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "ops/kernel.h"

/* ---- memory ---- */

bool kolo_backend_is_host(const kolo_backend *b) { return !b->type->device; }

void *kolo_backend_alloc(kolo_backend *b, size_t bytes)
{
    return b->type->device ? b->type->device->alloc(b, bytes) : kolo_pages_alloc(bytes);
}

void kolo_backend_free(kolo_backend *b, void **memory, size_t bytes)
{
    if (!*memory) return;
    if (b->type->device) b->type->device->free(b, *memory, bytes);
    else kolo_pages_free(memory, bytes);
    *memory = NULL;
}

size_t kolo_backend_memory(kolo_backend *b, const char **source)
{
    return b->type->device ? b->type->device->memory(b, source) : kolo_memory_limit(source);
}

int kolo_backend_pin(kolo_backend *b, void *host, size_t bytes)
{
    return b->type->device ? b->type->device->pin(b, host, bytes) : 0;
}

void kolo_backend_unpin(kolo_backend *b, void *host)
{
    if (b->type->device) b->type->device->unpin(b, host);
}

int kolo_backend_copy(kolo_backend *b, enum kolo_lane lane, void *to, const void *from, size_t bytes)
{
    if (b->type->device) return b->type->device->copy(b, lane, to, from, bytes);
    if (bytes) memcpy(to, from, bytes);
    return 0;
}

int kolo_backend_fill(kolo_backend *b, enum kolo_lane lane, void *to, int byte, size_t bytes)
{
    if (b->type->device) return b->type->device->fill(b, lane, to, byte, bytes);
    if (bytes) memset(to, byte, bytes);
    return 0;
}

int kolo_backend_read(kolo_backend *b, void *host, const void *from, size_t bytes)
{
    if (b->type->device) return b->type->device->read(b, host, from, bytes);
    return kolo_backend_copy(b, KOLO_LANE_COMPUTE, host, from, bytes);
}

int kolo_backend_write(kolo_backend *b, void *to, const void *host, size_t bytes)
{
    if (b->type->device) return b->type->device->write(b, to, host, bytes);
    return kolo_backend_copy(b, KOLO_LANE_COMPUTE, to, host, bytes);
}

int kolo_backend_finish(kolo_backend *b) { return b->type->device ? b->type->device->finish(b) : 0; }

void *kolo_backend_stream(kolo_backend *b, enum kolo_lane lane)
{
    return b->type->device ? b->type->device->stream(b, lane) : NULL;
}

/* ---- events ---- */

struct kolo_event {
    kolo_backend *backend;
    void *device;    /* the table's own */
    double recorded; /* on the host */
};

int kolo_event_create(kolo_backend *b, kolo_event **event, bool timed)
{
    kolo_event *e = *event = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ENOMEM;
    e->backend = b;
    int rc = b->type->device ? b->type->device->event_create(b, &e->device, timed) : 0;
    if (rc < 0) {
        free(e);
        *event = NULL;
    }
    return rc;
}

void kolo_event_destroy(kolo_event **event)
{
    kolo_event *e = *event;
    if (!e) return;
    if (e->device) e->backend->type->device->event_destroy(e->device);
    free(e);
    *event = NULL;
}

int kolo_event_record(kolo_event *e, enum kolo_lane lane)
{
    if (e->device) return e->backend->type->device->event_record(e->backend, e->device, lane);
    e->recorded = kolo_time();
    return 0;
}

int kolo_event_after(kolo_event *e, enum kolo_lane lane)
{
    return e->device ? e->backend->type->device->event_after(e->backend, e->device, lane) : 0;
}

int kolo_event_done(kolo_event *e) { return e->device ? e->backend->type->device->event_done(e->device) : 1; }

/* What is nearly there is polled for; then the core is left to others, the longer the longer it takes. */
int kolo_event_wait(kolo_event *e, double timeout)
{
    const double begin = kolo_time(), shortest = 20e-6, longest = 500e-6;
    for (;;) {
        int done = kolo_event_done(e);
        if (done) return done < 0 ? done : 0;
        double waited = kolo_time() - begin;
        if (waited > timeout)
            return kolo_fail(KOLO_ELAUNCH, "the device has not reached this point after %.3g s", waited);
        double nap = waited / 8 < shortest ? shortest : waited / 8 > longest ? longest : waited / 8;
        if (waited > shortest) nanosleep(&(struct timespec){.tv_nsec = (long)(nap * 1e9)}, NULL);
    }
}

double kolo_event_seconds(const kolo_event *from, const kolo_event *to)
{
    return from->device ? from->backend->type->device->event_seconds(from->device, to->device)
                        : to->recorded - from->recorded;
}

/* ---- replay ---- */

struct kolo_replay {
    kolo_backend *backend;
    void *device;
};

int kolo_backend_capture(kolo_backend *b) { return b->type->device ? b->type->device->capture(b) : 1; }

int kolo_backend_capture_end(kolo_backend *b, kolo_replay **replay)
{
    *replay = NULL;
    if (!b->type->device)
        return kolo_fail(KOLO_EINTERNAL, "the %s backend cannot record steps", b->type->name);
    kolo_replay *r = kolo_alloc(sizeof *r);
    void *recorded = NULL;
    int rc = b->type->device->capture_end(b, &recorded); /* also without memory: the recording must end */
    if (rc < 0 || !r) {
        if (recorded) b->type->device->replay_destroy(recorded);
        free(r);
        return rc < 0 ? rc : KOLO_ENOMEM;
    }
    *r = (kolo_replay){b, recorded};
    *replay = r;
    return 0;
}

int kolo_replay_run(kolo_replay *r) { return r->backend->type->device->replay_run(r->backend, r->device); }

void kolo_replay_destroy(kolo_replay **replay)
{
    kolo_replay *r = *replay;
    if (!r) return;
    r->backend->type->device->replay_destroy(r->device);
    free(r);
    *replay = NULL;
}

/* ---- arithmetic over arenas ---- */

int kolo_backend_fold(kolo_backend *b, float *sum, const float *part, int64_t count)
{
    return b->type->fold(b, sum, part, count);
}

int kolo_backend_divide(kolo_backend *b, float *to, const float *from, float by, int64_t count)
{
    return b->type->divide(b, to, from, by, count);
}

int kolo_backend_narrow(kolo_backend *b, void *half, enum kolo_dtype dtype, const float *from, int64_t count)
{
    if (dtype != KOLO_BF16 && dtype != KOLO_F16)
        return kolo_fail(KOLO_EINTERNAL, "a copy of the parameters in %s", kolo_dtype_name(dtype));
    return b->type->narrow(b, half, dtype, from, count);
}

/* ---- forms of activations ---- */

bool kolo_backend_encodes(const kolo_backend *b) { return b->type->encode && b->type->decode; }

static int check_form(const kolo_backend *b, enum kolo_form_kind form, enum kolo_dtype dtype)
{
    return kolo_backend_encodes(b) && kolo_form_takes(form, dtype)
               ? 0
               : kolo_fail(KOLO_EINTERNAL, "%s: no form %d of %s", b->type->name, (int)form,
                           kolo_dtype_name(dtype));
}

int kolo_backend_encode(kolo_backend *b, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                        const void *from, int64_t count)
{
    KOLO_TRY(check_form(b, form, dtype));
    b->type->encode(b, form, dtype, to, from, count);
    return 0;
}

int kolo_backend_decode(kolo_backend *b, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                        const void *from, int64_t count)
{
    KOLO_TRY(check_form(b, form, dtype));
    b->type->decode(b, form, dtype, to, from, count);
    return 0;
}
