/* Messages to one peer through two rings of frames: one that we write and it reads, one the other way.
 * channel.c has rings in shared memory, tcp.c rings behind a socket; the protocol is the same:
 *
 *   EAGER    a short message with its bytes; the receiver keeps it where no place is posted yet
 *   OFFER    a longer one without; the receiver answers, when a place is posted, with
 *   GRANT      send it: DATA frames follow, of several messages in turn
 *   TAKEN      or: I have read it where it lies, because it lies in memory that we share
 *
 * So a message never waits behind another one of a different tag. Messages that come before their place is
 * posted are kept in memory that is used again. */
#ifndef KOLO_COMM_FRAMING_H
#define KOLO_COMM_FRAMING_H

#include <string.h>

#include "comm/core/transport/inside.h"

typedef struct ring {
    _Alignas(64) _Atomic uint64_t head; /* bytes read */
    _Alignas(64) _Atomic uint64_t tail; /* bytes written */
    _Alignas(64) _Atomic uint32_t full; /* the writer waits for room */
    uint32_t bytes;
    _Alignas(64) char data[]; /* [bytes], a power of two */
} ring;

enum frame_kind {
    FRAME_NONE,
    FRAME_EAGER,
    FRAME_OFFER, /* payload: none, or the offset in the sender's segment */
    FRAME_GRANT,
    FRAME_TAKEN,
    FRAME_DATA,
    FRAME_BEAT,  /* lines.h: a sign of life */
    FRAME_LEAVE, /* lines.h: closed in good order */
};

typedef struct frame {
    uint8_t kind, unused[3];
    int32_t tag;
    uint64_t serial; /* of the message, counted by its sender */
    uint64_t bytes;  /* of the message */
    uint32_t length; /* of what follows the frame, padded to whole frames */
    uint32_t unused_too;
} frame;
_Static_assert(sizeof(frame) == 32, "a frame never wraps");

typedef struct framing {
    comm_router *router;
    int rank;
    ring *in, *out;     /* NULL: not made yet */
    bool shares_memory; /* else it is a line's */
    size_t eager;       /* bytes of an eager message, at most: of a ring of full size */
    uint64_t serial;
    router_queue receives, sends, offered, granted, arriving, answers;
    router_queue unexpected;
    router_request *spare[2]; /* of unexpected ones: small, large */
    /* [eager] a payload that had to be copied out of the ring */
    char *unwrapped;
    /* since the owner looked: something stands in `out`, room was made in `in` */
    bool wrote, took;
} framing;

/* the caller has filled what stands in front of `eager`; rings have so many bytes, or fewer */
int framing_open(framing *t, size_t ring_bytes);
int framing_post(framing *t, router_request *r);
/* Handles the whole frames of `in`. */
int framing_read(framing *t);
/* Writes what there is to write and has room. */
int framing_write(framing *t);
static inline bool framing_wants_to_write(const framing *t)
{
    return t->answers.first || t->sends.first || t->granted.first;
}
/* False: no room. */
bool framing_put(framing *t, const frame *f, const void *payload);
void framing_close(framing *t);
void line_other(framing *t, const frame *f, const char *payload); /* a frame that is not of messages */

static inline size_t ring_size(size_t bytes) { return sizeof(ring) + bytes; }
enum { ROUTER_SMALL_RING = 512 };
/* Offset in a segment of the small ring to a rank of the node. */
static inline uint64_t router_small_ring(int local)
{
    return kolo_round_up(sizeof(router_control), 64) + (uint64_t)local * ring_size(ROUTER_SMALL_RING);
}
static inline ring *ring_begin(void *memory, size_t bytes)
{
    ring *r = memory;
    memset(r, 0, sizeof *r);
    r->bytes = (uint32_t)bytes;
    return r;
}

#endif
