/* One edge of the tree of negotiation: messages of any length, in order. Calls by the thread that holds the
 * turn. */
#ifndef KOLO_COMM_NEGOTIATE_LINE_H
#define KOLO_COMM_NEGOTIATE_LINE_H

#include "comm/library/negotiate.h"

typedef struct lib_line lib_line;
/* rank: of the world. A place for the first frame is posted. */
int lib_line_open(lib_line **line, comm_router *router, int rank, int tag);
void lib_line_close(lib_line **line);
/* Copies a message; lib_line_send sends what waits. 1: nothing is under way, 0: something
 * is, negative: broken. */
int lib_line_put(lib_line *line, const lib_bytes *message);
int lib_line_send(lib_line *line);
/* 1: *message, good until lib_line_taken, which must follow; last: nothing will come any more. */
int lib_line_take(lib_line *line, const void **message, int64_t *bytes);
int lib_line_taken(lib_line *line, bool last);

#endif
