#include "comm/core/transport/framing.h"

#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"

/* A message that came before its place was posted, as a request of nobody's. */
typedef struct unexpected {
    router_request r; /* reply: enum frame_kind of what came */
    bool large;       /* data: t->eager bytes, else SMALL */
    char data[];
} unexpected;

enum { SMALL = 512, TAKE_AT_ONCE = 4 << 20, LEAST_DATA = 4096 };

/* ---- rings --------------------------------------------------------------------------------------------- */

static void copy_out(const ring *from, uint64_t at, void *to, size_t count)
{
    size_t start = at & (from->bytes - 1), first = count < from->bytes - start ? count : from->bytes - start;
    memcpy(to, from->data + start, first);
    memcpy((char *)to + first, from->data, count - first);
}

static void copy_in(ring *to, uint64_t at, const void *from, size_t count)
{
    size_t start = at & (to->bytes - 1), first = count < to->bytes - start ? count : to->bytes - start;
    memcpy(to->data + start, from, first);
    memcpy(to->data, (const char *)from + first, count - first);
}

static size_t padded(size_t length) { return kolo_round_up(length, sizeof(frame)); }

static size_t room(const framing *t)
{
    uint64_t head = atomic_load_explicit(&t->out->head, memory_order_acquire);
    return t->out->bytes - (size_t)(atomic_load_explicit(&t->out->tail, memory_order_relaxed) - head);
}

static bool has_room(framing *t, size_t bytes)
{
    if (!t->out) return false;
    if (room(t) >= bytes) return true;
    atomic_store(&t->out->full, 1); /* the reader sees it, or we see its progress */
    router_fence();
    return room(t) >= bytes;
}

bool framing_put(framing *t, const frame *f, const void *payload)
{
    if (!has_room(t, sizeof *f + padded(f->length))) return false;
    uint64_t tail = atomic_load_explicit(&t->out->tail, memory_order_relaxed);
    copy_in(t->out, tail, f, sizeof *f);
    if (f->length) copy_in(t->out, tail + sizeof *f, payload, f->length);
    atomic_store_explicit(&t->out->tail, tail + sizeof *f + padded(f->length), memory_order_release);
    t->wrote = true;
    return true;
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

static int fail_length(framing *t, const router_request *r, uint64_t bytes)
{
    kolo_fail(KOLO_EINTERNAL, "comm: rank %d sent a message of %llu bytes where rank %d expects %zu", t->rank,
              (unsigned long long)bytes, t->router->launch->rank, r->bytes);
    return comm_router_break(t->router, kolo_error_text());
}

/* The offered message has a place. */
static int answer(framing *t, router_request *r, uint64_t serial, uint64_t bytes, uint64_t source)
{
    if (bytes != r->bytes) return fail_length(t, r, bytes);
    r->serial = serial;
    r->source = source;
    r->reply = source ? FRAME_TAKEN : FRAME_GRANT;
    queue_put(&t->answers, r);
    return 0;
}

/* Some at a time: how many messages come too early is a matter of chance. */
static int more_spare(framing *t, bool large)
{
    for (int i = 0; i < (large ? 2 : 16); i++) {
        unexpected *u = kolo_alloc(sizeof *u + (large ? t->eager : SMALL));
        if (!u) return KOLO_ENOMEM;
        u->large = large;
        u->r.next = t->spare[large];
        t->spare[large] = &u->r;
    }
    return 0;
}

static int framing_keep(framing *t, const frame *f, const char *payload, uint64_t source)
{
    size_t data = f->kind == FRAME_EAGER ? f->length : 0;
    bool large = data > SMALL;
    if (!t->spare[large]) KOLO_TRY(more_spare(t, large));
    router_request *r = t->spare[large];
    t->spare[large] = r->next;
    r->tag = f->tag;
    r->reply = f->kind;
    r->serial = f->serial;
    r->bytes = f->bytes;
    r->source = source;
    if (data) memcpy(((unexpected *)r)->data, payload, data);
    queue_put(&t->unexpected, r);
    return 0;
}

static void framing_complete(framing *t, router_request *r)
{
    r->complete = true;
    router_moved(t->router, r);
}

static int receive_eager(framing *t, router_request *r, uint64_t bytes, const char *data)
{
    if (bytes != r->bytes) return fail_length(t, r, bytes);
    if (bytes) memcpy(r->data, data, bytes);
    framing_complete(t, r);
    return 0;
}

static int post_receive(framing *t, router_request *r)
{
    router_request *came = queue_take_tag(&t->unexpected, r->tag);
    if (!came) {
        queue_put(&t->receives, r);
        return 0;
    }
    const unexpected *u = (unexpected *)came;
    came->next = t->spare[u->large];
    t->spare[u->large] = came;
    return came->reply == FRAME_EAGER ? receive_eager(t, r, came->bytes, u->data)
                                      : answer(t, r, came->serial, came->bytes, came->source);
}

/* A piece of a message straight from the ring to its place. */
static int receive_data(framing *t, const frame *f, uint64_t at)
{
    router_request *r = t->arriving.first;
    while (r && r->serial != f->serial) r = r->next;
    if (!r || f->length > r->bytes - r->moved) return fail_length(t, r ? r : &(router_request){0}, f->bytes);
    copy_out(t->in, at, r->data + r->moved, f->length);
    r->moved += f->length;
    router_moved(t->router, r);
    if (r->moved < r->bytes) return 0;
    queue_take_serial(&t->arriving, f->serial);
    framing_complete(t, r);
    return 0;
}

static int receive_own(framing *t, const frame *f)
{
    router_request *r = queue_take_serial(&t->offered, f->serial);
    if (!r) return 0; /* of a lane that is gone */
    if (f->kind == FRAME_GRANT) queue_put(&t->granted, r);
    else framing_complete(t, r);
    return 0;
}

/* Frames with a small payload are handled in a copy, since they may wrap; short messages too
 * where they must be kept. */
static int handle(framing *t, const frame *f, uint64_t at)
{
    char *payload = t->unwrapped;
    uint64_t source = 0;
    router_request *r;
    switch (f->kind) {
    case FRAME_DATA: return receive_data(t, f, at);
    case FRAME_GRANT:
    case FRAME_TAKEN: return receive_own(t, f);
    case FRAME_OFFER:
        if (f->length == sizeof source) copy_out(t->in, at, &source, sizeof source);
        r = queue_take_tag(&t->receives, f->tag);
        return r ? answer(t, r, f->serial, f->bytes, source) : framing_keep(t, f, NULL, source);
    case FRAME_EAGER:
        r = queue_take_tag(&t->receives, f->tag);
        if (r && f->bytes == r->bytes && f->length == f->bytes) {
            copy_out(t->in, at, r->data, f->length);
            framing_complete(t, r);
            return 0;
        }
        if (r || f->length != f->bytes) return fail_length(t, r ? r : &(router_request){0}, f->bytes);
        break;
    default: break;
    }
    if (f->length > t->eager) return fail_length(t, &(router_request){0}, f->length);
    copy_out(t->in, at, payload, f->length);
    if (f->kind == FRAME_EAGER) return framing_keep(t, f, payload, 0);
    if (!t->shares_memory) line_other(t, f, payload);
    return 0;
}

int framing_read(framing *t)
{
    if (!t->in) return 0;
    uint64_t head = atomic_load_explicit(&t->in->head, memory_order_relaxed),
             tail = atomic_load_explicit(&t->in->tail, memory_order_acquire);
    frame f;
    while (tail - head >= sizeof f) {
        copy_out(t->in, head, &f, sizeof f);
        if (f.length > t->in->bytes - sizeof f) return fail_length(t, &(router_request){0}, f.length);
        if (tail - head < sizeof f + padded(f.length)) break;
        KOLO_TRY(handle(t, &f, head + sizeof f));
        head += sizeof f + padded(f.length);
        atomic_store_explicit(&t->in->head, head, memory_order_release);
        t->took = true;
    }
    return 0;
}

/* ---- sending ------------------------------------------------------------------------------------------- */

/* Reads a shared message in place, some megabytes a turn. True: all of it is there. */
static bool framing_take(framing *t, router_request *r)
{
    size_t left = r->bytes - r->moved, some = left < TAKE_AT_ONCE ? left : TAKE_AT_ONCE;
    const char *source = router_at(t->router, router_local(t->router, t->rank), r->source);
    memcpy(r->data + r->moved, source + r->moved, some);
    r->moved += some;
    router_moved(t->router, r);
    return r->moved == r->bytes;
}

static void write_answers(framing *t)
{
    for (router_request *r; (r = t->answers.first) != NULL;) {
        frame f = {.kind = r->reply, .tag = r->tag, .serial = r->serial};
        if (r->reply == FRAME_TAKEN && r->moved < r->bytes && !framing_take(t, r)) return;
        if (!framing_put(t, &f, NULL)) return;
        queue_cut(&t->answers, NULL, r);
        if (r->reply == FRAME_TAKEN) framing_complete(t, r);
        else queue_put(&t->arriving, r);
    }
}

static void write_sends(framing *t)
{
    const size_t eager = t->out->bytes / 8;
    for (router_request *r; (r = t->sends.first) != NULL;) {
        frame f = {.kind = FRAME_EAGER, .tag = r->tag, .serial = r->serial, .bytes = r->bytes};
        size_t source = 0;
        const void *payload = r->data;
        if (r->bytes > LEAST_DATA && t->shares_memory &&
            comm_router_shared(t->router, r->data, r->bytes, &source)) {
            f.kind = FRAME_OFFER;
            f.length = sizeof source;
            payload = &source;
        } else if (r->bytes > eager) {
            f.kind = FRAME_OFFER;
        } else {
            f.length = (uint32_t)r->bytes;
        }
        if (!framing_put(t, &f, payload)) return;
        queue_cut(&t->sends, NULL, r);
        if (f.kind == FRAME_OFFER) queue_put(&t->offered, r);
        else framing_complete(t, r);
    }
}

/* The messages in turn, a frame each. */
static void write_data(framing *t)
{
    const size_t most = t->out->bytes / 4 - sizeof(frame);
    for (router_request *r; (r = t->granted.first) != NULL;) {
        size_t left = r->bytes - r->moved, some = left < most ? left : most;
        frame f = {.kind = FRAME_DATA,
                   .tag = r->tag,
                   .serial = r->serial,
                   .bytes = r->bytes,
                   .length = (uint32_t)some};
        if (!framing_put(t, &f, r->data + r->moved)) return;
        queue_cut(&t->granted, NULL, r);
        r->moved += some;
        router_moved(t->router, r);
        if (r->moved < r->bytes) queue_put(&t->granted, r);
        else framing_complete(t, r);
    }
}

int framing_write(framing *t)
{
    if (!t->out) return 0;
    write_answers(t);
    write_sends(t);
    write_data(t);
    return 0;
}

int framing_post(framing *t, router_request *r)
{
    if (!r->sends) return post_receive(t, r);
    r->serial = ++t->serial;
    queue_put(&t->sends, r);
    return 0;
}

int framing_open(framing *t, size_t ring_bytes)
{
    t->eager = ring_bytes / 8;
    t->unwrapped = kolo_alloc(t->eager);
    return t->unwrapped ? 0 : KOLO_ENOMEM;
}

void framing_close(framing *t)
{
    router_request *const all[] = {t->unexpected.first, t->spare[0], t->spare[1]};
    for (int i = 0; i < 3; i++)
        for (router_request *r = all[i], *next; r; r = next) {
            next = r->next;
            free(r);
        }
    free(t->unwrapped);
}
