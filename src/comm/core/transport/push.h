/* A set of pushing ranks, for push*.c. Every round begins alike: each member puts up its line (what it
 * brings, and where that lies; a few bytes lie in the line itself); when all lines stand, every member knows
 * which of the ways the round goes, or that the members do not agree:
 *
 *   small   every member folds copies of all members' bytes itself: one meeting in all
 *   direct  all vectors lie in shared memory: members take blocks, their own slice first, and push the result
 *           into every member's vector
 *   staged  pieces travel through two staging blocks a member each way, two in turn (push_staged.c); where
 *           a rank had no memory for its own, through the copies of small vectors, in small pieces
 *
 * Lines alternate between two places: who writes line n + 2 has seen all lines n + 1, so everybody
 * is done with round n. */
#ifndef KOLO_COMM_PUSH_H
#define KOLO_COMM_PUSH_H

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "comm/core/transport/inside.h"

enum {
    PUSH_PAGE = 4096,   /* the memory of a set begins one (heap.c) */
    PUSH_INLINE = 40,   /* bytes that fit a line */
    PUSH_CACHED = 2048, /* bytes that are copied through the caches */
    PUSH_SMALL = 4096,  /* bytes that every member folds itself */
    /* shared out among the members: so many it folds itself where nothing lies in shared memory */
    PUSH_COPIED = 1 << 17,
    PUSH_BLOCK = 65536,   /* bytes of a block of direct, at most */
    PUSH_PIECE = 1 << 19, /* bytes of a piece of staged */
};

typedef struct push_line {
    _Alignas(64) _Atomic uint32_t round;
    uint8_t in_shared, out_shared, width, poor; /* poor: has no staging blocks */
    int64_t count;
    uint64_t signature;
    union {
        char bytes[PUSH_INLINE];
        struct {
            uint64_t in, out; /* offsets in the member's segment */
        };
    };
} push_line;
_Static_assert(sizeof(push_line) == 64, "one cache line");

/* In the memory of the set, which lies in its first member's segment; written by its owner. */
typedef struct push_member {
    push_line line[2];
    /* direct: round << 32 | blocks of this slice; anyone */
    _Alignas(64) _Atomic uint64_t claimed;
    _Alignas(64) _Atomic uint64_t copied, folded, taken; /* staged: pieces, over all rounds */
    _Atomic uint64_t stage;                              /* offset of its staging blocks; 0: not made yet */
    _Alignas(64) _Atomic uint32_t wants;                 /* ring it when something goes on */
    /* offset in the set of two copies of small vectors */
    uint64_t copies;
    uint32_t cache; /* find_cache; from its opening on */
} push_member;

typedef struct push_set {
    _Atomic uint32_t opened, closed;        /* members */
    _Alignas(64) _Atomic uint64_t arrived;  /* members, over all rounds */
    _Alignas(64) _Atomic uint64_t finished; /* direct: blocks, over all rounds */
    _Alignas(64) _Atomic uint32_t done;     /* direct: last finished round */
    push_member member[];
} push_set;

enum push_way { PUSH_NONE, PUSH_MEETING, PUSH_SMALLEST, PUSH_DIRECT, PUSH_STAGED };

struct comm_push {
    comm_router *router;
    push_set *set;
    uint64_t set_at; /* of the owner's heap */
    int id, me, members;
    int *local;              /* [members] */
    size_t copied;           /* bytes that a copy of a small vector may have */
    _Atomic uint64_t *entry; /* in the first member's tables */
    uint64_t name;           /* what stands there */
    bool joined;
    bool apart; /* the members' CPUs do not share a cache */
    const void **source;
    void **target; /* [members + 1] room for a fold */
    uint32_t round;
    enum push_way way;
    int seen; /* members whose line stands */
    comm_folding how;
    const char *in;
    char *out;
    int64_t count;
    size_t width;
    /* direct */
    int64_t block, blocks; /* elements of one; number */
    uint64_t finished;     /* blocks of all rounds up to this one */
    /* staged */
    int64_t piece, pieces; /* elements of one; number */
    uint64_t base;         /* pieces of all rounds before this one */
    bool poor;             /* some member has no staging blocks */
    int polls;             /* in vain, in a row */
    double moved_at;
};

static inline push_line *push_line_of(const comm_push *p, int member)
{
    return &p->set->member[member].line[p->round & 1];
}
static inline char *push_at(const comm_push *p, int member, uint64_t offset)
{
    return router_at(p->router, p->local[member], offset);
}
static inline char *push_copy(const comm_push *p, int member)
{
    return (char *)p->set + p->set->member[member].copies + (p->round & 1) * p->copied;
}
/* memcpy to memory that the others read next. Where the members' CPUs share no cache, past the caches, so
 * that the lines are not fetched back and forth (measured: up to 5 times as fast); where they share one,
 * through it (measured: mostly faster than past it, 0.9 to 2.7 times, by what else the machine did). */
static inline void push_stream(const comm_push *p, char *to, const char *from, size_t bytes)
{
    if (!bytes) return;
#if defined(__x86_64__)
    if (!p->apart) {
        memcpy(to, from, bytes);
        return;
    }
    size_t head = -(uintptr_t)to & 63;
    if (head > bytes) head = bytes;
    memcpy(to, from, head);
    for (to += head, from += head, bytes -= head; bytes >= 64; to += 64, from += 64, bytes -= 64)
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)to + i,
                             _mm_loadu_si128((const __m128i *)(const void *)from + i));
    memcpy(to, from, bytes);
    _mm_sfence();
#else
    (void)p;
    memcpy(to, from, bytes);
#endif
}

/* Something that others may wait for is done. */
void push_publish(comm_push *p);

bool push_staged_ready(comm_push *p); /* this member has its staging blocks, or now gets them */
void push_staged_begin(comm_push *p);
/* What a step returns besides COMM_PUSH_DIFFERS and negative statuses. */
enum { PUSH_IDLE = 0, PUSH_COMPLETE = 1, PUSH_WORKED = 3 };
int push_staged_step(comm_push *p);

#endif
