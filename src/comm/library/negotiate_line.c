/* An edge of the tree: messages of any length to and from one member, in order, over two lanes of the
 * router. A frame is a head of fixed length and, where that does not hold all, the rest; it carries all
 * messages that were waiting. */
#include "comm/library/negotiate.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

enum { HEAD = 512, INLINE = HEAD - 8 };

struct lib_line {
    int rank, tag;
    void *in, *out;                /* lanes */
    bool sends, rest_posted, open; /* open: another frame is expected */
    char head_in[HEAD], head_out[HEAD];
    lib_bytes rest_in, waiting, sending;
    int64_t at; /* of the next message in rest_in, which holds the whole frame; -1: no frame is here */
};

static int post_head(lib_line *line)
{
    comm_router_lane_reset(line->in);
    line->rest_posted = false;
    line->at = -1;
    return comm_routed.post(line->in, false, line->rank, line->tag, line->head_in, HEAD);
}

int lib_line_open(lib_line **out, comm_router *router, int rank, int tag)
{
    lib_line *line = *out = kolo_alloc(sizeof *line);
    if (!line) return KOLO_ENOMEM;
    line->rank = rank;
    line->tag = tag;
    line->open = true;
    KOLO_TRY(comm_router_lane_make(router, 2, &line->in));
    KOLO_TRY(comm_router_lane_make(router, 2, &line->out));
    comm_router_no_timeout(line->in);
    return post_head(line);
}

void lib_line_close(lib_line **out)
{
    lib_line *line = *out;
    bool busy = false;
    if (!line) return;
    comm_router_lane_free(&line->in, &busy);
    comm_router_lane_free(&line->out, &busy);
    *out = NULL;
    if (busy) return; /* the network may still read or write there */
    lib_bytes_free(&line->rest_in);
    lib_bytes_free(&line->waiting);
    lib_bytes_free(&line->sending);
    free(line);
}

int lib_line_put(lib_line *line, const lib_bytes *message)
{
    KOLO_TRY(lib_put_number(&line->waiting, message->size));
    return lib_put(&line->waiting, message->data, (size_t)message->size);
}

int lib_line_send(lib_line *line)
{
    for (;;) {
        int rc = line->sends ? comm_routed.done(line->out, line->sending.size > INLINE) : 1;
        if (rc <= 0) return rc;
        line->sends = line->waiting.size > 0;
        if (!line->sends) return 1;
        lib_bytes swap = line->sending;
        line->sending = line->waiting;
        line->waiting = swap;
        line->waiting.size = 0;
        int64_t bytes = line->sending.size, first = bytes < INLINE ? bytes : INLINE;
        memcpy(line->head_out, &bytes, sizeof bytes);
        memcpy(line->head_out + 8, line->sending.data, (size_t)first);
        comm_router_lane_reset(line->out);
        KOLO_TRY(comm_routed.post(line->out, true, line->rank, line->tag, line->head_out, HEAD));
        if (bytes > INLINE)
            KOLO_TRY(comm_routed.post(line->out, true, line->rank, line->tag, line->sending.data + INLINE,
                                      (size_t)bytes - INLINE));
    }
}

/* 1: a whole frame stands in rest_in. */
static int take_frame(lib_line *line)
{
    if (line->at >= 0 && line->at < line->rest_in.size) return 1;
    if (!line->open) return 0;
    if (line->at >= 0) KOLO_TRY(post_head(line));
    int rc = comm_routed.done(line->in, line->rest_posted);
    if (rc <= 0) return rc;
    int64_t bytes;
    memcpy(&bytes, line->head_in, sizeof bytes);
    if (!line->rest_posted) {
        if (bytes < 8 || bytes % 8)
            return kolo_fail(KOLO_EINTERNAL, "comm: a frame of %ld bytes from rank %d", (long)bytes,
                             line->rank);
        line->rest_in.size = 0;
        KOLO_TRY(lib_put(&line->rest_in, NULL, (size_t)bytes));
        memcpy(line->rest_in.data, line->head_in + 8, (size_t)(bytes < INLINE ? bytes : INLINE));
    }
    if (!line->rest_posted && bytes > INLINE) {
        line->rest_posted = true;
        KOLO_TRY(comm_routed.post(line->in, false, line->rank, line->tag, line->rest_in.data + INLINE,
                                  (size_t)bytes - INLINE));
        rc = comm_routed.done(line->in, 1);
        if (rc <= 0) return rc;
    }
    line->at = 0;
    return 1;
}

int lib_line_take(lib_line *line, const void **message, int64_t *bytes)
{
    int rc = take_frame(line);
    if (rc <= 0) return rc;
    lib_reader from = {.at = line->rest_in.data + line->at, .end = line->rest_in.data + line->rest_in.size};
    *bytes = lib_take_number(&from);
    *message = *bytes >= 0 ? lib_take(&from, (size_t)*bytes) : NULL;
    if (!*message) return kolo_fail(KOLO_EINTERNAL, "comm: a broken frame from rank %d", line->rank);
    line->at = from.at - line->rest_in.data;
    return 1;
}

void lib_line_end(lib_line *line) { line->open = false; }
